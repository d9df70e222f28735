"""Breadth-first search of a transition system: each state once, and the shortest way to a break.

Theory of operation. A state is a tuple of small things that hash alike in every process. What is
kept of each forever is its fingerprint and that of the state it was first reached from, 16 bytes;
whole states are kept for two levels only. A level is expanded in rounds, in the order of
fingerprints: each process expands the states that it found itself, and the first one, which knows
all fingerprints, says which of the states they offer are new. So no state ever travels, and the
numbers are the same for any number of processes. A schedule is found again from the chain of
fingerprints, by going the same way once more.

Two states of one fingerprint would count as one: `SearchEnd.collision_chance` says how likely that
is. With `symmetric` only one of the states that differ by a renaming is kept; the system says which
it is, and for how many it stands.

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
    SavedReader,
    State,
    There,
    TransitionSystem,
    Visited,
    fingerprints_of,
    resident_bytes,
)

ROUND = 20_000  # states that are expanded before their successors are compared
SPREAD = 2_000  # states of a level from which on several processes share it
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

    make: Callable[[], TransitionSystem]  # picklable, if processes cannot be forked
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
        self.parts: list[Any] = [Here(self.make, self.symmetric)]
        system = self.system
        first = system.canonical(system.first)[0] if self.symmetric else system.first
        self.parts[0].part.take(None, [first], [])
        self.visited.add(fingerprints_of([first]), fingerprints_of([first]))
        if self.symmetric:
            self.at.unreduced = system.canonical(first)[1]
        self._note(system.broken(first), hash(first), 1)

    @property
    def system(self) -> TransitionSystem:
        if isinstance(self.parts[0], Here):
            self._system = self.parts[0].part.system
        return self._system

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
        order = np.lexsort((parents, fingerprints))
        ordered = fingerprints[order]
        is_first = np.ones(len(order), bool)
        is_first[1:] = ordered[1:] != ordered[:-1]
        is_first[is_first] = ~self.visited.knows(ordered[is_first])
        self.visited.add(ordered[is_first], parents[order[is_first]])
        is_new = np.zeros(len(order), bool)
        is_new[order[is_first]] = True
        ends = np.cumsum([len(each) for each, _, _ in offers])[:-1]
        for part, news in zip(self.parts, np.split(is_new, ends), strict=True):
            part.ask("keep", news)
        for stands_for, wrong in (part.answer() for part in self.parts):
            self.at.unreduced += stands_for
            for bits, fingerprint in wrong.items():
                self._note(bits, fingerprint, self.at.depth + 1)
        count = int(is_first.sum())
        self.at.distinct += count
        self.at.following += count

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
        states = [part.answer() for part in self.parts if part.ask("left", self.at.low) is None]
        level = [state for _, those, _ in states for state in those]
        kept = [state for _, _, those in states for state in those]
        self._deal([tables for tables, _, _ in states], level, kept, count)

    def _deal(self, tables: list[Any], level: list[State], kept: list[State], count: int) -> None:
        system = self.system
        for part in self.parts:
            part.close()
        self._system = system
        kind = Here if count == 1 else There
        self.parts = [kind(self.make, self.symmetric) for _ in range(count)]
        for i, part in enumerate(self.parts):
            for known in tables[:-1]:
                part.ask("take", known, [], [])
                part.answer()
            part.ask("take", tables[-1], level[i::count], kept[i::count])
        for part in self.parts:
            part.answer()

    # The way to a state

    def _schedule(self, fingerprint: int) -> list[Any]:
        chain, system = [fingerprint], self.system
        while (parent := self.visited.parent(chain[-1])) != chain[-1]:
            chain.append(parent)
        state, actions = system.first, []
        for wanted in chain[-2::-1]:
            for action, after in system.successors(state):
                if hash(system.canonical(after)[0] if self.symmetric else after) == wanted:
                    actions.append(action)
                    state = after
                    break
            else:
                raise RuntimeError("two states have had one fingerprint")
        return actions

    # Saved and continued

    def save(self, folder: Path, of: str = "") -> None:
        """Write all that is known; `of` says of which search."""
        folder.mkdir(parents=True, exist_ok=True)
        runs = {f"{name}{i}": column for i, run in enumerate(self.visited.runs)
                for name, column in zip("fp", run, strict=True)}  # fmt: skip
        states = self._ask_all("left", self.at.low)
        for name, data in zip(_FILES, (runs, (of, self.at, states)), strict=True):
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
            saved_of, at, states = SavedReader(file).load()
        if saved_of != of:
            raise ValueError(f"{folder} holds another search: {saved_of}")
        with np.load(folder / _FILES[0]) as runs:
            self.visited.runs = [
                (runs[f"f{i}"], runs[f"p{i}"]) for i in range(len(runs.files) // 2)
            ]
        self.at = at
        level = [state for _, those, _ in states for state in those]
        kept = [state for _, _, those in states for state in those]
        for tables, _, _ in states:
            self.system.learn(tables)
        self._deal([tables for tables, _, _ in states], level, kept, 1)


def _on_interrupt(handler: Any) -> Any:
    """Only the main thread hears signals; elsewhere nothing is set."""
    try:
        return signal.signal(signal.SIGINT, handler)
    except ValueError:
        return None
