"""Lines appended to the files of a folder, each once, however the files are renamed.

Theory of operation. A position has, for each file, how many bytes of it count, up to the end of a
line, and the CRC of its beginning. So a file is recognised by its content: one that was renamed,
compressed, or copied and truncated continues where it was, under its new name. A file that begins
like another and is not longer is a copy, and is not read.

`follow` keeps everything it has read in memory, including files that are gone, and continues each
file. Metadata logs are small, and are read again.

A stream has only positions. To get the rows between two of them, the files are read from the
beginning up to the second one, because a line depends on those before it; the rows up to the first
one are then dropped. So two positions always give the same rows. If a file was renamed in the
meantime, everything is read again. Archives count as their contents. Of a metadata log, whose
records depend on each other, all files are read, and the place of a row is its offset.

Left out: corrections by later lines. A truncation stays even if a later line revokes it. In a
stream local times are UTC unless a zone is given, and a line that names no broker takes it from the
earlier lines of its file.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO, NamedTuple, TypeAlias
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from isrlab_ops.logs.reader.files import (
    MAX_LINE_BYTES,
    UTF_16,
    DamagedFileError,
    LogDirError,
    PathName,
    Source,
    chunks,
    find,
    kind_of,
    whole_end,
)
from isrlab_ops.logs.reader.layout import STOCK
from isrlab_ops.logs.reader.lines import LineReader
from isrlab_ops.logs.reader.metadata import files as metadata_files
from isrlab_ops.logs.reader.one_file import LogFile
from isrlab_ops.logs.reader.read import BrokerLogs, joined

HEAD_BYTES = 16 * 1024  # by which a file is recognised
STEP_BYTES = 4 * MAX_LINE_BYTES
MOST_ATTEMPTS = 20
TableReader: TypeAlias = Callable[[list[Source]], pa.Table]
Files: TypeAlias = "Callable[[], list[GrowingFile]]"
Position: TypeAlias = "dict[str, list[int]]"  # by name: bytes, and the CRC of the first HEAD_BYTES


class GrowingFile(NamedTuple):
    """A file, how many of its bytes count, and its beginning (at most HEAD_BYTES of them)."""

    source: Source
    size_bytes: int
    head: bytes
    metadata: metadata_files.MetadataSource | None  # if it belongs to a metadata log

    def has(self, size_bytes: int, crc: int) -> bool:
        """Whether the file begins with the bytes that a position recorded."""
        return self.size_bytes >= size_bytes and crc32(self.head[:size_bytes]) == crc


class Addition(NamedTuple):
    """The new bytes of a file between two positions; `name` is its name at the second one."""

    path: str
    name: str
    start: int
    end: int
    crc: int


def growing_files(folder: PathName) -> list[GrowingFile]:
    """The files of a folder that has, or will have, logs.

    Raises LogDirError if it does not exist, or its files are renamed too fast.
    """
    for _ in range(MOST_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):
            before = _inodes(folder)
            files = [
                _growing_file(s, 0 if s.skipped else os.stat(s.path).st_mtime_ns)
                for s in _found(folder)
            ]
            if _inodes(folder) == before:  # so that a renamed file is not missed
                return files
    raise LogDirError(f"log_dir {str(folder)!r}: its files are renamed faster than they are listed")


def _inodes(folder: PathName) -> set[tuple[Path, int]]:
    return {(path, path.lstat().st_ino) for path in Path(folder).rglob("*")}


def _found(folder: PathName) -> list[Source]:
    try:
        return find(folder)
    except LogDirError:
        if not Path(folder).exists():
            raise
        return []


@lru_cache(maxsize=2_000)  # each with a head
def _growing_file(source: Source, _: int) -> GrowingFile:
    if source.skipped:
        return GrowingFile(source, 0, b"", None)
    metadata = metadata_files.recognise(source.path, source.name)
    with open(source.path, "rb") as file:
        head = file.read(HEAD_BYTES)
        if kind_of(head) or head[:2] in UTF_16:
            end, head = _unpacked(source.path, is_done=kind_of(head) is not None)
        else:
            end = source.size_bytes if metadata else _last_end(file, source.size_bytes)
    return GrowingFile(source, end, head[:end], metadata)


def _last_end(file: IO[bytes], end: int) -> int:
    """The end of the last whole line."""
    while end:
        start = max(0, end - STEP_BYTES)
        file.seek(start)
        if length := whole_end(file.read(end - start)):
            return start + length
        end = start
    return 0


def _unpacked(path: str, *, is_done: bool) -> tuple[int, bytes]:
    """The end of an archive's contents, or of a file as UTF-8, and its head; `is_done`: its last
    line is complete."""
    size, end, head = 0, 0, b""
    with contextlib.suppress(DamagedFileError):  # the contents before the damage count
        for chunk in chunks(path):
            end = size + length if (length := whole_end(chunk)) else end
            size += len(chunk)
            head += chunk[: HEAD_BYTES - len(head)]
    return size if is_done else end, head


def position(files: Iterable[GrowingFile]) -> Position:
    """The current ends of the files, without copies."""
    return {f.source.name: [f.size_bytes, crc32(f.head)] for f in _without_copies(files)}


def _without_copies(files: Iterable[GrowingFile]) -> list[GrowingFile]:
    kept: list[GrowingFile] = []
    for file in sorted(files, key=lambda file: (-file.size_bytes, file.source.name)):
        if file.size_bytes and not any(longer.head.startswith(file.head) for longer in kept):
            kept.append(file)
    return kept


def _known(where: Position, name: str, files: list[GrowingFile]) -> GrowingFile | None:
    """The file that a position refers to, whatever its name is now."""
    fitting = [file for file in files if file.has(*where[name])]
    return min(fitting, key=lambda f: (f.source.name != name, f.source.name), default=None)


def follow(
    log_dir: PathName, run: str | None = None, time_zone: str | None = None
) -> Iterator[BrokerLogs | None]:
    """Yields the logs of a folder as they are at that moment, or None if nothing is new.

    Raises LogDirError if the folder does not exist, or the zone is unknown.
    """
    find("-", time_zone or "UTC")
    run = run or Path(log_dir).resolve().name
    before: Position = {}
    logs: dict[str, LogFile] = {}
    gone: list[LogFile] = []
    while True:
        files = growing_files(log_dir)
        now = position(files)
        if now == before:
            yield None
            continue
        kept = _without_copies(file for file in files if not file.metadata)
        read_before, logs = logs, {}
        for name, log in read_before.items():
            if file := _known(before, name, kept):
                logs[file.source.name] = log
            else:
                log.source = log.source._replace(name=f"{name} #{log.order}")
                gone.append(log)
        for file in sorted(kept, key=lambda file: file.source.name):
            order = len(gone) + len(logs)
            new = LogFile(file.source, order, LineReader(time_zone, STOCK))
            log = logs.setdefault(file.source.name, new)
            log.source = file.source._replace(end=file.size_bytes)
            if log.end < file.size_bytes and _begins(log.source, crc32(file.head)):
                log.read()
        before = now
        metadata = [file.metadata for file in files if file.metadata]
        sources = [file.source for file in files]
        yield joined(sources, [*gone, *logs.values()], metadata, run, time_zone)


def additions(start: Position, end: Position, files: list[GrowingFile]) -> Iterator[Addition]:
    """The new bytes of each file. Raises LogDirError if a file with new bytes is gone."""
    known = {name: _known(start, name, files) for name in start}
    begun = {file.source: start[name][0] for name, file in known.items() if file}
    for name, (size, crc) in end.items():
        file = _known(end, name, files)
        if file:
            new_from = min(size, begun.get(file.source, 0))
            yield Addition(file.source.path, name, new_from, size, crc)
        elif start.get(name) != [size, crc]:
            raise LogDirError(
                f"{name!r} is gone or was changed, and {size:,} bytes of it are unread; "
                "restore it, or start over with another checkpoint"
            )


def new_events(new: list[Addition], files: Files, read: TableReader) -> pa.Table:
    """The events of the lines that were added.

    `read` gives the events of files, and `files` the current files, in case one was just renamed.
    Raises LogDirError if a file no longer exists, or was changed.
    """
    sources = [Source(added.path, added.name, added.end, None, added.end) for added in new]
    for _ in range(MOST_ATTEMPTS):
        events = _new_events(new, sources, read)
        if all(_begins(source, added.crc) for source, added in zip(sources, new, strict=True)):
            return events
        for n, added in enumerate(new):
            known = _known({added.name: [added.end, added.crc]}, added.name, files())
            if known is None:
                raise LogDirError(f"{added.name!r} was changed or removed while it was read")
            sources[n] = sources[n]._replace(path=known.source.path)
    raise LogDirError(f"{', '.join(a.name for a in new)}: renamed faster than they are read")


def _new_events(new: list[Addition], sources: list[Source], read: TableReader) -> pa.Table:
    begun = [source._replace(end=added.start) for source, added in zip(sources, new, strict=True)]
    events = read(sources)
    if metadata_files.metadata_sources(sources):
        before = read([source for source in begun if source.end])
        last = pc.max(_said(before, "line").cast(pa.int64())).as_py()
        after = [-1 if last is None else last for _ in new]
    else:
        after = [sum(chunk.count(b"\n") for chunk in _contents(source)) for source in begun]
    index = pc.index_in(_said(events, "file"), pa.array([a.name for a in new], pa.string()))
    known = pa.array(after, pa.int64()).take(index)
    return events.filter(pc.greater(_said(events, "line").cast(pa.int64()), known))


def _begins(source: Source, crc: int) -> bool:
    """Whether the file still exists and was not renamed since it was listed."""
    size = min(source.end or 0, HEAD_BYTES)
    return crc32(b"".join(_contents(source._replace(end=size)))) == crc


def _contents(source: Source) -> Iterator[bytes]:
    """The contents up to any damage; nothing if the file is gone."""
    with contextlib.suppress(DamagedFileError, FileNotFoundError):
        yield from chunks(source.path, end=source.end)


def _said(events: pa.Table, key: str) -> pa.ChunkedArray:
    return pc.map_lookup(events["detail"], pa.scalar(key), "first")
