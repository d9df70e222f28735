"""The objects that all partitions of one JVM share. One JVM plays one release."""

from __future__ import annotations

from functools import cache, cached_property
from pathlib import Path
from typing import Any

import jpype

from isrlab_proof.judged.leader import T0
from judge import jars, jvm
from judge.jvm import COMMON, LOG, SERVER, either, has, java, make, methods, scala, start, the
from judge.waiting import stats


class World:
    """The objects that all partitions of a JVM share, such as a log manager for each min ISR."""

    def __init__(self, release: str, folder: str, repaired: tuple[str, ...] = ()) -> None:
        self.has_tests = start(release, repaired)
        self.release = jars.numbers(release)
        self.folder, self.topics = Path(folder), 0
        self.logs = cache(self._logs)

    @cached_property
    def clock(self) -> Any:
        mock = java("MockTime")
        return mock(0, T0) if self.release >= (0, 10, 2) else mock(jpype.JLong(T0))

    @cached_property
    def clocks(self) -> Any:
        """The clocks of a ReplicaManager: up to 0.10.1 it takes two, of Kafka's own interface and,
        for quotas, of the clients' interface."""
        if self.release >= (0, 10, 2):
            return self.clock
        return [self.clock, java(COMMON + "utils.SystemTime")()]

    def folder_of(self, min_isr: int) -> Path:
        return self.folder / f"{'.'.join(map(str, self.release))}-{min_isr}"

    def _logs(self, min_isr: int) -> Any:
        """A log manager, by createLogManager of Kafka's TestUtils with that method's defaults."""
        folder = java("java.io.File")(str(self.folder_of(min_isr)))
        folder.mkdir()
        properties = java("java.util.Properties")()
        properties.put("min.insync.replicas", str(min_isr))
        nothing = the("scala.collection.immutable.Set$").empty()
        given = {"Map": properties, "Properties": properties, "Set": nothing}
        config = make("LogConfig", given, pick=min)
        if self.release >= (4, 4):  # TestUtils of the older test jar makes another LogManager
            return self._built_logs(folder, config)
        utils = java("kafka.utils.TestUtils")
        (maker,) = methods(utils, "createLogManager")
        kinds = [str(kind.getSimpleName()) for kind in maker.getParameterTypes()]
        defaults = [
            getattr(utils, f"createLogManager$default${n}") for n in range(1, len(kinds) + 1)
        ]
        rest = [
            self.clock if kind == "MockTime" else default()
            for kind, default in list(zip(kinds, defaults, strict=True))[2:]
        ]
        folders = [folder] if kinds[0] == "File[]" else scala(jvm.listed(folder))
        return utils.createLogManager(folders, config, *rest)

    def _built_logs(self, folder: Any, config: Any) -> Any:
        """A log manager with the values that createLogManager has for its defaults."""
        failures = java(LOG + "LogDirFailureChannel")(1)
        builder = java("kafka.server.builders.LogManagerBuilder")()
        builder.setLogDirs(jvm.listed(folder)).setInitialDefaultConfig(config)
        builder.setConfigRepository(java("org.apache.kafka.metadata.MockConfigRepository")())
        builder.setCleanerConfig(java(LOG + "CleanerConfig")(False))
        builder.setRecoveryThreadsPerDataDir(4).setScheduler(self.clock.scheduler)
        builder.setLogDirFailureChannel(failures).setTime(self.clock)
        return builder.setBrokerTopicStats(stats()).build()

    @cached_property
    def versions(self) -> dict[str, Any]:
        """The newest metadata version, or inter-broker protocol, by the name of its class."""
        if has(SERVER + "common.MetadataVersion"):  # from 3.3 on
            kind = java(SERVER + "common.MetadataVersion")
            return {"MetadataVersion": either(kind, "latestProduction", "latest")()}
        return {"MetadataVersion": None, "ApiVersion": the("kafka.api.ApiVersion$").latestVersion()}

    @cached_property
    def isolation(self) -> Any:
        kind = java("FetchIsolation")
        return kind.LOG_END if hasattr(kind, "LOG_END") else getattr(kind, "MODULE$")

    @cached_property
    def for_append(self) -> dict[str, Any]:
        """The arguments of an append, except the records and acks."""
        origin, local = java("AppendOrigin"), has("RequestLocal") and java("RequestLocal")
        guard = has(LOG + "VerificationGuard") and java(LOG + "VerificationGuard")
        return {
            "AppendOrigin": origin.CLIENT
            if hasattr(origin, "CLIENT")
            else getattr(origin, "MODULE$"),
            "RequestLocal": local and either(local, "noCaching", "NoCaching")(),
            "VerificationGuard": guard and guard.SENTINEL,
            "Object": None,
            "short": 0,
        }

    def record(self, text: str) -> Any:
        value = java("SimpleRecord")(jpype.JArray(jpype.JByte)(text.encode()))
        return java("MemoryRecords").withRecords(java("NoCompression").NONE, [value])

    def batches(self, base: int, records: list[list[Any]]) -> Any:
        """A buffer with one batch for each record, (value, epoch)."""
        kind, none = java("MemoryRecords"), java("NoCompression").NONE
        made = []
        for offset, (name, epoch) in enumerate(records, start=base):
            value = java("SimpleRecord")(jpype.JArray(jpype.JByte)(name.encode()))
            number = java("java.lang.Integer")(epoch)
            made.append(kind.withRecords(jpype.JLong(offset), none, number, [value]).buffer())
        buffer = java("java.nio.ByteBuffer").allocate(sum(batch.remaining() for batch in made))
        for batch in made:
            buffer.put(batch)
        buffer.flip()
        return kind.readableRecords(buffer)
