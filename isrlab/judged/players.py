"""The engine, spoken to as each of Kafka's classes is, by the name of that class in data/judged."""

from __future__ import annotations

from typing import Any, Protocol

from isrlab.engine.versions import KafkaVersion
from isrlab.judged.controller import ControllerPlayer
from isrlab.judged.follower import FollowerPlayer
from isrlab.judged.leader import LeaderPlayer

Command = list[Any]  # a name and its words
Seen = dict[str, Any]  # what one can see of a machine, by name


class Player(Protocol):
    """A machine that obeys a schedule's commands, and what it then shows."""

    def do(self, name: str, *words: Any) -> None: ...
    def seen(self) -> Seen: ...


# What of Kafka is held against what of the engine
CLASSES: dict[str, tuple[str, Any]] = {
    "partition": ("Partition, with its log and the manager of its ISR changes", LeaderPlayer),
    "follower": ("ReplicaFetcherThread, with the partition and log that it fills", FollowerPlayer),
    "controller": ("ReplicationControlManager of KRaft, and what it asks", ControllerPlayer),
}


def player(kind: str, version: KafkaVersion, settings: dict[str, Any]) -> Player:
    """The engine's part of a schedule of this class. Raises ValueError for an unknown one."""
    if kind not in CLASSES:
        raise ValueError(f"unknown class {kind!r}; known: {', '.join(CLASSES)}")
    return CLASSES[kind][1](version, **settings)
