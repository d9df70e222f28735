"""Random search: schedules that break a promise, shortened, as scenario text.

Theory of operation. A seed plays a schedule: it repeatedly draws one of the lines that make sense
in the current state. When a safety property breaks, the lines so far are a scenario that shows it,
and lines are removed while it still breaks. A search can require that the schedule is harmless in
another version, and then finds a fault that this version repaired.

Messages of the controller are not dropped: a real one repeats them until they arrive.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from isrlab.engine.safety import PROPERTIES
from isrlab.world import scenario
from isrlab.world.cluster import Cluster, NotSettledError
from isrlab.world.commands import ANY, COMMANDS, ONE, links_with_messages, obey
from isrlab.world.script import Command, Run
from isrlab.world.words import address, ids

MOST_BROKERS = 4  # that a partition may move to
WAITS = ("100ms", "600ms", "6s", "20s", "50s")


class Schedule:
    """A cluster and the lines it has played so far; `faults` are extra kinds of faults."""

    def __init__(self, version: str, partition: str, faults: Iterable[str] = ()) -> None:
        self.run = Run([])
        self.faults = frozenset(faults)
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
        """The lines that make sense now, by kind; a repeated kind is drawn more often."""
        kinds = [(part, lines) for part in self.run.topic for lines in self._offers(part)]
        return [lines for part, kind in kinds if (lines := self._named(part, kind))]

    def _named(self, part: Run, lines: list[str]) -> list[str]:
        """Lines with the partition's name if there are several; lines of machines only once."""
        scope = COMMANDS[lines[0].split()[0]].scope
        if self.run.others and scope in (ONE, ANY):
            return [line.replace(" ", f" {part.name} ", 1) for line in lines]
        return lines if part is self.run else []

    def _offers(self, part: Run) -> list[list[str]]:
        cluster, faults = part.cluster, self.faults
        live = sorted(cluster.brokers)
        leaders = [b for b in live if b == cluster.controller.leader] or live
        running = [b for b in live if b not in cluster.paused]
        power_fails_at = cluster.replicas if "power" in faults else ()
        waiting = links_with_messages(cluster)
        pairs = [(a, b) for a in cluster.replicas for b in (*cluster.replicas, 0) if a < b or not b]
        links = {f"{a} {address(b)}": cluster.is_cut(a, b) for a, b in pairs}
        stops = ("kill", "clean_shutdown", "hard_bounce", "clean_bounce")
        offers = [
            (2, [f"produce {b} acks={acks}" for acks in ("1", "all") for b in leaders]),
            (2, ["stabilize"]),
            (2, [f"advance {duration}" for duration in WAITS]),
            (1, ["elect"]),
            (1, ["elect preferred"]),
            (3, [f"deliver {link}" for link in waiting]),
            (1, [f"drop {link}" for link in waiting if not link.startswith("controller")]),
            (1, [f"cut {link}" for link, is_cut in links.items() if not is_cut]),
            (2, [f"heal {link}" for link, is_cut in links.items() if is_cut]),
            (1, [f"{stop} {b}" for stop in stops for b in live]),
            (1, [f"kill {b}" for b in live]),
            (2, [f"start {b}" for b in cluster.replicas if b not in live]),
            (1, [f"pause {b} {what}" for what in ("process", "fetcher") for b in running]),
            (2, [f"resume {b}" for b in sorted(cluster.paused)]),
            (1, [f"flush {b}" for b in power_fails_at]),
            (1, [f"power_loss {b}" for b in live if b in power_fails_at]),
            (1, ["elect unclean"] if "unclean" in faults else []),
            (1, ["hard_bounce controller"] if "controller" in faults else []),
            (1, _reassignments(cluster) if "reassign" in faults else []),
        ]
        return [lines for times, lines in offers for _ in range(times) if lines]


def _reassignments(cluster: Cluster) -> list[str]:
    """The lines that exchange a replica for another broker, remove one, add one, or cancel."""
    target = cluster.controller.state.target
    brokers = {*cluster.replicas, min(max(cluster.replicas) + 1, MOST_BROKERS)}
    others = sorted(brokers - set(target))
    wanted = [(*(b if r == gone else r for r in target),) for gone in target for b in others]
    wanted += [target[1:], target[:-1]] if len(target) > 1 else []
    wanted += [(*target, b) for b in others]
    return [*(f"reassign {ids(brokers)}" for brokers in wanted), "reassign cancel"]


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
