"""Reads claims: text files in `data/claims`, whose README says how one is written."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from isrlab.engine.versions import GENERATIONS, KafkaVersion, release
from isrlab.workbook.claims import asking
from isrlab.workbook.claims.verdicts import By, Case, Kind, Statement, Value, kind_of
from isrlab.world import scenario

THEMES = (
    "offset conventions and visibility",
    "lag clock and membership",
    "high watermark",
    "loss and divergence",
    "durability settings",
    "telling the cluster",
    "code history",
    "our own brokers",
)
SEPARATOR = "----"
_HEADER = ("claim", "theme", "source", "run", "release", "script")
_STATEMENT = ("statement", "measure", "claimed", "releases", "words", "cases", "record", "evidence")
_KEY = re.compile(r"([a-z]+)(?: ([\w.]+))?:(?: (.*))?")


class ClaimError(ValueError):
    """A claim that cannot be read or decided: file, line, what is wrong, what is valid."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A `key name: value` with the indented lines below it."""

    path: Path
    line: int
    key: str
    name: str = ""
    value: str = ""
    body: tuple[str, ...] = ()

    def fail(self, problem: object) -> NoReturn:
        raise ClaimError(f"{self.path.name} line {self.line}: {problem}") from None

    @property
    def text(self) -> str:
        return " ".join([self.value, *(line.strip() for line in self.body)])


@dataclass(frozen=True, eq=False)
class Claim:
    """A row of the table: who says what, and how that is decided."""

    path: Path
    number: int
    theme: str
    source: str  # article and section, or what is written about
    sentence: str  # what it says, in our words
    run: str  # what is run to decide it
    version: str  # the release in which it is best seen
    scripts: dict[str, str]
    statements: tuple[Statement, ...]
    template: tuple[str | Callable[[], Value], ...]

    @property
    def kind(self) -> Kind:
        return kind_of(self.statements)

    @cached_property
    def evidence(self) -> str:
        """A sentence with the numbers of runs."""
        return "".join(p if isinstance(p, str) else str(p()) for p in self.template)

    @property
    def script(self) -> str:
        """The scenario to look at, if one decides."""
        return self.scripts.get("", "")

    def trial(self, script: str, version: KafkaVersion | str) -> asking.Trial:
        """One of the claim's scripts in a release."""
        return asking.Trial(str(version), KafkaVersion.of(version), self.scripts[script])

    @property
    def rewritten(self) -> str:
        """The file, with what its statements and its evidence give now."""
        outputs = [statement.printed for statement in self.statements]
        outputs.append(textwrap.fill(self.evidence, 100))
        text = re.sub(rf"(?m)^{SEPARATOR}\n(.+\n)*", f"{SEPARATOR}\n", self.path.read_text())
        *sources, rest = text.split(f"{SEPARATOR}\n")
        if len(sources) != len(outputs):
            Entry(self.path, 1, "").fail(f"each statement, and the evidence, ends with {SEPARATOR}")
        pairs = zip(sources, outputs, strict=True)
        return "".join(f"{source}{SEPARATOR}\n{output}\n" for source, output in pairs) + rest


def read(path: Path) -> Claim:
    """The claim of a file. Raises ClaimError with file, line, what is wrong and what is valid."""
    return _Sheet(path).claim()


