"""Logs, churn, the lag limit, two runs compared, the model: figures say what their numbers say.

Log text is escaped. Of the model no setting is missing, and both models agree.
"""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from isrlab import fleet
from isrlab.brokerlogs.recordings import Outage
from isrlab.fleet import load, recorded
from isrlab.show.controls import png
from isrlab.workbook import choosing_the_lag_limit as limits
from isrlab.workbook import isr_churn, what_changed, your_cluster
from isrlab.workbook import the_fleet_model as model

T = 1_700_000_000_000
HOSTILE = "a$b$<script>\x1b"
SMALL = fleet.FleetConfig(
    version="4.1", partitions=6, minutes=10, burst_every_s=120, stall_every_s=120,
    replica_lag_time_max_ms=10_000,
)  # fmt: skip


def title(ax) -> str:
    png(ax)  # it can be drawn
    return " ".join(ax.get_title(loc="left").split())


def table(columns, *rows):
    return pd.DataFrame(rows, columns=columns.split())


# 04: your cluster


@pytest.fixture
def intervals():
    """Partition 0 is full, one loses a replica, one all but one, and of that some is not known."""
    isrs = {0: [[1, 2, 3]], 1: [[1, 2, 3], [1, 2]], 2: [[1, 2, 3], [1, 2], [1], [1, 2, 3]]}
    rows = [
        (HOSTILE, partition, T + 20_000 * i, T + 20_000 * (i + 1), isr, len(isr), 1)
        for partition, several in isrs.items()
        for i, isr in enumerate(several)
    ]
    data = table("topic partition from_ms to_ms isr isr_size leader", *rows)
    return data.assign(is_certain=(data["partition"] < 2) | (data["from_ms"] != T + 20_000))


def test_a_timeline_counts_partitions_and_shows_what_is_not_known(intervals):
    ax = your_cluster.plot_isr_timeline(intervals)
    (legend,) = ax.figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["full ISR", "one missing", "one copy left", "not known: lines missing"]
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels[0] == "a\\$b\\$<script>\N{REPLACEMENT CHARACTER}-2", "most changes, as it is"
    assert title(ax) == "2 of 3 partitions were under-replicated at some time"
    ax = your_cluster.plot_isr_timeline(intervals, most=2)
    assert title(ax).endswith("The 2 with most changes")
    assert ax.get_xlabel() == "time (UTC) from 2023-11-14 22:13"


def test_members_are_those_of_the_busiest_partition_or_of_the_chosen_one(intervals):
    assert "-2: 3 changes, never fewer than 1" in title(your_cluster.plot_members(intervals))
    picker, picture = your_cluster.choose_partition(intervals).children
    before = picture.value
    picker.value = f"{HOSTILE}-1"
    assert picture.value != before


def test_what_was_done_to_brokers_is_drawn_above(intervals):
    faults = Outage(2, T + 5_000, T + 9_000, "SIGSTOP"), Outage(1, T, T + 1_000, "SIGKILL")
    ax = your_cluster.plot_isr_timeline(intervals, faults)
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels[:2] == ["broker 2 paused", "broker 1 killed"] and len(labels) == 5
    assert "what was done" in [text.get_text() for text in ax.figure.legends[0].get_texts()]


def test_changes_over_time_say_which_bar_is_highest():
    changes = table("from_ms shrinks expands", (T, 3, 1), (T + 60_000, 0, 9))
    expected = "3 shrinks and 10 expands, most of them (9) in the 10 s from 2023-11-14 22:14:20 UTC"
    assert title(your_cluster.plot_changes_over_time(changes, 10_000)) == expected


def test_absences_that_begin_together_are_one_incident():
    rows = (
        (2, T, 9_000, "lag"),
        (2, T + 8_000, 400, "gone"),
        (3, T, 700, "lag"),
        (2, T + 60_000, 3_000, "lag"),
    )
    absences = table("replica left_ms out_ms why", *rows)
    absences["back_ms"] = absences["left_ms"] + absences["out_ms"]
    happened = your_cluster.incidents(absences)
    columns = ["broker", "replicas", "out_ms", "why"]
    assert happened[columns].to_numpy().tolist() == [
        [2, 2, 9_000, "gone"], [3, 1, 700, "lag"], [2, 1, 3_000, "lag"],
    ]  # fmt: skip
    ax = your_cluster.plot_time_out(happened)
    assert title(ax) == "Brokers fell out of their ISRs 3 times, for at most 9 s (broker 2)"
    assert [text.get_text() for text in ax.texts] == ["9 s", "3 s", "700 ms"]
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels[0] == "broker 2, left 11-14 22:13:20: 2 replicas, broker was gone"


