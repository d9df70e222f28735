"""Whole cells with slow leaders, restarts, new replicas and waiting producers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from isrlab import fleet
from isrlab.fleet import cell as cells
from isrlab.fleet import load
from isrlab.fleet.cell import CellRun, cell
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.kernel import state as s
from isrlab.fleet.tables import Telling

QUIET = FleetConfig("3.7", partitions=30, minutes=10, load="steady", stall_s=0, seed=3)
QUIET = QUIET.with_(replica_lag_time_max_ms=10_000)


def rows(config, kind):
    return [row for row in fleet.simulate_local(config).to_pylist() if row["kind"] == kind]


def errors(config):
    return Counter(dict(row["detail"])["error"] for row in rows(config, "produce_error"))


def waits(config):
    """Latency class -> how many produces with acks=all took that long."""
    found = Counter()
    for row in rows(config, "latency"):
        detail = dict(row["detail"])
        found[int(detail["latency_ms"])] += int(detail["count"])
    return found


# Slow leaders


def test_a_leader_that_does_not_read_loses_followers_that_are_well():
    slow = QUIET.with_(leader_stall_s=30, leader_stall_every_s=200)
    assert not rows(QUIET, "isr_shrink")
    for row in rows(slow, "isr_shrink"):
        stalls = zip(*load.leader_stalls(slow, row["broker"]), strict=True)
        assert any(start <= row["ts_ms"] - 10_000 and row["ts_ms"] <= end for start, end in stalls)
        assert len(row["isr"]) == 1  # both followers left: no fetch was answered
    assert len({row["broker"] for row in rows(slow, "isr_shrink")}) > 1


def test_followers_share_what_a_leader_can_send():
    demand = 30 / 3 * 5 * 500 * 2  # bytes/s: partitions of a leader, records, bytes, followers
    enough = QUIET.with_(leader_bytes_per_s=round(3 * demand))
    scarce = QUIET.with_(leader_bytes_per_s=round(0.9 * demand))
    assert not rows(enough, "isr_shrink")
    assert rows(scarce, "isr_shrink")
    assert max(waits(enough)) < 1_000 < max(waits(scarce))


def test_a_follower_that_keeps_a_tenth_of_its_speed_is_better_than_one_that_stalls():
    still = QUIET.with_(stall_s=60, stall_every_s=300)
    assert rows(still, "isr_shrink")
    assert not rows(still.with_(stall_speed=0.1), "isr_shrink")
    assert rows(still.with_(stall_speed=0.1, follower_bytes_per_s=60_000), "isr_shrink")


# Restarts and new replicas


def test_a_restart_takes_a_broker_out_of_every_isr_and_it_comes_back():
    rolling = QUIET.with_(restart_s=30, restart_every_s=120)
    out = [row for row in rows(rolling, "isr_commit") if row["detail"]]
    assert {dict(row["detail"])["said_by"] for row in out} == {"controller"}
    assert Counter(row["ts_ms"] for row in out) == {120_000: 20, 240_000: 20, 360_000: 20}
    assert all(row["replica"] == row["ts_ms"] // 120_000 for row in out)
    back = rows(rolling, "isr_expand")
    assert Counter(row["replica"] for row in back) == {1: 20, 2: 20, 3: 20}
    assert all(0 < row["ts_ms"] - row["replica"] * 120_000 - 30_000 < 1_000 for row in back)
    assert not rows(rolling, "isr_shrink")


@pytest.mark.parametrize(
    ("stalls", "merged"),
    [
        ([(5, 20)], [(5, 20, 100), (120_000, 150_000, 0)]),
        ([(110_000, 130_000)], [(110_000, 120_000, 100), (120_000, 150_000, 0)]),
        ([(130_000, 140_000)], [(120_000, 150_000, 0)]),
        ([(130_000, 160_000)], [(120_000, 150_000, 0), (150_000, 160_000, 100)]),
        ([(110_000, 160_000)], [(110_000, 120_000, 100), (120_000, 150_000, 0)]),
    ],
)
def test_a_restart_ends_a_stall(monkeypatch, stalls, merged):
    rolling = QUIET.with_(version="2.8", restart_s=30, restart_every_s=120, stall_speed=0.1)
    times = np.array(stalls, dtype=np.int64)
    monkeypatch.setattr(load, "stalls", lambda *_: (times[:, 0], times[:, 1]))
    assert [tuple(row) for row in cells._stalls.__wrapped__(rolling, 1).tolist()] == merged
    in_kraft = cells._stalls.__wrapped__(rolling.with_(version="4.1"), 1).tolist()
    assert (120_100, 150_000, 0) in [tuple(row) for row in in_kraft]  # fetches for 100 ms


def test_a_new_replica_joins_after_backlog_over_spare_rate():
    rate, produced = 5_000_000, 5 * 500 * 20  # bytes/s: of a thread, of the partitions it reads
    full = QUIET.with_(partitions=60, follower_bytes_per_s=rate, follower_spread=0)
    new = full.with_(new_broker=2, backlog_records=100_000)
    joins = [row["ts_ms"] for row in rows(new, "isr_expand")]
    assert {row["replica"] for row in rows(new, "isr_expand")} == {2}
    assert len(joins) == 40
    backlog = 20 * 100_000 * 500
    formula_ms = 1000 * backlog / (rate - produced)
    # a fetch of 10 MB takes 2 s to write, and 4 ms in which nothing is written
    assert max(joins) == pytest.approx(formula_ms, rel=0.02)


# Producers


def test_a_produce_waits_for_two_fetches():
    latencies = waits(QUIET)
    batches = len(load.arrivals(QUIET, np.arange(QUIET.partitions)).ts_ms)
    assert sum(latencies.values()) == batches
    # to the follower and back 2 ms each, and at least 1 ms to write
    assert min(latencies) >= 2 * QUIET.fetch_latency_ms + 1
    assert latencies.most_common(1)[0][0] <= 6
    assert not waits(QUIET.with_(acks_all_share=0))


def test_under_min_isr_produces_are_refused_tried_again_and_given_up():
    one = QUIET.with_(stall_s=60, stall_every_s=120, min_insync_replicas=3, minutes=20)
    assert errors(one)["NOT_ENOUGH_REPLICAS"] > 100
    assert not errors(one)["DELIVERY_TIMEOUT"]
    assert max(waits(one)) > 30_000  # retried until the ISR was large enough
    hasty = one.with_(delivery_timeout_ms=20_000)
    assert errors(hasty)["DELIVERY_TIMEOUT"] > 0
    gone = one.with_(delivery_timeout_ms=0)
    assert sum(waits(gone).values()) < sum(waits(one).values())
    assert not errors(one.with_(acks_all_share=0))


def test_a_stall_longer_than_the_timeout_but_within_the_lag_limit_times_out():
    patient = QUIET.with_(stall_s=45, stall_every_s=200, replica_lag_time_max_ms=60_000)
    assert not rows(patient, "isr_shrink")
    assert set(errors(patient)) == {"REQUEST_TIMED_OUT"}
    assert not errors(patient.with_(request_timeout_ms=50_000))


def test_room_for_produces_grows_from_window_to_window(monkeypatch):
    busy = QUIET.with_(stall_s=30, stall_every_s=100)
    expected = fleet.simulate_local(busy)
    monkeypatch.setattr(load.windows, "__defaults__", (30, None))
    assert fleet.simulate_local(busy).equals(expected)


# Announcements of ISR changes


def announced(version, commits, until_ms=100_000, removals=()):
    """(kind, ms, partition, brokers) of the announcements of commits (ms, partition)."""
    config = QUIET.with_(version=version, brokers=5)
    events = np.zeros((len(commits) + len(removals), s.EVENT_COLUMNS), np.int64)
    kinds = [s.COMMIT] * len(commits) + [s.REMOVAL] * len(removals)
    for row, kind, (ms, place) in zip(events, kinds, [*commits, *removals], strict=True):
        row[[s.TS_MS, s.KIND, s.PARTITION, s.PARTITION_EPOCH]] = ms, kind, place, ms
    none = np.zeros((0, 0), np.int64)
    piece = CellRun(cell(config, 1), events, none, until_ms)
    return [
        (row["kind"], row["ts_ms"], row["partition"], dict(row["detail"] or ()).get("brokers"))
        for row in Telling(config).rows(piece).to_pylist()
    ]


def test_in_0_8_no_broker_learns_of_an_isr_change():
    assert announced("0.8.2", [(100, 0)]) == []


def test_up_to_2_6_changes_are_announced_when_they_have_calmed_down():
    place = cell(QUIET.with_(brokers=5), 1).partitions
    # the task runs every 2.5 s, and announces 5 s after the last change at 6,000 ms: at 12,500 ms
    assert announced("2.4", [(1_000, 0), (6_000, 1)]) == [
        ("notify", 12_500, None, None),
        ("metadata", 12_510, place[0], "5"),
        ("metadata", 12_510, place[1], "5"),
    ]
    assert announced("2.4", [(1_000, 0)], until_ms=5_000) == []


def test_a_leader_whose_isrs_never_rest_announces_once_a_minute():
    restless = [(ms, ms // 1_000 % 3) for ms in range(0, 200_000, 1_000)]
    notices = [row[1] for row in announced("0.9.0", restless, 200_000) if row[0] == "notify"]
    assert notices == [62_500, 125_000, 187_500]


@pytest.mark.parametrize("version", ["2.7", "3.7", "4.1"])
def test_since_2_7_all_hear_of_it_when_it_is_stored(version):
    rows = announced(version, [(100, 0), (200, 1)])
    assert [row[:2] for row in rows] == [("metadata", 100), ("metadata", 200)]


def test_what_the_controller_does_it_tells_at_once():
    assert [row[:2] for row in announced("2.4", [], removals=[(700, 2)])] == [("metadata", 700)]
