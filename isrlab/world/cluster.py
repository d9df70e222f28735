"""The clocked world around the engine: a queue, a network, and processes.

All events come from one queue, ordered by time and then by order of sending, so a run has no ties
and no randomness. A message for a broker goes through `engine.broker.step`, one for the controller
through `engine.controller.step`; their messages join the queue. An observer sees every step.

A `Cluster` is one partition. The partitions of a topic share a queue and a clock, and each fault of
a machine affects all of them: the last partition first, because the controller decides on each
of them by the state that partition 0 had before the fault.

Up to 2.6 a leader writes ISR changes into ZooKeeper and waits for the answer: those two messages
are delivered within the step. The clock starts at `START_MS` because Kafka's clocks use 0 for
"never".
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable
from operator import attrgetter

from isrlab.engine import broker as broker_machine
from isrlab.engine import controller as controller_machine
from isrlab.engine import messages as m
from isrlab.engine.controller import Controller
from isrlab.engine.frozen import SharedList, replace
from isrlab.engine.kraft import NoReplicaError
from isrlab.engine.log import Log
from isrlab.engine.model import NO_LEADER, Broker, Follower, Settings
from isrlab.engine.partition import PartitionState
from isrlab.engine.versions import KafkaVersion
from isrlab.world.frames import Envelope, Fault, Request
from isrlab.world.observer import Observer

START_MS = 1_000_000_000_000
MOST_STEPS = 20_000  # in one call; the longest call of the scenarios and notebooks takes 7,964
_REQUESTS = (m.Fetch, m.OffsetsForLeaderEpoch, m.ListOffsets, m.AlterPartition)
_ZOOKEEPER_TALK = (m.AlterPartition, m.AlterPartitionResponse)


class NotSettledError(RuntimeError):
    """After `MOST_STEPS` messages the cluster still had messages to deliver."""


class Topic:
    """The queue and the clock that the partitions of a topic share."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.queue = SharedList[Envelope]()
        self.partitions: list[Cluster] = []


