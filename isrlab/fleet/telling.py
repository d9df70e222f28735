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
from isrlab.engine.choices import IsrWrite
from isrlab.events.schema import SCHEMA
from isrlab.fleet.cell import CellRun
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.kernel import state as s
from isrlab.fleet.layout import TOPIC
from isrlab.fleet.table import rows_table

_PERIOD_MS = rules.ISR_CHANGE_TICK_MS
_NEWS = [s.TS_MS, s.PARTITION, s.LEADER_EPOCH, s.PARTITION_EPOCH]


class Telling:
    """The news of one cell, given its rows of events piece by piece."""

    def __init__(self, config: FleetConfig) -> None:
        self._config = config
        self._untold: dict[int, tuple[int, int]] = {}  # place of the partition -> epochs of its ISR
        self._changed_ms = self._told_ms = 0

    def rows(self, piece: CellRun) -> pa.Table:
        """What is announced and learned: `notify` and `metadata` rows."""
        kinds, write = piece.events[:, s.KIND], self._config.kafka.isr_write
        if write == IsrWrite.ZOOKEEPER:
            return SCHEMA.empty_table()
        stored = piece.events[(kinds == s.COMMIT) | (kinds == s.REMOVAL)]
        if write != IsrWrite.ZOOKEEPER_NOTIFY:
            return self._learned(piece, stored[:, _NEWS])
        at_once = stored[stored[:, s.KIND] == s.REMOVAL][:, _NEWS]
        told_ms, later = self._announcements(stored[stored[:, s.KIND] == s.COMMIT], piece.until_ms)
        learned = self._learned(piece, np.vstack([at_once, later]))
        moments = np.array(told_ms, dtype=np.int64)
        leader = piece.cell.leader
        return pa.concat_tables(
            [rows_table(self._config.run, moments, broker=leader, kind="notify"), learned]
        )

    def _announcements(self, stored: s.Ints, until_ms: int) -> tuple[list[int], s.Ints]:
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

    def _learned(self, piece: CellRun, news: s.Ints) -> pa.Table:
        """A row for each ISR that every broker knows now; `detail.brokers` is how many they are."""
        brokers = [[("brokers", str(self._config.brokers))]] * len(news)
        return rows_table(
            self._config.run,
            news[:, 0],
            broker=piece.cell.leader,
            topic=TOPIC,
            partition=piece.cell.partitions[news[:, 1]],
            leader_epoch=news[:, 2],
            partition_epoch=news[:, 3],
            kind="metadata",
            detail=pa.array(brokers, SCHEMA.field("detail").type),
        )
