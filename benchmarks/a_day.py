"""A day of 100,000 partitions on 60 brokers under bursts, with controls and remedies, on any Spark.

    make day ARGS="FOLDER [MASTER] [LEADERS]"     such as spark://host:7077; default: local[*], 60

Driver and workers must see FOLDER. Each leader of each run is a task with a file of its own; after
an interruption the same command runs only the missing ones. It says beforehand how long that takes.
The runs named in `ALWAYS` have all leaders, the others the first LEADERS of a fixed random order.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from isrlab import spark
from isrlab.events import exact
from isrlab.fleet import FleetConfig, load
from isrlab.fleet.cell import run_cell_in_windows
from isrlab.fleet.kernel import state as s
from isrlab.fleet.kernel.rows import bucket_starts
from isrlab.fleet.layout import assignment
from isrlab.fleet.tables import to_arrow

DAY = FleetConfig(
    version="4.3", name="bursts and stalls", partitions=100_000, brokers=60, minutes=1_440,
    min_insync_replicas=2, load="together", daily_swing=0.5, batch_every_ms=60_000,
    burst_records=36_000, burst_s=3, burst_every_s=3_600, burst_share=0.1,
    follower_bytes_per_s=4_000_000, stall_s=40, stall_every_s=14_400,
)  # fmt: skip
MIB = 1_048_576


EVERY = range(1, DAY.brokers + 1)
THREE: dict[str, Any] = {
    "brokers": (7, 22, 41),
    "every_s": 1_200,
}  # three single restarts in an hour


def rolled(
    from_hour: int, down_s: int = 60, every_s: int = 120, brokers: Sequence[int] = EVERY
) -> str:
    """Restarts from this hour on: each of the brokers is down once, as a follower."""
    starts = [3_600 * from_hour + every_s * place for place in range(len(brokers))]
    return ", ".join(f"down {b} {s}-{s + down_s}" for b, s in zip(brokers, starts, strict=True))


CHANGES: dict[str, dict[str, Any]] = {
    "bursts and stalls": {},
    "bursts alone": {"stall_s": 0},
    "stalls alone": {"load": "steady"},
    "lag limit 60 s": {"replica_lag_time_max_ms": 60_000},
    "seven threads, twice the rate": {
        "num_replica_fetchers": 7, "link_bytes_per_s": 8_000_000
    },
    "fetch sizes ten times": {
        "replica_fetch_max_bytes": 10 * MIB, "replica_fetch_response_max_bytes": 100 * MIB,
    },
    "rules of 3.6": {"version": "3.6"},
    "rolling restart 02:00 to 04:00": {"pauses": rolled(2)},
    "rolling restart 14:00 to 16:00": {"pauses": rolled(14)},
    "a second thread": {"num_replica_fetchers": 2},
    "restarts at 03:00, down 1 min": {"pauses": rolled(3, **THREE)},
    "restarts at 15:00, down 1 min": {"pauses": rolled(15, **THREE)},
    "restarts at 03:00, down 10 min": {"pauses": rolled(3, 600, **THREE)},
    "restarts at 15:00, down 10 min": {"pauses": rolled(15, 600, **THREE)},
}  # fmt: skip
RUNS = [DAY.with_(name=name, **changes) for name, changes in CHANGES.items()]
ALWAYS = 3
ORDER = np.random.default_rng(1).permutation(DAY.brokers) + 1
DATA = Path(__file__).parent.parent / "data" / "fleet_day"
FACTS = dict.fromkeys(("partition", "replica", "ts_ms"), "int64") | {"fact": "str", "n": "float64"}
EVICTED, REMOVED, ONE_COPY, WAITED, WRITTEN = "evicted", "removed", "one copy", "10 s", "written"
FAILED = {s.REFUSED: "refused", s.TOO_FEW: "after append", s.TIMED_OUT: "timed out"}
BACK_S = (0.1, 1, 3, 10, 30, 100)
ALONE_MS = 150_000  # no other burst comes so soon before or after
AFTER_MS = 60_000  # a fault can cause an eviction until this long after its end


def facts(config: FleetConfig, leader: int) -> pd.DataFrame:
    """What happened to a leader's partitions: absences from ISRs and times at one copy (n: s),
    produces that failed, by error, that waited for 10 s or more, and all that were stored."""
    parts = [*run_cell_in_windows(config, leader)]
    kinds = np.concatenate([part.events[:, s.KIND] for part in parts])
    changes = (p._replace(events=p.events[p.events[:, s.KIND] <= s.REMOVAL]) for p in parts)
    isrs = pa.concat_tables(to_arrow(config, part) for part in changes)
    rows: list[tuple[int, int, int, str, float]] = []
    for out in exact.absences(isrs):
        end_ms = config.duration_ms if out.end_ms is None else out.end_ms
        fact = REMOVED if out.leader is None else EVICTED
        rows.append((out.key.partition, out.replica, out.start_ms, fact, end_ms - out.start_ms))
    for key, spans in exact.isr_spans(isrs, config.duration_ms, 0).items():
        alone = [each for each in spans if len(each.isr) == 1]
        rows += [(key.partition, 0, a.start_ms, ONE_COPY, a.end_ms - a.start_ms) for a in alone]
    table = pd.DataFrame(rows, columns=[*FACTS]).assign(n=lambda each: each["n"] / 1000)
    waits, long = parts[-1].latencies.sum(axis=0), bucket_starts() >= 10_000
    counts = {error: (kinds == kind).sum() for kind, error in FAILED.items()}
    counts |= {WRITTEN: waits.sum(), WAITED: waits[long].sum()}
    totals = pd.DataFrame([(-1, 0, 0, *each) for each in counts.items()], columns=[*FACTS])
    return pd.concat([table, totals]).astype(FACTS)


def cell_file(folder: Path, run: str, leader: int) -> Path:
    return folder / f"{re.sub(r'[^a-z0-9.]+', '-', run)}-{leader}.parquet"


def stored_cells(folder: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the facts of every cell in a piece of the plan into a file, if there is none yet."""
    if not hasattr(load.windows, "kept"):
        load.windows = keeping(load.windows)
    for row in (row for batch in batches for row in batch.to_pylist()):
        config = FleetConfig.from_json(row["config"])
        path = cell_file(Path(folder), config.run, row["leader"])
        if not path.exists():
            hidden = path.with_name(f".{path.name}.{os.getpid()}")
            facts(config, row["leader"]).to_parquet(hidden, index=False)
            hidden.replace(path)
        yield pa.record_batch({"cell": [path.name]})


