"""The events of a cell as tables: ISR changes, failed produces, latencies, notifications.

Produce latencies are rows of kind `latency`, one for each leader, hour and class of latency, with
their number in `detail.count`; `detail.latency_ms` is the minimum of its class (classes are exact
below 16 ms, then a step is an eighth of a doubling).

Notifications of ISR changes are rows of kind `notify` (a leader tells the controller) and
`metadata` (the controller notifies all). In 0.8 a leader sends none. From 0.9 to 2.6 it writes the
ISR to ZooKeeper and collects its changes; the isr-change-propagation task announces them when
changes pause, and then the controller notifies every broker. Since 2.7 the controller itself stores
the ISR, so every broker knows it about when the leader does. The controller announces its own
changes immediately. Source: `rules.announces_isr_change`. The task is assumed to run at multiples
of its period. Left out: the time a broker takes to process the notification.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from isrlab.engine import rules
from isrlab.engine.choices import IsrWrite
from isrlab.events.schema import SCHEMA
from isrlab.fleet.cell import CellRun
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.kernel import state as s
from isrlab.fleet.kernel.rows import bucket_starts
from isrlab.fleet.layout import TOPIC

_ISR_KINDS = ("isr_shrink", "isr_expand", "isr_commit")
KIND_NAMES = pa.array([*_ISR_KINDS, "isr_commit", *["produce_error"] * 4])
DETAILS = {  # of a shrink
    "lag_records": s.LAG_RECORDS,
    "since_fetch_ms": s.SINCE_FETCH_MS,
    "since_caught_up_ms": s.SINCE_CAUGHT_UP_MS,
}
ONE_DETAIL = {  # of other kinds
    s.REMOVAL: ("said_by", "controller"),
    s.REFUSED: ("error", "NOT_ENOUGH_REPLICAS"),
    s.TOO_FEW: ("error", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
    s.TIMED_OUT: ("error", "REQUEST_TIMED_OUT"),
    s.GIVEN_UP: ("error", "DELIVERY_TIMEOUT"),
}
_PERIOD_MS = rules.ISR_CHANGE_TICK_MS
_NEWS = [s.TS_MS, s.PARTITION, s.LEADER_EPOCH, s.PARTITION_EPOCH]


def tables(config: FleetConfig, pieces: Iterable[CellRun]) -> Iterator[pa.Table]:
    """A cell's events: two tables for each part of its run, and a last one with the latencies."""
    news = Telling(config)
    for piece in pieces:
        yield to_arrow(config, piece)
        yield news.rows(piece)
        if piece.until_ms >= config.duration_ms:
            yield _latencies(config, piece)


def _table(run: str, ts_ms: s.Ints, **columns: s.Ints | pa.Array | list | str | int) -> pa.Table:
    """A table of the events schema; a column is given as rows or one value; others are null."""
    given = {"run": run, "ts_ms": ts_ms, **columns}

    def column(field: pa.Field) -> pa.Array:
        value = given.get(field.name)
        if value is None or isinstance(value, (str, int)):
            return pa.repeat(pa.scalar(value, field.type), len(ts_ms))
        if isinstance(value, list):
            return pa.array(value, field.type)
        return (pa.array(value) if isinstance(value, np.ndarray) else value).cast(field.type)

    return pa.table([column(field) for field in SCHEMA], schema=SCHEMA)


def to_arrow(config: FleetConfig, result: CellRun) -> pa.Table:
    """The rows of the kernel as a table of the events schema.

    `replica` is set if exactly one follower left or joined; a shrink's `detail` has the largest lag
    (records) of those that left, and the shortest times since one fetched and was caught up.
    """
    rows, leader = result.events, result.cell.leader
    places = rows[:, s.PARTITION]
    followers = result.cell.followers[places].astype(np.int32)
    changed = _members(rows[:, s.CHANGED], followers.shape[1])
    replica = np.where(changed, followers, 0).sum(axis=1)
    is_produce = rows[:, s.KIND] >= s.REFUSED
    ends = {"high_watermark": s.HIGH_WATERMARK, "log_end_offset": s.LOG_END_OFFSET}
    epochs = {"leader_epoch": s.LEADER_EPOCH, "partition_epoch": s.PARTITION_EPOCH}
    isrs = {"isr": s.ISR_AFTER, "isr_before": s.ISR_BEFORE}
    return _table(
        config.run,
        rows[:, s.TS_MS],
        broker=leader,
        topic=TOPIC,
        partition=result.cell.partitions[places],
        kind=KIND_NAMES.take(pa.array(rows[:, s.KIND])),
        replica=pa.array(replica, mask=changed.sum(axis=1) != 1),
        detail=_details(rows),
        **{name: pa.array(rows[:, at], mask=is_produce) for name, at in epochs.items()},
        **{name: _isr(leader, followers, rows[:, at], is_produce) for name, at in isrs.items()},
        **{name: pa.array(rows[:, at], mask=rows[:, at] < 0) for name, at in ends.items()},
    )


