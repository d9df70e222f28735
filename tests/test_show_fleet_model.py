"""The model's page: no setting is missing, checks change what they say, both models agree."""

from __future__ import annotations

from dataclasses import fields

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from isrlab import fleet
from isrlab.fleet import load, recorded
from isrlab.workbook import the_fleet_model

SMALL = fleet.FleetConfig(
    version="4.1", partitions=6, minutes=10, burst_every_s=120, stall_every_s=120,
    replica_lag_time_max_ms=10_000,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def test_every_setting_has_a_meaning():
    table = the_fleet_model.settings().set_index("setting")
    assert list(table.index) == [item.name for item in fields(fleet.FleetConfig)]
    assert table["what it does"].str.len().min() > 5
    assert table.loc["replica_fetch_wait_max_ms"].tolist()[:3] == ["500", "ms", "1 to 60,000"]
    assert table.loc["replica_lag_time_max_ms", "default"] == "by version"
    assert table.loc["load", "valid"] == "steady, bursts, heavy, together, trace"


def test_the_budget_of_a_round_is_what_the_kernel_takes():
    """One batch into a calm pair: it waits for one round without its first way."""
    config = SMALL.with_(
        partitions=1, brokers=2, replication_factor=2, load="steady", stall_s=0, minutes=0.2,
        records_per_s=2_000, batch_every_ms=1_000, fetch_latency_ms=7,
    )  # fmt: skip
    seen = fleet.trace(config, 0, sample_ms=1)
    at = int(np.flatnonzero(np.diff(seen.log_end_offset, prepend=0))[0])
    records = int(seen.log_end_offset[at])
    waited = int(np.argmax(seen.high_watermark >= records)) - at
    budget = the_fleet_model.fetch_budget(config, records).set_index("what")
    write_ms = budget.loc["follower receives and writes", "most_ms"]
    rate = load.follower_bytes_per_s(config, 2)
    assert waited == 14 + -(-records * 500 * 1000 // rate)
    assert waited - 14 <= write_ms
    title = the_fleet_model.plot_budget(budget.reset_index()).get_title(loc="left")
    assert title.startswith("A round of a fetcher: ")


def test_a_cell_is_drawn_with_its_threads():
    config = SMALL.with_(num_replica_fetchers=2, partitions=30)
    ax = the_fleet_model.plot_cell(config)
    title = ax.get_title(loc="left")
    assert title.startswith("One of 3 cells: 4 threads read from broker 1, which checks the ISR")
    texts = [text.get_text() for text in ax.texts]
    assert texts.count("a thread fetches 5 partitions: 2 ms") == 4


@pytest.mark.parametrize("version", ["0.8.2", "1.1", "2.5", "3.3", "4.1"])
def test_engine_and_fleet_tell_one_scene_alike(version):
    """The fleet's followers write for 1 ms, which may come twice before they are in the ISR."""
    stalls = {"stall_s": 40, "stall_every_s": 60}
    scene = SMALL.with_(version=version, fetch_latency_ms=5, minutes=3, **stalls)
    table = the_fleet_model.compared(scene).set_index("answer")
    late = table["fleet"] - table["engine"]
    leaves, joins = late.filter(like="leaves"), late.filter(like="joins")
    assert len(leaves) >= len(joins) >= 3
    assert (leaves == 0).all()
    assert joins.between(0, 2).all()
    assert table.loc["produces acknowledged", "engine"] > 100
    assert late["produces acknowledged"] == late["100% wait at most: class of ms"] == 0


def test_a_finer_clock_is_the_same_fleet():
    calm = SMALL.with_(load="steady")
    events = [fleet.simulate_local(c).to_pandas() for c in (calm, the_fleet_model.finer(calm))]
    changes = [table[table["kind"].str.startswith("isr_")] for table in events]
    assert len(changes[0]) == len(changes[1]) > 10
    apart = changes[1]["ts_ms"].to_numpy() / 10 - changes[0]["ts_ms"].to_numpy()
    assert np.abs(apart).max() < 50


def test_smaller_records_are_the_same_bytes():
    one, other = SMALL, the_fleet_model.smaller(SMALL.with_(version="0.8.2"))
    assert other.records_per_s * other.record_bytes == one.records_per_s * one.record_bytes
    assert other.burst_records * other.record_bytes == one.burst_records * one.record_bytes
    assert other.lag_messages == 40_000


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_written_trace_is_the_drawn_load(tmp_path, ending):
    path = fleet.write_trace(SMALL, tmp_path / f"mine.{ending}")
    drawn = load.arrivals(SMALL, np.arange(SMALL.partitions))
    config = SMALL.with_(load="trace", trace_file=path, minutes=SMALL.minutes)
    shares = recorded.recording(config).by_leader
    times = np.sort(np.concatenate([share.arrivals.ts_ms for share in shares.values()]))
    assert times.tolist() == (drawn.ts_ms - drawn.ts_ms[0]).tolist()
    records = sum(int(share.arrivals.records.sum()) for share in shares.values())
    assert records == drawn.records.sum()
    assert all((share.record_bytes == SMALL.record_bytes).all() for share in shares.values())


def test_a_trace_that_cannot_be_written_says_why(tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.csv or \.parquet"):
        fleet.write_trace(SMALL, tmp_path / "x.txt")
    with pytest.raises(ValueError, match="no load"):
        fleet.write_trace(SMALL.with_(load="steady", records_per_s=0))


@pytest.fixture
def found():
    """Answers of a base, its checks and two seeds: only fencing and one latency matter."""
    names = [
        the_fleet_model.BASE,
        *(check.name for check in the_fleet_model.CHECKS),
        "seed 2",
        "seed 3",
    ]
    table = pd.DataFrame(100.0, index=names, columns=list(the_fleet_model.ANSWERS))
    table.loc["seed 2"], table.loc["seed 3"] = 80.0, 110.0
    table.loc["stalled brokers fenced", "under-replicated"] = 170.0
    table.loc["clock ten times finer", ["p50", "old shrinks"]] = [50.0, 101.0]
    table.loc["messages 1 ms, not 2", "p99"] = 70.0  # not more than a class below the seeds
    return table


def test_what_is_beyond_the_seeds_is_told(found):
    percent = the_fleet_model.sensitivity(found)
    table = the_fleet_model.beyond(percent).set_index("answer")
    assert table.loc["new shrinks"].tolist() == ["-20 to +10 %", "none"]
    assert table.loc["under-replicated", "beyond them"] == "stalled brokers fenced +70 %"
    assert table.loc["p50", "beyond them"] == "clock ten times finer -50 %"
    assert table.loc["p99", "beyond them"] == "none"
    said = the_fleet_model.finding(percent)
    assert "by 1.0 % at the most, another seed by up to 20 %" in said
    assert "median wait by -50 %" in said and "under-replicated by +70 %" in said
    ax = the_fleet_model.plot_sensitivity(percent, {"old": "0.8.2", "new": "4.1"})
    assert ax.get_title(loc="left").startswith("A finer clock changes shrinks by 1.0 %")
    assert len(the_fleet_model.of_seeds(found)) == 3


def test_answers_are_in_units_of_the_base():
    start = the_fleet_model.bases(SMALL, "0.8.2")
    runs = [c.run for c in the_fleet_model.fleets(start, seeds=2)]
    assert len(runs) == len(set(runs)) == 3 * (2 + len(the_fleet_model.CHECKS))
    alarms = pd.DataFrame({"run": runs, "minutes": 60.0, "shrinks_per_hour": 7.0})
    absences = pd.DataFrame({"run": runs, "under_replicated_ms": 180_000})
    latency = pd.DataFrame({"run": runs, "p50_ms": 50, "p99_ms": 80})
    found = the_fleet_model.answers(alarms, absences, latency)
    assert found.loc["base"].tolist() == [7.0, 7.0, 3.0, 50.0, 80.0, 50.0]
    assert found.loc["clock ten times finer"].tolist() == [70.0, 70.0, 3.0, 5.0, 8.0, 5.0]


def test_bursts_that_come_together_coincide():
    alone = the_fleet_model.coincidences(SMALL.with_(partitions=1))
    assert alone["leaders_at_once"].tolist() == [0, 1]
    assert alone["percent_of_time"].sum() == pytest.approx(100)
    hit = SMALL.with_(partitions=6, load="together", burst_share=1.0)
    table = the_fleet_model.coincidences(hit)
    assert table["leaders_at_once"].tolist() == [0, 1, 2, 3]
    assert table["percent_of_time"].tolist()[1:3] == [0, 0]
    assert table["percent_of_time"][3] > 0


def test_retries_lengthen_the_mean_by_what_was_held():
    latency = pd.DataFrame({"run": ["a", "b"], "count": [100, 50], "p50_ms": 5})
    rows = [("a", "NOT_ENOUGH_REPLICAS", 12), ("a", "DELIVERY_TIMEOUT", 2)]
    refused = pd.DataFrame(rows, columns=["run", "error", "produces"])
    table = the_fleet_model.retry_bound(latency, refused, retry_ms=1_000)
    assert table["held"].tolist() == [10.0, 0.0]
    assert table["mean_longer_by_ms"].tolist() == [100.0, 0.0]


def test_loads_are_drawn_by_time():
    swing = SMALL.with_(minutes=1440, load="steady", batch_every_ms=60_000, daily_swing=0.9)
    ax = the_fleet_model.plot_loads([swing.with_(name="swing")])
    (line,) = ax.lines
    assert 12 < line.get_xdata()[np.argmax(line.get_ydata())] < 18
    assert "swing 1." in ax.get_title(loc="left") or "swing 2." in ax.get_title(loc="left")
