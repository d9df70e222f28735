"""The figures of eras and of fetcher threads say what their numbers say, and the sliders redraw."""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from isrlab import fleet
from isrlab.workbook import era_timeline, same_load_every_era, shared_fetchers


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


# Eras


def test_the_reason_is_what_the_leader_knew():
    assert same_load_every_era.reason(5_000, 900, 10_000, 4_000, np.inf) == "messages"
    assert same_load_every_era.reason(5_000, 900, 10_000, np.nan, np.inf) == "clock"
    assert same_load_every_era.reason(0, 12_000, 10_000, None, np.inf) == "idle"
    assert same_load_every_era.reason(70, 12_000, 10_000, None, 20_000) == "behind"
    assert same_load_every_era.reason(70, 12_000, 10_000, None, 7_000) == "early"


def test_rules_that_change_are_named():
    first, second, *rest = fleet.versions(fleet.FleetConfig(), ["0.8.2", "0.9.0", "2.4", "2.5"])
    assert same_load_every_era.rules_changed(first, second) == (
        "clock: at the log end (KAFKA-1546), no limit in records (KAFKA-1546)"
    )
    assert same_load_every_era.rules_changed(*rest) == "limit 30 s, checks every 15 s"
    assert same_load_every_era.rules_changed(first, first) == ""


@pytest.fixture
def steps():
    """Three generations, two steps: one eviction gone, one new that was let in too early."""
    configs = fleet.versions(fleet.FleetConfig(), ["0.8.2", "0.9.0", "0.10.2"])
    place = {"topic": "t", "partition": 0, "replica": 2}
    rows = [
        ("0.8.2", "0.9.0", "leaves", "gone", 1_000, None, None),
        ("0.8.2", "0.9.0", "joins", "moved", 3_000, 3_500, 500),
        ("0.8.2", "0.9.0", "leaves", "new", None, 8_000, None),
        ("0.9.0", "0.10.2", "leaves", "moved", 8_000, 8_010, 10),
    ]
    columns = ["was", "now", "change", "fate", "was_ms", "now_ms", "moved_ms"]
    diffs = pd.DataFrame(rows, columns=columns).assign(**place)
    knew = {"run": ["0.8.2", "0.9.0"], "partition": 0, "ts_ms": [1_000, 7_990]}
    ages = {"lag_records": [5_000, 70], "since_caught_up_ms": [900, 12_000], "lag_time_ms": 10_000}
    evictions = pd.DataFrame({**knew, **ages, "lag_messages": [4_000.0, np.nan]})
    return same_load_every_era.by_step(diffs, evictions, configs)


def test_a_ladder_counts_what_each_step_ends_and_brings(steps):
    first, second = steps.to_dict("records")
    assert (first["gone messages"], first["new early"], first["same"]) == (1, 1, 0)
    assert (first["gone"], first["new"], second["gone"], second["new"]) == (1, 1, 0, 0)
    assert (second["moved"], second["moved_s"]) == (1, 0.01)
    title = same_load_every_era.plot_ladder(steps).get_title(loc="left")
    assert title == "1 of 2 steps change who leaves the ISR; 0.9.0 ends most evictions (1)"
    said = same_load_every_era.finding(steps, steps)
    assert "0.9.0 ends 1 (1 messages) and brings 1 (1 early); 1 of 2 steps change nobody" in said


def test_a_partition_is_drawn_once_for_generations_in_which_the_same_happens():
    ax = era_timeline.plot_eras(era_timeline.SMALL, 0, ["0.8.2", "0.9.0", "0.10.2", "0.11"])
    labels = [text.get_text().split("   ")[0] for text in ax.get_yticklabels()]
    assert labels == ["bursts, stalls", "0.8.2", "0.9.0", "0.10.2 to 0.11"]
    assert "evictions in 0.9.0" in ax.get_title(loc="left")
    with pytest.raises(ValueError, match="partition=3 out of range; valid: 0 to 2"):
        era_timeline.plot_eras(era_timeline.SMALL, 3)


