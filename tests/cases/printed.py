"""Printed lines against stored changes, for logs that come with the metadata log.

A leader prints that it shrinks the ISR before it has asked; only the metadata log shows whether the
change was stored. Since 2.8 an expansion has no line but "ISR updated" when it is stored, and a
leader that reads the change in the metadata log before it gets its answer does not print even that
(it prints, in the state-change log, that it "skipped" to become leader). Clocks are aligned first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

import pyarrow as pa

from isrlab.events.statements import Statement
from isrlab_ops.logs.history import history_of
from isrlab_ops.logs.history.verdict import accounts_of

WAIT_MS = 60_000  # an announced change that is not stored by then never is
LEADERS_LINE = "isr_commit"  # "ISR updated to"


class Announced(NamedTuple):
    """A shrink that a leader announced. `fate`: "stored", after `delay_ms`; "no leader any more";
    "something else was stored" or "nothing was stored"."""

    line: Statement
    fate: str
    delay_ms: int | None


def announced(events: pa.Table) -> list[Announced]:
    """Each announced shrink of a partition in the metadata log, and its fate."""
    return [
        _fate(line, changes)
        for lines, changes in _partitions(events)
        for line in lines
        if line.kind == "isr_shrink"
    ]


def summary(events: pa.Table) -> dict[str, int | None]:
    """Counts of lines and stored changes; delays (ms) from a line to storing, and the reverse."""
    shrinks = announced(events)
    fates = Counter(each.fate for each in shrinks)
    waits = [each.delay_ms for each in shrinks if each.delay_ms is not None]
    counts: Counter[str] = Counter()
    delays = []
    for lines, changes in _partitions(events):
        of_version: dict[int | None, list[Statement]] = defaultdict(list)
        for line in lines:
            of_version[line.partition_epoch].append(line)
        for change in changes:
            printed = of_version[change.partition_epoch]
            before, after = set(change.isr_before or ()), set(change.isr or ())
            if change.isr_before is None or before == after:
                continue
            is_confirmed = any(x.kind == LEADERS_LINE and x.is_leaders for x in printed)
            is_leaders, is_expansion = change.detail.get("asked_by") == "leader", before < after
            counts["expansions stored"] += is_expansion
            counts["expansions without ISR updated"] += is_expansion and not is_confirmed
            counts["stored, and confirmed"] += is_leaders and not is_expansion and is_confirmed
            counts["controller's"] += not is_leaders and not is_expansion
            delays += [line.ts_ms - change.ts_ms for line in printed[:1]]
            counts["no line"] += not printed
            counts["expansions that no line shows"] += is_expansion and not printed
    return {
        "announced shrinks": len(shrinks),
        "of them stored": fates["stored"],
        "stored, and confirmed by ISR updated": counts["stored, and confirmed"],
        "announced by a broker that no longer led": fates["no leader any more"],
        "overtaken, or never stored": fates.total() - fates["stored"] - fates["no leader any more"],
        "shrinks that the controller made": counts["controller's"],
        "expansions stored": counts["expansions stored"],
        "expansions without ISR updated": counts["expansions without ISR updated"],
        "expansions that no line shows": counts["expansions that no line shows"],
        "changes that no line shows": counts["no line"],
        "median delay of storing (ms)": round(median(waits)) if waits else None,
        "median delay of a line (ms)": round(median(delays)) if delays else None,
        "longest delay of a line (ms)": max(delays, default=None),
    }


def _partitions(events: pa.Table) -> Iterator[tuple[list[Statement], list[Statement]]]:
    """For each partition in the metadata log: its printed lines, and its stored changes.

    Changes after the last line of all logs are left out: no broker could have printed them.
    """
    for scene in history_of(events).scenes:
        end_ms = max((words[-1] for words in scene.words.values()), default=0)
        for account in accounts_of(scene):
            changes = [x for x in account.lines if x.is_exact and x.kind == "isr_commit"]
            printed = [x for x in account.lines if not x.is_exact]
            if changes and printed:
                yield printed, [x for x in changes if x.ts_ms <= end_ms]


def _fate(line: Statement, changes: Sequence[Statement]) -> Announced:
    earlier = [change for change in changes if change.ts_ms < line.ts_ms]
    later = [c for c in changes if line.ts_ms <= c.ts_ms <= line.ts_ms + WAIT_MS]
    if earlier and earlier[-1].leader != line.broker:
        return Announced(line, "no leader any more", None)
    if not later:
        return Announced(line, "nothing was stored", None)
    is_it = later[0].members == line.members and later[0].detail.get("asked_by") == "leader"
    delay_ms = later[0].ts_ms - line.ts_ms if is_it else None
    return Announced(line, "stored" if is_it else "something else was stored", delay_ms)