class _Sheet:
    """A file while it is read: its entries so far, in the header and for each statement."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: dict[str, Entry] = {}
        self.scripts: dict[str, str] = {}
        self.groups: list[dict[str, Entry]] = []

    def claim(self) -> Claim:
        for entry in self.entries():
            if entry.key in ("statement", "evidence"):
                self.groups.append({entry.key: entry})
            elif entry.key not in (known := _STATEMENT if self.groups else _HEADER):
                entry.fail(f"unknown {entry.key!r} here; known: {', '.join(known)}")
            elif entry.key == "script":
                self.scripts[entry.name] = self.script(entry)
            else:
                (self.groups[-1] if self.groups else self.header)[entry.key] = entry
        for key in _HEADER[:4]:
            if key not in self.header:
                Entry(self.path, 1, "").fail(f"no {key!r}; a claim has {', '.join(_HEADER)}")
        *statements, last = self.groups or [{}]
        if list(last) != ["evidence"] or not statements:
            Entry(self.path, 1, "").fail("a claim has statements, and ends with its evidence")
        claim, theme, source, run = (self.header[key] for key in _HEADER[:4])
        if theme.text not in THEMES:
            theme.fail(f"unknown theme {theme.text!r}; known: {', '.join(THEMES)}")
        if not self.path.name.startswith(f"{claim.name:0>2}_"):
            claim.fail(f"'claim {claim.name}' in a file of another number")
        return Claim(
            self.path, int(claim.name), theme.text, source.text, claim.text, run.text, self.release,
            self.scripts, tuple(map(self.statement, statements)),
            tuple(self.template(last["evidence"])),
        )  # fmt: skip

    @property
    def release(self) -> str:
        return self.header["release"].text if "release" in self.header else ""

    def entries(self) -> Iterator[Entry]:
        lines = self.path.read_text().splitlines()
        index = 0
        while index < len(lines):
            line, index = lines[index], index + 1
            start = index
            if line == SEPARATOR:
                while index < len(lines) and lines[index].strip():
                    index += 1
            elif line.strip() and not line.startswith("#"):
                match = _KEY.fullmatch(line)
                if match is None:
                    Entry(self.path, start, "").fail(f"{line!r} is no 'key: value', nor indented")
                while index < len(lines) and lines[index].startswith(" "):
                    index += 1
                key, name, value = (group or "" for group in match.groups())
                yield Entry(self.path, start, key, name, value, tuple(lines[start:index]))

    def script(self, entry: Entry) -> str:
        if not entry.value:
            return textwrap.dedent("\n".join(entry.body))
        name, *changes = entry.text.split(", ")
        try:
            text = self.scripts[name] if name in self.scripts else scenario.read(name)
        except ValueError as error:
            entry.fail(error)
        for change in changes:
            old, _, new = change.partition(" -> ")
            if not new or old not in text:
                entry.fail(f"{change!r} changes nothing; for example: acks=1 -> acks=all")
            text = text.replace(old, new)
        return text

    def statement(self, group: dict[str, Entry]) -> Statement:
        first, says = group["statement"], group["statement"].text
        if "record" in group:
            return Statement(says, (), By.RECORD, group["record"].text)
        yes, _, no = (
            group["words"].text.partition(" or ") if "words" in group else ("yes", "", "no")
        )
        words = {"yes": yes, "no": no}
        if "cases" in group:
            return Statement(says, tuple(self.cases(group["cases"], words)), By.SITUATION)
        if not {"measure", "claimed"} <= group.keys():
            first.fail("a statement has 'measure' and 'claimed', or 'cases', or 'record'")
        entry, claimed = group["measure"], group["claimed"]
        ask = self.ask(entry, entry.text, words)
        cases = tuple(
            Case(where, _claimed(claimed, name), lambda name=name: ask(name))  # type: ignore[misc]
            for where, name in _releases(group.get("releases"))
        )
        return Statement(says, cases, By.QUESTION if claimed.text == "?" else By.VERSION)

    def cases(self, entry: Entry, words: dict[str, str]) -> Iterator[Case]:
        for number, line in enumerate(entry.body, start=entry.line + 1):
            row = Entry(self.path, number, "")
            columns = [column.strip() for column in line.split("|")]
            if len(columns) != 3:
                row.fail("a case is: situation | claimed | measure")
            yield Case(columns[0], _value(columns[1]), self.ask(row, columns[2], words))

    def template(self, entry: Entry) -> Iterator[str | Callable[[], Value]]:
        for index, text in enumerate(re.split(r"\{([^{}]+)\}", entry.text)):
            yield self.ask(entry, text, {}) if index % 2 else text

    def ask(self, entry: Entry, text: str, words: dict[str, str]) -> Callable[..., Value]:
        """What a line asks, in the claim's release or another; `words` are those for yes and no."""
        try:
            ask = asking.parse(text, self.scripts)
        except ValueError as error:
            entry.fail(error)

        def answer(release: str = self.release) -> Value:
            try:
                value = asking.plain(ask(release))
            except (ValueError, LookupError, StopIteration) as error:
                entry.fail(f"{text}: {error or 'no such thing in the run'}")
            return words.get(str(value), value)

        return answer


def _releases(entry: Entry | None) -> list[tuple[str, str]]:
    """(name to print, release to ask about) of each case."""
    words = entry.text.split() if entry else ["from", GENERATIONS[0].name]
    names = [word for word in words if word not in ("from", "up", "to")]
    try:
        places = [GENERATIONS.index(KafkaVersion.of(name)) for name in names]
    except ValueError as error:
        assert entry
        entry.fail(error)
    if words == names:
        return [(name, name) for name in names]
    start = 0 if words[0] == "up" else places[0]
    end = places[-1] if "to" in words else len(GENERATIONS) - 1
    return [(v.releases, v.name) for v in GENERATIONS[start : end + 1]]


def _claimed(entry: Entry, name: str) -> Value:
    """What is claimed of a release: "10000; from 2.5: 30000"."""
    claimed, *changes = entry.text.split("; ")
    for change in changes:
        match = re.fullmatch(r"from ([\d.]+): (.*)", change)
        if match is None:
            entry.fail(f"{change!r} is no change such as 'from 2.5: 30000'")
        claimed = match[2] if release(name) >= release(match[1], 0) else claimed
    return _value(claimed)


def _value(text: str) -> Value:
    limits = re.fullmatch(r"(\d+) to (\d+)", text)
    return range(int(limits[1]), int(limits[2]) + 1) if limits else asking.number_or_word(text)
