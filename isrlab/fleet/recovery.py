"""How long a broker takes to recover: from its start until it is in all its ISRs again.

Theory of operation. While a broker is down, its replicas fall behind; when it is back they fetch
the missing records, and those produced in the meantime (pace.py).

A replica rejoins when it reaches the high watermark, and the high watermark waits for a follower
that was caught up within the lag limit (`rules.holds_back_high_watermark`). So it rejoins when the
missing records fit into one response, shortly before it is caught up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd

from isrlab.events import exact
from isrlab.fleet import load
from isrlab.fleet.cell import cell, leaders
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.layout import assignment
from isrlab.fleet.simulate import simulate_local
from isrlab.pace import catch_up_s, safe_restart_every_s

__all__ = [
    "catch_up_s", "expected_rejoin_s", "leaders_back", "load_share", "loaded",
    "safe_restart_every_s",
]  # fmt: skip


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


def leaders_back(config: FleetConfig, goes: Sequence[tuple[str, float]]) -> pd.DataFrame:
    """The cost of restarting broker 1 (`restart_s`, `restart_every_s`) and moving its leaders back.

    A row for each of `goes`: a role of `given.ROLES` (down or dead), and how many seconds after its
    return the preferred leaders are elected, once. Shows how many partitions it led before and
    leads after that election; how many produces failed because there was no leader, or another one;
    and the longest wait for the ISR among acknowledged produces.
    """
    rows = []
    start_s, down_s = config.restart_every_s, config.restart_s
    first = assignment(config)[:, 0] == 1
    for role, after_s in goes:
        elected_s = start_s + down_s + after_s
        pauses = f"{role} 1 {start_s:.3f}-{start_s + down_s:.3f}"
        moving = config.with_(leaders="move", restart_s=0.0, rebalance_every_s=0.0, pauses=pauses)
        events = simulate_local(moving.with_(elections=f"{elected_s:.3f}"))
        led = [row for row in events.to_pylist() if row["kind"] == "leader"]
        details = (dict(detail) for detail in events["detail"].to_pylist() if detail)
        failed = Counter(detail.get("error") for detail in details)
        rows.append({
            "broker 1 is": role, "elected_after_s": after_s, "led before": int(first.sum()),
            "leads_again": sum(row["broker"] == 1 for row in led),
            "refused: no leader": failed["NETWORK_EXCEPTION"],
            "refused: leader moved": failed["NOT_LEADER_OR_FOLLOWER"],
            "longest_wait_s": max(wait.latency_ms for wait in exact.waits(events)) / 1000,
        })  # fmt: skip
    return pd.DataFrame(rows)


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
