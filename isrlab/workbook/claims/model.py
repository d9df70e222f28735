"""A claim, the run that decides it, and a verdict that is computed from what the run showed.

Theory of operation. A claim is taken apart into statements, a statement into cases: in this release
(or in this situation) the source says that, and the run shows this. A case agrees if both are
equal. The verdict follows from which cases agree, and from nothing else: all, none, those of some
releases, those of some situations. What no run can decide is a matter of record, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

OLDEST = "0.8.2"


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


@dataclass(frozen=True, slots=True)
class Case:
    """What the source says of one release or situation, and what the run shows there."""

    where: str
    told: object
    shown: object

    @property
    def agrees(self) -> bool:
        return self.told == self.shown


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that a source says, with its cases; `says` is a few words."""

    says: str
    cases: tuple[Case, ...] = ()
    by: By = By.VERSION
    citation: str = ""

    @property
    def kind(self) -> Kind:
        if self.by in (By.QUESTION, By.RECORD):
            return Kind.NOTE
        if all(c.agrees for c in self.cases):
            return Kind.RIGHT
        if not any(c.agrees for c in self.cases):
            return Kind.WRONG
        return Kind.SOME_VERSIONS if self.by == By.VERSION else Kind.PARTLY

    @property
    def word(self) -> str:
        """The verdict on this statement, in a few words."""
        if self.by == By.RECORD:
            return f"{Kind.NOTE.value} ({self.citation})"
        if self.by == By.QUESTION:
            return f"the answer is {_joined(dict.fromkeys(str(c.shown) for c in self.cases))}"
        if self.kind == Kind.SOME_VERSIONS:
            return f"right {spans(self.cases)} only"
        if self.kind == Kind.PARTLY:
            return f"right only: {_joined(c.where for c in self.cases if c.agrees)}"
        return "off by one" if self.is_off_by_one else self.kind.value

    @property
    def is_off_by_one(self) -> bool:
        """Every number differs by one: the counting differs, not the mechanism."""
        pairs = [(c.told, c.shown) for c in self.cases]
        return bool(pairs) and all(
            type(told) is int and type(shown) is int and abs(told - shown) == 1
            for told, shown in pairs
        )


def spans(cases: tuple[Case, ...]) -> str:
    """The releases of the cases that agree: "up to 2.0", "in 0.9.0-0.10.1", "from 3.7 on"."""
    groups: list[list[int]] = []
    for index, case in enumerate(cases):
        if case.agrees and groups and groups[-1][-1] == index - 1:
            groups[-1].append(index)
        elif case.agrees:
            groups.append([index])
    return _joined(_span(cases, group[0], group[-1]) for group in groups)


def _span(cases: tuple[Case, ...], first: int, last: int) -> str:
    start, end = cases[first].where.split("-")[0], cases[last].where.split("-")[-1]
    if first == 0 and start == OLDEST:
        return f"up to {end}"
    if last == len(cases) - 1:
        return f"from {start} on"
    return f"in {start}-{end}" if start != end else f"in {start}"


def _joined(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


@dataclass(frozen=True, slots=True)
class Finding:
    """What a run said about a claim: its statements, and a sentence with the numbers."""

    statements: tuple[Statement, ...]
    evidence: str

    @property
    def kind(self) -> Kind:
        kinds = {s.kind for s in self.statements} - {Kind.NOTE} or {Kind.NOTE}
        if len(kinds) == 1:
            return kinds.pop()
        is_mild = kinds == {Kind.RIGHT, Kind.SOME_VERSIONS}
        return Kind.SOME_VERSIONS if is_mild else Kind.PARTLY

    @property
    def word(self) -> str:
        if len(self.statements) == 1:
            return self.statements[0].word
        return "; ".join(f"{s.says}: {s.word}" for s in self.statements)


@dataclass(frozen=True, slots=True)
class Claim:
    """A row of the table: who says what, and how that is decided."""

    number: int
    theme: str
    source: str  # article and section, or what is written about
    sentence: str  # what it says, in our words
    run: str  # what is run to decide it
    decide: Callable[[], Finding]
    script: str = ""  # the scenario that decides, if one does
    version: str = ""  # the release it is best seen in

    @property
    def verdict(self) -> Finding:
        return _decided(self)


@lru_cache(maxsize=256)
def _decided(claim: Claim) -> Finding:
    return claim.decide()
