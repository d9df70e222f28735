"""Can Kafka have done this? Every line about a partition is held against Kafka's rules.

Theory of operation. Statements (`statements.py`) must not break a rule by themselves (a shrink that
adds a member), against each other (two members' lists for one version, two leaders in one epoch),
against the order in which a broker learns (versions only grow), or against the engine: the very
next version must be one that its controllers can write (`possible.py`). The rules are tried with
each generation that may have run; the one that leaves the fewest changes unexplained is the guess.

A rule holds only where the lines suffice to break it: a missing line, a clock that is off, a leader
that was deposed and does not know it, a controller whose last words no majority has, are no faults.
`missing` rules are for lines that Kafka always writes, and that are not there: not impossible, but
not the whole log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa

from isrlab.engine import rules
from isrlab.engine.choices import ShrinkRule
from isrlab.engine.versions import KafkaVersion
from isrlab.events.exact import Key
from isrlab.incidents.possible import State, candidates, is_possible
from isrlab.incidents.statements import METADATA_LOG, Run, Statement, runs

RULES = {  # what Kafka always does
    "shrink": "a shrink takes members out, adds none, and keeps the leader",
    "grow": "a leader adds one replica at a time, and takes none out",
    "named": "those who are out of sync are those who leave",
    "limit": "a replica leaves only after the lag limit",
    "assigned": "only assigned replicas are in the ISR",
    "leads": "the leader is in the ISR",
    "twice": "no broker is twice in an ISR",
    "version": "one version of a partition has one ISR, one leader, one epoch",
    "epoch": "one leader epoch has one leader",
    "rises": "the leader epoch never falls, nor rises faster than the version",
    "learns": "a broker learns versions in order",
    "next": "each change is one that a leader may ask for or a controller makes",
    "from": "a leader starts from the ISR that is stored",
    "same": "a leader stores only what changes the ISR",
    "announced": "a leader announces each shrink, and stores what it announced",
    "heard": "what one line says of an ISR, a leader or an epoch, others who must know it say too",
    "counted": "versions and leader epochs count from 0, and a new partition begins there",
    "early": "nobody hears of a version before its leader has asked for it",
    "late": "a process that starts follows as it is by then",
    "once": "a broker hears of a version once, unless it is started again",
    "removed": "a controller takes out only brokers that are fenced, dead or leaving",
    "order": "lines stand in the order of their times",
}
MISSING = ("announced", "from")  # or a line is missing
AT_ONCE_MS = 1_000  # lines of one broker in two files may be this much out of order
NEAR_MS = 60_000
LATE_MS = 2_000
SOON_MS = 10_000
HEARING = ("leader", "follower", "metadata")  # what a broker prints of a state that it is told


class Fault(NamedTuple):
    """A line that cannot be, the rule that it breaks, and the line that it contradicts, if one."""

    key: Key | None
    rule: str
    file: str
    line: int
    says: str
    against: str  # file:line, or nothing


class Verdict(NamedTuple):
    """Of one run. `generation` explains most; `changes` were held against it."""

    run: str
    partitions: int
    left_out: int
    changes: int
    generation: str
    faults: tuple[Fault, ...]

    @property
    def first(self) -> Fault | None:
        return self.faults[0] if self.faults else None


def verdicts(
    events: pa.Table,
    files: pa.Table | None = None,
    release: str | None = None,
    lag_time_ms: int | None = None,
) -> list[Verdict]:
    """For each run of these events of logs: explained, or which lines cannot be.

    `files` (of `BrokerLogs`) says how long each log goes on. `release` is the newest that any
    broker ran; `lag_time_ms` is replica.lag.time.max.ms. Faults are in order of time. Raises
    ValueError for an unknown release.
    """
    return [judge(n, run, release, lag_time_ms) for n, run in runs(events, files).items()]


def judge(
    name: str, run: Run, release: str | None = None, lag_time_ms: int | None = None
) -> Verdict:
    """The verdict of one run."""
    faults = list(_misplaced(run))
    changes, unexplained = 0, defaultdict[KafkaVersion, list[Step]](list)
    versions = candidates(run.is_kraft, release)
    for lines in run.partitions.values():
        for rule in LINE_RULES:
            faults += (fault for line in lines for fault in rule(line))
        faults += (fault for line in lines for fault in _limit(line, lag_time_ms))
        for check in PARTITION_RULES:
            faults += check(lines, run)
        steps = [*_steps(lines)]
        changes += len(steps)
        for version in versions:
            unexplained[version] += [s for s in steps if not is_possible(version, *s[:3])]
    best = min(versions, key=lambda version: len(unexplained[version]))
    faults += [_fault(line, "next", other) for *_, line, other in unexplained[best]]
    first = {(fault.file, fault.line): fault for fault in reversed(faults)}
    order = {f"{line.file}:{line.line}": line.ts_ms for x in run.partitions.values() for line in x}
    ordered = sorted(first.values(), key=lambda f: (order.get(f"{f.file}:{f.line}", 0), f[:4]))
    return Verdict(
        name, len(run.partitions), len(run.left_out), changes, best.releases, tuple(ordered)
    )


def _fault(line: Statement, rule: str, other: Statement | None = None, text: str = "") -> Fault:
    against = f"{other.file}:{other.line}" if other else ""
    return Fault(line.key, rule, line.file, line.line, text or RULES[rule], against)


# One line by itself


def _alone(line: Statement) -> Iterator[Fault]:
    isr, before, leader = line.isr, line.before, line.leader
    is_new = line.detail.get("from_state") == "NewPartition"
    for number in (line.version, line.epoch):
        if number is not None and (number < 0 or (is_new and number > 0)):
            yield _fault(line, "counted")
    if isr is None:
        return
    if len(set(isr)) < len(isr) or (before and len(set(before)) < len(before)):
        yield _fault(line, "twice")
    if leader is not None and leader >= 0 and leader not in isr:
        yield _fault(line, "leads")
    if line.replicas and not set(isr) <= set(line.replicas):
        yield _fault(line, "assigned")
    if before is None or not line.is_request:
        return
    if line.kind == "isr_shrink":
        if not (set(isr) < set(before) and line.leader in before):
            yield _fault(line, "shrink")
        gone = line.detail.get("out_of_sync")
        if gone and {*map(int, gone.split(","))} != set(before) - set(isr):
            yield _fault(line, "named")
    elif not (set(before) < set(isr) and len(isr) == len(before) + 1):
        yield _fault(line, "grow")


def _limit(line: Statement, lag_time_ms: int | None) -> Iterator[Fault]:
    since = line.detail.get("since_caught_up_ms")
    if lag_time_ms is None or since is None or line.kind != "isr_shrink":
        return
    if not rules.is_out_of_sync(ShrinkRule.TIME, 0, 1, 0, int(since), lag_time_ms, 0):
        yield _fault(line, "limit")


# Lines against each other


def _assigned(lines: list[Statement], run: Run) -> Iterator[Fault]:
    """Members that nobody says are assigned, where somebody says who is."""
    known = {replica for line in lines for replica in line.replicas or ()}
    lists = [line for line in lines if line.replicas]
    for line in lines:
        members = {*(line.isr or ()), *(line.before or ())}
        if known and not members <= known:
            yield _fault(line, "assigned")
    named = {frozenset(line.replicas) for line in lists if line.replicas}
    for line in lists if len(named) > 1 else ():
        others = [o for o in lists if o.version == line.version and o is not line]
        unlike = [o for o in others if set(o.replicas or ()) != set(line.replicas or ())]
        if line.version is not None and len(unlike) > len(others) / 2:
            yield _fault(line, "version", unlike[0])


def _one_state(lines: list[Statement], run: Run) -> Iterator[Fault]:
    """One version has one ISR, one leader, one epoch; of two that differ, the rarer is named."""
    by_version = defaultdict(list)
    for line in lines:
        if line.version is not None:
            by_version[line.version].append(line)
    for same in by_version.values():
        yield from _odd(same, lambda line: line.members, "version")
        yield from _odd(same, lambda line: line.leader, "version")
        yield from _odd(same, lambda line: line.epoch, "version")


def _one_leader(lines: list[Statement], run: Run) -> Iterator[Fault]:
    by_epoch = defaultdict(list)
    for line in lines:
        if line.epoch is not None and line.leader is not None and line.leader >= 0:
            by_epoch[line.epoch].append(line)
    for same in by_epoch.values():
        yield from _odd(same, lambda line: line.leader, "epoch")


def _odd(lines: list[Statement], what: Callable[[Statement], object], rule: str) -> Iterator[Fault]:
    values = defaultdict(list)
    for line in lines:
        if (value := what(line)) is not None:
            values[value].append(line)
    if len(values) > 1:
        most, *others = sorted(values.values(), key=len, reverse=True)
        for odd in others:
            yield from (_fault(line, rule, most[0]) for line in odd)


def _rising(lines: list[Statement], run: Run) -> Iterator[Fault]:
    stated = sorted((x for x in lines if None not in (x.version, x.epoch)), key=lambda x: x[7:9])
    for low, high in pairwise(stated):
        versions, epochs = high.version - low.version, high.epoch - low.epoch  # type: ignore[operator]
        if not 0 <= epochs <= versions:
            yield _fault(max(low, high, key=lambda x: x.ts_ms), "rises", low)


def _learning(lines: list[Statement], run: Run) -> Iterator[Fault]:
    """In one file of a broker itself, versions and epochs grow."""
    last: dict[tuple[str, str], Statement] = {}
    for line in sorted(lines, key=lambda x: (x.file, x.line)):
        for name in ("version", "epoch"):
            value = getattr(line, name)
            if line.said_by or value is None or line.is_request:
                continue
            before = last.get((line.file, name))
            if before is not None and value < getattr(before, name):
                yield _fault(line, "learns", before)
            last[line.file, name] = line


def _starting(lines: list[Statement], run: Run) -> Iterator[Fault]:
    """A leader asks from the ISR that is stored, as far as its own lines tell."""
    known: dict[int | None, list[tuple[int, frozenset[int]]]] = defaultdict(list)
    told = {line.by for line in lines if not line.said_by and line.kind in ("leader", "metadata")}
    for line in lines:
        if line.said_by or line.isr is None:
            continue
        own = known[line.by]
        if line.is_request and line.before is not None:
            latest = own[-1][0] if own else 0
            may_be = {isr for ts_ms, isr in own if ts_ms >= latest - AT_ONCE_MS}
            if own and line.by in told and frozenset(line.before) not in may_be:
                yield _fault(line, "from")
            known[line.by] = [(line.ts_ms, frozenset(line.before))]
        if line.is_request or line.leader == line.by:
            known[line.by].append((line.ts_ms, frozenset(line.isr)))
        elif line.leader is not None:
            known[line.by] = []


def _hearsay(lines: list[Statement], run: Run) -> Iterator[Fault]:
    """An ISR or leader without a version that only one line knows, while others name another."""
    named: dict[object, list[Statement]] = defaultdict(list)
    for line in lines:
        for isr in {line.members, frozenset(line.before) if line.before else None} - {None}:
            named[isr].append(line)
        if line.leader is not None:
            named[line.leader].append(line)
    for line in lines:
        if line.is_request or line.version is not None:
            continue
        near = [x for x in lines if x is not line and abs(x.ts_ms - line.ts_ms) < LATE_MS]
        others = [x for x in near if x.isr]
        if line.isr is not None and named[line.members] == [line] and others:
            yield _fault(line, "heard", others[0])
        others = [x for x in near if x.leader is not None]
        if line.leader is not None and named[line.leader] == [line] and others:
            yield _fault(line, "heard", others[0])


def _beginning(lines: list[Statement], run: Run) -> Iterator[Fault]:
    """A ZooKeeper controller tells the new leader the ISR with which its epoch begins."""
    told = {(x.epoch, x.leader): x for x in lines if x.kind == "leader" and x.said_by}
    heard: dict[tuple[int | None, int | None], Statement] = {}
    for line in lines:
        if line.kind == "leader" and line.is_own and line.epoch is not None:
            heard.setdefault((line.epoch, line.leader), line)
    for place, line in heard.items() if not run.is_kraft else ():
        other = told.get(place)
        if other and None not in (line.isr, other.isr) and line.members != other.members:
            yield _fault(line, "heard", other)


def _witnesses(lines: list[Statement], run: Run) -> Iterator[Fault]:
    """An epoch or version that a single line knows, though the other replicas go on without it."""
    told = [line for line in lines if not line.is_request]
    hear = {x.by for x in told if x.kind in HEARING and not x.said_by and x.by is not None}
    for name in ("epoch", "version"):
        if name == "version" and not run.is_kraft:
            continue  # its leaders raise it themselves, and followers do not hear of it
        by_number = defaultdict(list)
        for line in told:
            by_number[getattr(line, name)].append(line)
        for number, known in by_number.items():
            line = known[0]
            if number is None or len(known) > 1 or line.said_by == METADATA_LOG:
                continue
            if line.is_own and name == "version":
                continue  # a leader may be the only one to print it
            after_ms = line.ts_ms + SOON_MS
            own = set() if line.said_by else {line.by}
            others = [b for b in hear - own if b is not None and run.ends[b] > after_ms]
            beyond = [
                x for x in told
                if (getattr(x, name) or -1) > number and line.ts_ms - SOON_MS < x.ts_ms <= after_ms
            ]  # fmt: skip
            must = {line.leader} if name == "version" else set(others)
            if others and not beyond and must <= set(others):
                yield _fault(line, "heard")


def _in_time(lines: list[Statement], run: Run) -> Iterator[Fault]:
    """A version is heard of after its leader, and by a process that starts as it is by then."""
    stated = [x for x in lines if x.version is not None and x.said_by != METADATA_LOG]
    origin: dict[int, Statement] = {}
    for line in stated:
        if line.is_own and line.version:
            origin.setdefault(line.version, line)
    for line in stated if run.is_kraft else ():
        first = origin.get(line.version or 0)
        if first is not None and line.ts_ms < first.ts_ms - LATE_MS:
            yield _fault(line, "early", first)
        starts = run.starts.get(line.by or 0, ()) if line.kind == "follower" else ()
        began_ms = max((at_ms for at_ms in starts if at_ms < line.ts_ms), default=None)
        for newer in stated if began_ms else ():
            is_newer = newer.version > line.version and newer.is_own  # type: ignore[operator]
            if is_newer and newer.ts_ms < began_ms - LATE_MS:  # type: ignore[operator]
                yield _fault(line, "late", newer)
                break


def _once(lines: list[Statement], run: Run) -> Iterator[Fault]:
    last: dict[tuple[int | None, int], Statement] = {}
    for line in lines if run.is_kraft else ():
        if line.said_by or line.version is None or line.kind not in HEARING:
            continue
        before = last.get((line.by, line.version))
        last[line.by, line.version] = line
        if before is None or line.by is None:
            continue
        if not any(before.ts_ms <= at_ms <= line.ts_ms for at_ms in run.starts.get(line.by, ())):
            yield _fault(line, "once", before)


# Changes


def _states(lines: list[Statement]) -> dict[int, tuple[State, Statement]]:
    """The state at each version, as its lines say together, and the leader's own or first line."""
    states: dict[int, tuple[State, Statement]] = {}
    for line in lines:
        if line.version is None:
            continue
        state, first = states.get(line.version, (State((), None, None), line))
        isr = tuple(sorted(line.isr)) if line.isr is not None and not state.isr else state.isr
        leader = line.leader if state.leader is None else state.leader
        epoch = line.epoch if state.leader_epoch is None else state.leader_epoch
        first = line if line.is_own and not first.is_own else first
        states[line.version] = State(isr, leader, epoch), first
    return {v: (s, line) for v, (s, line) in states.items() if s.isr or s.leader == -1}


