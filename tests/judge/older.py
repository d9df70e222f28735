"""Partitions of releases before 3.3, one era below the other.

Up to 2.3 a partition asks its ReplicaManager for everything, and that asks ZooKeeper by a class
that is no interface: Mockito stands in for it, the rest is Kafka's.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jpype

from isrlab.judged.leader import LEADER, REPLICAS, Seen
from judge.jvm import (
    COMMON,
    call,
    implementing,
    ints,
    is_there,
    java,
    make,
    none,
    numbers,
    optional,
    scala,
    some,
    the,
    value_of,
)
from judge.partition import KafkaPartition
from judge.world import World

ANSWER = "org.mockito.stubbing.Answer"


class ZooKeeperPartition(KafkaPartition):
    """The same in 2.7 to 3.2, where the controller of the ZooKeeper era is asked (KIP-497)."""

    def _metadata_cache(self) -> Any:
        return None

    def order(self, epoch: int, partition_epoch: int, isr: list[int], leader: int = 1) -> bool:
        """ReplicaManager keeps what is not of a newer epoch from the partition."""
        is_news = self.partition.log().isEmpty() or epoch > self.partition.getLeaderEpoch()
        return is_news and super().order(epoch, partition_epoch, isr, leader)

    def brokers(self, *known: list[Any]) -> None:
        """No leader of these releases looks at who is alive."""

    def _read(self, replica: int, offset: int, last: int, epoch: int, broker_epoch: int) -> Any:
        """What ReplicaManager.fetchMessages does with a follower's fetch."""
        read = call(self.partition, "readRecords", {
            "long": offset, "Optional": [optional(last), optional(epoch)], "int": 1 << 20,
            "FetchIsolation": self.world.isolation, "boolean": True,
        } | self._expected(last, epoch))  # fmt: skip
        if not (hasattr(read, "divergingEpoch") and is_there(read.divergingEpoch())):
            where, now_ms = (
                read.fetchedData().fetchOffsetMetadata(),
                self.world.clock.milliseconds(),
            )
            call(self.partition, "updateFollowerFetchState", {
                "int": replica, "LogOffsetMetadata": where,
                "long": [0, now_ms, read.logEndOffset(), read.highWatermark()],
            })  # fmt: skip
        return read

    def _expected(self, last: int, epoch: int) -> dict[str, Any]:
        return {"Optional": [optional(last), optional(epoch)]}


class StoredPartition(ZooKeeperPartition):
    """The same in 2.4 to 2.6, where the leader writes its ISR changes into ZooKeeper itself."""

    def _link(self, quietly: dict[str, Any]) -> dict[str, Any]:
        self.is_up = True
        nothing = java("java.util.Properties")()
        store = implementing(
            "kafka.cluster.PartitionStateStore", fetchTopicConfig=lambda: nothing,
            shrinkIsr=self._write, expandIsr=self._write,
        )  # fmt: skip
        return {"PartitionStateStore": store}

    def zookeeper(self, is_up: bool) -> None:
        self.is_up = is_up

    def _write(self, controller_epoch: int, wanted: Any) -> Any:
        """A conditional write: the node's new version, or none."""
        self.asked += 1
        return some(java("java.lang.Integer")(wanted.zkVersion() + 1)) if self.is_up else none()

    def _expected(self, last: int, epoch: int) -> dict[str, Any]:
        return {"Optional": optional(epoch)}  # fetches carry no last epoch yet

    def _isr(self) -> Seen:
        return {
            "partition_epoch": int(value_of(self.partition, "zkVersion")),
            "isr": numbers(self.partition.inSyncReplicaIds()),
            "asked": self.asked,
        }


