"""A partition on a few brokers as a transition system: what may happen next, whatever the times.

Theory of operation. A state is a tuple: for each broker and for the controller a number made from
all that its engine state says, for each link the messages on their way, what may still be done (the
budgets), and what has been promised. The numbers are the same in every process. The engine's steps
are pure, so each is computed once and remembered: nearly always it is only looked up.

Time does not pass; what time does is an action. A clock is fresh or too old, and a follower's may
become too old at any moment (`late`, and then the leader checks its ISR). A session that is over is
noticed when it suits the search, all of them together; so with a parked fetch, of which the oldest
expires first, and with a request that has no answer on its way. So a schedule may need times that
no cluster has, with three replicas above all: `schedule.py` plays it under the real clock. What is
left out: timeouts of requests that are still on their way, and, up to 0.10.1, the clocks of
followers that another broker leads. What no rule reads is not part of a state: request numbers but
for which is whose, metadata before KRaft, announcements of ISR changes.

As in `cluster.py`, messages to a broker that dies are lost, and up to 2.6 ZooKeeper answers within
the step. A broker whose session ends while it lives is cut off from the controller until it
registers again. One that halts stays down.

Brokers are not symmetric: elections go by the order of the assignment.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from isrlab.engine import broker as broker_machine
from isrlab.engine import controller as controller_machine
from isrlab.engine import messages as m
from isrlab.engine import safety
from isrlab.engine.choices import ClockReset
from isrlab.engine.controller import Controller
from isrlab.engine.frozen import replace
from isrlab.engine.kraft import NoReplicaError
from isrlab.engine.log import Log
from isrlab.engine.model import NO_LEADER, Broker, Follower, Leader
from isrlab.engine.partition import PartitionState
from isrlab.search.known import (
    NOW_MS,
    OLD_MS,
    Known,
    Late,
    Promised,
    State,
    Stopped,
    aged,
    number_of,
)  # fmt: skip
from isrlab.world.cluster import Cluster

KINDS = (  # what has a budget, in the order of a state's
    "produces", "acks_all", "crashes", "powers", "flushes", "shutdowns", "losses", "lags",
    "fences", "elections", "uncleans", "reassigns", "failovers", "checkpoints",
)  # fmt: skip
_RAW = 1 << 60  # numbers of requests above it are not renamed yet
_HALTS, _ASKS_ZOOKEEPER = -1, -2
_MOST_STEPS = 1_000  # of an exchange that is played to its end


class Space(Known):
    """See above. It starts where `cluster` is, once its messages have arrived."""

    promises = tuple(safety.PROPERTIES)

    def __init__(
        self, cluster: Cluster, budgets: dict[str, int], extra: Iterable[int] = (),
        prompt: bool = False,
    ) -> None:  # fmt: skip
        cluster.stabilize()
        super().__init__(cluster, tuple(b for b in extra if b not in cluster.replicas))
        self._steps: dict[tuple[int, int], Any] = {}
        self._controller_steps: dict[tuple[int, int], Any] = {}
        self._promised: dict[tuple[int, Any], int] = {}
        self._wrong: dict[Any, int] = {}
        self._processes: dict[Any, Any] = {}
        self._plans: dict[tuple[int, ...], Any] = {}
        self.ask_again = self._intern(m.RetryAlterPartition())
        self._asked = self._computed = 0
        self.ends = {slot: pair for pair, slot in self.links.items()}
        self._to = [[s for s, pair in self.ends.items() if pair[1] == b] for b in self.ids]
        self.budget = self.n + 1 + len(self.links)
        self.promised = self.budget + 1
        of_controller = [slot for pair, slot in self.links.items() if m.CONTROLLER in pair]
        self.prompt = frozenset(of_controller if prompt else ())
        self._arriving: list[tuple[int, int]] | None = None  # what is delivered within the action
        self._soon = self.prompt
        self.produced = len(cluster.requests)
        self.total = budgets.get("produces", 0) + budgets.get("acks_all", 0)
        self.remembers = self.version.clock_reset == ClockReset.NEVER
        self.moves = [
            (("deliver", *self.ends[slot]), slot, self.slots[self.ends[slot][1]])
            for slot in self.ends
        ]
        self.can_lose = {
            slot: ("lose", *ends) for slot, ends in self.ends.items() if ends[0] != m.CONTROLLER
        }
        self.first = self._first(cluster, tuple(budgets.get(kind, 0) for kind in KINDS))

    def _first(self, cluster: Cluster, budgets: tuple[int, ...]) -> State:
        state: list[Any] = [()] * (self.promised + 1)
        for i, number in enumerate(self.ids):
            broker = cluster.brokers.get(number)
            if broker is not None:
                state[i] = self._intern(self._canonical(self._clocked(broker, cluster), ())[0])
                continue
            is_new = number not in cluster.disks
            log = Log() if is_new else cluster.disks[number]
            epoch, was_clean = cluster.epochs.get(number, 0), number in cluster.clean
            state[i] = self._intern(Stopped(number, log, epoch, was_clean, False, is_new))
        state[self.n] = self._intern(cluster.controller)
        state[self.budget] = budgets
        observer = cluster.observer
        promised = Promised(
            tuple(sorted(observer.committed.items())),
            tuple(sorted(observer.acknowledged.items())),
            tuple(sorted(observer.disks_lost)),
        )
        state[self.promised] = self._intern(promised)
        return tuple(state)

    def _clocked(self, broker: Broker, cluster: Cluster) -> Broker:
        """Clocks that are fresh or too old, and requests by whose they are."""
        role = broker.role
        if isinstance(role, Follower):
            request = number_of(broker.broker_epoch, broker.leader_epoch, False)
            return replace(broker, role=replace(role, request=request))
        if not isinstance(role, Leader):
            return broker

        def clock(ms: int) -> int:
            is_old = cluster.now_ms - ms > self.settings.replica_lag_time_max_ms
            return ms and (OLD_MS if is_old else NOW_MS)

        remotes = tuple(
            replace(r, last_caught_up_time_ms=clock(r.last_caught_up_time_ms),
                    last_fetch_time_ms=clock(r.last_fetch_time_ms))
            for r in role.remotes
        )  # fmt: skip
        parked = []
        for each in role.parked:
            other = cluster.brokers.get(each.fetch.replica)
            epochs = (other.broker_epoch, other.leader_epoch) if other else (0, -1)
            fetch = replace(each.fetch, request=number_of(*epochs, False))
            parked.append(replace(each, fetch=fetch, deadline_ms=NOW_MS + fetch.max_wait_ms))
        return replace(broker, role=replace(role, remotes=remotes, parked=tuple(parked)))

    # Steps of the engine

    def counts(self) -> dict[str, int]:
        return {"steps": self._asked, "computed": self._computed}

    def _canonical(self, broker: Broker, outputs: tuple[m.Output, ...]) -> tuple[Broker, list[Any]]:
        role, unanswered = broker.role, broker.unanswered
        fetch, alter = (
            number_of(broker.broker_epoch, broker.leader_epoch, i) for i in (False, True)
        )
        if isinstance(role, Follower) and role.request > _RAW:
            role = replace(role, request=fetch)
        elif isinstance(role, Leader) and getattr(role.isr_state, "request", 0) > _RAW:
            role = replace(role, isr_state=replace(role.isr_state, request=alter))
        if unanswered is not None and unanswered.request > _RAW:
            unanswered = replace(unanswered, request=alter)
        broker = replace(
            broker, role=role, unanswered=unanswered, last_request=_RAW,
            metadata=broker.metadata if self.version.kraft else (),
            remembered=broker.remembered if self.remembers else (),
            last_isr_change_ms=0, last_isr_announcement_ms=0, has_unannounced_change=False,
        )  # fmt: skip
        sent: list[Any] = []
        for output in outputs:
            if isinstance(output, m.Halt):
                sent.append(output)
            elif isinstance(output, m.Send) and type(output.message) is not m.IsrChangeNotification:
                message = output.message
                if getattr(message, "request", 0) > _RAW:
                    number = alter if isinstance(message, m.AlterPartition) else fetch
                    message = replace(message, request=number)
                sent.append(m.Send(output.to, message))
        return broker, sent

    def _compute(self, number: int, message_number: int) -> Any:
        """(number of the broker after it, what it sends, what that promises)."""
        before, message = self.objects[number], self.objects[message_number]
        broker = before
        if isinstance(message, Late):
            broker, message = aged(before, message), m.ExpireIsr()
        after, outputs = broker_machine.step(broker, message, NOW_MS)
        after, sent = self._canonical(after, outputs)
        out, acknowledged = [], []
        for output in sent:
            if isinstance(output, m.Halt):
                out.append((_HALTS, 0))
            elif output.to == m.CLIENT:
                if not output.message.error:
                    request = output.message.request
                    is_own = isinstance(message, m.Produce) and message.request == request
                    acknowledged.append((request, message.acks if is_own else m.ACKS_ALL))
            elif output.to == m.CONTROLLER and self.version.writes_zookeeper:
                out.append((_ASKS_ZOOKEEPER, self._intern(output.message)))
            else:
                out.append((self.links[before.id, output.to], self._intern(output.message)))
        promised = (_committed(before, after), tuple(acknowledged), _went_back(before, after))
        return self._intern(after), tuple(out), promised if any(promised) else None

    def _step(self, state: list[Any], i: int, message: int) -> None:
        """One broker's step; it may write ZooKeeper, and is answered within it."""
        key = state[i], message
        result = self._steps.get(key)
        self._asked += 1
        if result is None:
            self._computed += 1
            result = self._steps[key] = self._compute(*key)
        state[i], out, promised = result
        if promised:
            self._promise(state, promised)
        for slot, sent in out:
            if slot >= 0:
                self._push(state, slot, sent)
            elif slot == _HALTS:
                self._stop(state, i, is_halted=True)
                return
            elif self._is_cut_off(state, i):
                self._step(state, i, self._intern(m.Disconnected(m.CONTROLLER)))
            else:
                self._tell(state, sent, i)

    def _tell(self, state: list[Any], message: int, asker: int = -1) -> None:
        """One step of the controller."""
        key = state[self.n], message
        result = self._controller_steps.get(key)
        if result is None:
            controller = self.objects[key[0]]
            try:
                step = controller_machine.step(controller, self.objects[message], NOW_MS)
            except NoReplicaError:
                step = controller, ()
            result = self._controller_steps[key] = self._controller_result(step)
        self._decide(state, result, asker)

    def _controller_result(self, step: controller_machine.ControllerStep) -> Any:
        controller, outputs = step
        out = []
        for output in outputs:
            message = output.message  # type: ignore[union-attr]
            to = output.to  # type: ignore[union-attr]
            if isinstance(message, m.UpdateMetadata):
                if not self.version.kraft:
                    continue
                message = m.UpdateMetadata(message.brokers)
            if self.version.writes_zookeeper and isinstance(message, m.AlterPartitionResponse):
                out.append((_ASKS_ZOOKEEPER, self._intern(message)))
            elif to != m.CLIENT:
                out.append((self.links[m.CONTROLLER, to], self._intern(message)))
        return self._intern(controller), tuple(out)

    def _decide(self, state: list[Any], result: Any, asker: int = -1) -> None:
        state[self.n], out = result
        for slot, message in out:
            if slot == _ASKS_ZOOKEEPER:
                self._step(state, asker, message)
            else:
                self._push(state, slot, message)

    def _push(self, state: list[Any], slot: int, message: int) -> None:
        source, target = self.ends[slot]
        if target and self._local(state[self.slots[target]]).is_dead:
            return
        if not target and self._is_cut_off(state, self.slots[source]):
            return
        if slot in self._soon and self._arriving is not None:
            self._arriving.append((slot, message))
            return
        is_metadata = not source and isinstance(self.objects[message], m.UpdateMetadata)
        if is_metadata and self._is_no_news(state, slot, message):
            return
        state[slot] = (*state[slot], message)

    def _is_no_news(self, state: list[Any], slot: int, message: int) -> bool:
        for other in reversed(state[slot]):
            if isinstance(self.objects[other], m.UpdateMetadata):
                return bool(other == message)
        broker = self.objects[state[self.slots[self.ends[slot][1]]]]
        return bool(broker.metadata == self.objects[message].brokers)

    def _drain(self, state: list[Any]) -> tuple[Any, ...]:
        """Deliver, in the order they were sent, what is to arrive within the action."""
        for _ in range(_MOST_STEPS):
            if not self._arriving:
                break
            slot, message = self._arriving.pop(0)
            self._arrive(state, slot, message)
        return tuple(state)

    def _arrive(self, state: list[Any], slot: int, message: int) -> None:
        target = self.ends[slot][1]
        if target == m.CONTROLLER:
            self._tell(state, message)
        elif not self._local(state[self.slots[target]]).is_dead:
            self._step(state, self.slots[target], message)

    def _promise(self, state: list[Any], news: Any) -> None:
        key = state[self.promised], news
        number = self._promised.get(key)
        if number is None:
            old = self.objects[key[0]]
            committed, acknowledged, went_back = news
            names = {f"m{request + 1}": acks for request, acks in acknowledged}
            new = Promised(
                tuple(sorted((dict(committed) | dict(old.committed)).items())),
                tuple(sorted((dict(old.acknowledged) | names).items())),
                old.disks_lost,
                old.went_back or went_back,
            )
            number = self._promised[key] = self._intern(new)
        state[self.promised] = number

    # Processes

    def _stop(self, state: list[Any], i: int, **how: Any) -> None:
        """The process is gone, and with it what was on its way to it."""
        key = state[i], *how.values()
        number = self._processes.get(key)
        if number is None:
            broker = self.objects[state[i]]
            what = {"log": broker.log, "broker_epoch": broker.broker_epoch + 1, **how}
            number = self._processes[key] = self._intern(Stopped(broker.id, **what))
        state[i] = number
        for slot in self._to[i]:
            state[slot] = ()

    def _start(self, state: list[Any], i: int) -> None:
        extra = (k for k in range(self.n) if self.ids[k] not in self.assigned)
        is_new = (getattr(self.objects[state[k]], "is_new", False) and k != i for k in extra)
        key = state[i], *is_new
        numbers = self._processes.get(key)
        if numbers is None:
            old = self.objects[key[0]]
            outside = [b for b in self.ids if b not in self.assigned]
            named = (b for b, unnamed in zip(outside, key[1:], strict=True) if not unnamed)
            idle = Broker(
                old.id, self.version, self.settings, (*self.assigned, *named), old.log,
                broker_epoch=old.broker_epoch,
            )  # fmt: skip
            broker, _ = self._canonical(*broker_machine.start(idle))
            registers = m.RegisterBroker(old.id, old.broker_epoch, old.was_clean)
            numbers = self._processes[key] = self._intern(broker), self._intern(registers)
        state[i], message = numbers
        self._tell(state, message)

    def _power(self, state: list[Any], i: int) -> None:
        broker = self.objects[state[i]]
        log = broker.log.after_power_loss()
        if log.log_end_offset < broker.log.log_end_offset:
            old = self.objects[state[self.promised]]
            lost = tuple(sorted({*old.disks_lost, broker.id}))
            state[self.promised] = self._intern(replace(old, disks_lost=lost))
        self._stop(state, i, log=log)

    def _shut_down(self, state: list[Any], i: int) -> None:
        """With all that it causes: nothing else is on its way, and nothing is when it has ended."""
        broker = self.objects[state[i]]
        state[i] = self._intern(replace(broker, is_shutting_down=True))
        self._soon = frozenset(self.ends)
        self._tell(state, self._intern(m.ControlledShutdown(broker.id)))
        self._drain(state)
        self._soon = self.prompt
        if self._local(state[i]).is_dead:
            return  # it has halted
        log = self.objects[state[i]].log.flush().checkpoint()
        self._stop(state, i, log=log, was_clean=True)
        self._expire(state, [i])

    def _expire(self, state: list[Any], those: list[int]) -> None:
        for i in those:
            expiries = self._controller(state[self.n])[0]
            if expiries[i]:
                self._tell(state, expiries[i])

    def _is_cut_off(self, state: list[Any] | tuple[Any, ...], i: int) -> bool:
        return not self._controller(state[self.n])[0][i]


def _committed(before: Broker, after: Broker) -> tuple[tuple[str, int], ...]:
    """What this step has committed, as `Observer` counts."""
    if not isinstance(after.role, Leader):
        return ()
    start = before.log.high_watermark if isinstance(before.role, Leader) else 0
    start, end = max(start, after.log.log_start_offset), after.log.high_watermark
    read = after.log.read(start, end) if start < end else ()
    return tuple((record.id, offset) for offset, record in enumerate(read, start))


def _went_back(before: Broker, after: Broker) -> bool:
    state = PartitionState((after.id,), NO_LEADER, ())
    controller = Controller(after.version, after.settings, state)
    view = safety.View({after.id: after}, {after.id: before}, controller)
    return safety.high_watermark_never_back(view) is not None
