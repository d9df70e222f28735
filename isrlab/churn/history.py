"""One history of each partition's ISR, made of everything that anybody says about it.

Theory of operation. Real logs tell one change several times: the leader asks (`isr_shrink`,
`isr_expand`), the change is stored (`isr_commit`, from the leader, or from the controller with
`detail.said_by`), other brokers learn of it (`leader`, `metadata`). And they leave things out: up
to 2.3 a leader does not print the commit, since 2.8 it does not announce an expansion, and no
leader says that the controller took a dead broker out. `isr_history` makes one sequence of ISRs of
that, and every other question asks the history, so that no change counts twice:

1. An ISR that was asked for counts as stored if a commit follows (the commit then counts, not the
   request), if the leader's next request starts from it, or if this broker never prints commits. A
   refused one does not count, nor one that the leader repeats from the same ISR.
2. A statement with an older partition epoch or leader epoch than one within the minute before it is
   late news, and is dropped.
3. Statements in a row that name the same members are one: the earliest gives the time. The change
   is the leader's if the leader told it or asked for it within the minute before, and if it is an
   expansion, for no controller ever adds to an ISR; else it is the controller's (an election, a
   fenced broker).
4. Partition epochs count the changes. Where they skip a number, changes are missing from the logs,
   and the ISR known before says nothing about the one right before.
5. If a leader commits without a word before, it was an expansion, because leaders announce every
   shrink. Also if it commits, under another partition epoch, the very ISR that was known before:
   then somebody had gone in between. Who came back is not known.

Clocks of brokers differ. Orders between brokers are as good as their clocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

LATE_NEWS_MS = 60_000
PARTITION = ("run", "topic", "partition")
REQUESTS = ("isr_shrink", "isr_expand")
OWN = (*REQUESTS, "isr_commit", "isr_rejected")
_OTHERS = ("leader", "follower", "metadata")


def isr_history(events: DataFrame) -> DataFrame:
    """The sequence of ISRs of each partition: one row for each change, in order of time.

    `isr_before` is null where no line tells it. `change` is "shrink", "expand", "replace" (members
    left and joined at once), "first" (nothing known before) or "unknown" (changes in between are
    missing from the logs); `by` is "leader" or "controller".
    Only a leader's changes are in Kafka's metrics IsrShrinksPerSec and IsrExpandsPerSec.
    """
    order = Window.partitionBy(*PARTITION).orderBy("ts_ms", "island")
    previous = F.when(~F.col("misses_some"), F.lag("isr").over(order))
    known = F.coalesce("stated_before", previous)
    before = F.when(members(known) != members("isr"), known)
    by = F.when(is_expand(), "leader").otherwise(F.col("by"))
    return (
        _islands(_fresh(_statements(events)))
        .withColumn("isr_before", before)
        .withColumn("change", _change())
        .select(*PARTITION, "ts_ms", "leader", "isr", "isr_before", "change", by.alias("by"))
    )


# What the questions are made of


def members(isr: Column | str) -> Column:
    """An ISR as a set: brokers list its members in any order."""
    return F.array_sort(F.col(isr) if isinstance(isr, str) else isr)


def detail(name: str) -> Column:
    return F.try_element_at("detail", F.lit(name))


def is_own() -> Column:
    """The leader itself said it, not a controller."""
    return F.coalesce(detail("said_by"), F.lit("leader")) != "controller"


def is_shrink() -> Column:
    return F.col("change") == "shrink"


def is_expand() -> Column:
    return F.col("change") == "expand"


def _change() -> Column:
    left = F.size(F.array_except("isr_before", "isr")) > 0
    joined = F.size(F.array_except("isr", "isr_before")) > 0
    return (
        F.when(F.col("isr_before").isNull() & F.col("is_unannounced"), "expand")
        .when(F.col("isr_before").isNull() & F.col("misses_some"), "unknown")
        .when(F.col("isr_before").isNull(), "first")
        .when(left & joined, "replace")
        .when(left, "shrink")
        .otherwise("expand")
    )


def place() -> Column:
    """The order of one moment: the line in the log, else requests before answers."""
    rank = F.when(F.col("kind").isin(*REQUESTS), 0).otherwise(1)
    line = F.coalesce(detail("line").try_cast("long"), F.lit(0))
    return F.struct(line, F.coalesce("partition_epoch", F.lit(-1)), rank)


def _statements(events: DataFrame) -> DataFrame:
    """Everything that says which ISR is stored or who leads, in one form; see the theory, 1.

    All windows from here to the history are within a partition, so the data move once.
    """
    kind = F.col("kind")
    rows = (
        events.where(kind.isin(*OWN, *_OTHERS))
        .where(F.col("topic").isNotNull() & F.col("partition").isNotNull())
        .join(F.broadcast(_brokers_that_print_commits(events)), on=["run", "broker"], how="left")
        .repartition(*PARTITION)
        .withColumn("is_own", kind.isin(*OWN) & is_own())
        .withColumn("place", place())
    )
    order = Window.partitionBy(*PARTITION, "broker", "is_own").orderBy("ts_ms", "place")
    is_leaders = F.col("is_own") | _is_answer() | _is_asked_for()
    return (
        rows.withColumn("is_stored", _is_stored(order))
        .withColumn("stated_before", _stated_before(order))
        .withColumn("by", F.when(is_leaders, "leader").otherwise("controller"))
        .where((kind != "isr_rejected") & (~kind.isin(*REQUESTS) | F.col("is_stored")))
        .select(
            *PARTITION,
            "ts_ms",
            "place",
            "leader_epoch",
            "partition_epoch",
            "isr",
            "stated_before",
            _is_unannounced().alias("is_unannounced"),
            _leader().alias("leader"),
            "by",
        )
    )


def _brokers_that_print_commits(events: DataFrame) -> DataFrame:
    commits = events.where("kind = 'isr_commit' and broker is not null").where(is_own())
    return commits.select("run", "broker", F.lit(True).alias("prints_commits")).distinct()


def _is_stored(order: WindowSpec) -> Column:
    """What a leader asked for was stored, as far as its own later lines tell."""
    next_kind = F.lead("kind").over(order)
    next_before = members(F.lead("isr_before").over(order))
    return (
        F.when(next_kind.isin("isr_rejected", "isr_commit"), False)
        .when(next_before == members("isr"), True)
        .when(next_before == members("isr_before"), False)
        .otherwise(F.col("prints_commits").isNull())
    )


def _stated_before(order: WindowSpec) -> Column:
    """The ISR before a change: the line's own word, or that of the request it answers."""
    is_answer = F.lag("kind").over(order).isin(*REQUESTS) & (
        members(F.lag("isr").over(order)) == members("isr")
    )
    return F.coalesce("isr_before", F.when(is_answer, F.lag("isr_before").over(order)))


