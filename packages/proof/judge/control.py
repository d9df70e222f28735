"""A real ReplicationControlManager with the managers that it uses, and no log: records are replayed
immediately. A command does what QuorumController does for the request or timer of that name.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jpype

from isrlab_proof.judged.controller import BROKERS, REPLICAS
from isrlab_proof.judged.leader import Seen
from judge.jvm import COMMON, KAFKA, fill, hidden, implementing, ints, java, listed, methods, the
from judge.world import World

CONTROLLER = KAFKA + "controller."
NOBODY = -1
# Called or counted where QuorumController registers a broker: here a command does what it would
MOCKED = ("BrokerUncleanShutdownHandler", "BrokerShutdownHandler", "QuorumControllerMetrics")
UNIVERSE = 1  # of topic ids


class KafkaController:
    """The controller of a topic, with the commands of `isrlab_proof.judged.controller`."""

    def __init__(self, world: World, **settings: Any) -> None:
        self.world = world
        partitions = settings.get("partitions") or [[*REPLICAS]]
        self.responses: list[str | None] = [None] * len(partitions)
        self.has_failed = False
        has_elr = settings.get("has_elr", world.release >= (4, 1))
        self.topic = java(COMMON + "Uuid")(UNIVERSE, 1)
        self.epochs = dict.fromkeys(BROKERS, 0)
        self._managers(has_elr)
        for broker in BROKERS:
            self._replay(self._registration(broker, 0, False))
        self.cluster.activate()
        self._replay(self._record("TopicRecord").setName("t").setTopicId(self.topic))
        for name in ("min_insync_replicas", "unclean_leader_election_enable"):
            self._configure(name.replace("_", "."), settings[name])
        for number, replicas in enumerate(partitions):
            self._replay(self._partition(number, replicas))

    def close(self) -> None:
        """Do nothing: a controller has no files."""

    def _managers(self, has_elr: bool) -> None:
        registry = java(KAFKA + "timeline.SnapshotRegistry")(_context())
        given = {"SnapshotRegistry": registry, "LogContext": _context()}
        version = self.world.versions["MetadataVersion"]
        features = built("FeatureControlManager", given | {
            "QuorumFeatures": _features(), "MetadataVersion": version
        })  # fmt: skip
        if not _sets("FeatureControlManager", "MetadataVersion"):  # from 4.0 on
            self._feature(features, "metadata.version", version.featureLevel())
            elr = "eligible.leader.replicas.version"
            self._feature(features, elr, int(has_elr))
        schema = the("kafka.server.KafkaRaftServer$").configSchema()
        given |= {"FeatureControlManager": features, "KafkaConfigSchema": schema}
        config = built("ConfigurationControlManager", given)
        self.cluster = built("ClusterControlManager", given | {
            "Time": self.world.time,
            "ReplicaPlacer": implementing(KAFKA + "metadata.placement.ReplicaPlacer"),
            "long": 9_000_000_000,
        })  # fmt: skip
        self.manager = built("ReplicationControlManager", given | {
            "ConfigurationControlManager": config, "ClusterControlManager": self.cluster,
            "boolean": has_elr,
        })  # fmt: skip
        self.config = config

    def _feature(self, features: Any, name: str, level: int) -> None:
        record = self._record("FeatureLevelRecord").setName(name).setFeatureLevel(level)
        features.replay(record)

    @staticmethod
    def _record(name: str) -> Any:
        return java(COMMON + "metadata." + name)()

    def _configure(self, name: str, value: object) -> None:
        record = self._record("ConfigRecord").setResourceType(2).setResourceName("t")
        self.config.replay(record.setName(name).setValue(str(value).lower()))

    def _registration(self, broker: int, broker_epoch: int, is_fenced: bool) -> Any:
        record = self._record("RegisterBrokerRecord").setBrokerId(broker)
        record.setIncarnationId(java(COMMON + "Uuid")(broker, broker_epoch + 1))
        return record.setBrokerEpoch(broker_epoch).setFenced(is_fenced)

    def _partition(self, number: int, replicas: list[int]) -> Any:
        record = self._record("PartitionRecord").setTopicId(self.topic).setPartitionId(number)
        record.setReplicas(ints(replicas)).setIsr(ints(replicas)).setLeader(replicas[0])
        return record.setLeaderEpoch(0).setPartitionEpoch(0)

    def _replay(self, record: Any) -> None:
        """Replay a record in each manager that handles its kind."""
        for manager in (self.cluster, self.manager, self.config):
            for method in methods(type(manager), "replay"):
                kind, *more = method.getParameterTypes()
                if kind.isInstance(record):
                    method.setAccessible(True)
                    method.invoke(manager, record, *([java("java.lang.Long")(0)] if more else []))

    def do(self, name: str, *words: Any) -> None:
        self.responses = [None] * len(self.responses)
        try:
            if not self.has_failed:
                getattr(self, name)(*words)
        except java("java.lang.reflect.InvocationTargetException") as error:
            cause = error.getCause()  # for any but an ApiException, QuorumController steps down
            if not isinstance(cause, java("java.lang.IllegalArgumentException")):
                raise
            self.has_failed = True

    # The commands

    def register(self, broker: int, broker_epoch: int, was_clean: bool) -> None:
        """End the former session; register the new process, and unfence it as by a heartbeat."""
        self.expire(broker)
        if not was_clean:
            self._unclean(broker)
        self.epochs[broker] = broker_epoch
        self._replay(self._registration(broker, broker_epoch, True))
        self._handle("handleBrokerUnfenced", broker, java("java.lang.Long")(broker_epoch))

    def _unclean(self, broker: int) -> None:
        kind = self.manager.getClass()
        names = {str(method.getName()) for method in kind.getDeclaredMethods()}
        if "handleBrokerUncleanShutdown" in names:
            self._handle("handleBrokerUncleanShutdown", broker)
        elif "handleBrokerShutdown" in names:
            self._handle("handleBrokerShutdown", broker, java("java.lang.Boolean")(False))

    def expire(self, broker: int) -> None:
        if self.cluster.isUnfenced(broker):
            self._handle("handleBrokerFenced", broker)

    def shut_down(self, broker: int) -> None:
        epoch = java("java.lang.Long")(self.epochs[broker])
        self._handle("handleBrokerInControlledShutdown", broker, epoch)

    def _handle(self, name: str, broker: int, *more: Any) -> None:
        records = listed()
        hidden(self.manager, name)(java("java.lang.Integer")(broker), *more, records)
        for record in records:
            self._replay(record.message())

    def reassign(self, target: list[int] | None, *partitions: int) -> None:
        data, wanted = COMMON + "message.AlterPartitionReassignmentsRequestData", []
        for number in partitions or (0,):
            part = java(data + "$ReassignablePartition")().setPartitionIndex(number)
            wanted.append(part.setReplicas(None if target is None else ints(target)))
        topic = java(data + "$ReassignableTopic")().setName("t").setPartitions(listed(*wanted))
        asked = java(data)().setTopics(listed(topic))
        answer = self._done(hidden(self.manager, "alterPartitionReassignments")(asked))
        for part in answer.responses().get(0).partitions():
            self.responses[int(part.partitionIndex())] = _name(part.errorCode())

    def configure(self, min_insync_replicas: int) -> None:
        """Set min.insync.replicas of the topic (0: of the cluster, to 1). This clears all ELRs."""
        config = COMMON + "config.ConfigResource"
        kind = java(config + "$Type")
        resource = (
            java(config)(kind.TOPIC, "t") if min_insync_replicas else java(config)(kind.BROKER, "")
        )
        set_to = java("org.apache.kafka.clients.admin.AlterConfigOp$OpType").SET
        change = java("java.util.Map").entry(set_to, str(min_insync_replicas or 1))
        asked = java("java.util.Map").of(
            resource, java("java.util.Map").of("min.insync.replicas", change)
        )
        no = [java("java.lang.Boolean")(False)] * (2 if self.world.release >= (4, 3) else 1)
        self._done(hidden(self.config, "incrementalAlterConfigs")(asked, *no))

    def elect(self, kind: str, *partitions: int) -> None:
        data, wanted = COMMON + "message.ElectLeadersRequestData", ints(partitions or (0,))
        topic = java(data + "$TopicPartitions")().setTopic("t").setPartitions(wanted)
        topics = java(data + "$TopicPartitionsCollection")()
        topics.add(topic)
        number = {"preferred": 0, "unclean": 1}[kind]
        asked = java(data)().setElectionType(jpype.JByte(number)).setTopicPartitions(topics)
        answer = self._done(hidden(self.manager, "electLeaders")(asked))
        for part in answer.replicaElectionResults().get(0).partitionResult():
            self.responses[int(part.partitionId())] = _name(part.errorCode())

    def alter(self, broker: int, epochs: list[int], members: list[list[int]], *more: int) -> None:
        is_recovering, partition = (*more, 0)[:2]
        data = COMMON + "message.AlterPartitionRequestData"
        part = java(data + "$PartitionData")().setPartitionIndex(partition)
        part.setLeaderEpoch(epochs[0]).setPartitionEpoch(epochs[1])
        part.setLeaderRecoveryState(jpype.JByte(int(is_recovering)))
        if hasattr(part, "setNewIsrWithEpochs"):
            state = java(data + "$BrokerState")
            known = [state().setBrokerId(n).setBrokerEpoch(epoch) for n, epoch in members]
            part.setNewIsrWithEpochs(listed(*known))
        else:
            part.setNewIsr(ints(number for number, _ in members))
        topic = java(data + "$TopicData")().setTopicId(self.topic).setPartitions(listed(part))
        asked = java(data)().setBrokerId(broker).setBrokerEpoch(self.epochs[broker])
        asked.setTopics(listed(topic))
        answer = self._done(hidden(self.manager, "alterPartition")(_request(), asked))
        code = answer.topics().get(0).partitions().get(0).errorCode()
        self.responses[partition] = _name(code)

    def _done(self, result: Any) -> Any:
        """The answer in a result of the manager, after the result's records have been replayed."""
        for record in result.records():
            self._replay(record.message())
        return result.response()

    # What is compared

    def seen(self) -> Seen:
        if self.has_failed:
            return {"has_failed": True}
        shown = {"active": [n for n in BROKERS if self.cluster.isActive(n)]}
        for number in range(len(self.responses)):
            name = f"p{number} " if number else ""
            shown |= {f"{name}{key}": value for key, value in self._seen(number).items()}
        return shown

    def _seen(self, number: int) -> Seen:
        index = java("java.lang.Integer")(number)
        state = hidden(self.manager, "getPartition")(self.topic, index)
        return {
            "leader": int(state.leader),
            "replicas": list(map(int, state.replicas)),
            "adding": sorted(map(int, state.addingReplicas)),
            "removing": sorted(map(int, state.removingReplicas)),
            "isr": sorted(map(int, state.isr)),
            "leader_epoch": int(state.leaderEpoch),
            "partition_epoch": int(state.partitionEpoch),
            "elr": sorted(map(int, getattr(state, "elr", ()))),
            "last_known_elr": sorted(map(int, getattr(state, "lastKnownElr", ()))),
            "is_recovering": int(state.leaderRecoveryState.value()) == 1,
            "response": self.responses[number],
        }


