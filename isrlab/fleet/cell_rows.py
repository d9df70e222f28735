"""The rows of a cell, read and written one partition at a time.

`CellRows.role` turns rows into a leader of the engine, and `CellRows.install` turns such a leader
into rows. The engine's clocks, where 0 means never, are 10**12 ms ahead of the kernel's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from isrlab.engine import reading
from isrlab.engine.log import Log
from isrlab.engine.model import Broker, CommittedIsr, Leader, RemoteReplica
from isrlab.fleet.cell import Cell, CellRun, setup
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.kernel import state as s
from isrlab.fleet.layout import assignment

BASE_MS = 10**12
_LISTS = ("waiting", "held")


def mask(order: Sequence[int], brokers: Iterable[int]) -> int:
    """The followers among `brokers`, as bits in the order of the slots."""
    members = set(brokers)
    return sum(1 << slot for slot, broker in enumerate(order) if broker in members)


def _clock(ms: int) -> int:
    """A clock of the kernel on the engine's scale."""
    return 0 if ms <= s.LONG_AGO_MS else ms + BASE_MS


def _ms(clock: int) -> int:
    return clock - BASE_MS if clock else s.LONG_AGO_MS


class CellRows:
    """A broker's cell: rows for all partitions that it could lead, empty unless it leads."""

    def __init__(self, config: FleetConfig, cell: Cell, state: s.State) -> None:
        self.cell, self.state = cell, state
        self.events: list[s.Ints] = []
        self._own = state.follower_at.copy()  # int32[partitions, slots]: the row of each broker
        self.place_of = np.full(config.partitions, -1, dtype=np.int32)
        self.place_of[cell.partitions] = np.arange(len(cell.partitions))

    def share(self, due: s.Arrivals, leaders: s.Ints) -> s.Arrivals:
        """The batches for the partitions that this broker leads."""
        mine = leaders[due.partition] == self.cell.leader
        places = self.place_of[due.partition[mine]]
        return s.Arrivals(due.ts_ms[mine], places, due.records[mine])

    def restart(self, tick_ms: int) -> None:
        """Restart the broker: set its first ISR check, reset its quotas, empty its links."""
        self.state.scalars[s.NEXT_TICK_MS] = tick_ms
        self.state.threads["is_sent_to"] = s.NOT_SENT_TO
        self.state.sent[:] = self.state.received[self.cell.leader] = s.no_samples(1)[0]

    def partition(self, partition: int) -> Any:
        """The row of a partition, to be changed in place."""
        return self.state.partitions[self.place_of[partition]]

    def order(self, partition: int) -> list[int]:
        """The brokers of a partition's followers, slot by slot."""
        followers: list[int] = self.cell.followers[self.place_of[partition]].tolist()
        return followers

    def members(self, place: int, isr: int) -> tuple[int, ...]:
        """The brokers of an ISR."""
        followers = self.cell.followers[place].tolist()
        return (self.cell.leader, *(b for slot, b in enumerate(followers) if isr >> slot & 1))

    def followers(self, partition: int) -> list[tuple[int, int]]:
        """The partition's current followers, and their rows."""
        place = self.place_of[partition]
        rows, own = self.state.follower_at[place].tolist(), self._own[place].tolist()
        each = zip(self.order(partition), rows, own, strict=True)
        return [(broker, row) for broker, row, mine in each if broker and row == mine]

    def follow(self, partition: int, brokers: Iterable[int]) -> None:
        """Make these brokers the followers; all other slots get the last row, for no broker."""
        place, wanted = self.place_of[partition], set(brokers)
        rows, own = self.state.follower_at[place], self._own[place]
        for slot, broker in enumerate(self.order(partition)[:-1]):
            row, thread, has = own[slot], self.thread_of(own[slot]), rows[slot] == own[slot]
            bit = np.uint64(1 << int(row) % s.WORD)
            if has and broker not in wanted:
                rows[slot] = own[-1]
                self.state.active[row // s.WORD] &= ~bit
                thread["partitions"] -= 1
                if not thread["partitions"]:
                    self.stop(thread)
            elif broker in wanted and not has:
                rows[slot] = row
                self.state.active[row // s.WORD] |= bit
                thread["partitions"] += 1

    def throttle(self, partition: int, brokers: Iterable[int]) -> None:
        """Set which followers are in follower.replication.throttled.replicas."""
        rows = self._own[self.place_of[partition]]
        self.state.followers["is_throttled"][rows] = np.isin(self.order(partition), [*brokers])

    def thread_of(self, row: int) -> Any:
        return self.state.threads[self.state.followers[row]["thread"]]

    def role(self, partition: int, epochs: dict[int, int]) -> Leader:
        """The partition's leader as an engine role; wakes its followers. `epochs`: of brokers."""
        row = self.partition(partition)
        remotes = []
        for broker, place in self.followers(partition):
            self._wake(place)
            follower = self.state.followers[place]
            fetched, ms = int(follower["counted_fetch_ms"]), int(follower["last_caught_up_ms"])
            remotes.append(
                RemoteReplica(
                    id=broker,
                    log_end_offset=int(follower["seen_end"]),
                    last_caught_up_time_ms=_clock(ms),
                    last_fetch_leader_end_offset=int(follower["last_fetch_leader_end"]),
                    last_fetch_time_ms=_clock(fetched),
                    broker_epoch=epochs[broker],
                    last_sent_high_watermark=int(follower["sent_high_watermark"]),
                )
            )
        return Leader(
            leader_epoch=int(row["leader_epoch"]),
            leader_epoch_start_offset=int(row["epoch_start"]),
            partition_epoch=int(row["partition_epoch"]),
            isr_state=CommittedIsr(self.members(self.place_of[partition], int(row["isr"]))),
            remotes=tuple(remotes),
        )

    def _wake(self, place: int) -> None:
        """End a follower's rest, as `resting.wake` does."""
        bit = np.uint64(1 << place % s.WORD)
        if self.state.active[place // s.WORD] & bit:
            return
        follower, at_ms = self.state.followers[place], self.thread_of(place)["fetch_ms"]
        for clock in ("last_caught_up_ms", "had_all_ms", "last_fetch_ms", "counted_fetch_ms"):
            follower[clock] = at_ms
        leader = self.state.partitions[follower["partition"]]
        follower["last_fetch_leader_end"] = leader["log_end_offset"]
        self.state.active[place // s.WORD] |= bit

    def install(self, partition: int, broker: Broker, is_new: bool, now_ms: int) -> None:
        """Write a leader into the rows, as an order has made it."""
        row, role = self.partition(partition), reading.leader_of(broker)
        known = {} if is_new else dict(self.followers(partition))
        self.follow(partition, [remote.id for remote in role.remotes])
        rows = dict(self.followers(partition))
        if is_new:
            row["log_end_offset"] = broker.log.log_end_offset
            row["high_watermark"] = broker.log.high_watermark
        row["isr"] = row["maximal_isr"] = mask(self.order(partition), role.isr)
        is_unanswered = row["pending"] != s.NOT_PENDING and row["due_ms"] >= now_ms
        row["pending"] = s.VOID if is_unanswered else s.NOT_PENDING
        row["partition_epoch"], row["leader_epoch"] = role.partition_epoch, role.leader_epoch
        row["epoch_start"], row["is_held_back"] = role.leader_epoch_start_offset, 0
        for remote in role.remotes:
            follower = self.state.followers[rows[remote.id]]
            follower["seen_end"] = remote.log_end_offset
            follower["last_caught_up_ms"] = _ms(remote.last_caught_up_time_ms)
            follower["counted_fetch_ms"] = _ms(remote.last_fetch_time_ms)
            follower["last_fetch_leader_end"] = remote.last_fetch_leader_end_offset
            follower["sent_high_watermark"] = remote.last_sent_high_watermark
            if remote.id not in known:
                follower["had_all_ms"] = follower["last_fetch_ms"] = now_ms
                follower["turn"] = 0

    def refuse(self, partition: int, broker: int) -> None:
        """Void an ISR change in flight that would add this broker (INELIGIBLE_REPLICA)."""
        row = self.partition(partition)
        joining = int(row["pending_isr"]) & ~int(row["isr"])
        if row["pending"] == s.PENDING and joining & mask(self.order(partition), (broker,)):
            row["pending"] = s.VOID

    def set_end(self, place: int, log: Log) -> None:
        """Set the log end of a follower with nothing in flight."""
        self.state.followers[place]["end"] = log.log_end_offset
        self.state.carried[place] = log.log_end_offset, log.high_watermark, log.high_watermark

    def arrives_ms(self, place: int, at_ms: int) -> int:
        """The arrival time of a message between a follower and the leader."""
        thread = self.thread_of(place)
        slow = self.state.slow[thread["slow_from"] : thread["slow_to"]]
        longer = slow[(slow[:, 0] <= at_ms) & (at_ms < slow[:, 1]), 2]
        return at_ms + int(longer.max(initial=self.state.links.fetch_latency_ms))

    def stop(self, thread: Any) -> None:
        """Stop a thread: it sends no more fetches, and drops the answer to its last."""
        thread["next_ms"], thread["is_parked"] = s.NEVER_MS, s.NOT_PARKED
        if thread["is_sent_to"]:
            thread["is_sent_to"] = s.UNWANTED

    def start(self, place: int, left_ms: int) -> None:
        """Send the next fetch of a follower's thread at this time."""
        thread = self.thread_of(place)
        self.stop(thread)
        thread["left_ms"] = left_ms
        self.make_due(place, self.arrives_ms(place, left_ms))

    def make_due(self, place: int, at_ms: int) -> None:
        """Let the fetch of a follower's thread arrive, or its parked fetch be due, at this time."""
        number = int(self.state.followers[place]["thread"])
        self.state.threads[number]["next_ms"] = at_ms
        group = number // s.GROUP
        self.state.group_ms[group] = min(self.state.group_ms[group], at_ms)
        scalars = self.state.scalars
        scalars[s.NEXT_THREAD_MS] = min(scalars[s.NEXT_THREAD_MS], at_ms)

    # Events

    def add_event(self, partition: int, row: tuple[int, ...]) -> None:
        """Add an event from outside the kernel: ms, kind, and the columns from the fourth on."""
        blank = (0, 0, 0, -1, -1, 0, 0, 0, 0, 0)
        ts_ms, kind, *rest = row
        filled = (ts_ms, kind, int(self.place_of[partition]), *rest, *blank[len(rest) :])
        self.events.append(np.array([filled], dtype=np.int64))

    def run_so_far(self, until_ms: int) -> CellRun:
        """The results so far."""
        events = np.concatenate([*self.events, np.zeros((0, s.EVENT_COLUMNS), np.int64)])
        return CellRun(self.cell, events, self.state.latencies, until_ms)

    # Producers

    def take_out(self, partition: int) -> tuple[list[list[int]], list[list[int]]]:
        """Empty a partition's rows; returns its waiting and its held produces."""
        row = self.partition(partition)
        waiting, held = (self._taken(int(row[n]), int(row[f"{n}_last"])) for n in _LISTS)
        for column in ("isr", "maximal_isr", *_LISTS):
            row[column] = 0
        self.follow(partition, ())
        if row["pending"] != s.NOT_PENDING:
            row["pending"] = s.VOID
        return waiting, held

    def _taken(self, row: int, last: int) -> list[list[int]]:
        """The rows of a list of produces; frees its chunks."""
        rows: list[list[int]] = []
        while row != s.NOBODY:
            chunk = row // s.CHUNK
            end = last + 1 if last // s.CHUNK == chunk else (chunk + 1) * s.CHUNK
            rows += self.state.produces[row:end].tolist()
            following = int(self.state.next_chunk[chunk])
            self.state.next_chunk[chunk] = self.state.scalars[s.FREE_CHUNK]
            self.state.scalars[s.FREE_CHUNK] = chunk
            row = s.NOBODY if end == last + 1 else following * s.CHUNK
        return rows

    def put_produces(self, partition: int, waiting: list[Any], held: list[Any]) -> None:
        """Give a new leader these produces, with room for their results."""
        chunks = sum(-(-len(rows) // s.CHUNK) for rows in (waiting, held))
        self.state = s.with_room(self.state, chunks)
        row = self.partition(partition)
        for name, rows in zip(_LISTS, (waiting, held), strict=True):
            chunks = np.arange(-(-len(rows) // s.CHUNK)) + self.state.scalars[s.CHUNKS_USED]
            self.state.scalars[s.CHUNKS_USED] += len(chunks)
            if len(chunks):
                first = int(chunks[0]) * s.CHUNK
                self.state.produces[first : first + len(rows)] = rows
                self.state.next_chunk[chunks[:-1]] = chunks[1:]
                row[name], row[f"{name}_last"] = first, first + len(rows) - 1


def rows_at_start(config: FleetConfig, cell: Cell, received: s.Ints) -> CellRows:
    """A cell at time 0, with empty rows for partitions that others lead; it shares `received`."""
    state = s.new_state(setup(config, cell))._replace(received=received)
    absent = state.follower_at[:, -1]
    for row in absent.tolist():
        state.active[row // s.WORD] |= np.uint64(1 << row % s.WORD)
    for clock in ("last_caught_up_ms", "had_all_ms", "last_fetch_ms", "counted_fetch_ms"):
        state.followers[clock][absent] = s.LONG_AGO_MS
    is_absent = np.equal(cell.thread_brokers, 0)
    state.threads["next_ms"][is_absent] = state.threads["gone_until_ms"][is_absent] = s.NEVER_MS
    rows = CellRows(config, cell, state)
    for partition in cell.partitions.tolist():
        leader, *followers = assignment(config)[partition].tolist()
        rows.follow(partition, followers if leader == cell.leader else ())
        isr = mask(rows.order(partition), followers) if leader == cell.leader else 0
        rows.partition(partition)["isr"] = rows.partition(partition)["maximal_isr"] = isr
    return rows
