"""What was appended to the files of a folder, each line once, however files are renamed meanwhile.

Theory of operation. A position says of each file how many bytes of it count, up to the end of a
line, and the CRC of how it begins. So a file is known again by what it holds: one that was renamed,
compressed, or copied and truncated goes on where it was, under its new name. A file that begins
like another and is no longer is its copy, and is not read.

What lies between two positions is read from copies of the files as far as the second one says. A
copy is read from its beginning, for a line is understood by what stands before it; the lines of the
first position are then left out. So two positions always give the same rows, whenever they are
asked for. Archives count as what they hold. Of a metadata log, whose records are understood only
together, all files are read, and the place of a row is its offset.

Left out: what only a later line tells. Local times are UTC unless a zone is given, a line that
names no broker has it from the lines of its file so far, and a truncation stays though a later line
may take it back.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO, NamedTuple, TypeAlias
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from isrlab.brokerlogs.files import (
    READ_BYTES,
    UTF_16,
    DamagedFileError,
    LogDirError,
    PathName,
    Source,
    chunks,
    find,
    kind_of,
)
from isrlab.brokerlogs.metadata.files import recognise

HEAD_BYTES = 16 * 1024  # by which a file is known again
STEP_BYTES = 64 * 1024
MOST_ATTEMPTS = 20
Reader: TypeAlias = Callable[[list[Source]], pa.Table]
Files: TypeAlias = "Callable[[], list[GrowingFile]]"
Position: TypeAlias = "dict[str, list[int]]"  # by name: bytes, and the CRC of the first HEAD_BYTES


class GrowingFile(NamedTuple):
    """A file of which so many bytes count, and how it begins (at most HEAD_BYTES of those)."""

    path: str
    name: str
    size_bytes: int
    head: bytes
    is_metadata: bool

    def has(self, size_bytes: int, crc: int) -> bool:
        """It begins with what a position says."""
        return self.size_bytes >= size_bytes and crc32(self.head[:size_bytes]) == crc


class Addition(NamedTuple):
    """What is new of a file between two positions, in bytes; `name` is that of the second one."""

    path: str
    name: str
    start: int
    end: int
    crc: int


def growing_files(folder: PathName, *, of_metadata: bool) -> list[GrowingFile]:
    """The files of a folder that has logs, or will have some; those of metadata logs, or others.

    Raises LogDirError if it does not exist.
    """
    for _ in range(MOST_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):
            before = _inodes(folder)
            files = [_growing_file(path, name, *stat) for path, name, *stat in _found(folder)]
            if _inodes(folder) == before:  # a file that is renamed meanwhile is not overlooked
                return [f for f in files if f.size_bytes and f.is_metadata == of_metadata]
    raise LogDirError(f"log_dir {str(folder)!r}: its files are renamed faster than they are listed")


def _inodes(folder: PathName) -> set[tuple[Path, int]]:
    return {(path, path.lstat().st_ino) for path in Path(folder).rglob("*")}


def _found(folder: PathName) -> Iterator[tuple[str, str, int, int]]:
    try:
        sources = find(folder)
    except LogDirError:
        if not Path(folder).exists():
            raise
        return
    for source in sources:
        if not source.skipped:
            stat = os.stat(source.path)
            yield source.path, source.name, stat.st_size, stat.st_mtime_ns


@lru_cache(maxsize=10_000)
def _growing_file(path: str, name: str, size: int, _: int) -> GrowingFile:
    is_metadata = recognise(path, name) is not None
    with open(path, "rb") as file:
        head = file.read(HEAD_BYTES)
        if kind_of(head) or head[:2] in UTF_16:
            end, head = _unpacked(path, is_done=kind_of(head) is not None)
        else:
            end = size if is_metadata else _last_end(file, size)
    return GrowingFile(path, name, end, head[:end], is_metadata)


def _last_end(file: IO[bytes], end: int) -> int:
    """Where the last whole line ends."""
    while end:
        start = max(0, end - STEP_BYTES)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _unpacked(path: str, *, is_done: bool) -> tuple[int, bytes]:
    """The end of what an archive holds, or a file as UTF-8, and its head; `is_done`: its last line
    is whole."""
    size, end, head = 0, 0, b""
    with contextlib.suppress(DamagedFileError):  # what precedes the damage counts
        for chunk in chunks(path):
            found = chunk.rfind(b"\n")
            end = size + found + 1 if found >= 0 else end
            size += len(chunk)
            head += chunk[: HEAD_BYTES - len(head)]
    return size if is_done else end, head


def position(files: Iterable[GrowingFile]) -> Position:
    """Where the files end now, without copies of others."""
    kept: list[GrowingFile] = []
    for file in sorted(files, key=lambda file: (-file.size_bytes, file.name)):
        if not any(longer.head.startswith(file.head) for longer in kept):
            kept.append(file)
    return {file.name: [file.size_bytes, crc32(file.head)] for file in kept}


def additions(start: Position, end: Position, files: list[GrowingFile]) -> Iterator[Addition]:
    """Each file, and what is new of it. Raises LogDirError if that is no longer there."""
    begun = {file.path: start[name][0] for name in start if (file := _known(start, name, files))}
    for name, (size, crc) in end.items():
        file = _known(end, name, files)
        if file:
            yield Addition(file.path, name, min(size, begun.get(file.path, 0)), size, crc)
        elif start.get(name) != [size, crc]:
            raise LogDirError(
                f"{name!r} is gone or was changed, and {size:,} bytes of it are still to be read; "
                "bring it back, or begin anew with another checkpoint"
            )


def _known(where: Position, name: str, files: list[GrowingFile]) -> GrowingFile | None:
    """The file that a position means, whatever it is called now."""
    fitting = [file for file in files if file.has(*where[name])]
    return min(fitting, key=lambda file: (file.name != name, file.name), default=None)


def new_events(new: list[Addition], files: Files, read: Reader) -> pa.Table:
    """The events of the lines that were added.

    `read` gives the events of files, `files` those that there are, if one was renamed just now.
    """
    with tempfile.TemporaryDirectory(prefix="isrlab-growing-") as folder:
        sources = [_copy(a, a.end, folder, files) for a in new]
        if any(recognise(source.path, source.name) for source in sources):
            before = read([_copy(a, a.start, folder, files) for a in new if a.start])
            last = pc.max(_said(before, "line").cast(pa.int64())).as_py()
            after = [-1 if last is None else last for _ in new]
        else:
            after = [_lines(s.path, a.start) for a, s in zip(new, sources, strict=True)]
        events = read(sources)
    index = pc.index_in(_said(events, "file"), pa.array([a.name for a in new], pa.string()))
    known = pa.array(after, pa.int64()).take(index)
    return events.filter(pc.greater(_said(events, "line").cast(pa.int64()), known))


def _said(events: pa.Table, key: str) -> pa.ChunkedArray:
    return pc.map_lookup(events["detail"], pa.scalar(key), "first")


def _paths(added: Addition, files: Files) -> Iterator[str]:
    yield added.path
    yield from (file.path for file in files() if file.has(added.end, added.crc))


def _copy(added: Addition, size: int, folder: str, files: Files) -> Source:
    """A copy of the first bytes of a file. Raises LogDirError if it is not to be found."""
    for path in _paths(added, files):
        handle, copy = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "w+b") as target:
            with contextlib.suppress(DamagedFileError, FileNotFoundError):
                for chunk in chunks(path):
                    target.write(chunk[: added.end - target.tell()])
                    if target.tell() == added.end:
                        break
            is_whole = target.tell() == added.end
            target.seek(0)
            if is_whole and crc32(target.read(min(HEAD_BYTES, added.end))) == added.crc:
                target.truncate(size)
                return Source(copy, added.name, size, None)
    raise LogDirError(f"{added.name!r} was changed or removed while it was read")


def _lines(path: str, size: int) -> int:
    """How many lines end in the first bytes of a file."""
    count = 0
    with open(path, "rb") as file:
        while data := file.read(min(size, READ_BYTES)):
            size -= len(data)
            count += data.count(b"\n")
    return count
