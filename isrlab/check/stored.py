"""The state of a cluster at the end of its metadata log or in a snapshot of it, and its history.

The log has every broker's registration (rack, the metadata versions that its release knows), the
state of each partition, topic settings and those of the whole cluster; what stands in a broker's
file it has not. Source: RegisterBrokerRecord.json, MetadataVersion.java 4.4.0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from isrlab.check.cluster import CheckError, ClusterState, possible_versions
from isrlab.engine.versions import GENERATIONS, KafkaVersion
from isrlab.events.exact import Key
from isrlab.events.wording import printable
from isrlab.logs.history.record import clock
from isrlab.logs.incidents.exposed import UNCLEAN, StoredPartition, stored_in
from isrlab.logs.reader.files import LogDirError, expanded, find
from isrlab.logs.reader.metadata import files as metadata_files
from isrlab.logs.reader.metadata.log import CLUSTER, ELR, MIN_ISR, TOPIC, MetadataCluster, id_text
from isrlab.logs.reader.packed import Unpacked
from isrlab.placement.describe import DescribedPartition

NEWEST = (  # the highest metadata version of each release
    (2, "3.1"), (3, "3.2"), (7, "3.3"), (8, "3.4"), (11, "3.5"), (14, "3.6"), (19, "3.7"),
    (20, "3.8"), (21, "3.9"), (25, "4.0"), (27, "4.1"), (29, "4.2"), (30, "4.3"), (33, "4.4"),
)  # fmt: skip
FIELDS = ("replicas", "isr", "leader")  # without them a partition is not known
FENCED = "brokers' own files (min.insync.replicas there), and records on their way"


class StoredCluster(NamedTuple):
    """`history`: each partition as `exposed` wants it."""

    state: ClusterState
    history: dict[Key, StoredPartition]


def of_files(path: str, version: str | None = None) -> StoredCluster:
    """The last state that the files of one metadata log have. Raises CheckError."""
    try:
        with Unpacked() as unpacked:
            sources = metadata_files.of(expanded(find(path), unpacked))
            if not sources:
                raise CheckError(f"{printable(path)} holds no metadata log and no snapshot of one")
            cluster, rows = metadata_files.last_state(sources)
    except (LogDirError, OSError) as error:
        raise CheckError(printable(str(error))) from None
    return StoredCluster(_state(cluster, rows, version), stored_in(rows)[0])


def _state(cluster: MetadataCluster, rows: list[Any], version: str | None) -> ClusterState:
    versions, unsure = _versions(cluster, version)
    if any(row["row"] == "unread" for row in rows):
        reason = next(row for row in rows if row["row"] == "unread")["reason"]
        unsure.append(f"the metadata log could not be read whole: {printable(reason)}")
    if cluster.saved:
        unsure.append("the metadata log ends within a transaction")
    partitions = []
    for (topic_id, number), fields in sorted(cluster.partitions.items(), key=lambda kv: kv[0][1]):
        topic = cluster.topics.get(topic_id)
        if topic is None or any(fields.get(name) is None for name in FIELDS):
            name = f"{printable(topic or id_text(topic_id))}-{number}"
            unsure.append(f"the log shows only a part of the state of {name}")
        else:
            partitions.append(_partition(cluster, topic, number, fields, versions))
    if not partitions:
        raise CheckError("; ".join(unsure) or "the metadata log has no partition")
    numbers: dict[str, int] = {}
    for p in partitions:
        numbers[p.topic] = numbers.get(p.topic, 0) + 1
    if missing := next((p.topic for p in partitions if numbers[p.topic] <= p.number), None):
        unsure.append(f"partitions of topic {printable(missing)} are missing")
    named = {b for p in partitions for b in (*p.replicas, *p.elr)}
    racks = {b: each.get("rack") or "" for b, each in cluster.brokers.items()}
    last_ms = max((row["last_ms"] or 0 for row in rows if row["row"] == "file"), default=0)
    source = f"metadata log of {clock(last_ms)[:19]} UTC" if last_ms else "metadata log"
    settings = {
        (_of(kind, of), name): value for (kind, of, name), value in cluster.settings.items()
    }
    has_elr = settings.get(("broker", ELR), "0") != "0" or any(p.elr for p in partitions)
    return ClusterState(
        source, sorted(partitions), {**dict.fromkeys(sorted(named), ""), **racks},
        frozenset(racks.keys() - cluster.inactive), versions, settings, has_elr,
        unsure=tuple(unsure), unseen=(FENCED,),
    )  # fmt: skip


def _of(kind: int, name: str) -> str:
    """As `exposed` names what is set: a topic, a broker, or "broker" for the whole cluster."""
    return name if kind == TOPIC else f"broker {name}".strip()


def _partition(
    cluster: MetadataCluster, topic: str, number: int, fields: dict[str, Any],
    versions: tuple[KafkaVersion, ...],
) -> DescribedPartition:  # fmt: skip
    def setting(name: str) -> str | None:
        return cluster.settings.get((TOPIC, topic, name)) or cluster.settings.get(
            (CLUSTER, "", name)
        )

    lists = ("eligibleLeaderReplicas", "lastKnownElr", "addingReplicas", "removingReplicas")
    min_isr, unclean = setting(MIN_ISR), setting(UNCLEAN)
    is_unclean = any(v.unclean_leader_election_enable for v in versions)
    return DescribedPartition(
        topic, number, fields["leader"], fields["replicas"], fields["isr"],
        *(fields.get(name) or () for name in lists),
        int(min_isr) if min_isr and min_isr.isdecimal() else None,
        is_unclean if unclean is None else unclean == "true",
    )  # fmt: skip


def _versions(
    cluster: MetadataCluster, version: str | None
) -> tuple[tuple[KafkaVersion, ...], list[str]]:
    """The release of the brokers, by the highest metadata version that they know."""
    if version is not None:
        try:
            return possible_versions(version), []
        except ValueError as error:
            raise CheckError(printable(str(error))) from None
    highest = {level for broker in cluster.brokers.values()
               for level in _levels(broker.get("features") or ())}  # fmt: skip
    names = {next((name for top, name in NEWEST if level <= top), "4.4") for level in highest}
    if not names:
        return tuple(v for v in GENERATIONS if v.kraft), []
    releases = sorted({KafkaVersion.of(name) for name in names}, key=lambda v: v.first)
    unsure = [f"brokers of several releases: {', '.join(sorted(names))}"] * (len(releases) > 1)
    return tuple(releases), unsure


def _levels(features: Any) -> list[int]:
    """The highest level of metadata.version, in a list of features with their two levels."""
    return [each["2"] for each in features if each["0"] == "metadata.version"]
