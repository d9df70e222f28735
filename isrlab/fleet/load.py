"""The inputs of a cell: batches, stalls and speeds of followers, the phase of the ISR check.

Every draw has its own stream, keyed by the seed and the draw's owner (a partition, a broker or the
cluster), and not by version, task, host or order. So two versions get exactly equal load, and the
rows of a fleet do not depend on how it is divided into tasks.

A partition gets batches at exponential intervals, also during bursts; those of a hot partition hold
`hot_times` times as many records. A burst spreads its records evenly over its length, in a batch
every `BURST_BATCH_MS`, like a producer with many clients; a length of 0 means one batch. With a
`batch_size` the draws are records handed to a producer, in a burst every millisecond, and the
producer builds the batches (kernel/batches.py). Time 0 is midnight UTC. With a daily swing the
records of a batch and the height of a burst follow the hour, with the peak at 15:00 and the trough
at 03:00; the mean over a day is unchanged. Long runs are drawn a window at a time, which saves
memory and does not change the draws. A trace (recorded/) is an input, not a draw.
Left out: weekends, keys that move.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
from numpy.random import Generator, Philox, SeedSequence
from numpy.typing import NDArray

from isrlab.fleet import given
from isrlab.fleet.config import TRACE, FleetConfig
from isrlab.fleet.kernel.batches import Batches, batched
from isrlab.fleet.kernel.state import HOUR_MS, Arrivals, Ints

BURST_BATCH_MS = 10
PARETO_SHAPE = 1.5  # of heavy-tailed bursts: finite mean, infinite variance
PARETO_MOST = 50.0  # times `burst_records`
CHUNK_BATCHES = 1_024  # of one partition, drawn together
WINDOW_BATCHES = 1_000_000  # of a cell, held in memory together
PEAK_HOUR = 15  # of the day, UTC

NOTHING: Batches = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32))

# Add new kinds at the end: the numbers determine the draws.
_ARRIVALS, _BURSTS, _TOGETHER, _STALLS, _PHASE, _HIT, _RATE = range(7)
_ACKS, _LEADER_STALLS, _SPREAD = range(7, 10)


def stream(seed: int, kind: int, key: int = 0) -> Generator:
    """The generator of one stream of draws."""
    return Generator(Philox(SeedSequence(entropy=seed, spawn_key=(kind, key))))


def arrivals(config: FleetConfig, partitions: Ints) -> Arrivals:
    """All batches of a cell, by time and then by place of the partition in `partitions`.

    `partitions` int64[n]: their numbers in the topic. Times are ms in [0, duration).
    """
    return Load(config, partitions).until(config.duration_ms)


def windows(
    config: FleetConfig,
    partitions: Ints,
    batches: int = WINDOW_BATCHES,
    recorded: Arrivals | None = None,
) -> Iterator[tuple[int, Arrivals]]:
    """The load a window at a time: (end of the window in ms, its batches).

    A window holds about `batches` batches of the cell. For a trace, `recorded` has all batches, and
    those of one millisecond stay together.
    """
    if recorded is not None:
        yield from _cut(recorded, config.duration_ms, batches)
        return
    load = Load(config, partitions)
    bursts = 0.0 if config.load == "steady" else _burst_batches(config) / config.burst_every_s
    if config.batch_size and bursts:
        bursts += config.burst_records / _most_records(config) / config.burst_every_s
    per_ms = len(partitions) * (1 / config.batch_every_ms + bursts / 1000)
    window_ms = max(1, int(batches / per_ms)) if per_ms else config.duration_ms
    for start_ms in range(0, config.duration_ms, window_ms):
        end_ms = min(start_ms + window_ms, config.duration_ms)
        yield end_ms, load.until(end_ms)


def _cut(recorded: Arrivals, run_ms: int, batches: int) -> Iterator[tuple[int, Arrivals]]:
    """Windows of a trace; batches of one millisecond stay together."""
    first = end_ms = 0
    while end_ms < run_ms:
        ahead = recorded.ts_ms[first + batches :]
        end_ms = max(end_ms + 1, int(ahead[0])) if len(ahead) else run_ms
        last = int(np.searchsorted(recorded.ts_ms, end_ms))
        yield end_ms, Arrivals._make(column[first:last] for column in recorded)
        first = last


class Load:
    """The batches of a cell, drawn only as far as needed; this does not change them."""

    def __init__(self, config: FleetConfig, partitions: Ints) -> None:
        if config.load == TRACE:
            raise ValueError("a trace is not drawn; isrlab.fleet.recorded reads it")
        self._each = [(_Base(config, p), _bursts(config, p)) for p in partitions.tolist()]
        self._limits = _most_records(config), config.linger_ms
        self._is_batched = config.batch_size > 0
        self._open = np.zeros((len(partitions), 2), dtype=np.int64)

    def until(self, end_ms: int) -> Arrivals:
        """The next batches up to `end_ms`."""
        rows = [[source.until(end_ms) for source in both] for both in self._each]
        if self._is_batched:
            rows = [
                [batched(*_in_order(_joined(row)), end_ms, self._limits, held)]
                for row, held in zip(rows, self._open, strict=True)
            ]
        ts_ms, records = _joined(source for row in rows for source in row)
        counts = [sum(len(times) for times, _ in row) for row in rows]
        places = np.repeat(np.arange(len(rows), dtype=np.int32), counts)
        order = _order(ts_ms)
        return Arrivals(ts_ms[order], places[order], records[order])


def _joined(pieces: Iterable[Batches]) -> Batches:
    ts_ms, records = zip(NOTHING, *pieces, strict=True)
    return np.concatenate(ts_ms), np.concatenate(records)


def _in_order(batches: Batches) -> Batches:
    order = _order(batches[0])
    return batches[0][order], batches[1][order]


class _Base:
    """Batches at exponential intervals, each with a Poisson number of records.

    The stream yields all gaps before all records. To draw both in chunks there are two copies of
    the stream, one of which has already discarded the gaps.
    """

    def __init__(self, config: FleetConfig, partition: int) -> None:
        self._config = config
        self._gap_ms = config.batch_every_ms
        self._mean_records = config.records_per_s * config.batch_every_ms / 1000
        if partition < config.hot_partitions:
            self._mean_records *= config.hot_times
        self._left = _enough(config.duration_ms / self._gap_ms) if self._mean_records else 0
        self._chunk = min(self._left, CHUNK_BATCHES)
        self._reached_ms = 0.0
        self._ts_ms, self._records = NOTHING
        if self._left:
            self._gaps = stream(config.seed, _ARRIVALS, partition)
            self._counts = self._gaps
            if self._left > self._chunk:
                self._counts = stream(config.seed, _ARRIVALS, partition)
                self._counts.exponential(self._gap_ms, self._left)

    def until(self, end_ms: int) -> Batches:
        drawn = [(self._ts_ms, self._records)]
        while self._reached_ms < end_ms and self._left:
            drawn.append(self._draw())
        ts_ms, records = _joined(drawn)
        split = int(np.searchsorted(ts_ms, end_ms))
        self._ts_ms, self._records = ts_ms[split:], records[split:]
        return ts_ms[:split], records[:split]

    def _draw(self) -> Batches:
        """One more chunk, without empty batches."""
        count = min(self._left, self._chunk)
        gaps = self._gaps.exponential(self._gap_ms, count)
        gaps[0] += self._reached_ms
        ts_ms = np.cumsum(gaps)
        means = self._mean_records * _swing(self._config, ts_ms)
        records = self._counts.poisson(means, count).astype(np.int32)
        self._left -= count
        self._reached_ms = float(ts_ms[-1])
        keep = records > 0
        return ts_ms[keep].astype(np.int64), records[keep]


class _Bursts:
    """Bursts one after another: each spreads its records evenly over its length."""

    def __init__(self, starts: Ints, heights: NDArray[np.float64], offsets: Ints) -> None:
        self._starts, self._heights = starts, heights  # int64[n] ms, float64[n] records
        self._offsets = offsets  # int64[batches] ms
        self._reached_ms = 0

    def until(self, end_ms: int) -> Batches:
        """The next batches up to `end_ms`, not sorted by time where bursts overlap."""
        from_ms, self._reached_ms = self._reached_ms, end_ms
        first = np.searchsorted(self._starts, from_ms - self._offsets[-1])
        last = np.searchsorted(self._starts, end_ms)
        if first == last:
            return NOTHING
        ts_ms = (self._starts[first:last, None] + self._offsets[None, :]).ravel()
        ends = np.linspace(0, self._heights[first:last], len(self._offsets) + 1)
        records = np.diff(np.round(ends).astype(np.int64), axis=0).T.ravel()
        keep = (ts_ms >= from_ms) & (ts_ms < end_ms) & (records > 0)
        return ts_ms[keep], records[keep].astype(np.int32)


def burst_starts_ms(config: FleetConfig, partition: int) -> NDArray[np.float64]:
    """When the bursts of a partition begin, float64[n] ms."""
    if config.load == "steady":
        return np.zeros(0)
    is_common = config.load == "together"
    kind, key = (_TOGETHER, 0) if is_common else (_BURSTS, partition)
    draws = stream(config.seed, kind, key)
    mean_ms = config.burst_every_s * 1000
    starts = np.cumsum(draws.exponential(mean_ms, _enough(config.duration_ms / mean_ms)))
    starts = starts[starts < config.duration_ms]
    if not is_common:
        return starts
    return starts[stream(config.seed, _HIT, partition).random(len(starts)) < config.burst_share]


def stalls(config: FleetConfig, broker: int) -> tuple[Ints, Ints]:
    """Starts and ends (exclusive) of the stalls of a broker's fetchers, int64[n] ms, disjoint."""
    draws = stream(config.seed, _STALLS, broker)
    drawn = _apart(draws, config.stall_s, config.stall_every_s, config.duration_ms)
    return given.joined(drawn, config.pauses, "fetchers", broker)


