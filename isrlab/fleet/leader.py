"""What a leader does with its partitions on append, fetch, expiry tick and controller answer.

The decisions are `engine/rules.py`, compiled; here is only the bookkeeping around them, on the
arrays of `cellstate.State`. Most partitions of a fetch have nothing new, and the kernel must not
look at those. The rule that makes this exact: a follower of a partition is *at rest* when it and
the high watermark are at the leader's log end, it is in the ISR, and no change is in flight. A
fetch then changes nothing but clocks, and all of them become the time of that fetch, which the
thread remembers once for all its partitions. `State.active` holds a bit for every follower that is
not at rest; `wake` writes the remembered time down before anything else happens to it.
"""

from __future__ import annotations

import numpy as np

from isrlab.engine import rules
from isrlab.engine.versions import AfterShrink, LagClock
from isrlab.fleet.cellstate import (
    APPENDED,
    BATCH_DUE_MS,
    BATCH_SENT_MS,
    CHANGED,
    COMMIT,
    EVENT_COUNT,
    EXPAND,
    HIGH_WATERMARK,
    ISR_AFTER,
    ISR_BEFORE,
    KIND,
    LAG_RECORDS,
    LOG_END_OFFSET,
    NOT_PENDING,
    PARTITION,
    PARTITION_EPOCH,
    PENDING,
    QUEUE_COUNT,
    QUEUE_HEAD,
    SHRINK,
    SINCE_CAUGHT_UP_MS,
    SINCE_FETCH_MS,
    TS_MS,
    State,
)
from isrlab.fleet.compiled import compiled, inlined

_last_caught_up_time_ms = inlined(rules.last_caught_up_time_ms)
_is_out_of_sync = inlined(rules.is_out_of_sync)
_can_join_isr = inlined(rules.can_join_isr)
_is_isr_eligible = inlined(rules.is_isr_eligible)
_holds_back_high_watermark = inlined(rules.holds_back_high_watermark)
_next_high_watermark = inlined(rules.next_high_watermark)

_TODAYS_CLOCK = int(LagClock.CAUGHT_UP_TO_PREVIOUS_FETCH)
_ON_COMMIT = int(AfterShrink.ON_COMMIT)
_LEADER_EPOCH_START = 0  # one leader for the whole run
_ONE = np.uint64(1)

_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_TOP_SIX = np.uint64(58)
_BIT_PLACES = np.zeros(64, dtype=np.int64)
for _place in range(64):
    _BIT_PLACES[((int(_DE_BRUIJN) << _place) % 2**64) >> 58] = _place


@inlined
def lowest_bit(word: int) -> int:
    """The place of the lowest bit that is set in a word that is not 0 (de Bruijn's product)."""
    return _BIT_PLACES[((word & (~word + _ONE)) * _DE_BRUIJN) >> _TOP_SIX]


@inlined
def is_active(state: State, thread: int, partition: int) -> bool:
    """The follower's bit is set: a fetch of `thread` must look at `partition`."""
    word = state.active[thread, partition >> 6]
    return (word >> np.uint64(partition & 63)) & _ONE != 0


@inlined
def slot_of(state: State, thread: int, partition: int) -> int:
    """The slot of `partition` that `thread` fills; -1 if it does not read the partition."""
    for slot in range(state.followers.shape[1]):
        if state.followers[partition, slot].thread == thread:
            return slot
    return -1


@inlined
def wake(state: State, partition: int, slot: int) -> None:
    """Write down the clocks of a follower at rest and set its bit."""
    thread = state.followers[partition, slot].thread
    if is_active(state, thread, partition):
        return
    at_ms = state.threads[thread].fetch_ms
    follower = state.followers[partition, slot]
    follower.last_caught_up_ms = at_ms
    follower.had_all_ms = at_ms
    follower.last_fetch_ms = at_ms
    follower.last_fetch_leader_end = state.partitions[partition].log_end_offset
    state.active[thread, partition >> 6] |= _ONE << np.uint64(partition & 63)


@compiled
def _wake_all(state: State, partition: int) -> None:
    for slot in range(state.followers.shape[1]):
        wake(state, partition, slot)


@inlined
def _rest_if_quiet(state: State, thread: int, partition: int, slot: int) -> None:
    """Clear the follower's bit if a further fetch would change nothing but clocks."""
    end = state.partitions[partition].log_end_offset
    if (
        state.followers[partition, slot].seen_end == end
        and state.partitions[partition].high_watermark == end
        and state.partitions[partition].pending == NOT_PENDING
        and (state.partitions[partition].isr >> slot) & 1 == 1
        and (
            not state.rules.pushes_high_watermark
            or state.followers[partition, slot].sent_high_watermark == end
        )
    ):
        state.active[thread, partition >> 6] &= ~(_ONE << np.uint64(partition & 63))


