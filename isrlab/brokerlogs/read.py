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

Files may overlap: what two files say of one broker in the same words at the same millisecond is one
event, that of the first file. What one file says twice is two.

A line that does not name its broker has it from its file, if all lines there name the same one,
else from its folder, likewise, else not at all. `read_local` does the same for a small folder
without Spark, for events only.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from isrlab.brokerlogs.files import DamagedFileError, Line, PathName, find, lines
from isrlab.brokerlogs.lines import INTERESTING, Event, LineReader, Unread
from isrlab.events import schema as events_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_BATCH = 5_000
UNREAD_KEPT = 200  # rows per file and reason that are kept one by one
SHOWN_CHARACTERS = 300  # of an unread line
OF_ITSELF = ("leader", "crash", "restart")  # kinds whose replica is their broker, if not named

_OF_A_FILE = {
    **dict.fromkeys(["row", "file", "reason", "text"], pa.string()),
    **dict.fromkeys(["line", "lines", "bytes"], pa.int64()),
}
_OF_A_FILE["same"] = pa.string()  # equal for one line in two files that overlap
_RAW = pa.schema([*events_table.SCHEMA, *_OF_A_FILE.items()])
_PLAN = "number int, path string, file string, run string, time_zone string"
_FILES = "run string, file string, bytes long, lines long, status string"


class BrokerLogs(NamedTuple):
    """`events`: events.SCHEMA, in order of time. `unread`: run, file, line, reason, text, lines
    (how many lines the row stands for). `files`: run, file, bytes, lines, status."""

    events: DataFrame
    unread: DataFrame
    files: DataFrame


def read(
    spark: SparkSession, log_dir: PathName, run: str | None = None, time_zone: str = "UTC"
) -> BrokerLogs:
    """The events of every broker log below `log_dir`, which may also be one file.

    `run` names them (default: the name of the folder). `time_zone` is the one the brokers print
    their local time in, such as "Europe/Berlin". Raises LogDirError when there is nothing to read
    or the zone is unknown.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    sources, run = find(log_dir, time_zone), run or Path(log_dir).resolve().name
    readable = [source for source in sources if not source.skipped]
    plan = [(n, s.path, s.name, run, time_zone) for n, s in enumerate(readable)]
    tasks = min(len(plan), 4 * spark.sparkContext.defaultParallelism)
    ordered = spark.createDataFrame(plan, _PLAN).repartitionByRange(tasks, "number")
    raw = ordered.mapInArrow(_read_files, from_arrow_schema(_RAW)).persist()
    reasons = [(s, f"skipped: {s.skipped}") for s in sources if s.skipped]
    rows = [(run, source.name, source.size_bytes, 0, reason) for source, reason in reasons]
    skipped = spark.createDataFrame(rows, _FILES)
    status = F.col("reason").alias("status")
    files = raw.where(F.col("row") == "file").select("run", "file", "bytes", "lines", status)
    unread = raw.where(F.col("row") == "unread").orderBy("file", "line", "reason")
    return BrokerLogs(
        events=_events(raw),
        unread=unread.select("run", "file", "line", "reason", "text", "lines"),
        files=files.unionByName(skipped).orderBy("file"),
    )


def read_local(log_dir: PathName, run: str | None = None, time_zone: str = "UTC") -> pa.Table:
    """The events of `read`, the same rows in the same order, read in this process.

    For a few thousand lines; what could not be read is left out. Raises as `read` does.
    """
    sources, run = find(log_dir, time_zone), run or Path(log_dir).resolve().name
    rows: list[dict] = []
    for source in sources:
        if not source.skipped:
            read = _file_rows(source.path, source.name, run, time_zone)
            rows += [row for row in read if row["row"] == "event"]
    brokers: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        for place in (row["file"], os.path.dirname(row["file"])):
            brokers[place] |= {row["broker"]} if "broker" in row else set()
    for row in rows:
        places = (brokers[row["file"]], brokers[os.path.dirname(row["file"])])
        only = next((min(names) for names in places if len(names) == 1), None)
        row.setdefault("broker", only)
        if row["kind"] in OF_ITSELF and row.get("replica") is None:
            row["replica"] = row["broker"]
        row["detail"] = {"file": row["file"], "line": str(row["line"]), **row["detail"]}
    rows.sort(key=lambda row: (row["ts_ms"], row["file"], row["line"]))
    first = dict[tuple, dict]()
    for row in rows:
        place = os.path.dirname(row["file"]) if row["broker"] is None else ""
        first.setdefault((row["same"], row["broker"], place), row)
    rows = [{n: row.get(n) for n in events_table.COLUMNS} for row in first.values()]
    return pa.Table.from_pylist(rows, schema=events_table.SCHEMA)


def _events(raw: DataFrame) -> DataFrame:
    """The event rows as events.SCHEMA, in order of time, file and line."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    def only(place: object) -> object:
        window = Window.partitionBy("run", place)
        first, last = F.min("broker").over(window), F.max("broker").over(window)
        return F.when(first == last, first)

    folder = F.regexp_replace("file", r"[^/]*$", "")
    broker = F.coalesce("broker", only(F.col("file")), only(folder))
    place = F.create_map(F.lit("file"), F.col("file"), F.lit("line"), F.col("line").cast("string"))
    of_itself = F.when(F.col("kind").isin(*OF_ITSELF), F.col("broker"))
    rows = raw.where(F.col("row") == "event").withColumn("broker", broker)
    rows = rows.withColumn("replica", F.coalesce("replica", of_itself))
    rows = rows.withColumn("detail", F.map_concat(place, "detail"))
    where = F.when(F.col("broker").isNull(), folder)
    copies = Window.partitionBy("run", "same", "broker", where).orderBy("file", "line")
    rows = rows.withColumn("copy", F.row_number().over(copies)).where("copy = 1")
    schema = events_table.spark_schema()
    return rows.orderBy("ts_ms", "file", "line").select(*events_table.COLUMNS).to(schema)