def keeping(windows: Callable[..., Any]) -> Callable[..., Any]:
    """`load.windows` that keeps the last load: the runs of a leader share it, half of the work."""
    kept: dict[Any, list[Any]] = {}

    def of(config: FleetConfig, partitions: np.ndarray, **others: Any) -> list[Any]:
        key = config.load, partitions.tobytes()
        if key not in kept:
            kept.clear()
            kept[key] = [*windows(config, partitions, **others)]
        return kept[key]

    of.kept = kept  # type: ignore[attr-defined]
    return of


def missing(folder: Path, most: int) -> list[list[tuple[FleetConfig, int]]]:
    """The cells to run, a list for each task: first the leaders with all runs, then the others."""
    every = [
        [(run, leader) for run in (RUNS if place < most else RUNS[:ALWAYS])]
        for place, leader in enumerate(ORDER.tolist())
    ]
    tasks = [[c for c in each if not cell_file(folder, c[0].run, c[1]).exists()] for each in every]
    return [task for task in tasks if task]


def run_all(folder: Path, master: list[str], most: int) -> None:
    """Run what is missing on Spark; say beforehand how long one leader takes here."""
    tasks = missing(folder, most)
    if not tasks:
        return
    leader = tasks[0][0][1]
    folder.mkdir(parents=True, exist_ok=True)
    facts(RUNS[0].with_(minutes=60), leader)  # compiles
    started = time.process_time()
    facts(RUNS[0], leader)
    each_s = time.process_time() - started
    session, cells = spark.session(*master), sum(map(len, tasks))
    is_remote = ".connect." in type(session).__module__  # which does not say how many cores
    cores = 1 if is_remote else session.sparkContext.defaultParallelism
    print(
        f"{cells} leaders to run, {each_s:.1f} s of processor time for one: "
        f"about {cells * each_s / 60 / cores:.0f} minutes on {cores} cores", flush=True,
    )  # fmt: skip
    rows = [(i, c.to_json(), leader) for i, task in enumerate(tasks) for c, leader in task]
    plan = session.createDataFrame(rows, "task int, config string, leader int")
    each = plan.repartitionByRange(len(tasks), "task").sortWithinPartitions("task")
    each.mapInArrow(partial(stored_cells, str(folder)), "cell string").count()


