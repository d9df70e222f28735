"""Verdicts: computed from what a source claims and what was measured, and from nothing else.

A claim is taken apart into statements, a statement into cases: in this release (or situation) the
source claims one value, and the run gives another or the same. The verdict says which cases agree:
all, none, those of some releases, those of some situations. What no run can decide is a matter of
record, and says where it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import groupby

from isrlab.engine.versions import GENERATIONS

Value = int | str | range  # a range is claimed only


class Kind(Enum):
    """The classes of verdicts, best first."""

    RIGHT = "right"
    SOME_VERSIONS = "right in some versions"
    PARTLY = "partly right"
    WRONG = "wrong"
    NOTE = "a matter of record"


class By(Enum):
    """What the cases of a statement are."""

    VERSION = "version"  # releases, in order
    SITUATION = "situation"
    QUESTION = "question"  # the source asks, the run answers
    RECORD = "record"  # no run: a citation


@dataclass(frozen=True, eq=False)
class Case:
    """What the source says of one release or situation, and what shows what is so there."""

    where: str
    claimed: Value
    measure: Callable[[], Value]

    @cached_property
    def measured(self) -> Value:
        return self.measure()

    @property
    def agrees(self) -> bool:
        if isinstance(self.claimed, range):
            return self.measured in self.claimed
        return self.measured == self.claimed


@dataclass(frozen=True, eq=False)
class Statement:
    """One thing that a source says, with its cases; `says` is a few words."""

    says: str
    cases: Sequence[Case] = ()
    by: By = By.VERSION
    citation: str = ""

    @property
    def kind(self) -> Kind:
        if self.by in (By.QUESTION, By.RECORD):
            return Kind.NOTE
        agree = [case.agrees for case in self.cases]
        if len(set(agree)) == 1:
            return Kind.RIGHT if agree[0] else Kind.WRONG
        return Kind.SOME_VERSIONS if self.by == By.VERSION else Kind.PARTLY

    @property
    def word(self) -> str:
        """The verdict on this statement, in a few words."""
        if self.by == By.RECORD:
            return f"{Kind.NOTE.value} ({self.citation})"
        if self.by == By.QUESTION:
            return f"the answer is {joined(dict.fromkeys(str(c.measured) for c in self.cases))}"
        if self.kind == Kind.SOME_VERSIONS:
            return f"right {spans([(c.where, c.agrees) for c in self.cases])} only"
        if self.kind == Kind.PARTLY:
            return f"right only: {joined(c.where for c in self.cases if c.agrees)}"
        return "off by one" if self.is_off_by_one else self.kind.value

    @property
    def is_off_by_one(self) -> bool:
        """Every number differs by one: the counting differs, not the mechanism."""
        pairs = [(case.claimed, case.measured) for case in self.cases]
        return all(isinstance(a, int) and isinstance(b, int) and abs(a - b) == 1 for a, b in pairs)

    @property
    def groups(self) -> Iterator[tuple[str, Case]]:
        """The cases; successive releases that say the same are one: "0.8.2-2.4"."""
        for _, group in groupby(self.cases, key=lambda c: (c.claimed, c.measured)):
            cases = list(group)
            if self.by == By.SITUATION:
                yield from ((case.where, case) for case in cases)
            else:
                ends = cases[0].where.split("-")[0], cases[-1].where.split("-")[-1]
                yield "-".join(dict.fromkeys(ends)), cases[0]

    @property
    def printed(self) -> str:
        """The verdict, and what was measured where."""
        groups = list(self.groups)
        width = max((len(where) for where, _ in groups), default=0)
        lines = [self.word]
        for where, case in groups:
            is_right = case.agrees or self.by == By.QUESTION
            note = "" if is_right else f" (claimed: {in_words(case.claimed)})"
            lines.append(f"  {where:{width}}  {case.measured}{note}")
        return "\n".join(lines)


def kind_of(statements: Iterable[Statement]) -> Kind:
    """The class of a claim that is made of these statements; matters of record do not count."""
    kinds = {s.kind for s in statements} - {Kind.NOTE} or {Kind.NOTE}
    if len(kinds) == 1:
        return kinds.pop()
    return Kind.SOME_VERSIONS if kinds == {Kind.RIGHT, Kind.SOME_VERSIONS} else Kind.PARTLY


def in_words(value: Value) -> str:
    return f"{value.start} to {value.stop - 1}" if isinstance(value, range) else str(value)


def spans(releases: Sequence[tuple[str, bool]]) -> str:
    """Where something holds, of (releases, whether it does) in order: "up to 2.0"."""
    names = [name for name, _ in releases]
    parts, place = [], 0
    for holds, group in groupby(holds for _, holds in releases):
        first, place = place, place + len(list(group))
        if holds:
            parts.append(_span(names, first, place - 1))
    return joined(parts) if parts else "nowhere"


def _span(names: list[str], first: int, last: int) -> str:
    start, end = names[first].split("-")[0], names[last].split("-")[-1]
    if first == 0 and start == GENERATIONS[0].releases:
        return f"up to {end}"
    if last == len(names) - 1:
        return f"from {start} on"
    return f"in {start}-{end}" if start != end else f"in {start}"


def joined(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
