"""Finds the log files of a folder and splits them into lines, whatever state they are in.

Nothing here holds a whole file, a whole archive or a line of any length in memory: a file may be
truncated, a gzip archive damaged, and a "line" may be a gigabyte of zeros.
"""

from __future__ import annotations

import codecs
import os
import re
import shutil
import sys
from array import array
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, NamedTuple, TypeAlias

from isrlab_ops.logs.reader.formats import ANCHOR
from isrlab_ops.logs.reader.metadata.records import is_metadata
from isrlab_ops.logs.reader.packed import (
    DamagedFileError,
    UnpackedFiles,
    is_archive,
    kind_of,
    uncompressed,
    why_unreadable,
)
from isrlab_ops.logs.reader.stamps import zone_of

LOG_NAME = re.compile(
    r"^standard input$|"
    r"\.(log|out|gz|bz2|xz|zip|zst|lz4|tar|t[gbx]z|7z|rar)([.\-_].*)?$|\.log\b"
    r"|^(server|controller|state-change)\b"
)
SEGMENT_NAME = re.compile(r"^\d{20}\.")  # of a topic's data
BROKER_LOG_NAME = re.compile(r"^(server|controller|state-change)[^/]*log")
MAX_LINE_BYTES = LOOKED_AT_BYTES = 64 * 1024
READ_BYTES = 4 * 1024 * 1024
HOLE_BYTES = 32 * 1024  # of zeros: longer holes in a line are read as this long
# A container runtime (CRI) splits long lines, and marks each piece but the last with a P.
IN_PIECES = (b" stdout P ", b" stderr P ")
_PIECE = re.compile(rb"[^\n]{0,48} std(?:out|err) P ")
_STRANGE = bytes({*range(1, 32)} - {9, 10, 12, 13, 27})  # characters that do not occur in text
CONTROL = bytes(set(range(32)) - {9, 10, 12, 13, 27})
_HOLE = re.compile(rb"\0{%d,}" % HOLE_BYTES)
_PIECES = re.compile(rb"(?m)^(?:" + _PIECE.pattern + rb"[^\n]*\n)+[^\n]*")
UTF_16 = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
PathName: TypeAlias = "str | os.PathLike[str]"
VALID = (
    "Give a folder that holds the logs of one or more Kafka brokers (server.log, controller.log, "
    "state-change.log, also rotated, .gz, or one folder for each broker), or one such file, as a "
    "path that this machine can read; a relative path starts at the folder of the notebook."
)


class LogDirError(ValueError):
    """`log_dir` cannot be read; the message names the given value and valid ones."""

    def _render_traceback_(self) -> list[str]:
        """A notebook shows only the message."""
        return [f"LogDirError: {self}"]


class Source(NamedTuple):
    """A file: its path, its path below `log_dir`, and its status if it is not read: "skipped" if it
    is not a log, "not read" or "broken off" if lines may be missing. Of a growing file only the
    bytes before `end` count."""

    path: str
    name: str
    size_bytes: int
    skipped: str | None
    end: int | None = None


class Line(NamedTuple):
    """One line without its end; `is_cut` if it was longer than `MAX_LINE_BYTES`."""

    number: int
    text: bytes
    is_cut: bool


@dataclass(frozen=True)
class ReadBlock:
    """Whole lines. Line `n` of the block is line `first + n` of the file, and is
    `data[ends[n] : ends[n + 1]]`, line break included. `cut` has the numbers of lines longer than
    `MAX_LINE_BYTES`. The block ends before byte `end` of the file."""

    first: int
    data: bytes
    ends: array[int]  # int32
    cut: frozenset[int]
    end: int

    @cached_property
    def is_utf8(self) -> bool:
        return is_utf8(self.data)

    @cached_property
    def is_plain(self) -> bool:
        """Whether it is UTF-8, without control characters that do not occur in text."""
        return self.is_utf8 and len(self.data.translate(None, CONTROL)) == len(self.data)

    @property
    def size(self) -> int:
        """The number of lines."""
        return len(self.ends) - 1

    def line(self, n: int) -> bytes:
        """Line `n` without its end, at most `MAX_LINE_BYTES` of it."""
        start, end = self.ends[n], self.ends[n + 1]
        return self.data[start : min(end, start + MAX_LINE_BYTES)].rstrip(b"\r\n")


def is_utf8(data: bytes) -> bool:
    try:
        return data.isascii() or bool(data.decode("utf-8") is not None)
    except UnicodeDecodeError:
        return False


def _joined(pieces: re.Match[bytes]) -> bytes:
    """A split line as one, with its first prefix only; empty lines replace the other pieces."""
    first, *rest = (piece.rstrip(b"\r") for piece in pieces[0].split(b"\n"))
    return b"".join([first, *(piece.split(b" ", 3)[-1] for piece in rest)]) + b"\n" * len(rest)


