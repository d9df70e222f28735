"""The known kinds of breaks (data/hunt/kinds.toml), and the kind that a break belongs to.

A kind explains a break only if all of this holds: the release is one in which the kind was seen;
the break begins with one of its promises; the schedule has the kind's shape; and with the kind's
repair the schedule no longer breaks the promise. A kind without one explains no consequence of
its promises' breaks. A release without sources cannot be repaired: there the same schedule must
break the same promise in a neighbour with sources, and the repair must silence it there.
Everything else is new, however much it looks like a kind.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from judge.jars import NoJarsError

FILE = Path(__file__).parents[3] / "data" / "hunt" / "kinds.toml"

# The releases before and after with published sources, of those without.
SOURCES_OF = {"4.2.2": ("4.3.1", "4.1.2"), "4.4.0": ("4.3.1",)}


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
    """One kind: the promises whose break begins it, a schedule that shows it, and the verdict.

    `releases` are those in which `schedule` breaks `broken`; in `also` only other schedules show
    the kind. `shape` is a pattern that is found in each of its shortest schedules."""

    name: str
    what: str
    roots: tuple[str, ...]
    broken: str
    schedule: str
    source: str
    releases: tuple[str, ...]
    verdict: str = "bug"
    known: str = "nothing found"
    repair: str = ""
    shape: str = ""
    also: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        return self.schedule.startswith("whole ")

    def is_like(self, shown: Break) -> bool:
        """Whether promise and shape are this kind's."""
        begins = any(root in (shown.root, shown.broken) for root in self.roots)
        is_own = self.schedule == shown.schedule
        return (is_own or begins) and bool(re.search(self.shape, shown.schedule))


def stored() -> dict[str, Kind]:
    table = tomllib.loads(FILE.read_text()) if FILE.exists() else {}
    return {
        name: Kind(name, **{x: tuple(y) if isinstance(y, list) else y for x, y in row.items()})
        for name, row in table.items()
    }


def of(
    release: str, shown: Break, kinds: dict[str, Kind], broken: Callable[..., list[str]]
) -> tuple[list[str], list[str]]:
    """The names of the kinds that explain a break, and of those that it only looks like.

    `broken(release, schedule, repairs)` plays a schedule; it raises ValueError if a repair does
    not fit the release, and NoJarsError if the release has no sources.
    """
    alike = [kind for kind in kinds.values() if kind.is_like(shown)]
    alike = [kind for kind in alike if kind.schedule == shown.schedule] or alike
    there = [kind for kind in alike if release in (*kind.releases, *kind.also)]
    names = [x.name for x in there if (is_silenced(release, shown, x.repair, broken) if x.repair
             else shown.broken in x.roots)]  # fmt: skip
    return names, [kind.name for kind in alike if kind.name not in names]


def is_silenced(release: str, shown: Break, repair: str, broken: Callable[..., list[str]]) -> bool:
    """Whether the repair silences the break, here or in a neighbour with sources."""
    if near := SOURCES_OF.get(release):
        there = [x for x in near if shown.broken in broken(x, shown.schedule, ())]
        return any(is_silenced(x, shown, repair, broken) for x in there)
    try:
        return shown.broken not in broken(release, shown.schedule, (repair,))
    except (NoJarsError, ValueError):  # no sources, or an edit's pattern does not fit
        return False
