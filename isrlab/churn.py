"""The questions: how often does the ISR change, who leaves it, for how long, and what does it cost?

Every question takes a DataFrame of events (`events.SCHEMA`) and returns a DataFrame; its last step is
a `select` that says which columns. They do not know whether a simulation or a real broker spoke.

Theory of operation. Real logs tell one change several times: the leader asks (`isr_shrink`,
`isr_expand`), the change is stored (`isr_commit`, from the leader, or from the controller with
`detail.said_by`), other brokers learn of it (`leader`, `metadata`). And they leave things out: up to
2.3 a leader does not print the commit, since 2.8 it does not announce an expansion, and no leader
says that the controller took a dead broker out. `isr_history` makes one sequence of ISRs of that, and
every other question asks the history, so that no change counts twice:

1. An ISR that was asked for counts as stored if a commit follows (the commit then counts, not the
   request), if the leader's next request starts from it, or if this broker never prints commits. A
   refused one does not count, nor one that the leader repeats from the same ISR.
2. A statement with an older partition epoch or leader epoch than one within the minute before it is
   late news, and is dropped.
3. Statements in a row that name the same members are one: the earliest gives the time. The change is
   the leader's if the leader told it, else it is the controller's (an election, a fenced broker).
4. If a leader commits, under a new partition epoch, the very ISR that was known before, then something
   in between is missing from the logs. What the leader did is then an expansion, because leaders
   announce every shrink; who came back is not known.

Clocks of brokers differ. Orders between brokers are as good as their clocks.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

LATE_NEWS_MS = 60_000
PARTITION = ("run", "topic", "partition")
_REQUESTS = ("isr_shrink", "isr_expand")
_STATEMENTS = (*_REQUESTS, "isr_commit", "isr_rejected", "leader", "follower", "metadata")


def isr_history(events: DataFrame) -> DataFrame:
    """The sequence of ISRs of each partition: one row for each change, in order of time.

    `isr_before` is null where no line tells it. `change` is "first" (nothing known before), "shrink",
    "expand", or "replace" (members left and joined at once); `by` is "leader" or "controller".
    Only a leader's changes are in Kafka's metrics IsrShrinksPerSec and IsrExpandsPerSec.
    """
    order = Window.partitionBy(*PARTITION).orderBy("ts_ms", "island")
    known = F.coalesce("stated_before", F.lag("isr").over(order))
    before = F.when(_members(known) != _members("isr"), known)
    rows = _islands(_fresh(_statements(events))).withColumn("isr_before", before)
    return rows.select(
        *PARTITION, "ts_ms", "leader", "isr", "isr_before", _change().alias("change"), "by"
    )


def isr_intervals(events: DataFrame, end_ms: int | None = None) -> DataFrame:
    """From when to when each ISR held. The last one of a partition holds until `end_ms`.

    `end_ms` (milliseconds since the epoch) defaults to the last event of the run.
    """
    ends = events.groupBy("run").agg(F.max("ts_ms").alias("end_ms"))
    next_ms = F.lead("ts_ms").over(Window.partitionBy(*PARTITION).orderBy("ts_ms"))
    end = F.lit(end_ms) if end_ms is not None else F.col("end_ms")
    rows = isr_history(events).join(F.broadcast(ends), on="run", how="inner")
    return (
        rows.withColumn("to_ms", F.least(F.coalesce(next_ms, end), end))
        .where(F.col("to_ms") >= F.col("ts_ms"))
        .select(
            *PARTITION,
            F.col("ts_ms").alias("from_ms"),
            F.col("to_ms").cast("long").alias("to_ms"),
            "isr",
            F.size("isr").alias("isr_size"),
            "leader",
        )
    )


def changes_by_partition(events: DataFrame) -> DataFrame:
    """How often the ISR of each partition shrank and grew, most changes first.

    `shrinks` and `expands` count every change; `..._by_controller` are those among them that no leader
    told, which IsrShrinksPerSec and IsrExpandsPerSec leave out. `rejected` counts refused changes
    (FailedIsrUpdatesPerSec counts the leader's view of these).
    """
    by_controller = F.col("by") == "controller"
    totals = [
        F.count_if(_is_shrink()).alias("shrinks"),
        F.count_if(_is_expand()).alias("expands"),
        F.count_if(_is_shrink() & by_controller).alias("shrinks_by_controller"),
        F.count_if(_is_expand() & by_controller).alias("expands_by_controller"),
    ]
    rejected = (
        events.where("kind = 'isr_rejected'")
        .groupBy(*PARTITION)
        .agg(F.count("*").alias("rejected"))
    )
    return (
        isr_history(events)
        .groupBy(*PARTITION)
        .agg(*totals)
        .join(rejected, on=list(PARTITION), how="full")
        .na.fill(0)
        .orderBy(F.desc(F.col("shrinks") + F.col("expands")), *PARTITION)
        .select(
            *PARTITION,
            "shrinks",
            "expands",
            "shrinks_by_controller",
            "expands_by_controller",
            "rejected",
        )
    )


def changes_over_time(events: DataFrame, bucket_ms: int = 60_000) -> DataFrame:
    """Shrinks and expands of all partitions in each `bucket_ms`; intervals without any are left out.

    Raises ValueError unless `bucket_ms` is positive.
    """
    if bucket_ms <= 0:
        raise ValueError(f"bucket_ms must be positive, not {bucket_ms}")
    from_ms = (F.floor(F.col("ts_ms") / bucket_ms) * bucket_ms).alias("from_ms")
    counts = [
        F.count_if(_is_shrink()).alias("shrinks"),
        F.count_if(_is_expand()).alias("expands"),
    ]
    return (
        isr_history(events)
        .where(_is_shrink() | _is_expand())
        .groupBy("run", from_ms)
        .agg(*counts)
        .orderBy("run", "from_ms")
        .select("run", "from_ms", "shrinks", "expands")
    )


def under_replicated(
    events: DataFrame, replicas: int | None = None, end_ms: int | None = None
) -> DataFrame:
    """How long each partition had fewer replicas in its ISR than it has replicas, in milliseconds.

    A partition's `replicas` are, unless given, the most that any event names: the largest ISR, or an
    assignment in `detail.replicas`. `time_with_one_copy_ms` is the time in which one more failure
    would have taken the partition offline (partitions that have a single replica are left out of it).
    `known_ms` is how long an ISR is known at all. Kafka's metrics UnderReplicatedPartitions and
    AtMinIsr count partitions at a moment; this is their integral.
    """
    count = F.lit(replicas) if replicas is not None else F.col("most")
    length = F.col("to_ms") - F.col("from_ms")
    is_under = F.col("isr_size") < F.col("replicas")
    is_alone = is_under & (F.col("isr_size") <= 1)
    times = [
        F.sum(length).alias("known_ms"),
        F.sum(F.when(is_under, length).otherwise(0)).alias("under_replicated_ms"),
        F.sum(F.when(is_alone, length).otherwise(0)).alias("time_with_one_copy_ms"),
    ]
    return (
        isr_intervals(events, end_ms)
        .join(_most_replicas(events), on=list(PARTITION), how="inner")
        .withColumn("replicas", count.cast("int"))
        .groupBy(*PARTITION, "replicas")
        .agg(*times)
        .orderBy(F.desc("under_replicated_ms"), *PARTITION)
        .select(*PARTITION, "replicas", "known_ms", "under_replicated_ms", "time_with_one_copy_ms")
    )


def flaps(events: DataFrame, within_ms: int = 60_000) -> DataFrame:
    """The replicas that left an ISR and were back within `within_ms`: each a shrink for nothing."""
    return _absences(events).where(F.col("out_ms") <= within_ms).orderBy("left_ms", *PARTITION)


def slowest_expansions(events: DataFrame, most: int = 10) -> DataFrame:
    """How long replicas were out before they rejoined, longest first, at most `most` rows.

    A replica whose leaving no line tells is not in it, nor one that has not come back.
    """
    longest = [F.desc("out_ms"), "left_ms", *PARTITION, "replica"]
    return _absences(events).orderBy(*longest).limit(most)


def commit_delay(events: DataFrame) -> DataFrame:
    """Milliseconds from the change a leader asked for to its commit, for each that was committed.

    Both times are of the leader's own clock. On releases that print no commit there is none.
    """
    order = _own_order()
    rows = events.where(F.col("kind").isin(*_REQUESTS, "isr_commit", "isr_rejected") & _is_own())
    follows = (F.lead("kind").over(order) == "isr_commit") & (
        _members(F.lead("isr").over(order)) == _members("isr")
    )
    committed_ms = F.when(follows, F.lead("ts_ms").over(order))
    return (
        rows.withColumn("committed_ms", committed_ms)
        .where(F.col("kind").isin(*_REQUESTS) & F.col("committed_ms").isNotNull())
        .orderBy("ts_ms", *PARTITION)
        .select(
            *PARTITION,
            "broker",
            "kind",
            F.col("ts_ms").alias("asked_ms"),
            "committed_ms",
            (F.col("committed_ms") - F.col("ts_ms")).alias("delay_ms"),
        )
    )


# What the questions are made of


def _members(isr: Column | str) -> Column:
    """An ISR as a set: brokers list its members in any order."""
    return F.array_sort(F.col(isr) if isinstance(isr, str) else isr)


def _detail(name: str) -> Column:
    return F.try_element_at("detail", F.lit(name))


def _is_own() -> Column:
    """The leader itself said it, not a controller."""
    return F.coalesce(_detail("said_by"), F.lit("leader")) != "controller"


def _is_shrink() -> Column:
    return F.col("change") == "shrink"


def _is_expand() -> Column:
    return F.col("change") == "expand"


def _change() -> Column:
    left = F.size(F.array_except("isr_before", "isr")) > 0
    joined = F.size(F.array_except("isr", "isr_before")) > 0
    return (
        F.when(F.col("isr_before").isNull() & F.col("is_unannounced"), "expand")
        .when(F.col("isr_before").isNull(), "first")
        .when(left & joined, "replace")
        .when(left, "shrink")
        .otherwise("expand")
    )


def _place() -> Column:
    """The order of one moment: the line in the log, else requests before answers."""
    rank = F.when(F.col("kind").isin(*_REQUESTS), 0).otherwise(1)
    line = F.coalesce(_detail("line").try_cast("long"), F.lit(0))
    return F.struct(line, F.coalesce("partition_epoch", F.lit(-1)), rank)


def _own_order() -> WindowSpec:
    """What one broker said about one partition, in order."""
    return Window.partitionBy(*PARTITION, "broker").orderBy("ts_ms", _place())


def _statements(events: DataFrame) -> DataFrame:
    """Everything that says which ISR is stored or who leads, in one form; see the theory, 1."""
    kind = F.col("kind")
    rows = events.where(kind.isin(*_STATEMENTS) & F.col("topic").isNotNull()).where(
        F.col("partition").isNotNull()
    )
    own = rows.where(kind.isin(*_REQUESTS, "isr_commit", "isr_rejected") & _is_own())
    others = rows.where(
        kind.isin("leader", "follower", "metadata") | (kind == "isr_commit") & ~_is_own()
    )
    return _own_statements(own).unionByName(_other_statements(others))


def _own_statements(own: DataFrame) -> DataFrame:
    """What leaders say they stored, and what they asked for if that can be taken as stored."""
    order, kind = _own_order(), F.col("kind")
    next_kind = F.lead("kind").over(order)
    next_before = _members(F.lead("isr_before").over(order))
    never_prints_commits = ~F.max(kind == "isr_commit").over(Window.partitionBy("run", "broker"))
    is_stored = (
        F.when(next_kind.isin("isr_rejected", "isr_commit"), False)
        .when(next_before == _members("isr"), True)
        .when(next_before == _members("isr_before"), False)
        .otherwise(never_prints_commits)
    )
    is_answer = F.lag("kind").over(order).isin(*_REQUESTS) & (
        _members(F.lag("isr").over(order)) == _members("isr")
    )
    before = F.coalesce("isr_before", F.when(is_answer, F.lag("isr_before").over(order)))
    is_from_log = _detail("file").isNotNull() & (F.col("partition_epoch") > 0)
    return (
        own.withColumn("is_kept", (kind == "isr_commit") | (kind.isin(*_REQUESTS) & is_stored))
        .withColumn("stated_before", before)
        .withColumn("is_unannounced", F.col("stated_before").isNull() & is_from_log)
        .where("is_kept")
        .withColumn("place", _place())
        .withColumn("leader", F.col("broker"))
        .withColumn("by", F.lit("leader"))
        .select(*_STATEMENT)
    )


def _other_statements(others: DataFrame) -> DataFrame:
    """What elections, controllers and metadata say; without an ISR it still says who leads."""
    says_leader = _detail("leader").try_cast("int")
    leader = (
        F.when(F.col("kind") == "leader", F.coalesce("replica", "broker"))
        .when(F.col("kind") == "follower", F.col("replica"))
        .otherwise(says_leader)
    )
    return (
        others.withColumn("stated_before", F.col("isr_before"))
        .withColumn("is_unannounced", F.lit(False))
        .withColumn("place", _place())
        .withColumn("leader", leader)
        # a controller that stores what a leader asked for names nobody whom it removed
        .withColumn("by", F.when(_is_leaders_change(), "leader").otherwise("controller"))
        .select(*_STATEMENT)
    )


def _is_leaders_change() -> Column:
    """A ZooKeeper controller's line "ISR for partition ... updated": it answers a leader's request."""
    names_removed = _detail("removed").isNotNull() | F.col("leader_epoch").isNotNull()
    return (F.col("kind") == "isr_commit") & ~names_removed


_STATEMENT = (
    *PARTITION,
    "ts_ms",
    "place",
    "leader_epoch",
    "partition_epoch",
    "isr",
    "stated_before",
    "is_unannounced",
    "leader",
    "by",
)


def _fresh(statements: DataFrame) -> DataFrame:
    """Without late news, and with the leader as far as it is known by then; see the theory, 2."""
    minute = Window.partitionBy(*PARTITION).orderBy("ts_ms").rangeBetween(-LATE_NEWS_MS, -1)
    until_now = Window.partitionBy(*PARTITION).orderBy("ts_ms", "place")
    is_late = reduce(
        lambda late, epoch: (
            late | F.coalesce(F.max(epoch).over(minute) > F.col(epoch), F.lit(False))
        ),
        ("partition_epoch", "leader_epoch"),
        F.lit(False),
    )
    return (
        statements.withColumn("is_late", is_late)
        .where(~F.col("is_late"))
        .withColumn("leader", F.last("leader", ignorenulls=True).over(until_now))
        .where(F.col("isr").isNotNull())
    )


def _islands(statements: DataFrame) -> DataFrame:
    """One row for each run of statements that name the same members; see the theory, 3 and 4."""
    order = Window.partitionBy(*PARTITION).orderBy("ts_ms", "place")
    so_far = order.rowsBetween(Window.unboundedPreceding, -1)
    is_same = _members(F.lag("isr").over(order)) == _members("isr")
    is_missing_one = F.col("is_unannounced") & (
        F.col("partition_epoch") > F.max("partition_epoch").over(so_far)
    )
    starts = ~F.coalesce(is_same, F.lit(False)) | F.coalesce(is_missing_one, F.lit(False))
    moment = F.struct("ts_ms", "place")
    told = [
        F.min("ts_ms").alias("ts_ms"),
        F.min_by("isr", moment).alias("isr"),
        F.min_by("leader", moment).alias("leader"),
        F.min_by("is_unannounced", moment).alias("is_unannounced"),
        F.min_by("stated_before", F.when(F.col("stated_before").isNotNull(), moment)).alias(
            "stated_before"
        ),
        F.max("by").alias("by"),  # "leader" comes after "controller"
    ]
    return (
        statements.withColumn("starts", starts.cast("int"))
        .withColumn("island", F.sum("starts").over(order))
        .groupBy(*PARTITION, "island")
        .agg(*told)
    )


def _absences(events: DataFrame) -> DataFrame:
    """Each time a replica left an ISR and came back: when, when, and the milliseconds between."""
    history = isr_history(events)
    left = F.explode(F.array_except("isr_before", "isr")).alias("replica")
    back = F.explode(F.array_except("isr", "isr_before")).alias("replica")
    moves = history.select(*PARTITION, "ts_ms", left, F.lit(True).alias("is_left")).unionByName(
        history.select(*PARTITION, "ts_ms", back, F.lit(False).alias("is_left"))
    )
    order = Window.partitionBy(*PARTITION, "replica").orderBy("ts_ms", "is_left")
    left_ms = F.when(F.lag("is_left").over(order), F.lag("ts_ms").over(order))
    return (
        moves.withColumn("left_ms", left_ms)
        .where(~F.col("is_left") & F.col("left_ms").isNotNull())
        .select(
            *PARTITION,
            "replica",
            "left_ms",
            F.col("ts_ms").alias("back_ms"),
            (F.col("ts_ms") - F.col("left_ms")).alias("out_ms"),
        )
    )


def _most_replicas(events: DataFrame) -> DataFrame:
    """The most replicas that any event of a partition names, in an ISR or in an assignment."""
    assigned = F.size(F.split(_detail("replicas"), ","))
    sizes = [F.coalesce(F.size(name), F.lit(0)) for name in ("isr", "isr_before")]
    named = F.greatest(*sizes, F.coalesce(assigned, F.lit(0)))
    return events.groupBy(*PARTITION).agg(F.max(named).alias("most"))
