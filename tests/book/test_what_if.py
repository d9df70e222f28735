"""The hours of a log played again by the fleet, and what the notebook *What if?* says of them."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import pytest

from isrlab.events.exact import Absence, Key
from isrlab.fleet import FleetConfig
from isrlab.fleet.given import pauses_of
from isrlab.show.controls import pictured
from isrlab_book.workbook import what_if
from isrlab_book.workbook.what_if import replay
from isrlab_ops.logs.incidents.look import look

ROOT = Path(__file__).parents[2] / "data" / "recordings" / "incidents"
BASE = FleetConfig(
    replica_lag_time_max_ms=6_000, load="steady", records_per_s=2.5, burst_records=0,
    min_insync_replicas=2, partitions=6, minutes=2,
)  # fmt: skip
PAUSED = "e-282-follower-paused"


def folder(name: str) -> Path:
    return ROOT / name / "logs"


def replayed(name: str, version: str, **changes) -> replay.LogReplay:
    return replay.replay_of(look(folder(name)).record, BASE.with_(version=version, **changes))


@pytest.fixture(scope="module")
def real() -> replay.LogReplay:
    return replayed(PAUSED, "2.8")


@pytest.fixture(scope="module")
def runs(real) -> dict[str, list[replay.ReplayOutcome]]:
    return what_if.try_settings(real, ["replica_lag_time_max_ms=30000"], 6)


@pytest.mark.parametrize(("name", "version"), [
    ("a-412-follower-paused", "4.1"), ("b-412-follower-killed", "4.1"),
    ("d-392-rolling-restart", "3.9"), (PAUSED, "2.8"), ("j-282-clocks-apart", "2.8"),
    ("s-0822-follower-paused", "0.8.2"),
])  # fmt: skip
def test_recorded_incidents_are_reproduced(name, version) -> None:
    real = replayed(name, version)
    runs = replay.outcomes(real.config, 8)
    assert what_if.is_reproduced(real, runs)
    departures = [run.cost.evictions + run.cost.removals for run in runs]
    seen = real.recorded.cost
    assert median(departures) == pytest.approx(seen.evictions + seen.removals, rel=0.05)
    missing = median(run.cost.missing_minutes for run in runs)
    assert missing == pytest.approx(seen.missing_minutes, rel=0.2)


def test_the_pause_is_when_it_was(real) -> None:
    truth = json.loads((ROOT / PAUSED / "truth.json").read_text(encoding="utf-8"))
    stop, go = (
        next(a["t_ms"] for a in truth["actions"] if a["what"].startswith(signal))
        for signal in ("SIGSTOP", "SIGCONT")
    )
    (pause,) = pauses_of(real.config.pauses)
    assert (pause.role, pause.broker) == ("fetchers", 3)
    assert pause.to_ms - pause.from_ms == pytest.approx(go - stop, abs=1_500)


def test_a_longer_limit_spares_evictions_and_lets_producers_wait(runs) -> None:
    was, now = runs.values()
    assert {run.cost.evictions for run in was} == {16}
    assert {run.cost.evictions for run in now} == {0}
    assert all(run.cost.missing_minutes == 0 for run in now)
    waited = [median(run.cost.waiting_minutes or 0 for run in several) for several in (was, now)]
    assert waited[1] > 1.5 * waited[0]


def test_where_the_session_ends_first_a_longer_limit_spares_nobody() -> None:
    real = replayed("a-412-follower-paused", "4.1", replica_lag_time_max_ms=6_000)
    longer = replay.play(real.config.with_(replica_lag_time_max_ms=60_000)).cost
    assert (longer.evictions, longer.removals) == (0, 16)


def test_who_wakes_and_removes_others_is_a_leader_that_answered_nobody() -> None:
    real = replayed("g-01022-follower-flapping", "0.10.2")
    roles = {(pause.role, pause.broker) for pause in pauses_of(real.config.pauses)}
    assert roles == {("fetchers", 3), ("leader", 3)}


def test_waiting_is_standing_still_within_the_isr() -> None:
    config = BASE.with_(pauses="fetchers 2 20-40", partitions=1, brokers=2, replication_factor=2)
    out = Absence(Key("r", "t", 0), 2, 30_000, 41_000)
    assert replay._waiting_ms(config, []) == 20_000
    assert replay._waiting_ms(config, [out]) == 10_000


def test_a_log_in_which_nobody_left_is_refused() -> None:
    with pytest.raises(ValueError, match="no replica left an ISR"):
        replayed("k-412-quiet-control", "4.1")


def test_what_is_drawn_and_said_has_the_numbers(real, runs) -> None:
    for picture in (what_if.plot_replay(real, runs["as it was"]), what_if.plot_settings(runs)):
        pictured(picture)
    text = what_if.finding(real, runs)
    assert text.startswith(
        "Played again: 16 departures from an ISR in the log, 16 in the fleet; 2.07"
    )
    assert "With replica_lag_time_max_ms=30000: with a copy fewer 2" in text
    page = what_if.settings_table(real, runs).data
    assert page.count("the log does not say") == 4
    assert "replica_lag_time_max_ms=30000" in page


def test_what_is_not_reproduced_is_said(real, runs) -> None:
    wrong = real._replace(recorded=replay.ReplayOutcome([], replay.Cost(50, 0, 40.0)))
    assert not what_if.is_reproduced(wrong, runs["as it was"])
    assert "worth nothing" in what_if.finding(wrong, runs)


def test_without_a_log_troubles_are_drawn() -> None:
    drawn = what_if.replay_logs("", BASE.with_(stall_s=15, stall_every_s=30))
    runs = what_if.try_settings(drawn, ["replica_lag_time_max_ms=30000"], 2)
    assert what_if.finding(drawn, runs).startswith("replica_lag_time_max_ms=30000: with a copy")
    assert what_if.SEEN not in what_if.settings_table(drawn, runs).data
