"""A partition on a few brokers as a transition system, without times.

Theory of operation. The components of a state are the engine state of each broker and of the
controller, the messages on each link, the remaining budgets, and the promises. An action is a
sequence of transitions, each of one component: a message is taken off its link, a broker takes a
step, its messages are put on other links. The engine's steps are pure, so each is computed once and
remembered (`tables.py`); `enabled.py` has the enabled actions.

Why it is not the world of `isrlab.world`: that has a clock, so no state returns; and without tables
the search is more than 13 times slower, and a state takes 160 bytes in place of about 20. Actions
are the world's lines, and walks in the tests play each in both: `tests/proof/test_engine_space.py`.

Time does not pass; its effects are actions. A clock is fresh or expired, and a follower's may
expire at any moment (`late`, and then the leader checks its ISR). Sessions of dead brokers may end
at any moment, all of them together; likewise a parked fetch may expire, the oldest first, and a
request may be repeated if neither it nor its answer is in flight. So a schedule may need times that
no cluster has, especially with three replicas: `schedule.py` plays it under the real clock. Left
out: timeouts of requests still in flight, and, up to 0.10.1, the clocks that a broker keeps of
followers while another broker leads. State that no rule reads is dropped: request numbers (but not
whose they are), metadata before KRaft, announcements of ISR changes.

As in `cluster.py`, messages to a broker that dies are lost, and up to 2.6 ZooKeeper answers within
the step. A live broker whose session ends is cut off from the controller until it registers again.
A broker that halts stays down.

Brokers are not interchangeable: of the replicas that may lead, the first in the assignment is
elected, and dead brokers' sessions end in the order of the brokers. Records are named in the order
in which they are written, so renaming them would unite only states that differ in the order in
which two leaders wrote. Therefore every state is searched, and none stands for another.
"""

from collections.abc import Callable, Iterable, Sequence

from isrlab.engine import broker as broker_machine
from isrlab.engine import controller as controller_machine
from isrlab.engine import messages as m
from isrlab.engine import safety
from isrlab.engine.choices import ClockReset, LagClock
from isrlab.engine.controller import Controller
from isrlab.engine.frozen import replace
from isrlab.engine.kraft import NoReplicaError
from isrlab.engine.log import Log
from isrlab.engine.model import NO_LEADER, Broker, Follower, Leader
from isrlab.engine.partition import PartitionState
from isrlab.world.cluster import Cluster
from isrlab.world.observer import committed_by
from isrlab_proof.search import known
from isrlab_proof.search.known import NOW_MS, Machine, Promises, StaleClock, StoppedBroker
from isrlab_proof.search.tables import AtSlot, Component, Next, Read, Transition, Transitions

KINDS = (  # kinds of action with a budget, in the order of a state's budgets
    "produces", "acks_all", "crashes", "powers", "flushes", "shutdowns", "losses", "lags",
    "fences", "elections", "uncleans", "reassigns", "failovers", "checkpoints",
)  # fmt: skip
_RAW = 1 << 60  # request numbers above it are not renamed yet
Messages = tuple[m.Message, ...]  # on a link
Asked = m.Message | StaleClock  # of a broker


