"""The clock of a cell: fetcher threads that go round, and who acts first in one millisecond.

Theory of operation. Time jumps from one thing to the next, in whole milliseconds. A fetcher thread
sends a fetch for all its partitions, each at its log end; it reaches the leader one latency later.
If any partition has records, the leader answers at once (in 2.4 and 2.5 also if it has a higher
high watermark than at the last fetch), else it parks the fetch until that is so or
`replica.fetch.wait.max.ms` is over (the log is then read again, but clocks, ISR and high watermark
are not touched: Kafka does that only when a fetch comes in). The answer holds at most
`replica.fetch.max.bytes` of each partition and `replica.fetch.response.max.bytes` in all, in the
order of who was served longest ago; at least one record. It travels one latency, is received and
written at `bytes_per_s`, rounded up to a millisecond, and the next fetch leaves. A stalled thread's
work stands still and goes on afterwards.

Within one millisecond: the controller's answers, appends in order of partition, then fetches in
order of thread, then the expiry task. Only the order is a choice; none of it is chance.

Left out: record batches (a fetch may end at any record), log segments, quotas, request queues and
the time the leader's disk needs, min bytes above 1, incremental fetch sessions (they change sizes,
not times), the controller's own removal of a broker whose session ends, elections, and the leader
epoch that a shrink raises in KRaft from 3.3 to 3.5. Loops are therefore a little too regular: do
not read latencies below some ten milliseconds off this model. ISR membership is decided on scales
of seconds, and that is what it is for.
"""

from __future__ import annotations

import numpy as np

from isrlab.fleet.cellstate import (
    COVERED,
    EVENT_COUNT,
    FETCHES,
    NEXT_ARRIVAL,
    NEXT_SAMPLE_MS,
    NEXT_TICK_MS,
    READS,
    SAMPLE_COUNT,
    TURN,
    UNLIMITED_BYTES_PER_S,
    Arrivals,
    State,
)
from isrlab.fleet.compiled import compiled, inlined
from isrlab.fleet.leader import (
    lowest_bit,
    next_answer_ms,
    on_append,
    on_controller_answers,
    on_follower_position,
    on_isr_expiration,
    slot_of,
)

_NEVER_MS = 2**62
_ZERO = np.uint64(0)
_ONE = np.uint64(1)


@compiled
def run(state: State, arrivals: Arrivals, until_ms: int) -> int:
    """Carry the cell forward to `until_ms` (exclusive); the number of events so far.

    `state` is changed in place. More events than `state.out.events` has rows means that the rest
    was only counted: run again from a new state with that many rows.
    """
    while True:
        now_ms = _next_ms(state, arrivals)
        if now_ms >= until_ms:
            return state.scalars[EVENT_COUNT]
        on_controller_answers(state, now_ms)
        _append_due(state, arrivals, now_ms)
        for thread in range(len(state.threads)):
            if state.threads[thread].is_parked and (
                state.threads[thread].has_data or state.threads[thread].next_ms <= now_ms
            ):
                _answer(state, now_ms, thread)
            elif state.threads[thread].next_ms <= now_ms:
                _on_fetch(state, now_ms, thread)
        if state.scalars[NEXT_TICK_MS] <= now_ms:
            on_isr_expiration(state, now_ms)
            state.scalars[NEXT_TICK_MS] += state.rules.isr_check_period_ms
        if state.out.watched >= 0 and state.scalars[NEXT_SAMPLE_MS] <= now_ms:
            _sample(state)


@inlined
def _next_ms(state: State, arrivals: Arrivals) -> int:
    """The time of the next thing that happens."""
    next_ms = min(state.scalars[NEXT_TICK_MS], next_answer_ms(state, _NEVER_MS))
    arrival = state.scalars[NEXT_ARRIVAL]
    if arrival < len(arrivals.ts_ms):
        next_ms = min(next_ms, arrivals.ts_ms[arrival])
    for thread in range(len(state.threads)):
        next_ms = min(next_ms, state.threads[thread].next_ms)
    if state.out.watched >= 0:
        next_ms = min(next_ms, state.scalars[NEXT_SAMPLE_MS])
    return next_ms


@inlined
def _append_due(state: State, arrivals: Arrivals, now_ms: int) -> None:
    """Append every batch that arrives by `now_ms`."""
    arrival = state.scalars[NEXT_ARRIVAL]
    while arrival < len(arrivals.ts_ms) and arrivals.ts_ms[arrival] <= now_ms:
        partition = int(arrivals.partition[arrival])
        records = int(arrivals.records[arrival])
        on_append(state, now_ms, partition, records)
        arrival += 1
    state.scalars[NEXT_ARRIVAL] = arrival


@inlined
def _on_fetch(state: State, now_ms: int, thread: int) -> None:
    """A fetch reaches the leader: it learns all positions, then answers or parks it."""
    state.threads[thread].fetch_ms = now_ms
    state.scalars[FETCHES] += 1
    state.scalars[COVERED] += state.threads[thread].partitions
    is_answered = False
    for word_index in range(state.active.shape[1]):
        word = state.active[thread, word_index]
        while word != _ZERO:
            partition = (word_index << 6) + lowest_bit(word)
            word &= word - _ONE
            state.scalars[READS] += 1
            is_answered |= on_follower_position(state, now_ms, thread, partition)
    if is_answered:
        _answer(state, now_ms, thread)
    else:
        state.threads[thread].is_parked = True
        state.threads[thread].has_data = False
        state.threads[thread].next_ms = now_ms + state.links.fetch_wait_max_ms


