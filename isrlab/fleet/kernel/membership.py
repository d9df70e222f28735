"""A partition's ISR: how fetches expand it, how changes are stored, and how followers leave it.

The rules are those of `engine/rules.py`, compiled; this module does only the bookkeeping around
them, on the arrays of `state.State`.
"""

from isrlab.engine import rules
from isrlab.engine.choices import AfterShrink, ClockReset, LagClock
from isrlab.fleet.kernel import log, resting
from isrlab.fleet.kernel import state as s
from isrlab.fleet.kernel.compiled import compiled, inlined
from isrlab.fleet.kernel.rows import emit

_last_caught_up_time_ms = inlined(rules.last_caught_up_time_ms)
_can_join_isr = inlined(rules.can_join_isr)
_is_caught_up = inlined(rules.is_caught_up)
_is_isr_eligible = inlined(rules.is_isr_eligible)
_is_out_of_sync = inlined(rules.is_out_of_sync)
_lag_clock_in_new_epoch = compiled(rules.lag_clock_in_new_epoch)
_last_fetch_time_in_new_epoch = compiled(rules.last_fetch_time_in_new_epoch)
_forgets_end_offset = compiled(rules.forgets_end_offset)

_TODAYS_CLOCK = s.ZERO + int(LagClock.CAUGHT_UP_TO_PREVIOUS_FETCH)
_ON_COMMIT = int(AfterShrink.ON_COMMIT)
_NEVER_RESET = int(ClockReset.NEVER)


@inlined
def on_follower_position(state: s.State, now_ms: int, row: int) -> bool:
    """Handle an active follower's part of a fetch: clocks, ISR expansion, high watermark.

    True if the fetch is answered immediately. Order as in Partition.updateFollowerFetchState.
    """
    follower = state.followers[row]
    partition, slot = follower.partition, follower.slot
    leader = state.partitions[partition]
    fetch_offset, high_watermark = follower.end, leader.high_watermark
    _set_clocks(state, now_ms, row)
    has_moved = follower.seen_end != fetch_offset
    if has_moved:
        follower.seen_end = fetch_offset
        leader.is_held_back = 0
    if (
        (leader.isr >> slot) & 1 == 0
        and leader.pending == s.NOT_PENDING
        and _can_join_isr(state.rules.expand_rule, fetch_offset, high_watermark, leader.epoch_start)
        and _is_isr_eligible(state.rules.eligibility, True, -1, -1)
        and not _waits_under_min_isr(state, now_ms, row)
        and state.threads[follower.thread].down_until_ms <= now_ms
    ):
        change_isr(state, now_ms, s.EXPAND, partition, leader.isr | (1 << slot))
    if has_moved or not state.rules.high_watermark_only_if_follower_moved:
        log.raise_high_watermark(state, now_ms, partition)
    is_lower = follower.sent_high_watermark < leader.high_watermark
    follower.sent_high_watermark = high_watermark
    resting.rest_if_quiet(state, row)
    return state.rules.pushes_high_watermark and is_lower


@inlined
def _waits_under_min_isr(state: s.State, now_ms: int, row: int) -> bool:
    """Whether a follower must wait: under min ISR it joins only if caught up (`engine/isr.py`)."""
    if not state.rules.expand_waits_under_min_isr:
        return False
    follower, isr_size = state.followers[row], s.ZERO + 1
    leader = state.partitions[follower.partition]
    for slot in range(state.follower_at.shape[1]):
        isr_size += (leader.isr >> slot) & 1
    return isr_size < state.rules.min_isr and not _is_caught_up(
        follower.end, leader.log_end_offset, resting.lag_clock_ms(state, row), now_ms,
        state.rules.replica_lag_time_max_ms,
    )  # fmt: skip


@inlined
def _set_clocks(state: s.State, now_ms: int, row: int) -> None:
    """Set the follower's lag clocks after this fetch, by the version's rule and by today's."""
    follower = state.followers[row]
    end = state.partitions[follower.partition].log_end_offset
    offset, before_end = follower.end, follower.last_fetch_leader_end
    before_ms, clock_ms = follower.counted_fetch_ms, follower.last_caught_up_ms
    follower.last_caught_up_ms = _last_caught_up_time_ms(
        state.rules.lag_clock, offset, end, before_end, before_ms, clock_ms, now_ms
    )
    follower.had_all_ms = _last_caught_up_time_ms(
        _TODAYS_CLOCK, offset, end, before_end, before_ms, follower.had_all_ms, now_ms
    )
    follower.last_fetch_ms = follower.counted_fetch_ms = now_ms
    follower.last_fetch_leader_end = end


