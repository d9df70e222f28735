"""Breadth-first search of a transition system: visits each state once, finds shortest breaks.

Theory of operation. A state is a row of numbers (`tables.py`). For each state the search keeps its
fingerprint, in a table at most 0.7 full, the state from which it was first reached, and the action
taken there: 17 to 22 bytes. Whole states are kept for two levels only. A level is expanded in
rounds, in the order in which its states were found, so the numbers do not depend on the number of
workers (threads, each of which expands a part of a round). A schedule is recovered by following its
path again from the first state.

Two states with equal fingerprints would count as one: `SearchEnd.collision_chance` is the chance of
that.

A search can be saved between two rounds and continued later, with any number of workers. It is
saved every `SAVE_EVERY_S`, and can be when its memory limit, Ctrl-C or SIGTERM stops it.
"""

from __future__ import annotations

import gc
import pickle
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from isrlab_proof.search import compiled
from isrlab_proof.search.tables import System, Tables

ROUND = 30_000  # states that are expanded before their successors are compared
FULL = 2**64
MOST_FULL, GROWTH, PIECE = 0.7, 1.4, 1 << 20  # for the table of fingerprints
SAVE_EVERY_S = 180  # a process that is killed loses no more
_FILES = "visited.npz", "level.pickle"
Piece = tuple[np.ndarray, np.ndarray]  # states of a level, and their fingerprints


@dataclass
class Extent:
    """The progress of a search. A level is all states at one distance from the first."""

    depth: int = 1  # levels, including the first state's
    distinct: int = 1
    transitions: int = 0
    seconds: float = 0.0
    level: int = 1  # states of this level
    done: int = 0  # expanded states of this level
    following: int = 0  # states of the next level, so far
    broken: dict[str, tuple[int, int]] = field(default_factory=dict)  # (depth, number of the state)
    memory: int = 0  # bytes


@dataclass(frozen=True)
class SearchEnd:
    """The result of a search."""

    progress: Extent
    ended: str  # "all", "broken", "memory", "stopped", "depth"
    schedules: dict[str, list[str]]  # the shortest actions to each broken promise
    counts: dict[str, int]  # transitions requested, and computed

    @property
    def collision_chance(self) -> float:
        """The chance that two states shared a fingerprint, if fingerprints are random."""
        return self.progress.distinct * (self.progress.distinct - 1) / 2 / FULL

    @property
    def rate(self) -> float:
        """Distinct states a second."""
        return self.progress.distinct / max(self.progress.seconds, 1e-9)


class Visited:
    """The states so far: their fingerprints, and how each was first reached."""

    def __init__(self) -> None:
        self.prints, self.count = np.zeros(1 << 12, np.int64), 0
        self.ways = np.zeros((1 << 12, 2), np.uint32)  # (state, action) that led to each

    def add(self, prints: np.ndarray) -> np.ndarray:
        """Add fingerprints; returns the indices of those that are new."""
        fresh = np.empty(len(prints), np.int64)
        if self.count + len(prints) > MOST_FULL * len(self.prints):
            old, need = self.prints, (self.count + len(prints)) / MOST_FULL
            self.prints = np.zeros(int(max(GROWTH * len(old), need)), np.int64)
            for start in range(0, len(old), PIECE):
                part = old[start : start + PIECE]
                compiled.insert(self.prints, part[part != 0], np.empty(PIECE, np.int64))
        return fresh[: compiled.insert(self.prints, prints, fresh)]

    def reached(self, sources: np.ndarray, actions: np.ndarray) -> None:
        """Note how the new states were reached."""
        start, self.count = self.count, self.count + len(sources)
        if self.count > len(self.ways):
            more = int(max(GROWTH * len(self.ways), self.count))
            self.ways.resize((more, 2), refcheck=False)
        self.ways[start : self.count, 0], self.ways[start : self.count, 1] = sources, actions


