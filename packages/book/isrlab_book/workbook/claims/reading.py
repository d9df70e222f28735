"""Reads claims: YAML files in `data/claims`, whose README says how one is written."""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NoReturn

import yaml

from isrlab.engine.versions import GENERATIONS, RULES, KafkaVersion, release
from isrlab.installed import DATA
from isrlab.world import scenario
from isrlab_book.workbook.claims import measures, recorded
from isrlab_book.workbook.claims.measures import Trial
from isrlab_book.workbook.claims.verdicts import (
    Answer,
    Assertion,
    ClaimedCase,
    Kind,
    kind_of,
    spans,
)

LIBRARY = DATA / "claims"
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
MEASURES = {
    name: function
    for module in (measures, recorded)
    for name, function in inspect.getmembers(module, inspect.isfunction)
    if function.__module__ == module.__name__ and not name.startswith("_")
}
_NEEDED = ("claim", "theme", "source", "run", "statements", "evidence", "gives")
_HEAD = (*_NEEDED, "release", "shown", "scripts", "script")
_STATEMENT = ("says", "measure", "claimed", "releases", "words", "cases", "record", "gives")
_GIVES = re.compile(r"^( *)gives: \|\n((?:\1 +.*\n)*)", re.MULTILINE)


class ClaimError(ValueError):
    """A claim that cannot be read or decided: file, place, what is wrong, what is valid."""


class Claim:
    """A claim, read from its file: the source, the sentence, and how it is decided.

    Raises ClaimError with file, place, what is wrong and what is valid.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.number = path, int(path.name.partition("_")[0])
        try:
            head = yaml.load(path.read_text("utf-8"), yaml.BaseLoader) or {}
        except yaml.YAMLError as error:
            self._fail("no YAML", error)
        self._check("the head", head, _HEAD, _NEEDED)
        if head["theme"] not in THEMES:
            self._fail("theme", f"unknown theme {head['theme']!r}; known: {', '.join(THEMES)}")
        self.sentence = head["claim"]  # the claim, rephrased
        self.theme = head["theme"]
        self.source = head["source"]  # article and section, or what is written about
        self.run = head["run"]  # the run that decides it
        self.version = head.get("release", "")  # the release that shows it best
        self.shown = head.get("shown", [])  # the notebooks about it, without their numbers
        self.scripts: dict[str, str] = {}  # by name; that without one is the one to look at
        own = {"": head["script"]} if "script" in head else {}
        for name, text in (head.get("scripts", {}) | own).items():
            self.scripts[name] = self._script(f"script {name}".strip(), text)
        self.statements = tuple(map(self._statement, head["statements"]))
        self._evidence = head["evidence"]

    @property
    def kind(self) -> Kind:
        return kind_of(self.statements)

    @cached_property
    def evidence(self) -> str:
        """A sentence with the numbers of runs."""
        ask = partial(self._ask, "evidence", words={})
        return re.sub(r"\{([^{}]+)\}", lambda m: str(ask(m[1])()), self._evidence)

    def trial(self, script: str, version: KafkaVersion | str) -> Trial:
        """One of the claim's scripts in a release."""
        return Trial(str(version), KafkaVersion.of(version), self.scripts[script])

    @property
    def rewritten(self) -> str:
        """The file, with the current verdicts and evidence."""
        outputs = [*(s.printed for s in self.statements), textwrap.fill(self.evidence, 98)]
        rest = iter(outputs)
        text, count = _GIVES.subn(
            lambda m: f"{m[1]}gives: |\n{textwrap.indent(next(rest, ''), m[1] + '  ')}\n",
            self.path.read_text("utf-8"),
        )
        if count != len(outputs):
            self._fail("gives", "each statement, and the evidence, ends with 'gives: |'")
        return text

    def _fail(self, where: str, problem: object) -> NoReturn:
        raise ClaimError(f"{self.path.name}, {where}: {problem}") from None

    def _check(
        self, where: str, given: Mapping[str, Any], known: Iterable[str], needed: Iterable[str]
    ) -> None:
        """Check that all needed keys are given, and no unknown ones."""
        if unknown := [key for key in given if key not in known]:
            self._fail(where, f"unknown {unknown[0]!r}; known: {', '.join(known)}")
        if missing := [key for key in needed if key not in given]:
            self._fail(where, f"no {missing[0]!r}; needed: {', '.join(needed)}")

    def _script(self, where: str, text: str) -> str:
        """The commands as given, or those of a named script with its changes applied."""
        if "\n" in text:
            return text
        name, *changes = text.split(", ")
        try:
            text = self._named(name)
        except ValueError as error:
            self._fail(where, error)
        for change in changes:
            old, _, new = change.partition(" -> ")
            if not new or old not in text:
                self._fail(where, f"{change!r} changes nothing; for example: acks=1 -> acks=all")
            text = text.replace(old, new)
        return text

    def _named(self, name: str) -> str:
        """A script of this file, or of the library. Raises ValueError with the names of both."""
        try:
            return self.scripts[name] if name in self.scripts else scenario.read(name)
        except ValueError as error:
            own = ", ".join(filter(None, self.scripts)) or "none"
            raise ValueError(f"{error}; in this file: {own}") from None

    def _statement(self, given: Mapping[str, Any]) -> Assertion:
        self._check("a statement", given, _STATEMENT, ("says", "gives"))
        says = given["says"]
        if "record" in given:
            return Assertion(says, citation=given["record"])
        words = dict(
            zip(("yes", "no"), given.get("words", "yes or no").split(" or "), strict=False)
        )
        if "cases" in given:
            if wrong := [case for case in given["cases"] if len(case) != 3]:
                self._fail(says, f"a case is [situation, claimed, measure], not {wrong[0]}")
            cases = [(w, _value(c), self._ask(says, m, words)) for w, c, m in given["cases"]]
            return Assertion(says, [ClaimedCase(*case) for case in cases], is_by_release=False)
        self._check(f"{says}, without 'record' or 'cases'", given, given, ("measure", "claimed"))
        answer = self._ask(says, given["measure"], words)
        try:
            cases = [
                (name, _claimed(given["claimed"], asked), partial(answer, asked))
                for name, asked in _releases(given.get("releases", ""))
            ]
        except ValueError as error:
            self._fail(says, error)
        return Assertion(says, [ClaimedCase(*case) for case in cases])

    def _ask(self, where: str, text: str, words: Mapping[str, str]) -> Callable[..., Answer]:
        """The value of an expression, in the claim's release or another; `words` stand for yes and
        no. After the word "where" or "first" it is the releases in which the expression is true."""
        word, _, rest = text.partition(" ")

        def answer(release: str = "") -> Answer:
            try:
                if word in _AMONG:
                    holds = [(each, bool(self._value(rest, each.name))) for each in GENERATIONS]
                    return _AMONG[word](holds)
                value = _plain(self._value(text, release or self.version))
            except NameError as error:
                self._fail(where, f"{text}: {error}; known: {', '.join(sorted(MEASURES))}")
            except Exception as error:  # whatever an expression raises
                self._fail(where, f"{text}: {error or 'no such thing in the run'}")
            return words.get(str(value), value)

        return answer

    def _value(self, expression: str, release: str) -> object:
        """The value of a Python expression of calls, constants and comparisons in a release."""
        tree = ast.parse(expression.strip(), mode="eval")
        if others := [node for node in ast.walk(tree) if not isinstance(node, _ALLOWED)]:
            raise ValueError(f"a measure has no {type(others[0]).__name__}")
        names = {name: partial(self._measured, name, release=release) for name in MEASURES}
        return eval(compile(tree, "a measure", "eval"), {"__builtins__": {}}, names)

    def _measured(
        self, name: str, *words: object, release: str, script: str = "", **options: Any
    ) -> object:
        """A measure, with the options that every one has: a release, a script, and rules."""
        rules = {rule: options.pop(rule) for rule in RULES if rule in options}
        version = KafkaVersion.of(release)
        text = self._named(script) if script else self.scripts.get("", "")
        trial = Trial(release, version.with_(**rules) if rules else version, text)
        return MEASURES[name](trial, *words, **options)


