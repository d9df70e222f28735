"""Churn, the lag limit, the model: titles of figures agree with their numbers.

The table of the model has every setting, and both models agree.
"""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest

from isrlab import fleet
from isrlab.events import exact
from isrlab.fleet import evictions, load, recorded
from isrlab.show.controls import pictured
from isrlab_book.workbook import choosing_the_lag_limit as limits
from isrlab_book.workbook import isr_churn
from isrlab_book.workbook.who_judges_this import fleet_model as model

T = 1_700_000_000_000
HOSTILE = "a$b$<script>\x1b"
SMALL = fleet.FleetConfig(
    version="4.1", partitions=6, minutes=10, burst_every_s=120, stall_every_s=120,
    replica_lag_time_max_ms=10_000,
)  # fmt: skip


def title(ax) -> str:
    pictured(ax)  # it can be drawn
    return " ".join(ax.get_title(loc="left").split())


def table(columns, *rows):
    return pd.DataFrame(rows, columns=columns.split())


# ISR churn


@pytest.mark.parametrize(
    ("version", "knew", "joined_ms", "reason"),
    [
        ("0.8.2", (5_000, 900), math.inf, "too many records behind"),
        ("0.8.2", (4_000, 900), math.inf, "kept up, but never at the log end"),
        ("0.9.0", (5_000, 900), math.inf, "kept up, but never at the log end"),
        ("0.9.0", (0, 12_000), math.inf, "stalled, and lacked nothing"),
        ("0.9.0", (70, 12_000), 20_000, "behind for longer than the limit"),
        ("0.9.0", (70, 12_000), 7_000, "let in while behind"),
    ],
)
def test_the_reason_is_what_the_leader_knew(version, knew, joined_ms, reason):
    key = exact.Key("r", "t", 0)
    lag, since_ms = knew
    out = exact.Absence(key, 2, 0, None, 1, lag, since_ms)
    config = fleet.FleetConfig(version=version, replica_lag_time_max_ms=10_000)
    assert evictions.reason(out, config, joined_ms) == reason


def test_rules_that_change_are_named_by_their_labels():
    first, second, *rest = fleet.versions(fleet.FleetConfig(), ["0.8.2", "0.9.0", "2.4", "2.5"])
    expected = "clock: a fetch at the log end (KAFKA-1546), no limit in records (KAFKA-1546)"
    assert isr_churn.rules_changed(first, second) == expected
    assert isr_churn.rules_changed(*rest) == "limit 30 s, checks every 15 s"
    assert isr_churn.rules_changed(first, first) == ""


@pytest.fixture(scope="module")
def fleets():
    """Four seeds of two releases under bursts and stalls, and their evictions."""
    base = isr_churn.SMALL.with_(
        minutes=20, stall_s=20, stall_every_s=200, burst_records=30_000, burst_s=15,
        burst_every_s=120, burst_share=0.3,
    )  # fmt: skip
    eras = fleet.versions(base.with_(replica_lag_time_max_ms=10_000), ["0.9.0", "0.10.2"])
    every = fleet.sweep(eras, "seed", [1, 2, 3, 4])
    return (
        eras,
        every,
        {each.run: evictions.judged(each, fleet.simulate_local(each)) for each in every},
    )


def test_cells_judged_by_workers_are_those_judged_here_and_equal_rules_run_once(
    spark, fleets, monkeypatch
):
    _eras, every, left = fleets
    moving = isr_churn.SMALL.with_(leaders="move", pauses="dead 2 60-120", minutes=4, name="moves")
    configs = [*every[:1], *fleet.versions(every[0], ["0.11"]), every[4], moving]
    begun, spread = [], evictions.spread
    monkeypatch.setattr(
        evictions,
        "spread",
        lambda *given: begun.extend(each.run for each in given[1]) or spread(*given),
    )
    judged = evictions.judged_on_spark(spark, configs)
    assert begun == [every[0].run, "0.11", "moves"], "0.10.2 and 0.11 have equal rules"
    here = {config.run: left.get(config.run) for config in configs}
    here["0.11"] = left[every[4].run].assign(run="0.11")
    here["moves"] = evictions.judged(moving, fleet.simulate_local(moving))
    expected = pd.concat(here.values()).astype(evictions.JUDGED)
    order = ["run", "ts_ms", "partition", "replica"]
    both = [rows.sort_values(order, ignore_index=True) for rows in (judged, expected)]
    pd.testing.assert_frame_equal(*both)
    assert {*judged["run"]} == {each.run for each in configs}


