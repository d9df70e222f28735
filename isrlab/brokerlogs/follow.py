"""What the logs of a folder say while they grow: only what was appended is read.

Theory of operation. A file is known again by its inode and how it begins, so one that was renamed
goes on where it was, and one that was emptied, or has a name or an inode that another had, is new.
Archives are read again when they change; what they repeat is one event with what they repeat. All
is kept in memory, also what was in files that are gone. Metadata logs are small, and read anew.

Left out: a truncation stays although a line that comes later may say that it had no effect.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from isrlab.brokerlogs.files import UTF_16, LogDirError, PathName, Source, find, kind_of
from isrlab.brokerlogs.layout import Layout
from isrlab.brokerlogs.lines import LineReader
from isrlab.brokerlogs.metadata import files as metadata_files
from isrlab.brokerlogs.one_file import LogFile
from isrlab.brokerlogs.read import BrokerLogs, joined

HEAD_BYTES = 1024


class _Grown:
    """A file as it was read last."""

    def __init__(self, log: LogFile, head: bytes) -> None:
        self.log, self.head, self.size_bytes = log, head, 0


def follow(
    log_dir: PathName, run: str | None = None, time_zone: str | None = None
) -> Iterator[BrokerLogs | None]:
    """What the logs of a folder say as often as it is asked for; None if they say nothing new.

    Raises LogDirError if the folder does not exist, or the zone is unknown.
    """
    run = run or Path(log_dir).resolve().name
    known: dict[tuple[int, int], _Grown] = {}
    gone: list[LogFile] = []
    sizes: list[tuple[str, int]] = []  # of the files of metadata logs
    while True:
        sources = _found(log_dir, time_zone)
        metadata = metadata_files.of(sources)
        names = [source.name for source in metadata]
        logs = [s for s in sources if not s.skipped and s.name not in names]
        counts = [_read(source, known, gone, time_zone) for source in logs]
        before, sizes = sizes, [(s.name, os.path.getsize(s.path)) for s in metadata]
        is_new = any(counts) or sizes != before
        read = [*gone, *(grown.log for grown in known.values())]
        yield joined(sources, read, metadata, run, time_zone) if is_new else None


def _found(log_dir: PathName, time_zone: str | None) -> list[Source]:
    try:
        return find(log_dir, time_zone or "UTC")
    except LogDirError:
        if not Path(log_dir).is_dir():
            raise
        find("-", time_zone or "UTC")
        return []  # it has no logs yet


def _read(
    source: Source,
    known: dict[tuple[int, int], _Grown],
    gone: list[LogFile],
    time_zone: str | None,
) -> bool:
    """Read what is new of a file; False if there is nothing."""
    try:
        with open(source.path, "rb") as file:
            head, stat = file.read(HEAD_BYTES), os.fstat(file.fileno())
    except FileNotFoundError:  # it is being renamed
        return False
    place, grows = (stat.st_dev, stat.st_ino), not kind_of(head) and head[:2] not in UTF_16
    grown = known.get(place)
    is_same = grown and head.startswith(grown.head) and stat.st_size >= grown.size_bytes
    if grown and is_same and stat.st_size == grown.size_bytes:
        grown.log.source = source
        return False
    if grown and not is_same:
        grown.log.source = grown.log.source._replace(name=f"{grown.log.source.name} #{len(gone)}")
        gone.append(grown.log)
    if grown is None or not is_same or not grows:
        layout = next((each.log.reader.layout for each in known.values()), Layout())
        order = len(gone) + len(known)
        known[place] = grown = _Grown(LogFile(source, order, LineReader(time_zone, layout)), head)
    grown.log.source, grown.head, grown.size_bytes = source, head, stat.st_size
    grown.log.read(grows=grows)
    return True
