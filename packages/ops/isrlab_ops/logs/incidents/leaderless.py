"""When partitions had no leader: a controller names none, or all members of the ISR were down.

That time begins with either event, and ends when a leader is named or a member returns.
"""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from math import inf
from typing import NamedTuple

from isrlab.events.exact import Key
from isrlab.events.spans import Interval
from isrlab.events.statements import Statement
from isrlab_ops.logs.history.record import Record, about
from isrlab_ops.logs.history.scene import is_within

LEADERLESS_MS = 1_000  # an election takes less
FENCED_MS = 60_000  # a controller notices within this time that a broker is gone


class Downtime(NamedTuple):
    broker: int
    from_ms: int
    to_ms: int
    row: Statement  # the evidence
    all: frozenset[int] = frozenset()  # the brokers that were down


class Leaderless:
    """The times without a leader in a record."""

    def __init__(self, record: Record) -> None:
        self._record, self._downs = record, downs(record)
        self._offline: dict[Key, list[Statement]] = defaultdict(list)
        for row in record.rows["offline"]:
            self._offline[row.key].append(row)
        self._back_ms: dict[int, list[int]] = defaultdict(list)  # when each broker was up again
        self._together = [down for down in self._downs if len(down.all) > 1]
        self._of_broker: dict[int | None, list[Downtime]] = defaultdict(list)
        for down in self._downs:
            self._of_broker[down.broker].append(down)
            insort(self._back_ms[down.broker], down.to_ms)

    def of(self, key: Key, deleted_ms: Sequence[int]) -> Iterator[tuple[Interval, Statement]]:
        """When a partition had no leader for at least a second, and the line that shows the start.

        `deleted_ms`: when the partition was deleted.
        """
        record, until_ms = self._record, -1
        spans, named_ms = record.spans.get(key, []), record.named.get(key, [])
        start_ms, isrs = [span.start_ms for span in spans], [frozenset(s.isr) for s in spans]

        def isr_at(ts_ms: int) -> frozenset[int]:
            place = bisect_right(start_ms, ts_ms) - 1
            if place < 0 or is_within(deleted_ms, start_ms[place] + 1, ts_ms):
                return frozenset()
            return isrs[place]

        begins = [(row.ts_ms, row) for row in self._offline.get(key, ())]
        for isr, from_ms, to_ms in zip(isrs, start_ms, [*start_ms[1:], inf], strict=False):
            (only, *more) = isr or (None,)  # the broker that may have gone last
            downs = self._together if more else self._of_broker.get(only, [])
            first = bisect_left(downs, from_ms, key=_from_ms)
            for down in downs[first:]:
                if down.from_ms >= to_ms:
                    break
                if down.broker in isr <= down.all and isr_at(down.from_ms):
                    begins.append((down.from_ms, down.row))
        for from_ms, row in sorted(begins, key=lambda each: each[0]):
            if from_ms >= until_ms:
                ends = [named_ms, *(self._back_ms.get(broker, []) for broker in isr_at(from_ms))]
                later = (times[bisect_right(times, from_ms) :][:1] for times in ends)
                until_ms = min([record.end_ms, *chain(*later)])
                if until_ms - from_ms >= LEADERLESS_MS:
                    yield (from_ms, until_ms), row


def _from_ms(down: Downtime) -> int:
    return down.from_ms


def downs(record: Record) -> list[Downtime]:
    """When brokers were down, according to the controller or else to failed connections."""
    says = [(row.ts_ms, True, row) for row in record.rows["crash"]]
    back: dict[int | None, list[int]] = defaultdict(list)
    for row in record.rows["restart"]:
        says.append((row.ts_ms, False, row))
        back[about(row)].append(row.ts_ms)
    for row in record.starts:  # the broker is up by then at the latest
        if not is_within(back[row.broker], row.ts_ms, row.ts_ms + FENCED_MS):
            says.append((row.ts_ms, False, row))
    known: dict[int | None, list[int]] = defaultdict(list)
    for ts_ms, is_down, row in says:
        if is_down:
            known[about(row)].append(ts_ms)
    for row in record.said_of("not_listening"):
        if not is_within(known[row.replica], row.ts_ms - FENCED_MS, row.ts_ms + FENCED_MS):
            says.append((row.ts_ms, True, row))
    downtimes: list[Downtime] = []
    since: dict[int, tuple[int, Statement]] = {}
    for ts_ms, is_down, row in sorted(says, key=lambda each: each[:2]):
        broker = row.replica if row.kind == "sign" and is_down else about(row)
        if broker is not None and is_down:
            since.setdefault(broker, (ts_ms, row))
        elif broker in since:
            downtimes.append(Downtime(broker, since[broker][0], ts_ms, since.pop(broker)[1]))
    downtimes += [Downtime(b, ms, record.end_ms + 1, row) for b, (ms, row) in since.items()]
    downtimes.sort(key=lambda down: down.from_ms)
    by: dict[int, list[Downtime]] = defaultdict(list)  # of one broker, in order
    for each in downtimes:
        by[each.broker].append(each)
    return [e._replace(all=_down_at(e.from_ms, by) | {e.broker}) for e in downtimes]


def _down_at(ts_ms: int, by: dict[int, list[Downtime]]) -> frozenset[int]:
    places = ((downs, bisect_right(downs, ts_ms, key=lambda d: d.from_ms)) for downs in by.values())
    return frozenset(d[n - 1].broker for d, n in places if n and ts_ms < d[n - 1].to_ms)
