"""The replicas that leave and join ISRs, and how long that takes after a restart.

A *move* is one replica that leaves or joins the stored ISR of one partition. Queries about
replicas, rather than sizes of ISRs, build on `moves`.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from isrlab.churn.history import PARTITION, columns, isr_history

OUTAGES_SCHEMA = "run string, broker int, down_ms long, up_ms long"
REPLICA = (*PARTITION, "replica")
_OUTAGE = ("run", "broker", "down_ms", "up_ms")


def moves(events: DataFrame) -> DataFrame:
    """Each replica that leaves or joins an ISR: run, topic, partition, replica, change, ts_ms.

    `change` is "leaves" or "joins"; `leader`, `by` and `isr_change` come from the row of
    `isr_history`.
    """
    moved = """inline(concat(
        transform(array_except(isr_before, isr), r -> struct(r as replica, 'leaves' as change)),
        transform(array_except(isr, isr_before), r -> struct(r as replica, 'joins' as change))))"""
    names = ("ts_ms", "leader", "by", "change as isr_change")
    return isr_history(events).selectExpr(*PARTITION, moved, *names)


def removals(events: DataFrame) -> DataFrame:
    """Each replica that a shrink removed, by leader or controller; columns as in `moves`."""
    return moves(events).where("change = 'leaves' and isr_change = 'shrink'")


def rejoins(events: DataFrame, outages: DataFrame) -> DataFrame:
    """How long after each outage a broker rejoined its ISRs; no row if it was still in all of them.

    `outages`: run, broker, down_ms, up_ms (on the events' clock). `partitions`: how many ISRs the
    broker had to rejoin when it came up, no matter whether a leader or the controller had removed
    it; `still_out`: how many it had not rejoined before it went down again. `first_ms`,
    `median_ms`, `last_ms`: from its return to the first, median and last rejoin (of a partition
    that it rejoins twice, the first); null if there is none.
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
