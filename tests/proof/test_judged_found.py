"""Differences that Kafka's classes showed, each as the shortest schedule, with what Kafka shows.

Played by the engine without Java; `make judge` plays random ones on both (data/judged/found.toml).
"""

from __future__ import annotations

import pytest

from isrlab.engine import broker as machine
from isrlab.engine import messages as m
from isrlab.engine.model import Broker, Leader, Settings
from isrlab.engine.versions import KafkaVersion
from isrlab_proof import judged
from isrlab_proof.judged.stored import player


@pytest.mark.parametrize(
    ("release", "high_watermark"), [("2.3.1", 1), ("2.4.1", 0), ("2.5.1", 0), ("2.6.3", 0)]
)
def test_q_an_isr_change_looks_at_the_high_watermark_if_its_fetch_moved(
    release, high_watermark
) -> None:
    """ZooKeeper refuses the change; the fetch that asked was at the offset of the one before."""
    settings = {"min_insync_replicas": 1, "replica_lag_time_max_ms": 1_000}
    leader = player("partition", KafkaVersion.of(release), settings)
    fetch = ["fetch", 2, 0, -1, -1, 0]
    before = [["order", 1, 1, [1]], ["zookeeper", False], fetch, ["append", 1], ["wait", 1_001]]
    for command in (*before, fetch):
        leader.do(*command)
    assert leader.seen()["hw"] == high_watermark


@pytest.mark.parametrize("release", ["0.9.0.1", "0.10.1.1"])
def test_r_a_follower_remembers_replicas_that_an_order_adds(release) -> None:
    """Their clocks run from then on, and are too old when it begins to lead."""
    version = KafkaVersion.of(release)
    settings = Settings.of(version, replica_lag_time_max_ms=10_000)
    broker, _ = machine.start(Broker(1, version, settings, (1, 2)))
    steps = [
        (1_000, m.LeaderAndIsr(2, 1, (1, 2), 1, (1, 2))),
        (1_000, m.LeaderAndIsr(2, 2, (1, 2), 2, (1, 2, 3))),
        (11_001, m.LeaderAndIsr(1, 3, (1, 3), 3, (1, 2, 3))),
        (11_001, m.Produce(1, ("m1",), 1)),
        (11_001, m.ExpireIsr()),
    ]
    for now_ms, message in steps:
        broker, outputs = machine.step(broker, message, now_ms)
    sent = [output.message for output in outputs if isinstance(output, m.Send)]
    asked = [message for message in sent if isinstance(message, m.AlterPartition)]
    assert isinstance(broker.role, Leader)
    assert [change.isr for change in asked] == [(1,)]


U = [
    *(["reassign", [2]], ["reassign", [2, 1, 4]], ["expire", 2], ["expire", 1]),
    *(["reassign", None], ["register", 4, 1, True], ["register", 2, 2, False]),
]


def test_u_a_controller_that_would_elect_what_is_no_replica_fails() -> None:
    """It looks for the directory of broker 4 in the partition, and steps down."""
    settings = {"min_insync_replicas": 3, "unclean_leader_election_enable": True}
    for release in ("4.1.2", "4.3.1"):
        controller = player("controller", KafkaVersion.of(release), settings)
        for command in U[:-1]:
            controller.do(*command)
        assert controller.seen()["last_known_elr"] == [4]
        controller.do(*U[-1])
        assert controller.seen() == {"has_failed": True}


def test_each_is_listed() -> None:
    assert {"Q", "R", "U"} < set(judged.found())
