"""Runs as rows of metrics, two runs compared, and how far seeds scatter.

Where Kafka has a metric for it, it bears that name. Kafka's gauges count partitions at a moment;
here they are the average over the run. Kafka's meters are rates; here too, over the whole run.
RemoteTimeMs is `kafka.network:type=RequestMetrics,name=RemoteTimeMs,request=Produce`; Kafka's has
the produces with acks=1, which do not wait, among the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import functions as F

from isrlab.churn.counts import HOUR_MS, commit_latency, controller_load, hour, keys_of
from isrlab.churn.history import detail, is_expand, is_shrink, isr_history
from isrlab.churn.moves import absences
from isrlab.churn.times import isr_times

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from pyspark.sql import Column, DataFrame

METRICS: dict[str, str] = {
    "IsrShrinksPerSec": "shrinks that leaders made, per second",
    "IsrExpandsPerSec": "expands, per second",
    "FailedIsrUpdatesPerSec": "ISR changes refused, per second",
    "UnderReplicatedPartitions": "partitions with a replica out of the ISR, on average",
    "AtMinIsrPartitionCount": "partitions with an ISR just as large as producers need, on average",
    "UnderMinIsrPartitionCount": "partitions that refuse acks=all, on average",
    "OneCopyPartitionCount": "replicated partitions with one replica in the ISR, on average",
    "FlapsPerHour": "replicas back in the ISR within the flap window, per hour",
    "MedianRejoinSeconds": "time out of the ISR before a return, median",
    "LongestRejoinSeconds": "time out of the ISR before a return, longest",
    "RefusedProducesPerSec": "produces refused or timed out, per second",
    "RemoteTimeMs50thPercentile": "ms that a produce with acks=all waited for the ISR, median",
    "RemoteTimeMs99thPercentile": "the same, 99th percentile",
    "IsrRequestsPerSec": "ISR changes asked of the controller (or ZooKeeper), per second",
}
FLAP_MS = 60_000
GIVEN_UP = "DELIVERY_TIMEOUT"  # of a produce that has been counted when it was refused


def rates(
    events: DataFrame,
    by: Sequence[str] = ("run",),
    *,
    from_ms: int | None = None,
    to_ms: int | None = None,
) -> DataFrame:
    """ISR changes per second, by any of run, topic, partition, broker (the leader) and hour.

    As in Kafka, shrinks that a controller made do not count in IsrShrinksPerSec. A run lasts from
    `from_ms` to `to_ms` (default: its first and last event); an hour, as much of it as the run
    covers. What never changed has no row. `seconds` is the time, null rates if that is 0.
    """
    keys = keys_of(by)
    names = ["IsrShrinksPerSec", "IsrExpandsPerSec", "FailedIsrUpdatesPerSec"]
    per_second = [
        (F.sum(name) / F.nullif(F.first("seconds"), F.lit(0.0))).alias(name) for name in names
    ]
    span = _spans(events, from_ms, to_ms)
    return (
        _counted(events)
        .withColumn("hour", hour())
        .join(F.broadcast(span), on="run", how="inner")
        .withColumn("seconds", _seconds("hour" in keys))
        .groupBy(*dict.fromkeys(["run", *keys]))
        .agg(*per_second, F.first("seconds").alias("seconds"))
        .orderBy(*keys)
        .select(*dict.fromkeys(["run", *keys]), "seconds", *names)
    )


def metrics(
    events: DataFrame,
    min_insync_replicas: int = 1,
    *,
    runs: Sequence[str] = (),
    replicas: int | None = None,
    from_ms: int | None = None,
    to_ms: int | None = None,
) -> DataFrame:
    """One row for each run: `run`, `hours`, and a column for each of `METRICS`.

    `runs` are runs that have a row even if nothing happened in them: a calm run has no events.
    `replicas` is the replication factor (default: by partition, the most that was ever seen). A run
    lasts from `from_ms` to `to_ms`, by default from its first to its last event.
    """
    ms = F.nullif(F.col("to_ms") - F.col("from_ms"), F.lit(0))
    seconds = ms / 1000
    out = (
        absences(events)
        .groupBy("run")
        .agg(
            F.count_if(F.col("out_ms") <= FLAP_MS).alias("flaps"),
            (F.median("out_ms") / 1000).alias("median_s"),
            (F.max("out_ms") / 1000).alias("longest_s"),
        )
    )
    is_refused = (F.col("kind") == "produce_error") & ~detail("error").eqNullSafe(GIVEN_UP)
    refused = events.groupBy("run").agg(F.count_if(is_refused).alias("refused"))
    names = ["under_replicated_ms", "one_copy_ms", "at_min_isr_ms", "under_min_isr_ms"]
    times = isr_times(
        events, min_insync_replicas, by=("run",), replicas=replicas, end_ms=to_ms
    ).select("run", *names)
    changes = rates(events, from_ms=from_ms, to_ms=to_ms).drop("seconds")
    asked = controller_load(events).select("run", "isr_requests")
    named = events.sparkSession.createDataFrame([(run,) for run in runs], "run string")
    rows = _spans(events, from_ms, to_ms).join(named, on="run", how="full")
    rows = rows.withColumns(
        {
            "from_ms": F.coalesce("from_ms", F.lit(from_ms).cast("long")),
            "to_ms": F.coalesce("to_ms", F.lit(to_ms).cast("long")),
        }
    )
    for part in (changes, times, out, refused, commit_latency(events), asked):
        rows = rows.join(part, on="run", how="left")
    return rows.select(
        "run",
        (ms / HOUR_MS).alias("hours"),
        *[_or_zero(F.col(name), name) for name in list(METRICS)[:3]],
        _or_zero(F.col("under_replicated_ms") / ms, "UnderReplicatedPartitions"),
        _or_zero(F.col("at_min_isr_ms") / ms, "AtMinIsrPartitionCount"),
        _or_zero(F.col("under_min_isr_ms") / ms, "UnderMinIsrPartitionCount"),
        _or_zero(F.col("one_copy_ms") / ms, "OneCopyPartitionCount"),
        _or_zero(F.col("flaps") * HOUR_MS / ms, "FlapsPerHour"),
        F.col("median_s").alias("MedianRejoinSeconds"),
        F.col("longest_s").alias("LongestRejoinSeconds"),
        _or_zero(F.col("refused") / seconds, "RefusedProducesPerSec"),
        F.col("p50_ms").cast("double").alias("RemoteTimeMs50thPercentile"),
        F.col("p99_ms").cast("double").alias("RemoteTimeMs99thPercentile"),
        _or_zero(F.col("isr_requests") / seconds, "IsrRequestsPerSec"),
    ).orderBy("run")


def compare(measured: DataFrame, was: str, now: str) -> DataFrame:
    """Two rows of `metrics` side by side: metric, was, now, change (now less was).

    Raises ValueError if one of the runs is not there.
    """
    known = sorted(row["run"] for row in measured.select("run").collect())
    for run in (was, now):
        if run not in known:
            raise ValueError(f"unknown run {run!r}; known: {', '.join(known)}")
    pairs = [
        F.struct(F.lit(i).alias("place"), F.lit(m).alias("metric"), F.col(m).alias("value"))
        for i, m in enumerate(METRICS)
    ]
    long = measured.select("run", F.explode(F.array(*pairs)).alias("one")).select("run", "one.*")
    value = [
        F.max(F.when(F.col("run") == run, F.col("value"))).alias(name)
        for name, run in (("was", was), ("now", now))
    ]
    return (
        long.groupBy("place", "metric")
        .agg(*value)
        .orderBy("place")
        .select("metric", "was", "now", (F.col("now") - F.col("was")).alias("change"))
    )


def bands(
    measured: pd.DataFrame,
    by: str,
    values: Sequence[str],
    *,
    level: float = 0.9,
    draws: int = 2_000,
    seed: int = 1,
) -> pd.DataFrame:
    """The mean of each of `values` for each `by`, with a bootstrap band over its rows (the seeds).

    One row for each `by` and value: by, `metric`, `mean`, `low`, `high`, `seeds`. Rows are drawn
    again with replacement, `draws` times; the band holds `level` of the means. The same rows and
    `seed` give the same band. Raises ValueError unless `level` is between 0 and 1.
    """
    import pandas as pd

    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, not {level}")
    rows = []
    for key, group in measured.groupby(by, sort=True):
        picks = np.random.default_rng(seed).integers(len(group), size=(draws, len(group)))
        for name in values:
            sample = group[name].to_numpy(float)
            low, high = np.quantile(sample[picks].mean(axis=1), [0.5 - level / 2, 0.5 + level / 2])
            rows.append((key, name, sample.mean(), low, high, len(group)))
    return pd.DataFrame(rows, columns=[by, "metric", "mean", "low", "high", "seeds"])


def _counted(events: DataFrame) -> DataFrame:
    """One row for each change of a leader and each refusal: its keys, and 1 in the right column."""
    keys = ["run", "topic", "partition", "broker", "ts_ms"]
    changes = isr_history(events).where((F.col("by") == "leader") & (is_shrink() | is_expand()))
    counts = changes.withColumn("broker", F.col("leader")).select(
        *keys,
        is_shrink().cast("int").alias("IsrShrinksPerSec"),
        is_expand().cast("int").alias("IsrExpandsPerSec"),
        F.lit(0).alias("FailedIsrUpdatesPerSec"),
    )
    refused = events.where("kind = 'isr_rejected'").select(
        *keys,
        F.lit(0).alias("IsrShrinksPerSec"),
        F.lit(0).alias("IsrExpandsPerSec"),
        F.lit(1).alias("FailedIsrUpdatesPerSec"),
    )
    return counts.unionByName(refused)


def _spans(events: DataFrame, from_ms: int | None, to_ms: int | None) -> DataFrame:
    """From when to when each run lasts."""
    first = F.min("ts_ms") if from_ms is None else F.lit(from_ms).cast("long")
    last = F.max("ts_ms") if to_ms is None else F.lit(to_ms).cast("long")
    return events.groupBy("run").agg(first.alias("from_ms"), last.alias("to_ms"))


def _seconds(of_hour: bool) -> Column:
    """Seconds of the run, or of the part of an hour that lies in it."""
    if not of_hour:
        return (F.col("to_ms") - F.col("from_ms")) / 1000
    until = F.least(F.col("to_ms"), (F.col("hour") + 1) * HOUR_MS)
    return (until - F.greatest(F.col("from_ms"), F.col("hour") * HOUR_MS)) / 1000


def _or_zero(value: Column, name: str) -> Column:
    return F.coalesce(value.cast("double"), F.lit(0.0)).alias(name)
