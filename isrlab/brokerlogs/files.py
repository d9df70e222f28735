"""Finds the log files of a folder and takes them apart into lines, whatever state they are in.

Nothing here holds a whole file, a whole archive or a line of any length in memory: the end of a
file may be missing, a gzip archive may be cut or damaged, a "line" may be a gigabyte of zeros.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np

from isrlab.brokerlogs.formats import ANCHOR
from isrlab.brokerlogs.metadata.records import is_metadata

LOG_NAME = re.compile(
    r"\.(log|out|gz|bz2|xz|zip|zst|lz4)([.\-_].*)?$|\.log\b|^(server|controller|state-change)\b"
)
BROKER_LOG_NAME = re.compile(r"^(server|controller|state-change)[^/]*log")
MAX_LINE_BYTES = LOOKED_AT_BYTES = 64 * 1024
READ_BYTES, UNPACKED_BYTES = 4 * 1024 * 1024, 1024 * 1024
# No log shrinks to a hundredth: an archive that gives more, and more than this, is a bomb.
MOST_RATIO, BOMB_BYTES = 100, 4 * 1024 * 1024
# A line that a container's runtime (CRI) has cut: it marks the pieces that go on with a P.
IN_PIECES = (b" stdout P ", b" stderr P ")
_PIECE = re.compile(rb"[^\n]{0,48} std(?:out|err) P ")
_PIECES = re.compile(rb"(?m)^(?:" + _PIECE.pattern + rb"[^\n]*\n)+[^\n]*")
# How archives begin, and whether the standard library of Python reads them.
MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"PK\x03\x04": "zip"}
UNREADABLE = {b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4", b"7z\xbc\xaf": "7z"}
UTF_16 = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
PathName: TypeAlias = "str | os.PathLike[str]"
VALID = (
    "Give a folder that holds the logs of one or more Kafka brokers (server.log, controller.log, "
    "state-change.log, also rotated, .gz, or one folder for each broker), or one such file, as a "
    "path that this machine can read; a relative path starts at the folder of the notebook."
)


class LogDirError(ValueError):
    """`log_dir` cannot be read; the message says what was given and what would be valid."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message, for there is nothing else to see."""
        return [f"LogDirError: {self}"]


class DamagedFileError(Exception):
    """The rest of a file cannot be read; what came before it has been given."""


class Source(NamedTuple):
    """A file found: its path, its path below `log_dir`, and why it is not read, if so. Of one that
    grows only what it holds before byte `end` counts."""

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
class Block:
    """Whole lines: line `n` of the block, number `first + n` of the file, is
    `data[ends[n] : ends[n + 1]]` with its end. `cut` are those longer than `MAX_LINE_BYTES`. In the
    file the block ends before byte `end`."""

    first: int
    data: bytes
    ends: np.ndarray  # int32
    cut: frozenset[int]
    end: int

    @property
    def size(self) -> int:
        """How many lines."""
        return len(self.ends) - 1

    def line(self, n: int) -> bytes:
        """Line `n` without its end, at most `MAX_LINE_BYTES` of it."""
        start, end = int(self.ends[n]), int(self.ends[n + 1])
        return self.data[start : min(end, start + MAX_LINE_BYTES)].rstrip(b"\r\n")


def _joined(pieces: re.Match[bytes]) -> bytes:
    """The pieces of a line as one, each without what is before, and empty lines in their places."""
    first, *rest = (piece.rstrip(b"\r") for piece in pieces[0].split(b"\n"))
    return b"".join([first, *(piece.split(b" ", 3)[-1] for piece in rest)]) + b"\n" * len(rest)


def whole_end(data: bytes) -> int:
    """Where the last whole line of some ends, 0 without any. Pieces of a line wait for its last."""
    end = last = data.rfind(b"\n") + 1
    while end and _PIECE.match(data, start := data.rfind(b"\n", 0, end - 1) + 1):
        end = start
        if last - end > MAX_LINE_BYTES:
            return last
    return end


