"""The questions about churn: a few rows in, the rows expected."""

from __future__ import annotations

import pytest
from cases.tables import frame, same

from isrlab import churn
from isrlab.events import schema as events_table

pytest.importorskip("pyspark")

MINUTE = 60_000


def event(ts_ms, kind, isr=None, before=None, partition=0, broker=1, epoch=None, **more):
    return {
        "run": "r",
        "ts_ms": ts_ms,
        "kind": kind,
        "broker": broker,
        "topic": "t",
        "partition": partition,
        "isr": isr,
        "isr_before": before,
        "partition_epoch": epoch,
    } | more


FULL = [1, 2, 3]
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


def history(spark, rows):
    found = churn.isr_history(frame(spark, rows)).orderBy("partition", "ts_ms").collect()
    return [(row.ts_ms, row.isr, row.isr_before, row.change, row.by) for row in found]


def test_isr_history(simulated):
    same(
        churn.isr_history(simulated),
        [
            (0, 0, 1, FULL, None, "first"),
            (0, 1_040, 1, [1, 2], FULL, "shrink"),
            (0, 5_030, 1, [1], [1, 2], "shrink"),
            (0, 9_050, 1, [1, 2], [1], "expand"),
            (0, 99_100, 1, FULL, [1, 2], "expand"),
            (1, 0, 1, [1, 2], None, "first"),
        ],
        "partition ts_ms leader isr isr_before change",
    )


def test_isr_intervals(simulated):
    same(
        churn.isr_intervals(simulated),
        [
            (0, 0, 1_040, 3),
            (0, 1_040, 5_030, 2),
            (0, 5_030, 9_050, 1),
            (0, 9_050, 99_100, 2),
            (0, 99_100, 100_000, 3),
            (1, 0, 100_000, 2),
        ],
        "partition from_ms to_ms isr_size",
    )


def test_isr_intervals_end_where_asked(simulated):
    same(
        churn.isr_intervals(simulated, end_ms=6_000),
        [
            (0, 0, 1_040),
            (0, 1_040, 5_030),
            (0, 5_030, 6_000),
            (1, 0, 6_000),
        ],
        "partition from_ms to_ms",
    )


def test_changes_by_partition(simulated):
    same(
        churn.changes_by_partition(simulated),
        [(0, 2, 2, 0, 0), (1, 0, 0, 0, 0)],
        "partition shrinks expands shrinks_by_controller rejected",
    )


def test_changes_over_time(simulated):
    same(
        churn.changes_over_time(simulated, MINUTE),
        [(0, 2, 1), (MINUTE, 0, 1)],
        "from_ms shrinks expands",
    )


def test_under_replicated(simulated):
    same(
        churn.under_replicated(simulated),
        [
            (0, 3, 100_000, 98_060, 4_020, 0),
            (1, 2, 100_000, 0, 0, 0),
        ],
        "partition replicas known_ms under_replicated_ms time_with_one_copy_ms uncertain_ms",
    )


def test_under_replicated_with_replicas_given(simulated):
    same(
        churn.under_replicated(simulated, replicas=3),
        [(0, 98_060), (1, 100_000)],
        "partition under_replicated_ms",
    )


def test_flaps(simulated):
    same(
        churn.flaps(simulated),
        [(0, 2, 5_030, 9_050, 4_020)],
        "partition replica left_ms back_ms out_ms",
    )
    assert churn.flaps(simulated, within_ms=4_019).count() == 0


def test_slowest_expansions(simulated):
    longest = [(3, 1_040, 99_100, 98_060), (2, 5_030, 9_050, 4_020)]
    same(churn.slowest_expansions(simulated), longest, "replica left_ms back_ms out_ms")
    assert churn.slowest_expansions(simulated, most=1).count() == 1


