"""What only a simulation knows: stalled followers, false evictions, and hidden risk.

Two measures. Every shrink of a fleet carries in its `detail` how long ago the evicted follower was
last caught up (by the lag clock of 0.10.2 and later, in every version): an eviction is a *false
alarm* if that was within `replica.lag.time.max.ms`. And the time *at risk*: while a stalled
follower is in the ISR, the ISR counts a copy that does not exist, so the high watermark does not
move, producers with acks=all wait, and those with acks=1 write to fewer brokers than the ISR shows;
after its eviction no write waits for it, but a copy is missing. `replica.lag.time.max.ms` decides
when the eviction comes.
"""

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from isrlab import churn
from isrlab.churn.history import PARTITION, columns
from isrlab.churn.moves import REPLICA
from isrlab.fleet import load
from isrlab.fleet.config import Configs, FleetConfig, listed
from isrlab.fleet.layout import TOPIC, assignment

_PER_HOUR = [f"{n} * 60 / minutes as {n}_per_hour" for n in ("shrinks", "false_alarms")]


def with_counts(runs: DataFrame, *parts: DataFrame) -> DataFrame:
    """Runs with their counts; 0 if there are none."""
    for part in parts:
        runs = runs.join(part, on="run", how="left")
    return runs.na.fill(0, subset=[name for part in parts for name in part.columns[1:]])


def _times(config: FleetConfig, of: Callable[[FleetConfig, int], Any]) -> list[tuple[Any, ...]]:
    """The times of an event for each broker of a fleet: run, broker, from and to (ms)."""
    return [
        (config.run, broker, int(start), int(end))
        for broker in range(1, config.brokers + 1)
        for start, end in zip(*of(config, broker), strict=True)
    ]


# False alarms


def evictions(events: DataFrame, runs: DataFrame) -> DataFrame:
    """One row for each shrink, with the leader's knowledge of the follower, and `is_false_alarm`.

    `replica` is null where several followers left together; the times (ms) are then the shortest.
    In the order of `runs` (`fleet.runs`), then of time.
    """
    names = ("lag_records", "since_fetch_ms", "since_caught_up_ms")
    knew = [f"cast(detail.{name} as long) as {name}" for name in names]
    return (
        events.where("kind = 'isr_shrink'")
        .join(runs.select("run", "place", "lag_time_ms", "lag_messages"), on="run", how="inner")
        .orderBy("place", "ts_ms", "partition")
        .selectExpr("run", "ts_ms", "partition", "broker as leader", "replica", *knew,
                    "cast(detail.since_caught_up_ms as long) <= lag_time_ms as is_false_alarm",
                    "lag_time_ms", "lag_messages")
    )  # fmt: skip


def alarms(runs: DataFrame, evictions: DataFrame) -> DataFrame:
    """One row for each run: its settings, shrinks and false alarms, also per hour."""
    counts = columns("count(*) as shrinks", "count_if(is_false_alarm) as false_alarms")
    rows = with_counts(runs, evictions.groupBy("run").agg(*counts)).orderBy("place")
    return rows.selectExpr(*runs.columns, "shrinks", "false_alarms", *_PER_HOUR)


# Outages


def restarts(spark: SparkSession, configs: Configs) -> DataFrame:
    """When the brokers of simulated fleets were shut down, for `churn.rejoins`.

    A new broker counts as one that comes up at the start.
    """
    several = listed(configs)
    rows = [row for config in several for row in _times(config, load.restarts)]
    new = [(config.run, config.new_broker, 0, 0) for config in several if config.new_broker]
    return spark.createDataFrame(rows + new, churn.OUTAGES_SCHEMA)


def stalls(spark: SparkSession, configs: Configs) -> DataFrame:
    """Every stall of every follower in simulated runs: run, topic, partition, replica, from, to.

    A follower that never stalls has one row with null times, so that all assignments are there.
    """
    followers, times = [], []
    for config in listed(configs):
        layout = assignment(config)
        for partition, brokers in enumerate(layout.tolist()):
            followers += [(config.run, TOPIC, partition, broker) for broker in brokers[1:]]
        for *key, start, end in _times(config, load.stalls):
            times.append((*key, start, min(end, config.duration_ms)))
    schema = "run string, topic string, partition int, replica int"
    assigned = spark.createDataFrame(followers, schema)
    stood = spark.createDataFrame(times, "run string, replica int, from_ms long, to_ms long")
    rows = assigned.join(F.broadcast(stood), on=["run", "replica"], how="left")
    return rows.select(*REPLICA, "from_ms", "to_ms")


