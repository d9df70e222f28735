"""The grammar's second half: logs that are cut, controllers, brokers, refused produces.

`FORMATS` is the whole table, both halves. See `grammar.py` for what a `Format` is.
"""

from __future__ import annotations

from isrlab.brokerlogs.grammar import (
    ANSWER_TO_LEADER,
    CLUSTER,
    CONTROLLER,
    DECIDED,
    DONE,
    FETCHER,
    ISR_LINES,
    LEADER_LINES,
    NEWEST,
    QUORUM,
    REJECTION_LINES,
    SAID_BY_CONTROLLER,
    SERVER,
    STATE_CHANGE,
    UNCLEAN,
    Format,
)

_F = Format
# fmt: off
_LOG = "kafka.log.Log"
_REPLICA_MANAGER = "kafka.server.ReplicaManager"
_THREAD = "[ReplicaFetcher replicaId={broker}, leaderId={leader}, fetcherId={fetcher}] "
_FETCH = "[ReplicaFetcher replicaId=1, leaderId=2, fetcherId=0] "

TRUNCATION_LINES = (
    _F("truncate", "0.8", "0.11", "INFO", _LOG,
       "Truncating log {topic}-{partition} to offset {log_end_offset}.",
       "Truncating log t-0 to offset 7.", DONE),
    _F("truncate", "1.0", "3.0", "INFO", _LOG,
       "[Log partition={topic}-{partition}, dir={dir}] Truncating to offset {log_end_offset}",
       "[Log partition=t-0, dir=/d] Truncating to offset 7", DONE),
    _F("truncate", "3.1", NEWEST, "INFO", "kafka.log.UnifiedLog",
       "[UnifiedLog partition={topic}-{partition}, dir={dir}] Truncating to offset "
       "{log_end_offset}",
       "[UnifiedLog partition=t-0, dir=/d] Truncating to offset 7", DONE),
    _F("truncate", "2.1", "2.8", "INFO", FETCHER,
       _THREAD + "Truncating partition {topic}-{partition} to local high watermark "
       "{log_end_offset}",
       _FETCH + "Truncating partition t-0 to local high watermark 7",
       DECIDED | {"cause": "high watermark"}),
    _F("truncate", "3.0", NEWEST, "INFO", FETCHER,
       _THREAD + "Truncating partition {topic}-{partition} with TruncationState(offset="
       "{log_end_offset}, completed={completed}) due to local high watermark {high_watermark}",
       _FETCH + "Truncating partition t-0 with TruncationState(offset=7, completed=true) due to "
       "local high watermark 7", DECIDED | {"cause": "high watermark"}),
    _F("truncate", "2.7", NEWEST, "INFO", FETCHER,
       _THREAD + "Truncating partition {topic}-{partition} with {truncation_state}(offset="
       "{log_end_offset}, completed={completed}) due to leader epoch and offset {answer}",
       _FETCH + "Truncating partition t-0 with TruncationState(offset=7, completed=true) due to "
       "leader epoch and offset EpochEndOffset(errorCode=0, partition=0, leaderEpoch=5, "
       "endOffset=7)", DECIDED | {"cause": "leader epoch"}),
    _F("truncate", "2.0", NEWEST, "INFO", FETCHER,
       "{any_prefix}Based on {who} leader epoch, leader replied with epoch {answered_epoch} "
       "unknown to the {whom} for {topic}-{partition}. Will truncate to {log_end_offset} and send "
       "another leader epoch request to the leader.",
       _FETCH + "Based on replica's leader epoch, leader replied with epoch 3 unknown to the "
       "replica for t-0. Will truncate to 7 and send another leader epoch request to the leader.",
       DECIDED | {"cause": "leader epoch"}),
    _F("truncate", "2.0", NEWEST, "WARN", FETCHER,
       "{any_prefix}Truncating {topic}-{partition} to offset {log_end_offset} below high watermark "
       "{high_watermark}",
       _FETCH + "Truncating t-0 to offset 5 below high watermark 7", DECIDED),
    _F("truncate", "0.8", "0.11", "ERROR", FETCHER,
       "{any_prefix}Current offset {fetch_offset} for partition [{topic},{partition}] out of "
       "range; "
       "reset offset to {log_end_offset}",
       "[ReplicaFetcherThread-0-2], Current offset 9 for partition [t,0] out of range; reset "
       "offset "
       "to 7", DECIDED | {"cause": "out of range"}),
    _F("truncate", "1.0", "1.0", "ERROR", FETCHER,
       "{any_prefix}Current offset {fetch_offset} for partition {topic}-{partition} out of range; "
       "reset offset to {log_end_offset}",
       _FETCH + "Current offset 9 for partition t-0 out of range; reset offset to 7",
       DECIDED | {"cause": "out of range"}),
    _F("truncate", "1.1", NEWEST, "INFO", FETCHER,
       "{any_prefix}Current offset {fetch_offset} for partition {topic}-{partition} is out of "
       "range,"
       " which typically implies a leader change. Reset fetch offset to {log_end_offset}",
       _FETCH + "Current offset 9 for partition t-0 is out of range, which typically implies a "
       "leader change. Reset fetch offset to 7", DECIDED | {"cause": "out of range"}),
    _F("truncate", "0.8", "0.10.1", "WARN", FETCHER,
       "{any_prefix}Replica {broker} for partition [{topic},{partition}] reset its fetch offset "
       "from "
       "{fetch_offset} to current leader {leader}'s {which_end} offset {log_end_offset}",
       "[ReplicaFetcherThread-0-2], Replica 1 for partition [t,0] reset its fetch offset from 9 to "
       "current leader 2's latest offset 7", DECIDED | {"cause": "out of range"}),
    _F("truncate", "0.10.2", "1.0", "WARN", FETCHER,
       "{any_prefix}Replica {broker} for partition {topic}-{partition} reset its fetch offset from "
       "{fetch_offset} to current leader {leader}'s {which_end} offset {log_end_offset}",
       "[ReplicaFetcherThread-0-2]: Replica 1 for partition t-0 reset its fetch offset from 9 to "
       "current leader 2's latest offset 7", DECIDED | {"cause": "out of range"}),
    _F("truncate", "1.1", NEWEST, "WARN", FETCHER,
       "{any_prefix}{fully}eset fetch offset for partition {topic}-{partition} from {fetch_offset} "
       "to {the}current leader's {which_end} offset {log_end_offset}",
       _FETCH + "Reset fetch offset for partition t-0 from 9 to current leader's latest offset 7",
       DECIDED | {"cause": "out of range"}),
    _F("crash", "0.8", "0.10.2", "FATAL", FETCHER,
       "{any_prefix}Halting because log truncation is not allowed for topic {topic}, Current "
       "leader "
       "{leader}'s latest offset {leader_end_offset} is less than replica {broker}'s latest offset "
       "{log_end_offset}",
       "[ReplicaFetcherThread-0-2], Halting because log truncation is not allowed for topic t, "
       "Current leader 2's latest offset 7 is less than replica 1's latest offset 9",
       {"cause": "log truncation is not allowed"}),
    _F("crash", "0.11", "1.0", "FATAL", FETCHER,
       "{any_prefix}Exiting because log truncation is not allowed for partition "
       "{topic}-{partition},"
       " current leader {leader}'s latest offset {leader_end_offset} is less than replica "
       "{broker}'s"
       " latest offset {log_end_offset}",
       "[ReplicaFetcherThread-0-2]: Exiting because log truncation is not allowed for partition "
       "t-0, current leader 2's latest offset 7 is less than replica 1's latest offset 9",
       {"cause": "log truncation is not allowed"}),
    _F("crash", "1.1", "1.1", "FATAL", FETCHER,
       _THREAD + "Exiting because log truncation is not allowed for partition {topic}-{partition}, "
       "current leader's latest offset {leader_end_offset} is less than replica's latest offset "
       "{log_end_offset}",
       _FETCH + "Exiting because log truncation is not allowed for partition t-0, current leader's "
       "latest offset 7 is less than replica's latest offset 9",
       {"cause": "log truncation is not allowed"}),
)

