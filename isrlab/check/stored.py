"""The state of a cluster at the end of its metadata log or in a snapshot, and its history.

The log has every broker's registration (rack, the metadata versions that its release knows), the
state of each partition, topic settings and those of the whole cluster; it has nothing from a
broker's own file. Source: RegisterBrokerRecord.json, MetadataVersion.java 4.4.0.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from isrlab.check.cluster import CheckError, ClusterState, possible_versions
from isrlab.engine.versions import GENERATIONS, KafkaVersion
from isrlab.events.exact import Key
from isrlab.events.statements import statement
from isrlab.logs.history.record import clock
from isrlab.logs.incidents.exposed import UNCLEAN, StoredPartition, stored_in
from isrlab.logs.reader.files import LogDirError, expanded, find
from isrlab.logs.reader.metadata import files as metadata_files
from isrlab.logs.reader.metadata.log import ELR, MIN_ISR, TOPIC, MetadataCluster, id_text
from isrlab.logs.reader.packed import UnpackedFiles
from isrlab.placement.describe import DescribedPartition

NEWEST = (  # the highest metadata version of each release
    (2, "3.1"), (3, "3.2"), (7, "3.3"), (8, "3.4"), (11, "3.5"), (14, "3.6"), (19, "3.7"),
    (20, "3.8"), (21, "3.9"), (25, "4.0"), (27, "4.1"), (29, "4.2"), (30, "4.3"), (99, "4.4"),
)  # fmt: skip
ALWAYS, SOMETIMES = ("leader", "replicas", "isr"), (
    "eligibleLeaderReplicas", "lastKnownElr", "addingReplicas", "removingReplicas"
)  # fmt: skip


def of_files(
    path: str, version: str | None = None
) -> tuple[ClusterState, dict[Key, StoredPartition]]:
    """The last state in the files of one metadata log, and the history of each partition that has
    eligible leader replicas, as `exposed` needs it. Raises CheckError."""
    try:
        with UnpackedFiles() as unpacked:
            sources = metadata_files.metadata_sources(expanded(find(path), unpacked))
            if not sources:
                raise CheckError(f"{path} holds no metadata log and no snapshot of one")
            cluster, rows = metadata_files.last_state(sources)
    except (LogDirError, OSError) as error:
        raise CheckError(error) from None
    unsure = [f"the metadata log could not be read in full: {row['reason']}"
              for row in rows if row["row"] == "unread"][:1]  # fmt: skip
    last_ms = max((row["last_ms"] or 0 for row in rows if row["row"] == "file"), default=0)
    source = f"metadata log of {clock(last_ms)[:19]} UTC" if last_ms else "metadata log"
    state = _state(cluster, source, unsure, version)
    past = {p[:2] for p in state.partitions if p.elr}  # only their history can expose them
    wanted = (row for row in rows if (row.get("topic"), row.get("partition")) in past)
    return state, stored_in(statement(**row) for row in wanted)[0]


def _state(
    cluster: MetadataCluster, source: str, unsure: list[str], version: str | None
) -> ClusterState:
    settings = {(name if kind == TOPIC else f"broker {name}".strip(), setting): value
                for (kind, name, setting), value in cluster.settings.items()}  # fmt: skip

    def setting(topic: str, name: str) -> str:
        return settings.get((topic, name)) or settings.get(("broker", name)) or ""

    partitions = []
    for (topic_id, number), fields in cluster.partitions.items():
        topic = cluster.topics.get(topic_id)
        if topic is None or any(fields.get(name) is None for name in ALWAYS):
            name = f"{topic or id_text(topic_id)}-{number}"
            unsure.append(f"the log shows only a part of the state of {name}")
            continue
        least, unclean = setting(topic, MIN_ISR), setting(topic, UNCLEAN)
        elr, last, adding, removing = (fields.get(name) or () for name in SOMETIMES)
        partitions.append(DescribedPartition(
            topic, number, fields["leader"], fields["replicas"], fields["isr"],
            elr, last, adding, removing, int(least) if least.isdecimal() else None,
            unclean == "true" if unclean else None,
        ))  # fmt: skip
    counts = Counter(p.topic for p in partitions)
    unsure += [f"partitions of topic {p.topic} are missing"
               for p in partitions if p.number >= counts[p.topic]][:1]  # fmt: skip
    unsure += ["the metadata log ends within a transaction"] * bool(cluster.saved)
    if not partitions:
        raise CheckError("; ".join(unsure[:2]) or "the metadata log has no partition")
    racks = dict.fromkeys(sorted({b for p in partitions for b in (*p.replicas, *p.elr)}), "")
    racks |= {b: each.get("rack") or "" for b, each in cluster.brokers.items()}
    return ClusterState(
        source, sorted(partitions), racks, frozenset(cluster.brokers.keys() - cluster.inactive),
        _versions(cluster, version), settings,
        has_elr=settings.get(("broker", ELR), "0") != "0" or any(p.elr for p in partitions),
        is_kraft=True, unsure=tuple(unsure[:3]), unseen="what stands in the brokers' own files",
    )  # fmt: skip


def _versions(cluster: MetadataCluster, version: str | None) -> tuple[KafkaVersion, ...]:
    """The release of the brokers, by the highest metadata version that each knows."""
    if version is not None:
        return possible_versions(version)
    features: list[dict[str, Any]] = [
        each for broker in cluster.brokers.values() for each in broker.get("features") or ()
    ]
    highest = {each["2"] for each in features if each["0"] == "metadata.version"}
    names = {next(name for top, name in NEWEST if level <= top) for level in highest}
    known = {KafkaVersion.of(name) for name in names} or {v for v in GENERATIONS if v.kraft}
    return tuple(sorted(known, key=lambda v: v.first))
