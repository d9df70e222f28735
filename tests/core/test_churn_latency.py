"""Commit latency: a few rows of counts in, quantiles out."""

from __future__ import annotations

import numpy as np
import pytest

from cases.tables import event, frame, same
from isrlab import churn, fleet
from isrlab.fleet.cell import leaders, run_cell
from isrlab.fleet.kernel.rows import bucket_starts

HOUR = 3_600_000
QUANTILES = "p50_ms p90_ms p99_ms p999_ms max_ms"


def ack(latency_ms, count=None, **more):
    detail = {"acks": "-1", "latency_ms": str(latency_ms)}
    detail |= {} if count is None else {"count": str(count)}
    return event(0, "produce_ack", detail=detail) | {"partition": None} | more


TEN = [
    ack(2, 400),
    ack(2, 100, broker=2),
    ack(4, 400, ts_ms=HOUR),
    ack(40, 90),
    ack(300, 9, broker=2),
    ack(9_000),  # without a count: one produce
    ack(7, 3, run="s", partition=5),
    event(5, "produce_ack", detail={"records": "8"}),  # of the engine
    event(6, "produce_error", detail={"error": "REQUEST_TIMED_OUT"}),
    event(7, "isr_commit", [1], run="q"),
]


def test_one_produce_more_moves_the_quantile(spark):
    found = churn.commit_latency(frame(spark, [*TEN, ack(40, 1)]))
    assert found.first().p50_ms == 4, "501 of 1,001 are needed, and 500 took 2 ms"


@pytest.mark.parametrize(
    ("by", "columns", "rows"),
    [
        (("run",), f"run count {QUANTILES}",
         [("r", 1_000, 2, 4, 40, 300, 9_000), ("s", 3, 7, 7, 7, 7, 7)]),
        (("run", "broker"), "run broker count p50_ms max_ms",
         [("r", 1, 891, 4, 9_000), ("r", 2, 109, 2, 300), ("s", 1, 3, 7, 7)]),
        (("hour",), "hour count p50_ms", [(0, 603, 2), (1, 400, 4)]),
        (("topic", "partition"), "partition count", [(None, 1_000), (5, 3)]),
    ],
)  # fmt: skip
def test_commit_latency_weighs_each_class_with_its_count(spark, by, columns, rows):
    same(churn.commit_latency(frame(spark, TEN), by), rows, columns)


def test_latency_histogram(spark):
    rows = [(2, 500), (4, 400), (40, 90), (300, 9), (9_000, 1)]
    found = churn.latency_histogram(frame(spark, TEN)).where("run = 'r'")
    same(found, rows, "latency_ms count")


def test_a_fleet_is_counted_to_the_last_produce(spark):
    config = fleet.FleetConfig(version="3.7", partitions=6, minutes=3, stall_every_s=60)
    found = churn.commit_latency(spark.createDataFrame(fleet.simulate_local(config))).first()
    counts = sum(run_cell(config, leader).latencies.sum(axis=0) for leader in leaders(config))
    waits = np.repeat(bucket_starts(), counts)
    middle, slow = np.quantile(waits, [0.5, 0.99], method="inverted_cdf")
    assert (found["count"], found.p50_ms, found.p99_ms) == (len(waits), middle, slow)
    assert found.max_ms == waits.max()
    assert found.p50_ms < 20 < found.max_ms