_ALLOWED = (
    *(ast.Expression, ast.Call, ast.keyword, ast.Name, ast.Load, ast.Constant, ast.Tuple),
    *(ast.Compare, ast.cmpop, ast.BoolOp, ast.boolop, ast.BinOp, ast.operator, ast.UnaryOp),
    ast.unaryop,
)
_AMONG: dict[str, Callable[[list[tuple[KafkaVersion, bool]]], str]] = {
    "where": lambda holds: spans([(version.releases, is_so) for version, is_so in holds]),
    "first": lambda holds: next((version.name for version, is_so in holds if is_so), "never"),
}


def _plain(value: object) -> int | str:
    """A value as claims write it: a whole number, or words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " and ".join(str(_plain(each)) for each in value)
    if isinstance(value, list):
        return f"{min(value)} to {max(value)}"
    if value != value:
        return "never"
    return value if isinstance(value, int) else str(value)


def _value(text: str) -> Answer:
    """A whole number, a range of them, or words."""
    match = re.fullmatch(r"(-?\d+)(?: to (\d+))?", text)
    if match is None:
        return text
    return range(int(match[1]), int(match[2]) + 1) if match[2] else int(match[1])


def _releases(text: str | list[str]) -> list[tuple[str, str]]:
    """(name to print, release to ask about) of each case: of those in a list, else of a range of
    generations, such as "0.11 to 2.8". Raises ValueError for an unknown release."""
    if isinstance(text, list):
        return [(name, name) for name in text]
    names = [word for word in text.split() if word not in ("from", "up", "to")]
    places = [GENERATIONS.index(KafkaVersion.of(name)) for name in names]
    start = places[0] if names and not text.startswith("up") else 0
    end = places[-1] if "to" in text.split() else len(GENERATIONS) - 1
    return [(v.releases, v.name) for v in GENERATIONS[start : end + 1]]


def _claimed(text: str, name: str) -> Answer:
    """What is claimed of a release: "10000; from 2.5: 30000". Raises ValueError for other text."""
    claimed, *changes = text.split("; ")
    for change in changes:
        match = re.fullmatch(r"from ([\d.]+): (.*)", change)
        if match is None:
            raise ValueError(f"{change!r} is not a change such as 'from 2.5: 30000'")
        claimed = match[2] if release(name) >= release(match[1], 0) else claimed
    return _value(claimed)


CLAIMS = {claim.number: claim for claim in map(Claim, sorted(LIBRARY.glob("[0-9]*.yaml")))}
