"""What the brokers printed against what happened, for logs that come with the metadata log.

A leader prints that it shrinks the ISR before it has asked; whether that came true only the
metadata log says. Since 2.8 no line says that the ISR grows, only "ISR updated" when it is stored,
and a leader that reads the change in the metadata log before it has its answer prints not even that
(but, in the state-change log, that it "skipped" to become leader). Clocks are put right first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

import pyarrow as pa

from isrlab.events.exact import Key
from isrlab.verdict.statements import METADATA_LOG, Statement, runs

WAIT_MS = 60_000  # an announced change that is not stored by then never is
LEADERS_LINE = "isr_commit"  # "ISR updated to"


class Announced(NamedTuple):
    """A shrink that a leader announced. `fate`: "stored", after `delay_ms`; "no leader any more";
    "something else was stored" or "nothing was stored"."""

    line: Statement
    fate: str
    delay_ms: int | None


class Stored(NamedTuple):
    """A change of an ISR in the metadata log, the first line that tells of it, and of a leader's
    own "ISR updated"; None if there is no such line."""

    change: Statement
    is_growth: bool
    is_leaders: bool
    told: Statement | None
    confirmed: Statement | None


def announced(events: pa.Table) -> list[Announced]:
    """Each announced shrink of partitions that the metadata log knows, and what became of it."""
    return [
        _fate(line, changes)
        for lines, changes in _partitions(events)
        for line in lines
        if line.kind == "isr_shrink"
    ]


def stored(events: pa.Table) -> list[Stored]:
    """Each change of the members of an ISR in the metadata log, and who told of it."""
    found = []
    for lines, changes in _partitions(events):
        told = defaultdict(list)
        for line in lines:
            told[line.version].append(line)
        for change in changes:
            if change.before is None or set(change.before) == set(change.isr or ()):
                continue
            of_it = told[change.version]
            own = [line for line in of_it if line.kind == LEADERS_LINE and line.is_own]
            is_growth = set(change.before) < set(change.isr or ())
            is_leaders = change.detail.get("asked_by") == "leader"
            told_by, confirmed = next(iter(of_it), None), next(iter(own), None)
            found.append(Stored(change, is_growth, is_leaders, told_by, confirmed))
    return found


def summary(events: pa.Table) -> dict[str, int | None]:
    """Both in numbers; delays are from the moment of the metadata log to the line, in ms."""
    shrinks, changes = announced(events), stored(events)
    fates = Counter(each.fate for each in shrinks)
    growths = [each for each in changes if each.is_growth]
    delays = [c.told.ts_ms - c.change.ts_ms for c in changes if c.told is not None]
    waits = [each.delay_ms for each in shrinks if each.delay_ms is not None]
    return {
        "announced shrinks": len(shrinks),
        "of them stored": fates["stored"],
        "stored, and confirmed by ISR updated": sum(
            c.is_leaders and not c.is_growth and c.confirmed is not None for c in changes
        ),
        "announced by who led no more": fates["no leader any more"],
        "overtaken, or never stored": fates.total() - fates["stored"] - fates["no leader any more"],
        "shrinks that the controller made": sum(
            not c.is_leaders and not c.is_growth for c in changes
        ),
        "growths stored": len(growths),
        "growths without ISR updated": sum(c.confirmed is None for c in growths),
        "growths that no line shows": sum(c.told is None for c in growths),
        "changes that no line shows": sum(c.told is None for c in changes),
        "median delay of storing (ms)": round(median(waits)) if waits else None,
        "median delay of a line (ms)": round(median(delays)) if delays else None,
        "longest delay of a line (ms)": max(delays, default=None),
    }


def _partitions(events: pa.Table) -> Iterator[tuple[list[Statement], list[Statement]]]:
    """Of each partition in the metadata log: what the lines say, and what was stored.

    What happened after the last line of all is left out: nobody could have printed it.
    """
    for run in runs(events).values():
        end_ms = max(run.ends.values(), default=0)
        partitions: dict[Key, list[Statement]] = run.partitions
        for lines in partitions.values():
            changes = [x for x in lines if x.said_by == METADATA_LOG and x.kind == "isr_commit"]
            said = [x for x in lines if x.said_by != METADATA_LOG]
            if changes and said:
                yield said, [x for x in changes if x.ts_ms <= end_ms]


def _fate(line: Statement, changes: Sequence[Statement]) -> Announced:
    earlier = [change for change in changes if change.ts_ms < line.ts_ms]
    later = [c for c in changes if line.ts_ms <= c.ts_ms <= line.ts_ms + WAIT_MS]
    if earlier and earlier[-1].leader != line.by:
        return Announced(line, "no leader any more", None)
    if not later:
        return Announced(line, "nothing was stored", None)
    is_it = later[0].members == line.members and later[0].detail.get("asked_by") == "leader"
    delay_ms = later[0].ts_ms - line.ts_ms if is_it else None
    return Announced(line, "stored" if is_it else "something else was stored", delay_ms)
