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
   the leader's if the leader told it or asked for it within the minute before, and if it is an
   expansion, for no controller ever adds to an ISR; else it is the controller's (an election, a
   fenced broker).
4. Partition epochs count the changes. Where they skip a number, changes are missing from the logs, and
   the ISR known before says nothing about the one right before.
5. If a leader commits without a word before, it was an expansion, because leaders announce every
   shrink. Also if it commits, under another partition epoch, the very ISR that was known before: then
   somebody had gone in between. Who came back is not known.

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
_REQUESTS = ("isr_shrink", "isr_expand")
_OWN = (*_REQUESTS, "isr_commit", "isr_rejected")
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
    before = F.when(_members(known) != _members("isr"), known)
    by = F.when(_is_expand(), "leader").otherwise(F.col("by"))
    return (
        _islands(_fresh(_statements(events)))
        .withColumn("isr_before", before)
        .withColumn("change", _change())
        .select(*PARTITION, "ts_ms", "leader", "isr", "isr_before", "change", by.alias("by"))
    )


def isr_intervals(events: DataFrame, end_ms: int | None = None) -> DataFrame:
    """From when to when each ISR held. The last one of a partition holds until `end_ms`.

    `end_ms` (milliseconds since the epoch) defaults to the last event of the run. `is_certain` is
    false where the logs miss changes before `to_ms`: the ISR may have been another for a part of it.
    """
    ends = events.groupBy("run").agg(F.max("ts_ms").alias("end_ms"))
    order = Window.partitionBy(*PARTITION).orderBy("ts_ms")
    next_ms = F.lead("ts_ms").over(order)
    misses_some = next_ms.isNotNull() & F.lead("isr_before").over(order).isNull()
    end = F.lit(end_ms) if end_ms is not None else F.col("end_ms")
    rows = isr_history(events).join(F.broadcast(ends), on="run", how="inner")
    return (
        rows.withColumn("is_certain", ~misses_some)
        .withColumn("to_ms", F.least(F.coalesce(next_ms, end), end))
        .where(F.col("to_ms") >= F.col("ts_ms"))
        .select(
            *PARTITION,
            F.col("ts_ms").alias("from_ms"),
            F.col("to_ms").cast("long").alias("to_ms"),
            "isr",
            F.size("isr").alias("isr_size"),
            "leader",
            "is_certain",
        )
    )


