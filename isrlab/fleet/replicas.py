"""The state of every replica beyond its rows, for fleets whose leaders move.

Theory of operation. The kernel's rows lack parts of a broker: its log (the length, its own high
watermark and leader epochs; records are only counted), what it remembers of its followers, and its
incarnation. They also lack next states: a broker needs several rounds to find the offset at which
its log agrees with a new leader's. `ReplicaHistories` keeps all this as brokers of the engine. A
history is a list of (ms, broker): the state from that time on.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np

from isrlab.engine import broker as broker_machine
from isrlab.engine import messages as m
from isrlab.engine import reading, rules
from isrlab.engine.choices import EpochEntry
from isrlab.engine.frozen import replace
from isrlab.engine.log import LeaderEpochCache, Log
from isrlab.engine.model import NO_LEADER, Broker, Follower, Leader, RemoteReplica, Settings
from isrlab.fleet.cell_rows import BASE_MS, CellRows
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.kernel import state as s
from isrlab.fleet.layout import assignment
from isrlab.fleet.moments import Moment

MOST_ROUNDS = 10  # of finding where the logs diverge
BrokerHistory = list[tuple[int, Broker]]


def engine_settings(config: FleetConfig) -> Settings:
    """A fleet's settings in the engine's form."""
    return Settings.of(
        config.kafka,
        min_insync_replicas=config.min_insync_replicas,
        unclean_leader_election_enable=False,
        replica_lag_time_max_ms=config.lag_time_ms,
    )


class ReplicaHistories:
    """The histories of all replicas."""

    def __init__(self, config: FleetConfig, cell_rows: dict[int, CellRows]) -> None:
        self._config, self._cell_rows = config, cell_rows
        self._settings = engine_settings(config)
        self._replicas = assignment(config)
        self._histories: dict[tuple[int, int], BrokerHistory] = {}
        self._begun_ms: dict[tuple[int, int], int] = {}  # when a follower last started over
        self._sent: dict[int, tuple[m.Output, ...]] = {}  # by brokers that heard the latest order
        self._starts: dict[tuple[int, int], list[tuple[int, int, bool]]] = defaultdict(list)
        self._sent_back: dict[tuple[int, int], list[int]] = defaultdict(list)  # fenced fetches
        self._checkpoints: dict[tuple[int, int], int] = {}
        self.gone: set[int] = set()  # brokers without a process
        self.silent: set[int] = set()  # those, and brokers with stopped fetchers
        self.stopping: set[int] = set()
        self.incarnations: dict[int, int] = defaultdict(int)

    # The state of a replica

    def last(self, partition: int, broker: int) -> Broker:
        """A replica's newest state, which may be in the future."""
        return self._history(partition, broker)[-1][1]

    def at(self, partition: int, broker: int, now_ms: int) -> Broker:
        """A replica's state before the events of this millisecond."""
        history = self._history(partition, broker)
        return next((b for ms, b in reversed(history) if ms < now_ms), history[0][1])

    def _history(self, partition: int, broker: int) -> BrokerHistory:
        key = partition, broker
        if key not in self._histories:
            config, ids = self._config, tuple(self._replicas[partition].tolist())
            is_empty = broker == config.new_broker or broker not in ids
            end = 0 if is_empty else config.backlog_records
            is_led = broker == ids[0]
            entry = config.kafka.epoch_entry
            has_entry = end if entry == EpochEntry.ON_APPEND else entry and (is_led or end)
            epochs = LeaderEpochCache(((0, 0),) if has_entry else ())
            log = Log(range(end), 0, end, end, end, epochs)  # type: ignore[arg-type]
            fresh = tuple(RemoteReplica(i, last_caught_up_time_ms=BASE_MS) for i in ids)
            new = Broker(broker, config.kafka, self._settings, ids, log, remembered=fresh)
            self._histories[key] = [(-1, new)]
        return self._histories[key]

    def read(self, partition: int, leader: int, now_ms: int, heard_ms: int = 0) -> None:
        """Note the states of all replicas, now and after answers that arrive before `heard_ms`."""
        if leader == NO_LEADER:
            return
        rows = self._cell_rows[leader]
        row, before = rows.partition(partition), self.last(partition, leader)
        epochs, end = before.log.epochs, int(row["log_end_offset"])
        if end > row["epoch_start"]:
            epochs = epochs.assign(
                int(row["leader_epoch"]), int(row["epoch_start"]), before.version
            )
        log = _log(before.log, end, int(row["high_watermark"]), epochs)
        numbers = {b: self.incarnations[b] for b in rows.order(partition)}
        broker = replace(before, log=log, role=rows.role(partition, numbers))
        self._histories[partition, leader] = [(now_ms, broker)]
        for follower, place in rows.followers(partition):
            if follower not in self.silent:
                history = self._read_follower(partition, place, broker, now_ms)
                asks = history[-1][1] is self.last(partition, follower)  # where logs diverge
                sent_ms = rows.arrives_ms(place, now_ms) if heard_ms else s.NEVER_MS  # leader dies
                until_ms = sent_ms if asks else heard_ms
                comes = [(ms, after) for ms, after in history[1:] if ms < until_ms]
                self._histories[partition, follower] = [history[0], *comes]

    def _read_follower(
        self, partition: int, place: int, leader: Broker, now_ms: int
    ) -> BrokerHistory:
        """A follower's state, and its state once it has written the answer in flight."""
        rows = self._cell_rows[leader.id]
        row, thread = rows.state.followers[place], rows.thread_of(place)
        follower = rows.order(partition)[int(row["slot"])]
        last, role = self.last(partition, follower), reading.leader_of(leader)
        begun_ms = self._begun_ms.get((partition, follower), -1)
        numbers = leader.id, role.leader_epoch, role.partition_epoch, last.last_request
        if thread["fetch_ms"] < begun_ms and row["end"] == last.log.log_end_offset:
            before = self.at(partition, follower, now_ms)
            later = [each for each in self._history(partition, follower) if each[0] > now_ms]
            return [(now_ms, replace(before, role=Follower(*numbers))), *later]
        had_end, own, known = rows.state.carried[place].tolist()
        end, done_ms = int(row["end"]), int(thread["left_ms"])
        written = rules.follower_high_watermark(end, known)
        is_written = thread["is_parked"] == s.NOT_PARKED and done_ms < now_ms
        ends = [(now_ms, end, written if is_written else own)]
        if thread["is_parked"] == s.NOT_PARKED and not is_written:
            ends = [(now_ms, had_end, own), (done_ms, end, written)]
        return [
            (ms, replace(last, log=_grown(last, leader.log, *both), role=Follower(*numbers)))
            for ms, *both in ends
        ]

    def note_epoch(self, partition: int, leader: int, epoch: int, start: int) -> None:
        """Note an epoch that a leader has begun itself."""
        (ms, broker), log = self._history(partition, leader)[-1], self.last(partition, leader).log
        epochs = log.epochs.assign(epoch, start, broker.version)
        self._histories[partition, leader] = [
            (ms, replace(broker, log=replace(log, epochs=epochs)))
        ]

    # Processes

    def checkpoint(self, partition: int, broker: int) -> None:
        log = self.last(partition, broker).log
        self._checkpoints[partition, broker] = log.high_watermark

    def go(self, moment: Moment, partitions: list[int]) -> None:
        """End a process; its log stays."""
        broker = moment.broker
        for partition in partitions:
            before = self.at(partition, broker, moment.heard_ms)
            log, key = before.log, (partition, broker)
            checkpoint = self._checkpoints.pop(key, log.checkpointed_high_watermark)
            log = replace(log, checkpointed_high_watermark=checkpoint)
            log = log.flush().checkpoint() if moment.is_clean else log
            self._histories[key] = [(-1, replace(before, log=log))]
        self.gone.add(broker)
        self.silent.add(broker)
        self.incarnations[broker] += 1

    def start(self, broker: int, partitions: list[int], now_ms: int) -> None:
        """Start a new process on the logs of the former process."""
        for known in (self.gone, self.silent, self.stopping):
            known.discard(broker)
        for partition in partitions:
            old = self.last(partition, broker)
            new = Broker(
                *(broker, old.version, old.settings, old.replicas, old.log.load()),
                broker_epoch=self.incarnations[broker],
            )
            self._histories[partition, broker] = [(now_ms, new)]

    # Orders

    def obey(
        self, partition: int, order: m.LeaderAndIsr, hearers: frozenset[int],
        alive: tuple[m.BrokerInfo, ...], now_ms: int,
    ) -> None:  # fmt: skip
        """Let the brokers that hear an order obey it; `follow` will need the messages they send.

        Raising the high watermark is left to the kernel, which knows the waiting requests.
        """
        self._sent = {}
        for broker in hearers - self.gone:
            before = self.at(partition, broker, now_ms)
            before = replace(before, metadata=alive, is_shutting_down=broker in self.stopping)
            after, outputs = broker_machine.step(before, order, now_ms + BASE_MS)
            if isinstance(after.role, Leader):
                high_watermark = before.log.high_watermark
                after = replace(after, log=replace(after.log, high_watermark=high_watermark))
            role = after.role
            goes_on = isinstance(role, Follower) and not (outputs or role.is_waiting)
            history = self._history(partition, broker)
            later = [(ms, replace(after, log=b.log)) for ms, b in history if ms >= now_ms]
            self._histories[partition, broker] = [(now_ms, after), *(later if goes_on else [])]
            self._sent[broker] = outputs

    def delete(self, partition: int, leavers: frozenset[int], now_ms: int) -> None:
        """Delete the replicas of the brokers that have left the assignment."""
        for broker in leavers - self.gone:
            before = self.last(partition, broker)
            after, _ = broker_machine.step(before, m.StopReplica(deletes=True), now_ms + BASE_MS)
            self._histories[partition, broker] = [(now_ms, after)]

    def follow(self, partition: int, leader: int, is_new: bool, now_ms: int) -> None:
        """Set which followers of an installed leader start over, and at which offset."""
        cell_rows, of = self._cell_rows[leader], self.last(partition, leader)
        for broker, place in cell_rows.followers(partition):
            sent = [o for o in self._sent.get(broker, ()) if isinstance(o, m.Send)]
            if any(out.to == leader for out in sent):
                history, left_ms = self._first_fetch(partition, place, of, now_ms)
                self._histories[partition, broker] = history
                self._begun_ms[partition, broker] = now_ms
                cell_rows.set_end(place, history[-1][1].log)
                thread = int(cell_rows.state.followers[place]["thread"])
                self._starts[leader, thread].append((place, left_ms, is_new))
            elif is_new:
                cell_rows.set_end(place, self.last(partition, broker).log)
            elif broker in self.stopping and leader in self._sent:
                thread = int(cell_rows.state.followers[place]["thread"])
                self._sent_back[leader, thread].append(place)

    def _first_fetch(
        self, partition: int, place: int, leader: Broker, now_ms: int
    ) -> tuple[BrokerHistory, int]:
        """A follower's states until it can fetch, and when its first fetch leaves."""
        rows, at_ms = self._cell_rows[leader.id], now_ms
        follower = rows.order(partition)[int(rows.state.followers[place]["slot"])]
        broker, outputs = self.last(partition, follower), self._sent[follower]
        history = [(now_ms, broker)]
        for _ in range(MOST_ROUNDS):
            first = outputs[0] if outputs else m.Halt("")
            if isinstance(first, m.Halt):  # it waits for another order
                return history, s.NEVER_MS
            answer = first.message
            if isinstance(first, m.After):
                at_ms += first.delay_ms
            else:
                answer = _answer(leader, first.message, at_ms)
                if isinstance(first.message, m.Fetch) and not (answer.error or answer.diverging):
                    break
                back_ms = rows.arrives_ms(place, rows.arrives_ms(place, at_ms))
                at_ms = self._written_ms(rows, place, back_ms)
            broker, outputs = broker_machine.step(broker, answer, at_ms + BASE_MS)
            history.append((at_ms, broker))
        return history, at_ms

    def _written_ms(self, rows: CellRows, place: int, at_ms: int) -> int:
        """When a message that arrives at `at_ms` is handled, given the follower's stalls."""
        thread = rows.thread_of(place)
        for start, end, speed in rows.state.stalls[
            thread["stall_from"] : thread["stall_to"]
        ].tolist():
            if start <= at_ms < end and speed == 0:
                at_ms = end
        return at_ms

    def start_threads(self, now_ms: int) -> None:
        """Let threads fetch immediately if all their partitions start over, and answer fetches of a
        former epoch."""
        for (leader, _), rows in self._starts.items():
            cell_rows, place = self._cell_rows[leader], rows[0][0]
            thread = cell_rows.thread_of(place)
            is_idle = thread["next_ms"] == s.NEVER_MS and thread["is_sent_to"] != s.SENT_TO
            if is_idle or len(rows) >= thread["partitions"]:
                cell_rows.start(place, max(left_ms for _, left_ms, _ in rows))
                if now_ms < thread["down_until_ms"] < s.NEVER_MS:  # its first fetch comes later
                    thread["down_until_ms"] = thread["next_ms"]
            elif thread["is_parked"] and not all(is_new for *_, is_new in rows):
                cell_rows.make_due(place, now_ms)
        for (leader, _), places in self._sent_back.items():
            cell_rows = self._cell_rows[leader]
            thread, known = cell_rows.thread_of(places[0]), cell_rows.state.carried
            if self._config.kafka.fences_stale_leader_epoch and len(places) >= thread["partitions"]:
                if thread["is_parked"] or thread["left_ms"] >= now_ms:  # its answer is not written
                    cell_rows.state.followers["end"][places] = known[places, s.HAD_END]
                    known[places, s.TOLD_HIGH_WATERMARK] = known[places, s.OWN_HIGH_WATERMARK]
                cell_rows.stop(thread)
        self._starts.clear()
        self._sent_back.clear()

    def admit(self, broker: int, now_ms: int) -> None:
        """Let a broker join ISRs from its first fetch on."""
        for rows in self._cell_rows.values():
            for number in np.flatnonzero(np.equal(rows.cell.thread_brokers, broker)):
                thread = rows.state.threads[number]
                first_ms = now_ms if thread["next_ms"] == s.NEVER_MS else thread["next_ms"]
                thread["down_until_ms"] = first_ms


def _answer(leader: Broker, question: m.Message, now_ms: int) -> Any:
    if isinstance(question, m.Fetch):
        return reading.answer(leader, question)
    _, replies = broker_machine.step(leader, question, now_ms + BASE_MS)
    return replies[0].message  # type: ignore[union-attr]


def _log(before: Log, end: int, high_watermark: int, epochs: LeaderEpochCache) -> Log:
    """A log with counted records only."""
    grown = replace(before, records=range(end), epochs=epochs)
    return grown.with_high_watermark(high_watermark)


def _grown(broker: Broker, leader: Log, end: int, high_watermark: int) -> Log:
    """A follower's log, extended by its leader's records."""
    log, epochs = broker.log, broker.log.epochs
    starts = [*leader.epochs.entries, (0, leader.log_end_offset)]
    for (epoch, start), (_, after) in pairwise(starts):
        if max(start, log.log_end_offset) < min(after, end) and epoch != epochs.latest_epoch:
            epochs = epochs.assign(epoch, max(start, log.log_end_offset), broker.version)
    return _log(log, end, high_watermark, epochs)
