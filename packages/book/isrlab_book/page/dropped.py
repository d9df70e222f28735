"""Logs and descriptions that are dropped on a page, which answers as `logs` and `check` do.

    with DroppedFiles() as dropped:
        dropped.feed("broker-1/server.log", piece)      # files, each in pieces, in any order
        answer = dropped.finish(progress)               # progress(share, doing): 0 to 1, words

Theory of operation. The pieces are written to files in a folder, which in a browser is in memory,
and the commands' own code reads that folder and answers. Dropped files are not trusted: their size,
also the unpacked size of archives, is limited before logs are read; their names are made harmless;
the answer is plain text, never markup.
"""

import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Self, TypeAlias

from isrlab_ops.check import cluster, stored
from isrlab_ops.check.answer import CheckQuestion, ClusterCheck, answer_of, as_dict
from isrlab_ops.logs.history.history import history_of
from isrlab_ops.logs.incidents import look, tell, terminal
from isrlab_ops.logs.incidents.answer import answer_about
from isrlab_ops.logs.reader.files import DamagedFileError, LogDirError, chunks
from isrlab_ops.logs.reader.metadata.files import LAYOUT
from isrlab_ops.logs.reader.packed import ZIP
from isrlab_ops.logs.reader.read import read_local

MOST_BYTES, MOST_FILES = 200_000_000, 500
LOOKED_AT = 65_536  # first bytes of a file, which show its kind
MOST_DESCRIBED = 20_000_000  # bytes of text
WIDTH = 100
READ, ORDERED = 0.5, 0.65  # shares of the work: lines are read, then put in order
READING = "reading lines"
OnProgress: TypeAlias = Callable[[float, str], None]  # the share that is done, and the current work
LEFT_OUT = (
    "Left out here, and in `python -m isrlab logs`: archives of zstd and lz4, more than "
    f"{MOST_BYTES // 1_000_000} MB, anonymous names, a page to send, logs that grow."
)
_STRANGE = re.compile(r"[^\w.+=-]+", re.ASCII)
_ESCAPE = re.compile(r"\x1b\[[\d;]*m")
_DESCRIBED = re.compile(
    r"\s*topic: ?\S+\s+(?:TopicId|PartitionCount|partition|Leader):?", re.IGNORECASE | re.ASCII
)


class DropError(ValueError):
    """Dropped files that cannot be answered; the message gives the reason, as plain text."""


class DroppedAnswer(NamedTuple):
    """What the commands `python -m isrlab logs` and `check` answer: the highest `status`, the first
    `title`, each `text`, and in `data` the --json output by command; `left_out` is a sentence."""

    status: int
    title: str
    text: str
    data: dict[str, Any]
    left_out: str


