"""The table of claims, and the cells of each."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import nbformat

from isrlab.engine.versions import GENERATIONS, KafkaVersion

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "data" / "hold"
NOTEBOOKS = ROOT / "notebooks"


class Claim(msgspec.Struct, forbid_unknown_fields=True):
    """A sentence with its range; `quote`: the notebook's own words, if they differ."""

    notebook: str  # its name without the number
    says: str
    measure: str
    quote: str = ""
    holds: str = ""
    on_average: str = ""
    versions: list[str] = []  # first and last; empty: the measure knows its releases itself
    but: list[str] = []  # generations that the sentence excepts
    base: str = ""  # the notebook's generation, where seeds are drawn; else the last
    given: dict[str, Any] = {}  # parameters that the sentence names
    values: dict[str, list[Any]] = {}  # of the others; the first is the notebook's
    seeds: int = 0
    slow: bool = False  # too slow for the sample

    @property
    def name(self) -> str:
        """Notebook and sentence, such as "leaving_the_isr: a stalled follower ..."."""
        return f"{self.notebook}: {self.says}"


class Cell(NamedTuple):
    version: str
    values: dict[str, Any]
    seed: int  # 0 where nothing is drawn

    def key(self, claim: Claim) -> str:
        """The key of the result: all that determines it, but not how it is judged."""
        return json.dumps([claim.measure, self.version, self.values, self.seed], sort_keys=True)


def read(path: Path = FOLDER / "claims.toml") -> list[Claim]:
    """All claims, in order. Raises ValueError for an invalid row."""
    rows = tomllib.loads(path.read_text("utf-8"))["claim"]
    claims = [msgspec.convert(row, Claim) for row in rows]
    for claim in claims:
        if bool(claim.holds) == bool(claim.on_average):
            raise ValueError(f"{claim.name}: give either holds or on_average")
        if claim.on_average and claim.seeds < 6:
            raise ValueError(f"{claim.name}: an interval of 95 % needs six seeds")
        if short := [name for name, those in claim.values.items() if len({*those}) < 3]:
            raise ValueError(f"{claim.name}: at least three values of {', '.join(short)}")
    return claims


def generations(claim: Claim) -> list[str]:
    """The names of the generations that a claim covers; [""] if it names none."""
    if not claim.versions:
        return [""]
    first, last = (GENERATIONS.index(KafkaVersion.of(name)) for name in claim.versions)
    left_out = {KafkaVersion.of(name).name for name in claim.but}
    return [v.name for v in GENERATIONS[first : last + 1] if v.name not in left_out]


def cells(claim: Claim) -> Iterator[Cell]:
    """Each run of a claim, once."""
    base = claim.given | {name: those[0] for name, those in claim.values.items()}
    settings = [base] + [
        base | {name: value} for name, those in claim.values.items() for value in those[1:]
    ]
    versions = generations(claim)
    if not claim.seeds:
        yield from (Cell(version, each, 0) for version, each in product(versions, settings))
        return
    usual = KafkaVersion.of(claim.base).name if claim.base else versions[-1]
    pairs = [(usual, each) for each in settings] + [(v, base) for v in versions if v != usual]
    for (version, each), seed in product(pairs, range(1, claim.seeds + 1)):
        yield Cell(version, each, seed)


def path_of(notebook: str) -> Path:
    """The file of a notebook, whatever its number. Raises ValueError unless there is one."""
    found = [p for p in NOTEBOOKS.glob("*.ipynb") if p.stem.partition("_")[2] == notebook]
    if len(found) != 1:
        raise ValueError(f"{len(found)} notebooks are called {notebook!r}")
    return found[0]


@cache
def text_of(notebook: str) -> str:
    """The prose and printed outputs of a notebook, with single spaces and without markup."""
    cells = nbformat.read(path_of(notebook), as_version=4).cells
    prose = (cell.source for cell in cells if cell.cell_type == "markdown")
    printed = (each.get("text", "") for cell in cells for each in cell.get("outputs", ()))
    return plain(" ".join((*prose, *printed)))


def plain(text: str) -> str:
    """Text without emphasis, link targets and line breaks."""
    return " ".join(re.sub(r"\]\([^)]*\)|[*`\[\]]", "", text).split())
