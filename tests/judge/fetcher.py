"""A real ReplicaFetcherThread with the log that it fills; the schedule is its leader.

Its thread is not started: a step calls what would be its next turn. It holds a real partition and
log, and sends its requests into a BlockingSend that answers what the schedule says. Mockito stands
in for the ReplicaManager, which it asks for the partition and nothing else.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jpype

from isrlab.judged.leader import Seen
from judge.jvm import (
    COMMON,
    call,
    either,
    fill,
    has,
    hidden,
    implementing,
    java,
    listed,
    make,
    methods,
    optional,
    some,
    the,
)
from judge.partition import KafkaPartition
from judge.waiting import MANAGER, MOCKITO, manager
from judge.world import World

LIMITS = {"replica_lag_time_max_ms": 30_000, "min_insync_replicas": 1}
REQUESTS = COMMON + "requests."
# Up to 2.0 a log without epochs asks all the same, and then cuts to its high watermark; the engine
# does that at once
NO_EPOCH = ["epoch", -1, -1]
UNANSWERED = "no answer of this kind was to be given"


class KafkaFollower:
    """The follower of one partition, with the commands of `isrlab.judged.follower`."""

    def __init__(self, world: World, kind: type[KafkaPartition], **settings: bool) -> None:
        self.world, self.replica = world, kind(world, **LIMITS)
        self.topic, self.id = self.replica.topic, self.replica.id
        self.config = _config(world, settings["unclean_leader_election_enable"])
        self.thread: Any = None
        self.reply: dict[str, Any] = {}  # what is answered, by what is asked
        self.asked: list[Any] | None = None
        self.has_halted = False

    def close(self) -> None:
        self.replica.close()

    def do(self, name: str, *words: Any) -> None:
        self.asked, self.reply = None, {}
        MANAGER.serves = self.replica
        if not self.has_halted:
            getattr(self, name)(*words)

    # The commands

    def log(self, epochs: list[list[int]], high_watermark: int) -> None:
        log = self._log()
        records = [[f"a{epoch}", epoch] for epoch, count in epochs for _ in range(count)]
        for offset, record in enumerate(records):
            given = {"MemoryRecords": self.world.batches(offset, [record]), "int": record[1]}
            call(log, "appendAsFollower", given)
        self.replica.note_high_watermark(high_watermark)

    def _log(self) -> Any:
        """The log, made now if there is none."""
        if not self.replica.has_log():
            self.replica.make_log()
        return self.replica.log

    def follow(self, leader: int, epoch: int, partition_epoch: int) -> None:
        self._log()
        if self.replica.order(epoch, partition_epoch, [leader, 1], leader):
            self._stop()
            self.thread = self._thread(leader)
            self.thread.addPartitions(_map(self.topic, self._from(leader, epoch)))

    def lead(self, epoch: int, partition_epoch: int, count: int) -> None:
        self._log()
        self._stop()
        self.replica.order(epoch, partition_epoch, [1, 2, 3])
        for _ in range(count):
            self.replica.append_value(f"b{epoch}")

    def _stop(self) -> None:
        if self.thread is not None:
            gone = the("scala.collection.immutable.Set$").empty()
            self.thread.removePartitions(either(gone, "$plus", "incl")(self.topic))
        self.thread = None

    def _from(self, leader: int, epoch: int) -> Any:
        """Where it begins: ReplicaManager.makeFollowers, and initialFetchOffset since 2.8."""
        log, offset = self.replica.log, self.replica._high_watermark()
        if not has("kafka.server.InitialFetchState"):  # up to 2.0
            return java("java.lang.Long")(offset)
        if self.world.release < (2, 8):
            return java("kafka.server.OffsetAndEpoch")(offset, epoch)
        if self.replica._epochs():
            offset = int(log.logEndOffset())
        given = {
            "Option": some(self.id), "BrokerEndPoint": _end_point(leader), "int": epoch,
            "long": offset,
        }  # fmt: skip
        return make("kafka.server.InitialFetchState", given)

    def _thread(self, leader: int) -> Any:
        sender = implementing(
            "kafka.server.BlockingSend", sendRequest=self._sent, initiateClose=lambda: None,
            close=lambda: None, brokerEndPoint=lambda: _end_point(leader),
        )  # fmt: skip
        version = self.world.versions["MetadataVersion"]
        context = java(COMMON + "utils.LogContext")("judge")
        given = {
            "String": ["judge", "judge"], "BrokerEndPoint": _end_point(leader), "int": 0,
            "KafkaConfig": self.config, "ReplicaManager": manager(), "Time": self.world.clock,
            "Metrics": _metrics(), "Option": some(sender),
            "ReplicaQuota": the("kafka.server.QuotaFactory$UnboundedQuota$", "UNBOUNDED_QUOTA"),
            "BlockingSend": sender, "Function0": [
                implementing("scala.Function0", apply=lambda: version),
                implementing("scala.Function0", apply=lambda: java("java.lang.Long")(0)),
            ],
        }  # fmt: skip
        if self.world.release < (2,):
            given["ReplicationQuotaManager"] = _quota()
        if has("kafka.server.FailedPartitions"):
            given["FailedPartitions"] = java("kafka.server.FailedPartitions")()
        if has("kafka.server.RemoteLeaderEndPoint"):
            handler = java("org.apache.kafka.clients.FetchSessionHandler")(context, leader)
            given["FetchSessionHandler"] = handler
            given["LeaderEndPoint"] = make("kafka.server.RemoteLeaderEndPoint", given)
        return make("kafka.server.ReplicaFetcherThread", given)

    def fetched(self, base: int, records: list[list[Any]], high_watermark: int) -> None:
        self._turn(fetch={"base": base, "records": records, "high_watermark": high_watermark})

    def diverges(self, base: int, epoch: int, end_offset: int) -> None:
        """With its own high watermark: up to 3.4.0 a follower takes that too (KAFKA-14704)."""
        own = self.replica._high_watermark()
        answer = {"base": base, "diverging": (epoch, end_offset), "high_watermark": own}
        self._turn(fetch=answer)

    def ends(self, epoch: int, end_offset: int) -> None:
        self._turn(epoch={"epoch": epoch, "end_offset": end_offset})

    def range(self, start: int, end: int) -> None:
        self._turn(fetch={"error": "OFFSET_OUT_OF_RANGE"}, range=(start, end))

    def error(self, name: str) -> None:
        self._turn(fetch={"error": name}, epoch={"error": name})

    def lost(self) -> None:
        self._turn()

    def _turn(self, **reply: Any) -> None:
        """One request and what follows from its answer."""
        self.reply = reply
        if self.thread is None:
            return
        try:
            self._truncate_or_fetch()
        except jpype.JException as error:
            if "FatalExitError" not in str(error.getClass().getName()):
                raise
            self.has_halted = True
        end = int(self.replica.log.logEndOffset())
        if self.replica._high_watermark() > end:  # up to 2.3 the next fetch lowers it, not the cut
            self.replica.note_high_watermark(end)

    def _truncate_or_fetch(self) -> None:
        if self.world.release < (2, 1):
            self.thread.maybeTruncate()
            if self.asked in (None, NO_EPOCH):
                self.asked = None
                self.thread.doWork()
            return
        hidden(self.thread, "maybeTruncate")()
        if self.asked is None:
            hidden(self.thread, "maybeFetch")()

    # The leader

    def _sent(self, builder: Any) -> Any:
        request = builder.build()
        name = str(request.getClass().getSimpleName())
        if name == "FetchRequest":
            said, reply = self._fetch(builder), self.reply.get("fetch")
            answer = reply and self._fetch_response(**reply)
        elif name == "OffsetsForLeaderEpochRequest":
            said, reply = self._epoch(request), self.reply.get("epoch")
            if said == NO_EPOCH:
                reply = {"epoch": -1}
            answer = reply and self._epoch_response(**reply)
        else:
            said, reply = ["range"], self.reply.get("range")
            answer = reply and self._range_response(request, *reply)
        self.asked = self.asked or said
        if answer is None:
            raise java("java.io.IOException")(UNANSWERED)
        keys = java(COMMON + "protocol.ApiKeys")
        header = java(REQUESTS + "RequestHeader")(keys.FETCH, request.version(), "judge", 0)
        return make("org.apache.kafka.clients.ClientResponse", {
            "RequestHeader": header, "RequestCompletionHandler": None, "String": "leader",
            "long": [0, 0], "boolean": False, "UnsupportedVersionException": None,
            "AuthenticationException": None, "AbstractResponse": answer,
        })  # fmt: skip

    def _fetch(self, builder: Any) -> list[Any]:
        asked = builder.fetchData().get(self.topic)
        epochs = [
            int(getattr(asked, name).orElse(java("java.lang.Integer")(-1)))
            if hasattr(asked, name)
            else -1
            for name in ("currentLeaderEpoch", "lastFetchedEpoch")
        ]
        if (3, 5) <= self.world.release < (3, 7) and epochs[1] < 0:
            # An empty answer makes it forget its last epoch, until it copies again (KAFKA-15080)
            epochs[1] = self.replica.last_epoch()
        return ["fetch", int(asked.fetchOffset), *epochs]

    def _epoch(self, request: Any) -> list[Any]:
        if hasattr(request, "epochsByTopicPartition"):
            asked = request.epochsByTopicPartition().get(self.topic)
            if not hasattr(asked, "leaderEpoch"):
                return ["epoch", int(asked), -1]
            none = java("java.lang.Integer")(-1)
            return ["epoch", int(asked.leaderEpoch), int(asked.currentLeaderEpoch.orElse(none))]
        asked = request.data().topics().iterator().next().partitions().get(0)
        return ["epoch", int(asked.leaderEpoch()), int(asked.currentLeaderEpoch())]

    def _fetch_response(
        self,
        base: int = 0,
        records: list[list[Any]] | tuple[()] = (),
        high_watermark: int = 0,
        diverging: tuple[int, int] | None = None,
        error: str = "NONE",
    ) -> Any:
        errors = java(COMMON + "protocol.Errors")
        content = self.world.batches(base, list(records))
        if has(REQUESTS + "FetchResponse$PartitionData"):  # up to 2.8
            part = make(REQUESTS + "FetchResponse$PartitionData", {
                "Errors": getattr(errors, error), "long": [high_watermark, high_watermark, 0],
                "Optional": [optional(-1), _diverging(diverging)], "List": listed(),
                "Records": content, "BaseRecords": content,
            })  # fmt: skip
            parts = java("java.util.LinkedHashMap")()
            parts.put(self.topic, part)
            kind = java(REQUESTS + "FetchResponse")
            return kind(errors.NONE, parts, 0, 0)
        part = java(COMMON + "message.FetchResponseData$PartitionData")()
        part.setPartitionIndex(self.topic.partition()).setErrorCode(getattr(errors, error).code())
        part.setHighWatermark(high_watermark).setLastStableOffset(high_watermark)
        part.setLogStartOffset(0).setRecords(content)
        if diverging:
            part.setDivergingEpoch(_diverging(diverging).get())
        key = self.topic
        if self.world.release >= (3, 1):
            key = java(COMMON + "TopicIdPartition")(self.id, self.topic)
        parts = java("java.util.LinkedHashMap")()
        parts.put(key, part)
        given = {
            "Errors": errors.NONE, "int": [0, 0], "LinkedHashMap": parts, "List": listed(),
        }  # fmt: skip
        kind = java(REQUESTS + "FetchResponse")
        (of, *_) = sorted(methods(kind, "of"), key=lambda m: -len(m.getParameterTypes()))
        return kind.of(*fill(of, given))

    def _epoch_response(self, epoch: int = -1, end_offset: int = -1, error: str = "NONE") -> Any:
        errors = java(COMMON + "protocol.Errors")
        if has(REQUESTS + "EpochEndOffset"):
            given = {"Errors": getattr(errors, error), "int": epoch, "long": end_offset}
            end = make(REQUESTS + "EpochEndOffset", given)
            map_ = java("java.util.HashMap")()
            map_.put(self.topic, end)
            return java(REQUESTS + "OffsetsForLeaderEpochResponse")(map_)
        data = COMMON + "message.OffsetForLeaderEpochResponseData"
        part = java(data + "$EpochEndOffset")().setPartition(self.topic.partition())
        part.setErrorCode(getattr(errors, error).code()).setLeaderEpoch(epoch)
        part.setEndOffset(end_offset)
        topic = java(data + "$OffsetForLeaderTopicResult")().setTopic(self.topic.topic())
        topics = java(data + "$OffsetForLeaderTopicResultCollection")()
        topics.add(topic.setPartitions(listed(part)))
        response = java(REQUESTS + "OffsetsForLeaderEpochResponse")
        return response(java(data)().setTopics(topics))

    def _range_response(self, request: Any, start: int, end: int) -> Any:
        errors = java(COMMON + "protocol.Errors")
        if not hasattr(request, "data"):
            asked = request.partitionTimestamps().get(self.topic)
            time_ms = int(getattr(asked, "timestamp", asked))
            offset = end if time_ms == -1 else start
            part = make(REQUESTS + "ListOffsetResponse$PartitionData", {
                "Errors": errors.NONE, "long": [-1, offset], "Optional": optional(-1),
            })  # fmt: skip
            parts = java("java.util.HashMap")()
            parts.put(self.topic, part)
            return java(REQUESTS + "ListOffsetResponse")(parts)
        asked = request.data().topics().get(0).partitions().get(0)
        offset = end if int(asked.timestamp()) == -1 else start
        name = "ListOffsets" if has(REQUESTS + "ListOffsetsResponse") else "ListOffset"
        data = COMMON + f"message.{name}ResponseData"
        part = java(f"{data}${name}PartitionResponse")().setPartitionIndex(self.topic.partition())
        part.setOffset(offset).setTimestamp(-1).setLeaderEpoch(0)
        topic = java(f"{data}${name}TopicResponse")().setName(self.topic.topic())
        topics = listed(topic.setPartitions(listed(part)))
        return java(f"{REQUESTS}{name}Response")(java(data)().setTopics(topics))

    # What is compared

    def seen(self) -> Seen:
        log = self._log()
        text = java("java.nio.charset.StandardCharsets").UTF_8.decode
        values = log.activeSegment().log().records()
        return {
            "start": int(log.logStartOffset()),
            "log": " ".join(str(text(record.value()).toString()) for record in values),
            "hw": self.replica._high_watermark(),
            "epochs": self.replica._epochs(),
            "asked": self.asked,
            "copies": self._copies(),
        }

    def _copies(self) -> bool:
        if self.thread is None or self.has_halted:
            return False
        if self.world.release < (2, 1):
            return True  # nothing is fenced yet
        return bool(self.thread.fetchState(self.topic).isDefined())


@cache
def _metrics() -> Any:
    return java(COMMON + "metrics.Metrics")()


@cache
def _quota() -> Any:
    return java(MOCKITO).mock(java("kafka.server.ReplicationQuotaManager").class_)


@cache
def _config(world: World, is_unclean: bool) -> Any:
    properties = java("java.util.Properties")()
    known = {
        "zookeeper.connect": "nowhere:1", "broker.id": 1,
    } if world.release < (3, 3) else {
        "process.roles": "broker", "node.id": 1, "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "9@localhost:9", "listeners": "PLAINTEXT://localhost:8",
    }  # fmt: skip
    known |= {
        "replica.fetch.backoff.ms": 0, "replica.fetch.response.max.bytes": 1 << 20,
        "unclean.leader.election.enable": str(is_unclean).lower(),
    }  # fmt: skip
    for name, value in known.items():
        properties.put(name, str(value))
    return the("kafka.server.KafkaConfig$").fromProps(properties)


@cache
def _end_point(leader: int) -> Any:
    return java("BrokerEndPoint")(leader, "leader", 9092)


def _map(key: Any, value: Any) -> Any:
    empty = the("scala.collection.immutable.Map$").empty()
    return either(empty, "updated", "$plus")(key, value)


def _diverging(end: tuple[int, int] | None) -> Any:
    kind = java("java.util.Optional")
    if end is None:
        return kind.empty()
    where = java(COMMON + "message.FetchResponseData$EpochEndOffset")()
    return kind.of(where.setEpoch(end[0]).setEndOffset(end[1]))
