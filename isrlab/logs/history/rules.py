"""The rules that all lines about one partition must obey, because Kafka always does.

A line must not break a rule by itself (a shrink that adds a member), against other lines (two
members' lists for one version, two leaders in one epoch), or against the order in which a broker
learns (versions only grow). A line is a fault only if the lines prove it: a missing line, a clock
that is off, or a leader that was deposed and does not know it is not a fault.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from isrlab.engine import rules
from isrlab.engine.choices import ShrinkRule
from isrlab.events.statements import Key, Statement
from isrlab.logs.history.possible import Registration
from isrlab.logs.history.scene import Scene

OUT_OF_ORDER_MS = 1_000  # lines of one broker in two files may be out of order by this much
NEAR_MS = 60_000
SOON_MS = 10_000
HEARD_MS = 6_000  # a log that continues for this long has what its broker heard
LATE_MS = 2_000
STATED = ("members", "leader", "leader_epoch")

RULES = {  # that Kafka always keeps
    "shrink": "a shrink takes members out, adds none, and keeps the leader",
    "grow": "a leader adds one replica at a time, and takes none out",
    "named": "those who are out of sync are those who leave",
    "limit": "a replica leaves only after the lag limit",
    "assigned": "only assigned replicas are in the ISR",
    "leads": "the leader is in the ISR",
    "twice": "no broker is twice in an ISR",
    "offsets": "the high watermark is in the log of the leader, and of each member that is known",
    "version": "one version of a partition has one ISR, one leader, one epoch",
    "epoch": "one leader epoch has one leader",
    "learns": "a broker learns versions in order",
    "next": "each change is one that a leader may ask for or a controller makes",
    "from": "a leader starts from the ISR that is stored",
    "same": "a leader stores only what changes the ISR",
    "heard": "every broker that must know an ISR, leader or epoch confirms what another logs of it",
    "counted": "versions, epochs and offsets count from 0, and a new partition or log begins there",
    "grows": "a leader's log and its high watermark only grow while it leads",
    "early": "no broker knows a version before it is requested and stored",
    "late": "a process that starts follows as it is by then",
    "order": "lines stand in the order of their times",
}


class Fault(NamedTuple):
    """A line that cannot be true, the rule it breaks, and any line that it contradicts."""

    key: Key | None
    rule: str
    file: str
    line: int
    says: str
    against: str  # file:line, or nothing
    ts_ms: int = 0


def fault(line: Statement, rule: str, other: Statement | None = None) -> Fault:
    against = f"{other.file}:{other.line}" if other else ""
    return Fault(line.key, rule, line.file, line.line, RULES[rule], against, line.ts_ms)


class Change(NamedTuple):
    """Two neighbouring versions, the brokers that may be replicas, and the line of each version.
    Their leader epochs count from that of the first, so that like changes are equal."""

    before: Registration
    after: Registration
    replicas: tuple[int, ...]
    line: Statement
    line_before: Statement


class Account:
    """All statements about one partition, in order of time, and the scene of their run."""

    def __init__(self, lines: list[Statement], scene: Scene) -> None:
        self.lines, self.scene = sorted(lines, key=lambda line: line.place), scene

    @cached_property
    def states(self) -> dict[int, tuple[Registration, Statement]]:
        """The state at each version, from all its lines, with the leader's line or the first."""
        states: dict[int, tuple[Registration, Statement]] = {}
        for version, same in _by(self.lines, "partition_epoch").items():
            isr, leader, epoch = (
                next(iter(_by(same, n)), None) for n in ("isr", "leader", "leader_epoch")
            )
            state = Registration(tuple(sorted(isr or ())), leader, epoch)
            for line in same:
                if line.is_exact:
                    moves = line.ids("adding"), line.ids("removing")
                    state = state._replace(replicas=line.ids("replicas") or None, moves=moves)
            if isr or (isr is not None and leader == -1):
                states[version] = state, next((line for line in same if line.is_leaders), same[0])
        return states

    @cached_property
    def changes(self) -> list[Change]:
        """Successive versions; if KRaft changes the replicas, only with both sets of them known."""
        states, is_kraft, changes = self.states, self.scene.is_kraft, []
        lists = {frozenset(ids): ids for x in self.lines if (ids := x.ids("replicas"))}
        has_moved = len(lists) > 1 or any(x.ids("adding") or x.ids("removing") for x in self.lines)
        members = {
            r for state, _ in states.values() for r in (*state.isr, state.leader) if r is not None
        }
        every = tuple(sorted(members.union(*lists) - {-1}))
        replicas = every if has_moved else next(iter(lists.values()), every)
        # ZooKeeper-era lines print the replicas as a set: any may be the preferred leader.
        is_list = any(line.is_exact for line in self.lines)
        for version, (before, line_before) in states.items():
            if version + 1 not in states:
                continue
            after, line = states[version + 1]
            if has_moved and not is_kraft:
                after = after._replace(moves=(replicas, ()))
            if not (has_moved and is_kraft) or (before.replicas and after.replicas):
                order = replicas
                if not is_list and after.leader in replicas:
                    order = (after.leader, *(r for r in replicas if r != after.leader))
                epochs = before.leader_epoch, after.leader_epoch
                rise = None if None in epochs else epochs[1] - epochs[0]  # type: ignore[operator]
                before, after = before._replace(leader_epoch=0), after._replace(leader_epoch=rise)
                changes.append(Change(before, after, order, line, line_before))
        return changes

    def between(self, from_ms: int, to_ms: int) -> list[Statement]:
        """The lines between two moments, both included."""
        first = bisect_left(self.lines, from_ms, key=_ms)
        return self.lines[first : bisect_right(self.lines, to_ms, key=_ms)]