_AT = "[Controller id=1 epoch=5] "
_BY = "[Controller id={broker} epoch={controller_epoch}] "
CONTROLLER_LINES = (
    _F("isr_commit", "0.8", "0.11", "INFO", CONTROLLER,
       "{any_prefix}New leader and ISR for partition [{topic},{partition}] is {state}",
       "[Controller 1]: New leader and ISR for partition [t,0] is "
       '{"leader":2,"leader_epoch":3,"isr":[2]}', SAID_BY_CONTROLLER),
    _F("isr_commit", "0.11", "1.0", "INFO", CONTROLLER,
       "{any_prefix}New leader and ISR for partition {topic}-{partition} is {state}",
       '[Controller id=1] New leader and ISR for partition t-0 is '
       '{"leader":2,"leader_epoch":3,"isr":[2]}', SAID_BY_CONTROLLER),
    _F("isr_commit", "2.6", "3.9", "INFO", STATE_CHANGE,
       _BY + "Partition {topic}-{partition} state changed to {state} after removing replica "
       "{removed} from the ISR as part of transition to {transition}",
       _AT + "Partition t-0 state changed to (Leader:1,ISR:1,2,LeaderEpoch:3,ControllerEpoch:5) "
       "after removing replica 3 from the ISR as part of transition to OfflineReplica",
       SAID_BY_CONTROLLER),
    _F("isr_commit", "2.7", "3.0", "DEBUG", CONTROLLER,
       "{controller}ISR for partition {topic}-{partition} updated to [{isr}] and zkVersion updated "
       "to [{partition_epoch}]",
       "[Controller id=0] ISR for partition t-0 updated to [1,2] and zkVersion updated to [5]",
       ANSWER_TO_LEADER),
    _F("isr_commit", "3.1", "3.9", "DEBUG", CONTROLLER,
       "{controller}ISR for partition {topic}-{partition} updated to {state}.",
       "[Controller id=0] ISR for partition t-0 updated to LeaderAndIsr(leader=1, leaderEpoch=3, "
       "isrWithBrokerEpoch=List(BrokerState(brokerId=1, brokerEpoch=64), BrokerState(brokerId=2, "
       "brokerEpoch=-1)), leaderRecoveryState=RECOVERED, partitionEpoch=12).", ANSWER_TO_LEADER),
    _F("isr_commit", "2.8", NEWEST, "DEBUG", QUORUM,
       "{controller}partition change for {topic}-{partition} with topic ID {topic_id}: {diff}",
       "[QuorumController id=1] partition change for t-0 with topic ID abc: isr: [1, 2] -> [1], "
       "leader: 2 -> 1, leaderEpoch: 2 -> 3, partitionEpoch: 5 -> 6", SAID_BY_CONTROLLER),
    _F("leader", "2.8", NEWEST, "INFO", QUORUM,
       "{controller}UNCLEAN partition change for {topic}-{partition} with topic ID {topic_id}: "
       "{diff}",
       "[QuorumController id=1] UNCLEAN partition change for t-0 with topic ID abc: isr: [1] -> "
       "[2], leader: 1 -> 2, leaderRecoveryState: RECOVERED -> RECOVERING, leaderEpoch: 2 -> 3, "
       "partitionEpoch: 5 -> 6", UNCLEAN),
    _F("leader", "3.0", NEWEST, "INFO", QUORUM,
       "{controller}Setting new leader for topicId {topic_id}, partition {partition} to {replica} "
       "using an unclean election",
       "[QuorumController id=1] Setting new leader for topicId abc, partition 0 to 2 using an "
       "unclean election", UNCLEAN),
    _F("metadata", "3.0", NEWEST, "INFO", QUORUM,
       "{controller}{created} {topic}-{partition} with topic ID {topic_id} and {state}.",
       "[QuorumController id=1] Replayed PartitionRecord for new partition t-0 with topic ID abc "
       "and PartitionRegistration(replicas=[1, 2], isr=[1, 2], removingReplicas=[], "
       "addingReplicas=[], elr=[], lastKnownElr=[], leader=1, leaderRecoveryState=RECOVERED, "
       "leaderEpoch=0, partitionEpoch=0).", SAID_BY_CONTROLLER),
    _F("leader", "0.8", "1.0", "INFO", "kafka.controller.OfflinePartitionLeaderSelector",
       "{any_prefix}Selected new leader and ISR {state} for offline partition "
       "[{topic},{partition}]",
       "[OfflinePartitionLeaderSelector]: Selected new leader and ISR "
       '{"leader":2,"leader_epoch":3,"isr":[2]} for offline partition [t,0]', SAID_BY_CONTROLLER),
    _F("leader", "0.11", "1.0", "INFO", "kafka.controller.OfflinePartitionLeaderSelector",
       "{any_prefix}Selected new leader and ISR {state} for offline partition {topic}-{partition}",
       "[OfflinePartitionLeaderSelector]: Selected new leader and ISR "
       '{"leader":2,"leader_epoch":3,"isr":[2]} for offline partition t-0', SAID_BY_CONTROLLER),
    _F("leader", "0.8", "0.10.2", "WARN", "kafka.controller.OfflinePartitionLeaderSelector",
       "{any_prefix}No broker in ISR is alive for [{topic},{partition}]. Elect leader {replica} "
       "from "
       "live brokers {live}. There's potential data loss.",
       "[OfflinePartitionLeaderSelector]: No broker in ISR is alive for [t,0]. Elect leader 2 from "
       "live brokers 2. There's potential data loss.", UNCLEAN),
    _F("leader", "0.11", "1.0", "WARN", "kafka.controller.OfflinePartitionLeaderSelector",
       "{any_prefix}No broker in ISR is alive for {topic}-{partition}. Elect leader {replica} from "
       "live brokers {live}. There's potential data loss.",
       "[OfflinePartitionLeaderSelector]: No broker in ISR is alive for t-0. Elect leader 2 from "
       "live brokers 2. There's potential data loss.", UNCLEAN),
    _F("metadata", "0.8.2", "1.0", "INFO", CONTROLLER,
       "{any_prefix}Retaining last ISR {isr} of partition [{topic},{partition}] since unclean "
       "leader "
       "election is disabled",
       "[Controller 1]: Retaining last ISR 2 of partition [t,0] since unclean leader election is "
       "disabled", SAID_BY_CONTROLLER),
    _F("metadata", "0.11", "1.0", "INFO", CONTROLLER,
       "{any_prefix}Retaining last ISR {isr} of partition {topic}-{partition} since unclean leader "
       "election is disabled",
       "[Controller id=1] Retaining last ISR 2 of partition t-0 since unclean leader election is "
       "disabled", SAID_BY_CONTROLLER),
    _F("leader", "0.8", "0.11", "TRACE", STATE_CHANGE,
       "Controller {broker} epoch {controller_epoch} changed partition [{topic},{partition}] from "
       "{from_state} to {to_state} with leader {replica}",
       "Controller 1 epoch 5 changed partition [t,0] from OfflinePartition to OnlinePartition with "
       "leader 2", SAID_BY_CONTROLLER),
    _F("leader", "0.11", "0.11", "TRACE", STATE_CHANGE,
       "Controller {broker} epoch {controller_epoch} changed partition {topic}-{partition} from "
       "{from_state} to {to_state} with leader {replica}",
       "Controller 1 epoch 5 changed partition t-0 from OfflinePartition to OnlinePartition with "
       "leader 2", SAID_BY_CONTROLLER),
    _F("leader", "1.0", "1.0", "TRACE", STATE_CHANGE,
       _BY + "Changed partition {topic}-{partition} from {from_state} to {to_state} with leader "
       "{replica}",
       _AT + "Changed partition t-0 from OfflinePartition to OnlinePartition with leader 2",
       SAID_BY_CONTROLLER),
    _F("leader", "1.1", "3.9", "INFO", STATE_CHANGE,
       _BY + "Changed partition {topic}-{partition} from {from_state} to {to_state} with state "
       "{state}",
       _AT + "Changed partition t-0 from OfflinePartition to OnlinePartition with state "
       "LeaderAndIsr(leader=2, leaderEpoch=3, isr=List(2), zkVersion=4)", SAID_BY_CONTROLLER),
    _F("isr_rejected", "3.0", NEWEST, "INFO", QUORUM,
       "{controller}Rejecting {alter} request for unknown partition {topic}-{partition}.",
       "[QuorumController id=1] Rejecting AlterPartition request for unknown partition t-0.",
       SAID_BY_CONTROLLER | {"error": "UNKNOWN_TOPIC_OR_PARTITION"}),
)

