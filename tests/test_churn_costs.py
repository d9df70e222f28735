"""Costs, metrics, comparison and risk: a few rows in, the rows expected."""

from __future__ import annotations

import pandas as pd
import pytest
from cases.tables import frame, same

from isrlab import churn, fleet
from isrlab.events import schema as events_table
from isrlab.fleet import truth

pytest.importorskip("pyspark")

FULL = [1, 2, 3]
HOUR = 3_600_000


def event(ts_ms, kind, isr=None, before=None, **more):
    row = {"run": "r", "ts_ms": ts_ms, "kind": kind, "broker": 1, "topic": "t", "partition": 0}
    return row | {"isr": isr, "isr_before": before} | more


TEN = [
    event(0, "leader", FULL, replica=1),
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


@pytest.fixture
def ten(spark):
    return frame(spark, TEN)


def test_at_min_isr(ten):
    same(
        churn.at_min_isr(ten, 2),
        [(0, 2, 10_000, 5_400)],
        "partition min_isr known_ms at_min_isr_ms",
    )
    same(churn.at_min_isr(ten, 1, end_ms=6_000), [(6_000, 400)], "known_ms at_min_isr_ms")


def test_under_min_isr(ten):
    same(churn.under_min_isr(ten, 2), [(0, 10_000, 3_500)], "partition known_ms under_min_isr_ms")
    same(churn.under_min_isr(ten, 9), [(3, 8_900)], "min_isr under_min_isr_ms")


def test_refused_produce(ten):
    rows = [(0, "NOT_ENOUGH_REPLICAS", 2, 6_000, 6_500)]
    same(churn.refused_produce(ten), rows, "partition error produces first_ms last_ms")


def test_refused_produce_by_other_keys(ten):
    same(churn.refused_produce(ten, ("run", "hour")), [("r", 0, 2)], "run hour produces")
    with pytest.raises(ValueError, match="valid: one or more of run, "):
        churn.refused_produce(ten, ("colour",))


def test_a_produce_that_is_given_up_was_refused_before_and_counts_once(spark):
    rows = [event(6_000, "produce_error", detail={"error": e}) for e in (
        "NOT_ENOUGH_REPLICAS", "DELIVERY_TIMEOUT", "REQUEST_TIMED_OUT")]  # fmt: skip
    measured = churn.metrics(frame(spark, [*rows, event(0, "notify")]), to_ms=10_000)
    assert measured.first().RefusedProducesPerSec == 0.2


def test_rejoin_times(ten):
    rows = [(3, 1_100, 10_000, 8_900, 700), (2, 5_600, 9_100, 3_500, 40)]
    same(churn.rejoin_times(ten), rows, "replica left_ms back_ms out_ms lag_records")


def test_rejoin_times_without_a_lag_in_the_logs(spark):
    rows = [event(1, "isr_shrink", [1], [1, 2]), event(9, "isr_expand", [1, 2], [1])]
    same(churn.rejoin_times(frame(spark, rows)), [(2, 8, None)], "replica out_ms lag_records")


def test_controller_load(ten):
    columns = "run isr_requests rejected notifications metadata_updates"
    same(churn.controller_load(ten), [("r", 5, 1, 1, 2)], columns)
    by_hour = churn.controller_load(ten, ("run", "hour", "broker"))
    same(by_hour, [(0, 1, 5), (0, 2, 0), (0, 3, 0)], "hour broker isr_requests")


def test_since_2_8_an_expansion_is_a_request_that_no_line_announces(spark):
    log = {"file": "server.log"}
    rows = [
        event(1, "isr_shrink", [1], [1, 2], detail=log),
        event(2, "isr_commit", [1], partition_epoch=1, detail=log),
        event(9, "isr_commit", [1, 2], partition_epoch=2, detail=log),
    ]
    assert churn.controller_load(frame(spark, rows)).first().isr_requests == 2


def test_time_until_known(ten):
    rows = [(1, 1_100, 2, 30)]
    same(churn.time_until_known(ten), rows, "partition_epoch committed_ms brokers until_known_ms")


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


def test_rates(ten):
    names = "seconds IsrShrinksPerSec IsrExpandsPerSec FailedIsrUpdatesPerSec"
    same(churn.rates(ten), [(10.0, 0.2, 0.2, 0.1)], names)
    same(churn.rates(ten, from_ms=-10_000), [(20.0, 0.1, 0.1, 0.05)], names)
    keys = ("topic", "partition", "broker")
    same(
        churn.rates(ten, keys),
        [("r", "t", 0, 1, 0.2)],
        "run topic partition broker IsrShrinksPerSec",
    )


def test_rates_of_an_hour_know_how_much_of_it_the_run_covers(spark):
    late = [row | {"ts_ms": row["ts_ms"] + HOUR - 5_000} for row in TEN]
    found = churn.rates(frame(spark, late), ("run", "hour"))
    same(found, [(0, 5.0, 0.2), (1, 5.0, 0.2)], "hour seconds IsrShrinksPerSec")


def test_a_run_of_one_moment_has_no_rate(spark):
    one = frame(spark, [event(5, "isr_shrink", [1], [1, 2])])
    same(churn.rates(one), [(0.0, None)], "seconds IsrShrinksPerSec")


def test_metrics(ten):
    (row,) = [row.asDict() for row in churn.metrics(ten, 2).collect()]
    assert set(row) == {"run", "hours", *churn.METRICS}
    expected = {
        "IsrShrinksPerSec": 0.2,
        "IsrExpandsPerSec": 0.2,
        "FailedIsrUpdatesPerSec": 0.1,
        "UnderReplicatedPartitions": 0.89,
        "AtMinIsrPartitionCount": 0.54,
        "UnderMinIsrPartitionCount": 0.35,
        "OneCopyPartitionCount": 0.35,
        "FlapsPerHour": 720.0,
        "MedianRejoinSeconds": 6.2,
        "LongestRejoinSeconds": 8.9,
        "RefusedProducesPerSec": 0.2,
        "IsrRequestsPerSec": 0.5,
    }
    assert {name: row[name] for name in expected} == pytest.approx(expected)


def test_compare(spark):
    quiet = [event(0, "leader", FULL, run="q"), event(10_000, "high_watermark", run="q")]
    measured = churn.metrics(frame(spark, TEN + quiet), 2)
    found = churn.compare(measured, "r", "q")
    assert [row.metric for row in found.collect()] == list(churn.METRICS)
    rows = [("IsrShrinksPerSec", 0.2, 0.0, -0.2), ("MedianRejoinSeconds", 6.2, None, None)]
    same(found.where("metric in ('IsrShrinksPerSec', 'MedianRejoinSeconds')"), rows,
         "metric was now change")  # fmt: skip
    with pytest.raises(ValueError, match="unknown run 'x'; known: q, r"):
        churn.compare(measured, "r", "x")


def test_a_calm_run_has_metrics_if_it_is_named(ten):
    measured = churn.metrics(ten, runs=["calm"], from_ms=0, to_ms=HOUR)
    same(measured, [("calm", 1.0, 0.0), ("r", 1.0, 2.0)], "run hours FlapsPerHour")


@pytest.mark.parametrize(
    "ask",
    [
        lambda events: churn.rates(events, ("colour",)),
        lambda events: churn.rates(events, ()),
        lambda events: churn.controller_load(events, ("partition",)),
    ],
)
def test_unknown_keys_are_refused_with_the_known(ten, ask):
    with pytest.raises(ValueError, match="valid: one or more of run, "):
        ask(ten)


def test_min_isr_of_nothing_is_refused(ten):
    with pytest.raises(ValueError, match="must be 1 or more"):
        churn.at_min_isr(ten, 0)


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
    same(
        found, [(2, 21_000, False), (2, 52_000, True), (3, 60_000, True)], "replica ts_ms is_false"
    )


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


def test_no_events_no_answers(spark, stalls):
    nothing = spark.createDataFrame([], events_table.spark_schema())
    for found in (
        churn.at_min_isr(nothing, 2),
        churn.refused_produce(nothing),
        churn.rejoin_times(nothing),
        churn.controller_load(nothing),
        churn.time_until_known(nothing),
        churn.commit_latency(nothing),
        churn.rates(nothing),
        churn.metrics(nothing),
        truth.judged_evictions(nothing, stalls, 0),
    ):
        assert found.count() == 0
    assert truth.time_at_risk(nothing, stalls, 100_000).first().stalled_ms == 23_000
