"""Produces with acks=all that are not done: those that wait for followers, those tried again.

Each partition has two lists, first in first out, in the rows of `State.produces`. *Waiting* are
batches in the log whose end the high watermark has not reached. *Held* are batches that were
refused because the ISR was too small: their producers try again, and are let in at the moment at
which the ISR is large enough (a real producer's next try comes up to a backoff later, 0.1 to 1 s).

A produce that waits too long is noticed only when somebody next looks at the list; its row says the
time at which it was over. The records of a timed-out produce stay in the log, and it is not sent
again (a real producer would, and since 3.0 by default the log would not take them twice).
"""

from __future__ import annotations

from isrlab.engine import rules
from isrlab.fleet.kernel import state as s
from isrlab.fleet.kernel.compiled import compiled, inlined
from isrlab.fleet.kernel.rows import count_latency, emit_produce

_admits_acks_all = inlined(rules.admits_acks_all)


@inlined
def has_enough(state: s.State, members: int) -> bool:
    """An ISR (the leader, and the mask of `members`) is large enough for acks=all."""
    size = 1
    for slot in range(state.followers.shape[1]):
        size += (members >> slot) & 1
    return _admits_acks_all(size, state.rules.min_isr)


@compiled
def add_waiting(state: s.State, p: int, sent_ms: int, tried_ms: int, end: int) -> None:
    """A batch has been appended up to `end`, and waits for the high watermark."""
    row = _new_row(state, sent_ms, tried_ms, end)
    first, last = state.partitions[p].waiting, state.partitions[p].waiting_last
    state.partitions[p].waiting = _linked(state, first, last, row)
    state.partitions[p].waiting_last = row


@compiled
def add_held(state: s.State, p: int, sent_ms: int, records: int) -> None:
    """A batch of `records` was refused, and will be tried again."""
    row = _new_row(state, sent_ms, sent_ms, records)
    first, last = state.partitions[p].held, state.partitions[p].held_last
    state.partitions[p].held = _linked(state, first, last, row)
    state.partitions[p].held_last = row


@inlined
def _linked(state: s.State, first: int, last: int, row: int) -> int:
    """Put a row behind the last of a list; the first of the list."""
    if first == s.NOBODY:
        return row
    state.produces[last, s.NEXT] = row
    return first


@compiled
def _new_row(state: s.State, sent_ms: int, tried_ms: int, required: int) -> int:
    """A row that nobody uses; `NOBODY` if there is none: it is counted, and the run is void."""
    row = state.scalars[s.PRODUCES_FREE]
    if row != s.NOBODY:
        state.scalars[s.PRODUCES_FREE] = state.produces[row, s.NEXT]
    else:
        row = state.scalars[s.PRODUCES_USED]
        state.scalars[s.PRODUCES_USED] = row + 1
        if row >= len(state.produces):
            return s.NOBODY
    state.produces[row, s.SENT_MS] = sent_ms
    state.produces[row, s.TRIED_MS] = tried_ms
    state.produces[row, s.REQUIRED] = required
    state.produces[row, s.NEXT] = s.NOBODY
    return row


@compiled
def _freed(state: s.State, row: int) -> int:
    """Give a row back; the one after it in its list."""
    after = state.produces[row, s.NEXT]
    state.produces[row, s.NEXT] = state.scalars[s.PRODUCES_FREE]
    state.scalars[s.PRODUCES_FREE] = row
    return after


@compiled
def complete(state: s.State, now_ms: int, p: int) -> None:
    """Answer the produces that the high watermark has reached.

    Source: checkEnoughReplicasReachOffset, Partition.scala 3.7.1:1010-1047.
    """
    row = state.partitions[p].waiting
    while row != s.NOBODY and state.produces[row, s.REQUIRED] <= state.partitions[p].high_watermark:
        end = state.produces[row, s.REQUIRED]
        over_ms = state.produces[row, s.TRIED_MS] + state.rules.request_timeout_ms
        if over_ms <= now_ms:
            emit_produce(state, over_ms, s.TIMED_OUT, p, end)
        elif not has_enough(state, state.partitions[p].maximal_isr):
            emit_produce(state, now_ms, s.TOO_FEW, p, end)
        else:
            count_latency(state, now_ms, now_ms - state.produces[row, s.SENT_MS])
        row = _freed(state, row)
    state.partitions[p].waiting = row


@compiled
def next_held(state: s.State, now_ms: int, p: int) -> int:
    """The first held produce that its producer has not given up by now; the others are told of."""
    row = state.partitions[p].held
    while row != s.NOBODY:
        over_ms = state.produces[row, s.SENT_MS] + state.rules.delivery_timeout_ms
        if over_ms > now_ms:
            break
        emit_produce(state, over_ms, s.GIVEN_UP, p, -1)
        row = _freed(state, row)
    state.partitions[p].held = row
    return row


@compiled
def take_held(state: s.State, p: int) -> None:
    """The first held produce is being tried again: take it off the list."""
    state.partitions[p].held = _freed(state, state.partitions[p].held)


@compiled
def tell_timeouts(state: s.State, until_ms: int) -> None:
    """Tell of every produce that has waited too long by `until_ms` (exclusive)."""
    for p in range(len(state.partitions)):
        next_held(state, until_ms - 1, p)
        row = state.partitions[p].waiting
        while row != s.NOBODY:
            over_ms = state.produces[row, s.TRIED_MS] + state.rules.request_timeout_ms
            if over_ms >= until_ms:
                break
            emit_produce(state, over_ms, s.TIMED_OUT, p, state.produces[row, s.REQUIRED])
            row = _freed(state, row)
        state.partitions[p].waiting = row
