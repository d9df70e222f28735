"""The event loop of a cell: the cycle of fetcher threads, and the order within a millisecond.

Theory of operation. Time jumps from one event to the next, in whole milliseconds. A fetcher thread
sends a fetch for all its partitions, each from its log end; the fetch reaches the leader one
latency later. If at least `replica.fetch.min.bytes` are available (in 2.4 and 2.5 also if the high
watermark is higher than at the last fetch), the leader answers. Otherwise it parks the fetch until
that is so, for at most `replica.fetch.wait.max.ms`; then it reads the log again, but leaves clocks,
ISR and high watermark alone, because Kafka changes them only when a fetch arrives. An answer holds
at most `replica.fetch.max.bytes` of each partition and `replica.fetch.response.max.bytes` in total,
beginning with the partition served longest ago (as in a fetch session), and at least one record.
If threads share a link, an answer leaves when its last byte is sent (`link.py`), otherwise
immediately. It travels for the latency of the moment at which it leaves (`pauses` can raise it for
a while), is received and written at its thread's `bytes_per_s`, rounded up to a millisecond, and
the next fetch leaves. In a stall, a thread is slower, or stops until the stall is over. A stalled
leader reads no log for fetches; what it has read is still sent, and appends, the expiry task and
the controller's answers continue.

Order within a millisecond: ends of answers on links, the controller's answers, restarts, appends by
partition, fetches by thread, the expiry task. This order is a choice of the model, and never
random.
Before each millisecond and each append the kernel checks whether its tables have room. If not, it
returns, and its caller empties or enlarges them; so no event is lost, and none happens twice.

Left out: record batches (a fetch may end at any record), log segments, request queues, the bytes
that incremental fetch sessions save, a leader that pauses as a whole, elections, reassignments and
replication quotas, the removal of a broker whose session ends, and the request by which followers
learn where the former epoch ends after a removal has begun a new one: the engine has these. The
cycles are a little too regular: do not trust latencies below ten milliseconds. The model is for ISR
membership, decided in seconds.
"""

import numpy as np

from isrlab.fleet.kernel import link, log, membership
from isrlab.fleet.kernel import state as s
from isrlab.fleet.kernel.compiled import compiled, entry, inlined
from isrlab.fleet.kernel.resting import lowest_bit

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_most_rows = inlined(s.most_rows)


@entry
def run(state: s.State, arrivals: s.Arrivals, until_ms: int) -> bool:
    """Run the cell up to `until_ms` (exclusive); False if it stopped earlier for lack of room.

    `state` is changed in place. After False, take its events, give it room, and run it again.
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


@inlined
def _has_room(state: s.State) -> bool:
    """Whether the tables have room for all that can be written before the next check."""
    partitions, slots = state.follower_at.shape
    chunks = state.scalars[s.CHUNKS_USED]
    rows = state.scalars[s.EVENT_COUNT] + _most_rows(chunks, partitions, slots)
    return rows <= len(state.events) and chunks + partitions < len(state.next_chunk)


@inlined
def _next_ms(state: s.State, arrivals: s.Arrivals) -> int:
    """The time of the next event."""
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
    """Run every thread that is due, in order; one can make earlier threads due again."""
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


@inlined
def _leader_free_ms(state: s.State, now_ms: int) -> int:
    """The end of the leader's current stall, or 0 if there is none."""
    place = state.scalars[s.LEADER_STALL]
    while place < len(state.leader_stalls) and state.leader_stalls[place, 1] <= now_ms:
        place += 1
    state.scalars[s.LEADER_STALL] = place
    if place < len(state.leader_stalls) and state.leader_stalls[place, 0] <= now_ms:
        return state.leader_stalls[place, 1]
    return 0


@inlined
def _append_due(state: s.State, arrivals: s.Arrivals, now_ms: int) -> bool:
    """Append the batches that arrive by `now_ms`; False if there is no room for more."""
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
    """Handle a fetch that arrives with the followers' positions, or a parked one that is due.

    Collects the followers for which there are records, then answers the fetch or parks it.
    """
    thread = state.threads[number]
    is_due = thread.is_parked != s.NOT_PARKED
    if not is_due:
        thread.fetch_ms = now_ms
    is_answered, count, wanted_bytes = is_due, s.ZERO, s.ZERO
    for place in range(thread.words_from, thread.words_to):
        word = state.active[place]
        while word != _ZERO:
            row = (place << 6) + lowest_bit(word)
            word &= word - _ONE
            if not is_due:
                is_answered |= membership.on_follower_position(state, now_ms, row)
            more_bytes = _readable(state, row)
            if more_bytes > 0:
                wanted_bytes += more_bytes
                state.scratch[count] = row
                count += 1
    if not is_due:
        state.scalars[s.COVERED] += thread.partitions
    thread.ready_bytes = wanted_bytes
    if is_answered or wanted_bytes >= state.links.replica_fetch_min_bytes:
        _answer(state, now_ms, number, _filled(state, now_ms, count, wanted_bytes))
    else:
        thread.is_parked = s.PARKED
        thread.next_ms = now_ms + state.links.replica_fetch_wait_max_ms


@inlined
def _answer(state: s.State, now_ms: int, number: int, sent_bytes: int) -> None:
    """Send an answer of `sent_bytes`, over the thread's link if it has one."""
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
    """Let an answer leave: set when its thread's next fetch leaves the follower and arrives."""
    thread, come_ms = state.threads[number], now_ms + log.latency_ms(state, number, now_ms)
    thread.left_ms = _end_of_work(state, number, come_ms, write_ms)
    thread.next_ms = thread.left_ms + log.latency_ms(state, number, thread.left_ms)


@compiled
def _on_sent(state: s.State, now_ms: int) -> None:
    """Let the answers leave that links have sent completely; the others get larger shares."""
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
    """Fill a response for the first `count` followers in `State.scratch`; returns its bytes."""
    if wanted_bytes > state.links.replica_fetch_response_max_bytes:
        return _serve_in_turn(state, now_ms, count)
    for index in range(count):
        _send(state, now_ms, state.scratch[index], wanted_bytes)
    return wanted_bytes


@compiled
def _serve_in_turn(state: s.State, now_ms: int, count: int) -> int:
    """Fill a response that is too small for all, least recently served first; returns its bytes.

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
    """A sort key: by the time of the last service, then by the number of the partition."""
    follower = state.followers[state.scratch[index]]
    return follower.turn * len(state.partitions) + follower.partition


@inlined
def _readable(state: s.State, row: int) -> int:
    """Bytes that a response may hold for this follower: at least one record if it lacks any."""
    follower = state.followers[row]
    leader = state.partitions[follower.partition]
    behind_bytes = (leader.log_end_offset - follower.end) * leader.record_bytes
    if behind_bytes <= state.links.replica_fetch_max_bytes:  # saves a slow division
        return behind_bytes
    return max(1, state.links.replica_fetch_max_bytes // leader.record_bytes) * leader.record_bytes


@inlined
def _send(state: s.State, now_ms: int, row: int, left_bytes: int) -> int:
    """Advance the follower's end by what fits into `left_bytes`; returns the bytes sent."""
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
    return sent_bytes


@inlined
def _end_of_work(state: s.State, thread: int, start_ms: int, work_ms: int) -> int:
    """When work that begins at `start_ms` is done; stalls make it slower or stop it.

    If it ends in the millisecond in which a stall of speed 0 begins, it is done after the stall.
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
