"""The rules that all lines about one partition must obey, because Kafka always does.

A line must not break a rule by itself (a shrink that adds a member), contradict other lines (two
ISRs for one version, two leaders in one epoch), or break the order in which a broker learns
(versions only grow). A line is a fault only if the lines prove it, and it is not one if a lost
line, a wrong clock, or a deposed leader that does not yet know it could explain it.
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property, partial
from itertools import accumulate
from operator import attrgetter
from typing import Any, NamedTuple

from isrlab.engine import rules
from isrlab.engine.choices import ShrinkRule
from isrlab.events.statements import Key, Statement
from isrlab_ops.logs.history.possible import Registration
from isrlab_ops.logs.history.record import in_span
from isrlab_ops.logs.history.scene import Scene, is_within

OUT_OF_ORDER_MS = 5_000  # lines of one broker in two files may be out of order by this much
SOON_MS = 10_000
HEARD_MS = 6_000  # a log that continues for this long has what its broker heard
LATE_MS = 2_000
_ms = attrgetter("ts_ms")
MOST_KNOWN = 8  # earlier lines of a leader with which the next one is compared
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
        self.is_exact = any(line.is_exact for line in lines)

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
        """Successive versions; if replicas change in KRaft, only those whose replicas are known."""
        states, is_kraft, changes = self.states, self.scene.is_kraft, []
        lists = {frozenset(ids): ids for x in self.lines if (ids := x.ids("replicas"))}
        has_moved = len(lists) > 1 or any(x.ids("adding") or x.ids("removing") for x in self.lines)
        named = {r for s, _ in states.values() for r in (*s.isr, s.leader) if r not in (None, -1)}
        listed = () if has_moved else next(iter(lists.values()), ())
        replicas = listed or tuple(sorted(named.union(*lists) - {-1}))
        for version, (before, line_before) in states.items():
            after, line = states.get(version + 1, (None, line_before))
            are_known = before.replicas and after and after.replicas
            if after is None or (has_moved and is_kraft and not are_known):
                continue
            if has_moved and not is_kraft:
                after = after._replace(moves=(replicas, ()))
            # ZooKeeper-era lines print the replicas as a set: any may be the preferred leader.
            first = () if self.is_exact or after.leader not in replicas else (after.leader,)
            order = (*first, *(r for r in replicas if r not in first))
            epochs = before.leader_epoch, after.leader_epoch
            rise = None if None in epochs else epochs[1] - epochs[0]  # type: ignore[operator]
            before, after = before._replace(leader_epoch=0), after._replace(leader_epoch=rise)
            changes.append(Change(before, after, order, line, line_before))
        return changes

    def hearing(self, line: Statement, brokers: set[Any]) -> set[int | None]:
        """The brokers whose logs cover the `HEARD_MS` after a line, in which they heard of it."""
        span = line.ts_ms, line.ts_ms + HEARD_MS
        return {broker for broker in brokers if self.scene.covers(broker, *span)}


def _version(line: Statement) -> int:
    return line.partition_epoch or 0


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


def _one_state(account: Account) -> Iterator[Fault]:
    """A version has one ISR, leader and epoch. An epoch has one leader and, in the ZooKeeper era,
    one ISR with which it begins to lead. The lines with the rarer values are faults."""
    led = [line for line in account.lines if line.leader is not None and line.leader >= 0]
    claims = [("version", "partition_epoch", name, account.lines) for name in STATED]
    first = {(x.leader_epoch, x.leader, x.is_own): x for x in reversed(led) if x.kind == "leader"
             and (x.is_leaders or x.said_by)}  # fmt: skip
    began = [] if account.scene.is_kraft else [*first.values()]
    claims += [
        ("epoch", "leader_epoch", "leader", led),
        ("heard", "leader_epoch", "members", began),
    ]
    for rule, of_what, what, lines in claims:
        for same in _by(lines, of_what).values():
            most, *others = sorted(_by(same, what).values(), key=len, reverse=True) or [[]]
            yield from (fault(line, rule, most[0]) for odd in others for line in odd)


def _learning(account: Account) -> Iterator[Fault]:
    """Within one file of a broker, versions and epochs only grow."""
    last: dict[tuple[str, int | None, str], Statement] = {}
    for line in sorted(account.lines, key=lambda x: (x.file, x.line)):
        for name in ("partition_epoch", "leader_epoch"):
            place, value = (line.file, line.broker, name), getattr(line, name)
            if value is not None and line.is_own and not line.is_request:
                before, last[place] = last.get(place), line
                if before is not None and value < getattr(before, name):
                    yield fault(line, "learns", before)


def _starting(account: Account) -> Iterator[Fault]:
    """A leader's request starts from the stored ISR, as far as its own lines show it."""
    known: dict[int | None, list[tuple[int, frozenset[int]]]] = defaultdict(list)
    printing = {x.broker for x in account.lines if x.is_own and x.kind in ("leader", "metadata")}
    epochs: dict[int | None, int | None] = {}  # in which each broker last began to lead
    for line in filter(lambda x: x.is_own, account.lines):
        own, epoch = known[line.broker], line.leader_epoch
        if line.kind == "leader" and epoch is not None:
            if line.isr is None and epochs.get(line.broker) != epoch:
                own.clear()  # other brokers led meanwhile, and this line does not name its ISR
            epochs[line.broker] = epoch
        if line.isr is None:
            continue
        if line.is_request and line.isr_before is not None:
            latest = own[-1][0] if own else 0
            may_be = {isr for ts_ms, isr in own if ts_ms >= latest - OUT_OF_ORDER_MS}
            if own and line.broker in printing and frozenset(line.isr_before) not in may_be:
                yield fault(line, "from")
            own[:] = [(line.ts_ms, frozenset(line.isr_before))]
        if line.is_request or line.leader == line.broker:
            own.append((line.ts_ms, frozenset(line.isr)))
        elif line.leader is not None:
            own.clear()


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
        is_vague = not line.is_request and line.partition_epoch is None
        if not is_vague or account.hearing(line, brokers) != brokers:
            continue
        near = in_span(account.lines, (line.ts_ms - LATE_MS + 1, line.ts_ms + LATE_MS - 1))
        for what in ("members", "leader"):
            others = [x for x in near if x is not line and getattr(x, what) is not None]
            if others and named[getattr(line, what)] == [line]:
                yield fault(line, "heard", others[0])