ALONE = [1]
STORY = [  # seconds, partition, ISR: ten rows, of which an alert sees what a scrape sees
    (0, 0, [1, 2, 3]), (0, 1, [1, 2, 3]),
    (20, 0, [1, 2]), (50, 0, [1, 2, 3]),  # 30 s: two scrapes
    (61, 1, [1, 2]), (62, 1, ALONE), (63, 1, [1, 2, 3]),  # between two scrapes
    (100, 1, [1, 2]), (110, 1, ALONE), (200, 1, [1, 2, 3]),
]  # fmt: skip


@pytest.fixture
def held():
    rows = [
        ("t", partition, 1_000 * at, 1_000 * until, isr, len(isr), True)
        for partition in (0, 1)
        for (at, _, isr), (until, _, _) in pairwise(
            [*(row for row in STORY if row[1] == partition), (240, partition, [])]
        )
    ]
    intervals = table("topic partition from_ms to_ms isr isr_size is_certain", *rows)
    history = table(
        "ts_ms change by", (20_000, "shrink", "leader"), (100_000, "shrink", "controller")
    )
    processes = table("ts_ms kind replica", (150_000, "crash", 1), (170_000, "restart", 1))
    return your_cluster.conditions(intervals, history, processes, 2)


def test_conditions_of_alerts_are_those_of_the_gauges(held):
    short = [(20_000, 50_000), (61_000, 63_000), (100_000, 200_000)]
    at_min = [(20_000, 50_000), (61_000, 62_000), (100_000, 110_000)]
    under = [(62_000, 63_000), (110_000, 200_000)]
    assert [*held.values()] == [short, at_min, under, [(150_000, 170_000)], [(20_000, 80_000)]]


def test_an_alert_fires_after_its_condition_held_at_every_evaluation():
    assert your_cluster.firings([(20_000, 50_000)], 0, 15_000) == [(30_000, 60_000)]
    assert your_cluster.firings([(20_000, 50_000)], 15_000, 15_000) == [(45_000, 60_000)]
    assert your_cluster.firings([(20_000, 50_000)], 30_000, 15_000) == []
    assert your_cluster.firings([(20_000, 35_000), (44_000, 46_000)], 1, 15_000) == [
        (45_000, 60_000)
    ]
    assert your_cluster.firings([(61_000, 63_000)], 0, 15_000) == [], "between two evaluations"


def test_alerts_are_held_against_the_incidents(held):
    faults = [Outage(2, 10_000, 30_000, "SIGSTOP"), Outage(1, 90_000, 120_000, "SIGKILL")]
    happened = your_cluster.when(faults, held)
    assert happened == [(10_000, 50_000), (90_000, 200_000)]
    assert your_cluster.when([], held) == held["UnderReplicatedPartitions > 0"]
    paused = [Outage(1, 50_000, 55_000, "SIGSTOP")]  # whoever wakes up may evict afterwards
    assert your_cluster.when(paused, held) == [(50_000, 63_000)]
    assert your_cluster.when(paused, held, quiet_ms=1_000) == [(50_000, 55_000)]
    fired = your_cluster.alerts(held, happened, (0, 60)).set_index(["alert", "for_s"])
    rows = {
        ("UnderReplicatedPartitions > 0", 0): [2, 2, 0, 0, 17.5],
        ("UnderReplicatedPartitions > 0", 60): [1, 1, 0, 1, 75.0],
        ("UnderMinIsrPartitionCount > 0", 0): [1, 1, 0, 1, 30.0],
        ("OfflinePartitionsCount > 0", 0): [1, 1, 0, 1, 60.0],
        ("increase(IsrShrinksPerSec) > 0", 0): [1, 1, 0, 1, 20.0],
    }
    for row, expected in rows.items():
        assert fired.loc[row].tolist() == expected, row
    page = your_cluster.alerts_table(fired.reset_index()).data
    assert "<th>for: 0</th><th>for: 1 min</th>" in page
    assert "<td>fires once; misses 1; 75 s after the start</td>" in page
    assert "<td>never fires</td>" in page


def test_logs_without_any_change_can_be_drawn(intervals):
    nothing = pd.DataFrame({"from_ms": [], "shrinks": [], "expands": []})
    assert title(your_cluster.plot_changes_over_time(nothing)) == "No ISR changed in these logs"
    for plot in (your_cluster.plot_isr_timeline, your_cluster.plot_members):
        assert title(plot(intervals[:0])) == your_cluster.NO_ISR
    assert your_cluster.choose_partition(intervals[:0]).children[0].value is None
    happened = your_cluster.incidents(table("replica left_ms back_ms out_ms why"))
    title_of_nothing = title(your_cluster.plot_time_out(happened))
    assert title_of_nothing == "No replica is seen to leave an ISR and come back"
    history, processes = table("ts_ms change by"), table("ts_ms kind replica")
    calm = your_cluster.conditions(intervals[:0], history, processes, 2)
    fired = your_cluster.alerts(calm, your_cluster.when([], calm), [0])
    assert your_cluster.alerts_table(fired).data.count("never fires") == len(your_cluster.ALERTS)