@inlined
def _answer(state: State, now_ms: int, thread: int) -> None:
    """Send what there is, and set the time at which the thread's next fetch comes in."""
    sent_bytes = _read_log(state, thread)
    bytes_per_s = state.threads[thread].bytes_per_s
    write_ms = 0
    if bytes_per_s != UNLIMITED_BYTES_PER_S:
        write_ms = (sent_bytes * 1000 + bytes_per_s - 1) // bytes_per_s
    done_ms = _end_of_work(state, thread, now_ms + state.links.latency_ms, write_ms)
    state.threads[thread].is_parked = False
    state.threads[thread].next_ms = done_ms + state.links.latency_ms


@inlined
def _read_log(state: State, thread: int) -> int:
    """Give the thread its records, within the limits; the bytes."""
    count = 0
    wanted_bytes = 0
    for word_index in range(state.active.shape[1]):
        word = state.active[thread, word_index]
        while word != _ZERO:
            partition = (word_index << 6) + lowest_bit(word)
            word &= word - _ONE
            slot = slot_of(state, thread, partition)
            records = _readable(state, partition, slot)
            if records > 0:
                wanted_bytes += records * state.partitions[partition].record_bytes
                state.scratch[count] = partition
                count += 1
    if wanted_bytes > state.links.response_max_bytes:
        return _serve_in_turn(state, thread, count)
    for index in range(count):
        _send(state, thread, state.scratch[index], wanted_bytes)
    return wanted_bytes


@compiled
def _serve_in_turn(state: State, thread: int, count: int) -> int:
    """Fill a response that cannot hold it all: who was served longest ago comes first; the bytes.

    The first partition gets at least one record, however large.
    """
    sent_bytes = 0
    for _ in range(count):
        best = 0
        for index in range(1, count):
            if _turn(state, thread, state.scratch[index]) < _turn(
                state, thread, state.scratch[best]
            ):
                best = index
        partition = state.scratch[best]
        left_bytes = state.links.response_max_bytes - sent_bytes
        if sent_bytes == 0:
            left_bytes = max(left_bytes, state.partitions[partition].record_bytes)
        more_bytes = _send(state, thread, partition, left_bytes)
        if more_bytes == 0:
            break
        sent_bytes += more_bytes
        count -= 1
        state.scratch[best] = state.scratch[count]
    return sent_bytes


@inlined
def _turn(state: State, thread: int, partition: int) -> int:
    """Ascends with the time of the last service, then with the number of the partition."""
    slot = slot_of(state, thread, partition)
    return state.followers[partition, slot].turn * len(state.partitions) + partition


@inlined
def _readable(state: State, partition: int, slot: int) -> int:
    """Records that one response may hold of this partition; at least one if there is any."""
    behind = state.partitions[partition].log_end_offset - state.followers[partition, slot].end
    record_bytes = state.partitions[partition].record_bytes
    if behind * record_bytes <= state.links.fetch_max_bytes:  # a division costs more than the rest
        return behind
    return max(1, state.links.fetch_max_bytes // record_bytes)


@inlined
def _send(state: State, thread: int, partition: int, left_bytes: int) -> int:
    """Move the follower's end by what fits into `left_bytes`; the bytes."""
    slot = slot_of(state, thread, partition)
    size = state.partitions[partition].record_bytes
    records = _readable(state, partition, slot)
    if records * size > left_bytes:
        records = max(0, left_bytes // size)
    if records > 0:
        state.followers[partition, slot].end += records
        state.scalars[TURN] += 1
        state.followers[partition, slot].turn = state.scalars[TURN]
    return records * size


@inlined
def _end_of_work(state: State, thread: int, start_ms: int, work_ms: int) -> int:
    """When work begun at `start_ms` is done, if nothing is done while the thread stalls."""
    done_ms = start_ms + work_ms
    for index in range(state.threads[thread].stall_from, state.threads[thread].stall_to):
        if state.stalls[index, 0] > done_ms:
            break
        if state.stalls[index, 1] > start_ms:
            done_ms += state.stalls[index, 1] - max(state.stalls[index, 0], start_ms)
    return done_ms


@compiled
def _sample(state: State) -> None:
    """Write the watched partition as it is at the end of this millisecond."""
    row = state.scalars[SAMPLE_COUNT]
    if row < state.out.samples.shape[0]:
        p = state.out.watched
        state.out.samples[row, 0] = state.scalars[NEXT_SAMPLE_MS]
        state.out.samples[row, 1] = state.partitions[p].log_end_offset
        state.out.samples[row, 2] = state.partitions[p].high_watermark
        state.out.samples[row, 3] = state.partitions[p].isr
        for slot in range(state.followers.shape[1]):
            state.out.samples[row, 4 + slot] = state.followers[p, slot].seen_end
        state.scalars[SAMPLE_COUNT] = row + 1
    state.scalars[NEXT_SAMPLE_MS] += state.out.sample_ms
