"""Stored verdicts: schedules, with Kafka's visible state after each step.

`data/judged/CLASS/RELEASE.txt.xz` has a line of JSON for each step: the command and, last, the
values that changed with it (null: the value is gone). A run begins with a line of its settings.
"""

import lzma
import tomllib
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, Protocol

import pandas as pd
from msgspec.json import decode

from isrlab.engine.versions import KafkaVersion
from isrlab.installed import DATA
from isrlab_proof.judged.controller import ControllerPlayer
from isrlab_proof.judged.follower import FollowerPlayer
from isrlab_proof.judged.leader import LeaderPlayer, Seen

FOLDER = DATA / "judged"
COMPARED = FOLDER / "compared.json"
SETTINGS = "settings"
ENDING = ".txt.xz"
CommandWords = list[Any]  # a name and its words
# Kafka's class, in words, and the engine's player that is compared with it
CLASSES: dict[str, tuple[str, Any]] = {
    "partition": ("Partition, with its log and the manager of its ISR changes", LeaderPlayer),
    "follower": ("ReplicaFetcherThread, with the partition and log that it fills", FollowerPlayer),
    "controller": ("ReplicationControlManager of KRaft, and what it asks", ControllerPlayer),
}


class Player(Protocol):
    """A machine that obeys a schedule's commands and shows its visible state."""

    def do(self, name: str, *words: Any) -> None: ...
    def seen(self) -> Seen: ...


def player(kind: str, version: KafkaVersion, settings: dict[str, Any]) -> Player:
    """The engine's machine for schedules of this class. Raises ValueError for an unknown class."""
    if kind not in CLASSES:
        raise ValueError(f"unknown class {kind!r}; known: {', '.join(CLASSES)}")
    return CLASSES[kind][1](version, **settings)


class Compared(NamedTuple):
    """One command, and the visible states of Kafka and of the engine after it."""

    command: CommandWords
    kafka: Seen
    engine: Seen

    @property
    def differs(self) -> dict[str, tuple[Any, Any]]:
        """(Kafka's value, the engine's value) by name, for each value that differs."""
        own = self.engine.get
        return {n: (value, own(n)) for n, value in self.kafka.items() if value != own(n)}


class JudgedRun(NamedTuple):
    """One schedule and Kafka's state after each of its commands."""

    kind: str
    settings: dict[str, Any]
    schedule: list[CommandWords]
    states: list[Seen]

    def beside(self, version: KafkaVersion) -> Iterator[Compared]:
        """Play the schedule by the engine's `version`, and compare each step with Kafka's."""
        engine = player(self.kind, version, self.settings)
        for command, state in zip(self.schedule, self.states, strict=True):
            engine.do(*command)
            yield Compared(command, state, engine.seen())

    def agrees(self, version: KafkaVersion) -> bool:
        """Whether the engine with these rules runs, and agrees with Kafka after every step."""
        try:
            return not any(step.differs for step in self.beside(version))
        except (ArithmeticError, LookupError, TypeError, ValueError):
            return False


def releases(kind: str) -> list[str]:
    """The releases with stored verdicts of this class, oldest first."""
    names = [path.name.removesuffix(ENDING) for path in (FOLDER / kind).glob(f"*{ENDING}")]
    return sorted(names, key=lambda name: tuple(map(int, name.split("."))))


@cache
def read(kind: str, release: str) -> list[JudgedRun]:
    """All stored runs of a class and release; if there are none, ValueError lists the others."""
    if release not in releases(kind):
        known = {name: releases(name) for name in CLASSES}
        raise ValueError(f"no verdicts of {kind!r} {release!r} are stored; there are {known}")
    runs: list[JudgedRun] = []
    shown: Seen = {}
    packed = (FOLDER / kind / f"{release}{ENDING}").read_bytes()
    for line in lzma.decompress(packed).splitlines():
        *command, change = decode(line)
        if command == [SETTINGS]:
            runs.append(JudgedRun(kind, change, [], []))
            shown = {}
        else:
            shown = shown | change
            runs[-1].schedule.append(command)
            runs[-1].states.append(shown)
    return runs


def figures() -> pd.DataFrame:
    """A row for each class and release: the stored runs and steps, and all compared steps.

    `compared` counts the steps of the `make judge` run from which the stored ones were chosen.
    """
    compared = decode(COMPARED.read_bytes())
    rows = []
    for kind, release in [(name, each) for name in CLASSES for each in releases(name)]:
        runs = read(kind, release)
        steps = sum(len(run.schedule) for run in runs)
        rows.append((kind, release, len(runs), steps, compared[kind].get(release, 0)))
    return pd.DataFrame(rows, columns=["class", "release", "runs", "steps", "compared"])


def found() -> dict[str, dict[str, Any]]:
    """The differences that were found, corrected or not, by letter: see data/judged/README.md."""
    rows = tomllib.loads((FOLDER / "found.toml").read_text(encoding="utf-8"))
    return {letter: {"is_mended": True} | row for letter, row in rows.items()}
