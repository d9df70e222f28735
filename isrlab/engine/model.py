"""The state that the transitions of this package read and write.

All of it is frozen and comparable, so the states before and after a step can be printed, kept and
compared. Brokers replicate each partition independently, so a broker here holds only one.
Roles and ISR states are types; a follower simply has no ISR.
"""

from __future__ import annotations

import dataclasses

from isrlab.engine import messages as m
from isrlab.engine.frozen import Frozen, Shared
from isrlab.engine.log import Log
from isrlab.engine.rules import UNKNOWN_EPOCH, UNKNOWN_OFFSET
from isrlab.engine.versions import KafkaVersion

NO_LEADER = -1
NEVER_FETCHED = -2  # under this leader; a fetch without a broker epoch carries UNKNOWN_EPOCH
RECORD_BYTES = 1_024  # records have no content here; for the limit of a fetch, each has this size


@dataclasses.dataclass(frozen=True, slots=True)
class Settings(Shared):
    """Kafka's settings, with underscores for dots; `session_timeout_ms`: of ZooKeeper or KRaft."""

    min_insync_replicas: int
    unclean_leader_election_enable: bool
    replica_lag_time_max_ms: int
    replica_lag_max_messages: int
    session_timeout_ms: int
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_max_bytes: int = 1_048_576  # a record has RECORD_BYTES
    replica_fetch_backoff_ms: int = 1_000
    replica_socket_timeout_ms: int = 30_000
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    request_timeout_ms: int = 30_000

    @classmethod
    def of(cls, version: KafkaVersion, **changes: object) -> Settings:
        """The defaults of `version` with `changes`; raises ValueError for a bad name or value."""
        defaults = cls(
            min_insync_replicas=1,
            unclean_leader_election_enable=version.unclean_leader_election_enable,
            replica_lag_time_max_ms=version.replica_lag_time_max_ms,
            replica_lag_max_messages=version.replica_lag_max_messages or 0,
            session_timeout_ms=version.session_timeout_ms,
        )
        known = {f.name: f.name.replace("_", ".") for f in dataclasses.fields(cls)}
        for name, value in changes.items():
            dotted = name.replace("_", ".")
            if name not in known:
                raise ValueError(f"unknown setting {dotted!r}; known: {', '.join(known.values())}")
            if not isinstance(value, bool) and isinstance(value, int) and value < 1:
                raise ValueError(f"{dotted}={value} must be at least 1")
        return dataclasses.replace(defaults, **changes)  # type: ignore[arg-type]


# What a leader knows about its followers and its ISR


class RemoteReplica(Frozen):
    """A follower as its leader sees it. Source: Replica.scala 0.10.2.2:39-84, 3.7.1:26-60."""

    id: int
    log_end_offset: int = UNKNOWN_OFFSET
    last_caught_up_time_ms: int = 0
    last_fetch_leader_end_offset: int = 0
    last_fetch_time_ms: int = 0
    broker_epoch: int = NEVER_FETCHED  # or the one that its last fetch carried
    last_sent_high_watermark: int = 0


class _Isr(Frozen):
    """The stored ISR and, until a change is answered, the proposed one and the larger one."""

    isr: tuple[int, ...]

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return self.isr

    @property
    def proposed_isr(self) -> tuple[int, ...]:
        return self.maximal_isr


class CommittedIsr(_Isr):
    """The ISR is stored and no change of it is in flight."""


class PendingExpandIsr(_Isr):
    """The leader asked for `joining` to be added; until the answer, either ISR may be stored."""

    joining: int
    request: int
    looks: bool = True  # whether to check the high watermark when ZooKeeper has answered

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return (*self.isr, self.joining)


class PendingShrinkIsr(_Isr):
    """The leader asked for `leaving` to be removed; until the answer these replicas still count."""

    leaving: tuple[int, ...]
    request: int

    @property
    def proposed_isr(self) -> tuple[int, ...]:
        return tuple(i for i in self.isr if i not in self.leaving)


IsrState = CommittedIsr | PendingExpandIsr | PendingShrinkIsr


class ParkedFetch(Frozen):
    """A follower's fetch that found nothing to read and waits at the leader."""

    fetch: m.Fetch
    deadline_ms: int


class DelayedProduce(Frozen):
    """An appended acks=all (or, in 0.8, acks>1) request that waits for followers."""

    request: int
    acks: int
    base_offset: int
    required_offset: int


class Leader(Frozen):
    """The role of the one replica that takes writes."""

    leader_epoch: int
    leader_epoch_start_offset: int
    partition_epoch: int  # KRaft's partition epoch, or the version of the ZooKeeper state node
    isr_state: IsrState
    remotes: tuple[RemoteReplica, ...]
    parked: tuple[ParkedFetch, ...] = ()
    delayed: tuple[DelayedProduce, ...] = ()

    @property
    def isr(self) -> tuple[int, ...]:
        return self.isr_state.isr

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return self.isr_state.maximal_isr

    def remote(self, broker: int) -> RemoteReplica | None:
        return next((remote for remote in self.remotes if remote.id == broker), None)


class Follower(Frozen):
    """The role of a replica that copies its leader. It has at most one request in flight."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    request: int = 0  # the number of the request it waits for; any other answer is stale
    is_truncating: bool = False
    is_waiting: bool = False  # for the controller, with no request in flight


class Broker(Frozen):
    """One broker and its replica of the partition."""

    id: int
    version: KafkaVersion
    settings: Settings
    replicas: tuple[int, ...]  # the assignment, preferred leader first
    log: Log = Log()
    role: Leader | Follower | None = None  # None until the controller assigns one
    broker_epoch: int = 0
    is_offline: bool = False  # the directory of the replica has failed
    is_shutting_down: bool = False  # a controlled shutdown: it starts no fetchers (not in KRaft)
    last_request: int = 0
    metadata: tuple[m.BrokerInfo, ...] = ()
    remembered: tuple[RemoteReplica, ...] = ()  # the followers as its last leadership knew them
    unanswered: m.AlterPartition | None = None  # the one ISR change in flight
    last_isr_change_ms: int = 0
    last_isr_announcement_ms: int = 0
    has_unannounced_change: bool = False

    @property
    def leader_epoch(self) -> int:
        return self.role.leader_epoch if self.role else UNKNOWN_EPOCH

    def known(self, broker: int) -> m.BrokerInfo | None:
        """The entry of another broker in this broker's metadata, if there is one."""
        return next((info for info in self.metadata if info.id == broker), None)
