"""The work for each state: numbers looked up in tables, as machine code if numba is installed.

Without numba these functions run as Python, a hundred times slower. As machine code they release
Python's lock, so threads can run them together while no thread writes the tables. If an entry is
missing, it is noted, and its state is left to do; `tables.py` computes the entry and calls again.
"""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

IS_FAST = find_spec("numba") is not None
BITS = 21  # per number in a key
MOST = (1 << BITS) - 1
VIEW, RESULT = range(2)  # tables; rules have the others
IN_KEY = 5  # numbers in a key, after the table's number
EMPTY, UNKNOWN, NEVER = -1, -1, -1
MOST_STEPS = 1_000  # of an action
_MIX, _MIX_TOO = np.int64(-7046029254386353131), np.int64(-4417276706812531889)
_HALF = np.int64(0xFFFFFFFF)


Compiled = TypeVar("Compiled", bound=Callable[..., object])
TableNumber = int | np.int64


class Arrays(NamedTuple):
    """The current tables of `tables.py`."""

    entries: np.ndarray  # (key, rest of the key, value), by the key's hash
    visible: np.ndarray  # the number of each view of each component
    contents: np.ndarray  # fingerprints of components
    odds: np.ndarray  # odd factors of slots
    contexts: np.ndarray  # (slot, view) for each slot
    reads: np.ndarray  # (slot, view)
    rules: np.ndarray  # (first read, end of the reads, table)
    invariants: np.ndarray
    spans: np.ndarray  # (first action, how many) for each answer
    actions: np.ndarray  # (name, transitions, those that stay last)
    steps: np.ndarray  # (slot, transition, number of the rest) for each sequence of transitions
    results: np.ndarray  # (component, transitions to do first, those to do last)


class Successors(NamedTuple):
    """The successors of the expanded states."""

    place: np.ndarray  # of the predecessor
    action: np.ndarray
    rows: np.ndarray
    prints: np.ndarray


def _compiled(function: Compiled, inline: bool = True) -> Compiled:
    """Compile a function, without numba's reference counts, because nothing here allocates."""
    if not IS_FAST:
        return function if inline else np.errstate(over="ignore")(function)
    import numba

    how = {"forceinline": True} if inline else {"nogil": True, "cache": Path(__file__).is_file()}
    return numba.njit(_nrt=False, **how)(function)


_entry = partial(_compiled, inline=False)


@_compiled
def _place(entries: np.ndarray, key: TableNumber, rest: TableNumber) -> TableNumber:
    """The index of a key, or of the free place for it."""
    mixed = key * _MIX + rest * _MIX_TOO
    at = (mixed ^ (mixed >> 29)) & (len(entries) - 1)
    while entries[at, 0] != EMPTY and (entries[at, 0] != key or entries[at, 1] != rest):
        at = (at + 1) & (len(entries) - 1)
    return at


@_entry
def put(entries: np.ndarray, these: np.ndarray) -> None:
    for i in range(len(these)):
        if these[i, 0] != EMPTY:
            at = _place(entries, these[i, 0], these[i, 1])
            entries[at, 0], entries[at, 1], entries[at, 2] = these[i, 0], these[i, 1], these[i, 2]


@_compiled
def _note(missing: np.ndarray, key: TableNumber, rest: TableNumber) -> None:
    count = missing[0, 0]
    if count + 1 < len(missing):
        missing[count + 1, 0], missing[count + 1, 1] = key, rest
        missing[0, 0] = count + 1


@_compiled
def _look_up(
    entries: np.ndarray, key: TableNumber, rest: TableNumber, missing: np.ndarray
) -> TableNumber:
    """The value of a key; a missing key is noted in `missing`."""
    at = _place(entries, key, rest)
    if entries[at, 0] != EMPTY:
        return entries[at, 2]
    _note(missing, key, rest)
    return np.int64(UNKNOWN)


@_compiled
def _see(
    visible: np.ndarray, view: int, component: TableNumber, missing: np.ndarray
) -> TableNumber:
    shown = np.int64(visible[view, component])
    if shown == UNKNOWN:
        key = np.int64(VIEW) << 2 * BITS | np.int64(view) << BITS | np.int64(component)
        _note(missing, key, np.int64(0))
    return shown


@_compiled
def _ask(
    t: Arrays, rule: np.ndarray, rows: np.ndarray, place: int, missing: np.ndarray
) -> TableNumber:
    """The number of a rule's answer; reads that do not fit into one key are folded."""
    table, filled, is_known = np.int64(rule[2]), 0, True
    key, rest = table << 2 * BITS, np.int64(0)
    for i in range(rule[0], rule[1]):
        number: TableNumber = np.int64(rows[place, t.reads[i, 0]])
        view = t.reads[i, 1]
        if view:
            number = _see(t.visible, view, number, missing)
            is_known &= number != UNKNOWN
        if not is_known:
            continue
        if filled == IN_KEY:
            folded = _look_up(t.entries, key, rest, missing)
            if folded == UNKNOWN:
                return folded
            table += 1
            key, rest, filled = table << 2 * BITS | folded << BITS, np.int64(0), 1
        if filled < 2:
            key |= number << BITS * (1 - filled)
        else:
            rest |= number << BITS * (4 - filled)
        filled += 1
    return _look_up(t.entries, key, rest, missing) if is_known else np.int64(UNKNOWN)