def test_an_eviction_is_needless_if_the_follower_was_at_work_and_soon_back(fleets):
    _, every, left = fleets
    for config in every:
        rows = left[config.run]
        for row in rows.itertuples():
            starts, ends = load.stalls(config, row.replica)
            stalled = any(start <= row.ts_ms < end for start, end in zip(starts, ends, strict=True))
            assert row.is_at_work is not stalled
        (counted,) = isr_churn.counts(rows, [config], 10).itertuples()
        soon = rows[rows["is_at_work"]]["out_s"] <= 10
        assert counted.needless * config.minutes / 60 == pytest.approx(soon.sum())
        assert 0 < counted.needless < counted.evictions


def test_a_step_between_releases_is_paired_by_seed(fleets):
    eras, every, left = fleets
    counted = isr_churn.counts(pd.concat(left.values()), every, 10)
    steps = isr_churn.steps(counted, eras).set_index("evictions")
    clock = steps.loc["kept up, but never at the log end"]
    assert clock["step"] == "0.9.0 → 0.10.2" and "KAFKA-4485" in clock["rules"]
    means = counted.groupby("setting")["kept up, but never at the log end"].mean()
    assert clock["an hour"].startswith(f"{means['0.10.2'] - means['0.9.0']:+,.0f} (")


def test_the_time_behind_is_the_stall_and_the_copying():
    assert isr_churn.behind_s(100, 0, 10) == 10
    assert isr_churn.behind_s(100, 5, 10) == 20, "half the rate is left"
    assert isr_churn.behind_s(100, 5, 10, stall_s=20) == 60, "100 more came during the stall"
    assert math.isinf(isr_churn.behind_s(100, 10, 10))


@pytest.mark.parametrize("trouble", isr_churn.TROUBLES)
def test_the_formula_says_who_is_evicted(trouble):
    base = isr_churn.SMALL.with_(minutes=30, burst_every_s=400, burst_share=0.3)
    bases = fleet.sweep(base, "burst_records", [30_000, 200_000])
    several = [isr_churn.troubled(each, trouble) for each in bases]
    assert len({each.run for each in several}) == 2
    left = pd.concat(evictions.judged(each, fleet.simulate_local(each)) for each in several)
    rows = isr_churn.links(several, left)
    if "restart" in trouble:
        assert rows.empty
        return
    limits = rows["behind_s"] / 30
    assert len(rows[limits < 1]) and not rows[limits < 1]["evicts"].any()
    assert len(rows[limits > 1.5]) and rows[limits > 1.5]["evicts"].all()
    total = f"{len(rows[limits > 1.5]):,} of {len(rows[limits > 1.5]):,}"
    assert title(isr_churn.plot_formula(rows, 30)).endswith(total)


def test_the_picture_of_the_controls_counts_as_the_questions_do():
    config = isr_churn.SMALL.with_(version="0.8.2", minutes=5, partitions=12, burst_records=150_000)
    counted = isr_churn.counts(evictions.judged(config, fleet.simulate_local(config)), [config], 10)
    figure = isr_churn.plot_burst(config)
    expected = f"{counted['evictions'][0]:,.0f} evictions an hour, {counted['needless'][0]:,.0f} of"
    assert expected in figure.get_suptitle() and counted["evictions"][0] > 0
    box = isr_churn.burst_controls(config)
    numbers = {control.description: control for control in box.inputs}
    numbers["lag limit (s)"].value = 7
    assert "records behind" not in box.caption.value
    numbers["burst interval (s)"].value, before = 5, box.picture.value
    assert box.picture.value == before or box.caption.value == ""


