"""Numbers for components and transitions, looked up for many states at a time.

Theory of operation. A state is a row of numbers, one for the component in each `slot` of a system.
A rule reads a few slots and gives the enabled actions, each with its transitions. A transition
gives one slot's new component, and others to do before or after the rest of the action's. An
invariant reads a few slots and gives the broken promises. These are plain functions, each computed
once for given components; then the answer is a number in a table. `compiled.py` looks up all rows,
in any number of threads, and notes missing entries; when all threads are done, these are computed
here, and the threads continue.

A component's number is valid only in this process. Its fingerprint is a hash of its content. A
state's is the sum of its components' fingerprints, each times an odd number for its slot, modulo
2**64: equal in every process, and cheap to update when one slot changes.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

import numpy as np

from isrlab_proof.search import compiled
from isrlab_proof.search.compiled import BITS, EMPTY, IN_KEY, MOST, UNKNOWN, Arrays, Successors

ROOM = 1 << 16  # minimum space for the successors of a part of the rows
NOTES = 1 << 14  # missing entries noted in one pass
Component = Hashable  # of a state, or a view of one
Transition = tuple[Any, ...]  # its name, and values
AtSlot = tuple[int, Transition]  # with its slot
Transitions = tuple[AtSlot, ...]
Actions = Iterable[tuple[str, Transitions]]  # that are enabled, by name


class Read(NamedTuple):
    """What a rule sees of a slot: the component, or `view` of it."""

    slot: int
    view: Callable[[Any], Component] | None = None


class Query(NamedTuple):
    reads: tuple[Read, ...]
    answer: Callable[..., Actions | int]  # for an invariant the broken promises, as bits


class Next(NamedTuple):
    """What a transition leads to: `first` is done before the rest of the action, `last` after."""

    component: Component
    first: Transitions = ()
    last: Transitions = ()


class System(Protocol):
    """A system to search. `contexts` has what the transitions of each slot see besides it."""

    promises: Sequence[str]
    first: Sequence[Component]  # by slot
    rules: Sequence[Query]
    invariants: Sequence[Query]
    contexts: Sequence[Read | None]
    ends: Transitions  # those that stay last in their action

    def transit(
        self, transition: Transition, component: Component, context: Component
    ) -> Next | None:
        """The effect on a component; None if the action is impossible."""

    def content(self, component: Component) -> bytes:
        """Bytes that are equal in every process, and different for different components."""


class GrowingArray:
    """An array to which rows are added."""

    def __init__(self, columns: int = 0, kind: Any = np.int32) -> None:
        self.rows = np.zeros((1024, columns) if columns else 1024, kind)
        self.count, self.added = 0, list[Any]()

    def append(self, row: Any) -> int:
        """Add a row; returns its number."""
        self.added.append(row)
        self.count += 1
        return self.count - 1

    @property
    def all(self) -> np.ndarray:
        """The rows, those just added included, and space for others."""
        if self.added:  # many at a time: an array takes single rows slowly
            while self.count > len(self.rows):
                self.rows = np.concatenate([self.rows, np.zeros_like(self.rows)])
            self.rows[self.count - len(self.added) : self.count] = self.added
            self.added.clear()
        return self.rows


class Numbering:
    """Values by number, and numbers by value."""

    def __init__(self, *known: Hashable) -> None:
        self.values: list[Any] = []
        self.numbers: dict[Hashable, int] = {}
        for value in known:
            self(value)

    def __call__(self, value: Hashable, key: Hashable = None) -> int:
        key = value if key is None else key
        number = self.numbers.setdefault(key, len(self.values))
        if number == len(self.values):
            if number > MOST:
                raise MemoryError(f"a search has at most {MOST:,} different components")
            self.values.append(value)
        return number


class Tables:
    """A system with the tables of its transitions."""

    def __init__(self, system: System, workers: int = 1) -> None:
        self.system, self.workers = system, workers
        self.pool = ThreadPoolExecutor(workers) if workers > 1 else None
        self.components, self.contents = Numbering(), GrowingArray(kind=np.int64)
        self.transitions, self.names, self.views = Numbering(), Numbering(), Numbering()
        self.views(None, (type(None), None))  # types tell True from 1
        self.sequences, self.steps = Numbering(()), GrowingArray(3)
        self.steps.append((0, 0, 0))  # the empty sequence
        self.enabled, self.spans, self.actions = Numbering(), GrowingArray(2), GrowingArray(3)
        self.results = GrowingArray(3)
        self.functions = Numbering(None)  # of views
        self.entries, self.count = np.full((1 << 12, 3), EMPTY), 0
        self.asked = 0
        self.notes = [np.zeros((NOTES, 2), np.int64) for _ in range(workers)]
        self.answers: list[Callable[[tuple[int, ...]], int]] = [self._view, self._transit]
        self.reads: list[tuple[int, int]] = []
        self.rules = np.array([self._ruled(rule, self._enabled) for rule in system.rules])
        self.invariants = np.array([self._ruled(invariant, int) for invariant in system.invariants])
        self.read = np.array(self.reads)
        self.odds = np.array([_mixed(b"slot%d" % i) | 1 for i in range(len(system.first))])
        contexts = [read or Read(0) for read in system.contexts]
        self.contexts = np.array([(r.slot, self.functions(r.view)) for r in contexts])
        self.visible = np.full((len(self.functions.values), 1 << 10), UNKNOWN, np.int32)

    def close(self) -> None:
        if self.pool:
            self.pool.shutdown()

    def number(self, component: Component) -> int:
        """The number of a component, which may be new."""
        content = _mixed(self.system.content(component))
        number = self.components(component, content)
        if number == self.contents.count:
            self.contents.append(content)
        return number

    def row(self, components: Sequence[Component]) -> np.ndarray:
        return np.array([[self.number(component) for component in components]], np.int32)

    def state(self, row: np.ndarray) -> tuple[Component, ...]:
        return tuple(self.components.values[number] for number in row.tolist())

    def fingerprints(self, rows: np.ndarray) -> np.ndarray:
        prints = np.zeros(len(rows), np.int64)
        for slot, odd in enumerate(self.odds):
            prints += self.contents.all[rows[:, slot]] * odd
        return prints

    # Answers, each computed once

    def _ruled(self, rule: Query, number: Callable[..., int]) -> tuple[int, int, int]:
        """A rule's first read, end of reads, and table, after the tables that fold its reads."""
        start, table = len(self.reads), len(self.answers)
        self.reads += [(r.slot, self.functions(r.view)) for r in rule.reads]
        known: list[list[tuple[int, ...]]] = []
        size = len(rule.reads)
        while size > IN_KEY:
            known.append([])
            self.answers.append(partial(_folded, known[-1]))
            size -= IN_KEY - 1

        def answer(numbers: tuple[int, ...]) -> int:
            numbers = numbers[:size]
            for folds in reversed(known):
                numbers = *folds[numbers[0]], *numbers[1:]
            shown = [
                (self.components if r.view is None else self.views).values[n]
                for r, n in zip(rule.reads, numbers, strict=True)
            ]
            return number(rule.answer(*shown))

        self.answers.append(answer)
        return start, len(self.reads), table

    def _view(self, numbers: tuple[int, ...]) -> int:
        view, component = numbers[:2]
        shown = self.functions.values[view](self.components.values[component])
        self.visible[view, component] = number = self.views(shown, (type(shown), shown))
        return number

    def _enabled(self, actions: Actions) -> int:
        choices = []
        for name, sequence in actions:
            end = len(sequence) - any(step in self.system.ends for step in sequence[-1:])
            parts = self._sequence(sequence[:end]), self._sequence(sequence[end:])
            choices.append((self.names(name), *parts))
        number = self.enabled(tuple(choices))
        if number == self.spans.count:
            self.spans.append((self.actions.count, len(choices)))
            for choice in choices:
                self.actions.append(choice)
        return number

    def _sequence(self, sequence: Transitions) -> int:
        known = self.sequences.numbers.get(sequence) if sequence else 0
        if known is None:
            (slot, transition), tail = sequence[0], self._sequence(sequence[1:])
            self.steps.append((slot, self.transitions(transition), tail))
            known = self.sequences(sequence)
        return known

    def _transit(self, numbers: tuple[int, ...]) -> int:
        component, context = self.components.values[numbers[0]], self.views.values[numbers[2]]
        done = self.system.transit(self.transitions.values[numbers[1]], component, context)
        after, first, last = done or Next(None)
        number = self.number(after) if done else compiled.NEVER
        return self.results.append((number, self._sequence(first), self._sequence(last)))

    def _learn(self, notes: np.ndarray) -> None:
        """Compute the noted entries."""
        new = []
        for key, rest in dict.fromkeys(map(tuple, notes.tolist())):
            numbers = key >> BITS & MOST, key & MOST, rest >> 2 * BITS, rest >> BITS & MOST
            table = key >> 2 * BITS
            value = self.answers[table]((*numbers, rest & MOST))
            if table != compiled.VIEW:
                new.append((key, rest, value))
        self.count += len(new)
        if 3 * self.count > len(self.entries):
            entries = np.full((1 << (4 * self.count).bit_length(), 3), EMPTY)
            compiled.put(entries, self.entries)
            self.entries = entries
        if new:
            compiled.put(self.entries, np.array(new))

    def _arrays(self) -> Arrays:
        if self.visible.shape[1] < len(self.contents.all):
            wider = np.full((len(self.visible), len(self.contents.all)), UNKNOWN, np.int32)
            wider[:, : self.visible.shape[1]] = self.visible
            self.visible = wider
        return Arrays(
            self.entries, self.visible, self.contents.all, self.odds, self.contexts,
            self.read, self.rules, self.invariants, self.spans.all, self.actions.all,
            self.steps.all, self.results.all,
        )  # fmt: skip

    # Transitions

    def _until_done(self, kernel: Callable[..., int], count: int) -> None:
        """Repeat `kernel` until no rows are left, learning the entries that it missed."""
        parts = np.array_split(np.arange(count, dtype=np.int32), self.workers)
        while parts := [part for part in parts if len(part)]:
            run = partial(kernel, self._arrays())
            each = (self.pool.map if self.pool else map)(run, parts, self.notes)
            parts = [part[:left] for part, left in zip(parts, each, strict=True)]
            notes = []
            for those in self.notes:
                notes.append(those[1 : those[0, 0] + 1].copy())
                self.asked += int(those[0, 1])
                those[0] = 0
            self._learn(np.concatenate(notes))

    def expand(self, rows: np.ndarray, prints: np.ndarray) -> Successors:
        """All successors, ordered by the index of their predecessor."""
        offered: list[Successors] = []

        def kernel(arrays: Arrays, todo: np.ndarray, notes: np.ndarray) -> int:
            room = max(ROOM, 4 * len(todo))
            out = Successors(
                np.empty(room, np.int32), np.empty(room, np.int32),
                np.empty((room, rows.shape[1]), np.int32), np.empty(room, np.int64),
            )  # fmt: skip
            later = np.empty(2 * compiled.MOST_STEPS, np.int64)
            count, left = compiled.expand(arrays, rows, prints, todo, out, later, notes)
            offered.append(Successors(*(column[:count] for column in out)))
            return left

        self._until_done(kernel, len(rows))
        columns = [np.concatenate(column) for column in zip(*offered, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        return Successors(*(column[order] for column in columns))

    def successors(self, state: Sequence[Component]) -> list[tuple[str, tuple[Component, ...]]]:
        """(name, next state) for all successors of one state."""
        row = self.row(state)
        _, actions, rows, _ = self.expand(row, self.fingerprints(row))
        return [
            (self.name(action), self.state(row)) for action, row in zip(actions, rows, strict=True)
        ]

    def name(self, action: int) -> str:
        return self.names.values[self.actions.all[action, 0]]

    def broken(self, rows: np.ndarray) -> np.ndarray:
        """For each row the sum of 1 << i over its broken promises."""
        bits = np.zeros(len(rows), np.int64)

        def kernel(arrays: Arrays, todo: np.ndarray, notes: np.ndarray) -> int:
            return compiled.judge(arrays, rows, bits, todo, notes)

        self._until_done(kernel, len(rows))
        return bits


def _folded(known: list[tuple[int, ...]], numbers: tuple[int, ...]) -> int:
    """Remember the numbers of a rule's first reads; returns the number of this combination."""
    known.append(numbers)
    if len(known) > MOST:
        raise MemoryError(f"a rule reads more than {MOST:,} different states")
    return len(known) - 1


def _mixed(content: bytes) -> int:
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little", signed=True)
