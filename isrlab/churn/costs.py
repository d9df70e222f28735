"""What churn costs: time at and under min ISR, refused produces, slow returns, work for others.

Each takes a DataFrame of events and returns a DataFrame, as in `questions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from isrlab.churn.history import (
    LATE_NEWS_MS,
    OWN,
    PARTITION,
    REQUESTS,
    detail,
    is_own,
    members,
    place,
)
from isrlab.churn.questions import absences, isr_intervals, most_replicas

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

HOUR_MS = 3_600_000
KEYS = ("run", "topic", "partition", "broker", "hour")


def at_min_isr(events: DataFrame, min_insync_replicas: int, end_ms: int | None = None) -> DataFrame:
    """How long the ISR of each partition was exactly as large as `min.insync.replicas` demands.

    One replica less, and producers with acks=all are refused. AtMinIsrPartitionCount counts such
    partitions at a moment: this is its integral. A partition with fewer replicas needs only those
    (Partition.effectiveMinIsr). Raises ValueError unless `min_insync_replicas` is 1 or more.
    """
    times = isr_times(events, min_insync_replicas, end_ms=end_ms)
    return times.orderBy(F.desc("at_min_isr_ms"), *PARTITION).select(
        *PARTITION, "min_isr", "known_ms", "at_min_isr_ms"
    )


def under_min_isr(
    events: DataFrame, min_insync_replicas: int, end_ms: int | None = None
) -> DataFrame:
    """How long the ISR of each partition was too small for producers with acks=all.

    The integral of UnderMinIsrPartitionCount; otherwise as `at_min_isr`.
    """
    times = isr_times(events, min_insync_replicas, end_ms=end_ms)
    return times.orderBy(F.desc("under_min_isr_ms"), *PARTITION).select(
        *PARTITION, "min_isr", "known_ms", "under_min_isr_ms"
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


def rejoin_times(events: DataFrame) -> DataFrame:
    """Every return to an ISR: how long the replica was out, and its lag when it left.

    `lag_records` is null where no line tells the offsets: logs do so since 2.2. Longest first.
    """
    keys = [*PARTITION, "replica"]
    out = absences(events).alias("out")
    asked = _lag_when_asked(events).alias("asked")
    same = [F.col(f"out.{key}") == F.col(f"asked.{key}") for key in keys]
    before = F.col("left_ms") - F.col("asked_ms")
    told = out.join(asked, on=[*same, before.between(0, LATE_NEWS_MS)], how="left")
    columns = [*keys, "left_ms", "back_ms", "out_ms"]
    return (
        told.groupBy(*[F.col(f"out.{name}").alias(name) for name in columns])
        .agg(F.max_by("lag_records", "asked_ms").alias("lag_records"))
        .orderBy(F.desc("out_ms"), "left_ms", *keys)
        .select(*columns, "lag_records")
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


def isr_times(
    events: DataFrame,
    min_insync_replicas: int,
    *,
    replicas: int | None = None,
    end_ms: int | None = None,
) -> DataFrame:
    """All times of a partition by the size of its ISR, in one pass; only certain time counts.

    `replicas` as in `under_replicated`. Raises ValueError if `min_insync_replicas` is below 1.
    """
    if min_insync_replicas < 1:
        raise ValueError(f"min_insync_replicas must be 1 or more, not {min_insync_replicas}")
    count = F.lit(replicas) if replicas is not None else F.col("most")
    size = F.col("isr_size")
    held = {
        "known_ms": F.lit(True),
        "under_replicated_ms": size < F.col("replicas"),
        "one_copy_ms": (size <= 1) & (size < F.col("replicas")),
        "at_min_isr_ms": size == F.col("min_isr"),
        "under_min_isr_ms": size < F.col("min_isr"),
    }
    length = F.col("to_ms") - F.col("from_ms")
    times = [
        F.sum(F.when(is_held & F.col("is_certain"), length).otherwise(0)).alias(name)
        for name, is_held in held.items()
    ]
    return (
        isr_intervals(events, end_ms)
        .join(most_replicas(events), on=list(PARTITION), how="inner")
        .withColumn("replicas", count)
        .withColumn("min_isr", F.least(F.lit(min_insync_replicas), "replicas"))
        .groupBy(*PARTITION, "replicas", "min_isr")
        .agg(*times)
        .select(*PARTITION, "replicas", "min_isr", *held)
    )


def _lag_when_asked(events: DataFrame) -> DataFrame:
    """Each replica that a leader asked to drop, when, and the records it lacked, where told."""
    end = F.coalesce("log_end_offset", detail("log_end_offset").try_cast("long"))
    at = F.array_position(F.split(detail("out_of_sync"), ","), F.col("replica").cast("string"))
    ends = F.split(detail("out_of_sync_end_offset"), ",")
    reached = F.try_element_at(ends, F.when(at > 0, at.cast("int"))).try_cast("long")
    lag = F.coalesce(detail("lag_records").try_cast("long"), F.col("end") - reached)
    return (
        events.where("kind = 'isr_shrink'")
        .withColumn("replica", F.explode(F.array_except(members("isr_before"), members("isr"))))
        .withColumn("end", end)
        .select(*PARTITION, "replica", F.col("ts_ms").alias("asked_ms"), lag.alias("lag_records"))
    )
