"""Numbered for things, and what follows from them, looked up for many states at a time.

Theory of operation. A state is a row of numbers, one for each component (`slot`) of a system. What
may happen is a list of rules: a rule reads a few slots and gives options, each a label and a chain
of operations. An operation is done on one slot: it gives the slot's new thing, and what is to be
done next, first of all or last. Rules, operations and laws are plain functions of things. Each is
computed once for the things that it is asked about; after that the answer is a number in a table,
and numpy looks up all rows at once.

A thing's number is only this process's. Its fingerprint is made from its content, and that of a
state is the sum of its things', times an odd number for each slot, modulo 2**64: the same
everywhere, and cheap to correct where one slot changes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

import numpy as np

from isrlab.search.lookup import BITS, MOST, Growing, Hashed, Numbered

_NEVER = -1
MOST_PASSES = 1_000  # of operations that one option causes
Doings = tuple[tuple[int, Hashable], ...]  # (slot, operation)
Choices = Sequence[tuple[Hashable, Doings]]  # (label, what is done)


class Sees(NamedTuple):
    """What a rule sees of a slot: the thing, or what `view` shows of it."""

    slot: int
    view: Callable[[Any], Hashable] | None = None


class Local(NamedTuple):
    reads: tuple[Sees, ...]
    answer: Callable[..., Any]  # Choices, or for a law the promises that are broken, as bits


class System(Protocol):
    """What is searched. `operate` gives (thing, operations to do first, and last), or None: the
    option cannot be had. `contexts` has for a slot what else its operations are given, or None."""

    promises: Any  # names
    first: Any  # a thing for each slot
    rules: Any  # Sequence[Local]
    laws: Any
    contexts: Any  # Sequence[Sees | None]
    renamings: Any  # (the slots in another order, and what renames a thing)
    ends: Any  # links of a chain that come after all that is done last

    def operate(
        self, operation: Any, thing: Any, context: Any
    ) -> tuple[Any, Doings, Doings] | None:
        """What it does to a thing."""

    def content(self, thing: Any) -> bytes:
        """Equal in every process, and different for what differs."""


class Tables:
    """A system with the tables of what follows from what."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.things, self.contents = Numbered(), Growing(np.uint64)
        self.operations, self.labels, self.views = Numbered(), Numbered(), Numbered()
        self.views(None, (type(None), None))  # True and 1 are two things
        self.chains = Numbered(())
        self.head_slot, self.head_operation, self.tail = Growing(), Growing(), Growing()
        for column in (self.head_slot, self.head_operation, self.tail):
            column.append(0)  # of the empty chain
        self.start, self.length = Growing(), Growing()  # of the options of a menu
        self.option_label, self.option_chain = Growing(), Growing()
        self.menus = Numbered()
        self.new, self.first, self.last = Growing(), Growing(), Growing()  # of results
        self.functions = Numbered(None)  # of views
        self.visible = np.full((1, 1 << 10), -1, np.int32)  # by view and thing
        self.result = Hashed(self._operate)
        self.join = Hashed(self._join)
        self.rules = [self._ruled(rule, self._menu) for rule in system.rules]
        self.laws = [self._ruled(law, int) for law in system.laws]
        self.odds = np.array([_odd(i) for i in range(len(system.first))], np.uint64)
        contexts = [read or Sees(0) for read in system.contexts]
        self.context_slot = np.array([read.slot for read in contexts])
        self.context_view = np.array([self.functions(r.view) for r in contexts])
        self.asked = self.computed = 0
        self.renamed = [Hashed(self._renaming(rename)) for _, rename in system.renamings]

    def number(self, thing: Any) -> int:
        """Of a thing, which may be new."""
        digest = blake2b(self.system.content(thing), digest_size=8).digest()
        content = int.from_bytes(digest, "little")
        count = self.contents.count
        number = self.things(thing, content)
        if number == count:
            self.contents.append(content)
        return number

    def row(self, things: Sequence[Any]) -> np.ndarray:
        return np.array([[self.number(thing) for thing in things]], np.int32)

    def state(self, row: np.ndarray) -> tuple[Any, ...]:
        return tuple(self.things.values[number] for number in row.tolist())

    def fingerprints(self, rows: np.ndarray) -> np.ndarray:
        parts = np.zeros(len(rows), np.uint64)
        for slot, odd in enumerate(self.odds):
            parts += self.contents.all[rows[:, slot]] * odd
        return parts.view(np.int64)

    # What is computed once

    def see(self, views: Any, things: np.ndarray) -> np.ndarray:
        """The numbers of what views show of things; `views` is one, or one for each thing."""
        shape = len(self.functions.values), len(self.contents.all)
        if self.visible.shape != shape:
            shown = np.full(shape, -1, np.int32)
            shown[: len(self.visible), : self.visible.shape[1]] = self.visible
            shown[0] = 0
            self.visible = shown
        numbers = self.visible[views, things]
        new = np.flatnonzero(numbers < 0)
        if len(new):
            of = np.broadcast_to(views, things.shape)[new].astype(np.int64)
            for key in np.unique(of << BITS | things[new]).tolist():
                thing = self.functions.values[key >> BITS](self.things.values[key & MOST])
                self.visible[key >> BITS, key & MOST] = self.views(thing, (type(thing), thing))
            numbers = self.visible[views, things]
        return numbers

    def _ruled(self, rule: Local, number: Callable[[Any], int]) -> tuple[Any, list[Hashed], Hashed]:
        """A rule's table, and those that make one number of two where it reads more than three."""
        reads = [(r.slot, self.functions(r.view)) for r in rule.reads]
        pairs: list[Hashed] = []
        known: list[list[int]] = []
        for _ in rule.reads[3:]:
            known.append([])
            pairs.append(Hashed(_pairing(known[-1])))

        def compute(key: int) -> int:
            numbers = [key >> 2 * BITS, key >> BITS & MOST, key & MOST][-min(3, len(reads)) :]
            for pair in reversed(known):
                both = pair[numbers[0]]
                numbers[:1] = [both >> BITS, both & MOST]
            shown = [
                (self.things if r.view is None else self.views).values[n]
                for r, n in zip(rule.reads, numbers, strict=True)
            ]
            return number(rule.answer(*shown))

        return reads, pairs, Hashed(compute)

    def ask(self, rule: tuple[Any, list[Hashed], Hashed], rows: np.ndarray) -> np.ndarray:
        reads, pairs, table = rule
        numbers = []
        for slot, view in reads:
            column = rows[:, slot]
            numbers.append((self.see(view, column) if view else column).astype(np.int64))
        for pair in pairs:
            numbers[:2] = [pair(numbers[0] << BITS | numbers[1]).astype(np.int64)]
        key = numbers[0]
        for column in numbers[1:]:
            key = key << BITS | column
        return table(key)

    def _menu(self, options: Choices) -> int:
        choices = tuple((self.labels(label), self._chain(chain)) for label, chain in options)
        count = len(self.menus.values)
        menu = self.menus(choices)
        if menu == count:
            self.start.append(self.option_label.count)
            self.length.append(len(choices))
            for label, chain in choices:
                self.option_label.append(label)
                self.option_chain.append(chain)
        return menu

    def _chain(self, chain: Doings) -> int:
        known = self.chains.numbers.get(chain)
        if known is not None:
            return known
        (slot, operation), tail = chain[0], self._chain(chain[1:])
        for column, number in (
            (self.head_slot, slot), (self.head_operation, self.operations(operation)),
            (self.tail, tail),
        ):  # fmt: skip
            column.append(number)
        return self.chains(chain)

    def _operate(self, key: int) -> int:
        value, operation, context = key >> 2 * BITS, key >> BITS & MOST, key & MOST
        thing, context = self.things.values[value], self.views.values[context]
        done = self.system.operate(self.operations.values[operation], thing, context)
        thing, first, last = done or (None, (), ())
        number = self.new.count
        self.new.append(self.number(thing) if done else _NEVER)
        self.first.append(self._chain(first))
        self.last.append(self._chain(last))
        self.computed += 1
        return number

    def _join(self, key: int) -> int:
        chains = self.chains.values
        first, rest = chains[key >> 2 * BITS], chains[key >> BITS & MOST]
        last = chains[key & MOST]
        ends = len(rest) - (bool(rest) and rest[-1] in self.system.ends)
        return self._chain((*first, *rest[:ends], *last, *rest[ends:]))

    def _renaming(self, rename: Callable[[Any], Any]) -> Callable[[int], int]:
        return lambda number: self.number(rename(self.things.values[number]))

    # What follows

    def expand(self, rows: np.ndarray, fingerprints: np.ndarray) -> tuple[np.ndarray, ...]:
        """(place of the state before, label, state, fingerprint) of all that may follow."""
        places, labels, chains = [], [], []
        for rule in self.rules:
            menus = self.ask(rule, rows)
            length = self.length.all[menus]
            place = np.flatnonzero(length)
            if not len(place):
                continue
            length, menus = length[place], menus[place]
            if length.max() == 1:
                option = self.start.all[menus]
            else:
                ends = np.cumsum(length)
                option = np.arange(ends[-1]) + np.repeat(
                    self.start.all[menus] - ends + length, length
                )
                place = np.repeat(place, length)
            places.append(place)
            labels.append(self.option_label.all[option])
            chains.append(self.option_chain.all[option])
        if not places:
            none = np.empty(0, np.int64)
            return none, none, rows[:0], none
        place, label, chain = map(np.concatenate, (places, labels, chains))
        after, prints = rows[place], fingerprints[place].view(np.uint64)
        is_there = self._run(after, prints, chain)
        if not is_there.all():
            place, label, after, prints = (x[is_there] for x in (place, label, after, prints))
        return place, label, after, prints.view(np.int64)

    def _run(self, rows: np.ndarray, prints: np.ndarray, chains: np.ndarray) -> np.ndarray:
        """Do what the chains say; False for the rows of which one cannot be done."""
        is_there = np.ones(len(rows), bool)
        active = np.flatnonzero(chains)
        chain = chains[active]
        for _ in range(MOST_PASSES):
            if not len(active):
                return is_there
            self.asked += len(active)
            slot, operation = self.head_slot.all[chain], self.head_operation.all[chain]
            chain, value = self.tail.all[chain], rows[active, slot]
            context = self.see(self.context_view[slot], rows[active, self.context_slot[slot]])
            key = (value.astype(np.int64) << 2 * BITS) | operation << BITS | context
            result = self.result(key)
            new, first, last = (x.all[result] for x in (self.new, self.first, self.last))
            is_never = new == _NEVER
            if is_never.any():
                is_there[active[is_never]] = False
                new[is_never], chain[is_never] = value[is_never], 0
            rows[active, slot] = new
            contents = self.contents.all
            prints[active] += (contents[new] - contents[value]) * self.odds[slot]
            more = np.flatnonzero(first | last)
            if len(more):
                keys = first[more] << 2 * BITS | chain[more] << BITS | last[more]
                chain[more] = self.join(keys)
            goes_on = chain != 0
            active, chain = active[goes_on], chain[goes_on]
        raise RuntimeError(f"an action of more than {MOST_PASSES} steps")

    def successors(self, state: Sequence[Any]) -> list[tuple[Any, tuple[Any, ...]]]:
        """(label, next state) for all that may follow one state."""
        row = self.row(state)
        _, labels, rows, _ = self.expand(row, self.fingerprints(row))
        return [
            (self.labels.values[label], self.state(after))
            for label, after in zip(labels.tolist(), rows, strict=True)
        ]

    def broken(self, rows: np.ndarray) -> np.ndarray:
        """For each row a sum of 1 << i, for each promise that does not hold."""
        bits = np.zeros(len(rows), np.int64)
        for law in self.laws:
            bits |= self.ask(law, rows)
        return bits

    def canonical(self, rows: np.ndarray, prints: np.ndarray) -> tuple[np.ndarray, ...]:
        """The renaming that stands for all of a state, its fingerprint, and how many they are."""
        every = [prints]
        for (slots, _), renamed in zip(self.system.renamings, self.renamed, strict=True):
            other = np.empty_like(rows)
            for slot, source in enumerate(slots):
                other[:, slot] = renamed(rows[:, source].astype(np.int64))
            theirs = self.fingerprints(other)
            every.append(theirs)
            is_less = theirs < prints
            rows = np.where(is_less[:, None], other, rows)
            prints = np.where(is_less, theirs, prints)
        kinds = np.sort(np.stack(every), axis=0)
        return rows, prints, 1 + (kinds[1:] != kinds[:-1]).sum(axis=0)


def _pairing(known: list[int]) -> Callable[[int], int]:
    """Numbered of pairs, in the order in which they come."""

    def number(key: int) -> int:
        known.append(key)
        if len(known) > MOST:
            raise MemoryError(f"a rule sees more than {MOST:,} pairs")
        return len(known) - 1

    return number


def _odd(slot: int) -> int:
    return int.from_bytes(blake2b(b"slot%d" % slot, digest_size=8).digest(), "little") | 1