def _witnesses(account: Account) -> Iterator[Fault]:
    """An epoch or version that a single line reports, although other replicas should confirm it."""
    stated = [line for line in account.lines if not line.is_request]
    hear = {x.broker for x in stated if x.kind in ("follower", "metadata") and not x.said_by}
    # ZooKeeper-era leaders raise the version, and followers never learn of it.
    for name in ("leader_epoch", "partition_epoch")[: 1 + account.scene.is_kraft]:
        for number, (line, *more) in _by(stated, name).items():
            if more or line.is_exact or (line.is_leaders and name == "partition_epoch"):
                continue  # a leader may be the only one to print a version
            others = account.hearing(line, hear - (set() if line.said_by else {line.broker}))
            near = in_span(account.lines, (line.ts_ms - SOON_MS + 1, line.ts_ms + SOON_MS))
            beyond = [x for x in near if not x.is_request and (getattr(x, name) or -1) > number]
            must = {line.leader} if name == "partition_epoch" else set()
            if others and not beyond and must <= others:
                yield fault(line, "heard")


def _in_time(account: Account) -> Iterator[Fault]:
    """A version is reported only once it is stored (others confirm the time: a leader is late)."""
    origin: dict[int, Statement] = {}
    asked: dict[int | None, Statement] = {}  # by leader; the first, if it repeats a request
    heard: dict[int | None, dict[int | None, int]] = defaultdict(dict)  # first, by broker
    for line in account.lines:
        heard[line.partition_epoch].setdefault(line.broker, line.ts_ms)
        request, is_committed = asked.get(line.broker), line.kind == "isr_commit"
        if line.is_request:
            is_again = request and (request.isr_before, request.isr) == (line.isr_before, line.isr)
            asked[line.broker] = request if request and is_again else line
        elif line.is_leaders and request and request.members == line.members:
            origin.setdefault(line.partition_epoch or 0, request)
        elif line.is_exact or (line.is_leaders and is_committed):
            origin.setdefault(line.partition_epoch or 0, line)
        if line.is_leaders and is_committed:
            asked.pop(line.broker, None)
    for line in account.lines if account.scene.is_kraft else ():
        first = origin.get(line.partition_epoch or 0)
        late_ms = LATE_MS if first and first.is_exact else OUT_OF_ORDER_MS
        if line.is_exact or first is None or line.ts_ms >= first.ts_ms - late_ms:
            continue
        known = heard[line.partition_epoch].items()
        times = (ms for broker, ms in known if broker not in (line.broker, first.broker))
        confirmed_ms = min(times, default=0) + LATE_MS
        if first.is_request or first.is_exact or confirmed_ms >= first.ts_ms:
            yield fault(line, "early", first)


