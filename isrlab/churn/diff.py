"""What one run has that another has not: their ISR changes, matched one to one.

A change is one replica that leaves or joins the ISR of one partition, as `moves` tells it, so
two runs can be compared whoever wrote their events and however many lines tell of a change. Two
changes match if partition, replica and direction are the same and each is the other's nearest in
time, within a tolerance (of two equally near the earlier counts). Changes for which no ISR before
is known are left out.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from isrlab.churn.moves import moves

_KEY = ("was", "now", "topic", "partition", "replica", "change")


def diff(
    events: DataFrame, pairs: Iterable[tuple[str, str]], tolerance_ms: int = 10_000
) -> DataFrame:
    """One row for each ISR change of each pair of runs (before, after), with its `fate`.

    That is "same" (in both runs at the same millisecond), "moved" (at another time within the
    tolerance), "gone" (only in the run before) or "new" (only in the run after). `was_ms` and
    `now_ms` are its times in the two runs, null where it is missing; `moved_ms` is how much later
    it is. A run without events has no changes. Raises ValueError if `tolerance_ms` is negative.
    """
    if tolerance_ms < 0:
        raise ValueError(f"tolerance_ms must be 0 or more, not {tolerance_ms}")
    rows = [(was, now, *side) for was, now in pairs for side in (("was", was), ("now", now))]
    schema = "was string, now string, side string, run string"
    sides = events.sparkSession.createDataFrame(rows, schema)
    fate = """case when count(*) = 2 then if(was_ms = now_ms, 'same', 'moved')
        when min(side) = 'was' then 'gone' else 'new' end as fate"""
    return (
        moves(events)
        .join(F.broadcast(sides), on="run", how="inner")
        .select(*_KEY, "side", *[_nearest(side, tolerance_ms) for side in ("was", "now")])
        .groupBy(*_KEY, "was_ms", "now_ms")
        .agg(F.expr(fate))
        .withColumn("was_ms", F.expr("if(fate != 'new', was_ms, null)"))
        .withColumn("now_ms", F.expr("if(fate != 'gone', now_ms, null)"))
        .selectExpr(*_KEY, "fate", "was_ms", "now_ms", "now_ms - was_ms as moved_ms")
        .orderBy(*_KEY[:4], F.coalesce("was_ms", "now_ms"), *_KEY[4:])
    )


def _nearest(side: str, tolerance_ms: int) -> Column:
    """When this change comes on one side, at the time nearest to this row; on its own side, now."""
    window = Window.partitionBy(*_KEY).orderBy("ts_ms")
    there = F.when(F.col("side") == side, F.col("ts_ms"))
    earlier = F.max(there).over(window.rangeBetween(-tolerance_ms, 0))
    later = F.min(there).over(window.rangeBetween(0, tolerance_ms))
    is_later = later - F.col("ts_ms") < F.col("ts_ms") - earlier
    return F.when(is_later, later).otherwise(F.coalesce(earlier, later)).alias(f"{side}_ms")
