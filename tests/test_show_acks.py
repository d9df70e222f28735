"""The figures of acks=all say what their numbers say, and the sliders redraw."""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from isrlab import fleet
from isrlab.fleet.kernel.rows import bucket_starts
from isrlab.workbook import what_acks_all_costs


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def seen():
    return fleet.trace(what_acks_all_costs.PAIR, 0, sample_ms=1)


def test_waits_of_a_trace_are_those_that_the_fleet_counts(seen):
    each = what_acks_all_costs.waits(seen)["wait_ms"]
    counted = what_acks_all_costs.waits_here(what_acks_all_costs.PAIR)
    classes = bucket_starts()[np.searchsorted(bucket_starts(), each, side="right") - 1]
    found = pd.Series(classes).value_counts().to_dict()
    assert found == dict(zip(counted["latency_ms"], counted["count"], strict=True))
    way = what_acks_all_costs.PAIR.fetch_latency_ms
    assert 2 * way < each.min() < 2 * way + 5, "a parked fetch: there, written, and back"
    assert 4 * way < each.max() < 4 * way + 10, "just missed: one round more"


def test_a_produce_is_drawn_with_the_messages_it_waits_for(seen):
    ax = what_acks_all_costs.plot_produce(seen, 0)
    assert ax.get_title(loc="left") == "A fetch was parked: it waits 21 ms, 2.1 times the 10 ms way"
    long = what_acks_all_costs.plot_produce(seen, 1)
    assert "just been answered: it waits 44 ms" in long.get_title(loc="left")
    assert len(long.texts) > len(ax.texts), "one round more"


def test_lag_is_rate_times_wait():
    one = what_acks_all_costs.PAIR.with_(
        brokers=3, replication_factor=3, minutes=0.2, batch_every_ms=10
    )
    rows = what_acks_all_costs.high_watermark_lag(
        [one.with_(fetch_latency_ms=ms) for ms in (2, 50)]
    )
    assert rows["lag_records"].tolist() == pytest.approx(rows["rate_x_wait"].tolist(), rel=0.03)
    assert rows["lag_records"][1] > 10 * rows["lag_records"][0]


def test_a_histogram_draws_each_class_as_wide_as_it_is():
    table = pd.DataFrame({"latency_ms": [0, 4, 20, 1_024], "count": [10, 80, 9, 1]})
    ax = what_acks_all_costs.plot_histogram(table, subject="x$: ")
    title = ax.get_title(loc="left")
    assert title == r"x\$: Half within 4 ms, 99 % within 20 ms, 99.9 % within 1.0 s"
    widths = [round(bar.get_width(), 1) for bar in ax.patches]
    starts = bucket_starts()
    assert widths[1:] == [np.diff(starts)[np.searchsorted(starts, s)] for s in (4, 20, 1_024)]
    assert sum(bar.get_height() for bar in ax.patches) == pytest.approx(100)


def test_tails_and_networks_name_their_numbers():
    rows = pd.DataFrame({"run": ["a", "a", "b"], "latency_ms": [4, 9_000, 6], "count": [99, 1, 5]})
    ax = what_acks_all_costs.plot_tails(rows, {"a": "limit 10 s", "b": "limit 5 s"})
    assert ax.get_title(loc="left").endswith("limit 10 s: 9.0 s; limit 5 s: 6 ms")
    table = pd.DataFrame({"fetch_latency_ms": [1, 10], "p50_ms": [3, 21], "p99_ms": [5, 40]})
    title = what_acks_all_costs.plot_by_network(table).get_title(loc="left")
    assert title == "Half of the produces wait 2.1 to 3.0 times the way or less"


def test_the_summary_says_what_each_promise_costs():
    base = fleet.FleetConfig(version="4.1", partitions=6, minutes=30)
    configs = [base.with_(name="one", acks_all_share=0.0)]
    configs += [base.with_(name=f"all {n}", min_insync_replicas=n) for n in (1, 2, 3)]
    waits = {"count": 9, "p50_ms": 5, "p99_ms": 80, "p999_ms": 9_000}
    latency = pd.DataFrame([{"run": f"all {n}", **waits} for n in (1, 2, 3)])
    failed = [("all 2", "NOT_ENOUGH_REPLICAS", 4), ("all 3", "REQUEST_TIMED_OUT", 7)]
    refused = pd.DataFrame(failed, columns=["run", "error", "produces"])
    alone = pd.DataFrame({"run": [c.run for c in configs], "under_min_isr_ms": 90_000})
    table = what_acks_all_costs.summary(latency, refused, alone, configs)
    assert table["one copy accepts (min/h)"].tolist() == [3.0, 3.0, 0.0, 0.0]
    assert table["refused/h"].tolist() == [0.0, 0.0, 8.0, 0.0]
    assert table["timed out/h"].tolist() == [0.0, 0.0, 0.0, 14.0]
    assert table["p999_ms"].tolist() == [0.0, 9_000.0, 9_000.0, 9_000.0]
    assert (
        "and 1 in 1,000 9.0 s; min ISR 1 accepts one copy for 3.0"
        in what_acks_all_costs.finding(table)
    )
    assert what_acks_all_costs.finding(table).endswith(
        "min ISR 2 refuses 8 tries instead, min ISR 3 0."
    )


def test_settings_are_put_before_a_table_in_the_order_of_the_fleets():
    configs = fleet.sweep(fleet.FleetConfig(version="4.1"), "fetch_latency_ms", [9, 1])
    table = pd.DataFrame({"run": [c.run for c in reversed(configs)], "p50_ms": [3, 20]})
    found = what_acks_all_costs.with_settings(table, configs, "fetch_latency_ms")
    assert found.values.tolist() == [[9, 20], [1, 3]]


def test_a_slider_redraws():
    box = what_acks_all_costs.wait_controls(what_acks_all_costs.SMALL.with_(minutes=1))
    way, stall, picture = box.children
    before = bytes(picture.value)
    way.value = 50
    moved = bytes(picture.value)
    assert before.startswith(b"\x89PNG") and moved != before
    stall.value = 0
    assert bytes(picture.value) != moved


def test_longer_stalls_make_the_tail_and_a_longer_way_the_median():
    calm = what_acks_all_costs.waits_here(what_acks_all_costs.SMALL.with_(stall_s=0))
    slow = what_acks_all_costs.waits_here(what_acks_all_costs.SMALL.with_(stall_s=30))
    far = what_acks_all_costs.waits_here(
        what_acks_all_costs.SMALL.with_(stall_s=0, fetch_latency_ms=50)
    )
    assert (
        what_acks_all_costs.quantile(slow, 0.99) > 1_000 > what_acks_all_costs.quantile(calm, 1.0)
    )
    assert (
        what_acks_all_costs.quantile(slow, 0.5)
        == what_acks_all_costs.quantile(calm, 0.5)
        < what_acks_all_costs.quantile(far, 0.5)
    )
