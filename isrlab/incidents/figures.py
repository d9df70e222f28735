"""How often simulated incidents are named rightly, kind by kind: the stored figures."""

from __future__ import annotations

import csv
from typing import NamedTuple

from isrlab.installed import DATA

JUDGED = DATA / "recordings" / "incidents" / "judged.csv"


class Figure(NamedTuple):
    """One kind in logs that are whole, or had a log `missing`, a `clock` apart, lines `dropped`."""

    kind: str
    logs: str
    cases: int
    right: int
    wrong: int
    not_known: int
    elsewhere: int  # incidents of other kinds that were taken for this one

    @property
    def precision(self) -> float | None:
        """Of what was named so, the share that was; None if nothing was."""
        named = self.right + self.elsewhere
        return self.right / named if named else None

    @property
    def recall(self) -> float:
        return self.right / self.cases


def judged() -> list[Figure]:
    """The stored figures, kind by kind, logs that are whole first."""
    with JUDGED.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    return [Figure(kind, logs, *map(int, numbers)) for kind, logs, *numbers in rows]


def by_kind() -> list[dict[str, str]]:
    """A row for each kind: recall and precision by what was wrong with the logs; all come last."""
    figures = judged()
    ways = list(dict.fromkeys(each.logs for each in figures))
    rows = [
        {"kind": kind} | {each.logs: _shares(each) for each in figures if each.kind == kind}
        for kind in dict.fromkeys(each.kind for each in figures)
    ]
    together = [_together(way, [each for each in figures if each.logs == way]) for way in ways]
    return [*rows, {"kind": "all"} | {each.logs: _shares(each) for each in together}]


def _together(logs: str, figures: list[Figure]) -> Figure:
    return Figure(
        "all", logs, *(sum(column) for column in zip(*(f[2:] for f in figures), strict=True))
    )


def _shares(figure: Figure) -> str:
    precision = "-" if figure.precision is None else f"{figure.precision:.0%}"
    return f"{figure.recall:.0%} / {precision}"
