"""Measurements that need a process of their own, and its memory."""

import multiprocessing
import resource
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

R = TypeVar("R")


def alone(measure: Callable[..., R], *given: object) -> R:
    """What `measure` returns in a new process: an old one has freed memory, and grows by less."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(measure, *given).result()


def peak_mb() -> float:
    """The largest memory that this process has had, in MB."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    except (OSError, StopIteration):  # not Linux, or the parent's, if that had more
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
