"""The leader's logs: appends, the high watermark, and produces that are not yet answered.

Each partition has two first-in-first-out lists of unfinished produces with acks=all, as chains of
chunks of rows in `State.produces`; a chunk is freed after its last row, and is then the next to be
used. *Waiting* produces are in the log, but the high watermark has not reached their end. *Held*
produces were refused because the ISR was too small: their producers retry, and succeed as soon
as the ISR is large enough (a real producer's next retry comes up to a backoff later, 0.1 to 1 s).

A timeout is noticed only when the list is next read, but its event has the time at which the wait
ended. The records of a timed-out produce stay in the log, and it is not sent again (a real producer
would resend it; since 3.0 the log by default rejects the duplicate).
"""

from isrlab.engine import rules
from isrlab.fleet.kernel import state as s
from isrlab.fleet.kernel.compiled import compiled, inlined
from isrlab.fleet.kernel.resting import lag_clock_ms, wake
from isrlab.fleet.kernel.rows import bucket, emit_produce

_admits_acks_all = inlined(rules.admits_acks_all)
_holds_back_high_watermark = inlined(rules.holds_back_high_watermark)
_next_high_watermark = inlined(rules.next_high_watermark)


@inlined
def latency_ms(state: s.State, thread: int, at_ms: int) -> int:
    """The one-way latency of a message between a thread and the leader that leaves at `at_ms`."""
    longest_ms = state.links.fetch_latency_ms
    for row in range(state.threads[thread].slow_from, state.threads[thread].slow_to):
        if state.slow[row, 0] <= at_ms < state.slow[row, 1]:
            longest_ms = max(longest_ms, state.slow[row, 2])
    return longest_ms


