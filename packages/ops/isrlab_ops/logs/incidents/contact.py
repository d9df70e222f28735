"""Contact: what is heard of each broker, counted once for all rules.

Theory of operation. Others lose contact when connections are refused, fetches or a controller's
requests get no answer, the controller fences the broker, or several leaders remove it. It is back
with a start, an unfencing, or as it joins an ISR. Membership alone proves nothing: a leader keeps a
replica that is at the end of an idle log (KAFKA-7152).
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

from isrlab.events.spans import Interval
from isrlab.events.statements import Statement
from isrlab_ops.logs.history.record import BIRTH_MS, Record, about, in_span
from isrlab_ops.logs.incidents.controllers import NOT_ANSWERED

REFUSED = ("not_listening", "no_connection")
FAILED = (*REFUSED, "fetch_failed", "request_failed")
SESSION_MS = 18_000  # the default since 2.5; in KRaft 9 s
AGAIN_MS = 35_000  # a request without an answer fails after 30 s, and is sent again


@lru_cache(maxsize=2)
def _failures(record: Record) -> dict[int | None, list[Statement]]:
    failed: dict[int | None, list[Statement]] = defaultdict(list)
    for row in (row for sign in FAILED for row in record.said_of(sign)):
        if row.replica != row.broker and row.ts_ms > record.first_led_ms:
            failed[row.replica].append(row)
    return {broker: sorted(rows, key=lambda row: row.ts_ms) for broker, rows in failed.items()}


def failures(
    record: Record, broker: int, span: Interval, signs: Sequence[str] = FAILED
) -> list[Statement]:
    """The failures of others to reach a broker within a span, once there are leaders."""
    rows = in_span(_failures(record).get(broker, []), span)
    return [row for row in rows if row.detail["sign"] in signs]


def lost(record: Record) -> dict[int, list[Statement]]:
    """By broker that is not heard of when the logs end: the losses since its last sign of life."""
    return not_heard(record)[0]


@lru_cache(maxsize=2)
def not_heard(record: Record) -> tuple[dict[int, list[Statement]], dict[int, list[Statement]]]:
    """As `lost`; and by broker that no controller here fences though connections to it fail."""
    back, member = defaultdict[int | None, int](int), defaultdict[int, int](int)
    for row in (*record.rows["restart"], *record.starts):
        back[about(row)] = max(back[about(row)], row.ts_ms)
    started = dict(back)
    left: dict[int, list[Statement]] = defaultdict(list)  # others took the broker out
    for row in record.rows["isr_commit"]:
        isr, before = {*(row.isr or ())}, {*(row.isr_before or row.isr or ())}
        for broker in isr - before:
            back[broker] = max(back[broker], row.ts_ms)
        for broker in (before - isr - {row.broker}) & {*row.ids("replicas")}:
            left[broker].append(row)
    for span in (spans[-1] for spans in record.spans.values()):
        for broker in span.isr if len(span.isr) > 1 else ():  # so it was not fenced then
            member[broker] = max(member[broker], span.start_ms)
    gone, alive = {}, {}
    by_controller = {about(row) for row in record.rows["restart"] if not row.is_own}
    for broker in record.hosts | record.log_ends.keys():  # or a controller with a log
        own_ms, back_ms = record.log_ends.get(broker, 0), back[broker]
        since_ms = max(back_ms, member[broker], own_ms - BIRTH_MS - 1)
        rows = [r for r in record.rows["crash"] if about(r) == broker and r.ts_ms > since_ms]
        out = [row for row in left[broker] if row.ts_ms > max(back_ms, own_ms + BIRTH_MS)]
        rows += out if own_ms and len({row.broker for row in out}) > 1 else []
        failed = failures(record, broker, (max(back_ms, own_ms) + 1, record.end_ms))
        failed = [row for row in failed if row.ts_ms > started.get(row.broker, 0)]  # it is new
        is_refused = own_ms > 0 and any(row.detail["sign"] in REFUSED for row in failed)
        since = failed[0].ts_ms if failed else record.end_ms, record.end_ms
        signs = {row.detail["sign"] for row in record.said("sign", since)}
        is_ruled = broker in by_controller and signs.isdisjoint(("controller_lost", NOT_ANSWERED))
        if is_refused and is_ruled and not rows and failed[-1].ts_ms - since[0] > SESSION_MS:
            alive[broker] = failed
        elif is_refused or len({row.ts_ms // 1000 for row in failed}) > 1:
            rows += failed if failed[-1].ts_ms > record.end_ms - AGAIN_MS else []
        if rows:
            gone[broker] = sorted(rows, key=lambda row: row.ts_ms)
    return gone, alive
