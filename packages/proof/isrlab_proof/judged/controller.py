"""The engine's KRaft controller, driven by the commands of a schedule."""

from typing import Any

from isrlab.engine import controller as machine
from isrlab.engine import messages as m
from isrlab.engine.frozen import replace
from isrlab.engine.kraft import NoReplicaError
from isrlab.engine.model import Settings
from isrlab.engine.partition import Controller, PartitionState
from isrlab.engine.versions import KafkaVersion
from isrlab_proof.judged.leader import Seen

BROKERS = (1, 2, 3, 4)
REPLICAS = (1, 2, 3)  # at first; 4 joins only by a reassignment


class ControllerPlayer:
    """The controller of a topic's partitions. All brokers are alive at first.

    `has_elr` false: the feature is off, in a release that has it. A command that names no
    partitions affects partition 0; one about a broker or the settings affects all.
    """

    def __init__(
        self,
        version: KafkaVersion,
        has_elr: bool = True,
        partitions: list[list[int]] | None = None,
        **settings: object,
    ) -> None:
        if not has_elr:
            version = version.with_(eligible_leader_replicas=False)
        alive = tuple(m.BrokerInfo(number, 0) for number in BROKERS)
        chosen = Settings.of(version, **settings)
        states = [PartitionState(tuple(r), r[0], tuple(r)) for r in partitions or [[*REPLICAS]]]
        self.controllers = [Controller(version, chosen, state, alive) for state in states]
        self.responses: list[str | None] = [None] * len(states)
        self.has_failed = False  # it has stepped down, and ignores all further commands
        self.epochs = dict.fromkeys(BROKERS, 0)
        self.stopped: list[int] = []  # brokers that have stopped, with a session that is not over

    @property
    def controller(self) -> Controller:
        """The controller with the stored state of partition 0."""
        return self.controllers[0]

    def do(self, name: str, *words: Any) -> None:
        self.responses = [None] * len(self.controllers)
        try:
            if not self.has_failed:
                getattr(self, name)(*words)
        except NoReplicaError:
            self.has_failed = True

    # The commands

    def register(self, broker: int, broker_epoch: int, was_clean: bool) -> None:
        """Register a new process of this broker, after the session of its former one."""
        if broker in self.stopped or self.controller.is_alive(broker):
            self.expire(broker)
        self.epochs[broker] = broker_epoch
        self._step(m.RegisterBroker(broker, broker_epoch, was_clean))

    def beat(self, broker: int) -> None:
        """A heartbeat of a process that may have lost its session."""
        if not self.controller.is_alive(broker):
            self._step(m.RegisterBroker(broker, self.epochs[broker], is_known=True))

    def expire(self, broker: int) -> None:
        """The sessions of this broker, and of those that have stopped before, run out."""
        for each in (*self.stopped, *[broker] * self.controller.is_alive(broker)):
            self._step(m.SessionExpired(each, self.epochs[each]))
        self.stopped = []

    def shut_down(self, broker: int) -> None:
        """A heartbeat that asks for it. A broker that leads nothing may stop immediately."""
        leads = any(each.leader == broker for each in self.controllers)
        if leads and broker in self.controller.available:
            self._step(m.ControlledShutdown(broker))
        elif not leads and self.controller.is_alive(broker):
            self._step(m.SessionExpired(broker, self.epochs[broker]))
            self.stopped += [broker] * self.controller.version.handles_shutdown_again

    def tick(self, task: str) -> None:
        """A periodic task: "balance" of leaders, or "unclean" elections."""
        self._step(m.ElectLeaders("preferred") if task == "balance" else m.ElectUncleanLeaders())
        self.responses = [None] * len(self.controllers)

    def fail_over(self) -> None:
        """Another controller takes over. It does not know who has stopped before."""
        self.controllers = [machine.fail_over(each, each.alive)[0] for each in self.controllers]
        self.stopped = []

    def reassign(self, target: list[int] | None, *partitions: int) -> None:
        """Ask for these replicas as an operator; None cancels a reassignment in progress."""
        wanted = None if target is None else tuple(target)
        self._step(m.AlterPartitionReassignments(wanted), *partitions or (0,))

    def configure(self, min_insync_replicas: int) -> None:
        """An operator sets the topic's min.insync.replicas; 0 stands for a change of the cluster's
        value, which does not affect the topic, because it has its own."""
        own = self.controller.settings.min_insync_replicas
        of_cluster = not min_insync_replicas
        self._step(m.IncrementalAlterConfigs(min_insync_replicas or own, of_cluster))

    def elect(self, kind: str, *partitions: int) -> None:
        self._step(m.ElectLeaders(kind), *partitions or (0,))

    def alter(self, broker: int, epochs: list[int], members: list[list[int]], *more: int) -> None:
        """Ask for an ISR as a leader. `epochs`: leader epoch, partition epoch; `members`: pairs of
        broker and broker epoch; `more`: whether the leader recovers (0 or 1), the partition."""
        is_recovering, partition = (*more, 0)[:2]
        isr = tuple(number for number, _ in members)
        known = tuple(broker_epoch for _, broker_epoch in members)
        self._step(
            m.AlterPartition(broker, 1, epochs[0], epochs[1], isr, known, bool(is_recovering)),
            partition,
        )

    def _step(self, message: m.Message, *partitions: int) -> None:
        """Pass the message to these partitions (default: all), with partition 0's former count."""
        replicas = len(self.controller.replicas)
        for number in partitions or range(len(self.controllers)):
            of_partition_0 = replicas if number else None
            before = replace(self.controllers[number], replicas_of_partition_0=of_partition_0)
            self.controllers[number], outputs = machine.step(before, message, 0)
            sent = [output.message for output in outputs if isinstance(output, m.Send)]
            errors = (answer.error or "NONE" for answer in sent if hasattr(answer, "error"))
            self.responses[number] = next(errors, None)

    # What is compared

    def seen(self) -> Seen:
        """The visible values by name; those of partition 1 have the prefix "p1 ", and so on."""
        if self.has_failed:
            return {"has_failed": True}
        shown = {"active": sorted(self.controller.available)}
        for number in range(len(self.controllers)):
            name = f"p{number} " if number else ""
            shown |= {f"{name}{key}": value for key, value in self._seen(number).items()}
        return shown

    def _seen(self, number: int) -> Seen:
        state = self.controllers[number].state
        plain = ("leader", "leader_epoch", "partition_epoch", "is_recovering")
        sets = ("adding", "removing", "isr", "elr", "last_known_elr")
        shown: Seen = {name: getattr(state, name) for name in plain}
        shown |= {name: sorted(getattr(state, name)) for name in sets}
        return shown | {"replicas": list(state.replicas), "response": self.responses[number]}
