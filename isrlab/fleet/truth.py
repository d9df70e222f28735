"""What only a simulation knows: who stood still, which evictions were false, what the ISR hid.

Three measures. Every shrink of a fleet carries in its `detail` how long ago the evicted follower
had everything the leader had at its last fetch but one (the lag clock of 0.10.2 and later, computed
whatever the version): an eviction is a *false alarm* if that was within `replica.lag.time.max.ms`.
By its *cause*: a broker whose fetchers stood still, or a leader that answered nobody. And the time
*at risk*: while a stalled follower is in the ISR, the ISR counts a copy that is not made, so the
high watermark stands still, producers with acks=all wait, and those with acks=1 write to fewer
brokers than anybody knows; once it is out, nobody waits, but a copy is missing.
`replica.lag.time.max.ms` decides where the first ends and the second begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from isrlab import churn
from isrlab.churn.blame import QUIET_MS
from isrlab.churn.history import PARTITION, detail
from isrlab.churn.moves import REPLICA, asked_to_leave
from isrlab.fleet import load
from isrlab.fleet.config import FleetConfig, listed
from isrlab.fleet.layout import TOPIC, assignment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame, SparkSession

    Configs = FleetConfig | Iterable[FleetConfig]

REQUEST_TIMEOUT_MS = 30_000  # request.timeout.ms of producers, by default
MINUTE_MS = 60_000
_EVICTION = ("run", "partition", "leader", "replica", "ts_ms")
_TROUBLES = "run string, cause string, broker int, from_ms long, to_ms long"


# False alarms


def evictions(events: DataFrame, runs: DataFrame) -> DataFrame:
    """One row for each shrink, with what the leader knew of the follower, and `is_false_alarm`.

    `replica` is null where several followers left at once; the times (ms) are then those of the one
    that was best off. In the order of `runs` (`fleet.runs`), then of time.
    """
    knew = ("lag_records", "since_fetch_ms", "since_caught_up_ms")
    return (
        events.where("kind = 'isr_shrink'")
        .withColumns({name: detail(name).cast("long") for name in knew})
        .withColumnRenamed("broker", "leader")
        .join(runs.select("run", "place", "lag_time_ms", "lag_messages"), on="run", how="inner")
        .withColumn("is_false_alarm", F.col("since_caught_up_ms") <= F.col("lag_time_ms"))
        .orderBy("place", "ts_ms", "partition")
        .select(
            *("run", "ts_ms", "partition", "leader", "replica", *knew),
            *("is_false_alarm", "lag_time_ms", "lag_messages"),
        )
    )


def alarms(runs: DataFrame, evictions: DataFrame) -> DataFrame:
    """One row for each run: its settings, shrinks and false alarms, also per hour."""
    names = ("shrinks", "false_alarms")
    false_alarms = F.count_if("is_false_alarm").alias("false_alarms")
    counts = evictions.groupBy("run").agg(F.count("*").alias("shrinks"), false_alarms)
    return (
        runs.join(counts, on="run", how="left")
        .na.fill(0, subset=list(names))
        .orderBy("place")
        .select(*runs.columns, *names, *[_per_hour(name) for name in names])
    )


def compared(
    runs: DataFrame, evictions: DataFrame, changes: DataFrame, absences: DataFrame
) -> DataFrame:
    """One row for each run: its settings, shrinks, false alarms, and under-replicated time.

    `evictions` is the answer of the question above, `changes` that of `churn.changes_by_partition`,
    `absences` that of `churn.under_replicated`. `under_replicated_minutes` adds up
    partition-minutes.
    """
    shrinks = changes.groupBy("run").agg(F.sum("shrinks").alias("shrinks"))
    false = evictions.groupBy("run").agg(F.count_if("is_false_alarm").alias("false_alarms"))
    minutes = (F.sum("under_replicated_ms") / MINUTE_MS).alias("under_replicated_minutes")
    names = ("shrinks", "false_alarms", "under_replicated_minutes")
    real = (F.col("shrinks") - F.col("false_alarms")).alias("real_evictions")
    return (
        runs.join(shrinks, on="run", how="left")
        .join(false, on="run", how="left")
        .join(absences.groupBy("run").agg(minutes), on="run", how="left")
        .na.fill(0, subset=list(names))
        .orderBy("place")
        .select(
            *(*runs.columns, "shrinks", "false_alarms", real),
            *(_per_hour("shrinks"), _per_hour("false_alarms"), "under_replicated_minutes"),
        )
    )


def _per_hour(name: str) -> Column:
    return (F.col(name) * 60 / F.col("minutes")).alias(f"{name}_per_hour")


# Causes


def troubles(spark: SparkSession, configs: Configs) -> DataFrame:
    """What simulated fleets suffered: run, cause ("leader 1", "follower 1"), broker, from, to."""
    kinds = {"leader": load.leader_stalls, "follower": load.stalls}
    rows = [
        (config.run, f"{role} {broker}", broker, int(start), int(end))
        for config in listed(configs)
        for role, stalls in kinds.items()
        for broker in range(1, config.brokers + 1)
        for start, end in zip(*stalls(config, broker), strict=True)
    ]
    return spark.createDataFrame(rows, _TROUBLES)


def judged_blame(blamed: DataFrame, troubles: DataFrame, after_ms: int = QUIET_MS) -> DataFrame:
    """Verdicts with what really went on: `causes`, and whether the verdict is one of them.

    "broker 1" is right, too, if that one was in trouble in both roles.

    A trouble is a cause if it lasted, or had ended within `after_ms`, when the incident began, or
    began in it.
    """
    true = troubles.select(
        F.col("run").alias("in_run"), "cause", F.col("from_ms").alias("began_ms"),
        (F.col("to_ms") + after_ms).alias("over_ms"),
    )  # fmt: skip
    at = (F.col("began_ms") <= F.col("to_ms")) & (F.col("over_ms") > F.col("from_ms"))
    both = [F.regexp_replace("verdict", "broker", role) for role in ("leader", "follower")]
    is_named = [F.array_contains("causes", cause) for cause in (F.col("verdict"), *both)]
    joined = blamed.join(true, on=[F.col("run") == F.col("in_run"), at], how="left")
    names = blamed.columns
    return (
        joined.groupBy(*names)
        .agg(F.array_sort(F.collect_set("cause")).alias("causes"))
        .orderBy("run", "from_ms")
        .select(*names, "causes", (is_named[0] | (is_named[1] & is_named[2])).alias("is_right"))
    )


def restarts(spark: SparkSession, configs: Configs) -> DataFrame:
    """When the brokers of simulated fleets were down, for `churn.rejoins`.

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
    return spark.createDataFrame(rows + new, churn.OUTAGES_SCHEMA)


