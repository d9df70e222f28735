"""What a cell writes down: rows of events, and counts of how long produces took.

A full buffer is counted on, not written on: so its size is known for another try.
"""

from __future__ import annotations

import numpy as np

from isrlab.fleet.kernel import state as s
from isrlab.fleet.kernel.compiled import compiled


@compiled
def emit(state: s.State, now_ms: int, kind: int, partition: int, after: int) -> None:
    """Write a row for an ISR that is asked for or stored."""
    row = state.scalars[s.EVENT_COUNT]
    state.scalars[s.EVENT_COUNT] = row + 1
    if row >= state.out.events.shape[0]:
        return
    before = state.partitions[partition].isr
    changed = before ^ after
    end = state.partitions[partition].log_end_offset
    lag, since_fetch, since_all = np.int64(0), now_ms, now_ms
    for slot in range(state.followers.shape[1]):
        if (changed >> slot) & 1:
            lag = max(lag, end - state.followers[partition, slot].seen_end)
            since_fetch = min(since_fetch, now_ms - state.followers[partition, slot].last_fetch_ms)
            since_all = min(since_all, now_ms - state.followers[partition, slot].had_all_ms)
    state.out.events[row, s.TS_MS] = now_ms
    state.out.events[row, s.KIND] = kind
    state.out.events[row, s.PARTITION] = partition
    state.out.events[row, s.CHANGED] = changed
    state.out.events[row, s.ISR_BEFORE] = before
    state.out.events[row, s.ISR_AFTER] = after
    state.out.events[row, s.HIGH_WATERMARK] = state.partitions[partition].high_watermark
    state.out.events[row, s.LOG_END_OFFSET] = end
    state.out.events[row, s.LEADER_EPOCH] = state.partitions[partition].leader_epoch
    state.out.events[row, s.PARTITION_EPOCH] = state.partitions[partition].partition_epoch
    state.out.events[row, s.LAG_RECORDS] = lag
    state.out.events[row, s.SINCE_FETCH_MS] = since_fetch
    state.out.events[row, s.SINCE_CAUGHT_UP_MS] = since_all


@compiled
def emit_produce(state: s.State, at_ms: int, kind: int, partition: int, end: int) -> None:
    """Write a row for a produce that failed; `end` is the offset after its records, -1 for none.

    What it says must not depend on when it is written: a timeout is noticed late.
    """
    row = state.scalars[s.EVENT_COUNT]
    state.scalars[s.EVENT_COUNT] = row + 1
    if row >= state.out.events.shape[0]:
        return
    state.out.events[row, :] = 0
    state.out.events[row, s.TS_MS] = at_ms
    state.out.events[row, s.KIND] = kind
    state.out.events[row, s.PARTITION] = partition
    state.out.events[row, s.HIGH_WATERMARK] = -1
    state.out.events[row, s.LOG_END_OFFSET] = end


@compiled
def count_latency(state: s.State, now_ms: int, waited_ms: int) -> None:
    """Count a produce that is acknowledged now."""
    state.latencies[now_ms // s.HOUR_MS, bucket(waited_ms)] += 1


@compiled
def bucket(waited_ms: int) -> int:
    """Where a latency is counted: exactly below `EXACT_MS`, then `STEPS` to a doubling."""
    if waited_ms < s.EXACT_MS:
        return waited_ms
    doubling = 0
    while waited_ms >> doubling >= s.EXACT_MS:
        doubling += 1
    return min(
        s.EXACT_MS + s.STEPS * (doubling - 1) + (waited_ms >> doubling) - s.STEPS, s.BUCKETS - 1
    )


def bucket_starts() -> s.Ints:
    """The least latency that each bucket counts, int64[BUCKETS] ms."""
    place = np.arange(s.BUCKETS)
    doubling, step = np.divmod(place - s.EXACT_MS, s.STEPS)
    return np.where(place < s.EXACT_MS, place, (s.STEPS + step) << (np.maximum(doubling, 0) + 1))
