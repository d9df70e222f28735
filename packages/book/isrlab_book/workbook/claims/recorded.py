"""Measures in the logs of recorded Kafka brokers: the release names a recording.

Brokers were paused and killed at known times. A resumed leader does not know that it was paused and
uses clocks that did not advance, so `recorded_ages` leaves out its first actions after that.
"""

from functools import cache
from typing import Any

import pyarrow.compute as pc

from isrlab_book.workbook.claims.measures import Trial
from isrlab_ops.logs import recordings

LAG_MS = 5_000  # replica.lag.time.max.ms of both
AWAKE_MS = 3_000  # after SIGCONT: until then a broker may act on what it knew before
JITTER_MS = 100  # a scheduled check comes a little late on a busy machine

EventRow = dict[str, Any]


@cache
def _rows(release: str, kind: str) -> list[EventRow]:
    """The events of this kind in the brokers' server.log files, in order."""
    events = recordings.events(release).filter(pc.field("kind") == kind)
    rows = [row | {"detail": dict(row["detail"])} for row in events.to_pylist()]
    return [row for row in rows if "server.log" in row["detail"]["file"]]


def _awake_shrinks(release: str) -> list[EventRow]:
    """The shrinks of leaders that were not paused then or shortly before."""
    times = [
        (pause.broker, range(pause.start_ms, pause.end_ms + AWAKE_MS + 1))
        for pause in recordings.outages(release, "SIGSTOP")
    ]
    rows = _rows(release, "isr_shrink")
    return [r for r in rows if not any(b == r["broker"] and r["ts_ms"] in t for b, t in times)]


def lines(trial: Trial, kind: str) -> int:
    """How many lines of that kind leaders wrote."""
    return len(_rows(trial.release, kind))


def answered(trial: Trial) -> int:
    """How many requests for a smaller ISR are followed by their answer within a lag time."""
    requests, answers = (
        [(row["ts_ms"], row["broker"], row["topic"], row["partition"], frozenset(row["isr"]))
         for row in _rows(trial.release, kind)]
        for kind in ("isr_shrink", "isr_commit")
    )  # fmt: skip
    return sum(
        any(0 <= ts_ms - asked_ms <= LAG_MS for ts_ms, *stored in answers if stored == asked)
        for asked_ms, *asked in requests
    )


def recorded_ages(trial: Trial) -> list[int]:
    """For each follower that an awake leader dropped, the ms since it had last caught up."""
    times = ((row["ts_ms"], row["detail"]["last_caught_up_time_ms"].split(","))
             for row in _awake_shrinks(trial.release))  # fmt: skip
    return [ts_ms - int(since_ms) for ts_ms, each in times for since_ms in each]


def removals_in_time(trial: Trial) -> int:
    """How many followers awake leaders dropped after 1.0 to 1.5 lag times."""
    latest = 3 * LAG_MS // 2 + JITTER_MS
    return sum(LAG_MS < age <= latest for age in recorded_ages(trial))


def dropped_at_the_end(trial: Trial) -> int:
    """How many dropped followers had every record of their leader."""
    return sum(row["detail"]["out_of_sync_end_offset"].split(",").count(str(row["log_end_offset"]))
               for row in _rows(trial.release, "isr_shrink"))  # fmt: skip
