"""Placing the replicas of a new topic on brokers: Kafka's two algorithms.

zookeeper  AdminUtils.assignReplicasToBrokers 3.2.3; 0.8 to 3.x with ZooKeeper, racks since 0.10.
           Leaders: a random broker first, then the next one for each partition. Followers: at a
           growing distance, next to each other. So three replicas always include neighbours: of n
           brokers it uses n(n-3) triples, however many topics there are.
kraft      StripedReplicaPlacer.RackList 3.9.0; no broker is fenced. The first n partitions of a
           topic take neighbours in order, the next n neighbours in a shuffled order, and so on.

`racks` has the name of each broker's rack, "" if it has none.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count, zip_longest

import numpy as np
from numpy.random import Generator

Racks = Mapping[int, str]
Replicas = list[tuple[int, ...]]  # of each partition of a topic, the preferred leader first


def zookeeper(racks: Racks, partitions: int, factor: int, random: Generator | None) -> Replicas:
    """A topic's replicas. Its first broker and first distance are drawn (without `random`: 0)."""
    if len({bool(rack) for rack in racks.values()}) > 1:
        raise ValueError("some brokers have a rack and some have none: Kafka refuses that")
    rack_of = {broker: rack or broker for broker, rack in racks.items()}
    order = _alternated(sorted(racks, key=lambda broker: (racks[broker], broker)), racks)
    many = len(set(rack_of.values()))
    start, shift = map(int, random.integers(len(order), size=2)) if random else (0, 0)
    placed = []
    for partition in range(partitions):
        first = partition + start
        replicas = [order[first % len(order)]]
        used = {rack_of[replicas[0]]}
        steps = count((shift + partition // len(order)) * many)
        while len(replicas) < factor:
            broker = order[(first + 1 + next(steps) % (len(order) - 1)) % len(order)]
            is_new_rack = rack_of[broker] not in used or len(used) == many
            if is_new_rack and broker not in replicas:
                replicas.append(broker)
                used.add(rack_of[broker])
        placed.append(tuple(replicas))
    return placed


def _alternated(order: Iterable[int], racks: Racks) -> list[int]:
    """The first broker of each rack, racks in order of appearance; then the second ones, ..."""
    lists: dict[str | int, list[int]] = {}
    for broker in order:
        lists.setdefault(racks[broker] or broker, []).append(broker)
    return [b for column in zip_longest(*lists.values()) for b in column if b is not None]


class _Rack:
    """The brokers of a rack, as a list that is read from another offset in each epoch."""

    def __init__(self, brokers: Sequence[int], random: Generator) -> None:
        self.brokers = np.array(sorted(brokers))
        self.index, self.epoch = 0, 0
        self.offset = int(random.integers(len(brokers)))

    def next(self, epoch: int) -> int | None:
        if self.epoch != epoch:
            self.epoch, self.index, self.offset = epoch, 0, self.offset + 1
        if self.index == len(self.brokers):
            return None
        self.index += 1
        return int(self.brokers[(self.index - 1 + self.offset) % len(self.brokers)])


def kraft(racks: Racks, partitions: int, factor: int, random: Generator) -> Replicas:
    names = sorted(set(racks.values()))
    lists = [_Rack([b for b in racks if racks[b] == name], random) for name in names]
    offset, epoch, placed = int(random.integers(len(names))), 0, []
    for _ in range(partitions):
        if epoch == len(racks) > 1:
            random.shuffle(lists)
            for rack in lists:
                random.shuffle(rack.brokers)
            epoch = 0
        offset %= len(lists)
        first = offset
        while (broker := lists[first].next(epoch)) is None:
            first = (first + 1) % len(lists)
        replicas, at = [broker], offset
        while len(replicas) < factor:
            if at == first:
                first = -1  # only once: the leader came from here
            elif (broker := lists[at].next(epoch)) is not None:
                replicas.append(broker)
            at = (at + 1) % len(lists)
        placed.append(tuple(replicas))
        epoch, offset = epoch + 1, offset + 1
    return placed


ALGORITHMS: dict[str, Callable[[Racks, int, int, Generator], Replicas]] = {
    "zookeeper": zookeeper,
    "kraft": kraft,
}


def placed(
    algorithm: str, racks: Racks, topics: Sequence[tuple[int, int]], seed: int = 1
) -> Replicas:
    """The replicas of all partitions of topics, each with (partitions, replication factor)."""
    if algorithm not in ALGORITHMS:
        raise ValueError(f"no algorithm {algorithm!r}; known: {', '.join(ALGORITHMS)}")
    everything: Replicas = []
    random = np.random.default_rng(seed).spawn(len(topics))
    for draw, (partitions, factor) in zip(random, topics, strict=True):
        if not 1 <= factor <= len(racks):
            raise ValueError(f"{factor} replicas do not fit on {len(racks)} brokers")
        everything += ALGORITHMS[algorithm](racks, partitions, factor, draw)
    return everything