def _ms(line: Statement) -> int:
    return line.ts_ms


def _by(lines: list[Statement], name: str) -> dict[Any, list[Statement]]:
    """The lines grouped by their value of this field; lines without a value are left out."""
    groups = defaultdict(list)
    for line in lines:
        if (value := getattr(line, name)) is not None:
            groups[value].append(line)
    return groups


# One line by itself


def of_one_line(line: Statement) -> Iterator[Fault]:
    isr, before, leader = line.isr, line.isr_before, line.leader
    is_new = line.detail.get("from_state") == "NewPartition"
    for number in (line.partition_epoch, line.leader_epoch):
        if number is not None and (number < 0 or (is_new and number > 0)):
            yield fault(line, "counted")
    yield from _offsets(line)
    if isr is None:
        return
    if len(set(isr)) < len(isr) or (before and len(set(before)) < len(before)):
        yield fault(line, "twice")
    if leader is not None and leader >= 0 and leader not in isr:
        yield fault(line, "leads")
    if (replicas := line.ids("replicas")) and not set(isr) <= set(replicas):
        yield fault(line, "assigned")
    if before is None or not line.is_request:
        return
    if line.kind == "isr_shrink":
        if not (set(isr) < set(before) and line.leader in before):
            yield fault(line, "shrink")
        gone = line.detail.get("out_of_sync")
        if gone and {*map(int, gone.split(","))} != set(before) - set(isr):
            yield fault(line, "named")
    elif not (set(before) < set(isr) and len(isr) == len(before) + 1):
        yield fault(line, "grow")


def _offsets(line: Statement) -> Iterator[Fault]:
    """The replicas that leave were members, so the high watermark cannot be above their end (-1:
    the leader does not know it yet); and no follower is ahead of its leader."""
    least, most = line.high_watermark, line.log_end_offset
    if least is None or most is None:
        return
    if least < 0 or most < 0:
        yield fault(line, "counted")
    ends = re.findall(r"-?\d{1,18}", line.detail.get("out_of_sync_end_offset", ""))
    if least > most or any(not least <= int(end) <= most for end in ends if int(end) != -1):
        yield fault(line, "offsets")


def within_limit(line: Statement, lag_time_ms: int | None) -> Iterator[Fault]:
    since = line.detail.get("since_caught_up_ms")
    if lag_time_ms is None or since is None or line.kind != "isr_shrink":
        return
    if not rules.is_out_of_sync(ShrinkRule.TIME, 0, 1, 0, int(since), lag_time_ms, 0):
        yield fault(line, "limit")


# Lines against each other

FaultRule: TypeAlias = Callable[[Account], Iterator[Fault]]


def _one_state(account: Account) -> Iterator[Fault]:
    """One ISR, leader and epoch per version, and one leader per epoch; reports the rarer value."""
    led = [line for line in account.lines if line.leader is not None and line.leader >= 0]
    claims = [("version", "partition_epoch", name, account.lines) for name in STATED]
    for rule, of_what, what, lines in (*claims, ("epoch", "leader_epoch", "leader", led)):
        for same in _by(lines, of_what).values():
            most, *others = sorted(_by(same, what).values(), key=len, reverse=True) or [[]]
            yield from (fault(line, rule, most[0]) for odd in others for line in odd)


