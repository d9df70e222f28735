"""Controllers that did not answer, and deposed ones that still acted.

Theory of operation. In KRaft brokers send heartbeats to the active controller. If most of them get
no answer for ten seconds, nothing can be stored: no ISR, no leader, no topic. The remaining
controllers show why if they stand for election again and again: too few of them vote. An active
controller that was paused in that time wakes up and fences brokers, although another one was
elected: those decisions are never stored (the sign `fenced_too_late` of the history).
"""

from __future__ import annotations

from typing import NamedTuple

from isrlab.events.spans import Interval
from isrlab.events.statements import Statement
from isrlab.logs.history.record import Record

STILL_MS = 5_000  # still going on if this close to the end of the logs
AWAY_MS = 10_000  # a failover takes less
APART_MS = 10_000  # between two heartbeats of one time
NOT_ANSWERED = "heartbeat_failed"


class ControllerAbsence(NamedTuple):
    """A time in which most brokers reached no controller: the heartbeats that failed."""

    controller: int | None  # that they waited for, if it was only one
    rows: list[Statement]

    @property
    def span(self) -> Interval:
        return self.rows[0].ts_ms, self.rows[-1].ts_ms


def away(record: Record) -> list[ControllerAbsence]:
    """The times in which controllers were unavailable, in order."""
    hosts = frozenset[int]().union(*record.replicas.values())
    runs: list[list[Statement]] = []
    for row in record.said_of(NOT_ANSWERED):
        if not runs or row.ts_ms - runs[-1][-1].ts_ms > APART_MS:
            runs.append([])
        runs[-1].append(row)
    found = []
    for rows in runs:
        lasted: dict[int | None, list[int]] = {}
        for row in rows:
            lasted.setdefault(row.broker, []).append(row.ts_ms)
        long = {broker for broker, times in lasted.items() if times[-1] - times[0] >= AWAY_MS}
        if len(long) > max(1, len(hosts) // 2):
            found.append(ControllerAbsence(_waited_for(rows, record), rows))
    return found


def elections(record: Record, span: Interval) -> list[Statement]:
    """Controllers elected within a span, except a cluster's first, from before any leader."""
    rows = record.said("sign", span, sign="controller_elected")
    if not rows:
        return []
    first_ms = min((times[0] for times, _ in record.leaders.values() if times), default=0)
    return [row for row in rows if row.ts_ms > first_ms]


def _waited_for(rows: list[Statement], record: Record) -> int | None:
    span = (rows[0].ts_ms - AWAY_MS, rows[-1].ts_ms)
    brokers = {row.broker for row in rows}
    waits = record.said("sign", span, sign="waited")
    nodes = {row.replica for row in waits if row.broker in brokers} - brokers
    return next(iter(nodes)) if len(nodes) == 1 else None
