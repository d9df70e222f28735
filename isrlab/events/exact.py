"""Exact answers from a small table of events, in plain Python: the ISRs, absences and their causes.

For tables whose rows are all on one clock: a scenario (`Run.events()`), a simulated fleet, or the
history of real logs (`logs.history`). There `isr_commit` rows show every stored ISR without
contradictions, so two rules suffice; `isrlab.churn` answers on Spark by similar rules, and a
property test compares the answers.

1. A row with a lower partition epoch than an earlier row is late, and does not count. A row that
   has the same members as the ISR before is not a change.
2. A shrink is the leader's if a row shows its request, and the leader reports the stored ISR itself
   or the controller stores what a leader asked for; else it is the controller's.

After a row `unknown` a partition's ISR is not known until the next one is stored, and after a row
`deleted` there is none: such times are in no span, and changes in them are not moves.

Times are milliseconds on the clock of the table. With `end_ms`, what happens later does not count.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from isrlab.events.statements import Events, Key, Statement, broker_ids, statements

__all__ = ["Absence", "IsrMove", "IsrSpan", "Key", "Wait"]


class IsrSpan(NamedTuple):
    start_ms: int
    end_ms: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...] = ()  # of the partition then; empty: not known
    is_assigned: bool = False  # `replicas` is complete; else it has those seen so far


class IsrMove(NamedTuple):
    key: Key
    ts_ms: int
    replica: int
    joined: bool  # True: joined the stored ISR; False: left it
    evictor: dict[str, Any]  # the leader that evicted it and what it knew (`KNEW`), or empty


class Absence(NamedTuple):
    """A replica's absence from the ISR; if a leader evicted it, that leader and what it knew."""

    key: Key
    replica: int
    start_ms: int
    end_ms: int | None  # None: it did not come back
    leader: int | None = None  # None: the controller removed it
    lag_records: int | None = None  # these three are None if the shrink does not name them
    since_caught_up_ms: int | None = None
    since_fetch_ms: int | None = None
    is_certain: bool = True  # False: it came back at `end_ms` or earlier; the logs do not show when
    left: Statement | None = None  # the row that shows it: a leader's shrink, else the stored ISR


KNEW = ("leader", "lag_records", "since_caught_up_ms", "since_fetch_ms")


class Wait(NamedTuple):
    """How long some produces with acks=all waited; in fleets, rounded down to a latency class."""

    run: str
    latency_ms: int
    produces: int


def isr_spans(
    events: Events, end_ms: int | None = None, start_ms: int | None = None
) -> dict[Key, list[IsrSpan]]:
    """The stored ISRs of each partition where they are known, from the first one to `end_ms`.

    `end_ms` defaults to the last event of the run. With `start_ms` there is also a span from then
    to the first change, if the row of that change has `isr_before`. An ISR has several spans if the
    replicas of the partition change meanwhile.
    """
    points: dict[Key, list[tuple[int, StoredIsr | None]]] = {}
    ends = _ends(events) if end_ms is None else {}
    for key, ts_ms, before, state, _ in _states(events, end_ms):
        spans = points.setdefault(key, [])
        if not spans and start_ms is not None and before is not None:
            spans.append((start_ms, StoredIsr(before)))
        if not spans or spans[-1][1] is None or state is None or _differ(spans[-1][1], state):
            spans.append((ts_ms, state))
    for key, changes in points.items():
        changes.append((ends[key.run] if end_ms is None else end_ms, None))
    return {
        key: [
            IsrSpan(start, end, tuple(state.isr), state.replicas, state.is_assigned)
            for (start, state), (end, _) in pairwise(changes)
            if state not in (None, DELETED)
        ]
        for key, changes in points.items()
    }


def moves(events: Events, end_ms: int | None = None) -> list[IsrMove]:
    """Every replica that left or joined an ISR, by time; in one change, departures come first."""
    return [
        IsrMove(key, ts_ms, replica, joined, {} if joined else evictor)
        for key, ts_ms, before, state, evictor in _states(events, end_ms)
        if before is not None and state is not None
        for joined, replica in sorted((r in state.isr, r) for r in set(before) ^ set(state.isr))
    ]