Step = tuple[State, State, tuple[int, ...], Statement, Statement]


def _steps(lines: list[Statement]) -> Iterator[Step]:
    """Neighbouring versions, unless the replicas change: states, replicas, line, line before."""
    states = _states(lines)
    lists = {frozenset(line.replicas): line.replicas for line in lines if line.replicas}
    if len(lists) > 1:
        return
    members = {
        r for state, _ in states.values() for r in (*state.isr, state.leader) if r is not None
    }
    replicas = next(iter(lists.values()), tuple(sorted(members - {-1})))
    for version, (before, other) in states.items():
        if version + 1 in states:
            after, line = states[version + 1]
            yield before, after, _ordered(replicas, after, lines), line, other


def _ordered(replicas: tuple[int, ...], after: State, lines: list[Statement]) -> tuple[int, ...]:
    """ZooKeeper-era lines print the replicas as a set: then anybody may be the preferred leader."""
    is_list = any(line.said_by == METADATA_LOG for line in lines)
    if is_list or after.leader not in replicas:
        return replicas
    return (after.leader, *(r for r in replicas if r != after.leader))


def _announcing(lines: list[Statement], run: Run) -> Iterator[Fault]:
    """A version in which replicas left though no controller took them out: who announced it?"""
    for before, after, _, line, other in _steps(lines):
        gone = set(before.isr) - set(after.isr)
        is_leaders = before.leader == after.leader and line.by == after.leader
        if line.said_by or line.kind == "leader" or not is_leaders or not gone:
            if line.kind == "isr_commit" and before.isr == after.isr and len(after.isr) > 1:
                yield _fault(line, "same", other)
            continue
        asked = [x for x in lines if x.is_request and x.by == line.by and x.ts_ms <= line.ts_ms + 5]
        asked = [x for x in asked if x.ts_ms > line.ts_ms - NEAR_MS and x.line]
        if any(x.members == frozenset(after.isr) for x in asked):
            continue
        if all(_is_away(run, broker, line.ts_ms) for broker in gone):
            continue
        if run.away or asked:
            yield _fault(line, "announced", asked[-1] if asked else None)