def within(ts_ms: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Which moments lie in one of several disjoint intervals, bool[n]."""
    place = np.searchsorted(starts, ts_ms, "right") - 1
    return (place >= 0) & (ts_ms < np.append(ends, 0)[place])


def burst_starts() -> np.ndarray:
    """When the day's bursts begin, int64[n] ms."""
    starts = {int(ms) for p in range(1_000) for ms in load.burst_starts_ms(DAY, p)}
    return np.array(sorted(starts))


def named(left: pd.DataFrame, run: str) -> pd.DataFrame:
    """Evictions of a run with their hour and their cause."""
    starts = burst_starts() if run != RUNS[2].run else np.zeros(0, dtype=int)
    burst = within(left["ts_ms"].to_numpy(), starts, starts + DAY.burst_s * 1000 + AFTER_MS)
    stall = pd.Series(False, index=left.index)
    for broker, rows in left.groupby("replica") if run != RUNS[1].run else ():
        begin, end = load.stalls(DAY, int(broker))
        stall.loc[rows.index] = within(rows["ts_ms"].to_numpy(), begin, end + AFTER_MS)
    names = np.array([["neither", "stall"], ["burst", "burst on a stall"]])
    trouble = names[burst.astype(int), stall.astype(int)]
    return left.assign(trouble=trouble, hour=left["ts_ms"] // 3_600_000)


def by_hour(rows: pd.DataFrame, run: str) -> pd.DataFrame:
    """Evictions by hour and cause, and how many replicas were back within `BACK_S`."""
    groups = named(rows[rows["fact"] == EVICTED], run).groupby(["hour", "trouble"])["n"]
    table = pd.DataFrame({"evictions": groups.size(), "out_s": groups.sum().round()})
    for seconds in BACK_S:
        table[f"back_{seconds:g}s"] = groups.apply(lambda each, s=seconds: int((each <= s).sum()))
    return table.reset_index().assign(run=run)


def totals(rows: pd.DataFrame) -> dict[str, float]:
    """What a leader's partitions paid in the day."""
    left, alone = (rows[rows["fact"] == fact] for fact in (EVICTED, ONE_COPY))
    paid = {"evictions": len(left), "out_s": left["n"].sum()}
    paid |= {
        "not_hit": (~is_hit(left)).sum(),
        "removed_s": rows[rows["fact"] == REMOVED]["n"].sum(),
    }
    paid |= {"alone": alone["partition"].nunique(), "alone_s": alone["n"].sum()}
    paid |= {"longest_s": alone["n"].max() if len(alone) else 0}
    counts = rows[rows["partition"] == -1].set_index("fact")["n"]
    return paid | {name: counts[name] for name in (*FAILED.values(), WAITED, WRITTEN)}


def is_hit(left: pd.DataFrame) -> np.ndarray:
    """Which evictions are of partitions that a burst hit in the three minutes before, bool[n]."""
    hit = {p: load.burst_starts_ms(DAY, int(p)) for p in left["partition"].unique()}
    pairs = zip(left["partition"], left["ts_ms"], strict=True)
    return np.array([((hit[p] <= ms) & (ms < hit[p] + 180_000)).any() for p, ms in pairs], bool)


def predicted(rows: pd.DataFrame, leader: int) -> pd.DataFrame:
    """Each burst on each link of a leader, unless another comes soon: for how many lag limits the
    formula keeps the follower behind, and whether the leader evicted it."""
    layout, starts = assignment(DAY), burst_starts()
    gaps = np.diff([-2 * ALONE_MS, *starts, DAY.duration_ms])
    starts = starts[np.minimum(gaps[:-1], gaps[1:]) > ALONE_MS]
    led = np.flatnonzero(layout[:, 0] == leader)
    hit = {p: {int(ms) for ms in load.burst_starts_ms(DAY, p)} for p in led.tolist()}
    left = rows[rows["fact"] == EVICTED]
    table = []
    for broker in sorted({*layout[led, 1:].ravel().tolist()}):
        follows = led[(layout[led, 1:] == broker).any(axis=1)]
        own, rate = left[left["replica"] == broker], load.follower_bytes_per_s(DAY, broker)
        for start in starts.tolist():
            swing = 1 + DAY.daily_swing * np.cos((start / 3.6e6 - load.PEAK_HOUR) * np.pi / 12)
            size = sum(start in hit[p] for p in follows.tolist()) * DAY.burst_records * swing
            steady = len(follows) * DAY.records_per_s * swing
            behind_s = size * DAY.record_bytes / (rate - steady * DAY.record_bytes)
            evicts = own["ts_ms"].between(start, start + ALONE_MS).any()
            table.append((behind_s * 1000 / DAY.lag_time_ms, bool(evicts)))
    return pd.DataFrame(table, columns=["limits", "evicts"])


def write(folder: Path) -> None:
    """The tables in data/fleet_day, from the leaders that are there."""
    hours, leaders, formula = [], [], []
    for run in RUNS:
        for leader in range(1, DAY.brokers + 1):
            path = cell_file(folder, run.run, leader)
            if not path.exists():
                continue
            rows = pd.read_parquet(path)
            leaders.append({"run": run.run, "leader": leader} | totals(rows))
            if run in RUNS[:ALWAYS]:
                hours.append(by_hour(rows, run.run))
            if run == RUNS[1]:
                formula.append(predicted(rows, leader))
    every = pd.concat(hours).groupby(["run", "hour", "trouble"]).sum().astype(int)
    every.reset_index().to_csv(DATA / "by_hour.csv.gz", index=False)
    pd.DataFrame(leaders).round(1).to_csv(DATA / "by_leader.csv.gz", index=False)
    links = pd.concat(formula)
    links["quarter"] = (4 * links["limits"]).clip(upper=16).astype(int)
    links.groupby("quarter")["evicts"].agg(["size", "sum"]).reset_index().to_csv(
        DATA / "by_formula.csv.gz", index=False
    )


if __name__ == "__main__":
    place = Path(sys.argv[1]).resolve()
    run_all(place, sys.argv[2:3], int((sys.argv[3:] or [DAY.brokers])[0]))
    write(place)
