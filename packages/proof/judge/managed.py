"""Partitions of releases before 2.4, and the real ReplicaManager that they depend on.

The manager talks to ZooKeeper through a class, not an interface: Mockito mocks only that class.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import jpype

from isrlab_proof.judged.leader import LEADER, REPLICAS, Seen
from judge import jvm
from judge.jvm import COMMON, call, has, implementing, ints, java, listed, make, none, scala, the
from judge.older import StoredPartition
from judge.partition import Asked
from judge.waiting import ANSWER, FOR_EVER_MS, MANAGER, MOCKITO
from judge.world import World


class ManagedPartition(StoredPartition):
    """A partition of 0.11 to 2.3, and the ReplicaManager that serves its followers' fetches."""

    def _make(self, quietly: dict[str, Any]) -> Any:
        self.is_up = True
        self.manager = _manager(self.world, self.min_isr, self.lag_ms)
        (_, *more) = jvm.methods(type(self.manager), "getOrCreatePartition")[0].getParameterTypes()
        name = (self.topic.topic(), self.topic.partition()) if more else (self.topic,)
        return self.manager.getOrCreatePartition(*name)

    def has_log(self) -> bool:
        return bool(self.partition.getReplica(LEADER).isDefined())

    def make_log(self) -> None:
        call(self.partition, "getOrCreateReplica", {"int": LEADER, "boolean": False})

    def note_high_watermark(self, offset: int) -> None:
        where = java("kafka.server.LogOffsetMetadata")(offset, -1, -1)
        getattr(self._replica(LEADER), "highWatermark_$eq")(where)

    def order(self, epoch: int, partition_epoch: int, isr: list[int], leader: int = 1) -> bool:
        if epoch <= self.partition.getLeaderEpoch():
            return False
        state = self._state(epoch, partition_epoch, isr, leader)
        if leader == LEADER:
            return bool(self.partition.makeLeader(0, state, 0))
        return self._follows(bool(self.partition.makeFollower(0, state, 0)))

    def _state(self, epoch: int, partition_epoch: int, isr: list[int], leader: int) -> Any:
        everyone = ints(REPLICAS)
        return make("PartitionState", {
            "int": [0, leader, epoch, partition_epoch], "List": [ints(isr), everyone],
            "Set": java("java.util.HashSet")(everyone), "boolean": False,
        })  # fmt: skip

    def _follows(self, is_news: bool) -> bool:
        """Try to answer parked fetches, as makeFollowers does (RM 0.10.2.2:860, 1.1.1:1282)."""
        topic = self.topic.topic(), self.topic.partition()
        self.manager.tryCompleteDelayedFetch(java("TopicPartitionOperationKey")(*topic))
        return is_news

    def _for_append(self, value: str) -> dict[str, Any]:
        return {"MemoryRecords": self.world.record(value), "boolean": True}

    def fetch(self, replica: int, offset: int, last: int, epoch: int, broker_epoch: int) -> None:
        self.request += 1
        asked = self.newest[replica] = Asked(replica, offset, last, epoch, broker_epoch)
        self.parked[replica] = "waits"

        def got(answers: Any) -> None:
            if self.newest[replica] is asked:
                self.parked[replica] = self._answer(answers.head()._2())

        call(self.manager, "fetchMessages", {
            "long": FOR_EVER_MS, "int": [replica, 1, 1 << 20], "boolean": False,
            "Function1": implementing("scala.Function1", apply=got), **self._fetch_of(asked),
        })  # fmt: skip
        if self.parked[replica] != "waits":
            self.response = self.parked.pop(replica)

    def _fetch_of(self, asked: Asked) -> dict[str, Any]:
        given = {"long": [asked.offset, 0], "int": 1 << 20, "Optional": jvm.optional(asked.epoch)}
        wanted = make(COMMON + "requests.FetchRequest$PartitionData", given)
        pair = java("scala.Tuple2")(self.topic, wanted)
        levels = COMMON + "requests.IsolationLevel"
        return {
            "Seq": scala(listed(pair)),
            "ReplicaQuota": the("kafka.server.QuotaFactory$UnboundedQuota$"),
            "IsolationLevel": has(levels) and java(levels).READ_UNCOMMITTED,
        }  # fmt: skip

    def _answer(self, answer: Any) -> Any:
        error = jvm.error_name(answer.error())
        records = jvm.either(answer, "records", "messages")()
        return self._count(records) if error == "NONE" else error

    @staticmethod
    def _count(records: Any) -> int:
        return sum(1 for _ in records.records())

    def zookeeper_wrote(self, version: int) -> Any:
        """Whether a conditional write of the node succeeded, and the node's new version, or -1."""
        self.asked += 1
        kind = java("scala.Tuple2")
        number = java("java.lang.Integer")
        return kind(self.is_up, number(version + 1)) if self.is_up else kind(False, number(-1))

    # What is compared

    @property
    def log(self) -> Any:
        return self._replica(LEADER).log().get()

    def _replica(self, number: int) -> Any:
        return self.partition.getReplica(number).get()

    def _high_watermark(self) -> int:
        return int(self._replica(LEADER).highWatermark().messageOffset())

    def _epochs(self) -> list[list[int]]:
        cache = self.log.leaderEpochCache()
        cache = cache.get() if hasattr(cache, "get") else cache  # from 2.1 on an Option
        text = str(cache.epochEntries().mkString(";"))
        return [[int(epoch), int(start)] for epoch, start in re.findall(r"(\d+)\D+(\d+)", text)]

    def _is_leader(self) -> bool:
        return not self.partition.leaderReplicaIfLocal().isEmpty()

    def _isr(self) -> Seen:
        replicas = self.partition.inSyncReplicas().iterator()
        isr = []
        while replicas.hasNext():
            isr.append(int(replicas.next().brokerId()))
        version = jvm.value_of(self.partition, "zkVersion")
        return {"partition_epoch": int(version), "isr": sorted(isr), "asked": self.asked}

    def _follower(self, number: int) -> Seen:
        replica = self._replica(number)
        end = replica.logEndOffset()  # a number from 2.2 on
        return {
            "leo": int(getattr(end, "messageOffset", lambda: end)()),
            "caught_up": self._since(replica.lastCaughtUpTimeMs()),
            **self._fetches(replica),
        }


