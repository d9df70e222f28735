"""Verdicts, computed only from a source's claims and the measured values.

A claim is split into statements, and a statement into cases: for a release (or situation)
the source claims a value, and a run gives one. The verdict says which cases agree:
all, none, those of some releases, those of some situations. A statement that no run can decide is a
matter of record, and cites its source.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import groupby

from isrlab.engine.versions import GENERATIONS

Answer = int | str | range  # a range is only claimed, never measured


class Kind(Enum):
    """The classes of verdicts, best first."""

    RIGHT = "right"
    SOME_VERSIONS = "right in some releases"
    PARTLY = "partly right"
    WRONG = "wrong"
    NOTE = "a matter of record"


@dataclass(frozen=True, eq=False)
class ClaimedCase:
    """The source's value for one release or situation, and the measured one."""

    where: str
    claimed: Answer
    measure: Callable[[], Answer]

    @cached_property
    def measured(self) -> Answer:
        return self.measure()

    @property
    def agrees(self) -> bool:
        claimed = self.claimed
        return self.measured in (claimed if isinstance(claimed, range) else (claimed,))


@dataclass(frozen=True, eq=False)
class Assertion:
    """A statement of a source, with its cases; `says` summarises it."""

    says: str
    cases: Sequence[ClaimedCase] = ()
    citation: str = ""  # the source of a statement that no run can decide
    is_by_release: bool = True  # the cases are releases in order, not situations

    @property
    def is_question(self) -> bool:
        """Whether the source asks and the run answers."""
        return any(case.claimed == "?" for case in self.cases)

    @property
    def kind(self) -> Kind:
        if self.citation or self.is_question:
            return Kind.NOTE
        agree = {case.agrees for case in self.cases}
        if len(agree) == 1:
            return Kind.RIGHT if agree.pop() else Kind.WRONG
        return Kind.SOME_VERSIONS if self.is_by_release else Kind.PARTLY

    @property
    def word(self) -> str:
        """The verdict on this statement, in a few words."""
        if self.citation:
            return f"{Kind.NOTE.value} ({self.citation})"
        if self.is_question:
            return f"the answer is {_joined(dict.fromkeys(str(c.measured) for c in self.cases))}"
        if self.kind == Kind.SOME_VERSIONS:
            return f"right {spans([(c.where, c.agrees) for c in self.cases])} only"
        if self.kind == Kind.PARTLY:
            return f"right only: {_joined(c.where for c in self.cases if c.agrees)}"
        pairs = [(case.claimed, case.measured) for case in self.cases]
        are_near = (isinstance(a, int) and isinstance(b, int) and abs(a - b) == 1 for a, b in pairs)
        return "off by one" if all(are_near) else self.kind.value

    @property
    def printed(self) -> str:
        """The verdict with the measured values; releases with the same value share a line."""
        rows = {case.where: case for case in self.cases}
        if self.is_by_release:
            groups = groupby(self.cases, key=lambda c: (c.claimed, c.measured))
            same = (list(group) for _, group in groups)
            rows = {_range([case.where for case in cases]): cases[0] for cases in same}
        width = max(map(len, rows), default=0)
        lines = [self.word]
        for where, case in rows.items():
            limits = case.claimed
            words = _range(limits, " to ") if isinstance(limits, range) else limits
            note = "" if case.agrees or self.is_question else f" (claimed: {words})"
            lines.append(f"  {where:{width}}  {case.measured}{note}")
        return "\n".join(lines)


def kind_of(statements: Iterable[Assertion]) -> Kind:
    """The class of a claim that is made of these statements; matters of record do not count."""
    kinds = {s.kind for s in statements} - {Kind.NOTE} or {Kind.NOTE}
    if len(kinds) == 1:
        return kinds.pop()
    return Kind.SOME_VERSIONS if kinds == {Kind.RIGHT, Kind.SOME_VERSIONS} else Kind.PARTLY


def spans(releases: Sequence[tuple[str, bool]]) -> str:
    """Where something holds, of (releases, whether it does) in order: "up to 2.0"."""
    parts = []
    for holds, group in groupby(releases, key=lambda pair: pair[1]):
        names = [name for name, _ in group]
        if holds and names[0] == releases[0][0] == GENERATIONS[0].releases:
            parts.append(f"up to {names[-1].split('-')[-1]}")
        elif holds and names[-1] == releases[-1][0]:
            parts.append(f"from {names[0].split('-')[0]} on")
        elif holds:
            parts.append(f"in {_range(names)}")
    return _joined(parts or ["nowhere"])


def _range(names: Sequence[object], between: str = "-") -> str:
    """From the first to the last, which may be ranges of releases themselves: "0.8.2-2.4"."""
    ends = str(names[0]).split("-")[0], str(names[-1]).split("-")[-1]
    return between.join(dict.fromkeys(ends))


def _joined(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
