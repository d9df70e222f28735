"""One cell of a fleet in each of several implementations, timed in processor time.

All must give the same events and the same latencies, or the comparison is void.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from isrlab.fleet import FleetConfig, load
from isrlab.fleet.cell import cell, setup
from isrlab.fleet.kernel import state as s
from isrlab.fleet.kernel.clock import run
from isrlab.fleet.kernel.rows import bucket

LEADER = 1
C_RULES = (  # in the order of `Rules` in cell.c
    *("lag_clock", "shrink_rule", "expand_rule", "high_watermark_set"),
    *("high_watermark_held_under_min_isr", "high_watermark_after_shrink"),
    *("high_watermark_only_if_follower_moved", "waits_for_controller", "replica_lag_time_max_ms"),
    *("replica_lag_max_messages", "isr_check_period_ms", "min_isr", "isr_commit_ms"),
    *("request_timeout_ms", "delivery_timeout_ms", "fetch_latency_ms", "replica_fetch_max_bytes"),
    *("replica_fetch_response_max_bytes", "replica_fetch_wait_max_ms"),
)


class Timed(NamedTuple):
    """The time of a run, and its results."""

    seconds: float
    partition_fetches: int
    events: list[tuple[int, ...]]
    latencies: dict[int, int]  # how many produces in each class of latency

    @property
    def rate(self) -> float:
        """Partition-fetches per second."""
        return self.partition_fetches / self.seconds


def arrivals_of(config: FleetConfig, busy_share: float) -> s.Arrivals:
    """The load of the first cell, with all batches of the idle partitions left out."""
    one = cell(config, LEADER)
    arrivals = load.arrivals(config, one.partitions)
    keep = arrivals.partition < busy_share * len(one.partitions)
    return s.Arrivals(*(column[keep] for column in arrivals))


def by_kernel(config: FleetConfig, arrivals: s.Arrivals) -> Timed:
    """The compiled kernel."""
    state = s.new_state(setup(config, cell(config, LEADER)))
    state = s.with_room(state, len(arrivals.ts_ms) // s.CHUNK)
    began = time.process_time()
    is_done = run(state, arrivals, config.duration_ms)
    seconds = time.process_time() - began
    assert is_done, "the tables are too small"
    covered = int(state.scalars[s.COVERED])
    return Timed(seconds, covered, _rows(s.taken(state)), _counts(state.latencies))


def by_c(config: FleetConfig, arrivals: s.Arrivals) -> Timed:
    """The cell in C; its time includes the preparation."""
    one = setup(config, cell(config, LEADER))
    given = one.rules._asdict() | one.links._asdict()
    partitions, slots = one.thread_of.shape
    ends = np.cumsum([len(rows) for rows in one.stalls])
    begins = ends - [len(rows) for rows in one.stalls]
    sizes = (slots, partitions, len(ends), 100_000, one.first_tick_ms, len(arrivals.ts_ms))
    events = np.zeros((100_000, s.EVENT_COLUMNS), np.int64)
    latencies = np.zeros((one.duration_ms // s.HOUR_MS + 1, s.BUCKETS), np.int64)
    covered = np.zeros(1, np.int64)
    tables = (
        np.array([given[name] for name in C_RULES], np.int64),
        np.array(sizes, np.int64),
        np.ascontiguousarray(one.thread_of),
        np.broadcast_to(np.asarray(one.record_bytes, np.int64), partitions).copy(),
        np.broadcast_to(np.asarray(one.acks_all, np.int64), partitions).copy(),
        np.column_stack([one.bytes_per_s, begins, ends]).astype(np.int64),
        np.concatenate(one.stalls).astype(np.int64),
        *arrivals,
    )
    places = [ctypes.c_void_p(table.ctypes.data) for table in tables]
    written = [ctypes.c_void_p(table.ctypes.data) for table in (events, latencies, covered)]
    call = c_library().run_cell
    call.restype = ctypes.c_int64
    began = time.process_time()
    count = call(*places, ctypes.c_int64(config.duration_ms), *written)
    seconds = time.process_time() - began
    return Timed(seconds, int(covered[0]), _rows(events[:count]), _counts(latencies))


def c_library() -> ctypes.CDLL | None:
    """`cell.c`, compiled by the compiler of this machine; None if there is none."""
    global _library
    if _library is None and (compiler := shutil.which("cc")):
        with tempfile.TemporaryDirectory() as folder:
            built = Path(folder, "cell.so")
            source = Path(__file__).with_name("cell.c")
            flags = ["-O3", "-march=native", "-shared", "-fPIC", "-o", str(built)]
            subprocess.run([compiler, *flags, str(source)], check=True)
            _library = ctypes.CDLL(str(built))
    return _library


_library: ctypes.CDLL | None = None


def _rows(events: np.ndarray) -> list[tuple[int, ...]]:
    return [tuple(row) for row in events.tolist()]


def _counts(latencies: np.ndarray) -> dict[int, int]:
    total = latencies.sum(axis=0)
    return {int(place): int(total[place]) for place in np.flatnonzero(total)}


def by_python(kind: type, config: FleetConfig, arrivals: s.Arrivals) -> Timed:
    """A class with the naive fleet's interface."""
    one = cell(config, LEADER)
    rule, links = config.rules(), config.links()
    settings = {
        "lag_ms": rule.replica_lag_time_max_ms,
        "lag_messages": rule.replica_lag_max_messages,
        "min_isr": rule.min_isr,
        "latency_ms": links.fetch_latency_ms,
        "bytes_per_s": [load.follower_bytes_per_s(config, b) for b in one.thread_brokers],
        "fetch_bytes": links.replica_fetch_max_bytes,
        "response_bytes": links.replica_fetch_response_max_bytes,
        "wait_ms": links.replica_fetch_wait_max_ms,
        "commit_ms": rule.isr_commit_ms,
        "acks_all": config.acks_all_share == 1,
        "timeout_ms": rule.request_timeout_ms,
        "delivery_ms": rule.delivery_timeout_ms,
    }
    stalls = [np.column_stack(load.stalls(config, b)).tolist() for b in one.thread_brokers]
    rows = list(zip(*(column.tolist() for column in arrivals), strict=True))
    model = kind(
        config.kafka.column, settings, one.thread_of.tolist(), stalls, rows, config.record_bytes
    )
    began = time.process_time()
    events = model.run(config.duration_ms, load.first_tick_ms(config, LEADER))
    seconds = time.process_time() - began
    waited = Counter(bucket.py_func(ms) for ms in model.waited)
    return Timed(seconds, model.partition_fetches, events, dict(sorted(waited.items())))
