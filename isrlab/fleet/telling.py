"""Who hears of an ISR change, and when: what the leader tells the controller, and it everybody.

A leader of 0.8 tells nobody. From 0.9 to 2.6 it writes the ISR to ZooKeeper and collects its
changes; the isr-change-propagation task announces them once they have calmed down, and then the
controller tells every broker. Since 2.7 the controller itself stores the ISR, so every broker knows
about when the leader does. What a controller changes by itself it tells at once.

Source: `rules.announces_isr_change`. The task is taken to run at multiples of its period. Left out:
the time each broker needs to take the news in.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from isrlab.engine import rules
from isrlab.engine.versions import IsrWrite
from isrlab.events.schema import SCHEMA
from isrlab.fleet.cell import CellRun
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.kernel.state import (
    COMMIT,
    KIND,
    LEADER_EPOCH,
    PARTITION,
    PARTITION_EPOCH,
    REMOVAL,
    TS_MS,
    Ints,
)
from isrlab.fleet.layout import TOPIC

_PERIOD_MS = rules.ISR_CHANGE_TICK_MS
_NEWS = [TS_MS, PARTITION, LEADER_EPOCH, PARTITION_EPOCH]


class Telling:
    """The news of one cell, given its rows of events piece by piece."""

    def __init__(self, config: FleetConfig) -> None:
        self._config = config
        self._untold: dict[int, tuple[int, int]] = {}  # place of the partition -> epochs of its ISR
        self._changed_ms = self._told_ms = 0

    def rows(self, piece: CellRun) -> pa.Table:
        """What is announced and learned: `notify` and `metadata` rows."""
        kinds, write = piece.events[:, KIND], self._config.kafka.isr_write
        if write == IsrWrite.ZOOKEEPER:
            return SCHEMA.empty_table()
        stored = piece.events[(kinds == COMMIT) | (kinds == REMOVAL)]
        if write != IsrWrite.ZOOKEEPER_NOTIFY:
            return self._learned(piece, stored[:, _NEWS])
        at_once = stored[stored[:, KIND] == REMOVAL][:, _NEWS]
        told_ms, later = self._announcements(stored[stored[:, KIND] == COMMIT], piece.until_ms)
        learned = self._learned(piece, np.vstack([at_once, later]))
        return pa.concat_tables([_announced(self._config, piece, told_ms), learned])

    def _announcements(self, stored: Ints, until_ms: int) -> tuple[list[int], Ints]:
        """When the leader announces, and what brokers learn: int64[n, 4] of ms, place, epochs."""
        told_ms: list[int] = []
        learned: list[tuple[int, int, int, int]] = []
        for ts_ms, place, *epochs in stored[:, _NEWS].tolist():
            self._run_task(ts_ms, told_ms, learned)
            self._untold[place] = tuple(epochs)
            self._changed_ms = ts_ms
        self._run_task(until_ms, told_ms, learned)
        return told_ms, np.array(learned, dtype=np.int64).reshape(-1, 4)

    def _run_task(
        self, until_ms: int, told_ms: list[int], learned: list[tuple[int, int, int, int]]
    ) -> None:
        """Run the task as often as it is due before `until_ms`, if there is anything to tell."""
        now_ms = -(-max(self._changed_ms, self._told_ms + 1) // _PERIOD_MS) * _PERIOD_MS
        while self._untold and now_ms < until_ms:
            if rules.announces_isr_change(now_ms, self._changed_ms, self._told_ms):
                at_ms = now_ms + self._config.isr_commit_ms
                learned += [(at_ms, place, *epochs) for place, epochs in self._untold.items()]
                told_ms.append(now_ms)
                self._untold, self._told_ms = {}, now_ms
            now_ms += _PERIOD_MS

    def _learned(self, piece: CellRun, news: Ints) -> pa.Table:
        """A row for each ISR that every broker knows now; `detail.brokers` is how many they are."""
        count = len(news)
        brokers = [[("brokers", str(self._config.brokers))]] * count
        return _table(
            count,
            run=pa.array([self._config.run] * count, pa.string()),
            ts_ms=pa.array(news[:, 0]),
            broker=pa.array(np.full(count, piece.cell.leader, np.int32)),
            topic=pa.array([TOPIC] * count, pa.string()),
            partition=pa.array(piece.cell.partitions[news[:, 1]].astype(np.int32)),
            leader_epoch=pa.array(news[:, 2].astype(np.int32)),
            partition_epoch=pa.array(news[:, 3].astype(np.int32)),
            kind=pa.array(["metadata"] * count, pa.string()),
            detail=pa.array(brokers, SCHEMA.field("detail").type),
        )


def _announced(config: FleetConfig, piece: CellRun, told_ms: list[int]) -> pa.Table:
    count = len(told_ms)
    return _table(
        count,
        run=pa.array([config.run] * count, pa.string()),
        ts_ms=pa.array(told_ms, pa.int64()),
        broker=pa.array(np.full(count, piece.cell.leader, np.int32)),
        kind=pa.array(["notify"] * count, pa.string()),
    )


def _table(count: int, **columns: pa.Array) -> pa.Table:
    """A table of events; columns that are not given are null."""
    nulls = {field.name: pa.nulls(count, field.type) for field in SCHEMA}
    return pa.table(nulls | columns, schema=SCHEMA)