def judged_evictions(events: DataFrame, stalls: DataFrame, patience_ms: int) -> DataFrame:
    """Every replica that a shrink removed from an ISR: its partition, replica, ts_ms, `is_false`.

    A removal is right if the follower was in a stall longer than `patience_ms` at that moment;
    otherwise it is false: the follower was running but behind, or would soon have been back.
    """
    long = stalls.where(f"to_ms - from_ms > {patience_ms}")
    return (
        churn.removals(events)
        .join(long, on=list(REPLICA), how="left")
        .groupBy(*REPLICA, "ts_ms")
        .agg(F.expr("count_if(ts_ms >= from_ms and ts_ms < to_ms) = 0 as is_false"))
        .select(*REPLICA, "ts_ms", "is_false")
    )


# Risk


def time_at_risk(events: DataFrame, stalls: DataFrame, end_ms: int) -> DataFrame:
    """For each partition, the milliseconds of [0, `end_ms`) in which a copy was not being made.

    `at_risk_ms`: a follower was out of the ISR, or stalled as a member of it. Of that,
    `under_replicated_ms`: a follower was out (what the metric shows); `stalled_ms`: a stalled
    follower was in, so the high watermark waited (the two can overlap, at different followers).
    """
    of_replica = Window.partitionBy(*REPLICA).orderBy("ts_ms")
    of_partition = Window.partitionBy(*PARTITION).orderBy("ts_ms")
    is_out, stands = (F.sum(name).over(of_replica) > 0 for name in ("out", "still"))
    states = {"outs": is_out.cast("int"), "holds": (stands & ~is_out).cast("int")}
    changes = {name: F.col(name) - F.lag(name, 1, 0).over(of_replica) for name in states}
    deltas = columns("sum(outs) as outs", "sum(holds) as holds")
    sums = {name: F.sum(name).over(of_partition) for name in states}
    ms = F.lead("ts_ms", 1, end_ms).over(of_partition) - F.col("ts_ms")
    conditions = {
        "at_risk_ms": "outs > 0 or holds > 0",
        "under_replicated_ms": "outs > 0",
        "stalled_ms": "holds > 0",
    }
    totals = [f"sum(if({holds}, ms, 0)) as {name}" for name, holds in conditions.items()]
    return (
        _steps(events, stalls, end_ms)
        .withColumns(states)
        .withColumns(changes)
        .groupBy(*PARTITION, "ts_ms")
        .agg(*deltas)
        .withColumns(sums | {"ms": ms})
        .groupBy(*PARTITION)
        .agg(*columns(*totals))
        .orderBy(*PARTITION)
        .select(*PARTITION, *conditions)
    )


def _steps(events: DataFrame, stalls: DataFrame, end_ms: int) -> DataFrame:
    """Every moment at which a follower left or joined the ISR, or began or ended a stall.

    `out` (of the ISR) and `still` (in a stall) are 1 where that begins, -1 where it ends.
    """
    out = (
        churn.isr_intervals(events, end_ms)
        .join(stalls.select(*REPLICA).distinct(), on=list(PARTITION), how="inner")
        .where("not array_contains(isr, replica)")
        .select(*REPLICA, "from_ms", "to_ms", F.lit(1).alias("out"), F.lit(0).alias("still"))
    )
    still = stalls.where("from_ms is not null").selectExpr("*", "0 as out", "1 as still")
    ends = """inline(array(struct(from_ms as ts_ms, out, still),
        struct(to_ms as ts_ms, -out as out, -still as still)))"""
    return (
        out.unionByName(still)
        .selectExpr(*REPLICA, ends)
        .where(f"ts_ms <= {end_ms}")
        .groupBy(*REPLICA, "ts_ms")
        .agg(*columns("sum(out) as out", "sum(still) as still"))
        .where("out != 0 or still != 0")
    )
