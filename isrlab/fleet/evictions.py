"""Why the leaders of a fleet evicted followers, and whether those were running; also on Spark.

An eviction's *reason* follows from what its leader knew, by today's lag clock. The eviction is also
judged by facts that no clock changes: whether the follower's fetchers were running then, and when
it rejoined. Spark's workers import this module, so it must not import what they lack (matplotlib).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isrlab.events import exact
from isrlab.fleet import load
from isrlab.fleet.config import FleetConfig

REASONS = (  # what the leader knew, by today's lag clock
    "too many records behind", "kept up, but never at the log end",
    "stalled, and lacked nothing", "let in while behind", "behind for longer than the limit",
)  # fmt: skip
JUDGED = dict.fromkeys(("partition", "replica", "ts_ms"), "int64")  # columns and types
JUDGED |= {"run": "string", "out_s": "float64", "reason": "string", "is_at_work": "boolean"}


def reason(out: exact.Absence, config: FleetConfig, since_joined_ms: float) -> str:
    """Why a leader evicted a follower (of `REASONS`); `since_joined_ms`: inf if it never left."""
    messages, clock, idle, early, behind = REASONS
    lag, since_ms = out.lag_records or 0, out.since_caught_up_ms or 0
    if since_ms <= config.lag_time_ms:
        return messages if lag > (config.lag_messages or math.inf) else clock
    return idle if lag == 0 else early if since_ms > since_joined_ms else behind


def judged(config: FleetConfig, events: pa.Table) -> pd.DataFrame:
    """Each eviction in the events of a fleet, columns as in `JUDGED`."""
    back_ms: dict[tuple[exact.Key, int], float] = {}
    rows = []
    for out in exact.evictions(events):
        place, end_ms = (out.key, out.replica), out.end_ms
        since_joined_ms = out.start_ms - back_ms.get(place, -math.inf)
        why = reason(out, config, since_joined_ms)
        back_ms[place] = config.duration_ms if end_ms is None else end_ms
        starts, ends = load.stalls(config, out.replica)
        stalled = ((starts <= out.start_ms) & (out.start_ms < ends)).any()
        at_work = config.stall_speed > 0 or not stalled
        out_s = (back_ms[place] - out.start_ms) / 1000
        rows.append((out.key.partition, out.replica, out.start_ms, config.run, out_s, why, at_work))
    return pd.DataFrame(rows, columns=[*JUDGED]).astype(JUDGED)


def judged_on_spark(events: DataFrame, configs: Iterable[FleetConfig]) -> pd.DataFrame:
    """The judged evictions of many fleets, by Spark's workers; `configs`: those of all runs."""
    by_run = {config.run: config for config in configs}

    def judge(table: pa.Table) -> pa.Table:
        rows = judged(by_run[table["run"][0].as_py()], table)
        return pa.Table.from_pandas(rows, preserve_index=False)

    spark_types = {"int64": "long", "float64": "double"}
    types = ", ".join(f"{name} {spark_types.get(kind, kind)}" for name, kind in JUDGED.items())
    of_isr = events.where("kind in ('isr_shrink', 'isr_commit')")
    return of_isr.groupBy("run", F.expr("partition div 500")).applyInArrow(judge, types).toPandas()
