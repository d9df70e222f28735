"""The processes of a breadth-first search: what each holds, and how it is asked.

Each expands the states that it found; `breadth_first.py` has the theory.
"""

from __future__ import annotations

import gc
import pickle
import signal
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from isrlab.search.tables import System, Tables

NONE = np.empty(0, np.int64)
Packed = tuple[list[Any], np.ndarray]  # things, and rows of places in that list


class Visited:
    """Fingerprints with their parents, in sorted runs, each at most half as long as the former."""

    def __init__(self) -> None:
        self.runs: list[tuple[np.ndarray, np.ndarray]] = []

    def knows(self, fingerprints: np.ndarray) -> np.ndarray:
        known = np.zeros(len(fingerprints), bool)
        for run, _ in self.runs:
            at = np.searchsorted(run, fingerprints)
            at[at == len(run)] = 0
            known |= run[at] == fingerprints
        return known

    def add(self, fingerprints: np.ndarray, parents: np.ndarray) -> None:
        """`fingerprints` are sorted, and new."""
        if not len(fingerprints):
            return
        self.runs.append((fingerprints, parents))
        while len(self.runs) > 1 and len(self.runs[-2][0]) < 2 * len(self.runs[-1][0]):
            small, large = self.runs.pop(), self.runs.pop()
            self.runs.append(_merged(large, small))

    def parent(self, fingerprint: int) -> int:
        for run, parents in self.runs:
            at = int(np.searchsorted(run, fingerprint))
            if at < len(run) and run[at] == fingerprint:
                return int(parents[at])
        raise KeyError(fingerprint)


def _merged(large: tuple[np.ndarray, ...], small: tuple[np.ndarray, ...]) -> Any:
    places = np.searchsorted(large[0], small[0]) + np.arange(len(small[0]))
    rest = np.ones(len(large[0]) + len(small[0]), bool)
    rest[places] = False
    both = []
    for ours, theirs in zip(large, small, strict=True):
        column = np.empty(len(rest), np.int64)
        column[places], column[rest] = theirs, ours
        both.append(column)
    return tuple(both)


class Share:
    """What one process expands: a level, what is offered in this round, and the next."""

    def __init__(self, tables: Tables, symmetric: bool) -> None:
        self.tables, self.symmetric = tables, symmetric
        self.level, self.fingerprints = self._none, NONE
        self.offered, self.fresh = self._none, NONE
        self.kept: list[np.ndarray] = []
        self.kept_fingerprints: list[np.ndarray] = []

    @property
    def _none(self) -> np.ndarray:
        return np.empty((0, len(self.tables.system.first)), np.int32)

    def expand(self, low: int, high: int) -> tuple[np.ndarray, np.ndarray, int]:
        """Fingerprints, sorted, and parents of what follows the states between `low` and `high`."""
        start, end = np.searchsorted(self.fingerprints, (low, high))
        parents = self.fingerprints[start:end]
        place, _, rows, prints = self.tables.expand(self.level[start:end], parents)
        if not len(rows):
            self.offered, self.fresh = rows, NONE
            return NONE, NONE, 0
        if self.symmetric:
            rows, prints, _ = self.tables.canonical(rows, prints)
        order = np.argsort(prints)
        ordered = prints[order]
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        self.offered, self.fresh = rows[order[starts]], ordered[starts]
        least = np.minimum.reduceat(place[order], starts)  # the first parent is the least
        return self.fresh, parents[least], len(rows)

    def keep(self, is_new: np.ndarray) -> tuple[int, dict[int, int]]:
        """How many states the new ones stand for, and the least fingerprint of each broken set."""
        rows, prints = self.offered[is_new], self.fresh[is_new]
        self.offered = self._none
        self.kept.append(rows)
        self.kept_fingerprints.append(prints)
        bits = self.tables.broken(rows)
        wrong = np.flatnonzero(bits)[::-1].tolist()
        broken = {int(bits[i]): int(prints[i]) for i in wrong}  # they are sorted: the least is last
        if self.symmetric:
            return int(self.tables.canonical(rows, prints)[2].sum()), broken
        return len(rows), broken

    def descend(self) -> int:
        """Go on with the states that were kept: so many."""
        prints = np.concatenate([NONE, *self.kept_fingerprints])
        order = np.argsort(prints)
        self.level = self._none
        self.level = np.concatenate([self._none, *self.kept])[order]
        self.fingerprints = prints[order]
        self.kept, self.kept_fingerprints = [], []
        return len(self.level)

    def left(self, low: int) -> tuple[Packed, Packed]:
        """What is to be expanded from `low` on, and what is kept for the next level."""
        start = int(np.searchsorted(self.fingerprints, low))
        kept = np.concatenate([self._none, *self.kept])
        return pack(self.tables, self.level[start:]), pack(self.tables, kept)

    def take(self, level: Packed, kept: Packed) -> None:
        for packed in (level, kept):
            self.kept = [unpack(self.tables, packed)]
            self.kept_fingerprints = [self.tables.fingerprints(self.kept[0])]
            if packed is level:
                self.descend()

    def memory(self) -> int:
        return resident_bytes()

    def counts(self) -> dict[str, int]:
        return {"steps": self.tables.asked, "computed": self.tables.computed}


