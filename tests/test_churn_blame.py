"""Who is to blame for evictions: a few rows in, the verdict expected."""

from __future__ import annotations

import pytest
from cases.tables import FULL, event, frame, same

from isrlab import churn, fleet
from isrlab.fleet import truth

CONFIG = fleet.FleetConfig(
    version="3.7", partitions=12, brokers=4, minutes=8, load="steady", stall_s=0,
    leader_stall_s=45, leader_stall_every_s=240, min_insync_replicas=2, name="slow leader",
)  # fmt: skip


TROUBLES = "run string, cause string, broker int, from_ms long, to_ms long"


def shrink(ts_ms, leader, partition, isr, before=FULL, kind="isr_commit", **more):
    return event(ts_ms, kind, isr, before, broker=leader, partition=partition, **more)


TEN = [
    shrink(1_000, 1, 0, [1, 2]),  # replica 3 leaves the leaders 1 and 2
    shrink(2_000, 2, 1, [1, 2]),
    shrink(20_000, 2, 2, [2, 1]),
    shrink(100_000, 1, 3, [1]),  # leader 1 loses 2 and 3
    shrink(104_000, 1, 4, [1, 3]),
    shrink(200_000, 2, 5, [2, 3]),  # broker 1 leaves, and evicts the others
    shrink(200_100, 1, 6, [1]),
    shrink(300_000, 3, 7, [1, 3]),  # one leader and one replica
    shrink(400_000, 1, 8, [1, 3]),  # nothing in common
    shrink(400_000, 3, 9, [2, 3]),
    shrink(500_000, 4, 10, [4, 5], [4, 5, 6]),
    shrink(900_000, 1, 11, [1, 2], kind="isr_commit", detail={"said_by": "controller"}),
]


def test_blame(spark):
    rows = [
        (1_000, 20_000, 3, 3, 2, 2 / 3, 3, 1.0, "follower 3"),
        (100_000, 104_000, 3, 2, 1, 1.0, 2, 2 / 3, "leader 1"),
        (200_000, 200_100, 3, 2, 1, 2 / 3, 1, 1 / 3, "broker 1"),
        (300_000, 300_000, 1, 1, 3, 1.0, 2, 1.0, "unclear"),
        (400_000, 400_000, 2, 2, 1, 0.5, 1, 0.5, "broker 1"),
        (500_000, 500_000, 1, 1, 4, 1.0, 6, 1.0, "unclear"),
    ]
    columns = "from_ms to_ms evictions partitions leader leader_share replica replica_share verdict"
    same(churn.blame(frame(spark, TEN)), rows, columns)


def test_blame_needs_as_large_a_share_as_is_asked_for(spark):
    rows = [*[shrink(n, 1, n, [1, 2]) for n in range(3)], *[shrink(9, 2, 9, [2, 3])]]
    rows += [shrink(10, 1, 10, [1, 3])]
    events = frame(spark, rows)
    same(churn.blame(events), [(1, 0.8, 3, 0.6, "leader 1")],
         "leader leader_share replica replica_share verdict")  # fmt: skip
    same(churn.blame(events, share=0.9), [("broker 1",)], "verdict")
    same(churn.blame(events, quiet_ms=1), [("unclear",), ("broker 1",)], "verdict")


@pytest.mark.parametrize("wrong", [{"quiet_ms": 0}, {"share": 0.5}, {"share": 1.1}])
def test_blame_refuses_limits_that_mean_nothing(spark, wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"^{name} must be"):
        churn.blame(frame(spark, TEN[:1]), **wrong)


def test_evictions_by_pair(spark):
    rows = [(1, 2, 4), (1, 3, 3), (2, 1, 1), (2, 3, 2), (3, 2, 1), (3, 1, 1), (4, 6, 1)]
    found = churn.evictions_by_pair(frame(spark, TEN))
    same(found, sorted(rows), "leader replica evictions")


def test_under_replicated_by_leader(spark):
    rows = [
        shrink(0, 1, 0, FULL, [1], kind="isr_commit"),
        shrink(1_000, 1, 0, [1, 2], kind="isr_commit"),
        shrink(4_000, 1, 0, [1], [1, 2], kind="isr_commit"),
        shrink(0, 2, 1, [2, 1], FULL, kind="isr_commit"),
    ]
    found = churn.under_replicated_by_leader(frame(spark, rows), end_ms=10_000)
    same(found, [(1, 9_000, 6_000), (2, 10_000, 0)], "leader under_replicated_ms one_copy_ms")


def test_troubles_and_the_verdicts_they_confirm(spark):
    rows = [
        ("r", "follower 3", 3, 0, 1_500),
        ("r", "leader 2", 2, 99_000, 99_500),
        ("r", "leader 1", 1, 199_000, 200_000),
        ("r", "follower 1", 1, 199_000, 200_000),
    ]
    troubles = spark.createDataFrame(rows, TROUBLES)
    judged = truth.judged_blame(churn.blame(frame(spark, TEN[:7])), troubles, after_ms=5_000)
    rows = [("follower 3", ["follower 3"], True), ("leader 1", ["leader 2"], False),
            ("broker 1", ["follower 1", "leader 1"], True)]  # fmt: skip
    same(judged, rows, "verdict causes is_right")


def test_a_fleet_with_slow_leaders_blames_them(spark):
    events = fleet.simulate(spark, CONFIG, tasks=2).cache()
    troubles = truth.troubles(spark, CONFIG)
    assert {row.cause[:6] for row in troubles.collect()} == {"leader"}
    judged = truth.judged_blame(churn.blame(events), troubles).collect()
    assert len(judged) >= 3
    assert all(row.is_right for row in judged if row.verdict != "unclear")
    assert sum(row.is_right for row in judged) >= 2
    rows = truth.spared(events, troubles).collect()
    assert len(rows) == sum(row.evictions for row in judged)
    assert all(row.is_spared or row.is_after for row in rows)


def test_spared(spark):
    def silent(ts_ms, since_ms, isr, leader=1):
        detail = {"since_fetch_ms": str(since_ms)}
        asked = shrink(ts_ms, leader, 0, isr, kind="isr_shrink", detail=detail)
        return [asked, shrink(ts_ms, leader, 0, isr)]

    events = [
        *silent(40_000, 31_000, [1, 2]),  # the leader stands still, 3 waits
        *silent(50_000, 41_000, [1, 3]),  # so does 2, which stands still itself
        *silent(60_100, 101, [1, 2]),  # its first fetch since was answered at 60,000
        *silent(95_000, 31_000, [1, 2]),
        *silent(40_000, 31_000, [2, 1], leader=2),
    ]
    troubles = spark.createDataFrame(
        [("r", "leader 1", 1, 10_000, 60_000), ("r", "follower 2", 2, 45_000, 55_000)], TROUBLES
    )
    rows = [
        (1, 3, 40_000, True, False),
        (2, 3, 40_000, False, False),
        (1, 2, 50_000, False, False),
        (1, 3, 60_100, False, True),
        (1, 3, 95_000, False, False),
    ]
    found = truth.spared(frame(spark, events), troubles)
    same(found, rows, "leader replica ts_ms is_spared is_after")