def whole_end(data: bytes) -> int:
    """The end of the last whole line, 0 without one. Pieces of a line wait for its last piece."""
    end = last = data.rfind(b"\n") + 1
    while end and _PIECE.match(data, start := data.rfind(b"\n", 0, end - 1) + 1):
        end = start
        if last - end > MAX_LINE_BYTES:
            return last
    return end


@contextmanager
def stored(log_dir: PathName) -> Iterator[PathName]:
    """A path that can be read twice: `log_dir`, or a copy of a pipe such as standard input ("-") or
    a shell's `<(...)`; the context deletes the copy."""
    is_standard = str(log_dir) == "-"
    if not is_standard and not Path(log_dir).is_fifo():
        yield log_dir
        return
    with TemporaryDirectory() as folder, ExitStack() as opened:
        pipe = sys.stdin.buffer if is_standard else opened.enter_context(open(log_dir, "rb"))
        path = Path(folder) / "standard input"
        with path.open("wb") as copy:
            shutil.copyfileobj(pipe, copy)
        yield path


def find(log_dir: PathName, time_zone: str = "UTC") -> list[Source]:
    """Every file below `log_dir`, by name; links to folders or out of it are not followed.

    Raises LogDirError if nothing can be read, or the time zone is unknown.
    """
    try:
        zone_of(time_zone)
    except (OSError, ValueError, KeyError) as error:
        raise LogDirError(f"time_zone {time_zone!r} is unknown; give one such as 'UTC'") from error
    if str(log_dir) == "-":
        return [Source("-", "standard input", 0, None)]
    root, given = Path(log_dir), f"log_dir {str(log_dir)!r}"
    if not str(log_dir).strip():
        raise LogDirError(f"log_dir is empty. {VALID}")
    try:
        if not root.exists():
            raise FileNotFoundError(f"it does not exist (looked at {root.absolute()})")
        sources = [_source(root, root.parent)] if root.is_file() else _walk(root)
    except (OSError, ValueError, RuntimeError) as error:
        raise LogDirError(f"{given} cannot be read: {error}. {VALID}") from error
    if all(source.skipped for source in sources):
        whys = ((source.name, str(source.skipped).partition(": ")[2]) for source in sources[:5])
        skipped = "; ".join(map(": ".join, whys)) or "it is empty"
        raise LogDirError(f"{given} holds no readable log file ({skipped}). {VALID}")
    return sources


def _walk(root: Path) -> list[Source]:
    problems: list[OSError] = []
    sources = []
    for folder, folders, names in os.walk(root, onerror=problems.append, followlinks=False):
        links = [path for name in folders if (path := Path(folder) / name).is_symlink()]
        why = "not read: a link to a folder"
        sources += [Source(str(path), _below(path, root), 0, why) for path in links]
        sources += [_source(Path(folder) / name, root) for name in names]
    for problem in problems:
        path = Path(str(problem.filename))
        if path == root:
            raise problem
        sources.append(Source(str(path), _below(path, root), 0, f"not read: {problem.strerror}"))
    return sorted(sources, key=lambda source: source.name)


def _below(path: Path, root: Path) -> str:
    """The path below the root, as text that can be shown and stored, whatever its bytes."""
    name = os.fsencode(path.relative_to(root))
    return name.decode("utf-8", "backslashreplace").replace(os.sep, "/")


def _source(path: Path, root: Path) -> Source:
    size, name = 0, _below(path, root)
    try:
        if path.is_symlink() and not path.resolve().is_relative_to(root.resolve()):
            skipped: str | None = "not read: a link that leads out of log_dir"
        elif not path.is_file():
            skipped = "skipped: not a file"
        else:
            size, skipped = path.stat().st_size, _why_skip(path, name)
    except OSError as error:
        skipped = f"not read: {error.strerror}"
    except RuntimeError:  # Python before 3.13
        skipped = "not read: a link that leads to itself"
    return Source(str(path), name, size, skipped)


def _why_skip(path: Path, name: str) -> str | None:
    with path.open("rb") as file:
        first = file.read(LOOKED_AT_BYTES)
        if not first:
            return "skipped: empty"
        if is_metadata(first):
            return None
        while first and not first.strip(b"\0"):  # a file truncated while it was written
            first = file.read(READ_BYTES)
    first, last_name = first.lstrip(b"\0")[:LOOKED_AT_BYTES], name.rpartition("/")[2]
    is_broker_log = BROKER_LOG_NAME.search(last_name) is not None
    text = first.decode("utf-16" if first[:2] in UTF_16 else "utf-8", "replace")
    is_named = LOG_NAME.search(last_name) or (is_broker_log and last_name == name)
    if not is_named and not ANCHOR.search(text):
        return "skipped: not named like a log, and begins with no line of Kafka"
    if not first:
        return "not read: nothing but zero bytes"
    if why := why_unreadable(first):
        return f"not read: {why}"
    if is_broker_log or kind_of(first) or is_archive(first) or first[:2] in UTF_16:
        return None
    is_text = len(first.translate(None, _STRANGE)) == len(first)
    status = "skipped" if SEGMENT_NAME.match(last_name) else "not read"
    return None if is_text else f"{status}: binary, not text"


