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


def judged() -> list[Figure]:
    """The stored figures, kind by kind, logs that are whole first."""
    with JUDGED.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    return [Figure(kind, logs, *map(int, numbers)) for kind, logs, *numbers in rows]


def by_kind() -> list[dict[str, str]]:
    """A row for each kind: recall and precision by what was wrong with the logs; all come last."""
    rows: dict[str, dict[str, list[Figure]]] = {}
    for each in judged():
        for kind in (each.kind, "all"):
            rows.setdefault(kind, {}).setdefault(each.logs, []).append(each)
    rows["all"] = rows.pop("all")
    return [
        {"kind": kind} | {logs: _shares(figures) for logs, figures in row.items()}
        for kind, row in rows.items()
    ]


def _shares(figures: list[Figure]) -> str:
    """Of the cases, how many are right; of those named so, how many are."""
    cases, right, _, _, elsewhere = (sum(c) for c in zip(*(f[2:] for f in figures), strict=True))
    precision = f"{right / (right + elsewhere):.0%}" if right + elsewhere else "-"
    return f"{right / cases:.0%} / {precision}"
