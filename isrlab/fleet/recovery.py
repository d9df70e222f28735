"""How long a broker takes to recover: from its start until it is in all its ISRs again.

Theory of operation. While a broker is down, its replicas fall behind; when it is back they fetch
the missing records, and those produced in the meantime (pace.py).

A replica rejoins when it reaches the high watermark, and the high watermark waits for a follower
that was caught up within the lag limit (`rules.holds_back_high_watermark`). So it rejoins when the
missing records fit into one response, shortly before it is caught up.
"""

import numpy as np

from isrlab.fleet import load
from isrlab.fleet.cell import cell, leaders
from isrlab.fleet.config import FleetConfig
from isrlab.pace import catch_up_s, safe_restart_every_s

__all__ = ["catch_up_s", "expected_rejoin_s", "load_share", "loaded", "safe_restart_every_s"]


def load_share(config: FleetConfig, broker: int) -> float:
    """The produce rate of a broker's busiest fetcher thread, as a share of what it can fetch.

    The mean load, without bursts and daily swing. Raises ValueError if the broker is not there.
    """
    busiest, _ = max(_threads(config, broker))
    return busiest / load.follower_bytes_per_s(config, broker)


def expected_rejoin_s(config: FleetConfig, broker: int) -> float:
    """Computed seconds from a broker's return until its slowest fetcher thread has caught up.

    For its turn in a rolling restart, or for a new broker. Infinite if it never catches up.
    """
    rate = load.follower_bytes_per_s(config, broker)
    is_new = broker == config.new_broker
    lacks = config.backlog_records * config.record_bytes * is_new
    down_s = 0.0 if is_new else config.restart_s
    return max(
        catch_up_s(produced / rate, down_s, partitions * lacks / rate)
        for produced, partitions in _threads(config, broker)
    )


def loaded(config: FleetConfig, share: float) -> FleetConfig:
    """The fleet with a rate such that the load share of its busiest thread is `share`.

    Raises ValueError unless `share` is positive.
    """
    if share <= 0:
        raise ValueError(f"share must be above 0, not {share}")
    unit = config.with_(records_per_s=1.0)
    most = max(load_share(unit, broker) for broker in range(1, config.brokers + 1))
    return config.with_(records_per_s=share / most)


def _threads(config: FleetConfig, broker: int) -> list[tuple[float, int]]:
    """For each fetcher thread of a broker, its produced bytes per second, and its partitions.

    The first entry is idle: a broker may follow no leader.
    """
    if not 1 <= broker <= config.brokers:
        raise ValueError(f"broker={broker} is out of range; valid: 1 to brokers={config.brokers}")
    threads = [(0.0, 0)]
    for led in (cell(config, leader) for leader in leaders(config)):
        times = np.where(led.partitions < config.hot_partitions, config.hot_times, 1.0)
        for thread in np.flatnonzero(np.equal(led.thread_brokers, broker)):
            reads = (led.thread_of == thread).any(axis=1)
            records = float(times[reads].sum()) * config.records_per_s
            threads.append((records * config.record_bytes, int(reads.sum())))
    return threads