def expanded(sources: Iterable[Source], unpacked: UnpackedFiles) -> Iterator[Source]:
    """The sources, and for an archive the files in it, which `unpacked` keeps."""
    for source in sources:
        if source.skipped or not is_archive(_beginning(source.path)):
            yield source
            continue
        files, problem = unpacked.files(source.path, chunks(source.path))
        for name, path in files:
            shown = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
            shown = source.name if len(files) == 1 and not problem else f"{source.name}/{shown}"
            why = _why_skip(path, shown)
            if why is None and is_archive(_beginning(str(path))):
                why = "not read: an archive within another: unpack it first"
            yield Source(str(path), shown, path.stat().st_size, why)
        if problem:
            yield source._replace(skipped=problem)


def _beginning(path: str) -> bytes:
    try:
        return next(chunks(path), b"")
    except DamagedFileError:
        return b""


def blocks(
    path: str, start: int = 0, number: int = 1, end: int | None = None
) -> Iterator[ReadBlock]:
    """The lines of a file in order, some megabytes at a time, from byte `start`, where line
    `number` begins, to byte `end`.

    Raises DamagedFileError after the last line before the damage; OSError if it cannot be opened.
    """
    rest, is_cut, damage, taken = b"", False, None, start
    coming = chunks(path, start, end)
    while True:
        try:
            chunk = next(coming, b"")
        except DamagedFileError as error:
            chunk, damage = b"", error
        data = rest + chunk
        taken += len(chunk)
        size = whole_end(data) if chunk else len(data)
        rest = data[size:]
        if size:
            whole = _short_holes(data[:size])
            block = _block(number, whole, is_cut, taken - len(rest))
            number += block.size
            is_cut = False
            yield block
        rest = _short_holes(rest)
        if len(rest) > 2 * MAX_LINE_BYTES:  # keep only the beginning of a very long line
            rest, is_cut = rest[: MAX_LINE_BYTES + 1], True
        if not chunk:
            break
    if damage is not None:
        raise damage


def _short_holes(data: bytes) -> bytes:
    return _HOLE.sub(bytes(HOLE_BYTES), data) if b"\0" in data else data


def lines(path: str, end: int | None = None) -> Iterator[Line]:
    """The lines of a file one by one, as `blocks` gives them."""
    for block in blocks(path, end=end):
        for n in range(block.size):
            yield Line(block.first + n, block.line(n), n in block.cut)


def _block(number: int, data: bytes, is_cut: bool, end: int) -> ReadBlock:
    """The block of these lines; `is_cut`: the first was too long, and its middle was dropped."""
    if any(sign in data for sign in IN_PIECES):
        data = _PIECES.sub(_joined, data)
    sizes = [1 + size for size in map(len, data.split(b"\n"))]
    sizes[-1] -= 1
    if not sizes[-1]:
        sizes.pop()
    long = {n for n, size in enumerate(sizes) if size > MAX_LINE_BYTES + 2}
    ends = array("i", accumulate(sizes, initial=0))
    return ReadBlock(number, data, ends, frozenset(long | ({0} if is_cut else set())), end)


def chunks(path: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """The contents of a file as UTF-8, from byte `start` to `end`; bare "\\r" are line breaks."""
    with open(path, "rb") as file:
        first = file.peek(4)
        code = next((code for mark, code in UTF_16.items() if first.startswith(mark)), None)
        at, coming = 0, _decoded(file, code) if code else _blockwise(file)
        if kind := kind_of(first):
            coming = uncompressed(file, kind, os.path.getsize(path))
        elif not code:
            at = file.seek(start)
        head = b"" if kind else first
        for data in coming:
            head = head or data
            if b"\n" not in head and b"\n" not in data and not is_metadata(head):
                data = data.replace(b"\r", b"\n")
            if wanted := data[max(0, start - at) : None if end is None else max(0, end - at)]:
                yield wanted
            at += len(data)
            if end is not None and at >= end:
                return


def _blockwise(file: IO[bytes]) -> Iterator[bytes]:
    """The contents in pieces that end at the same bytes, wherever the first one begins."""
    return iter(lambda: file.read(READ_BYTES - file.tell() % READ_BYTES), b"")


def _decoded(file: IO[bytes], code: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(code)("replace")
    while data := file.read(READ_BYTES):
        yield decoder.decode(data).encode("utf-8", "replace")