@_compiled
def _run(
    t: Arrays, rest: TableNumber, end: TableNumber, rows: np.ndarray, n: int, later: np.ndarray,
    missing: np.ndarray,
) -> tuple[TableNumber, TableNumber]:  # fmt: skip
    """Apply transitions to a row. Returns 1, 0 if that is impossible, or -1 if an entry is missing,
    and the change of the fingerprint. Counts the transitions in `missing`."""
    added, head, tail = np.int64(0), MOST_STEPS, MOST_STEPS  # `later` from head to tail is to do
    for _ in range(MOST_STEPS):
        if not rest and head < tail:
            rest, head = later[head], head + 1
        elif not rest:
            rest, end = end, np.int64(0)
        if not rest:
            return np.int64(1), added
        missing[0, 1] += 1
        slot, transition, rest = t.steps[rest, 0], t.steps[rest, 1], t.steps[rest, 2]
        value, view = np.int64(rows[n, slot]), t.contexts[slot, 1]
        context: TableNumber = np.int64(0)
        if view:
            context = _see(t.visible, view, rows[n, t.contexts[slot, 0]], missing)
            if context == UNKNOWN:
                return context, added
        key = np.int64(RESULT) << 2 * BITS | value << BITS | np.int64(transition)
        result = _look_up(t.entries, key, context << 2 * BITS, missing)
        if result == UNKNOWN:
            return result, added
        new, first, last = t.results[result, 0], t.results[result, 1], t.results[result, 2]
        if new == NEVER:
            return np.int64(0), added
        rows[n, slot] = new
        added += (t.contents[new] - t.contents[value]) * t.odds[slot]
        if first and rest:
            head -= 1
            later[head] = rest
        if last:
            later[tail], tail = last, tail + 1
        rest = first or rest
    raise RuntimeError("an action has too many steps")


@_entry
def expand(
    t: Arrays, rows: np.ndarray, prints: np.ndarray, todo: np.ndarray, out: Successors,
    later: np.ndarray, missing: np.ndarray,
) -> tuple[int, int]:  # fmt: skip
    """Expand the rows in `todo`; returns the counts of successors and of rows left, now first."""
    count, left, is_full = 0, 0, False
    for n in range(len(todo)):
        place, before, is_whole = todo[n], count, not is_full
        for r in range(len(t.rules) if is_whole else 0):
            enabled = _ask(t, t.rules[r], rows, place, missing)
            if enabled == UNKNOWN:
                is_whole = False
                continue
            first = t.spans[enabled, 0]
            for action in range(first, first + t.spans[enabled, 1]):
                if count == len(out.place):
                    is_full, is_whole = True, False
                    break
                for slot in range(rows.shape[1]):
                    out.rows[count, slot] = rows[place, slot]
                _, rest, end = t.actions[action]
                done, added = _run(t, rest, end, out.rows, count, later, missing)
                if done == 1:
                    out.place[count], out.action[count] = place, action
                    out.prints[count] = prints[place] + added
                    count += 1
                elif done:
                    is_whole = False
        if not is_whole:
            count = before
            todo[left] = place
            left += 1
    return count, left


@_entry
def judge(
    t: Arrays, rows: np.ndarray, bits: np.ndarray, todo: np.ndarray, missing: np.ndarray
) -> int:
    """Set the bits of the promises that each row breaks; returns how many rows are left to do,
    which are then the first in `todo`."""
    left = 0
    for n in range(len(todo)):
        place, is_whole = todo[n], True
        for invariant in range(len(t.invariants)):
            answer = _ask(t, t.invariants[invariant], rows, place, missing)
            if answer == UNKNOWN:
                is_whole = False
            else:
                bits[place] |= answer
        if not is_whole:
            todo[left] = place
            left += 1
    return left


@_entry
def insert(known: np.ndarray, prints: np.ndarray, fresh: np.ndarray) -> int:
    """Add fingerprints to the table; returns the number of new ones, listed in `fresh`.

    The table is in order except for collisions, so copying it to a larger one is sequential.
    """
    count, size = 0, np.int64(len(known))
    for i in range(len(prints)):
        print_ = prints[i] if prints[i] else np.int64(1)
        at = ((print_ >> 32 & _HALF) * size) >> 32
        while known[at] != 0 and known[at] != print_:
            at = at + 1 if at + 1 < size else np.int64(0)
        if known[at] == 0:
            known[at] = print_
            fresh[count] = i
            count += 1
    return count
