"""Fleets: settings, load, events; the rows do not depend on how the work is divided."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import isrlab
from cases.tables import rows_of
from isrlab import fleet
from isrlab.events.schema import SCHEMA
from isrlab.fleet import load, truth
from isrlab.fleet.cell import cell, run_cell, run_cell_in_windows
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.kernel import state
from isrlab.fleet.kernel.compiled import SOURCES, one_at_a_time
from isrlab.fleet.layout import TOPIC, assignment, fetcher_id
from isrlab.fleet.simulate import spread
from isrlab.spark import package_archive

IMPORT = re.compile(r"^from isrlab\.?(\S*) import (\([^)]*\)|.*)$", re.MULTILINE)
SMALL = FleetConfig(partitions=12, minutes=10, burst_every_s=60, stall_every_s=300, seed=7)
BUSY = FleetConfig(partitions=60, minutes=20, burst_every_s=40, stall_every_s=200, seed=3)


def kinds(config):
    """How many events of each kind there are, without those of latencies."""
    counts = Counter(fleet.simulate_local(config)["kind"].to_pylist())
    del counts["latency"]
    return counts


# Settings


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("partitions", 0, "partitions=0 is out of range; valid: 1 to 1,000,000 partitions"),
        ("minutes", -1, "minutes=-1 is out of range; valid: 0.01 to 20,160.0"),
        ("brokers", 3.5, "brokers=3.5 is not a whole number; valid: 2 to 10,000 brokers"),
        ("minutes", float("nan"), "minutes=nan is out of range"),
        ("seed", 1.5e300, "seed=1.5e+300 is out of range"),
        ("replica_lag_time_max_ms", 0, "valid: 1 to 86,400,000 ms"),
        ("burst_records", "many", "burst_records='many' is out of range"),
        ("load", "daily", "unknown load 'daily'; known: steady, bursts, heavy, together"),
        ("version", "7.0", "unknown Kafka version '7.0'"),
        ("replication_factor", 4, "replication_factor=4 needs as many brokers"),
    ],
)
def test_a_wrong_setting_is_named_with_its_range(setting, value, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        FleetConfig(**{setting: value})


def test_whole_numbers_become_ints():
    brokers = FleetConfig(brokers=6.0).brokers
    assert (brokers, type(brokers)) == (6, int)


def test_settings_are_read_from_text():
    text = "num_replica_fetchers=2 stall_s=1.5 load=together replica_lag_time_max_ms=None"
    numbers = {"num_replica_fetchers": 2, "stall_s": 1.5}
    settings = numbers | {"load": "together", "replica_lag_time_max_ms": None}
    assert fleet.settings(text) == settings
    assert FleetConfig().with_(**settings).num_replica_fetchers == 2
    assert fleet.settings("") == {}


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: fleet.settings("brokers"), "'brokers' is not a setting; valid: NAME=VALUE"),
        (lambda: SMALL.with_(partition=1), "unknown setting 'partition'; known: version, name"),
        (lambda: fleet.simulate_local([SMALL, SMALL.with_(seed=8)]), "two runs are named '0.8.2'"),
        (lambda: fleet.trace(BUSY, 60), "partition=60 out of range; valid: 0 to 59"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(ask, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        ask()


def test_limits_default_to_those_of_the_version():
    old, new = FleetConfig(version="0.8.2"), FleetConfig(version="2.5")
    assert (old.lag_time_ms, old.lag_messages, old.isr_check_period_ms) == (10_000, 4_000, 10_000)
    assert (new.lag_time_ms, new.lag_messages, new.isr_check_period_ms) == (30_000, None, 15_000)
    assert FleetConfig(version="2.5", replica_lag_max_messages=7).lag_messages is None


def test_settings_survive_json():
    config = SMALL.with_(replica_lag_time_max_ms=5_000, load="together")
    assert FleetConfig.from_json(config.to_json()) == config


def test_a_sweep_names_its_runs():
    both = fleet.versions(SMALL, ["0.8.2", "0.9.0"])
    names = [config.run for config in fleet.sweep(both, "burst_s", [1.0, 2.0])]
    assert names == [f"{version} burst_s={s}" for version in ("0.8.2", "0.9.0") for s in (1.0, 2.0)]


# Assignment of replicas


def test_replicas_are_on_different_brokers_and_spread_evenly():
    replicas = assignment(fleet.FleetConfig(partitions=120, brokers=5))
    assert all(len(set(row)) == 3 for row in replicas.tolist())
    assert set(Counter(replicas.ravel().tolist()).values()) == {72}


def test_a_fetcher_is_found_by_the_hash_of_topic_and_partition():
    hash_code = functools.reduce(lambda value, char: 31 * value + ord(char), TOPIC, 0)
    assert 31 * hash_code < 2**31  # so Java's numbers of 32 bits hold it
    assert [fetcher_id(p, 3) for p in range(4)] == [(31 * hash_code + p) % 3 for p in range(4)]


def test_each_follower_has_exactly_one_thread_of_its_own_broker():
    one = cell(FleetConfig(partitions=40, brokers=4, num_replica_fetchers=3), 2)
    brokers = np.array(one.thread_brokers)
    assert (brokers[one.thread_of] == one.followers).all()
    assert one.leader not in brokers


# Load


def test_versions_see_the_same_load():
    loads = [load.arrivals(SMALL.with_(version=v), np.arange(12)) for v in ("0.8.2", "3.7")]
    assert all((a == b).all() for a, b in zip(*loads, strict=True))


@pytest.mark.parametrize("kind", sorted(fleet.LOADS))
@pytest.mark.parametrize("batches", [200, 3_333])
@pytest.mark.parametrize("more", [{}, {"daily_swing": 0.7, "hot_partitions": 3}], ids=["", "hot"])
def test_load_comes_the_same_in_windows_and_beside_other_partitions(kind, batches, more):
    config = SMALL.with_(load=kind, minutes=8 + batches / 100, burst_s=20, **more)
    pieces = list(load.windows(config, np.arange(12), batches))
    assert len(pieces) > 5
    assert pieces[-1][0] == config.duration_ms
    starts_ms = [0, *(end_ms for end_ms, _ in pieces)]
    for start_ms, (end_ms, piece) in zip(starts_ms, pieces, strict=False):
        assert ((piece.ts_ms >= start_ms) & (piece.ts_ms < end_ms)).all()
        assert (np.diff(piece.ts_ms) >= 0).all()
    whole = load.arrivals(config, np.arange(12))
    assert whole.records.min() >= 1
    for name in whole._fields:
        joined = np.concatenate([getattr(piece, name) for _, piece in pieces])
        assert (joined == getattr(whole, name)).all()
    alone, mine = load.arrivals(config, np.array([2])), whole.partition == 2
    assert (alone.ts_ms == whole.ts_ms[mine]).all()
    assert (alone.records == whole.records[mine]).all()


def test_the_windows_of_a_run_do_not_change_its_rows(monkeypatch):
    whole = run_cell(BUSY, 2)
    monkeypatch.setattr(load, "windows", functools.partial(load.windows, batches=500))
    monkeypatch.setattr(state, "FREE_EVENTS", 0)
    pieces = list(run_cell_in_windows(BUSY, 2))
    assert len(pieces) > 20
    assert max(len(piece.events) for piece in pieces) > 3
    assert (np.concatenate([piece.events for piece in pieces]) == whole.events).all()
    assert (pieces[-1].latencies == whole.latencies).all()


def test_a_burst_holds_its_records_and_lasts_its_seconds():
    config = SMALL.with_(records_per_s=0, burst_records=1_234, burst_s=2.0, burst_every_s=1e6)
    config = config.with_(minutes=14 * 1440.0, seed=11)
    starts = load.burst_starts_ms(config, 0).astype(int)
    ts_ms, _, records = load.arrivals(config, np.arange(1))
    assert records.sum() == 1_234 * len(starts) > 0
    assert starts[0] <= ts_ms[0] < starts[0] + 10
    assert ts_ms[ts_ms < starts[0] + 3_000].max() <= starts[0] + 2_000


def test_heavy_bursts_differ_and_keep_the_mean():
    config = SMALL.with_(load="heavy", records_per_s=0, burst_s=0, burst_every_s=10, minutes=5_000)
    records = load.arrivals(config, np.arange(1)).records
    assert 0.5 < records.mean() / config.burst_records < 1.5
    assert np.median(records) < 0.7 * config.burst_records < records.max() / 5


def test_together_means_at_the_same_moment():
    config = SMALL.with_(load="together", burst_share=1.0)
    starts = [load.burst_starts_ms(config, p).tolist() for p in range(3)]
    assert starts[0] == starts[1] == starts[2] != []


def test_stalls_do_not_overlap_and_belong_to_the_broker():
    starts, ends = load.stalls(BUSY.with_(minutes=600), 2)
    assert len(starts) > 50
    assert (starts[1:] > ends[:-1]).all()
    assert starts.tolist() != load.stalls(BUSY.with_(minutes=600), 3)[0].tolist()


# Events


def test_events_have_the_schema_and_come_as_request_and_commit():
    table = fleet.simulate_local(SMALL)
    assert table.schema.equals(SCHEMA)
    counts = Counter(table["kind"].to_pylist())
    assert counts["isr_shrink"] > 0
    assert counts["isr_commit"] == counts["isr_shrink"] + counts["isr_expand"]


def test_each_change_starts_from_the_isr_before():
    isr = {}
    for row in fleet.simulate_local(BUSY).to_pylist():
        if row["kind"] == "isr_commit":
            before = isr.get(row["partition"], row["isr_before"])
            assert row["isr_before"] == before
            assert row["isr"][0] == row["broker"]  # the leader never leaves its own ISR
            isr[row["partition"]] = row["isr"]
            assert row["high_watermark"] <= row["log_end_offset"]


@pytest.mark.parametrize(
    ("settings", "evicts"),
    [
        ({"load": "steady", "stall_s": 0}, {"0.8.2": False, "0.10.2": False, "3.7": False}),
        ({"stall_s": 0, "burst_every_s": 300}, {"0.8.2": True, "0.9.0": False}),  # bursts
        ({"load": "steady", "stall_s": 25}, {"0.8.2": True, "0.10.2": True, "2.5": False}),
    ],
)  # the lag limit of 2.5 is 30 s
def test_bursts_evict_by_the_message_rule_and_long_stalls_by_both(settings, evicts):
    for version, is_eventful in evicts.items():
        counts = kinds(BUSY.with_(version=version, **settings))
        assert counts["isr_shrink"] > 5 if is_eventful else not counts


def test_a_commit_takes_its_time_where_the_controller_decides():
    config = BUSY.with_(version="3.7", replica_lag_time_max_ms=5_000, isr_commit_ms=40)
    rows = fleet.simulate_local(config).to_pylist()
    asked = {(r["partition"], r["ts_ms"]) for r in rows if r["kind"] == "isr_shrink"}
    done = {(r["partition"], r["ts_ms"]) for r in rows if r["kind"] == "isr_commit"}
    assert asked
    latest_ms = config.duration_ms - 80  # one request may have to wait for the one before
    for partition, ts_ms in asked:
        answers = {(partition, ts_ms + wait_ms) for wait_ms in range(40, 81)}
        assert answers & done or ts_ms > latest_ms


def test_a_trace_shows_the_burst_the_lag_and_the_eviction():
    seen = fleet.trace(BUSY.with_(stall_s=0), partition=4, sample_ms=50)
    ends = np.array(list(seen.followers.values()))
    assert ((seen.log_end_offset - ends).max(axis=1) > 4_000).all()
    assert (ends <= seen.log_end_offset).all()
    assert (seen.high_watermark <= seen.log_end_offset).all()
    assert min(isr.min() for isr in seen.in_isr.values()) == 0
    assert np.diff(seen.ticks_ms).tolist() == [10_000] * (len(seen.ticks_ms) - 1)


# The division of the work


def test_same_seed_same_rows_for_one_task_or_many(spark):
    configs = fleet.versions(BUSY, ["0.8.2", "3.7"])
    one = rows_of(fleet.simulate(spark, configs, tasks=1))
    assert one == rows_of(fleet.simulate(spark, configs, tasks=64))
    assert one == rows_of(fleet.simulate(spark, configs))
    local = spark.createDataFrame(fleet.simulate_local(configs))
    assert one == rows_of(local.to(fleet.simulate(spark, configs).schema))
    assert one != rows_of(fleet.simulate(spark, [c.with_(seed=4) for c in configs]))


def test_questions_find_false_alarms(spark):
    configs = fleet.versions(BUSY.with_(burst_every_s=200), ["0.8.2", "0.9.0"])
    events = spark.createDataFrame(fleet.simulate_local(configs)).cache()
    runs = fleet.runs(spark, configs)
    evictions = truth.evictions(events, runs)
    old, new = truth.alarms(runs, evictions).collect()
    assert old.false_alarms > 10 * max(1, new.false_alarms)
    for row, config in zip((old, new), configs, strict=True):
        assert row.run == config.run
        assert row.shrinks == kinds(config)["isr_shrink"]
        assert row.shrinks_per_hour == 3 * row.shrinks


def test_the_longest_cells_are_in_the_first_tasks(spark):
    brokers = "1,2,3 1,2,3 1,2,3 1,2,3 2,3,1 3,1,2 3,1,2"
    config = FleetConfig(partitions=7, minutes=1, assigned=brokers)
    plan = spread(spark, config).withColumn("at", F.spark_partition_id())
    assert [row.leader for row in plan.orderBy("at").collect()] == [1, 3, 2]
    shared = spread(spark, config, tasks=2).withColumn("at", F.spark_partition_id())
    assert sorted((row.at, row.leader) for row in shared.collect()) == [(0, 1), (0, 2), (1, 3)]


# The place of the package


def test_the_cache_is_named_after_all_that_is_compiled_and_what_that_imports():
    package = Path(isrlab.__file__).parent
    found = {package / "fleet" / "kernel" / "compiled.py"}
    files = package.glob("fleet/**/*.py")
    compiles = re.compile(r"kernel\.compiled import .*(compiled|entry|inlined)")
    open_files = [f for f in files if compiles.search(f.read_text())]
    while open_files:
        file = open_files.pop()
        if file.is_file() and file not in found:
            found.add(file)
            for module, names in IMPORT.findall(file.read_text()):
                base = package / module.replace(".", "/")
                open_files += [base.with_suffix(".py")]
                open_files += [base / f"{name}.py" for name in re.findall(r"\w+", names)]
    named = {f for name in SOURCES for f in (package / name, *package.glob(f"{name}/*"))}
    assert found <= named
    spare = {f.relative_to(package).as_posix() for f in named - found if f.suffix == ".py"}
    assert spare == {"fleet/kernel/__init__.py"}


def test_processes_that_would_compile_the_same_do_so_one_after_the_other():
    code = "from isrlab.fleet.kernel import compiled\nwith compiled.one_at_a_time(): print('in')"
    with one_at_a_time():
        other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(timeout=3)
    assert other.communicate(timeout=60)[0] == "in\n"


def test_the_kernel_works_out_of_a_zip_and_without_a_place_for_its_cache(tmp_path):
    archive = package_archive()
    assert any(n.endswith("fleet/kernel/clock.py") for n in zipfile.ZipFile(archive).namelist())
    code = (
        f"import sys; sys.path.insert(0, {archive!r})\n"
        "import isrlab.fleet as f; assert '.zip' in f.__file__, f.__file__\n"
        "events = f.simulate_local(f.FleetConfig(partitions=2, minutes=0.1))\n"
        "print(set(events['kind'].to_pylist()))"
    )
    nowhere = tmp_path / "file"
    nowhere.touch()
    places = dict.fromkeys(("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME", "TMPDIR"), str(nowhere))
    done = subprocess.run(
        [sys.executable, "-c", code], env=places, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "{'latency'}"


def test_the_arrow_lists_are_what_the_masks_say():
    table = fleet.simulate_local(SMALL)
    for row in table.slice(0, 50).to_pylist():
        difference = set(row["isr"]) ^ set(row["isr_before"])
        assert row["replica"] == (difference.pop() if len(difference) == 1 else None)
        assert (row["detail"] is not None) == (row["kind"] == "isr_shrink")
    assert isinstance(table, pa.Table)
