"""The messages between clients, brokers and controller, and those that a broker sends to itself.

Each is a small frozen record. Everything that Kafka schedules (the isr-expiration task, a
checkpoint, a request's timeout) is a message from a broker to itself, so no code reads a clock.
"""

from typing import Any

from isrlab.engine.frozen import Frozen
from isrlab.engine.log import Record
from isrlab.engine.rules import UNKNOWN_EPOCH, UNKNOWN_OFFSET

CONTROLLER = 0  # the address of the controller (and, up to 2.6, of ZooKeeper)
CLIENT = -1  # the address of producers, and of operators
ACKS_ALL = -1


class BrokerInfo(Frozen):
    """A broker as the cluster's metadata shows it."""

    id: int
    broker_epoch: int
    is_active: bool = True  # neither fenced nor shutting down


class Message(Frozen):
    """A message to another machine, or later to the sender itself."""


# Messages between clients, brokers and the controller


class Produce(Message):
    request: int
    ids: tuple[str, ...]
    acks: int  # 0, 1 or ACKS_ALL


class ProduceResponse(Message):
    request: int
    base_offset: int = UNKNOWN_OFFSET
    error: str | None = None


class Fetch(Message):
    """A follower asks for the records after its log, which also confirms those it has."""

    replica: int
    request: int
    offset: int
    leader_epoch: int = UNKNOWN_EPOCH  # the epoch it believes in (KIP-320)
    last_fetched_epoch: int = UNKNOWN_EPOCH  # of its last record (KIP-595)
    broker_epoch: int = UNKNOWN_EPOCH  # of its incarnation (KIP-903)
    max_wait_ms: int = 500


class FetchResponse(Message):
    request: int
    base_offset: int
    records: tuple[Record, ...] = ()
    high_watermark: int = UNKNOWN_OFFSET
    diverging: tuple[int, int] | None = None  # (epoch, its end offset at the leader)
    log_start_offset: int = 0  # of the leader (KIP-107)
    error: str | None = None


class OffsetsForLeaderEpoch(Message):
    replica: int
    request: int
    epoch: int
    leader_epoch: int = UNKNOWN_EPOCH


class EpochEndOffset(Message):
    request: int
    epoch: int = UNKNOWN_EPOCH
    end_offset: int = UNKNOWN_OFFSET
    error: str | None = None


class ListOffsets(Message):
    replica: int
    request: int


class ListOffsetsResponse(Message):
    request: int
    log_start_offset: int = UNKNOWN_OFFSET
    log_end_offset: int = UNKNOWN_OFFSET
    error: str | None = None


class AlterPartition(Message):
    """A leader asks for an ISR. Up to 2.6 this is its conditional write of the ZooKeeper node."""

    broker: int
    request: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...] = ()  # of the members of `isr`; -1 is unknown
    is_recovering: bool = False  # real leaders never set it: P 3.7.1:742-755


class AlterPartitionResponse(Message):
    request: int
    leader_epoch: int = UNKNOWN_EPOCH
    partition_epoch: int = UNKNOWN_EPOCH
    isr: tuple[int, ...] = ()
    error: str | None = None


class LeaderAndIsr(Message):
    """The controller's decision. In KRaft a broker reads the same from the metadata log."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    is_recovering: bool = False  # the leader was elected uncleanly (KIP-704)


class StopReplica(Message):
    """The controller orders a broker to stop fetching, or to delete its replica.

    In KRaft a broker reads from the metadata log that it no longer holds a replica.
    """

    deletes: bool = False


class UpdateMetadata(Message):
    """The controller informs all brokers of the live brokers, and of the partition's ISR and its
    min.insync.replicas (None: unchanged). `retention_ms`: only what a restart brings back, since
    the default of a week is longer than any scenario.

    No replication rule reads that ISR; clients and monitoring do.
    """

    brokers: tuple[BrokerInfo, ...]
    isr: tuple[int, ...] = ()
    partition_epoch: int = UNKNOWN_EPOCH
    min_isr: int | None = None
    retention_ms: int | None = None


class IsrChangeNotification(Message):
    broker: int


# Messages to the controller about brokers


class RegisterBroker(Message):
    broker: int
    broker_epoch: int
    was_clean: bool = True  # the former process left its clean-shutdown marker
    is_known: bool = False  # the same process again, after its session had expired
    is_moved: bool = False  # its replica is made anew: the former directory was taken out


class OfflineDirectory(Message):
    """A broker reports that the directory of its replica has failed (KIP-112, KIP-858)."""

    broker: int


class SessionExpired(Message):
    broker: int
    broker_epoch: int


class ControlledShutdown(Message):
    broker: int


class ElectLeaders(Message):
    kind: str  # "preferred" or "unclean"


class ElectUncleanLeaders(Message):
    """The periodic task of a KRaft controller (unclean.leader.election.interval.ms, 3.9)."""


class ElectLeadersResponse(Message):
    error: str | None = None


class AlterPartitionReassignments(Message):
    """An operator wants other replicas (KIP-455; up to 2.3 by /admin/reassign_partitions)."""

    target: tuple[int, ...] | None  # preferred leader first; None cancels


class AlterPartitionReassignmentsResponse(Message):
    error: str | None = None


class IncrementalAlterConfigs(Message):
    """An operator sets min.insync.replicas, of the topic or for the whole cluster."""

    min_insync_replicas: int
    of_cluster: bool = False


class RecreateTopic(Message):
    """An operator deletes the topic, which had this setting (None: did not set it), and creates it
    again without it, with the same replicas."""

    retention_ms: int | None


# Messages of a broker to itself: its schedule, and events of its network layer


class ExpireIsr(Message):
    """The isr-expiration task."""


class CheckpointHighWatermark(Message):
    """The highwatermark-checkpoint task."""


class PropagateIsrChanges(Message):
    """The isr-change-propagation task."""


class ExpireFetch(Message):
    replica: int
    request: int


class ExpireProduce(Message):
    request: int


class RetryRequest(Message):
    """A follower's back-off is over, or its request went unanswered for too long."""

    request: int


class RetryAlterPartition(Message):
    """An ISR change that did not reach the controller is sent again."""


class DeleteOldSegments(Message):
    """The retention check: `newest` is older than retention.ms, if it is still the newest."""

    retention_ms: int
    newest: Record | None


class Disconnected(Message):
    """The connection to `peer` broke while a request was unanswered."""

    peer: int


class Send(Frozen):
    """A message to another machine."""

    to: int
    message: Any  # a Message


class After(Frozen):
    """A message that the sender gets back after `delay_ms`."""

    delay_ms: int
    message: Any  # a Message


class Halt(Frozen):
    """The broker stops itself rather than violate a rule."""

    reason: str


Output = Send | After | Halt
