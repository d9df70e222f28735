"""A fleet whose leaders move: the kernel runs each cell between moments, the engine steps at them.

Theory of operation. Cells are independent until a broker is ordered to lead or to follow. So time
is divided at the moments of `moments.py`. Between moments the kernel runs each broker's cell, which
has a row for every partition that the broker could lead, empty unless it leads. At a moment the
controllers of the partitions take one step of the engine (`engine/controller.py`). For each
partition that changes, the rows are converted to the engine's brokers (`replicas.py`), every broker
that hears of it takes one step of the engine (`engine/broker.py`), and the result is converted back
to rows, perhaps in another cell. So the rules of elections, epochs, clocks and truncation exist
only once, in the engine.

The start of a reassignment is also a moment, and so is the ISR change that completes it
(`reassigning.py`). A cell has rows for all brokers that ever hold a replica; while a broker has
none, an empty row takes the place of its row.

Messages in flight at a moment: if a follower hears of a new leader, or of a new epoch in which it
starts over, an answer that it has not written is lost with its fetch. The follower finds out where
the logs diverge (`_first_fetch` in replicas.py), then fetches. A thread that already reads from
that leader adds the partition to its next fetch, or to the parked one; otherwise it starts
immediately. An ISR change in flight is refused, and blocks others until the refusal. Produces that
wait for the ISR fail (NOT_LEADER, or NO_BROKER if the leader has no process); producers know the
new leader immediately, and resend the missing records for `delivery_timeout_ms`. Without a leader a
produce fails and is held until there is one; acks=1 records only on the former leader are lost.

Left out: unclean elections, brokers that halt rather than truncate their log (they wait instead),
clients that learn of a leader late, controller failovers, and a min.insync.replicas above the
replication factor, which counts for more while a reassignment adds replicas.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import NamedTuple

import numpy as np

from isrlab.engine import controller as controller_machine
from isrlab.engine import kraft
from isrlab.engine import messages as m
from isrlab.engine.model import NO_LEADER
from isrlab.engine.partition import Controller, PartitionState
from isrlab.fleet import load, moments
from isrlab.fleet.cell import CellRun, cell, run_windows
from isrlab.fleet.cell_rows import mask, rows_at_start
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.kernel import log as kernel_log
from isrlab.fleet.kernel import state as s
from isrlab.fleet.layout import assignment, holders
from isrlab.fleet.moments import Moment, Turn
from isrlab.fleet.reassigning import Reassigning
from isrlab.fleet.replicas import ReplicaHistories, engine_settings

MOST_FORGOTTEN_MS = 1_000  # simulated and discarded when a reassignment completes
IMBALANCE = 0.1  # leader.imbalance.per.broker.percentage; KRaft elects whenever it can


class StoredChange(NamedTuple):
    """A decision of the controller about one partition, until all brokers have heard of it."""

    partition: int
    before: Controller
    after: Controller
    order: m.LeaderAndIsr | None
    hearers: frozenset[int]  # of the order
    leavers: frozenset[int]  # brokers that lose their replica


class MovingCluster:
    """A cluster: its cells, its controllers, and its brokers between runs of the cells."""

    def __init__(self, config: FleetConfig) -> None:
        self.config, self.now_ms = config, 0
        replicas = [tuple(row) for row in assignment(config).tolist()]
        brokers = sorted({*holders(config).ravel().tolist()} - {0})
        cells = {b: cell(config, b, every=True) for b in brokers}
        received = s.no_samples(config.brokers + 1)  # a follower's quota is for all leaders
        self.cell_rows = {b: rows_at_start(config, cells[b], received) for b in brokers}
        alive = tuple(m.BrokerInfo(b, 0) for b in range(1, config.brokers + 1))
        fixed = config.kafka, engine_settings(config)
        self.controllers = [
            Controller(*fixed, PartitionState(row, row[0], row), alive) for row in replicas
        ]
        self.leaders = np.array([row[0] for row in replicas])  # NO_LEADER: none
        self.known = ReplicaHistories(config, self.cell_rows)
        self._turns = moments.turns(config)
        self._reassigning = Reassigning(config, self.cell_rows, self.controllers)
        self.former = self.leaders.copy()  # the latest leaders
        self._decided: dict[Moment, list[StoredChange]] = {}
        self._late: dict[int, tuple[int, tuple[int, ...]]] = {}  # ISRs requested by dead leaders
        self._waiting: dict[int, list[tuple[int, ...]]] = defaultdict(list)  # where no broker leads

    # Time

    def run(self) -> Iterator[int]:
        """Run the cluster a window of load at a time; yields the simulated time, in ms."""
        for until_ms, arrivals in load.windows(self.config, np.arange(self.config.partitions)):
            while (self._turns and self._turns[0].at_ms < until_ms) or self.now_ms < until_ms:
                turn_ms = self._turns[0].at_ms if self._turns else until_ms
                arrivals = self._advance(arrivals, min(until_ms, turn_ms))
                if self._turns and self._turns[0].at_ms == self.now_ms < until_ms:
                    self._take(self._turns.pop(0))
            yield until_ms

    def _advance(self, arrivals: s.Arrivals, until_ms: int) -> s.Arrivals:
        """Run every cell up to `until_ms`; returns the later batches.

        While partitions are reassigned, cells run only up to the request for an ISR change that
        completes a reassignment; anything beyond it is discarded.
        """
        if self._reassigning.going:
            until_ms = min(until_ms, self.now_ms + MOST_FORGOTTEN_MS)
        split = int(np.searchsorted(arrivals.ts_ms, until_ms))
        due = s.Arrivals._make(column[:split] for column in arrivals)
        if until_ms > self.now_ms:
            leaders = self.leaders[due.partition]
            ran = self._ran(due, until_ms)
            last = sorted(
                change
                for broker, (_, events) in ran.items()
                for change in self._reassigning.last_changes(broker, events)
            )
            if last and last[0].asked_ms + 1 < until_ms:
                return self._advance(arrivals, last[0].asked_ms + 1)
            for broker, (state, events) in ran.items():
                self.cell_rows[broker].state = state
                self._keep(broker, events)
            self._refuse(*(column[leaders == NO_LEADER].tolist() for column in due))
            self.now_ms = until_ms
            for change in last:
                self._plan(self._reassigning.turns(change, until_ms))
        return s.Arrivals._make(column[split:] for column in arrivals)

    def _ran(self, due: s.Arrivals, until_ms: int) -> dict[int, tuple[s.State, s.Ints]]:
        """The states and events of the cells (in a reassignment, of copies), run to `until_ms`."""
        states = [rows.state for rows in self.cell_rows.values()]
        shares = [rows.share(due, self.leaders) for rows in self.cell_rows.values()]
        states = deepcopy(states) if self._reassigning.going else states
        ran = run_windows(states, shares, until_ms, self.config.throttle_bytes_per_s > 0)
        return dict(zip(self.cell_rows, ran, strict=True))

    def _plan(self, turns: Iterable[Turn]) -> None:
        new = [turn for turn in turns if turn not in self._turns]
        self._turns = moments.in_order([*self._turns, *new])

    def _keep(self, broker: int, events: s.Ints) -> None:
        """Keep the kernel's events, and apply the stored changes to the controllers."""
        rows, refused = self.cell_rows[broker], []
        for index in np.flatnonzero(events[:, s.KIND] == s.COMMIT).tolist():
            row = events[index].tolist()
            partition = int(rows.cell.partitions[row[s.PARTITION]])
            before = self.controllers[partition]
            if self._reassigning.refuses(rows, partition):
                refused.append(index)
                continue
            after = self._store(partition, rows.members(row[s.PARTITION], row[s.ISR_AFTER]))
            if after.leader_epoch > before.leader_epoch:
                self.known.note_epoch(partition, broker, after.leader_epoch, row[s.LOG_END_OFFSET])
        rows.events.append(np.delete(events, refused, axis=0))

    def _store(self, partition: int, isr: tuple[int, ...]) -> Controller:
        """Store a leader's ISR change."""
        before = self.controllers[partition]
        after = kraft.change(before, isr=isr) if before.version.kraft else before.storing(isr=isr)
        self.controllers[partition] = after
        return after

    def _refuse(self, times: list[int], partitions: list[int], records: list[int]) -> None:
        """Refuse batches for partitions without a leader; keep them if producers retry."""
        for ts_ms, partition, count in zip(times, partitions, records, strict=True):
            former = int(self.former[partition])
            kind = s.NO_BROKER if former in self.known.gone else s.NOT_LEADER
            self.cell_rows[former].add_event(partition, (ts_ms, kind))
            if self.config.delivery_timeout_ms:
                self._waiting[partition].append((ts_ms, ts_ms, count, 0))

    # Moments

    def _take(self, turn: Turn) -> None:
        moment = turn.moment
        if moment.kind == moments.GONE:
            self._go(moment)
        elif moment.kind == moments.CHECKPOINT:
            for partition in self._of(moment.broker):
                self.known.read(partition, self._leader(partition), self.now_ms)
                self.known.checkpoint(partition, moment.broker)
        elif turn.stage == moments.ASKED:
            if not self.config.kafka.kraft:
                self.known.stopping.add(moment.broker)  # it starts no more fetchers
        elif turn.stage == moments.DECIDED:
            self._decide(moment)
        else:
            self._hear(moment)

    def _of(self, broker: int) -> list[int]:
        rows = self.cell_rows.get(broker)
        return rows.cell.partitions.tolist() if rows else []

    def _leader(self, partition: int) -> int:
        return int(self.leaders[partition])

    def _decide(self, moment: Moment) -> None:
        """Let the controller decide; up to 2.6 leaders that have not heard of it cannot change the
        ISR."""
        changes = self._decided[moment] = []
        for partition, message in self._questions(moment):
            if self._late.get(partition, (self.now_ms,))[0] < self.now_ms:
                self._store(partition, self._late.pop(partition)[1])
            before = self.controllers[partition]
            after, outputs = controller_machine.step(before, message, self.now_ms)
            self.controllers[partition] = after
            sent = [(out.to, out.message) for out in outputs if isinstance(out, m.Send)]
            orders = {to: order for to, order in sent if isinstance(order, m.LeaderAndIsr)}
            order = next(reversed(orders.values()), None)
            leavers = frozenset(to for to, order in sent if order == m.StopReplica(deletes=True))
            if orders or leavers or moment.broker in before.replicas:
                hearers = frozenset(orders)
                changes.append(StoredChange(partition, before, after, order, hearers, leavers))
            if self._reassigning.note(partition, after):
                at_ms = self.now_ms + moments.order_ms(self.config)
                self._plan(moments.turns_of(self.config, Moment(at_ms, moments.REASSIGN, 0)))
            if after.state != before.state:
                self._late.pop(partition, None)  # too late: refused
                if self._leader(partition) != NO_LEADER:
                    self.cell_rows[self._leader(partition)].partition(partition)["is_frozen"] = 1

    def _questions(self, moment: Moment) -> Iterator[tuple[int, m.Message]]:
        """The partitions that the moment concerns, and the message to the controller of each."""
        broker, number = moment.broker, self.known.incarnations[moment.broker]
        message: m.Message = m.ElectLeaders("preferred")
        chosen = np.ones(self.config.partitions, dtype=bool)
        if moment.kind == moments.STOP:
            message = m.ControlledShutdown(broker)
        elif moment.kind == moments.EXPIRED:
            message = m.SessionExpired(broker, number - 1)
        elif moment.kind == moments.UP:
            message = m.RegisterBroker(broker, number, moment.is_clean)
        elif moment.kind == moments.REBALANCE and not self.config.kafka.kraft:
            preferred = np.array([controller.replicas[0] for controller in self.controllers])
            away = np.bincount(preferred, self.leaders != preferred)
            chosen = (away > IMBALANCE * np.bincount(preferred))[preferred]
        elif moment.kind == moments.REASSIGN:
            yield from self._reassigning.questions()
            return
        elif moment.kind == moments.MOVED:
            due_ms, asked = self._late.get(moment.partition, (0, ()))
            late = asked if due_ms == moment.heard_ms else ()  # from a leader that has died since
            leader = int((self.former if late else self.leaders)[moment.partition])
            yield from self._reassigning.question(leader, moment, late)
            return
        for partition in np.flatnonzero(chosen).tolist():
            yield partition, message

    def _hear(self, moment: Moment) -> None:
        """Let every broker hear of the decision."""
        changes, broker, now_ms = self._decided.pop(moment), moment.broker, self.now_ms
        for change in changes:
            self.known.read(change.partition, self._leader(change.partition), now_ms)
        if moment.kind == moments.UP:
            self.known.start(broker, self._of(broker), now_ms)
            self._restart_clock(broker)
        elif moment.kind in (moments.STOP, moments.EXPIRED) and self.config.kafka.eligibility:
            self._mark(broker, "down_until_ms", s.NEVER_MS)
            for partition in self._of(broker):
                leader = self._leader(partition)
                if leader not in (NO_LEADER, broker):
                    self.cell_rows[leader].refuse(partition, broker)
        for change in changes:
            if change.order is not None:
                self._obey(change, change.order)
            self.known.delete(change.partition, change.leavers, now_ms)
        if moment.kind == moments.STOP and not self.config.kafka.kraft:
            self.known.silent.add(broker)
        self.known.start_threads(now_ms)
        if moment.kind == moments.UP:
            self.known.admit(broker, now_ms)

    def _restart_clock(self, broker: int) -> None:
        if broker in self.cell_rows:
            process_ms = self.now_ms - moments.order_ms(self.config)
            self.cell_rows[broker].restart(process_ms + self.config.isr_check_period_ms)
            self._mark(broker, "gone_until_ms", 0)
            self._mark(broker, "throttled_bytes", 0)

    def _mark(self, broker: int, column: str, until_ms: int) -> None:
        """Set a column of all threads of a broker."""
        for rows in self.cell_rows.values():
            rows.state.threads[column][np.equal(rows.cell.thread_brokers, broker)] = until_ms

    def _go(self, moment: Moment) -> None:
        """Take out a stopped process: the partitions that it led have no leader for a while."""
        broker = moment.broker
        for partition in self._of(broker):
            leader = self._leader(partition)
            heard_ms = self._leave_request(partition) if leader == broker else 0
            self.known.read(partition, leader, self.now_ms, heard_ms)
            if leader == broker:
                self._release(partition, s.NO_BROKER)
        self.known.go(moment, self._of(broker))
        self._mark(broker, "gone_until_ms", s.NEVER_MS)

    def _leave_request(self, partition: int) -> int:
        """Keep a dying leader's ISR change in flight, which the controller will store.

        Returns the ms at which followers hear of its epoch and drop answers, or `NEVER_MS`.
        """
        rows = self.cell_rows[self._leader(partition)]
        row = rows.partition(partition)
        sent_ms = int(row["due_ms"]) - self.config.isr_commit_ms
        if row["pending"] == s.PENDING and sent_ms < self.now_ms:
            isr = rows.members(int(rows.place_of[partition]), int(row["pending_isr"]))
            self._late[partition] = int(row["due_ms"]), isr
            if rows.state.rules.shrink_raises_leader_epoch and row["isr"] & ~row["pending_isr"]:
                return int(row["due_ms"])
        return s.NEVER_MS

    def _obey(self, change: StoredChange, order: m.LeaderAndIsr) -> None:
        """Let the brokers that get an order obey it: they lead or follow, and begin to act."""
        partition, now_ms, former = change.partition, self.now_ms, self._leader(change.partition)
        leader = order.leader
        self.known.obey(partition, order, change.hearers, change.after.alive, now_ms)
        if leader != former and former != NO_LEADER:
            self._release(partition, s.NOT_LEADER)
        if leader == NO_LEADER and former != NO_LEADER:
            self.cell_rows[int(self.former[partition])].add_event(partition, (now_ms, s.OFFLINE))
        if leader == NO_LEADER or leader in self.known.gone:
            return
        rows = self.cell_rows[leader]
        frozen = int(self.controllers[partition].partition_epoch != order.partition_epoch)
        if leader in change.hearers:
            is_new = leader != former
            rows.install(partition, self.known.last(partition, leader), is_new, now_ms)
            rows.partition(partition)["is_frozen"] = frozen
            self.leaders[partition] = self.former[partition] = leader
            self._say(change, leader, is_new)
        self.known.follow(partition, leader, leader != former, now_ms)
        if leader in change.hearers:
            self._resume(partition, leader)

    def _say(self, change: StoredChange, leader: int, is_new: bool) -> None:
        """Add the events of a new ISR, and of a new leader."""
        rows, state = self.cell_rows[leader], change.after.state
        row, isr = rows.partition(change.partition), change.before.isr
        before, after = (mask(rows.order(change.partition), ids) for ids in (isr, state.isr))
        ends = int(row["high_watermark"]), int(row["log_end_offset"])
        rest = (before ^ after, before, after, *ends, state.leader_epoch, state.partition_epoch)
        if set(isr) != set(state.isr):
            rows.add_event(change.partition, (self.now_ms, s.REMOVAL, *rest))
        if is_new:
            rows.add_event(change.partition, (self.now_ms, s.LEADER, *rest))

    # Producers

    def _release(self, partition: int, kind: int) -> None:
        """Let a leader resign: its waiting produces fail; keep them if producers retry."""
        leader = self._leader(partition)
        rows = self.cell_rows[leader]
        retries = self.config.delivery_timeout_ms > 0
        waiting, held = rows.take_out(partition)
        timeout_ms = self.config.request_timeout_ms
        kept = []
        for sent_ms, tried_ms, required in waiting:
            is_late = tried_ms + timeout_ms < self.now_ms + (kind == s.NOT_LEADER)
            row = (self.now_ms, s.TIMED_OUT if is_late else kind, 0, 0, 0, -1, required)
            rows.add_event(partition, row)
            if not is_late:
                kept.append((sent_ms, self.now_ms, 0, required))
        if retries:
            self._waiting[partition] += kept + [(*row, 0) for row in held]
        self.leaders[partition] = NO_LEADER

    def _resume(self, partition: int, leader: int) -> None:
        """Give a new leader the produces that are sent again, and update its high watermark.

        Records sent before are in the log, or are appended again if they are missing.
        """
        rows, row = self.cell_rows[leader], self.cell_rows[leader].partition(partition)
        end, waiting, held = int(row["log_end_offset"]), [], []
        for sent_ms, tried_ms, records, required in self._waiting.pop(partition, []):
            if 0 < required <= end:
                waiting.append((sent_ms, self.now_ms, required))
            elif required:
                held.append((sent_ms, tried_ms, required - end))
                end = required
            else:
                held.append((sent_ms, tried_ms, records))
        rows.put_produces(partition, waiting, held)
        kernel_log.settle(rows.state, self.now_ms, int(rows.place_of[partition]))
        self._keep(leader, s.taken(rows.state))


def move(config: FleetConfig) -> Iterator[CellRun]:
    """Run a fleet whose leaders move; yields the results of each cell."""
    cluster = MovingCluster(config)
    for _ in cluster.run():
        pass
    for rows in cluster.cell_rows.values():
        yield rows.run_so_far(cluster.now_ms)
