"""Events from Kafka's metadata log: every ISR, leader, epoch, replica set and fencing, exactly.

Theory of operation. The controllers of a KRaft cluster agree on one log of records; replaying it
gives the state of every partition after each of them. A `PartitionRecord` says all of a partition;
a `PartitionChangeRecord` says what changes, raises the partition epoch by one and, if it names a
leader (even the same), the leader epoch too. Times are the controller's, in ms since the epoch.

The files of one folder are one log: segments in order of offset, and checkpoints, which say the
whole state at an offset. A segment that does not begin where the one before ended begins another
chain (a copy, or the same as text), which starts from the next checkpoint. What several chains or
folders (controllers) say of one record is one event. Where records are missing, the state of all
partitions is unknown until a record or a checkpoint tells it: then epochs and former ISRs are null.

Who asked: a leader only grows the ISR, or takes out brokers that are neither fenced nor leaving in
that batch; all other changes are the controller's own. The last records of a copied log may be such
as no majority has, and never count; the log itself does not say.

Source: PartitionRegistration.merge, ReplicationControlManager.replay, 3.9 and 4.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from isrlab.brokerlogs.metadata.records import Record

SAID_BY = "metadata log"
NO_LEADER, NO_LEADER_CHANGE = -1, -2
TOPIC, CLUSTER = 2, 4  # resources of a ConfigRecord that matter
SETTINGS = re.compile(r"min\.insync\.replicas|unclean\.leader\.election\.enable|.*\.throttled\..*")
MIN_ISR = "min.insync.replicas"


class Partition(NamedTuple):
    """A partition as far as it is known; None where it is not."""

    isr: tuple[int, ...] | None = None
    leader: int | None = None
    leader_epoch: int | None = None
    partition_epoch: int | None = None
    replicas: tuple[int, ...] | None = None
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    is_recovering: bool = False


COLUMNS = {  # field of a record: of a Partition
    "isr": "isr",
    "replicas": "replicas",
    "addingReplicas": "adding",
    "removingReplicas": "removing",
    "eligibleLeaderReplicas": "elr",
    "lastKnownElr": "last_known_elr",
}
SHOWN = ("replicas", "adding", "removing", "elr", "last_known_elr")


class Cluster:
    """The state that a chain of records has told so far; `apply` gives the events of a batch."""

    def __init__(self) -> None:
        self.topics: dict[str, str] = {}  # name by id
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.inactive: set[int] = set()  # fenced, or in controlled shutdown
        self.settings: dict[tuple[int, str, str], str] = {}
        self.saved: tuple[list[Any], list[dict]] | None = None  # before a transaction; its events

    def forget(self) -> None:
        """Records are missing: names stay, all else may have changed."""
        self.partitions, self.inactive, self.saved = {}, set(), None

    def apply(self, batch: list[Record]) -> Iterator[dict[str, Any]]:
        """The events of a batch; those of a transaction when it ends, none if it is aborted."""
        leaving = {id_of(r): cause for r in batch if (cause := why_leaving(r))}
        for record in batch:
            if record.name == "BeginTransaction":
                self.saved = [dict(self.topics), dict(self.partitions), set(self.inactive)], []
            elif record.name == "AbortTransaction" and self.saved:
                (self.topics, self.partitions, self.inactive), self.saved = self.saved[0], None
            elif record.name == "EndTransaction" and self.saved:
                yield from self.saved[1]
                self.saved = None
            elif handler := HANDLERS.get(record.name):
                events = (_told(record, event) for event in handler(self, record, leaving))
                if self.saved:
                    self.saved[1].extend(events)
                else:
                    yield from events

    def _on_topic(self, record: Record, _: Any) -> Iterator[dict]:
        self.topics[record.data["topicId"]] = record.data["name"]
        yield from ()

    def _on_remove_topic(self, record: Record, _: Any) -> Iterator[dict]:
        gone = [key for key in self.partitions if key[0] == record.data["topicId"]]
        for key in gone:
            del self.partitions[key]
            yield {"kind": "deleted", **self._place(key)}

    def _on_partition(self, record: Record, leaving: dict[int, str]) -> Iterator[dict]:
        data, key = record.data, (record.data["topicId"], record.data["partitionId"])
        sets: dict[str, Any] = {own: tuple(data.get(name) or ()) for name, own in COLUMNS.items()}
        epochs = data["leader"], data["leaderEpoch"], data["partitionEpoch"]
        names = ("leader", "leader_epoch", "partition_epoch")
        after = Partition(
            **sets,
            **dict(zip(names, epochs, strict=True)),
            is_recovering=data.get("leaderRecoveryState") == 1,
        )
        before = self.partitions.get(key)
        if after != before:
            self.partitions[key] = after
            yield from self._events(key, before or Partition(), after, leaving)

    def _on_change(self, record: Record, leaving: dict[int, str]) -> Iterator[dict]:
        data, key = record.data, (record.data["topicId"], record.data["partitionId"])
        before = self.partitions.get(key, Partition())
        changes: dict[str, Any] = {
            own: tuple(data[name]) for name, own in COLUMNS.items() if data.get(name) is not None
        }
        if data.get("leaderRecoveryState", -1) >= 0:
            changes["is_recovering"] = data["leaderRecoveryState"] == 1
        if data.get("leader", NO_LEADER_CHANGE) != NO_LEADER_CHANGE:
            changes["leader"] = data["leader"]
            changes["leader_epoch"] = next_(before.leader_epoch)
        after = before._replace(**changes, partition_epoch=next_(before.partition_epoch))
        self.partitions[key] = after
        yield from self._events(key, before, after, leaving)

    def _on_clear_elr(self, record: Record, _: Any) -> Iterator[dict]:
        for key, before in self.partitions.items():
            named = record.data["topicName"] in ("", self.topics.get(key[0]))
            if named and (before.elr or before.last_known_elr):
                epoch = next_(before.partition_epoch)
                after = before._replace(elr=(), last_known_elr=(), partition_epoch=epoch)
                self.partitions[key] = after
                yield from self._events(key, before, after, {})

    def _events(
        self, key: tuple[str, int], before: Partition, after: Partition, leaving: dict[int, str]
    ) -> Iterator[dict]:
        epochs = {"leader_epoch": after.leader_epoch, "partition_epoch": after.partition_epoch}
        base = {**self._place(key), **epochs, "isr": after.isr}
        detail = {"leader": after.leader, "topic_id": key[0]}
        detail |= {name: getattr(after, name) or None for name in SHOWN}
        if after.leader != before.leader:
            if after.leader == NO_LEADER:
                yield base | {"kind": "offline", "detail": detail}
            elif after.leader is not None:
                unclean = after.is_recovering and not before.is_recovering
                more = {"unclean": "true" if unclean else None, "previous_leader": before.leader}
                own = {key: value for key, value in detail.items() if key != "leader"} | more
                yield base | {"kind": "leader", "replica": after.leader, "detail": own}
        if after.isr is None:
            return
        minimum = self._min_isr(key)
        detail["under_min_isr"] = "true" if minimum and len(after.isr) < minimum else None
        detail |= self._why(before, after, leaving)
        yield base | {"kind": "isr_commit", "isr_before": before.isr, "detail": detail}

    def _why(self, before: Partition, after: Partition, leaving: dict[int, str]) -> dict[str, Any]:
        """Who wanted the new ISR: the leader, or the controller, and why."""
        if before.isr is None or after.isr is None or set(before.isr) == set(after.isr):
            return {}
        gone = set(before.isr) - set(after.isr)
        causes = {
            leaving.get(broker, "not active" if broker in self.inactive else "") for broker in gone
        }
        causes = causes - {""}
        is_reassigned = before.replicas != after.replicas
        if after.leader == before.leader and not causes and not is_reassigned:
            return {"asked_by": "leader"}
        cause = "reassigned" if is_reassigned else min(causes, default="election")
        return {"cause": cause, "removed": sorted(gone) or None}

    def _min_isr(self, key: tuple[str, int]) -> int:
        topic = (TOPIC, self.topics.get(key[0], ""), MIN_ISR)
        value = self.settings.get(topic, self.settings.get((CLUSTER, "", MIN_ISR), "0"))
        return int(value) if value.isdecimal() and len(value) < 9 else 0

    def _place(self, key: tuple[str, int]) -> dict[str, Any]:
        return {"topic": self.topics.get(key[0], f"topic id {key[0]}"), "partition": key[1]}

    def _on_broker(self, record: Record, leaving: dict[int, str]) -> Iterator[dict]:
        broker, epoch = id_of(record), record.data.get("brokerEpoch", record.data.get("epoch"))
        cause, is_back = why_leaving(record), is_unfenced(record)
        if not is_back and cause is None:
            return  # only its log directories
        (self.inactive.discard if is_back else self.inactive.add)(broker)
        kind, why = ("restart", "unfenced") if is_back else ("crash", cause)
        if record.name == "RegisterBroker":
            kind, why = "restart", "registered"
        if why == "shut down":  # it wants to: its process still runs
            yield {"kind": "sign", "replica": broker, "detail": {"sign": "stop_asked"}}
            return
        yield {"kind": kind, "replica": broker, "detail": {"cause": why, "broker_epoch": epoch}}

    def install(self, checkpoint: list[Record]) -> Iterator[dict]:
        """The whole state as a checkpoint has it; events for what was not known so."""
        listed = {
            (r.data["topicId"], r.data["partitionId"]) for r in checkpoint if r.name == "Partition"
        }
        self.partitions = {key: self.partitions[key] for key in listed & self.partitions.keys()}
        self.inactive = set()
        for record in checkpoint:
            is_partition = record.name == "Partition"
            events = [*self.apply([record])]
            yield from events if is_partition else ()
            if record.name == "RegisterBroker" and not is_inactive(record):
                self.inactive.discard(id_of(record))

    def _on_config(self, record: Record, _: Any) -> Iterator[dict]:
        kind, resource, name, value = (
            record.data[n] for n in ("resourceType", "resourceName", "name", "value")
        )
        if not SETTINGS.fullmatch(name):
            return
        self.settings.pop((kind, resource, name), None)
        if value is not None:
            self.settings[kind, resource, name] = value
        of = resource if kind == TOPIC else f"broker {resource}".strip()
        topic = {"topic": resource} if kind == TOPIC else {}
        yield {"kind": "config", **topic, "detail": {"of": of, "name": name, "value": value}}

    def _on_feature(self, record: Record, _: Any) -> Iterator[dict]:
        detail = {
            "of": "feature",
            "name": record.data["name"],
            "value": record.data["featureLevel"],
        }
        yield {"kind": "config", "detail": detail}


HANDLERS = {
    "Topic": Cluster._on_topic,
    "RemoveTopic": Cluster._on_remove_topic,
    "Partition": Cluster._on_partition,
    "PartitionChange": Cluster._on_change,
    "ClearElr": Cluster._on_clear_elr,
    "RegisterBroker": Cluster._on_broker,
    "UnregisterBroker": Cluster._on_broker,
    "FenceBroker": Cluster._on_broker,
    "UnfenceBroker": Cluster._on_broker,
    "BrokerRegistrationChange": Cluster._on_broker,
    "Config": Cluster._on_config,
    "FeatureLevel": Cluster._on_feature,
}


def _told(record: Record, event: dict[str, Any]) -> dict[str, Any]:
    """The event with its time, its place in the log, and details as text."""
    detail = {"said_by": SAID_BY, **event.get("detail", {})}
    kept = {name: text(value) for name, value in detail.items() if value is not None}
    where = {"ts_ms": record.ts_ms, "line": record.line, "offset": record.offset}
    return {**where, "broker": None, **event, "detail": kept}


def next_(epoch: int | None) -> int | None:
    return None if epoch is None else epoch + 1


def text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def id_of(record: Record) -> int:
    """The broker that a record is about, -1 for none."""
    return record.data.get("brokerId", record.data.get("id", -1))


def is_unfenced(record: Record) -> bool:
    data = record.data
    return record.name == "UnfenceBroker" or (
        record.name == "BrokerRegistrationChange" and data.get("fenced") == -1
    )


def is_inactive(record: Record) -> bool:
    return bool(record.data.get("fenced") or record.data.get("inControlledShutdown"))


def why_leaving(record: Record) -> str | None:
    """Why the broker of this record may be in no ISR from now on; None if it may."""
    data = record.data
    if record.name == "BrokerRegistrationChange":
        if data.get("fenced") == 1:
            return "fenced"
        return "shut down" if data.get("inControlledShutdown") == 1 else None
    causes = {"FenceBroker": "fenced", "UnregisterBroker": "unregistered"}
    return "registered" if record.name == "RegisterBroker" else causes.get(record.name)
