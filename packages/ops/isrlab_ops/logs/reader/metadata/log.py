"""Events from Kafka's metadata log: every ISR, leader, epoch, replica set and fencing, exactly.

Theory of operation. The controllers of a KRaft cluster agree on one log of records; replaying it
gives the state of every partition after each of them. A `PartitionRecord` has the whole state of a
partition; a `PartitionChangeRecord` has the changes, raises the partition epoch by one and, if it
names a leader (even the current one), the leader epoch. Times are the controller's, in ms since the
epoch. A partition is a dict of the fields of its record, as far as they are known.

The author of a change: a leader only grows the ISR, or removes brokers that are neither fenced nor
leaving in that batch; all other changes are the controller's. The last records of a copied log may
be on no majority, and never take effect; the log itself does not show that.

Two states that can later lose records are noted (data/upstream). LEFT: settings that a deleted
topic got after the last snapshot; a broker of 3.8 or later that starts gives them to a new topic of
that name. `no_log`: replicas whose directory is offline, or was when they got another one, with
that directory, until they are in the ISR.

Source: PartitionRegistration.merge, ReplicationControlManager.replay, 3.9 and 4.1;
ConfigurationsDelta.replay(RemoveTopicRecord), DirectoryId.isOnline, 4.3.1.
"""

import base64
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any, TypeAlias

from isrlab_ops.logs.reader.metadata.records import Record

PartitionId: TypeAlias = tuple[bytes, int]  # topic id, number of the partition
PartitionFields: TypeAlias = dict[str, Any]
MetadataEvent: TypeAlias = dict[str, Any]
SAID_BY = "metadata log"
NO_LEADER, NO_LEADER_CHANGE = -1, -2
TOPIC, CLUSTER = 2, 4  # relevant resources of a ConfigRecord
SETTINGS = re.compile(r"min\.insync\.replicas|unclean\.leader\.election\.enable|.*\.throttled\..*")
MIN_ISR, ELR = "min.insync.replicas", "eligible.leader.replicas.version"
CORDONED = "cordonedLogDirs"  # since 4.3 (KIP-1066); null until the broker has reported them
LEFT = "settings of a deleted topic"  # the name of a setting, whose value lists them
LOSING = re.compile(r"(local\.)?retention\.(ms|bytes)|cleanup\.policy|min\.insync\.replicas|"
                    r"unclean\.leader\.election\.enable")  # fmt: skip
OF_3_8, OF_4_3 = 20, 30  # the highest metadata versions that these releases know
ANY_DIRECTORY = bytes(16), bytes(15) + b"\2"  # not assigned, migrating: counts as online
SHOWN = {  # in `detail`, if there are any
    "replicas": "replicas",
    "adding": "addingReplicas",
    "removing": "removingReplicas",
    "elr": "eligibleLeaderReplicas",
    "last_known_elr": "lastKnownElr",
}
LISTS = ("isr", "directories", *SHOWN.values())
STANDING = {"FenceBroker": "fenced", "UnregisterBroker": "unregistered"}
STANDING |= {"RegisterBroker": "registered", "UnfenceBroker": "unfenced"}