@compiled
def emit(state: State, now_ms: int, kind: int, partition: int, after: int) -> None:
    """Write one row of events, or only count it when the buffer is full."""
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
    state.out.events[row, PARTITION_EPOCH] = state.partitions[partition].partition_epoch
    state.out.events[row, LAG_RECORDS] = lag
    state.out.events[row, SINCE_FETCH_MS] = since_fetch
    state.out.events[row, SINCE_CAUGHT_UP_MS] = since_all


@inlined
def raise_high_watermark(state: State, now_ms: int, p: int) -> None:
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
            True,
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
        state.rules.effective_min_isr,
    )
    if state.rules.pushes_high_watermark and state.partitions[p].high_watermark > before:
        _push_high_watermark(state, now_ms, p)


@compiled
def _push_high_watermark(state: State, now_ms: int, partition: int) -> None:
    """Parked fetches of the partition are due: they were told of a lower high watermark.

    Source: DelayedFetch.scala 2.5.1:124-129 (KIP-392).
    """
    for slot in range(state.followers.shape[1]):
        thread = state.followers[partition, slot].thread
        if state.threads[thread].is_parked:
            state.threads[thread].next_ms = now_ms


@inlined
def on_append(state: State, now_ms: int, partition: int, records: int) -> None:
    """The leader appends `records`; parked fetches that want them are marked, not yet answered."""
    for slot in range(state.followers.shape[1]):
        wake(state, partition, slot)
        thread = state.followers[partition, slot].thread
        if state.threads[thread].is_parked:
            state.threads[thread].has_data = True
    state.partitions[partition].log_end_offset += records
    state.scalars[APPENDED] += records
    raise_high_watermark(state, now_ms, partition)


@inlined
def on_follower_position(
    state: State,
    now_ms: int,
    thread: int,
    partition: int,
) -> bool:
    """One partition of a fetch: clocks, ISR expansion, high watermark; is there an answer for it?

    The follower is active. Order as in Partition.updateFollowerFetchState.
    """
    slot = slot_of(state, thread, partition)
    fetch_offset = state.followers[partition, slot].end
    end = state.partitions[partition].log_end_offset
    high_watermark = state.partitions[partition].high_watermark
    _set_clocks(state, now_ms, partition, slot)
    has_moved = state.followers[partition, slot].seen_end != fetch_offset
    state.followers[partition, slot].seen_end = fetch_offset
    if (
        state.partitions[partition].pending == NOT_PENDING
        and (state.partitions[partition].isr >> slot) & 1 == 0
        and _can_join_isr(
            state.rules.expand_rule,
            fetch_offset,
            state.partitions[partition].high_watermark,
            _LEADER_EPOCH_START,
        )
        and _is_isr_eligible(state.rules.eligibility, True, -1, -1)
    ):
        isr = state.partitions[partition].isr | (1 << slot)
        _change_isr(state, now_ms, EXPAND, partition, isr)
    if has_moved or not state.rules.high_watermark_only_if_follower_moved:
        raise_high_watermark(state, now_ms, partition)
    is_news = state.rules.pushes_high_watermark and (
        state.followers[partition, slot].sent_high_watermark
        < state.partitions[partition].high_watermark
    )
    state.followers[partition, slot].sent_high_watermark = high_watermark
    _rest_if_quiet(state, thread, partition, slot)
    return is_news or fetch_offset < end


@inlined
def _set_clocks(state: State, now_ms: int, partition: int, slot: int) -> None:
    """The follower's lag clock after this fetch, by the version's rule and by today's."""
    fetch_offset = state.followers[partition, slot].end
    end = state.partitions[partition].log_end_offset
    previous_end = state.followers[partition, slot].last_fetch_leader_end
    previous_ms = state.followers[partition, slot].last_fetch_ms
    state.followers[partition, slot].last_caught_up_ms = _last_caught_up_time_ms(
        state.rules.lag_clock,
        fetch_offset,
        end,
        previous_end,
        previous_ms,
        state.followers[partition, slot].last_caught_up_ms,
        now_ms,
    )
    state.followers[partition, slot].had_all_ms = _last_caught_up_time_ms(
        _TODAYS_CLOCK,
        fetch_offset,
        end,
        previous_end,
        previous_ms,
        state.followers[partition, slot].had_all_ms,
        now_ms,
    )
    state.followers[partition, slot].last_fetch_ms = now_ms
    state.followers[partition, slot].last_fetch_leader_end = end


