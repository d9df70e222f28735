"""Whose fault is it: does a leader lose its followers, or a follower its leaders?

Theory of operation. A follower that is slow, or stands still, leaves the ISRs of *all* leaders it
reads from; a leader that is slow loses *all* its followers, healthy as they are (KAFKA-8733). A
broker whose whole machine was away is evicted by others, and may evict them itself. So the
evictions of one incident are counted by leader, by evicted replica, and by broker in either role.
An *incident* are evictions of one run that follow each other within `quiet_ms`: leaders look at
their ISRs only every half lag limit, and not together.

Only evictions that a leader made count. What a controller removes (a broker that was shut down or
fenced) needs no verdict. Several troubles at once in a large cluster are one incident, and end as
"unclear"; so does one partition that loses one replica: it names one leader and one replica.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from isrlab.churn.history import PARTITION, detail, is_shrink, isr_history
from isrlab.churn.questions import isr_intervals, most_replicas
from isrlab.fleet import load
from isrlab.fleet.config import FleetConfig, listed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame, SparkSession

QUIET_MS = 30_000
SHARE = 0.8
_EVICTION = ("run", "partition", "leader", "replica", "ts_ms")
_ROLES = ("leader", "replica", "broker")  # the last: in either


def evicted(events: DataFrame) -> DataFrame:
    """Each replica that a leader took out of an ISR: run, topic, partition, leader, replica, ts_ms.

    Source: what isr_history takes for stored; a shrink that was only announced does not count.
    """
    left = F.explode(F.array_except("isr_before", "isr")).alias("replica")
    return (
        isr_history(events)
        .where(is_shrink() & (F.col("by") == "leader"))
        .select(*PARTITION, "leader", left, "ts_ms")
    )


def blame(events: DataFrame, quiet_ms: int = QUIET_MS, share: float = SHARE) -> DataFrame:
    """Each incident of evictions, and who is to blame for it.

    `leader` and `replica` are the ones with most evictions, `leader_share` and `replica_share` (0
    to 1) their part of all; `broker` is in most evictions, as either. `verdict`: "leader 1" or
    "follower 1" if that one has at least `share` of the evictions and nobody has so many in the
    other role; "broker 1" if neither, but one broker is in so many, and in both roles; else
    "unclear". Raises ValueError unless `quiet_ms` is positive and `share` is above 0.5, up to 1.
    """
    if quiet_ms <= 0:
        raise ValueError(f"quiet_ms must be positive, not {quiet_ms}")
    if not 0.5 < share <= 1:
        raise ValueError(f"share must be above 0.5 and at most 1, not {share}")
    totals = [
        F.min("ts_ms").alias("from_ms"),
        F.max("ts_ms").alias("to_ms"),
        F.count("*").alias("evictions"),
        F.count_distinct("topic", "partition").alias("partitions"),
        F.collect_list(F.struct("leader", "replica")).alias("pairs"),
    ]
    tops = {role: _most(role) for role in _ROLES}
    named = [name for role in _ROLES for name in (role, f"{role}_share")]
    return (
        _numbered(evicted(events), quiet_ms)
        .groupBy("run", "incident")
        .agg(*totals)
        .withColumns({f"{role}_top": top for role, top in tops.items()})
        .withColumns({role: -F.col(f"{role}_top")["broker"] for role in _ROLES})
        .withColumns(
            {f"{r}_share": F.col(f"{r}_top")["count"] / F.col("evictions") for r in _ROLES}
        )
        .withColumn("verdict", _verdict(share))
        .orderBy("run", "from_ms")
        .select("run", "from_ms", "to_ms", "evictions", "partitions", *named, "verdict")
    )


def evictions_by_pair(events: DataFrame) -> DataFrame:
    """How often each leader evicted each replica: run, leader, replica, evictions."""
    return (
        evicted(events)
        .groupBy("run", "leader", "replica")
        .agg(F.count("*").alias("evictions"))
        .orderBy("run", "leader", "replica")
        .select("run", "leader", "replica", "evictions")
    )


def under_replicated_by_leader(events: DataFrame, end_ms: int | None = None) -> DataFrame:
    """For each leader, how long its partitions together lacked a replica, or had one copy only.

    What UnderReplicatedPartitions of that broker adds up to, in milliseconds; `end_ms` as in
    `isr_intervals`.
    """
    length, size = F.col("to_ms") - F.col("from_ms"), F.col("isr_size")
    is_under = (size < F.col("most")) & F.col("is_certain")
    times = [
        F.sum(F.when(is_under, length).otherwise(0)).alias("under_replicated_ms"),
        F.sum(F.when(is_under & (size <= 1), length).otherwise(0)).alias("one_copy_ms"),
    ]
    return (
        isr_intervals(events, end_ms)
        .join(most_replicas(events), on=list(PARTITION), how="inner")
        .groupBy("run", "leader")
        .agg(*times)
        .orderBy("run", "leader")
        .select("run", "leader", "under_replicated_ms", "one_copy_ms")
    )


def troubles(spark: SparkSession, configs: FleetConfig | Iterable[FleetConfig]) -> DataFrame:
    """What simulated fleets suffered: run, cause ("leader 1", "follower 1"), broker, from, to."""
    kinds = {"leader": load.leader_stalls, "follower": load.stalls}
    rows = [
        (config.run, f"{role} {broker}", broker, int(start), int(end))
        for config in listed(configs)
        for role, stalls in kinds.items()
        for broker in range(1, config.brokers + 1)
        for start, end in zip(*stalls(config, broker), strict=True)
    ]
    return spark.createDataFrame(
        rows, "run string, cause string, broker int, from_ms long, to_ms long"
    )


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


def spared(events: DataFrame, troubles: DataFrame) -> DataFrame:
    """Simulated evictions, and whether a fetch that waits at the leader would have prevented each.

    `is_spared`: the leader stood still at that moment, and the evicted follower, which did not,
    had sent its next fetch (KIP-501 wants to count that). `is_after`: a stall of the leader had
    ended less than the follower's silence ago: its fetch was answered, but not yet the next one.
    """
    rows = (
        events.where("kind = 'isr_shrink'")
        .withColumn("replica", F.explode(F.array_except("isr_before", "isr")))
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


def _numbered(evictions: DataFrame, quiet_ms: int) -> DataFrame:
    """Evictions with the number of their incident."""
    order = Window.partitionBy("run").orderBy("ts_ms")
    gap = F.col("ts_ms") - F.lag("ts_ms").over(order)
    return evictions.withColumn(
        "starts", F.when(gap.isNull() | (gap > quiet_ms), 1).otherwise(0)
    ).withColumn("incident", F.sum("starts").over(order))


def _most(role: str) -> Column:
    """Who has most evictions of an incident in a role, and how many; of equals the lowest number.

    The number is negative, so that the greatest of these is the answer.
    """
    sides = ("leader", "replica") if role == "broker" else (role,)
    brokers = F.array_distinct(F.concat(*[F.col("pairs")[side] for side in sides]))

    def counted(broker: Column) -> Column:
        def is_in(pair: Column) -> Column:
            return F.array_contains(F.array(*[pair[side] for side in sides]), broker)

        count = F.size(F.filter("pairs", is_in))
        return F.struct(count.alias("count"), (-broker).alias("broker"))

    return F.array_max(F.transform(brokers, counted))


def _verdict(share: float) -> Column:
    leads, follows = F.col("leader_share") >= share, F.col("replica_share") >= share
    is_either = (F.col("leader_share") < 1) & (F.col("broker_share") >= share)
    return (
        F.when(leads & ~follows, F.format_string("leader %d", "leader"))
        .when(follows & ~leads, F.format_string("follower %d", "replica"))
        .when(~leads & ~follows & is_either, F.format_string("broker %d", "broker"))
        .otherwise("unclear")
    )