@inlined
def change_isr(state: s.State, now_ms: int, kind: int, partition: int, isr: int) -> None:
    """Change the ISR: store it immediately in ZooKeeper, or request it from the controller.

    2.7 to 3.0 recompute the high watermark when they request a shrink, too early for it to count
    (KAFKA-13091), and not when it is stored. Source: maybeShrinkIsr, Partition.scala 2.7.2:952-981.
    """
    resting.wake_all(state, partition)
    emit(state, now_ms, kind, partition, isr)
    leader = state.partitions[partition]
    if state.rules.waits_for_controller:
        leader.maximal_isr = leader.isr | isr
        leader.pending, leader.pending_isr = s.PENDING, isr
        _enqueue(state, now_ms, partition)
    else:
        _commit(state, now_ms, partition, isr)
    if kind == s.SHRINK and state.rules.high_watermark_after_shrink != _ON_COMMIT:
        log.raise_high_watermark(state, now_ms, partition)


@inlined
def _commit(state: s.State, now_ms: int, partition: int, isr: int) -> None:
    leader = state.partitions[partition]
    leader.partition_epoch += 1
    emit(state, now_ms, s.COMMIT, partition, isr)
    leader.isr = leader.maximal_isr = isr
    leader.is_held_back = 0
    if leader.held != s.NOBODY:
        log.retry_held(state, now_ms, partition)


@inlined
def _enqueue(state: s.State, now_ms: int, partition: int) -> None:
    """Set the time of the answer: one request is in flight, and other changes wait for it.

    Source: AlterPartitionManager.scala 3.7.1:155-231 (since 2.8).
    """
    if state.scalars[s.BATCH_SENT_MS] <= now_ms:  # the latest request has left
        sent_ms = max(now_ms, state.scalars[s.BATCH_DUE_MS])
        state.scalars[s.BATCH_SENT_MS] = sent_ms
        state.scalars[s.BATCH_DUE_MS] = sent_ms + state.rules.isr_commit_ms
    state.partitions[partition].due_ms = state.scalars[s.BATCH_DUE_MS]
    place = state.scalars[s.QUEUE_HEAD] + state.scalars[s.QUEUE_COUNT]
    state.partitions[place % len(state.partitions)].queued = partition
    state.scalars[s.QUEUE_COUNT] += 1
    _set_next_answer(state)


@inlined
def _set_next_answer(state: s.State) -> None:
    if state.scalars[s.QUEUE_COUNT]:
        first = state.partitions[state.scalars[s.QUEUE_HEAD]].queued
        state.scalars[s.NEXT_ANSWER_MS] = state.partitions[first].due_ms
    else:
        state.scalars[s.NEXT_ANSWER_MS] = s.NEVER_MS


@inlined
def on_controller_answers(state: s.State, now_ms: int) -> None:
    """Apply the ISR changes that are answered by `now_ms`."""
    while state.scalars[s.NEXT_ANSWER_MS] <= now_ms:
        head = state.scalars[s.QUEUE_HEAD]
        partition = state.partitions[head].queued
        state.scalars[s.QUEUE_HEAD] = (head + 1) % len(state.partitions)
        state.scalars[s.QUEUE_COUNT] -= 1
        _set_next_answer(state)
        leader = state.partitions[partition]
        leader.pending = s.NOT_PENDING
        is_shrunk = leader.isr & ~leader.pending_isr != 0
        _commit(state, now_ms, partition, leader.pending_isr)
        if is_shrunk and state.rules.shrink_raises_leader_epoch:
            _begin_epoch(state, now_ms, partition)
            _start_over(state, now_ms, partition)
        if state.rules.high_watermark_after_shrink == _ON_COMMIT:
            log.look_at_high_watermark(state, now_ms, partition)


@inlined
def on_isr_expiration(state: s.State, now_ms: int) -> None:
    """The isr-expiration task: evict followers out of sync, unless a change is in flight."""
    rule = state.rules
    for partition in range(len(state.partitions)):
        leader = state.partitions[partition]
        if leader.pending != s.NOT_PENDING:
            continue
        isr = leader.isr
        for slot in range(state.follower_at.shape[1]):
            row = state.follower_at[partition, slot]
            if (leader.isr >> slot) & 1 and _is_out_of_sync(
                rule.shrink_rule,
                state.followers[row].seen_end,
                leader.log_end_offset,
                resting.lag_clock_ms(state, row),
                now_ms,
                rule.replica_lag_time_max_ms,
                rule.replica_lag_max_messages,
            ):
                isr &= ~(1 << slot)
        if isr != leader.isr:
            change_isr(state, now_ms, s.SHRINK, partition, isr)


