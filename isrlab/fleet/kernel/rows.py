"""The output of a cell: rows of events, and counts of produce latencies.

`_has_room` in clock.py has made sure that there are enough rows.
"""

import numpy as np

from isrlab.fleet.kernel import state as s
from isrlab.fleet.kernel.compiled import compiled, inlined


@inlined
def _new_row(state: s.State, now_ms: int, kind: int, partition: int) -> int:
    """Begin a row of events; returns its index.

    Columns are set one by one: for a tuple numba compiles a broadcast, with all its error checks.
    """
    row = state.scalars[s.EVENT_COUNT]
    state.scalars[s.EVENT_COUNT] = row + 1
    state.events[row, s.TS_MS] = now_ms
    state.events[row, s.KIND] = kind
    state.events[row, s.PARTITION] = partition
    return row


@inlined
def emit(state: s.State, now_ms: int, kind: int, partition: int, after: int) -> None:
    """Write a row for an ISR that is requested or stored."""
    events, row = state.events, _new_row(state, now_ms, kind, partition)
    leader = state.partitions[partition]
    changed = leader.isr ^ after
    lag, since_fetch, since_all = np.int64(0), now_ms, now_ms
    for slot in range(state.follower_at.shape[1]):
        if (changed >> slot) & 1:
            follower = state.followers[state.follower_at[partition, slot]]
            lag = max(lag, leader.log_end_offset - follower.seen_end)
            since_fetch = min(since_fetch, now_ms - follower.last_fetch_ms)
            since_all = min(since_all, now_ms - follower.had_all_ms)
    events[row, s.CHANGED] = changed
    events[row, s.ISR_BEFORE] = leader.isr
    events[row, s.ISR_AFTER] = after
    events[row, s.HIGH_WATERMARK] = leader.high_watermark
    events[row, s.LOG_END_OFFSET] = leader.log_end_offset
    events[row, s.LEADER_EPOCH] = leader.leader_epoch
    events[row, s.PARTITION_EPOCH] = leader.partition_epoch
    events[row, s.LAG_RECORDS] = lag
    events[row, s.SINCE_FETCH_MS] = since_fetch
    events[row, s.SINCE_CAUGHT_UP_MS] = since_all


@compiled
def emit_produce(state: s.State, at_ms: int, kind: int, partition: int, end: int) -> None:
    """Write a row for a produce that failed; `end` is the offset after its records, -1 for none.

    The row must not depend on when it is written, because a timeout is noticed late.
    """
    events, row = state.events, _new_row(state, at_ms, kind, partition)
    for column in range(s.CHANGED, s.EVENT_COLUMNS):
        events[row, column] = 0
    events[row, s.HIGH_WATERMARK] = -1
    events[row, s.LOG_END_OFFSET] = end


@inlined
def bucket(waited_ms: int) -> int:
    """The bucket of a latency: one for each ms below `EXACT_MS`, then `STEPS` per doubling."""
    if waited_ms < s.EXACT_MS:
        return waited_ms
    doubling = 0
    while waited_ms >> doubling >= s.EXACT_MS:
        doubling += 1
    place = s.EXACT_MS + s.STEPS * (doubling - 2) + (waited_ms >> doubling)
    return min(place, s.BUCKETS - 1)


def bucket_starts() -> s.Ints:
    """The smallest latency of each bucket, int64[BUCKETS] ms."""
    place = np.arange(s.BUCKETS)
    doubling, step = np.divmod(place - s.EXACT_MS, s.STEPS)
    return np.where(place < s.EXACT_MS, place, (s.STEPS + step) << (np.maximum(doubling, 0) + 1))