def leader_stalls(config: FleetConfig, broker: int) -> tuple[Ints, Ints]:
    """Starts and ends (exclusive) of the times when a broker answers no fetch, int64[n] ms."""
    draws = stream(config.seed, _LEADER_STALLS, broker)
    every_s, run_ms = config.leader_stall_every_s, config.duration_ms
    drawn = _apart(draws, config.leader_stall_s, every_s, run_ms)
    return given.joined(drawn, config.pauses, "leader", broker)


def restarts(config: FleetConfig, broker: int) -> tuple[Ints, Ints]:
    """Starts and ends (exclusive) of the times when a broker is down, int64[n] ms.

    In a rolling restart brokers (1, 2, ...) go down one after another, once each, the first after
    `restart_every_s`.
    """
    length_ms = round(config.restart_s * 1000)
    start_ms = round(broker * config.restart_every_s * 1000)
    happens = length_ms > 0 and start_ms < config.duration_ms
    starts = np.array([start_ms] if happens else [], dtype=np.int64)
    return given.joined((starts, starts + length_ms), config.pauses, "down", broker)


def acks_all(config: FleetConfig, partitions: Ints) -> NDArray[np.bool_]:
    """Which partitions' producers use acks=all, bool[n]; a larger share adds to those of a smaller.

    `partitions` int64[n]: their numbers in the topic.
    """
    if (share := config.acks_all_share) in (0, 1):
        return np.full(len(partitions), share == 1)
    draws = [stream(config.seed, _ACKS, partition).random() for partition in partitions.tolist()]
    return np.array(draws) < share