def test_absences_agree_with_the_events():
    config = era_timeline.SMALL.with_(version="2.2")
    events = fleet.simulate_local(config).to_pylist()
    left = [e for e in events if e["kind"] == "isr_commit" and len(e["isr"]) < len(e["isr_before"])]
    found = [away for leader in (1, 2, 3) for away in era_timeline.absences(config, leader)]
    assert len(found) == sum(len(e["isr_before"]) - len(e["isr"]) for e in left) > 0
    assert all(away.from_ms < away.to_ms <= config.duration_ms for away in found)


def test_a_slider_redraws_the_eras():
    controls = era_timeline.era_controls(era_timeline.SMALL.with_(minutes=3))
    height, stall, picture = controls.children
    before = bytes(picture.value)
    assert before.startswith(b"\x89PNG")
    assert not height.continuous_update
    stall.value = 60
    assert bytes(picture.value) != before


# Fetchers


def test_a_thread_carries_the_partitions_that_hash_to_it():
    loads = shared_fetchers.thread_loads(
        shared_fetchers.SMALL
    )  # 16 partitions of one leader, 8 for each thread
    assert loads["produced_bytes_per_s"].tolist() == [11_070_000, 80_000] * 2
    assert loads["share"].round(3).tolist() == [1.107, 0.008] * 2
    assert (
        shared_fetchers.longest_loop_s(shared_fetchers.SMALL)
        == 200 * shared_fetchers.MB / 10_000_000
    )


def test_threads_that_share_a_factor_with_the_brokers_are_wasted():
    sharing = {
        n: shared_fetchers.neighbours(shared_fetchers.SMALL.with_(num_replica_fetchers=n))
        for n in (1, 2, 3, 6)
    }
    assert [len(near) for near, _ in sharing.values()] == [15, 7, 15, 7]
    assert sharing[1] == sharing[3]


@pytest.mark.parametrize(("size_mb", "harmed"), [(1, 0), (200, 7)])
def test_only_large_responses_harm_neighbours_and_only_on_the_same_thread(size_mb, harmed):
    config = shared_fetchers.sized(shared_fetchers.SMALL, size_mb)
    title = shared_fetchers.plot_threads(config).get_title(loc="left")
    assert title.startswith(f"{harmed} of 15 neighbours evicted")
    sharing, _ = shared_fetchers.neighbours(config)
    rows = fleet.simulate_local(config).to_pylist()
    left = {row["partition"] for row in rows if row["kind"] == "isr_shrink"}
    assert left == {0, *(sharing if harmed else [])}


def test_grid_costs_and_symptoms_count_neighbours_apart():
    runs = [shared_fetchers.SMALL.with_(name=f"n{n}", num_replica_fetchers=n) for n in (1, 2)]
    left = {"run": ["n1", "n1", "n2"], "partition": [0, 3, 0]}
    knew = {"lag_records": [900, 4, 800], "since_fetch_ms": 21_000, "since_caught_up_ms": 42_000}
    evictions = pd.DataFrame({**left, **knew})
    out = pd.DataFrame({**left, "under_replicated_ms": [120_000, 60_000, 30_000]})
    grid = shared_fetchers.by_partition(evictions, runs)
    assert grid.groupby("num_replica_fetchers")["evictions"].sum().tolist() == [2, 1]
    title = shared_fetchers.plot_grid(grid).get_title(loc="left")
    assert title == "Neighbours evicted, by number of threads: 1, 0"
    costs = shared_fetchers.costs(evictions, out, runs)  # of five minutes, for an hour
    assert costs["neighbour_evictions"].tolist() == [12, 0]
    assert costs["hot_minutes"].tolist() == [24, 6]
    title = shared_fetchers.plot_costs({"own": costs}).get_title(loc="left")
    assert title == "Fewest to most threads: own 12 → 0"
    seen = shared_fetchers.symptoms(evictions, runs)
    assert seen.loc[("n1", "other"), "lag_records"] == 4
    assert "1 to 2 threads take neighbours' evictions from 12 to 0" in shared_fetchers.finding(
        {"own": costs}
    )


def test_a_slider_redraws_the_threads():
    threads, _, size, picture = shared_fetchers.fetcher_controls().children
    before = bytes(picture.value)
    threads.value = 3
    assert bytes(picture.value) != before
    assert not size.continuous_update
