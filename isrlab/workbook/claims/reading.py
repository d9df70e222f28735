"""Reads claims: text files in `data/claims`, whose README says how one is written."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NoReturn

from isrlab.engine.choices import Form
from isrlab.engine.versions import GENERATIONS, RULES, KafkaVersion, release
from isrlab.installed import DATA
from isrlab.workbook.claims import measures, recorded
from isrlab.workbook.claims.measures import Trial
from isrlab.workbook.claims.verdicts import Case, Kind, Statement, Value, kind_of, spans
from isrlab.world import scenario

LIBRARY = DATA / "claims"
Question = Callable[[str], Any]  # a release, to the answer there
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
MEASURES = {
    name: function
    for module in (measures, recorded)
    for name, function in inspect.getmembers(module, inspect.isfunction)
    if function.__module__ == module.__name__ and not name.startswith("_")
}
_HEAD = ("claim", "theme", "source", "run", "release", "shown", "script")
_STATEMENT = ("statement", "measure", "claimed", "releases", "words", "cases", "record", "evidence")


class ClaimError(ValueError):
    """A claim that cannot be read or decided: file, line, what is wrong, what is valid."""


@dataclass(slots=True)
class Entry:
    """A `key name: value` with the indented lines below it."""

    path: Path
    line: int
    key: str = ""
    name: str = ""
    value: str = ""
    body: list[str] = field(default_factory=list)

    def fail(self, problem: object) -> NoReturn:
        raise ClaimError(f"{self.path.name} line {self.line}: {problem}") from None

    @property
    def text(self) -> str:
        return " ".join([self.value, *map(str.strip, self.body)]).strip()


class Claim:
    """A row of the table, read from its file: who says what, and how that is decided.

    Raises ClaimError with file, line, what is wrong and what is valid.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.scripts: dict[str, str] = {}  # by name; that without one is the one to look at
        groups: list[dict[str, Entry]] = [{}]  # the head, then statements, then the evidence
        for entry in _entries(path):
            known = _HEAD if len(groups) == 1 else _STATEMENT
            if entry.key in ("statement", "evidence"):
                groups.append({})
            elif entry.key not in known:
                entry.fail(f"unknown {entry.key!r} here; known: {', '.join(known)}")
            groups[-1][entry.key] = entry
            if entry.key == "script":
                self.scripts[entry.name] = self._script(entry)
        head, *statements = groups
        if missing := [key for key in _HEAD[:4] if key not in head]:
            Entry(path, 1).fail(f"no {missing[0]!r}; a claim has {', '.join(_HEAD)}")
        if len(statements) < 2 or list(statements[-1]) != ["evidence"]:
            Entry(path, 1).fail("a claim has statements, and ends with its evidence")
        number, texts = head["claim"].name, {key: entry.text for key, entry in head.items()}
        if texts["theme"] not in THEMES:
            head["theme"].fail(f"unknown theme {texts['theme']!r}; known: {', '.join(THEMES)}")
        if not path.name.startswith(f"{number:0>2}_"):
            head["claim"].fail(f"'claim {number}' in a file of another number")
        self.number = int(number)
        self.sentence = texts["claim"]  # what is claimed, in our words
        self.theme = texts["theme"]
        self.source = texts["source"]  # article and section, or what is written about
        self.run = texts["run"]  # what is run to decide it
        self.version = texts.get("release", "")  # the release in which it is best seen
        self.shown = texts.get("shown", "").split()  # the notebooks about it, without their numbers
        self.statements = tuple(map(self._statement, statements[:-1]))
        self._evidence = statements[-1]["evidence"]

    @property
    def kind(self) -> Kind:
        return kind_of(self.statements)

    @cached_property
    def evidence(self) -> str:
        """A sentence with the numbers of runs."""
        ask = partial(self._ask, self._evidence, words={})
        return re.sub(r"\{([^{}]+)\}", lambda m: str(ask(m[1])()), self._evidence.text)

    def trial(self, script: str, version: KafkaVersion | str) -> Trial:
        """One of the claim's scripts in a release."""
        return Trial(str(version), KafkaVersion.of(version), self.scripts[script])

    @property
    def rewritten(self) -> str:
        """The file, with what its statements and its evidence give now."""
        outputs = [*(s.printed for s in self.statements), textwrap.fill(self.evidence, 100)]
        ends = re.compile(rf"^{SEPARATOR}\n(.+\n)*", re.MULTILINE)
        rest = iter(outputs)
        text, count = ends.subn(
            lambda _: f"{SEPARATOR}\n{next(rest, '')}\n", self.path.read_text("utf-8")
        )
        if count != len(outputs):
            Entry(self.path, 1).fail(f"each statement, and the evidence, ends with {SEPARATOR}")
        return text

    def _script(self, entry: Entry) -> str:
        if not entry.value:
            return textwrap.dedent("\n".join(entry.body))
        name, *changes = entry.text.split(", ")
        try:
            text = self._named(name)
        except ValueError as error:
            entry.fail(error)
        for change in changes:
            old, _, new = change.partition(" -> ")
            if not new or old not in text:
                entry.fail(f"{change!r} changes nothing; for example: acks=1 -> acks=all")
            text = text.replace(old, new)
        return text

    def _named(self, name: str) -> str:
        """A script of this file, or of the library. Raises ValueError with the names of both."""
        try:
            return self.scripts[name] if name in self.scripts else scenario.read(name)
        except ValueError as error:
            own = ", ".join(filter(None, self.scripts)) or "none"
            raise ValueError(f"{error}; in this file: {own}") from None

    def _statement(self, group: dict[str, Entry]) -> Statement:
        says = group["statement"].text
        if "record" in group:
            return Statement(says, citation=group["record"].text)
        yes_or_no = group["words"].text.split(" or ") if "words" in group else ("yes", "no")
        words = dict(zip(("yes", "no"), yes_or_no, strict=False))
        if "cases" in group:
            return Statement(says, list(self._cases(group["cases"], words)), is_by_release=False)
        if not {"measure", "claimed"} <= group.keys():
            group["statement"].fail("a statement has 'measure' and 'claimed', 'cases', or 'record'")
        measure, claimed = group["measure"], group["claimed"]
        answer = self._ask(measure, measure.text, words)
        releases = _releases(group.get("releases", Entry(self.path, 1)))
        return Statement(
            says, [Case(name, _claimed(claimed, r), partial(answer, r)) for name, r in releases]
        )

    def _cases(self, entry: Entry, words: dict[str, str]) -> Iterator[Case]:
        for number, line in enumerate(entry.body, start=entry.line + 1):
            row, columns = Entry(self.path, number), [part.strip() for part in line.split("|")]
            if len(columns) != 3:
                row.fail("a case is: situation | claimed | measure")
            yield Case(columns[0], _value(columns[1]), self._ask(row, columns[2], words))

    def _ask(self, entry: Entry, text: str, words: dict[str, str]) -> Callable[..., Value]:
        """What a line asks, in the claim's release or another; `words` are those for yes and no."""
        try:
            question = self._question(text)
        except ValueError as error:
            entry.fail(error)

        def answer(name: str = "") -> Value:
            try:
                value = _plain(question(name or self.version))
            except (ValueError, LookupError, AttributeError, StopIteration) as error:
                entry.fail(f"{text}: {error or 'no such thing in the run'}")
            return words.get(str(value), value)

        return answer

    def _question(self, text: str) -> Question:
        """Signs, and what stands on both sides of them. Raises ValueError with what is valid."""
        word, _, rest = text.partition(" ")
        if word in _AMONG:
            holds = self._question(rest)
            return lambda _: _AMONG[word]([(v, holds(v.name) is True) for v in GENERATIONS])
        if sign := next((sign for sign in _SIGNS if f" {sign} " in text), ""):
            left, right = text.split(f" {sign} ", 1)
            a, combine = self._question(left), _SIGNS[sign]
            b = (lambda _: right) if sign == "is" else self._question(right)
            return lambda name: combine(a(name), b(name))
        value = _value(text)
        return (lambda _: value) if isinstance(value, int) else self._measure(text)

    def _measure(self, text: str) -> Question:
        """A measure, its words and its options. Raises ValueError with what is valid."""
        name, *parts = text.split()
        if name not in MEASURES:
            raise ValueError(f"unknown measure {name!r}; known: {', '.join(sorted(MEASURES))}")
        words = tuple(_value(part) for part in parts if "=" not in part)
        options = dict(part.split("=", 1) for part in parts if "=" in part)
        script, fixed = options.pop("script", ""), options.pop("release", "")
        text = self._named(script) if script else self.scripts.get("", "")
        forms = {key: _form(key, options.pop(key)) for key in RULES if key in options}
        own = tuple((key, _value(value)) for key, value in options.items())
        signature = inspect.signature(MEASURES[name])
        try:
            signature.bind(None, *words, **dict(own))
        except TypeError as error:
            raise ValueError(f"{name}: {error}; it takes {signature}") from None

        def ask(release: str) -> object:
            version = KafkaVersion.of(fixed or release)
            version = version.with_(**forms) if forms else version
            return _answer(name, Trial(fixed or release, version, text), words, own)

        return ask


