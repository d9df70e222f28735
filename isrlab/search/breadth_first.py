"""Breadth-first search of a transition system: each state once, and the shortest way to a break.

Theory of operation. A state is a row of numbers (`tables.py`). What is kept of each forever is its
fingerprint and that of the state it was first reached from, 16 bytes; whole states are kept for two
levels only. A level is expanded in rounds, in the order of
fingerprints: each process expands the states that it found itself, and the first one, which knows
all fingerprints, says which of the states they offer are new. So no state ever travels, and the
numbers are the same for any number of processes. A schedule is found again from the chain of
fingerprints, by going the same way once more.

Two states of one fingerprint would count as one: `SearchEnd.collision_chance` says how likely that
is. With `symmetric` only one of the states that differ by a renaming is kept, that of the least
fingerprint.

A search that is stopped, by the memory it may use or by Ctrl-C, can be saved between two rounds
and continued later, by another number of processes.
"""

from __future__ import annotations

import gc
import pickle
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from isrlab.search.expanding import (
    Here,
    Packed,
    SavedReader,
    There,
    Visited,
    pack,
    resident_bytes,
    unpack,
)
from isrlab.search.tables import System, Tables

ROUND = 30_000  # states that are expanded before their successors are compared
SPREAD = 10_000  # states of a level from which on several processes share it
FULL = 2**64
_FILES = "fingerprints.npz", "states.pickle"


@dataclass
class Extent:
    """How far a search has come. A level is the states of one distance from the first."""

    depth: int = 1  # levels, with that of the first state
    distinct: int = 1
    unreduced: int = 1  # states that these stand for
    transitions: int = 0
    seconds: float = 0.0
    low: int = -FULL // 2  # fingerprints of this level below it are done
    level: int = 1  # states of this level
    following: int = 0  # and of the next, so far
    broken: dict[str, tuple[int, int]] = field(default_factory=dict)  # (depth, fingerprint)
    memory: int = 0  # bytes, of all processes


@dataclass(frozen=True)
class SearchEnd:
    """What a search has found out."""

    progress: Extent
    ended: str  # "all", "broken", "memory", "stopped", "depth"
    schedules: dict[str, list[Any]]  # the shortest actions to each broken promise
    counts: dict[str, int]  # the system's own figures

    @property
    def collision_chance(self) -> float:
        """That any two of the states had one fingerprint, if these are as good as random."""
        return self.progress.distinct * (self.progress.distinct - 1) / 2 / FULL

    @property
    def rate(self) -> float:
        """Distinct states a second."""
        return self.progress.distinct / max(self.progress.seconds, 1e-9)


