"""The clock of a cell: fetcher threads that go round, and who acts first in one millisecond.

Theory of operation. Time jumps from one thing to the next, in whole milliseconds. A fetcher thread
sends a fetch for all its partitions, each at its log end; it reaches the leader one latency later.
If there are `replica.fetch.min.bytes`, the leader answers (in 2.4 and 2.5 also if its high
watermark is higher than at the last fetch), else it parks the fetch until that is so or
`replica.fetch.wait.max.ms` is over (the log is then read again, but clocks, ISR and high watermark
are not touched: Kafka does that only when a fetch comes in). The answer holds at most
`replica.fetch.max.bytes` of each partition and `replica.fetch.response.max.bytes` in all, in the
order of who was served longest ago (as in a fetch session); at least one record. If threads share
a link, an answer leaves when it has been sent (`link.py`), else at once. It travels one latency
(that of the moment at which it leaves: a bad network has a longer one for a while), is received and
written at `bytes_per_s` of its thread, rounded up to a millisecond, and the next fetch leaves. A
stalled thread's work stops, or is slower, and goes on afterwards. A stalled leader reads nothing
until it is over; what it has read is still sent, and appends, the expiry task and the controller go
on.

Within one millisecond: ends of answers on links, the controller's answers, restarts, appends in
order of partition, then fetches in order of thread, then the expiry task. Only the order is a
choice; none of it is chance.
The caller of the cell is asked for room before a millisecond, or an append, for which the tables
could be too small; so nothing is ever lost, and nothing done twice.

Left out: record batches (a fetch may end at any record), log segments, request queues, the sizes
that incremental fetch sessions save, and a leader that pauses as a whole. Where leaders stay where
they are, whatever happens (`FleetConfig.leaders`), so are the removal of a broker whose session
ends, and the round in which followers ask where the former epoch ends when a removal has begun a
new one; where they move, `fleet/moving.py` has both. Loops are a little too regular: do not read
latencies below ten milliseconds off this model. It is for ISR membership, decided in seconds.
"""

from __future__ import annotations

import numpy as np

from isrlab.fleet.kernel import link, log, membership, throttle
from isrlab.fleet.kernel import state as s
from isrlab.fleet.kernel.compiled import compiled, entry, inlined, merged
from isrlab.fleet.kernel.resting import lowest_bit

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_most_rows = inlined(s.most_rows)
FETCH_BACKOFF_MS = 1_000  # replica.fetch.backoff.ms


@entry
def run(state: s.State, arrivals: s.Arrivals, until_ms: int) -> bool:
    """Carry the cell forward to `until_ms` (exclusive); has it come that far?

    `state` is changed in place. If not, take its events, give it room, and run it on.
    """
    while _has_room(state):
        now_ms = _next_ms(state, arrivals)
        if now_ms >= until_ms:
            log.tell_timeouts(state, until_ms)
            return True
        if state.scalars[s.NEXT_SENT_MS] <= now_ms:
            _on_sent(state, now_ms)
        if state.scalars[s.NEXT_ANSWER_MS] <= now_ms:
            membership.on_controller_answers(state, now_ms)
        if state.scalars[s.NEXT_RESTART_MS] <= now_ms:
            membership.on_restarts(state, now_ms)
        if not _append_due(state, arrivals, now_ms):
            return False
        if state.scalars[s.NEXT_THREAD_MS] <= now_ms:
            _run_threads(state, now_ms)
        if state.scalars[s.NEXT_TICK_MS] <= now_ms:
            membership.on_isr_expiration(state, now_ms)
            state.scalars[s.NEXT_TICK_MS] += state.rules.isr_check_period_ms
    return False


