"""Two sets of logs of one cluster side by side: before and after a change, per hour of each.

Compare the same hours of two ordinary days, and distrust small changes. Less is better.
"""

from __future__ import annotations

from isrlab.events import exact
from isrlab.incidents.look import Findings

HOUR_MS = 3_600_000
ROWS = (
    "incidents", "evictions by leaders", "removals by controllers",
    "partition-minutes under-replicated", "partition-minutes on one copy",
    "longest under-replication of an incident (s)",
)  # fmt: skip


def compared(was: Findings, now: Findings) -> list[dict[str, str]]:
    """A row for each of `ROWS`: was, now, and which is better. All but the longest are per hour."""
    rows = []
    for name, before, after in zip(ROWS, _measured(was), _measured(now), strict=True):
        word = "the same" if before == after else "better" if after < before else "worse"
        rows.append({"per hour": name, "was": f"{before:,.3g}", "now": f"{after:,.3g}", "": word})
    return rows


def _measured(found: Findings) -> list[float]:
    record = found.record
    hours = max(record.end_ms - record.start_ms, 1) / HOUR_MS
    moves = [m for m in exact.moves(record.events, record.end_ms) if not m.joined]
    evicted = sum(bool(move.evictor) for move in moves)
    short = one = 0
    for key in found.partitions:
        for span in record.spans[key]:
            full = len(record.held(key, span))
            length_ms = span.end_ms - span.start_ms
            short += length_ms * (len(span.isr) < full)
            one += length_ms * (len(span.isr) == 1 < full)
    longest = max((each.under_replicated_ms for each in found.incidents), default=0)
    counts = (len(found.incidents), evicted, len(moves) - evicted, short / 60_000, one / 60_000)
    return [*(count / hours for count in counts), longest / 1000]
