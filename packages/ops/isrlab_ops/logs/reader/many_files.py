"""Reads files; large amounts with one process for each core.

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

from isrlab_ops.logs.reader.files import Source
from isrlab_ops.logs.reader.layout import STOCK, Layout
from isrlab_ops.logs.reader.lines import LineReader
from isrlab_ops.logs.reader.one_file import LogFile

MUCH_BYTES = 64 * 1024 * 1024  # a process takes about a second to start
MOST_PROCESSES = 8
_SERVE = "from isrlab_ops.logs.reader.many_files import serve; serve()"


def read_files(
    sources: list[tuple[int, Source]],
    time_zone: str | None,
    layout: Layout | None = None,
    step: Callable[[int], None] = lambda size: None,
) -> list[LogFile]:
    """The files that were read, in order; `layout` is tried first."""
    logs = [
        LogFile(source, order, LineReader(time_zone, layout or STOCK, layout))
        for order, source in sources
    ]
    count = _processes(sum(source.size_bytes for _, source in sources))
    by_size = sorted(logs, key=lambda log: -log.source.size_bytes)
    here, *others = (by_size[n::count] for n in range(count))  # shares of similar size
    with ThreadPoolExecutor(max_workers=MOST_PROCESSES) as waiting:
        answers = waiting.map(_read_elsewhere, others)
        return sorted(chain(_read(here, step), *answers), key=lambda log: log.order)


def _processes(total_bytes: int) -> int:
    """How many processes are worth their start: at most one for each core."""
    if sys.platform == "emscripten":  # a browser has none
        return 1
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return min(cores, MOST_PROCESSES, 1 + total_bytes // MUCH_BYTES)


def _read(logs: list[LogFile], step: Callable[[int], None] = lambda size: None) -> list[LogFile]:
    for log in logs:
        log.read(step)
    return logs


def _read_elsewhere(logs: list[LogFile]) -> list[LogFile]:
    paths = os.pathsep.join(filter(None, sys.path))  # the packages may be in several folders
    worker = subprocess.run(
        [sys.executable, "-c", _SERVE], input=pickle.dumps(logs), stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": paths}, check=False,
    )  # fmt: skip
    return pickle.loads(worker.stdout) if worker.returncode == 0 else _read(logs)


def serve() -> None:
    """The main function of each process: reads a share of files, writes the result to stdout."""
    pickle.dump(_read(pickle.load(sys.stdin.buffer)), sys.stdout.buffer)
