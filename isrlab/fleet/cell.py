"""One cell from its settings to its events: draw, wire, run the kernel, turn rows into Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from isrlab.events import SCHEMA
from isrlab.fleet import load
from isrlab.fleet.cellstate import (
    APPENDED,
    CHANGED,
    COVERED,
    EVENT_COLUMNS,
    EVENT_COUNT,
    FETCHES,
    HIGH_WATERMARK,
    ISR_AFTER,
    ISR_BEFORE,
    KIND,
    LAG_RECORDS,
    LOG_END_OFFSET,
    NEXT_ARRIVAL,
    PARTITION,
    PARTITION_EPOCH,
    READS,
    SHRINK,
    SINCE_CAUGHT_UP_MS,
    SINCE_FETCH_MS,
    TS_MS,
    Arrivals,
    Ints,
    Out,
    Setup,
    State,
    copied,
    new_state,
)
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.kernel import run as run_kernel
from isrlab.fleet.layout import TOPIC, assignment, fetcher_id

KIND_NAMES = pa.array(["isr_shrink", "isr_expand", "isr_commit"])
DETAILS = (
    ("lag_records", LAG_RECORDS),
    ("since_fetch_ms", SINCE_FETCH_MS),
    ("since_caught_up_ms", SINCE_CAUGHT_UP_MS),
)
FIRST_CAPACITY = 4_096


class Cell(NamedTuple):
    """A leader broker and what it leads."""

    leader: int
    partitions: Ints  # int64[n], numbers in the topic
    followers: Ints  # int64[n, slots], broker of each follower
    thread_of: Ints  # int64[n, slots], number of the fetcher thread that reads for each follower
    thread_brokers: list[int]  # broker of each thread


class CellRun(NamedTuple):
    """What the kernel made of a cell."""

    cell: Cell
    events: Ints  # int64[events, EVENT_COLUMNS]
    samples: Ints  # int64[samples, 4 + slots]
    counts: dict[str, int]


def leaders(config: FleetConfig) -> list[int]:
    """The brokers that lead anything: one cell each."""
    return list(range(1, min(config.brokers, config.partitions) + 1))


def cell(config: FleetConfig, leader: int) -> Cell:
    """Wire one leader broker to the fetcher threads of its followers."""
    replicas = assignment(config.partitions, config.brokers, config.replication_factor)
    partitions = np.flatnonzero(replicas[:, 0] == leader)
    followers = replicas[partitions, 1:]
    readers = [
        (int(broker), fetcher)
        for broker in np.unique(followers)
        for fetcher in range(config.num_replica_fetchers)
    ]
    number = {reader: index for index, reader in enumerate(readers)}
    fetchers = [fetcher_id(p, config.num_replica_fetchers) for p in partitions.tolist()]
    thread_of = np.array(
        [[number[b, f] for b in row] for row, f in zip(followers.tolist(), fetchers, strict=True)],
        dtype=np.int64,
    )
    return Cell(leader, partitions, followers, thread_of, [broker for broker, _ in readers])


def setup(config: FleetConfig, one: Cell) -> Setup:
    """What the kernel needs to know of a cell."""
    return Setup(
        rules=config.rules(),
        links=config.links(),
        thread_of=one.thread_of,
        bytes_per_s=np.array([load.follower_bytes_per_s(config, b) for b in one.thread_brokers]),
        stalls=[np.column_stack(load.stalls(config, broker)) for broker in one.thread_brokers],
        record_bytes=config.record_bytes,
        first_tick_ms=load.first_tick_ms(config, one.leader),
    )


def run_cell(
    config: FleetConfig, leader: int, watched: int | None = None, sample_ms: int = 0
) -> CellRun:
    """Run one cell. `watched` is a partition of it, looked at every `sample_ms`."""
    one = cell(config, leader)
    place = -1 if watched is None else int(np.flatnonzero(one.partitions == watched)[0])
    rows = 0 if watched is None else -(-config.duration_ms // sample_ms)
    samples = np.zeros((rows, 4 + one.followers.shape[1]), dtype=np.int64)
    runs = list(_run_windows(config, one, samples, Out(_buffer(), samples, place, sample_ms)))
    return CellRun(one, np.concatenate([run.events for run in runs]), samples, runs[-1].counts)


def run_cell_in_windows(config: FleetConfig, leader: int) -> Iterator[CellRun]:
    """Run one cell and give its events a window at a time; the counts are those up to then."""
    one = cell(config, leader)
    samples = np.zeros((0, 4 + one.followers.shape[1]), dtype=np.int64)
    return _run_windows(config, one, samples, Out(_buffer(), samples, -1, 0))


def _run_windows(config: FleetConfig, one: Cell, samples: Ints, out: Out) -> Iterator[CellRun]:
    state = new_state(setup(config, one), out)
    batches = 0
    for until_ms, arrivals in load.windows(config, one.partitions):
        state, events = _run_window(state, arrivals, until_ms)
        batches += len(arrivals.ts_ms)
        yield CellRun(one, events, samples, _counts(state, batches))


def _run_window(state: State, arrivals: Arrivals, until_ms: int) -> tuple[State, Ints]:
    """The state at `until_ms` and the events up to then; a buffer that is too small is replaced."""
    state.scalars[[NEXT_ARRIVAL, EVENT_COUNT]] = 0
    before = copied(state)
    count = run_kernel(state, arrivals, until_ms)
    if count > len(state.out.events):
        state = before._replace(out=before.out._replace(events=_buffer(2 * count)))
        count = run_kernel(state, arrivals, until_ms)
    return state, state.out.events[:count].copy()


def _buffer(capacity: int = 0) -> Ints:
    return np.zeros((capacity or FIRST_CAPACITY, EVENT_COLUMNS), np.int64)


def _counts(state: State, batches: int) -> dict[str, int]:
    return {
        "batches": batches,
        "records": int(state.scalars[APPENDED]),
        "fetches": int(state.scalars[FETCHES]),
        "partition_fetches": int(state.scalars[COVERED]),
        "positions_evaluated": int(state.scalars[READS]),
    }


def to_arrow(config: FleetConfig, result: CellRun) -> pa.Table:
    """The kernel's rows as a table of the events schema.

    `replica` is set when one follower left or joined; `detail` has the largest lag (records) of
    those that changed, and the shortest times since one fetched and since one had everything.
    """
    rows = result.events
    places = rows[:, PARTITION]
    followers = result.cell.followers[places].astype(np.int32)
    changed = _members(rows[:, CHANGED], followers.shape[1])
    only = changed.sum(axis=1) == 1
    replica = np.where(changed, followers, 0).sum(axis=1)
    count = len(rows)
    columns = {
        "run": pa.array([config.run] * count, pa.string()),
        "ts_ms": pa.array(rows[:, TS_MS]),
        "broker": pa.array(np.full(count, result.cell.leader, np.int32)),
        "topic": pa.array([TOPIC] * count, pa.string()),
        "partition": pa.array(result.cell.partitions[places].astype(np.int32)),
        "leader_epoch": pa.array(np.zeros(count, np.int32)),
        "partition_epoch": pa.array(rows[:, PARTITION_EPOCH].astype(np.int32)),
        "kind": KIND_NAMES.take(pa.array(rows[:, KIND])),
        "replica": pa.array(replica.astype(np.int32), mask=~only),
        "isr": _isr(result.cell.leader, followers, rows[:, ISR_AFTER]),
        "isr_before": _isr(result.cell.leader, followers, rows[:, ISR_BEFORE]),
        "high_watermark": pa.array(rows[:, HIGH_WATERMARK]),
        "log_end_offset": pa.array(rows[:, LOG_END_OFFSET]),
        "detail": _details(rows),
    }
    return pa.table(columns, schema=SCHEMA)


def _members(masks: Ints, slots: int) -> NDArray[np.bool_]:
    """bool[rows, slots] of a column of bit masks."""
    return (masks[:, None] >> np.arange(slots)) & 1 == 1


def _isr(leader: int, followers: NDArray[np.int32], masks: Ints) -> pa.Array:
    """Broker lists, leader first, then followers in the order of assignment."""
    brokers = np.hstack([np.full((len(masks), 1), leader, np.int32), followers])
    is_member = np.hstack([np.ones((len(masks), 1), np.bool_), _members(masks, followers.shape[1])])
    offsets = np.concatenate([[0], np.cumsum(is_member.sum(axis=1))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(brokers[is_member]))


def _details(rows: Ints) -> pa.Array:
    """Maps for shrinks, nulls for the rest."""
    is_shrink = rows[:, KIND] == SHRINK
    size = len(DETAILS)
    offsets = np.concatenate([[0], np.cumsum(is_shrink * size)]).astype(np.int32)
    values = rows[is_shrink][:, [column for _, column in DETAILS]].ravel()
    keys = pa.array([name for name, _ in DETAILS] * int(is_shrink.sum()), pa.string())
    marks = pa.array(offsets, mask=np.append(~is_shrink, False))
    return pa.MapArray.from_arrays(marks, keys, pc.cast(pa.array(values), pa.string()))