def test_tables_escape_what_logs_say():
    unread = pd.DataFrame({"file": [HOSTILE], "line": [1], "reason": ["<b>"], "text": [HOSTILE]})
    page = your_cluster.unread_table(unread.assign(lines=1)).data
    assert page.startswith("<p>Not read: 1 line.</p>")
    assert "&lt;script&gt;" in page and "<script>" not in page and "<b>" not in page
    files = pd.DataFrame({"file": [HOSTILE], "status": ["skipped: <b>"], "lines": 0, "bytes": 7})
    page = your_cluster.files_table(files).data
    assert "0 files read" in page and "<script>" not in page and "<b>" not in page


def test_the_finding_of_logs_is_a_sentence_of_numbers():
    changes = pd.DataFrame({"topic": [HOSTILE], "partition": 0, "shrinks": 1, "expands": 2})
    columns = ("under_replicated_ms", "time_with_one_copy_ms", "uncertain_ms")
    times = pd.DataFrame({column: [1_000] for column in columns})
    text = your_cluster.finding(changes, times, changes[:0], unread=1)
    assert text == (
        "The ISRs of 1 partition shrank once and expanded 2 times (0 of these were flaps); "
        "partitions were under-replicated for 1 s in sum, 1 s of it with a single copy, and "
        "a$b$<script>\N{REPLACEMENT CHARACTER}-0 changed most (3 times); for 1 s the logs do not "
        "tell the ISR; 1 line could not be read."
    )


# 05: ISR churn


@pytest.fixture(scope="module")
def seen():
    return isr_churn.watch(isr_churn.SMALL)


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
    ax = isr_churn.plot_lag(isr_churn.hit_burst(seen))
    assert title(ax).startswith(f"0.8.2: the check at {moment / 1000:.1f} s evicts")
    assert "(records)" in ax.get_ylabel()
    assert np.abs(seen.ticks_ms - moment).min() < 20  # looked at every 20 ms
    calm = isr_churn.plot_lag(isr_churn.spared_burst(seen))
    assert title(calm).endswith("and no check evicts anybody")


def test_an_eviction_of_all_followers_commits_what_only_the_leader_has(seen):
    part = isr_churn.hit_burst(seen)
    assert part.isr_size.min() == 1
    alone = np.argmax(part.isr_size == 1)
    records = part.high_watermark[alone] - max(end[alone] for end in part.followers.values())
    expected = f"0.8.2: {records:,} records commit that only the leader has"
    assert title(isr_churn.plot_offsets(part)) == expected


def test_fleets_are_compared_in_the_titles():
    expected = "The same load: 10 false alarms an hour in 0.8.2, 0 in 0.9.0"
    assert title(isr_churn.plot_versions(compared())) == expected
    same = compared(false_alarms_per_hour=[4.0, 4.0])
    assert title(isr_churn.plot_versions(same)) == "4 false alarms an hour in every version"
    heights = pd.concat([compared(burst_records=1_000, false_alarms=[0, 0]), compared()])
    expected = "False alarms: 0.8.2 from 30,000; never in 0.9.0"
    assert title(isr_churn.plot_sweep(heights)) == expected
    expected = "Most time under-replicated: 0.8.2, 3 partition-minutes"
    assert title(isr_churn.plot_under_replicated(compared())) == expected
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


# Limits, and what changed


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
             "under_replicated_minutes": (7, 1), "at_risk_minutes": (10, 10),
             "timeouts": (0, 4)}  # fmt: skip
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
    assert "<th>held for more than 30 s</th>" in limits.costs_table(bands).data


@pytest.mark.parametrize(
    ("version", "session_s"), [("2.4", 6), ("2.8", 18), ("3.3", 9), ("3.7", 9), ("4.3", 9)]
)
def test_the_lag_limit_decides_about_a_fetcher_and_the_session_about_a_process(version, session_s):
    ax = limits.plot_removals(version, [2, 30])
    expected = f"in the ISR for 45 s, a stopped process for {session_s} s"
    assert title(ax) == f"Limit 30 s: a stopped fetcher stays {expected}"
    fetcher, process = (line.get_ydata().tolist() for line in ax.get_lines()[:2])
    assert fetcher[0] == process[0] == 3, "one and a half limits are shorter than any session"


