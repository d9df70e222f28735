"""Which brokers may go down now, which partitions block, and how a roll goes.

Theory of operation. A broker blocks if, once it has shut down cleanly, a partition of its ISRs has
no leader, refuses acks=all, loses records to an unclean or doubtful election, or would refuse
acks=all if a reassignment completes meanwhile. A partition that refuses writes already blocks the
members of its ISR: their restart makes it worse.

A roll is planned for the time after that: every ISR is full again before the next step. The brokers
of a step go down together, and no partition may lose more of them than its replicas exceed its min
ISR. Orders by zone, by number and by the count of partitions are tried, the shortest counts; a
partition of n replicas, of which k may be down, needs at least n / k steps.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import ceil
from typing import NamedTuple

from isrlab.check.cluster import NO_LEADER, ClusterState
from isrlab.check.outcome import Outcome, Shapes, least
from isrlab.logs.incidents.exposed import Exposure
from isrlab.placement.describe import DescribedPartition

RF_1, NO_SPARE = "it is the only replica", "min ISR is the number of replicas"
AT_MIN, UNDER_MIN = "at min ISR", "already under min ISR"
ONLY, LEADERLESS = "no other replica may lead", "already without a leader"
LOSES, MOVING = "records would be lost", "a reassignment on its way"
PERHAPS_MOVING = "a replica on a live broker is not in sync: perhaps a reassignment"
WORST_FIRST = (LOSES, LEADERLESS, ONLY, UNDER_MIN, AT_MIN, MOVING, PERHAPS_MOVING, NO_SPARE, RF_1)
FOR_EVER = (NO_SPARE, RF_1)  # waiting does not help


class Block(NamedTuple):
    """A partition that some brokers may not leave now. `refuses`: it then refuses acks=all."""

    partition: DescribedPartition
    why: str
    refuses: bool


class Restarts(NamedTuple):
    """`blocks` by broker, and by zone: empty for those that may go down now."""

    brokers: dict[int, list[Block]]
    zones: dict[str, list[Block]]
    down: tuple[int, ...]  # are not up, as far as is known


class Roll(NamedTuple):
    """`steps`: brokers that may go down together; `least_steps`: no order has fewer."""

    steps: list[tuple[int, ...]]
    least_steps: int
    refusing: int  # partitions that refuse acks=all in some step, whatever the order


def restarts(state: ClusterState, exposures: Sequence[Exposure] = ()) -> Restarts:
    """What each broker, and each zone as a whole, would take down with it now."""
    shapes, doubtful = Shapes(state), doubtful_in(exposures)
    brokers: dict[int, list[Block]] = {b: [] for b in sorted(state.alive)}
    zones: dict[str, list[Block]] = {zone: [] for zone in state.zones}
    for p in state.partitions:
        for broker in p.isr:
            if broker in brokers and (block := _block(shapes, p, (broker,), doubtful)):
                brokers[broker].append(block)
        for zone, members in state.zones.items():
            down = tuple([b for b in p.isr if b in members])
            if down and (block := _block(shapes, p, down, doubtful)):
                zones[zone].append(block)
    for blocks in (*brokers.values(), *zones.values()):
        blocks.sort(key=lambda block: WORST_FIRST.index(block.why))
    return Restarts(brokers, zones, tuple(sorted(state.racks.keys() - state.alive)))


def blocks_of(
    state: ClusterState, down: Iterable[int], exposures: Sequence[Exposure] = ()
) -> list[Block]:
    """The partitions that block it if these brokers go down together."""
    shapes, doubtful, gone = Shapes(state), doubtful_in(exposures), {*down}
    blocks = (
        _block(shapes, p, tuple([b for b in p.isr if b in gone]), doubtful)
        for p in state.partitions
        if not gone.isdisjoint(p.isr)
    )
    return sorted(filter(None, blocks), key=lambda block: WORST_FIRST.index(block.why))


def doubtful_in(exposures: Iterable[Exposure]) -> set[tuple[str, int]]:
    """Partitions that lose records as soon as their ISR is gone, though another replica leads."""
    return {each.key[1:] for each in exposures if each.why in ("came back", "being added")}


def _block(
    shapes: Shapes, p: DescribedPartition, down: tuple[int, ...], doubtful: set[tuple[str, int]]
) -> Block | None:
    after = shapes.outcome(p, down)
    loses = after.is_unclean or (p[:2] in doubtful and {*p.isr} <= {*down})
    if after.later_writes and not loses and not _perhaps_moving(shapes.state, p):
        return None
    return Block(p, _why(shapes, p, after, loses), not after.writes)


def _perhaps_moving(state: ClusterState, p: DescribedPartition) -> bool:
    return not state.shows_moves and any(b in state.alive for b in p.replicas if b not in p.isr)


def _why(shapes: Shapes, p: DescribedPartition, after: Outcome, loses: bool) -> str:
    state = shapes.state
    demanded = max(least(v, p.min_isr or 1, len(p.replicas)) for v in state.versions)
    if loses:
        return LOSES
    if p.leader == NO_LEADER:
        return LEADERLESS
    if len(p.replicas) == 1:
        return RF_1
    if demanded >= len(p.replicas) == len(p.isr):
        return NO_SPARE
    if after.writes:
        return PERHAPS_MOVING if after.later_writes else MOVING
    if after.leader == NO_LEADER:
        return ONLY
    return AT_MIN if shapes.outcome(p).writes else UNDER_MIN


def refusing(state: ClusterState, down: Iterable[int] = (), is_stop: bool = True) -> dict[str, int]:
    """The partitions that refuse acks=all once these brokers are down, and who leads each."""
    shapes, gone = Shapes(state), {*down}
    outcomes = ((p, shapes.outcome(p, [b for b in p.isr if b in gone], is_stop))
                for p in state.partitions)  # fmt: skip
    return {p.name: after.leader for p, after in outcomes if not after.writes}


def roll(state: ClusterState) -> Roll:
    """The shortest of some orders, in steps in which brokers go down together."""
    kinds: Counter[tuple[tuple[int, ...], int]] = Counter()
    for p in state.partitions:
        demanded = max(least(v, p.min_isr or 1, len(p.replicas)) for v in state.versions)
        held = tuple(b for b in p.replicas if b not in p.removing)
        kinds[held, len(held) - demanded] += 1
    of_broker: dict[int, list[tuple[int, int]]] = defaultdict(list)  # kind, how many may be down
    for number, (replicas, spare) in enumerate(kinds):
        for broker in replicas:
            if spare > 0:
                of_broker[broker].append((number, spare))
    brokers = sorted(state.racks)
    orders = (
        sorted(brokers, key=lambda b: (state.racks[b], b)),
        brokers,
        sorted(brokers, key=lambda b: -len(of_broker[b])),
    )
    steps = min((_steps(order, of_broker) for order in orders), key=len)
    fewest = max((ceil(len(ids) / spare) for ids, spare in kinds if spare > 0), default=1)
    stuck = sum(count for (_, spare), count in kinds.items() if spare <= 0)
    return Roll([tuple(sorted(step)) for step in steps], fewest, stuck)


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
