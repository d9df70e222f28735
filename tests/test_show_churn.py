"""The figures and tables of churn (04, 13, 14) say what their numbers say; log text is escaped."""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from isrlab.show.controls import png
from isrlab.workbook import choosing_the_lag_limit, what_changed, your_cluster

T = 1_700_000_000_000
HOSTILE = "a$b$<script>\x1b"


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def title(ax) -> str:
    png(ax)  # it can be drawn
    return ax.get_title(loc="left")


@pytest.fixture
def intervals():
    """Partition 0 is full, one loses a replica, one all but one, and of that some is not known."""
    isrs = {0: [[1, 2, 3]], 1: [[1, 2, 3], [1, 2]], 2: [[1, 2, 3], [1, 2], [1], [1, 2, 3]]}
    rows = [
        (HOSTILE, partition, T + 20_000 * i, T + 20_000 * (i + 1), isr, len(isr), 1)
        for partition, several in isrs.items()
        for i, isr in enumerate(several)
    ]
    names = ["topic", "partition", "from_ms", "to_ms", "isr", "isr_size", "leader"]
    data = pd.DataFrame(rows, columns=names)
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


def test_changes_and_absences_are_told_in_the_title():
    changes = pd.DataFrame({"from_ms": [T, T + 60_000], "shrinks": [3, 0], "expands": [1, 9]})
    assert title(your_cluster.plot_changes_over_time(changes, 10_000)) == (
        "3 shrinks and 10 expands, most of them (9) at 2023-11-14 22:14 UTC"
    )
    names = ["topic", "partition", "replica", "left_ms", "out_ms"]
    absences = pd.DataFrame([(HOSTILE, 1, 2, T, 19_000), ("t", 0, 3, T, 400)], columns=names)
    ax = your_cluster.plot_time_out(absences)
    assert title(ax) == "The slowest replica came back after 19 s"
    assert [text.get_text() for text in ax.texts] == ["19 s", "400 ms"]


def test_logs_without_any_change_can_be_drawn(intervals):
    nothing = pd.DataFrame({"from_ms": [], "shrinks": [], "expands": []})
    assert title(your_cluster.plot_changes_over_time(nothing)) == "No ISR changed in these logs"
    for plot in (your_cluster.plot_isr_timeline, your_cluster.plot_members):
        assert title(plot(intervals[:0])) == your_cluster.NO_ISR
    assert your_cluster.choose_partition(intervals[:0]).children[0].value is None


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


@pytest.mark.parametrize(
    ("limit_s", "text"),
    [(10, "producers wait 11 s, then the follower is out for 9 s"),
     (30, "producers wait 20 s; nobody is evicted")],
)  # fmt: skip
def test_a_stall_is_sat_out_or_ends_in_an_eviction(limit_s, text):
    config = choosing_the_lag_limit.PAIR.with_(replica_lag_time_max_ms=1000 * limit_s)
    expected = f"Limit {limit_s} s, stall 20 s: {text}"
    assert title(choosing_the_lag_limit.plot_stall(config)) == expected


def test_limits_are_weighed_in_the_titles():
    means = {"false_evictions": (50, 0.5), "right_evictions": (2, 2), "stalled_minutes": (3, 9),
             "under_replicated_minutes": (7, 1), "at_risk_minutes": (10, 10)}  # fmt: skip
    rows = [
        (limit_s, metric, value, value, value, 5)
        for metric, values in means.items()
        for limit_s, value in zip((10.0, 30.0), values, strict=True)
    ]
    bands = pd.DataFrame(rows, columns=["lag_limit_s", "metric", "mean", "low", "high", "seeds"])
    figures = choosing_the_lag_limit
    assert title(figures.plot_trade_off(bands)) == (
        "From 10 s to 30 s: 50 → 0.5 false evictions an hour, 3 → 9 min of waiting"
    )
    assert title(figures.plot_false_evictions(bands)).startswith("From 30 s on, less than one")
    assert title(figures.plot_time_at_risk(bands)).startswith("The same time at risk")
    assert "at 30 s 0.5 (0.5 to 0.5) false" in figures.lag_limit_finding(bands)


def test_two_runs_are_compared_metric_by_metric():
    rows = [("fell", 4.0, 1.0, -3.0), ("new", 0.0, 2.0, 2.0), ("same", 1.0, 1.0, 0.0),
            ("unknown", None, 1.0, None)]  # fmt: skip
    compared = pd.DataFrame(rows, columns=["metric", "was", "now", "change"])
    expected = "1 metric fell, 1 rose, 1 stayed the same"
    assert title(what_changed.plot_changes(compared)) == expected
    assert what_changed.changes_finding(compared) == (
        "Changed: fell 4 to 1 (-75 %), new 0 to 2 (new). The same: same."
    )
    assert "<td>-3</td><td>-75 %</td>" in what_changed.changes_table(compared).data
    hours = {"stalled_ms": [60_000, 120_000], "under_replicated_ms": 0, "at_risk_ms": 0}
    risk = pd.DataFrame({"run": ["was", "now"], **hours})
    assert what_changed.hidden_finding(risk).endswith("stood still: 1 to 2 min.")
    assert "<td>1.0</td><td>2.0</td>" in what_changed.hidden_table(risk).data
