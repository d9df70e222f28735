"""The search of everything as a Spark job, for searches larger than the memory of one machine.

Theory of operation. A state is stored as its fingerprint, the fingerprints of its components, and
the fingerprint of a state from which it was reached. `folder` has the states of each level as
Parquet, and the counts and new components of each complete level; a stopped job continues after the
last of these. Spark's workers expand a level with `Tables`, as a single process does. Each
fingerprint counts once, and an anti-join removes the states of earlier levels. Only new components
and the path to a break come to the driver, which sends all to the workers at the next.

The counts equal those of `BreadthFirst`, but another of several shortest schedules may be found.
"""

from __future__ import annotations

import io
import pickle
import time
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from isrlab_proof.search.breadth_first import Extent, SavedReader, SearchEnd, resident_bytes
from isrlab_proof.search.tables import System, Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "print long, components array<long>, source long, bits long, times long, component binary"
COUNTED = (
    "asked string, depth int, distinct long, transitions long, broken map<string, long>, "
    "components map<long, binary>"
)
Make = Callable[[], System]
_TABLES: dict[str, Tables] = {}  # of a worker, which keeps them for later levels


class LevelCount(NamedTuple):
    """The counts of a complete level, in the order of `COUNTED`."""

    depth: int
    distinct: int
    transitions: int
    broken: dict[str, int]  # the fingerprint of a state that breaks the promise
    components: dict[int, bytes]  # the new ones, by fingerprint


@dataclass
class SparkSearch:
    """A search: its question (named by `asked`), its folder, and its limits."""

    spark: SparkSession
    make: Make
    folder: str
    asked: str
    wanted: tuple[str, ...] = ()  # this and the next three as in `BreadthFirst`
    stops: bool = True
    most_depth: int = 1 << 30
    tell: Callable[[Extent], None] = lambda progress: None
    components: dict[int, bytes] = field(default_factory=dict)

    def run(self) -> SearchEnd:
        """Continue the search in the folder. Raises ValueError if that is a different one."""
        at, ended, began = Extent(depth=0, distinct=0), "all", time.perf_counter()
        tables = Tables(self.make())
        for counted in self._counted():
            self._count(at, counted)
        try:
            self._search(at, tables, began)
        except KeyboardInterrupt:
            return SearchEnd(at, "stopped", {}, {})
        if at.level:
            ended = "broken" if self.stops and at.broken else "depth"
        ways = {name: self._way(tables, *where) for name, where in at.broken.items()}
        return SearchEnd(at, ended, ways, {})

    def _search(self, at: Extent, tables: Tables, began: float) -> None:
        if not at.depth:
            row = tables.row(tables.system.first)
            first = _states(tables, row, tables.fingerprints(row), np.zeros(1, np.int64))
            table = pa.Table.from_batches([first, _new_components(tables, ())])
            self._count(at, self._keep(self.spark.createDataFrame(table), 1))
        while at.level and at.depth < self.most_depth and not (self.stops and at.broken):
            expand = partial(_expanded, self.make, self.asked, self.components)
            offered = self._level(at.depth).mapInArrow(expand, SCHEMA)
            self._count(at, self._keep(offered, at.depth + 1))
            at.seconds, at.memory = time.perf_counter() - began, resident_bytes()
            self.tell(at)

    def _level(self, *depths: int) -> DataFrame:
        return self.spark.read.parquet(*(f"{self.folder}/level{depth}" for depth in depths))

    def _counted(self) -> Iterator[LevelCount]:
        try:
            levels = self.spark.read.parquet(f"{self.folder}/counted").collect()
        except Exception as error:
            if "PATH_NOT_FOUND" in str(error):
                return
            raise
        if levels[0].asked != self.asked:
            raise ValueError(f"{self.folder} holds another search: {levels[0].asked}")
        for row in sorted(levels, key=lambda row: row.depth):
            yield LevelCount(*tuple(row)[1:])

    def _keep(self, offered: DataFrame, depth: int) -> LevelCount:
        """Store the new states among those offered as a level; returns its counts."""
        from pyspark.sql import functions as F

        path = f"{self.folder}/offered"
        offered.write.mode("overwrite").parquet(path)
        offered = self.spark.read.parquet(path)
        states = offered.where("component IS NULL")
        pairs = offered.where("component IS NOT NULL").select("print", "component").collect()
        new = states.groupBy("print").agg(
            F.first("components").alias("components"), F.min("source").alias("source"),
            F.first("bits").alias("bits"),
        )  # fmt: skip
        if depth > 1:
            visited = self._level(*range(1, depth)).select("print")
            new = new.join(visited, on="print", how="left_anti")
        new.write.mode("overwrite").parquet(f"{self.folder}/level{depth}")
        news = {row.print: bytes(row.component) for row in pairs}
        transitions = states.agg(F.sum("times")).first()[0] if depth > 1 else 0
        kinds = self._level(depth).groupBy("bits").agg(F.count("*"), F.min("print")).collect()
        broken = {
            name: state for bits, _, state in kinds
            for i, name in enumerate(self.make().promises)
            if bits >> i & 1 and (not self.wanted or name in self.wanted)
        }  # fmt: skip
        distinct = sum(count for _, count, _ in kinds)
        counted = LevelCount(depth, distinct, transitions or 0, broken, news)
        row = self.spark.createDataFrame([(self.asked, *counted)], COUNTED)
        row.write.mode("append").parquet(f"{self.folder}/counted")
        return counted

    def _count(self, at: Extent, level: LevelCount) -> None:
        self.components |= level.components
        at.level, at.depth = level.distinct, at.depth + bool(level.distinct)
        at.distinct += level.distinct
        at.transitions += level.transitions
        for name, state in level.broken.items():
            at.broken.setdefault(name, (level.depth, state))

    def _way(self, tables: Tables, depth: int, state: int) -> list[str]:
        """The actions that lead to a state of the level `depth`."""
        prints, actions = [state], []
        for level in range(depth, 1, -1):
            row = self._level(level).where(f"print = {prints[-1]}").first()
            prints.append(row.source)
        rows = tables.row(tables.system.first)
        for state in reversed(prints[:-1]):
            offered = tables.expand(rows, tables.fingerprints(rows))
            way = int(np.flatnonzero(offered.prints == state)[0])
            actions.append(tables.name(offered.action[way]))
            rows = offered.rows[way : way + 1]
        return actions