def spared(events: DataFrame, troubles: DataFrame) -> DataFrame:
    """Simulated evictions, and whether a fetch that waits at the leader would have prevented each.

    `is_spared`: the leader stood still at that moment, and the evicted follower, which did not,
    had sent its next fetch (KIP-501 wants to count that). `is_after`: a stall of the leader had
    ended less than the follower's silence ago: its fetch was answered, but not yet the next one.
    """
    rows = (
        asked_to_leave(events)
        .withColumn("fetched_ms", F.col("ts_ms") - detail("since_fetch_ms").cast("long"))
        .select(*_EVICTION[:2], F.col("broker").alias("leader"), *_EVICTION[3:], "fetched_ms")
    )
    stall = troubles.select(F.col("run").alias("in_run"), "cause", "from_ms", "to_ms")
    leads = F.col("cause") == F.format_string("leader %d", "leader")
    reads = F.col("cause") == F.format_string("follower %d", "replica")
    stands = (F.col("ts_ms") >= F.col("from_ms")) & (F.col("ts_ms") < F.col("to_ms"))
    is_over = (F.col("ts_ms") >= F.col("to_ms")) & (F.col("fetched_ms") <= F.col("to_ms"))
    met = (F.col("run") == F.col("in_run")) & ((leads & (stands | is_over)) | (reads & stands))
    return (
        rows.join(F.broadcast(stall), on=met, how="left")
        .groupBy(*_EVICTION)
        .agg(
            (F.bool_or(leads & stands) & ~F.bool_or(reads)).alias("is_spared"),
            F.bool_or(leads & is_over).alias("is_after"),
        )
        .na.fill(False)
        .orderBy("run", "ts_ms", "partition", "replica")
        .select(*_EVICTION, "is_spared", "is_after")
    )


def stalls(spark: SparkSession, configs: Configs) -> DataFrame:
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
        for start, end in zip(*load.stalls(config, broker), strict=True)
    ]
    assigned = spark.createDataFrame(
        followers, "run string, topic string, partition int, replica int"
    )
    stood = spark.createDataFrame(times, "run string, replica int, from_ms long, to_ms long")
    return assigned.join(F.broadcast(stood), on=["run", "replica"], how="left").select(
        *REPLICA, "from_ms", "to_ms"
    )


def judged_evictions(events: DataFrame, stalls: DataFrame, patience_ms: int) -> DataFrame:
    """Every replica that a shrink took out of an ISR: its partition, replica, ts_ms, `is_false`.

    It was right if the follower stood still at that moment, in a stall longer than `patience_ms`;
    else it was false: the follower was at work, only behind, or would soon have been back anyway.
    """
    long = stalls.where(F.col("to_ms") - F.col("from_ms") > patience_ms).alias("long")
    same = [F.col(f"left.{key}") == F.col(f"long.{key}") for key in REPLICA]
    during = (F.col("ts_ms") >= F.col("from_ms")) & (F.col("ts_ms") < F.col("to_ms"))
    left = churn.removals(events).alias("left")
    return left.join(long, on=[*same, during], how="left").select(
        *[F.col(f"left.{key}").alias(key) for key in REPLICA],
        "ts_ms",
        F.col("from_ms").isNull().alias("is_false"),
    )


# Risk


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
        churn.isr_intervals(events, end_ms)
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
    hours = F.col("minutes") / 60
    counts = evictions.groupBy("run").agg(
        F.count_if("is_false").alias("false_evictions"),
        F.count_if(~F.col("is_false")).alias("right_evictions"),
    )
    times = ("at_risk", "under_replicated", "stalled")
    risks = risk.groupBy("run").agg(
        *[(F.sum(f"{name}_ms") / MINUTE_MS).alias(f"{name}_minutes") for name in times],
        F.sum("timeouts").alias("timeouts"),
    )
    names = [*counts.columns[1:], *risks.columns[1:]]
    limit_s = (F.col("lag_time_ms") / 1000).alias("lag_limit_s")
    return (
        runs.join(counts, on="run", how="left")
        .join(risks, on="run", how="left")
        .na.fill(0, subset=names)
        .groupBy(limit_s, "seed")
        .agg(*[F.sum(F.col(name) / hours).alias(name) for name in names])
        .orderBy("lag_limit_s", "seed")
        .select("lag_limit_s", "seed", *names)
    )
