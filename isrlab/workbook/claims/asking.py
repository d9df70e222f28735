"""What a claim asks, as the README of `data/claims` says: a measure, its words and its options.

Answers are kept, runs only for a moment.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from isrlab.engine.choices import Form
from isrlab.engine.versions import GENERATIONS, RULES, KafkaVersion
from isrlab.workbook.claims.verdicts import spans
from isrlab.world import scenario
from isrlab.world.script import Run

Ask = Callable[[str], Any]  # a release, to the answer there
MEASURES: dict[str, Callable[..., object]] = {}
_BRACES = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Trial:
    """A script in one release: what a measure is given."""

    release: str
    version: KafkaVersion
    script: str = ""

    @property
    def run(self) -> Run:
        """The script, played. Raises ValueError if it cannot be."""
        missing = _BRACES.search(self.script)
        if missing or not self.script:
            raise ValueError(f"it needs {missing[1]}=" if missing else "which script? script=NAME")
        return _play(self.script, self.version)

    def filled(self, values: dict[str, str]) -> Trial:
        """The same with these values for what stands in braces."""
        return replace(self, script=_BRACES.sub(lambda m: values.get(m[1], m[0]), self.script))


@lru_cache(maxsize=32)  # a statement's runs, for the next statement
def _play(script: str, version: KafkaVersion) -> Run:
    return scenario.play(script, version=version)


def measure(function: Callable[..., object]) -> Callable[..., Any]:
    """Claims may ask for this function by its name; its first argument is the trial."""
    MEASURES[function.__name__] = function
    return function


def plain(answer: object) -> int | str:
    """An answer as claims write it: a whole number, or words."""
    if answer is None or isinstance(answer, bool):
        return {True: "yes", False: "no", None: "never"}[answer]
    return answer if isinstance(answer, int) else str(answer)


def number_or_word(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?\d+", text) else text


_SIGNS: dict[str, Callable[[Any, Any], object]] = {
    "and": lambda one, other: f"{plain(one)} and {plain(other)}",
    "<": lambda one, other: None not in (one, other) and one < other,
    "=": lambda one, other: one == other,
    "-": lambda one, other: None if None in (one, other) else one - other,
}


def parse(text: str, scripts: dict[str, str]) -> Ask:
    """What a line asks; `scripts` are the file's own. Raises ValueError with what is valid."""
    word, _, rest = text.partition(" ")
    if word in ("where", "first"):
        inner = parse(rest, scripts)
        return lambda _: _among(word, [(v, inner(v.name) is True) for v in GENERATIONS])
    left, is_there, value = text.partition(" is ")
    if is_there:
        ask = parse(left, scripts)
        return lambda release: plain(ask(release)) == number_or_word(value)
    for sign, combine in _SIGNS.items():
        left, is_there, right = text.partition(f" {sign} ")
        if is_there:
            one, other = parse(left, scripts), parse(right, scripts)
            return _combined(combine, one, other)
    return _single(text, scripts)


def _combined(combine: Callable[[Any, Any], object], one: Ask, other: Ask) -> Ask:
    return lambda release: combine(one(release), other(release))


def _among(word: str, holds: list[tuple[KafkaVersion, bool]]) -> str:
    if word == "where":
        return spans([(version.releases, is_so) for version, is_so in holds])
    return next((version.name for version, is_so in holds if is_so), "never")


def _single(text: str, scripts: dict[str, str]) -> Ask:
    name, *parts = text.split()
    if name not in MEASURES:
        raise ValueError(f"unknown measure {name!r}; known: {', '.join(sorted(MEASURES))}")
    words = tuple(number_or_word(part) for part in parts if "=" not in part)
    options = dict(part.split("=", 1) for part in parts if "=" in part)
    script = _script(options.pop("script", ""), scripts)
    fixed = options.pop("release", "")
    fills = {key: options.pop(key) for key in _BRACES.findall(script) if key in options}
    rules = {key: _rule(key, options.pop(key)) for key in RULES if key in options}
    own = tuple((key, number_or_word(value)) for key, value in options.items())
    signature = inspect.signature(MEASURES[name])
    try:
        signature.bind(None, *words, **dict(own))
    except TypeError as error:
        takes = ", ".join(str(p) for p in list(signature.parameters.values())[1:])
        raise ValueError(f"{name}: {error}; it takes ({takes})") from None

    def ask(release: str) -> object:
        version = KafkaVersion.of(fixed or release)
        trial = Trial(fixed or release, version.with_(**rules) if rules else version, script)
        return _answer(name, trial.filled(fills), words, own)

    return ask


@lru_cache(maxsize=2048)
def _answer(name: str, trial: Trial, words: tuple[Any, ...], own: tuple[Any, ...]) -> object:
    return MEASURES[name](trial, *words, **dict(own))


def _script(name: str, scripts: dict[str, str]) -> str:
    if name in scripts or not name:
        return scripts.get(name, "")
    try:
        return scenario.read(name)
    except ValueError as error:
        own = ", ".join(filter(None, scripts)) or "none"
        raise ValueError(f"{error}; in this file: {own}") from None


def _rule(name: str, word: str) -> object:
    """A rule switched by hand, from its word: true or false, a number, or the name of a form."""
    form = getattr(GENERATIONS[0], name)
    if not isinstance(form, Form):
        return word == "true" if isinstance(form, bool) else number_or_word(word)
    if word not in type(form).__members__:
        known = ", ".join(type(form).__members__)
        raise ValueError(f"{name} has no form {word!r}; known: {known}")
    return type(form)[word]
