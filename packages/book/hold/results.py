"""The stored results of cells, and the verdicts on claims.

`results.jsonl.xz` has all results, sorted; `running.jsonl` is a journal of new results, which is
deleted once they have been folded into the first file.
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import lzma
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import comb
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any, NamedTuple

from hold.claims import FOLDER, Cell, Claim, cells

COLUMNS = (
    "notebook", "says", "verdict", "settings", "held", "generations", "values", "seeds", "cells",
    "where",
)  # fmt: skip
MOST_NAMED = 4  # settings in which a claim breaks


class Store:
    """Results by the key of their cell."""

    def __init__(self, folder: Path = FOLDER, *, alone: bool = False) -> None:
        """`alone`: raises BlockingIOError while another run adds to the same folder."""
        self._whole, self._journal = folder / "results.jsonl.xz", folder / "running.jsonl"
        if alone:
            self._lock = self._journal.with_suffix(".lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.known: dict[str, Any] = {}
        text = lzma.decompress(self._whole.read_bytes()).decode() if self._whole.exists() else ""
        text += self._journal.read_text("utf-8") if self._journal.exists() else ""
        for line in text.splitlines(keepends=True):
            if line.endswith("\n"):  # a journal may end within a line
                key, result = json.loads(line)
                self.known[key] = result

    def add(self, key: str, result: Any) -> None:
        self.known[key] = json.loads(json.dumps(result))
        with self._journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps([key, result]) + "\n")

    def fold(self, claims: Iterable[Claim]) -> None:
        """Fold the journal into the other file, without results that no claim needs any more."""
        keys = dict.fromkeys(sorted(cell.key(claim) for claim in claims for cell in cells(claim)))
        lines = [json.dumps([key, self.known[key]]) for key in keys if key in self.known]
        self._whole.write_bytes(lzma.compress("".join(f"{x}\n" for x in lines).encode()))
        self._journal.unlink(missing_ok=True)


class Setting(NamedTuple):
    """A generation and values: whether the claim held there, and what was measured."""

    version: str
    values: Mapping[str, Any]
    held: bool
    shown: str


class Verdict(NamedTuple):
    claim: Claim
    settings: list[Setting]
    run: int  # cells
    missing: int

    @property
    def broken(self) -> list[Setting]:
        return [each for each in self.settings if not each.held]

    @property
    def word(self) -> str:
        if self.missing:
            return "not run"
        return "breaks" if self.broken else "holds"

    def where(self) -> str:
        """The settings in which it breaks, by their differences from the notebook's."""
        base = {name: those[0] for name, those in self.claim.values.items()}
        texts = []
        for each in self.broken[:MOST_NAMED]:
            others = [f"{k}={v}" for k, v in each.values.items() if v != base.get(k, v)]
            texts.append(f"{' '.join([each.version, *others]).strip()}: {each.shown}")
        more = len(self.broken) - len(texts)
        return "; ".join(texts + [f"and {more} more"] * bool(more))


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Two of the values, which enclose the median of their distribution with 95 % confidence."""
    ordered, count = sorted(values), len(values)
    outside, place = 0.0, 0
    while outside + 2 * comb(count, place) / 2**count <= 0.05:
        outside += 2 * comb(count, place) / 2**count
        place += 1
    if not place:
        raise ValueError(f"{count} values are too few for 95 %")
    return ordered[place - 1], ordered[-place]


def holds(claim: Claim, cell: Cell, results: Sequence[Any]) -> bool:
    """Whether the claim is true of every result (`on_average`: of their median and total)."""
    names = {**cell.values, "version": cell.version, "abs": abs, "len": len, "set": set,
             "max": max, "min": min, "all": all}  # fmt: skip
    if claim.holds:
        return all(_true(claim.holds, names | {"x": _spaced(x)}) for x in results)
    low, high = median_interval(results)
    drawn = {"median": median(results), "low": low, "high": high, "total": sum(results)}
    return _true(claim.on_average, names | drawn)


def _true(text: str, names: dict[str, Any]) -> bool:
    """Evaluate an expression of the table, which is trusted: it is a file of this project."""
    return bool(eval(text, {"__builtins__": {}}, names))


def _spaced(result: Any) -> Any:
    return SimpleNamespace(**result) if isinstance(result, dict) else result


def judge(claim: Claim, known: Mapping[str, Any]) -> Verdict:
    """The verdict on a claim by its stored results."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells(claim):
        groups.setdefault(json.dumps([cell.version, cell.values]), []).append(cell)
    settings, run, missing = [], 0, 0
    for each in groups.values():
        results = [known[c.key(claim)] for c in each if c.key(claim) in known]
        run, missing = run + len(results), missing + len(each) - len(results)
        if len(results) == len(each):
            held = holds(claim, each[0], results)
            settings.append(Setting(each[0].version, each[0].values, held, _shown(claim, results)))
    return Verdict(claim, settings, run, missing)


def _shown(claim: Claim, results: Sequence[Any]) -> str:
    if claim.on_average:
        low, high = median_interval(results)
        return f"{median(results):.4g} ({low:.4g} to {high:.4g})"
    words = Counter(json.dumps(x) for x in results)
    return ", ".join(text if len(results) == 1 else f"{n}x {text}" for text, n in words.items())[
        :90
    ]


def table(verdicts: Iterable[Verdict]) -> str:
    """The verdicts as CSV, with a row for each claim."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for v in verdicts:
        values = "; ".join(
            f"{name} {', '.join(map(str, those))}" for name, those in v.claim.values.items()
        )
        seen = list(dict.fromkeys(each.version for each in v.settings))
        covered = f"{seen[0]} to {seen[-1]} ({len(seen)})" if len(seen) > 1 else "".join(seen)
        held = len(v.settings) - len(v.broken)
        rows.writerow([v.claim.notebook, v.claim.says, v.word, len(v.settings), held, covered,
                       values, v.claim.seeds, v.run, v.where()])  # fmt: skip
    return text.getvalue()
