"""A reader's exploration: a tree of steps, each played by the rules of several versions.

A step is a line of the scenario language. Each version has its own run of it, which begins as
a copy of the run of the step before. A line that a version cannot play only leaves a note of the
problem.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from isrlab.engine.versions import KafkaVersion
from isrlab.world import words
from isrlab.world.actions import does_something, news, play_line
from isrlab.world.cluster import NotSettledError
from isrlab.world.frames import Frame
from isrlab.world.script import Run, parse

MOST_STEPS = 2_000  # of a tree


@dataclass(slots=True)
class Node:
    """One step; `parent` is the previous step, `last` the child that was visited last."""

    line: str
    parent: int
    last: int = 0
    runs: dict[str, Run] = field(default_factory=dict)
    captions: dict[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    states: dict[str, list[object]] = field(default_factory=dict)  # drawn states, to compare


class Exploration:
    """An open scenario: its set-up is the root, and its steps are the first path through the tree.

    `versions` are one or two names; the default is the scenario's own. `at` is the step to begin
    at (default: the last). Raises ValueError for a scenario that cannot be played.
    """

    def __init__(
        self, text: str, versions: Sequence[str | KafkaVersion] = (), at: int | None = None
    ) -> None:
        self.rules: dict[str, KafkaVersion] = {}  # by name, including rules switched by hand
        lines = [c.text.split("  #")[0].strip() for b in parse(text) for c in b.commands]
        own = [line.split()[1] for line in lines if line.startswith("version ")]
        first = next((n for n, line in enumerate(lines) if does_something(line)), len(lines))
        self.compare(versions or own or ("3.7",))
        self.setup = [line for line in lines[:first] if line.startswith("partition")]
        if not self.setup:
            raise ValueError("a scenario begins with a 'partition' line")
        self.tree = [Node("", 0)]
        self.current = 0
        self.run(self.versions[0])  # a wrong set-up is wrong in every version
        for line in filter(does_something, lines[first:]):
            self.play(line)
        self.run(self.versions[0])
        self.go(self.path(self.current)[at] if at is not None else self.current)

    def compare(self, versions: Sequence[str | KafkaVersion]) -> None:
        """Choose the one or two versions whose rules play the steps."""
        chosen = [self._rules_of(version) for version in versions[:2]]
        self.rules |= {version.name: version for version in chosen}
        self.versions = [version.name for version in chosen]

    def _rules_of(self, version: str | KafkaVersion) -> KafkaVersion:
        return self.rules.get(str(version)) or KafkaVersion.of(version)

    def play(self, line: str) -> None:
        """Take a step from the current one, or go to it if the tree already has it."""
        line = " ".join(line.split("#")[0].split())
        if not does_something(line):
            raise ValueError(f"{line!r} is not a step")
        for number, tried in enumerate(self.tree[1:], 1):
            if (tried.parent, tried.line) == (self.current, line):
                return self.go(number)
        if len(self.tree) >= MOST_STEPS:
            raise ValueError(f"a tree has at most {MOST_STEPS:,} steps")
        self.tree.append(Node(line, self.current))
        return self.go(len(self.tree) - 1)

    def go(self, number: int) -> None:
        """Move to a step of the tree. Raises ValueError if there is no such step."""
        if not 0 <= number < len(self.tree):
            raise ValueError(f"no step {number}")
        self.current = number
        if number:
            self.tree[self.tree[number].parent].last = number

    def path(self, number: int) -> list[int]:
        """The steps from the root to this one."""
        steps = [number]
        while steps[-1]:
            steps.append(self.tree[steps[-1]].parent)
        return steps[::-1]

    def run(self, version: str, number: int | None = None) -> Run:
        """The run of a version up to a step (default: the current one)."""
        number = self.current if number is None else number
        for step in self.path(number) if version not in self.tree[number].runs else ():
            tried = self.tree[step]
            if version in tried.runs:
                continue
            if step == 0:
                run = Run([], self._rules_of(version))
                for line in self.setup:
                    play_line(run, line)
            else:
                run = deepcopy(before := self.tree[tried.parent].runs[version])
                try:
                    play_line(run, tried.line)
                except (ValueError, NotSettledError) as error:
                    why = str(error).split("\n")[:2][-1].strip()  # the reason, without the place
                    run, tried.problems[version] = deepcopy(before), why
                tried.captions[version] = news(run, before)
            tried.runs[version] = run
        return self.tree[number].runs[version]

    def problem(self, version: str, step: int) -> str:
        """Why a version could not play a step; empty if it could."""
        self.run(version, step)
        return self.tree[step].problems.get(version, "")

    def frames(self, version: str, step: int) -> list[Frame]:
        """The frames that a step added, in all partitions."""
        run, before = self.run(version, step), self.run(version, self.tree[step].parent)
        parts = zip(run.topic, before.topic, strict=True)
        added = [frame for part, old in parts for frame in part.frames[len(old.frames) :]]
        return sorted(added, key=lambda frame: frame.now_ms)

    def broken(self, version: str, step: int) -> list[str]:
        """The promises that this step broke."""
        before = self.run(version, self.tree[step].parent).violations if step else {}
        return [name for name in self.run(version, step).violations if name not in before]

    def differs(self) -> int | None:
        """The first step on the path after which the states of the two versions differ."""
        for step in self.path(self.current) if len(self.versions) > 1 else ():
            first, second = (self._state(version, step) for version in self.versions)
            if first != second:
                return step
        return None

    def _state(self, version: str, step: int) -> list[object]:
        states, run = self.tree[step].states, self.run(version, step)
        if version not in states:
            states[version] = [*_drawn(run), version in self.tree[step].problems]
        return states[version]

    def word(self, version: str, step: int | None = None) -> str:
        """The outcome of a step (default: the current one); "impossible" if its path has
        problems."""
        step = self.current if step is None else step
        end = self.run(version, step).outcome.word
        path = (self.tree[number] for number in self.path(step))
        return "impossible" if any(version in tried.problems for tried in path) else end

    @property
    def text(self) -> str:
        """The path as a scenario."""
        lines = [self.tree[step].line for step in self.path(self.current)[1:]]
        release = self.versions[0].split()[0]  # without rules switched by hand
        return "\n".join([f"version {release}", *self.setup, *lines]) + "\n"


def _drawn(run: Run) -> Iterator[object]:
    """The drawn state of a run, without leader epochs, which older releases count differently."""
    for cluster in (part.cluster for part in run.topic):
        yield cluster.controller.leader, set(cluster.controller.isr)
        yield [line.split(" epoch=")[0] for line in words.status(cluster)]
        yield [cluster.disks[number].records for number in sorted(cluster.disks)]
