"""Whole clusters: which brokers count as alive, what each reader may read, what a long run keeps.

cases/scenes.txt gives for each scene the fate of its records in each generation.
"""

from __future__ import annotations

import pytest

from isrlab.engine.choices import IsrWrite
from isrlab.engine.versions import PRESETS
from isrlab.world import scenario

PARTITION = "partition leader=1 replicas=1,2,3\n"


def play(version: str, text: str) -> scenario.Run:
    return scenario.play(PARTITION + text, version=version)


every_version = pytest.mark.parametrize("version", [v.name for v in PRESETS.values()])


@every_version
def test_a_healed_link_does_not_wake_a_paused_broker(version: str) -> None:
    cluster = play(version, "cut 1 controller\npause 1\nheal 1 controller\nadvance 60s").cluster
    assert not cluster.controller.is_alive(1)
    assert cluster.controller.leader == 2


@every_version
def test_a_broker_that_starts_unseen_is_given_up(version: str) -> None:
    cluster = play(version, "cut 3 controller\nkill 3\nstart 3\nadvance 60s").cluster
    assert not cluster.controller.is_alive(3)
    assert set(cluster.controller.isr) == {1, 2}


@every_version
def test_it_is_back_in_sync_once_it_is_seen(version: str) -> None:
    text = "cut 3 controller\nkill 3\nstart 3\nadvance {}\nheal 3 controller\nadvance 5s"
    for unseen in ("1s", "60s"):
        cluster = play(version, text.format(unseen)).cluster
        assert cluster.controller.is_alive(3)
        assert set(cluster.controller.isr) == {1, 2, 3}


@every_version
def test_a_leader_without_its_fetcher_takes_writes(version: str) -> None:
    run = play(version, "pause 1 fetcher\nproduce 1 m1 acks=1")
    assert run.cluster.requests[-1].error is None
    assert run.cluster.brokers[1].log.log_end_offset == 1


@every_version
def test_a_paused_leader_takes_none(version: str) -> None:
    run = play(version, "pause 1\nproduce 1 m1 acks=1")
    assert run.cluster.requests[-1].error == "REQUEST_TIMED_OUT"
    assert run.cluster.brokers[1].log.log_end_offset == 0


@every_version
def test_without_a_leader_a_paused_fetcher_does_not_keep_clients_waiting(version: str) -> None:
    """Both the client and a missing leader have the number -1."""
    text = "partition replicas=1,2 unclean.leader.election.enable=false\npause 2 fetcher\n"
    text += "produce 1 m1 acks=1\nadvance 60s\nkill 1\nadvance 60s\nproduce 2 m2 acks=1"
    run = scenario.play(text, version=version)
    assert run.cluster.controller.leader == -1
    assert run.cluster.requests[-1].error.startswith("NOT_LEADER")


def test_a_long_run_ends_in_its_last_state() -> None:
    """Pictures once stopped after 5,000 frames and events, while the text continued."""
    text = "partition replicas=1,2\nproduce 1 every=100ms for=130s acks=1\nadvance 1s\nstatus"
    run = scenario.play(text)
    assert "leo=1300 hw=1300" in run.printed
    assert run.frames[-1].brokers[1].log.high_watermark == 1_300
    assert [frame.disks[1].log_end_offset for frame in run.frames if frame.target == 1][-1] == 1_300
    assert all(frame.brokers for frame in run.frames)


# What each reader may read


@every_version
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


@every_version
def test_under_min_isr_nothing_new_is_readable_since_3_7(version: str) -> None:
    """Before 3.7 a record with acks=1 is committed there (KAFKA-15583)."""
    run = scenario.play(FROZEN, version=version)
    assert run.cluster.brokers[1].role.isr == (1,)
    end = 0 if version in ("3.7", "4.1", "4.3") else 2
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
    """It takes 1 to 2 lag limits, or 1 to 1.5 since 0.10.2; its clock may be 0.5 s old at first."""
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


@every_version
def test_when_an_idle_follower_learns_the_high_watermark(version: str) -> None:
    """It learns it when its parked fetch expires; in 2.4 and 2.5 immediately."""
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


@every_version
def test_a_leader_without_controller_keeps_its_isr(version: str) -> None:
    """ZooKeeper refuses each of its writes; a request to the controller stays in flight."""
    cluster = scenario.play(STUCK_LOOP, version=version).cluster
    assert set(cluster.brokers[1].role.isr) == {1, 2, 3}
    assert cluster.brokers[1].log.high_watermark == 0
    assert cluster.controller.leader == 2
    asked = [e.ts_ms for e in cluster.events if e.kind == "isr_shrink"]
    asks_the_controller = cluster.version.isr_write >= IsrWrite.ALTER_ISR
    assert len(asked) == 1 if asks_the_controller else len(set(asked)) >= 5
