"""What a cell writes down: rows of events, and counts of how long produces took.

A full buffer is counted on, not written on: so its size is known for another try.
"""

from __future__ import annotations

import numpy as np

from isrlab.fleet.kernel.compiled import compiled
from isrlab.fleet.kernel.state import (
    BUCKETS,
    CHANGED,
    EVENT_COUNT,
    EXACT_MS,
    HIGH_WATERMARK,
    HOUR_MS,
    ISR_AFTER,
    ISR_BEFORE,
    KIND,
    LAG_RECORDS,
    LEADER_EPOCH,
    LOG_END_OFFSET,
    PARTITION,
    PARTITION_EPOCH,
    SINCE_CAUGHT_UP_MS,
    SINCE_FETCH_MS,
    STEPS,
    TS_MS,
    Ints,
    State,
)


@compiled
def emit(state: State, now_ms: int, kind: int, partition: int, after: int) -> None:
    """Write a row for an ISR that is asked for or stored."""
    row = state.scalars[EVENT_COUNT]
    state.scalars[EVENT_COUNT] = row + 1
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
    state.out.events[row, TS_MS] = now_ms
    state.out.events[row, KIND] = kind
    state.out.events[row, PARTITION] = partition
    state.out.events[row, CHANGED] = changed
    state.out.events[row, ISR_BEFORE] = before
    state.out.events[row, ISR_AFTER] = after
    state.out.events[row, HIGH_WATERMARK] = state.partitions[partition].high_watermark
    state.out.events[row, LOG_END_OFFSET] = end
    state.out.events[row, LEADER_EPOCH] = state.partitions[partition].leader_epoch
    state.out.events[row, PARTITION_EPOCH] = state.partitions[partition].partition_epoch
    state.out.events[row, LAG_RECORDS] = lag
    state.out.events[row, SINCE_FETCH_MS] = since_fetch
    state.out.events[row, SINCE_CAUGHT_UP_MS] = since_all


@compiled
def emit_produce(state: State, at_ms: int, kind: int, partition: int, end: int) -> None:
    """Write a row for a produce that failed; `end` is the offset after its records, -1 for none.

    What it says must not depend on when it is written: a timeout is noticed late.
    """
    row = state.scalars[EVENT_COUNT]
    state.scalars[EVENT_COUNT] = row + 1
    if row >= state.out.events.shape[0]:
        return
    state.out.events[row, :] = 0
    state.out.events[row, TS_MS] = at_ms
    state.out.events[row, KIND] = kind
    state.out.events[row, PARTITION] = partition
    state.out.events[row, HIGH_WATERMARK] = -1
    state.out.events[row, LOG_END_OFFSET] = end


@compiled
def count_latency(state: State, now_ms: int, waited_ms: int) -> None:
    """Count a produce that is acknowledged now."""
    state.latencies[now_ms // HOUR_MS, bucket(waited_ms)] += 1


@compiled
def bucket(waited_ms: int) -> int:
    """Where a latency is counted: exactly below `EXACT_MS`, then `STEPS` to a doubling."""
    if waited_ms < EXACT_MS:
        return waited_ms
    doubling = 0
    while waited_ms >> doubling >= EXACT_MS:
        doubling += 1
    return min(EXACT_MS + STEPS * (doubling - 1) + (waited_ms >> doubling) - STEPS, BUCKETS - 1)


def bucket_starts() -> Ints:
    """The least latency that each bucket counts, int64[BUCKETS] ms."""
    place = np.arange(BUCKETS)
    doubling, step = np.divmod(place - EXACT_MS, STEPS)
    return np.where(place < EXACT_MS, place, (STEPS + step) << (np.maximum(doubling, 0) + 1))