class MetadataCluster:
    """The state after a chain of records; `apply` gives the events of a batch."""

    def __init__(self) -> None:
        self.topics: dict[bytes, str] = {}  # name by id
        self.partitions: dict[PartitionId, PartitionFields] = {}
        self.inactive: set[int] = set()  # fenced, or in controlled shutdown
        self.leaving: dict[int, str] = {}  # in this batch, and why
        self.settings: dict[tuple[int, str, str], str] = {}
        self.own: dict[str, dict[str, str | None]] = {}  # settings of topics since a snapshot
        self.left: dict[str, dict[str, str | None]] = {}  # of topics that were then deleted
        self.in_snapshot: set[str] = set()  # topics whose settings it has
        self.brokers: dict[int, dict[str, Any]] = {}  # the registration of each
        self.quorum: dict[str, Any] = {}  # voters and leader, if control records have them
        self.controllers: set[int] = set()  # that have registered, from 3.7 on
        self.saved: tuple[list[Any], list[MetadataEvent]] | None = (
            None  # before a transaction; its events
        )

    def forget(self) -> None:
        """Forget all but names, because records are missing: anything else may have changed."""
        self.partitions, self.inactive, self.saved = {}, set(), None

    def apply(self, batch: list[Record]) -> Iterator[MetadataEvent]:
        """The events of a batch; those of a transaction when it ends, none if it is aborted."""
        standings = {broker_of(record): why for record in batch if (why := standing(record))}
        self.leaving = {broker: why for broker, why in standings.items() if why != "unfenced"}
        for record in batch:
            if record.name == "BeginTransaction":
                self.saved = [dict(self.topics), dict(self.partitions), set(self.inactive)], []
            elif record.name == "AbortTransaction" and self.saved:
                (self.topics, self.partitions, self.inactive), self.saved = self.saved[0], None
            elif record.name == "EndTransaction" and self.saved:
                yield from self.saved[1]
                self.saved = None
            else:
                events = (_told(record, event) for event in self._replay(record))
                if self.saved:
                    self.saved[1].extend(events)
                else:
                    yield from events

    def install(self, checkpoint: list[Record]) -> Iterator[MetadataEvent]:
        """Replace the state by a checkpoint's; yield the differences as events."""
        listed = {key_of(record.data) for record in checkpoint if record.name == "Partition"}
        self.partitions = {key: self.partitions[key] for key in listed & self.partitions.keys()}
        self.inactive, self.brokers, self.own, self.left = set(), {}, {}, {}
        for topic in [topic for _, topic, name in self.settings if name == LEFT]:
            yield from (_told(checkpoint[0], event) for event in self._on_left(topic))
        for record in checkpoint:
            events = [*self.apply([record])]
            yield from events if record.name == "Partition" else ()
            if record.name == "RegisterBroker" and not (
                record.data.get("fenced") or record.data.get("inControlledShutdown")
            ):
                self.inactive.discard(broker_of(record))
        self.in_snapshot, self.own = {*self.own}, {}

    def _replay(self, record: Record) -> Iterator[MetadataEvent]:
        data = record.data
        match record.name:
            case "Topic":
                self.topics[data["topicId"]] = data["name"]
                yield from self._on_left(data["name"])
            case "RemoveTopic":
                self._leave(self.topics.get(data["topicId"], ""))
                for key in [key for key in self.partitions if key[0] == data["topicId"]]:
                    del self.partitions[key]
                    yield {"kind": "deleted", **self._place(key)}
            case "Partition":
                yield from self._on_partition(key_of(data), data)
            case "PartitionChange":
                yield from self._on_change(key_of(data), data)
            case "RegisterController":
                self.controllers.add(data["controllerId"])
            case "ClearElr":
                yield from self._on_clear_elr(data["topicName"])
            case "Config":
                yield from self._on_config(data)
            case "FeatureLevel" if data["name"] == ELR:
                self.settings[CLUSTER, "", ELR] = str(data["featureLevel"])
                value = {"of": "cluster", "name": ELR, "value": data["featureLevel"]}
                yield {"kind": "config", "detail": value}
            case _:
                yield from self._on_broker(record)

    def _on_partition(self, key: PartitionId, data: dict[str, Any]) -> Iterator[MetadataEvent]:
        after: PartitionFields = {name: tuple(data.get(name) or ()) for name in LISTS}
        after |= {name: data[name] for name in ("leader", "leaderEpoch", "partitionEpoch")}
        after["leaderRecoveryState"] = data.get("leaderRecoveryState", 0)
        before = self.partitions.get(key, {})
        after["no_log"] = self._without_log(before, after)
        if after != before:
            yield from self._changed(key, after)

    def _on_change(self, key: PartitionId, data: dict[str, Any]) -> Iterator[MetadataEvent]:
        before = self.partitions.get(key, {})
        after = before | {n: tuple(data[n]) for n in LISTS if data.get(n) is not None}
        if data.get("leaderRecoveryState", -1) >= 0:
            after["leaderRecoveryState"] = data["leaderRecoveryState"]
        if data.get("leader", NO_LEADER_CHANGE) != NO_LEADER_CHANGE:
            after["leader"] = data["leader"]
            after["leaderEpoch"] = next_(before.get("leaderEpoch"))
        after["partitionEpoch"] = next_(before.get("partitionEpoch"))
        after["no_log"] = self._without_log(before, after)
        yield from self._changed(key, after)

    def _without_log(self, before: PartitionFields, after: PartitionFields) -> dict[int, bytes]:
        """The replicas without their log, as far as directories show it, and where it was."""
        known = dict[int, bytes]()
        for b, place in zip(after.get("replicas", ()), after.get("directories", ()), strict=False):
            was = before.get("no_log", {}).get(b, place)
            online = self.brokers.get(b, {}).get("logDirs") or (place,)
            is_back = was == place and (place in ANY_DIRECTORY or place in online)
            # Up to 4.2 the controller clears the ELR before it could elect such a replica
            if not is_back and b not in after.get("isr", ()) and self._newest() >= OF_4_3:
                known[b] = was
        return known

    def _newest(self) -> int:
        """The highest metadata version that any broker knows."""
        features = [each for b in self.brokers.values() for each in b.get("features") or ()]
        return max((f["2"] for f in features if f["0"] == "metadata.version"), default=99)

    def _on_clear_elr(self, topic: str) -> Iterator[MetadataEvent]:
        for key, before in self.partitions.items():
            is_named = topic in ("", self.topics.get(key[0]))
            if is_named and (before.get("eligibleLeaderReplicas") or before.get("lastKnownElr")):
                yield from self._on_change(key, {"eligibleLeaderReplicas": (), "lastKnownElr": ()})

    def _changed(self, key: PartitionId, after: PartitionFields) -> Iterator[MetadataEvent]:
        before, self.partitions[key] = self.partitions.get(key, {}), after
        isr, leader = after.get("isr"), after.get("leader")
        row = {**self._place(key), "isr": isr, "leader_epoch": after.get("leaderEpoch")}
        row["partition_epoch"] = after.get("partitionEpoch")
        detail = {"leader": leader, "topic_id": id_text(key[0])}
        detail |= {name: after[field] for name, field in SHOWN.items() if after.get(field)}
        no_log = tuple(b for b in after.get(SHOWN["elr"], ()) if b in after.get("no_log", ()))
        detail |= {"no_log": no_log} if no_log else {}
        if leader != before.get("leader"):
            if leader == NO_LEADER:
                yield row | {"kind": "offline", "detail": detail}
            elif leader is not None:
                more = {"leader": None, "previous_leader": before.get("leader")}
                if after.get("leaderRecoveryState") == 1 != before.get("leaderRecoveryState"):
                    more["unclean"] = "true"
                yield row | {"kind": "leader", "replica": leader, "detail": detail | more}
        if isr is None:
            return
        if len(isr) < self._min_isr(key):
            detail["under_min_isr"] = "true"
        detail |= self._why(before, after)
        yield row | {"kind": "isr_commit", "isr_before": before.get("isr"), "detail": detail}

    def _why(self, before: PartitionFields, after: PartitionFields) -> dict[str, Any]:
        """The author of the new ISR: the leader, or the controller and its reason."""
        if "isr" not in before or set(before["isr"]) == set(after["isr"]):
            return {}
        gone = tuple(sorted(set(before["isr"]) - set(after["isr"])))
        inactive = dict.fromkeys(self.inactive, "not active") | self.leaving
        causes = {inactive[broker] for broker in gone if broker in inactive}
        is_reassigned = before.get("replicas") != after.get("replicas")
        if after.get("leader") == before.get("leader") and not causes and not is_reassigned:
            return {"asked_by": "leader"}
        cause = "reassigned" if is_reassigned else min(causes, default="election")
        return {"cause": cause, "removed": gone or None}

    def _min_isr(self, key: PartitionId) -> int:
        topic = (TOPIC, self.topics.get(key[0], ""), MIN_ISR)
        value = self.settings.get(topic, self.settings.get((CLUSTER, "", MIN_ISR), "0"))
        return int(value) if value.isdecimal() and len(value) < 9 else 0

    def _place(self, key: PartitionId) -> MetadataEvent:
        name = self.topics.get(key[0]) or f"topic id {id_text(key[0])}"
        return {"topic": name, "partition": key[1]}

    def _on_broker(self, record: Record) -> Iterator[MetadataEvent]:
        broker, why, directories = broker_of(record), standing(record), record.data.get("logDirs")
        changed = {"logDirs": directories or None, CORDONED: record.data.get(CORDONED)}
        changed = {name: ids for name, ids in changed.items() if ids is not None}
        if record.name == "RegisterBroker":
            self.brokers[broker] = record.data
        elif changed:
            self.brokers[broker] = {**self.brokers.get(broker, {}), **changed}
        elif record.name == "UnregisterBroker":
            self.brokers.pop(broker, None)
        if directories:
            yield from self._on_directories(broker)
        if why is None:
            return  # only its log directories
        (self.inactive.discard if why == "unfenced" else self.inactive.add)(broker)
        if why == "shut down":  # a controlled shutdown: its process still runs
            yield {"kind": "sign", "replica": broker, "detail": {"sign": "stop_asked"}}
            return
        kind = "restart" if why in ("unfenced", "registered") else "crash"
        epoch = record.data.get("brokerEpoch", record.data.get("epoch"))
        yield {"kind": kind, "replica": broker, "detail": {"cause": why, "broker_epoch": epoch}}

    def _on_directories(self, broker: int) -> Iterator[MetadataEvent]:
        for key, before in [*self.partitions.items()]:
            if broker in before.get(SHOWN["elr"], ()):
                after = before | {"no_log": self._without_log(before, before)}
                yield from self._changed(key, after) if after != before else ()

    def _leave(self, topic: str) -> None:
        """Take away the settings of a deleted topic."""
        self.settings = {k: v for k, v in self.settings.items() if k[:2] != (TOPIC, topic)}
        own = self.own.pop(topic, {})
        if topic not in self.in_snapshot and self._newest() >= OF_3_8:
            self.left[topic] = self.left.get(topic, {}) | own

    def _on_left(self, topic: str) -> Iterator[MetadataEvent]:
        """What a new topic may inherit, if that has changed."""
        left = self.left.get(topic, {}).items()
        value = ", ".join(f"{n}={v}" for n, v in left if v is not None and LOSING.fullmatch(n))
        if value != self.settings.pop((TOPIC, topic, LEFT), ""):
            yield {"kind": "config", "topic": topic,
                   "detail": {"of": topic, "name": LEFT, "value": value}}  # fmt: skip
        self.settings |= {(TOPIC, topic, LEFT): value} if value else {}

    def _on_config(self, data: dict[str, Any]) -> Iterator[MetadataEvent]:
        kind, resource = data["resourceType"], data["resourceName"]
        name, value = data["name"], data["value"]
        if kind == TOPIC:
            self.own[resource] = self.own.get(resource, {}) | {name: value}
            if self.left.get(resource, {}).pop(name, None) is not None:
                yield from self._on_left(resource)
        if not SETTINGS.fullmatch(name):
            return
        self.settings.pop((kind, resource, name), None)
        if value is not None:
            self.settings[kind, resource, name] = value
        of = resource if kind == TOPIC else f"broker {resource}".strip()
        topic = {"topic": resource} if kind == TOPIC else {}
        yield {"kind": "config", **topic, "detail": {"of": of, "name": name, "value": value}}


def _told(record: Record, event: MetadataEvent) -> MetadataEvent:
    """The event with its time, its place in the log, and details as text."""
    detail = {"said_by": SAID_BY}
    for name, value in event.get("detail", {}).items():
        if value is not None:
            detail[name] = text(value)
    where = {"ts_ms": record.ts_ms, "line": record.offset, "offset": record.offset, "broker": None}
    return {**where, **event, "detail": detail}


@cache
def id_text(topic_id: bytes) -> str:
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def next_(epoch: int | None) -> int | None:
    return None if epoch is None else epoch + 1


@lru_cache(maxsize=10_000)
def text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def key_of(data: dict[str, Any]) -> PartitionId:
    return data["topicId"], data["partitionId"]


def broker_of(record: Record) -> int:
    """The broker that a record is about, -1 for none."""
    return record.data.get("brokerId", record.data.get("id", -1))


def standing(record: Record) -> str | None:
    """Why this record's broker may not be in any ISR from now on; "unfenced" if it may again."""
    if record.name != "BrokerRegistrationChange":
        return STANDING.get(record.name)
    fenced = {1: "fenced", -1: "unfenced"}.get(record.data.get("fenced", 0))
    return fenced or ("shut down" if record.data.get("inControlledShutdown") == 1 else None)
