"""How often incidents are named correctly, by kind: the stored figures.

Simulated incidents have logs that are `whole`, or have a log `missing`, a `clock` off or lines
`dropped`; those of real clusters have whole logs.
"""

import csv
from collections import Counter, defaultdict

from isrlab.installed import DATA

JUDGED = DATA / "recordings" / "incidents" / "judged.csv"
LOGS = {"whole": "all lines", "missing": "a log missing", "clock": "a clock off",
        "dropped": "lines dropped"}  # fmt: skip
REAL = "recorded from real brokers"


def by_kind() -> list[dict[str, str]]:
    """A row for each simulated kind, for all of them, and for the real ones: how many cases each
    cell has, and recall and precision by what was wrong with the logs."""
    sums: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    with JUDGED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            numbers = {name: int(row[name]) for name in ("all", "right", "named elsewhere")}
            for kind in (row["kind"], "all simulated")[: 1 + (row["kind"] != REAL)]:
                sums[kind][row["logs"]].update(numbers)
    sums["all simulated"], sums[REAL] = sums.pop("all simulated"), sums.pop(REAL)
    return [
        {"kind": kind.replace("_", " "), "cases": f"{of_kind['whole']['all']:,}"}
        | {name: _shares(of_kind[logs]) if logs in of_kind else "" for logs, name in LOGS.items()}
        for kind, of_kind in sums.items()
    ]


def _shares(total: Counter[str]) -> str:
    """Recall and precision, as percentages."""
    named = total["right"] + total["named elsewhere"]
    precision = f"{total['right'] / named:.0%}" if named else "-"
    return f"{total['right'] / total['all']:.0%} / {precision}"
