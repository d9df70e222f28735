"""Every line by which a Kafka broker tells of its replication, 0.8 to 4.x, as one table.

A `Format` is one form of one line: which releases print it, at what level, to what logger, what it
says, and an example. Its `template` is read both ways: `lines.py` makes a pattern of it, `write.py`
fills it in. A word in braces is a field; what it may hold is in `lines.FIELDS`, and a field that is
no column of the events table goes to `detail`. A field named twice must say the same twice.

This file has the lines of leaders and followers. `grammar_cluster.py` has those of logs,
controllers and brokers, and two lists that complete the table: lines about replication that say
nothing new (`NO_NEWS`), and lines in circulation that no broker can have printed (`IMPOSSIBLE`).
What looks like replication and is in none of these is unread, and counted.

Source: the apache/kafka repository, release by release: Partition.scala, ReplicaManager.scala,
AbstractFetcherThread.scala, Log.scala, KafkaController.scala, StateChangeLogger; for KRaft
ReplicationControlManager.java, ClusterControlManager.java, PartitionRegistration.java. The layout
`[%d] %p %m (%c)` of config/log4j.properties holds for all of them, and for log4j2 in 4.x.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from isrlab.engine import versions

PARTITION = "kafka.cluster.Partition"
STATE_CHANGE = "state.change.logger"
CONTROLLER = "kafka.controller.KafkaController"
QUORUM = "org.apache.kafka.controller.ReplicationControlManager"
CLUSTER = "org.apache.kafka.controller.ClusterControlManager"
FETCHER = "kafka.server.ReplicaFetcherThread"
SERVER = "kafka.server.KafkaServer"
NEWEST = "4.3"


@dataclass(frozen=True, slots=True)
class Format:
    """One form of one line; `since` and `until` are the first and last release that print it."""

    kind: str  # of the event it tells
    since: str
    until: str
    level: str
    logger: str
    template: str
    example: str  # a message of this form, without time, level and logger
    fixed: dict[str, str] = field(default_factory=dict)  # what the form itself says, to `detail`

    @property
    def name(self) -> str:
        """For messages and tests, such as "isr_shrink 2.2-3.5"."""
        return f"{self.kind} {self.since}-{'' if self.until == NEWEST else self.until}"

    def is_printed_by(self, release: str) -> bool:
        """A broker of this release, such as "0.10.2" or "3.9", prints this form."""
        numbers, last = versions.release(release), versions.series(self.until)
        return numbers >= versions.series(self.since) and numbers[: len(last)] <= last


P08 = "Partition [{topic},{partition}] on broker {broker}: "
P10 = "[Partition {topic}-{partition} broker={broker}] "
BROKER = "[Broker id={broker}] "
SAID_BY_CONTROLLER = {"said_by": "controller"}
ANSWER_TO_LEADER = {"said_by": "controller", "asked_by": "leader"}
DECIDED = {"step": "decided"}  # a fetcher thread says where it will cut; the log says when it did
DONE = {"step": "done"}
UNCLEAN = {"said_by": "controller", "unclean": "true"}
LATER = "(highWatermark: {high_watermark}, endOffset: {log_end_offset})"
PREVIOUS = (
    "Previous leader {previous_leader} and previous leader epoch was {previous_leader_epoch}."
)

_F = Format
# fmt: off

# A leader changes its ISR. "Shrinking" and "Expanding" say what it asks for, "ISR updated" what is
# stored. Up to 2.3 the second is TRACE; since 2.8 there is no "Expanding" at all.
ISR_LINES = (
    _F("isr_shrink", "0.8", "0.10.2", "INFO", PARTITION,
       P08 + "Shrinking ISR for partition [{topic},{partition}] from {isr_before} to {isr}",
       "Partition [t,0] on broker 1: Shrinking ISR for partition [t,0] from 1,2 to 1"),
    _F("isr_expand", "0.8", "0.10.1", "INFO", PARTITION,
       P08 + "Expanding ISR for partition [{topic},{partition}] from {isr_before} to {isr}",
       "Partition [t,0] on broker 1: Expanding ISR for partition [t,0] from 1 to 1,2"),
    _F("isr_expand", "0.10.2", "0.10.2", "INFO", PARTITION,
       P08 + "Expanding ISR for partition {topic}-{partition} from {isr_before} to {isr}",
       "Partition [t,0] on broker 1: Expanding ISR for partition t-0 from 1 to 1,2"),
    _F("isr_shrink", "0.11", "0.11", "INFO", PARTITION,
       P08 + "Shrinking ISR from {isr_before} to {isr}",
       "Partition [t,0] on broker 1: Shrinking ISR from 1,2 to 1"),
    _F("isr_expand", "0.11", "0.11", "INFO", PARTITION,
       P08 + "Expanding ISR from {isr_before} to {isr}",
       "Partition [t,0] on broker 1: Expanding ISR from 1 to 1,2"),
    _F("isr_shrink", "1.0", "2.1", "INFO", PARTITION,
       P10 + "Shrinking ISR from {isr_before} to {isr}",
       "[Partition t-0 broker=1] Shrinking ISR from 1,2 to 1"),
    _F("isr_expand", "1.0", "2.7", "INFO", PARTITION,
       P10 + "Expanding ISR from {isr_before} to {isr}",
       "[Partition t-0 broker=1] Expanding ISR from 1 to 1,2"),
    _F("isr_shrink", "2.2", "3.5", "INFO", PARTITION,
       P10 + "Shrinking ISR from {isr_before} to {isr}. Leader: " + LATER
       + ". Out of sync replicas: {out_of_sync}.",
       "[Partition t-0 broker=1] Shrinking ISR from 1,2,3 to 1. Leader: (highWatermark: 90, "
       "endOffset: 120). Out of sync replicas: (brokerId: 2, endOffset: 90) "
       "(brokerId: 3, endOffset: unknown)."),
    _F("isr_shrink", "3.6", NEWEST, "INFO", PARTITION,
       P10 + "Shrinking ISR from {isr_before} to {isr}. Leader: " + LATER
       + ". Out of sync replicas: {out_of_sync_since}.",
       "[Partition t-0 broker=1] Shrinking ISR from 1,2 to 1. Leader: (highWatermark: 90, "
       "endOffset: 120). Out of sync replicas: (brokerId: 2, endOffset: 90, "
       "lastCaughtUpTimeMs: 1719820770000)."),
    _F("isr_commit", "0.8", "0.11", "TRACE", PARTITION,
       P08 + "ISR updated to [{isr}] and zkVersion updated to [{partition_epoch}]",
       "Partition [t,0] on broker 1: ISR updated to [1,2] and zkVersion updated to [5]"),
    _F("isr_commit", "1.0", "2.3", "TRACE", PARTITION,
       P10 + "ISR updated to [{isr}] and zkVersion updated to [{partition_epoch}]",
       "[Partition t-0 broker=1] ISR updated to [1,2] and zkVersion updated to [5]"),
    _F("isr_commit", "2.4", "2.6", "INFO", PARTITION,
       P10 + "ISR updated to [{isr}] and zkVersion updated to [{partition_epoch}]",
       "[Partition t-0 broker=1] ISR updated to [1,2] and zkVersion updated to [5]"),
    _F("isr_commit", "2.7", "2.7", "INFO", PARTITION,
       P10 + "ISR updated from AlterIsr to {isr} and version updated to [{partition_epoch}]",
       "[Partition t-0 broker=1] ISR updated from AlterIsr to 1,2 and version updated to [5]"),
    _F("isr_commit", "2.8", "3.0", "INFO", PARTITION,
       P10 + "ISR updated to {isr} and version updated to [{partition_epoch}]",
       "[Partition t-0 broker=1] ISR updated to 1,2 and version updated to [5]"),
    _F("isr_commit", "3.1", "3.4", "INFO", PARTITION,
       P10 + "ISR updated to {isr} and version updated to {partition_epoch}",
       "[Partition t-0 broker=1] ISR updated to 1,2 and version updated to 5"),
    _F("isr_commit", "3.5", NEWEST, "INFO", PARTITION,
       P10 + "ISR updated to {isr} {under_min_isr} and version updated to {partition_epoch}",
       "[Partition t-0 broker=1] ISR updated to 1 (under-min-isr) and version updated to 6"),
)

# An ISR change is refused. Up to 2.7 by ZooKeeper, afterwards by the controller.
_BAD_VERSION = {"error": "BADVERSION"}  # ZooKeeper's name, as the engine has it
_UNKNOWN = {"error": "UNKNOWN_TOPIC_OR_PARTITION"}
_FENCED = {"error": "FENCED_LEADER_EPOCH"}
_OLD_VERSION = {"error": "INVALID_UPDATE_VERSION"}
_SINCE = "[Partition t-0 broker=1] Failed to alter partition to PendingShrinkIsr(...) "
REJECTION_LINES = (
    _F("isr_rejected", "0.8", "0.11", "INFO", PARTITION,
       P08 + "Cached zkVersion [{partition_epoch}] not equal to that in zookeeper, skip updating "
       "ISR",
       "Partition [t,0] on broker 1: Cached zkVersion [5] not equal to that in zookeeper, "
       "skip updating ISR", _BAD_VERSION),
    _F("isr_rejected", "1.0", "2.3", "INFO", PARTITION,
       P10 + "Cached zkVersion [{partition_epoch}] not equal to that in zookeeper, skip updating "
       "ISR",
       "[Partition t-0 broker=1] Cached zkVersion [5] not equal to that in zookeeper, "
       "skip updating ISR", _BAD_VERSION),
    _F("isr_rejected", "2.4", "2.7", "INFO", PARTITION,
       P10 + "Cached zkVersion {partition_epoch} not equal to that in zookeeper, skip updating ISR",
       "[Partition t-0 broker=1] Cached zkVersion 5 not equal to that in zookeeper, "
       "skip updating ISR", _BAD_VERSION),
    _F("isr_rejected", "2.7", "3.2", "DEBUG", PARTITION,
       P10 + "{failed_to} update ISR to {asked} since it doesn't know about this topic or "
       "partition."
       " Giving up.",
       "[Partition t-0 broker=1] Failed to update ISR to PendingShrinkIsr(...) since it doesn't "
       "know about this topic or partition. Giving up.", _UNKNOWN),
    _F("isr_rejected", "2.7", "3.2", "DEBUG", PARTITION,
       P10 + "{failed_to} update ISR to {asked} since we sent an old leader epoch. Giving up.",
       "[Partition t-0 broker=1] Failed to update ISR to PendingShrinkIsr(...) since we sent an "
       "old leader epoch. Giving up.", _FENCED),
    _F("isr_rejected", "2.7", "3.2", "DEBUG", PARTITION,
       P10 + "{failed_to} update ISR to {asked} due to invalid {zk}version. Giving up.",
       "[Partition t-0 broker=1] Failed to update ISR to PendingShrinkIsr(...) due to invalid "
       "version. Giving up.", _OLD_VERSION),
    _F("isr_rejected", "2.7", NEWEST, "WARN", PARTITION,
       P10 + "{failed_to} update ISR to {asked} due to unexpected {error}. Retrying.",
       "[Partition t-0 broker=1] Failed to update ISR to PendingShrinkIsr(...) due to unexpected "
       "UNKNOWN_SERVER_ERROR. Retrying."),
    _F("isr_rejected", "3.2", NEWEST, "INFO", PARTITION,
       P10 + "Failed to alter partition to {asked} since the controller rejected the request with "
       "{error}. Partition state has been reset to the latest committed state {reset_to}.",
       _SINCE + "since the controller rejected the request with INELIGIBLE_REPLICA. Partition "
       "state has been reset to the latest committed state CommittedPartitionState(...)."),
    _F("isr_rejected", "3.2", NEWEST, "DEBUG", PARTITION,
       P10 + "Failed to alter partition to {asked} since the controller doesn't know about this "
       "topic or partition. {text}", _SINCE + "since the controller doesn't know about this topic "
       "or partition. Partition state may be out of sync, awaiting new the latest metadata.",
       _UNKNOWN),
    _F("isr_rejected", "3.2", NEWEST, "DEBUG", PARTITION,
       P10 + "Failed to alter partition to {asked} since the controller doesn't know about this "
       "topic. {text}", _SINCE + "since the controller doesn't know about this topic. Partition "
       "state may be out of sync, awaiting new the latest metadata.",
       {"error": "UNKNOWN_TOPIC_ID"}),
    _F("isr_rejected", "3.2", NEWEST, "DEBUG", PARTITION,
       P10 + "Failed to alter partition to {asked} since the leader epoch is old. {text}",
       _SINCE + "since the leader epoch is old. Partition state may be out of sync, awaiting new "
       "the latest metadata.", _FENCED),
    _F("isr_rejected", "3.2", NEWEST, "DEBUG", PARTITION,
       P10 + "Failed to alter partition to {asked} because the partition epoch is invalid. {text}",
       _SINCE + "because the partition epoch is invalid. Partition state may be out of sync, "
       "awaiting new the latest metadata.", _OLD_VERSION),
    _F("isr_rejected", "3.2", NEWEST, "DEBUG", PARTITION,
       P10 + "Failed to alter partition to {asked} because the request is invalid. {text}",
       _SINCE + "because the request is invalid. Partition state may be out of sync, awaiting new "
       "the latest metadata.", {"error": "INVALID_REQUEST"}),
    _F("isr_rejected", "3.0", NEWEST, "INFO", QUORUM,
       "{controller}Rejecting AlterPartition request from node {leader} for {topic}-{partition} "
       "because {reason}",
       "[QuorumController id=3000] Rejecting AlterPartition request from node 1 for t-0 because it "
       "specified ineligible replicas [3 (fenced)] in the new ISR [1, 3].", SAID_BY_CONTROLLER),
)

# A broker becomes leader or follower of a partition: server.log up to 2.5, state-change.log since.
_EPOCHS = "starts at Leader Epoch {leader_epoch} from offset {log_end_offset}. "
_RECEIVED = " correlation id {correlation} from controller {controller_id} epoch {controller_epoch}"
LEADER_LINES = (
    _F("leader", "0.8", "0.10.2", "TRACE", STATE_CHANGE,
       "Broker {broker} handling LeaderAndIsr request correlationId {correlation} from controller "
       "{controller_id} epoch {controller_epoch} starting the become-leader transition for "
       "partition [{topic},{partition}]",
       "Broker 1 handling LeaderAndIsr request correlationId 3 from controller 2 epoch 5 starting "
       "the become-leader transition for partition [t,0]"),
    _F("leader", "0.11", "0.11", "INFO", PARTITION,
       P08 + "{topic}-{partition} " + _EPOCHS + "Previous Leader Epoch was: "
       "{previous_leader_epoch}",
       "Partition [t,0] on broker 1: t-0 starts at Leader Epoch 3 from offset 10. Previous Leader "
       "Epoch was: 2"),
    _F("leader", "1.0", "2.3", "INFO", PARTITION,
       P10 + "{topic}-{partition} " + _EPOCHS + "Previous Leader Epoch was: "
       "{previous_leader_epoch}",
       "[Partition t-0 broker=1] t-0 starts at Leader Epoch 3 from offset 10. Previous Leader "
       "Epoch was: 2"),
    _F("leader", "2.4", "2.5", "INFO", PARTITION,
       P10 + "{topic}-{partition} starts at leader epoch {leader_epoch} from offset "
       "{log_end_offset} with high watermark {high_watermark}. Previous leader epoch was "
       "{previous_leader_epoch}.",
       "[Partition t-0 broker=1] t-0 starts at leader epoch 3 from offset 10 with high watermark "
       "9. Previous leader epoch was 2."),
    _F("leader", "2.6", "3.2", "INFO", STATE_CHANGE,
       BROKER + "Leader {topic}-{partition} starts at leader epoch {leader_epoch} from offset "
       "{log_end_offset} with high watermark {high_watermark} ISR [{isr}] addingReplicas "
       "[{adding}] removingReplicas [{removing}]. Previous leader epoch was "
       "{previous_leader_epoch}.",
       "[Broker id=1] Leader t-0 starts at leader epoch 3 from offset 10 with high watermark 9 ISR "
       "[1,2] addingReplicas [] removingReplicas []. Previous leader epoch was 2."),
    _F("follower", "2.6", "3.2", "INFO", STATE_CHANGE,
       BROKER + "Follower {topic}-{partition} starts at leader epoch {leader_epoch} from offset "
       "{log_end_offset} with high watermark {high_watermark}. Previous leader epoch was "
       "{previous_leader_epoch}.",
       "[Broker id=1] Follower t-0 starts at leader epoch 3 from offset 10 with high watermark 9. "
       "Previous leader epoch was 2."),
    _F("leader", "3.3", "3.4", "INFO", STATE_CHANGE,
       BROKER + "Leader {topic}-{partition} with topic id {topic_id} starts at leader epoch "
       "{leader_epoch} from offset {log_end_offset} with partition epoch {partition_epoch}, high "
       "watermark {high_watermark}, ISR [{isr}], adding replicas [{adding}] and removing replicas "
       "[{removing}]. Previous leader epoch was {previous_leader_epoch}.",
       "[Broker id=1] Leader t-0 with topic id Some(abc) starts at leader epoch 3 from offset 10 "
       "with partition epoch 7, high watermark 9, ISR [1,2], adding replicas [] and removing "
       "replicas []. Previous leader epoch was 2."),
    _F("follower", "3.3", "3.4", "INFO", STATE_CHANGE,
       BROKER + "Follower {topic}-{partition} starts at leader epoch {leader_epoch} from offset "
       "{log_end_offset} with partition epoch {partition_epoch} and high watermark "
       "{high_watermark}. Current leader is {replica}. Previous leader epoch was "
       "{previous_leader_epoch}.",
       "[Broker id=1] Follower t-0 starts at leader epoch 3 from offset 10 with partition epoch 7 "
       "and high watermark 9. Current leader is 2. Previous leader epoch was 2."),
    _F("leader", "3.5", NEWEST, "INFO", STATE_CHANGE,
       BROKER + "Leader {topic}-{partition} with topic id {topic_id} starts at leader epoch "
       "{leader_epoch} from offset {log_end_offset} with partition epoch {partition_epoch}, high "
       "watermark {high_watermark}, ISR [{isr}], adding replicas [{adding}] and removing replicas "
       "[{removing}] {under_min_isr}. " + PREVIOUS,
       "[Broker id=1] Leader t-0 with topic id Some(abc) starts at leader epoch 3 from offset 10 "
       "with partition epoch 7, high watermark 9, ISR [1,2], adding replicas [] and removing "
       "replicas [] . Previous leader Some(2) and previous leader epoch was 2."),
    _F("follower", "3.5", NEWEST, "INFO", STATE_CHANGE,
       BROKER + "Follower {topic}-{partition} starts at leader epoch {leader_epoch} from offset "
       "{log_end_offset} with partition epoch {partition_epoch} and high watermark "
       "{high_watermark}. Current leader is {replica}. " + PREVIOUS,
       "[Broker id=1] Follower t-0 starts at leader epoch 3 from offset 10 with partition epoch 7 "
       "and high watermark 9. Current leader is 2. Previous leader Some(1) and previous leader "
       "epoch was 2."),
    # A leader that keeps its epoch learns the ISR here: also what a KRaft controller took out.
    _F("metadata", "3.3", NEWEST, "INFO", STATE_CHANGE,
       BROKER + "Skipped the become-leader state change for {topic}-{partition} with topic id "
       "{topic_id} and partition state {state} since it is already the leader with leader epoch "
       "{leader_epoch}. Current high watermark {high_watermark}, ISR [{isr}], adding replicas "
       "[{adding}] and removing replicas [{removing}].",
       "[Broker id=1] Skipped the become-leader state change for t-0 with topic id Some(abc) and "
       "partition state LeaderAndIsrPartitionState(topicName='t', partitionIndex=0, "
       "controllerEpoch=-1, leader=1, leaderEpoch=3, isr=[1, 2], partitionEpoch=8, replicas=[1, 2, "
       "3], addingReplicas=[], removingReplicas=[], isNew=false, leaderRecoveryState=0) since it "
       "is already the leader with leader epoch 3. Current high watermark 9, ISR [1,2], adding "
       "replicas [] and removing replicas []."),
    _F("metadata", "0.8", "0.11", "TRACE", STATE_CHANGE,
       "Broker {broker} received LeaderAndIsr request {state}" + _RECEIVED
       + " for partition [{topic},{partition}]",
       "Broker 1 received LeaderAndIsr request (LeaderAndIsrInfo:(Leader:1,ISR:1,2,LeaderEpoch:3,"
       "ControllerEpoch:5),ReplicationFactor:2),AllReplicas:1,2) correlation id 3 from controller "
       "2 epoch 5 for partition [t,0]"),
    _F("metadata", "1.0", "2.3", "TRACE", STATE_CHANGE,
       BROKER + "Received LeaderAndIsr request {state}" + _RECEIVED
       + " for partition {topic}-{partition}",
       "[Broker id=1] Received LeaderAndIsr request PartitionState(controllerEpoch=5, leader=1, "
       "leaderEpoch=3, isr=1,2, zkVersion=6, replicas=1,2, isNew=false) correlation id 3 from "
       "controller 2 epoch 5 for partition t-0"),
    _F("metadata", "2.4", NEWEST, "TRACE", STATE_CHANGE,
       BROKER + "Received LeaderAndIsr request {state}" + _RECEIVED,
       "[Broker id=1] Received LeaderAndIsr request LeaderAndIsrPartitionState(topicName='t', "
       "partitionIndex=0, controllerEpoch=5, leader=1, leaderEpoch=3, isr=[1, 2], zkVersion=6, "
       "replicas=[1, 2], addingReplicas=[], removingReplicas=[], isNew=false) correlation id 3 "
       "from controller 2 epoch 5"),
)
