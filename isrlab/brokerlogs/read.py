"""Reads a folder of real broker logs into the events table.

Theory of operation. Each file is read once, as a stream: events, unread lines and a row for the
file itself come out of the same pass. `read` hands the same tables to Spark.

A line that should be an event and is not appears in `unread`; so does the place where a file broke
off. A reason that occurs very often in one file keeps its first lines and one row that counts the
rest, so that a gigabyte of garbage is one row.

Several logs tell of one change: the leader asks (server.log), the controller stores it
(controller.log), other brokers learn it (state-change.log). All of them stay events, each with the
broker that says so in `broker` and, where that is not the leader itself, `detail.said_by`.
`churn.isr_history` makes one history of them.

The files of a metadata log say together what happened: `metadata_files.py` reads those.

Files may overlap: what two files say of one broker in the same words at the same millisecond is one
event, that of the first file. What one file says twice is two.

A line that does not name its broker has it from its file, if all lines there name the same one,
else from its folder, likewise, else not at all.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from isrlab.brokerlogs import metadata_files
from isrlab.brokerlogs.files import DamagedFileError, Line, PathName, find, lines
from isrlab.brokerlogs.lines import INTERESTING, OF_ITSELF, Event, LineReader, Unread, expanded
from isrlab.events import schema as events_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNREAD_KEPT = 200  # rows per file and reason that are kept one by one
SHOWN_CHARACTERS = 300  # of an unread line


def _schema(texts: str, numbers: str) -> pa.Schema:
    fields = [(name, pa.string()) for name in texts.split()]
    return pa.schema(fields + [(name, pa.int64()) for name in numbers.split()])


UNREAD = _schema("run file reason text", "line lines")
FILES = _schema("run file status layout zone", "bytes lines first_ms last_ms heads headless")


class BrokerLogs(NamedTuple):
    """What a folder of logs says: pyarrow tables, or Spark's DataFrames with the same columns.

    `events`: events.SCHEMA, in order of time. `unread`: run, file, line, reason, text, lines (how
    many lines the row stands for). `files`: run, file, bytes, lines, status, layout, zone (in which
    its stamps were read, and how that is known), first_ms and last_ms (of its lines with a time;
    null without one), heads and headless (how many of the lines that were looked at had a time).
    """

    events: Any
    unread: Any
    files: Any


def read(
    spark: SparkSession, log_dir: PathName, run: str | None = None, time_zone: str | None = None
) -> BrokerLogs:
    """`read_local` as DataFrames."""
    from pyspark.sql.pandas.types import from_arrow_schema

    tables = read_local(log_dir, run, time_zone)
    return BrokerLogs(*(spark.createDataFrame(t, from_arrow_schema(t.schema)) for t in tables))


def read_local(
    log_dir: PathName, run: str | None = None, time_zone: str | None = None
) -> BrokerLogs:
    """The events of every broker log below `log_dir`, which may also be one file.

    `run` names them (default: the name of the folder). `time_zone` is the one the brokers print
    their local time in, such as "Europe/Berlin"; None: what the logs themselves say of it, else
    UTC. Raises LogDirError when there is nothing to read or the zone is unknown.
    """
    sources, run = find(log_dir, time_zone or "UTC"), run or Path(log_dir).resolve().name
    raw: dict[str, list[dict]] = {"event": [], "unread": [], "file": []}
    readable = [source for source in sources if not source.skipped]
    metadata = [m for s in readable if (m := metadata_files.recognise(s.path, s.name))]
    for row in metadata_files.rows(metadata, run):
        raw[str(row["row"])].append(row)
    of_metadata = {source.name for source in metadata}
    for source in sources:
        if source.name in of_metadata:
            continue
        if source.skipped:
            row = {"reason": f"skipped: {source.skipped}", "bytes": source.size_bytes, "lines": 0}
            raw["file"].append({"run": run, "file": source.name, **row})
            continue
        for row in _file_rows(source.path, source.name, run, time_zone or "UTC"):
            raw[str(row["row"])].append(row)
    raw["unread"].sort(key=lambda row: (row["file"], row["line"], row["reason"]))
    for row in raw["file"]:
        zone = "UTC" if row["file"] in of_metadata else time_zone or "UTC (assumed)"
        row |= {"status": row["reason"], "zone": zone}
    return BrokerLogs(
        pa.Table.from_pylist(_events(raw["event"]), schema=events_table.SCHEMA),
        pa.Table.from_pylist(raw["unread"], schema=UNREAD),
        pa.Table.from_pylist(raw["file"], schema=FILES),
    )


def _events(rows: list[dict]) -> list[dict]:
    """Each event once, with its broker, in order of time, file and line."""
    brokers: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        for place in (row["file"], os.path.dirname(row["file"])):
            brokers[place] |= {row["broker"]} if row.get("broker") is not None else set()
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
        first.setdefault((row["same"], row["broker"], row.get("place", place)), row)
    return [{name: row.get(name) for name in events_table.COLUMNS} for row in first.values()]


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
    own = {"layout": "stock", **reader.seen()}
    yield base | own | {"row": "file", "lines": number, "bytes": size, "reason": status}


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
        yield from expanded(item)


_CONTROL = bytes(set(range(32)) - {9, 10, 12, 13, 27})


def _is_garbage(data: bytes) -> bool:
    """No broker wrote this: control characters, or bytes that are no UTF-8."""
    sample = data[:4096]
    is_printed = len(sample.translate(None, _CONTROL)) == len(sample)
    return not is_printed or "\ufffd" in sample.decode("utf-8", "replace")[:-1]


def _shown(data: bytes) -> str:
    """Bytes as text that can be printed, each strange one as \\xNN."""
    return data[:SHOWN_CHARACTERS].decode("utf-8", "backslashreplace").replace("\0", "\\x00")
