"""Durations: how long each partition's ISR had which size.

Kafka's gauges (UnderReplicatedPartitions, UnderMinIsrPartitionCount) count partitions at a moment;
these are their integrals over time, in milliseconds.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from isrlab.churn.history import PARTITION, columns, members, states

_ISRS = ("isr", "isr_before")
_TIMES = {  # the condition under which an interval counts
    "known_ms": "is_certain",
    "under_replicated_ms": "is_certain and isr_size < replicas",
    "one_copy_ms": "is_certain and isr_size <= 1 and isr_size < replicas",
    "under_min_isr_ms": "is_certain and isr_size < min_isr",
    "unassigned_ms": "is_certain and isr_size >= replicas and not is_assigned",
    "uncertain_ms": "not is_certain",
}


def isr_intervals(events: DataFrame, end_ms: int | None = None) -> DataFrame:
    """The interval in which each ISR was current. A partition's last one extends to `end_ms`.

    `end_ms` (on the events' clock) defaults to the last event of the run. Where the ISR is unknown,
    or the partition deleted, `is_certain` is false and `isr`, `isr_size` and `leader` are null.
    `replicas` is how many there were then: those assigned (`is_assigned`), else those seen so
    far; where no row lists them (simulations), the largest size that the ISR ever had.
    """
    ends = events.groupBy("run").agg(F.max("ts_ms").alias("end_ms"))
    each = Window.partitionBy(*PARTITION)
    order = each.orderBy("ts_ms", F.col("isr").isNotNull())
    end = F.lit(end_ms) if end_ms is not None else F.col("end_ms")
    state = F.struct(members("isr"), F.array_sort(F.split("replicas", ",")))
    most = F.max(F.greatest(*[F.coalesce(F.size(name), F.lit(0)) for name in _ISRS])).over(each)
    factor = "if(replicas is null, most, size(split(replicas, ',')))"
    return (
        states(events)
        .withColumns({"most": most, "state": state})
        .withColumn(
            "is_same", F.coalesce(F.lag("state").over(order) == F.col("state"), F.lit(False))
        )
        .where("not is_same")
        .withColumn("next_ms", F.lead("ts_ms").over(order))
        .join(F.broadcast(ends), on="run", how="inner")
        .withColumn("to_ms", F.least(F.coalesce("next_ms", end), end).cast("long"))
        .where("to_ms >= ts_ms")
        .selectExpr(
            *(*PARTITION, "ts_ms as from_ms", "to_ms", "isr", "size(isr) as isr_size"),
            *("if(isr is not null, leader, null) as leader", "isr is not null as is_certain"),
            *(
                f"cast({factor} as int) as replicas",
                "is_assigned or replicas is null as is_assigned",
            ),
        )
    )


def isr_times(
    events: DataFrame, min_insync_replicas: int = 1, end_ms: int | None = None
) -> DataFrame:
    """How long each partition was under-replicated, had one copy and so on, in ms, in one pass.

    Only time with a known ISR counts (`known_ms`); the rest is `uncertain_ms`. In `unassigned_ms`,
    a part of the known time, the ISR had all replicas that were seen so far, and no line shows
    whether there are more. In `one_copy_ms` one more failure would have taken the partition offline
    (0 for a partition with a single replica). `min_isr` is `min_insync_replicas`, but at most the
    number of replicas (Partition.effectiveMinIsr). `replicas` (as in `isr_intervals`) and `min_isr`
    are the maxima over time. Raises ValueError if `min_insync_replicas` is below 1.
    """
    if min_insync_replicas < 1:
        raise ValueError(f"min_insync_replicas must be 1 or more, not {min_insync_replicas}")
    sizes = [f"max({name}) as {name}" for name in ("replicas", "min_isr")]
    times = [f"sum(if({holds}, to_ms - from_ms, 0)) as {name}" for name, holds in _TIMES.items()]
    return (
        isr_intervals(events, end_ms)
        .withColumn("min_isr", F.least(F.lit(min_insync_replicas), "replicas"))
        .groupBy(*PARTITION)
        .agg(*columns(*sizes, *times))
        .select(*PARTITION, "replicas", "min_isr", *_TIMES)
    )


def under_replicated(events: DataFrame, end_ms: int | None = None) -> DataFrame:
    """`isr_times`, sorted by the time under-replicated, longest first."""
    times = isr_times(events, end_ms=end_ms)
    return times.orderBy(F.desc("under_replicated_ms"), *PARTITION)


def under_min_isr(
    events: DataFrame, min_insync_replicas: int, end_ms: int | None = None
) -> DataFrame:
    """`isr_times`, sorted by the time under min ISR, longest first."""
    times = isr_times(events, min_insync_replicas, end_ms)
    return times.orderBy(F.desc("under_min_isr_ms"), *PARTITION)
