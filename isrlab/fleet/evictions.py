"""Why the leaders of a fleet evicted followers, and whether those were running; also on Spark.

An eviction's *reason* follows from what its leader knew, by today's lag clock. The eviction is also
judged by facts that no clock changes: whether the follower's fetchers were running then, and when
it rejoined. Spark's workers import this module, so it must not import what they lack (matplotlib).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa

from isrlab.events import exact
from isrlab.fleet import load
from isrlab.fleet.cell import run_cell_in_windows
from isrlab.fleet.config import Configs, FleetConfig, listed
from isrlab.fleet.kernel.state import KIND, REMOVAL
from isrlab.fleet.simulate import planned, spread
from isrlab.fleet.tables import to_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REASONS = (  # what the leader knew, by today's lag clock
    "too many records behind", "kept up, but never at the log end",
    "stalled, and lacked nothing", "let in while behind", "behind for longer than the limit",
)  # fmt: skip
JUDGED = dict.fromkeys(("partition", "replica", "ts_ms"), "int64")  # columns and types
JUDGED_SQL = {"int64": "bigint", "float64": "double"}
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
    rows, stalls = [], functools.cache(functools.partial(load.stalls, config))
    for out in exact.evictions(events):
        place, end_ms = (out.key, out.replica), out.end_ms
        since_joined_ms = out.start_ms - back_ms.get(place, -math.inf)
        why = reason(out, config, since_joined_ms)
        back_ms[place] = config.duration_ms if end_ms is None else end_ms
        starts, ends = stalls(out.replica)
        stalled = ((starts <= out.start_ms) & (out.start_ms < ends)).any()
        at_work = config.stall_speed > 0 or not stalled
        out_s = (back_ms[place] - out.start_ms) / 1000
        rows.append((out.key.partition, out.replica, out.start_ms, config.run, out_s, why, at_work))
    return pd.DataFrame(rows, columns=[*JUDGED]).astype(JUDGED)


def judged_on_spark(spark: SparkSession, configs: Configs, tasks: int = 16) -> pd.DataFrame:
    """The judged evictions of many fleets, each cell simulated and judged by one of Spark's tasks.

    Fleets that differ only in their names, or in releases with equal rules, are simulated once.
    """
    first: dict[Hashable, FleetConfig] = {}
    alike = [(first.setdefault(_decides(each), each).run, each.run) for each in listed(configs)]
    types = ", ".join(f"{name} {JUDGED_SQL.get(kind, kind)}" for name, kind in JUDGED.items())
    cells = spread(spark, first.values(), tasks).mapInArrow(_judged_cells, types).toPandas()
    left = cells.merge(pd.DataFrame(alike, columns=["run", "name"]), on="run")
    return left.assign(run=left.pop("name")).astype(JUDGED)


def _decides(config: FleetConfig) -> Hashable:
    """All that decides about the rows of a fleet, except the name of its run."""
    same: dict[str, str | None] = {"name": "-", "version": FleetConfig.version}
    same |= dict.fromkeys(("replica_lag_time_max_ms", "replica_lag_max_messages"))
    return config.rules(), config.with_(**same)


def _judged_cells(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for config, leader, recorded in planned(batches):
        parts = run_cell_in_windows(config, leader, recorded)
        of_isr = (p._replace(events=p.events[p.events[:, KIND] <= REMOVAL]) for p in parts)
        changes = pa.concat_tables(to_arrow(config, part) for part in of_isr)
        yield pa.RecordBatch.from_pandas(judged(config, changes), preserve_index=False)