@dataclass
class BreadthFirst:
    """A search: what, by how many processes, until when."""

    make: Callable[[], System]  # picklable, if processes cannot be forked
    workers: int = 1
    symmetric: bool = False
    stops: bool = True  # at the end of the level in which a promise is broken first
    wanted: tuple[str, ...] = ()  # only these promises are looked at; none named: all
    most_bytes: float = float("inf")
    most_depth: int = 1 << 30
    tell: Callable[[Extent], None] = lambda progress: None
    spread: int = SPREAD
    round: int = ROUND

    def __post_init__(self) -> None:
        self.visited = Visited()
        self.at = Extent()
        self.tables = Tables(self.make())
        self.parts: list[Any] = [Here(self.make, self.symmetric, self.tables)]
        first = self.tables.row(self.tables.system.first)
        prints = self.tables.fingerprints(first)
        if self.symmetric:
            first, prints, count = self.tables.canonical(first, prints)
            self.at.unreduced = int(count[0])
        nothing: Packed = ([], first[:0])
        self.parts[0].part.take(pack(self.tables, first), nothing)
        self.visited.add(prints, prints)
        self._note(int(self.tables.broken(first)[0]), int(prints[0]), 1)

    @property
    def system(self) -> Any:
        return self.tables.system

    def run(self) -> SearchEnd:
        """Search on. Ctrl-C ends it between two rounds, and it can be saved or run again."""
        began, before = time.perf_counter(), self.at.seconds
        was_on, ended = gc.isenabled(), "all"
        gc.disable()
        interrupts: list[int] = []
        former = _on_interrupt(lambda *_: interrupts.append(1))
        try:
            for _ in self._rounds():
                self.at.seconds = before + time.perf_counter() - began
                self.tell(self.at)
                if interrupts or self.at.memory > self.most_bytes:
                    ended = "stopped" if interrupts else "memory"
                    break
            else:
                if self.at.level:
                    ended = "broken" if self.stops and self.at.broken else "depth"
            self.at.seconds = before + time.perf_counter() - began
            counts: dict[str, int] = {}
            for each in self._ask_all("counts"):
                counts = {name: counts.get(name, 0) + value for name, value in each.items()}
            schedules = {name: self._schedule(end) for name, (_, end) in self.at.broken.items()}
        finally:
            _on_interrupt(former)
            if was_on:
                gc.enable()
        return SearchEnd(self.at, ended, schedules, counts)

    def close(self) -> None:
        for part in self.parts:
            part.close()

    def _rounds(self) -> Iterator[None]:
        """One level after the other, each in rounds; stops where the search is to end."""
        at = self.at
        while at.level and not (self.stops and at.broken and at.low == -FULL // 2):
            if at.depth >= self.most_depth and at.low == -FULL // 2:
                return
            if at.level >= self.spread and len(self.parts) < self.workers:
                self._share(self.workers)
            step = FULL // max(1, -(-at.level // self.round))
            while at.low < FULL // 2:
                high = min(at.low + step, FULL // 2)
                self._round(at.low, high)
                at.low = high
                at.memory = sum(self._ask_all("memory"))
                at.memory += 0 if isinstance(self.parts[0], Here) else resident_bytes()
                yield
            at.level, at.following, at.low = sum(self._ask_all("descend")), 0, -FULL // 2
            at.depth += bool(at.level)

    def _round(self, low: int, high: int) -> None:
        offers = self._ask_all("expand", low, min(high, FULL // 2 - 1))
        self.at.transitions += sum(count for _, _, count in offers)
        fingerprints = np.concatenate([each for each, _, _ in offers])
        parents = np.concatenate([each for _, each, _ in offers])
        if len(offers) > 1:
            order = np.lexsort((parents, fingerprints))
            ordered = fingerprints[order]
            is_first = np.append(True, ordered[1:] != ordered[:-1])[: len(order)]
            order = order[is_first]
        else:
            order = np.arange(len(fingerprints))
        order = order[~self.visited.knows(fingerprints[order])]
        self.visited.add(fingerprints[order], parents[order])
        is_new = np.zeros(len(fingerprints), bool)
        is_new[order] = True
        ends = np.cumsum([len(each) for each, _, _ in offers])[:-1]
        for part, news in zip(self.parts, np.split(is_new, ends), strict=True):
            part.ask("keep", news)
        for stands_for, wrong in (part.answer() for part in self.parts):
            self.at.unreduced += stands_for
            for bits, fingerprint in wrong.items():
                self._note(bits, fingerprint, self.at.depth + 1)
        self.at.distinct += len(order)
        self.at.following += len(order)

    def _ask_all(self, name: str, *values: Any) -> list[Any]:
        for part in self.parts:
            part.ask(name, *values)
        return [part.answer() for part in self.parts]

    def _note(self, bits: int, fingerprint: int, depth: int) -> None:
        for i, name in enumerate(self.system.promises):
            if bits >> i & 1 and (not self.wanted or name in self.wanted):
                known = self.at.broken.get(name, (depth, fingerprint))
                self.at.broken[name] = min(known, (depth, fingerprint))

    def _share(self, count: int) -> None:
        """Deal the states out to so many processes, or to this one."""
        level, kept = self._gathered()
        for part in self.parts:
            part.close()
        kind = Here if count == 1 else There
        self.parts = [kind(self.make, self.symmetric, self.tables) for _ in range(count)]
        for i, part in enumerate(self.parts):
            those = (pack(self.tables, rows[i::count]) for rows in (level, kept))
            part.ask("take", *those)
        for part in self.parts:
            part.answer()

    def _gathered(self) -> tuple[np.ndarray, ...]:
        """What is to be expanded, and what is kept for the next level, of all processes."""
        packed = zip(*self._ask_all("left", self.at.low), strict=True)
        return tuple(np.concatenate([unpack(self.tables, p) for p in each]) for each in packed)

    # The way to a state

    def _schedule(self, fingerprint: int) -> list[Any]:
        chain, tables = [fingerprint], self.tables
        while (parent := self.visited.parent(chain[-1])) != chain[-1]:
            chain.append(parent)
        row, actions = tables.row(tables.system.first), []
        for wanted in chain[-2::-1]:
            _, labels, rows, prints = tables.expand(row, tables.fingerprints(row))
            if self.symmetric:
                prints = tables.canonical(rows, prints)[1]
            at = np.flatnonzero(prints == wanted)
            if not len(at):
                raise RuntimeError("two states have had one fingerprint")
            actions.append(tables.labels.values[labels[at[0]]])
            row = rows[at[0] :][:1]
        return actions

    # Saved and continued

    def save(self, folder: Path, of: str = "") -> None:
        """Write all that is known; `of` says of which search."""
        folder.mkdir(parents=True, exist_ok=True)
        things, rows = pack(self.tables, np.concatenate(gathered := self._gathered()))
        arrays = {f"{name}{i}": column for i, run in enumerate(self.visited.runs)
                for name, column in zip("fp", run, strict=True)}  # fmt: skip
        arrays |= {"rows": rows, "level": np.array(len(gathered[0]))}
        for name, data in zip(_FILES, (arrays, (of, self.at, things)), strict=True):
            part = folder / f"{name}.part"
            with part.open("wb") as file:
                if name == _FILES[0]:
                    np.savez(file, **data)  # type: ignore[arg-type]
                else:
                    pickle.dump(data, file, protocol=5)
            part.replace(folder / name)

    def load(self, folder: Path, of: str = "") -> None:
        """Go on from what was saved. Raises ValueError if that was another search."""
        with (folder / _FILES[1]).open("rb") as file:
            saved_of, at, things = SavedReader(file).load()
        if saved_of != of:
            raise ValueError(f"{folder} holds another search: {saved_of}")
        with np.load(folder / _FILES[0]) as saved:
            count = sum(name[0] == "f" for name in saved.files)
            self.visited.runs = [(saved[f"f{i}"], saved[f"p{i}"]) for i in range(count)]
            rows, level = saved["rows"], int(saved["level"])
        self.at = at
        self.parts[0].part.take((things, rows[:level]), (things, rows[level:]))


def _on_interrupt(handler: Any) -> Any:
    """Only the main thread hears signals; elsewhere nothing is set."""
    try:
        return signal.signal(signal.SIGINT, handler)
    except ValueError:
        return None
