"""How long a broker needs to come back: a few rows in, the times expected; the formula."""

from __future__ import annotations

import math

import pytest

from cases.tables import FULL, event, frame, same
from isrlab import churn, fleet
from isrlab.fleet import recovery, truth

CALM = fleet.FleetConfig(
    version="3.7", partitions=12, brokers=3, minutes=5, load="steady", stall_s=0,
    follower_spread=0, batch_every_ms=200, restart_s=30, restart_every_s=160,
)  # fmt: skip
CONTROLLER = {"said_by": "controller"}


def commit(ts_ms, partition, isr, before, **more):
    return event(ts_ms, "isr_commit", isr, before, partition=partition, **more)


TEN = [
    commit(1_000, 0, [1, 2], FULL, detail=CONTROLLER),  # broker 3 is down from 1,000 to 5,000
    commit(1_000, 1, [1, 2], FULL, detail=CONTROLLER),
    commit(2_000, 2, [1, 2], FULL),  # removed by the leader
    commit(2_500, 3, [1, 3], FULL),  # not broker 3
    commit(7_000, 0, FULL, [1, 2]),
    commit(8_000, 0, [1, 2], FULL),  # leaves and rejoins: the first return counts
    commit(8_500, 0, FULL, [1, 2]),
    commit(9_000, 1, FULL, [1, 2]),
    commit(20_000, 0, [1, 2], FULL, detail=CONTROLLER),  # down from 20,000 to 21,000
    commit(20_000, 1, [1, 2], FULL, detail=CONTROLLER),
    commit(22_000, 1, FULL, [1, 2]),
    commit(23_000, 4, FULL, [1, 2]),  # a new replica, never in the ISR before
]


def test_rejoins(spark):
    outages = [("r", 3, 1_000, 5_000), ("r", 3, 20_000, 21_000), ("other", 3, 0, 1)]
    down = spark.createDataFrame(outages, churn.OUTAGES_SCHEMA)
    rows = [
        ("r", 3, 1_000, 5_000, 3, 1, 2_000, 3_000.0, 4_000),
        ("r", 3, 20_000, 21_000, 4, 2, 1_000, 1_500.0, 2_000),
    ]
    columns = "run broker down_ms up_ms partitions still_out first_ms median_ms last_ms"
    same(churn.rejoins(frame(spark, TEN), down), rows, columns)


def test_simulated_brokers_come_back_when_the_formula_says(spark):
    configs = [recovery.loaded(CALM, share).with_(name=f"{share}") for share in (0.3, 0.6)]
    new = recovery.loaded(CALM, 0.5).with_(
        name="new", restart_s=0, new_broker=2, backlog_records=100_000, minutes=3
    )
    events = fleet.simulate(spark, [*configs, new], tasks=2)
    found = churn.rejoins(events, truth.restarts(spark, [*configs, new])).collect()
    assert [(row.run, row.broker) for row in found] == [("0.3", 1), ("0.6", 1), ("new", 2)]
    for row, config in zip(found, [*configs, new], strict=True):
        expected_s = recovery.expected_rejoin_s(config, row.broker)
        assert row.partitions == 8
        assert row.still_out == 0
        assert row.last_ms / 1000 == pytest.approx(expected_s, rel=0.1)


def test_the_formula():
    arguments = [(0.5, 60), (0.9, 60), (0.5, 0, 100), (1.0, 60)]
    seconds = [recovery.catch_up_s(*each) for each in arguments]
    assert seconds == pytest.approx([60, 540, 200, math.inf])
    assert recovery.safe_restart_every_s(0.75, 60) == pytest.approx(240)


def test_load_share_is_that_of_the_busiest_thread():
    fleet_at_half = recovery.loaded(CALM, 0.5)
    assert recovery.load_share(fleet_at_half, 2) == pytest.approx(0.5)
    hot = fleet_at_half.with_(hot_partitions=1, hot_times=5)  # partition 0, led by broker 1
    assert recovery.load_share(hot, 1) == pytest.approx(0.5)
    assert recovery.load_share(hot, 2) == pytest.approx(0.5 * (3 + 5) / 4)
    assert recovery.expected_rejoin_s(hot, 1) == pytest.approx(30)
    assert recovery.expected_rejoin_s(hot, 2) == math.inf


def test_what_is_out_of_range():
    with pytest.raises(ValueError, match="broker=4 is out of range; valid: 1 to brokers=3"):
        recovery.load_share(CALM, 4)
    with pytest.raises(ValueError, match="share must be above 0, not 0"):
        recovery.loaded(CALM, 0)
