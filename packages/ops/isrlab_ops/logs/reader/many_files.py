"""Reads files; large amounts with one process for each core, and large files in parts.

Each process is a fresh Python interpreter that gets its share of files over a pipe: not a fork, as
the caller may hold a JVM or threads, and without imports from the caller's program. If a process is
killed, its share is read here.

A part is read as if the file's first block, which is read here, had shown all that matters to later
lines (their layout, the release). Where that proves wrong, the part is read again after those
before it, so the division changes nothing.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

from isrlab_ops.logs.reader.files import Source, divided
from isrlab_ops.logs.reader.layout import STOCK, Layout
from isrlab_ops.logs.reader.lines import MOST_LINES_BACK, LineReader
from isrlab_ops.logs.reader.one_file import LogFile

MUCH_BYTES = 64 * 1024 * 1024  # a process takes about a second to start
PART_BYTES = 32 * 1024 * 1024  # of a large file, read by one process
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
    parts = [part for log in logs for part in (_parts(log, step) if count > 1 else [log])]
    here, *others = _shares(parts, count)
    with ThreadPoolExecutor(max_workers=MOST_PROCESSES) as waiting:
        answers = waiting.map(_read_elsewhere, others)
        read = chain(_read(here, step), *answers)
        in_order = sorted(read, key=lambda log: (log.order, log.lines))
    files: dict[int, LogFile] = {}
    for part in in_order:
        if files.setdefault(part.order, part) is not part:
            files[part.order].add(part)
    return [*files.values()]


def _processes(total_bytes: int) -> int:
    """How many processes are worth their start: at most one for each core."""
    if sys.platform == "emscripten":  # a browser has none
        return 1
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return min(cores, MOST_PROCESSES, 1 + total_bytes // MUCH_BYTES)


def _parts(log: LogFile, step: Callable[[int], None]) -> list[LogFile]:
    """A file and, if it is large, the parts after its first block, which is then read."""
    if log.source.size_bytes <= PART_BYTES:
        return [log]
    blocks = [each for each in divided(log.source, PART_BYTES) if each[0].size > MOST_LINES_BACK]
    if not blocks:
        return [log]
    ends = [*(block.end for block, _ in blocks), log.source.end]
    log.source = log.source._replace(end=ends[0])
    log.read(step)
    return [log, *(log.part(*each, end) for each, end in zip(blocks, ends[1:], strict=True))]


def _shares(parts: list[LogFile], count: int) -> list[list[LogFile]]:
    """The parts in shares of similar size."""
    shares: list[list[LogFile]] = [[] for _ in range(count)]
    sizes = [0] * count
    for part in sorted(parts, key=lambda part: -part.size_bytes):
        least = sizes.index(min(sizes))
        shares[least].append(part)
        sizes[least] += part.size_bytes
    return shares


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
