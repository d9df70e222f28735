"""The sequence of each partition's stored ISRs, on which the other queries about ISRs build.

For tables of one clock in which `isr_commit` rows show every stored ISR without contradictions:
simulations, and the histories of real logs (`logs.history`). Two rules, like those of
`events.exact`:

1. A row with a lower partition epoch than an earlier row is late, and does not count. A row that
   has the same members as the ISR before is not a change.
2. A change is the leader's if the leader reports it itself, if the controller stores what a leader
   asked for, or if it is an expansion (a controller expands only an empty ISR, by an election);
   else it is the controller's (an election, a fenced broker).

After a row `unknown`, a partition's ISR is not known until the next one is stored.
"""

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

PARTITION = ("run", "topic", "partition")
_CHANGE = """case
    when isr_before is null and is_first then 'first'
    when isr_before is null then 'unknown'
    when size(array_except(isr_before, isr)) = 0 then 'expand'
    when size(array_except(isr, isr_before)) = 0 then 'shrink'
    else 'replace' end as change"""


def isr_history(events: DataFrame) -> DataFrame:
    """The ISRs of each partition: one row for the first one, and one for each change.

    `isr_before` is null where it is not known. `change` is "shrink", "expand", "replace" (members
    left and joined together), "first" (of the partition) or "unknown" (because the ISR before is
    not known); `by` is "leader" or "controller".
    Only a leader's changes are in Kafka's metrics IsrShrinksPerSec and IsrExpandsPerSec.
    """
    is_change = "isr is not null and not coalesce(array_sort(isr) = array_sort(isr_before), false)"
    by = "if(change = 'expand' or is_leaders, 'leader', 'controller') as by"
    names = (*PARTITION, "ts_ms", "leader", "isr", "isr_before", "change")
    return states(events).where(is_change).selectExpr("*", _CHANGE).selectExpr(*names, by)


def states(events: DataFrame) -> DataFrame:
    """The rows about stored ISRs that are not late; `isr` is null if it is unknown from then on.

    Columns: run, topic, partition, ts_ms, `leader`, `isr`, `isr_before` (null: not known),
    `is_first` of the partition, `is_leaders` (reported or requested by the leader), `replicas`
    (text, null: not known), `is_assigned` (`replicas` is complete; else those seen so far).
    """
    order = _in_time(*PARTITION)
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    of_stretch = _in_time(*PARTITION, "stretch").rowsBetween(Window.unboundedPreceding, -1)
    is_late = F.coalesce(
        F.max("partition_epoch").over(of_stretch) > F.col("partition_epoch"), F.lit(False)
    )
    fresh = (
        events.where("kind in ('isr_commit', 'unknown', 'deleted') and topic is not null")
        .where("partition is not null")
        .withColumn("stretch", F.count_if(F.col("kind") != "isr_commit").over(order))
        .withColumn("is_late", is_late)
        .where("not is_late")
    )
    said_by = "coalesce(detail.said_by, 'leader') != 'controller'"
    return fresh.select(
        *PARTITION,
        "ts_ms",
        F.expr("coalesce(try_cast(detail.leader as int), broker) as leader"),
        "isr",
        F.coalesce(F.lag("isr").over(order), "isr_before").alias("isr_before"),
        (F.count("*").over(before) == 0).alias("is_first"),
        F.expr(f"{said_by} or coalesce(detail.asked_by = 'leader', false) as is_leaders"),
        F.expr("detail.replicas as replicas"),
        F.expr("coalesce(detail.replicas_from = 'assignment', false) as is_assigned"),
    )


def _in_time(*keys: str) -> WindowSpec:
    rank = F.expr("if(kind = 'isr_commit', 1, 0)")
    epoch = F.coalesce("partition_epoch", F.lit(-1))
    return Window.partitionBy(*keys).orderBy("ts_ms", rank, epoch)


# Parts of the queries


def columns(*sql: str) -> list[Column]:
    """Columns from Spark SQL; `detail.name` is null where a row has no such detail."""
    return [F.expr(text) for text in sql]


def members(isr: Column | str) -> Column:
    """The members of an ISR in order of id: brokers list them in any order."""
    return F.array_sort(isr)
