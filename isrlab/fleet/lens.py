"""A close look at one partition of a fleet: what its leader knows, every few ms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from isrlab.fleet import load
from isrlab.fleet.cell import cell, run_window, setup
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.kernel import state as s
from isrlab.fleet.kernel.state import Ints
from isrlab.fleet.layout import assignment
from isrlab.fleet.simulate import simulate_local


@dataclass(frozen=True)
class Trace:
    """A partition over time. Ends of followers are as the leader knows them from their fetches."""

    config: FleetConfig
    leader: int
    ts_ms: Ints  # int64[n]
    log_end_offset: Ints  # int64[n], of the leader
    high_watermark: Ints  # int64[n]
    followers: dict[int, Ints]  # broker -> its log end offset, int64[n]
    in_isr: dict[int, NDArray[np.bool_]]  # broker -> is in the committed ISR, bool[n]
    ticks_ms: Ints  # when the isr-expiration task ran

    @property
    def lag_records(self) -> dict[int, Ints]:
        """Broker -> records behind the leader, int64[n]."""
        return {broker: self.log_end_offset - end for broker, end in self.followers.items()}

    @property
    def isr_size(self) -> Ints:
        """The size of the committed ISR, which includes the leader, int64[n]."""
        return 1 + np.sum(list(self.in_isr.values()), axis=0)

    def around(self, ts_ms: int, before_ms: int = 3_000, after_ms: int = 4_000) -> Trace:
        """The part from `before_ms` before to `after_ms` after a moment."""
        first_ms, last_ms = ts_ms - before_ms, ts_ms + after_ms
        keep = (self.ts_ms >= first_ms) & (self.ts_ms <= last_ms)
        is_near = (self.ticks_ms >= first_ms) & (self.ticks_ms <= last_ms)
        return replace(
            self,
            ts_ms=self.ts_ms[keep],
            log_end_offset=self.log_end_offset[keep],
            high_watermark=self.high_watermark[keep],
            followers={broker: end[keep] for broker, end in self.followers.items()},
            in_isr={broker: member[keep] for broker, member in self.in_isr.items()},
            ticks_ms=self.ticks_ms[is_near],
        )


def most_evicting(config: FleetConfig) -> int:
    """The partition whose ISR shrinks most often (the first of them); 0 if none ever does."""
    events = simulate_local(config)
    shrinks = events.filter(pc.equal(events["kind"], "isr_shrink"))
    return int(np.bincount(shrinks["partition"], minlength=1).argmax())


def watched(
    state: s.State, arrivals: s.Arrivals, place: int, times_ms: Iterable[int]
) -> tuple[Ints, Ints]:
    """Run a cell; returns its events, and samples of a partition after each ms in `times_ms`.

    The samples are int64[times, 4 + slots]: ms, log end, high watermark, ISR as a mask, and the
    ends of the followers as the leader knows them.
    """
    pieces, samples, first = [], [], 0
    for now_ms in times_ms:
        last = int(np.searchsorted(arrivals.ts_ms, now_ms, "right"))
        due = s.Arrivals._make(column[first:last] for column in arrivals)
        state, events = run_window(state, due, now_ms + 1)
        leader, ends = state.partitions[place], state.followers["seen_end"]
        known = [leader[name] for name in ("log_end_offset", "high_watermark", "isr")]
        pieces.append(events)
        samples.append([now_ms, *known, *ends[state.follower_at[place]]])
        first = last
    return np.concatenate(pieces), np.array(samples, dtype=np.int64)


def trace(config: FleetConfig, partition: int = 0, sample_ms: int = 20) -> Trace:
    """One partition, sampled every `sample_ms`; its whole cell is simulated, and leaders stay.

    Raises ValueError if there is no such partition.
    """
    if not 0 <= partition < config.partitions:
        raise ValueError(f"partition={partition} out of range; valid: 0 to {config.partitions - 1}")
    leader, *followers = assignment(config)[partition].tolist()
    led, times_ms = cell(config, leader), range(0, config.duration_ms, sample_ms)
    arrivals = led.recorded.arrivals if led.recorded else load.arrivals(config, led.partitions)
    place = int(np.searchsorted(led.partitions, partition))
    _, samples = watched(s.new_state(setup(config, led)), arrivals, place, times_ms)
    ts_ms, end, high_watermark, isr, *ends = samples.T
    first_ms = load.first_tick_ms(config, leader)
    return Trace(
        *(config, leader, ts_ms, end, high_watermark),
        followers=dict(zip(followers, ends, strict=True)),
        in_isr={broker: (isr >> slot) & 1 == 1 for slot, broker in enumerate(followers)},
        ticks_ms=np.arange(first_ms, config.duration_ms, config.isr_check_period_ms),
    )