@lru_cache(maxsize=1024)  # each cell of a fleet asks for the same brokers
def follower_bytes_per_s(config: FleetConfig, broker: int) -> int:
    """The rate at which each fetcher thread of a broker can receive and write."""
    share = stream(config.seed, _RATE, broker).uniform(-1, 1) * config.follower_spread
    return max(1, round(config.follower_bytes_per_s * (1 + share)))


def first_tick_ms(config: FleetConfig, broker: int) -> int:
    """When the leader's isr-expiration task first runs, within one period."""
    phase = stream(config.seed, _PHASE, broker).random()  # the share is equal in all versions
    return int(phase * config.isr_check_period_ms)


def spread(config: FleetConfig, rows: int) -> Ints:
    """Random partitions for the rows of a trace without one, int64[rows]."""
    return stream(config.seed, _SPREAD).integers(0, config.partitions, rows)


def _bursts(config: FleetConfig, partition: int) -> _Bursts:
    """All bursts of a partition."""
    starts = burst_starts_ms(config, partition)
    heights = np.full(len(starts), config.burst_records) * _swing(config, starts)
    if config.load == "heavy":
        draws = stream(config.seed, _HIT, partition)
        scale = (PARETO_SHAPE - 1) / PARETO_SHAPE  # so that the mean is burst_records
        heights *= np.minimum(scale * (1 + draws.pareto(PARETO_SHAPE, len(starts))), PARETO_MOST)
    offsets = np.arange(_burst_batches(config)) * _burst_step_ms(config)
    return _Bursts(starts.astype(np.int64), heights, offsets)


def _order(ts_ms: Ints) -> Ints:
    """A stable order of times, by 16 bits at once: numpy sorts these in linear time."""
    order = np.argsort(ts_ms.astype(np.uint16), kind="stable")
    for shift in range(16, int(ts_ms.max(initial=0)).bit_length(), 16):
        order = order[np.argsort((ts_ms >> shift).astype(np.uint16)[order], kind="stable")]
    return order


def _swing(config: FleetConfig, ts_ms: NDArray[np.float64]) -> NDArray[np.float64] | float:
    """The load's factor at each time of day, 0 to 2; a single number if it is constant."""
    if not config.daily_swing:
        return 1.0
    angles = (ts_ms / HOUR_MS - PEAK_HOUR) * (2 * np.pi / 24)
    return 1 + config.daily_swing * np.cos(angles)


def _apart(draws: Generator, length_s: float, every_s: float, run_ms: int) -> tuple[Ints, Ints]:
    """Starts and ends (exclusive) of equally long times that do not touch, int64[n] ms."""
    length_ms, mean_ms = round(length_s * 1000), every_s * 1000
    count = _enough(run_ms / (mean_ms + length_ms)) if length_ms else 0
    gaps = draws.exponential(mean_ms, count) + length_ms
    starts = np.floor(np.cumsum(gaps) - length_ms).astype(np.int64)
    starts = starts[starts < run_ms]
    return starts, starts + length_ms


def _burst_step_ms(config: FleetConfig) -> int:
    return 1 if config.batch_size else BURST_BATCH_MS


def _burst_batches(config: FleetConfig) -> int:
    return max(1, round(config.burst_s * 1000 / _burst_step_ms(config)))


def _most_records(config: FleetConfig) -> int:
    """The most records in a producer's batch."""
    return max(1, config.batch_size // config.record_bytes)


def _enough(mean: float) -> int:
    """How many exponential gaps cover the run, except with a chance of about one in 10**15."""
    return int(mean + 8 * np.sqrt(mean) + 20)
