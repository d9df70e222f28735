"""Requests that wait: the purgatory, and the timing wheels that let them expire.

Theory of operation. A fetch that finds too little, and a produce whose records are not committed
yet, wait in a purgatory. Each waiting operation is on the watch list of every partition it
concerns. After each event of a partition (an append, a new high watermark) the broker goes through
the partition's watch list and completes the operations whose conditions hold. The timer completes
the others. So each operation completes exactly once, and its cause is known.

The timer is a row of wheels. A wheel has `size` slots of `tick_ms` each; a task goes into the slot
of its expiration in the finest wheel that reaches that far. When a slot of a coarser wheel is due,
its tasks are added again, and so fall to a finer wheel or run. A wheel's clock moves only when a
slot is due. Up to 0.8.2 the timer was a queue ordered by expiration.

Times are milliseconds. Left out: threads and locks, the 512 shards of the watch lists (2.2) and
their purges, throttled replicas, and what completes a fetch besides bytes: diverging epochs,
fencing and KIP-392 (the last two are in the engine's `high_watermark.py`, for one partition).

Source: TimingWheel, SystemTimer, TimerTaskList (Java) 3.7.1; DelayedOperation.scala 0.9.0.1, 3.7.1;
DelayedFetch.scala 3.7.1:73-157; RequestPurgatory.scala 0.8.2.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from isrlab_book.closeups.segment import Reader, SegmentedLog

MOST_SLOTS = 100_000  # that one call may empty
Place = tuple[int, int]  # number of the wheel (0 is the finest), number of the slot
Logs: TypeAlias = Mapping[str, SegmentedLog]  # by partition
PartitionRequest: TypeAlias = tuple[str, Reader, int, int]  # partition, reader, offset, max bytes


class Task(NamedTuple):
    id: str
    expiration_ms: int


class Move(NamedTuple):
    """A task goes into a slot, or it runs: then `target` is None."""

    task: Task
    at_ms: int
    target: Place | None

    @property
    def runs(self) -> bool:
        return self.target is None


# The wheels


@dataclass(frozen=True, slots=True)
class Wheel:
    """One circle of slots. Its clock, `current_ms`, is a multiple of its tick.

    `slots` has the tasks of each slot by the time (ms) at which its tick begins. A slot stays until
    it is due, even if its tasks are cancelled.
    """

    tick_ms: int
    size: int
    current_ms: int
    slots: dict[int, tuple[Task, ...]] = field(default_factory=dict)

    @property
    def interval_ms(self) -> int:
        return self.tick_ms * self.size

    def slot(self, at_ms: int) -> int:
        """The number of the slot for a time."""
        return at_ms // self.tick_ms % self.size

    def advance(self, now_ms: int) -> Wheel:
        return replace(self, current_ms=now_ms - now_ms % self.tick_ms)

    def without(self, task_id: str) -> Wheel:
        slots = {ms: [t for t in tasks if t.id != task_id] for ms, tasks in self.slots.items()}
        return replace(self, slots={ms: tuple(tasks) for ms, tasks in slots.items()})


@dataclass(frozen=True, slots=True)
class Timer:
    """The wheels, finest first; coarser ones are made when a task needs them (0.9+)."""

    wheels: tuple[Wheel, ...]

    @classmethod
    def at(cls, now_ms: int, tick_ms: int = 1, size: int = 20) -> Timer:
        return cls((Wheel(tick_ms, size, 0).advance(now_ms),))

    @property
    def tasks(self) -> tuple[Task, ...]:
        return tuple(t for wheel in self.wheels for tasks in wheel.slots.values() for t in tasks)

    def add(self, task: Task, now_ms: int) -> tuple[Timer, Move]:
        """The timer with the task in its slot. A task that has expired already runs instead."""
        wheels, level = list(self.wheels), 0
        if task.expiration_ms < wheels[0].current_ms + wheels[0].tick_ms:
            return self, Move(task, now_ms, None)
        while task.expiration_ms >= wheels[level].current_ms + wheels[level].interval_ms:
            level += 1
            if level == len(wheels):
                lower = wheels[-1]
                wheels.append(Wheel(lower.interval_ms, lower.size, 0).advance(lower.current_ms))
        wheel = wheels[level]
        begins_ms = task.expiration_ms - task.expiration_ms % wheel.tick_ms
        tasks = *wheel.slots.get(begins_ms, ()), task
        wheels[level] = replace(wheel, slots=wheel.slots | {begins_ms: tasks})
        return Timer(tuple(wheels)), Move(task, now_ms, (level, wheel.slot(begins_ms)))

    def advance(self, now_ms: int) -> tuple[Timer, tuple[Move, ...]]:
        """Empty every slot that is due, the earliest first, and add its tasks again."""
        timer, moves = self, list[Move]()
        for _ in range(MOST_SLOTS):
            slots = [(ms, n) for n, wheel in enumerate(timer.wheels) for ms in wheel.slots]
            begins_ms, level = min(slots, default=(now_ms + 1, 0))
            if begins_ms > now_ms:
                return timer, tuple(moves)
            wheels = [wheel.advance(begins_ms) for wheel in timer.wheels]
            left = dict(wheels[level].slots)
            tasks = left.pop(begins_ms)
            wheels[level] = replace(wheels[level], slots=left)
            timer = Timer(tuple(wheels))
            for task in tasks:
                timer, move = timer.add(task, begins_ms)
                moves.append(move)
        raise RuntimeError(f"more than {MOST_SLOTS} slots are due by {now_ms} ms")

    def cancel(self, task_id: str) -> Timer:
        """Remove the task. Its slot stays: the wheel's clock still moves when the slot is due."""
        return Timer(tuple(wheel.without(task_id) for wheel in self.wheels))


