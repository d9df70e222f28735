"""Kafka's controller by its request paths: a ReplicationControlManager with the managers that it
uses, and no log: records are replayed immediately. A command does what QuorumController does for
the request or timer of that name: ClusterControlManager registers brokers and passes on what that
means for their former process; heartbeats unfence and stop them; sessions end by the clock.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jpype

from isrlab_proof.judged.controller import BROKERS, REPLICAS
from isrlab_proof.judged.leader import Seen
from judge import jvm
from judge.jvm import COMMON, KAFKA, ask, fill, hidden, implementing, ints, java, listed, methods
from judge.world import World

CONTROLLER = KAFKA + "controller."
UNIVERSE = 1  # of topic ids
SESSION_NS = 9_000_000_000
NOTHING = {"long": 0}


class KafkaController:
    """The controller of a topic, with the commands of `isrlab_proof.judged.controller`."""

    def __init__(self, world: World, **settings: Any) -> None:
        self.world = world
        partitions = settings.get("partitions") or [[*REPLICAS]]
        self.responses: list[str | None] = [None] * len(partitions)
        self.has_failed = False
        self.has_elr = settings.get("has_elr", world.release >= (4, 1))
        self.log: list[Any] = []
        self.topic = java(COMMON + "Uuid")(UNIVERSE, 1)
        self.epochs = dict.fromkeys(BROKERS, 0)
        self.fail_over()
        for broker in BROKERS:
            self.register(broker, 0, False)
        self._replay(record("TopicRecord", Name="t", TopicId=self.topic))
        for name in ("min_insync_replicas", "unclean_leader_election_enable"):
            self._configure(name.replace("_", "."), settings[name])
        for number, replicas in enumerate(partitions):
            self._replay(record(
                "PartitionRecord", TopicId=self.topic, PartitionId=number, Leader=replicas[0],
                Replicas=ints(replicas), Isr=ints(replicas), LeaderEpoch=0, PartitionEpoch=0,
            ))  # fmt: skip

    def close(self) -> None:
        """Do nothing: a controller has no files."""

    def _managers(self) -> None:
        context = java("LogContext")("judge")
        registry = java(KAFKA + "timeline.SnapshotRegistry")(context)
        given = {"SnapshotRegistry": registry, "LogContext": context}
        version = self.world.versions["MetadataVersion"]
        features = built("FeatureControlManager", given | {
            "QuorumFeatures": _features(), "MetadataVersion": version
        })  # fmt: skip
        if not _sets("FeatureControlManager", "MetadataVersion"):  # from 4.0 on
            levels = {"metadata.version": version.featureLevel()}
            levels["eligible.leader.replicas.version"] = int(self.has_elr)
            for name, level in levels.items():
                features.replay(record("FeatureLevelRecord", Name=name, FeatureLevel=level))
        schema = jvm.the("kafka.server.KafkaRaftServer$").configSchema()
        given |= {"FeatureControlManager": features, "KafkaConfigSchema": schema}
        config = built("ConfigurationControlManager", given)
        self.features, self.now_ns = features, SESSION_NS
        clock = {"nanoseconds": lambda: self.now_ns, "milliseconds": lambda: self.now_ns // 10**6}
        self.cluster = built("ClusterControlManager", given | {
            "Time": implementing(COMMON + "utils.Time", **clock),
            "ReplicaPlacer": implementing(KAFKA + "metadata.placement.ReplicaPlacer"),
            "long": SESSION_NS, "String": "judge",
            "ShutdownHandler": self._pass_on,
        })  # fmt: skip
        self.manager = built("ReplicationControlManager", given | {
            "ConfigurationControlManager": config, "ClusterControlManager": self.cluster,
            "boolean": self.has_elr,
        })  # fmt: skip
        self.config = config

    def _configure(self, name: str, value: object) -> None:
        setting = record("ConfigRecord", ResourceName="t", Name=name, Value=str(value).lower())
        self._replay(setting.setResourceType(2))

    def _pass_on(self, *words: Any) -> None:
        """The registration of a new process, as QuorumController passes it on."""
        is_new = self.world.release >= (4,)
        name = "handleBrokerShutdown" if is_new else "handleBrokerUncleanShutdown"
        hidden(self.manager, name)(*words)

    def _replay(self, made: Any) -> None:
        """Replay a record in each manager that handles its kind."""
        self.log.append(made)
        for manager in (self.cluster, self.manager, self.config):
            for method in methods(type(manager), "replay"):
                kind, *more = method.getParameterTypes()
                if kind.isInstance(made):
                    method.setAccessible(True)
                    method.invoke(manager, made, *([java("java.lang.Long")(0)] if more else []))

    def do(self, name: str, *words: Any) -> None:
        self.responses = [None] * len(self.responses)
        try:
            if not self.has_failed:
                getattr(self, name)(*words)
        except java("java.lang.Exception") as error:
            if "java.lang.IllegalArgumentException" not in error.stacktrace():
                raise  # for any error but an ApiException, QuorumController steps down
            self.has_failed = True

    # The commands

    def fail_over(self) -> None:
        """Another controller reads the metadata log, and becomes active."""
        log, self.log = self.log, []
        self._managers()
        for made in log:
            self._replay(made)
        self.cluster.activate()

    def register(self, broker: int, broker_epoch: int, was_clean: bool) -> None:
        """Register a new process, again if its former session must end first, and unfence it."""
        name, uuid = "BrokerRegistrationRequestData", java(COMMON + "Uuid")
        data = message(
            name, BrokerId=broker, ClusterId="judge", IncarnationId=uuid(broker, broker_epoch + 1),
            LogDirs=listed(uuid(UNIVERSE, 100 + broker)),
            PreviousBrokerEpoch=self.epochs[broker] if was_clean else -1,
        )  # fmt: skip
        for feature, levels in _supported().items():
            ends = {"MinSupportedVersion": levels.min(), "MaxSupportedVersion": levels.max()}
            data.features().add(message(f"{name}$Feature", Name=feature, **ends))
        finalized = ask(self.features, {"long": 2**63 - 1}, "finalizedFeatures")
        given = {
            name: data, "FinalizedControllerFeatures": finalized, "long": broker_epoch,
            "boolean": True,
        }  # fmt: skip
        try:
            self._done(jvm.call(self.cluster, "registerBroker", given))
        except java(COMMON + "errors.DuplicateBrokerRegistrationException"):
            self.expire(broker)
            self._done(jvm.call(self.cluster, "registerBroker", given))
        self.epochs[broker] = broker_epoch
        self.beat(broker)

    def beat(self, broker: int, wants_stop: bool = False) -> None:
        """A heartbeat: it unfences a broker, even one whose session had ended."""
        self._touch(broker)
        name, asks = "BrokerHeartbeatRequestData", {"WantShutDown": wants_stop}
        asks |= {"BrokerId": broker, "BrokerEpoch": self.epochs[broker], "CurrentMetadataOffset": 0}
        reply = self._ask("processBrokerHeartbeat", {name: message(name, **asks)})
        if reply.inControlledShutdown():
            given = {"int": java("java.lang.Integer")(broker)}
            names = "maybeUpdateControlledShutdownOffset", "updateControlledShutdownOffset"
            ask(ask(self.cluster, NOTHING, "heartbeatManager"), given | NOTHING, *names)

    def _touch(self, broker: int) -> None:
        """Note the contact of a heartbeat: from 4.0 on this is done before it is handled."""
        given = {"int": java("java.lang.Integer")(broker), "long": self.epochs[broker]}
        given["boolean"] = not self.cluster.isUnfenced(broker)
        is_new = self.world.release >= (4,)
        keeper = self.cluster if is_new else ask(self.cluster, NOTHING, "heartbeatManager")
        ask(keeper, given, "trackBrokerHeartbeat", "touch")

    def expire(self, broker: int) -> None:
        """No heartbeat of this broker comes for the length of a session, but those of others do."""
        for wait_ns in (1, SESSION_NS + 1):
            self.now_ns += wait_ns
            for other in BROKERS:
                if self.cluster.isUnfenced(other) and (other != broker or wait_ns == 1):
                    self._touch(other)
        for _ in range(2 * len(BROKERS)):
            self._ask("maybeFenceOneStaleBroker")

    def shut_down(self, broker: int) -> None:
        for other in filter(self.cluster.isActive, BROKERS):
            self.beat(other)  # so that the controller knows how far each has read the metadata log
        if self.cluster.isUnfenced(broker):
            self.beat(broker, True)

    def tick(self, task: str) -> None:
        """A periodic task: the balance of leaders, or (since 3.9) unclean elections."""
        self._ask({"balance": "maybeBalancePartitionLeaders"}.get(task, "maybeElectUncleanLeaders"))

    def _ask(self, name: str, given: dict[str, Any] | None = None) -> Any:
        return self._done(ask(self.manager, (given or {}) | NOTHING, name))

    def reassign(self, target: list[int] | None, *partitions: int) -> None:
        name, replicas = "AlterPartitionReassignmentsRequestData", target and ints(target)
        part = f"{name}$ReassignablePartition"
        parts = [message(part, PartitionIndex=n, Replicas=replicas) for n in partitions or (0,)]
        topic = message(f"{name}$ReassignableTopic", Name="t", Partitions=listed(*parts))
        asked = message(name, Topics=listed(topic))
        answer = self._done(hidden(self.manager, "alterPartitionReassignments")(asked))
        for part in answer.responses().get(0).partitions():
            self.responses[int(part.partitionIndex())] = _name(part.errorCode())

    def configure(self, min_insync_replicas: int) -> None:
        """Set min.insync.replicas of the topic (0: of the cluster, to 1). This clears all ELRs."""
        config, by_name = java(COMMON + "config.ConfigResource"), java("java.util.Map")
        kind = java(COMMON + "config.ConfigResource$Type")
        resource = config(kind.TOPIC, "t") if min_insync_replicas else config(kind.BROKER, "")
        set_to = java(KAFKA + "clients.admin.AlterConfigOp$OpType").SET
        change = by_name.entry(set_to, str(min_insync_replicas or 1))
        asked = by_name.of(resource, by_name.of("min.insync.replicas", change))
        no = [java("java.lang.Boolean")(False)] * (2 if self.world.release >= (4, 3) else 1)
        self._done(hidden(self.config, "incrementalAlterConfigs")(asked, *no))

    def elect(self, kind: str, *partitions: int) -> None:
        name, parts = "ElectLeadersRequestData", ints(partitions or (0,))
        topics = message(f"{name}$TopicPartitionsCollection")
        topics.add(message(f"{name}$TopicPartitions", Topic="t", Partitions=parts))
        number = jpype.JByte({"preferred": 0, "unclean": 1}[kind])
        asked = message(name, ElectionType=number, TopicPartitions=topics)
        answer = self._done(hidden(self.manager, "electLeaders")(asked))
        for part in answer.replicaElectionResults().get(0).partitionResult():
            self.responses[int(part.partitionId())] = _name(part.errorCode())

    def alter(self, broker: int, epochs: list[int], members: list[list[int]], *more: int) -> None:
        is_recovering, partition = (*more, 0)[:2]
        name, state = "AlterPartitionRequestData", jpype.JByte(int(is_recovering))
        part = message(
            f"{name}$PartitionData", PartitionIndex=partition, LeaderEpoch=epochs[0],
            PartitionEpoch=epochs[1], LeaderRecoveryState=state,
        )  # fmt: skip
        if hasattr(part, "setNewIsrWithEpochs"):
            of = f"{name}$BrokerState"
            known = [message(of, BrokerId=number, BrokerEpoch=epoch) for number, epoch in members]
            part.setNewIsrWithEpochs(listed(*known))
        else:
            part.setNewIsr(ints(number for number, _ in members))
        topic = message(f"{name}$TopicData", TopicId=self.topic, Partitions=listed(part))
        asked = message(
            name, BrokerId=broker, BrokerEpoch=self.epochs[broker], Topics=listed(topic)
        )
        answer = self._done(hidden(self.manager, "alterPartition")(_request(), asked))
        code = answer.topics().get(0).partitions().get(0).errorCode()
        self.responses[partition] = _name(code)

    def _done(self, result: Any) -> Any:
        """The answer in a result of the manager, after the result's records have been replayed."""
        for written in result.records():
            self._replay(written.message())
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
        sets = {"adding": "addingReplicas", "removing": "removingReplicas", "isr": "isr"}
        sets |= {"elr": "elr", "last_known_elr": "lastKnownElr"}
        shown = {name: sorted(map(int, getattr(state, x, ()))) for name, x in sets.items()}
        return shown | {
            "leader": int(state.leader), "replicas": list(map(int, state.replicas)),
            "leader_epoch": int(state.leaderEpoch), "partition_epoch": int(state.partitionEpoch),
            "is_recovering": int(state.leaderRecoveryState.value()) == 1,
            "response": self.responses[number],
        }  # fmt: skip


