"""Controllers that did not answer, or acted although deposed; brokers that could not ask.

Theory of operation. In KRaft brokers send heartbeats to the active controller. If most of them get
no answer for ten seconds, nothing can be stored: no ISR, no leader, no topic. The remaining
controllers show why if they become candidates again and again: too few of them vote. An active
controller that was paused in that time wakes up and fences brokers, although another one was
elected: those decisions are never stored (the sign `fenced_too_late` of the history).

If the requests of only one broker time out, time after time, that broker is strained: it runs only
at moments, or its link to the controller loses packets. Each failure is shorter than its session
and than the lag limit, so no replica leaves an ISR, while its producers and followers wait.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from isrlab.events.spans import Interval
from isrlab.events.statements import Statement
from isrlab_ops.logs.history.record import Record
from isrlab_ops.logs.history.scene import is_within

STILL_MS = 5_000  # still going on if this close to the end of the logs
AWAY_MS = 10_000  # a failover takes less
APART_MS = 10_000  # between two failed heartbeats of one absence
NOT_ANSWERED = "heartbeat_failed"
STRAINED = ("waited", "heartbeat_failed", "zookeeper_silent")
OFTEN = 4  # times that the requests of a broker fail, before it counts as strained
MOMENT_MS = 2_000  # lines this close are about one failure


class ControllerAbsence(NamedTuple):
    """A time in which most brokers reached no controller: the heartbeats that failed."""

    controller: int | None  # the one they waited for, if there was only one
    rows: list[Statement]

    @property
    def span(self) -> Interval:
        return self.rows[0].ts_ms, self.rows[-1].ts_ms


def away(record: Record) -> list[ControllerAbsence]:
    """The times in which controllers were unavailable, in order."""
    absences = []
    for rows in _runs(record.said_of(NOT_ANSWERED), APART_MS):
        lasted: dict[int | None, list[int]] = {}
        for row in rows:
            lasted.setdefault(row.broker, []).append(row.ts_ms)
        long = {broker for broker, times in lasted.items() if times[-1] - times[0] >= AWAY_MS}
        if len(long) > max(1, len(record.hosts) // 2):
            absences.append(ControllerAbsence(_waited_for(rows, record), rows))
    return absences


def strained(record: Record) -> Iterator[list[Statement]]:
    """The failed requests of one broker, for each time in which only its requests failed."""
    rows = [r for sign in STRAINED for r in record.said_of(sign) if r.replica not in record.hosts]
    rows.sort(key=lambda row: row.ts_ms)
    for broker in record.hosts if len(record.hosts & record.log_ends.keys()) > 1 else ():
        for run in _runs((row for row in rows if row.broker == broker), 2 * APART_MS):
            apart_ms = APART_MS + record.apart_ms(*record.alone)
            span = run[0].ts_ms - apart_ms, run[-1].ts_ms + apart_ms
            others = (r for r in rows if r.broker != broker and span[0] <= r.ts_ms <= span[1])
            is_restless = is_within(record.restless_ms.get(broker, ()), *span)
            is_restless |= bool(record.said("crash", span, broker))  # fenced: it was away longer
            if len(moments(run)) >= OFTEN and not any(others) and not is_restless:
                yield run


def _runs(rows: Iterable[Statement], apart_ms: int) -> list[list[Statement]]:
    """Rows in order of time, parted where more time passes between two of them."""
    runs: list[list[Statement]] = []
    for row in rows:
        if not runs or row.ts_ms - runs[-1][-1].ts_ms > apart_ms:
            runs.append([])
        runs[-1].append(row)
    return runs


def moments(rows: Iterable[Statement]) -> list[int]:
    """The times of rows, in order, without those close behind the last one that counts."""
    times: list[int] = []
    for row in rows:
        if not times or row.ts_ms - times[-1] >= MOMENT_MS:
            times.append(row.ts_ms)
    return times


def elections(record: Record, span: Interval) -> list[Statement]:
    """Controllers elected within a span, except a cluster's first, elected before any leader."""
    rows = record.said("sign", span, sign="controller_elected")
    return [row for row in rows if row.ts_ms > record.first_led_ms]


def _waited_for(rows: list[Statement], record: Record) -> int | None:
    span = (rows[0].ts_ms - AWAY_MS, rows[-1].ts_ms)
    brokers = {row.broker for row in rows}
    waits = record.said("sign", span, sign="waited")
    nodes = {row.replica for row in waits if row.broker in brokers} - brokers
    return next(iter(nodes)) if len(nodes) == 1 else None
