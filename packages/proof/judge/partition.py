"""A real kafka.cluster.Partition, with its log and the manager of its ISR changes.

The log is in a temporary folder; the schedule controls time, metadata and the link to the
controller. Each record is a batch, because Kafka fetches and truncates by batch.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import jpype

from isrlab_proof.judged.leader import LEADER, REPLICAS, T0, Seen, answered, flat
from judge import jvm
from judge.jvm import COMMON, call, either, implementing, java, make, none, optional, some, value_of
from judge.waiting import FOR_EVER_MS, MANAGER, Fetches, Produces
from judge.world import World

NEVER_FETCHED = -2  # how the engine writes Kafka's missing broker epoch


class Asked(NamedTuple):
    """A follower's fetch."""

    replica: int
    offset: int
    last: int
    epoch: int
    broker_epoch: int


class KafkaPartition:
    """The leader of one partition in a KRaft release, with the commands of `machine.Machine`."""

    def __init__(self, world: World, **settings: int) -> None:
        self.world = world
        world.topics += 1
        self.topic = java(COMMON + "TopicPartition")("t", world.topics)
        self.id = java(COMMON + "Uuid")(1, world.topics) if jvm.has(COMMON + "Uuid") else None
        self.lag_ms = settings["replica_lag_time_max_ms"]
        self.min_isr = settings["min_insync_replicas"]
        self.held: list[Any] = []  # requests to the controller that have no answer yet
        self.asked = self.request = 0
        self.produces: Produces | None = None  # acks=all requests in their purgatory
        self.fetches: Fetches | None = None  # and fetches that found nothing, in theirs
        self.newest: dict[int, Asked] = {}  # replica -> its last fetch
        self.parked: dict[int, Any] = {}  # replica -> the result of a fetch that had to wait
        self.waiting: dict[int, int] = {}  # without a purgatory: produce -> the end it waits for
        self.answers: dict[int, str | None] = {}
        self.response: Any = None
        self.wait(T0)
        self.begun_ms = int(world.clock.milliseconds())
        quiet = ("markIsrExpand", "markIsrShrink", "markExpand", "markShrink", "markFailed")
        self.partition = self._make(dict.fromkeys(quiet, lambda: None))

    def _make(self, quietly: dict[str, Any]) -> Any:
        self.cache = self._metadata_cache()
        return make("kafka.cluster.Partition", {
            **self.world.versions, **self._link(quietly), "TopicPartition": self.topic,
            "int": LEADER, "long": self.lag_ms, "Time": self.world.clock,
            "Function0": self._broker_epoch(), "DelayedOperations": self._purgatories(),
            "MetadataCache": self.cache, "LogManager": self.world.logs(self.min_isr),
            "Option": none(),
        })  # fmt: skip

    def close(self) -> None:
        """Remove all files."""
        folder = str(self.log.dir())
        self.log.close()
        shutil.rmtree(folder)

    def _metadata_cache(self) -> Any:
        version = (
            java(jvm.SERVER + "common.KRaftVersion")
            if jvm.has(jvm.SERVER + "common.KRaftVersion")
            else None
        )
        supplier = implementing("java.util.function.Supplier", get=lambda: version.KRAFT_VERSION_1)
        given = {"int": LEADER, "Supplier": supplier}
        return make("KRaftMetadataCache", given)

    @staticmethod
    def _broker_epoch(kind: str = "scala.Function0", method: str = "apply") -> Any:
        return implementing(kind, **{method: lambda: java("java.lang.Long")(0)})

    def _link(self, quietly: dict[str, Any]) -> dict[str, Any]:
        """The real manager of ISR changes, on a channel that the schedule answers."""
        version = self.world.versions["MetadataVersion"]
        versions = implementing("scala.Function0", apply=lambda: version)
        channel = implementing(
            "Channel", start=lambda: None, shutdown=lambda: None, sendRequest=self._sent,
            controllerApiVersions=lambda: None, getTimeoutMs=lambda: 1000,
        )  # fmt: skip
        manager = make("AlterPartitionManager", {
            **self.world.versions, str(java("Channel").class_.getSimpleName()): channel,
            "Scheduler": java("MockScheduler")(self.world.clock), "Time": self.world.clock,
            "int": LEADER, "Function0": [self._broker_epoch(), versions],
            "Supplier": self._broker_epoch("java.util.function.Supplier", "get"),
        })  # fmt: skip
        listener = implementing("AlterPartitionListener", **quietly)
        managers = dict.fromkeys(("AlterPartitionManager", "AlterIsrManager"), manager)
        return managers | dict.fromkeys(("AlterPartitionListener", "IsrChangeListener"), listener)

    def _purgatories(self) -> Any:
        timer = make("MockTimer", {"MockTime": self.world.clock})
        purgatories = [
            make(
                "Purgatory", {"String": n, "Timer": timer, "int": [LEADER, 1000], "boolean": False}
            )
            for n in ("Produce", "Fetch", "DeleteRecords", "ShareFetch")
        ]
        self.produces, self.fetches = Produces(self, purgatories[0]), Fetches(self, purgatories[1])
        return make("kafka.cluster.DelayedOperations", {
            "TopicPartition": self.topic, "DelayedOperationPurgatory": purgatories,
            "Option": some(self.id),
        })  # fmt: skip

    def _sent(self, builder: Any, handler: Any) -> None:
        self.held.append((builder, handler))
        self.asked += 1

    # The commands

    def do(self, name: str, *words: Any) -> None:
        self.response = None
        MANAGER.serves = self
        getattr(self, name)(*words)
        for request, end in list(self.waiting.items()):
            done = self.partition.checkEnoughReplicasReachOffset(end)
            error = jvm.error_name(done._2())
            if done._1() or error != "NONE":
                self.answers[request] = None if error == "NONE" else error
                del self.waiting[request]

    def order(self, epoch: int, partition_epoch: int, isr: list[int], leader: int = 1) -> bool:
        """Give the order to the partition; returns whether it was new to it."""
        is_record = self.world.release >= (4, 2)  # of the metadata log
        state = java(COMMON + "metadata.PartitionRecord" if is_record else "PartitionState")()
        state.setLeader(leader).setLeaderEpoch(epoch).setIsr(jvm.ints(isr))
        either(state, "setPartitionEpoch", "setZkVersion")(partition_epoch)
        state.setReplicas(jvm.ints(REPLICAS))
        if is_record:
            state = java("org.apache.kafka.metadata.PartitionRegistration")(state)
        else:
            state.setControllerEpoch(0).setIsNew(False)
        is_news = call(self.partition, "makeLeader" if leader == LEADER else "makeFollower", {
            str(state.getClass().getSimpleName()): state, "int": 0, "boolean": False,
            "OffsetCheckpoints": _no_checkpoints(), "Option": [some(self.id), none()],
        })  # fmt: skip
        if self.produces and self.fetches and leader != LEADER:
            self.produces.check()
            self.fetches.check()
        return bool(is_news)

    def has_log(self) -> bool:
        return not self.partition.log().isEmpty()

    def make_log(self) -> None:
        call(self.partition, "createLogIfNotExists", {
            "boolean": [False, False], "OffsetCheckpoints": _no_checkpoints(), "int": LEADER,
            "Option": [some(self.id), none()],
        })  # fmt: skip

    def note_high_watermark(self, offset: int) -> None:
        self.log.updateHighWatermark(offset)

    def brokers(self, *known: list[Any]) -> None:
        empty = java("org.apache.kafka.image.MetadataImage").EMPTY
        kind = java("org.apache.kafka.image.MetadataDelta")
        is_built = self.world.release >= (4, 2)
        delta = kind.Builder().setImage(empty).build() if is_built else kind(empty)
        for number, epoch, is_active in known:
            record = java(COMMON + "metadata.RegisterBrokerRecord")()
            record.setBrokerId(number).setBrokerEpoch(epoch).setFenced(False)
            record.setInControlledShutdown(not is_active)
            delta.replay(record.setIncarnationId(java(COMMON + "Uuid")(2, number)))
        (apply,) = jvm.methods(type(delta), "apply")
        given = [kind.getField("EMPTY").get(None) for kind in apply.getParameterTypes()]
        self.cache.setImage(delta.apply(*given))

    def append(self, count: int) -> None:
        for _ in range(count):
            self.request += 1
            self._append(1)

    def produce(self) -> None:
        self.request += 1
        if not self._append(-1):
            return
        end_offset = int(self.log.logEndOffset())
        if self.produces:
            self.produces.add(self.request, end_offset)
        else:
            self.waiting[self.request] = end_offset

    def _append(self, acks: int, value: str = "x") -> bool:
        given = self._for_append(value) | {"int": acks}
        try:
            names = ("appendRecordsToLeader", "appendMessagesToLeader")
            name = next(n for n in names if hasattr(self.partition, n))
            done = call(self.partition, name, given)
        except jpype.JException as error:
            self.response = jvm.named(error)
            return False
        change = str(done.leaderHwChange()) if hasattr(done, "leaderHwChange") else ""
        if self.produces and change.upper() == "INCREASED":  # from 2.7 on it is left to the manager
            self.produces.check()
        if self.fetches and change:
            self.fetches.check()
        return True

    def copy(self, count: int, high_watermark: int, epoch: int) -> None:
        """Append records as a follower that copies them from the leader of `epoch`."""
        for _ in range(count):
            records = self.world.batches(int(self.log.logEndOffset()), [["c", epoch]])
            call(self.log, "appendAsFollower", {"MemoryRecords": records, "int": epoch})
        self.note_high_watermark(high_watermark)

    def _for_append(self, value: str) -> dict[str, Any]:
        return self.world.for_append | {"MemoryRecords": self.world.record(value)}

    def fetch(self, replica: int, offset: int, last: int, epoch: int, broker_epoch: int) -> None:
        self.request += 1
        self.parked.pop(replica, None)
        asked = self.newest[replica] = Asked(replica, offset, last, epoch, broker_epoch)
        needs = self._needs_high_watermark(replica)
        read = self._read(asked, True)
        self.response = self.got(read)
        if self.fetches and self.response == 0 and not needs:
            self.parked[replica] = "waits"
            self.fetches.add(asked, read)
            if self.parked[replica] != "waits":
                self.response = self.parked.pop(replica)

    def _needs_high_watermark(self, replica: int) -> bool:
        """Whether the follower is answered immediately, to learn the high watermark (2.4, 2.5)."""
        known = self.partition.getReplica(replica)
        if not jvm.is_there(known) or not hasattr(known.get(), "lastSentHighWatermark"):
            return False
        return bool(known.get().lastSentHighWatermark() < self._high_watermark())

    def got(self, read: Any) -> Any:
        """The answer to a follower: the number of records, the diverging epoch, or an error."""
        if isinstance(read, jpype.JException):
            return jvm.named(read)
        if hasattr(read, "divergingEpoch") and jvm.is_there(value_of(read, "divergingEpoch")):
            end = value_of(read, "divergingEpoch").get()
            return [int(end.epoch()), int(end.endOffset())]
        records = value_of(value_of(read, "fetchedData"), "records")
        return sum(1 for _ in records.records())

    def read_again(self, asked: Asked) -> None:
        """Answer a fetch that had waited."""
        if self.newest[asked.replica] is asked:
            self.parked[asked.replica] = self.got(self._read(asked, False))

    def _read(self, asked: Asked, notes: bool) -> Any:
        try:
            return self._fetch(asked, notes)
        except jpype.JException as error:
            return error

    def _fetch(self, asked: Asked, notes: bool) -> Any:
        """Call fetchRecords, which reads and, with `notes`, updates the follower's position."""
        now_ms = self.world.clock.milliseconds()
        parameters, data = self.fetch_parameters(asked), self.fetch_data(asked)
        return self.partition.fetchRecords(parameters, data, now_ms, 1 << 20, True, notes)

    def fetch_parameters(self, asked: Asked) -> Any:
        wait_ms = FOR_EVER_MS
        return make("FetchParams", {
            "short": 15, "int": [asked.replica, 1, 1 << 20], "Option": none(), "boolean": False,
            "long": [asked.broker_epoch, wait_ms] if self.world.release >= (3, 5) else wait_ms,
            "Optional": optional(-1), "FetchIsolation": self.world.isolation,
        }, pick=min)  # fmt: skip

    def fetch_data(self, asked: Asked) -> Any:
        return make(COMMON + "requests.FetchRequest$PartitionData", {
            "Uuid": self.id, "long": [asked.offset, 0], "int": 1 << 20,
            "Optional": [optional(asked.epoch), optional(asked.last)],
        })  # fmt: skip

    def wait(self, duration_ms: int) -> None:
        clock = self.world.clock
        if hasattr(clock, "setCurrentTimeMs"):
            clock.setCurrentTimeMs(clock.milliseconds() + duration_ms)
        else:
            clock.sleep(duration_ms)

    def check(self) -> None:
        call(self.partition, "maybeShrinkIsr", {"long": self.lag_ms})

    def answer(self, error: str | None = None) -> None:
        if not self.held:
            return
        builder, handler = self.held.pop(0)
        with suppress(jpype.JException):  # thrown in 2.8 where a retry is refused; it logs that
            handler.onComplete(self._response(builder, error))

    def _response(self, builder: Any, error: str | None) -> Any:
        """The controller's answer to an ISR change, as the network client would deliver it."""
        version = builder.latestAllowedVersion()
        request = builder.build(version)
        asked = request.data().topics().get(0).partitions().get(0)
        kind = "AlterPartition" if "AlterPartition" in str(request.getClass()) else "AlterIsr"
        message = COMMON + f"message.{kind}ResponseData"
        part = java(message + "$PartitionData")().setPartitionIndex(self.topic.partition())
        if error:
            part.setErrorCode(getattr(java(COMMON + "protocol.Errors"), error).code())
        else:
            isr = [int(b) for b in asked.newIsr()]
            if not isr:  # by broker epochs, from 3.5 on
                isr = [int(b.brokerId()) for b in asked.newIsrWithEpochs()]
            part.setLeaderId(LEADER).setLeaderEpoch(asked.leaderEpoch()).setIsr(jvm.ints(isr))
            before = either(asked, "partitionEpoch", "currentIsrVersion")()
            either(part, "setPartitionEpoch", "setCurrentIsrVersion")(before + 1)
        topic = java(message + "$TopicData")().setPartitions(jvm.listed(part))
        for name, value in (("setTopicId", self.id), ("setTopicName", "t"), ("setName", "t")):
            if hasattr(topic, name):
                getattr(topic, name)(value)
        body = java(COMMON + f"requests.{kind}Response")(
            java(message)().setTopics(jvm.listed(topic))
        )
        keys = java(COMMON + "protocol.ApiKeys")
        key = keys.ALTER_PARTITION if kind == "AlterPartition" else keys.ALTER_ISR
        header = java(COMMON + "requests.RequestHeader")(key, version, "judge", 0)
        return java("org.apache.kafka.clients.ClientResponse")(
            header, None, "controller", 0, 0, False, None, None, body
        )

    # What is compared

    @property
    def log(self) -> Any:
        return self.partition.log().get()

    def seen(self) -> Seen:
        seen = {
            "leo": int(self.log.logEndOffset()),
            "hw": self._high_watermark(),
            "epochs": self._epochs(),
            "response": self.response or 0,
            **answered(self.answers),
            **{f"fetch of {replica}": got for replica, got in self.parked.items()},
        }
        if self._is_leader():
            seen |= {"epoch": int(self.partition.getLeaderEpoch()), **self._isr()}
            for number in REPLICAS[1:]:
                seen |= flat(number, self._follower(number))
        return seen

    def _high_watermark(self) -> int:
        return int(self.log.highWatermark())

    def _epochs(self) -> list[list[int]]:
        cache = self.log.leaderEpochCache()
        entries = (cache.get() if hasattr(cache, "get") else cache).epochEntries()
        if hasattr(entries, "mkString"):  # Scala's
            entries = java("scala.jdk.javaapi.CollectionConverters").asJava(entries)
        return [[int(value_of(e, "epoch")), int(value_of(e, "startOffset"))] for e in entries]

    def last_epoch(self) -> int:
        return max((epoch for epoch, _ in self._epochs()), default=-1)

    def _is_leader(self) -> bool:
        return not self.partition.leaderLogIfLocal().isEmpty()

    def _isr(self) -> Seen:
        state = either(self.partition, "partitionState", "isrState")()
        return {
            "partition_epoch": int(either(self.partition, "getPartitionEpoch", "getZkVersion")()),
            "isr": jvm.numbers(state.isr()),
            "maximal": jvm.numbers(state.maximalIsr()),
            "is_pending": bool(state.isInflight()),
            "asked": self.asked,
        }

    def _follower(self, number: int) -> Seen:
        replica = self.partition.getReplica(number).get()
        if hasattr(replica, "stateSnapshot"):  # from 3.3 on
            replica = replica.stateSnapshot()
        seen = {
            "leo": int(replica.logEndOffset()),
            "caught_up": self._since(replica.lastCaughtUpTimeMs()),
            **self._fetches(replica),
        }
        if hasattr(replica, "brokerEpoch"):  # from 3.5 on
            epoch = replica.brokerEpoch()
            seen["broker_epoch"] = int(epoch.get()) if jvm.is_there(epoch) else NEVER_FETCHED
        return seen

    def _fetches(self, replica: Any) -> Seen:
        return {
            "fetched": self._since(value_of(replica, "lastFetchTimeMs")),
            "end_then": int(value_of(replica, "lastFetchLeaderLogEndOffset")),
        }

    def _since(self, time_ms: Any) -> int | None:
        return int(time_ms) - self.begun_ms if time_ms > 0 else None  # or it never was


@cache
def _no_checkpoints() -> Any:
    (fetch,) = java("OffsetCheckpoints").class_.getMethods()
    is_java = str(fetch.getReturnType().getSimpleName()) == "Optional"
    return implementing("OffsetCheckpoints", fetch=lambda *of: optional(-1) if is_java else none())
