"""The questions: how often does the ISR change, who leaves it, for how long, and what does it cost?

Every question takes a DataFrame of events (`events.SCHEMA`) and returns a DataFrame; its last step
is a `select` that says which columns. They do not know whether a simulation or a real broker spoke.
All but the last ask `isr_history`, so that a change which several logs tell counts once.
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
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame


def isr_intervals(events: DataFrame, end_ms: int | None = None) -> DataFrame:
    """From when to when each ISR held. The last one of a partition holds until `end_ms`.

    `end_ms` (milliseconds since the epoch) defaults to the last event of the run. `is_certain` is
    false where the logs miss changes before `to_ms`: for a part of it the ISR may have been
    another.
    """
    ends = events.groupBy("run").agg(F.max("ts_ms").alias("end_ms"))
    order = Window.partitionBy(*PARTITION).orderBy("ts_ms")
    next_ms = F.lead("ts_ms").over(order)
    misses_some = next_ms.isNotNull() & F.lead("isr_before").over(order).isNull()
    end = F.lit(end_ms) if end_ms is not None else F.col("end_ms")
    rows = isr_history(events).join(F.broadcast(ends), on="run", how="inner")
    return (
        rows.withColumn("is_certain", ~misses_some)
        .withColumn("to_ms", F.least(F.coalesce(next_ms, end), end))
        .where(F.col("to_ms") >= F.col("ts_ms"))
        .select(
            *PARTITION,
            F.col("ts_ms").alias("from_ms"),
            F.col("to_ms").cast("long").alias("to_ms"),
            "isr",
            F.size("isr").alias("isr_size"),
            "leader",
            "is_certain",
        )
    )


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


def under_replicated(
    events: DataFrame, replicas: int | None = None, end_ms: int | None = None
) -> DataFrame:
    """How long each partition had fewer replicas in its ISR than it has replicas, in milliseconds.

    A partition's `replicas` are, unless given, the most that any event names: the largest ISR, or
    an assignment in `detail.replicas`. `time_with_one_copy_ms` is the time in which one more
    failure would have taken it offline (0 for a partition that has a single replica anyway).
    `known_ms` is how long its ISR is known for certain, and only that time counts; `uncertain_ms`
    is the time in which the logs miss changes. Kafka's metric UnderReplicatedPartitions counts
    partitions at a moment: this is its integral.
    """
    count = F.lit(replicas) if replicas is not None else F.col("most")
    all_of_it = F.col("to_ms") - F.col("from_ms")
    length = F.when(F.col("is_certain"), all_of_it).otherwise(0)
    is_under = F.col("isr_size") < F.col("replicas")
    is_alone = is_under & (F.col("isr_size") <= 1)
    times = [
        F.sum(length).alias("known_ms"),
        F.sum(all_of_it - length).alias("uncertain_ms"),
        F.sum(F.when(is_under, length).otherwise(0)).alias("under_replicated_ms"),
        F.sum(F.when(is_alone, length).otherwise(0)).alias("time_with_one_copy_ms"),
    ]
    return (
        isr_intervals(events, end_ms)
        .join(most_replicas(events), on=list(PARTITION), how="inner")
        .withColumn("replicas", count.cast("int"))
        .groupBy(*PARTITION, "replicas")
        .agg(*times)
        .orderBy(F.desc("under_replicated_ms"), *PARTITION)
        .select(
            *PARTITION,
            "replicas",
            "known_ms",
            "under_replicated_ms",
            "time_with_one_copy_ms",
            "uncertain_ms",
        )
    )


def flaps(events: DataFrame, within_ms: int = 60_000) -> DataFrame:
    """The replicas that left an ISR and were back within `within_ms`: each a shrink for nothing.

    Raises ValueError if `within_ms` is negative.
    """
    if within_ms < 0:
        raise ValueError(f"within_ms must be 0 or more, not {within_ms}")
    return absences(events).where(F.col("out_ms") <= within_ms).orderBy("left_ms", *PARTITION)


def slowest_expansions(events: DataFrame, most: int = 10) -> DataFrame:
    """How long replicas were out before they rejoined, longest first, at most `most` rows.

    A replica whose leaving no line tells is not in it, nor one that has not come back. Raises
    ValueError if `most` is negative.
    """
    if most < 0:
        raise ValueError(f"most must be 0 or more, not {most}")
    longest = [F.desc("out_ms"), "left_ms", *PARTITION, "replica"]
    return absences(events).orderBy(*longest).limit(most)


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


def absences(events: DataFrame) -> DataFrame:
    """Each time a replica left an ISR and came back: when, when, and the milliseconds between."""
    left = F.transform(F.array_except("isr_before", "isr"), _move(True))
    back = F.transform(F.array_except("isr", "isr_before"), _move(False))
    moves = (
        isr_history(events)
        .select(*PARTITION, "ts_ms", F.explode(F.concat(left, back)).alias("move"))
        .select(*PARTITION, "ts_ms", "move.*")
    )
    order = Window.partitionBy(*PARTITION, "replica").orderBy("ts_ms", "is_left")
    left_ms = F.when(F.lag("is_left").over(order), F.lag("ts_ms").over(order))
    return (
        moves.withColumn("left_ms", left_ms)
        .where(~F.col("is_left") & F.col("left_ms").isNotNull())
        .select(
            *PARTITION,
            "replica",
            "left_ms",
            F.col("ts_ms").alias("back_ms"),
            (F.col("ts_ms") - F.col("left_ms")).alias("out_ms"),
        )
    )


def _move(is_left: bool) -> Callable[[Column], Column]:
    """A replica as one that left, or as one that came back."""
    return lambda replica: F.struct(replica.alias("replica"), F.lit(is_left).alias("is_left"))


def most_replicas(events: DataFrame) -> DataFrame:
    """The most replicas that any event of a partition names, in an ISR or in an assignment."""
    assigned = F.size(F.split(detail("replicas"), ","))
    sizes = [F.coalesce(F.size(name), F.lit(0)) for name in ("isr", "isr_before")]
    named = F.greatest(*sizes, F.coalesce(assigned, F.lit(0)))
    return events.groupBy(*PARTITION).agg(F.max(named).alias("most"))