@dataclass
class BreadthFirst:
    """A search of a system, with its workers and its limits."""

    make: Callable[[], System]
    workers: int = 1
    stops: bool = True  # after the first level in which a promise is broken
    wanted: tuple[str, ...] = ()  # only these promises; empty: all of them
    most_bytes: float = float("inf")
    most_depth: int = 1 << 30
    tell: Callable[[Extent], None] = lambda progress: None
    round: int = ROUND
    kept: Callable[[BreadthFirst], None] | None = None  # saves it, every `SAVE_EVERY_S`

    def __post_init__(self) -> None:
        self.visited = Visited()
        self.at = Extent()
        self.tables = Tables(self.make(), self.workers)
        first = self.tables.row(self.tables.system.first)
        prints = self.tables.fingerprints(first)
        self.first = first, prints
        self.level, self.following = [self.first], list[Piece]()
        self.visited.add(prints)
        self.visited.reached(np.zeros(1), np.zeros(1))
        self._note(self.tables.broken(first), 0, 1)

    def run(self) -> SearchEnd:
        """Continue the search. Ctrl-C or SIGTERM ends it between two rounds; then save or
        continue it."""
        began = saved = time.perf_counter()
        before, was_on, ended = self.at.seconds, gc.isenabled(), "all"
        gc.disable()
        interrupts: list[int] = []
        former = _on_interrupt([lambda *_: interrupts.append(1)] * 2)
        try:
            for _ in self._rounds():
                self.at.seconds = before + time.perf_counter() - began
                self.tell(self.at)
                if interrupts or self.at.memory > self.most_bytes:
                    ended = "stopped" if interrupts else "memory"
                    break
                if self.kept and time.perf_counter() - saved > SAVE_EVERY_S:
                    self.kept(self)
                    saved = time.perf_counter()
            else:
                if self.at.level:
                    ended = "broken" if self.stops and self.at.broken else "depth"
            self.at.seconds = before + time.perf_counter() - began
            counts = {"steps": self.tables.asked, "computed": self.tables.results.count}
            schedules = {name: self._schedule(end) for name, (_, end) in self.at.broken.items()}
        finally:
            _on_interrupt(former)
            if was_on:
                gc.enable()
        return SearchEnd(self.at, ended, schedules, counts)

    def close(self) -> None:
        self.tables.close()

    def _rounds(self) -> Iterator[None]:
        """Expand level by level, in rounds, until the search ends."""
        at = self.at
        while at.level:
            if not at.done and (at.depth >= self.most_depth or (self.stops and at.broken)):
                return
            while self.level:
                self._round(*self._taken())
                at.memory = resident_bytes()
                yield
            self.level, self.following = self.following, []
            at.level, at.following, at.done = at.following, 0, 0
            at.depth += bool(at.level)

    def _taken(self) -> Piece:
        """The next states to expand."""
        pieces, room = list[Piece](), self.round
        while self.level and room:
            rows, prints = self.level.pop(0)
            pieces.append((rows[:room], prints[:room]))
            if len(rows) > room:
                self.level.insert(0, (rows[room:], prints[room:]))
            room -= len(pieces[-1][0])
        rows, prints = map(np.concatenate, zip(*pieces, strict=True))
        return rows, prints

    def _round(self, rows: np.ndarray, prints: np.ndarray) -> None:
        at, count = self.at, len(rows)
        start = at.distinct - at.following - at.level + at.done  # the first state's number
        offered = self.tables.expand(rows, prints)
        fresh = self.visited.add(offered.prints)
        source = offered.place[fresh]
        self.visited.reached(source + start, fresh - np.searchsorted(offered.place, source))
        rows = offered.rows[fresh]
        self.following += [(rows, offered.prints[fresh])] if len(rows) else []
        self._note(self.tables.broken(rows), at.distinct, at.depth + 1)
        at.done += count
        at.transitions += len(offered.place)
        at.distinct += len(rows)
        at.following += len(rows)

    def _note(self, bits: np.ndarray, start: int, depth: int) -> None:
        for place in np.flatnonzero(bits).tolist():
            for i, name in enumerate(self.tables.system.promises):
                if bits[place] >> i & 1 and (not self.wanted or name in self.wanted):
                    self.at.broken.setdefault(name, (depth, start + place))

    # The path to a state

    def _schedule(self, number: int) -> list[str]:
        ways, (rows, prints), actions = [], self.first, []
        while number:
            number, way = self.visited.ways[number].tolist()
            ways.append(way)
        for way in reversed(ways):
            offered = self.tables.expand(rows, prints)
            actions.append(self.tables.name(offered.action[way]))
            rows, prints = offered.rows[way : way + 1], offered.prints[way : way + 1]
        return actions

    # Saved and continued

    def save(self, folder: Path, of: str = "") -> None:
        """Save the search; `of` identifies it."""
        folder.mkdir(parents=True, exist_ok=True)
        rows = np.concatenate([rows for rows, _ in (*self.level, *self.following)])
        numbers, places = np.unique(rows, return_inverse=True)
        components = [self.tables.components.values[n] for n in numbers.tolist()]
        known = self.visited.prints[self.visited.prints != 0]
        arrays = {"prints": known, "ways": self.visited.ways[: len(known)]}
        arrays |= {"rows": places.reshape(rows.shape).astype(np.int32)}
        for name, data in zip(_FILES, (arrays, (of, self.at, components)), strict=True):
            part = folder / f"{name}.part"
            with part.open("wb") as file:
                if name == _FILES[0]:
                    np.savez(file, **data)  # type: ignore[arg-type]
                else:
                    pickle.dump(data, file, protocol=5)
            part.replace(folder / name)

    def load(self, folder: Path, of: str = "") -> None:
        """Load a saved search. Raises ValueError if there is none, or a different one."""
        if not (folder / _FILES[1]).is_file():
            raise ValueError(f"no search is saved in {folder}")
        with (folder / _FILES[1]).open("rb") as file:
            saved_of, at, components = SavedReader(file).load()
        if saved_of != of:
            raise ValueError(f"{folder} holds another search: {saved_of}")
        numbers = np.array([self.tables.number(component) for component in components], np.int32)
        with np.load(folder / _FILES[0]) as saved:
            rows, ways = numbers[saved["rows"]], saved["ways"]
            self.visited = Visited()
            self.visited.add(saved["prints"])
        self.visited.reached(*ways.T)
        prints = self.tables.fingerprints(rows)
        left = at.level - at.done
        self.at, self.level = at, [(rows[:left], prints[:left])] if left else []
        self.following = [(rows[left:], prints[left:])] if len(rows) > left else []


def _on_interrupt(handlers: Sequence[Any]) -> list[Any]:
    """Install handlers of Ctrl-C and SIGTERM; returns the former, none outside the main thread."""
    try:
        return [*map(signal.signal, (signal.SIGINT, signal.SIGTERM), handlers)]
    except ValueError:
        return []


def resident_bytes() -> int:
    """The memory of this process."""
    try:
        pages = Path("/proc/self/statm").read_text("ascii").split()[1]
        return int(pages) * 4_096
    except OSError:  # not Linux: the peak
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024


class SavedReader(pickle.Unpickler):
    """Reads files that `save` wrote, and loads only classes of isrlab."""

    def find_class(self, module: str, name: str) -> Any:
        is_own = module.startswith(("isrlab.", "isrlab_proof."))
        if is_own and isinstance(known := super().find_class(module, name), type):
            return known
        raise pickle.UnpicklingError(f"{module}.{name} is not expected there")
