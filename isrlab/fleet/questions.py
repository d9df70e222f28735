"""What only a simulation knows: which evictions were false alarms, by a measure all versions share.

Every shrink carries in its `detail` how long ago the evicted follower had everything the leader had
at its last fetch but one (the lag clock of 0.10.2 and later, computed whatever the version). An
eviction is a *false alarm* if that was within `replica.lag.time.max.ms`: the follower worked, and
had just been caught up. The general questions about ISR changes are in `isrlab.churn`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EVICTIONS = """
    SELECT e.run, e.ts_ms, e.partition, e.broker AS leader, e.replica,
           CAST(e.detail['lag_records'] AS LONG) AS lag_records,
           CAST(e.detail['since_fetch_ms'] AS LONG) AS since_fetch_ms,
           CAST(e.detail['since_caught_up_ms'] AS LONG) AS since_caught_up_ms,
           CAST(e.detail['since_caught_up_ms'] AS LONG) <= r.lag_time_ms AS is_false_alarm,
           r.lag_time_ms, r.lag_messages
    FROM {events} e INNER JOIN {runs} r ON e.run = r.run
    WHERE e.kind = 'isr_shrink'
    ORDER BY r.place, e.ts_ms, e.partition
"""

ALARMS = """
    SELECT r.*,
           COUNT(e.run) AS shrinks,
           COUNT_IF(e.is_false_alarm) AS false_alarms,
           COUNT(e.run) * 60 / r.minutes AS shrinks_per_hour,
           COUNT_IF(e.is_false_alarm) * 60 / r.minutes AS false_alarms_per_hour
    FROM {runs} r LEFT JOIN {evictions} e ON r.run = e.run
    GROUP BY ALL
    ORDER BY r.place
"""

COMPARED = """
    SELECT r.*,
           COALESCE(c.shrinks, 0) AS shrinks,
           COALESCE(f.false_alarms, 0) AS false_alarms,
           COALESCE(c.shrinks, 0) - COALESCE(f.false_alarms, 0) AS real_evictions,
           COALESCE(c.shrinks, 0) * 60 / r.minutes AS shrinks_per_hour,
           COALESCE(f.false_alarms, 0) * 60 / r.minutes AS false_alarms_per_hour,
           COALESCE(u.under_replicated_ms, 0) / 60000 AS under_replicated_minutes
    FROM {runs} r
    LEFT JOIN (SELECT run, SUM(shrinks) AS shrinks FROM {changes} GROUP BY run) c
           ON r.run = c.run
    LEFT JOIN (SELECT run, COUNT_IF(is_false_alarm) AS false_alarms FROM {evictions} GROUP BY run) f
           ON r.run = f.run
    LEFT JOIN (SELECT run, SUM(under_replicated_ms) AS under_replicated_ms
               FROM {absences} GROUP BY run) u
           ON r.run = u.run
    ORDER BY r.place
"""


def evictions(events: DataFrame, runs: DataFrame) -> DataFrame:
    """One row for each shrink, with what the leader knew of the follower, and whether it was right.

    `replica` is null where several followers left at once; the times are then those of the one that
    was best off.
    """
    return events.sparkSession.sql(EVICTIONS, events=events, runs=runs)


def alarms(runs: DataFrame, evictions: DataFrame) -> DataFrame:
    """One row for each run: its settings, shrinks and false alarms; enough to compare many runs."""
    return runs.sparkSession.sql(ALARMS, runs=runs, evictions=evictions)


def compared(
    runs: DataFrame, evictions: DataFrame, changes: DataFrame, absences: DataFrame
) -> DataFrame:
    """One row for each run: its settings, shrinks, false alarms, and under-replicated time.

    `evictions` is the answer of the question above, `changes` that of `churn.changes_by_partition`,
    `absences` that of `churn.under_replicated`. `under_replicated_minutes` adds up
    partition-minutes.
    """
    return runs.sparkSession.sql(
        COMPARED, runs=runs, changes=changes, evictions=evictions, absences=absences
    )
