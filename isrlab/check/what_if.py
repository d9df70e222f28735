"""What if partitions move as a plan of kafka-reassign-partitions has it.

Theory of operation. A plan is moved all at a time, as the tool does it: each new replica copies
`size` bytes while `produced` bytes/s are written into each partition. The tool sets one throttle
for leaders and followers; the slowest broker in either role decides, and the least throttle that
ends is the largest that any of them needs (placement/pace.py).

Left out: disks and networks that are slower than the throttle, and plans that come in batches.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

from isrlab.check.cluster import NO_LEADER, CheckError, ClusterState
from isrlab.placement.describe import DescribedPartition
from isrlab.placement.pace import copied_s


class PlannedMove(NamedTuple):
    """A plan, and what its time depends on: bytes/s, bytes of a partition, bytes/s into each."""

    plan: dict[str, tuple[int, ...]]
    throttle: float = 0
    size: float = 0
    produced: float = 0


class MoveEffect(NamedTuple):
    """What a plan takes: new copies, the broker with most to carry, bytes/s that the throttle must
    exceed, seconds (infinite if it never ends); and the cluster after it."""

    copies: int
    busiest: int
    least_throttle: float
    took_s: float
    after: ClusterState


def plan_of(text: str, state: ClusterState) -> dict[str, tuple[int, ...]]:
    """The replicas that a plan wants, by partition. Raises CheckError for what is no plan here."""
    try:
        moves = [(f"{move['topic']}-{int(move['partition'])}", tuple(move["replicas"]))
                 for move in json.loads(text)["partitions"]]  # fmt: skip
    except (KeyError, TypeError, ValueError):
        raise CheckError("the plan is not JSON of kafka-reassign-partitions") from None
    known, wanted = {p.name for p in state.partitions}, dict(moves)
    for name, ids in moves:
        if name not in known:
            raise CheckError(f"the plan moves {name}, which is not here")
        if not ids or len({*ids}) < len(ids) or any(type(b) is not int for b in ids):
            raise CheckError(f"the plan gives {name} the replicas {list(ids)!r:.60}")
        state.require(ids)
    if len(wanted) < len(moves):
        raise CheckError("the plan lists a partition twice")
    return wanted


def moved(state: ClusterState, move: PlannedMove) -> MoveEffect:
    """What it takes; without a throttle and a size of partitions the time means nothing."""
    in_sync, sent, received = Counter[int](), Counter[int](), Counter[int]()
    after = []
    for p in state.partitions:
        ids = move.plan.get(p.name)  # in place of a move that is on its way
        after.append(p if ids is None else DescribedPartition(
            p.topic, p.number, ids[0], ids, ids, min_isr=p.min_isr, unclean=p.unclean
        ))  # fmt: skip
        new = [b for b in ids or () if b not in p.replicas]
        in_sync[p.leader] += len(p.isr) - 1 if ids else 0
        sent[p.leader] += len(new)
        received.update(new)
    loads = [(b, in_sync[b], count) for b, count in sent.items() if count]
    loads += [(b, 0, count) for b, count in received.items()]
    busiest = max(loads, key=lambda each: each[1] + each[2], default=(NO_LEADER, 0, 0))
    took_s = [copied_s(move.throttle, move.size, move.produced, *load[1:]) for load in loads]
    return MoveEffect(
        received.total(), busiest[0], move.produced * sum(busiest[1:]),
        max(took_s, default=0.0), replace(state, partitions=after),
    )  # fmt: skip
