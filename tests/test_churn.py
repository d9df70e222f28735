"""The questions about churn: a few rows in, the rows expected."""

from __future__ import annotations

from functools import partial

import pytest
from cases.tables import FULL, event, frame, same

from isrlab import churn

SIMULATED = [
    event(0, "leader", FULL, replica=1),
    event(0, "leader", [1, 2], partition=1, replica=1),
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


HISTORY = "ts_ms isr isr_before change by"
OUT = "replica left_ms back_ms out_ms"
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
    (churn.changes_over_time, "from_ms shrinks expands", [(0, 2, 1), (60_000, 0, 1)]),
    (churn.under_replicated,
     "partition replicas known_ms under_replicated_ms time_with_one_copy_ms uncertain_ms",
     [(0, 3, 100_000, 98_060, 4_020, 0), (1, 2, 100_000, 0, 0, 0)]),
    (partial(churn.under_replicated, replicas=3), "partition under_replicated_ms",
     [(0, 98_060), (1, 100_000)]),
    (churn.flaps, f"partition {OUT}", [(0, 2, 5_030, 9_050, 4_020)]),
    (partial(churn.flaps, within_ms=4_019), "replica", []),
    (churn.absences, OUT, [(2, 5_030, 9_050, 4_020), (3, 1_040, 99_100, 98_060)]),
    (churn.commit_delay, "kind asked_ms delay_ms",
     [("isr_shrink", 1_000, 40), ("isr_shrink", 5_000, 30), ("isr_expand", 9_000, 50),
      ("isr_expand", 99_000, 100)]),
]  # fmt: skip


@pytest.mark.parametrize(("ask", "columns", "rows"), ANSWERS)
def test_answers(simulated, ask, columns, rows):
    same(ask(simulated), rows, columns)


@pytest.mark.parametrize(("ask", "wrong"), [(churn.flaps, -1), (churn.changes_over_time, 0)])
def test_senseless_arguments_are_refused(simulated, ask, wrong):
    with pytest.raises(ValueError, match="must be"):
        ask(simulated, wrong)


LOG = {"file": "server.log"}


def test_logs_up_to_2_3_print_only_what_is_asked_for(spark):
    rows = [
        event(1, "isr_shrink", [1], [1, 2]),
        event(2, "isr_expand", [1, 2], [1]),
        event(3, "isr_shrink", [1], [1, 2]),
        event(3, "isr_rejected", detail={"error": "BADVERSION"}),
        event(5_000, "isr_shrink", [1], [1, 2]),
        event(5_000, "isr_rejected", detail={"error": "BADVERSION"}),
    ]
    events = frame(spark, rows)
    changes = [(1, [1], [1, 2], "shrink", "leader"), (2, [1, 2], [1], "expand", "leader")]
    same(churn.isr_history(events), changes, HISTORY)
    same(churn.changes_by_partition(events), [(1, 1, 2)], "shrinks expands rejected")


def test_a_change_that_three_logs_tell_counts_once(spark):
    controller = LOG | {"said_by": "controller", "asked_by": "leader"}
    rows = [
        event(0, "leader", FULL, partition_epoch=2, replica=1),
        event(10, "isr_shrink", [1, 2], FULL),
        event(40, "isr_commit", [2, 1], broker=9, partition_epoch=3, detail=controller),
        event(43, "isr_commit", [1, 2], partition_epoch=3, detail=LOG),
        event(45, "metadata", [1, 2], partition_epoch=3, detail={"leader": "1"}),
        event(
            50, "metadata", FULL, broker=3, partition_epoch=2, detail={"leader": "1"}
        ),  # late news
    ]
    changes = [(0, FULL, None, "first", "controller"), (40, [2, 1], FULL, "shrink", "leader")]
    same(churn.isr_history(frame(spark, rows)), changes, HISTORY)


def test_since_2_8_a_commit_without_a_word_before_is_an_expansion(spark):
    rows = [
        event(0, "isr_commit", [1, 2], partition_epoch=4, detail=LOG),
        event(9, "isr_commit", [1, 2], partition_epoch=6, detail=LOG),
        event(20, "isr_commit", FULL, partition_epoch=7, detail=LOG),
    ]
    changes = [
        (0, [1, 2], None, "expand", "leader"),
        (9, [1, 2], None, "expand", "leader"),
        (20, FULL, [1, 2], "expand", "leader"),
    ]
    same(churn.isr_history(frame(spark, rows)), changes, HISTORY)
    certain = [(0, False), (9, True), (20, True)]
    same(churn.isr_intervals(frame(spark, rows)), certain, "from_ms is_certain")


def test_a_dead_broker_is_taken_out_by_the_controller(spark):
    rows = [
        event(0, "leader", FULL, partition_epoch=0, replica=1),
        event(50, "metadata", [1, 3], partition_epoch=1, detail={"leader": "1"}),
        event(90, "isr_commit", [1, 3, 2], partition_epoch=2, detail=LOG),
    ]
    changes = [(0, "first", "controller"), (50, "shrink", "controller"), (90, "expand", "leader")]
    same(churn.isr_history(frame(spark, rows)), changes, "ts_ms change by")


def test_a_broker_that_was_gone_does_not_flap(spark):
    """1 evicts 2, which lags, and 3, which has died; then its controller shuts 2 down."""
    of_controller = LOG | {"said_by": "controller"}
    rows = [
        event(0, "leader", FULL, replica=1),
        event(1_000, "isr_commit", [1, 3], FULL),
        event(2_000, "isr_commit", FULL, [1, 3]),
        event(5_000, "isr_commit", [1, 2], FULL),
        event(8_000, "crash", broker=9, replica=3, detail=of_controller),
        event(20_000, "isr_commit", FULL, [1, 2]),
        event(30_000, "isr_commit", [1, 3], FULL, broker=9, detail=of_controller),
        event(40_000, "isr_commit", FULL, [1, 3]),
    ]
    events = frame(spark, rows)
    expected = [(2, 1_000, "lag"), (3, 5_000, "gone"), (2, 30_000, "controller")]
    same(churn.absences(events), expected, "replica left_ms why")
    same(churn.flaps(events), [(2, 1_000)], "replica left_ms")


@pytest.mark.parametrize("ask", [ask for ask, _, _ in ANSWERS])
def test_no_events_no_answers(spark, ask):
    assert ask(frame(spark, [])).count() == 0
