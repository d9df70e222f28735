"""Verdicts that are kept: schedules, with what Kafka showed after each step.

`data/judged/RELEASE.txt.xz` is, unpacked, a line of JSON for each step: a command and, last, what
Kafka shows that it did not show before (null: shows no more). A run begins with its settings.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from isrlab.engine.choices import Form
from isrlab.engine.versions import GENERATIONS, RULES, KafkaVersion
from judge.machine import Machine, Seen
from judge.schedules import Command, Difference, play

FOLDER = Path(__file__).parents[2] / "data" / "judged"
STEPS = 2_000  # kept of each release, or more where a rule needs it
SETTINGS = "settings"
# Rules of followers, controllers, producers and logs, or in no release: no leader's step asks them
NOT_A_LEADERS = {
    "truncation", "follow_again", "halts_on_log_end_past_leader", "cleans_epochs_at_log_end",
    "epoch_bump_on_isr_shrink", "notices_fast_bounce", "keeps_last_isr_member",
    "eligible_leader_replicas", "logs_expanding_isr", "expand_waits_under_min_isr",
    "unclean_leader_election_enable", "replica_lag_time_max_ms", "replica_lag_max_messages",
    "session_timeout_ms", "producer_acks",
}  # fmt: skip
LEADERS = [rule for rule in RULES if rule not in NOT_A_LEADERS]


class Run(NamedTuple):
    """One schedule and Kafka's state after each of its commands."""

    settings: dict[str, int]
    schedule: list[Command]
    states: list[Seen]

    def agrees(self, version: KafkaVersion) -> bool:
        """The engine with these rules shows after every step what Kafka showed."""
        try:
            play(self.schedule, Replay(self.states), Machine(version, **self.settings))
        except (Difference, ArithmeticError, LookupError, TypeError, ValueError):
            return False
        return True


class Replay:
    """Kafka, as it is stored."""

    def __init__(self, states: list[Seen]) -> None:
        self.states = iter(states)

    def do(self, name: str, *words: Any) -> None:
        self.now = next(self.states)

    def seen(self) -> Seen:
        return self.now


def releases() -> list[str]:
    names = [path.name.removesuffix(".txt.xz") for path in FOLDER.glob("*.txt.xz")]
    return sorted(names, key=lambda name: tuple(map(int, name.split("."))))


def read(release: str) -> list[Run]:
    runs: list[Run] = []
    seen: Seen = {}
    for line in lzma.decompress((FOLDER / f"{release}.txt.xz").read_bytes()).decode().splitlines():
        *command, change = json.loads(line)
        if command == [SETTINGS]:
            runs.append(Run(change, [], []))
            seen = {}
        else:
            seen = seen | change
            runs[-1].schedule.append(command)
            runs[-1].states.append(seen)
    return runs


def write(release: str, runs: list[Run]) -> None:
    FOLDER.mkdir(exist_ok=True)
    text = "".join(f"{json.dumps(line)}\n" for run in runs for line in _lines(run))
    (FOLDER / f"{release}.txt.xz").write_bytes(lzma.compress(text.encode(), preset=9))


def _lines(run: Run) -> Iterator[list[Any]]:
    yield [SETTINGS, run.settings]
    before: Seen = {}
    for command, state in zip(run.schedule, run.states, strict=True):
        after = dict.fromkeys(before) | state
        yield [*command, {k: v for k, v in after.items() if k not in before or before[k] != v}]
        before = after


def neighbours(version: KafkaVersion) -> dict[str, KafkaVersion]:
    """The generations before and after, if any rule of a leader is another there."""
    place = GENERATIONS.index(version)
    near = GENERATIONS[max(0, place - 1) : place + 2]
    return {v.name: v for v in near if _rules(v) != _rules(version)}


def _rules(version: KafkaVersion) -> list[object]:
    return [getattr(version, rule) for rule in LEADERS]


def switched(version: KafkaVersion) -> dict[str, KafkaVersion]:
    """A release with each rule of a leader that it could have otherwise, by "rule=form"."""
    made = {}
    for rule in LEADERS:
        for value in _values(rule, getattr(version, rule)):
            other = version.with_(**{rule: value})
            made[f"{rule}={other.form(rule)}"] = other
    return made


def _values(rule: str, value: Any) -> list[Any]:
    every = type(value) if isinstance(value, Form) else {getattr(v, rule) for v in GENERATIONS}
    return sorted(set(every) - {value})


def unnoticed(runs: list[Run], others: dict[str, KafkaVersion]) -> dict[str, KafkaVersion]:
    """Which other rules all these runs agree with, too."""
    return {n: v for n, v in others.items() if all(run.agrees(v) for run in runs)}


def choose(runs: list[Run], version: KafkaVersion) -> list[Run]:
    """The first runs, `STEPS` of them, and each later one that notices what none has before."""
    left, chosen, steps = switched(version) | neighbours(version), [], 0
    for run in runs:
        still = unnoticed([run], left)
        if steps < STEPS or still != left:
            chosen.append(run)
            steps += len(run.schedule)
        left = still
    return chosen
