"""A fleet whose replicas and troubles are given: what a real incident becomes."""

from __future__ import annotations

import numpy as np
import pytest

from isrlab import fleet
from isrlab.events import exact
from isrlab.events.measures import measures
from isrlab.fleet import given, load
from isrlab.fleet.cell import leaders
from isrlab.fleet.layout import assignment

# Three brokers; 2 leads nothing, as in one of the recorded incidents
GIVEN = fleet.FleetConfig(
    version="4.1", partitions=4, brokers=3, minutes=1, load="steady", records_per_s=5, stall_s=0,
    assigned="1,2,3 3,1,2 1,3,2 3,2,1", replica_lag_time_max_ms=6000, min_insync_replicas=2,
)  # fmt: skip


def test_replicas_are_where_they_are_said_to_be() -> None:
    assert assignment(GIVEN).tolist() == [[1, 2, 3], [3, 1, 2], [1, 3, 2], [3, 2, 1]]
    assert leaders(GIVEN) == [1, 3]
    assert leaders(GIVEN.with_(assigned="")) == [1, 2, 3]


@pytest.mark.parametrize(("role", "by_leader"), [("fetchers", True), ("down", False)])
def test_who_is_paused_leaves_and_comes_back_then(role, by_leader) -> None:
    config = GIVEN.with_(pauses=f"{role} 2 20-40")
    absences = exact.absences(fleet.simulate_local(config))
    assert {a.replica for a in absences} == {2}
    assert len(absences) == 4
    assert {a.leader is not None for a in absences} == {by_leader}
    earliest = 26_000 - 2 * 600 if by_leader else 20_000  # fetched last up to a parked fetch before
    assert all(earliest <= a.start_ms <= 29_500 for a in absences)
    assert all(40_000 <= (a.end_ms or 0) <= 42_000 for a in absences)


def test_a_leader_that_answers_nobody_loses_both() -> None:
    absences = exact.absences(fleet.simulate_local(GIVEN.with_(pauses="leader 1 20-40")))
    assert {(a.leader, a.replica) for a in absences} == {(1, 2), (1, 3)}


def test_given_troubles_and_drawn_ones_are_one_where_they_meet() -> None:
    config = GIVEN.with_(stall_s=5, stall_every_s=20, seed=4)
    (start, *_), (end, *_) = (times.tolist() for times in load.stalls(config, 2))
    met = config.with_(pauses=f"fetchers 2 {start / 1000 + 1}-{end / 1000 + 1}")
    starts, ends = load.stalls(met, 2)
    assert (starts[0], ends[0]) == (start, end + 1000)
    assert np.all(starts[1:] > ends[:-1])
    assert load.stalls(met, 3)[0].tolist() == load.stalls(config, 3)[0].tolist()


def test_a_slow_network_makes_produces_wait_for_as_long_as_it_is_slow() -> None:
    """A record waits for two to four delays of 250 ms, depending on the fetches in flight."""
    rows = fleet.simulate_local(GIVEN.with_(pauses="latency 2 20-40 250", seed=2))
    waits = exact.waits(rows)
    assert not exact.absences(rows)
    assert 2 * 250 < max(wait.latency_ms for wait in waits) <= 4 * 250
    assert max(w.latency_ms for w in exact.waits(fleet.simulate_local(GIVEN))) < 250


def test_pauses_are_text_and_back() -> None:
    text = "fetchers 2 15.000-30.000, down 3 40.000-60.500, latency 1 0.000-2.000 250"
    assert given.written(given.pauses_of(text)) == text
    assert given.pauses_of("") == ()


@pytest.mark.parametrize(("settings", "says"), [
    ({"pauses": "2 15-30"}, "'2 15-30' is not a pause"),
    ({"pauses": "stuck 2 15-30"}, "roles: fetchers, leader, down"),
    ({"pauses": "latency 2 15-30"}, "or 'latency 2 15-30 250'"),
    ({"pauses": "down 2 15-30 250"}, "is not a pause"),
    ({"pauses": "down 2 30-15"}, "ends before it begins"),
    ({"assigned": "1,2,3"}, "assigned lists 1 partition; valid: partitions=4"),
    ({"assigned": "1,2 3,1 1,3 3,2"}, "replication_factor=3"),
    ({"assigned": "1,2,4 3,1,2 1,3,2 3,2,1"}, "brokers, from 1 to 3"),
    ({"assigned": "1;2"}, "is not a list of replicas"),
    ({"leader_bytes_per_s": 1_000, "link_bytes_per_s": 9}, "=1,000 with link_bytes_per_s=9; valid"),
])  # fmt: skip
def test_what_is_given_wrongly_is_named(settings, says) -> None:
    with pytest.raises(ValueError, match=says):
        GIVEN.with_(**settings)


def test_it_goes_to_workers_as_text() -> None:
    config = GIVEN.with_(pauses="down 2 20-40")
    assert fleet.FleetConfig.from_json(config.to_json()) == config
    measured = measures(fleet.simulate_local(config), 3, 2, (0, config.duration_ms))
    assert measured["under_replicated_minutes"] == pytest.approx(4 * 20 / 60, rel=0.05)
