"""How the ISR of a partition changes: asked for, in flight, stored, or cut by the controller."""

from __future__ import annotations

from isrlab.engine import rules
from isrlab.engine.choices import AfterShrink, ClockReset
from isrlab.fleet.kernel import state as s
from isrlab.fleet.kernel.compiled import compiled, inlined
from isrlab.fleet.kernel.log import look_at_high_watermark, make_due, retry_held
from isrlab.fleet.kernel.resting import is_active, slot_of, wake_all
from isrlab.fleet.kernel.rows import emit

_is_out_of_sync = inlined(rules.is_out_of_sync)
_lag_clock_in_new_epoch = compiled(rules.lag_clock_in_new_epoch)
_last_fetch_time_in_new_epoch = compiled(rules.last_fetch_time_in_new_epoch)
_forgets_end_offset = compiled(rules.forgets_end_offset)

_ON_COMMIT = int(AfterShrink.ON_COMMIT)
_NEVER_RESET = int(ClockReset.NEVER)


@compiled
def change_isr(
    state: s.State,
    now_ms: int,
    kind: int,
    partition: int,
    isr: int,
) -> None:
    """Ask for another ISR: stored at once in ZooKeeper, or in flight to the controller.

    2.7 to 3.0 look at the high watermark when they ask for a shrink, too early for the shrink to
    count (KAFKA-13091), and then no more. Source: maybeShrinkIsr, Partition.scala 2.7.2:952-981.
    """
    wake_all(state, partition)
    emit(state, now_ms, kind, partition, isr)
    if state.rules.waits_for_controller:
        state.partitions[partition].pending = s.PENDING
        state.partitions[partition].pending_isr = isr
        state.partitions[partition].maximal_isr = state.partitions[partition].isr | isr
        _enqueue(state, now_ms, partition)
    else:
        _commit(state, now_ms, partition, isr)
    if kind == s.SHRINK and state.rules.high_watermark_after_shrink != _ON_COMMIT:
        look_at_high_watermark(state, now_ms, partition)


@compiled
def _commit(state: s.State, now_ms: int, partition: int, isr: int) -> None:
    state.partitions[partition].partition_epoch += 1
    emit(state, now_ms, s.COMMIT, partition, isr)
    state.partitions[partition].isr = isr
    state.partitions[partition].maximal_isr = isr
    if state.partitions[partition].held != s.NOBODY:
        retry_held(state, now_ms, partition)


@compiled
def _enqueue(state: s.State, now_ms: int, partition: int) -> None:
    """When the controller answers: one request of this broker is in flight, the rest waits for it.

    Source: AlterPartitionManager.scala 3.7.1:155-231 (since 2.8).
    """
    due_ms = state.scalars[s.BATCH_DUE_MS]
    if state.scalars[s.BATCH_SENT_MS] <= now_ms:  # the latest request has left
        sent_ms = max(now_ms, due_ms)
        due_ms = sent_ms + state.rules.isr_commit_ms
        state.scalars[s.BATCH_SENT_MS] = sent_ms
        state.scalars[s.BATCH_DUE_MS] = due_ms
    state.partitions[partition].due_ms = due_ms
    count = state.scalars[s.QUEUE_COUNT]
    state.queue[(state.scalars[s.QUEUE_HEAD] + count) % len(state.queue)] = partition
    state.scalars[s.QUEUE_COUNT] = count + 1


@compiled
def next_answer_ms(state: s.State, never_ms: int) -> int:
    """When the controller answers next."""
    if state.scalars[s.QUEUE_COUNT] == 0:
        return never_ms
    return state.partitions[state.queue[state.scalars[s.QUEUE_HEAD]]].due_ms


@compiled
def on_controller_answers(state: s.State, now_ms: int) -> None:
    """Every ISR change that is answered by `now_ms` takes effect."""
    while next_answer_ms(state, now_ms + 1) <= now_ms:
        partition = state.queue[state.scalars[s.QUEUE_HEAD]]
        state.scalars[s.QUEUE_HEAD] = (state.scalars[s.QUEUE_HEAD] + 1) % len(state.queue)
        state.scalars[s.QUEUE_COUNT] -= 1
        state.partitions[partition].pending = s.NOT_PENDING
        _commit(state, now_ms, partition, state.partitions[partition].pending_isr)
        if state.rules.high_watermark_after_shrink == _ON_COMMIT:
            look_at_high_watermark(state, now_ms, partition)


