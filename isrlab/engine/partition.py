"""The partition as its controller sees it: the stored state, and the live brokers."""

from __future__ import annotations

from typing import Any

from isrlab.engine import messages as m
from isrlab.engine import rules
from isrlab.engine.frozen import Frozen, replace
from isrlab.engine.model import NO_LEADER, Settings
from isrlab.engine.versions import KafkaVersion


class PartitionState(Frozen):
    """The state in ZooKeeper or KRaft's metadata log, with the epochs that order its versions."""

    replicas: tuple[int, ...]  # preferred leader first; with those being added
    leader: int
    isr: tuple[int, ...]
    leader_epoch: int = 0
    partition_epoch: int = 0  # KRaft's, or the version of the ZooKeeper node
    elr: tuple[int, ...] = ()  # eligible leader replicas (KIP-966)
    last_known_elr: tuple[int, ...] = ()
    is_recovering: bool = False  # elected uncleanly, and not yet recovered
    adding: tuple[int, ...] = ()  # of `replicas`, while a reassignment goes on
    removing: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas that remain when the reassignment is complete."""
        return tuple(r for r in self.replicas if r not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas without those that are being added."""
        return tuple(r for r in self.replicas if r not in self.adding)

    def is_moved(self, version: KafkaVersion) -> bool:
        """Whether a reassignment is in progress and can be completed now."""
        in_sync = {r for r in self.target if r in self.isr}
        return bool(self.adding or self.removing) and rules.completes_reassignment(
            version.reassignment,
            (len(self.target), len(in_sync)),
            (len(self.adding), len(in_sync.intersection(self.adding))),
            len(self.removing),
        )


class Controller(Frozen):
    """The stored state of the partition and the controller's view of the brokers.

    `replicas_of_partition_0`: with ELR, Kafka's controller reads this count for every partition of
    the topic. None: this is partition 0. `left_in_index`: former members of a cleared ELR.
    `offline`: brokers whose replica's directory failed. `deleted_retention_ms`: the former topic's.
    """

    version: KafkaVersion
    settings: Settings
    state: PartitionState
    alive: tuple[m.BrokerInfo, ...] = ()
    replicas_of_partition_0: int | None = None
    left_in_index: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    deleted_retention_ms: int | None = None

    @property
    def replicas(self) -> tuple[int, ...]:
        return self.state.replicas

    @property
    def leader(self) -> int:
        return self.state.leader

    @property
    def isr(self) -> tuple[int, ...]:
        return self.state.isr

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch

    @property
    def partition_epoch(self) -> int:
        return self.state.partition_epoch

    def is_alive(self, broker: int) -> bool:
        return any(b.id == broker for b in self.alive)

    @property
    def available(self) -> tuple[int, ...]:
        """The brokers that may lead: alive, not shutting down, and with the replica's directory."""
        return tuple(b.id for b in self.alive if b.is_active and b.id not in self.offline)

    @property
    def order(self) -> m.LeaderAndIsr:
        s = self.state
        return m.LeaderAndIsr(
            s.leader, s.leader_epoch, s.isr, s.partition_epoch, self.replicas, s.is_recovering
        )

    def storing(self, **changes: Any) -> Controller:
        """The controller after one write of these fields of the stored state."""
        state = replace(self.state, partition_epoch=self.partition_epoch + 1, **changes)
        is_in_isr = state.leader in (NO_LEADER, *state.isr)
        was_in_isr = self.leader in (NO_LEADER, *self.isr)  # not in every state that logs report
        assert is_in_isr or not was_in_isr, f"leader {state.leader} is not in the ISR {state.isr}"
        assert state.leader_epoch >= self.leader_epoch, "the leader epoch falls"
        return replace(self, state=state)
