"""A plan for a rolling restart.

Theory of operation. One node goes down at a time, unless more are asked for. A step of several
brokers stays in one zone, if there are zones. It leaves each partition its min ISR and
`least_copies` copies in sync, and it moves at most `most_leaders` leaders. Voters go down one by
one after all other brokers, and the active controller at the very end: its stop makes the others
elect a new one. The plan holds only if, before each step, every ISR of its brokers is full.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from isrlab_ops.check.cluster import ClusterState
from isrlab_ops.check.outcome import most_demanded


class RollLimits(NamedTuple):
    """`together`: brokers in a step; `most_leaders`: 0 for a quarter of all."""

    together: int = 1
    least_copies: int = 2
    most_leaders: int = 0


ONE_BY_ONE = RollLimits()


def roll(state: ClusterState, limits: RollLimits) -> list[list[int]]:
    """The nodes of each step; each goes into the first step with room for it, in order of zones."""
    voters = {*state.quorum.replicas} if state.quorum else set()
    last = state.quorum.leader if state.quorum else -1
    order = sorted(state.nodes, key=lambda b: (b == last, b in voters, state.racks.get(b, ""), b))
    most_leaders = limits.most_leaders or len(state.partitions) // 4
    led, of_broker, spare = Counter(p.leader for p in state.partitions), defaultdict(set), []
    for number, p in enumerate(state.partitions):
        copies = len(p.replicas)
        needed = max(limits.least_copies, most_demanded(state, p.min_isr or copies, copies))
        spare.append(copies - needed)
        for broker in p.replicas:
            of_broker[broker].add(number)

    def fit(brokers: list[int]) -> bool:
        down = Counter(number for b in brokers for number in of_broker[b])
        return (
            len(brokers) <= limits.together
            and voters.isdisjoint(brokers)
            and len({state.racks[b] for b in brokers}) == 1
            and sum(led[b] for b in brokers) <= most_leaders
            and all(count <= spare[number] for number, count in down.items())
        )

    steps: list[list[int]] = []
    for broker in order:
        step = next((step for step in steps if fit([*step, broker])), [])
        steps += [step] * (not step)
        step.append(broker)
    return steps
