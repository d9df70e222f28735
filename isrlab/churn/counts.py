"""Counts: ISR changes, refused produces, latencies.

Kafka's name for how long producers with acks=all wait for the ISR is RemoteTimeMs of Produce
requests. It begins when the leader has appended (or first refused) the batch, so it excludes the
network time. A fleet counts produces by latency class, in rows of kind `latency`: `latency_ms` is
the lower bound of its class (exact below 16 ms, above that eight classes for each doubling).
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from isrlab.churn.history import PARTITION, columns, isr_history

HOUR_MS = 3_600_000
KEYS = ("run", "topic", "partition", "broker", "hour")
PER_MILLE = {"p50_ms": 500, "p90_ms": 900, "p99_ms": 990, "p999_ms": 999, "max_ms": 1_000}


def changes_by_partition(events: DataFrame) -> DataFrame:
    """How often the ISR of each partition shrank and grew, most changes first.

    `shrinks` and `expands` do not count changes that replace members. `shrinks_by_controller` are
    the shrinks that no leader requested: IsrShrinksPerSec leaves them out. `rejected` counts
    refused changes, as FailedIsrUpdatesPerSec does.
    """
    totals = columns(
        "count_if(change = 'shrink') as shrinks",
        "count_if(change = 'expand') as expands",
        "count_if(change = 'shrink' and by = 'controller') as shrinks_by_controller",
    )
    changes = isr_history(events).groupBy(*PARTITION)
    rejected = events.where("kind = 'isr_rejected'").groupBy(*PARTITION)
    return (
        changes.agg(*totals)
        .join(rejected.agg(F.count("*").alias("rejected")), on=list(PARTITION), how="full")
        .na.fill(0)
        .orderBy(F.expr("shrinks + expands").desc(), *PARTITION)
        .select(*PARTITION, "shrinks", "expands", "shrinks_by_controller", "rejected")
    )


def refused_produce(events: DataFrame, by: Sequence[str] = PARTITION) -> DataFrame:
    """Produces that were refused or timed out: how many of each error, and when.

    `by` is any of run, topic, partition, broker and hour. `error` is Kafka's name, null if the line
    does not name it. DELIVERY_TIMEOUT (in fleets) is a produce that was refused, retried and given
    up, so it counts under both errors.
    """
    keys = keys_of(by)
    totals = ("count(*) as produces", "min(ts_ms) as first_ms", "max(ts_ms) as last_ms")
    return (
        events.where("kind = 'produce_error'")
        .withColumns({"hour": hour(), "error": F.col("detail.error")})
        .groupBy(*keys, "error")
        .agg(*columns(*totals))
        .orderBy(F.desc("produces"), *keys, "error")
        .select(*keys, "error", "produces", "first_ms", "last_ms")
    )


def hour() -> Column:
    """The hour of an event, counted from the time 0 of its clock."""
    return F.floor(F.col("ts_ms") / HOUR_MS)


def keys_of(by: Sequence[str]) -> list[str]:
    """`by` as a list; raises ValueError if it is empty or has an unknown key."""
    if not by or not set(by) <= set(KEYS):
        raise ValueError(f"by={tuple(by)!r}; valid: one or more of {', '.join(KEYS)}")
    return list(by)


def commit_latency(events: DataFrame, by: Sequence[str] = ("run",)) -> DataFrame:
    """One row for each key: `count` of produces, and quantiles of how long they waited.

    A quantile is the lowest class that has, with those below it, that share of the produces;
    `max_ms` is the highest class. `by` is any of run, topic, partition, broker (the leader), hour.
    """
    keys = keys_of(by)
    quantiles = [
        f"min(latency_ms) filter (where so_far * 1000 >= all_of_them * {share}) as {name}"
        for name, share in PER_MILLE.items()
    ]
    each = Window.partitionBy(*keys)
    return (
        latency_histogram(events, keys)
        .withColumn("so_far", F.sum("count").over(each.orderBy("latency_ms")))
        .withColumn("all_of_them", F.sum("count").over(each))
        .groupBy(*keys)
        .agg(F.sum("count").alias("count"), *columns(*quantiles))
        .orderBy(*keys)
        .select(*keys, "count", *PER_MILLE)
    )


def latency_histogram(events: DataFrame, by: Sequence[str] = ("run",)) -> DataFrame:
    """One row for each key and `latency_ms`: the `count` of produces with acks=all in that class.

    An event without a count stands for one produce. Left out are produces that failed
    (`refused_produce` has those) and those with acks=0 or 1, which wait for no replica.
    """
    keys = keys_of(by)
    is_all = "kind in ('latency', 'produce_ack') and coalesce(detail.acks, '-1') = '-1'"
    latency_ms = F.expr("try_cast(detail.latency_ms as long)")
    return (
        events.where(is_all)
        .withColumns({"hour": hour(), "latency_ms": latency_ms})
        .where("latency_ms is not null")
        .groupBy(*keys, "latency_ms")
        .agg(F.expr("sum(coalesce(try_cast(detail.count as long), 1L)) as count"))
        .orderBy(*keys, "latency_ms")
        .select(*keys, "latency_ms", "count")
    )