class Space:
    """The transition system; it starts from `cluster`, once its messages have arrived."""

    promises: Sequence[str] = tuple(safety.PROPERTIES)

    def __init__(
        self, cluster: Cluster, budgets: dict[str, int], extra: Iterable[int] = (),
        prompt: bool = False,
    ) -> None:  # fmt: skip
        cluster.stabilize()
        self.version, self.settings = cluster.version, cluster.settings
        self.assigned = cluster.replicas
        self.ids = (*sorted(cluster.replicas), *(b for b in extra if b not in cluster.replicas))
        self.n = len(self.ids)
        pairs = [(a, b) for a in self.ids for b in self.ids if a != b]
        pairs += [(m.CONTROLLER, b) for b in self.ids]
        if not self.version.writes_zookeeper:
            pairs += [(b, m.CONTROLLER) for b in self.ids]
        self.links = {pair: self.n + 1 + i for i, pair in enumerate(pairs)}
        self.slots = {b: i for i, b in enumerate(self.ids)} | {m.CONTROLLER: self.n}
        self.two_ways = self.version.lag_clock == LagClock.CAUGHT_UP_TO_PREVIOUS_FETCH
        self.budget = self.n + 1 + len(self.links)
        self.promised = self.budget + 1
        of_controller = [slot for pair, slot in self.links.items() if m.CONTROLLER in pair]
        self.prompt = frozenset(of_controller if prompt else ())
        self.produced = len(cluster.requests)
        self.total = budgets.get("produces", 0) + budgets.get("acks_all", 0)
        self.remembers = self.version.clock_reset == ClockReset.NEVER
        contexts: list[Read | None] = [None] * (self.promised + 1)
        for (source, target), slot in self.links.items():
            view = known.recipient if target else known.knows(source)
            contexts[slot] = Read(self.slots[target], view)
        self.contexts: Sequence[Read | None] = contexts
        self.ends: Transitions = tuple((i, ("stopped",)) for i in range(self.n))
        counts = tuple(budgets.get(kind, 0) for kind in KINDS)
        self.first: Sequence[Component] = self._first(cluster, counts)
        self.content = known.content

    def _first(self, cluster: Cluster, budgets: tuple[int, ...]) -> tuple[Component, ...]:
        state: list[Component] = [()] * (self.promised + 1)
        for i, number in enumerate(self.ids):
            broker = cluster.brokers.get(number)
            if broker is not None:
                state[i] = self._canonical(self._clocked(broker, cluster), ())[0]
                continue
            is_new = number not in cluster.disks
            log = Log() if is_new else cluster.disks[number]
            epoch, was_clean = cluster.epochs.get(number, 0), number in cluster.clean
            state[i] = StoppedBroker(number, log, epoch, was_clean, False, is_new)
        others = cluster.topic.partitions[: cluster.number]
        count = len(others[0].controller.replicas) if others else None
        state[self.n] = replace(cluster.controller, replicas_of_partition_0=count)
        state[self.budget] = budgets
        observer = cluster.observer
        committed = tuple(sorted(observer.committed.items()))
        acknowledged = tuple(sorted(observer.acknowledged.items()))
        disks_lost = tuple(sorted(observer.disks_lost))
        state[self.promised] = Promises(committed, acknowledged, disks_lost)
        return tuple(state)

    def _clocked(self, broker: Broker, cluster: Cluster) -> Broker:
        """A broker with clocks that are fresh or expired, and requests numbered by owner."""
        role = broker.role
        if isinstance(role, Follower):
            request = known.number_of(broker.broker_epoch, broker.leader_epoch, False)
            return replace(broker, role=replace(role, request=request))
        if not isinstance(role, Leader):
            return broker

        def clock(ms: int) -> int:
            is_old = cluster.now_ms - ms > self.settings.replica_lag_time_max_ms
            return ms and (known.OLD_MS if is_old else NOW_MS)

        remotes = tuple(
            replace(r, last_caught_up_time_ms=clock(r.last_caught_up_time_ms),
                    last_fetch_time_ms=clock(r.last_fetch_time_ms))
            for r in role.remotes
        )  # fmt: skip
        parked = []
        for each in role.parked:
            other = cluster.brokers.get(each.fetch.replica)
            epochs = (other.broker_epoch, other.leader_epoch) if other else (0, -1)
            fetch = replace(each.fetch, request=known.number_of(*epochs, False))
            parked.append(replace(each, fetch=fetch, deadline_ms=NOW_MS + fetch.max_wait_ms))
        return replace(broker, role=replace(role, remotes=remotes, parked=tuple(parked)))

    # Transitions of one component

    def transit(
        self, transition: Transition, component: Component, context: Component
    ) -> Next | None:
        name, *values = transition
        return TRANSITIONS[name](self, component, context, *values)

    def _take(self, queue: Messages, _: None) -> Next:
        return Next(queue[1:])

    def _clear(self, queue: Messages, _: None) -> Next:
        return Next(())

    def _spend(self, budgets: tuple[int, ...], _: None, kind: int) -> Next:
        return Next((*budgets[:kind], budgets[kind] - 1, *budgets[kind + 1 :]))

    def _push(
        self, queue: Messages, there: Component, ends: tuple[int, int], message: m.Message,
        soon: bool,
    ) -> Next:  # fmt: skip
        """Send a message if there is a connection; a prompt one is delivered within the action."""
        source, target = ends
        if there is None:
            return Next(queue)
        if soon or self.links[ends] in self.prompt:
            name = "tell" if target == m.CONTROLLER else "step"
            return Next(queue, last=((self.slots[target], (name, message, soon)),))
        if not source and isinstance(message, m.UpdateMetadata):
            news = [x for x in queue if isinstance(x, m.UpdateMetadata)]
            if message == news[-1] if news else message.brokers == there:
                return Next(queue)
        return Next((*queue, message))

    def _step(
        self, broker: Machine, _: None, message: Asked, soon: bool = False, changes: bool = False
    ) -> Next | None:
        """One step of a broker; None if it must change the broker (`changes`) and does not."""
        if isinstance(broker, StoppedBroker):
            return Next(broker)
        before = known.aged(broker, message) if isinstance(message, StaleClock) else broker
        asked = m.ExpireIsr() if isinstance(message, StaleClock) else message
        after, outputs = broker_machine.step(before, asked, NOW_MS)
        after, sent = self._canonical(after, outputs)
        if changes and after == broker:
            return None
        then: list[AtSlot] = []
        acknowledged = []
        for output in sent:
            if isinstance(output, m.Halt):
                then.append((self.slots[broker.id], ("crash", True)))
                break
            if output.to == m.CLIENT:
                if not output.message.error:
                    request = output.message.request
                    acks = m.ACKS_ALL
                    if isinstance(message, m.Produce) and message.request == request:
                        acks = message.acks
                    acknowledged.append((request, acks))
            elif output.to == m.CONTROLLER and self.version.writes_zookeeper:
                then.append((self.n, ("ask", output.message, broker.id, soon)))
            else:
                then.append(self._sent(broker.id, output, soon))
        promised = (committed_by(before, after), tuple(acknowledged), _went_back(before, after))
        if any(promised):
            then.insert(0, (self.promised, ("promise", *promised)))
        return Next(after, tuple(then))

    def _sent(self, source: int, output: m.Send, soon: bool) -> AtSlot:
        ends = source, output.to
        return self.links[ends], ("push", ends, output.message, soon)

    def _tell(self, old: Controller, _: None, message: m.Message, soon: bool = False) -> Next:
        """One step of the controller."""
        try:
            step = controller_machine.step(old, message, NOW_MS)
        except NoReplicaError:
            step = old, ()
        return self._decided(step, soon)

    def _ask(self, old: Controller, _: None, message: m.Message, broker: int, soon: bool) -> Next:
        """Let a broker write to ZooKeeper, which answers within the step."""
        if old.is_alive(broker):
            return self._tell(old, None, message, soon)
        gone = m.Disconnected(m.CONTROLLER)
        return Next(old, ((self.slots[broker], ("step", gone, soon)),))

    def _decided(self, step: controller_machine.ControllerStep, soon: bool) -> Next:
        controller, outputs = step
        then: list[AtSlot] = []
        for output in outputs:
            assert isinstance(output, m.Send)
            message, to = output.message, output.to
            if isinstance(message, m.UpdateMetadata):
                if not self.version.kraft:
                    continue
                output = m.Send(to, m.UpdateMetadata(message.brokers))
            if self.version.writes_zookeeper and isinstance(message, m.AlterPartitionResponse):
                then.append((self.slots[to], ("step", message, soon)))
            elif to != m.CLIENT:
                then.append(self._sent(m.CONTROLLER, output, soon))
        return Next(controller, tuple(then))

    def _expire(self, old: Controller, _: None, broker: int, must: bool = False) -> Next | None:
        """End the session of a broker, if it has one."""
        epochs = {info.id: info.broker_epoch for info in old.alive}
        if broker in epochs:
            return self._tell(old, None, m.SessionExpired(broker, epochs[broker]))
        return None if must else Next(old)

    def _elect(self, old: Controller, _: None, kind: str, preferred: int) -> Next | None:
        has_lead = preferred if kind == "preferred" else NO_LEADER
        if (old.leader == has_lead) != (kind == "unclean"):
            return None
        return self._tell(old, None, m.ElectLeaders(kind))

    def _fail_over(self, controller: Controller, _: None, live: tuple[int, ...]) -> Next:
        infos = [b for b in controller.alive if b.id in live]
        return self._decided(controller_machine.fail_over(controller, tuple(infos)), False)

    def _promise(
        self, old: Promises, _: None, committed: tuple[tuple[str, int], ...],
        acknowledged: tuple[tuple[int, int], ...], went_back: bool,
    ) -> Next:  # fmt: skip
        names = {f"m{request + 1}": acks for request, acks in acknowledged}
        new = Promises(
            tuple(sorted((dict(committed) | dict(old.committed)).items())),
            tuple(sorted((dict(old.acknowledged) | names).items())),
            old.disks_lost,
            old.went_back or went_back,
        )
        return Next(new)

    def _lose_disk(self, old: Promises, _: None, broker: int) -> Next:
        lost = tuple(sorted({*old.disks_lost, broker}))
        return Next(replace(old, disks_lost=lost))

    # Processes

    def _stop(
        self, broker: Broker, _: None, is_halted: bool = False, log: Log | None = None,
        was_clean: bool = False,
    ) -> Next:  # fmt: skip
        """End the process, and lose the messages to it."""
        kept, epoch = broker.log if log is None else log, broker.broker_epoch + 1
        to = [slot for (_, target), slot in self.links.items() if target == broker.id]
        stopped = StoppedBroker(broker.id, kept, epoch, was_clean, is_halted)
        return Next(stopped, tuple((slot, ("clear",)) for slot in to))

    def _lose_power(self, broker: Broker, _: None) -> Next:
        log = broker.log.after_power_loss()
        stopped, clears = self._stop(broker, None, log=log)[:2]
        if log.log_end_offset < broker.log.log_end_offset:
            clears = (self.promised, ("lose disk", broker.id)), *clears
        return Next(stopped, clears)

    def _flush(self, broker: Broker, _: None) -> Next:
        return Next(replace(broker, log=broker.log.flush()))

    def _stopping(self, broker: Broker, _: None) -> Next:
        """A clean shutdown with its consequences, while nothing else is in flight."""
        asks = "tell", m.ControlledShutdown(broker.id), True
        return Next(replace(broker, is_shutting_down=True), ((self.n, asks),))

    def _stopped(self, broker: Machine, _: None) -> Next:
        if isinstance(broker, StoppedBroker):
            return Next(broker)  # it has halted
        log = broker.log.flush().checkpoint()
        stopped, clears = self._stop(broker, None, log=log, was_clean=True)[:2]
        return Next(stopped, (*clears, (self.n, ("expire", broker.id))))

    def _start(self, old: StoppedBroker, _: None, named: tuple[int, ...]) -> Next:
        """Start a process; `named` are brokers that a reassignment has named."""
        idle = Broker(
            old.id, self.version, self.settings, (*self.assigned, *named), old.log,
            broker_epoch=old.broker_epoch,
        )  # fmt: skip
        broker = self._canonical(*broker_machine.start(idle))[0]
        registers = m.RegisterBroker(old.id, old.broker_epoch, old.was_clean)
        return Next(broker, ((self.n, ("tell", registers)),))

    def _canonical(
        self, broker: Broker, outputs: tuple[m.Output, ...]
    ) -> tuple[Broker, list[m.Send | m.Halt]]:
        role, unanswered = broker.role, broker.unanswered
        fetch = known.number_of(broker.broker_epoch, broker.leader_epoch, False)
        alter = known.number_of(broker.broker_epoch, broker.leader_epoch, True)
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
        sent: list[m.Send | m.Halt] = []
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


TRANSITIONS: dict[str, Callable[..., Next | None]] = {
    "take": Space._take, "clear": Space._clear, "spend": Space._spend, "push": Space._push,
    "step": Space._step, "tell": Space._tell, "ask": Space._ask, "expire": Space._expire,
    "elect": Space._elect, "fail over": Space._fail_over, "promise": Space._promise,
    "lose disk": Space._lose_disk, "crash": Space._stop,
    "lose power": Space._lose_power, "flush": Space._flush, "stopping": Space._stopping,
    "stopped": Space._stopped, "start": Space._start,
}  # fmt: skip


def _went_back(before: Broker, after: Broker) -> bool:
    if after.log.high_watermark >= before.log.high_watermark:
        return False  # most steps, quickly
    state = PartitionState((after.id,), NO_LEADER, ())
    controller = Controller(after.version, after.settings, state)
    view = safety.View({after.id: after}, {after.id: before}, controller)
    return safety.high_watermark_never_back(view) is not None
