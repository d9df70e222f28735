"""Who left an ISR and who joined it, for how long, and who came back for nothing.

A *move* is one replica that leaves or joins the stored ISR of one partition. All that is asked
about replicas, and not about sizes of ISRs, is asked of `moves`.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from isrlab.churn.history import PARTITION, columns, isr_history

OUTAGES_SCHEMA = "run string, broker int, down_ms long, up_ms long"
REPLICA = (*PARTITION, "replica")
_ABSENCE = (*REPLICA, "left_ms", "back_ms", "out_ms")
# A broker may be said to have gone, or to have come back, so long before it leaves an ISR: a leader
# waits for replica.lag.time.max.ms, up to 30 s by default, and half of it again.
_EARLY_MS = 45_000
_ASKED_MS = 60_000  # before it leaves: the request that took it out
_OUTAGE = ("run", "broker", "down_ms", "up_ms")


def moves(events: DataFrame) -> DataFrame:
    """Each replica that leaves or joins an ISR: run, topic, partition, replica, change, ts_ms.

    `change` is "leaves" or "joins"; `leader`, `by` and `isr_change` are what `isr_history` says of
    the change of the ISR.
    """
    moved = """inline(concat(
        transform(array_except(isr_before, isr), r -> struct(r as replica, 'leaves' as change)),
        transform(array_except(isr, isr_before), r -> struct(r as replica, 'joins' as change))))"""
    names = ("ts_ms", "leader", "by", "change as isr_change")
    return isr_history(events).selectExpr(*PARTITION, moved, *names)


def removals(events: DataFrame) -> DataFrame:
    """Each replica that a shrink took out, whoever made it; columns as in `moves`."""
    return moves(events).where("change = 'leaves' and isr_change = 'shrink'")


def evictions(events: DataFrame) -> DataFrame:
    """Each replica that a leader took out of an ISR: run, topic, partition, leader, replica, ts_ms.

    What `isr_history` takes for stored; a shrink that was only announced does not count.
    """
    return removals(events).where("by = 'leader'").select(*PARTITION, "leader", "replica", "ts_ms")


def evictions_by_pair(events: DataFrame) -> DataFrame:
    """How often each leader evicted each replica: run, leader, replica, evictions."""
    keys = ("run", "leader", "replica")
    counts = evictions(events).groupBy(*keys).agg(F.count("*").alias("evictions"))
    return counts.orderBy(*keys).select(*keys, "evictions")


def asked_to_leave(events: DataFrame) -> DataFrame:
    """Each replica that a leader asked to drop, stored or not: the row of the shrink, `replica`."""
    leaving = F.explode(F.array_except("isr_before", "isr"))
    return events.where("kind = 'isr_shrink'").withColumn("replica", leaving)


def absences(events: DataFrame) -> DataFrame:
    """Each time a replica left an ISR and came back: when, for how long, and `why`.

    Columns: replica, `left_ms`, `back_ms`, `out_ms`, `why`: "gone" if the broker died, was fenced,
    stopped or started meanwhile or shortly before; else "lag" if its leader took it out,
    "controller" if that did. A controller that starts repeats who was fenced before: an absence
    just then may seem "gone". Absences whose end the logs miss are left out.
    """
    order = Window.partitionBy(*REPLICA).orderBy("ts_ms", F.expr("change = 'leaves'"))
    has_left = F.lag("change").over(order) == "leaves"
    left = {"left_ms": "ts_ms", "taken_by": "by"}
    gone = (
        events.where("kind in ('crash', 'restart') and replica is not null")
        .groupBy("run", "replica")
        .agg(F.collect_set("ts_ms").alias("gone_ms"))
    )
    is_gone = f"exists(gone_ms, ms -> ms between left_ms - {_EARLY_MS} and back_ms)"
    why = f"""case when {is_gone} then 'gone'
        when taken_by = 'leader' then 'lag' else 'controller' end as why"""
    return (
        moves(events)
        .withColumns({n: F.when(has_left, F.lag(of).over(order)) for n, of in left.items()})
        .where("change = 'joins' and left_ms is not null")
        .withColumnRenamed("ts_ms", "back_ms")
        .join(F.broadcast(gone), on=["run", "replica"], how="left")
        .selectExpr(*REPLICA, "left_ms", "back_ms", "back_ms - left_ms as out_ms", why)
    )


def rejoin_times(events: DataFrame) -> DataFrame:
    """Every return to an ISR: its replica and times, and the replica's lag when it left.

    `lag_records` is null where no line tells the offsets: logs do so since 2.2. Longest first.
    """
    is_near = f"left_ms - asked_ms between 0 and {_ASKED_MS}"
    last = f"max_by(lag_records, asked_ms) filter (where {is_near}) as lag_records"
    return (
        absences(events)
        .join(_lag_when_asked(events), on=list(REPLICA), how="left")
        .groupBy(*_ABSENCE)
        .agg(F.expr(last))
        .orderBy(F.desc("out_ms"), "left_ms", *REPLICA)
        .select(*_ABSENCE, "lag_records")
    )


def _lag_when_asked(events: DataFrame) -> DataFrame:
    """Each replica that a leader asked to drop, `asked_ms`, and the records it lacked, if told."""
    end = "coalesce(log_end_offset, try_cast(detail.log_end_offset as long))"
    place = "array_position(split(detail.out_of_sync, ','), cast(replica as string))"
    reached = f"get(split(detail.out_of_sync_end_offset, ','), cast({place} as int) - 1)"
    stated = "try_cast(detail.lag_records as long)"
    lag = f"coalesce({stated}, {end} - try_cast({reached} as long)) as lag_records"
    return asked_to_leave(events).selectExpr(*REPLICA, "ts_ms as asked_ms", lag)


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
    of_partition = columns(
        """coalesce(max_by(change = 'leaves', ts_ms) filter (where ts_ms <= up_ms),
            min_by(change = 'joins', ts_ms) filter (where ts_ms > up_ms)) as was_out""",
        "min(ts_ms) filter (where ts_ms > up_ms and change = 'joins') as back_ms",
    )
    totals = columns(
        *("count(*) as partitions", "count_if(back_ms is null) as still_out"),
        *("min(back_ms - up_ms) as first_ms", "median(back_ms - up_ms) as median_ms"),
        "max(back_ms - up_ms) as last_ms",
    )
    return (
        moves(events)
        .withColumnRenamed("replica", "broker")
        .join(F.broadcast(known), on=["run", "broker"], how="inner")
        .where("ts_ms < until_ms")
        .groupBy(*_OUTAGE, *PARTITION[1:])
        .agg(*of_partition)
        .where("was_out")
        .groupBy(*_OUTAGE)
        .agg(*totals)
        .orderBy("run", "down_ms", "broker")
        .select(*_OUTAGE, "partitions", "still_out", "first_ms", "median_ms", "last_ms")
    )
