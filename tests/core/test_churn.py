"""The questions about churn: a few rows in, the rows expected."""

from __future__ import annotations

from functools import partial

import pytest

from cases.tables import FULL, event, frame, same
from isrlab import churn

SIMULATED = [
    event(0, "isr_commit", FULL),
    event(0, "isr_commit", [1, 2], partition=1),
    event(1_000, "isr_shrink", [1, 2], FULL),
    event(1_040, "isr_commit", [1, 2], FULL),
    event(5_000, "isr_shrink", [1], [1, 2]),
    event(5_030, "isr_commit", [1], [1, 2]),
    event(9_000, "isr_expand", [1, 2], [1]),
    event(9_050, "isr_commit", [1, 2], [1]),
    event(99_000, "isr_expand", FULL, [1, 2]),
    event(99_100, "isr_commit", FULL, [1, 2]),
    event(100_000, "high_watermark"),
]


@pytest.fixture
def simulated(spark):
    return frame(spark, SIMULATED)


OF_CONTROLLER = {"said_by": "controller"}
ASKED = {"asked_by": "leader"}
SEEN = {"replicas": "1,2", "replicas_from": "seen"}
HISTORY = "ts_ms isr isr_before change by"
ANSWERS = [  # question, columns, rows
    (churn.isr_history, "partition ts_ms leader isr isr_before change", [
        (0, 0, 1, FULL, None, "first"),
        (0, 1_040, 1, [1, 2], FULL, "shrink"),
        (0, 5_030, 1, [1], [1, 2], "shrink"),
        (0, 9_050, 1, [1, 2], [1], "expand"),
        (0, 99_100, 1, FULL, [1, 2], "expand"),
        (1, 0, 1, [1, 2], None, "first"),
    ]),
    (churn.isr_intervals, "partition from_ms to_ms isr_size", [
        (0, 0, 1_040, 3),
        (0, 1_040, 5_030, 2),
        (0, 5_030, 9_050, 1),
        (0, 9_050, 99_100, 2),
        (0, 99_100, 100_000, 3),
        (1, 0, 100_000, 2),
    ]),
    (partial(churn.isr_intervals, end_ms=6_000), "partition from_ms to_ms",
     [(0, 0, 1_040), (0, 1_040, 5_030), (0, 5_030, 6_000), (1, 0, 6_000)]),
    (churn.changes_by_partition, "partition shrinks expands shrinks_by_controller rejected",
     [(0, 2, 2, 0, 0), (1, 0, 0, 0, 0)]),
    (churn.under_replicated,
     "partition replicas known_ms under_replicated_ms one_copy_ms uncertain_ms",
     [(0, 3, 100_000, 98_060, 4_020, 0), (1, 2, 100_000, 0, 0, 0)]),
    (churn.moves, "replica change ts_ms by isr_change", [
        (2, "joins", 9_050, "leader", "expand"),
        (2, "leaves", 5_030, "leader", "shrink"),
        (3, "joins", 99_100, "leader", "expand"),
        (3, "leaves", 1_040, "leader", "shrink"),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("ask", "columns", "rows"), ANSWERS)
def test_answers(simulated, ask, columns, rows):
    same(ask(simulated), rows, columns)


def test_late_news_and_what_is_known_already_are_no_changes(spark):
    rows = [
        event(0, "isr_commit", FULL, partition_epoch=2),
        event(10, "isr_commit", [1, 2], partition_epoch=3, detail=OF_CONTROLLER | ASKED),
        event(13, "isr_commit", [2, 1], partition_epoch=3),
        event(20, "isr_commit", FULL, partition_epoch=2),  # late
        event(50, "isr_commit", [1], partition_epoch=4, detail=OF_CONTROLLER),
    ]
    changes = [
        (0, FULL, None, "first", "leader"),
        (10, [1, 2], FULL, "shrink", "leader"),
        (50, [1], [2, 1], "shrink", "controller"),
    ]
    same(churn.isr_history(frame(spark, rows)), changes, HISTORY)


def test_what_is_not_known_has_a_column_of_its_own(spark):
    rows = [
        event(0, "isr_commit", FULL, partition_epoch=2),
        event(10, "unknown", broker=None, detail={"why": "lines are missing"}),
        event(30, "isr_commit", [1, 2], partition_epoch=9),
        event(35, "isr_commit", [1, 2], [1, 2], partition_epoch=9, detail=SEEN),
        event(40, "log_end", topic=None, partition=None),
    ]
    changes = [(0, "first"), (30, "unknown")]
    same(churn.isr_history(frame(spark, rows)), changes, "ts_ms change")
    columns = "from_ms to_ms isr_size replicas is_certain is_assigned"
    intervals = [(0, 10, 3, 3, True, True), (10, 30, None, 3, False, True),
                 (30, 35, 2, 3, True, True), (35, 40, 2, 2, True, False)]  # fmt: skip
    same(churn.isr_intervals(frame(spark, rows)), intervals, columns)
    times = "known_ms under_replicated_ms unassigned_ms uncertain_ms"
    same(churn.isr_times(frame(spark, rows)), [(20, 5, 5, 20)], times)


@pytest.mark.parametrize("ask", [ask for ask, _, _ in ANSWERS])
def test_no_events_no_answers(spark, ask):
    assert ask(frame(spark, [])).count() == 0
