"""Costs, metrics, comparison and risk: a few rows in, the rows expected."""

from __future__ import annotations

from functools import partial

import pandas as pd
import pytest
from cases.tables import FULL, event, frame, same

from isrlab import churn, fleet
from isrlab.fleet import truth

HOUR = 3_600_000
TEN = [
    event(0, "isr_commit", FULL),
    event(1_000, "isr_shrink", [1, 2], FULL, detail={"lag_records": "700"}),
    event(1_100, "isr_commit", [1, 2], FULL, partition_epoch=1),
    event(1_105, "metadata", broker=2, partition_epoch=1),
    event(1_130, "metadata", broker=3, partition_epoch=1),
    event(5_000, "isr_shrink", [1], [1, 2], log_end_offset=90),
    event(5_000, "isr_rejected", detail={"error": "INVALID_UPDATE_VERSION"}),
    event(5_500, "isr_shrink", [1], [1, 2], log_end_offset=100, detail={
        "out_of_sync": "2", "out_of_sync_end_offset": "60"}),
    event(5_600, "isr_commit", [1], [1, 2], partition_epoch=2),
    event(6_000, "produce_error", detail={"error": "NOT_ENOUGH_REPLICAS"}),
    event(6_500, "produce_error", detail={"error": "NOT_ENOUGH_REPLICAS"}),
    event(7_000, "notify"),
    event(9_000, "isr_expand", [1, 2], [1]),
    event(9_100, "isr_commit", [1, 2], [1], partition_epoch=3),
    event(9_900, "isr_expand", FULL, [1, 2]),
    event(10_000, "isr_commit", FULL, [1, 2], partition_epoch=4),
]  # fmt: skip


RATES = "seconds IsrShrinksPerSec IsrExpandsPerSec FailedIsrUpdatesPerSec"
ANSWERS = [  # question, its other arguments, columns, rows
    (churn.at_min_isr, (2,), "partition min_isr known_ms at_min_isr_ms", [(0, 2, 10_000, 5_400)]),
    (churn.at_min_isr, (1, 6_000), "known_ms at_min_isr_ms", [(6_000, 400)]),
    (churn.under_min_isr, (2,), "partition known_ms under_min_isr_ms", [(0, 10_000, 3_500)]),
    (churn.under_min_isr, (9,), "min_isr under_min_isr_ms", [(3, 8_900)]),
    (churn.refused_produce, (), "partition error produces first_ms last_ms",
     [(0, "NOT_ENOUGH_REPLICAS", 2, 6_000, 6_500)]),
    (churn.refused_produce, (("run", "hour"),), "run hour produces", [("r", 0, 2)]),
    (churn.rejoin_times, (), "replica left_ms back_ms out_ms lag_records",
     [(3, 1_100, 10_000, 8_900, 700), (2, 5_600, 9_100, 3_500, 40)]),
    (churn.controller_load, (),
     "run isr_requests rejected notifications metadata_updates", [("r", 5, 1, 1, 2)]),
    (churn.controller_load, (("run", "hour", "broker"),),
     "hour broker isr_requests", [(0, 1, 5), (0, 2, 0), (0, 3, 0)]),
    (churn.time_until_known, (),
     "partition_epoch committed_ms brokers until_known_ms", [(1, 1_100, 2, 30)]),
    (churn.rates, (), RATES, [(10.0, 0.2, 0.2, 0.1)]),
    (partial(churn.rates, from_ms=-10_000), (), RATES, [(20.0, 0.1, 0.1, 0.05)]),
    (churn.rates, (("topic", "partition", "broker"),),
     "run topic partition broker IsrShrinksPerSec", [("r", "t", 0, 1, 0.2)]),
    (partial(churn.metrics, runs=["calm"], from_ms=0, to_ms=HOUR), (),
     "run hours flaps_per_hour", [("calm", 1.0, 0.0), ("r", 1.0, 2.0)]),
]  # fmt: skip


@pytest.fixture
def ten(spark):
    return frame(spark, TEN)


@pytest.mark.parametrize(("ask", "arguments", "columns", "rows"), ANSWERS)
def test_answers(ten, ask, arguments, columns, rows):
    same(ask(ten, *arguments), rows, columns)