def _learning(account: Account) -> Iterator[Fault]:
    """Within one file of a broker, versions and epochs only grow."""
    last: dict[tuple[str, str], Statement] = {}
    for line in sorted(account.lines, key=lambda x: (x.file, x.line)):
        for name in ("partition_epoch", "leader_epoch"):
            value = getattr(line, name)
            if line.said_by or value is None or line.is_request:
                continue
            before = last.get((line.file, name))
            if before is not None and value < getattr(before, name):
                yield fault(line, "learns", before)
            last[line.file, name] = line


def _starting(account: Account) -> Iterator[Fault]:
    """A leader's request starts from the stored ISR, as far as its own lines show it."""
    known: dict[int | None, list[tuple[int, frozenset[int]]]] = defaultdict(list)
    told = {
        line.broker
        for line in account.lines
        if not line.said_by and line.kind in ("leader", "metadata")
    }
    for line in account.lines:
        if line.said_by or line.isr is None:
            continue
        own = known[line.broker]
        if line.is_request and line.isr_before is not None:
            latest = own[-1][0] if own else 0
            may_be = {isr for ts_ms, isr in own if ts_ms >= latest - OUT_OF_ORDER_MS}
            if own and line.broker in told and frozenset(line.isr_before) not in may_be:
                yield fault(line, "from")
            known[line.broker] = [(line.ts_ms, frozenset(line.isr_before))]
        if line.is_request or line.leader == line.broker:
            known[line.broker].append((line.ts_ms, frozenset(line.isr)))
        elif line.leader is not None:
            known[line.broker] = []


def _again(account: Account) -> Iterator[Fault]:
    """A leader that writes ZooKeeper itself repeats a request only after a logged refusal."""
    last: dict[int | None, Statement] = {}
    if not any(line.kind == "isr_expand" for line in account.lines):
        return  # since 2.7 it asks the controller
    for line in account.lines:
        if not line.is_request and line.broker == line.leader and not line.said_by:
            last.pop(line.broker, None)
        if not line.is_request:
            continue
        before, last[line.broker] = last.get(line.broker), line
        if before is None or (before.isr_before, before.isr) != (line.isr_before, line.isr):
            continue
        near = before.ts_ms - NEAR_MS, line.ts_ms + LATE_MS
        is_refused = any(near[0] < at < near[1] for at in account.scene.refusals[line.broker])
        if line.ts_ms - before.ts_ms > LATE_MS and not is_refused:
            yield fault(line, "from", before)


def _hearsay(account: Account) -> Iterator[Fault]:
    """An ISR or leader that only one line reports, without a version, and others contradict."""
    named: dict[object, list[Statement]] = defaultdict(list)
    for line in account.lines:
        for isr in {line.members, frozenset(line.isr_before) if line.isr_before else None} - {None}:
            named[isr].append(line)
        if line.leader is not None:
            named[line.leader].append(line)
    brokers = {line.broker for line in account.lines if line.broker is not None}
    for line in account.lines:
        if line.is_request or line.partition_epoch is not None:
            continue
        if not all(
            account.scene.covers(broker, line.ts_ms, line.ts_ms + HEARD_MS) for broker in brokers
        ):
            continue
        near = account.between(line.ts_ms - LATE_MS + 1, line.ts_ms + LATE_MS - 1)
        for what in ("members", "leader"):
            others = [x for x in near if x is not line and getattr(x, what) is not None]
            if others and named[getattr(line, what)] == [line]:
                yield fault(line, "heard", others[0])


def _beginning(account: Account) -> Iterator[Fault]:
    """A ZooKeeper controller sends the new leader the ISR with which its epoch begins."""
    told = {
        (x.leader_epoch, x.leader): x for x in account.lines if x.kind == "leader" and x.said_by
    }
    known = set[tuple[int | None, int | None]]()
    for line in account.lines if not account.scene.is_kraft else ():
        place = line.leader_epoch, line.leader
        if line.kind == "leader" and line.is_leaders and None not in place and place not in known:
            known.add(place)
            other = told.get(place)
            if other and None not in (line.isr, other.isr) and line.members != other.members:
                yield fault(line, "heard", other)