BROKER_LINES = (
    _F("crash", "0.8", "3.9", "INFO", CONTROLLER,
       "{any_prefix}Broker failure callback for {brokers}",
       "[Controller id=2] Broker failure callback for 0", SAID_BY_CONTROLLER),
    _F("restart", "0.8", "1.0", "INFO", CONTROLLER,
       "{any_prefix}Newly added brokers: {brokers}, deleted brokers: {deleted}, all live brokers: "
       "{live}",
       "[BrokerChangeListener on Controller 1]: Newly added brokers: 0, deleted brokers: , all "
       "live "
       "brokers: 0,1,2", SAID_BY_CONTROLLER),
    _F("restart", "1.1", "3.9", "INFO", CONTROLLER,
       "{any_prefix}Newly added brokers: {brokers}, deleted brokers: {deleted}, bounced brokers: "
       "{bounced}, all live brokers: {live}",
       "[Controller id=2] Newly added brokers: 0, deleted brokers: , bounced brokers: , all live "
       "brokers: 0,1,2", SAID_BY_CONTROLLER),
    _F("crash", "2.8", NEWEST, "INFO", QUORUM,
       "{controller}Fencing broker {replica}{at_epoch} because its session has timed out.",
       "[QuorumController id=3000] Fencing broker 2 at epoch 9 because its session has timed out.",
       SAID_BY_CONTROLLER | {"cause": "fenced"}),
    _F("crash", "2.8", "3.2", "INFO", CLUSTER,
       "{controller}Fenced broker: FenceBrokerRecord(id={replica}, epoch={broker_epoch})",
       "[Controller 3000] Fenced broker: FenceBrokerRecord(id=2, epoch=176)",
       SAID_BY_CONTROLLER | {"cause": "fenced"}),
    _F("restart", "2.8", "3.2", "INFO", CLUSTER,
       "{controller}Unfenced broker: UnfenceBrokerRecord(id={replica}, epoch={broker_epoch})",
       "[Controller 3000] Unfenced broker: UnfenceBrokerRecord(id=2, epoch=176)",
       SAID_BY_CONTROLLER | {"cause": "unfenced"}),
    _F("crash", "3.3", NEWEST, "INFO", CLUSTER,
       "{controller}Replayed BrokerRegistrationChangeRecord modifying the registration for broker "
       "{replica}: BrokerRegistrationChangeRecord(brokerId={same}, brokerEpoch={broker_epoch}, "
       "fenced=1, {text}",
       "[QuorumController id=1] Replayed BrokerRegistrationChangeRecord modifying the registration "
       "for broker 2: BrokerRegistrationChangeRecord(brokerId=2, brokerEpoch=8, fenced=1, "
       "inControlledShutdown=0, logDirs=[])", SAID_BY_CONTROLLER | {"cause": "fenced"}),
    _F("restart", "3.3", NEWEST, "INFO", CLUSTER,
       "{controller}Replayed BrokerRegistrationChangeRecord modifying the registration for broker "
       "{replica}: BrokerRegistrationChangeRecord(brokerId={same}, brokerEpoch={broker_epoch}, "
       "fenced=-1, {text}",
       "[QuorumController id=1] Replayed BrokerRegistrationChangeRecord modifying the registration "
       "for broker 2: BrokerRegistrationChangeRecord(brokerId=2, brokerEpoch=8, fenced=-1, "
       "inControlledShutdown=0, logDirs=[])", SAID_BY_CONTROLLER | {"cause": "unfenced"}),
    _F("restart", "0.8", "0.11", "INFO", SERVER,
       "[Kafka Server {broker}], started", "[Kafka Server 1], started"),
    _F("crash", "0.8", "0.11", "INFO", SERVER,
       "[Kafka Server {broker}], shut down completed", "[Kafka Server 1], shut down completed",
       {"cause": "shut down"}),
    _F("restart", "1.0", "3.9", "INFO", SERVER,
       "[KafkaServer id={broker}] started", "[KafkaServer id=1] started"),
    _F("crash", "1.0", "3.9", "INFO", SERVER,
       "[KafkaServer id={broker}] shut down completed", "[KafkaServer id=1] shut down completed",
       {"cause": "shut down"}),
    _F("restart", "2.8", NEWEST, "INFO", "kafka.server.BrokerServer",
       "[BrokerServer id={broker}] Transition from STARTING to STARTED",
       "[BrokerServer id=1] Transition from STARTING to STARTED"),
    _F("crash", "2.8", NEWEST, "INFO", "kafka.server.BrokerServer",
       "[BrokerServer id={broker}] Transition from SHUTTING_DOWN to SHUTDOWN",
       "[BrokerServer id=1] Transition from SHUTTING_DOWN to SHUTDOWN", {"cause": "shut down"}),
)

