"""The processes of a breadth-first search: what each holds, and how it is asked.

Each expands the states that it found; `breadth_first.py` has the theory.
"""

from __future__ import annotations

import gc
import pickle
import signal
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import numpy as np

State = tuple[Any, ...]


class TransitionSystem(Protocol):
    """What is searched. `broken` is a sum of 1 << i, for i a place in `promises`."""

    promises: Sequence[str]
    first: State

    def successors(self, state: State) -> list[tuple[Any, State]]:
        """(action, next state), for each action that is enabled."""

    def broken(self, state: State) -> int: ...

    def canonical(self, state: State) -> tuple[State, int]:
        """The one state that stands for its renamings, and how many they are."""

    def tables(self) -> Any:
        """What another process needs to understand states; None if nothing."""

    def learn(self, tables: Any) -> None: ...


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

    def __init__(self, make: Callable[[], TransitionSystem], symmetric: bool) -> None:
        self.system, self.symmetric = make(), symmetric
        self.level: list[State] = []
        self.fingerprints = np.empty(0, np.int64)
        self.offered: list[State] = []
        self.kept: list[State] = []
        self.kept_fingerprints: list[np.ndarray] = []
        self.fresh = self.fingerprints

    def expand(self, low: int, high: int) -> tuple[np.ndarray, np.ndarray, int]:
        """Fingerprints and parents of what follows the states between `low` and `high`."""
        start, end = np.searchsorted(self.fingerprints, (low, high))
        successors, count = self.system.successors, 0
        offers: dict[int, tuple[int, State]] = {}
        parents = self.fingerprints[start:end].tolist()
        for parent, state in zip(parents, self.level[start:end], strict=True):
            following = successors(state)
            count += len(following)
            for _, after in following:
                if self.symmetric:
                    after = self.system.canonical(after)[0]
                fingerprint = hash(after)
                if fingerprint not in offers:  # the first parent is the least
                    offers[fingerprint] = parent, after
        self.offered = [after for _, after in offers.values()]
        self.fresh = np.fromiter(offers, np.int64, len(offers))
        return (
            self.fresh,
            np.fromiter((p for p, _ in offers.values()), np.int64, len(offers)),
            count,
        )

    def keep(self, is_new: np.ndarray) -> tuple[int, dict[int, int]]:
        """How many states the new ones stand for, and the least fingerprint of each broken set."""
        new = [self.offered[i] for i in np.flatnonzero(is_new).tolist()]
        fresh = self.fresh[is_new]
        self.kept += new
        self.kept_fingerprints.append(fresh)
        self.offered = []
        wrong: dict[int, int] = {}
        broken = self.system.broken
        for state, fingerprint in zip(new, fresh.tolist(), strict=True):
            if bits := broken(state):
                wrong[bits] = min(wrong.get(bits, fingerprint), fingerprint)
        stands_for = len(new)
        if self.symmetric:
            stands_for = sum(self.system.canonical(state)[1] for state in new)
        return stands_for, wrong

    def descend(self) -> int:
        """Go on with the states that were kept: so many."""
        fingerprints = np.concatenate([np.empty(0, np.int64), *self.kept_fingerprints])
        order = np.argsort(fingerprints)
        self.level = [self.kept[i] for i in order.tolist()]
        self.fingerprints = fingerprints[order]
        self.kept, self.kept_fingerprints = [], []
        return len(self.level)

    def left(self, low: int) -> tuple[Any, list[State], list[State]]:
        """All that is needed to go on elsewhere from `low` on."""
        start = int(np.searchsorted(self.fingerprints, low))
        return self.system.tables(), self.level[start:], self.kept

    def take(self, tables: Any, level: list[State], kept: list[State]) -> None:
        self.system.learn(tables)
        self.kept, self.kept_fingerprints = level, [fingerprints_of(level)]
        self.descend()
        self.kept, self.kept_fingerprints = kept, [fingerprints_of(kept)]

    def memory(self) -> int:
        return resident_bytes()

    def counts(self) -> dict[str, int]:
        return getattr(self.system, "counts", dict)()


def fingerprints_of(states: list[State]) -> np.ndarray:
    return np.fromiter(map(hash, states), np.int64, len(states))


class Here:
    """A part in this process, with the manners of one in another."""

    def __init__(self, *how: Any) -> None:
        self.part = Share(*how)
        self.answers: list[Any] = []

    def ask(self, name: str, *values: Any) -> None:
        self.answers.append(getattr(self.part, name)(*values))

    def answer(self) -> Any:
        return self.answers.pop(0)

    def close(self) -> None:
        pass


class There:
    """A part in a process of its own."""

    def __init__(self, *how: Any) -> None:
        context = get_context()
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, *how), daemon=True)
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


def _serve(pipe: Any, *how: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process decides
    gc.disable()
    part = Share(*how)
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
