"""Edits to Kafka's published sources, made as the hunt runs: those sources are not stored here.

A repair replaces a few tokens. If a repaired class no longer shows a kind, its cause is there.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
import zipfile
from pathlib import Path
from typing import NamedTuple

from judge import jars

# In Node.java, before the only call of the method: Partition is Scala, which javac cannot compile.
RACE = "pending_change_kept"


class Edit(NamedTuple):
    """An edit of this file, at the only place where the pattern matches."""

    file: str
    pattern: str
    replacement: str


PARTITION = "kafka/cluster/Partition.scala"
MANAGER = "controller/ReplicationControlManager"
BUILDER = "controller/PartitionChangeBuilder"
TOPICS, TOPIC = "image/TopicsDelta", "image/TopicDelta"
EACH_ELR = r"(partition\.elr\.length != 0 \|\| partition\.lastKnownElr\.length != 0)"

REPAIRS: dict[str, list[Edit]] = {
    "elr_of_target_replicas": [
        Edit(BUILDER, r"(targetElr = candidateSet\.stream\(\))",
             r"\1.filter(targetReplicas::contains)"),
    ],
    "min_isr_of_partition": [
        Edit(BUILDER, r"targetIsr\.size\(\) >= minISR",
             "targetIsr.size() >= Math.min(minISR, targetReplicas.size())"),
        Edit(MANAGER, r"return Math\.min\(currentMinIsr, replicationFactor\);\s*\}",
             "return currentMinIsr; }\n    int minIsrOfPartition(String topic, int replicas)"
             " { return Math.min(getTopicEffectiveMinIsr(topic), replicas); }"),
    ],
    "index_of_cleared_elr": [
        Edit(MANAGER, r"topic\.parts\.put\(partitionId, partition\.merge\(\s*"
             r"(new PartitionChangeRecord\(\)[^;]*?)\)\);",
             r"PartitionRegistration cleared = partition.merge(\1);"
             r" topic.parts.put(partitionId, cleared);"
             r" updatePartitionInfo(topic.id, partitionId, partition, cleared);"),
    ],
    "reassignment_lists": [
        Edit(MANAGER, r"if \(!reassignment\.removing\(\)\.isEmpty\(\)\) \{", "{"),
        Edit(MANAGER, r"if \(!reassignment\.adding\(\)\.isEmpty\(\)\) \{", "{"),
    ],
    "directory_of_target": [
        Edit(MANAGER, r"Uuid replicaDirectory = partition\.directory\(brokerId\);",
             "if (!Replicas.contains(partition.replicas, brokerId)) return true;\n"
             "            Uuid replicaDirectory = partition.directory(brokerId);"),
    ],
    "elr_only_while_on": [
        Edit(BUILDER, r"\(targetIsr\.isEmpty\(\) && targetElr\.contains\(replica\)\)",
             "(eligibleLeaderReplicasEnabled && targetIsr.isEmpty()"
             " && targetElr.contains(replica))"),
    ],
    "directories_of_deleted": [
        Edit(MANAGER, r"(updatePartitionDirectories\(topic\.id, partitionId,"
             r" partition\.directories, null\);)\s*\}", r"} \1"),
    ],
    "elr_of_an_empty_isr": [
        Edit(MANAGER, EACH_ELR, r"partition.isr.length != 0 && (\1)"),
        Edit(TOPIC, EACH_ELR, r"partition.isr.length != 0 && (\1)"),
        Edit(BUILDER, r"(targetElr = targetElr\.stream\(\)\.filter\(replica -> replica != )",
             r"if (targetIsr.size() >= minISR) targetElr = List.of(); \1"),
    ],
    "revert_of_an_empty_isr": [
        Edit("controller/PartitionReassignmentRevert", r"if \(isr\.isEmpty\(\)\)",
             "if (isr.isEmpty() && registration.isr.length != 0)"),
    ],
    "no_unclean_revert": [
        Edit(MANAGER, r"if \(revert\.unclean\(\)\) \{\s*if \([^{]*\{",
             "if (revert.unclean()) { if (true) {"),
    ],
    "last_known_replica": [
        Edit(BUILDER, r"if \(!isAcceptableLeader\.test\(partition\.lastKnownElr\[0\]\)\)",
             "if (!targetReplicas.contains(partition.lastKnownElr[0])\n"
             "                || !isAcceptableLeader.test(partition.lastKnownElr[0]))"),
    ],
    "last_known_leader_alive": [
        Edit(BUILDER, r"if \((isAcceptableLeader\.test\(partition\.lastKnownElr\[0\]\))\) \{",
             r"if (!\1) { if (true) return false;"),
    ],
    "late_min_isr": [  # a new partition epoch refuses late requests
        Edit(MANAGER, EACH_ELR, r"(\1 || partition.isr.length != 0)"),
        Edit(TOPIC, EACH_ELR, r"(\1 || partition.isr.length != 0)"),
    ],
    "topic_of_one_delta": [
        Edit(TOPICS, r"(return topicName;)",
             r"createdTopics.remove(topicName, record.topicId()); \1"),
    ],
    "settings_of_one_delta": [
        Edit("image/ConfigurationsDelta",
             r"(if \(image\.resourceData\(\)\.containsKey\(resource\)\) \{)",
             r"if (changes.containsKey(resource)) changes.get(resource).deleteAll(); \1"),
    ],
    "elr_of_a_failed_directory": [
        Edit(MANAGER, r'(newOfflineDir \+ "\]",\s*brokerId, NO_LEADER, )NO_LEADER', r"\1brokerId"),
    ],
    "leader_in_new_directory": [
        Edit(MANAGER, r"new LeaderAcceptor\(clusterControl, partitionRegistration\)",
             r"id -> id == brokerId ? !directoryIsOffline && clusterControl.isActive(id)"
             r" : \g<0>.test(id)"),
    ],
    "elr_in_snapshots": [
        Edit("metadata/PartitionRegistration",
             r"if \(options\.isEligibleLeaderReplicasEnabled\(\)\)", "if (true)"),
    ],
    "unregistered_leaves_elr": [
        Edit(MANAGER, rf'("handleBrokerUnregistered", brokerId, NO_LEADER, )NO_LEADER'
             rf"(, records,\s*brokersTo{index})", r"\1brokerId\2")
        for index in ("Isrs", "Elrs")
    ],
    "last_member_is_last_leader": [
        Edit(BUILDER, r"(void maybeUpdateLastKnownLeader\([^;]*return;)",
             r"\1 if (partition.leader == NO_LEADER && record.leader() < 0 && targetIsr.isEmpty()\n"
             r"  && partition.isr.length == 1)\n"
             r"  { record.setLastKnownElr(List.of(partition.isr[0])); return; }"),
    ],
    "elr_kept_while_off": [
        Edit(BUILDER, r"(private boolean canElectLast\w+\(\) \{\s*if \()!elig\w+ \|\|",
             r"void electsLastKnownWhileOff() { } \1"),
        Edit(BUILDER, r"if \(!isCleanLeaderElection \|\| !eligibleLeaderReplicasEnabled\)",
             "if (!isCleanLeaderElection)"),
    ],
    "directories_of_a_heartbeat": [
        Edit(MANAGER, r"(clusterControl\.checkBrokerEpoch\(brokerId, brokerEpoch\);\s*"
             r"BrokerHeartbeatManager heartbeatManager)",
             r"offlineNow = request.offlineLogDirs(); \1"),
        Edit(MANAGER, r"(BrokerHeartbeatReply reply = )", r"offlineNow = java.util.List.of(); \1"),
        Edit(MANAGER, r"(return clusterControl\.hasOnlineDir\(brokerId, \w+\));",
             r"\1 && !offlineNow.contains(partition.directory(brokerId));"),
        Edit(MANAGER, r"(private static final class LeaderAcceptor)",
             r"static java.util.List<Uuid> offlineNow = java.util.List.of(); \1"),
    ],
    "joins_if_caught_up": [  # as PR 23024 for KAFKA-19996 describes itself; its diff was not read
        Edit(PARTITION, r"(followerEndOffset >= leaderLog\.highWatermark &&"
             r" leaderEpochStartOffsetOpt\.exists\(followerEndOffset >= _\))",
             r"\1 && (!isUnderMinIsr || followerReplica.stateSnapshot.isCaughtUp("
             "leaderLog.logEndOffset, time.milliseconds, replicaLagTimeMaxMs))"),
    ],
    RACE: [],
}  # fmt: skip


# Wrong patches of 4.3.1, each with the promise that it breaks. All edits: these and the repairs.
WRONG = tomllib.loads((Path(__file__).parents[3] / "data/hunt/wrong.toml").read_text())
EDITS = REPAIRS | {
    name: [Edit(patch.get("file", MANAGER), patch["pattern"], patch.get("replacement", ""))]
    for name, patch in WRONG.items()
}


def source(release: str, file: str) -> str:
    """A file of Kafka's sources, fetched by Maven. Raises NoJarsError if there are none."""
    name = "kafka_2.13" if file.endswith(".scala") else "kafka-metadata"
    folder = jars.CACHE / f"{release}-sources"
    jar = folder / f"{name}-{release}-sources.jar"
    artifact = f"-Dartifact=org.apache.kafka:{name}:{release}:jar:sources"
    command = ["mvn", "-q", "dependency:copy", artifact, f"-DoutputDirectory={folder}"]
    if not jar.exists():
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path.home())
        if done.returncode:
            raise jars.NoJarsError(f"Maven has no sources of {name} {release}")
    with zipfile.ZipFile(jar) as sources:
        return sources.read(file).decode()


def edited(release: str, names: tuple[str, ...]) -> list[tuple[str, str]]:
    """The sources of the classes that these edits change, as (file name, text)."""
    texts: dict[str, str] = {}
    for edit in (edit for name in names for edit in EDITS[name]):
        is_whole = edit.file.endswith(".scala")
        path = edit.file if is_whole else f"org/apache/kafka/{edit.file}.java"
        text = texts.get(path) or source(release, path)
        text, count = re.subn(edit.pattern, edit.replacement, text)
        if count != 1:
            raise ValueError(f"{release}, {path}: {count} times: {edit.pattern}")
        texts[path] = text
    return [(Path(path).name, text) for path, text in texts.items()]
