"""Reads a folder of real broker logs into the events table, with Spark.

Theory of operation. The driver lists the files; the list is a small DataFrame, and `mapInArrow`
reads one file after another where its task runs, so on a cluster `log_dir` must be a path that
every worker sees. Each file is read once, as a stream: events, unread lines and a count for the
file come out of the same pass, told apart by the column `row`. That one table is kept by Spark
(`persist`), and the three DataFrames of `BrokerLogs` are views of it.

A line that should be an event and is not appears in `unread`; so does the place where a file broke
off. A reason that occurs very often in one file keeps its first lines and one row that counts the
rest, so that a gigabyte of garbage is one row.

Several logs tell of one change: the leader asks (server.log), the controller stores it
(controller.log), other brokers learn it (state-change.log). All of them stay events, each with the
broker that says so in `broker` and, where that is not the leader itself, `detail.said_by`.
`churn.isr_history` makes one history of them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa

from isrlab.brokerlogs.files import DamagedFileError, Line, LogDirError, find, lines
from isrlab.brokerlogs.lines import INTERESTING, Event, LineReader, Unread
from isrlab.events import schema as events_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_BATCH = 5_000
UNREAD_KEPT = 200  # rows per file and reason that are kept one by one
SHOWN_CHARACTERS = 300  # of an unread line

_RAW = pa.schema(
    [
        *events_table.SCHEMA,
        pa.field("row", pa.string()),
        pa.field("file", pa.string()),
        pa.field("line", pa.int64()),
        pa.field("reason", pa.string()),
        pa.field("text", pa.string()),
        pa.field("lines", pa.int64()),
        pa.field("bytes", pa.int64()),
    ]
)
PLAN_SCHEMA = "number int, path string, file string, run string, time_zone string"


class BrokerLogs(NamedTuple):
    """`events`: events.SCHEMA, in order of time. `unread`: run, file, line, reason, text, lines
    (how many lines the row stands for). `files`: run, file, bytes, lines, status."""

    events: DataFrame
    unread: DataFrame
    files: DataFrame


def read(
    spark: SparkSession,
    log_dir: str | os.PathLike[str],
    run: str | None = None,
    time_zone: str = "UTC",
) -> BrokerLogs:
    """The events of every broker log below `log_dir`, which may also be one file.

    `run` names them (default: the name of the folder). `time_zone` is the one the brokers print
    their local time in, such as "Europe/Berlin". Raises LogDirError when there is nothing to read
    or the zone is unknown.
    """
    from pyspark.sql import functions as F

    try:
        ZoneInfo(time_zone)
    except (OSError, ValueError) as error:  # ZoneInfoNotFoundError is a KeyError below
        raise LogDirError(f"time_zone {time_zone!r} is unknown; give one such as 'UTC'") from error
    except KeyError as error:
        raise LogDirError(f"time_zone {time_zone!r} is unknown; give one such as 'UTC'") from error
    sources = find(log_dir)
    run = run or Path(log_dir).resolve().name
    plan = [
        (number, source.path, source.name, run, time_zone)
        for number, source in enumerate(sources)
        if source.skipped is None
    ]
    tasks = min(len(plan), 4 * spark.sparkContext.defaultParallelism)
    raw = (
        spark.createDataFrame(plan, PLAN_SCHEMA)
        .repartitionByRange(tasks, "number")
        .mapInArrow(_read_files, _raw_schema())
        .persist()
    )
    skipped = spark.createDataFrame(
        [(run, s.name, s.size_bytes, 0, f"skipped: {s.skipped}") for s in sources if s.skipped],
        "run string, file string, bytes long, lines long, status string",
    )
    files = raw.where(F.col("row") == "file").select(
        "run", "file", "bytes", "lines", F.col("reason").alias("status")
    )
    unread = raw.where(F.col("row") == "unread").orderBy("file", "line", "reason")
    return BrokerLogs(
        events=_events(raw),
        unread=unread.select("run", "file", "line", "reason", "text", "lines"),
        files=files.unionByName(skipped).orderBy("file"),
    )


def _raw_schema() -> object:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(_RAW)


def _events(raw: DataFrame) -> DataFrame:
    """The event rows as events.SCHEMA, in order of time, file and line.

    A line that does not name its broker has it from its file, if all lines there name the same one,
    else from its folder, likewise, else not at all.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    folder = F.regexp_replace("file", r"[^/]*$", "")
    by_file = Window.partitionBy("run", "file")
    by_folder = Window.partitionBy("run", folder)

    def only(window: object) -> object:
        return F.when(
            F.min("broker").over(window) == F.max("broker").over(window),
            F.min("broker").over(window),
        )

    broker = F.coalesce("broker", only(by_file), only(by_folder))
    place = F.create_map(F.lit("file"), F.col("file"), F.lit("line"), F.col("line").cast("string"))
    named = {
        "broker": broker,
        "replica": F.when(
            F.col("kind").isin("leader", "crash", "restart"), F.coalesce("replica", broker)
        ).otherwise(F.col("replica")),
        "detail": F.map_concat(place, "detail"),
    }
    chosen = [named.get(name, F.col(name)).alias(name) for name in events_table.COLUMNS]
    rows = raw.where(F.col("row") == "event").select(*chosen, "file", "line")
    schema = events_table.spark_schema()
    return rows.orderBy("ts_ms", "file", "line").select(*events_table.COLUMNS).to(schema)


