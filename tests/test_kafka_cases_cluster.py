"""Whole clusters: Kafka's end-to-end tests of the epoch protocol, and of KIP-101 and KIP-279.

What becomes of the records of a scene in each generation stands above it, in cases/scenes.txt.
"""

from __future__ import annotations

import pytest
from cases import scenes

from isrlab.engine.choices import IsrWrite
from isrlab.engine.versions import PRESETS
from isrlab.world import scenario

NAMES = [v.name for v in PRESETS.values()]


def records(run: scenario.Run, broker: int) -> list[str]:
    return [r.id for r in run.cluster.disks[broker].records]


@pytest.mark.parametrize("version", ["0.11", "2.5", "3.7"])
def test_i2_logs_are_identical(version: str) -> None:
    run = scenes.play("i2_divergent_logs", version)
    assert records(run, 1) == records(run, 2)
    assert len(records(run, 1)) == 14


@pytest.mark.parametrize("version", NAMES)
def test_i4_no_record_is_lost(version: str) -> None:
    """I4 counts log end offsets; before 0.11 this schedule happens to lose nothing either."""
    run = scenes.play("i4_fast_leader_change", version)
    assert [records(run, b) for b in (1, 2)] == [[f"m{i}" for i in range(1, 7)]] * 2
    assert run.cluster.controller.leader_epoch >= 5


@pytest.mark.parametrize("version", NAMES)
def test_kip_279_which_records_differ(version: str) -> None:
    run = scenes.play("kip_279", version)
    one, other = records(run, 1), records(run, 2)
    differ = [o for o in range(25) if one[o] != other[o]]
    assert differ == (list(range(10, 15)) if version in NAMES[:4] else [])


# Who may read what


@pytest.mark.parametrize("version", NAMES)
def test_a_consumer_reads_below_the_high_watermark(version: str) -> None:
    run = scenario.play(
        """
        partition leader=1 replicas=1,2
        produce 1 m1 m2 acks=1
        consume 1
        stabilize
        consume 1
        consume 2
        """,
        version=version,
    )
    reads = [line.strip() for line in run.lines if "reads" in line or "NOT_LEADER" in line]
    assert reads[0] == "client    reads up to offset 0 (exclusive):"
    assert reads[1] == "client    reads up to offset 2 (exclusive): m1 m2"
    assert "NOT_LEADER" in reads[2]


FROZEN = """
partition leader=1 replicas=1,2 min.insync.replicas=2
cut 1 2
advance 6s
produce 1 m1 acks=1
advance 100s
produce 1 m2 acks=1
consume 1
"""


@pytest.mark.parametrize("version", NAMES)
def test_under_min_isr_nothing_new_is_readable_since_3_7(version: str) -> None:
    """A record of acks=1 counts as committed before (KAFKA-15583)."""
    run = scenario.play(FROZEN, version=version)
    assert run.cluster.brokers[1].role.isr == (1,)
    end = 0 if version in ("3.7", "4.1") else 2
    assert f"reads up to offset {end} (exclusive)" in run.lines[-1]


STALLED = """
partition leader=1 replicas=1,2
produce 1 m1 acks=1
stabilize
advance {start}ms
cut 1 2
produce 1 m2 acks=1
"""


@pytest.mark.parametrize("start_ms", [1_000, 4_900, 5_100, 9_900, 14_900, 29_000])
@pytest.mark.parametrize(
    ("version", "least_s", "most_s"),
    [("0.8.2", 10, 20), ("0.9.0", 10, 20), ("0.10.2", 10, 15), ("2.5", 30, 45), ("3.7", 30, 45)],
)
def test_a_stalled_follower_leaves_between(version, least_s, most_s, start_ms):
    """1 to 2 lag times, since 0.10.2 1 to 1.5; its clock may be half a second old at first."""
    run = scenario.play(STALLED.format(start=start_ms), version=version)
    cluster, began_ms = run.cluster, run.cluster.now_ms
    while cluster.brokers[1].role.isr != (1,):
        cluster.advance(100)
    assert least_s * 1_000 - 600 <= cluster.now_ms - began_ms <= most_s * 1_000


IDLE_PUSH = """
partition leader=1 replicas=1,2
advance 10s
produce 1 m1 acks=1
stabilize
"""


@pytest.mark.parametrize("version", NAMES)
def test_when_an_idle_follower_learns_the_high_watermark(version: str) -> None:
    """When its parked fetch expires; at once in 2.4 and 2.5."""
    run = scenario.play(IDLE_PUSH, version=version)
    cluster = run.cluster
    hw = [cluster.brokers[b].log.high_watermark for b in (1, 2)]
    assert hw == [1, 1 if version in ("2.4", "2.5") else 0]
    cluster.advance(500)
    assert cluster.brokers[2].log.high_watermark == 1


STUCK_LOOP = """
partition leader=1 replicas=1,2,3
cut 1 controller
advance 6s
cut 1 3
produce 1 m1 acks=1
advance 100s
"""


@pytest.mark.parametrize("version", NAMES)
def test_a_leader_without_controller_keeps_its_isr(version: str) -> None:
    """ZooKeeper refuses its writes, one after the other; a request to KRaft stays on its way."""
    cluster = scenario.play(STUCK_LOOP, version=version).cluster
    assert set(cluster.brokers[1].role.isr) == {1, 2, 3}
    assert cluster.brokers[1].log.high_watermark == 0
    assert cluster.controller.leader == 2
    asked = [e.ts_ms for e in cluster.events if e.kind == "isr_shrink"]
    asks_the_controller = cluster.version.isr_write >= IsrWrite.ALTER_ISR
    assert len(asked) == 1 if asks_the_controller else len(set(asked)) >= 5
