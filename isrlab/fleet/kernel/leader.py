"""What a leader makes of one partition of a fetch: clocks, ISR, high watermark, an answer.

The decisions are `engine/rules.py`, compiled; here is only the bookkeeping around them, on the
arrays of `state.State`.
"""

from __future__ import annotations

from isrlab.engine import rules
from isrlab.engine.choices import LagClock
from isrlab.fleet.kernel.compiled import inlined
from isrlab.fleet.kernel.log import raise_high_watermark
from isrlab.fleet.kernel.membership import change_isr
from isrlab.fleet.kernel.resting import rest_if_quiet, slot_of
from isrlab.fleet.kernel.state import EXPAND, NOT_PENDING, State

_last_caught_up_time_ms = inlined(rules.last_caught_up_time_ms)
_can_join_isr = inlined(rules.can_join_isr)
_is_isr_eligible = inlined(rules.is_isr_eligible)

_TODAYS_CLOCK = int(LagClock.CAUGHT_UP_TO_PREVIOUS_FETCH)


@inlined
def on_follower_position(
    state: State,
    now_ms: int,
    thread: int,
    partition: int,
) -> bool:
    """One partition of a fetch: clocks, ISR expansion, high watermark; is there news for it?

    News are records or, where leaders push it, a high watermark. The follower is active. Order as
    in Partition.updateFollowerFetchState.
    """
    slot = slot_of(state, thread, partition)
    fetch_offset = state.followers[partition, slot].end
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
            state.partitions[partition].epoch_start,
        )
        and _is_isr_eligible(state.rules.eligibility, True, -1, -1)
        and state.threads[thread].down_until_ms <= now_ms
    ):
        isr = state.partitions[partition].isr | (1 << slot)
        change_isr(state, now_ms, EXPAND, partition, isr)
    if has_moved or not state.rules.high_watermark_only_if_follower_moved:
        raise_high_watermark(state, now_ms, partition)
    is_news = state.rules.pushes_high_watermark and (
        state.followers[partition, slot].sent_high_watermark
        < state.partitions[partition].high_watermark
    )
    state.followers[partition, slot].sent_high_watermark = high_watermark
    rest_if_quiet(state, thread, partition, slot)
    has_data = fetch_offset < state.partitions[partition].log_end_offset
    return is_news or (has_data and state.links.fetch_min_bytes <= 1)


@inlined
def _set_clocks(state: State, now_ms: int, partition: int, slot: int) -> None:
    """The follower's lag clock after this fetch, by the version's rule and by today's."""
    fetch_offset = state.followers[partition, slot].end
    end = state.partitions[partition].log_end_offset
    previous_end = state.followers[partition, slot].last_fetch_leader_end
    previous_ms = state.followers[partition, slot].counted_fetch_ms
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
    state.followers[partition, slot].counted_fetch_ms = now_ms
    state.followers[partition, slot].last_fetch_leader_end = end