def _witnesses(account: Account) -> Iterator[Fault]:
    """An epoch or version that a single line reports, although other replicas should confirm it."""
    told = [line for line in account.lines if not line.is_request]
    hear = {x.broker for x in told if x.kind in ("follower", "metadata") and not x.said_by}
    for name in ("leader_epoch", "partition_epoch"):
        if name == "partition_epoch" and not account.scene.is_kraft:
            continue  # ZooKeeper-era leaders raise it, and followers never learn of it
        for number, known in _by(told, name).items():
            line = known[0]
            if len(known) > 1 or line.is_exact:
                continue
            if line.is_leaders and name == "partition_epoch":
                continue  # a leader may be the only one to print it
            heard_ms = line.ts_ms + HEARD_MS
            own = set() if line.said_by else {line.broker}
            others = [b for b in hear - own if account.scene.covers(b, line.ts_ms, heard_ms)]
            near = account.between(line.ts_ms - SOON_MS + 1, line.ts_ms + SOON_MS)
            beyond = [x for x in near if not x.is_request and (getattr(x, name) or -1) > number]
            must = {line.leader} if name == "partition_epoch" else set(others)
            if others and not beyond and must <= set(others):
                yield fault(line, "heard")


def _in_time(account: Account) -> Iterator[Fault]:
    """A version is reported only after it was stored (others must confirm when, as a slow leader
    prints it late); a starting process reports the newest."""
    stated = [x for x in account.lines if x.partition_epoch is not None and not x.is_exact]
    origin: dict[int, Statement] = {}
    asked: dict[object, Statement] = {}
    latest: dict[int | None, Statement] = {}  # requests that a leader may repeat
    heard: dict[int | None, dict[int | None, int]] = defaultdict(dict)  # first, by broker
    for line in account.lines:
        heard[line.partition_epoch].setdefault(line.broker, line.ts_ms)
        is_committed = line.kind == "isr_commit" and line.is_leaders
        again = latest.pop(line.broker, None) if line.is_request or is_committed else None
        if line.is_request:
            is_same = again and (again.isr_before, again.isr) == (line.isr_before, line.isr)
            latest[line.broker] = again if again and is_same else line
            asked[line.broker, line.members] = latest[line.broker]
        request = asked.get((line.broker, line.members)) if line.is_leaders else None
        if line.partition_epoch and (line.is_exact or request or is_committed):
            origin.setdefault(line.partition_epoch, request or line)
    newest: list[Statement] = []  # the newest that a leader had reported at each of its lines
    own = [line for line in stated if line.is_leaders]
    for line in own:
        last = newest[-1] if newest else line
        newest.append(max(last, line, key=lambda x: x.partition_epoch or 0))
    for line in stated if account.scene.is_kraft else ():
        first = origin.get(line.partition_epoch or 0)
        if first is not None and line.ts_ms < first.ts_ms - LATE_MS:
            known = heard[line.partition_epoch].items()
            times = (ms for broker, ms in known if broker not in (line.broker, first.broker))
            confirmed_ms = min(times, default=0) + LATE_MS
            if first.is_request or first.is_exact or confirmed_ms >= first.ts_ms:
                yield fault(line, "early", first)
        starts = account.scene.starts[line.broker] if line.kind == "follower" else ()
        began_ms = [0, *starts][bisect_left(starts, line.ts_ms)]
        before = bisect_left(own, began_ms - LATE_MS, key=_ms)
        if before and (newest[before - 1].partition_epoch or 0) > (line.partition_epoch or 0):
            yield fault(line, "late", newest[before - 1])


def _joining(account: Account) -> Iterator[Fault]:
    """A process that just restarted follows with a version that already has it back in the ISR."""
    states = account.states
    for line in account.lines:
        if line.kind != "follower" or line.broker is None or line.partition_epoch not in states:
            continue
        before, other = states.get(line.partition_epoch - 1, (None, line))
        is_joined = line.broker in states[line.partition_epoch][0].isr
        if before is None or line.broker in before.isr or not is_joined:
            continue
        if any(other.ts_ms < at_ms <= line.ts_ms for at_ms in account.scene.starts[line.broker]):
            yield fault(line, "early", other)


def _storing(account: Account) -> Iterator[Fault]:
    """A leader claims to store a state that was already stored."""
    for before, after, _, line, other in account.changes:
        is_same = before.isr == after.isr and before.place == after.place
        if line.kind == "isr_commit" and is_same and not line.said_by and len(after.isr) > 1:
            yield fault(line, "same", other)


RULES_OF_A_PARTITION: tuple[FaultRule, ...] = (_one_state, _learning, _starting, _again, _hearsay,
    _beginning, _witnesses, _in_time, _joining, _storing)  # fmt: skip
