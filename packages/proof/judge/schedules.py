"""Random schedules, played by the engine and by Kafka, which are compared after every step.

A schedule is a list of commands, (name, *words); one seed makes one schedule. The generator looks
at the engine's state so that most commands make sense: offsets are near the ends of the log, epochs
near the current one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from isrlab.engine.versions import KafkaVersion
from isrlab_proof.judged.leader import REPLICAS, LeaderPlayer
from isrlab_proof.judged.stored import CommandWords, Player, Seen

ERRORS = (
    "FENCED_LEADER_EPOCH", "INVALID_UPDATE_VERSION", "UNKNOWN_SERVER_ERROR",
    "UNKNOWN_TOPIC_OR_PARTITION",
)  # fmt: skip
KRAFT_ERRORS = (*ERRORS, "INELIGIBLE_REPLICA", "INVALID_REQUEST", "NEW_LEADER_ELECTED")
OFTEN = {
    "append": 3, "produce": 3, "fetch": 12, "wait": 4, "check": 4, "answer": 5, "order": 1.2,
    "brokers": 1,
}  # fmt: skip
LAG_MS = 30_000
STEPS = 60


def settings(seed: int, version: KafkaVersion) -> dict[str, int]:
    return {"min_insync_replicas": 1 + seed % 3, "replica_lag_time_max_ms": LAG_MS}


class Difference(Exception):
    """Kafka and the engine differ after `schedule`."""

    def __init__(self, schedule: list[CommandWords], differs: dict[str, tuple[Any, Any]]) -> None:
        lines = [f"  {' '.join(map(str, command))}" for command in schedule]
        facts = [
            f"  {name}: Kafka {ours}, engine {theirs}" for name, (ours, theirs) in differs.items()
        ]
        super().__init__("\n".join(["after", *lines, "differ", *facts]))
        self.schedule, self.differs = schedule, differs


def commands(draw: random.Random, player: LeaderPlayer) -> Iterator[CommandWords]:
    version = player.broker.version
    epoch, stored = draw.randrange(3), 1
    yield ["order", epoch, stored, _members(draw)]
    errors = KRAFT_ERRORS if version.kraft else ERRORS
    brokers = dict.fromkeys(REPLICAS, (0, True))
    yield ["brokers", *([n, *state] for n, state in brokers.items())]
    weights = [weight * draw.choice((0.3, 1, 3)) for weight in OFTEN.values()]
    failures = draw.choice((0.1, 0.3, 0.8))
    for _ in range(STEPS):
        seen = player.seen()
        name = draw.choices(list(OFTEN), weights)[0]
        if name == "append":
            yield ["append", draw.choice((1, 1, 2, 3))]
        elif name == "fetch":
            yield _fetch(draw, version, epoch, seen, brokers)
        elif name == "wait":
            yield ["wait", draw.choice((1, 100, 500, 5_000, 15_000, 30_000, 30_001))]
        elif name == "answer" and version.writes_zookeeper:
            yield ["zookeeper", draw.random() > failures]
        elif name == "answer":
            yield ["answer", draw.choice(errors) if draw.random() < failures else None]
        elif name == "order":
            role = draw.choices(("same", "new", "old", "lost"), (3, 4, 1, 1))[0]
            stored = max(stored, seen.get("partition_epoch", 0)) + draw.choice((0, 1, 1, 2))
            epoch += role in ("new", "lost")
            if role == "lost":
                yield ["order", epoch, stored, _members(draw), 2]
                if version.fences_stale_leader_epoch and draw.random() < 0.7:
                    count = draw.randrange(4)
                    yield ["copy", count, draw.randint(seen["hw"], seen["leo"] + count), epoch]
                if draw.random() < 0.5:
                    yield _fetch(draw, version, epoch, seen, brokers)
                epoch, stored = epoch + 1, stored + 1
            is_old = role == "old"  # as any that the metadata log brings late
            before = stored - 4 * is_old
            if is_old and version.kraft:  # an older epoch has an older partition epoch there
                before = min(before, seen.get("partition_epoch", 0) - 1)
                is_old = before >= 0
                before = before if is_old else stored
            yield ["order", max(0, epoch - is_old), max(0, before), _members(draw)]
        elif name == "brokers":
            number = draw.choice(REPLICAS[1:])
            brokers[number] = brokers[number][0] + draw.choice((0, 0, 1)), draw.random() < 0.7
            yield ["brokers", *([n, *state] for n, state in brokers.items())]
        else:
            yield [name]


def _members(draw: random.Random) -> list[int]:
    return sorted({1, *draw.sample(REPLICAS, draw.randrange(1, 4))})


def _fetch(
    draw: random.Random, version: KafkaVersion, epoch: int, seen: Seen, brokers: dict[int, Any]
) -> CommandWords:
    replica, leo, hw = draw.choice(REPLICAS[1:]), seen["leo"], seen["hw"]
    offset = draw.choice((leo, leo, leo, hw, hw + 1, max(0, leo - 1), draw.randrange(leo + 2)))
    last = draw.choice((-1, -1, -1, epoch, max(0, epoch - 1), draw.randrange(epoch + 2)))
    current = draw.choices((-1, epoch, max(0, epoch - 1), epoch + 1), (6, 12, 1, 1))[0]
    process = brokers[replica][0]
    process = draw.choices((process, -1, max(0, process - 1), process + 1), (12, 3, 2, 1))[0]
    starts = [start for number, start in seen["epochs"] if number == epoch and start < hw]
    if starts and draw.random() < 0.15:  # it has reached this epoch, but not the high watermark
        offset, last, current = draw.randrange(starts[0], hw), -1, epoch
        process = brokers[replica][0]
    if version.writes_zookeeper:  # no fetch names an epoch yet
        last = -1
    if not version.fences_stale_leader_epoch:
        current = -1
    return ["fetch", replica, offset, last, current, process]


def play(schedule: list[CommandWords], kafka: Player, engine: Player) -> list[Seen]:
    """Play a schedule on both; returns Kafka's state after each step. Raises Difference where they
    differ, or where one of them fails with an error.
    """
    states = []
    for step, command in enumerate(schedule, start=1):
        running = "Kafka"
        try:
            kafka.do(*command)
            ours, running = kafka.seen(), "engine"
            engine.do(*command)
            theirs = engine.seen()
        except Exception as error:
            cause = getattr(error, "getCause", lambda: None)()
            text = f"{type(error).__name__}: {cause or error}"
            pair = (text, "none") if running == "Kafka" else ("none", text)
            raise Difference(schedule[:step], {"error": pair}) from error
        differs = {n: (v, theirs.get(n)) for n, v in ours.items() if v != theirs.get(n)}
        if differs:
            raise Difference(schedule[:step], differs)
        states.append(ours)
    return states


def shrunk(difference: Difference, both: Callable[[], tuple[Player, Player]]) -> Difference:
    """A difference after fewer commands: each without which one still occurs is left out."""
    best, place = difference, 2  # the first two set the leader and the live brokers
    while place < len(best.schedule) - 1:
        try:
            play(best.schedule[:place] + best.schedule[place + 1 :], *both())
        except Difference as found:
            best = found
        except Exception:
            place += 1
        else:
            place += 1
    return best
