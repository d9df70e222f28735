"""What comes from outside a cell: batches, stalls and speeds of followers, phase of expiry.

Every draw has its own stream, keyed by what it belongs to (seed and partition, seed and broker,
seed and cluster) and by nothing else: not by version, task, host or order. So two versions see the
very same load, and a fleet gives the same rows however it is cut into tasks.

Between bursts a partition gets batches at exponential intervals. A burst spreads its records evenly
over its length in one batch every `BURST_BATCH_MS`, so that a producer with many clients is always
at it; a length of 0 is one single batch. Left out: daily cycles, traces, keys that move.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator, Philox, SeedSequence
from numpy.typing import NDArray

from isrlab.fleet.cellstate import Arrivals, Ints
from isrlab.fleet.config import FleetConfig

BURST_BATCH_MS = 10
PARETO_SHAPE = 1.5  # of heavy-tailed bursts: finite mean, no variance to speak of
PARETO_MOST = 50.0  # times `burst_records`

_ARRIVALS, _BURSTS, _TOGETHER, _STALLS, _PHASE, _HIT, _RATE = range(7)


def stream(seed: int, kind: int, key: int = 0) -> Generator:
    """The generator of one stream of draws."""
    return Generator(Philox(SeedSequence(entropy=seed, spawn_key=(kind, key))))


def arrivals(config: FleetConfig, partitions: Ints) -> Arrivals:
    """All batches of a cell, by time and then by place of the partition in `partitions`.

    `partitions` int64[n]: their numbers in the topic. Times are ms in [0, duration).
    """
    together = _together(config)
    times, places, records = [], [], []
    for place, partition in enumerate(partitions.tolist()):
        ts_ms, count = partition_arrivals(config, partition, together)
        times.append(ts_ms)
        places.append(np.full(len(ts_ms), place, dtype=np.int32))
        records.append(count)
    ts_ms = np.concatenate(times) if times else np.zeros(0, dtype=np.int64)
    order = np.argsort(ts_ms, kind="stable")
    return Arrivals(
        ts_ms=ts_ms[order],
        partition=_joined(places)[order],
        records=_joined(records)[order],
    )


def _joined(parts: list[NDArray[np.int32]]) -> NDArray[np.int32]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)


def partition_arrivals(
    config: FleetConfig, partition: int, together: NDArray[np.float64]
) -> tuple[Ints, NDArray[np.int32]]:
    """Times (ms, ascending) and records (at least 1) of one partition's batches."""
    base_ms, base_records = _base(config, partition)
    burst_ms, burst_records = _bursts(config, partition, together)
    ts_ms = np.concatenate([base_ms, burst_ms])
    records = np.concatenate([base_records, burst_records])
    keep = (ts_ms < config.duration_ms) & (records > 0)
    order = np.argsort(ts_ms[keep], kind="stable")
    return ts_ms[keep][order], records[keep][order].astype(np.int32)


def burst_starts_ms(config: FleetConfig, partition: int) -> NDArray[np.float64]:
    """When the bursts of a partition begin, float64[n] ms."""
    if config.load == "steady":
        return np.zeros(0)
    if config.load == "together":
        together = _together(config)
        return together[_is_hit(config, partition, len(together))]
    return _poisson(stream(config.seed, _BURSTS, partition), config.burst_every_s, config)


def stalls(config: FleetConfig, broker: int) -> tuple[Ints, Ints]:
    """Starts and ends (exclusive) of a broker's stalls, int64[n] ms, apart from each other."""
    length_ms = round(config.stall_s * 1000)
    if length_ms == 0:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    draws = stream(config.seed, _STALLS, broker)
    mean_ms = config.stall_every_s * 1000
    count = _enough(config.duration_ms / (mean_ms + length_ms))
    gaps = draws.exponential(mean_ms, count) + length_ms
    starts = np.floor(np.cumsum(gaps) - length_ms).astype(np.int64)
    starts = starts[starts < config.duration_ms]
    return starts, starts + length_ms


def follower_bytes_per_s(config: FleetConfig, broker: int) -> int:
    """What each fetcher thread of a broker can receive and write."""
    share = stream(config.seed, _RATE, broker).uniform(-1, 1) * config.follower_spread
    return max(1, round(config.follower_bytes_per_s * (1 + share)))


def first_tick_ms(config: FleetConfig, broker: int) -> int:
    """When the leader's isr-expiration task first runs: somewhere within one period."""
    phase = stream(config.seed, _PHASE, broker).random()  # one draw: versions keep its share
    return int(phase * config.isr_check_period_ms)


def _base(config: FleetConfig, partition: int) -> tuple[Ints, Ints]:
    """Batches at exponential intervals; records around their mean."""
    mean_records = config.records_per_s * config.batch_every_ms / 1000
    if mean_records == 0:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    draws = stream(config.seed, _ARRIVALS, partition)
    count = _enough(config.duration_ms / config.batch_every_ms)
    ts_ms = np.cumsum(draws.exponential(config.batch_every_ms, count)).astype(np.int64)
    records = draws.poisson(mean_records, count).astype(np.int64)
    return ts_ms, records


def _bursts(
    config: FleetConfig, partition: int, together: NDArray[np.float64]
) -> tuple[Ints, Ints]:
    """The batches of all bursts of a partition."""
    if config.load == "together":
        starts = together[_is_hit(config, partition, len(together))]
    else:
        starts = burst_starts_ms(config, partition)
    heights = np.full(len(starts), config.burst_records, dtype=np.float64)
    if config.load == "heavy":
        draws = stream(config.seed, _HIT, partition)
        scale = (PARETO_SHAPE - 1) / PARETO_SHAPE  # so that the mean is burst_records
        heights *= np.minimum(scale * (1 + draws.pareto(PARETO_SHAPE, len(starts))), PARETO_MOST)
    batches = max(1, round(config.burst_s * 1000 / BURST_BATCH_MS))
    offsets = np.arange(batches) * BURST_BATCH_MS
    ts_ms = (starts.astype(np.int64)[:, None] + offsets[None, :]).ravel()
    sent = np.round(np.linspace(0, heights, batches + 1)).astype(np.int64)
    return ts_ms, np.diff(sent, axis=0).T.ravel()


def _together(config: FleetConfig) -> NDArray[np.float64]:
    """When bursts hit the cluster, float64[n] ms; none unless the load is "together"."""
    if config.load != "together":
        return np.zeros(0)
    return _poisson(stream(config.seed, _TOGETHER), config.burst_every_s, config)


def _is_hit(config: FleetConfig, partition: int, bursts: int) -> NDArray[np.bool_]:
    """Which of the cluster's bursts hit this partition."""
    return stream(config.seed, _HIT, partition).random(bursts) < config.burst_share


def _poisson(draws: Generator, mean_s: float, config: FleetConfig) -> NDArray[np.float64]:
    """Moments (ms, ascending, within the run) of something that happens every `mean_s` seconds."""
    count = _enough(config.duration_ms / (mean_s * 1000))
    moments = np.cumsum(draws.exponential(mean_s * 1000, count))
    return moments[moments < config.duration_ms]


def _enough(mean: float) -> int:
    """As many exponential gaps as cover the run, but for a chance of about one in 10**15."""
    return int(mean + 8 * np.sqrt(mean) + 20)