def absences(events: Events, end_ms: int | None = None) -> list[Absence]:
    """Every time that a replica left an ISR, in order of leaving.

    A replica that a reassignment removed, or whose partition was deleted, is not absent.
    """
    absent: list[Absence] = []
    places: dict[Key, dict[int, int]] = defaultdict(dict)  # of those that are out now
    for key, ts_ms, before, state, evictor in _states(events, end_ms):
        isr, out = set(state.isr if state else ()), places[key]
        others = {*out, *(before or ())} - isr
        gone = others - set(state.replicas) if state and state.is_assigned else set()
        for replica in sorted(isr | gone):
            if (place := out.pop(replica, None)) is not None:
                is_certain = before is not None or state is DELETED
                absent[place] = absent[place]._replace(end_ms=ts_ms, is_certain=is_certain)
        for replica in sorted(set(before or ()) - isr - gone) if state else ():
            out[replica] = len(absent)
            left = Absence(key, replica, ts_ms, None, left=state.row if state else None)
            absent.append(left._replace(**evictor))
    return absent


def evictions(events: Events, end_ms: int | None = None) -> list[Absence]:
    """The absences that a leader's own shrink began."""
    return [absence for absence in absences(events, end_ms) if absence.leader is not None]


def waits(events: Events) -> list[Wait]:
    """How long produces with acks=all waited: rows `latency` and, in scenarios, `produce_ack`."""
    return [
        Wait(row.run, int(d["latency_ms"]), int(d.get("count", 1)))
        for row in _rows(events, "latency", "produce_ack")
        if (d := row.detail).get("acks") == "-1" and "latency_ms" in d
    ]


def _rows(events: Events, *kinds: str) -> list[Statement]:
    """The rows of these kinds in order of time."""
    return sorted(statements(events, *kinds), key=lambda row: row.ts_ms)


def _ends(events: Events) -> dict[str, int]:
    """The time of the last row of each run."""
    if not isinstance(events, Sequence):
        last = events.group_by("run").aggregate([("ts_ms", "max")]).to_pylist()
        return {row["run"]: row["ts_ms_max"] for row in last}
    ends: dict[str, int] = {}
    for row in events:
        ends[row.run] = max(row.ts_ms, ends.get(row.run, row.ts_ms))
    return ends


class StoredIsr(NamedTuple):
    isr: tuple[int, ...]
    replicas: tuple[int, ...] = ()
    is_assigned: bool = False
    row: Statement | None = None


DELETED = StoredIsr((), is_assigned=True)  # no broker has a replica


def _differ(first: StoredIsr, second: StoredIsr) -> bool:
    return {*first.isr} != {*second.isr} or {*first.replicas} != {*second.replicas}


def _states(
    events: Events, end_ms: int | None
) -> Iterator[tuple[Key, int, tuple[int, ...] | None, StoredIsr | None, dict[str, Any]]]:
    """The stored states, in order: key, ms, the ISR before (None: not known), the state (None: not
    known from then on), and for a leader's shrink `KNEW` and `left` of `Absence`."""
    known: dict[Key, tuple[tuple[int, ...], int]] = {}  # the ISR, and its partition epoch
    shrinks: dict[Key, Statement] = {}  # the last one that a leader asked for
    for row in _rows(events, "isr_shrink", "isr_commit", "unknown", "deleted"):
        key, ts_ms, isr, version = row.key, row.ts_ms, row.isr or (), row.partition_epoch
        if end_ms is not None and ts_ms > end_ms:
            return
        before, epoch = known.get(key, (row.isr_before, -1))
        if row.kind == "isr_shrink":
            shrinks[key] = row
        elif row.kind != "isr_commit":
            known.pop(key, None)
            yield key, ts_ms, None, DELETED if row.kind == "deleted" else None, {}
        elif version is None or version >= epoch:
            known[key] = isr, epoch if version is None else version
            replicas = broker_ids(row.detail.get("replicas", ""))
            is_assigned = row.detail.get("replicas_from") == "assignment"
            state = StoredIsr(isr, replicas, is_assigned, row)
            yield key, ts_ms, before, state, _evictor(row, shrinks.get(key))


def _evictor(commit: Statement, shrink: Statement | None) -> dict[str, Any]:
    """The evicting leader and what it knew, if this commit stores a leader's shrink; else empty."""
    is_leaders = commit.said_by != "controller" or commit.detail.get("asked_by") == "leader"
    if shrink is None or not is_leaders or set(shrink.isr or ()) != set(commit.isr or ()):
        return {}
    knew = {key: int(shrink.detail[key]) for key in KNEW if key in shrink.detail}
    return {"leader": shrink.broker, **knew, "left": shrink}