@entry
def run_abreast(
    states: tuple[s.State, ...], arrivals: tuple[s.Arrivals, ...], until_ms: int
) -> bool:
    """Carry cells that share quotas forward to `until_ms`; have all come that far?

    Whichever is due first acts first; in one millisecond, the one with the lower number. It is
    compiled for each number of cells.
    """
    while True:
        first, first_ms, second_ms = 0, until_ms, until_ms
        for number in range(len(states)):
            next_ms = min(_next_ms(states[number], arrivals[number]), until_ms)
            if next_ms < first_ms:
                first, first_ms, second_ms = number, next_ms, first_ms
            else:
                second_ms = min(second_ms, next_ms)
        if first_ms == until_ms:
            break
        if not run(states[first], arrivals[first], max(first_ms + 1, second_ms)):
            return False
    for number in range(len(states)):
        run(states[number], arrivals[number], until_ms)
    return True


@inlined
def _has_room(state: s.State) -> bool:
    """The tables hold what can be written before this is asked again."""
    partitions, slots = state.follower_at.shape
    chunks = state.scalars[s.CHUNKS_USED]
    rows = state.scalars[s.EVENT_COUNT] + _most_rows(chunks, partitions, slots)
    return rows <= len(state.events) and chunks + partitions < len(state.next_chunk)


@merged
def _next_ms(state: s.State, arrivals: s.Arrivals) -> int:
    """The time of the next thing that happens."""
    next_ms = min(state.scalars[s.NEXT_TICK_MS], state.scalars[s.NEXT_THREAD_MS])
    next_ms = min(next_ms, state.scalars[s.NEXT_ANSWER_MS])
    next_ms = min(next_ms, state.scalars[s.NEXT_RESTART_MS])
    next_ms = min(next_ms, state.scalars[s.NEXT_SENT_MS])
    arrival = state.scalars[s.NEXT_ARRIVAL]
    if arrival < len(arrivals.ts_ms):
        next_ms = min(next_ms, arrivals.ts_ms[arrival])
    return next_ms


@inlined
def _run_threads(state: s.State, now_ms: int) -> None:
    """Every thread that is due, in order; what one does can make those before it due again."""
    free_ms = _leader_free_ms(state, now_ms)
    state.scalars[s.NEXT_THREAD_MS] = s.NEVER_MS
    for group in range(len(state.group_ms)):
        if state.group_ms[group] <= now_ms:
            state.group_ms[group] = s.NEVER_MS
            first = group * s.GROUP
            for number in range(first, min(first + s.GROUP, len(state.threads))):
                thread = state.threads[number]
                if thread.next_ms <= now_ms:
                    if free_ms > now_ms:
                        thread.next_ms = free_ms
                        thread.is_parked = min(thread.is_parked, s.PARKED)
                    else:
                        _on_fetch(state, now_ms, number)
                state.group_ms[group] = min(state.group_ms[group], thread.next_ms)
        next_ms = min(state.scalars[s.NEXT_THREAD_MS], state.group_ms[group])
        state.scalars[s.NEXT_THREAD_MS] = next_ms


@merged
def _leader_free_ms(state: s.State, now_ms: int) -> int:
    """The end of the leader's stall if it is in one, else a time that is over."""
    place = state.scalars[s.LEADER_STALL]
    while place < len(state.leader_stalls) and state.leader_stalls[place, 1] <= now_ms:
        place += 1
    state.scalars[s.LEADER_STALL] = place
    if place < len(state.leader_stalls) and state.leader_stalls[place, 0] <= now_ms:
        return state.leader_stalls[place, 1]
    return 0


@merged
def _append_due(state: s.State, arrivals: s.Arrivals, now_ms: int) -> bool:
    """Append every batch that arrives by `now_ms`; was there room for all?"""
    arrival = state.scalars[s.NEXT_ARRIVAL]
    has_room = True
    while has_room and arrival < len(arrivals.ts_ms) and arrivals.ts_ms[arrival] <= now_ms:
        partition = int(np.int64(arrivals.partition[arrival]))
        records = int(np.int64(arrivals.records[arrival]))
        log.on_append(state, now_ms, partition, records)
        arrival += 1
        has_room = _has_room(state)
    state.scalars[s.NEXT_ARRIVAL] = arrival
    return has_room