def pack(tables: Tables, rows: np.ndarray) -> Packed:
    """Rows that another process can read: its numbers of things are others."""
    numbers, places = np.unique(rows, return_inverse=True)
    return [tables.things.values[n] for n in numbers.tolist()], places.reshape(rows.shape)


def unpack(tables: Tables, packed: Packed) -> np.ndarray:
    things, rows = packed
    numbers = np.array([tables.number(thing) for thing in things], np.int32)
    return numbers[rows] if len(rows) else rows.astype(np.int32)


class Here:
    """A part in this process, with the manners of one in another."""

    def __init__(self, make: Callable[[], System], symmetric: bool, tables: Tables) -> None:
        self.part = Share(tables, symmetric)
        self.answers: list[Any] = []

    def ask(self, name: str, *values: Any) -> None:
        self.answers.append(getattr(self.part, name)(*values))

    def answer(self) -> Any:
        return self.answers.pop(0)

    def close(self) -> None:
        pass


class There:
    """A part in a process of its own."""

    def __init__(self, make: Callable[[], System], symmetric: bool, tables: Tables) -> None:
        context = get_context()
        self.pipe, theirs = context.Pipe()
        known = tables if context.get_start_method() == "fork" else None
        how = theirs, make, symmetric, known
        self.process = context.Process(target=_serve, args=how, daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, name: str, *values: Any) -> None:
        self.pipe.send((name, values))

    def answer(self) -> Any:
        problem, value = self.pipe.recv()
        if problem is not None:
            raise problem
        return value

    def close(self) -> None:
        self.pipe.send(None)  # a process that was forked later holds this end open, too
        self.process.join()
        self.pipe.close()


def _serve(pipe: Any, make: Callable[[], System], symmetric: bool, known: Tables | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process decides
    gc.disable()
    part = Share(known or Tables(make()), symmetric)
    part.tables.asked = part.tables.computed = 0
    while (asked := pipe.recv()) is not None:
        name, values = asked
        try:
            pipe.send((None, getattr(part, name)(*values)))
        except Exception as problem:
            pipe.send((problem, None))


def resident_bytes() -> int:
    """The memory of this process."""
    try:
        pages = Path("/proc/self/statm").read_text("ascii").split()[1]
        return int(pages) * 4_096
    except OSError:  # no Linux: what it had at most
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024


class SavedReader(pickle.Unpickler):
    """Reads what `save` wrote, and calls nothing but classes of this package."""

    def find_class(self, module: str, name: str) -> Any:
        known = super().find_class(module, name) if module.startswith("isrlab.") else None
        if isinstance(known, type):
            return known
        raise pickle.UnpicklingError(f"{module}.{name} is not expected there")
