"""The fleet's cell written for SimPy: a process for each fetcher thread, for producers, for expiry.

It is a straightforward model: processes that wait for timeouts and events, and plain Python between
them. The bookkeeping of a partition is that of the naive fleet; a fetch looks at every partition it
covers. Events in the same millisecond are ordered by a fraction of it, so that they match those of
the kernel, row by row.
"""

from __future__ import annotations

import simpy

from naive_fleet import CHECKS_ONCE_PER_LAG_TIME, COUNTS_FRESH_CLOCKS, NaiveCell, work_until

_CONTROL, _APPEND, _FETCH, _TICK = 0.0, 0.1, 0.2, 0.9
_THREAD = 0.000_1  # threads come one after another


class SimpyCell(NaiveCell):
    """A cell with the naive fleet's input; `run` goes from event to event, not from ms to ms.

    Left out: the pushed high watermark of 2.4 and 2.5, slow leaders, restarts, produces that time
    out.
    """

    def run(self, until_ms, first_tick_ms):
        """All rows, in the kernel's order of columns."""
        self.env = simpy.Environment()
        self.wanted = [None] * len(self.threads)  # the event that a parked fetch waits for
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
        """One fetcher thread: fetch, perhaps wait, receive and write, forever."""
        turn = _FETCH + number * _THREAD
        latency, wait = self.settings["latency_ms"], self.settings["wait_ms"]
        now = latency
        while True:
            yield self._until(now + turn)
            self.positions(number, now)
            if not any(f.end < p.end for _, _, p, f in self.looked_at(number)):
                self.wanted[number] = self.env.event()
                yield self.wanted[number] | self._until(now + wait + turn)
                self.wanted[number] = None
                now = int(self.env.now)
                if self.env.now < now + turn:
                    yield self._until(now + turn)
            rows = [(f.turn, i, p, f) for i, _, p, f in self.looked_at(number)]
            sent = self.fill(rows, now)
            work = -(-sent * 1000 // self.settings["bytes_per_s"][number])
            now = work_until_next(now + latency, work, self.threads[number].stalls) + latency

    def looked_at(self, number):
        """The rows that a fetch of this thread looks at."""
        return self.covers[number]

    def positions(self, number, now):
        """A fetch comes in, and the leader learns how far the thread is."""
        for index, slot, _, _ in self.looked_at(number):
            self.position(index, slot, now)

    def send(self, now):
        """One request to the controller at a time."""
        if not self.in_flight and self.waiting:
            self.in_flight, self.waiting = self.waiting, []
            self.env.process(self._answer_of_controller(now + self.settings["commit_ms"]))

    def _answer_of_controller(self, now):
        self.answer_ms = now
        yield self._until(now + _CONTROL)
        self.controller(now)


class RestingSimpyCell(SimpyCell):
    """A `SimpyCell` whose fetches pass over followers that have nothing new, as the kernel does.

    The clocks of a follower at rest are those of its thread until something happens to its
    partition.
    """

    def run(self, until_ms, first_tick_ms):
        covers = [self._covered(number) for number in range(len(self.threads))]
        self.places = {row[:2]: place for rows in covers for place, row in enumerate(rows)}
        self.awake = [set(range(len(rows))) for rows in covers]
        self.fetched = [0] * len(self.threads)
        return super().run(until_ms, first_tick_ms)

    def looked_at(self, number):
        return [self.covers[number][place] for place in sorted(self.awake[number])]

    def positions(self, number, now):
        looked_at = self.looked_at(number)
        self.partition_fetches += len(self.covers[number]) - len(looked_at)
        for index, slot, partition, _ in looked_at:
            self.position(index, slot, now)
            if self._is_quiet(partition, slot):
                self.awake[number].discard(self.places[index, slot])
        self.fetched[number] = now

    def _is_quiet(self, partition, slot):
        """Another fetch would change nothing but clocks."""
        is_member = slot in partition.isr and partition.wanted is None
        if not is_member or partition.followers[slot].seen != partition.end:
            return False
        is_whole = len(partition.isr) == len(partition.followers)
        by_isr = self.column not in COUNTS_FRESH_CLOCKS
        return by_isr or is_whole or partition.high_watermark == partition.end

    def append(self, index, records, sent, now):
        self.wake(index)
        super().append(index, records, sent, now)

    def expire(self, index, now):
        for slot, follower in enumerate(self.partitions[index].followers):
            if self.is_resting(index, slot):
                follower.clock = self.fetched[follower.thread]
        super().expire(index, now)

    def change(self, index, isr, kind, now):
        self.wake(index)
        super().change(index, isr, kind, now)

    def is_resting(self, index, slot):
        number = self.partitions[index].followers[slot].thread
        return self.places[index, slot] not in self.awake[number]

    def wake(self, index):
        partition = self.partitions[index]
        for slot, follower in enumerate(partition.followers):
            if self.is_resting(index, slot):
                now = self.fetched[follower.thread]
                follower.clock = follower.today = follower.fetched = follower.counted = now
                follower.leader_end = partition.end
                self.awake[follower.thread].add(self.places[index, slot])


def work_until_next(start, work, stalls):
    """The end of the work, without counting milliseconds where no stall is near."""
    if all(end <= start or begin > start + work for begin, end in stalls):
        return start + work
    return work_until(start, work, stalls)
