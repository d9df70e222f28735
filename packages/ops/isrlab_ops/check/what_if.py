"""The effect of a plan of kafka-reassign-partitions, or of another min.insync.replicas.

Theory of operation. All moves of a plan run together, as in the tool: each new replica copies
`size` bytes while `produced` bytes/s are written into each partition. The tool sets one throttle
for leaders and followers; the slowest broker in either role decides, and the minimum throttle is
the largest that any broker needs (pace.py).

Any alteration of min.insync.replicas, even to the same value, clears the eligible leader replicas
of all partitions that it covers. Source: ClearElrRecord, ConfigurationControlManager.java 4.1.

Left out: disks and networks slower than the throttle, and plans in batches.
"""

import json
import re
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

from isrlab.pace import USABLE, copied_s
from isrlab_ops.check.cluster import NO_LEADER, CheckError, ClusterState
from isrlab_ops.check.describe import DescribedPartition


class PlannedMove(NamedTuple):
    """A plan; throttle (bytes/s); size of a partition (bytes); produce rate into each (bytes/s)."""

    plan: dict[str, tuple[int, ...]]
    throttle: float = 0
    size: float = 0
    produced: float = 0


class MoveEffect(NamedTuple):
    """The cost of a plan: new copies, the broker with the most traffic, the minimum throttle in
    bytes/s, seconds (infinite if it never ends); and the cluster after it."""

    copies: int
    busiest: int
    least_throttle: float
    took_s: float
    after: ClusterState


def plan_of(text: str | bytes, state: ClusterState) -> dict[str, tuple[int, ...]]:
    """The new replicas by partition. Raises CheckError for an invalid plan."""
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
    """The effect of a plan; the time needs a throttle and a partition size."""
    in_sync, sent, received = Counter[int](), Counter[int](), Counter[int]()
    after = []
    for p in state.partitions:
        ids = move.plan.get(p.name)  # replaces a move in progress
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
        received.total(), busiest[0], move.produced * sum(busiest[1:]) / USABLE,
        max(took_s, default=0.0), replace(state, partitions=after),
    )  # fmt: skip


def changed(state: ClusterState, change: str) -> tuple[list[DescribedPartition], ClusterState]:
    """The partitions whose ELR "[TOPIC:]min.insync.replicas=2" clears, and the state afterwards.

    Raises CheckError for another setting, and for a topic that is not here.
    """
    match = re.fullmatch(r"(?:(\S+):)?min\.insync\.replicas=([1-9]\d{0,8})", change)
    if match is None or match[1] not in {None, *(p.topic for p in state.partitions)}:
        raise CheckError(f"--change {change!r:.60} is not like [TOPIC:]min.insync.replicas=2")
    after = [p._replace(min_isr=int(match[2]), elr=(), last_known_elr=())
             if match[1] in (None, p.topic) else p for p in state.partitions]  # fmt: skip
    pairs = zip(state.partitions, after, strict=True)
    cleared = [p for p, q in pairs if p[5:7] != q[5:7]]
    return cleared, replace(state, partitions=after)
