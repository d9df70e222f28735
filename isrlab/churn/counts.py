"""How often: ISR changes, refused produces, latencies, and the work for controller and brokers.

Kafka's name for how long producers with acks=all wait for the ISR is RemoteTimeMs of Produce
requests. It begins when the leader has appended (or first refused) the batch, so the way from the
producer and back is not in it. A fleet counts produces by class of latency, in rows of their own
(`latency`): `latency_ms` is the least of its class (exact below 16 ms, then eighths of a doubling).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from isrlab.churn.history import (
    OWN,
    PARTITION,
    REQUESTS,
    detail,
    is_expand,
    is_own,
    is_shrink,
    isr_history,
    members,
    place,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

HOUR_MS = 3_600_000
KEYS = ("run", "topic", "partition", "broker", "hour")
PER_MILLE = {"p50_ms": 500, "p90_ms": 900, "p99_ms": 990, "p999_ms": 999, "max_ms": 1_000}


def changes_by_partition(events: DataFrame) -> DataFrame:
    """How often the ISR of each partition shrank and grew, most changes first.

    `shrinks` and `expands` count every change. `shrinks_by_controller` are those among the shrinks
    that no leader asked for: IsrShrinksPerSec leaves them out. `rejected` counts refused changes,
    as FailedIsrUpdatesPerSec does.
    """
    by_controller = F.col("by") == "controller"
    totals = [
        F.count_if(is_shrink()).alias("shrinks"),
        F.count_if(is_expand()).alias("expands"),
        F.count_if(is_shrink() & by_controller).alias("shrinks_by_controller"),
    ]
    rejected = (
        events.where("kind = 'isr_rejected'")
        .groupBy(*PARTITION)
        .agg(F.count("*").alias("rejected"))
    )
    return (
        isr_history(events)
        .groupBy(*PARTITION)
        .agg(*totals)
        .join(rejected, on=list(PARTITION), how="full")
        .na.fill(0)
        .orderBy(F.desc(F.col("shrinks") + F.col("expands")), *PARTITION)
        .select(*PARTITION, "shrinks", "expands", "shrinks_by_controller", "rejected")
    )


def changes_over_time(events: DataFrame, bucket_ms: int = 60_000) -> DataFrame:
    """Shrinks and expands of all partitions in each `bucket_ms`; empty intervals are left out.

    Raises ValueError unless `bucket_ms` is positive.
    """
    if bucket_ms <= 0:
        raise ValueError(f"bucket_ms must be positive, not {bucket_ms}")
    from_ms = (F.floor(F.col("ts_ms") / bucket_ms) * bucket_ms).alias("from_ms")
    counts = [
        F.count_if(is_shrink()).alias("shrinks"),
        F.count_if(is_expand()).alias("expands"),
    ]
    return (
        isr_history(events)
        .where(is_shrink() | is_expand())
        .groupBy("run", from_ms)
        .agg(*counts)
        .orderBy("run", "from_ms")
        .select("run", "from_ms", "shrinks", "expands")
    )


def commit_delay(events: DataFrame) -> DataFrame:
    """Milliseconds from the change a leader asked for to its commit, for each that was committed.

    Both times are of the leader's own clock. On releases that print no commit there is none.
    """
    order = Window.partitionBy(*PARTITION, "broker").orderBy("ts_ms", "place")
    rows = events.where(F.col("kind").isin(*OWN) & is_own()).withColumn("place", place())
    follows = (F.lead("kind").over(order) == "isr_commit") & (
        members(F.lead("isr").over(order)) == members("isr")
    )
    committed_ms = F.when(follows, F.lead("ts_ms").over(order))
    return (
        rows.withColumn("committed_ms", committed_ms)
        .where(F.col("kind").isin(*REQUESTS) & F.col("committed_ms").isNotNull())
        .orderBy("ts_ms", *PARTITION)
        .select(
            *PARTITION,
            "broker",
            "kind",
            F.col("ts_ms").alias("asked_ms"),
            "committed_ms",
            (F.col("committed_ms") - F.col("ts_ms")).alias("delay_ms"),
        )
    )


def refused_produce(events: DataFrame, by: Sequence[str] = PARTITION) -> DataFrame:
    """Produces that were refused or timed out: how many of each error, from when to when.

    `by` is any of run, topic, partition, broker and hour. `error` is Kafka's name, null where the
    line does not tell it; DELIVERY_TIMEOUT (of fleets) is a producer that gives up a produce which
    was refused and tried again, so that one counts under both.
    """
    keys = keys_of(by)
    totals = [
        F.count("*").alias("produces"),
        F.min("ts_ms").alias("first_ms"),
        F.max("ts_ms").alias("last_ms"),
    ]
    return (
        events.where("kind = 'produce_error'")
        .withColumns({"hour": hour(), "error": detail("error")})
        .groupBy(*keys, "error")
        .agg(*totals)
        .orderBy(F.desc("produces"), *keys, "error")
        .select(*keys, "error", "produces", "first_ms", "last_ms")
    )


def controller_load(events: DataFrame, by: Sequence[str] = ("run",)) -> DataFrame:
    """What ISR changes ask of the controller, by any of run, broker (who asks) and hour.

    `isr_requests` are changes that leaders asked for, again and again where they were refused
    (AlterPartition since 2.7, a write to ZooKeeper before); `rejected` those refused;
    `notifications` announcements of changes through ZooKeeper; `metadata_updates` what brokers
    then learned from the controller, one for each broker and partition.
    A row that tells of several brokers (`detail.brokers`, as fleets write it) counts for them all.
    """
    order = Window.partitionBy(*PARTITION, "broker").orderBy("ts_ms", "place")
    is_answer = F.lag("kind").over(order).isin(*REQUESTS)
    is_unannounced = (F.col("kind") == "isr_commit") & ~F.coalesce(is_answer, F.lit(False))
    from_log = detail("file").isNotNull()
    asks = F.col("kind").isin(*REQUESTS) | (is_unannounced & from_log)
    own = events.where(F.col("kind").isin(*OWN) & is_own()).withColumn("place", place())
    counted = own.select(*events.columns, asks.alias("asks")).unionByName(
        events.where("kind in ('notify', 'metadata')").withColumn("asks", F.lit(False))
    )
    totals = [
        F.count_if("asks").alias("isr_requests"),
        F.count_if(F.col("kind") == "isr_rejected").alias("rejected"),
        F.count_if(F.col("kind") == "notify").alias("notifications"),
        F.sum(F.when(F.col("kind") == "metadata", _told()).otherwise(0)).alias("metadata_updates"),
    ]
    return (
        counted.withColumn("hour", hour())
        .groupBy(*keys_of(by, ("run", "broker", "hour")))
        .agg(*totals)
        .orderBy(*by)
        .select(*by, "isr_requests", "rejected", "notifications", "metadata_updates")
    )


def time_until_known(events: DataFrame) -> DataFrame:
    """From the commit of an ISR until the last broker that says so had learned of it.

    `brokers` is how many said so, or how many a row says it tells of (`detail.brokers`), if more.
    Clocks of brokers differ: a difference can be negative.
    """
    keys = [*PARTITION, "partition_epoch"]
    is_metadata = F.col("kind") == "metadata"
    totals = [
        F.min(F.when(~is_metadata, F.col("ts_ms"))).alias("committed_ms"),
        F.max(F.when(is_metadata, F.col("ts_ms"))).alias("known_ms"),
        F.greatest(
            F.count_distinct(F.when(is_metadata, F.col("broker"))),
            F.max(F.when(is_metadata, _told())),
        ).alias("brokers"),
    ]
    return (
        events.where("kind in ('isr_commit', 'metadata') and partition_epoch is not null")
        .where("topic is not null and partition is not null")
        .groupBy(*keys)
        .agg(*totals)
        .where("committed_ms is not null and known_ms is not null")
        .orderBy("committed_ms", *keys)
        .select(
            *keys,
            "committed_ms",
            "brokers",
            (F.col("known_ms") - F.col("committed_ms")).alias("until_known_ms"),
        )
    )


def _told() -> Column:
    """How many brokers a row of metadata tells of."""
    return F.coalesce(detail("brokers").try_cast("long"), F.lit(1))


def hour() -> Column:
    """The hour of an event, counted from the time 0 of its clock."""
    return F.floor(F.col("ts_ms") / HOUR_MS)


def keys_of(by: Sequence[str], known: Sequence[str] = KEYS) -> list[str]:
    """`by` as a list; raises ValueError for a key that is not known, or if there is none."""
    unknown = [key for key in by if key not in known]
    if unknown or not by:
        raise ValueError(f"by={tuple(by)!r}; valid: one or more of {', '.join(known)}")
    return list(by)


def commit_latency(events: DataFrame, by: Sequence[str] = ("run",)) -> DataFrame:
    """One row for each key: `count` of produces, and quantiles of how long they waited.

    A quantile is the least class that holds, with those below it, so many of the produces;
    `max_ms` is the highest class. `by` is any of run, topic, partition, broker (the leader), hour.
    """
    keys = keys_of(by)
    quantiles = [
        F.min(F.when(F.col("so_far") * 1_000 >= F.col("all") * share, F.col("latency_ms"))).alias(n)
        for n, share in PER_MILLE.items()
    ]
    order = Window.partitionBy(*keys).orderBy("latency_ms")
    return (
        latency_histogram(events, keys)
        .withColumn("so_far", F.sum("count").over(order))
        .withColumn("all", F.sum("count").over(Window.partitionBy(*keys)))
        .groupBy(*keys)
        .agg(F.sum("count").alias("count"), *quantiles)
        .orderBy(*keys)
        .select(*keys, "count", *PER_MILLE)
    )


def latency_histogram(events: DataFrame, by: Sequence[str] = ("run",)) -> DataFrame:
    """One row for each key and `latency_ms`: `count` of produces with acks=all that waited so long.

    A row that does not say how many it tells of tells of one. Left out are produces that failed
    (`refused_produce` has those) and those with acks=0 or 1, which wait for nobody.
    """
    keys = keys_of(by)
    count = F.coalesce(detail("count").try_cast("long"), F.lit(1))
    is_all = F.coalesce(detail("acks"), F.lit("-1")) == "-1"
    return (
        events.where(F.col("kind").isin("latency", "produce_ack") & is_all)
        .withColumns({"hour": hour(), "latency_ms": detail("latency_ms").try_cast("long")})
        .where("latency_ms is not null")
        .groupBy(*keys, "latency_ms")
        .agg(F.sum(count).alias("count"))
        .orderBy(*keys, "latency_ms")
        .select(*keys, "latency_ms", "count")
    )