@dataclass(slots=True)
class _Tally:
    """Collects the rows of one file; repeated reasons are counted beyond `UNREAD_KEPT`."""

    run: str
    file: str
    rows: list[dict[str, object]] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    first_uncounted: dict[str, int] = field(default_factory=dict)
    events: int = 0

    def event(self, line: int, event: Event) -> None:
        for one in _one_for_each_broker(event):
            self.rows.append(self._row("event") | {"line": line} | one)
            self.events += 1

    def unread(self, line: int, reason: str, text: str) -> None:
        self.seen[reason] += 1
        if self.seen[reason] > UNREAD_KEPT:
            self.first_uncounted.setdefault(reason, line)
            return
        self._add_unread(line, reason, text[:SHOWN_CHARACTERS], 1)

    def close(self, lines_read: int, size: int, status: str) -> None:
        for reason, line in self.first_uncounted.items():
            self._add_unread(line, reason, "(and more like these)", self.seen[reason] - UNREAD_KEPT)
        self.rows.append(self._row("file") | {"lines": lines_read, "bytes": size, "reason": status})

    def _add_unread(self, line: int, reason: str, text: str, count: int) -> None:
        self.rows.append(
            self._row("unread") | {"line": line, "reason": reason, "text": text, "lines": count}
        )

    def _row(self, row: str) -> dict[str, object]:
        return {"run": self.run, "ts_ms": 0, "kind": "", "row": row, "file": self.file}


def _one_for_each_broker(event: Event) -> Iterator[Event]:
    """A controller may name several brokers that died or came back at once: an event for each."""
    detail = event["detail"]
    if not isinstance(detail, dict) or "brokers" not in detail:
        yield event
        return
    rest = {key: value for key, value in detail.items() if key != "brokers"}
    for replica in detail["brokers"].split(","):
        yield event | {"replica": int(replica), "detail": rest}


def _read_files(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The task: rows of `_RAW` for each file of the plan."""
    for batch in batches:
        for entry in batch.to_pylist():
            yield from _read_file(entry)


def _read_file(entry: dict[str, str]) -> Iterator[pa.RecordBatch]:
    tally = _Tally(entry["run"], entry["file"])
    reader = LineReader(entry["time_zone"])
    number, status = 0, "read"
    try:
        for line in lines(entry["path"]):
            number = line.number
            _read_one(line, reader, tally)
            if len(tally.rows) >= ROWS_PER_BATCH:
                yield _batch(tally)
    except (DamagedFileError, OSError) as error:
        status = (
            f"broken off: {error}" if isinstance(error, DamagedFileError) else f"not read: {error}"
        )
        tally.unread(number + 1, status, "")
    try:
        size = os.path.getsize(entry["path"])
    except OSError:
        size = 0
    tally.close(number, size, status)
    yield _batch(tally)


def _batch(tally: _Tally) -> pa.RecordBatch:
    rows, tally.rows = tally.rows, []
    return pa.RecordBatch.from_pylist(rows, schema=_RAW)


def _read_one(line: Line, reader: LineReader, tally: _Tally) -> None:
    data = line.text
    if b"\0" in data:
        data = _without_hole(line, tally)
    if INTERESTING.search(data) is None:
        if _is_garbage(data):
            tally.unread(line.number, "bytes that are not text", _shown(data))
        reader.pass_by(data)
        return
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        tally.unread(line.number, "bytes that are not UTF-8", _shown(data))
        return
    result = reader.read(text)
    if isinstance(result, Unread):
        tally.unread(line.number, result.reason, text)
    elif result is not None:
        tally.event(line.number, result)
    elif line.is_cut:
        return
    if line.is_cut:
        tally.unread(line.number, "longer than 65,536 bytes; only its beginning was read", text)


def _without_hole(line: Line, tally: _Tally) -> bytes:
    """The text of a line with zero bytes, which a machine that stopped while writing leaves."""
    rest = line.text.lstrip(b"\0")
    zeros = len(line.text) - len(rest)
    if zeros and b"\0" not in rest:
        tally.unread(line.number, "a hole of zero bytes", f"{zeros:,} zero bytes")
        return rest
    return line.text


_CONTROL = bytes(set(range(32)) - {9, 10, 12, 13, 27})


def _is_garbage(data: bytes) -> bool:
    """No broker wrote this: control characters, or bytes that are no UTF-8."""
    sample = data[:4096]
    if sample.isascii():
        return len(sample.translate(None, _CONTROL)) != len(sample)
    return "\ufffd" in sample.decode("utf-8", "replace")[:-1]


def _shown(data: bytes) -> str:
    """Bytes as text that can be printed, each strange one as \\xNN."""
    return data[:SHOWN_CHARACTERS].decode("utf-8", "backslashreplace").replace("\0", "\\x00")
