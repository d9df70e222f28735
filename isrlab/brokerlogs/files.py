"""Finds the log files of a folder and takes them apart into lines, whatever state they are in.

Nothing here holds a whole file, a whole archive or a line of any length in memory: the end of a
file may be missing, a gzip archive may be cut or damaged, a "line" may be a gigabyte of zeros.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias
from zoneinfo import ZoneInfo

from isrlab.brokerlogs.metadata_records import is_metadata

LOG_NAME = re.compile(r"\.(log|out|gz)([.\-_].*)?$|\.log\b|^(server|controller|state-change)\b")
BROKER_LOG_NAME = re.compile(r"^(server|controller|state-change)[^/]*log")
MAX_LINE_BYTES = 64 * 1024
READ_BYTES = 256 * 1024
# No log shrinks to a hundredth: an archive that gives more, and more than this, is a bomb.
MOST_RATIO, BOMB_BYTES = 100, 4 * 1024 * 1024
GZIP_MAGIC = b"\x1f\x8b"
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
    """A file found: its path, its path below `log_dir`, and why it is not read, if so."""

    path: str
    name: str
    size_bytes: int
    skipped: str | None


class Line(NamedTuple):
    """One line without its end; `is_cut` if it was longer than `MAX_LINE_BYTES`."""

    number: int
    text: bytes
    is_cut: bool


def find(log_dir: PathName, time_zone: str = "UTC") -> list[Source]:
    """Every file of `log_dir`, in order of name; links that lead out of it are not followed.

    Raises LogDirError when there is nothing that could be read, or no such time zone.
    """
    try:
        ZoneInfo(time_zone)
    except (OSError, ValueError, KeyError) as error:
        raise LogDirError(f"time_zone {time_zone!r} is unknown; give one such as 'UTC'") from error
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
        first = file.read(4096)
    is_broker_log = BROKER_LOG_NAME.search(path.name) is not None
    if not first:
        return "empty"
    if is_metadata(first):
        return None
    if not LOG_NAME.search(path.name) and not (is_broker_log and path.parent == root):
        return "not named like a log"
    is_text = is_broker_log or first.startswith(GZIP_MAGIC) or b"\0" not in first
    return None if is_text else "binary, not text"


def lines(path: str) -> Iterator[Line]:
    """The lines of a plain or gzip file, in order, each at most `MAX_LINE_BYTES` long.

    Raises DamagedFileError after the last line before the damage; OSError if it cannot be opened.
    """
    kept, length, number, damage = bytearray(), 0, 1, None
    try:
        for chunk in chunks(path):
            if not kept and not chunk.strip(b"\n"):  # nothing but empty lines
                number += len(chunk)
                yield Line(number - 1, b"", False)
                continue
            for nth, piece in enumerate(chunk.split(b"\n")):
                if nth:
                    yield Line(number, bytes(kept).rstrip(b"\r"), length > MAX_LINE_BYTES)
                    kept, length, number = bytearray(), 0, number + 1
                kept += piece[: MAX_LINE_BYTES - len(kept)]
                length += len(piece)
    except DamagedFileError as error:
        damage = error
    if kept:
        yield Line(number, bytes(kept).rstrip(b"\r"), length > MAX_LINE_BYTES)
    if damage is not None:
        raise damage


def chunks(path: str) -> Iterator[bytes]:
    """The contents of a file or of a gzip archive, of one or more members, as far as whole."""
    with open(path, "rb") as file:
        if not file.peek(2).startswith(GZIP_MAGIC):
            while data := file.read(READ_BYTES):
                yield data
            return
        archive = gzip.GzipFile(fileobj=file)
        try:
            given = 0
            while data := archive.read1(READ_BYTES):  # not `read`: it drops what precedes damage
                yield data
                given += len(data)
                if given > max(BOMB_BYTES, MOST_RATIO * os.path.getsize(path)):
                    problem = f"more than {MOST_RATIO} times the size of the archive; read so far: "
                    raise DamagedFileError(f"{problem}{given:,} bytes")
        except EOFError as error:
            problem = "truncated gzip: the archive ends before its end mark"
            raise DamagedFileError(problem) from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise DamagedFileError(f"damaged gzip: {error}") from error
