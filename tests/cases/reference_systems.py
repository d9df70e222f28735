"""Public transition systems of Kafka's replication, with exactly known sizes.

Replicas, actions and promises follow the five modules of
hachikuji/kafka-specification (Truncate to high watermark, KIP-101, KIP-279, two forms of KIP-320).
A state has the replicas, the number of records so far, the orders so far, and the stored state. A
replica is (log, high watermark, leader epoch, leader, ISR as a bit mask); a log is a tuple of
(record, epoch). A rule sees only the parts of replicas that it reads, so that it runs less often.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

from isrlab_proof.search.tables import Query, Read

NONE = -1
TRUNCATE, KIP101, KIP279, FIRST_TRY, KIP320 = MODULES = (
    "KafkaTruncateToHighWatermark", "Kip101", "Kip279", "Kip320FirstTry", "Kip320",
)  # fmt: skip
Replica = tuple[Any, int, int, int, int]


class Reference:
    """A transition system: one module with its four sizes."""

    promises, ends = ("WeakIsr", "StrongIsr"), ()

    def __init__(self, module: str, replicas: int, log: int, records: int, epochs: int) -> None:
        self.module, self.n = module, replicas
        self.most_log, self.most_records, self.most_epoch = log, records, epochs
        self.ids = ids = range(replicas)
        self.count, self.orders, self.stored = (replicas + i for i in range(3))
        everyone = (1 << replicas) - 1
        replica = ((), 0, NONE, NONE, 0)
        self.first = (*(replica for _ in ids), 0, (), (NONE, NONE, everyone))
        self.contexts = [None] * len(self.first)
        pairs = [(a, b) for a in ids for b in ids if a != b]
        orders, stored = Read(self.orders), Read(self.stored)
        leads, follows, orders_of, is_true = (
            [partial(view, a) for a in ids] for view in (_leads, _follows, _orders_of, _is_true)
        )
        self.rules = [Query((orders, stored), self._controller)]
        for a in ids:
            known = Read(self.orders, orders_of[a])
            self.rules.append(Query((known, Read(a, _epoch)), partial(self._become, a)))
            self.rules.append(Query((Read(a, leads[a]), Read(self.count)), partial(self._write, a)))
            reads = Read(a, leads[a]), *(Read(b, follows[a]) for b in ids if b != a)
            self.rules.append(Query(reads, partial(self._high_watermark, a)))
        for a, f in pairs:
            both = Read(a, leads[a]), Read(f, follows[a])
            change = partial(self._change_isr, a, f)
            self.rules.append(Query((Read(self.stored, is_true[a]), *both), change))
            self.rules.append(Query(both, partial(self._fetch, a, f)))
            theirs = Read(a, _log if module != KIP320 else leads[a])
            reads = Read(self.orders, orders_of[a]), theirs, Read(f, _epoch)
            self.rules.append(Query(reads, partial(self._follow, a, f)))
        self.invariants = [
            Query((Read(a, partial(_shown, a)), Read(b, _log), stored), partial(self._broken, b))
            for a in ids for b in ids
        ]  # fmt: skip

    def content(self, component: Any) -> bytes:
        return repr(component).encode()

    # What happens

    def transit(self, transition: Any, component: Any, _: None) -> Any:
        name, *values = transition
        if name == "set":
            return values[0], (), ()
        if name == "isr":
            return (*component[:-1], values[0]), (), ()
        log, hw, epoch, leader, isr = component
        if name == "lead":
            epoch, leader, isr = values[0]
        elif name == "append":
            log = (*log, values[0])
        elif name == "advance":
            hw += 1
        elif name == "fetch":
            log = (*log, values[0])
            hw = min(values[1], len(log))
        else:  # "truncate" to a leader's log, and follow it by an order
            theirs, order = values
            cut = self._cut(name, component, theirs)
            if cut is None or cut > len(log):
                return None
            log, hw = log[:cut], min(cut, hw)
            epoch, leader, isr = order or (epoch, leader, isr)
        return (log, hw, epoch, leader, isr), (), ()

    def _controller(self, orders: Any, stored: Any) -> Iterator[Any]:
        _, leader, isr = stored
        if len(orders) > self.most_epoch:
            return
        new = [("elect", n, isr) for n in self.ids if isr >> n & 1 and leader != n]
        for n in self.ids:
            rest = isr & ~(1 << n)
            if leader == n:
                new.append(("controller shrinks", NONE, rest or isr))
            elif isr >> n & 1:
                new.append(("controller shrinks", leader, rest))
        for label, leader, isr in new:
            order = len(orders), leader, isr
            after = (self.orders, ("set", (*orders, order))), (self.stored, ("set", order))
            yield label, after

    def _become(self, a: int, orders: Any, epoch: int) -> Any:
        return [("become leader", ((a, ("lead", o)),)) for o in orders if o[0] > epoch]

    def _write(self, a: int, leader: Any, count: int) -> Any:
        if leader is None or count >= self.most_records or len(leader[1]) >= self.most_log:
            return []
        record = a, ("append", (count, leader[0]))
        return [("write", (record, (self.count, ("set", count + 1))))]

    def _high_watermark(self, a: int, leader: Any, *others: Any) -> Any:
        if leader is None:
            return []
        _, log, hw, isr = leader
        members = [f for b, f in zip((b for b in self.ids if b != a), others, strict=True)
                   if isr >> b & 1]  # fmt: skip
        has = len(log) > hw or (self.module != KIP320 and not isr >> a & 1 and hw < self.most_log)
        if self.module == FIRST_TRY:
            has = len(log) > hw
        is_moved = has and all(f and self._has(leader, f, hw + 1) for f in members)
        return [("high watermark", ((a, ("advance",)),))] if is_moved else []

    def _has(self, leader: Any, follower: Any, end: int) -> bool:
        """Whether the follower has the leader's log up to `end`, as far as the module compares."""
        (epoch, log, _, _), (own, other) = leader, follower
        if self.module == KIP320:
            return own == epoch and len(other) >= end
        if end == 0 or min(len(log), len(other)) < end:
            return end == 0
        return self.module != FIRST_TRY or log[end - 1][1] == other[end - 1][1]

    def _change_isr(self, a: int, f: int, stored: Any, leader: Any, follower: Any) -> Any:
        if leader is None or stored != leader[0]:
            return []
        epoch, log, hw, isr = leader
        label, other = "shrink", isr & ~(1 << f)
        if isr >> f & 1:
            if follower and self._has(leader, follower, len(log)):
                return []
        else:
            reached = hw == len(log) or (hw < len(log) and log[hw][1] == epoch)
            is_late = not follower or not self._has(leader, follower, hw)
            if is_late or (self.module in (FIRST_TRY, KIP320) and not reached):
                return []
            label, other = "expand", isr | 1 << f
        return [(label, ((a, ("isr", other)), (self.stored, ("isr", other))))]

    def _fetch(self, a: int, f: int, leader: Any, follower: Any) -> Any:
        if not leader or not follower:
            return []
        epoch, theirs, hw, _ = leader
        own, log = follower
        if (self.module == FIRST_TRY and len(log) and len(theirs) >= len(log) and (
            theirs[len(log) - 1][1] != log[-1][1]
        )) or (self.module == FIRST_TRY and len(log) > len(theirs)):  # fmt: skip
            return [("truncate", ((f, ("truncate", theirs, None)),))]
        if len(log) >= len(theirs) or (self.module == KIP320 and own != epoch):
            return []
        return [("fetch", ((f, ("fetch", theirs[len(log)], hw)),))]

    def _follow(self, a: int, f: int, orders: Any, theirs: Any, own: int) -> Iterator[Any]:
        for order in orders:
            if order[0] <= own:
                continue
            if self.module == KIP320:
                if theirs and theirs[0] == order[0]:
                    yield "follow", ((f, ("truncate", theirs[1], order)),)
            elif self.module == FIRST_TRY:
                yield "follow", ((f, ("lead", order)),)
            else:
                yield "follow", ((f, ("follow", theirs, order)),)
                if self.module == KIP279:  # an empty log may follow in two ways
                    yield "follow", ((f, ("follow empty", theirs, order)),)

    def _cut(self, name: str, replica: Replica, theirs: Any) -> int | None:
        log, hw = replica[:2]
        if name == "follow empty":
            return None if log else 0
        if name == "truncate" or self.module == KIP279:
            return _shared(log, theirs)
        if self.module == TRUNCATE or not log:
            return hw if self.module == TRUNCATE else 0
        epoch = log[-1][1]
        if theirs and theirs[-1][1] == epoch:
            return len(theirs)
        return next((o for o, (_, e) in enumerate(theirs) if e > epoch), hw)

    # Promises

    def _broken(self, b: int, leader: Any, log: Any, stored: Any) -> int:
        if leader is None:
            return 0
        hw, shown, isr = leader
        if len(shown) == hw and log[:hw] == shown:
            return 0
        return (isr >> b & 1) | (stored[2] >> b & 1) << 1


def _epoch(replica: Replica) -> int:
    return replica[2]


def _log(replica: Replica) -> Any:
    return replica[0]


def _leads(a: int, replica: Replica) -> Any:
    return (replica[2], replica[0], replica[1], replica[4]) if replica[3] == a else None


def _follows(a: int, replica: Replica) -> Any:
    return (replica[2], replica[0]) if replica[3] == a else None


def _shown(a: int, replica: Replica) -> Any:
    log, hw, _, leader, isr = replica
    return (hw, log[:hw], isr) if leader == a and hw else None


def _orders_of(a: int, orders: Any) -> Any:
    return tuple(order for order in orders if order[1] == a)


def _is_true(a: int, stored: Any) -> Any:
    return stored[0] if stored[1] == a else None


@cache
def _shared(ours: Any, theirs: Any) -> int:
    """The end offset of the common prefix of both logs, seen from their shorter end."""
    o = min(len(ours), len(theirs))
    while o and ours[o - 1] != theirs[o - 1]:
        o -= 1
    return o
