"""The exact evaluator against the Spark questions: random fleets, the same answers.

Two programs that share nothing but the table: each is the other's judge. There is one
clock, so what `churn.isr_history` does about clocks and missing lines must have no effect here.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from isrlab import churn, fleet
from isrlab.engine.versions import PRESETS
from isrlab.events import exact
from isrlab.fleet.config import FleetConfig

PARTITION = ("run", "topic", "partition")
SEED = 1
FLEETS = 24
MINUTES = 6


def fleets(seed: int, count: int) -> list[FleetConfig]:
    """Small restless fleets, one after the other in every version."""
    draw = random.Random(seed)
    versions = [version.name for version in PRESETS.values()] * count
    return [
        FleetConfig(
            version,
            name=f"{place} {version}",
            partitions=draw.randint(1, 12),
            brokers=draw.randint(3, 5),
            replication_factor=draw.randint(2, 3),
            minutes=MINUTES,
            seed=draw.randrange(1_000_000),
            replica_lag_time_max_ms=draw.choice([500, 2_000, 10_000]),
            stall_s=draw.choice([0, 1, 5, 15]),
            stall_every_s=draw.choice([20, 60]),
            leader_stall_s=draw.choice([0, 5]),
            leader_stall_every_s=60,
            restart_s=draw.choice([0, 0, 20]),
            restart_every_s=60,
            burst_every_s=30,
            isr_commit_ms=draw.choice([1, 10, 500, 5_000]),
            min_insync_replicas=draw.randint(1, 3),
        )
        for place, version in enumerate(versions[:count])
    ]


@pytest.fixture(scope="module")
def events():
    return fleet.simulate_local(fleets(SEED, FLEETS))


@pytest.fixture(scope="module")
def frame(spark, events):
    return spark.createDataFrame(events).persist()


def test_the_fleets_are_restless(events) -> None:
    """The comparison is not of two empty answers, which would also agree."""
    moves = Counter(move.key.run for move in exact.moves(events))
    assert len(moves) > FLEETS // 2
    evictions = exact.evictions(events)
    assert 100 < len(evictions) < len(exact.absences(events))  # some are the controller's
    assert any(absence.end_ms is None for absence in exact.absences(events))


def rows_of(frame, *columns):
    """The rows of a question, each as a tuple of these columns, in order."""
    return sorted(tuple(row[c] for c in (*PARTITION, *columns)) for row in frame.collect())


@pytest.mark.parametrize("end_ms", [None, MINUTES * 30_000])
def test_isr_spans(events, frame, end_ms) -> None:
    intervals = churn.isr_intervals(frame, end_ms).where("is_certain")
    spans = exact.isr_spans(events, end_ms)
    expected = [(*key, s.start_ms, s.end_ms, sorted(s.isr)) for key in spans for s in spans[key]]
    rows = rows_of(intervals, "from_ms", "to_ms", "isr")
    assert [(*row, sorted(isr)) for *row, isr in rows] == sorted(expected)


def test_moves(events, frame) -> None:
    change = {True: "joins", False: "leaves"}
    moves = [(*m.key, m.ts_ms, m.replica, change[m.joined]) for m in exact.moves(events)]
    assert rows_of(churn.moves(frame), "ts_ms", "replica", "change") == sorted(moves)


def test_evictions(events, frame) -> None:
    expected = sorted((*a.key, a.leader, a.replica, a.start_ms) for a in exact.evictions(events))
    assert (
        rows_of(churn.removals(frame).where("by = 'leader'"), "leader", "replica", "ts_ms")
        == expected
    )


def test_under_replicated(events, frame) -> None:
    spans = exact.isr_spans(events)
    whole = exact.isr_spans(events, start_ms=0)  # with what the first change says of before
    full = {key: max(len(s.isr) for s in whole[key]) for key in spans}
    missing = {key: [s for s in spans[key] if len(s.isr) < full[key]] for key in spans}
    expected = sorted((*key, sum(s.end_ms - s.start_ms for s in missing[key])) for key in spans)
    rows = churn.under_replicated(frame)
    assert rows_of(rows, "under_replicated_ms") == expected


def test_waits(events, frame) -> None:
    counts: Counter[tuple[str, int]] = Counter()
    for wait in exact.waits(events):
        counts[wait.run, wait.latency_ms] += wait.produces
    rows = churn.latency_histogram(frame).collect()
    assert {(r.run, r.latency_ms): r["count"] for r in rows} == counts
