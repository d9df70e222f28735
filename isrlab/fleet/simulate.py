"""Fleets from settings to events: in this process, or on Spark, by default a task for each cell.

`simulate_local` runs small fleets here, in milliseconds, as a slider needs. `simulate` gives a
lazy DataFrame of events: the plan has one row for each cell, and `mapInArrow` runs the kernel on
it. A cell depends on its row alone, so it does not matter how many tasks there are, where they run,
or whether one runs again after its worker died. `store.py` keeps the events as files.

The longest cells begin first. A cell is not split, because its threads depend on each other: all
share the leader's queue of bytes and its one request to the controller, and the threads of a
partition's followers also share its high watermark. With replicas placed in turn, partitions that
share a follower connect all threads of a leader. So for one fleet, more cores than leaders do not
help.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from isrlab.events.schema import COLUMNS, spark_schema
from isrlab.fleet.cell import leaders, run_cell_in_windows
from isrlab.fleet.config import Configs, FleetConfig, listed
from isrlab.fleet.layout import assignment
from isrlab.fleet.recorded import CellRecording, of_cell, packed, unpacked
from isrlab.fleet.tables import tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS = 65_536
CellPlan = tuple[FleetConfig, int, CellRecording | None]
PLAN_SCHEMA = "task int, run string, leader int, config string, recorded binary"
SETTINGS = (
    "partitions int, brokers int, replication_factor int, minutes double, seed long, load string, "
    "burst_records int, burst_s double, stall_s double, follower_bytes_per_s long"
)
RUNS = f"place int, run string, version string, lag_time_ms long, lag_messages long, {SETTINGS}"


def simulate_local(configs: Configs) -> pa.Table:
    """The events of one or several fleets, computed here, ordered by run, time and partition.

    For fleets of a few hundred partition-hours; larger ones belong on Spark.
    """
    table = pa.concat_tables(
        table
        for config in listed(configs)
        for leader in leaders(config)
        for table in tables_of(config, leader)
    )
    keyed = table.append_column("place", pa.array(np.arange(len(table))))
    order = ("run", "ts_ms", "partition", "place")  # a request stays before its commit
    return keyed.sort_by([(name, "ascending") for name in order]).drop_columns(["place"])


def runs(spark: SparkSession, configs: Configs) -> DataFrame:
    """One row for each run, in the given order, with the settings in `RUNS`."""
    casts = {"int": int, "long": int, "double": float, "string": str}
    kinds = [part.split() for part in SETTINGS.split(", ")]
    rows = [
        (place, c.run, c.kafka.name, c.lag_time_ms, c.lag_messages, *own)
        for place, c in enumerate(listed(configs))
        for own in [[casts[kind](getattr(c, name)) for name, kind in kinds]]
    ]
    return spark.createDataFrame(rows, RUNS)


def simulate(spark: SparkSession, configs: Configs, tasks: int | None = None) -> DataFrame:
    """The events of one or several fleets; evaluated lazily.

    `tasks` is how many tasks share the cells (default: one for each cell). The rows do not depend
    on it.
    """
    cells = spread(spark, configs, tasks)
    return cells.mapInArrow(run_plan, spark_schema()).select(*COLUMNS)


def spread(spark: SparkSession, configs: Configs, tasks: int | None = None) -> DataFrame:
    """One row for each cell, divided among `tasks` tasks (default: one for each cell).

    A row is a run, a leader, all settings as JSON, and its share of a trace. The longest cells are
    in the first tasks, which begin first. Raises TraceError if a trace cannot be used.
    """
    cells = [(config, leader) for config in listed(configs) for leader in leaders(config)]
    shares = [of_cell(*cell) for cell in cells]
    weights = [_batches(*cell, share) for cell, share in zip(cells, shares, strict=True)]
    count = tasks or max(1, len(cells))
    rows = [
        (place % count, cells[i][0].run, cells[i][1], cells[i][0].to_json(), packed(shares[i]))
        for place, i in enumerate(np.argsort(weights, kind="stable")[::-1].tolist())
    ]
    return spark.createDataFrame(rows, PLAN_SCHEMA).repartitionByRange(count, "task")


def _batches(config: FleetConfig, leader: int, recorded: CellRecording | None) -> float:
    """The approximate number of batches of a cell."""
    if recorded:
        return len(recorded.arrivals.ts_ms)
    return (assignment(config)[:, 0] == leader).sum() * config.minutes / config.batch_every_ms


def run_plan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The events of every cell in a piece of the plan."""
    for cell in planned(batches):
        for table in tables_of(*cell):
            yield from table.to_batches(max_chunksize=BATCH_ROWS)


def planned(batches: Iterator[pa.RecordBatch]) -> Iterator[CellPlan]:
    """Settings, leader and share of a trace of every cell in a part of the plan."""
    if not gc.get_freeze_count():  # a new worker: no collection looks at what it has imported
        gc.freeze()
    for row in (row for batch in batches for row in batch.to_pylist()):
        yield FleetConfig.from_json(row["config"]), row["leader"], unpacked(row["recorded"])


def tables_of(
    config: FleetConfig, leader: int, recorded: CellRecording | None = None
) -> Iterator[pa.Table]:
    """The events of a cell, in parts."""
    yield from tables(config, run_cell_in_windows(config, leader, recorded))
