"""The fleet's cell written for SimPy: a process for each fetcher thread, for producers, for expiry.

It is what one would write in an afternoon: processes that wait for timeouts and events, and plain
Python between them. The bookkeeping of a partition is that of the naive fleet; a fetch looks at
every partition it covers. Things of one millisecond are put in order by a fraction of it, so the
events are those of the kernel, row by row.
"""

from __future__ import annotations

import simpy
from naive_fleet import CHECKS_ONCE_PER_LAG_TIME, NaiveCell, work_until

_CONTROL, _APPEND, _FETCH, _TICK = 0.0, 0.1, 0.2, 0.9
_THREAD = 0.000_1  # threads come one after another


class SimpyCell(NaiveCell):
    """The same input as the naive fleet's; `run` goes from event to event, not from ms to ms.

    Left out: the pushed high watermark of 2.4 and 2.5, slow leaders, restarts, produces that time
    out.
    """

    def run(self, until_ms, first_tick_ms):
        """All rows, in the kernel's order of columns."""
        self.env = simpy.Environment()
        self.wanted = [None] * len(self.threads)  # what a parked fetch waits for
        self.covers = [self._covered(number) for number in range(len(self.threads))]
        self.env.process(self._produce())
        self.env.process(self._expire(first_tick_ms))
        for number in range(len(self.threads)):
            self.env.process(self._fetch(number))
        self.env.run(until_ms)
        return self.events

    def _covered(self, number):
        """(index, slot, partition, follower) of all that a thread reads."""
        return [
            (index, slot, partition, follower)
            for index, partition in enumerate(self.partitions)
            for slot, follower in enumerate(partition.followers)
            if follower.thread == number
        ]

    def _until(self, moment):
        return self.env.timeout(moment - self.env.now)

    def _produce(self):
        for now in sorted(self.arrivals):
            yield self._until(now + _APPEND)
            for index, records in self.arrivals[now]:
                self.produce(index, records, now)
                for follower in self.partitions[index].followers:
                    parked = self.wanted[follower.thread]
                    if parked is not None and not parked.triggered:
                        parked.succeed()

    def _expire(self, first_tick_ms):
        settings = self.settings
        period = max(1, settings["lag_ms"] // (1 if self.column in CHECKS_ONCE_PER_LAG_TIME else 2))
        now = first_tick_ms
        while True:
            yield self._until(now + _TICK)
            for index in range(len(self.partitions)):
                self.expire(index, now)
            now += period

    def _fetch(self, number):
        """One fetcher thread: fetch, perhaps wait, receive and write, for ever."""
        turn = _FETCH + number * _THREAD
        latency, wait = self.settings["latency_ms"], self.settings["wait_ms"]
        covered, now = self.covers[number], latency
        while True:
            yield self._until(now + turn)
            for index, slot, _, _ in covered:
                self.position(index, slot, now)
            if not any(f.end < p.end for _, _, p, f in covered):
                self.wanted[number] = self.env.event()
                yield self.wanted[number] | self._until(now + wait + turn)
                self.wanted[number] = None
                now = int(self.env.now)
                if self.env.now < now + turn:
                    yield self._until(now + turn)
            sent = self.fill([(f.turn, i, p, f) for i, _, p, f in covered])
            work = -(-sent * 1000 // self.settings["bytes_per_s"][number])
            now = work_until_next(now + latency, work, self.threads[number].stalls) + latency

    def send(self, now):
        """One request to the controller at a time."""
        if not self.in_flight and self.waiting:
            self.in_flight, self.waiting = self.waiting, []
            self.env.process(self._answer_of_controller(now + self.settings["commit_ms"]))

    def _answer_of_controller(self, now):
        self.answer_ms = now
        yield self._until(now + _CONTROL)
        self.controller(now)


def work_until_next(start, work, stalls):
    """The end of the work, without counting milliseconds where no stall is near."""
    if all(end <= start or begin > start + work for begin, end in stalls):
        return start + work
    return work_until(start, work, stalls)
