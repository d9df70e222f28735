"""Finds the log files of a folder and takes them apart into lines, whatever state they are in.

Nothing here holds a whole file, a whole archive or a line of any length in memory: the end of a
file may be missing, a gzip archive may be cut or damaged, a "line" may be a gigabyte of zeros.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LOG_NAME = re.compile(r"\.(log|out|gz)([.\-_].*)?$|\.log\b|^(server|controller|state-change)\b")
BROKER_LOG_NAME = re.compile(r"^(server|controller|state-change)[^/]*log")
MAX_LINE_BYTES = 64 * 1024
READ_BYTES = 256 * 1024
GZIP_MAGIC = b"\x1f\x8b"


class LogDirError(ValueError):
    """`log_dir` cannot be read; the message says what was given and what would be valid."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message, for there is nothing else to see."""
        return [f"LogDirError: {self}"]


@dataclass(frozen=True, slots=True)
class Source:
    """A file found: its path, its path below `log_dir`, and why it is not read, if so."""

    path: str
    name: str
    size_bytes: int
    skipped: str | None


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its end; `is_cut` if it was longer than `MAX_LINE_BYTES`."""

    number: int
    text: bytes
    is_cut: bool


class DamagedFileError(Exception):
    """The rest of a file cannot be read; what came before it has been given."""


VALID = (
    "Give a folder that holds the logs of one or more Kafka brokers (server.log, controller.log, "
    "state-change.log, also rotated, .gz, or one folder for each broker), or one such file, as a "
    "path that this machine can read; a relative path starts at the folder of the notebook."
)


def find(log_dir: str | os.PathLike[str]) -> list[Source]:
    """Every file of `log_dir`, in order of name; links that lead out of it are not followed.

    Raises LogDirError when there is nothing that could be read.
    """
    root = Path(log_dir)
    if not str(log_dir).strip():
        raise LogDirError(f"log_dir is empty text. {VALID}")
    try:
        if not root.exists():
            raise LogDirError(
                f"log_dir {str(log_dir)!r} does not exist (looked at {root.absolute()}). {VALID}"
            )
        sources = [_source(root, root.parent)] if root.is_file() else _walk(root)
    except (OSError, ValueError) as error:
        if isinstance(error, LogDirError):
            raise
        raise LogDirError(f"log_dir {str(log_dir)!r} cannot be read: {error}. {VALID}") from error
    if not any(source.skipped is None for source in sources):
        found = "; ".join(f"{s.name}: {s.skipped}" for s in sources[:5]) or "it is empty"
        raise LogDirError(f"log_dir {str(log_dir)!r} holds no readable log file ({found}). {VALID}")
    return sources


def _walk(root: Path) -> list[Source]:
    problems: list[OSError] = []
    sources = []
    for folder, folders, names in os.walk(root, onerror=problems.append, followlinks=False):
        folders.sort()
        linked = [name for name in folders if (Path(folder) / name).is_symlink()]
        sources += [
            Source(str(Path(folder) / n), _below(Path(folder) / n, root), 0, "a link to a folder")
            for n in linked
        ]
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
    name = _below(path, root)
    try:
        if path.is_symlink() and not path.resolve().is_relative_to(root.resolve()):
            return Source(str(path), name, 0, "a link that leads out of log_dir")
        if not path.is_file():
            return Source(str(path), name, 0, "not a file")
        size = path.stat().st_size
        return Source(str(path), name, size, None if path == root else _why_skip(path, size, root))
    except OSError as error:
        return Source(str(path), name, 0, str(error.strerror))


def _why_skip(path: Path, size: int, root: Path) -> str | None:
    if size == 0:
        return "empty"
    with path.open("rb") as file:
        first = file.read(4096)
    if path.parent == root and BROKER_LOG_NAME.search(path.name):
        return None
    if not LOG_NAME.search(path.name):
        return "not named like a log"
    if (
        not first.startswith(GZIP_MAGIC)
        and b"\0" in first
        and not BROKER_LOG_NAME.search(path.name)
    ):
        return "binary, not text"
    return None


def lines(path: str) -> Iterator[Line]:
    """The lines of a plain or gzip file, in order, each at most `MAX_LINE_BYTES` long.

    Raises DamagedFileError after the last line before the damage; OSError if it cannot be opened.
    """
    kept, length, number = bytearray(), 0, 1
    damage: DamagedFileError | None = None
    chunks = _chunks(path)
    while True:
        try:
            chunk = next(chunks, None)
        except DamagedFileError as error:
            chunk, damage = None, error
        if chunk is None:
            break
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            kept += piece[: MAX_LINE_BYTES - len(kept)]
            yield Line(number, bytes(kept).rstrip(b"\r"), length + len(piece) > MAX_LINE_BYTES)
            kept, length, number = bytearray(), 0, number + 1
        kept += rest[: MAX_LINE_BYTES - len(kept)]
        length += len(rest)
    if kept:
        yield Line(number, bytes(kept).rstrip(b"\r"), length > MAX_LINE_BYTES)
    if damage is not None:
        raise damage


def _chunks(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        first = file.read(READ_BYTES)
        if first.startswith(GZIP_MAGIC):
            yield from _inflated(file, first)
            return
        while first:
            yield first
            first = file.read(READ_BYTES)


def _inflated(file: object, data: bytes) -> Iterator[bytes]:
    """The contents of a gzip file of one or more members, as far as it is whole."""
    inflate = zlib.decompressobj(wbits=31)
    while True:
        try:
            text = inflate.decompress(data, READ_BYTES)
        except zlib.error as error:
            raise DamagedFileError(f"damaged gzip: {error}") from error
        if text:
            yield text
        data = inflate.unconsumed_tail
        if inflate.eof:
            data = inflate.unused_data or file.read(READ_BYTES)  # type: ignore[attr-defined]
            data = data.lstrip(b"\0")
            if not data:
                return
            if not data.startswith(GZIP_MAGIC[: len(data)]):
                raise DamagedFileError("bytes that are no gzip after the end of the archive")
            inflate = zlib.decompressobj(wbits=31)
        elif not data:
            data = file.read(READ_BYTES)  # type: ignore[attr-defined]
            if not data:
                rest = inflate.flush()
                if rest:
                    yield rest
                raise DamagedFileError("truncated gzip: the archive ends before its end mark")
