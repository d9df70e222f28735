"""Runs as rows of metrics, two runs compared, and how far seeds scatter.

Where Kafka has a metric for it, it bears that name; names of our own are in small letters.
Kafka's gauges count partitions at a moment; here they are the average over the run. Kafka's meters
are rates; here too, over the whole run.
RemoteTimeMs is `kafka.network:type=RequestMetrics,name=RemoteTimeMs,request=Produce`; Kafka's has
the produces with acks=1, which do not wait, among the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from isrlab.churn.counts import HOUR_MS, commit_latency, controller_load, hour, keys_of
from isrlab.churn.history import columns, isr_history
from isrlab.churn.moves import absences
from isrlab.churn.times import isr_times

if TYPE_CHECKING:
    import pandas as pd

FLAP_MS = 60_000
GIVEN_UP = "DELIVERY_TIMEOUT"  # of a produce that has been counted when it was refused
_RATES = {"IsrShrinksPerSec": "shrink", "IsrExpandsPerSec": "expand",
          "FailedIsrUpdatesPerSec": "rejected"}  # fmt: skip
_TABLE = {  # what each metric means, and how the parts of a run give it
    "IsrShrinksPerSec": ("shrinks that leaders made, per second", "IsrShrinksPerSec"),
    "IsrExpandsPerSec": ("expands, per second", "IsrExpandsPerSec"),
    "FailedIsrUpdatesPerSec": ("ISR changes refused, per second", "FailedIsrUpdatesPerSec"),
    "UnderReplicatedPartitions":
        ("partitions with a replica out of the ISR, on average", "under_replicated_ms / ms"),
    "AtMinIsrPartitionCount": (
        "partitions whose ISR is exactly min.insync.replicas, on average", "at_min_isr_ms / ms"),
    "UnderMinIsrPartitionCount":
        ("partitions that refuse acks=all, on average", "under_min_isr_ms / ms"),
    "one_copy_partitions":
        ("replicated partitions with one replica in the ISR, on average", "one_copy_ms / ms"),
    "unknown_partitions":
        ("partitions whose ISR the logs do not tell, on average", "uncertain_ms / ms"),
    "flaps_per_hour":
        ("replicas that lag took out, back within a minute, per hour", f"flaps * {HOUR_MS} / ms"),
    "median_rejoin_s": ("time out of the ISR before a return, median", "median_s"),
    "longest_rejoin_s": ("time out of the ISR before a return, longest", "longest_s"),
    "refused_produces_per_s": ("produces refused or timed out, per second", "refused / seconds"),
    "RemoteTimeMs50thPercentile":
        ("ms that a produce with acks=all waited for the ISR, median", "p50_ms"),
    "RemoteTimeMs99thPercentile": ("the same, 99th percentile", "p99_ms"),
    "isr_requests_per_s": ("ISR changes asked of the controller (or ZooKeeper), per second",
                          "isr_requests / seconds"),
}  # fmt: skip
_OF_NOTHING = ("median_s", "longest_s", "p50_ms", "p99_ms")  # null where there is none, not 0
METRICS = {name: meaning for name, (meaning, _) in _TABLE.items()}


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
    each = [*dict.fromkeys(["run", *keys])]
    per_second = [
        f"count_if(change = '{change}') / nullif(first(seconds), 0) as {name}"
        for name, change in _RATES.items()
    ]
    place = ("run", "topic", "partition", "ts_ms")
    changes = isr_history(events).where("by = 'leader' and change in ('shrink', 'expand')")
    refused = events.where("kind = 'isr_rejected'")
    return (
        changes.selectExpr(*place, "leader as broker", "change")
        .unionByName(refused.selectExpr(*place, "broker", "'rejected' as change"))
        .withColumn("hour", hour())
        .join(F.broadcast(_spans(events, from_ms, to_ms)), on="run", how="inner")
        .withColumn("seconds", _seconds("hour" in keys))
        .groupBy(*each)
        .agg(*columns(*per_second), F.first("seconds").alias("seconds"))
        .orderBy(*keys)
        .select(*each, "seconds", *_RATES)
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
    out = (
        f"count_if(why = 'lag' and out_ms <= {FLAP_MS}) as flaps",
        *("median(out_ms) / 1000 as median_s", "max(out_ms) / 1000 as longest_s"),
    )
    refused = f"""count_if(kind = 'produce_error'
        and not detail.error <=> '{GIVEN_UP}') as refused"""
    times = isr_times(events, min_insync_replicas, by=("run",), replicas=replicas, end_ms=to_ms)
    parts = (
        rates(events, from_ms=from_ms, to_ms=to_ms).drop("seconds"),
        times.drop("replicas", "min_isr"),
        absences(events).groupBy("run").agg(*columns(*out)),
        events.groupBy("run").agg(F.expr(refused)),
        commit_latency(events),
        controller_load(events),
    )
    named = events.sparkSession.createDataFrame([(run,) for run in runs], "run string")
    rows = _spans(events, from_ms, to_ms).join(named, on="run", how="full")
    for part in parts:
        rows = rows.join(part, on="run", how="left")
    given = {"from_ms": from_ms, "to_ms": to_ms}
    first, last = (F.coalesce(n, F.lit(ms).cast("long")) for n, ms in given.items())
    values = [
        f"cast({sql if sql in _OF_NOTHING else f'coalesce({sql}, 0)'} as double) as {name}"
        for name, (_, sql) in _TABLE.items()
    ]
    return (
        rows.withColumn("ms", F.nullif(last - first, F.lit(0)))
        .withColumn("seconds", F.expr("ms / 1000"))
        .orderBy("run")
        .selectExpr("run", f"ms / {HOUR_MS} as hours", *values)
    )


def compare(measured: DataFrame, was: str, now: str) -> DataFrame:
    """Two rows of `metrics` side by side: metric, was, now, change (now less was).

    Raises ValueError if one of the runs is not there.
    """
    known = sorted(row["run"] for row in measured.select("run").collect())
    for run in (was, now):
        if run not in known:
            raise ValueError(f"unknown run {run!r}; known: {', '.join(known)}")
    rows = ", ".join(f"{place}, '{name}', {name}" for place, name in enumerate(METRICS))
    value = {run: F.max(F.when(F.col("run") == run, F.col("value"))) for run in (was, now)}
    return (
        measured.selectExpr("run", f"stack({len(METRICS)}, {rows}) as (place, metric, value)")
        .groupBy("place", "metric")
        .agg(value[was].alias("was"), value[now].alias("now"))
        .orderBy("place")
        .selectExpr("metric", "was", "now", "now - was as change")
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