def _entries(path: Path) -> Iterator[Entry]:
    entry, is_output = Entry(path, 1), False
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        is_output = line == SEPARATOR or (is_output and bool(line.strip()))
        if is_output or not line.strip() or line.startswith("#"):
            continue
        if line.startswith(" ") and number == entry.line + len(entry.body) + 1:
            entry.body.append(line)
            continue
        if entry.key:
            yield entry
        head, colon, value = line.partition(":")
        key, _, name = head.partition(" ")
        entry = Entry(path, number, key, name, value.strip())
        if not colon:
            entry.fail(f"{line!r} is no 'key: value', nor indented")
    yield entry


@lru_cache(maxsize=2048)
def _answer(name: str, trial: Trial, words: tuple[Any, ...], own: tuple[Any, ...]) -> object:
    return MEASURES[name](trial, *words, **dict(own))


_AMONG: dict[str, Callable[[list[tuple[KafkaVersion, bool]]], str]] = {
    "where": lambda holds: spans([(version.releases, is_so) for version, is_so in holds]),
    "first": lambda holds: next((version.name for version, is_so in holds if is_so), "never"),
}
_SIGNS: dict[str, Callable[[Any, Any], object]] = {
    "is": lambda a, b: str(_plain(a)) == b,
    "and": lambda a, b: f"{_plain(a)} and {_plain(b)}",
    "<": lambda a, b: None not in (a, b) and a < b,
    "=": lambda a, b: a == b,
    "-": lambda a, b: None if None in (a, b) else a - b,
}