def _is_unannounced() -> Column:
    """A leader's own log says "ISR updated" without having said "Shrinking" or "Expanding"."""
    is_from_log = detail("file").isNotNull() & (F.col("partition_epoch") > 0)
    is_commit = F.col("is_own") & (F.col("kind") == "isr_commit")
    return F.coalesce(is_commit & is_from_log & F.col("stated_before").isNull(), F.lit(False))


def _is_answer() -> Column:
    """A ZooKeeper controller stores what a leader asked it for."""
    return F.coalesce(detail("asked_by") == "leader", F.lit(False))


def _is_asked_for() -> Column:
    """A leader asked for this very ISR within the minute before."""
    until_now = Window.partitionBy(*PARTITION).orderBy("ts_ms", "place")
    request = F.struct(members("isr").alias("isr"), "ts_ms")
    asked = F.last(F.when(F.col("kind").isin(*REQUESTS), request), ignorenulls=True).over(until_now)
    is_recent = F.col("ts_ms") - asked["ts_ms"] <= LATE_NEWS_MS
    return F.coalesce((asked["isr"] == members("isr")) & is_recent, F.lit(False))


def _leader() -> Column:
    kind = F.col("kind")
    return (
        F.when(F.col("is_own"), F.col("broker"))
        .when(kind == "leader", F.coalesce("replica", "broker"))
        .when(kind == "follower", F.col("replica"))
        .otherwise(detail("leader").try_cast("int"))
    )


def _fresh(statements: DataFrame) -> DataFrame:
    """Without late news, and with the leader as far as it is known by then; see the theory, 2."""
    minute = Window.partitionBy(*PARTITION).orderBy("ts_ms").rangeBetween(-LATE_NEWS_MS, -1)
    until_now = Window.partitionBy(*PARTITION).orderBy("ts_ms", "place")
    is_late = [
        F.coalesce(F.max(epoch).over(minute) > F.col(epoch), F.lit(False))
        for epoch in ("partition_epoch", "leader_epoch")
    ]
    return (
        statements.withColumn("is_late", is_late[0] | is_late[1])
        .where(~F.col("is_late"))
        .withColumn("leader", F.last("leader", ignorenulls=True).over(until_now))
        .where(F.col("isr").isNotNull())
    )


def _islands(statements: DataFrame) -> DataFrame:
    """One row for each run of statements that name the same members; see the theory, 3 to 5."""
    order = Window.partitionBy(*PARTITION).orderBy("ts_ms", "place")
    so_far = order.rowsBetween(Window.unboundedPreceding, -1)
    last_epoch = F.last("partition_epoch", ignorenulls=True).over(so_far)
    is_same = members(F.lag("isr").over(order)) == members("isr")
    is_next_change = F.col("is_unannounced") & (F.col("partition_epoch") != last_epoch)
    starts = ~F.coalesce(is_same, F.lit(False)) | F.coalesce(is_next_change, F.lit(False))
    row = F.row_number().over(order)
    row_of_epoch = F.when(F.col("partition_epoch").isNotNull(), F.col("row"))
    rows_since = F.col("row") - F.last(row_of_epoch, ignorenulls=True).over(so_far)
    step = F.col("partition_epoch") - last_epoch
    moment = F.struct("ts_ms", "place")
    stated_at = F.when(F.col("stated_before").isNotNull(), moment)
    told = [
        F.min("ts_ms").alias("ts_ms"),
        F.min_by("isr", moment).alias("isr"),
        F.min_by("leader", moment).alias("leader"),
        F.min_by("is_unannounced", moment).alias("is_unannounced"),
        F.min_by("misses_some", moment).alias("misses_some"),
        F.min_by("stated_before", stated_at).alias("stated_before"),
        F.max("by").alias("by"),  # "leader" comes after "controller"
    ]
    return (
        statements.withColumn("row", row)
        .withColumn("starts", starts.cast("int"))
        .withColumn("misses_some", F.coalesce(~step.between(0, rows_since), F.lit(False)))
        .withColumn("island", F.sum("starts").over(order))
        .groupBy(*PARTITION, "island")
        .agg(*told)
    )
