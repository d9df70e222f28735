"""The leader's logs: appends, the high watermark, and who waits for either."""

from __future__ import annotations

from isrlab.engine import rules
from isrlab.fleet.kernel import state as s
from isrlab.fleet.kernel.compiled import compiled, inlined
from isrlab.fleet.kernel.produces import (
    add_held,
    add_waiting,
    complete,
    has_enough,
    next_held,
    take_held,
)
from isrlab.fleet.kernel.resting import is_active, wake
from isrlab.fleet.kernel.rows import emit_produce

_holds_back_high_watermark = inlined(rules.holds_back_high_watermark)
_next_high_watermark = inlined(rules.next_high_watermark)


@inlined
def make_due(state: s.State, now_ms: int, thread: int) -> None:
    """A parked fetch can be answered now."""
    state.threads[thread].next_ms = now_ms
    state.scalars[s.NEXT_THREAD_MS] = now_ms


@inlined
def raise_high_watermark(state: s.State, now_ms: int, p: int) -> None:
    """Look at the high watermark of partition `p` again."""
    end = state.partitions[p].log_end_offset
    minimum = end
    isr_size = 1
    for slot in range(state.followers.shape[1]):
        in_isr = (state.partitions[p].isr >> slot) & 1 == 1
        isr_size += in_isr
        clock_ms = state.followers[p, slot].last_caught_up_ms
        thread = state.followers[p, slot].thread
        if not is_active(state, thread, p):
            clock_ms = state.threads[thread].fetch_ms
        if _holds_back_high_watermark(
            state.rules.high_watermark_set,
            in_isr,
            (state.partitions[p].maximal_isr >> slot) & 1 == 1,
            state.threads[thread].down_until_ms <= now_ms,
            state.followers[p, slot].seen_end,
            end,
            clock_ms,
            now_ms,
            state.rules.replica_lag_time_max_ms,
        ):
            minimum = min(minimum, state.followers[p, slot].seen_end)
    before = state.partitions[p].high_watermark
    state.partitions[p].high_watermark = _next_high_watermark(
        before,
        minimum,
        state.rules.high_watermark_held_under_min_isr,
        isr_size,
        state.rules.min_isr,
    )
    if state.partitions[p].high_watermark > before:
        if state.rules.pushes_high_watermark:
            _push_high_watermark(state, now_ms, p)
        if state.partitions[p].waiting != s.NOBODY:
            complete(state, now_ms, p)


@compiled
def look_at_high_watermark(state: s.State, now_ms: int, p: int) -> None:
    """The same, where speed does not matter: what is inlined is compiled everywhere again."""
    raise_high_watermark(state, now_ms, p)


@compiled
def _push_high_watermark(state: s.State, now_ms: int, partition: int) -> None:
    """Parked fetches of the partition are due: they were told of a lower high watermark.

    Source: DelayedFetch.scala 2.5.1:124-129 (KIP-392).
    """
    for slot in range(state.followers.shape[1]):
        wake(state, partition, slot)
        thread = state.followers[partition, slot].thread
        if state.threads[thread].is_parked:
            make_due(state, now_ms, thread)


@inlined
def on_append(state: s.State, now_ms: int, partition: int, records: int) -> None:
    """A batch arrives: it is appended, or refused because its producer asks for too much."""
    if state.partitions[partition].acks_all and not has_enough(
        state, state.partitions[partition].isr
    ):
        _refuse(state, now_ms, partition, records)
    else:
        _append(state, now_ms, partition, records, now_ms)


@compiled
def _refuse(state: s.State, now_ms: int, partition: int, records: int) -> None:
    emit_produce(state, now_ms, s.REFUSED, partition, -1)
    if state.rules.delivery_timeout_ms > 0:
        add_held(state, partition, now_ms, records)


@inlined
def _append(state: s.State, now_ms: int, partition: int, records: int, sent_ms: int) -> None:
    """Append; parked fetches that want the records are due, not yet answered."""
    for slot in range(state.followers.shape[1]):
        wake(state, partition, slot)
        thread = state.followers[partition, slot].thread
        if state.threads[thread].is_parked and _is_wanted(state, partition, slot, records):
            make_due(state, now_ms, thread)
    end = state.partitions[partition].log_end_offset + records
    state.partitions[partition].log_end_offset = end
    state.scalars[s.APPENDED] += records
    if state.partitions[partition].acks_all:
        add_waiting(state, partition, sent_ms, now_ms, end)
    raise_high_watermark(state, now_ms, partition)


@inlined
def _is_wanted(state: s.State, partition: int, slot: int, records: int) -> bool:
    """With `records` more, the parked fetch of a follower can be answered."""
    if state.links.fetch_min_bytes <= 1:
        return True
    thread = state.followers[partition, slot].thread
    record_bytes = state.partitions[partition].record_bytes
    behind = state.partitions[partition].log_end_offset - state.followers[partition, slot].end
    most = max(1, state.links.fetch_max_bytes // record_bytes)
    more = min(most, behind + records) - min(most, behind)
    state.threads[thread].ready_bytes += more * record_bytes
    return state.threads[thread].ready_bytes >= state.links.fetch_min_bytes


@compiled
def retry_held(state: s.State, now_ms: int, partition: int) -> None:
    """Let in the produces that were refused, if the ISR is large enough now."""
    if not has_enough(state, state.partitions[partition].isr):
        return
    row = next_held(state, now_ms, partition)
    while row != s.NOBODY:
        sent_ms, records = state.produces[row, s.SENT_MS], state.produces[row, s.REQUIRED]
        take_held(state, partition)
        _append(state, now_ms, partition, records, sent_ms)
        row = next_held(state, now_ms, partition)