# The workers' part


def _expanded(
    make: Make, asked: str, components: dict[int, bytes], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The successors of a level's states, and the components that are new in them."""
    if asked not in _TABLES:
        _TABLES[asked] = Tables(make())
    tables = _TABLES[asked]
    numbers = tables.components.numbers
    for print_, component in components.items():
        if print_ not in numbers:
            tables.number(SavedReader(io.BytesIO(component)).load())
    for batch in batches:
        kinds, places = np.unique(batch["components"].flatten().to_numpy(), return_inverse=True)
        rows = np.array([numbers[kind] for kind in kinds.tolist()], np.int32)[places]
        rows, prints = rows.reshape(len(batch), -1), batch["print"].to_numpy()
        offered = tables.expand(rows, prints)
        yield _states(tables, offered.rows, offered.prints, prints[offered.place])
    yield _new_components(tables, components)


def _states(
    tables: Tables, rows: np.ndarray, prints: np.ndarray, sources: np.ndarray
) -> pa.RecordBatch:
    """States as rows of `SCHEMA`, each once, with the promises that it breaks."""
    prints, first, times = np.unique(prints, return_index=True, return_counts=True)
    rows = rows[first]
    ends = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
    components = pa.ListArray.from_arrays(ends, tables.contents.all[rows].ravel())
    bits, no_component = tables.broken(rows), pa.nulls(len(rows), pa.binary())
    return _batch(prints, components, sources[first], bits, times, no_component)


def _new_components(tables: Tables, known: Container[int]) -> pa.RecordBatch:
    values, numbers = tables.components.values, tables.components.numbers
    new = {print_: pickle.dumps(values[number], protocol=5)
           for print_, number in numbers.items() if print_ not in known}  # fmt: skip
    prints, none = np.array([*new], np.int64), np.zeros(len(new), np.int64)
    nothing = pa.nulls(len(new), pa.list_(pa.int64()))
    return _batch(prints, nothing, none, none, none, pa.array([*new.values()], pa.binary()))


def _batch(*columns: Any) -> pa.RecordBatch:
    names = [word.split()[0] for word in SCHEMA.split(", ")]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names)