# The text of an exception: it has no time of its own, it follows one that has.
_TOO_FEW = {"error": "NOT_ENOUGH_REPLICAS"}
_EXCEPTION = "{exception}NotEnoughReplicasException: "
PRODUCE_LINES = (
    _F("produce_error", "0.8.2", "0.10.2", "ERROR", _REPLICA_MANAGER,
       _EXCEPTION + "Number of insync replicas for partition [{topic},{partition}] is [{count}], "
       "below required minimum [{minimum}]",
       "org.apache.kafka.common.errors.NotEnoughReplicasException: Number of insync replicas for "
       "partition [t,0] is [2], below required minimum [1]", _TOO_FEW),
    _F("produce_error", "0.11", NEWEST, "ERROR", _REPLICA_MANAGER,
       _EXCEPTION + "The size of the current ISR {isr_set} is insufficient to satisfy the min.isr "
       "requirement of {min_insync_replicas} for partition {topic}-{partition}{live_replicas}",
       "org.apache.kafka.common.errors.NotEnoughReplicasException: The size of the current ISR "
       "Set(2) is insufficient to satisfy the min.isr requirement of 2 for partition t-0",
       _TOO_FEW),
)

FORMATS: tuple[Format, ...] = (
    ISR_LINES
    + REJECTION_LINES
    + LEADER_LINES
    + TRUNCATION_LINES
    + CONTROLLER_LINES
    + BROKER_LINES
    + PRODUCE_LINES
)

