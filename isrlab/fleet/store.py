"""A store of simulated events: a folder of Parquet files that survives interruptions.

Theory of operation. A manifest is written first: all settings, seeds, library versions and a digest
of the code, which together determine the rows. Then every task writes the events of its cells, each
cell into its own file (`run=0.8.2/leader-3.parquet`) under a hidden name, and renames it when it is
complete. So a file that exists is valid; a worker or a driver that dies leaves at most hidden
files, which readers ignore. A caller that runs `stored` with the same manifest computes only the
cells without a file, and nothing at all if there are none.

The folder must be one that driver and workers see under the same path (a shared mount on a
cluster). Left out: object stores, which have no rename.
"""

from __future__ import annotations

import atexit
import json
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from isrlab.events.schema import COLUMNS, SCHEMA, spark_schema
from isrlab.fleet.cell import leaders
from isrlab.fleet.config import TRACE, Configs, listed
from isrlab.fleet.recorded import summary
from isrlab.fleet.simulate import BATCH_ROWS, planned, spread, tables_of
from isrlab.installed import source_digest
from isrlab.progress import shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MANIFEST = "_manifest.json"  # Parquet readers skip names that begin with an underscore
LIBRARIES = ("numba", "numpy", "pyarrow", "pyspark")
FILE_SCHEMA = pa.schema([field for field in SCHEMA if field.name != "run"])  # the folder has it
_NOT_IN_FOLDER_NAMES = re.compile(r'[\x00-\x1f"#%\'*/:=?\\\x7f{}\[\]^]')  # as Spark escapes them


def stored(
    spark: SparkSession,
    configs: Configs,
    folder: str | Path | None = None,
    tasks: int | None = None,
) -> DataFrame:
    """Run the fleets, store their events as Parquet in `folder`, and read them back.

    The default folder is temporary, and removed with this process. A folder with exactly these
    fleets is completed; raises FileExistsError, with a difference, if it holds anything else.
    """
    several = listed(configs)
    if folder is None:
        folder = tempfile.mkdtemp(prefix="isrlab-fleet-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = Path(folder).resolve()
    wanted = manifest(several)
    _claim(target, wanted)
    total = wanted["cells"]
    if len(_files(target)) < total:
        what = f"simulating {len(several)} runs"
        with shown(lambda: f"{what}: {len(_files(target))} of {total} cells"):
            cells = spread(spark, several, tasks)
            cells.mapInArrow(partial(_write_cells, str(target)), "cell string").count()
        if len(_files(target)) < total:
            raise FileNotFoundError(
                f"the workers wrote their events to {target}, but this machine does not see them; "
                "name a folder that all machines share (or set TMPDIR to one)"
            )
    for leftover in target.glob("run=*/.*"):
        leftover.unlink(missing_ok=True)
    return read(spark, target)


def read(spark: SparkSession, folder: str | Path) -> DataFrame:
    """The events that `stored` wrote; raises FileNotFoundError unless all of them are there."""
    target = Path(folder).resolve()
    total = json.loads((target / MANIFEST).read_text(encoding="utf-8"))["cells"]
    if (there := len(_files(target))) < total:
        raise FileNotFoundError(
            f"{target} holds {there} of {total} cells; call `stored` again to compute the others"
        )
    place = f"file://{target}"  # not on the cluster's own file system
    return spark.read.schema(spark_schema()).parquet(place).select(*COLUMNS)


def manifest(configs: Configs) -> dict[str, Any]:
    """Everything that determines the events of these runs, as values for JSON."""
    several = listed(configs)
    libraries = {name: version(name) for name in LIBRARIES}
    return {
        "runs": {config.run: asdict(config) for config in several},
        "seeds": sorted({config.seed for config in several}),
        "traces": {c.run: summary(c) for c in several if c.load == TRACE},
        "kafka_rules_read_at": {c.run: c.kafka.tag for c in several},
        "cells": sum(len(leaders(config)) for config in several),
        "events": SCHEMA.names,
        "versions": libraries | {"python": platform.python_version()},
        "code": source_digest("engine", "events", "fleet"),
    }


def _files(target: Path) -> list[Path]:
    """The files of the finished cells."""
    return list(target.glob("run=*/[!.]*.parquet"))


def _claim(target: Path, wanted: dict[str, Any]) -> None:
    """Write the manifest into the folder; FileExistsError if the folder holds anything else."""
    place = target / MANIFEST
    if place.exists():
        held = json.loads(place.read_text(encoding="utf-8"))
        differences = list(_differences(held, wanted))
        if differences:
            more = f" (and {len(differences) - 1} more)" if differences[1:] else ""
            raise FileExistsError(
                f"{target} holds other results: {differences[0]}{more}; name a new folder"
            )
        return
    if target.exists() and any(not each.name.startswith(".") for each in target.iterdir()):
        raise FileExistsError(f"{target} is not empty; name a new folder for the events")
    target.mkdir(parents=True, exist_ok=True)
    with _whole(place) as hidden:
        hidden.write_text(json.dumps(wanted, indent=1), encoding="utf-8")


def _differences(held: Any, wanted: Any, name: str = "") -> Iterator[str]:
    """The differences between two manifests: "runs / 0.9.0 / seed is 3 there and 4 here"."""
    if isinstance(held, dict) and isinstance(wanted, dict):
        for key in [*held, *(key for key in wanted if key not in held)]:
            place = f"{name} / {key}" if name else key
            yield from _differences(held.get(key), wanted.get(key), place)
    elif held != wanted:
        yield f"{name} is {json.dumps(held)} there and {json.dumps(wanted)} here"


def _write_cells(target: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the events of every cell in a piece of the plan that has no file yet."""
    for config, leader, recorded in planned(batches):
        path = _cell_file(Path(target), config.run, leader)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with _whole(path) as hidden, pq.ParquetWriter(hidden, FILE_SCHEMA) as writer:
                for table in tables_of(config, leader, recorded):
                    writer.write_table(table.select(FILE_SCHEMA.names), BATCH_ROWS)
        yield pa.record_batch({"cell": [path.name]})


def _cell_file(target: Path, run: str, leader: int) -> Path:
    """The file of a finished cell."""
    folder = _NOT_IN_FOLDER_NAMES.sub(lambda match: f"%{ord(match[0]):02X}", run)
    return target / f"run={folder}" / f"leader-{leader}.parquet"


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A hidden file to write to, renamed when the body completes."""
    hidden = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        yield hidden
        os.replace(hidden, path)
    finally:
        hidden.unlink(missing_ok=True)
