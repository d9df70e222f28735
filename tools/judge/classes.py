"""What is judged: for each class, how its schedules are made, and both players of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from isrlab.engine.versions import KafkaVersion
from isrlab.judged.stored import CommandWords, Player, player
from judge import brokers, pairs, schedules
from judge.control import KafkaController
from judge.fetcher import KafkaFollower
from judge.managed import EpochlessPartition, ManagedPartition, MessagePartition
from judge.older import StoredPartition, TickingPartition, ZooKeeperPartition
from judge.partition import KafkaPartition
from judge.world import World

# Orders are metadata records there (Partition.makeLeader takes a PartitionRegistration), records,
# ISR listeners and delayed produces have moved to other jars
MOVED = (4, 2)


class Judged(NamedTuple):
    """One class of Kafka's. Its schedules depend on a seed and on the release's rules only."""

    kind: str
    first: tuple[int, ...]  # the oldest release with such a class that its player can make
    end: tuple[int, ...]  # and the first where it can no more: there its parts have moved
    settings: Callable[[int, KafkaVersion], dict[str, Any]]
    commands: Callable[[random.Random, Any], Iterator[CommandWords]]
    kafka: Callable[[World, KafkaVersion, dict[str, Any]], Any]

    def schedule(self, seed: int, version: KafkaVersion) -> list[CommandWords]:
        """A random schedule, as it looks beside an engine of its own."""
        engine = player(self.kind, version, self.settings(seed, version))
        made: list[CommandWords] = []
        with suppress(Exception):  # of the engine; both play what was made, and say so again
            for command in self.commands(random.Random(seed), engine):
                made.append(list(command))
                engine.do(*command)
        return made

    def both(
        self, world: World, version: KafkaVersion, settings: dict[str, Any]
    ) -> tuple[Any, Player]:
        """Kafka's player, which must be closed, and the engine's."""
        return self.kafka(world, version, settings), player(self.kind, version, settings)


def _partition_of(version: KafkaVersion) -> type[KafkaPartition]:
    if version.writes_zookeeper:
        if version.first >= (2, 4):
            return StoredPartition
        if version.first >= (0, 11):
            return ManagedPartition
        return EpochlessPartition if version.first >= (0, 10, 2) else MessagePartition
    if version.kraft:
        return KafkaPartition
    return ZooKeeperPartition if version.first >= (2, 8) else TickingPartition


CLASSES = {
    judged.kind: judged
    for judged in (
        Judged(
            "partition", (0, 9), MOVED, schedules.settings, schedules.commands,
            lambda world, version, settings: _partition_of(version)(world, **settings),
        ),
        Judged(
            "follower", (1, 1), MOVED, pairs.settings, pairs.commands,
            lambda world, version, settings:
                KafkaFollower(world, _partition_of(version), **settings),
        ),
        Judged(
            "controller", (3, 3), (99,), brokers.settings, brokers.commands,
            lambda world, _, settings: KafkaController(world, **settings),
        ),
    )
}  # fmt: skip