# About replication, but no event: an intention, a repetition, or something that did not happen.
NO_NEWS: tuple[str, ...] = (
    r"Progress awaiting ISR acks",
    r"Log loaded for partition|Replica loaded for partition|No checkpointed high ?watermark",
    r"Updating ISRs for partitions|isr ?change ?notif",
    r"All leaders =|Topics not in preferred replica|Leader imbalance ratio",
    r"[Pp]referred replica (leader )?election|replica leader election",
    r"[Ss](ending|ent) .*LeaderAndIsr|[Hh]andling LeaderAndIsr|(Finished|Completed) LeaderAndIsr",
    r"(Ignoring|as part of) .*LeaderAndIsr|LeaderAndIsr request .*(cached|transition|completed)",
    r"sent (LeaderAndIsr|UpdateMetadata)|fails to send request|Cached leader info|metadata cache",
    r"Truncating (\S+ )?to -?\d+ has no effect",
    r"Based on (follower|replica|the current)\S* leader epoch, leader replied",
    r"Leader or \S+ is on protocol version",
    r"has an older epoch|Will await the new LeaderAndIsr|Retrying leaderEpoch request",
    r"Skipped the become-(leader|follower) state change",
    r"[Cc]hanged partition \S+ state from|Changed replica|changed state of replica",
    r"Started leader election|started leader election|elected leader|Elected leader",
    r"Some broker in ISR is alive|After leader election|Initializing leader and isr",
    r"Removing replica \d+ from ISR|Cannot remove replica|Updat(ed|ing) leader epoch",
    r"The request from broker \d+ to (un)?fence|[Uu]nfenced broker \d+ has requested",
    r"fenced=0,|Transition from (SHUTDOWN|STARTED) to|The broker (is|has been) (un)?fenced",
    r"Ignoring (failed|new) ISR|Ignoring ISR from AlterIsr|Enqueued ISR change|Submitting AlterI",
    r"Received (AlterIsr|AlterPartition) response|Successfully updated the partition state",
    r"Newly added brokers: , ",
    r"initial state ->|Transitioning \d+ partition|(Started|Stopped) fetchers|Updated "
    r"PartitionLeaderEpoch|epoch entry",
    r"(Added|Removed) fetcher|ReplicaFetcherManager|AlterPartition request from node .* completed",
    r"(Shutting|shutting) down|Stopped$|Starting$|Shutdown completed",
    r"Registered new broker|Replayed (initial )?RegisterBrokerRecord|Replayed ConfigRecord",
    r"handleBroker\w+: changing|Setting high watermark|set replica high watermark",
    r"Skipping update high watermark|Not increasing HWM|Retrying leader election",
)

# Sources: public pages that quote such lines; each says why the line is not Kafka's.
IMPOSSIBLE: tuple[tuple[str, str], ...] = (
    (r"Expanding ISR .*lastCaughtUpTimeMs", "the last release with 'Expanding ISR' is 2.7, the "
     "first with lastCaughtUpTimeMs is 3.6"),
    (r"Expanding ISR .*(Leader: \(|Out of sync)", "no release says more than the two lists"),
    (r"ISR updated to .*\(under-replicated\)", "brokers say (under-min-isr), never "
     "(under-replicated)"),
    (r"Replica \d+ .*lagging behind by \d+ messages", "no release prints how many messages a "
     "replica is behind"),
    (r"(Shrinking|Expanding) ISR .*due to follower", "no release names a cause in this line"),
    (r"(Shrinking|Expanding) ISR .*from \w+\(", "brokers print the bare list, without Set(...)"),
    (r"\[Kafka-server-topic-handler\]", "no broker has such a component"),
)
