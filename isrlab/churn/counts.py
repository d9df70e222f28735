"""How often: ISR changes, refused produces, latencies, and the work for controller and brokers.

Kafka's name for how long producers with acks=all wait for the ISR is RemoteTimeMs of Produce
requests. It begins when the leader has appended (or first refused) the batch, so the way from the
producer and back is not in it. A fleet counts produces by class of latency, in rows of their own
(`latency`): `latency_ms` is the least of its class (exact below 16 ms, then eighths of a doubling).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from isrlab.churn.history import (
    PARTITION,
    REQUESTS,
    columns,
    isr_history,
    members,
    own_lines,
    with_own,
)

HOUR_MS = 3_600_000
KEYS = ("run", "topic", "partition", "broker", "hour")
PER_MILLE = {"p50_ms": 500, "p90_ms": 900, "p99_ms": 990, "p999_ms": 999, "max_ms": 1_000}
_SHRINKS = "count_if(change = 'shrink') as shrinks"
_EXPANDS = "count_if(change = 'expand') as expands"
_BROKERS = "coalesce(try_cast(detail.brokers as long), 1L)"  # that a row of metadata tells of


def changes_by_partition(events: DataFrame) -> DataFrame:
    """How often the ISR of each partition shrank and grew, most changes first.

    `shrinks` and `expands` count every change. `shrinks_by_controller` are those among the shrinks
    that no leader asked for: IsrShrinksPerSec leaves them out. `rejected` counts refused changes,
    as FailedIsrUpdatesPerSec does.
    """
    by_controller = "count_if(change = 'shrink' and by = 'controller') as shrinks_by_controller"
    changes = isr_history(events).groupBy(*PARTITION)
    rejected = events.where("kind = 'isr_rejected'").groupBy(*PARTITION)
    return (
        changes.agg(*columns(_SHRINKS, _EXPANDS, by_controller))
        .join(rejected.agg(F.count("*").alias("rejected")), on=list(PARTITION), how="full")
        .na.fill(0)
        .orderBy(F.expr("shrinks + expands").desc(), *PARTITION)
        .select(*PARTITION, "shrinks", "expands", "shrinks_by_controller", "rejected")
    )


def changes_over_time(events: DataFrame, bucket_ms: int = 60_000) -> DataFrame:
    """Shrinks and expands of all partitions in each `bucket_ms`; empty intervals are left out.

    Raises ValueError unless `bucket_ms` is positive.
    """
    if bucket_ms <= 0:
        raise ValueError(f"bucket_ms must be positive, not {bucket_ms}")
    return (
        isr_history(events)
        .where("change in ('shrink', 'expand')")
        .groupBy("run", F.expr(f"floor(ts_ms / {bucket_ms}) * {bucket_ms} as from_ms"))
        .agg(*columns(_SHRINKS, _EXPANDS))
        .orderBy("run", "from_ms")
        .select("run", "from_ms", "shrinks", "expands")
    )


def commit_delay(events: DataFrame) -> DataFrame:
    """Milliseconds from the change a leader asked for to its commit, for each that was committed.

    Both times are of the leader's own clock. On releases that print no commit there is none.
    """
    kind, isr, ts_ms = (F.lead(name).over(own_lines()) for name in ("kind", "isr", "ts_ms"))
    follows = (kind == "isr_commit") & (members(isr) == members("isr"))
    delay = columns("ts_ms as asked_ms", "committed_ms", "committed_ms - ts_ms as delay_ms")
    return (
        with_own(events)
        .where("is_own")
        .withColumn("committed_ms", F.when(follows, ts_ms))
        .where(f"kind in {REQUESTS} and committed_ms is not null")
        .orderBy("ts_ms", *PARTITION)
        .select(*PARTITION, "broker", "kind", *delay)
    )


def refused_produce(events: DataFrame, by: Sequence[str] = PARTITION) -> DataFrame:
    """Produces that were refused or timed out: how many of each error, from when to when.

    `by` is any of run, topic, partition, broker and hour. `error` is Kafka's name, null where the
    line does not tell it; DELIVERY_TIMEOUT (of fleets) is a producer that gives up a produce which
    was refused and tried again, so that one counts under both.
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


def controller_load(events: DataFrame, by: Sequence[str] = ("run",)) -> DataFrame:
    """What ISR changes ask of the controller, by any of run, broker (who asks) and hour.

    `isr_requests` are changes that leaders asked for, again and again where they were refused
    (AlterPartition since 2.7, a write to ZooKeeper before); `rejected` those refused;
    `notifications` announcements of changes through ZooKeeper; `metadata_updates` what brokers
    then learned from the controller, one for each broker and partition.
    A row that tells of several brokers (`detail.brokers`, as fleets write it) counts for them all.
    """
    is_answer = F.coalesce(F.lag("kind").over(own_lines()).isin(*REQUESTS), F.lit(False))
    asks = (
        f"kind in {REQUESTS} or (kind = 'isr_commit' and not is_answer and detail.file is not null)"
    )
    totals = columns(
        f"count_if(is_own and ({asks})) as isr_requests",
        "count_if(kind = 'isr_rejected') as rejected",
        "count_if(kind = 'notify') as notifications",
        f"sum(if(kind = 'metadata', {_BROKERS}, 0)) as metadata_updates",
    )
    return (
        with_own(events)
        .where("is_own or kind in ('notify', 'metadata')")
        .withColumns({"is_answer": is_answer, "hour": hour()})
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
    totals = columns(
        "min(ts_ms) filter (where kind = 'isr_commit') as committed_ms",
        "max(ts_ms) filter (where kind = 'metadata') as known_ms",
        f"""greatest(count(distinct if(kind = 'metadata', broker, null)),
            max({_BROKERS}) filter (where kind = 'metadata')) as brokers""",
    )
    return (
        events.where("kind in ('isr_commit', 'metadata') and partition_epoch is not null")
        .where("topic is not null and partition is not null")
        .groupBy(*keys)
        .agg(*totals)
        .where("committed_ms is not null and known_ms is not null")
        .orderBy("committed_ms", *keys)
        .selectExpr(*keys, "committed_ms", "brokers", "known_ms - committed_ms as until_known_ms")
    )


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
    """One row for each key and `latency_ms`: `count` of produces with acks=all that waited so long.

    A row that does not say how many it tells of tells of one. Left out are produces that failed
    (`refused_produce` has those) and those with acks=0 or 1, which wait for nobody.
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
