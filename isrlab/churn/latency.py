"""How long producers with acks=all waited until every member of the ISR had their records.

Kafka's name for that time is RemoteTimeMs of Produce requests. It begins when the leader has
appended (or first refused) the batch, so the way from the producer and back is not in it. A fleet
counts produces by class of latency: `latency_ms` is the least of its class (exact below 16 ms, then
eighths of a doubling). Rows without a latency, as the engine writes them, are left out; so are
produces that failed (`refused_produce` has those) and those with acks=0 or 1, which wait for
nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from isrlab.churn.costs import hour, keys_of
from isrlab.churn.history import detail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

PER_MILLE = {"p50_ms": 500, "p90_ms": 900, "p99_ms": 990, "p999_ms": 999, "max_ms": 1_000}


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
    """One row for each key and class of latency: how many produces waited so long.

    A row that does not say how many it tells of tells of one.
    """
    keys = keys_of(by)
    count = F.coalesce(detail("count").try_cast("long"), F.lit(1))
    return (
        events.where("kind = 'produce_ack'")
        .withColumns({"hour": hour(), "latency_ms": detail("latency_ms").try_cast("long")})
        .where("latency_ms is not null")
        .groupBy(*keys, "latency_ms")
        .agg(F.sum(count).alias("count"))
        .orderBy(*keys, "latency_ms")
        .select(*keys, "latency_ms", "count")
    )