class EpochlessPartition(ManagedPartition):
    """A partition of 0.10.2, where records and requests know no epochs."""

    def _follows(self, is_news: bool) -> bool:
        """Truncate to the high watermark first, as makeFollowers does (RM 0.10.2.2:833)."""
        self.log.truncateTo(self._high_watermark())
        return super()._follows(is_news)

    def _for_append(self, value: str) -> dict[str, Any]:
        record = java(COMMON + "record.Record").create(jpype.JArray(jpype.JByte)(value.encode()))
        return {"MemoryRecords": java(COMMON + "record.MemoryRecords").withRecords([record])}

    @staticmethod
    def _count(records: Any) -> int:
        return sum(1 for _ in records.shallowEntries())

    def _epochs(self) -> list[list[int]]:
        return []


class MessagePartition(EpochlessPartition):
    """A partition of 0.9.0 to 0.10.1, which has messages instead of records, and whose leader does
    not keep the time of a follower's last fetch.
    """

    def _state(self, epoch: int, partition_epoch: int, isr: list[int], leader: int) -> Any:
        if self.world.release >= (0, 10):
            return super()._state(epoch, partition_epoch, isr, leader)
        members, everyone = scala(ints(isr)).toList(), scala(ints(REPLICAS)).toSet()
        state = java("kafka.api.LeaderAndIsr")(leader, epoch, members, partition_epoch)
        known = java("kafka.controller.LeaderIsrAndControllerEpoch")(state, 0)
        return java("kafka.api.PartitionStateInfo")(known, everyone)

    def _for_append(self, value: str) -> dict[str, Any]:
        message = java("kafka.message.Message")(jpype.JArray(jpype.JByte)(value.encode()))
        kind = java("kafka.message.ByteBufferMessageSet")
        return {"ByteBufferMessageSet": kind(scala(listed(message)))}

    def _fetch_of(self, asked: Asked) -> dict[str, Any]:
        topic = java("kafka.common.TopicAndPartition")(self.topic.topic(), self.topic.partition())
        wanted = java("kafka.api.PartitionFetchInfo")(asked.offset, 1 << 20)
        quota = "kafka.server.QuotaFactory$UnboundedQuota$"
        empty = the("scala.collection.immutable.Map$").empty()
        return {
            "Seq": scala(listed(java("scala.Tuple2")(topic, wanted))),
            "Map": getattr(empty, "$plus")(java("scala.Tuple2")(topic, wanted)),
            "ReplicaQuota": has(quota) and the(quota),
        }  # fmt: skip

    @staticmethod
    def _count(records: Any) -> int:
        return int(records.size())

    def _fetches(self, replica: Any) -> Seen:
        return {}


