"""The exact evaluator against the Spark questions: random fleets, the same answers.

Two programs that share nothing but the table: each is the other's judge. One clock, so all of what
`churn.isr_history` knows about clocks and missing lines must come to nothing here.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from isrlab import churn, fleet
from isrlab.engine.versions import PRESETS
from isrlab.events import exact
from isrlab.fleet.config import FleetConfig

SEED = 1
FLEETS = 24
MINUTES = 6


def fleets(seed: int, count: int) -> list[FleetConfig]:
    """Small restless fleets, one after the other in every version."""
    draw = random.Random(seed)
    versions = list(PRESETS.values())
    return [
        FleetConfig(
            versions[place % len(versions)].name,
            name=f"{place} {versions[place % len(versions)].name}",
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
        for place in range(count)
    ]


@pytest.fixture(scope="module")
def events():
    return fleet.simulate_local(fleets(SEED, FLEETS))


@pytest.fixture(scope="module")
def frame(spark, events):
    return spark.createDataFrame(events).persist()


def test_the_fleets_are_restless(events) -> None:
    """A comparison of nothing with nothing would agree, too."""
    moves = Counter(move.key.run for move in exact.moves(events))
    assert len(moves) > FLEETS // 2
    evictions = exact.evictions(events)
    assert 100 < len(evictions) < len(exact.absences(events))  # some are the controller's
    assert any(absence.end_ms is None for absence in exact.absences(events))


@pytest.mark.parametrize("end_ms", [None, MINUTES * 30_000])
def test_isr_spans(events, frame, end_ms) -> None:
    rows = churn.isr_intervals(frame, end_ms).collect()
    expected = sorted(
        (r.run, r.topic, r.partition, r.from_ms, r.to_ms, *sorted(r.isr)) for r in rows
    )
    spans = exact.isr_spans(events, end_ms)
    found = [(*key, s.start_ms, s.end_ms, *sorted(s.isr)) for key in spans for s in spans[key]]
    assert sorted(found) == expected
    assert all(r.is_certain for r in rows)


def test_moves(events, frame) -> None:
    rows = churn.moves(frame).collect()
    expected = {(r.run, r.topic, r.partition, r.ts_ms, r.replica, r.change) for r in rows}
    moves = exact.moves(events)
    change = {True: "joins", False: "leaves"}
    assert {(*m.key, m.ts_ms, m.replica, change[m.joined]) for m in moves} == expected
    assert len(moves) == len(rows)


def test_absences(events, frame) -> None:
    rows = churn.absences(frame).collect()
    expected = {(r.run, r.topic, r.partition, r.replica, r.left_ms, r.back_ms) for r in rows}
    found = [a for a in exact.absences(events) if a.end_ms is not None]
    assert {(*a.key, a.replica, a.start_ms, a.end_ms) for a in found} == expected
    assert len(found) == len(rows)


def test_evictions(events, frame) -> None:
    rows = churn.evictions(frame).collect()
    expected = {(r.run, r.topic, r.partition, r.leader, r.replica, r.ts_ms) for r in rows}
    found = exact.evictions(events)
    assert {(*a.key, a.leader, a.replica, a.start_ms) for a in found} == expected
    assert len(found) == len(rows)


def test_under_replicated(events, frame) -> None:
    rows = churn.under_replicated(frame, replicas=3).collect()
    expected = {(r.run, r.topic, r.partition): r.under_replicated_ms for r in rows}
    spans = exact.isr_spans(events)
    found = {key: sum(s.end_ms - s.start_ms for s in spans[key] if len(s.isr) < 3) for key in spans}
    assert found == expected


def test_waits(events, frame) -> None:
    rows = churn.latency_histogram(frame).collect()
    expected = {(r.run, r.latency_ms): r["count"] for r in rows}
    found: Counter[tuple[str, int]] = Counter()
    for wait in exact.waits(events):
        found[wait.run, wait.latency_ms] += wait.produces
    assert found == expected
