"""Reads a folder of real broker logs into the events table.

Theory of operation. Each file is read once (one_file.py). What can only be known when all are read
comes last, and here: zones, brokers that a line does not name, and which events two files tell.
Spark reads the same by its own words (data_sources.py).

A line that should be an event and is not appears in `unread`; so does the place where a file broke
off. A reason that occurs very often in one file keeps its first lines and one row that counts the
rest, so that a gigabyte of garbage is one row.

Several logs tell of one change: the leader asks (server.log), the controller stores it
(controller.log), other brokers learn it (state-change.log). All of them stay events, each with the
broker that says so in `broker` and, where that is not the leader itself, `detail.said_by`.

The files of a metadata log say together what happened: `metadata/files.py` reads those.

Files may overlap: what two files say of one broker in the same words at the same millisecond is one
event, that of the first file. What one file says twice is two.

A line that does not name its broker has it from its file, if all lines there name the same one,
else from its source (pod, host) in that file, else from its folder, likewise, else not at all.

Stamps without a zone are read as if they were UTC, and moved when all is read, by what the logs
themselves say: their container's stamps, or the time at which the process started.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from isrlab.events import schema as events_table
from isrlab.logs.reader.files import (
    LogDirError,
    PathName,
    Source,
    expanded,
    find,
    lines,
    stored,
)
from isrlab.logs.reader.layout import Layout
from isrlab.logs.reader.lines import OF_ITSELF
from isrlab.logs.reader.many_files import read_files
from isrlab.logs.reader.metadata import files as metadata_files
from isrlab.logs.reader.one_file import LogFile
from isrlab.logs.reader.packed import DamagedFileError, Unpacked
from isrlab.logs.reader.rows import OF_LINES, Rows
from isrlab.logs.reader.strays import without_strays
from isrlab.logs.reader.zones import Zones


def _schema(texts: str, numbers: str) -> pa.Schema:
    fields = [(name, pa.string()) for name in texts.split()]
    return pa.schema(fields + [(name, pa.int64()) for name in numbers.split()])


UNREAD = _schema("run file reason text", "line lines")
FILES = _schema(
    "run file status layout zone parts brokers", "bytes lines first_ms last_ms heads headless"
)


class BrokerLogs(NamedTuple):
    """What a folder of logs says, as tables.

    `events`: events.SCHEMA, in order of time. `unread`: run, file, line, reason, text, lines (how
    many lines the row stands for). `files`: run, file, bytes, lines, status (other than "read" if
    not all of it could be read), layout, zone (in which its stamps were read, and how that is
    known), first_ms and last_ms (of its lines with a time; null without one), heads and headless
    (how many of the lines of Kafka that were looked at had a head, and how many had none), parts
    (which of "server", "controller" and "state-change" have lines of INFO in it), brokers (whose).
    """

    events: pa.Table
    unread: pa.Table
    files: pa.Table


def read_local(
    log_dir: PathName, run: str | None = None, time_zone: str | None = None
) -> BrokerLogs:
    """The events of every broker log below `log_dir`, which may also be one file, or "-" for the
    standard input.

    `run` names them (default: the name of the folder). `time_zone` is the one the brokers print
    their local time in, such as "Europe/Berlin"; None: what the logs themselves say of it, else
    UTC. Raises LogDirError when there is nothing to read or the zone is unknown.
    """
    find("-", time_zone or "UTC")
    with stored(log_dir) as path, Unpacked() as unpacked:
        sources = [*expanded(find(path), unpacked)]
        return read_sources(sources, run or Path(path).resolve().name, time_zone)


def quoted(log_dir: PathName, wanted: Mapping[str, Collection[int]]) -> dict[tuple[str, int], str]:
    """Lines as they stand, by file and number, read again; none of what cannot be read again."""
    texts: dict[tuple[str, int], str] = {}
    with suppress(OSError, DamagedFileError, LogDirError), Unpacked() as unpacked:
        for source in expanded(find(log_dir), unpacked):
            numbers = wanted.get(source.name, ())
            with suppress(OSError, DamagedFileError):
                for line in islice(lines(source.path), max(numbers, default=0)):
                    if line.number in numbers:
                        text = line.text.decode("utf-8", "replace").strip()
                        texts[source.name, line.number] = text
    return texts


def read_sources(
    sources: list[Source], run: str, time_zone: str | None, layout: Layout | None = None
) -> BrokerLogs:
    """The tables of files that were found; `layout` is asked before any that is detected."""
    metadata = metadata_files.of(sources)
    names = {source.name for source in metadata}
    places = [(n, s) for n, s in enumerate(sources) if not s.skipped and s.name not in names]
    return joined(sources, read_files(places, time_zone, layout), metadata, run, time_zone)


def joined(
    sources: list[Source],
    logs: list[LogFile],
    metadata: list[metadata_files.MetadataSource],
    run: str,
    time_zone: str | None,
) -> BrokerLogs:
    """What the files say together: logs that were read, and those of metadata logs."""
    raw: dict[str, list[dict]] = {"event": [], "unread": [], "file": []}
    for row in metadata_files.rows(metadata, run):
        raw[str(row["row"])].append(row)
    zones = Zones({log.source.name: log.zones for log in logs}, time_zone)
    unread = raw["unread"] + [row for log in logs for row in log.unread_rows()]
    in_folder: dict[str, set[int]] = defaultdict(set)
    for log in logs:
        in_folder[log.folder] |= log.brokers[""]
    rows = [log.row(zones, in_folder[log.folder]) for log in logs]
    rows += [{**row, "status": row["reason"], "zone": "UTC"} for row in raw["file"]]
    rows += [{"file": s.name, "bytes": s.size_bytes, "lines": 0, "status": s.skipped}
             for s in sources if s.skipped]  # fmt: skip
    unread.sort(key=lambda row: (row["file"], row["line"], row["reason"]))
    rows.sort(key=lambda row: str(row["file"]))
    tables = [log.table(run, zones, in_folder[log.folder]) for log in logs]
    events = _events([*tables, _of_metadata(raw["event"], [s.name for s in sources])])
    unread_table, files = (
        pa.Table.from_pylist([{"run": run, **row} for row in of_one], schema=schema)
        for of_one, schema in ((unread, UNREAD), (rows, FILES))
    )
    return BrokerLogs(*without_strays(events, unread_table, files))


def _of_metadata(events: list[dict], files: list[str]) -> pa.Table:
    """The events of metadata logs, in the columns of `LogFile.table`. Several controllers hold one
    record."""
    rows, orders = Rows(OF_LINES), {file: order for order, file in enumerate(files)}
    for event in events:
        detail = {"file": event["file"], "line": str(event["line"]), **event["detail"]}
        row = event | {"same": hash(event["same"]), "order": orders[event["file"]]}
        if event["kind"] in OF_ITSELF:
            row.setdefault("replica", event["broker"])
        rows.add(row | {"detail": detail, "folder": "metadata"})
    rows.pack()
    return rows.table


def _events(tables: list[pa.Table]) -> pa.Table:
    """Each event once, in order of time, file and line."""
    table = pa.concat_tables(tables)
    keys = [(name, "ascending") for name in ("ts_ms", "order", "line")]
    order = pc.sort_indices(table, sort_keys=keys)
    told = table.select(["ts_ms", "same", "broker"]).take(order)
    folder = pc.if_else(pc.is_null(table["broker"]), table["folder"], "").take(order)
    told = told.append_column("folder", folder)
    groups = told.append_column("place", pa.array(range(len(order)), pa.int64())).group_by(
        told.column_names, use_threads=False
    )
    first = groups.aggregate([("place", "min")])["place_min"].sort()
    whole = table.select(events_table.COLUMNS).take(order.take(first))
    return whole.cast(events_table.SCHEMA).combine_chunks()
