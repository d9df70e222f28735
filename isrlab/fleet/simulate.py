"""Fleets from settings to events: here in this process, or on Spark with one task for each cell.

`simulate_local` runs small fleets at once (a slider's worth of milliseconds). `simulate` gives a
lazy DataFrame of events: the plan has one row for each cell, and `mapInArrow` runs the kernel on
it. A cell depends on its row alone, so it does not matter how many tasks there are, where they run,
or whether one runs again after its worker died. `stored` computes once, writes Parquet (a folder
for each run) with a manifest of everything needed to compute it again, and reads it back.
"""

from __future__ import annotations

import dataclasses
import json
import platform
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import numba
import numpy as np
import pyarrow as pa

from isrlab.events import COLUMNS, SCHEMA, spark_schema
from isrlab.fleet.cell import leaders, run_cell, run_cell_in_windows, to_arrow
from isrlab.fleet.config import FleetConfig, listed
from isrlab.fleet.progress import shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MANIFEST = "manifest.json"
BATCH_ROWS = 65_536
PLAN_SCHEMA = "run string, leader int, config string"
SETTINGS = (
    "partitions int, brokers int, replication_factor int, minutes double, seed long, load string, "
    "burst_records int, burst_s double, stall_s double, follower_bytes_per_s long"
)
RUNS_SCHEMA = (
    f"place int, run string, version string, lag_time_ms long, lag_messages long, {SETTINGS}"
)

Configs = FleetConfig | Iterable[FleetConfig]


def simulate_local(configs: Configs) -> pa.Table:
    """The events of one or several fleets, computed here and now, in order of run, time, partition.

    For fleets of some hundred partition-hours; larger ones belong on Spark.
    """
    tables = [
        to_arrow(config, run_cell(config, leader))
        for config in listed(configs)
        for leader in leaders(config)
    ]
    table = pa.concat_tables(tables)
    order = [("run", "ascending"), ("ts_ms", "ascending"), ("partition", "ascending")]
    place = pa.array(np.arange(len(table)))  # a request stays before its commit
    keyed = table.append_column("place", place).sort_by([*order, ("place", "ascending")])
    return keyed.drop_columns(["place"])


def plan(spark: SparkSession, configs: Configs) -> DataFrame:
    """One row for each cell: run, leader, and all settings as JSON."""
    rows = [
        (config.run, leader, config.to_json())
        for config in listed(configs)
        for leader in leaders(config)
    ]
    return spark.createDataFrame(rows, PLAN_SCHEMA)


def runs(spark: SparkSession, configs: Configs) -> DataFrame:
    """One row for each run, in the given order, with the settings that one compares runs by."""
    names = [part.split()[0] for part in SETTINGS.split(", ")]
    rows = [
        (place, c.run, c.kafka.name, c.lag_time_ms, c.lag_messages, *_as_stored(c, names))
        for place, c in enumerate(listed(configs))
    ]
    return spark.createDataFrame(rows, RUNS_SCHEMA)


def _as_stored(config: FleetConfig, names: list[str]) -> list[object]:
    reals = ("minutes", "burst_s", "stall_s")
    return [float(getattr(config, n)) if n in reals else getattr(config, n) for n in names]


def simulate(spark: SparkSession, configs: Configs, tasks: int | None = None) -> DataFrame:
    """The events of one or several fleets; nothing runs before the result is asked for.

    `tasks` is how many tasks share the cells (default: one for each cell). The rows do not depend
    on it.
    """
    cells = plan(spark, configs)
    count = tasks or max(1, cells.count())
    spread = cells.repartitionByRange(count, "run", "leader")
    return spread.mapInArrow(_run_plan, spark_schema()).select(*COLUMNS)


def _run_plan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The events of every cell in a piece of the plan."""
    for batch in batches:
        for row in batch.to_pylist():
            config = FleetConfig.from_json(row["config"])
            for piece in run_cell_in_windows(config, row["leader"]):
                yield from to_arrow(config, piece).to_batches(max_chunksize=BATCH_ROWS)


def stored(
    spark: SparkSession,
    configs: Configs,
    folder: str | Path | None = None,
    tasks: int | None = None,
) -> DataFrame:
    """Run the fleets, write their events as Parquet into `folder`, and read them back.

    `folder` must be new or empty, on a file system that all workers see; by default it is a new
    temporary one. Raises FileExistsError if there is something in it.
    """
    several = listed(configs)
    target = Path(folder) if folder is not None else Path(tempfile.mkdtemp(prefix="isrlab-fleet-"))
    if target.exists() and any(target.iterdir()):
        raise FileExistsError(f"{target} is not empty; name a new folder for the events")
    cells = sum(len(leaders(config)) for config in several)
    with shown(spark, f"simulating {len(several)} runs", cells):
        events = simulate(spark, several, tasks)
        events.write.mode("append").partitionBy("run").parquet(str(target))
    (target / MANIFEST).write_text(manifest(several), encoding="utf-8")
    return read(spark, target)


def read(spark: SparkSession, folder: str | Path) -> DataFrame:
    """The events that `stored` wrote."""
    return spark.read.schema(spark_schema()).parquet(str(folder)).select(*COLUMNS)


def manifest(configs: Configs) -> str:
    """Everything that decides the events of these runs, as JSON."""
    several = listed(configs)
    return json.dumps(
        {
            "runs": {config.run: dataclasses.asdict(config) for config in several},
            "seeds": sorted({config.seed for config in several}),
            "kafka_rules_read_at": {c.run: c.kafka.tag for c in several},
            "events": SCHEMA.names,
            "versions": {
                "isrlab": _installed("isrlab"),
                "python": platform.python_version(),
                "numpy": np.__version__,
                "numba": numba.__version__,
                "pyarrow": pa.__version__,
                "pyspark": _installed("pyspark"),
            },
        },
        indent=1,
    )


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # shipped as a zip
        return "not installed"
