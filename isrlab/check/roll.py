"""A plan for a rolling restart.

Theory of operation. The plan assumes that every ISR is full before each step. The brokers of a step
go down together; no partition may lose more replicas than it can spare beyond its min ISR, except
those that can spare none. Each broker goes into the first step with room for it, in order of zones
or of ids. A partition of n replicas, of which k may be down, needs at least n / k steps.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from isrlab.check.cluster import ClusterState
from isrlab.check.outcome import most_demanded


class Roll(NamedTuple):
    """`steps`: brokers that may go down together; `least_steps`: no order has fewer. `refusing`:
    partitions that refuse acks=all in some step, whatever the order."""

    steps: list[list[int]]
    least_steps: int
    refusing: int


def roll(state: ClusterState) -> Roll:
    """The shorter of two plans, in steps of brokers that go down together."""
    held = Counter((tuple([b for b in p.replicas if b not in p.removing]), p.min_isr or 1)
                   for p in state.partitions)  # fmt: skip
    spares = [len(ids) - most_demanded(state, min_isr, len(ids)) for ids, min_isr in held]
    of_broker: dict[int, list[tuple[int, int]]] = defaultdict(list)
    fewest = 1
    for number, ((ids, _), spare) in enumerate(zip(held, spares, strict=True)):
        if spare > 0:
            fewest = max(fewest, ceil(len(ids) / spare))
            for broker in ids:
                of_broker[broker].append((number, spare))
    orders = sorted(state.racks, key=lambda b: (state.racks[b], b)), sorted(state.racks)
    steps = min((_steps(order, of_broker) for order in orders), key=len)
    refusing = sum(n for n, spare in zip(held.values(), spares, strict=True) if spare <= 0)
    return Roll(steps, fewest, refusing)


def _steps(order: Sequence[int], of_broker: dict[int, list[tuple[int, int]]]) -> list[list[int]]:
    """Each broker in the first step that has room for it."""
    steps: list[tuple[list[int], Counter[int]]] = []
    for broker in order:
        kinds = of_broker[broker]
        has_room = (step for step in steps if all(step[1][kind] < spare for kind, spare in kinds))
        if (step := next(has_room, None)) is None:
            steps.append(step := ([], Counter()))
        step[0].append(broker)
        step[1].update(kind for kind, _ in kinds)
    return [members for members, _ in steps]