def _asked_of_zookeeper(call: Any) -> Any:
    """The mock's answer, for the partition that is being played."""
    name = str(call.getMethod().getName())
    if name in ("conditionalUpdatePersistentPath", "conditionalUpdatePath"):
        return MANAGER.serves.zookeeper_wrote(int(call.getArgument(2)))
    if name == "readDataMaybeNull":
        return java("scala.Tuple2")(none(), None)
    if name == "getEntityConfigs":
        return java("java.util.Properties")()
    return _nothing() if name == "zkClient" else None


@cache
def _nothing() -> Any:
    """A ZooKeeper client that reports no settings of a topic."""
    return java(MOCKITO).mock(java("org.I0Itec.zkclient.ZkClient").class_)


@cache
def _manager(world: World, min_isr: int, lag_ms: int) -> Any:
    properties = java("java.util.Properties")()
    logs, folder = world.logs(min_isr), world.folder_of(min_isr)
    for name, value in {
        "broker.id": LEADER, "zookeeper.connect": "nowhere:1", "log.dirs": folder,
        "replica.lag.time.max.ms": lag_ms,
    }.items():  # fmt: skip
        properties.put(name, str(value))
    config = the("kafka.server.KafkaConfig$").fromProps(properties)
    metrics, client = java(COMMON + "metrics.Metrics")(), "kafka.zk.KafkaZkClient"
    kind = java(client if has(client) else "kafka.utils.ZkUtils").class_
    zookeeper = java(MOCKITO).mock(kind, implementing(ANSWER, answer=_asked_of_zookeeper))
    given = {
        "KafkaConfig": config, "Metrics": metrics, "Time": world.clocks, "LogManager": logs,
        "Scheduler": java("MockScheduler")(world.clock), "Option": none(),
        "AtomicBoolean": java("java.util.concurrent.atomic.AtomicBoolean")(False),
        "ReplicationQuotaManager": None, str(kind.getSimpleName()): zookeeper,
    }  # fmt: skip
    if world.release >= (0, 11):
        timer = java("MockTimer")()
        given |= {
            "BrokerTopicStats": java("BrokerTopicStats")(),
            "MetadataCache": java("kafka.server.MetadataCache")(LEADER),
            "DelayedOperationPurgatory": [
                make("Purgatory", {"String": name, "Timer": timer, "int": [LEADER, 1000],
                                   "boolean": [False, False]})
                for name in ("Produce", "Fetch", "DeleteRecords", "ElectPreferredLeader")
            ],
        }  # fmt: skip
    if world.release >= (1, 1):
        quotas = the("kafka.server.QuotaFactory$").instantiate(config, metrics, world.clock, "")
        channel = java("kafka.server.LogDirFailureChannel")(1)
        given |= {"QuotaManagers": quotas, "LogDirFailureChannel": channel}
    return make("kafka.server.ReplicaManager", given)
