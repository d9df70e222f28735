"""Partitions of releases 2.4 to 3.2, newest era first; managed.py has the older ones."""

from __future__ import annotations

from typing import Any

from isrlab_proof.judged.leader import Seen
from judge import jvm
from judge.jvm import call, implementing, is_there, java, none, numbers, optional, some, value_of
from judge.partition import Asked, KafkaPartition


class ZooKeeperPartition(KafkaPartition):
    """The judge of 2.7 to 3.2, where the controller of the ZooKeeper era is asked (KIP-497)."""

    def _metadata_cache(self) -> Any:
        return None

    def order(self, epoch: int, partition_epoch: int, isr: list[int], leader: int = 1) -> bool:
        """Give an order to the partition; ReplicaManager passes on only those of a newer epoch."""
        is_news = self.partition.log().isEmpty() or epoch > self.partition.getLeaderEpoch()
        return is_news and super().order(epoch, partition_epoch, isr, leader)

    def brokers(self, *known: list[Any]) -> None:
        """Do nothing: leaders of these releases ignore which brokers are alive."""

    def _fetch(self, asked: Asked, notes: bool) -> Any:
        """Handle a follower's fetch as ReplicaManager.fetchMessages does."""
        read = call(self.partition, "readRecords", {
            "long": asked.offset, "Optional": [optional(asked.last), optional(asked.epoch)],
            "int": 1 << 20, "FetchIsolation": self.world.isolation, "boolean": True,
        } | self._expected(asked.last, asked.epoch))  # fmt: skip
        diverges = hasattr(read, "divergingEpoch") and is_there(read.divergingEpoch())
        if notes and not diverges:
            where = read.fetchedData().fetchOffsetMetadata()
            now_ms = self.world.clock.milliseconds()
            call(self.partition, "updateFollowerFetchState", {
                "int": asked.replica, "LogOffsetMetadata": where,
                "long": [0, now_ms, read.logEndOffset(), read.highWatermark()],
            })  # fmt: skip
        return read

    def _expected(self, last: int, epoch: int) -> dict[str, Any]:
        return {"Optional": [optional(last), optional(epoch)]}


class TickingPartition(ZooKeeperPartition):
    """The judge of 2.7, where the manager looks for changes every 50 ms; here, after each step."""

    def _link(self, quietly: dict[str, Any]) -> dict[str, Any]:
        links = super()._link(quietly)
        self.manager = links["AlterIsrManager"]
        nothing = java("java.util.Properties")()
        store = implementing("kafka.cluster.PartitionStateStore", fetchTopicConfig=lambda: nothing)
        return links | {"PartitionStateStore": store}

    def do(self, name: str, *words: Any) -> None:
        super().do(name, *words)
        jvm.hidden(self.manager, "propagateIsrChanges")()


class StoredPartition(ZooKeeperPartition):
    """The judge of 2.4 to 2.6, where the leader writes its ISR changes into ZooKeeper itself."""

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
        """The node's new version after a conditional write, or none if it failed."""
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