def _read_files(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The task: rows of `_RAW` for each file of the plan."""
    for batch in batches:
        for entry in batch.to_pylist():
            rows = _file_rows(entry["path"], entry["file"], entry["run"], entry["time_zone"])
            while chunk := list(islice(rows, ROWS_PER_BATCH)):
                yield pa.RecordBatch.from_pylist(chunk, schema=_RAW)


def _file_rows(path: str, file: str, run: str, time_zone: str) -> Iterator[dict]:
    """Of one file: its events, its unread lines, a row for the file itself."""
    base = {"run": run, "ts_ms": 0, "kind": "", "file": file}
    reader, counts, first_uncounted = LineReader(time_zone), Counter[str](), dict[str, int]()
    moment, repeated = None, Counter[str]()
    number, status, held = 0, "read", dict[tuple, list[dict]]()
    try:
        for line in lines(path):
            number = line.number
            if b"has no effect" in line.text and (void := NO_EFFECT.search(line.text)):
                topic, partition, end = (void[1] or void[4], void[2] or void[5], void[3] or void[6])
                place = topic.decode("utf-8", "replace"), int(partition), int(end)
                near = held.get(place, [])
                near[:] = [each for each in near if each["line"] < number - NEAR_LINES]
            for item in _read_line(line, reader):
                if not isinstance(item, Unread):
                    if item["ts_ms"] != moment:
                        moment, repeated = item["ts_ms"], Counter[str]()
                    said = repr(item)
                    repeated[said] += 1
                    row = base | item | {"row": "event", "line": number}
                    row["same"] = f"{repeated[said]} {said}"
                    yield from _that_happened(held, row) if item["kind"] == "truncate" else [row]
                    continue
                counts[item.reason] += 1
                if counts[item.reason] > UNREAD_KEPT:
                    first_uncounted.setdefault(item.reason, number)
                else:
                    yield base | _unread(number, item.reason, item.text)
    except (DamagedFileError, OSError) as error:
        why = "broken off" if isinstance(error, DamagedFileError) else "not read"
        status = f"{why}: {error}"
        yield base | _unread(number + 1, status, "")
    for rows in held.values():
        yield from rows
    for reason, first in first_uncounted.items():
        more = counts[reason] - UNREAD_KEPT
        yield base | _unread(first, reason, "(and more like these)", more)
    size = os.path.getsize(path) if os.path.exists(path) else 0
    yield base | {"row": "file", "lines": number, "bytes": size, "reason": status}


NEAR_LINES = 100  # within which a log answers its fetcher
# The log's answer to a fetcher that has decided to truncate it, in front of it or behind.
NO_EFFECT = re.compile(
    rb"\[\w+ partition=([^\s,]+)-(\d{1,9}), .*\] Truncating to (\d{1,18}) has no effect"
    rb"|Truncating ([^\s,]+)-(\d{1,9}) to (\d{1,18}) has no effect"
)


def _that_happened(held: dict[tuple, list[dict]], row: dict) -> list[dict]:
    """Hold a truncation back until the log says that it had no effect, or the next one comes.

    Those that can no longer be taken back. A fetcher decides (one line), a log obeys (another).
    """
    rows = held.setdefault(tuple(row.get(n) for n in ("topic", "partition", "log_end_offset")), [])
    step = row["detail"].get("step")
    done = rows[:] if any(each["detail"].get("step") == step for each in rows) else []
    rows[: len(done)] = []
    rows.append(row)
    return done


def _unread(line: int, reason: str, text: str, count: int = 1) -> Event:
    shown = text[:SHOWN_CHARACTERS]
    return {"row": "unread", "line": line, "reason": reason, "text": shown, "lines": count}


def _read_line(line: Line, reader: LineReader) -> Iterator[Event | Unread]:
    """What a line tells: nothing, an event, several, or why it is unread."""
    data = line.text
    text = data.lstrip(b"\0")
    if len(text) < len(data) and b"\0" not in text:  # a machine stopped while writing
        yield Unread("a hole of zero bytes", f"{len(data) - len(text):,} zero bytes")
        data = text
    if line.is_cut:
        yield Unread("longer than 65,536 bytes; only its beginning was read", _shown(data))
    if INTERESTING.search(data) is None:
        if _is_garbage(data):
            yield Unread("bytes that are not text", _shown(data))
        reader.pass_by(data)
        return
    try:
        message = data.decode("utf-8")
    except UnicodeDecodeError:
        yield Unread("bytes that are not UTF-8", _shown(data))
        return
    item = reader.read(message)
    if isinstance(item, Unread):
        yield Unread(item.reason, message)
    elif item is not None:
        detail = dict(item["detail"])  # type: ignore[call-overload]
        brokers = detail.pop("brokers", None)  # that a controller says died or came back at once
        replicas = [{"replica": int(broker)} for broker in brokers.split(",")] if brokers else [{}]
        yield from (item | replica | {"detail": detail} for replica in replicas)


_CONTROL = bytes(set(range(32)) - {9, 10, 12, 13, 27})


def _is_garbage(data: bytes) -> bool:
    """No broker wrote this: control characters, or bytes that are no UTF-8."""
    sample = data[:4096]
    is_printed = len(sample.translate(None, _CONTROL)) == len(sample)
    return not is_printed or "\ufffd" in sample.decode("utf-8", "replace")[:-1]


def _shown(data: bytes) -> str:
    """Bytes as text that can be printed, each strange one as \\xNN."""
    return data[:SHOWN_CHARACTERS].decode("utf-8", "backslashreplace").replace("\0", "\\x00")
