"""Java objects of whatever release is on the class path, made and called by JPype.

Theory of operation. From release to release Kafka's classes move, and their constructors and
methods take more or fewer arguments. So a class is looked up by all the names it has had (`NAMES`),
and arguments are chosen by the type of each parameter (`fill`): one harness for all releases.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import jpype

from hunt import javac, repairs
from judge import jars

FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m", "-Xshare:auto", "-Xrs")
KAFKA = "org.apache.kafka."
COMMON, SERVER, LOG = KAFKA + "common.", KAFKA + "server.", KAFKA + "storage.internals.log."
# A class, then the places where it has been, newest first. "o." is org.apache.kafka; a name that
# ends in a dot is a package.
PLACES = """
AlterPartitionListener o.server.partition. kafka.cluster. kafka.cluster.IsrChangeListener
AlterPartitionManager o.server.partition.DefaultAlterPartitionManager \
    kafka.server.DefaultAlterPartitionManager kafka.server.DefaultAlterIsrManager \
    kafka.server.AlterIsrManagerImpl
AppendOrigin o.storage.internals.log. kafka.log.AppendOrigin$Client$
BrokerEndPoint o.server.network. kafka.cluster.
BrokerTopicStats o.storage.log.metrics. kafka.server.
Channel o.server.common.NodeToControllerChannelManager o.server.NodeToControllerChannelManager \
    kafka.server.BrokerToControllerChannelManager
DelayedProduce o.server.purgatory. kafka.server.
FetchIsolation o.server.storage.log. o.storage.internals.log. kafka.server.FetchLogEnd$
FetchParams o.server.storage.log. o.storage.internals.log. kafka.server.
FetchPartitionStatus o.storage.internals.log. kafka.server.
HostedPartition$Online o.server. kafka.server.
KRaftMetadataCache o.metadata. kafka.server.metadata.
LogConfig o.storage.internals.log. kafka.log.
LogContext o.common.utils.internals. o.common.utils.
MemoryRecords o.common.record.internal. o.common.record.
MockScheduler o.server.util. kafka.utils.
MockTime o.server.util. kafka.utils.
MockTimer o.server.util.timer. kafka.utils.timer.
NoCompression o.common.compress.Compression o.common.record.CompressionType
OffsetCheckpoints o.storage.internals.checkpoint. kafka.server.checkpoints.
PartitionState o.common.requests.LeaderAndIsrRequest$PartitionState \
    o.common.message.LeaderAndIsrRequestData$LeaderAndIsrPartitionState \
    o.common.requests.PartitionState
