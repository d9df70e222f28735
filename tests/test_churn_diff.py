"""The diff of two runs: ten changes in, the fates expected."""

from __future__ import annotations

import pytest
from cases.tables import FULL, event, frame, same

from isrlab import churn


def change(run, ts_ms, before, after, partition=0):
    return event(ts_ms, "isr_commit", after, before, run=run, partition=partition)


TEN = [
    change("old", 1_000, FULL, [1, 2]),  # the same in both
    change("new", 1_000, FULL, [1, 2]),
    change("old", 4_000, [1, 2], FULL),  # 10 ms later
    change("new", 4_010, [1, 2], FULL),
    change("old", 30_000, FULL, [1]),  # two at once; one of them leaves 5 s later, one not at all
    change("new", 35_000, FULL, [1, 2]),
    change("old", 31_000, FULL, [1, 3], partition=1),  # too far apart to be the same
    change("new", 61_000, FULL, [1, 3], partition=1),
    change("new", 70_000, [1, 3], FULL, partition=1),
    change("new", 1_000, FULL, [1, 2], partition=2),  # another partition
]


@pytest.fixture
def ten(spark):
    return frame(spark, TEN)


def counted(diffs):
    """How many changes have each fate."""
    fates = ["same", "moved", "gone", "new"]
    return diffs.groupBy("was", "now", "change").pivot("fate", fates).count().na.fill(0)


def test_each_change_has_a_fate(ten):
    rows = [
        (0, 3, "leaves", "same", 1_000, 1_000, 0),
        (0, 3, "joins", "moved", 4_000, 4_010, 10),
        (0, 2, "leaves", "gone", 30_000, None, None),
        (0, 3, "leaves", "moved", 30_000, 35_000, 5_000),
        (1, 2, "leaves", "gone", 31_000, None, None),
        (1, 2, "leaves", "new", None, 61_000, None),
        (1, 2, "joins", "new", None, 70_000, None),
        (2, 3, "leaves", "new", None, 1_000, None),
    ]
    columns = "partition replica change fate was_ms now_ms moved_ms"
    same(churn.diff(ten, [("old", "new")]), rows, columns)


@pytest.mark.parametrize(
    ("tolerance_ms", "rows"),
    [
        (9, [("leaves", 1, 0, 3, 3), ("joins", 0, 0, 1, 2)]),
        (10_000, [("leaves", 1, 1, 2, 2), ("joins", 0, 1, 0, 1)]),
        (30_000, [("leaves", 1, 2, 1, 1), ("joins", 0, 1, 0, 1)]),
    ],
)
def test_the_tolerance_decides_what_has_moved(ten, tolerance_ms, rows):
    found = counted(churn.diff(ten, [("old", "new")], tolerance_ms))
    same(found, rows, "change same moved gone new")


def test_a_tolerance_is_not_negative(ten):
    with pytest.raises(ValueError, match="tolerance_ms must be 0 or more, not -1"):
        churn.diff(ten, [("old", "new")], tolerance_ms=-1)


def test_several_pairs_backwards_and_a_run_without_events(ten):
    pairs = [("new", "old"), ("old", "calm"), ("old", "old")]
    found = counted(churn.diff(ten, pairs)).where("change = 'leaves'")
    rows = [("new", "old", 1, 1, 2, 2), ("old", "calm", 0, 0, 4, 0), ("old", "old", 4, 0, 0, 0)]
    same(found, rows, "was now same moved gone new")


def test_of_two_in_reach_the_nearer_matches(spark):
    rows = [
        change("old", 1_000, FULL, [1, 2]),
        change("old", 2_000, [1, 2], FULL),
        change("old", 9_000, FULL, [1, 2]),
        change("new", 8_000, FULL, [1, 2]),
    ]
    found = churn.diff(frame(spark, rows), [("old", "new")]).where("change = 'leaves'")
    same(found, [("gone", 1_000, None), ("moved", 9_000, 8_000)], "fate was_ms now_ms")