@compiled
def on_isr_expiration(state: s.State, now_ms: int) -> None:
    """The isr-expiration task: drop who is out of sync, except while a change is in flight."""
    partitions, slots = state.followers.shape
    for partition in range(partitions):
        if state.partitions[partition].pending != s.NOT_PENDING:
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
            change_isr(state, now_ms, s.SHRINK, partition, isr)


@compiled
def next_restart_ms(state: s.State, never_ms: int) -> int:
    """When a follower's broker goes down next."""
    place = state.scalars[s.NEXT_RESTART]
    return state.restarts[place, 0] if place < len(state.restarts) else never_ms


@compiled
def on_restarts(state: s.State, now_ms: int) -> None:
    """Brokers go down in good order: the controller takes them out of the ISRs at once.

    A change in flight goes through without them (Kafka would refuse it, and the leader ask again).
    Unless it `fetches_after_removal`, a broker is told to stop first, and its last fetch is in.
    """
    while next_restart_ms(state, now_ms + 1) <= now_ms:
        place = state.scalars[s.NEXT_RESTART]
        state.scalars[s.NEXT_RESTART] = place + 1
        thread = state.restarts[place, 1]
        up_ms = state.restarts[place, 2]
        state.threads[thread].down_until_ms = up_ms
        if not state.rules.fetches_after_removal and not state.threads[thread].is_parked:
            back_ms = up_ms + state.links.latency_ms
            state.threads[thread].next_ms = max(state.threads[thread].next_ms, back_ms)
        for partition in range(len(state.partitions)):
            slot = slot_of(state, thread, partition)
            if slot >= 0:
                _remove(state, now_ms, partition, slot)


@compiled
def _remove(state: s.State, now_ms: int, partition: int, slot: int) -> None:
    wake_all(state, partition)
    others = ~(1 << slot)
    isr = state.partitions[partition].isr & others
    state.partitions[partition].pending_isr &= others
    if isr != state.partitions[partition].isr:
        state.partitions[partition].partition_epoch += 1
        emit(state, now_ms, s.REMOVAL, partition, isr)
        state.partitions[partition].isr = isr
        if state.rules.removal_raises_leader_epoch:
            _begin_epoch(state, now_ms, partition)
    state.partitions[partition].maximal_isr &= others
    look_at_high_watermark(state, now_ms, partition)


@compiled
def _begin_epoch(state: s.State, now_ms: int, partition: int) -> None:
    """The leader is told to lead on in a new epoch: what it knows of its followers begins anew.

    Who asked in the epoch before is sent away, and fetches again. All followers are awake.
    Source: makeLeader, Partition.scala 0.10.2.2:160-210, 3.3.2:530-625.
    """
    rule, end = state.rules, state.partitions[partition].log_end_offset
    state.partitions[partition].leader_epoch += 1
    state.partitions[partition].epoch_start = end
    for slot in range(state.followers.shape[1]):
        in_isr = (state.partitions[partition].isr >> slot) & 1 == 1
        follower = state.followers[partition, slot]
        follower.last_caught_up_ms = _lag_clock_in_new_epoch(
            rule.clock_reset,
            rule.lag_clock,
            in_isr,
            follower.last_caught_up_ms,
            now_ms,
            s.LONG_AGO_MS,
        )
        follower.counted_fetch_ms = _last_fetch_time_in_new_epoch(
            rule.clock_reset, in_isr, follower.counted_fetch_ms, now_ms, s.LONG_AGO_MS
        )
        if _forgets_end_offset(rule.lag_clock, False):
            follower.seen_end = rules.UNKNOWN_OFFSET
        if rule.clock_reset != _NEVER_RESET:
            follower.last_fetch_leader_end = end
        if rule.fences_stale_leader_epoch and state.threads[follower.thread].is_parked:
            make_due(state, now_ms, follower.thread)