def test_the_stored_day_is_of_three_runs():
    hours = isr_churn.day("by_hour")
    assert sorted(set(hours["run"])) == ["bursts alone", "bursts and stalls", "stalls alone"]
    ax = isr_churn.plot_day(hours, isr_churn.day("by_broker")).axes[0]
    assert len(ax.get_lines()) == hours["trouble"].nunique() + 2


# Limits


@pytest.mark.parametrize(
    ("limit_s", "text"),
    [(10, "nothing is committed for 11 s, then the follower is out for 9 s"),
     (30, "nothing is committed for 20 s; no follower is evicted")],
)  # fmt: skip
def test_a_stall_is_sat_out_or_ends_in_an_eviction(limit_s, text):
    config = limits.PAIR.with_(replica_lag_time_max_ms=1000 * limit_s)
    expected = f"Limit {limit_s} s, stall 20 s: {text}"
    assert title(limits.plot_stall(config)) == expected


def test_limits_are_weighed_in_the_titles():
    means = {"false_evictions": (50, 0.5), "right_evictions": (2, 2), "stalled_minutes": (3, 9),
             "under_replicated_minutes": (7, 1), "at_risk_minutes": (10, 10)}  # fmt: skip
    rows = [
        (limit_s, metric, value, value, value, 5)
        for metric, values in means.items()
        for limit_s, value in zip((10.0, 30.0), values, strict=True)
    ]
    bands = table("lag_limit_s metric mean low high seeds", *rows)
    assert title(limits.plot_false_evictions(bands)).startswith("From 30 s on, less than one")
    ax = limits.plot_time_at_risk(bands, "3.7")
    assert title(ax) == (
        "Limit 10 → 30 s: acknowledged with a copy fewer 7 → 1 min (acks=all), 10 → 10 min "
        "(acks=1); nothing committed 3 → 9 min"
    )
    assert "session timeout, 9 s" in " ".join(text.get_text() for text in ax.texts)
    assert limits.lag_limit_finding(bands) == (
        "Limit 10 → 30 s, per hour: false evictions 50 → 0, minutes with nothing committed 3 → 9, "
        "minutes acknowledged with a copy fewer 7 → 1 (acks=all), 10 → 10 (acks=1)."
    )


@pytest.mark.parametrize(
    ("version", "session_s"), [("2.4", 6), ("2.8", 18), ("3.3", 9), ("3.7", 9), ("4.3", 9)]
)
def test_the_lag_limit_decides_about_a_fetcher_and_the_session_about_a_process(version, session_s):
    ax = limits.plot_removals(version, [2, 30])
    expected = f"in the ISR for up to 45 s, a stopped process up to {session_s} s"
    assert title(ax) == f"Limit 30 s: a stopped fetcher stays {expected}"
    fetcher, process = (line.get_ydata().tolist() for line in ax.get_lines()[:2])
    assert fetcher[0] == process[0] == 3, "one and a half limits are shorter than any session"


# 20: the model


def test_every_setting_has_a_meaning():
    settings = model.settings().set_index("setting")
    assert list(settings.index) == [item.name for item in fields(fleet.FleetConfig)]
    assert settings["what it does"].str.len().min() > 5
    assert settings.loc["replica_fetch_wait_max_ms"].tolist()[:3] == ["500", "ms", "1 to 60,000"]
    assert settings.loc["replica_lag_time_max_ms", "default"] == "by version"
    assert settings.loc["load", "valid"] == "steady, bursts, heavy, together, trace"


