"""What only a simulation can say: who really stood still, and what an ISR that hides it costs.

A *stall* is a time in which a broker's fetchers stand still. While the stalled follower is in the
ISR, the ISR counts a copy that is not made: the high watermark stands still, producers with
acks=all wait, and those with acks=1 write to fewer brokers than anybody knows. Once it is out,
nobody waits, but a copy is missing. Both are time at risk. `replica.lag.time.max.ms` decides where
the first ends and the second begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from isrlab.churn.history import PARTITION, is_shrink, isr_history
from isrlab.churn.questions import isr_intervals
from isrlab.fleet.config import FleetConfig, listed
from isrlab.fleet.layout import TOPIC, assignment
from isrlab.fleet.load import stalls as stalls_of_broker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

REPLICA = (*PARTITION, "replica")
REQUEST_TIMEOUT_MS = 30_000  # request.timeout.ms of producers, by default


def stalls(spark: SparkSession, configs: FleetConfig | Iterable[FleetConfig]) -> DataFrame:
    """Every stall of every follower in simulated runs: run, topic, partition, replica, from, to.

    A follower that never stalls has one row with null times, so that all assignments are there.
    """
    several = listed(configs)
    followers = [
        (config.run, TOPIC, partition, int(broker))
        for config in several
        for partition, brokers in enumerate(
            assignment(config.partitions, config.brokers, config.replication_factor)
        )
        for broker in brokers[1:]
    ]
    times = [
        (config.run, broker, int(start), min(int(end), config.duration_ms))
        for config in several
        for broker in range(1, config.brokers + 1)
        for start, end in zip(*stalls_of_broker(config, broker), strict=True)
    ]
    assigned = spark.createDataFrame(
        followers, "run string, topic string, partition int, replica int"
    )
    stood = spark.createDataFrame(times, "run string, replica int, from_ms long, to_ms long")
    return assigned.join(F.broadcast(stood), on=["run", "replica"], how="left").select(
        *REPLICA, "from_ms", "to_ms"
    )


def judged_evictions(events: DataFrame, stalls: DataFrame, patience_ms: int) -> DataFrame:
    """Every replica that left an ISR, and whether that was a false eviction.

    It was right if the follower stood still at that moment, in a stall longer than `patience_ms`;
    else it was false: the follower was at work, only behind, or would soon have been back anyway.
    """
    left = (
        isr_history(events)
        .where(is_shrink())
        .withColumn("replica", F.explode(F.array_except("isr_before", "isr")))
        .select(*REPLICA, "ts_ms")
        .alias("left")
    )
    long = stalls.where(F.col("to_ms") - F.col("from_ms") > patience_ms).alias("long")
    same = [F.col(f"left.{key}") == F.col(f"long.{key}") for key in REPLICA]
    during = (F.col("ts_ms") >= F.col("from_ms")) & (F.col("ts_ms") < F.col("to_ms"))
    return left.join(long, on=[*same, during], how="left").select(
        *[F.col(f"left.{key}").alias(key) for key in REPLICA],
        "ts_ms",
        F.col("from_ms").isNull().alias("is_false"),
    )


def time_at_risk(
    events: DataFrame, stalls: DataFrame, end_ms: int, timeout_ms: int = REQUEST_TIMEOUT_MS
) -> DataFrame:
    """For each partition, the milliseconds of [0, `end_ms`) in which a copy was not being made.

    `at_risk_ms`: a follower was out of the ISR, or stood still as a member of it. Of that,
    `under_replicated_ms`: somebody was out (what the metric shows); `stalled_ms`: somebody who
    stood still was in, so the high watermark waited (the two can overlap, at different followers).
    `timeouts` counts how often one such follower made producers wait longer than `timeout_ms`.
    """
    steps = _steps(events, stalls, end_ms)
    of_replica = Window.partitionBy(*REPLICA).orderBy("ts_ms")
    is_out = F.sum("out").over(of_replica) > 0
    stands = F.sum("still").over(of_replica) > 0
    holds = stands & ~is_out
    until = F.lead("ts_ms", 1, end_ms).over(of_replica)
    states = (
        steps.select(*REPLICA, "ts_ms", is_out.cast("int").alias("o"), holds.cast("int").alias("h"))
        .withColumn("is_long", (F.col("h") == 1) & (until - F.col("ts_ms") > timeout_ms))
        .withColumn("d_out", F.col("o") - F.lag("o", 1, 0).over(of_replica))
        .withColumn("d_hold", F.col("h") - F.lag("h", 1, 0).over(of_replica))
        .groupBy(*PARTITION, "ts_ms")
        .agg(
            F.sum("d_out").alias("o"), F.sum("d_hold").alias("h"), F.count_if("is_long").alias("n")
        )
    )
    of_partition = Window.partitionBy(*PARTITION).orderBy("ts_ms")
    length = F.lead("ts_ms", 1, end_ms).over(of_partition) - F.col("ts_ms")
    spans = states.select(
        *PARTITION,
        length.alias("ms"),
        (F.sum("o").over(of_partition) > 0).alias("is_under"),
        (F.sum("h").over(of_partition) > 0).alias("is_held"),
        "n",
    )
    times = [
        F.sum(F.when(F.col("is_under") | F.col("is_held"), F.col("ms")).otherwise(0)),
        F.sum(F.when(F.col("is_under"), F.col("ms")).otherwise(0)),
        F.sum(F.when(F.col("is_held"), F.col("ms")).otherwise(0)),
        F.sum("n"),
    ]
    names = ["at_risk_ms", "under_replicated_ms", "stalled_ms", "timeouts"]
    totals = [time.alias(name) for time, name in zip(times, names, strict=True)]
    return spans.groupBy(*PARTITION).agg(*totals).orderBy(*PARTITION).select(*PARTITION, *names)


def _steps(events: DataFrame, stalls: DataFrame, end_ms: int) -> DataFrame:
    """Every moment at which a follower left or joined the ISR, or began or ceased to stall."""
    followers = stalls.select(*REPLICA).distinct()
    out = (
        isr_intervals(events, end_ms)
        .join(followers, on=list(PARTITION), how="inner")
        .where(~F.array_contains("isr", F.col("replica")))
        .select(*REPLICA, "from_ms", "to_ms", F.lit(1).alias("out"), F.lit(0).alias("still"))
    )
    still = stalls.where("from_ms is not null").select(
        *REPLICA, "from_ms", "to_ms", F.lit(0).alias("out"), F.lit(1).alias("still")
    )
    both = out.unionByName(still)
    starts = both.select(*REPLICA, F.col("from_ms").alias("ts_ms"), "out", "still")
    ends = both.select(*REPLICA, F.col("to_ms").alias("ts_ms"), -F.col("out"), -F.col("still"))
    deltas = [F.sum("out").alias("out"), F.sum("still").alias("still")]
    return (
        starts.union(ends)
        .where(F.col("ts_ms") <= end_ms)
        .groupBy(*REPLICA, "ts_ms")
        .agg(*deltas)
        .where("out != 0 or still != 0")
        .select(*REPLICA, "ts_ms", "out", "still")
    )


LAG_LIMIT_COSTS = """
    SELECT r.lag_time_ms / 1000 AS lag_limit_s, r.seed,
           SUM(COALESCE(e.false_evictions, 0) * 60 / r.minutes) AS false_evictions,
           SUM(COALESCE(e.right_evictions, 0) * 60 / r.minutes) AS right_evictions,
           SUM(COALESCE(t.at_risk_ms, 0) / 1000 / r.minutes) AS at_risk_minutes,
           SUM(COALESCE(t.under_replicated_ms, 0) / 1000 / r.minutes) AS under_replicated_minutes,
           SUM(COALESCE(t.stalled_ms, 0) / 1000 / r.minutes) AS stalled_minutes,
           SUM(COALESCE(t.timeouts, 0) * 60 / r.minutes) AS timeouts
    FROM {runs} r
    LEFT JOIN (SELECT run, COUNT_IF(is_false) AS false_evictions,
                      COUNT_IF(NOT is_false) AS right_evictions
               FROM {evictions} GROUP BY run) e ON r.run = e.run
    LEFT JOIN (SELECT run, SUM(at_risk_ms) AS at_risk_ms,
                      SUM(under_replicated_ms) AS under_replicated_ms,
                      SUM(stalled_ms) AS stalled_ms, SUM(timeouts) AS timeouts
               FROM {risk} GROUP BY run) t ON r.run = t.run
    GROUP BY r.lag_time_ms, r.seed
    ORDER BY r.lag_time_ms, r.seed
