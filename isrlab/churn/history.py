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

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

LATE_NEWS_MS = 60_000
PARTITION = ("run", "topic", "partition")
REQUESTS = ("isr_shrink", "isr_expand")
OWN = (*REQUESTS, "isr_commit", "isr_rejected")
_OTHERS = ("leader", "follower", "metadata")
_PLACE = f"""struct(
    coalesce(try_cast(detail.line as long), 0L),
    coalesce(partition_epoch, -1),
    if(kind in {REQUESTS}, 0, 1))"""
_CHANGE = """case
    when isr_before is null and is_unannounced then 'expand'
    when isr_before is null and misses_some then 'unknown'
    when isr_before is null then 'first'
    when size(array_except(isr_before, isr)) = 0 then 'expand'
    when size(array_except(isr, isr_before)) = 0 then 'shrink'
    else 'replace' end"""


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
    by = F.expr("if(change = 'expand', 'leader', by) as by")
    return (
        _islands(_fresh(_statements(events)))
        .withColumn("isr_before", F.when(members(known) != members("isr"), known))
        .withColumn("change", F.expr(_CHANGE))
        .select(*PARTITION, "ts_ms", "leader", "isr", "isr_before", "change", by)
    )


# What the questions are made of


def columns(*sql: str) -> list[Column]:
    """Columns as Spark SQL words them; `detail.name` is null where a row has no such detail."""
    return [F.expr(text) for text in sql]


def members(isr: Column | str) -> Column:
    """An ISR as a set: brokers list its members in any order."""
    return F.array_sort(isr)


def with_own(events: DataFrame) -> DataFrame:
    """Events with `is_own`, the leader itself said it, not a controller, and their `place`.

    That is the order of one moment: the line in the log, else requests before answers.
    """
    is_own = f"kind in {OWN} and coalesce(detail.said_by, 'leader') != 'controller'"
    return events.withColumns({"is_own": F.expr(is_own), "place": F.expr(_PLACE)})


def own_lines() -> WindowSpec:
    """What one broker says itself of one partition, in its order; of rows `with_own`."""
    return Window.partitionBy(*PARTITION, "broker", "is_own").orderBy("ts_ms", "place")


def _statements(events: DataFrame) -> DataFrame:
    """Everything that says which ISR is stored or who leads, in one form; see the theory, 1.

    All windows from here to the history are within a partition, so the data move once.
    """
    commits = with_own(events).where("kind = 'isr_commit' and is_own and broker is not null")
    prints = commits.select("run", "broker", F.lit(True).alias("prints_commits")).distinct()
    # A ZooKeeper controller stores what a leader asked it for.
    is_answer = F.expr("coalesce(detail.asked_by = 'leader', false)")
    by = F.when(F.col("is_own") | is_answer | _is_asked_for(), "leader").otherwise("controller")
    # A leader's own log says "ISR updated" without having said "Shrinking" or "Expanding".
    is_unannounced = """coalesce(is_own and kind = 'isr_commit' and detail.file is not null
        and partition_epoch > 0 and stated_before is null, false) as is_unannounced"""
    leader = """case when is_own then broker when kind = 'leader' then coalesce(replica, broker)
        when kind = 'follower' then replica else try_cast(detail.leader as int) end as leader"""
    return (
        with_own(events)
        .where(f"kind in {(*OWN, *_OTHERS)} and topic is not null and partition is not null")
        .join(F.broadcast(prints), on=["run", "broker"], how="left")
        .repartition(*PARTITION)
        .withColumns({"is_stored": _is_stored(), "stated_before": _stated_before(), "by": by})
        .where(f"kind != 'isr_rejected' and (kind not in {REQUESTS} or is_stored)")
        .select(
            *(*PARTITION, "ts_ms", "place", "leader_epoch", "partition_epoch", "isr"),
            *("stated_before", *columns(is_unannounced, leader), "by"),
        )
    )


def _is_stored() -> Column:
    """What a leader asked for was stored, as far as its own later lines tell."""
    next_kind = F.lead("kind").over(own_lines())
    next_before = members(F.lead("isr_before").over(own_lines()))
    return (
        F.when(next_kind.isin("isr_rejected", "isr_commit"), False)
        .when(next_before == members("isr"), True)
        .when(next_before == members("isr_before"), False)
        .otherwise(F.col("prints_commits").isNull())
    )


def _stated_before() -> Column:
    """The ISR before a change: the line's own word, or that of the request it answers."""
    kind, isr, before = (F.lag(name).over(own_lines()) for name in ("kind", "isr", "isr_before"))
    is_answer = kind.isin(*REQUESTS) & (members(isr) == members("isr"))
    return F.coalesce("isr_before", F.when(is_answer, before))


def _is_asked_for() -> Column:
    """A leader asked for this very ISR within the minute before."""
    until_now = Window.partitionBy(*PARTITION).orderBy("ts_ms", "place")
    request = F.when(F.col("kind").isin(*REQUESTS), F.struct(members("isr").alias("isr"), "ts_ms"))
    asked = F.last(request, ignorenulls=True).over(until_now)
    is_recent = F.col("ts_ms") - asked["ts_ms"] <= LATE_NEWS_MS
    return F.coalesce((asked["isr"] == members("isr")) & is_recent, F.lit(False))


def _fresh(statements: DataFrame) -> DataFrame:
    """Without late news, and with the leader as far as it is known by then; see the theory, 2."""
    minute = Window.partitionBy(*PARTITION).orderBy("ts_ms").rangeBetween(-LATE_NEWS_MS, -1)
    until_now = Window.partitionBy(*PARTITION).orderBy("ts_ms", "place")
    newer = [F.max(n).over(minute) > F.col(n) for n in ("partition_epoch", "leader_epoch")]
    is_late = [F.coalesce(is_newer, F.lit(False)) for is_newer in newer]
    return (
        statements.withColumn("is_late", is_late[0] | is_late[1])
        .where("not is_late")
        .withColumn("leader", F.last("leader", ignorenulls=True).over(until_now))
        .where("isr is not null")
    )


def _islands(statements: DataFrame) -> DataFrame:
    """One row for each run of statements that name the same members; see the theory, 3 to 5."""
    order = Window.partitionBy(*PARTITION).orderBy("ts_ms", "place")
    so_far = order.rowsBetween(Window.unboundedPreceding, -1)
    last_epoch = F.last("partition_epoch", ignorenulls=True).over(so_far)
    is_same = members(F.lag("isr").over(order)) == members("isr")
    is_next_change = F.col("is_unannounced") & (F.col("partition_epoch") != last_epoch)
    starts = ~F.coalesce(is_same, F.lit(False)) | F.coalesce(is_next_change, F.lit(False))
    row_of_epoch = F.expr("if(partition_epoch is not null, row, null)")
    rows_since = F.col("row") - F.last(row_of_epoch, ignorenulls=True).over(so_far)
    step = F.col("partition_epoch") - last_epoch
    at_first = ("isr", "leader", "is_unannounced", "misses_some")
    island = columns(
        "min(ts_ms) as ts_ms",
        *(f"min_by({name}, struct(ts_ms, place)) as {name}" for name in at_first),
        """min_by(stated_before, struct(ts_ms, place))
            filter (where stated_before is not null) as stated_before""",
        "max(by) as by",  # "leader" comes after "controller"
    )
    return (
        statements.withColumn("row", F.row_number().over(order))
        .withColumn("starts", starts.cast("int"))
        .withColumn("misses_some", F.coalesce(~step.between(0, rows_since), F.lit(False)))
        .withColumn("island", F.sum("starts").over(order))
        .groupBy(*PARTITION, "island")
        .agg(*island)
    )
