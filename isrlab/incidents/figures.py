"""How often simulated incidents are named rightly, kind by kind: the stored figures.

Of logs that are whole, or have a log `missing`, a `clock` apart, lines `dropped`.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict

from isrlab.installed import DATA

JUDGED = DATA / "recordings" / "incidents" / "judged.csv"


def by_kind() -> list[dict[str, str]]:
    """A row for each kind, and for all: recall and precision by what was wrong with the logs."""
    sums: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    with JUDGED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            numbers = {name: int(row[name]) for name in ("all", "right", "named elsewhere")}
            for kind in (row["kind"], "all"):
                sums[kind][row["logs"]].update(numbers)
    sums["all"] = sums.pop("all")
    return [
        {"kind": kind} | {logs: _shares(total) for logs, total in of_kind.items()}
        for kind, of_kind in sums.items()
    ]


def _shares(total: Counter[str]) -> str:
    """Of the cases, how many are right; of those named so, how many are."""
    named = total["right"] + total["named elsewhere"]
    precision = f"{total['right'] / named:.0%}" if named else "-"
    return f"{total['right'] / total['all']:.0%} / {precision}"