class DroppedFiles:
    """The dropped files, in a temporary folder until the end of the `with` block."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="isrlab-")
        self._root = Path(self._folder.name) / "dropped"
        self._root.mkdir()
        self._files: dict[str, Path] = {}
        self.bytes, self._unpacked = 0, 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def feed(self, name: str, piece: bytes) -> None:
        """Add bytes to a file; `name` may contain folders. Raises DropError beyond a limit."""
        self.bytes += len(piece)
        if self.bytes > MOST_BYTES:
            raise DropError(_too_much("The files are"))
        if name not in self._files:
            if len(self._files) == MOST_FILES:
                raise DropError(f"There are more than {MOST_FILES} files; drop fewer.")
            self._files[name] = self._place(name)
        with self._files[name].open("ab") as file:
            file.write(piece)

    def _place(self, name: str) -> Path:
        """A path for a file of this name; no two names have the same path."""
        parts = [_STRANGE.sub("_", part)[:100].lstrip(".") for part in re.split(r"[/\\]", name)]
        path = self._root.joinpath(*(filter(None, parts[-6:])))
        path = path if path != self._root else path / "file"
        taken = {*self._files.values()}
        if path in taken or any(path in other.parents for other in taken) or path.is_dir():
            path = path.parent / f"{len(taken)}-{path.name}"
        if any(parent in taken for parent in path.parents):
            path = self._root / f"{len(taken)}-{path.name}"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def finish(self, progress: OnProgress = lambda share, doing: None) -> DroppedAnswer:
        """The answer to all files together. Raises DropError."""
        progress(0.0, READING)
        if not self.bytes:
            raise DropError("The dropped files are empty.")
        described = [path for path in self._files.values() if _is_described(path)]
        answers = [_checked(cluster.of_text, cluster.decoded(path.read_bytes()))
                   for path in described]  # fmt: skip
        for path in described:
            path.unlink()
        if len(described) < len(self._files):
            self._check_sizes()
            answers = [*self._logs(progress), *answers]
        progress(1.0, "done")
        return DroppedAnswer(
            max(each.status for each in answers), answers[0].title,
            "\n\n\n".join(each.text for each in answers),
            {name: data for each in answers for name, data in each.data.items()}, LEFT_OUT,
        )  # fmt: skip

    def _check_sizes(self) -> None:
        """Raise DropError if the unpacked files would be too large."""
        for path in (each for each in self._files.values() if each.exists()):
            for size in _unpacked_sizes(path):
                self._unpacked += size
                if self._unpacked > MOST_BYTES:
                    raise DropError(_too_much("The unpacked files are"))

    def _logs(self, progress: OnProgress) -> Iterator[DroppedAnswer]:
        done = 0

        def step(size: int) -> None:
            nonlocal done
            done += size
            progress(min(READ, READ * done / self._unpacked), READING)

        try:
            logs = read_local(self._root, step=step)
        except LogDirError as error:
            why = str(error).partition(" Give a folder")[0]
            raise DropError(why.replace(str(self._root), "what was dropped")) from None
        progress(READ, "putting each partition's history together")
        history = history_of(logs.rows, logs.file_rows)
        progress(ORDERED, "finding what happened")
        findings = look.found_in(logs, history)
        answer = answer_about(findings)
        below = terminal.below(answer, findings.faults, WIDTH, full=False)
        text = _ESCAPE.sub("", "\n".join([*terminal.first_lines(answer, WIDTH), *below]))
        data = {"logs": tell.as_dict(findings, answer)}
        yield DroppedAnswer(findings.status, answer.title, text, data, LEFT_OUT)
        if any(row["layout"] == LAYOUT for row in findings.logs.file_rows):
            with suppress(DropError):  # a partial log is answered above
                yield _checked(stored.of_files, str(self._root))


def _checked(read: Callable[[str], cluster.ClusterState], source: str) -> DroppedAnswer:
    try:
        state = read(source)
    except cluster.CheckError as error:
        raise DropError(f"This description cannot be read: {error}") from None
    check = ClusterCheck(cluster.with_options(state), CheckQuestion())
    answer = answer_of(check)
    text = _ESCAPE.sub("", "\n".join(terminal.first_lines(answer, WIDTH)))
    return DroppedAnswer(check.status, check.title, text, {"check": as_dict(check)}, LEFT_OUT)


def _first(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LOOKED_AT)


def _is_described(path: Path) -> bool:
    """Whether a file begins like the output of kafka-topics --describe."""
    is_text = _DESCRIBED.match(cluster.decoded(_first(path))) is not None
    if is_text and path.stat().st_size > MOST_DESCRIBED:
        raise DropError("A description of topics may have at most 20 MB.")
    return is_text


def _unpacked_sizes(path: Path) -> Iterator[int]:
    """The sizes of a file's unpacked parts; a zip's as it declares them, since no more is read."""
    try:
        if _first(path).startswith(ZIP):
            with zipfile.ZipFile(path) as archive:
                entries = archive.infolist()
            if len(entries) > MOST_FILES:
                raise DropError(f"The archive holds more than {MOST_FILES} files.")
            yield from (entry.file_size for entry in entries)
        else:
            yield from map(len, chunks(str(path)))
    except (zipfile.BadZipFile, DamagedFileError, OSError):
        return  # the reader reports the damage


def _too_much(what: str) -> str:
    remedy = "`python -m isrlab logs FOLDER` reads logs of any size on your machine."
    return f"{what} larger than {MOST_BYTES // 1_000_000} MB. {remedy}"