ProducePartitionStatus o.server.purgatory.DelayedProduce$ProducePartitionStatus kafka.server.
Purgatory o.server.purgatory.DelayedOperationPurgatory kafka.server.DelayedOperationPurgatory
QuotaFactory o.server.quota. kafka.server.
QuotaFactory$UnboundedQuota$ kafka.server.
RequestLocal o.server.common. kafka.server.
SimpleRecord o.common.record.internal. o.common.record.
TopicPartitionOperationKey o.server.purgatory. kafka.server.
"""
NAMES = {
    name: [
        re.sub(r"^o\.", KAFKA, f"{place}{name}" if place[-1] == "." else place) for place in places
    ]
    for name, *places in map(str.split, PLACES.strip().splitlines())
}


def start(release: str, repaired: tuple[str, ...] = ()) -> bool:
    """Start this process's JVM; returns whether it has Kafka's test jars. Raises NoJarsError."""
    try:
        paths, has_tests = jars.classpath(release), True
    except jars.NoJarsError:
        paths, has_tests = jars.classpath(release, jars.controller), False
    if repaired:
        sources = repairs.edited(release, repaired)
        paths = [str(javac.built(release, "repaired", sources, ":".join(paths))), *paths]
    jpype.startJVM(*FLAGS, classpath=paths)
    system = java("java.lang.System")
    errors, nowhere = system.err, java("java.io.OutputStream").nullOutputStream()
    system.setErr(java("java.io.PrintStream")(nowhere))
    java("org.slf4j.LoggerFactory").getLogger("judge")  # it warns that nothing will be logged
    system.setErr(errors)
    return has_tests


@cache
def java(name: str) -> Any:
    """A Java class by its name or its key in `NAMES`. Raises LookupError if there is none."""
    for full in NAMES.get(name, (name,)):
        try:
            return jpype.JClass(full)
        except (TypeError, jpype.JException):
            continue
    raise LookupError(f"this release has no {name}")


@cache
def has(name: str) -> bool:
    try:
        return bool(java(name))
    except LookupError:
        return False


def the(name: str, field: str = "") -> Any:
    """The instance of a Scala object or, where Java has replaced it, a field of the Java class."""
    if has(name):
        return getattr(java(name), "MODULE$")
    return getattr(java(name.rpartition("$")[0].rpartition("$")[0]), field)


def some(value: Any) -> Any:
    return java("scala.Some")(value)


def none() -> Any:
    return java("scala.Option").empty()


def optional(value: int) -> Any:
    """A Java Optional of a number; -1 is none."""
    kind = java("java.util.Optional")
    return kind.empty() if value < 0 else kind.of(java("java.lang.Integer")(value))


def is_there(value: Any) -> bool:
    """Whether a Scala Option or Java Optional holds something."""
    return bool(value.isDefined() if hasattr(value, "isDefined") else value.isPresent())


def listed(*items: Any) -> Any:
    result = java("java.util.ArrayList")()
    for item in items:
        result.add(item)
    return result


def ints(values: Any) -> Any:
    return listed(*(java("java.lang.Integer")(value) for value in values))


def scala(items: Any) -> Any:
    """A Java list as a Scala sequence."""
    if has("scala.jdk.javaapi.CollectionConverters"):
        return java("scala.jdk.javaapi.CollectionConverters").asScala(items).toSeq()
    return java("scala.collection.JavaConversions").asScalaBuffer(items)


def numbers(items: Any) -> list[int]:
    """A Scala or Java set of numbers, in order."""
    text = str(items.mkString(",")) if hasattr(items, "mkString") else ",".join(map(str, items))
    return sorted(int(part) for part in text.split(",") if part)


def implementing(interface: str, **methods: Any) -> Any:
    """An object that implements a Java interface by Python functions."""
    return jpype.JProxy(java(interface), dict=methods)


def either(target: Any, *names: str) -> Any:
    """The method that a release has under one of these names."""
    return getattr(target, next(name for name in names if hasattr(target, name)))


def value_of(target: Any, name: str) -> Any:
    """The value of a field, even a private one, or of the method with its name."""
    if hasattr(target, name):
        value = getattr(target, name)
        return value() if callable(value) else value
    return _private(target.getClass(), name).get(target)


@cache
def _private(kind: Any, name: str) -> Any:
    field = next(f for f in kind.getDeclaredFields() if str(f.getName()).split("$")[-1] == name)
    field.setAccessible(True)
    return field


def hidden(target: Any, name: str) -> Any:
    """A function that calls a method that is not public, or whose class is not."""
    method = _hidden(target.getClass(), name)
    return lambda *arguments: method.invoke(target, *arguments)


def ask(target: Any, given: dict[str, Any], *names: str) -> Any:
    """Call the method that a release has under one of these names, even a hidden one, with
    arguments chosen by type. Raises LookupError if it has none."""
    every = {str(m.getName()) for m in target.getClass().getDeclaredMethods()}
    method = _hidden(target.getClass(), next((x for x in names if x in every), names[-1]))
    return method.invoke(target, *fill(method, given))


@cache
def _hidden(kind: Any, name: str) -> Any:
    while kind is not None:
        for method in kind.getDeclaredMethods():
            if str(method.getName()).rpartition("$$")[2] == name:
                method.setAccessible(True)
                return method
        kind = kind.getSuperclass()
    raise LookupError(f"no method {name}")


def fill(executable: Any, given: dict[str, Any]) -> list[Any]:
    """Arguments for a constructor or method: for each parameter the value of its type in `given`.

    Several values of one type are a list, used in order.
    """
    left = {name: list(v) if isinstance(v, list) else v for name, v in given.items()}
    arguments = []
    for kind in _kinds(executable):
        value = left[kind]
        arguments.append(value.pop(0) if isinstance(value, list) else value)
    return arguments


@cache
def _kinds(executable: Any) -> list[str]:
    return [str(kind.getSimpleName()) for kind in executable.getParameterTypes()]


def _size(executable: Any) -> int:
    return len(_kinds(executable))


def make(name: str, given: dict[str, Any], pick: Any = max) -> Any:
    """An object made by the longest (`pick`=min: shortest) constructor, filled by type."""
    return java(name)(*fill(pick(java(name).class_.getConstructors(), key=_size), given))


@cache
def _longest(kind: Any, name: str) -> Any:
    return max((m for m in kind.getMethods() if str(m.getName()) == name), key=_size)


def call(target: Any, name: str, given: dict[str, Any]) -> Any:
    """Call the public method of this name with the most parameters, filled by type."""
    return getattr(target, name)(*fill(_longest(target.getClass(), name), given))


@cache
def methods(kind: Any, name: str) -> list[Any]:
    return [m for m in kind.class_.getMethods() if str(m.getName()) == name]


def named(error: Any) -> str:
    """Kafka's name of the error that an exception stands for."""
    return str(java(COMMON + "protocol.Errors").forException(error).name())


def error_name(error: Any) -> str:
    """Kafka's name of an error; up to 0.10.1 some answers have its number instead."""
    if not hasattr(error, "name"):
        error = java(COMMON + "protocol.Errors").forCode(jpype.JShort(int(error)))
    return str(error.name())
