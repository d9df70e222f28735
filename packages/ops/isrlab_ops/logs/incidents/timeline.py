"""A timeline: when brokers were there, and how many partitions were under-replicated."""

from collections import Counter, defaultdict
from itertools import accumulate, pairwise
from typing import NamedTuple

from isrlab.events.exact import Key
from isrlab.events.spans import Interval, merged
from isrlab_ops.logs.history.record import STARTS, Record, about
from isrlab_ops.logs.incidents.look import Findings

AROUND_MS = 10_000  # a broker whose log ends this close to the end of all is there until then
BLIP_MS = 2_000  # a new controller repeats which brokers were fenced
THERE, AWAY, DARK = "there", "away", "not known"


class Bar(NamedTuple):
    """A state, and from when to when it lasted, in ms."""

    start_ms: int
    end_ms: int
    state: str


def presence(record: Record, broker: int) -> list[Bar]:
    """When a broker was there, when it was away, and when that is not known."""
    signs = [r for r in record.rows["sign"] if r.detail["sign"] in STARTS]
    rows = record.rows["crash"] + record.rows["restart"] + signs
    rows.sort(key=lambda r: (r.ts_ms, r.file, r.line))
    points = [(r.ts_ms, r.kind == "crash") for r in rows if about(r) == broker]
    starts = {r.broker: r.ts_ms for r in record.rows["log_start"]}
    first, last = starts.get(broker, record.end_ms), record.log_ends.get(broker, record.end_ms)
    last = record.end_ms if record.end_ms - last < AROUND_MS else last
    times = [(first, False), *(p for p in points if p[0] > first), (record.end_ms, False)]
    bars = [Bar(record.start_ms, first, DARK)]
    for (start, is_gone), (end, _) in pairwise(times):
        is_gone = is_gone and end - start > BLIP_MS
        state = AWAY if is_gone else THERE
        ends = [end] if is_gone or not start < last < end else [last, end]
        for until, each in zip(ends, [state, DARK], strict=False):
            bars.append(Bar(start, until, each))
            start = until
    return [bar for bar in bars if bar.end_ms > bar.start_ms]


def under_replicated(findings: Findings) -> list[tuple[int, int]]:
    """How many partitions lacked a replica in their ISR from each moment on, in order."""
    spans: dict[Key, list[Interval]] = defaultdict(list)
    for out in findings.record.outs:
        end_ms = findings.record.end_ms if out.end_ms is None else out.end_ms
        spans[out.key].append((out.start_ms, end_ms))
    steps: Counter[int] = Counter()
    for key in findings.partitions:
        for start_ms, end_ms in merged(spans.get(key, ())):
            steps[start_ms] += 1
            steps[end_ms] -= 1
    times = sorted(steps)
    return list(zip(times, accumulate(steps[ms] for ms in times), strict=True))
