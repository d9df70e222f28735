"""`python -m isrlab search --all`: reads the question, tries every schedule, prints the verdict.

The output is scenario text, with the verdict in comments.
"""

import os
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from isrlab.engine import safety
from isrlab.engine.versions import KafkaVersion
from isrlab.progress import shown
from isrlab.world import scenario
from isrlab_proof.search.breadth_first import BreadthFirst, Extent, SearchEnd
from isrlab_proof.search.compiled import IS_FAST
from isrlab_proof.search.enabled import EngineSystem
from isrlab_proof.search.schedule import text_of
from isrlab_proof.search.space import KINDS

USUAL = {"produces": 1, "crashes": 1}
MOST_BUDGET, MOST_BROKERS = 9, 5
MOST_BYTES = 4_000_000_000
HOLDS, BREAKS, OPEN = 1, 0, 3  # exit status
UNCLEAN = "unclean.leader.election.enable"


def budgets_of(words: Iterable[str]) -> dict[str, int]:
    """Budgets from words such as crashes=1 produces=2. Raises ValueError with the valid ones."""
    budgets = {}
    for word in words:
        name, _, number = word.partition("=")
        if name in budgets:
            raise ValueError(f"{name} is given twice")
        if name not in KINDS:
            raise ValueError(f"no budget {name!r}; known: {', '.join(KINDS)}")
        if not number.isdecimal() or int(number) > MOST_BUDGET:
            raise ValueError(f"{word}: a budget is a count up to {MOST_BUDGET}: {name}=1")
        budgets[name] = int(number)
    return budgets or USUAL


def system_of(
    version: str | KafkaVersion, partition: str, budgets: dict[str, int], brokers: int = 0,
    prompt: bool = False,
) -> EngineSystem:  # fmt: skip
    """The system of a `partition` line; unclean election is off unless the line turns it on.

    Of a topic with several partitions the last is searched, and no action affects the others.
    """
    cluster = scenario.play(line_of(partition), version=version).topic[-1].cluster
    if max(len(cluster.replicas), brokers) > MOST_BROKERS:
        raise ValueError(f"at most {MOST_BROKERS} brokers can be searched")
    extra = [b for b in range(1, brokers + 1) if b not in cluster.replicas]
    return EngineSystem(cluster, budgets, extra[: max(0, brokers - len(cluster.replicas))], prompt)


def line_of(partition: str) -> str:
    """The `partition` line, with unclean election off by default, and any lines after it."""
    first, *others = partition.splitlines() or [""]
    return "\n".join([first if UNCLEAN in first else f"{first} {UNCLEAN}=false", *others])


def most_bytes() -> float:
    """Half of the machine's memory, at most 4 GB; 2 GB if its size is not known."""
    try:
        return min(MOST_BYTES, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2)
    except (AttributeError, ValueError):
        return MOST_BYTES / 2


@dataclass(frozen=True)
class SearchResult:
    """The result of a search of everything."""

    end: SearchEnd  # how many states, how deep, how long
    asked: str  # what was searched
    promise: str | None = None  # the broken one; of several, with the shortest playable schedule
    actions: tuple[str, ...] = ()  # that schedule
    text: str | None = None  # that schedule as a scenario; None if no times were found for it

    @property
    def holds(self) -> bool | None:
        """False if a promise is broken; None if none is, but not all was searched."""
        return False if self.promise else True if self.end.ended == "all" else None

    def __str__(self) -> str:
        at, states = self.end.progress, f"{self.end.progress.distinct:,} states"
        if self.promise:
            return (
                f"{self.promise} is broken after {len(self.actions)} actions, not sooner ({states})"
            )
        if self.holds:
            return f"no schedule within these budgets breaks a promise ({states})"
        return f"nothing is broken up to depth {at.depth} ({states}); not all was searched"