@inlined
def _on_fetch(state: s.State, now_ms: int, number: int) -> None:
    """A fetch reaches the leader, which learns all positions, or one that was parked is due.

    What it can be answered with is gathered on the way; it is answered, or parked.
    """
    thread = state.threads[number]
    is_due = thread.is_parked != s.NOT_PARKED
    if len(state.carried) and thread.is_parked != s.WOKEN:
        log.note_answer(state, number)
    if not is_due:
        thread.fetch_ms = now_ms
        throttle.note_written(state, number, now_ms)
    is_answered, count, wanted_bytes, left_out = is_due, s.ZERO, s.ZERO, s.ZERO
    for place in range(thread.words_from, thread.words_to):
        word = state.active[place]
        while word != _ZERO:
            row = (place << 6) + lowest_bit(word)
            word &= word - _ONE
            if not is_due:
                if throttle.is_left_out(state, row, now_ms):
                    left_out += 1
                    continue
                is_answered |= membership.on_follower_position(state, now_ms, row)
            more_bytes = _readable(state, row)
            if more_bytes > 0 and not throttle.is_throttled(state, row, now_ms):
                wanted_bytes += more_bytes
                state.scratch[count] = row
                count += 1
    if not is_due:
        state.scalars[s.COVERED] += thread.partitions - left_out
    thread.ready_bytes = wanted_bytes
    if len(state.carried) and not is_due and is_answered and thread.is_parked and not wanted_bytes:
        log.note_answer(state, number)
    if left_out and left_out == thread.partitions:
        thread.left_ms = _end_of_work(state, number, now_ms, FETCH_BACKOFF_MS)
        thread.next_ms = thread.left_ms + log.latency_ms(state, number, thread.left_ms)
    elif is_answered or wanted_bytes >= state.links.replica_fetch_min_bytes:
        _answer(state, now_ms, number, _filled(state, now_ms, count, wanted_bytes))
    else:
        thread.is_parked = s.PARKED
        thread.next_ms = now_ms + state.links.replica_fetch_wait_max_ms


@inlined
def _answer(state: s.State, now_ms: int, number: int, sent_bytes: int) -> None:
    """Send so much, and set the time at which the thread's next fetch comes in."""
    thread, write_ms = state.threads[number], 0
    if thread.bytes_per_s != s.UNLIMITED_BYTES_PER_S:
        write_ms = (sent_bytes * 1000 + thread.bytes_per_s - 1) // thread.bytes_per_s
    thread.is_parked = s.NOT_PARKED
    if thread.link != s.NO_LINK and sent_bytes > 0:
        thread.write_ms, thread.left_ms, thread.next_ms = write_ms, s.NEVER_MS, s.NEVER_MS
        link.begin(state, now_ms, number, sent_bytes)
    else:
        _leave(state, now_ms, number, write_ms)


@inlined
def _leave(state: s.State, now_ms: int, number: int, write_ms: int) -> None:
    """An answer has been sent: it travels and is written, and the thread's next fetch comes in."""
    thread, come_ms = state.threads[number], now_ms + log.latency_ms(state, number, now_ms)
    thread.left_ms = _end_of_work(state, number, come_ms, write_ms)
    thread.next_ms = thread.left_ms + log.latency_ms(state, number, thread.left_ms)