class PolledQueue(NamedTuple):
    """0.8.2: one queue ordered by expiration. Its thread polls with a timeout of 200 ms, but the
    queue wakes it as soon as a task expires, so expiry is not rounded to 200 ms.

    A completed task stays in the queue until it expires (or until a purge, which is left out).
    """

    tasks: tuple[Task, ...] = ()

    def add(self, task: Task, now_ms: int) -> tuple[PolledQueue, Move]:
        queue = sorted((*self.tasks, task), key=lambda t: t.expiration_ms)
        return PolledQueue(tuple(queue)), Move(task, now_ms, (0, 0))

    def advance(self, now_ms: int) -> tuple[PolledQueue, tuple[Move, ...]]:
        due = [task for task in self.tasks if task.expiration_ms <= now_ms]
        moves = tuple(Move(task, task.expiration_ms, None) for task in due)
        return PolledQueue(self.tasks[len(due) :]), moves

    def cancel(self, task_id: str) -> PolledQueue:
        return self


# Waiting requests and their conditions


class FetchPart(NamedTuple):
    """One partition of a waiting fetch. `place`: the position of `offset` when parked."""

    partition: str
    reader: Reader
    offset: int
    max_bytes: int
    place: tuple[int, int]  # base offset of the segment, byte position in it


class WaitingFetch(NamedTuple):
    """Complete once `min_bytes` in all can be read from the partitions."""

    parts: tuple[FetchPart, ...]
    min_bytes: int = 1

    def is_satisfied(self, logs: Logs) -> bool:
        """A deleted partition, or one whose end is in another segment, also satisfies the fetch."""
        bytes_ready = 0
        for partition, reader, offset, max_bytes, place in self.parts:
            if (log := logs.get(partition)) is None:
                return True
            end = log.bound(reader)
            segment, position = log.place_of(end)
            if end != offset and segment != place[0]:
                return True
            if end > offset:
                bytes_ready += min(position - place[1], max_bytes)
        return bytes_ready >= self.min_bytes


class WaitingProduce(NamedTuple):
    """Complete once each partition's high watermark has reached the end of the produced records."""

    required_offsets: tuple[tuple[str, int], ...]

    def is_satisfied(self, logs: Logs) -> bool:
        required = self.required_offsets
        return all(name not in logs or logs[name].high_watermark >= end for name, end in required)


class Operation(NamedTuple):
    """A request that waits. Its keys are the partitions whose changes may complete it."""

    id: str
    keys: tuple[str, ...]
    deadline_ms: int
    condition: WaitingFetch | WaitingProduce


def parked_fetch(
    id: str, logs: Logs, asked: Sequence[PartitionRequest], deadline_ms: int, min_bytes: int = 1
) -> Operation:
    """The operation of a fetch that is parked now, with the positions of its offsets."""
    parts = tuple(FetchPart(*part, logs[part[0]].place_of(part[2])) for part in asked)
    keys = tuple(part.partition for part in parts)
    return Operation(id, keys, deadline_ms, WaitingFetch(parts, min_bytes))


# The purgatory


class Cause(StrEnum):
    IMMEDIATELY = "immediately"
    APPEND = "append"
    HIGH_WATERMARK = "high watermark"
    EXPIRY = "expiry"


class Completion(NamedTuple):
    operation: Operation
    at_ms: int
    cause: Cause


PurgatoryStep = tuple["Purgatory", tuple[Completion, ...]]


@dataclass(frozen=True, slots=True)
class Purgatory:
    """Waiting operations, the watch list of each partition, and the timer.

    A completed operation stays on its other watch lists until each of them is next checked.
    """

    timer: Timer
    waiting: dict[str, Operation] = field(default_factory=dict)
    watchers: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def watch(self, operation: Operation, logs: Logs, now_ms: int) -> PurgatoryStep:
        """Complete the operation now, or let it wait (tryCompleteElseWatch)."""
        if operation.condition.is_satisfied(logs):
            return self, (Completion(operation, now_ms, Cause.IMMEDIATELY),)
        lists = {key: (*self.watchers.get(key, ()), operation.id) for key in operation.keys}
        timer, move = self.timer.add(Task(operation.id, operation.deadline_ms), now_ms)
        waiting = self.waiting | {operation.id: operation}
        purgatory = Purgatory(timer, waiting, self.watchers | lists)
        done = [Completion(operation, now_ms, Cause.EXPIRY)] if move.runs else []
        return purgatory._complete(done)

    def check(self, key: str, logs: Logs, cause: Cause, now_ms: int) -> PurgatoryStep:
        """After an event of a partition, complete the satisfied operations (checkAndComplete)."""
        watching = [self.waiting[i] for i in self.watchers.get(key, ()) if i in self.waiting]
        done = [Completion(o, now_ms, cause) for o in watching if o.condition.is_satisfied(logs)]
        purgatory, completions = self._complete(done)
        left = {key: tuple(o.id for o in watching if o.id in purgatory.waiting)}
        return replace(purgatory, watchers=self.watchers | left), completions

    def advance(self, now_ms: int) -> PurgatoryStep:
        """Complete the operations that have expired."""
        timer, moves = self.timer.advance(now_ms)
        expired = [move for move in moves if move.runs and move.task.id in self.waiting]
        done = [Completion(self.waiting[e.task.id], e.at_ms, Cause.EXPIRY) for e in expired]
        return replace(self, timer=timer)._complete(done)

    def _complete(self, done: Sequence[Completion]) -> PurgatoryStep:
        timer, waiting = self.timer, dict(self.waiting)
        for operation, *_ in done:
            timer = timer.cancel(operation.id)
            del waiting[operation.id]
        return replace(self, timer=timer, waiting=waiting), tuple(done)
