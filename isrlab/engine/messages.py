"""The messages: what clients, brokers and controller say to each other and, later, to themselves.

One small frozen record for each. Whatever Kafka schedules (the isr-expiration task, a checkpoint, a
request's timeout) is a message a broker sends to itself, so time is never asked for, only told.
"""

from __future__ import annotations

from dataclasses import dataclass

from isrlab.engine.log import Record
from isrlab.engine.rules import UNKNOWN_EPOCH, UNKNOWN_OFFSET

CONTROLLER = 0  # the address of the controller (and, up to 2.6, of ZooKeeper)
CLIENT = -1  # the address of the producer
ACKS_ALL = -1


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker as the cluster's metadata shows it."""

    id: int
    broker_epoch: int
    is_active: bool = True  # neither fenced nor shutting down


# Messages between clients, brokers and the controller


@dataclass(frozen=True, slots=True)
class Produce:
    request: int
    ids: tuple[str, ...]
    acks: int  # 0, 1 or ACKS_ALL


@dataclass(frozen=True, slots=True)
class ProduceResponse:
    request: int
    base_offset: int = UNKNOWN_OFFSET
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Fetch:
    """A follower asks for what comes after its log; by doing so it confirms what it has."""

    replica: int
    request: int
    offset: int
    leader_epoch: int = UNKNOWN_EPOCH  # the epoch it believes in (KIP-320)
    last_fetched_epoch: int = UNKNOWN_EPOCH  # of its last record (KIP-595)
    broker_epoch: int = UNKNOWN_EPOCH  # of its incarnation (KIP-903)
    max_wait_ms: int = 500


@dataclass(frozen=True, slots=True)
class FetchResponse:
    request: int
    base_offset: int
    records: tuple[Record, ...] = ()
    high_watermark: int = UNKNOWN_OFFSET
    diverging: tuple[int, int] | None = None  # (epoch, its end offset at the leader)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetsForLeaderEpoch:
    replica: int
    request: int
    epoch: int
    leader_epoch: int = UNKNOWN_EPOCH


@dataclass(frozen=True, slots=True)
class EpochEndOffset:
    request: int
    epoch: int = UNKNOWN_EPOCH
    end_offset: int = UNKNOWN_OFFSET
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ListOffsets:
    replica: int
    request: int


@dataclass(frozen=True, slots=True)
class ListOffsetsResponse:
    request: int
    log_start_offset: int = UNKNOWN_OFFSET
    log_end_offset: int = UNKNOWN_OFFSET
    error: str | None = None


@dataclass(frozen=True, slots=True)
class AlterPartition:
    """A leader asks for an ISR. Up to 2.6 this is its conditional write of the ZooKeeper node."""

    broker: int
    request: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...] = ()  # of the members of `isr`; -1 is unknown
    is_recovering: bool = False  # no real leader says so: it recovers nothing (P 3.7.1:742-755)


@dataclass(frozen=True, slots=True)
class AlterPartitionResponse:
    request: int
    leader_epoch: int = UNKNOWN_EPOCH
    partition_epoch: int = UNKNOWN_EPOCH
    isr: tuple[int, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """The controller's decision. In KRaft a broker reads the same from the metadata log."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    is_recovering: bool = False  # the leader was elected uncleanly (KIP-704)


@dataclass(frozen=True, slots=True)
class StopReplica:
    """The controller tells a follower that shuts down to fetch no more (not in KRaft)."""


@dataclass(frozen=True, slots=True)
class UpdateMetadata:
    """What the controller tells everyone: who is alive and, of the partition, the ISR as it is.

    No rule of replication reads that ISR: clients and monitoring do.
    """

    brokers: tuple[BrokerInfo, ...]
    isr: tuple[int, ...] = ()
    partition_epoch: int = UNKNOWN_EPOCH


@dataclass(frozen=True, slots=True)
class IsrChangeNotification:
    broker: int


# What reaches the controller about brokers


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    broker: int
    broker_epoch: int
    was_clean: bool = True  # the former process left its clean-shutdown marker


@dataclass(frozen=True, slots=True)
class SessionExpired:
    broker: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class ControlledShutdown:
    broker: int


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    kind: str  # "preferred" or "unclean"


@dataclass(frozen=True, slots=True)
class ElectLeadersResponse:
    error: str | None = None


# What a broker tells itself: its schedule, and what its network layer notices


@dataclass(frozen=True, slots=True)
class ExpireIsr:
    """The isr-expiration task."""


@dataclass(frozen=True, slots=True)
class CheckpointHighWatermark:
    """The highwatermark-checkpoint task."""


@dataclass(frozen=True, slots=True)
class PropagateIsrChanges:
    """The isr-change-propagation task."""


@dataclass(frozen=True, slots=True)
class ExpireFetch:
    replica: int
    request: int


@dataclass(frozen=True, slots=True)
class ExpireProduce:
    request: int


@dataclass(frozen=True, slots=True)
class RetryRequest:
    """A follower's back-off is over, or its request went unanswered for too long."""

    request: int


@dataclass(frozen=True, slots=True)
class RetryAlterPartition:
    """An ISR change that did not reach the controller is sent again."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection to `peer` broke while a request was unanswered."""

    peer: int


@dataclass(frozen=True, slots=True)
class Halt:
    """The broker stops itself rather than do something it must not."""

    reason: str


Message = object  # any of the classes above


@dataclass(frozen=True, slots=True)
class Send:
    """A message that leaves for another machine."""

    to: int
    message: Message


@dataclass(frozen=True, slots=True)
class After:
    """A message to itself, later."""

    delay_ms: int
    message: Message


Output = Send | After | Halt