def test_commit_delay(simulated):
    same(
        churn.commit_delay(simulated),
        [
            ("isr_shrink", 1_000, 40),
            ("isr_shrink", 5_000, 30),
            ("isr_expand", 9_000, 50),
            ("isr_expand", 99_000, 100),
        ],
        "kind asked_ms delay_ms",
    )


@pytest.mark.parametrize(
    "ask",
    [
        lambda frame: churn.flaps(frame, -1),
        lambda frame: churn.slowest_expansions(frame, -1),
        lambda frame: churn.changes_over_time(frame, 0),
    ],
)
def test_senseless_arguments_are_refused(simulated, ask):
    with pytest.raises(ValueError, match="must be"):
        ask(simulated)


LOG = {"file": "server.log"}


def test_logs_up_to_2_3_print_only_what_is_asked_for(spark):
    rows = [
        event(1, "isr_shrink", [1], [1, 2]),
        event(2, "isr_expand", [1, 2], [1]),
        event(3, "isr_shrink", [1], [1, 2]),
        event(3, "isr_rejected", detail={"error": "BAD_VERSION"}),
        event(5_000, "isr_shrink", [1], [1, 2]),
        event(5_000, "isr_rejected", detail={"error": "BAD_VERSION"}),
    ]
    assert history(spark, rows) == [
        (1, [1], [1, 2], "shrink", "leader"),
        (2, [1, 2], [1], "expand", "leader"),
    ]
    counts = churn.changes_by_partition(frame(spark, rows)).first()
    assert (counts.shrinks, counts.expands, counts.rejected) == (1, 1, 2)


def test_a_change_that_three_logs_tell_counts_once(spark):
    controller = LOG | {"said_by": "controller", "asked_by": "leader"}
    rows = [
        event(0, "leader", FULL, epoch=2, replica=1),
        event(10, "isr_shrink", [1, 2], FULL),
        event(40, "isr_commit", [2, 1], broker=9, epoch=3, detail=controller),
        event(43, "isr_commit", [1, 2], epoch=3, detail=LOG),
        event(45, "metadata", [1, 2], epoch=3, detail={"leader": "1"}),
        event(50, "metadata", FULL, broker=3, epoch=2, detail={"leader": "1"}),  # late news
    ]
    assert history(spark, rows) == [
        (0, FULL, None, "first", "controller"),
        (40, [2, 1], FULL, "shrink", "leader"),
    ]


def test_since_2_8_a_commit_without_a_word_before_is_an_expansion(spark):
    rows = [
        event(0, "isr_commit", [1, 2], epoch=4, detail=LOG),
        event(9, "isr_commit", [1, 2], epoch=6, detail=LOG),
        event(20, "isr_commit", FULL, epoch=7, detail=LOG),
    ]
    assert history(spark, rows) == [
        (0, [1, 2], None, "expand", "leader"),
        (9, [1, 2], None, "expand", "leader"),
        (20, FULL, [1, 2], "expand", "leader"),
    ]
    certain = churn.isr_intervals(frame(spark, rows)).orderBy("from_ms").collect()
    assert [row.is_certain for row in certain] == [False, True, True]


def test_a_dead_broker_is_taken_out_by_the_controller(spark):
    rows = [
        event(0, "leader", FULL, epoch=0, replica=1),
        event(50, "metadata", [1, 3], epoch=1, detail={"leader": "1"}),
        event(90, "isr_commit", [1, 3, 2], epoch=2, detail=LOG),
    ]
    assert [row[3:] for row in history(spark, rows)] == [
        ("first", "controller"),
        ("shrink", "controller"),
        ("expand", "leader"),
    ]


def test_no_events_no_answers(spark):
    nothing = spark.createDataFrame([], events_table.spark_schema())
    for ask in (
        churn.isr_history,
        churn.isr_intervals,
        churn.changes_by_partition,
        churn.flaps,
        churn.changes_over_time,
        churn.under_replicated,
        churn.slowest_expansions,
        churn.commit_delay,
    ):
        assert ask(nothing).count() == 0