def _removing(lines: list[Statement], run: Run) -> Iterator[Fault]:
    """With another leader, the ISR loses only who is away, if it is told who is."""
    for before, after, _, line, other in _steps(lines):
        gone = set(before.isr) - set(after.isr)
        if before.leader == after.leader or len(after.isr) < 2 or not gone:
            continue
        told = [broker for broker in run.away if _is_away(run, broker, line.ts_ms)]
        if told and not gone <= set(told):
            yield _fault(line, "removed", other)


def _is_away(run: Run, broker: int, ts_ms: int) -> bool:
    return any(abs(at_ms - ts_ms) < NEAR_MS for at_ms in run.away.get(broker, ()))


# Files


def _misplaced(run: Run) -> Iterator[Fault]:
    """A line whose time is long before that of lines in front of it, and which stands alone so."""
    for file, lines in run.order.items():
        for (_, left), (number, ts_ms), (_, right) in zip(
            lines, lines[1:], lines[2:], strict=False
        ):
            is_late = ts_ms < left - LATE_MS and left <= right + LATE_MS
            is_early = ts_ms > right + LATE_MS and left <= right + LATE_MS
            if is_late or is_early:
                yield Fault(None, "order", file, number, RULES["order"], "")


LINE_RULES: tuple[Callable[[Statement], Iterator[Fault]], ...] = (_alone,)
PARTITION_RULES: tuple[Callable[[list[Statement], Run], Iterator[Fault]], ...] = (
    _assigned,
    _one_state,
    _one_leader,
    _rising,
    _learning,
    _starting,
    _hearsay,
    _beginning,
    _witnesses,
    _in_time,
    _once,
    _announcing,
    _removing,
)