@inlined
def on_restarts(state: s.State, now_ms: int) -> None:
    """Shut brokers down cleanly: the controller removes them from their ISRs immediately.

    A change in flight is stored without them (Kafka would refuse it, and the leader ask again).
    Without `fetches_after_removal` a broker's fetchers stop first, until the restart is over.
    """
    while state.scalars[s.NEXT_RESTART_MS] <= now_ms:
        place = state.scalars[s.NEXT_RESTART]
        state.scalars[s.NEXT_RESTART] = place + 1
        is_last = place + 1 == len(state.restarts)
        state.scalars[s.NEXT_RESTART_MS] = s.NEVER_MS if is_last else state.restarts[place + 1, 0]
        number, up_ms = state.restarts[place, 1], state.restarts[place, 2]
        thread = state.threads[number]
        thread.down_until_ms = up_ms
        if not state.rules.fetches_after_removal and not thread.is_parked:
            come_ms = up_ms + log.latency_ms(state, number, up_ms)
            if come_ms > thread.next_ms:
                thread.left_ms, thread.next_ms = up_ms, come_ms
        for partition in range(len(state.partitions)):
            for slot in range(state.follower_at.shape[1]):
                if state.followers[state.follower_at[partition, slot]].thread == number:
                    _remove(state, now_ms, partition, slot)


@inlined
def _remove(state: s.State, now_ms: int, partition: int, slot: int) -> None:
    resting.wake_all(state, partition)
    leader, others = state.partitions[partition], ~(1 << slot)
    isr = leader.isr & others
    leader.pending_isr &= others
    if isr != leader.isr:
        leader.partition_epoch += 1
        emit(state, now_ms, s.REMOVAL, partition, isr)
        leader.isr = isr
        if state.rules.removal_raises_leader_epoch:
            _begin_epoch(state, now_ms, partition)
    leader.maximal_isr &= others
    leader.is_held_back = 0
    log.look_at_high_watermark(state, now_ms, partition)


@compiled
def _begin_epoch(state: s.State, now_ms: int, partition: int) -> None:
    """Begin a leader epoch with an unchanged leader, which resets its followers' clocks.

    Fetches parked in the old epoch are answered if the version fences stale epochs.
    Source: makeLeader, Partition.scala 0.10.2.2:160-210, 3.3.2:530-625.
    """
    rule, leader = state.rules, state.partitions[partition]
    leader.leader_epoch += 1
    leader.epoch_start = leader.log_end_offset
    for slot in range(state.follower_at.shape[1]):
        in_isr = (leader.isr >> slot) & 1 == 1
        follower = state.followers[state.follower_at[partition, slot]]
        clock_ms, fetch_ms = follower.last_caught_up_ms, follower.counted_fetch_ms
        follower.last_caught_up_ms = _lag_clock_in_new_epoch(
            rule.clock_reset, rule.lag_clock, in_isr, clock_ms, now_ms, s.LONG_AGO_MS
        )
        follower.counted_fetch_ms = _last_fetch_time_in_new_epoch(
            rule.clock_reset, in_isr, fetch_ms, now_ms, s.LONG_AGO_MS
        )
        if _forgets_end_offset(rule.lag_clock, False):
            follower.seen_end = rules.UNKNOWN_OFFSET
        if rule.clock_reset != _NEVER_RESET:
            follower.last_fetch_leader_end = leader.log_end_offset
        if rule.fences_stale_leader_epoch and state.threads[follower.thread].is_parked:
            log.make_due(state, now_ms, follower.thread)


@compiled
def _start_over(state: s.State, now_ms: int, partition: int) -> None:
    """Let followers hear of a new epoch with the leader, drop answers in flight and fetch again.

    A thread that reads only this partition fetches immediately; others fetch when they would have.
    """
    for slot in range(state.follower_at.shape[1]):
        row = state.follower_at[partition, slot]
        follower = state.followers[row]
        thread = state.threads[follower.thread]
        if not thread.is_parked and thread.left_ms >= now_ms:
            follower.end = follower.seen_end  # the answer in flight is dropped
        if thread.partitions == 1:
            thread.is_parked = s.NOT_PARKED
            if thread.is_sent_to:
                thread.is_sent_to = s.UNWANTED
            log.make_due(state, now_ms, follower.thread)
            thread.left_ms = now_ms
            thread.next_ms = now_ms + log.latency_ms(state, follower.thread, now_ms)
