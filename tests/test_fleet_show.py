"""The figures of fleets say what their numbers say, and the sliders redraw."""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from isrlab import fleet
from isrlab.workbook import isr_churn as figures

SMALL = figures.SMALL


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def seen():
    return fleet.trace(SMALL, fleet.most_evicting(SMALL))


def compared(**columns):
    rows = {
        "run": ["0.8.2", "0.9.0"],
        "version": ["0.8.2", "0.9.0"],
        "partitions": 30,
        "minutes": 60.0,
        "burst_records": 30_000,
        "burst_s": 1.0,
        "shrinks": [12, 2],
        "false_alarms": [10, 0],
        "shrinks_per_hour": [12.0, 2.0],
        "false_alarms_per_hour": [10.0, 0.0],
        "under_replicated_minutes": [3.0, 1.0],
    }
    return pd.DataFrame({**rows, **columns})


def test_a_lag_figure_names_the_check_and_who_leaves(seen):
    moment = int(seen.evictions_ms()[0])
    ax = figures.plot_lag(seen.around(moment))
    assert ax.get_title(loc="left").startswith(f"0.8.2: the check at {moment / 1000:.1f} s evicts")
    assert "(records)" in ax.get_ylabel()
    assert np.abs(seen.ticks_ms - moment).min() < 20  # looked at every 20 ms


def test_a_lag_figure_without_eviction_says_so(seen):
    moment = int(seen.spared_ms(4_000)[0])
    title = figures.plot_lag(seen.around(moment)).get_title(loc="left")
    assert title.endswith("and no check evicts anybody")


def test_an_eviction_of_all_followers_commits_what_only_the_leader_has(seen):
    part = seen.around(int(seen.evictions_ms()[0]))
    assert part.isr_size.min() == 1
    alone = np.argmax(part.isr_size == 1)
    best = max(int(end[alone]) for end in part.followers.values())
    said = f"{int(part.high_watermark[alone]) - best:,} records commit that only the leader has"
    assert figures.plot_offsets(part).get_title(loc="left") == f"0.8.2: {said}"


def test_versions_are_compared_in_the_title():
    ax = figures.plot_versions(compared())
    assert ax.get_title(loc="left") == (
        "The same load: 10 false alarms an hour in 0.8.2, 0 in 0.9.0"
    )
    same = compared(false_alarms_per_hour=[4.0, 4.0])
    title = figures.plot_versions(same).get_title(loc="left")
    assert title == "4 false alarms an hour in every version"


def test_a_sweep_says_where_false_alarms_begin():
    table = pd.concat([compared(burst_records=1_000, false_alarms=[0, 0]), compared()])
    title = figures.plot_sweep(table).get_title(loc="left")
    assert title == "False alarms: 0.8.2 from 30,000; never in 0.9.0"


def test_evictions_and_under_replication_are_drawn():
    rows = {"run": ["0.8.2"] * 2, "since_caught_up_ms": [900, 12_000], "lag_records": [5_000, 0]}
    limits = {"lag_time_ms": 10_000, "lag_messages": [4_000.0, None]}
    table = pd.DataFrame({**rows, **limits, "is_false_alarm": [True, False]})
    title = figures.plot_evictions(table).get_title(loc="left")
    assert title.startswith("0.8.2: 1 of 2 evictions hit a follower")
    assert figures.plot_evictions(table[:0]).get_title(loc="left") == "Nobody is evicted"
    title = figures.plot_under_replicated(compared()).get_title(loc="left")
    assert title == "Most time under-replicated: 0.8.2, 3 partition-minutes"


def test_the_finding_is_one_sentence_of_numbers():
    assert figures.finding(compared()) == (
        "30 partitions, 60 minutes, bursts of 30,000 records in 1 s, the same for all: "
        "0.8.2: 12 ISR shrinks, 10 false alarms; 0.9.0: 2 ISR shrinks, 0 false alarms."
    )


def test_a_slider_redraws_when_it_is_let_go():
    controls = figures.burst_controls(SMALL)
    height, *_, picture = controls.children
    before = bytes(picture.value)
    assert before.startswith(b"\x89PNG")
    assert not height.continuous_update
    height.value = 5_000
    assert bytes(picture.value) != before


def test_the_picture_of_the_sliders_counts_as_the_questions_do():
    alarms, evictions = figures.false_alarms(SMALL)
    assert alarms == evictions > 0  # no stalls: bursts alone
    assert figures.false_alarms(SMALL.with_(version="0.10.2")) == (0, 0)