@inlined
def make_due(state: s.State, now_ms: int, thread: int) -> None:
    """Make a thread's parked fetch due now."""
    state.threads[thread].next_ms = now_ms
    state.group_ms[thread // s.GROUP] = now_ms
    state.scalars[s.NEXT_THREAD_MS] = now_ms


@inlined
def raise_high_watermark(state: s.State, now_ms: int, p: int) -> None:
    """Raise the high watermark of partition `p` as far as the version's rules allow."""
    rule, leader = state.rules, state.partitions[p]
    end, before = leader.log_end_offset, leader.high_watermark
    minimum = least_member = end
    isr_size = s.ZERO + 1
    for slot in range(state.follower_at.shape[1]):
        in_isr = (leader.isr >> slot) & 1 == 1
        isr_size += in_isr
        row = state.follower_at[p, slot]
        follower = state.followers[row]
        if _holds_back_high_watermark(
            rule.high_watermark_set,
            in_isr,
            (leader.maximal_isr >> slot) & 1 == 1,
            state.threads[follower.thread].down_until_ms <= now_ms,
            follower.seen_end,
            end,
            lag_clock_ms(state, row),
            now_ms,
            rule.replica_lag_time_max_ms,
        ):
            minimum = min(minimum, follower.seen_end)
            if in_isr:
                least_member = min(least_member, follower.seen_end)
    leader.high_watermark = _next_high_watermark(
        before, minimum, rule.high_watermark_held_under_min_isr, isr_size, rule.min_isr
    )
    leader.is_held_back = least_member <= leader.high_watermark and least_member < end
    if leader.high_watermark > before:
        if rule.pushes_high_watermark:
            _push_high_watermark(state, now_ms, p)
        if leader.waiting != s.NOBODY:
            _complete(state, now_ms, p)


@compiled
def look_at_high_watermark(state: s.State, now_ms: int, p: int) -> None:
    """`raise_high_watermark`, compiled once for all callers whose speed does not matter."""
    raise_high_watermark(state, now_ms, p)


@compiled
def _push_high_watermark(state: s.State, now_ms: int, partition: int) -> None:
    """Make the partition's parked fetches due: their followers know a lower high watermark.

    Source: DelayedFetch.scala 2.5.1:124-129 (KIP-392).
    """
    for slot in range(state.follower_at.shape[1]):
        row = state.follower_at[partition, slot]
        wake(state, row)
        thread = state.followers[row].thread
        if state.threads[thread].is_parked:
            make_due(state, now_ms, thread)


@inlined
def on_append(state: s.State, now_ms: int, partition: int, records: int) -> None:
    """Append an arriving batch, or refuse it if the ISR is too small for acks=all."""
    leader = state.partitions[partition]
    if leader.acks_all and not _has_enough(state, leader.isr):
        _refuse(state, now_ms, partition, records)
    else:
        _append(state, now_ms, partition, records, now_ms)


@compiled
def _refuse(state: s.State, now_ms: int, partition: int, records: int) -> None:
    emit_produce(state, now_ms, s.REFUSED, partition, -1)
    if state.rules.delivery_timeout_ms > 0:
        leader = state.partitions[partition]
        last = leader.held_last if leader.held != s.NOBODY else s.NOBODY
        leader.held_last = _new_row(state, last)
        _write(state, leader.held_last, now_ms, now_ms, records)
        if leader.held == s.NOBODY:
            leader.held = leader.held_last


@inlined
def _append(state: s.State, now_ms: int, partition: int, records: int, sent_ms: int) -> None:
    """Append a batch; parked fetches that can now be answered become due."""
    for slot in range(state.follower_at.shape[1]):
        row = state.follower_at[partition, slot]
        wake(state, row)
        thread = state.followers[row].thread
        is_parked = state.threads[thread].is_parked
        if is_parked and _is_wanted(state, now_ms, row, records):
            make_due(state, now_ms, thread)
    leader = state.partitions[partition]
    leader.log_end_offset += records
    if leader.acks_all:
        last = leader.waiting_last if leader.waiting != s.NOBODY else s.NOBODY
        leader.waiting_last = _new_row(state, last)
        _write(state, leader.waiting_last, sent_ms, now_ms, leader.log_end_offset)
        if leader.waiting == s.NOBODY:
            leader.waiting = leader.waiting_last
    if not leader.is_held_back:
        raise_high_watermark(state, now_ms, partition)


@inlined
def _is_wanted(state: s.State, now_ms: int, row: int, records: int) -> bool:
    """Whether the parked fetch of a follower can be answered with `records` more."""
    if state.links.replica_fetch_min_bytes <= 1:
        return True
    follower = state.followers[row]
    leader = state.partitions[follower.partition]
    behind = leader.log_end_offset - follower.end
    most = max(1, state.links.replica_fetch_max_bytes // leader.record_bytes)
    more = min(most, behind + records) - min(most, behind)
    state.threads[follower.thread].ready_bytes += more * leader.record_bytes
    return state.threads[follower.thread].ready_bytes >= state.links.replica_fetch_min_bytes


@compiled
def retry_held(state: s.State, now_ms: int, p: int) -> None:
    """Append the held produces if the ISR is large enough now."""
    leader = state.partitions[p]
    if not _has_enough(state, leader.isr):
        return
    while _next_held(state, now_ms, p) != s.NOBODY:
        row = leader.held
        sent_ms, records = state.produces[row, s.SENT_MS], state.produces[row, s.REQUIRED]
        leader.held = _freed(state, row, leader.held_last)
        _append(state, now_ms, p, records, sent_ms)


@inlined
def _has_enough(state: s.State, members: int) -> bool:
    """Whether an ISR (the leader and the mask `members`) is large enough for acks=all."""
    size = s.ZERO + 1
    for slot in range(state.follower_at.shape[1]):
        size += (members >> slot) & 1
    return _admits_acks_all(size, state.rules.min_isr)


@inlined
def _new_row(state: s.State, last: int) -> int:
    """The row to append after the `last` of a list (`NOBODY`: the list is empty)."""
    row = last + 1
    return row if last != s.NOBODY and row % s.CHUNK else _new_chunk(state, last)


@compiled
def _new_chunk(state: s.State, last: int) -> int:
    """The first row of an unused chunk, linked after the `last` row of a list."""
    chunk = state.scalars[s.FREE_CHUNK]
    if chunk != s.NOBODY:
        state.scalars[s.FREE_CHUNK] = state.next_chunk[chunk]
    else:
        chunk = state.scalars[s.CHUNKS_USED]
        state.scalars[s.CHUNKS_USED] = chunk + 1
    if last != s.NOBODY:
        state.next_chunk[last // s.CHUNK] = chunk
    return chunk * s.CHUNK


@inlined
def _write(state: s.State, row: int, sent_ms: int, tried_ms: int, required: int) -> None:
    state.produces[row, s.SENT_MS] = sent_ms
    state.produces[row, s.TRIED_MS] = tried_ms
    state.produces[row, s.REQUIRED] = required


@inlined
def _freed(state: s.State, row: int, last: int) -> int:
    """Remove the first row of a list and return the next; frees a chunk that is no longer used."""
    if row != last and (row + 1) % s.CHUNK:
        return row + 1
    chunk = row // s.CHUNK
    after = s.NOBODY if row == last else state.next_chunk[chunk] * s.CHUNK
    state.next_chunk[chunk] = state.scalars[s.FREE_CHUNK]
    state.scalars[s.FREE_CHUNK] = chunk
    return after


@compiled
def _complete(state: s.State, now_ms: int, p: int) -> None:
    """Answer the produces that the high watermark has reached.

    Source: checkEnoughReplicasReachOffset, Partition.scala 3.7.1:1010-1047.
    """
    leader = state.partitions[p]
    row = leader.waiting
    while row != s.NOBODY and state.produces[row, s.REQUIRED] <= leader.high_watermark:
        end = state.produces[row, s.REQUIRED]
        over_ms = state.produces[row, s.TRIED_MS] + state.rules.request_timeout_ms
        if over_ms <= now_ms:
            emit_produce(state, over_ms, s.TIMED_OUT, p, end)
        elif not _has_enough(state, leader.maximal_isr):
            emit_produce(state, now_ms, s.TOO_FEW, p, end)
        else:
            waited_ms = now_ms - state.produces[row, s.SENT_MS]
            state.latencies[now_ms // s.HOUR_MS, bucket(waited_ms)] += 1
        row = _freed(state, row, leader.waiting_last)
    leader.waiting = row


@compiled
def _next_held(state: s.State, now_ms: int, p: int) -> int:
    """The first held produce not yet given up by its producer; removes those that were."""
    row = state.partitions[p].held
    while row != s.NOBODY:
        over_ms = state.produces[row, s.SENT_MS] + state.rules.delivery_timeout_ms
        if over_ms > now_ms:
            break
        emit_produce(state, over_ms, s.GIVEN_UP, p, -1)
        row = _freed(state, row, state.partitions[p].held_last)
    state.partitions[p].held = row
    return row


@inlined
def tell_timeouts(state: s.State, until_ms: int) -> None:
    """Write events for all produces whose time ran out before `until_ms`, and remove them."""
    for p in range(len(state.partitions)):
        _next_held(state, until_ms - 1, p)
        row = state.partitions[p].waiting
        while row != s.NOBODY:
            over_ms = state.produces[row, s.TRIED_MS] + state.rules.request_timeout_ms
            if over_ms >= until_ms:
                break
            emit_produce(state, over_ms, s.TIMED_OUT, p, state.produces[row, s.REQUIRED])
            row = _freed(state, row, state.partitions[p].waiting_last)
        state.partitions[p].waiting = row
