"""A real ReplicaFetcherThread with the log that it fills; the schedule is its leader.

Its thread is not started: a step calls the method that would be its next iteration. It has a real
partition and log, and sends its requests to a BlockingSend that returns the schedule's answers as
bytes, which are the same in every release, unlike the classes they are parsed into. Mockito stands
in for the ReplicaManager, which is only asked for the partition.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

import jpype

from isrlab_proof.judged.leader import Seen
from judge import jvm
from judge.jvm import COMMON, either, has, hidden, implementing, java, make, methods, some, the
from judge.partition import KafkaPartition
from judge.waiting import MANAGER, MOCKITO, manager
from judge.world import World

LIMITS = {"replica_lag_time_max_ms": 30_000, "min_insync_replicas": 1}
REQUESTS = COMMON + "requests."
# Up to 2.0 a follower without epochs still asks, and then truncates to its high watermark; the
# engine truncates immediately
NO_EPOCH = ["epoch", -1, -1]
TOPIC = b"\0\0\0\1\0\1t\0\0\0\1"  # one topic named "t", with one partition
UNANSWERED = "no answer of this kind was to be given"


class KafkaFollower:
    """The follower of one partition, with the commands of `isrlab_proof.judged.follower`."""

    def __init__(self, world: World, kind: type[KafkaPartition], **settings: bool) -> None:
        self.world, self.replica = world, kind(world, **LIMITS)
        self.topic, self.id = self.replica.topic, self.replica.id
        self.config = _config(world, settings["unclean_leader_election_enable"])
        self.thread: Any = None
        self.reply: dict[str, tuple[Any, ...]] = {}  # the next answer to each kind of request
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
            jvm.call(log, "appendAsFollower", given)
        self.replica.note_high_watermark(high_watermark)

    def _log(self) -> Any:
        """The log, created if there is none yet."""
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
            self.replica._append(1, f"b{epoch}")

    def _stop(self) -> None:
        if self.thread is not None:
            gone = the("scala.collection.immutable.Set$").empty()
            self.thread.removePartitions(either(gone, "$plus", "incl")(self.topic))
        self.thread = None

    def _from(self, leader: int, epoch: int) -> Any:
        """Where fetching begins, as in RM.makeFollowers (from 2.8 on initialFetchOffset)."""
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
        context = java("LogContext")("judge")
        given = {
            "String": ["judge", "judge"], "BrokerEndPoint": _end_point(leader), "int": 0,
            "KafkaConfig": self.config, "ReplicaManager": manager(), "Time": self.world.clock,
            "Metrics": _metrics(), "Option": some(sender),
            "ReplicaQuota": the("QuotaFactory$UnboundedQuota$", "UNBOUNDED_QUOTA"),
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
        self._turn(fetch=("NONE", high_watermark, base, records))

    def diverges(self, base: int, epoch: int, end_offset: int) -> None:
        """Answer with a divergence and the follower's high watermark (up to 3.4.0: KAFKA-14704)."""
        self._turn(fetch=("NONE", self.replica._high_watermark(), base, [], (epoch, end_offset)))

    def ends(self, epoch: int, end_offset: int) -> None:
        self._turn(epoch=("NONE", epoch, end_offset))

    def range(self, start: int, end: int) -> None:
        self._turn(fetch=("OFFSET_OUT_OF_RANGE",), range=(start, end))

    def error(self, name: str) -> None:
        self._turn(fetch=(name,), epoch=(name,))

    def lost(self) -> None:
        self._turn()

    def _turn(self, **reply: tuple[Any, ...]) -> None:
        """Send one request, and handle its answer."""
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
        if self.replica._high_watermark() > end:  # up to 2.3 only the next fetch lowers it
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
        name = str(request.getClass().getSimpleName()).replace("Request", "Response")
        if name == "FetchResponse":
            said, reply, answer = self._fetch(builder), self.reply.get("fetch"), self._records
        elif name == "OffsetsForLeaderEpochResponse":
            said, reply, answer = self._epoch(request), self.reply.get("epoch"), self._end
            reply = ("NONE",) if said == NO_EPOCH else reply
        else:
            said, reply, answer = ["range"], self.reply.get("range"), self._offset
            reply = reply and (_is_latest(request, self.topic), *reply)
        self.asked = self.asked or said
        if reply is None:
            raise java("java.io.IOException")(UNANSWERED)
        version, data = answer(*reply)
        keys = java(COMMON + "protocol.ApiKeys")
        header = java(REQUESTS + "RequestHeader")(keys.FETCH, jpype.JShort(version), "judge", 0)
        return make("org.apache.kafka.clients.ClientResponse", {
            "RequestHeader": header, "RequestCompletionHandler": None, "String": "leader",
            "long": [0, 0], "boolean": False, "UnsupportedVersionException": None,
            "AuthenticationException": None,
            "AbstractResponse": _parsed(name, version, data),
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
            # After an empty answer it forgets its last epoch until it copies again (KAFKA-15080)
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

    def _records(
        self,
        error: str,
        high_watermark: int = 0,
        base: int = 0,
        records: list[list[Any]] | tuple[()] = (),
        diverging: tuple[int, int] | None = None,
    ) -> tuple[int, bytes]:
        """Version and bytes of an answer to a fetch. Source: FetchResponse.json."""
        marks = high_watermark, high_watermark, 0
        if diverging:  # no aborted transactions, no preferred replica, no records, one tagged field
            part = struct.pack(
                ">ihqqqBiBBBB", self.topic.partition(), 0, *marks, 1, -1, 1, 1, 0, 13
            )
            end = struct.pack(">iqB", *diverging, 0)
            return 12, bytes(10) + b"\2\2t\2" + part + end + b"\0\0"
        content = bytes(self.world.batches(base, list(records)).buffer().array())
        form = ">ihqqqii"
        part = struct.pack(form, self.topic.partition(), _code(error), *marks, -1, len(content))
        return 7, bytes(10) + TOPIC + part + content

    def _end(self, error: str, epoch: int = -1, end_offset: int = -1) -> tuple[int, bytes]:
        """Version and bytes of an epoch's end. Source: OffsetForLeaderEpochResponse.json."""
        begin = struct.pack(">hi", _code(error), self.topic.partition())
        if self.world.release < (2,):
            return 0, TOPIC + begin + struct.pack(">q", end_offset)
        if self.world.release < (2, 1):  # without a throttle time
            return 1, TOPIC + begin + struct.pack(">iq", epoch, end_offset)
        return 2, bytes(4) + TOPIC + begin + struct.pack(">iq", epoch, end_offset)

    def _offset(self, is_latest: bool, start: int, end: int) -> tuple[int, bytes]:
        """Version and bytes of the log's start or end. Source: ListOffsetsResponse.json."""
        offset = end if is_latest else start
        return 1, TOPIC + struct.pack(">ihqq", self.topic.partition(), 0, -1, offset)

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


def _parsed(name: str, version: int, data: bytes) -> Any:
    """The response that these bytes encode."""
    kind, readable = java(REQUESTS + name), COMMON + "protocol.ByteBufferAccessor"
    buffer = java("java.nio.ByteBuffer").wrap(jpype.JArray(jpype.JByte)(data))
    accessor = has(readable) and java(readable)(buffer)  # from 4.1 on parsed by that
    given = {"ByteBuffer": buffer, "Readable": accessor, "short": jpype.JShort(version)}
    parse = max(methods(kind, "parse"), key=lambda method: method.getParameterCount())
    return kind.parse(*jvm.fill(parse, given))


def _code(error: str) -> int:
    return int(getattr(java(COMMON + "protocol.Errors"), error).code())


def _is_latest(request: Any, topic: Any) -> bool:
    """Whether the request asks for the end of the log, not its start."""
    if hasattr(request, "data"):
        return bool(request.data().topics().get(0).partitions().get(0).timestamp() == -1)
    asked = request.partitionTimestamps().get(topic)
    return bool(getattr(asked, "timestamp", asked) == -1)
