"""Whose fault is it: does a leader lose its followers, or a follower its leaders?

Theory of operation. A follower that is slow, or is stalled, leaves the ISRs of *all* leaders it
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

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from isrlab.churn.history import columns
from isrlab.churn.moves import evictions as all_evictions

QUIET_MS = 30_000
SHARE = 0.8
_ROLES = {  # who is in it, and whether a broker is in an eviction in that role
    "leader": ("pairs.leader", "pair.leader = broker"),
    "replica": ("pairs.replica", "pair.replica = broker"),
    "broker": ("concat(pairs.leader, pairs.replica)", "broker in (pair.leader, pair.replica)"),
}
_VERDICT = """case
    when leader_share >= {0} and replica_share < {0} then concat('leader ', leader)
    when replica_share >= {0} and leader_share < {0} then concat('follower ', replica)
    when leader_share < {0} and replica_share < {0} and broker_share >= {0}
        then concat('broker ', broker)
    else 'unclear' end as verdict"""


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
    order = Window.partitionBy("run").orderBy("ts_ms")
    gap = F.col("ts_ms") - F.lag("ts_ms").over(order)
    totals = columns(
        *("min(ts_ms) as from_ms", "max(ts_ms) as to_ms", "count(*) as evictions"),
        "count(distinct topic, partition) as partitions",
        "collect_list(struct(leader, replica)) as pairs",
    )
    named = [name for role in _ROLES for name in (role, f"{role}_share")]
    return (
        all_evictions(events)
        .withColumn("starts", F.when(gap <= quiet_ms, 0).otherwise(1))
        .withColumn("incident", F.sum("starts").over(order))
        .groupBy("run", "incident")
        .agg(*totals)
        .select("*", *[F.expr(f"{_most(role)} as {role}_top") for role in _ROLES])
        .withColumns({role: F.expr(f"-{role}_top.broker") for role in _ROLES})
        .withColumns({f"{r}_share": F.expr(f"{r}_top.count / evictions") for r in _ROLES})
        .orderBy("run", "from_ms")
        .select(
            *("run", "from_ms", "to_ms", "evictions", "partitions", *named),
            F.expr(_VERDICT.format(f"{share!r}D")),
        )
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


def _most(role: str) -> str:
    """Who has most evictions of an incident in a role, and how many; of equals the lowest number.

    The number is negative, so that the greatest of these is the answer.
    """
    brokers, is_in = _ROLES[role]
    count = f"size(filter(pairs, pair -> {is_in})) as count"
    each = f"transform(array_distinct({brokers}), broker -> struct({count}, -broker as broker))"
    return f"array_max({each})"
