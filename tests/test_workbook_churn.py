"""Churn, the lag limit, the model: figures say what their numbers say.

Of the model no setting is missing, and both models agree.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pandas as pd
import pytest

from isrlab import fleet
from isrlab.fleet import load, recorded
from isrlab.show.controls import pictured
from isrlab.workbook import choosing_the_lag_limit as limits
from isrlab.workbook import isr_churn
from isrlab.workbook import the_fleet_model as model

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


# 05: ISR churn


@pytest.fixture(scope="module")
def seen():
    return fleet.trace(isr_churn.SMALL, fleet.most_evicting(isr_churn.SMALL))


def compared(**columns):
    rows = {
        "run": ["0.8.2", "0.9.0"], "version": ["0.8.2", "0.9.0"], "partitions": 30, "minutes": 60.0,
        "burst_records": 30_000, "burst_s": 1.0, "lag_time_ms": 10_000,
        "shrinks": [12, 2], "false_alarms": [10, 0],
        "shrinks_per_hour": [12.0, 2.0], "false_alarms_per_hour": [10.0, 0.0],
        "under_replicated_minutes": [3.0, 1.0],
    }  # fmt: skip
    return pd.DataFrame({**rows, **columns})


def test_a_lag_figure_names_the_check_and_who_leaves_if_anybody_does(seen):
    moment = int(seen.evictions_ms()[0])
    ax = isr_churn.plot_lag(isr_churn.around(seen, seen.evictions_ms()))
    assert title(ax).startswith(f"0.8.2: the check at {moment / 1000:.1f} s evicts")
    assert "(records)" in ax.get_ylabel()
    assert np.abs(seen.ticks_ms - moment).min() < 20  # looked at every 20 ms
    calm = isr_churn.plot_lag(isr_churn.around(seen, seen.spared_ms(isr_churn.MESSAGES)))
    assert title(calm).endswith("and no check evicts anybody")


def test_an_eviction_of_all_followers_commits_what_only_the_leader_has(seen):
    part = isr_churn.around(seen, seen.evictions_ms())
    assert part.isr_size.min() == 1
    alone = np.argmax(part.isr_size == 1)
    records = part.high_watermark[alone] - max(end[alone] for end in part.followers.values())
    expected = f"0.8.2: {records:,} records commit that only the leader has"
    assert title(isr_churn.plot_offsets(part)) == expected


def test_fleets_are_compared_in_the_titles():
    heights = pd.concat([compared(burst_records=1_000, false_alarms=[0, 0]), compared()])
    expected = "False alarms: 0.8.2 from 30,000; never in 0.9.0"
    assert title(isr_churn.plot_sweep(heights)) == expected
    assert isr_churn.finding(compared()) == (
        "30 partitions, 60 minutes, bursts of 30,000 records in 1 s, the same for all: "
        "0.8.2 (limit 10 s): 12 ISR shrinks, 10 false alarms; "
        "0.9.0 (limit 10 s): 2 ISR shrinks, 0 false alarms."
    )
    left = table(
        "run since_caught_up_ms lag_records lag_time_ms lag_messages is_false_alarm",
        ("0.8.2", 900, 5_000, 10_000, 4_000.0, True),
        ("0.8.2", 12_000, 0, 10_000, None, False),
    )
    figure = isr_churn.plot_evictions(left)
    expected = "0.8.2: 1 of 2 evictions hit a follower that had kept up until then"
    assert " ".join(figure.get_suptitle().split()) == expected
    assert title(figure.axes[0]) == "0.8.2: 1 false, 1 real"
    assert isr_churn.plot_evictions(left[:0]).get_suptitle() == "Nobody is evicted"


def test_the_picture_of_the_sliders_counts_as_the_questions_do():
    alarms, evictions = isr_churn.false_alarms(isr_churn.SMALL)
    assert alarms == evictions > 0  # no stalls: bursts alone
    assert isr_churn.false_alarms(isr_churn.SMALL.with_(version="0.10.2")) == (0, 0)


# Limits


@pytest.mark.parametrize(
    ("limit_s", "text"),
    [(10, "nothing is committed for 11 s, then the follower is out for 9 s"),
     (30, "nothing is committed for 20 s; nobody is evicted")],
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
    """Answers of a base, its checks and two seeds: only fencing and one latency matter."""
    names = [model.BASE, *(check.name for check in model.CHECKS), "seed 2", "seed 3"]
    data = pd.DataFrame(100.0, index=names, columns=list(model.ANSWERS))
    data.loc["seed 2"], data.loc["seed 3"] = 80.0, 110.0
    data.loc["stalled brokers fenced", "under-replicated"] = 170.0
    data.loc["time step a tenth as long", ["p50", "old shrinks"]] = [50.0, 101.0]
    data.loc["messages 1 ms, not 2", "p99"] = 70.0  # not more than a class below the seeds
    return data


def test_what_is_beyond_the_seeds_is_marked(answered):
    percent = model.sensitivity(answered)
    out = model.beyond(percent).stack()
    assert list(out[out].index) == [
        ("time step a tenth as long", "p50"), ("stalled brokers fenced", "under-replicated"),
    ]  # fmt: skip
    finding = model.finding(percent)
    assert "by 1.0 % at most, another seed by up to 20 %" in finding
    assert "median wait by -50 %" in finding and "under-replicated by +70 %" in finding
    ax = model.plot_sensitivity(answered, {"old": "0.8.2", "new": "4.1"})
    assert title(ax).endswith("than any other seed: stalled brokers fenced")
    texts = [text.get_text() for text in ax.texts]
    assert texts.count("-20 to +10 %") == len(model.ANSWERS) and texts.count("-30 %") == 1
    assert [text for text in texts if "!" in text] == ["-50 %  !", "+70 %  !"]
    assert len(model.of_seeds(answered)) == 3


def test_answers_are_in_units_of_the_base():
    runs = [c.run for c in model.fleets(model.bases(SMALL, "0.8.2"), seeds=2)]
    assert len(runs) == len(set(runs)) == 3 * (2 + len(model.CHECKS))
    alarms = pd.DataFrame({"run": runs, "minutes": 60.0, "shrinks_per_hour": 7.0})
    absences = pd.DataFrame({"run": runs, "under_replicated_ms": 180_000})
    latency = pd.DataFrame({"run": runs, "p50_ms": 50, "p99_ms": 80})
    answers = model.answers(alarms, absences, latency)
    assert answers.loc["base"].tolist() == [7.0, 7.0, 3.0, 50.0, 80.0]
    assert answers.loc["time step a tenth as long"].tolist() == [70.0, 70.0, 3.0, 5.0, 8.0]
