"""Packed logs: compressed files, which are streamed, and archives of several files.

The files of an archive are unpacked in a temporary folder under generated names, up to any damage.
The reader sees them as `ARCHIVE/NAME`; a single file takes the name of the archive.

zstd and lz4 need a library each (the extra `archives`). Left out: archives within archives, 7z,
rar.
"""

import bz2
import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Self

UNPACKED_BYTES = 1024 * 1024
PACKED_BYTES = 4 * 1024  # of zstd and lz4, unpacked in one step: they may expand to 128 MB
# A log that repeats one error shrinks to 1/110: a larger ratio, above this size, is a bomb.
MOST_RATIO, BOMB_BYTES = 500, 4 * 1024 * 1024
# How each kind of compressed file begins.
MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}
LIBRARIES = {"zstd": "zstandard", "lz4": "lz4"}
ZIP = b"PK\x03\x04"
UNREADABLE = {b"7z\xbc\xaf": "7z", b"Rar!": "rar"}
TAR, TAR_PLACE = b"ustar", 257  # where the mark is in the header of the first file
TAR_BLOCK = 512  # bytes; the last ones are zero
BROKEN = (OSError, ValueError, RuntimeError, NotImplementedError, zlib.error, lzma.LZMAError)
INSTALL = "pip install 'isrlab[archives]'"


class DamagedFileError(Exception):
    """The rest of a file cannot be read; the part before it has been delivered."""


def kind_of(first: bytes) -> str | None:
    """The compression of a file with this beginning; None without one."""
    return next((kind for magic, kind in MAGIC.items() if first.startswith(magic)), None)


def why_unreadable(first: bytes) -> str | None:
    """Why a file with this beginning cannot be unpacked here; None if it can, or need not be."""
    for magic, name in UNREADABLE.items():
        if first.startswith(magic):
            return f"packed with {name}: unpack it first"
    kind = kind_of(first) or ""
    if kind in LIBRARIES and find_spec(LIBRARIES[kind]) is None:
        return f"compressed with {kind}: {INSTALL}"
    return None


def is_archive(first: bytes) -> bool:
    """Whether uncompressed contents with this beginning are an archive."""
    return first.startswith(ZIP) or first[TAR_PLACE : TAR_PLACE + len(TAR)] == TAR


def uncompressed(file: IO[bytes], kind: str, size: int) -> Iterator[bytes]:
    """The contents of a compressed file of `size` bytes. Raises DamagedFileError at any damage."""
    given = 0
    try:
        for data in _OPENERS[kind](file):
            yield data
            given += len(data)
            _check(given, size)
    except EOFError as error:
        problem = f"truncated {kind}: the archive ends before its end mark"
        raise DamagedFileError(problem) from error
    except BROKEN as error:
        raise DamagedFileError(f"damaged {kind}: {error}") from error


def _check(given: int, size: int) -> None:
    if given > max(BOMB_BYTES, MOST_RATIO * size):
        problem = f"more than {MOST_RATIO} times the size of the archive; read so far: "
        raise DamagedFileError(f"{problem}{given:,} bytes")


def _read_from(file: gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile) -> Iterator[bytes]:
    return iter(
        lambda: file.read1(UNPACKED_BYTES), b""
    )  # not `read`, which drops the data before damage


def _frames(file: IO[bytes], new: Callable[[], Any]) -> Iterator[bytes]:
    """The contents of a file's frames; `new` creates the reader of the next frame."""
    frame, rest = None, b""
    while data := rest or file.read(PACKED_BYTES):
        frame = frame or new()
        try:
            yield frame.decompress(data)
        except Exception as error:  # each library raises its own
            raise ValueError(str(error)) from error
        rest = frame.unused_data or b"" if frame.eof else b""
        frame = None if frame.eof else frame
    if frame:
        raise EOFError


_OPENERS: dict[str, Callable[[Any], Iterator[bytes]]] = {
    "gzip": lambda file: _read_from(gzip.GzipFile(fileobj=file)),
    "bzip2": lambda file: _read_from(bz2.BZ2File(file)),
    "xz": lambda file: _read_from(lzma.LZMAFile(file)),  # noqa: SIM115
    "zstd": lambda file: _frames(
        file, lambda: import_module("zstandard").ZstdDecompressor().decompressobj()
    ),
    "lz4": lambda file: _frames(file, import_module("lz4.frame").LZ4FrameDecompressor),
}


class _Stream:
    """Pieces of bytes as a readable file; `damage` is why they end early."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""
        self.last = b""  # the last bytes read
        self.damage: DamagedFileError | None = None

    def read(self, size: int) -> bytes:
        try:
            while len(self._rest) < size and (piece := next(self._pieces, b"")):
                self._rest += piece
        except DamagedFileError as damage:
            self.damage = damage
        given, self._rest = self._rest[:size], self._rest[size:]
        self.last = given[-TAR_BLOCK:] or self.last
        return given


class UnpackedFiles:
    """The files of archives, in a temporary folder until it is closed."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="isrlab-")
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def files(self, path: str, pieces: Iterator[bytes]) -> tuple[list[tuple[str, Path]], str]:
        """Each file of an archive, by its name there and its path here; and why files may be
        missing, or "". `pieces` are the archive's contents, uncompressed."""
        size, given, files = Path(path).stat().st_size, 0, list[tuple[str, Path]]()
        stream = _Stream(pieces)
        try:
            for name, member in _members(path, stream):
                self._count += 1
                target = Path(self._folder.name) / str(self._count)
                files.append((name, target))
                with target.open("wb") as file:
                    while data := member.read(UNPACKED_BYTES):
                        file.write(data)
                        given += len(data)
                        _check(given, size)
        except DamagedFileError as damage:
            return files, f"broken off: {damage}"
        except (*BROKEN, EOFError, zipfile.BadZipFile, tarfile.TarError) as error:
            return files, f"broken off: {stream.damage or f'damaged archive: {error}'}"
        return files, f"broken off: {stream.damage}" if stream.damage else ""


def _members(path: str, stream: _Stream) -> Iterator[tuple[str, IO[bytes]]]:
    """The files of a zip by name, those of a tar in their order."""
    with open(path, "rb") as file:
        is_zip = file.read(len(ZIP)) == ZIP
    if is_zip:
        with zipfile.ZipFile(path) as archive:
            for name in sorted(archive.namelist()):
                if not name.endswith("/"):
                    yield name, archive.open(name)
        return
    with tarfile.open(fileobj=stream, mode="r|") as tar:  # type: ignore[call-overload]
        for entry in tar:
            if entry.isfile() and (member := tar.extractfile(entry)):
                yield entry.name, member
    if stream.last.strip(b"\0"):
        raise DamagedFileError("a tar file without its end")