@compiled
def _on_sent(state: s.State, now_ms: int) -> None:
    """Answers leave the links on which they end now; others have larger shares from now on."""
    for place in range(len(state.shared_links)):
        shared = state.shared_links[place]
        if shared.next_ms > now_ms:
            continue
        link.advance(state, now_ms, place)
        for number in range(shared.first, shared.past):
            thread = state.threads[number]
            if thread.is_sent_to and thread.unsent == 0:
                if thread.is_sent_to == s.SENT_TO:
                    _leave(state, now_ms, number, thread.write_ms)
                    group_ms = state.group_ms[number // s.GROUP]
                    state.group_ms[number // s.GROUP] = min(group_ms, thread.next_ms)
                    next_ms = min(state.scalars[s.NEXT_THREAD_MS], thread.next_ms)
                    state.scalars[s.NEXT_THREAD_MS] = next_ms
                thread.is_sent_to = s.NOT_SENT_TO
        link.plan(state, place)


@inlined
def _filled(state: s.State, now_ms: int, count: int, wanted_bytes: int) -> int:
    """Fill a response for the first `count` followers of `State.scratch`; the bytes."""
    if wanted_bytes > state.links.replica_fetch_response_max_bytes:
        return _serve_in_turn(state, now_ms, count)
    for index in range(count):
        _send(state, now_ms, state.scratch[index], wanted_bytes)
    return wanted_bytes


@compiled
def _serve_in_turn(state: s.State, now_ms: int, count: int) -> int:
    """Fill a response that cannot hold it all: who was served longest ago comes first; the bytes.

    The first partition gets at least one record, however large.
    """
    sent_bytes = s.ZERO
    for _ in range(count):
        best = s.ZERO
        for index in range(1, count):
            if _turn(state, index) < _turn(state, best):
                best = index
        row = state.scratch[best]
        left_bytes = state.links.replica_fetch_response_max_bytes - sent_bytes
        if sent_bytes == 0:
            partition = state.followers[row].partition
            left_bytes = max(left_bytes, state.partitions[partition].record_bytes)
        more_bytes = _send(state, now_ms, row, left_bytes)
        if more_bytes == 0:
            break
        sent_bytes += more_bytes
        count -= 1
        state.scratch[best] = state.scratch[count]
    return sent_bytes


@inlined
def _turn(state: s.State, index: int) -> int:
    """Ascends with the time of the last service, then with the number of the partition."""
    follower = state.followers[state.scratch[index]]
    return follower.turn * len(state.partitions) + follower.partition


@inlined
def _readable(state: s.State, row: int) -> int:
    """Bytes that one response may hold for this follower; at least a record if there is any."""
    follower = state.followers[row]
    leader = state.partitions[follower.partition]
    behind_bytes = (leader.log_end_offset - follower.end) * leader.record_bytes
    if behind_bytes <= state.links.replica_fetch_max_bytes:  # a division costs much
        return behind_bytes
    return max(1, state.links.replica_fetch_max_bytes // leader.record_bytes) * leader.record_bytes


@inlined
def _send(state: s.State, now_ms: int, row: int, left_bytes: int) -> int:
    """Move the follower's end by what fits into `left_bytes`; the bytes."""
    follower = state.followers[row]
    leader = state.partitions[follower.partition]
    sent_bytes = _readable(state, row)
    if sent_bytes > left_bytes:
        sent_bytes = max(0, left_bytes // leader.record_bytes) * leader.record_bytes
    if sent_bytes > 0:
        records = leader.log_end_offset - follower.end
        if sent_bytes != records * leader.record_bytes:
            records = sent_bytes // leader.record_bytes
        follower.end += records
        state.scalars[s.TURN] += 1
        follower.turn = state.scalars[s.TURN]
        if leader.is_throttled:
            throttle.count(state.sent, now_ms, sent_bytes)
        if follower.is_throttled:
            state.threads[follower.thread].throttled_bytes += sent_bytes
    return sent_bytes


@inlined
def _end_of_work(state: s.State, thread: int, start_ms: int, work_ms: int) -> int:
    """When work begun at `start_ms` is done, if the thread is slower, or stops, in a stall.

    Work that ends just as a stall of speed 0 begins leaves after it.
    """
    done_ms = start_ms + work_ms
    for index in range(state.threads[thread].stall_from, state.threads[thread].stall_to):
        begin_ms = max(state.stalls[index, 0], start_ms)
        end_ms, speed = state.stalls[index, 1], state.stalls[index, 2]
        if begin_ms > done_ms:
            break
        if end_ms <= begin_ms:
            continue
        left, can = (done_ms - begin_ms) * 1000, (end_ms - begin_ms) * speed
        if speed > 0 and left <= can:
            return begin_ms + (left + speed - 1) // speed
        done_ms = end_ms + (left - can + 999) // 1000
    return done_ms
