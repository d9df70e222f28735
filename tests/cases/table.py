"""A case is a table: what is set up, then steps, each with the numbers to be seen after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest

from isrlab.engine.versions import PRESETS

Seen = dict[str, object]
Step = tuple[tuple[object, ...], Seen]


@dataclass(frozen=True)
class Case:
    """`columns` are letters of the preset matrix; a step is ((action, arguments ...), seen)."""

    id: str
    columns: str
    setup: dict[str, object]
    steps: tuple[Step, ...]
    only: dict[str, tuple[Step, ...]] = field(default_factory=dict)  # other numbers in a column

    def steps_in(self, column: str) -> tuple[Step, ...]:
        found = next((steps for letters, steps in self.only.items() if column in letters), None)
        return self.steps if found is None else found


def in_every_column(cases: Iterable[Case]) -> Callable:
    """Each case in each generation it applies to, named like "B6[0.10.2]"."""
    rows = [
        pytest.param(case, column, id=f"{case.id}[{PRESETS[column].name}]")
        for case in cases
        for column in case.columns
    ]
    return pytest.mark.parametrize(("case", "column"), rows)


def play(bench: object, steps: Iterable[Step]) -> None:
    """Do each action on the bench and compare what is seen with what the table says."""
    for number, ((action, *arguments), seen) in enumerate(steps, start=1):
        getattr(bench, str(action))(*arguments)
        found = {name: bench.see(name) for name in seen}  # type: ignore[attr-defined]
        assert found == seen, f"step {number}, {action} {arguments}: {found} is not {seen}"