class Cluster:
    """One partition on a few brokers, with a network that can be cut and brokers that can die."""

    def __init__(
        self,
        version: KafkaVersion | str,
        replicas: tuple[int, ...],
        leader: int | None = None,
        isr: tuple[int, ...] | None = None,
        latency_ms: int = 0,
        *,
        log_start_offset: int = 0,
        beside: Cluster | None = None,
        **settings: object,
    ) -> None:
        self.version = KafkaVersion.of(version)
        self.settings: Settings = (
            beside.settings if beside else Settings.of(self.version, **settings)
        )
        self.topic: Topic = beside.topic if beside else Topic()
        self.number, self.queue = len(self.topic.partitions), self.topic.queue
        self.topic.partitions.append(self)
        assigned = replicas
        replicas = tuple(dict.fromkeys((*replicas, *(beside.replicas if beside else ()))))
        self.replicas: tuple[int, ...] = replicas  # and every broker that a reassignment has named
        self.latency_ms: int = beside.latency_ms if beside else latency_ms
        self.brokers: dict[int, Broker] = {}
        self.disks: dict[int, Log] = {b: Log().restart_at(log_start_offset) for b in replicas}
        self.epochs: dict[int, int] = dict.fromkeys(replicas, 0)
        self.held: list[Envelope] = []  # messages that wait for paused brokers
        self.paused: dict[int, str] = {}  # broker -> "process" or "fetcher"
        self.cuts: set[frozenset[int]] = set()
        self.latencies: dict[frozenset[int], int] = {}
        self.out_of_reach: dict[int, int] = {}  # broker -> when the controller lost it, ms
        self.requests: list[Request] = []
        self.failed: dict[int, Log | None] = {}  # broker -> log there; None: directory removed
        self.clean: set[int] = set()  # brokers whose last shutdown left its clean-shutdown marker
        stored = PartitionState(assigned, leader or assigned[0], assigned if isr is None else isr)
        alive = tuple(m.BrokerInfo(b, 0) for b in sorted(replicas))
        self.controller = Controller(self.version, self.settings, stored, alive)
        self.observer = Observer(self)
        self.events, self.frames = self.observer.events, self.observer.frames
        self.violations = self.observer.violations
        self.observer.compare_stored(None)
        for number in replicas:  # all start together and learn which broker leads
            self.start_process(number)
        self.emit(m.CONTROLLER, controller_machine.metadata_orders(self.controller))
        self.emit(m.CONTROLLER, controller_machine.orders(self.controller))
        self.emit(m.CONTROLLER, controller_machine.tasks(self.controller))
        self.stabilize()

    # Time and delivery

    @property
    def now_ms(self) -> int:
        return self.topic.now_ms

    def stabilize(self) -> None:
        """Deliver until no message is in flight; only timers that fall due meanwhile fire."""
        self._deliver_while(lambda: any(not e.is_timer for e in self.queue))

    def advance(self, duration_ms: int) -> None:
        """Let time pass: timers fire and messages arrive when they are due."""
        until = self.now_ms + duration_ms
        self._deliver_while(lambda: bool(self.queue) and self.queue[0].due_ms <= until)
        self.topic.now_ms = until

    def _deliver_while(self, goes_on: Callable[[], bool]) -> None:
        delivered = list[Envelope]()
        for _ in range(MOST_STEPS):
            if not goes_on():
                return
            envelope = self.queue.pop(0)
            delivered.append(envelope)
            self.topic.partitions[envelope.partition]._deliver(envelope)
        kinds = Counter((e.source, e.target, type(e.message).__name__) for e in delivered)
        ((source, target, kind), count), *_ = kinds.most_common(1)
        ends = ["controller" if at == m.CONTROLLER else f"broker {at}" for at in (source, target)]
        where = f"a timer of {ends[0]}" if source == target else f"from {ends[0]} to {ends[1]}"
        raise NotSettledError(
            f"messages are still in flight after {MOST_STEPS:,} steps; {count:,} of these were "
            f"{kind}, {where}"
        )

    def on_link(self, source: int, target: int) -> list[Envelope]:
        """The messages in flight from one machine to another, in order."""
        on_link = (self.number, source, target)
        same = [e for e in self.queue if (e.partition, e.source, e.target) == on_link]
        return same if source != target else []

    def deliver(self, envelope: Envelope) -> None:
        """Deliver one chosen message now, before others that are due."""
        self.queue.remove(envelope)
        self._deliver(replace(envelope, due_ms=self.now_ms))

    def drop(self, envelope: Envelope) -> None:
        """Lose one message; the broker that waits for an answer notices."""
        self.queue.remove(envelope)
        self._lose(envelope)

    def tell(self, source: int, target: int, message: m.Message) -> None:
        """Deliver a message immediately, before anything in the queue."""
        self._deliver(Envelope(self.now_ms, source, target, message))

    def post(self, envelope: Envelope) -> None:
        if envelope.partition != self.number:
            envelope = replace(envelope, partition=self.number)
        bisect.insort(self.queue, envelope, key=attrgetter("due_ms"))  # behind others of that time

    def emit(self, source: int, outputs: tuple[m.Output, ...]) -> None:
        for output in outputs:
            if isinstance(output, m.Halt):
                for partition in reversed(self.topic.partitions):
                    partition.kill(source, f"halt: {output.reason}")
            elif isinstance(output, m.After):
                due_ms, process = self.now_ms + output.delay_ms, self.epochs.get(source)
                self.post(Envelope(due_ms, source, source, output.message, process))
            elif isinstance(output.message, m.ProduceResponse):
                self._answer(self.requests[output.message.request], output.message.error)
            elif output.to == m.CLIENT:  # the controller answers an operator
                self.observer.keep(Envelope(self.now_ms, source, m.CLIENT, output.message))
            elif self.version.writes_zookeeper and isinstance(output.message, _ZOOKEEPER_TALK):
                self.tell(source, output.to, output.message)
            else:
                link = frozenset((source, output.to))
                due_ms = self.now_ms + self.latencies.get(link, self.latency_ms)
                self.post(Envelope(due_ms, source, output.to, output.message))

    def is_cut(self, machine: int, other: int) -> bool:
        return frozenset((machine, other)) in self.cuts

    def _deliver(self, envelope: Envelope) -> None:
        self.topic.now_ms = max(self.now_ms, envelope.due_ms)
        target = envelope.target
        if envelope.is_timer and envelope.incarnation != self.epochs.get(target):
            return
        is_there = target == m.CONTROLLER or target in self.brokers
        if not is_there or self.is_cut(envelope.source, target):
            self._lose(envelope)
        elif target == m.CONTROLLER:
            self._step_controller(envelope)
        elif self._is_paused(envelope):
            self.held.append(envelope)
        else:
            self._step_broker(envelope)

    def _is_paused(self, envelope: Envelope) -> bool:
        """Whether a message waits: all for a paused process, a leader's for a paused fetcher."""
        paused = self.paused.get(envelope.target)
        if paused == "fetcher":
            role = self.brokers[envelope.target].role
            leader = role.leader if isinstance(role, Follower) else NO_LEADER
            from_leader = envelope.source == leader != NO_LEADER
            return from_leader or isinstance(envelope.message, m.RetryRequest)
        return paused == "process"

    def _lose(self, envelope: Envelope) -> None:
        """Lose a message: its connection breaks, which a waiting requester notices."""
        self.observer.keep(envelope, was_lost=True)
        requester, peer = envelope.source, envelope.target
        if not isinstance(envelope.message, _REQUESTS):
            requester, peer = peer, requester
        if requester in self.brokers and not isinstance(envelope.message, m.Disconnected):
            self._step_broker(Envelope(self.now_ms, requester, requester, m.Disconnected(peer)))

    # Steps

    def _step_broker(self, envelope: Envelope) -> None:
        before = self.brokers[envelope.target]
        after, outputs = broker_machine.step(before, envelope.message, self.now_ms)
        self.brokers[after.id] = after
        self.disks[after.id] = after.log
        self.observer.keep(envelope)
        self.observer.compare(before, after, envelope.message, outputs)
        if before is not after:
            self.observer.ask_safety(before)
        self.emit(after.id, outputs)

    def _step_controller(self, envelope: Envelope) -> None:
        message = envelope.message
        if isinstance(message, m.SessionExpired):
            silent_ms = self.now_ms - self.out_of_reach.get(message.broker, self.now_ms)
            if silent_ms < self.settings.session_timeout_ms:
                return
        partition_0 = len(self.topic.partitions[0].controller.replicas) if self.number else None
        controller = replace(self.controller, replicas_of_partition_0=partition_0)
        try:
            step = controller_machine.step(controller, message, self.now_ms)
        except NoReplicaError as error:
            step = self.controller, ()
            self.mark(m.CONTROLLER, f"fails: {error}")
        self.use_controller(step, envelope)

    def use_controller(self, step: controller_machine.ControllerStep, envelope: Envelope) -> None:
        """Apply a step of the controller, after a message or a fault."""
        before, (self.controller, outputs) = self.controller, step
        self.observer.keep(envelope)
        self.observer.compare_stored(before, envelope.message)
        self.emit(m.CONTROLLER, outputs)

    def mark(self, machine: int, text: str) -> None:
        """Record a fault of a machine as a step."""
        self.observer.keep(Envelope(self.now_ms, machine, machine, Fault(text)))

    # Clients

    def produce(self, broker: int, ids: tuple[str, ...], acks: int = m.ACKS_ALL) -> Request:
        """Send records to a broker as a client. The answer may come now, later, or never."""
        request = Request(broker, ids, acks, self.now_ms)
        self.requests.append(request)
        if broker not in self.brokers:
            self._answer(request, "NETWORK_EXCEPTION")
        elif self.paused.get(broker) == "process":
            self._answer(request, "REQUEST_TIMED_OUT")
        else:
            self.tell(m.CLIENT, broker, m.Produce(len(self.requests) - 1, ids, acks))
        return request

    def _answer(self, request: Request, error: str | None) -> None:
        """Give the client the result of its request."""
        request.error, waited_ms = error, self.now_ms - request.sent_ms
        detail = {"error": error} if error else {}
        detail["records"] = " ".join(request.ids)
        if not error:
            detail |= {"acks": str(request.acks), "latency_ms": str(waited_ms)}
            self.observer.acknowledged |= dict.fromkeys(request.ids, request.acks)
        kind = "produce_error" if error else "produce_ack"
        self.observer.note(kind, request.broker, detail=detail)

    # Processes and connections (`faults.py` builds its faults from these)

    def start_process(self, broker: int) -> None:
        """Start a broker process with what its disk has; it is not yet registered."""
        log, epoch = self.disks[broker], self.epochs[broker]
        idle = Broker(broker, self.version, self.settings, self.replicas, log, broker_epoch=epoch)
        self.brokers[broker], outputs = broker_machine.start(idle)
        self.emit(broker, outputs)
        self.observer.note("restart", broker, replica=broker)

    def stop_process(self, broker: int, how: str) -> None:
        """End the process; its log stays as it is on disk and in the page cache."""
        self.disks[broker] = self.brokers.pop(broker).log
        self.clean.discard(broker)
        self.paused.pop(broker, None)
        self.held = [e for e in self.held if e.target != broker]
        for order in self.on_link(m.CONTROLLER, broker):  # the next process will not receive them
            self.queue.remove(order)
        self.epochs[broker] += 1
        self.mark(broker, f"stops ({how})")
        self.observer.note("crash", broker, replica=broker, detail={"by": how})

    def kill(self, broker: int, how: str = "hard_shutdown") -> None:
        """Kill the process: its peers notice now, the controller later. Its log survives."""
        self.stop_process(broker, how)
        self.reset_connections(broker)
        self.lose_session(broker)

    def lose_session(self, broker: int, at_once: bool = False) -> None:
        """Let the controller lose a broker; it acts after the session timeout, or immediately."""
        timeout_ms = self.settings.session_timeout_ms
        self.out_of_reach.setdefault(broker, self.now_ms)
        for known in [b for b in self.controller.alive if b.id == broker]:
            expiry = m.SessionExpired(broker, known.broker_epoch)
            if at_once:
                self.out_of_reach[broker] = self.now_ms - timeout_ms
                self.tell(m.CONTROLLER, m.CONTROLLER, expiry)
            else:
                self.emit(m.CONTROLLER, (m.After(timeout_ms, expiry),))

    def reset_connections(self, broker: int) -> None:
        """Break the connections of peers that wait for this broker's answer."""
        for number, other in list(self.brokers.items()):
            is_waiting = isinstance(other.role, Follower) and other.role.leader == broker
            if number != broker and is_waiting and not self.is_cut(number, broker):
                self.post(Envelope(self.now_ms, broker, number, m.Disconnected(broker)))