def test_a_finer_clock_and_smaller_records_are_the_same_fleet():
    calm = SMALL.with_(load="steady")
    events = [fleet.simulate_local(c).to_pandas() for c in (calm, model.finer(calm))]
    coarse, fine = (rows.loc[rows["kind"].str.startswith("isr_"), "ts_ms"] for rows in events)
    assert len(coarse) == len(fine) > 10
    assert np.abs(fine.to_numpy() / 10 - coarse.to_numpy()).max() < 50
    small = model.smaller(SMALL.with_(version="0.8.2"))
    for name in ("records_per_s", "burst_records"):
        assert (
            getattr(small, name) * small.record_bytes == getattr(SMALL, name) * SMALL.record_bytes
        )
    assert small.lag_messages == 40_000


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_written_trace_is_the_drawn_load(tmp_path, ending):
    path = fleet.write_trace(SMALL, tmp_path / f"mine.{ending}")
    drawn = load.arrivals(SMALL, np.arange(SMALL.partitions))
    config = SMALL.with_(load="trace", trace_file=path)
    shares = recorded.recording(config).by_leader.values()
    times = np.sort(np.concatenate([share.arrivals.ts_ms for share in shares]))
    assert times.tolist() == (drawn.ts_ms - drawn.ts_ms[0]).tolist()
    assert sum(share.arrivals.records.sum() for share in shares) == drawn.records.sum()
    assert all((share.record_bytes == SMALL.record_bytes).all() for share in shares)


def test_a_trace_that_cannot_be_written_says_why(tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.csv or \.parquet"):
        fleet.write_trace(SMALL, tmp_path / "x.txt")
    with pytest.raises(ValueError, match="no load"):
        fleet.write_trace(SMALL.with_(load="steady", records_per_s=0))


@pytest.fixture
def answered():
    """Results of a base and its checks at two seeds; only fencing and one latency change them."""
    names = [model.BASE, *(check.name for check in model.CHECKS)]
    index = pd.MultiIndex.from_product([names, ["1", "2"]], names=["check", "seed"])
    data = pd.DataFrame(100.0, index=index, columns=list(model.ANSWERS))
    data.loc[(slice(None), "2"), :] = 50.0  # half, with or without a change
    data.loc[("stalled brokers fenced", "1"), "under-replicated"] = 170.0
    data.loc[("stalled brokers fenced", "2"), "under-replicated"] = 55.0
    data.loc[("time step a tenth as long", "1"), ["p50", "old shrinks"]] = [50.0, 101.0]
    data.loc[("time step a tenth as long", "2"), "p50"] = 25.0
    data.loc[("messages 1 ms, not 2", "1"), "p99"] = 70.0  # at one seed only
    return data


def test_what_goes_one_way_at_every_seed_is_marked(answered):
    changes = model.sensitivity(answered)
    assert list(changes[changes["moves"]].index) == [
        ("time step a tenth as long", "p50"), ("stalled brokers fenced", "under-replicated"),
    ]  # fmt: skip
    assert changes.loc[("stalled brokers fenced", "under-replicated"), "mean"] == pytest.approx(40)
    finding = model.finding(changes)
    assert "by at most 0.5 % on average. A single seed lies up to 33 %" in finding
    assert "median wait by -50 %" in finding and "under-replicated by +40 %" in finding
    ax = model.plot_sensitivity(answered, {"old": "0.8.2", "new": "4.1"})
    assert title(ax).endswith("in one direction at every seed: stalled brokers fenced")
    texts = [text.get_text() for text in ax.texts]
    assert texts.count("-33 to +33 %") == len(model.ANSWERS)
    assert "+40 (+10 to +70 %)" in texts


def test_answers_are_in_units_of_the_base():
    runs = [c.run for c in model.fleets(model.bases(SMALL, "0.8.2"), seeds=2)]
    assert len(runs) == len(set(runs)) == 3 * 2 * (1 + len(model.CHECKS))
    alarms = pd.DataFrame({"run": runs, "minutes": 60.0, "shrinks_per_hour": 7.0})
    absences = pd.DataFrame({"run": runs, "under_replicated_ms": 180_000})
    latency = pd.DataFrame({"run": runs, "p50_ms": 50, "p99_ms": 80})
    answers = model.answers(alarms, absences, latency)
    assert answers.loc["base", "1"].tolist() == [7.0, 7.0, 3.0, 50.0, 80.0]
    assert answers.loc["time step a tenth as long", "2"].tolist() == [70.0, 70.0, 3.0, 5.0, 8.0]
