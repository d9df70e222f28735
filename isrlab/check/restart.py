"""Which brokers may go down now, which partitions block them, and a plan for a rolling restart.

Theory of operation. A broker blocks if, once it has shut down cleanly, a partition of its ISRs has
no leader, refuses acks=all, loses records to an unclean or doubtful election, or would refuse
acks=all if a reassignment completes in the meantime. A partition that already refuses writes blocks
all its replicas: stopping one in sync makes it worse, and the others must catch up.

The plan assumes that every ISR is full before each step. The brokers of a step go down together,
and no partition may lose more of them than its replicas exceed its min ISR. Each broker goes into
the first step with room for it, once in order of zones and once in order of ids; a partition of n
replicas, of which k may be down, needs at least n / k steps.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import ceil
from typing import NamedTuple

from isrlab.check.cluster import NO_LEADER, ClusterState
from isrlab.check.outcome import Shapes, most_demanded
from isrlab.logs.incidents.exposed import Exposure
from isrlab.placement.describe import DescribedPartition

RF_1, NO_SPARE = "it is the only replica", "min ISR equals the number of replicas"
LOSES, LEADERLESS = "records would be lost", "it has no leader already"
ONLY, UNDER_MIN, AT_MIN = "no other replica may lead", "already under min ISR", "at min ISR"
MOVING = "a reassignment is in progress"
PERHAPS_MOVING = "a replica on a live broker is out of sync: perhaps a reassignment"
WORST_FIRST = (LOSES, LEADERLESS, ONLY, UNDER_MIN, AT_MIN, MOVING, PERHAPS_MOVING, NO_SPARE, RF_1)


class BlockingPartition(NamedTuple):
    """A partition that keeps brokers from going down. `refuses`: it would refuse acks=all."""

    partition: DescribedPartition
    why: str
    refuses: bool


class Roll(NamedTuple):
    """`steps`: brokers that may go down together; `least_steps`: no order has fewer. `refusing`:
    partitions that refuse acks=all in some step, whatever the order."""

    steps: list[list[int]]
    least_steps: int
    refusing: int


def blocks_of(
    shapes: Shapes, groups: Iterable[frozenset[int]], exposures: Iterable[Exposure] = ()
) -> list[list[BlockingPartition]]:
    """For each group of brokers, the partitions that block a common restart, worst first."""
    members = [*groups]
    blocks: list[list[BlockingPartition]] = [[] for _ in members]
    of_broker: dict[int, list[int]] = defaultdict(list)
    for number, group in enumerate(members):
        for broker in group:
            of_broker[broker].append(number)
    doubtful = {each.key[1:] for each in exposures if each.why in ("came back", "being added")}
    for p in shapes.state.partitions:
        for number in {number for b in p.replicas for number in of_broker[b]}:
            if block := _block(shapes, p, members[number], p[:2] in doubtful):
                blocks[number].append(block)
    for each in blocks:
        each.sort(key=lambda block: WORST_FIRST.index(block.why))
    return blocks


def _block(
    shapes: Shapes, p: DescribedPartition, down: frozenset[int], is_doubtful: bool
) -> BlockingPartition | None:
    state, after, copies = shapes.state, shapes.outcome(p, down), len(p.replicas)
    loses = after.loses or (is_doubtful and bool(p.isr) and down.issuperset(p.isr))
    may_move = not (state.shows_moves or down.isdisjoint(p.isr)) and any(
        b in state.alive for b in p.replicas if b not in p.isr
    )
    if after.later_writes and not (loses or may_move):
        return None
    reasons = (
        (loses, LOSES), (p.leader == NO_LEADER, LEADERLESS), (copies == 1, RF_1),
        (most_demanded(state, p.min_isr or 1, copies) >= copies == len(p.isr), NO_SPARE),
        (after.later_writes, PERHAPS_MOVING), (after.writes, MOVING),
        (after.leader == NO_LEADER, ONLY), (shapes.outcome(p).writes, AT_MIN), (True, UNDER_MIN),
    )  # fmt: skip
    why = next(why for holds, why in reasons if holds)
    return BlockingPartition(p, why, not after.writes)


def roll(state: ClusterState) -> Roll:
    """The shorter of two plans, in steps of brokers that go down together."""
    held = Counter((tuple([b for b in p.replicas if b not in p.removing]), p.min_isr or 1)
                   for p in state.partitions)  # fmt: skip
    kinds: Counter[tuple[tuple[int, ...], int]] = Counter()  # replicas, how many may be down
    for (ids, min_isr), count in held.items():
        kinds[ids, len(ids) - most_demanded(state, min_isr, len(ids))] += count
    of_broker: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, (replicas, spare) in enumerate(kinds):
        for broker in replicas if spare > 0 else ():
            of_broker[broker].append((number, spare))
    orders = sorted(state.racks, key=lambda b: (state.racks[b], b)), sorted(state.racks)
    steps = min((_steps(order, of_broker) for order in orders), key=len)
    fewest = max((ceil(len(ids) / spare) for ids, spare in kinds if spare > 0), default=1)
    return Roll(steps, fewest, sum(count for (_, spare), count in kinds.items() if spare <= 0))


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
