"""Two sets of logs of one cluster side by side: before and after a change.

Compare the same hours of two ordinary days. Few events say little about a rate, so each count has a
95 % interval for the rate, which assumes that events come independently. A rate is called better or
worse only if the intervals do not overlap.

Source: Wilson and Hilferty's approximation of the exact (Garwood) interval of a Poisson count.
"""

from math import sqrt

from isrlab.events import exact
from isrlab.show.style import duration
from isrlab_ops.logs.incidents.look import Findings

HOUR_MS = 3_600_000
COUNTS = "incidents", "evictions by leaders", "removals by controllers"
LENGTHS = (
    "partition-minutes under-replicated, per hour", "partition-minutes on one copy, per hour",
    "longest under-replication of an incident (s)",
)  # fmt: skip
Z = 1.96  # 95 %


def compared(was: Findings, now: Findings) -> list[dict[str, str]]:
    """A row for each of `COUNTS`, with what the two counts show, and for each of `LENGTHS`."""
    rows = []
    hours = [_hours(findings) for findings in (was, now)]
    for name, *counts in zip(COUNTS, _counts(was), _counts(now), strict=True):
        before, after = map(_per_hour, counts, hours)
        word = "no difference seen"
        if after[1] < before[0] or before[1] < after[0]:
            word = "better" if after[1] < before[0] else "worse"
        texts = [_told(*each) for each in zip(counts, hours, (before, after), strict=True)]
        rows.append({"": name, "was": texts[0], "now": texts[1], "shows": word})
    for name, *lengths in zip(LENGTHS, _lengths(was), _lengths(now), strict=True):
        texts = [f"{length:,.3g}" for length in lengths]
        rows.append({"": name, "was": texts[0], "now": texts[1], "shows": ""})
    return rows


def interval(count: int) -> tuple[float, float]:
    """The 95 % confidence interval for the mean of a Poisson distribution, given one count."""
    n, above = count, count + 1
    low = n * (1 - 1 / (9 * n) - Z / (3 * sqrt(n))) ** 3 if n else 0.0
    return low, above * (1 - 1 / (9 * above) + Z / (3 * sqrt(above))) ** 3


def _per_hour(count: int, hours: float) -> tuple[float, float]:
    low, high = interval(count)
    return low / hours, high / hours


def _told(count: int, hours: float, rates: tuple[float, float]) -> str:
    low, high = (f"{rate:,.2g}" if rate < 100 else f"{rate:,.0f}" for rate in rates)
    return f"{count:,} in {duration(round(hours * HOUR_MS))} ({low} to {high} an hour)"


def _hours(findings: Findings) -> float:
    return max(findings.record.end_ms - findings.record.start_ms, 1) / HOUR_MS


def _counts(findings: Findings) -> tuple[int, int, int]:
    record = findings.record
    moves = [m for m in exact.moves(record.events, record.end_ms) if not m.joined]
    evicted = sum(bool(move.evictor) for move in moves)
    return len(findings.incidents), evicted, len(moves) - evicted


def _lengths(findings: Findings) -> tuple[float, float, float]:
    record, hours = findings.record, _hours(findings)
    short = single = 0
    for key in findings.partitions:
        for span in record.spans[key]:
            full = len(record.held(key, span))
            length_ms = span.end_ms - span.start_ms
            short += length_ms * (len(span.isr) < full)
            single += length_ms * (len(span.isr) == 1 < full)
    longest = max((each.under_replicated_ms for each in findings.incidents), default=0)
    return short / 60_000 / hours, single / 60_000 / hours, longest / 1000