@compiled
def _change_isr(
    state: State,
    now_ms: int,
    kind: int,
    partition: int,
    isr: int,
) -> None:
    """Ask for another ISR: stored at once in ZooKeeper, or in flight to the controller.

    2.7 to 3.0 look at the high watermark when they ask for a shrink, too early for the shrink to
    count (KAFKA-13091), and then no more. Source: maybeShrinkIsr, Partition.scala 2.7.2:952-981.
    """
    _wake_all(state, partition)
    emit(state, now_ms, kind, partition, isr)
    if state.rules.waits_for_controller:
        state.partitions[partition].pending = PENDING
        state.partitions[partition].pending_isr = isr
        state.partitions[partition].maximal_isr = state.partitions[partition].isr | isr
        _enqueue(state, now_ms, partition)
    else:
        _commit(state, now_ms, partition, isr)
    if kind == SHRINK and state.rules.high_watermark_after_shrink != _ON_COMMIT:
        raise_high_watermark(state, now_ms, partition)


@compiled
def _commit(state: State, now_ms: int, partition: int, isr: int) -> None:
    state.partitions[partition].partition_epoch += 1
    emit(state, now_ms, COMMIT, partition, isr)
    state.partitions[partition].isr = isr
    state.partitions[partition].maximal_isr = isr


@compiled
def _enqueue(state: State, now_ms: int, partition: int) -> None:
    """When the controller answers: one request of this broker is in flight, the rest waits for it.

    Source: AlterPartitionManager.scala 3.7.1:155-231 (since 2.8).
    """
    due_ms = state.scalars[BATCH_DUE_MS]
    if state.scalars[BATCH_SENT_MS] <= now_ms:  # the latest request has left
        sent_ms = max(now_ms, due_ms)
        due_ms = sent_ms + state.rules.isr_commit_ms
        state.scalars[BATCH_SENT_MS] = sent_ms
        state.scalars[BATCH_DUE_MS] = due_ms
    state.partitions[partition].due_ms = due_ms
    count = state.scalars[QUEUE_COUNT]
    state.queue[(state.scalars[QUEUE_HEAD] + count) % len(state.queue)] = partition
    state.scalars[QUEUE_COUNT] = count + 1


@compiled
def next_answer_ms(state: State, never_ms: int) -> int:
    """When the controller answers next."""
    if state.scalars[QUEUE_COUNT] == 0:
        return never_ms
    return state.partitions[state.queue[state.scalars[QUEUE_HEAD]]].due_ms


@compiled
def on_controller_answers(state: State, now_ms: int) -> None:
    """Every ISR change that is answered by `now_ms` takes effect."""
    while next_answer_ms(state, now_ms + 1) <= now_ms:
        partition = state.queue[state.scalars[QUEUE_HEAD]]
        state.scalars[QUEUE_HEAD] = (state.scalars[QUEUE_HEAD] + 1) % len(state.queue)
        state.scalars[QUEUE_COUNT] -= 1
        state.partitions[partition].pending = NOT_PENDING
        _commit(state, now_ms, partition, state.partitions[partition].pending_isr)
        if state.rules.high_watermark_after_shrink == _ON_COMMIT:
            raise_high_watermark(state, now_ms, partition)


@compiled
def on_isr_expiration(state: State, now_ms: int) -> None:
    """The isr-expiration task: drop who is out of sync, except while a change is in flight."""
    partitions, slots = state.followers.shape
    for partition in range(partitions):
        if state.partitions[partition].pending != NOT_PENDING:
            continue
        isr = state.partitions[partition].isr
        end = state.partitions[partition].log_end_offset
        for slot in range(slots):
            thread = state.followers[partition, slot].thread
            clock_ms = state.followers[partition, slot].last_caught_up_ms
            if not is_active(state, thread, partition):
                clock_ms = state.threads[thread].fetch_ms
            if (state.partitions[partition].isr >> slot) & 1 and _is_out_of_sync(
                state.rules.shrink_rule,
                state.followers[partition, slot].seen_end,
                end,
                clock_ms,
                now_ms,
                state.rules.replica_lag_time_max_ms,
                state.rules.replica_lag_max_messages,
            ):
                isr &= ~(1 << slot)
        if isr != state.partitions[partition].isr:
            _change_isr(state, now_ms, SHRINK, partition, isr)
