"""The known kinds of breaks (data/hunt/kinds.toml), and the kinds that a break may belong to."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parents[2] / "data" / "hunt" / "kinds.toml"


class Break(NamedTuple):
    """A broken promise and its shortest schedule; `root` is the promise that it breaks first."""

    broken: str
    root: str
    schedules: int
    steps: int
    seconds: float
    schedule: str

    @classmethod
    def of(cls, row: list[str]) -> Break:
        broken, root, schedules, steps, seconds, schedule = row
        return cls(
            broken.strip(), root.strip(), int(schedules), int(steps), float(seconds), schedule
        )


class Kind(NamedTuple):
    """One kind: the promises whose break begins it, a schedule that shows it, and the verdict."""

    name: str
    what: str
    roots: tuple[str, ...]
    broken: str
    schedule: str
    source: str
    known: str
    verdict: str
    releases: tuple[str, ...]
    repair: str = ""

    @property
    def is_whole(self) -> bool:
        return self.schedule.startswith("whole ")

    def explains(self, shown: Break) -> bool:
        return any(root == shown.root or root == shown.broken for root in self.roots)


def stored() -> dict[str, Kind]:
    table = tomllib.loads(FILE.read_text()) if FILE.exists() else {}
    return {
        name: Kind(name, **{x: tuple(y) if isinstance(y, list) else y for x, y in row.items()})
        for name, row in table.items()
    }


def of(shown: Break, kinds: dict[str, Kind]) -> str:
    """The names of the kinds that a break may belong to; "" for a new kind."""
    exact = [kind.name for kind in kinds.values() if kind.schedule == shown.schedule]
    return ", ".join(exact or [kind.name for kind in kinds.values() if kind.explains(shown)])