def _plain(answer: object) -> int | str:
    """An answer as claims write it: a whole number, or words."""
    if answer is None or isinstance(answer, bool):
        return {True: "yes", False: "no", None: "never"}[answer]
    if isinstance(answer, list):
        return f"{min(answer)} to {max(answer)}"
    return answer if isinstance(answer, int) else str(answer)


def _value(text: str) -> Value:
    """A whole number, a range of them, or words."""
    match = re.fullmatch(r"(-?\d+)(?: to (\d+))?", text)
    if match is None:
        return text
    return range(int(match[1]), int(match[2]) + 1) if match[2] else int(match[1])


def _form(name: str, word: str) -> object:
    """A rule switched by hand, from its word: true or false, a number, or the name of a form."""
    form = getattr(GENERATIONS[0], name)
    if not isinstance(form, Form):
        return word == "true" if isinstance(form, bool) else _value(word)
    forms = type(form).__members__
    if word not in forms:
        raise ValueError(f"{name} has no form {word!r}; known: {', '.join(forms)}")
    return forms[word]


def _releases(entry: Entry) -> list[tuple[str, str]]:
    """(name to print, release to ask about) of each case; all generations if nothing is said."""
    words = entry.text.split()
    names = [word for word in words if word not in ("from", "up", "to")]
    try:
        places = [GENERATIONS.index(KafkaVersion.of(name)) for name in names]
    except ValueError as error:
        entry.fail(error)
    if names and words == names:
        return [(name, name) for name in names]
    start = places[0] if names and words[0] != "up" else 0
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


CLAIMS = {claim.number: claim for claim in map(Claim, sorted(LIBRARY.glob("[0-9]*.txt")))}


def of_theme(theme: str) -> list[Claim]:
    """The claims about one subject. Raises ValueError with the known subjects."""
    if theme not in THEMES:
        raise ValueError(f"no theme {theme!r}; known: {', '.join(THEMES)}")
    return [claim for claim in CLAIMS.values() if claim.theme == theme]
