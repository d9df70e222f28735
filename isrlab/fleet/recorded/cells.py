"""Recorded load (`load="trace"`): from the rows of a trace file to the batches of each cell.

The driver reads the file (file.py) once and divides it into cells; a worker gets its cell's share
in its row of the plan, and needs no file. Each row is one batch. The earliest is time 0; rows at or
after the end of the run are left out, and counted; a run that is longer ends idle. A row without
partition and key goes to a partition drawn for its place in the file. Within a partition all
records have one size, the mean over its rows, because the kernel counts bytes by records; without
bytes it is `record_bytes`. The settings of random loads do not apply. Left out: how producers would
react to a different cluster.
"""

import functools
import hashlib
import io
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from isrlab.fleet.config import TRACE, FleetConfig
from isrlab.fleet.kernel.state import Arrivals, Ints
from isrlab.fleet.layout import assignment
from isrlab.fleet.load import spread
from isrlab.fleet.recorded import file
from isrlab.fleet.recorded.file import TraceError, TraceRows

MOST_BYTES = 10**18  # of all partitions together
DECIDES = (
    *("load", "trace_file", "trace_columns", "partitions", "brokers", "replication_factor"),
    *("assigned", "minutes", "seed", "record_bytes"),
)  # the settings that determine the batches of each cell


class CellRecording(NamedTuple):
    """A cell's share of a trace."""

    arrivals: Arrivals  # by time, then by place of the partition in the cell
    record_bytes: Ints  # int64[partitions of the cell]


class RecordedFleet(NamedTuple):
    """A trace file, divided for a fleet."""

    sha256: str  # of the file
    rows: int
    left_out: int  # of them, at or after the end of the run
    by_leader: dict[int, CellRecording]


class Description(NamedTuple):
    """A trace file in a few numbers."""

    rows: int
    span_s: float  # from the first row to the last
    minutes: float  # of the shortest run that includes all rows
    records: int
    records_per_s: float  # over the span
    peak_to_mean: float  # records in the busiest second / the mean per second
    gap_variation: float  # standard deviation of the gaps between rows / their mean; 1 if Poisson


def describe(path: str | Path, columns: str = "") -> Description:
    """The length, volume and burstiness of a trace.

    `columns` has the form of `trace_columns`. Raises TraceError.
    """
    rows = file.read(str(path), columns)
    last_ms, records = int(rows.ts_ms.max()), int(rows.records.sum(dtype=np.int64))
    rate = records * 1000 / max(last_ms, 1)
    peak = float(np.bincount(rows.ts_ms // 1000, weights=rows.records).max())
    gaps = np.diff(np.sort(rows.ts_ms))
    return Description(
        rows=len(rows.ts_ms),
        span_s=last_ms / 1000,
        minutes=max((last_ms + 1) / 60_000, 0.01),
        records=records,
        records_per_s=rate,
        peak_to_mean=peak / rate,
        gap_variation=float(gaps.std() / gaps.mean()) if gaps.any() else 0.0,
    )


def of_cell(config: FleetConfig, leader: int) -> CellRecording | None:
    """The share of one cell; None if the load is not a trace. Raises TraceError."""
    return recording(config).by_leader[leader] if config.load == TRACE else None


def recording(config: FleetConfig) -> RecordedFleet:
    """The trace of a fleet; the last two are cached while their files do not change."""
    only = FleetConfig(**{name: getattr(config, name) for name in DECIDES})
    stat = os.stat(config.trace_file) if os.path.exists(config.trace_file) else None
    return _recording(only, stat and (stat.st_mtime_ns, stat.st_size))


def summary(config: FleetConfig) -> dict[str, str | int]:
    """The trace's entry in a manifest: its path, rows, rows left out, SHA-256 of the file."""
    trace = recording(config)._asdict()
    return {"trace_file": config.trace_file} | {n: trace[n] for n in ("sha256", "rows", "left_out")}


@functools.lru_cache(maxsize=2)
def _recording(config: FleetConfig, version: tuple[int, int] | None) -> RecordedFleet:
    """The trace of a fleet. `version`: of the file, read again if it changes; None: no file."""
    rows = file.read(config.trace_file, config.trace_columns, config.partitions)
    anywhere = spread(config, len(rows.ts_ms))
    rows = rows._replace(partition=np.where(rows.partition < 0, anywhere, rows.partition))
    leader_of = assignment(config)[:, 0]
    leaders = leader_of[rows.partition].astype(np.uint16)  # 16 bits sort in linear time
    order = np.lexsort((rows.ts_ms * config.partitions + rows.partition, leaders))
    kept = order[rows.ts_ms[order] < config.duration_ms]
    sizes = _record_bytes(config, rows, kept)
    all_leaders = np.unique(leader_of)
    begins = np.searchsorted(leaders[kept], all_leaders)
    by_leader = {}
    for leader, mine in zip(all_leaders.tolist(), np.split(kept, begins[1:]), strict=True):
        partitions = np.flatnonzero(leader_of == leader)
        places = np.searchsorted(partitions, rows.partition[mine]).astype(np.int32)
        arrivals = Arrivals(rows.ts_ms[mine], places, rows.records[mine])
        by_leader[leader] = CellRecording(arrivals, sizes[partitions])
    with open(config.trace_file, "rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return RecordedFleet(digest, len(order), len(order) - len(kept), by_leader)


def _record_bytes(config: FleetConfig, rows: TraceRows, kept: Ints) -> Ints:
    """Mean size of a partition's records, at least 1, int64[partitions]. Raises TraceError."""
    where, count = rows.partition[kept], config.partitions
    records = np.bincount(where, weights=rows.records[kept], minlength=count)
    sizes = np.full(count, config.record_bytes, dtype=np.int64)
    if rows.bytes is not None:
        total, has = np.bincount(where, weights=rows.bytes[kept], minlength=count), records > 0
        sizes[has] = np.maximum(1, np.round(total[has] / records[has]))
    if (everything := float(records @ sizes)) > MOST_BYTES:
        holds = f"{config.trace_file} holds {everything:,.0f} bytes"
        raise TraceError(f"{holds}; valid: up to {MOST_BYTES:,}")
    return sizes


def packed(recorded: CellRecording | None) -> bytes | None:
    """A cell's share as compressed bytes, for its row of the plan."""
    if recorded is None:
        return None
    sink = io.BytesIO()
    np.savez_compressed(sink, *recorded.arrivals, recorded.record_bytes)
    return sink.getvalue()


def unpacked(content: bytes | None) -> CellRecording | None:
    """The inverse of `packed`."""
    if content is None:
        return None
    *arrivals, record_bytes = np.load(io.BytesIO(content)).values()
    return CellRecording(Arrivals(*arrivals), record_bytes)