def kind_of(first: bytes) -> str | None:
    """Which archive, of those that can be read, begins so."""
    return next((kind for magic, kind in MAGIC.items() if first.startswith(magic)), None)


def find(log_dir: PathName, time_zone: str = "UTC") -> list[Source]:
    """Every file of `log_dir`, in order of name; links that lead out of it are not followed.

    Raises LogDirError when there is nothing that could be read, or no such time zone.
    """
    try:
        ZoneInfo(time_zone)
    except (OSError, ValueError, KeyError) as error:
        raise LogDirError(f"time_zone {time_zone!r} is unknown; give one such as 'UTC'") from error
    if str(log_dir) == "-":
        return [Source("-", "standard input", 0, None)]
    root, given = Path(log_dir), f"log_dir {str(log_dir)!r}"
    if not str(log_dir).strip():
        raise LogDirError(f"log_dir is empty text. {VALID}")
    try:
        if not root.exists():
            raise FileNotFoundError(f"it does not exist (looked at {root.absolute()})")
        sources = [_source(root, root.parent)] if root.is_file() else _walk(root)
    except (OSError, ValueError, RuntimeError) as error:
        raise LogDirError(f"{given} cannot be read: {error}. {VALID}") from error
    if all(source.skipped for source in sources):
        skipped = "; ".join(f"{s.name}: {s.skipped}" for s in sources[:5]) or "it is empty"
        raise LogDirError(f"{given} holds no readable log file ({skipped}). {VALID}")
    return sources


def _walk(root: Path) -> list[Source]:
    problems: list[OSError] = []
    sources = []
    for folder, folders, names in os.walk(root, onerror=problems.append, followlinks=False):
        links = [path for name in folders if (path := Path(folder) / name).is_symlink()]
        sources += [Source(str(p), _below(p, root), 0, "a link to a folder") for p in links]
        sources += [_source(Path(folder) / name, root) for name in names]
    for problem in problems:
        path = Path(str(problem.filename))
        if path == root:
            raise problem
        sources.append(Source(str(path), _below(path, root), 0, str(problem.strerror)))
    return sorted(sources, key=lambda source: source.name)


def _below(path: Path, root: Path) -> str:
    """The path below the root as text that can be shown and stored, whatever bytes it holds."""
    name = os.fsencode(path.relative_to(root))
    return name.decode("utf-8", "backslashreplace").replace(os.sep, "/")


def _source(path: Path, root: Path) -> Source:
    size = 0
    try:
        if path.is_symlink() and not path.resolve().is_relative_to(root.resolve()):
            skipped: str | None = "a link that leads out of log_dir"
        else:
            size = path.stat().st_size if path.is_file() else 0
            skipped = _why_skip(path, root)
    except OSError as error:
        skipped = str(error.strerror)
    except RuntimeError:  # so Python before 3.13
        skipped = "a link that leads to itself"
    return Source(str(path), _below(path, root), size, skipped)


def _why_skip(path: Path, root: Path) -> str | None:
    if not path.is_file():
        return "not a file"
    with path.open("rb") as file:
        first = file.read(LOOKED_AT_BYTES)
    is_broker_log = BROKER_LOG_NAME.search(path.name) is not None
    if not first:
        return "empty"
    if is_metadata(first):
        return None
    text = first.decode("utf-16" if first[:2] in UTF_16 else "utf-8", "replace")
    is_named = LOG_NAME.search(path.name) or (is_broker_log and path.parent == root)
    if not is_named and not ANCHOR.search(text):
        return "not named like a log, and begins with no line of Kafka"
    for magic, kind in UNREADABLE.items():
        if first.startswith(magic):
            return f"compressed with {kind}, which this program cannot read: unpack it first"
    is_text = is_broker_log or b"\0" not in first or first[:2] in UTF_16
    return None if is_text or kind_of(first) else "binary, not text"