LOG = {"file": "server.log"}
CASES = {
    "a produce that is given up was refused before and counts once": (
        [event(0, "notify"), event(10_000, "notify"), *(
            event(6_000, "produce_error", detail={"error": error})
            for error in ("NOT_ENOUGH_REPLICAS", "DELIVERY_TIMEOUT", "REQUEST_TIMED_OUT"))],
        churn.metrics, "run refused_produces_per_s", [("r", 0.2)],
    ),
    "rejoin times without a lag in the logs": (
        [event(1, "isr_commit", [1], [1, 2]), event(9, "isr_commit", [1, 2], [1])],
        churn.rejoin_times, "replica out_ms lag_records", [(2, 8, None)],
    ),
    "since 2.8 an expansion is a request that no line announces": (
        [event(1, "isr_shrink", [1], [1, 2], detail=LOG),
         event(2, "isr_commit", [1], partition_epoch=1, detail=LOG),
         event(9, "isr_commit", [1, 2], partition_epoch=2, detail=LOG)],
        churn.controller_load, "isr_requests", [(2,)],
    ),
    "rates of an hour know how much of it the run covers": (
        [row | {"ts_ms": row["ts_ms"] + HOUR - 5_000} for row in TEN],
        partial(churn.rates, by=("run", "hour")),
        "hour seconds IsrShrinksPerSec", [(0, 5.0, 0.2), (1, 5.0, 0.2)],
    ),
    "a run of one moment has no rate": (
        [event(5, "isr_commit", [1], [1, 2])],
        churn.rates, "seconds IsrShrinksPerSec", [(0.0, None)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_cases(spark, case):
    events, ask, columns, rows = CASES[case]
    same(ask(frame(spark, events)), rows, columns)


def test_one_row_of_metadata_can_tell_of_many_brokers(spark):
    rows = [
        event(100, "isr_commit", [1, 2], FULL, partition_epoch=1),
        event(120, "metadata", partition_epoch=1, detail={"brokers": "40"}),
        event(200, "isr_commit", [1], [1, 2], partition_epoch=2),
        event(230, "metadata", broker=2, partition_epoch=2),
        event(240, "metadata", broker=3, partition_epoch=2),
    ]
    events = frame(spark, rows)
    same(churn.controller_load(events), [("r", 42)], "run metadata_updates")
    rows = [(1, 40, 20), (2, 2, 40)]
    same(churn.time_until_known(events), rows, "partition_epoch brokers until_known_ms")


def test_rates_of_an_hour_know_how_much_of_it_the_run_covers(spark):
    late = [row | {"ts_ms": row["ts_ms"] + HOUR - 5_000} for row in TEN]
    found = churn.rates(frame(spark, late), ("run", "hour"))
    same(found, [(0, 5.0, 0.2), (1, 5.0, 0.2)], "hour seconds IsrShrinksPerSec")


def test_a_run_of_one_moment_has_no_rate(spark):
    moment = frame(spark, [event(5, "isr_commit", [1], [1, 2])])
    same(churn.rates(moment), [(0.0, None)], "seconds IsrShrinksPerSec")


def test_metrics(ten):
    (row,) = [row.asDict() for row in churn.metrics(ten, 2).collect()]
    assert set(row) == {"run", "hours", *churn.METRICS}
    expected = {
        "IsrShrinksPerSec": 0.2, "IsrExpandsPerSec": 0.2, "FailedIsrUpdatesPerSec": 0.1,
        "UnderReplicatedPartitions": 0.89, "AtMinIsrPartitionCount": 0.54,
        "UnderMinIsrPartitionCount": 0.35, "one_copy_partitions": 0.35, "flaps_per_hour": 720.0,
        "median_rejoin_s": 6.2, "longest_rejoin_s": 8.9,
        "refused_produces_per_s": 0.2, "isr_requests_per_s": 0.5,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == pytest.approx(expected)


def test_compare(spark):
    quiet = [event(0, "leader", FULL, run="q"), event(10_000, "high_watermark", run="q")]
    measured = churn.metrics(frame(spark, TEN + quiet), 2)
    found = churn.compare(measured, "r", "q")
    assert [row.metric for row in found.collect()] == list(churn.METRICS)
    rows = [("IsrShrinksPerSec", 0.2, 0.0, -0.2), ("median_rejoin_s", 6.2, None, None)]
    same(found.where("metric in ('IsrShrinksPerSec', 'median_rejoin_s')"), rows,
         "metric was now change")  # fmt: skip
    with pytest.raises(ValueError, match="unknown run 'x'; known: q, r"):
        churn.compare(measured, "r", "x")


@pytest.mark.parametrize(
    ("ask", "argument", "message"),
    [
        (churn.rates, ("colour",), "valid: one or more of run, "),
        (churn.rates, (), "valid: one or more of run, "),
        (churn.refused_produce, ("colour",), "valid: one or more of run, "),
        (churn.commit_latency, ("colour",), "valid: one or more of run, topic, partition"),
        (churn.controller_load, ("partition",), "valid: one or more of run, "),
        (churn.at_min_isr, 0, "must be 1 or more"),
    ],
)
def test_what_means_nothing_is_refused_with_what_is_valid(ten, ask, argument, message):
    with pytest.raises(ValueError, match=message):
        ask(ten, argument)


def test_bands_are_the_same_each_time_and_hold_the_mean():
    data = pd.DataFrame({"limit": [1, 1, 1, 2], "cost": [1.0, 2.0, 6.0, 4.0]})
    found = churn.bands(data, "limit", ["cost"])
    pd.testing.assert_frame_equal(found, churn.bands(data, "limit", ["cost"]))
    first, second = found.itertuples()
    assert (first.mean, first.seeds) == (3.0, 3)
    assert 1.0 <= first.low < 3.0 < first.high <= 6.0
    assert (second.low, second.mean, second.high) == (4.0, 4.0, 4.0), "one seed tells no band"
    with pytest.raises(ValueError, match="level"):
        churn.bands(data, "limit", ["cost"], level=90)


STALLS = [  # of one partition: follower 2 stands still for 20 s and 3 s, follower 3 never
    ("r", "t", 0, 2, 10_000, 30_000),
    ("r", "t", 0, 2, 50_000, 53_000),
    ("r", "t", 0, 3, None, None),
]
STALLED = [
    event(21_000, "isr_commit", [1, 3], FULL),  # right, after 11 s
    event(31_000, "isr_commit", FULL, [1, 3]),
    event(52_000, "isr_commit", [1, 3], FULL),  # the stall is short
    event(54_000, "isr_commit", FULL, [1, 3]),
    event(60_000, "isr_commit", [1, 2], FULL),  # nobody stands still
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
    found = truth.time_at_risk(frame(spark, STALLED), stalls, 100_000, timeout_ms=10_000)
    names = "partition at_risk_ms under_replicated_ms stalled_ms timeouts"
    same(found, [(0, 27_000, 14_000, 13_000, 1)], names)


def test_time_at_risk_counts_overlapping_followers_once(spark, stalls):
    rows = [event(15_000, "isr_commit", [1, 2], FULL), event(25_000, "isr_commit", FULL, [1, 2])]
    found = truth.time_at_risk(frame(spark, rows), stalls, 40_000)
    names = "at_risk_ms under_replicated_ms stalled_ms timeouts"
    same(found, [(20_000, 10_000, 20_000, 0)], names)


def test_stalls_are_those_of_the_fleet(spark):
    config = fleet.FleetConfig(version="3.7", partitions=6, minutes=20, stall_every_s=200)
    found = truth.stalls(spark, config)
    events = spark.createDataFrame(fleet.simulate_local(config))
    assert found.select("partition", "replica").distinct().count() == 12
    none = truth.judged_evictions(events, found, patience_ms=0).where("is_false")
    assert none.count() == 0, "20 s is too short for the default of 30 s"


ASKED = {ask: (ask, arguments) for ask, arguments, *_ in ANSWERS if not isinstance(ask, partial)}


@pytest.mark.parametrize(
    ("ask", "arguments"), [*ASKED.values(), (churn.commit_latency, ()), (churn.metrics, ())]
)
def test_no_events_no_answers(spark, ask, arguments):
    assert ask(frame(spark, []), *arguments).count() == 0


def test_no_events_no_evictions_but_the_stalls(spark, stalls):
    nothing = frame(spark, [])
    assert truth.judged_evictions(nothing, stalls, 0).count() == 0
    assert truth.time_at_risk(nothing, stalls, 100_000).first().stalled_ms == 23_000