def try_all(
    version: str | KafkaVersion, partition: str, budgets: dict[str, int], *promises: str,
    saves: Path | None = None, resume: bool = False, **how: Any,
) -> SearchResult:  # fmt: skip
    """Search everything by the rules of a release, or by rules changed by hand
    (`KafkaVersion.of("4.1").with_(...)`), for a break of these promises (default: of any).

    An interrupted search is saved in `saves`, and continues with `resume`. `how`: `brokers` and
    `prompt` as in `system_of`; `workers`, `most_bytes`, `most_depth` and `tell` as in
    `BreadthFirst`.

    Raises ValueError if this cannot be searched.
    """
    for name in set(promises) - set(safety.PROPERTIES):
        raise ValueError(f"no property {name!r}; known: {', '.join(safety.PROPERTIES)}")
    where = {name: how.pop(name) for name in ("brokers", "prompt") if name in how}
    make: Any = partial(system_of, version, partition, budgets, **where)
    system = make()
    asked = f"{system.version.name}, {line_of(partition)}, "
    asked += " ".join(f"{kind}={count}" for kind, count in budgets.items())
    asked += "".join(f", {name}={value}" for name, value in where.items() if value)
    end = _searched(make, asked, saves, resume, {"wanted": promises, **how})
    shortest = sorted(end.schedules.items(), key=lambda item: len(item[1]))
    for name, actions in shortest:
        text = text_of(system, line_of(partition), actions, name)
        if text is not None:
            return SearchResult(end, asked, name, tuple(actions), text)
    return SearchResult(end, asked, *((shortest[0][0], tuple(shortest[0][1])) if shortest else ()))


def _searched(
    make: Any, asked: str, saves: Path | None, resume: bool, how: dict[str, Any]
) -> SearchEnd:
    if saves:
        how["kept"] = lambda search: search.save(saves, asked)
    searching = BreadthFirst(make, **({"most_bytes": most_bytes()} | how))
    try:
        if saves and resume:
            searching.load(saves, asked)
        end = searching.run()
        if saves and end.ended in ("memory", "stopped"):
            searching.save(saves, asked)
        return end
    finally:
        searching.close()


def _line(at: Extent) -> str:
    rate = at.distinct / max(at.seconds, 1e-9)
    line = f"depth {at.depth}: {at.distinct:,} states, {at.transitions:,} transitions, "
    line += f"{at.seconds:.0f} s, {rate:,.0f} states/s, {at.memory / 1e6:,.0f} MB"
    return line + ("" if IS_FAST else '; numba makes it faster: pip install "isrlab[fleet]"')


def search_all(
    version: str, partition: str, words: tuple[str, ...], *, name: str | None, memory: int | None,
    **how: Any,
) -> int:  # fmt: skip
    """Search, print the verdict, and return the exit status. Raises ValueError."""
    limit, wanted = memory * 1e6 if memory else most_bytes(), (name,) if name else ()
    extents = deque([Extent()], maxlen=1)
    how |= {"most_bytes": limit, "tell": extents.append}
    with shown(lambda: _line(extents[0]), in_logs=True):
        result = try_all(version, partition, budgets_of(words), *wanted, **how)
    end, at = result.end, result.end.progress
    print("# " + ", ".join((result.asked.replace("\n", "; "), *wanted)))
    print(f"# {at.distinct:,} states, {at.transitions:,} transitions, depth {at.depth}, "
          f"{at.seconds:.1f} s, {end.rate:,.0f} states/s, {at.memory / 1e6:,.0f} MB")  # fmt: skip
    if end.counts:
        remembered = 1 - end.counts["computed"] / max(1, end.counts["steps"])
        print(f"# {remembered:.1%} of the engine's steps were remembered")
    print(f"# chance that two states were counted as one: {end.collision_chance:.1e}")
    print(f"# {result}")
    if result.promise:
        print(f"#   {'; '.join(result.actions)}")
        print(result.text or "# no real times were found at which the same happens")
        return BREAKS
    if result.holds:
        return HOLDS
    why = f"it needs more than {limit / 1e6:,.0f} MB" if end.ended == "memory" else "it was stopped"
    print(f"# {why}; it is saved in {how['saves']}, and --resume continues it")
    return OPEN