def _latencies(config: FleetConfig, result: CellRun) -> pa.Table:
    """Produce latencies: a row for each hour and each histogram bucket that is not empty."""
    hours, places = np.nonzero(result.latencies)
    starts, counts = bucket_starts()[places], result.latencies[hours, places]
    details = [
        [("acks", "-1"), ("latency_ms", str(start)), ("count", str(count))]
        for start, count in zip(starts, counts, strict=True)
    ]
    ends = np.minimum((hours + 1) * s.HOUR_MS, config.duration_ms) - 1
    leader = result.cell.leader
    return _table(config.run, ends, broker=leader, topic=TOPIC, kind="latency", detail=details)


def _members(masks: s.Ints, slots: int) -> s.Bools:
    """bool[rows, slots] of a column of bit masks."""
    return (masks[:, None] >> np.arange(slots)) & 1 == 1


def _isr(leader: int, followers: NDArray[np.int32], masks: s.Ints, is_null: s.Bools) -> pa.Array:
    """Broker lists, leader first, then followers in the order of assignment."""
    brokers = np.hstack([np.full((len(masks), 1), leader, np.int32), followers])
    is_member = _members(masks << 1 | 1, brokers.shape[1])
    is_member[is_null] = False
    offsets = _starts(is_member.sum(axis=1), is_null)
    return pa.ListArray.from_arrays(offsets, pa.array(brokers[is_member]))


def _details(rows: s.Ints) -> pa.Array:
    """The details of each row as a map; null for kinds of row without details."""
    kinds = rows[:, s.KIND]
    has_one = np.isin(kinds, list(ONE_DETAIL))
    sizes = np.select([kinds == s.SHRINK, has_one], [len(DETAILS), 1])
    keys, values = np.empty((2, int(sizes.sum())), dtype=object)
    firsts = np.cumsum(sizes) - sizes
    for index, (name, column) in enumerate(DETAILS.items()):
        at = firsts[kinds == s.SHRINK] + index
        keys[at], values[at] = name, rows[kinds == s.SHRINK, column].astype(str)
    for kind, (name, value) in ONE_DETAIL.items():
        at = firsts[kinds == kind]
        keys[at], values[at] = name, value
    texts = (pa.array(keys, pa.string()), pa.array(values, pa.string()))
    return pa.MapArray.from_arrays(_starts(sizes, sizes == 0), *texts)


def _starts(sizes: NDArray[np.int64], is_null: s.Bools) -> pa.Array:
    """Offsets of lists of these sizes; null where the list is null."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.array(offsets, mask=np.append(is_null, False))


class Telling:
    """The notifications of one cell, from its events in parts."""

    def __init__(self, config: FleetConfig) -> None:
        self._config = config
        self._untold: dict[int, tuple[int, int]] = {}  # place of the partition -> epochs of its ISR
        self._changed_ms = self._told_ms = 0

    def rows(self, piece: CellRun) -> pa.Table:
        """The `notify` and `metadata` rows."""
        kinds, write = piece.events[:, s.KIND], self._config.kafka.isr_write
        if write == IsrWrite.ZOOKEEPER:
            return SCHEMA.empty_table()
        news, by_itself = piece.events[:, _NEWS], kinds == s.REMOVAL
        if write != IsrWrite.ZOOKEEPER_NOTIFY:
            return self._learned(piece, news[by_itself | (kinds == s.COMMIT)])
        told_ms: list[int] = []
        learned: list[tuple[int, ...]] = []
        for ts_ms, place, *epochs in news[kinds == s.COMMIT].tolist():
            self._run_task(ts_ms, told_ms, learned)
            self._untold[place] = tuple(epochs)
            self._changed_ms = ts_ms
        self._run_task(piece.until_ms, told_ms, learned)
        later = np.array(learned, dtype=np.int64).reshape(-1, len(_NEWS))
        moments, leader = np.array(told_ms, dtype=np.int64), piece.cell.leader
        notices = _table(self._config.run, moments, broker=leader, kind="notify")
        learned_rows = self._learned(piece, np.vstack([news[by_itself], later]))
        return pa.concat_tables([notices, learned_rows])

    def _run_task(self, until_ms: int, told_ms: list[int], learned: list[tuple[int, ...]]) -> None:
        """Run the task whenever it is due before `until_ms`, while there is anything to announce.

        Appends the times of announcements, and for each ISR that brokers learn: ms, place, epochs.
        """
        now_ms = -(-max(self._changed_ms, self._told_ms + 1) // _PERIOD_MS) * _PERIOD_MS
        while self._untold and now_ms < until_ms:
            if rules.announces_isr_change(now_ms, self._changed_ms, self._told_ms):
                at_ms = now_ms + self._config.isr_commit_ms
                learned += [(at_ms, place, *epochs) for place, epochs in self._untold.items()]
                told_ms.append(now_ms)
                self._untold, self._told_ms = {}, now_ms
            now_ms += _PERIOD_MS

    def _learned(self, piece: CellRun, news: s.Ints) -> pa.Table:
        """A row for each ISR that every broker now knows; `detail.brokers` is the broker count."""
        ts_ms, places, leader_epoch, partition_epoch = news.T
        return _table(
            self._config.run,
            ts_ms,
            broker=piece.cell.leader,
            topic=TOPIC,
            partition=piece.cell.partitions[places],
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            kind="metadata",
            detail=[[("brokers", str(self._config.brokers))]] * len(news),
        )