class ManagedPartition(StoredPartition):
    """A partition of 0.10.2, and the ReplicaManager that serves its followers' fetches."""

    def _make(self, quietly: dict[str, Any]) -> Any:
        self.is_up = True
        self.manager = _manager(self.world, self.min_isr, self.lag_ms)
        return self.manager.getOrCreatePartition(self.topic)

    def do(self, name: str, *words: Any) -> None:
        _ZooKeeper.serves = self
        super().do(name, *words)

    def order(self, epoch: int, partition_epoch: int, isr: list[int], leader: int = 1) -> bool:
        if epoch <= self.partition.getLeaderEpoch():
            return False
        everyone = java("java.util.HashSet")(ints(REPLICAS))
        kind = java(COMMON + "requests.PartitionState")
        state = kind(0, leader, epoch, ints(isr), partition_epoch, everyone)
        if leader == LEADER:
            self.partition.makeLeader(0, state, 0)
        else:  # makeFollowers truncates to the high watermark: RM 0.10.2.2:833
            self.partition.makeFollower(0, state, 0)
            self.log.truncateTo(self._high_watermark())
        return True

    def _for_append(self) -> dict[str, Any]:
        record = java(COMMON + "record.Record").create(jpype.JArray(jpype.JByte)(b"x"))
        records = java(COMMON + "record.MemoryRecords").withRecords([record])
        return {"MemoryRecords": records}

    def fetch(self, replica: int, offset: int, last: int, epoch: int, broker_epoch: int) -> None:
        self.request += 1
        data = java(COMMON + "requests.FetchRequest$PartitionData")(offset, 1 << 20)
        asked = scala(
            java("java.util.Collections").singletonList(java("scala.Tuple2")(self.topic, data))
        )
        quota = the("kafka.server.QuotaFactory$UnboundedQuota$")
        got = implementing("scala.Function1", apply=self._got)
        self.manager.fetchMessages(0, replica, 0, 1 << 20, False, asked, quota, got)

    def _got(self, answers: Any) -> None:
        answer = answers.head()._2()
        error = str(answer.error().name())
        records = answer.records()
        self.response = sum(1 for _ in records.shallowEntries()) if error == "NONE" else error

    def zookeeper_wrote(self, version: int) -> Any:
        """A conditional write of the node: is it done, and its version."""
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
        return []

    def _is_leader(self) -> bool:
        return not self.partition.leaderReplicaIfLocal().isEmpty()

    def _isr(self) -> Seen:
        replicas = self.partition.inSyncReplicas().iterator()
        isr = []
        while replicas.hasNext():
            isr.append(int(replicas.next().brokerId()))
        version = value_of(self.partition, "zkVersion")
        return {"partition_epoch": int(version), "isr": sorted(isr), "asked": self.asked}

    def _follower(self, number: int) -> Seen:
        replica = self._replica(number)
        return {
            "leo": int(replica.logEndOffset().messageOffset()),
            "caught_up": self._since(replica.lastCaughtUpTimeMs()),
            **self._fetches(replica),
        }


class _ZooKeeper:
    """What the mock answers, for the partition that is played."""

    serves: ManagedPartition

    def answer(self, call: Any) -> Any:
        name = str(call.getMethod().getName())
        if name == "conditionalUpdatePersistentPath":
            return self.serves.zookeeper_wrote(int(call.getArgument(2)))
        return _nothing() if name == "zkClient" else None


@cache
def _nothing() -> Any:
    """A client by which a topic has no settings of its own."""
    return java("org.mockito.Mockito").mock(java("org.I0Itec.zkclient.ZkClient").class_)


@cache
def _manager(world: World, min_isr: int, lag_ms: int) -> Any:
    properties = java("java.util.Properties")()
    logs, folder = world.logs(min_isr), world.folder_of(min_isr)
    for name, value in {
        "broker.id": LEADER, "zookeeper.connect": "nowhere:1", "log.dirs": folder,
        "replica.lag.time.max.ms": lag_ms,
    }.items():  # fmt: skip
        properties.put(name, str(value))
    zookeeper = java("org.mockito.Mockito").mock(
        java("kafka.utils.ZkUtils").class_, jpype.JProxy(java(ANSWER), inst=_ZooKeeper())
    )
    return make("kafka.server.ReplicaManager", {
        "KafkaConfig": the("kafka.server.KafkaConfig$").fromProps(properties),
        "Metrics": java(COMMON + "metrics.Metrics")(), "Time": world.clock, "ZkUtils": zookeeper,
        "Scheduler": java("MockScheduler")(world.clock), "LogManager": logs,
        "AtomicBoolean": java("java.util.concurrent.atomic.AtomicBoolean")(False),
        "ReplicationQuotaManager": None, "Option": none(),
    })  # fmt: skip