def _joining(account: Account) -> Iterator[Fault]:
    """A process that starts follows with the newest version (an older one is "late"), and not yet
    with one that has it back in the ISR ("early")."""
    own = [x for x in account.lines if x.is_leaders and x.partition_epoch is not None]
    newest = [*accumulate(own, partial(max, key=_version))]
    for line in account.lines:
        version, starts = line.partition_epoch, account.scene.starts[line.broker]
        began_ms = [0, *starts][bisect_right(starts, line.ts_ms)]
        if line.kind != "follower" or version is None or not began_ms:
            continue
        before = bisect_left(own, began_ms - LATE_MS, key=_ms) if account.scene.is_kraft else 0
        if before and _version(newest[before - 1]) > version:
            yield fault(line, "late", newest[before - 1])
        state, was = account.states.get(version), account.states.get(version - 1)
        is_back = state and was and line.broker in {*state[0].isr} - {*was[0].isr}
        if was and is_back and was[1].ts_ms < began_ms:
            yield fault(line, "early", was[1])


def _storing(account: Account) -> Iterator[Fault]:
    """A leader claims to store a state that was already stored."""
    for before, after, _, line, other in account.changes:
        is_same = before.isr == after.isr and before.place == after.place
        if line.kind == "isr_commit" and is_same and not line.said_by and len(after.isr) > 1:
            yield fault(line, "same", other)


def _growing(account: Account) -> Iterator[Fault]:
    """A log that was just created is empty, and a leader only appends to its log, so its end and
    its high watermark never fall while it leads."""
    known: dict[int | None, list[Statement]] = {}  # what each broker logs while it leads
    newest, last_ms = -1, dict[int | None, int]()
    for line in account.lines:
        newest = max(newest, -1 if line.leader_epoch is None else line.leader_epoch)
        begun = known.get(line.broker, [])
        if line.said_by:
            continue
        if line.kind in ("leader", "follower"):
            made = account.scene.created.get((line.key, line.broker), [])
            since_ms = max(last_ms.get(line.broker, 0) + 1, line.ts_ms - SOON_MS)
            is_first = is_within(made, since_ms, line.ts_ms)
            is_first &= line.detail.get("previous_leader_epoch", "-1") == "-1"  # else it followed
            if is_first and (line.log_end_offset or line.high_watermark):
                yield fault(line, "counted")
            last_ms[line.broker] = line.ts_ms
            is_newest = line.is_leaders and line.leader_epoch == newest
            known[line.broker] = [line] if is_newest else []
        elif begun and begun[0].leader_epoch == newest:
            led = (begun[0].ts_ms, line.ts_ms)
            is_sure = led[1] > led[0] + OUT_OF_ORDER_MS  # else perhaps of the previous epoch
            if is_sure and not is_within(account.scene.starts[line.broker], *led):
                above = [x for x in begun if _is_above(x, line)]
                yield from (fault(line, "grows", each) for each in above[:1])
                begun[1:] = [*begun[1:], line][-MOST_KNOWN:]


def _is_above(line: Statement, other: Statement) -> bool:
    """The log or the high watermark of a line ends above that of another, which came later."""
    is_near = line.file == other.file and line.line < other.line
    ends = (line.high_watermark, other.high_watermark), (line.log_end_offset, other.log_end_offset)
    is_above = any(a is not None and b is not None and a > b for a, b in ends)
    return is_above and (is_near or line.ts_ms < other.ts_ms - OUT_OF_ORDER_MS)


RULES_OF_A_PARTITION = (
    _one_state, _learning, _starting, _hearsay, _witnesses, _in_time, _joining, _storing, _growing,
)  # fmt: skip
