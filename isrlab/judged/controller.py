"""The engine's KRaft controller, as a schedule speaks to it."""

from __future__ import annotations

from typing import Any

from isrlab.engine import controller as machine
from isrlab.engine import messages as m
from isrlab.engine.model import Settings
from isrlab.engine.partition import Controller, PartitionState
from isrlab.engine.versions import KafkaVersion
from isrlab.judged.leader import Seen

BROKERS = (1, 2, 3, 4)
REPLICAS = (1, 2, 3)  # 4 never holds the partition


class ControllerPlayer:
    """The controller of one partition, its brokers all alive at first.

    `has_elr` false: a cluster whose feature is off, in a release that has it.
    """

    def __init__(self, version: KafkaVersion, has_elr: bool = True, **settings: object) -> None:
        if not has_elr:
            version = version.with_(eligible_leader_replicas=False)
        alive = tuple(m.BrokerInfo(number, 0) for number in BROKERS)
        state = PartitionState(REPLICAS, leader=REPLICAS[0], isr=REPLICAS)
        chosen = Settings.of(version, **settings)
        self.controller = Controller(version, chosen, state, alive)
        self.response: str | None = None

    def do(self, name: str, *words: Any) -> None:
        self.response = None
        getattr(self, name)(*words)

    # The commands

    def register(self, broker: int, broker_epoch: int, was_clean: bool) -> None:
        """A process of this broker has started; its former one, if alive, is fenced first."""
        self._step(m.RegisterBroker(broker, broker_epoch, was_clean))

    def expire(self, broker: int) -> None:
        for info in self.controller.alive:
            if info.id == broker:
                self._step(m.SessionExpired(broker, info.broker_epoch))

    def shut_down(self, broker: int) -> None:
        self._step(m.ControlledShutdown(broker))

    def reassign(self, target: list[int] | None) -> None:
        """Other replicas are wanted; None cancels what goes on."""
        self._step(m.AlterPartitionReassignments(None if target is None else tuple(target)))

    def elect(self, kind: str) -> None:
        self._step(m.ElectLeaders(kind))

    def alter(
        self, broker: int, epochs: list[int], members: list[list[int]], is_recovering: bool
    ) -> None:
        """A leader asks for an ISR; `epochs` are of leader and partition, a member has its own."""
        isr = tuple(number for number, _ in members)
        known = tuple(broker_epoch for _, broker_epoch in members)
        leader_epoch, partition_epoch = epochs
        self._step(
            m.AlterPartition(broker, 1, leader_epoch, partition_epoch, isr, known, is_recovering)
        )

    def _step(self, message: m.Message) -> None:
        self.controller, outputs = machine.step(self.controller, message, 0)
        said = [output.message for output in outputs if isinstance(output, m.Send)]
        kinds = (
            m.AlterPartitionResponse
            | m.ElectLeadersResponse
            | m.AlterPartitionReassignmentsResponse
        )
        self.response = next((x.error or "NONE" for x in said if isinstance(x, kinds)), None)

    # What is compared

    def seen(self) -> Seen:
        state = self.controller.state
        return {
            "leader": state.leader,
            "replicas": list(state.replicas),
            "adding": sorted(state.adding),
            "removing": sorted(state.removing),
            "isr": sorted(state.isr),
            "leader_epoch": state.leader_epoch,
            "partition_epoch": state.partition_epoch,
            "elr": sorted(state.elr),
            "last_known_elr": sorted(state.last_known_elr),
            "is_recovering": state.is_recovering,
            "active": sorted(self.controller.available),
            "response": self.response,
        }