"""


def lag_limit_fleets(
    config: FleetConfig,
    limits_s: list[float],
    stalls_s: list[float],
    *,
    still_share: float,
    seeds: int,
) -> list[FleetConfig]:
    """A fleet for each lag limit (s), length of stall (s) and seed, from `config.seed` on.

    Each length of stall takes up `still_share` of a broker's time, and comes with its share of the
    bursts: what the fleets of one limit and seed cost adds up to what all these troubles cost.
    """
    return [
        config.with_(
            name=f"{config.run} limit={limit_s} stall={stall_s} seed={seed}",
            seed=seed,
            replica_lag_time_max_ms=round(limit_s * 1000),
            stall_s=stall_s,
            stall_every_s=stall_s * (1 / still_share - 1),
            burst_every_s=config.burst_every_s * len(stalls_s),
        )
        for limit_s in limits_s
        for stall_s in stalls_s
        for seed in range(config.seed, config.seed + seeds)
    ]


def lag_limit_costs(runs: DataFrame, evictions: DataFrame, risk: DataFrame) -> DataFrame:
    """One row for each lag limit and seed, all lengths of stall added up, everything per hour.

    `runs` is from `fleet.runs`, `evictions` from `judged_evictions`, `risk` from `time_at_risk`.
    The minutes are partition-minutes.
    """
    return runs.sparkSession.sql(LAG_LIMIT_COSTS, runs=runs, evictions=evictions, risk=risk)
