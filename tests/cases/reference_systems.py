"""Public transition systems of Kafka's replication, with exactly known sizes.

What a replica is, what it may do and which promises are asked follows the five modules of
hachikuji/kafka-specification (Truncate to high watermark, KIP-101, KIP-279, two forms of KIP-320).
A state is (replicas, records so far, orders so far, stored state). A replica is (log, high
watermark, leader epoch, leader, ISR as a bit mask); a log is a tuple of (record, epoch).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import permutations
from typing import Any

NONE = -1
TRUNCATE, KIP101, KIP279, FIRST_TRY, KIP320 = MODULES = (
    "KafkaTruncateToHighWatermark", "Kip101", "Kip279", "Kip320FirstTry", "Kip320",
)  # fmt: skip
Replica = tuple[Any, int, int, int, int]


class Reference:
    """One module with its four sizes."""

    promises = ("WeakIsr", "StrongIsr")

    def __init__(self, module: str, replicas: int, log: int, records: int, epochs: int) -> None:
        self.module, self.n = module, replicas
        self.most_log, self.most_records, self.most_epoch = log, records, epochs
        self.ids = range(replicas)
        self.pairs = [(a, b) for a in self.ids for b in self.ids if a != b]
        everyone = (1 << replicas) - 1
        replica = ((), 0, NONE, NONE, 0)
        self.first = ((replica,) * replicas, 0, (), (NONE, NONE, everyone))
        own = {FIRST_TRY: self._first_try, KIP320: self._kip320}
        self.own = own.get(module, self._old)
        self.perms = list(permutations(self.ids))
        self.masks = [
            [sum(1 << p[i] for i in self.ids if mask >> i & 1) for mask in range(everyone + 1)]
            for p in self.perms
        ]

    def tables(self) -> None:
        return None

    def learn(self, tables: None) -> None:
        pass

    # What happens

    def successors(self, state: Any) -> list[tuple[str, Any]]:
        replicas, count, orders, stored = state
        out: list[tuple[str, Any]] = []
        epoch, leader, isr = stored
        new = len(orders)
        if new <= self.most_epoch:
            for n in self.ids:
                if isr >> n & 1 and leader != n:
                    order = (new, n, isr)
                    out.append(("elect", (replicas, count, (*orders, order), order)))
                order = None
                if leader == n:
                    order = (new, NONE, isr if isr == 1 << n else isr & ~(1 << n))
                elif isr >> n & 1:
                    order = (new, leader, isr & ~(1 << n))
                if order:
                    out.append(("controller shrinks", (replicas, count, (*orders, order), order)))
        for epoch, leader, isr in orders:
            if leader != NONE and epoch > replicas[leader][2]:
                log, hw = replicas[leader][:2]
                after = _with(replicas, leader, (log, hw, epoch, leader, isr))
                out.append(("become leader", (after, count, orders, stored)))
        if count < self.most_records:
            for i, (log, hw, epoch, leader, isr) in enumerate(replicas):
                if leader == i and len(log) < self.most_log:
                    after = _with(replicas, i, ((*log, (count, epoch)), hw, epoch, i, isr))
                    out.append(("write", (after, count + 1, orders, stored)))
        self.own(state, out)
        return out

    def _isr(self, state: Any, leader: int, isr: int) -> Any:
        replicas, count, orders, stored = state
        log, hw, epoch, _, _ = replicas[leader]
        after = _with(replicas, leader, (log, hw, epoch, leader, isr))
        return after, count, orders, (stored[0], stored[1], isr)

    def _set(self, state: Any, i: int, replica: Replica) -> Any:
        return _with(state[0], i, replica), *state[1:]

    def _is_true_leader(self, state: Any, i: int) -> bool:
        replica = state[0][i]
        return state[3][1] == i == replica[3] and replica[2] == state[3][0]

    def _old(self, state: Any, out: list[tuple[str, Any]]) -> None:
        replicas, _, orders, _ = state

        def caught_up(leader: int, follower: int, end: int) -> bool:
            other = replicas[follower]
            ends = len(replicas[leader][0]), len(other[0])
            return other[3] == leader and (end == 0 or min(ends) >= end)

        for a, (log, hw, _, leader, isr) in enumerate(replicas):
            if self._is_true_leader(state, a):
                for b in self.ids:
                    if b != a and isr >> b & 1 and not caught_up(a, b, len(log)):
                        out.append(("shrink", self._isr(state, a, isr & ~(1 << b))))
                    if not isr >> b & 1 and caught_up(a, b, hw):
                        out.append(("expand", self._isr(state, a, isr | 1 << b)))
            if leader == a and hw < self.most_log:
                members = [replicas[b] for b in self.ids if isr >> b & 1]
                if all(m[3] == a and len(m[0]) > hw for m in members):
                    out.append(
                        ("high watermark", self._set(state, a, (log, hw + 1, *replicas[a][2:])))
                    )
        for f, a in self.pairs:
            log, hw, epoch, leader, isr = replicas[f]
            theirs, their_hw, _, led, _ = replicas[a]
            if led == a == leader and len(log) < len(theirs):
                longer = (*log, theirs[len(log)])
                after = (longer, min(their_hw, len(longer)), epoch, leader, isr)
                out.append(("fetch", self._set(state, f, after)))
            for order in orders:
                if order[1] == a and order[0] > epoch:
                    for cut in self._cuts(replicas[f], theirs):
                        if cut <= len(log):
                            after = (log[:cut], min(cut, hw), order[0], a, order[2])
                            out.append(("follow", self._set(state, f, after)))

    def _cuts(self, replica: Replica, theirs: Any) -> Iterator[int]:
        log, hw = replica[:2]
        if self.module == TRUNCATE:
            yield hw
        elif not log:
            yield 0
            if self.module == KIP279:
                yield 0
        elif self.module == KIP279:
            yield _shared(log, theirs)
        else:
            epoch = log[-1][1]
            if theirs and theirs[-1][1] == epoch:
                yield len(theirs)
            else:
                yield next((o for o, (_, e) in enumerate(theirs) if e > epoch), hw)

    def _first_try(self, state: Any, out: list[tuple[str, Any]]) -> None:
        replicas, _, orders, _ = state

        def caught_up(leader: int, follower: int, end: int) -> bool:
            log, other = replicas[leader], replicas[follower]
            if log[3] != leader or other[3] != leader:
                return False
            has = min(len(log[0]), len(other[0])) >= end
            return end == 0 or (has and log[0][end - 1][1] == other[0][end - 1][1])

        for a, (log, hw, epoch, leader, isr) in enumerate(replicas):
            if self._is_true_leader(state, a):
                reached = hw == len(log) or (hw < len(log) and log[hw][1] == epoch)
                for b in self.ids:
                    if b != a and isr >> b & 1 and not caught_up(a, b, len(log)):
                        out.append(("shrink", self._isr(state, a, isr & ~(1 << b))))
                    if not isr >> b & 1 and reached and caught_up(a, b, hw):
                        out.append(("expand", self._isr(state, a, isr | 1 << b)))
            in_sync = [b for b in self.ids if isr >> b & 1]
            if leader == a and len(log) > hw and all(caught_up(a, b, hw + 1) for b in in_sync):
                after = (log, hw + 1, *replicas[a][2:])
                out.append(("high watermark", self._set(state, a, after)))
            for order in orders:
                if order[1] not in (NONE, a) and order[0] > epoch:
                    after = (log, hw, order[0], order[1], order[2])
                    out.append(("follow", self._set(state, a, after)))
        for f, a in self.pairs:
            log, hw, epoch, leader, isr = replicas[f]
            theirs, their_hw, _, led, _ = replicas[a]
            if len(log) < len(theirs) and caught_up(a, f, len(log)):
                longer = (*log, theirs[len(log)])
                after = (longer, min(their_hw, len(longer)), epoch, leader, isr)
                out.append(("fetch", self._set(state, f, after)))
            if led == a == leader:
                differs = log and len(theirs) >= len(log) and theirs[len(log) - 1][1] != log[-1][1]
                if len(log) > len(theirs) or differs:
                    cut = _shared(log, theirs)
                    after = (log[:cut], min(cut, hw), epoch, leader, isr)
                    out.append(("truncate", self._set(state, f, after)))

    def _kip320(self, state: Any, out: list[tuple[str, Any]]) -> None:
        replicas, count, orders, stored = state
        for epoch, a, isr in orders:
            if a != NONE and replicas[a][2] == epoch and replicas[a][3] == a:
                theirs = replicas[a][0]
                for f in self.ids:
                    log, hw, own = replicas[f][:3]
                    if f != a and epoch > own:
                        cut = _shared(log, theirs)
                        after = _with(replicas, f, (log[:cut], min(cut, hw), epoch, a, isr))
                        out.append(("follow", (after, count, orders, stored)))
        for a, (log, hw, epoch, leader, isr) in enumerate(replicas):
            end, moves = len(log), hw < len(log)
            is_true = leader == a == stored[1] and epoch == stored[0]
            reached = hw == end or (hw < end and log[hw][1] == epoch)
            for f, (theirs, _, own, led, known) in enumerate(replicas):
                follows = leader == a == led and own == epoch
                if isr >> f & 1:
                    moves = moves and follows and len(theirs) > hw
                    if is_true and f != a and (not follows or len(theirs) < end):
                        out.append(("shrink", self._isr(state, a, isr & ~(1 << f))))
                elif is_true and follows and reached and len(theirs) >= hw:
                    out.append(("expand", self._isr(state, a, isr | 1 << f)))
                if f != a and follows and len(theirs) < end:
                    longer = (*theirs, log[len(theirs)])
                    after = (longer, min(hw, len(longer)), own, led, known)
                    out.append(("fetch", (_with(replicas, f, after), count, orders, stored)))
            if moves:
                after = _with(replicas, a, (log, hw + 1, epoch, leader, isr))
                out.append(("high watermark", (after, count, orders, stored)))

    # What is promised

    def broken(self, state: Any) -> int:
        replicas, _, _, stored = state
        wrong = 0
        for a, (log, hw, _, leader, isr) in enumerate(replicas):
            if leader == a and hw:
                for bit, members in ((1, isr), (2, stored[2])):
                    for b in self.ids:
                        if members >> b & 1 and (len(log) < hw or replicas[b][0][:hw] != log[:hw]):
                            wrong |= bit
        return wrong

    # Replicas have no order: a state stands for its renamings

    def canonical(self, state: Any) -> tuple[Any, int]:
        renamed = {self._renamed(state, p, m) for p, m in zip(self.perms, self.masks, strict=True)}
        return min(renamed), len(renamed)

    def _renamed(self, state: Any, p: tuple[int, ...], masks: list[int]) -> Any:
        replicas, count, orders, stored = state
        moved: list[Any] = [None] * self.n
        name = (*p, NONE)  # name[NONE] is NONE
        for i, (log, hw, epoch, leader, isr) in enumerate(replicas):
            moved[p[i]] = (log, hw, epoch, name[leader], masks[isr])
        orders = tuple((e, name[leader], masks[isr]) for e, leader, isr in orders)
        return tuple(moved), count, orders, (stored[0], name[stored[1]], masks[stored[2]])


def _with(replicas: Any, i: int, replica: Any) -> Any:
    return (*replicas[:i], replica, *replicas[i + 1 :])


@cache
def _shared(ours: Any, theirs: Any) -> int:
    """One beyond the last offset at which both logs have the same record."""
    o = min(len(ours), len(theirs))
    while o and ours[o - 1] != theirs[o - 1]:
        o -= 1
    return o
