"""How long a broker needs to come back: from its start until it is in all its ISRs again.

Theory of operation. While a broker is down, its replicas fall behind by what is produced; when it
is back they fetch that, and what is produced meanwhile. So the time is the backlog by the *spare*
rate: fetch rate less produce rate. With a constant load, which takes up a share `s` of the fetch
rate, a broker that was down for `d` needs `d * s / (1 - s)` more, and the next broker must not go
down before `d / (1 - s)` after the first. Both grow without limit as `s` comes near 1.

A replica is let back in when it reaches the high watermark, and the high watermark waits for a
follower that had everything within the lag limit (`rules.holds_back_high_watermark`). So it returns
when what it lacks fits into one response, a little before it lacks nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import Window
from pyspark.sql import functions as F

from isrlab.churn.diff import CHANGES, isr_moves
from isrlab.churn.history import PARTITION
from isrlab.fleet import load
from isrlab.fleet.cell import cell, leaders
from isrlab.fleet.config import FleetConfig, listed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

OUTAGES_SCHEMA = "run string, broker int, down_ms long, up_ms long"
_OUTAGE = ("run", "broker", "down_ms", "up_ms")


def rejoins(events: DataFrame, outages: DataFrame) -> DataFrame:
    """For each outage of a broker, how long after its return it was back in its ISRs.

    `outages`: run, broker, down_ms, up_ms (both of the events' clock). Whoever took the replicas
    out, leader or controller, `partitions` are those that the broker had to rejoin when it came up,
    `still_out` those that it did not rejoin before it went down again. `first_ms`, `median_ms`,
    `last_ms`: from its return to the first, middle and last of its rejoins (of a partition that it
    rejoins twice, the first); null if there is none.
    """
    of_broker = Window.partitionBy("run", "broker").orderBy("down_ms")
    until = F.coalesce(F.lead("down_ms").over(of_broker), F.lit(2**62))
    known = outages.select(*_OUTAGE, until.alias("until_ms"))
    moves = isr_moves(events).withColumnRenamed("replica", "broker")
    is_before, is_leave = F.col("ts_ms") <= F.col("up_ms"), F.col("change") == CHANGES[0]
    last_left = F.max_by(is_leave, F.when(is_before, F.col("ts_ms")))
    first_joins = F.min_by(~is_leave, F.when(~is_before, F.col("ts_ms")))
    joined = F.min(F.when(~is_before & ~is_leave, F.col("ts_ms")))
    was_out = F.coalesce(last_left, first_joins)
    back = F.col("back_ms") - F.col("up_ms")
    totals = [
        F.count("*").alias("partitions"),
        F.count_if(F.col("back_ms").isNull()).alias("still_out"),
        F.min(back).alias("first_ms"),
        F.median(back).alias("median_ms"),
        F.max(back).alias("last_ms"),
    ]
    return (
        moves.join(F.broadcast(known), on=["run", "broker"], how="inner")
        .where(F.col("ts_ms") < F.col("until_ms"))
        .groupBy(*_OUTAGE, *PARTITION[1:])
        .agg(was_out.alias("was_out"), joined.alias("back_ms"))
        .where("was_out")
        .groupBy(*_OUTAGE)
        .agg(*totals)
        .orderBy("run", "down_ms", "broker")
        .select(*_OUTAGE, "partitions", "still_out", "first_ms", "median_ms", "last_ms")
    )


def restarts(spark: SparkSession, configs: FleetConfig | Iterable[FleetConfig]) -> DataFrame:
    """When the brokers of simulated fleets were down, for `rejoins`.

    A new broker counts as one that comes up at the start.
    """
    several = listed(configs)
    rows = [
        (config.run, broker, int(start), int(end))
        for config in several
        for broker in range(1, config.brokers + 1)
        for start, end in zip(*load.restarts(config, broker), strict=True)
    ]
    new = [(config.run, config.new_broker, 0, 0) for config in several if config.new_broker]
    return spark.createDataFrame(rows + new, OUTAGES_SCHEMA)


def load_share(config: FleetConfig, broker: int) -> float:
    """What is produced for the busiest fetcher thread of a broker, by what it can fetch.

    The mean load without bursts, at no time of day. Raises ValueError if the broker is not there.
    """
    most = max(produced for produced, _ in _threads(config, broker))
    return most / load.follower_bytes_per_s(config, broker)


def expected_rejoin_s(config: FleetConfig, broker: int) -> float:
    """Seconds from a broker's return until its slowest fetcher thread has caught up, as computed.

    After its restart in a rolling restart, or as a new broker. Infinite if it never catches up.
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
    """The fleet with so many records per second that its busiest thread is loaded by `share`.

    Raises ValueError unless `share` is positive.
    """
    if share <= 0:
        raise ValueError(f"share must be above 0, not {share}")
    unit = config.with_(records_per_s=1.0)
    most = max(load_share(unit, broker) for broker in range(1, config.brokers + 1))
    return config.with_(records_per_s=share / most)


def catch_up_s(share: float, down_s: float, backlog_s: float = 0.0) -> float:
    """Seconds until a follower has caught up; infinite if it never does.

    `share`: produced bytes by bytes that it can fetch; `down_s`: how long it was away, in seconds;
    `backlog_s`: what else it lacks, in seconds of fetching at full speed.
    """
    return (share * down_s + backlog_s) / (1 - share) if share < 1 else math.inf


def safe_restart_every_s(share: float, down_s: float) -> float:
    """From one broker's restart to the next, so that the first has caught up, in seconds."""
    return down_s + catch_up_s(share, down_s)


def _threads(config: FleetConfig, broker: int) -> list[tuple[float, int]]:
    """For each fetcher thread of a broker, bytes per second that are produced for it; partitions.

    The first has nothing to do: a broker may follow nobody.
    """
    if not 1 <= broker <= config.brokers:
        raise ValueError(f"broker={broker} is out of range; valid: 1 to brokers={config.brokers}")
    found = [(0.0, 0)]
    for leader in leaders(config):
        one = cell(config, leader)
        times = np.where(one.partitions < config.hot_partitions, config.hot_times, 1.0)
        for thread, follower in enumerate(one.thread_brokers):
            if follower == broker:
                reads = (one.thread_of == thread).any(axis=1)
                records = float(times[reads].sum()) * config.records_per_s
                found.append((records * config.record_bytes, int(reads.sum())))
    return found
