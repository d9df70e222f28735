"""Two rules about where a replica's log ends: a log that was just created is empty, and a leader
only appends to its log, so its end and its high watermark never fall while it leads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from isrlab.events.statements import Statement
from isrlab.logs.history.rules import OUT_OF_ORDER_MS, SOON_MS, Account, Fault, fault
from isrlab.logs.history.scene import is_within

MOST_KNOWN = 8  # earlier lines of a leader with which the next one is compared


def offsets(account: Account) -> Iterator[Fault]:
    """The lines about one partition that break one of the two rules."""
    created, starts = account.scene.created, account.scene.starts
    known: dict[int | None, list[Statement]] = {}  # what each broker logs while it leads
    newest, last_ms = -1, dict[int | None, int]()
    for line in account.lines:
        newest = max(newest, -1 if line.leader_epoch is None else line.leader_epoch)
        if line.said_by:
            continue
        broker, begun = line.broker, known.get(line.broker, [])
        if line.kind in ("leader", "follower"):
            made = created.get((line.key, broker), [])
            nth = bisect_right(made, line.ts_ms)
            is_first = nth > 0 and last_ms.get(broker, 0) < made[nth - 1] >= line.ts_ms - SOON_MS
            if is_first and (line.log_end_offset or line.high_watermark):
                yield fault(line, "counted")
            last_ms[broker] = line.ts_ms
            known[broker] = [line] if line.is_leaders and line.leader_epoch == newest else []
        elif begun and begun[0].leader_epoch == newest:
            since_ms = begun[0].ts_ms
            if line.ts_ms <= since_ms + OUT_OF_ORDER_MS:  # perhaps of the previous epoch
                continue
            if not is_within(starts[broker], since_ms, line.ts_ms):
                above = (x for x in begun if _is_before(x, line) and _is_above(x, line))
                yield from (fault(line, "grows", each) for each in [*above][:1])
                begun[1:] = [*begun[1:], line][-MOST_KNOWN:]


def _is_above(line: Statement, other: Statement) -> bool:
    pairs = (line.high_watermark, other.high_watermark), (line.log_end_offset, other.log_end_offset)
    return any(a is not None and b is not None and a > b for a, b in pairs)


def _is_before(line: Statement, other: Statement) -> bool:
    is_near = line.file == other.file and line.line < other.line
    return is_near or line.ts_ms < other.ts_ms - OUT_OF_ORDER_MS
