"""Random search: schedules that break a promise, shortened, as scenario text.

Theory of operation. A seed plays a schedule: it repeatedly draws one of the lines that make sense
in the current state. When a safety property breaks, the lines so far are a scenario that shows it,
and lines are removed while it still breaks. A search can require that the schedule is harmless in
another version, and then finds a fault that this version repaired.

Messages of the controller are not dropped: a real one repeats them until they arrive.
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from isrlab.engine.safety import PROPERTIES
from isrlab.world import scenario
from isrlab.world.actions import KINDS, enabled
from isrlab.world.cluster import NotSettledError
from isrlab.world.commands import COMMANDS, obey
from isrlab.world.script import Command, Run

# Extra kinds of faults, and how often the other kinds are drawn, where it is more than once.
FAULTS = {
    "power": ("power", "flush"), "unclean": ("unclean",), "controller": ("failover",),
    "reassign": ("reassign",),
}  # fmt: skip
WEIGHTS = {"deliver": 3} | dict.fromkeys(
    ("produce", "settle", "wait", "kill", "start", "resume", "heal"), 2
)


class Schedule:
    """A cluster and the lines it has played so far; `faults` are extra kinds of faults."""

    def __init__(self, version: str, partition: str, faults: Iterable[str] = ()) -> None:
        self.run = Run([])
        left_out = {kind for name in FAULTS.keys() - {*faults} for kind in FAULTS[name]}
        self.kinds = [kind for kind in KINDS if kind not in left_out]
        self.lines: list[str] = []
        for line in (f"version {version}", *partition.splitlines()):
            self.play(line)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def play(self, line: str) -> None:
        self.lines.append(line)
        obey(self.run, Command(len(self.lines), line))

    def choose(self, kind: int, which: int, words: tuple[str, ...] = ()) -> None:
        """Play one of the lines that make sense now; if `words` are given, only these commands."""
        offers = [ls for ls in self.offers() if not words or ls[0].split()[0] in words]
        if offers:
            lines = offers[kind % len(offers)]
            self.play(lines[which % len(lines)])

    def offers(self) -> list[list[str]]:
        """The possible lines, by kind and partition; a kind is repeated as often as it weighs."""
        lines: dict[tuple[str, str], list[str]] = {}
        for action in enabled(self.run, self.kinds):
            lines.setdefault((action.kind, action.part), []).append(action.line)
        return [each for (kind, _), each in lines.items() for _ in range(WEIGHTS.get(kind, 1))]


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal of a search."""

    property: str  # of engine/safety.py
    version: str  # in which it must break
    unless: str | None = None  # a version in which the same schedule must keep it
    partition: str = "partition replicas=1,2"  # one line for each partition of a topic
    faults: tuple[str, ...] = ()  # extra kinds: "power", "unclean", "controller", "reassign"
    words: tuple[str, ...] = ()  # the commands to draw from; empty: all of them
    length: int = 40  # lines of a schedule, at most

    def __post_init__(self) -> None:
        if self.property not in PROPERTIES:
            raise ValueError(f"no property {self.property!r}; known: {', '.join(PROPERTIES)}")
        for version in (self.version, self.unless or self.version):
            scenario.play(self.partition, version=version)
        for word in (word for word in self.words if word not in COMMANDS):
            raise ValueError(f"no command {word!r}; known: {', '.join(COMMANDS)}")


def find(goal: Goal, seeds: Iterable[int]) -> Iterator[tuple[int, str]]:
    """(seed, shortened scenario) for each of `seeds` whose schedule breaks the property."""
    for seed in seeds:
        lines = random_schedule(goal, seed)
        if lines and is_reached(goal, lines):
            yield seed, "\n".join(shorten(goal, lines))


def random_schedule(goal: Goal, seed: int) -> list[str]:
    """The schedule of a seed up to the break, without its version line; empty if nothing broke."""
    chance = random.Random(seed)
    schedule = Schedule(goal.version, goal.partition, goal.faults)
    for _ in range(goal.length):
        try:
            schedule.choose(chance.randrange(1 << 30), chance.randrange(1 << 30), goal.words)
        except (ValueError, NotSettledError):
            return []
        if goal.property in schedule.run.violations:
            return schedule.lines[1:]
    return []


def is_reached(goal: Goal, lines: list[str]) -> bool:
    """Whether the schedule breaks the property in `goal.version`, and not in `goal.unless`."""
    return _breaks(goal, goal.version, lines) and not (
        goal.unless and _breaks(goal, goal.unless, lines)
    )


def _breaks(goal: Goal, version: str, lines: list[str]) -> bool:
    try:
        run = scenario.play("\n".join(lines), version=version)
    except (ValueError, NotSettledError):
        return False
    return goal.property in run.violations


def shorten(goal: Goal, lines: list[str]) -> list[str]:
    """The schedule, cut until the break needs each line that is left; the first line stays."""
    size = len(lines) // 2
    while size:
        before, start = len(lines), 1
        while start < len(lines):
            shorter = lines[:start] + lines[start + size :]
            if is_reached(goal, shorter):
                lines = shorter
            else:
                start += size
        if size > 1 or len(lines) == before:
            size //= 2
    return lines
