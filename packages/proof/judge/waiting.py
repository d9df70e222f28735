"""A ReplicaManager for one partition, and the fetches and acks=all requests that wait there."""

from __future__ import annotations

from functools import cache
from typing import Any

import jpype

from judge import jvm
from judge.jvm import COMMON, implementing, java, listed, make, none, scala, some, the, value_of

MOCKITO, ANSWER = "org.mockito.Mockito", "org.mockito.stubbing.Answer"
FOR_EVER_MS = 1 << 40
VALIDATOR = jvm.SERVER + "purgatory.DelayedProduce$PartitionStatusValidator"
RESPONSE = COMMON + "requests.ProduceResponse$PartitionResponse"


class Manager:
    """The answers of a ReplicaManager that holds one partition; Mockito makes the object."""

    serves: Any  # a partition of partition.py

    def answer(self, invocation: Any) -> Any:
        method, replica = invocation.getMethod(), self.serves
        name, kind = str(method.getName()), str(method.getReturnType().getSimpleName())
        if name in ("localLogOrException", "localLog"):
            return some(replica.log) if kind == "Option" else replica.log
        if kind == "Either":
            return java("scala.util.Right")(replica.partition)
        if kind == "HostedPartition":
            return java("HostedPartition$Online")(replica.partition)
        if name in ("getPartitionOrException", "nonOfflinePartition", "getPartition"):
            return some(replica.partition) if kind == "Option" else replica.partition
        if name.removesuffix("OrException") in ("getReplica", "localReplica"):
            found = replica.partition.getReplica(1)
            return found if kind == "Option" else found.get()
        if name in ("readFromLog", "readFromLocalLog"):  # called by a fetch when it completes
            return the("scala.collection.immutable.Nil$")
        if name == "zkClient":
            return replica.manager.zkClient()
        if name == "brokerTopicStats":
            return stats()
        if name == "replicaAlterLogDirsManager":
            return java(MOCKITO).mock(java("kafka.server.ReplicaAlterLogDirsManager").class_)
        return java(MOCKITO).RETURNS_DEFAULTS.answer(invocation)


@cache
def stats() -> Any:
    return make("BrokerTopicStats", {"boolean": False, "Optional": jvm.optional(-1)}, pick=min)


MANAGER = Manager()


@cache
def manager() -> Any:
    """The mocked ReplicaManager of the partition that `MANAGER` serves now."""
    answers = jpype.JProxy(java(ANSWER), inst=MANAGER)
    return java(MOCKITO).mock(java("kafka.server.ReplicaManager").class_, answers)


class Waiting:
    """Requests of one partition in a real purgatory."""

    def __init__(self, replica: Any, purgatory: Any) -> None:
        self.replica, self.purgatory = replica, purgatory
        self.key = java("TopicPartitionOperationKey")(
            replica.topic.topic(), replica.topic.partition()
        )

    def _try_else_watch(self, waiting: Any) -> None:
        keys = listed(self.key)
        is_java = jvm.has("org.apache.kafka.server.purgatory.DelayedOperationPurgatory")
        self.purgatory.tryCompleteElseWatch(waiting, keys if is_java else scala(keys))

    def check(self) -> None:
        """Check the requests, as ReplicaManager does where a partition leaves that to it."""
        self.purgatory.checkAndComplete(self.key)


class Fetches(Waiting):
    """Fetches that found nothing, each a real DelayedFetch."""

    def add(self, asked: Any, read: Any) -> None:
        replica, topic = self.replica, self.replica.topic
        where = value_of(value_of(read, "fetchedData"), "fetchOffsetMetadata")
        status = java("FetchPartitionStatus")(where, replica.fetch_data(asked))
        if replica.world.release >= (3, 1):
            topic = java(COMMON + "TopicIdPartition")(replica.id, topic)
        by_topic = java("java.util.LinkedHashMap")()
        by_topic.put(topic, status)
        statuses = scala(listed(java("scala.Tuple2")(topic, status)))
        given = {
            "Seq": statuses, "LinkedHashMap": by_topic, "ReplicaManager": manager(),
            "Option": none(), "long": FOR_EVER_MS,
            "ReplicaQuota": the("QuotaFactory$UnboundedQuota$", "UNBOUNDED_QUOTA"),
            "Function1": implementing("scala.Function1", apply=lambda _: replica.read_again(asked)),
        }  # fmt: skip
        if jvm.has("kafka.server.FetchMetadata"):  # up to 3.2
            given["FetchMetadata"] = make("kafka.server.FetchMetadata", {
                "int": [1, 1 << 20, asked.replica], "boolean": [False, True, True],
                "FetchIsolation": replica.world.isolation, "Seq": statuses,
            })  # fmt: skip
        else:
            given["FetchParams"] = replica.fetch_parameters(asked)
        self._try_else_watch(make("kafka.server.DelayedFetch", given))


class Produces(Waiting):
    """acks=all requests, each a real DelayedProduce."""

    def add(self, request: int, end_offset: int) -> None:
        topic = self.replica.topic
        if self.replica.world.release >= (4, 1):
            topic = java(COMMON + "TopicIdPartition")(self.replica.id, topic)
        error = java(COMMON + "protocol.Errors").NONE
        response = java(RESPONSE)(error, 0, -1, 0)
        status = java("ProducePartitionStatus")(end_offset, response)

        def answered(_: Any) -> None:
            name = str(response.error.name())
            self.replica.answers[request] = None if name == "NONE" else name

        given = {
            "long": FOR_EVER_MS, "ReplicaManager": manager(), "Option": none(),
            "Function1": implementing("scala.Function1", apply=answered),
        }  # fmt: skip
        if jvm.has(VALIDATOR):  # from 4.3 on
            given |= {
                "Map": java("java.util.Collections").singletonMap(topic, status),
                "PartitionStatusValidator": implementing(VALIDATOR, validate=self._is_enough),
                "Consumer": implementing("java.util.function.Consumer", accept=answered),
            }
        else:
            empty = the("scala.collection.immutable.Map$").empty()
            statuses = jvm.either(empty, "updated", "$plus")(topic, status)
            metadata = java("kafka.server.ProduceMetadata")
            given["ProduceMetadata"] = metadata(jpype.JShort(-1), statuses)
        self._try_else_watch(make("DelayedProduce", given))

    def _is_enough(self, _: Any, offset: int) -> Any:
        """The answer of ReplicaManager.maybeAddDelayedProduce to a DelayedProduce."""
        done = self.replica.partition.checkEnoughReplicasReachOffset(offset)
        return java(VALIDATOR + "$Result")(done._1(), done._2())
