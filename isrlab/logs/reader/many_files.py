"""Reads many files; large amounts with one process for each core.

Each process is a fresh Python interpreter that gets its share of files over a pipe: not a fork, as
the caller may hold a JVM or threads, and without imports from the caller's program. If a process is
killed, its share is read here.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from isrlab.logs.reader.files import Source
from isrlab.logs.reader.layout import STOCK, Layout
from isrlab.logs.reader.lines import LineReader
from isrlab.logs.reader.one_file import LogFile

MUCH_BYTES = 64 * 1024 * 1024  # a process takes about a second to start
MOST_PROCESSES = 8
FileShare: TypeAlias = "list[tuple[int, Source]]"  # with their positions in the order of files
_SERVE = "from isrlab.logs.reader.many_files import serve; serve()"


def read_files(
    sources: FileShare,
    time_zone: str | None,
    layout: Layout | None = None,
    step: Callable[[int], None] = lambda size: None,
) -> list[LogFile]:
    """The files that were read, in order; `layout` is tried first."""
    here, *others = ((share, time_zone, layout) for share in _shares(sources))
    with ThreadPoolExecutor(max_workers=MOST_PROCESSES) as waiting:
        answers = waiting.map(_read_elsewhere, others)
        logs = _read(*here, step)
        return sorted(chain(logs, *answers), key=lambda log: log.order)


def _shares(sources: FileShare) -> list[FileShare]:
    """The files in shares of similar size, one for each core if that pays."""
    total = sum(source.size_bytes for _, source in sources)
    # A browser has no processes.
    cores = (
        1
        if sys.platform == "emscripten"
        else len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count()
    )
    count = min(cores or 1, MOST_PROCESSES, len(sources), 1 + total // MUCH_BYTES)
    shares: list[FileShare] = [[] for _ in range(max(1, count))]
    sizes = [0] * len(shares)
    for order, source in sorted(sources, key=lambda each: -each[1].size_bytes):
        least = sizes.index(min(sizes))
        shares[least].append((order, source))
        sizes[least] += source.size_bytes
    return [sorted(share) for share in shares]


def _read(
    sources: FileShare,
    time_zone: str | None,
    given: Layout | None,
    step: Callable[[int], None] = lambda size: None,
) -> list[LogFile]:
    logs = [LogFile(s, order, LineReader(time_zone, given or STOCK, given)) for order, s in sources]
    for log in logs:
        log.read(step)
    return logs


def _read_elsewhere(job: tuple[FileShare, str | None, Layout | None]) -> list[LogFile]:
    root = str(Path(__file__).parents[3])
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    worker = subprocess.run(
        [sys.executable, "-c", _SERVE], input=pickle.dumps(job), stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": paths}, check=False,
    )  # fmt: skip
    return pickle.loads(worker.stdout) if worker.returncode == 0 else _read(*job)


def serve() -> None:
    """The main function of each process: reads a share of files, writes the result to stdout."""
    pickle.dump(_read(*pickle.load(sys.stdin.buffer)), sys.stdout.buffer)