def _name(code: int) -> str:
    return str(java(COMMON + "protocol.Errors").forCode(code).name())


@cache
def _context() -> Any:
    return java("LogContext")("judge")


@cache
def _features() -> Any:
    kind = java(CONTROLLER + "QuorumFeatures")
    for name in ("defaultSupportedFeatureMap", "defaultFeatureMap"):
        for method in methods(kind, name):
            yes = [java("java.lang.Boolean")(True)] * method.getParameterCount()
            supported = method.invoke(None, *yes)
    constructor = kind.class_.getDeclaredConstructors()[0]
    constructor.setAccessible(True)
    given = {"int": java("java.lang.Integer")(0), "Map": supported, "List": ints([0])}
    if any(str(k.getSimpleName()) == "ApiVersions" for k in constructor.getParameterTypes()):
        given["ApiVersions"] = java("org.apache.kafka.clients.ApiVersions")()
    return constructor.newInstance(*fill(constructor, given))


@cache
def _request() -> Any:
    """The context of a request in its newest version."""
    keys = java(COMMON + "protocol.ApiKeys")
    header = java(COMMON + "message.RequestHeaderData")()
    header.setRequestApiKey(keys.ALTER_PARTITION.id)
    header.setRequestApiVersion(keys.ALTER_PARTITION.latestVersion())
    someone = java(COMMON + "security.auth.KafkaPrincipal").ANONYMOUS
    empty = java("java.util.OptionalLong").empty()
    return java(CONTROLLER + "ControllerRequestContext")(header, someone, empty)


def _setters(name: str) -> list[Any]:
    kind = java(f"{CONTROLLER}{name}$Builder").class_
    return [m for m in kind.getDeclaredMethods() if str(m.getName()).startswith("set")]


def _sets(name: str, kind: str) -> bool:
    return any(str(m.getParameterTypes()[0].getSimpleName()) == kind for m in _setters(name))


def built(name: str, given: dict[str, Any]) -> Any:
    """A manager of the controller, made by its builder, whose setters get values by type."""
    constructor = java(f"{CONTROLLER}{name}$Builder").class_.getDeclaredConstructors()[0]
    constructor.setAccessible(True)
    builder = constructor.newInstance()
    for method in _setters(name):
        (kind,) = method.getParameterTypes()
        value = given.get(str(kind.getSimpleName()))
        if str(kind.getSimpleName()) in MOCKED:
            value = java("org.mockito.Mockito").mock(kind)
        if value is None or str(method.getName()) in ("setZkMigrationEnabled",):
            continue
        method.setAccessible(True)
        if kind.isPrimitive():
            boxes = {"boolean": "Boolean", "long": "Long"}
            value = java(f"java.lang.{boxes[str(kind.getSimpleName())]}")(value)
        method.invoke(builder, value)
    return hidden(builder, "build")()
