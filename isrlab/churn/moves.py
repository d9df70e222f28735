"""Who left an ISR and who joined it, for how long, and who came back for nothing.

A *move* is one replica that leaves or joins the stored ISR of one partition. All that is asked
about replicas, and not about sizes of ISRs, is asked of `moves`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from isrlab.churn.history import LATE_NEWS_MS, PARTITION, detail, isr_history, members

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame

LEAVES, JOINS = CHANGES = ("leaves", "joins")
OUTAGES_SCHEMA = "run string, broker int, down_ms long, up_ms long"
REPLICA = (*PARTITION, "replica")
_OUTAGE = ("run", "broker", "down_ms", "up_ms")


def moves(events: DataFrame) -> DataFrame:
    """Each replica that leaves or joins an ISR: run, topic, partition, replica, change, ts_ms.

    `change` is "leaves" or "joins"; `leader`, `by` and `isr_change` are what `isr_history` says of
    the change of the ISR.
    """
    left = F.transform(F.array_except("isr_before", "isr"), _as(LEAVES))
    joined = F.transform(F.array_except("isr", "isr_before"), _as(JOINS))
    told = ("ts_ms", "leader", "by", "isr_change")
    return (
        isr_history(events)
        .withColumnRenamed("change", "isr_change")
        .select(*PARTITION, *told, F.explode(F.concat(left, joined)).alias("move"))
        .select(*PARTITION, "move.*", *told)
    )


def _as(change: str) -> Callable[[Column], Column]:
    """A replica with what it does."""
    return lambda replica: F.struct(replica.alias("replica"), F.lit(change).alias("change"))


def removals(events: DataFrame) -> DataFrame:
    """Each replica that a shrink took out, whoever made it; columns as in `moves`."""
    return moves(events).where((F.col("change") == LEAVES) & (F.col("isr_change") == "shrink"))


def evictions(events: DataFrame) -> DataFrame:
    """Each replica that a leader took out of an ISR: run, topic, partition, leader, replica, ts_ms.

    What `isr_history` takes for stored; a shrink that was only announced does not count.
    """
    return removals(events).where("by = 'leader'").select(*PARTITION, "leader", "replica", "ts_ms")


def asked_to_leave(events: DataFrame) -> DataFrame:
    """Each replica that a leader asked to drop, stored or not: the row of the shrink, `replica`."""
    leaving = F.explode(F.array_except(members("isr_before"), members("isr")))
    return events.where("kind = 'isr_shrink'").withColumn("replica", leaving)


def absences(events: DataFrame) -> DataFrame:
    """Each time a replica left an ISR and came back: replica, `left_ms`, `back_ms`, `out_ms`."""
    is_left = F.col("change") == LEAVES
    order = Window.partitionBy(*REPLICA).orderBy("ts_ms", is_left)
    left_ms = F.when(F.lag(is_left).over(order), F.lag("ts_ms").over(order))
    return (
        moves(events)
        .withColumn("left_ms", left_ms)
        .where(~is_left & F.col("left_ms").isNotNull())
        .withColumnRenamed("ts_ms", "back_ms")
        .withColumn("out_ms", F.col("back_ms") - F.col("left_ms"))
        .select(*REPLICA, "left_ms", "back_ms", "out_ms")
    )


def flaps(events: DataFrame, within_ms: int = 60_000) -> DataFrame:
    """The replicas that left an ISR and were back within `within_ms`: each a shrink for nothing.

    Columns as in `absences`. Raises ValueError if `within_ms` is negative.
    """
    if within_ms < 0:
        raise ValueError(f"within_ms must be 0 or more, not {within_ms}")
    return absences(events).where(F.col("out_ms") <= within_ms).orderBy("left_ms", *PARTITION)


def slowest_expansions(events: DataFrame, most: int = 10) -> DataFrame:
    """How long replicas were out before they rejoined, longest first, at most `most` rows.

    Columns as in `absences`. A replica whose leaving no line tells is not in it, nor one that has
    not come back. Raises ValueError if `most` is negative.
    """
    if most < 0:
        raise ValueError(f"most must be 0 or more, not {most}")
    return absences(events).orderBy(F.desc("out_ms"), "left_ms", *REPLICA).limit(most)


def rejoin_times(events: DataFrame) -> DataFrame:
    """Every return to an ISR: columns as in `absences`, and the replica's lag when it left.

    `lag_records` is null where no line tells the offsets: logs do so since 2.2. Longest first.
    """
    out, asked = absences(events).alias("out"), _lag_when_asked(events).alias("asked")
    same = [F.col(f"out.{key}") == F.col(f"asked.{key}") for key in REPLICA]
    before = F.col("left_ms") - F.col("asked_ms")
    columns = [*REPLICA, "left_ms", "back_ms", "out_ms"]
    return (
        out.join(asked, on=[*same, before.between(0, LATE_NEWS_MS)], how="left")
        .groupBy(*[F.col(f"out.{name}").alias(name) for name in columns])
        .agg(F.max_by("lag_records", "asked_ms").alias("lag_records"))
        .orderBy(F.desc("out_ms"), "left_ms", *REPLICA)
        .select(*columns, "lag_records")
    )


def _lag_when_asked(events: DataFrame) -> DataFrame:
    """Each replica that a leader asked to drop, `asked_ms`, and the records it lacked, if told."""
    end = F.coalesce("log_end_offset", detail("log_end_offset").try_cast("long"))
    at = F.array_position(F.split(detail("out_of_sync"), ","), F.col("replica").cast("string"))
    ends = F.split(detail("out_of_sync_end_offset"), ",")
    reached = F.try_element_at(ends, F.when(at > 0, at.cast("int"))).try_cast("long")
    lag = F.coalesce(detail("lag_records").try_cast("long"), end - reached)
    asked_ms = F.col("ts_ms").alias("asked_ms")
    return asked_to_leave(events).select(*REPLICA, asked_ms, lag.alias("lag_records"))


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
    is_before, is_leave = F.col("ts_ms") <= F.col("up_ms"), F.col("change") == LEAVES
    last_left = F.max_by(is_leave, F.when(is_before, F.col("ts_ms")))
    first_joins = F.min_by(~is_leave, F.when(~is_before, F.col("ts_ms")))
    joined = F.min(F.when(~is_before & ~is_leave, F.col("ts_ms")))
    back = F.col("back_ms") - F.col("up_ms")
    totals = [
        F.count("*").alias("partitions"),
        F.count_if(F.col("back_ms").isNull()).alias("still_out"),
        F.min(back).alias("first_ms"),
        F.median(back).alias("median_ms"),
        F.max(back).alias("last_ms"),
    ]
    return (
        moves(events)
        .withColumnRenamed("replica", "broker")
        .join(F.broadcast(known), on=["run", "broker"], how="inner")
        .where(F.col("ts_ms") < F.col("until_ms"))
        .groupBy(*_OUTAGE, *PARTITION[1:])
        .agg(F.coalesce(last_left, first_joins).alias("was_out"), joined.alias("back_ms"))
        .where("was_out")
        .groupBy(*_OUTAGE)
        .agg(*totals)
        .orderBy("run", "down_ms", "broker")
        .select(*_OUTAGE, "partitions", "still_out", "first_ms", "median_ms", "last_ms")
    )