def changes_by_partition(events: DataFrame) -> DataFrame:
    """How often the ISR of each partition shrank and grew, most changes first.

    `shrinks` and `expands` count every change. `shrinks_by_controller` are those among the shrinks
    that no leader asked for: IsrShrinksPerSec leaves them out. `rejected` counts refused changes, as
    FailedIsrUpdatesPerSec does.
    """
    by_controller = F.col("by") == "controller"
    totals = [
        F.count_if(_is_shrink()).alias("shrinks"),
        F.count_if(_is_expand()).alias("expands"),
        F.count_if(_is_shrink() & by_controller).alias("shrinks_by_controller"),
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
        .select(*PARTITION, "shrinks", "expands", "shrinks_by_controller", "rejected")
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

    A partition's `replicas` are, unless given, the most that any event names: the largest ISR, or
    an assignment in `detail.replicas`. `time_with_one_copy_ms` is the time in which one more failure
    would have taken it offline (0 for a partition that has a single replica anyway).
    `known_ms` is how long its ISR is known for certain, and only that time counts; `uncertain_ms` is
    the time in which the logs miss changes. Kafka's metric UnderReplicatedPartitions counts partitions
    at a moment: this is its integral.
    """
    count = F.lit(replicas) if replicas is not None else F.col("most")
    all_of_it = F.col("to_ms") - F.col("from_ms")
    length = F.when(F.col("is_certain"), all_of_it).otherwise(0)
    is_under = F.col("isr_size") < F.col("replicas")
    is_alone = is_under & (F.col("isr_size") <= 1)
    times = [
        F.sum(length).alias("known_ms"),
        F.sum(all_of_it - length).alias("uncertain_ms"),
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
        .select(
            *PARTITION,
            "replicas",
            "known_ms",
            "under_replicated_ms",
            "time_with_one_copy_ms",
            "uncertain_ms",
        )
    )


def flaps(events: DataFrame, within_ms: int = 60_000) -> DataFrame:
    """The replicas that left an ISR and were back within `within_ms`: each a shrink for nothing.

    Raises ValueError if `within_ms` is negative.
    """
    if within_ms < 0:
        raise ValueError(f"within_ms must be 0 or more, not {within_ms}")
    return _absences(events).where(F.col("out_ms") <= within_ms).orderBy("left_ms", *PARTITION)


def slowest_expansions(events: DataFrame, most: int = 10) -> DataFrame:
    """How long replicas were out before they rejoined, longest first, at most `most` rows.

    A replica whose leaving no line tells is not in it, nor one that has not come back. Raises
    ValueError if `most` is negative.
    """
    if most < 0:
        raise ValueError(f"most must be 0 or more, not {most}")
    longest = [F.desc("out_ms"), "left_ms", *PARTITION, "replica"]
    return _absences(events).orderBy(*longest).limit(most)


def commit_delay(events: DataFrame) -> DataFrame:
    """Milliseconds from the change a leader asked for to its commit, for each that was committed.

    Both times are of the leader's own clock. On releases that print no commit there is none.
    """
    order = Window.partitionBy(*PARTITION, "broker").orderBy("ts_ms", "place")
    rows = events.where(F.col("kind").isin(*_OWN) & _is_own()).withColumn("place", _place())
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
        .when(F.col("isr_before").isNull() & F.col("misses_some"), "unknown")
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


def _statements(events: DataFrame) -> DataFrame:
    """Everything that says which ISR is stored or who leads, in one form; see the theory, 1.

    All windows from here to the history are within a partition, so the data move once.
    """
    kind = F.col("kind")
    is_own = kind.isin(*_OWN) & _is_own()
    rows = (
        events.where(kind.isin(*_OWN, *_OTHERS))
        .where(F.col("topic").isNotNull() & F.col("partition").isNotNull())
        .join(F.broadcast(_brokers_that_print_commits(events)), on=["run", "broker"], how="left")
        .repartition(*PARTITION)
        .withColumn("is_own", is_own)
        .withColumn("place", _place())
    )
    order = Window.partitionBy(*PARTITION, "broker", "is_own").orderBy("ts_ms", "place")
    is_leaders = F.col("is_own") | _is_answer() | _is_asked_for()
    return (
        rows.withColumn("is_stored", _is_stored(order))
        .withColumn("stated_before", _stated_before(order))
        .withColumn("by", F.when(is_leaders, "leader").otherwise("controller"))
        .where((kind != "isr_rejected") & (~kind.isin(*_REQUESTS) | F.col("is_stored")))
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
    commits = events.where("kind = 'isr_commit' and broker is not null").where(_is_own())
    return commits.select("run", "broker", F.lit(True).alias("prints_commits")).distinct()


def _is_stored(order: WindowSpec) -> Column:
    """What a leader asked for was stored, as far as its own later lines tell."""
    next_kind = F.lead("kind").over(order)
    next_before = _members(F.lead("isr_before").over(order))
    return (
        F.when(next_kind.isin("isr_rejected", "isr_commit"), False)
        .when(next_before == _members("isr"), True)
        .when(next_before == _members("isr_before"), False)
        .otherwise(F.col("prints_commits").isNull())
    )


def _stated_before(order: WindowSpec) -> Column:
    """The ISR before a change: the line's own word, or that of the request it answers."""
    is_answer = F.lag("kind").over(order).isin(*_REQUESTS) & (
        _members(F.lag("isr").over(order)) == _members("isr")
    )
    return F.coalesce("isr_before", F.when(is_answer, F.lag("isr_before").over(order)))


def _is_unannounced() -> Column:
    """A leader's own log says "ISR updated" without having said "Shrinking" or "Expanding"."""
    is_from_log = _detail("file").isNotNull() & (F.col("partition_epoch") > 0)
    is_commit = F.col("is_own") & (F.col("kind") == "isr_commit")
    return F.coalesce(is_commit & is_from_log & F.col("stated_before").isNull(), F.lit(False))


def _is_answer() -> Column:
    """A ZooKeeper controller stores what a leader asked it for."""
    return F.coalesce(_detail("asked_by") == "leader", F.lit(False))


def _is_asked_for() -> Column:
    """A leader asked for this very ISR within the minute before."""
    until_now = Window.partitionBy(*PARTITION).orderBy("ts_ms", "place")
    request = F.struct(_members("isr").alias("isr"), "ts_ms")
    asked = F.last(F.when(F.col("kind").isin(*_REQUESTS), request), ignorenulls=True).over(
        until_now
    )
    is_recent = F.col("ts_ms") - asked["ts_ms"] <= LATE_NEWS_MS
    return F.coalesce((asked["isr"] == _members("isr")) & is_recent, F.lit(False))


def _leader() -> Column:
    kind = F.col("kind")
    return (
        F.when(F.col("is_own"), F.col("broker"))
        .when(kind == "leader", F.coalesce("replica", "broker"))
        .when(kind == "follower", F.col("replica"))
        .otherwise(_detail("leader").try_cast("int"))
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
    is_same = _members(F.lag("isr").over(order)) == _members("isr")
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
