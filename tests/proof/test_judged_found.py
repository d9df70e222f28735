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

Q = [("2.3.1", 1), ("2.4.1", 0), ("2.5.1", 0), ("2.6.3", 0)]


@pytest.mark.parametrize(("release", "end"), Q)
def test_q_an_isr_change_looks_at_the_high_watermark_if_its_fetch_moved(release, end) -> None:
    """ZooKeeper refuses the change; the fetch that asked was at the offset of the one before."""
    settings = {"min_insync_replicas": 1, "replica_lag_time_max_ms": 1_000}
    leader = player("partition", KafkaVersion.of(release), settings)
    fetch = ["fetch", 2, 0, -1, -1, 0]
    before = [["order", 1, 1, [1]], ["zookeeper", False], fetch, ["append", 1], ["wait", 1_001]]
    for command in (*before, fetch):
        leader.do(*command)
    assert leader.seen()["hw"] == end


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


@pytest.mark.parametrize("release", ["2.7.2", "3.3.2", "4.1.2"])
def test_z_a_parked_fetch_hears_that_its_epoch_has_gone(release) -> None:
    """The leader's new epoch begins where the fetched one did; then the high watermark moves."""
    settings = {"min_insync_replicas": 2, "replica_lag_time_max_ms": 30_000}
    leader = player("partition", KafkaVersion.of(release), settings)
    brokers = ["brokers", *([number, 0, True] for number in (1, 2, 3, 4))]
    fetch = ["fetch", 3, 1, 3, -1, 0]
    before = [["order", 1, 1, [1, 2, 3, 4]], brokers, ["produce"], ["order", 3, 2, [1, 3, 4]]]
    for command in (*before, fetch, ["order", 4, 3, [1, 3]]):
        leader.do(*command)
    assert leader.seen()["fetch of 3"] == [1, 1]


UNCLEAN = {"unclean_leader_election_enable": True, "min_insync_replicas": 3}
NO_ELR = UNCLEAN | {"partitions": [[1]], "has_elr": False}
MOVES = [["expire", 1], ["reassign", [1, 2]]]
TURNED = [["shut_down", 2], ["shut_down", 2], ["reassign", [3, 1]], ["reassign", None]]
AGAIN = [["expire", 3], ["configure", 3], ["register", 3, 1, False], ["expire", 3]]
CONTROLLERS = (  # difference, releases, settings, schedule, and what Kafka shows at its end
    ("U", "4.1.2 4.3.1", UNCLEAN, [
        *(["reassign", [2]], ["reassign", [2, 1, 4]], ["expire", 2], ["expire", 1]),
        *(["reassign", None], ["register", 4, 1, True], ["register", 2, 2, False]),
    ], {"has_failed": True}),
    ("AA", "4.0.2 4.1.2 4.2.2 4.3.1 4.4.0", NO_ELR, [*MOVES, ["register", 1, 1, True]],
     {"leader": 2, "isr": [2], "is_recovering": True}),
    ("AA", "3.9.2", NO_ELR, [*MOVES, ["register", 1, 1, True]], {"leader": 1, "isr": [1]}),
    ("AB", "3.9.2 4.0.2 4.1.2 4.4.0", NO_ELR, [*MOVES, ["tick", "unclean"]], {"leader": 2}),
    ("AC", "4.1.2 4.3.1 4.4.0", UNCLEAN | {"partitions": [[3]], "min_insync_replicas": 2},
     [*AGAIN, ["register", 3, 2, False]], {"partition_epoch": 7}),
    ("AC", "4.1.2 4.3.1 4.4.0", UNCLEAN | {"partitions": [[3]], "min_insync_replicas": 2},
     [*AGAIN, ["fail_over"], ["register", 3, 2, False]], {"partition_epoch": 7, "leader": 3}),
    ("AD", "4.1.2 4.3.1 4.4.0", UNCLEAN | {"partitions": [[2]]}, [*TURNED, ["expire", 4]],
     {"isr": [], "elr": [2]}),
    ("AF", "3.9.2 4.1.2 4.4.0", NO_ELR, [*MOVES, ["fail_over"]], {"leader": -1, "isr": [1]}),
)  # fmt: skip


@pytest.mark.parametrize(("letter", "releases", "settings", "schedule", "shown"), CONTROLLERS)
def test_a_controller_shows_what_kafka_shows(letter, releases, settings, schedule, shown) -> None:
    for release in releases.split():
        controller = player("controller", KafkaVersion.of(release), settings)
        for command in schedule:
            controller.do(*command)
        assert controller.seen().items() >= shown.items(), release


def test_each_is_listed() -> None:
    assert {"Q", "R", "Z", *(row[0] for row in CONTROLLERS)} < set(judged.found())