def blocks(path: str, start: int = 0, number: int = 1, end: int | None = None) -> Iterator[Block]:
    """The lines of a file, in order, some megabytes at a time; those from byte `start`, which has
    line `number`, to byte `end`.

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
            block = _block(number, data[:size], is_cut, taken - len(rest))
            number += block.size
            is_cut = False
            yield block
        if len(rest) > 2 * MAX_LINE_BYTES:  # of a line of any length its beginning is kept
            rest, is_cut = rest[: MAX_LINE_BYTES + 1], True
        if not chunk:
            break
    if damage is not None:
        raise damage


def lines(path: str, end: int | None = None) -> Iterator[Line]:
    """The lines of a file one by one, as `blocks` gives them."""
    for block in blocks(path, end=end):
        for n in range(block.size):
            yield Line(block.first + n, block.line(n), n in block.cut)


def _block(number: int, data: bytes, is_cut: bool, end: int) -> Block:
    """`is_cut`: its first line has lost what was in the middle, and is too long in any case."""
    if any(sign in data for sign in IN_PIECES):
        data = _PIECES.sub(_joined, data)
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1
    if not data.endswith(b"\n"):
        ends = np.append(ends, len(data))
    ends = np.concatenate([[0], ends]).astype(np.int32)
    long = set(np.flatnonzero(np.diff(ends) > MAX_LINE_BYTES + 2).tolist())
    return Block(number, data, ends, frozenset(long | ({0} if is_cut else set())), end)


def chunks(path: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """The contents of a file or an archive as UTF-8, from byte `start` to byte `end`, as far as
    they are whole."""
    with open(path, "rb") as file:
        first = file.peek(4)
        code = next((code for mark, code in UTF_16.items() if first.startswith(mark)), None)
        at, coming = 0, _decoded(file, code) if code else _plain(file)
        if kind := kind_of(first):
            coming = _unpacked(file, kind, os.path.getsize(path))
        elif not code:
            at = file.seek(start)
        for data in coming:
            if wanted := data[max(0, start - at) : None if end is None else max(0, end - at)]:
                yield wanted
            at += len(data)
            if end is not None and at > end:
                return


def _plain(file: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: file.read(READ_BYTES), b"")


def _decoded(file: IO[bytes], code: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(code)("replace")
    while data := file.read(READ_BYTES):
        yield decoder.decode(data).encode("utf-8", "replace")


def _unpacked(file: IO[bytes], kind: str, size: int) -> Iterator[bytes]:
    given = 0
    try:
        for data in _OPENERS[kind](file):
            yield data
            given += len(data)
            if given > max(BOMB_BYTES, MOST_RATIO * size):
                problem = f"more than {MOST_RATIO} times the size of the archive; read so far: "
                raise DamagedFileError(f"{problem}{given:,} bytes")
    except EOFError as error:
        problem = f"truncated {kind}: the archive ends before its end mark"
        raise DamagedFileError(problem) from error
    except (OSError, ValueError, RuntimeError, NotImplementedError, zlib.error, lzma.LZMAError,
            zipfile.BadZipFile) as error:  # fmt: skip
        raise DamagedFileError(f"damaged {kind}: {error}") from error


def _read_zip(file: IO[bytes]) -> Iterator[bytes]:
    """Its files one after another, in order of name."""
    with zipfile.ZipFile(file) as archive:
        for name in sorted(archive.namelist()):
            with archive.open(name) as member:
                yield from iter(lambda: member.read(UNPACKED_BYTES), b"")


def _read_from(file: gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile) -> Iterator[bytes]:
    return iter(
        lambda: file.read1(UNPACKED_BYTES), b""
    )  # not `read`: it drops what precedes damage


_OPENERS: dict[str, Callable[[Any], Iterator[bytes]]] = {
    "gzip": lambda file: _read_from(gzip.GzipFile(fileobj=file)),
    "bzip2": lambda file: _read_from(bz2.BZ2File(file)),
    "xz": lambda file: _read_from(lzma.LZMAFile(file)),  # noqa: SIM115
    "zip": _read_zip,
}
