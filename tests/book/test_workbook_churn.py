"""Churn, the lag limit, the model: titles of figures agree with their numbers.

The table of the model has every setting, and both models agree.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from isrlab import fleet
from isrlab.events import exact
from isrlab.fleet import evictions, load, recorded
from isrlab.show.controls import pictured
from isrlab_book.workbook import choosing_the_lag_limit as limits
from isrlab_book.workbook import isr_churn
from isrlab_book.workbook import isr_churn_in_every_release as every_release

T = 1_700_000_000_000
BURSTS = fleet.FleetConfig(
    version="4.3", partitions=60, minutes=10, load="together", burst_records=60_000, burst_s=10,
    burst_every_s=150, burst_share=0.5, stall_s=0, min_insync_replicas=2,
    replica_lag_time_max_ms=30_000,
)  # fmt: skip
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
    assert every_release.rules_changed(first, second) == expected
    assert every_release.rules_changed(*rest) == "limit 30 s, checks every 15 s"
    assert every_release.rules_changed(first, first) == ""


@pytest.fixture(scope="module")
def fleets():
    """Four seeds of two releases under bursts and stalls, and their evictions."""
    base = BURSTS.with_(
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
    configs = [*every[:1], *fleet.versions(every[0], ["0.11"]), every[4]]
    begun, spread = [], evictions.spread
    monkeypatch.setattr(
        evictions,
        "spread",
        lambda *given: begun.extend(each.run for each in given[1]) or spread(*given),
    )
    judged = evictions.judged_on_spark(spark, configs)
    assert begun == [every[0].run, "0.11"], "0.10.2 and 0.11 have equal rules"
    here = {config.run: left.get(config.run) for config in configs}
    here["0.11"] = left[every[4].run].assign(run="0.11")
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
        (counted,) = every_release.counts(rows, [config], 10).itertuples()
        soon = rows[rows["is_at_work"]]["out_s"] <= 10
        assert counted.needless * config.minutes / 60 == pytest.approx(soon.sum())
        assert 0 < counted.needless < counted.evictions


def test_a_step_between_releases_is_paired_by_seed(fleets):
    eras, every, left = fleets
    counted = every_release.counts(pd.concat(left.values()), every, 10)
    steps = every_release.steps(counted, eras).set_index("evictions")
    clock = steps.loc["kept up, but never at the log end"]
    assert clock["step"] == "0.9.0 → 0.10.2" and "KAFKA-4485" in clock["rules"]
    means = counted.groupby("setting")["kept up, but never at the log end"].mean()
    assert clock["an hour"].startswith(f"{means['0.10.2'] - means['0.9.0']:+,.0f} (")


def test_the_time_behind_is_the_stall_and_the_copying():
    assert isr_churn.behind_s(100, 0, 10) == 10
    assert isr_churn.behind_s(100, 5, 10) == 20, "half the rate is left"
    assert isr_churn.behind_s(100, 5, 10, stall_s=20) == 60, "100 more came during the stall"
    assert math.isinf(isr_churn.behind_s(100, 10, 10))


@pytest.mark.parametrize("mb_per_s", [10, 25, 150, 300])
def test_a_stall_before_the_burst_adds_what_it_held_back(mb_per_s):
    burst = isr_churn.TYPICAL._replace(mb_per_s=mb_per_s, length_s=10, steady_mb_per_s=10)
    ((start_ms, _),) = isr_churn.bursts(isr_churn.fleet_of(burst)).items()
    stalled = f"fetchers 2 {start_ms / 1000:.3f}-{start_ms / 1000 + 20:.3f}"
    config = isr_churn.fleet_of(burst).with_(pauses=stalled)
    behind_s = isr_churn.behind_s(mb_per_s * 4e6, 4e6, 29.7e6, stall_s=20)
    out = evictions.judged(config, fleet.simulate_local(config))["replica"].eq(2).any()
    assert (bool(out) is (behind_s > 30) and not 30 <= behind_s <= 45) or mb_per_s == 100


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {},
            "behind for 55 s; your limit is 30 s, so it is evicted 30 to 45 s after it fell behind",
        ),
        ({"threads": 2}, "so followers stay in the ISR"),
        ({"copy_mb_per_s": 41}, "if an ISR check (every 15 s) comes after 30 s"),
        ({"limit_s": 60}, "it stays in the ISR, and acks=all waits that long"),
        ({"steady_mb_per_s": 80}, "it never catches up"),
        ({"response_mib": 1_000}, "partitions that the burst does not hit can be evicted too"),
        ({"version": "0.9.0"}, "Before 0.10.2 other rules also evict followers"),
    ],
)
def test_the_first_screen_says_what_a_burst_does(changes, says):
    assert says in isr_churn.verdict(isr_churn.TYPICAL._replace(**changes))


def test_the_picture_of_a_burst_agrees_with_its_sentence():
    view = isr_churn.plot_burst()
    assert view.alt == "Simulated, release 4.4: up to 562 MB behind, evicted after 45 s."
    box = isr_churn.burst_controls()
    controls = {control.description: control for control in box.inputs}
    controls["num.replica.fetchers"].value, before = 2, box.picture.value
    assert box.picture.value != before and "stay in the ISR" in box.caption.value
    controls["steady load of a broker (MB/s)"].value = 10_000
    assert "never catches up" in box.caption.value


def test_what_an_upgrade_changes_is_paired_by_seed(spark):
    small = BURSTS.with_(partitions=12, minutes=4, burst_records=200_000, brokers=3)
    fleets = isr_churn.upgrades(small.with_(replica_lag_time_max_ms=None), [1, 2])
    assert [each.run for each in fleets][:2] == ["2.4 seed=1", "2.4 seed=2"]
    paid = isr_churn.costs(fleet.stored(spark, fleets, tasks=2), fleets)
    (first,) = (each for each in fleets if each.run == "2.4 seed=1")
    left = evictions.judged(first, fleet.simulate_local(first))
    assert paid.loc[first.run, "evictions"] == pytest.approx(len(left) * 15) and len(left)
    steps = isr_churn.steps(paid).set_index("step")
    assert steps.loc["3.9 → 4.1"].tolist() == ["0"] * 5
    means = paid.groupby("release")["evictions"].mean()
    change = means["2.4 with 30 s"] - means["2.4"]
    assert steps.loc["2.4 → 2.4 with 30 s", "evictions"].startswith(f"{change:+,.0f}")


def test_the_stored_day_pairs_the_leaders_that_ran_both():
    hours, leaders = isr_churn.day("by_hour"), isr_churn.day("by_leader")
    counts = leaders.groupby("run")["leader"].nunique()
    ax = isr_churn.plot_day(hours, leaders).axes[0]
    assert len(ax.get_lines()) == hours["trouble"].nunique()
    table = isr_churn.remedied(leaders).set_index("change")
    base = leaders[leaders["run"] == isr_churn.AS_IT_IS].set_index("leader")["evictions"]
    restarts = [run for run in counts.index if "restart" in run]
    for run in counts.index.difference([isr_churn.AS_IT_IS, *restarts]):
        own = leaders[leaders["run"] == run].set_index("leader")["evictions"]
        expected = f"{base[own.index].mean():,.0f} → {own.mean():,.0f}"
        assert table.loc[run, "evictions"].startswith(expected)
    each = isr_churn.restarted(leaders).set_index("")
    assert [*each.index] == [run for run in leaders["run"].unique() if run in restarts]
    away = each["a copy fewer (s)"].str.split().str[0].astype(float)
    ten, alone = away["restarts at 03:00, down 10 min"], each["partitions at one copy"]
    assert ten == pytest.approx(10 * away["restarts at 03:00, down 1 min"], rel=0.03)
    assert {*alone[alone.index.str.startswith("restarts")]} == {"0"}
    assert {*counts[["bursts alone", isr_churn.AS_IT_IS, "stalls alone"]]} == {60}
    formula = isr_churn.day("by_formula").set_index("quarter")
    assert formula.loc[:2, "sum"].sum() == 0, "behind for up to three quarters of the limit"
    assert formula.loc[3, "sum"] < formula.loc[3, "size"] / 1_000
    assert (formula.loc[6:, "sum"] == formula.loc[6:, "size"]).all()


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
        "With 30 s instead of 10 s, acks=all records lack a copy for 1 instead of 7 min an hour, "
        "and nothing is committed for 9 instead of 3 min"
    )
    assert "session timeout, 9 s" in " ".join(text.get_text() for text in ax.texts)
    assert limits.lag_limit_finding(bands) == (
        "With a limit of 30 s instead of 10 s there are, per hour, 0 instead of 50 false "
        "evictions; for 9 instead of 3 minutes nothing is committed; and records are acknowledged "
        "with a copy fewer for 1 instead of 7 minutes (acks=all) and 10 instead of 10 minutes "
        "(acks=1)."
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


# Traces


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
