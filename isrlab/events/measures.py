"""Measures of an events table whose rows share one clock: the cost of a fleet or a scenario."""

import math
from bisect import bisect_left
from collections import Counter
from itertools import accumulate

from isrlab.events import exact
from isrlab.events.names import KINDS, PRODUCE_FAILURES
from isrlab.events.statements import Events, statements


def measures(events: Events, copies: int, least: int, span_ms: tuple[int, int]) -> dict[str, float]:
    """The number of events of each kind; evictions (by leaders); refused and timed_out produces;
    p99_ms, the wait of produces with acks=all (one that timed out counts as infinite); and the
    partition-minutes under_replicated_minutes, under_min_isr_minutes and one_copy_minutes.

    `copies`: replicas of a partition; `least`: min.insync.replicas; `span_ms`: (start, end).
    """
    rows = statements(events)
    numbers: dict[str, float] = {**dict.fromkeys(KINDS, 0), **Counter(row.kind for row in rows)}
    numbers["evictions"] = len(exact.evictions(rows))
    failures = [row.detail["error"] for row in rows if row.kind == "produce_error"]
    for name, errors in PRODUCE_FAILURES.items():
        numbers[name] = sum(error in errors for error in failures)
    waits: list[tuple[float, float]] = sorted(wait[1:] for wait in exact.waits(rows))
    waits.append((math.inf, numbers["timed_out"]))
    until = list(accumulate(count for _, count in waits))
    numbers["p99_ms"] = waits[bisect_left(until, 0.99 * until[-1])][0] if until[-1] else 0
    partitions = exact.isr_spans(rows, span_ms[1], span_ms[0]).values()
    sizes = [(len(each.isr), each.end_ms - each.start_ms) for spans in partitions for each in spans]
    for name, limit in {"under_replicated": copies, "under_min_isr": least, "one_copy": 2}.items():
        numbers[f"{name}_minutes"] = sum(ms for size, ms in sizes if size < limit) / 60_000
    return numbers
