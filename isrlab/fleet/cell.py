"""One cell from its settings to its rows: load, threads, and the kernel run in windows."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from isrlab.fleet import load
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.given import latencies
from isrlab.fleet.kernel import compiled
from isrlab.fleet.kernel import state as s
from isrlab.fleet.kernel.clock import run as run_kernel
from isrlab.fleet.layout import assignment, fetcher_id
from isrlab.fleet.recorded import CellRecording, of_cell
from isrlab.progress import shown

KRAFT_STOP_MS = 100  # from the removal of a broker that shuts down until its fetchers stop


class Cell(NamedTuple):
    """A broker, and the partitions that it leads."""

    leader: int
    partitions: s.Ints  # int64[n], numbers in the topic
    followers: s.Ints  # int64[n, slots], broker of each follower
    thread_of: s.Ints  # int64[n, slots], number of the fetcher thread that reads for each follower
    thread_brokers: list[int]  # broker of each thread
    recorded: CellRecording | None  # its load, if that is a trace


class CellRun(NamedTuple):
    """The kernel's results for a cell."""

    cell: Cell
    events: s.Ints  # int64[events, EVENT_COLUMNS]
    latencies: s.Ints  # int64[hours, BUCKETS], produces with acks=all since the start
    until_ms: int  # the end of this run


def leaders(config: FleetConfig) -> list[int]:
    """The brokers that lead any partition: each has a cell."""
    return [int(broker) for broker in np.unique(assignment(config)[:, 0])]


def cell(config: FleetConfig, leader: int, recorded: CellRecording | None = None) -> Cell:
    """Connect one leader to the fetcher threads of its followers.

    `recorded`: its share of a trace; without it the trace is read.
    """
    replicas = assignment(config)
    partitions = np.flatnonzero(replicas[:, 0] == leader)
    followers, fetchers = replicas[partitions, 1:], config.num_replica_fetchers
    brokers = np.unique(followers)
    mine = np.array([fetcher_id(p, fetchers) for p in partitions.tolist()], dtype=np.int64)
    thread_of = np.searchsorted(brokers, followers) * fetchers + mine[:, None]
    thread_brokers = np.repeat(brokers, fetchers).tolist()
    share = recorded or of_cell(config, leader)
    return Cell(leader, partitions, followers, thread_of, thread_brokers, share)


def setup(config: FleetConfig, cell: Cell) -> s.Setup:
    """The kernel's input for a cell."""
    brokers = cell.thread_brokers
    return s.Setup(
        rules=config.rules(),
        links=config.links(),
        thread_of=cell.thread_of,
        bytes_per_s=np.array([load.follower_bytes_per_s(config, b) for b in brokers]),
        stalls=[_stalls(config, broker) for broker in brokers],
        record_bytes=cell.recorded.record_bytes if cell.recorded else config.record_bytes,
        first_tick_ms=load.first_tick_ms(config, cell.leader),
        leader_stalls=np.column_stack(load.leader_stalls(config, cell.leader)),
        shared_links=_shared_links(config, len(brokers)),
        latencies=[latencies(config.pauses, (cell.leader, broker)) for broker in brokers],
        restarts=_restarts(config, brokers),
        acks_all=load.acks_all(config, cell.partitions),
        backlog_records=config.backlog_records,
        empty_threads=tuple(t for t, broker in enumerate(brokers) if broker == config.new_broker),
        duration_ms=config.duration_ms,
    )


def _shared_links(config: FleetConfig, threads: int) -> list[tuple[int, int, int]]:
    """Links of the cell: bytes/s, first thread, one past the last."""
    if config.leader_bytes_per_s:
        return [(config.leader_bytes_per_s, 0, threads)]
    rate, each = config.link_bytes_per_s, config.num_replica_fetchers
    return [(rate, first, first + each) for first in range(0, threads, each) if rate]


@lru_cache(maxsize=1024)  # each cell of a fleet asks for the same brokers
def _stalls(config: FleetConfig, broker: int) -> s.Ints:
    """Stalls and restarts of a broker, int64[n, 3]: start, end, speed left in thousandths.

    A restart ends any stall in progress, and no stall begins until it is over. The fetchers of a
    broker that shuts down stop when the controller removes it (StopReplica comes first, in
    ReplicaStateMachine 2.5.1:224); in KRaft they continue until its process ends.
    """
    after_ms = KRAFT_STOP_MS if config.kafka.kraft else 0
    starts, ends = load.stalls(config, broker)
    rows = np.column_stack([starts, ends, np.full(len(starts), round(1000 * config.stall_speed))])
    for start, end in zip(*load.restarts(config, broker), strict=True):
        stop = min(start + after_ms, end)
        rows[:, 1] = np.where(rows[:, 0] < stop, np.minimum(rows[:, 1], stop), rows[:, 1])
        rows[:, 0] = np.where(rows[:, 0] >= stop, np.maximum(rows[:, 0], end), rows[:, 0])
        rows = np.vstack([rows[rows[:, 0] < rows[:, 1]], [[stop, end, 0]]])
    return rows[np.argsort(rows[:, 0], kind="stable")]


def _restarts(config: FleetConfig, brokers: list[int]) -> s.Ints:
    """When each thread goes down with its broker, int64[n, 3]: start, thread, end; ascending."""
    rows = [
        (start, thread, end)
        for thread, broker in enumerate(brokers)
        for start, end in zip(*load.restarts(config, broker), strict=True)
    ]
    return np.array(sorted(rows), dtype=np.int64).reshape(-1, 3)


def run_cell(config: FleetConfig, leader: int) -> CellRun:
    """Run one cell."""
    runs = list(run_cell_in_windows(config, leader))
    return runs[-1]._replace(events=np.concatenate([run.events for run in runs]))


def run_cell_in_windows(
    config: FleetConfig, leader: int, recorded: CellRecording | None = None
) -> Iterator[CellRun]:
    """Run one cell; yields its events a window at a time."""
    windowed = cell(config, leader, recorded)
    state = s.new_state(setup(config, windowed))
    trace = windowed.recorded.arrivals if windowed.recorded else None
    for until_ms, arrivals in load.windows(config, windowed.partitions, recorded=trace):
        state, events = run_window(state, arrivals, until_ms)
        yield CellRun(windowed, events, state.latencies, until_ms)


def run_window(state: s.State, arrivals: s.Arrivals, until_ms: int) -> tuple[s.State, s.Ints]:
    """Run a cell to `until_ms`; empties or enlarges full tables; returns its state and events."""
    events, has_come = list[s.Ints](), False
    state.scalars[s.NEXT_ARRIVAL] = 0
    while not has_come:
        has_come = _run(run_kernel, state, arrivals, until_ms)
        events.append(s.taken(state))
        state = s.with_room(state)
    return state, np.concatenate(events)


def _run(kernel: Callable[..., bool], *given: Any) -> bool:
    """Run the kernel, which is compiled the first time on a machine."""
    if compiled.is_ready(kernel):
        return kernel(*given)
    with shown(lambda: "compiling the kernel, once on this machine"), compiled.one_at_a_time():
        return kernel(*given)
