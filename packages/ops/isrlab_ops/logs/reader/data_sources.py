"""Broker logs and metadata logs as formats of Spark, to read once or as they grow.

    data_sources.register(spark)
    spark.read.format("kafka-broker-logs").option("topic", "orders*").load("/var/log/kafka")
    spark.readStream.format("kafka-metadata-log").load("/data/__cluster_metadata-0")

Theory of operation. One task reads a folder once, as `read_local` does: zones, overlaps and unnamed
brokers are known only when all of it is read. A stream gives appended lines (growing.py): its
positions are in Spark's checkpoint, and the same positions give the same rows, so each event is
delivered once, whatever is restarted. A task reads some files of broker logs, or all of a metadata
log. Every machine must see the folder under the same path.
"""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from isrlab.events.schema import SCHEMA
from isrlab_ops.logs.reader import growing
from isrlab_ops.logs.reader.files import Source, expanded, find
from isrlab_ops.logs.reader.layout import Layout
from isrlab_ops.logs.reader.metadata.files import recognise
from isrlab_ops.logs.reader.packed import UnpackedFiles
from isrlab_ops.logs.reader.read import FILES, UNREAD, read_sources, schema_of
from isrlab_ops.logs.reader.stamps import given_ms

OPTIONS = {
    "path": "a folder or a file; the argument of `load`",
    "run": "the name of the rows (default: that of the folder)",
    "time_zone": "of stamps that name none (default: what the logs say of it; in a stream UTC)",
    "layout": "a line as the files have it, where the layout is not found by itself",
    "since": "a time in ISO 8601 (UTC unless it names its zone): earlier events are left out",
    "until": "likewise: events of this time and later are left out",
    "topic": "a name, or a pattern with * and ?: only events of these topics",
    "table": "events (default), unread or files, as of `read_local`; a stream gives events",
}
TABLES = {"events": SCHEMA, "unread": schema_of(UNREAD), "files": schema_of(FILES)}
ALWAYS_MS = (-(2**63), 2**63 - 1)
TASK_BYTES = 64 * 1024 * 1024  # roughly what one task of a stream reads


class Logs:
    """A source: its files and options. Raises ValueError for an unknown or invalid option."""

    def __init__(self, given: Mapping[str, str], *, of_metadata: bool) -> None:
        for name in sorted(set(given) - set(OPTIONS)):
            raise ValueError(f"unknown option {name!r}; valid: {', '.join(OPTIONS)}")
        self.path, self.of_metadata = given.get("path", ""), of_metadata
        self.time_zone, self.topic = given.get("time_zone"), given.get("topic")
        is_folder = self.path and Path(self.path).is_dir()  # a growing one may still be empty
        find("-" if is_folder else self.path, self.time_zone or "UTC")
        self.run = given.get("run") or Path(self.path).resolve().name
        self.table = given.get("table", "events")
        if self.table not in TABLES:
            raise ValueError(f"table {self.table!r}; valid: {', '.join(TABLES)}")
        since, until = given.get("since"), given.get("until")
        self.since_ms = ALWAYS_MS[0] if since is None else given_ms(since)
        self.until_ms = ALWAYS_MS[1] if until is None else given_ms(until)
        self.layout = Layout.of([line]) if (line := given.get("layout")) else None
        if self.layout and not self.layout.shapes and not self.layout.keys:
            raise ValueError(f"layout {line!r}: give a line of Kafka as the files have it")

    def tables(self) -> Iterator[pa.RecordBatch]:
        """The rows of the folder as it is now."""
        with UnpackedFiles() as unpacked:
            sources = [
                source for source in expanded(find(self.path), unpacked)
                if source.skipped
                or (recognise(source.path, source.name) is not None) == self.of_metadata
            ]  # fmt: skip
            logs = read_sources(sources, self.run, self.time_zone, self.layout)
        table = getattr(logs, self.table)
        yield from (self._wanted(table) if self.table == "events" else table).to_batches()

    def _wanted(self, events: pa.Table) -> pa.Table:
        is_then = (pc.field("ts_ms") >= self.since_ms) & (pc.field("ts_ms") < self.until_ms)
        events = events.filter(is_then)
        if self.topic:
            names = filter(None, pc.unique(events["topic"]).to_pylist())
            named = pa.array([n for n in names if fnmatchcase(n, self.topic)], pa.string())
            events = events.filter(pc.is_in(events["topic"], named))
        return events

    def files(self) -> list[growing.GrowingFile]:
        """The growing files, as they are now."""
        files = growing.growing_files(self.path)
        return [file for file in files if (file.metadata is not None) == self.of_metadata]

    def added(self, new: list[growing.Addition]) -> Iterator[pa.RecordBatch]:
        """The events of the appended lines."""

        def read(sources: list[Source]) -> pa.Table:
            return read_sources(sources, self.run, self.time_zone or "UTC", self.layout).events

        yield from self._wanted(growing.new_events(new, self.files, read)).to_batches()


class _Once(DataSourceReader):
    def __init__(self, logs: Logs) -> None:
        self.logs = logs

    def read(self, _: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.logs.tables()


class _AsTheyGrow(DataSourceStreamReader):
    def __init__(self, logs: Logs) -> None:
        self.logs = logs

    def initialOffset(self) -> growing.Position:
        return {}

    def latestOffset(self) -> growing.Position:
        return growing.position(self.logs.files())

    def partitions(self, start: growing.Position, end: growing.Position) -> list[InputPartition]:
        files = [*growing.additions(start, end, self.logs.files())]
        new = [file for file in files if file.start < file.end]
        if self.logs.of_metadata:
            return [InputPartition(files)] if new else []
        tasks: dict[int, list[growing.Addition]] = {}
        for file, total in zip(new, accumulate(file.end for file in new), strict=True):
            tasks.setdefault(total // TASK_BYTES, []).append(file)
        return [InputPartition(task) for task in tasks.values()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.logs.added(partition.value)


class BrokerLogSource(DataSource):
    """The format "kafka-broker-logs"; OPTIONS lists its options."""

    of_metadata = False

    @classmethod
    def name(cls) -> str:
        return "kafka-broker-logs"

    def _logs(self) -> Logs:
        return Logs(self.options, of_metadata=self.of_metadata)

    def schema(self) -> StructType:
        return from_arrow_schema(TABLES[self._logs().table])

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Once(self._logs())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        logs = self._logs()
        if logs.table != "events":
            raise ValueError(f"table {logs.table!r}: a stream gives events")
        return _AsTheyGrow(logs)


class MetadataLogSource(BrokerLogSource):
    """The format "kafka-metadata-log", with the same options."""

    of_metadata = True

    @classmethod
    def name(cls) -> str:
        return "kafka-metadata-log"


def register(spark: SparkSession) -> None:
    """Register both formats with a session."""
    for source in (BrokerLogSource, MetadataLogSource):
        spark.dataSource.register(source)
