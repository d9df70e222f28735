"""A case is text: its set-up, then a line for each step with the values expected after it.

    # why it is interesting
    case ID COLUMNS leo=10 isr=(1,)
      fetch 2 8 -> hw=8
      wait 30000

COLUMNS are letters of the preset matrix; a value that is not Python is read as a word.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from isrlab.engine.versions import PRESETS

Seen = dict[str, object]
Step = tuple[tuple[object, ...], Seen]


@dataclass(frozen=True)
class Case:
    """A case; its steps are ((action, arguments ...), expected)."""

    id: str
    columns: str
    setup: dict[str, object]
    steps: list[Step]


def read(name: str) -> list[Case]:
    """The cases of tests/cases/NAME.txt."""
    cases: list[Case] = []
    for line in Path(__file__).with_name(f"{name}.txt").read_text().splitlines():
        done, _, seen = line.partition(" #" if line.startswith(" ") else "#")[0].partition("->")
        words = done.split()
        if words[:1] == ["case"]:
            cases.append(Case(words[1], words[2], _facts(words[3:]), []))
        elif words:
            cases[-1].steps.append(((words[0], *map(_value, words[1:])), _facts(seen.split())))
    return cases


def _facts(words: Iterable[str]) -> dict[str, object]:
    return {name: _value(text) for name, _, text in (w.partition("=") for w in words)}


def _value(word: str) -> object:
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError):
        return word


def in_every_column(*names: str) -> Callable:
    """Parametrize a test with each case of these files in each of its generations."""
    import pytest  # notebooks that play cases do not need it

    rows = [
        pytest.param(case, column, id=f"{case.id}[{PRESETS[column].name}]")
        for name in names
        for case in read(name)
        for column in case.columns
    ]
    return pytest.mark.parametrize(("case", "column"), rows)


def play(bench: object, steps: Iterable[Step]) -> None:
    """Do each action on the bench, and compare its facts with the expected ones."""
    for number, ((action, *arguments), seen) in enumerate(steps, start=1):
        getattr(bench, str(action))(*arguments)
        found = {name: bench.see(name) for name in seen}  # type: ignore[attr-defined]
        assert found == seen, f"step {number}, {action} {arguments}: {found} is not {seen}"
