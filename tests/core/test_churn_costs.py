"""Costs, bands and risk: a few rows in, the rows expected."""

import numpy as np
import pandas as pd
import pytest

from cases.tables import FULL, event, frame, same
from isrlab import churn, fleet
from isrlab.fleet import truth

TEN = [
    event(0, "isr_commit", FULL),
    event(1_000, "isr_shrink", [1, 2], FULL),
    event(1_100, "isr_commit", [1, 2], FULL, partition_epoch=1),
    event(1_105, "metadata", broker=2, partition_epoch=1),
    event(1_130, "metadata", broker=3, partition_epoch=1),
    event(5_000, "isr_shrink", [1], [1, 2]),
    event(5_000, "isr_rejected", detail={"error": "INVALID_UPDATE_VERSION"}),
    event(5_500, "isr_shrink", [1], [1, 2]),
    event(5_600, "isr_commit", [1], [1, 2], partition_epoch=2),
    event(6_000, "produce_error", detail={"error": "NOT_ENOUGH_REPLICAS"}),
    event(6_500, "produce_error", detail={"error": "NOT_ENOUGH_REPLICAS"}),
    event(7_000, "notify"),
    event(9_000, "isr_expand", [1, 2], [1]),
    event(9_100, "isr_commit", [1, 2], [1], partition_epoch=3),
    event(9_900, "isr_expand", FULL, [1, 2]),
    event(10_000, "isr_commit", FULL, [1, 2], partition_epoch=4),
]  # fmt: skip


ANSWERS = [  # question, its other arguments, columns, rows
    (churn.under_min_isr, (2,), "partition known_ms under_min_isr_ms", [(0, 10_000, 3_500)]),
    (churn.under_min_isr, (9,), "min_isr under_min_isr_ms", [(3, 8_900)]),
    (churn.refused_produce, (), "partition error produces first_ms last_ms",
     [(0, "NOT_ENOUGH_REPLICAS", 2, 6_000, 6_500)]),
    (churn.refused_produce, (("run", "hour"),), "run hour produces", [("r", 0, 2)]),
]  # fmt: skip


@pytest.fixture
def ten(spark):
    return frame(spark, TEN)


@pytest.mark.parametrize(("ask", "arguments", "columns", "rows"), ANSWERS)
def test_answers(ten, ask, arguments, columns, rows):
    same(ask(ten, *arguments), rows, columns)


@pytest.mark.parametrize(
    ("ask", "argument", "message"),
    [
        (churn.refused_produce, (), "valid: one or more of run, "),
        (churn.refused_produce, ("colour",), "valid: one or more of run, "),
        (churn.commit_latency, ("colour",), "valid: one or more of run, topic, partition"),
        (churn.under_min_isr, 0, "must be 1 or more"),
    ],
)
def test_what_means_nothing_is_refused_with_what_is_valid(ten, ask, argument, message):
    with pytest.raises(ValueError, match=message):
        ask(ten, argument)


def test_bands_hold_the_mean_as_often_as_they_say():
    data = pd.DataFrame({"limit": [1, 1, 1, 2], "cost": [1.0, 2.0, 6.0, 4.0]})
    first, second = churn.bands(data, "limit", ["cost"]).itertuples()
    assert (first.mean, first.seeds, second.mean) == (3.0, 3, 4.0)
    half = 2.920 * 7**0.5 / 3**0.5  # Student's t for two degrees of freedom, from a table
    assert (first.low, first.high) == pytest.approx((3 - half, 3 + half), rel=1e-3)
    assert np.isnan([second.low, second.high]).all(), "one seed tells no band"
    draws = np.random.default_rng(1).normal(size=(2_000, 5))
    rows = pd.DataFrame({"try": np.repeat(range(2_000), 5), "x": draws.ravel()})
    found = churn.bands(rows, "try", ["x"])
    assert ((found["low"] < 0) & (found["high"] > 0)).mean() == pytest.approx(0.9, abs=0.02)
    with pytest.raises(ValueError, match="level"):
        churn.bands(data, "limit", ["cost"], level=90)


STALLS = [  # of one partition: follower 2 stalls for 20 s and for 3 s, follower 3 never
    ("r", "t", 0, 2, 10_000, 30_000),
    ("r", "t", 0, 2, 50_000, 53_000),
    ("r", "t", 0, 3, None, None),
]
STALLED = [
    event(21_000, "isr_commit", [1, 3], FULL),  # justified, after 11 s
    event(31_000, "isr_commit", FULL, [1, 3]),
    event(52_000, "isr_commit", [1, 3], FULL),  # the stall is short
    event(54_000, "isr_commit", FULL, [1, 3]),
    event(60_000, "isr_commit", [1, 2], FULL),  # no follower is stalled
    event(62_000, "isr_commit", FULL, [1, 2]),
]


@pytest.fixture
def stalls(spark):
    columns = "run string, topic string, partition int, replica int, from_ms long, to_ms long"
    return spark.createDataFrame(STALLS, columns)


def test_judged_evictions(spark, stalls):
    found = truth.judged_evictions(frame(spark, STALLED), stalls, patience_ms=5_000)
    rows = [(2, 21_000, False), (2, 52_000, True), (3, 60_000, True)]
    same(found, rows, "replica ts_ms is_false")


def test_time_at_risk(spark, stalls):
    found = truth.time_at_risk(frame(spark, STALLED), stalls, 100_000)
    names = "partition at_risk_ms under_replicated_ms stalled_ms"
    same(found, [(0, 27_000, 14_000, 13_000)], names)


def test_time_at_risk_counts_overlapping_followers_once(spark, stalls):
    rows = [event(15_000, "isr_commit", [1, 2], FULL), event(25_000, "isr_commit", FULL, [1, 2])]
    found = truth.time_at_risk(frame(spark, rows), stalls, 40_000)
    names = "at_risk_ms under_replicated_ms stalled_ms"
    same(found, [(20_000, 10_000, 20_000)], names)


def test_stalls_are_those_of_the_fleet(spark):
    config = fleet.FleetConfig(version="3.7", partitions=6, minutes=20, stall_every_s=200)
    found = truth.stalls(spark, config)
    events = spark.createDataFrame(fleet.simulate_local(config))
    assert found.select("partition", "replica").distinct().count() == 12
    none = truth.judged_evictions(events, found, patience_ms=0).where("is_false")
    assert none.count() == 0, "20 s is too short for the default of 30 s"


ASKED = {ask: (ask, arguments) for ask, arguments, *_ in ANSWERS}


@pytest.mark.parametrize(("ask", "arguments"), [*ASKED.values(), (churn.commit_latency, ())])
def test_no_events_no_answers(spark, ask, arguments):
    assert ask(frame(spark, []), *arguments).count() == 0


def test_no_events_no_evictions_but_the_stalls(spark, stalls):
    nothing = frame(spark, [])
    assert truth.judged_evictions(nothing, stalls, 0).count() == 0
    assert truth.time_at_risk(nothing, stalls, 100_000).first().stalled_ms == 23_000