def test_two_runs_are_compared_metric_by_metric():
    metrics = table(
        "metric was now change",
        ("fell", 4.0, 1.0, -3.0), ("new", 0.0, 2.0, 2.0), ("same", 1.0, 1.0, 0.0),
        ("unknown", None, 1.0, None), ("RemoteTimeMs99thPercentile", 5.0, 2_048.0, 2_043.0),
    )  # fmt: skip
    ax = what_changed.plot_changes(metrics)
    worse = "Worse: new, RemoteTimeMs99thPercentile"
    assert title(ax) == f"1 metric better, 2 worse, 1 the same {worse}"
    assert [bar.get_width() for bar in ax.patches if bar.get_width()] == [
        -75, 100, pytest.approx(100 * 2_043 / 2_048),
    ]  # fmt: skip
    assert what_changed.changes_finding(metrics) == (
        "Worse: new from 0 to 2, RemoteTimeMs99thPercentile from 5 to up to 2,304. "
        "Better: fell from 4 to 1. "
        "1 metric the same."
    )
    page = what_changed.changes_table(metrics).data
    assert "<td>4</td><td>1</td><td>-75 %</td><td>better</td>" in page
    assert "<td>unknown</td><td>1</td><td></td><td></td>" in page
    hours = {"stalled_ms": [60_000, 120_000], "under_replicated_ms": 0, "at_risk_ms": 0}
    risk = pd.DataFrame({"run": ["was", "now"], **hours})
    assert what_changed.hidden_finding(risk).endswith("follower: from 1 to 2 partition-minutes.")
    assert "<td>1.0</td><td>2.0</td>" in what_changed.hidden_table(risk).data


# 20: the model


def test_every_setting_has_a_meaning():
    settings = model.settings().set_index("setting")
    assert list(settings.index) == [item.name for item in fields(fleet.FleetConfig)]
    assert settings["what it does"].str.len().min() > 5
    assert settings.loc["replica_fetch_wait_max_ms"].tolist()[:3] == ["500", "ms", "1 to 60,000"]
    assert settings.loc["replica_lag_time_max_ms", "default"] == "by version"
    assert settings.loc["load", "valid"] == "steady, bursts, heavy, together, trace"


def test_a_cell_is_drawn_with_its_threads():
    ax = model.plot_cell(SMALL.with_(num_replica_fetchers=2, partitions=30))
    start = "One of 3 cells: 4 threads read from broker 1, which checks the ISR"
    assert title(ax).startswith(start)
    texts = [text.get_text() for text in ax.texts]
    assert texts.count("a thread fetches 5 partitions: 2 ms") == 4


@pytest.mark.parametrize("version", ["0.8.2", "1.1", "2.5", "3.3", "4.1"])
def test_engine_and_fleet_tell_one_scene_alike(version):
    """The fleet's followers write for 1 ms, which may come twice before they are in the ISR."""
    stalls = {"stall_s": 40, "stall_every_s": 60}
    scene = SMALL.with_(version=version, fetch_latency_ms=5, minutes=3, **stalls)
    both = model.compared(scene).set_index("answer")
    late = both["fleet"] - both["engine"]
    leaves, joins = late.filter(like="leaves"), late.filter(like="joins")
    assert len(leaves) >= len(joins) >= 3
    assert (leaves == 0).all()
    assert joins.between(0, 2).all()
    assert both.loc["produces acknowledged", "engine"] > 100
    assert late["produces acknowledged"] == late["100% wait at most: class of ms"] == 0


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
    assert answers.loc["base"].tolist() == [7.0, 7.0, 3.0, 50.0, 80.0, 50.0]
    assert answers.loc["time step a tenth as long"].tolist() == [70.0, 70.0, 3.0, 5.0, 8.0, 5.0]


def test_bursts_that_come_together_coincide():
    alone = SMALL.with_(partitions=1)
    hit = SMALL.with_(load="together", burst_share=1.0)
    both = model.coincidences([alone, hit])
    assert both["leaders_at_once"].tolist() == [0, 1, 0, 1, 2, 3]
    assert both.groupby("bursts")["percent_of_time"].sum().tolist() == pytest.approx([100, 100])
    assert both["percent_of_time"].tolist()[3:5] == [0, 0]
    assert both["percent_of_time"][5] > 0


def test_retries_lengthen_the_mean_by_what_was_held():
    latency = pd.DataFrame({"run": ["a", "b"], "count": [100, 50], "p50_ms": 5})
    rows = ("a", "NOT_ENOUGH_REPLICAS", 12), ("a", "DELIVERY_TIMEOUT", 2)
    bound = model.retry_bound(latency, table("run error produces", *rows), retry_ms=1_000)
    assert bound["held"].tolist() == [10.0, 0.0]
    assert bound["mean_longer_by_ms"].tolist() == [100.0, 0.0]
