"""Lines about one partition against each other: what cannot be, and by which rule.

A rule holds only where the lines suffice to break it: a missing line, a clock that is off, a leader
that was deposed and does not know it, are no faults.
Every rule takes the statements of a partition in order of time, and its run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from isrlab.verdict.faults import Fault, fault
from isrlab.verdict.possible import State
from isrlab.verdict.statements import METADATA_LOG, Run, Statement

AT_ONCE_MS = 1_000  # lines of one broker in two files may be this much out of order
NEAR_MS = 60_000
SOON_MS = 10_000
HEARD_MS = 6_000  # a log that goes on so long has what its broker heard
LATE_MS = 2_000
STATED = ("members", "leader", "epoch")


def _one_state(lines: list[Statement], run: Run) -> Iterator[Fault]:
    """One version has one ISR, one leader, one epoch, and one epoch one leader; of two that differ,
    the rarer is named."""
    led = [line for line in lines if line.leader is not None and line.leader >= 0]
    for of_what, what, told in (*(("version", n, lines) for n in STATED), ("epoch", "leader", led)):
        for same in _by(told, of_what).values():
            most, *others = sorted(_by(same, what).values(), key=len, reverse=True) or [[]]
            yield from (fault(line, of_what, most[0]) for odd in others for line in odd)


def _by(lines: list[Statement], name: str) -> dict[Any, list[Statement]]:
    """The lines by what they say of this; those that do not say it are left out."""
    groups = defaultdict(list)
    for line in lines:
        if (value := getattr(line, name)) is not None:
            groups[value].append(line)
    return groups


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
                yield fault(line, "learns", before)
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
                yield fault(line, "from")
            known[line.by] = [(line.ts_ms, frozenset(line.before))]
        if line.is_request or line.leader == line.by:
            known[line.by].append((line.ts_ms, frozenset(line.isr)))
        elif line.leader is not None:
            known[line.by] = []


def _again(lines: list[Statement], run: Run) -> Iterator[Fault]:
    """A leader that writes ZooKeeper itself asks again only if it was refused, and that is told."""
    last: dict[int | None, Statement] = {}
    if not any(line.kind == "isr_expand" for line in lines):
        return  # since 2.7 it asks the controller
    for line in lines:
        if not line.is_request and line.by == line.leader and not line.said_by:
            last.pop(line.by, None)
        if not line.is_request:
            continue
        before, last[line.by] = last.get(line.by), line
        if before is None or (before.before, before.isr) != (line.before, line.isr):
            continue
        near = before.ts_ms - NEAR_MS, line.ts_ms + LATE_MS
        is_refused = any(near[0] < at < near[1] for at in run.refusals[line.by])
        if line.ts_ms - before.ts_ms > LATE_MS and not is_refused:
            yield fault(line, "from", before)


def _hearsay(lines: list[Statement], run: Run) -> Iterator[Fault]:
    """An ISR or leader without a version that only one line knows, while others name another."""
    named: dict[object, list[Statement]] = defaultdict(list)
    for line in lines:
        for isr in {line.members, frozenset(line.before) if line.before else None} - {None}:
            named[isr].append(line)
        if line.leader is not None:
            named[line.leader].append(line)
    brokers = {line.by for line in lines if line.by is not None}
    for line in lines:
        if line.is_request or line.version is not None:
            continue
        if not all(run.covers(broker, line.ts_ms, line.ts_ms + HEARD_MS) for broker in brokers):
            continue
        near = [x for x in lines if x is not line and abs(x.ts_ms - line.ts_ms) < LATE_MS]
        for what in ("members", "leader"):
            others = [x for x in near if getattr(x, what) is not None]
            if others and named[getattr(line, what)] == [line]:
                yield fault(line, "heard", others[0])


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
            yield fault(line, "heard", other)


def _witnesses(lines: list[Statement], run: Run) -> Iterator[Fault]:
    """An epoch or version that a single line knows, though the other replicas go on without it."""
    told = [line for line in lines if not line.is_request]
    hear = {x.by for x in told if x.kind in ("follower", "metadata") and not x.said_by}
    for name in ("epoch", "version"):
        if name == "version" and not run.is_kraft:
            continue  # its leaders raise it themselves, and followers do not hear of it
        for number, known in _by(told, name).items():
            line = known[0]
            if len(known) > 1 or line.said_by == METADATA_LOG:
                continue
            if line.is_own and name == "version":
                continue  # a leader may be the only one to print it
            after_ms = line.ts_ms + SOON_MS
            heard_ms = line.ts_ms + HEARD_MS
            own = set() if line.said_by else {line.by}
            others = [b for b in hear - own if run.covers(b, line.ts_ms, heard_ms)]
            beyond = [
                x for x in told
                if (getattr(x, name) or -1) > number and line.ts_ms - SOON_MS < x.ts_ms <= after_ms
            ]  # fmt: skip
            must = {line.leader} if name == "version" else set(others)
            if others and not beyond and must <= set(others):
                yield fault(line, "heard")


def _in_time(lines: list[Statement], run: Run) -> Iterator[Fault]:
    """A version is heard of after it was stored, and by a process that starts as it is by then."""
    stated = [x for x in lines if x.version is not None and x.said_by != METADATA_LOG]
    origin: dict[int, Statement] = {}
    asked: dict[object, Statement] = {}
    for line in lines:
        if line.is_request:
            asked[line.by, line.members] = line
        request = asked.get((line.by, line.members)) if line.is_own else None
        is_committed = line.kind == "isr_commit" and line.is_own
        if line.version and (line.said_by == METADATA_LOG or request or is_committed):
            origin.setdefault(line.version, request or line)
    for line in stated if run.is_kraft else ():
        first = origin.get(line.version or 0)
        if first is not None and line.ts_ms < first.ts_ms - LATE_MS:
            yield fault(line, "early", first)
        starts = run.starts[line.by] if line.kind == "follower" else ()
        began_ms = max((at_ms for at_ms in starts if at_ms < line.ts_ms), default=None)
        for newer in stated if began_ms else ():
            is_newer = newer.version > line.version and newer.is_own  # type: ignore[operator]
            if is_newer and newer.ts_ms < began_ms - LATE_MS:  # type: ignore[operator]
                yield fault(line, "late", newer)
                break


# Changes


def _states(lines: list[Statement]) -> dict[int, tuple[State, Statement]]:
    """The state at each version, as its lines say together, and the leader's own or first line."""
    states: dict[int, tuple[State, Statement]] = {}
    for version, same in _by(lines, "version").items():
        isr, leader, epoch = (next(iter(_by(same, n)), None) for n in ("isr", "leader", "epoch"))
        state = State(tuple(sorted(isr or ())), leader, epoch)
        for line in same:
            if line.said_by == METADATA_LOG:
                state = state._replace(replicas=line.replicas, moves=line.moves)
        if isr or (isr is not None and leader == -1):
            states[version] = state, next((line for line in same if line.is_own), same[0])
    return states


