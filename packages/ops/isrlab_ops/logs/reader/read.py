"""Reads a folder of real broker logs into rows of events.

Theory of operation. Each file is read once (one_file.py). Facts that need all files come last,
here: zones, brokers that a line does not name, and events that two files report. Spark reads the
same rows through data_sources.py.

A line that should be an event but cannot be read appears in `unread`; so does the place where a
file broke off. For a frequent reason, a file keeps the first lines and one row that counts the
rest, so that a gigabyte of garbage is one row.

Several logs report one change: the leader asks (server.log), the controller stores it
(controller.log), other brokers learn it (state-change.log). All of them stay events, each with the
broker that logs it in `broker` and, if a controller reports it, `detail.said_by`.

The files of a metadata log are read together, by `metadata/files.py`.

Files may overlap: the same text of one broker in the same millisecond in two files is one event,
that of the first file. Repetitions within one file are separate events.

A line that does not name its broker takes it from its file, if all lines there name the same one,
else from its source (pod, host) in that file, else from its folder, else it has none.

Unless a zone is given, stamps without one are read as UTC, and corrected in the end by evidence in
the logs: the container's stamps, or the time at which the process started.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from isrlab.events.statements import Statement, statement, table_of
from isrlab_ops.logs.reader.files import PathName, Source, expanded, find, stored
from isrlab_ops.logs.reader.layout import STOCK, Layout
from isrlab_ops.logs.reader.lines import OF_ITSELF, OPERATOR, LineReader
from isrlab_ops.logs.reader.metadata import files as metadata_files
from isrlab_ops.logs.reader.one_file import LogFile
from isrlab_ops.logs.reader.packed import UnpackedFiles
from isrlab_ops.logs.reader.strays import without_strays
from isrlab_ops.logs.reader.truncations import ReadRow
from isrlab_ops.logs.reader.zones import Zones

if TYPE_CHECKING:
    import pyarrow as pa


UNREAD = ("run", "file", "reason", "text", "line", "lines")
FILES = (
    "run", "file", "status", "layout", "zone", "parts", "brokers", "bytes", "lines", "first_ms",
    "last_ms", "heads", "headless",
)  # fmt: skip
_NUMBERS = ("bytes", "line", "lines", "first_ms", "last_ms", "heads", "headless")
OnRead: TypeAlias = Callable[[int], None]


@dataclass(frozen=True)
class BrokerLogs:
    """The contents of a folder of logs.

    `rows`: its events, in order of time. `unread_rows`: run, file, line, reason, text, lines (how
    many lines the row stands for). `file_rows`: run, file, bytes, lines, status (other than "read"
    if not all of it could be read), layout, zone (in which its stamps were read, and how that is
    known), first_ms and last_ms (of its lines with a time; None without one), heads and headless
    (how many of the lines of Kafka that were looked at had a head, and how many had none), parts
    (which of "server", "controller" and "state-change" have lines of INFO in it), brokers (whose
    lines). `events` (of events.SCHEMA), `unread` and `files` are these three as tables.

    `warnings`: time, file, number and text of lines of WARN and above among the last of each file.
    `operator`: what Strimzi's operator logged, which proves nothing about the brokers' logs.
    """

    rows: list[Statement]
    unread_rows: list[dict[str, Any]]
    file_rows: list[dict[str, Any]]
    warnings: list[tuple[int, str, int, str]] = field(default_factory=list)
    operator: list[Statement] = field(default_factory=list)

    @cached_property
    def events(self) -> pa.Table:
        return table_of(self.rows)

    @cached_property
    def unread(self) -> pa.Table:
        return _table(self.unread_rows, UNREAD)

    @cached_property
    def files(self) -> pa.Table:
        return _table(self.file_rows, FILES)


def schema_of(names: Iterable[str]) -> pa.Schema:
    import pyarrow as pa  # not available in a browser

    return pa.schema([(n, pa.int64() if n in _NUMBERS else pa.string()) for n in names])


def _table(rows: list[dict[str, Any]], names: Iterable[str]) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pylist(rows, schema=schema_of(names))


def read_local(
    log_dir: PathName,
    run: str | None = None,
    time_zone: str | None = None,
    step: OnRead = lambda size: None,
) -> BrokerLogs:
    """The events of every broker log below `log_dir`, which may also be one file, or "-" for the
    standard input.

    `run` names them (default: the name of the folder). `time_zone` is that of the brokers'
    timestamps, such as "Europe/Berlin"; None: found by the evidence in the logs, else UTC.
    Raises LogDirError if there is nothing to read or the zone is unknown.
    """
    find("-", time_zone or "UTC")
    with stored(log_dir) as path, UnpackedFiles() as unpacked:
        sources = [*expanded(find(path), unpacked)]
        return read_sources(sources, run or Path(path).resolve().name, time_zone, step=step)


def read_sources(
    sources: list[Source],
    run: str,
    time_zone: str | None,
    layout: Layout | None = None,
    step: OnRead = lambda size: None,
) -> BrokerLogs:
    """The contents of these files; `layout` is tried before any is detected, `step` gets the number
    of bytes read."""
    metadata = metadata_files.metadata_sources(sources)
    names = {source.name for source in metadata}
    logs = [
        LogFile(source, order, LineReader(time_zone, layout or STOCK, layout))
        for order, source in enumerate(sources)
        if not source.skipped and source.name not in names
    ]
    for log in logs:
        log.read(step)
    return joined(sources, logs, metadata, run, time_zone)


def joined(
    sources: list[Source],
    logs: list[LogFile],
    metadata: list[metadata_files.MetadataSource],
    run: str,
    time_zone: str | None,
) -> BrokerLogs:
    """The combined contents of log files and metadata logs."""
    raw: dict[str, list[dict]] = {"event": [], "unread": [], "file": []}
    for row in metadata_files.rows(metadata, run):
        raw[str(row["row"])].append(row)
    zones = Zones({log.source.name: log.zones for log in logs}, time_zone)
    unread = raw["unread"] + [row for log in logs for row in log.unread_rows()]
    in_folder: dict[str, set[int]] = defaultdict(set)
    for log in logs:
        in_folder[log.folder] |= log.brokers[""]
    files = [log.file_row(zones, in_folder[log.folder]) for log in logs]
    files += [{**row, "status": row["reason"], "zone": "UTC"} for row in raw["file"]]
    files += [{"file": s.name, "bytes": s.size_bytes, "lines": 0, "status": s.skipped}
              for s in sources if s.skipped]  # fmt: skip
    unread.sort(key=lambda row: (row["file"], row["line"], row["reason"]))
    files.sort(key=lambda row: str(row["file"]))
    placed = [
        (each, log.order, log.folder)
        for log in logs
        for each in log.told(run, zones, in_folder[log.folder])
    ]
    placed += _of_metadata(raw["event"], [s.name for s in sources])
    files = [dict.fromkeys(FILES) | {"run": run} | row for row in files]
    every = _once(placed)
    operator = [row for row in every if row.said_by == OPERATOR]
    rows, strays = without_strays([row for row in every if row.said_by != OPERATOR], files)
    unread = [{"run": run, "text": None} | row for row in (*unread, *strays)]
    warnings = sorted(each for log in logs for each in log.warnings(zones))
    return BrokerLogs(rows, unread, files, warnings, operator)


def _of_metadata(events: list[dict], files: list[str]) -> Iterator[tuple[ReadRow, int, str]]:
    """The events of metadata logs, once each although several controllers have them."""
    orders = {file: order for order, file in enumerate(files)}
    for event in events:
        detail = {"file": event["file"], "line": str(event["line"]), **event["detail"]}
        if event["kind"] in OF_ITSELF:
            event.setdefault("replica", event["broker"])
        row = statement(**event | {"detail": detail})
        yield ReadRow(row, hash(event["same"]), "", False), orders[event["file"]], "metadata"


def _once(placed: list[tuple[ReadRow, int, str]]) -> list[Statement]:
    """Each row once, in order of time, file and line."""
    placed.sort(key=lambda each: (each[0].row.ts_ms, each[1], each[0].row.line))
    rows: list[Statement] = []
    now, known = None, set[tuple]()  # within one moment
    for (row, same, *_), _, folder in placed:
        if row.ts_ms != now:
            now, known = row.ts_ms, set()
        key = same, row.broker, folder if row.broker is None else ""
        if key not in known:
            known.add(key)
            rows.append(row)
    return rows
