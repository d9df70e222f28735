"""Followers at rest: the bits that let a fetch skip most of its partitions.

A follower of a partition is *at rest* if it is in the ISR, the leader knows that it is at the log
end, no ISR change is in flight, and its own fetches cannot move the high watermark (which may wait
for other followers). A fetch then changes only its clocks, which all become the time of that fetch;
the thread stores this time once for all its partitions.
`State.active` has a bit for every follower that is not at rest; `wake` copies the thread's time to
the follower's clocks before anything else happens to it.
"""

import numpy as np

from isrlab.engine.choices import HighWatermarkSet
from isrlab.fleet.kernel.compiled import inlined
from isrlab.fleet.kernel.state import NOT_PENDING, State

_ONE = np.uint64(1)
_ISR_ONLY = int(HighWatermarkSet.ISR)

_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_TOP_SIX = np.uint64(58)
_BIT_PLACES = np.zeros(64, dtype=np.int64)
for _place in range(64):
    _BIT_PLACES[((int(_DE_BRUIJN) << _place) % 2**64) >> 58] = _place


@inlined
def lowest_bit(word: int) -> int:
    """The index of the lowest set bit of a word other than 0, by a de Bruijn sequence."""
    return _BIT_PLACES[((word & (~word + _ONE)) * _DE_BRUIJN) >> _TOP_SIX]


@inlined
def is_active(state: State, row: int) -> bool:
    """Whether the follower is not at rest, so that its thread's fetches must handle it."""
    return (state.active[row >> 6] >> np.uint64(row & 63)) & _ONE != 0


@inlined
def lag_clock_ms(state: State, row: int) -> int:
    """When the follower was last caught up, by the version's lag clock."""
    follower = state.followers[row]
    if is_active(state, row):
        return follower.last_caught_up_ms
    return state.threads[follower.thread].fetch_ms


@inlined
def wake(state: State, row: int) -> None:
    """End a follower's rest: set its clocks from its thread, and its bit."""
    if is_active(state, row):
        return
    follower = state.followers[row]
    at_ms = state.threads[follower.thread].fetch_ms
    follower.last_caught_up_ms = follower.had_all_ms = at_ms
    follower.last_fetch_ms = follower.counted_fetch_ms = at_ms
    follower.last_fetch_leader_end = state.partitions[follower.partition].log_end_offset
    state.active[row >> 6] |= _ONE << np.uint64(row & 63)


@inlined
def wake_all(state: State, partition: int) -> None:
    for slot in range(state.follower_at.shape[1]):
        wake(state, state.follower_at[partition, slot])


@inlined
def rest_if_quiet(state: State, row: int) -> None:
    """Clear the follower's bit if another fetch would change only clocks."""
    follower = state.followers[row]
    leader = state.partitions[follower.partition]
    if (
        follower.seen_end == leader.log_end_offset
        and leader.pending == NOT_PENDING
        and (leader.isr >> follower.slot) & 1 == 1
        and _leaves_high_watermark(state, row)
    ):
        state.active[row >> 6] &= ~(_ONE << np.uint64(row & 63))


@inlined
def _leaves_high_watermark(state: State, row: int) -> bool:
    """Whether a fetch of a member at the log end can neither move nor learn the high watermark.

    If the leader recomputes it at every fetch, a fetch could move it: a replica outside the ISR
    holds the high watermark back only until the replica's lag clock expires.
    """
    leader = state.partitions[state.followers[row].partition]
    if state.rules.pushes_high_watermark:
        return state.followers[row].sent_high_watermark == leader.high_watermark
    return (
        state.rules.high_watermark_only_if_follower_moved
        or state.rules.high_watermark_set == _ISR_ONLY
        or leader.isr == (1 << state.follower_at.shape[1]) - 1
        or leader.high_watermark == leader.log_end_offset
    )