Step: TypeAlias = tuple[State, State, tuple[int, ...], Statement, Statement]


def steps_of(lines: list[Statement], run: Run) -> Iterator[Step]:
    """Neighbouring versions: states, replicas, line, line before. In KRaft, where the replicas
    change, only those of which the metadata log says them."""
    states = _states(lines)
    lists = {frozenset(line.replicas): line.replicas for line in lines if line.replicas}
    has_moved = len(lists) > 1 or any(any(line.moves) for line in lines)
    members = {
        r for state, _ in states.values() for r in (*state.isr, state.leader) if r is not None
    }
    replicas = next(iter(lists.values()), tuple(sorted(members - {-1})))
    if has_moved:
        replicas = tuple(sorted(members.union(*lists) - {-1}))
    for version, (before, other) in states.items():
        if version + 1 not in states:
            continue
        after, line = states[version + 1]
        if has_moved and not run.is_kraft:
            after = after._replace(moves=(replicas, ()))
        if not (has_moved and run.is_kraft) or (before.replicas and after.replicas):
            yield before, after, _ordered(replicas, after, lines), line, other


def _ordered(replicas: tuple[int, ...], after: State, lines: list[Statement]) -> tuple[int, ...]:
    """ZooKeeper-era lines print the replicas as a set: then anybody may be the preferred leader."""
    is_list = any(line.said_by == METADATA_LOG for line in lines)
    if is_list or after.leader not in replicas:
        return replicas
    return (after.leader, *(r for r in replicas if r != after.leader))


def _joining(lines: list[Statement], run: Run) -> Iterator[Fault]:
    """A process that has just started follows; only then can its leader have taken it back."""
    states = _states(lines)
    for line in lines:
        if line.kind != "follower" or line.by is None or line.version not in states:
            continue
        (before, other), (after, _) = (
            states.get(line.version - 1, (None, line)),
            states[line.version],
        )
        if before is None or line.by in before.isr or line.by not in after.isr:
            continue
        if any(other.ts_ms < at_ms <= line.ts_ms for at_ms in run.starts[line.by]):
            yield fault(line, "early", other)


def _storing(lines: list[Statement], run: Run) -> Iterator[Fault]:
    """A leader says that it has stored what was stored already."""
    for before, after, _, line, other in steps_of(lines, run):
        is_same = before.isr == after.isr and before.place == after.place
        if line.kind == "isr_commit" and is_same and not line.said_by and len(after.isr) > 1:
            yield fault(line, "same", other)


RULES_OF_A_PARTITION: tuple[Callable[[list[Statement], Run], Iterator[Fault]], ...] = (
    _one_state,
    _learning,
    _starting,
    _again,
    _hearsay,
    _beginning,
    _witnesses,
    _in_time,
    _joining,
    _storing,
)