def record(name: str, **values: Any) -> Any:
    return message(name, "metadata", **values)


def message(name: str, package: str = "message", **values: Any) -> Any:
    """A message of Kafka's protocol with these values, as far as its release has their fields."""
    made = java(f"{COMMON}{package}.{name}")()
    for field, value in values.items():
        getattr(made, f"set{field}", str)(value)
    return made


def _name(code: int) -> str:
    return str(java(COMMON + "protocol.Errors").forCode(code).name())


@cache
def _supported() -> Any:
    """The levels of each feature that a broker or controller of this release supports."""
    kind = java(CONTROLLER + "QuorumFeatures")
    for name in ("defaultSupportedFeatureMap", "defaultFeatureMap"):
        for method in methods(kind, name):
            yes = [java("java.lang.Boolean")(True)] * method.getParameterCount()
            supported = method.invoke(None, *yes)
    return supported


@cache
def _features() -> Any:
    constructor = java(CONTROLLER + "QuorumFeatures").class_.getDeclaredConstructors()[0]
    constructor.setAccessible(True)
    given = {"int": java("java.lang.Integer")(0), "Map": _supported(), "List": ints([0])}
    if any(str(k.getSimpleName()) == "ApiVersions" for k in constructor.getParameterTypes()):
        given["ApiVersions"] = java("org.apache.kafka.clients.ApiVersions")()
    return constructor.newInstance(*fill(constructor, given))


@cache
def _request() -> Any:
    """The context of a request in its newest version."""
    keys = java(COMMON + "protocol.ApiKeys")
    key, newest = keys.ALTER_PARTITION.id, keys.ALTER_PARTITION.latestVersion()
    header = message("RequestHeaderData", RequestApiKey=key, RequestApiVersion=newest)
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
        simple = str(kind.getSimpleName())
        value = given.get(simple)
        if simple == "QuorumControllerMetrics":
            value = java("org.mockito.Mockito").mock(kind)
        elif simple.endswith("ShutdownHandler"):
            passes_on = {"addRecordsForShutdown": given["ShutdownHandler"]}
            value = implementing(str(kind.getName()), **passes_on)
        if value is None or str(method.getName()) in ("setZkMigrationEnabled",):
            continue
        method.setAccessible(True)
        method.invoke(builder, value)
    return hidden(builder, "build")()
