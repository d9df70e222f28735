"""Whose fault is it: does a leader lose its followers, or a follower its leaders?

Theory of operation. A follower that is slow, or stands still, leaves the ISRs of *all* leaders it
reads from; a leader that is slow loses *all* its followers, healthy as they are (KAFKA-8733). A
broker whose whole machine was away is evicted by others, and may evict them itself. So the
evictions of one incident are counted by leader, by evicted replica, and by broker in either role.
An *incident* are evictions of one run that follow each other within `quiet_ms`: leaders look at
their ISRs only every half lag limit, and not together.

Only evictions that a leader made count. What a controller removes (a broker that was shut down or
fenced) needs no verdict. Several troubles at once in a large cluster are one incident, and end as
"unclear"; so does one partition that loses one replica: it names one leader and one replica.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from isrlab.churn.moves import evictions as all_evictions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

QUIET_MS = 30_000
SHARE = 0.8
_ROLES = ("leader", "replica", "broker")  # the last: in either


def blame(events: DataFrame, quiet_ms: int = QUIET_MS, share: float = SHARE) -> DataFrame:
    """Each incident of evictions, and who is to blame for it.

    `leader` and `replica` are the ones with most evictions, `leader_share` and `replica_share` (0
    to 1) their part of all; `broker` is in most evictions, as either. `verdict`: "leader 1" or
    "follower 1" if that one has at least `share` of the evictions and nobody has so many in the
    other role; "broker 1" if neither, but one broker is in so many, and in both roles; else
    "unclear". Raises ValueError unless `quiet_ms` is positive and `share` is above 0.5, up to 1.
    """
    if quiet_ms <= 0:
        raise ValueError(f"quiet_ms must be positive, not {quiet_ms}")
    if not 0.5 < share <= 1:
        raise ValueError(f"share must be above 0.5 and at most 1, not {share}")
    totals = [
        F.min("ts_ms").alias("from_ms"),
        F.max("ts_ms").alias("to_ms"),
        F.count("*").alias("evictions"),
        F.count_distinct("topic", "partition").alias("partitions"),
        F.collect_list(F.struct("leader", "replica")).alias("pairs"),
    ]
    tops = {role: _most(role) for role in _ROLES}
    named = [name for role in _ROLES for name in (role, f"{role}_share")]
    return (
        _numbered(all_evictions(events), quiet_ms)
        .groupBy("run", "incident")
        .agg(*totals)
        .withColumns({f"{role}_top": top for role, top in tops.items()})
        .withColumns({role: -F.col(f"{role}_top")["broker"] for role in _ROLES})
        .withColumns(
            {f"{r}_share": F.col(f"{r}_top")["count"] / F.col("evictions") for r in _ROLES}
        )
        .withColumn("verdict", _verdict(share))
        .orderBy("run", "from_ms")
        .select("run", "from_ms", "to_ms", "evictions", "partitions", *named, "verdict")
    )


def evictions_by_pair(events: DataFrame) -> DataFrame:
    """How often each leader evicted each replica: run, leader, replica, evictions."""
    return (
        all_evictions(events)
        .groupBy("run", "leader", "replica")
        .agg(F.count("*").alias("evictions"))
        .orderBy("run", "leader", "replica")
        .select("run", "leader", "replica", "evictions")
    )


def _numbered(evictions: DataFrame, quiet_ms: int) -> DataFrame:
    """Evictions with the number of their incident."""
    order = Window.partitionBy("run").orderBy("ts_ms")
    gap = F.col("ts_ms") - F.lag("ts_ms").over(order)
    return evictions.withColumn(
        "starts", F.when(gap.isNull() | (gap > quiet_ms), 1).otherwise(0)
    ).withColumn("incident", F.sum("starts").over(order))


def _most(role: str) -> Column:
    """Who has most evictions of an incident in a role, and how many; of equals the lowest number.

    The number is negative, so that the greatest of these is the answer.
    """
    sides = ("leader", "replica") if role == "broker" else (role,)
    brokers = F.array_distinct(F.concat(*[F.col("pairs")[side] for side in sides]))

    def counted(broker: Column) -> Column:
        def is_in(pair: Column) -> Column:
            return F.array_contains(F.array(*[pair[side] for side in sides]), broker)

        count = F.size(F.filter("pairs", is_in))
        return F.struct(count.alias("count"), (-broker).alias("broker"))

    return F.array_max(F.transform(brokers, counted))


def _verdict(share: float) -> Column:
    leads, follows = F.col("leader_share") >= share, F.col("replica_share") >= share
    is_either = (F.col("leader_share") < 1) & (F.col("broker_share") >= share)
    return (
        F.when(leads & ~follows, F.format_string("leader %d", "leader"))
        .when(follows & ~leads, F.format_string("follower %d", "replica"))
        .when(~leads & ~follows & is_either, F.format_string("broker %d", "broker"))
        .otherwise("unclear")
    )
