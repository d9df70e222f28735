"""The drawn load of a fleet as a trace file: a template for your own, and a way to keep a load."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from isrlab.fleet import load
from isrlab.fleet.config import FleetConfig


def write_trace(config: FleetConfig, path: str | Path | None = None) -> Path:
    """Write all batches of a fleet, by time: `time_ms`, `partition`, `records`, `bytes`; the path.

    CSV, or Parquet if the name ends so; by default a new temporary CSV. Who reads it back
    (`load="trace"`) takes the earliest batch as time 0. Raises ValueError for another ending, a
    fleet whose load is a trace itself, or one without load.
    """
    target = Path(path) if path is not None else Path(tempfile.mkdtemp()) / f"{config.load}.csv"
    if target.suffix not in (".csv", ".parquet"):
        raise ValueError(f"{str(path)!r} must end in .csv or .parquet")
    drawn = load.arrivals(config, np.arange(config.partitions))
    if len(drawn.ts_ms) == 0:
        raise ValueError("the fleet has no load: nothing to write")
    sizes = drawn.records * np.int64(config.record_bytes)
    rows = pa.table([*drawn, sizes], ["time_ms", "partition", "records", "bytes"])
    (pq.write_table if target.suffix == ".parquet" else pacsv.write_csv)(rows, target)
    return target
