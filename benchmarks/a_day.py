"""A day of 100,000 partitions on 300 brokers: run by cells, summed up, and scheduled on more cores.

    python benchmarks/a_day.py run FOLDER          all cells without a file, in one process
    python benchmarks/a_day.py sum FOLDER          what the finished cells did, hour by hour (CSV)
    python benchmarks/a_day.py schedule FOLDER     how long all cells take on so many cores

After an interruption `run` goes on with what is missing. Cells know nothing of each other, so those
that are finished are a sample of the cluster. Beside each one is what it took.
"""

from __future__ import annotations

import heapq
import json
import resource
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from isrlab.fleet import FleetConfig, store
from isrlab.fleet.cell import leaders
from isrlab.fleet.sums import quantile

DAY = FleetConfig(
    version="4.1", name="a day", partitions=100_000, brokers=300, minutes=1_440,
    min_insync_replicas=2, daily_swing=0.5, stall_s=40, stall_every_s=14_400,
)  # fmt: skip
CORES = (2, 64, 300, 512, 4_096)
HOUR_MS = 3_600_000


def run(folder: Path) -> None:
    """Every cell that has no file yet."""
    for leader in leaders(DAY):
        path, began = store._cell_file(folder, DAY.run, leader), time.process_time()
        if not path.exists():
            plan = {"run": DAY.run, "leader": leader, "config": DAY.to_json(), "recorded": None}
            list(store._write_cells(str(folder), iter([pa.RecordBatch.from_pylist([plan])])))
            most_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            took = {"seconds": round(time.process_time() - began, 2), "mb": round(most_mb)}
            (folder / f"{leader}.json").write_text(json.dumps({"leader": leader} | took))
            print(leader, took, flush=True)


def sum_up(folder: Path) -> None:
    """A row for each hour: ISR changes, absences that begin in it, waits with acks=all."""
    files = sorted(map(str, folder.glob("run=*/[!.]*.parquet")))
    names = ["ts_ms", "partition", "kind", "isr", "detail"]
    events = ds.dataset(files).to_table(names).to_pandas(maps_as_pydicts="lossy")
    events["hour"] = events["ts_ms"] // HOUR_MS
    kinds = events.pivot_table("ts_ms", "hour", "kind", "count", fill_value=0)
    isrs = events[events["kind"] == "isr_commit"].sort_values(["partition", "ts_ms"])
    until_ms = isrs.groupby("partition")["ts_ms"].shift(-1).fillna(DAY.duration_ms)
    lasted, size = until_ms - isrs["ts_ms"], isrs["isr"].str.len()
    hours = pd.DataFrame({"shrinks": kinds["isr_shrink"], "expands": kinds["isr_expand"]})
    for name, least in (("under_replicated", 3), ("under_min_isr", 2)):
        is_under = size < least
        hours[f"{name}_partition_s"] = (lasted[is_under] / 1000).groupby(isrs["hour"]).sum()
        hours[f"{name}_partitions"] = isrs[is_under].groupby("hour")["partition"].nunique()
    waits = events[events["kind"] == "latency"]
    detail = pd.DataFrame(waits["detail"].tolist(), waits["hour"])[["latency_ms", "count"]]
    each = list(detail.astype(int).groupby(level=0))
    hours["batches"] = pd.Series({hour: rows["count"].sum() for hour, rows in each})
    for share in (0.5, 0.99, 0.999):
        of_hour = {hour: quantile(rows, share) for hour, rows in each}
        hours[f"p{100 * share:g}_ms"] = pd.Series(of_hour)
    hours.insert(0, "cells", len(files))
    print(hours.fillna(0).astype(int).to_csv(), end="")


def schedule(folder: Path) -> None:
    """Longest first, on more and more cores; cells that were not run take what the others took."""
    took = [json.loads(file.read_text()) for file in folder.glob("*.json")]
    seconds = np.array([each["seconds"] for each in took])
    every = np.sort(np.resize(seconds, len(leaders(DAY))))[::-1]
    print(f"{len(took)} of {len(every)} cells: {seconds.min():.1f} to {seconds.max():.1f} s each,")
    print(f"all: {every.sum() / 60:.0f} min; largest process {max(t['mb'] for t in took)} MB")
    for cores in CORES:
        free = [0.0] * cores
        for cell_s in every:
            heapq.heappush(free, heapq.heappop(free) + cell_s)
        print(f"{cores:>6,} cores: {max(free):8.1f} s, busy {every.sum() / cores / max(free):.0%}")


if __name__ == "__main__":
    {"run": run, "sum": sum_up, "schedule": schedule}[sys.argv[1]](Path(sys.argv[2]))
