"""The state of a cluster at the end of its metadata log or in a snapshot, and its past.

The log has every broker's registration (rack, the metadata versions that its release knows), the
state of each partition, topic settings and those of the whole cluster; it has nothing from a
broker's own file. Source: RegisterBrokerRecord.json, MetadataVersion.java 4.4.0.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from isrlab.engine.versions import GENERATIONS, KafkaVersion
from isrlab_ops.check import quorum
from isrlab_ops.check.cluster import CheckError, ClusterState, brokers_of, possible_versions
from isrlab_ops.check.describe import DescribedPartition, settings_of
from isrlab_ops.logs.history.record import clock
from isrlab_ops.logs.incidents.exposed import UNCLEAN
from isrlab_ops.logs.reader.files import LogDirError, expanded, find
from isrlab_ops.logs.reader.metadata import files as metadata_files
from isrlab_ops.logs.reader.metadata.log import (
    CORDONED,
    ELR,
    MIN_ISR,
    TOPIC,
    MetadataCluster,
    MetadataEvent,
    PartitionFields,
    PartitionId,
    id_text,
)
from isrlab_ops.logs.reader.packed import UnpackedFiles

NEWEST = (  # the highest metadata version of each release
    (2, "3.1"), (3, "3.2"), (7, "3.3"), (8, "3.4"), (11, "3.5"), (14, "3.6"), (19, "3.7"),
    (20, "3.8"), (21, "3.9"), (25, "4.0"), (27, "4.1"), (29, "4.2"), (30, "4.3"), (99, "4.4"),
)  # fmt: skip
REPLICAS, OWN = ("leader", "replicas", "isr"), (MIN_ISR, UNCLEAN)
OTHERS = ("eligibleLeaderReplicas", "lastKnownElr", "addingReplicas", "removingReplicas")


class LastState(MetadataCluster):
    """The last state, without events; a partition's fields keep the past that `exposed` needs."""

    def _changed(self, key: PartitionId, after: PartitionFields) -> Iterator[MetadataEvent]:
        before, self.partitions[key] = self.partitions.get(key, {}), after
        gone = {*before.get("replicas", ())}.difference(after.get("replicas", ()))
        after["emptied"] = gone.union(before.get("emptied", ())).difference(after.get("isr", ()))
        after["is_whole"] = before.get("is_whole", False) or after["partitionEpoch"] == 0
        return iter(())


def of_files(path: str, version: str | None = None) -> ClusterState:
    """The last state in the files of one metadata log. Raises CheckError."""
    try:
        with UnpackedFiles() as unpacked:
            sources = metadata_files.metadata_sources(expanded(find(path), unpacked))
            if not sources:
                raise CheckError(f"{path} holds no metadata log and no snapshot of one")
            cluster, rows = metadata_files.last_state(sources, LastState)
    except (LogDirError, OSError) as error:
        raise CheckError(error) from None
    return _state(cluster, rows, version)


def _state(
    cluster: MetadataCluster, rows: list[metadata_files.MetadataRow], version: str | None
) -> ClusterState:
    unsure = [f"the metadata log could not be read in full: {row['reason']}"
              for row in rows if row["row"] == "unread"][:1]  # fmt: skip
    last_ms = max((row["last_ms"] or 0 for row in rows if row["row"] == "file"), default=0)
    settings = {(name if kind == TOPIC else f"broker {name}".strip(), setting): value
                for (kind, name, setting), value in cluster.settings.items()}  # fmt: skip
    own = {topic: settings_of(*(settings.get((topic, name)) or settings.get(("broker", name))
                                for name in OWN))
           for topic in cluster.topics.values()}  # fmt: skip
    partitions, past = [], {}
    for (topic_id, number), fields in cluster.partitions.items():
        topic = cluster.topics.get(topic_id)
        if topic is None or not fields.keys() >= {*REPLICAS}:
            name = f"{topic or id_text(topic_id)}-{number}"
            unsure.append(f"the log shows only a part of the state of {name}")
            continue
        others = (fields.get(name, ()) for name in OTHERS)
        values = (topic, number, *map(fields.get, REPLICAS), *others, *own[topic])
        partitions.append(DescribedPartition._make(values))
        if fields.get(OTHERS[0]):  # only with an ELR can the past expose it
            no_log = tuple(fields.get("no_log", ()))
            past[topic, number] = fields["emptied"], fields["is_whole"], no_log
    counts = Counter(p.topic for p in partitions)
    unsure += [f"partitions of topic {p.topic} are missing"
               for p in partitions if p.number >= counts[p.topic]][:1]  # fmt: skip
    unsure += ["the metadata log ends within a transaction"] * bool(cluster.saved)
    if not partitions:
        raise CheckError("; ".join(unsure[:2]) or "the metadata log has no partition")
    return ClusterState(
        "metadata log" + f" of {clock(last_ms)[:19]} UTC" * bool(last_ms), sorted(partitions),
        brokers_of(partitions) | {b: e.get("rack") or "" for b, e in cluster.brokers.items()},
        frozenset(cluster.brokers.keys() - cluster.inactive), _versions(cluster, version), settings,
        past, has_elr=settings.get(("broker", ELR), "0") != "0" or bool(past),
        is_kraft=True, unsure=tuple(unsure[:3]), unseen="what stands in the brokers' own files",
        quorum=_quorum(cluster), cordoned=frozenset(
            b for b, e in cluster.brokers.items()
            if e.get("logDirs") and {*e["logDirs"]} <= {*(e.get(CORDONED) or ())}
        ),
    )  # fmt: skip


def _quorum(cluster: MetadataCluster) -> DescribedPartition | None:
    """The voters; NONE if no controller is a broker. Voters may be more than have registered."""
    if voters := cluster.quorum.get("voters"):
        return quorum.of_voters(voters, cluster.quorum.get("leader", -1))
    known = cluster.controllers
    return quorum.NONE if known and cluster.brokers.keys().isdisjoint(known) else None


def _versions(cluster: MetadataCluster, version: str | None) -> tuple[KafkaVersion, ...]:
    """The releases of the brokers, by the highest metadata version that each knows."""
    if version is not None:
        return possible_versions(version)
    features = [each for b in cluster.brokers.values() for each in b.get("features") or ()]
    highest = {each["2"] for each in features if each["0"] == "metadata.version"}
    names = {next(name for top, name in NEWEST if level <= top) for level in highest}
    known = {replace(KafkaVersion.of(name), name=name) for name in names}
    return tuple(sorted(known or {v for v in GENERATIONS if v.kraft}, key=lambda v: v.first))
