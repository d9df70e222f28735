"""What a cell did as a table of events: ISR changes, failed produces, latencies, news of the ISR.

Times that produces took come as rows of kind `latency`, one for each leader, hour and class of
latency, with how many there were in `detail.count`; `detail.latency_ms` is the least of its class
(classes are exact below 16 ms, then a step is an eighth of a doubling).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from isrlab.events.schema import SCHEMA
from isrlab.fleet.cell import CellRun
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.kernel import state as s
from isrlab.fleet.kernel.rows import bucket_starts
from isrlab.fleet.layout import TOPIC
from isrlab.fleet.table import rows_table
from isrlab.fleet.telling import Telling

KIND_NAMES = pa.array(
    ["isr_shrink", "isr_expand", "isr_commit", "isr_commit", *["produce_error"] * 4]
)
DETAILS = (  # of a shrink
    ("lag_records", s.LAG_RECORDS),
    ("since_fetch_ms", s.SINCE_FETCH_MS),
    ("since_caught_up_ms", s.SINCE_CAUGHT_UP_MS),
)
ONE_DETAIL = {  # of other kinds
    s.REMOVAL: ("said_by", "controller"),
    s.REFUSED: ("error", "NOT_ENOUGH_REPLICAS"),
    s.TOO_FEW: ("error", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
    s.TIMED_OUT: ("error", "REQUEST_TIMED_OUT"),
    s.GIVEN_UP: ("error", "DELIVERY_TIMEOUT"),
}


def tables(config: FleetConfig, pieces: Iterable[CellRun]) -> Iterator[pa.Table]:
    """A cell's events, a table for each piece of its run; with the last one, the latencies."""
    news = Telling(config)
    for piece in pieces:
        yield to_arrow(config, piece)
        yield news.rows(piece)
        if piece.until_ms >= config.duration_ms:
            yield _latencies(config, piece)


def to_arrow(config: FleetConfig, result: CellRun) -> pa.Table:
    """The rows of the kernel as a table of the events schema.

    `replica` is set when one follower left or joined; `detail` has the largest lag (records) of
    those that changed, and the shortest times since one fetched and since one had everything.
    """
    rows = result.events
    places = rows[:, s.PARTITION]
    followers = result.cell.followers[places].astype(np.int32)
    changed = _members(rows[:, s.CHANGED], followers.shape[1])
    only = changed.sum(axis=1) == 1
    replica = np.where(changed, followers, 0).sum(axis=1)
    is_produce = rows[:, s.KIND] >= s.REFUSED
    return rows_table(
        config.run,
        rows[:, s.TS_MS],
        broker=result.cell.leader,
        topic=TOPIC,
        partition=result.cell.partitions[places],
        leader_epoch=pa.array(rows[:, s.LEADER_EPOCH], mask=is_produce),
        partition_epoch=pa.array(rows[:, s.PARTITION_EPOCH], mask=is_produce),
        kind=KIND_NAMES.take(pa.array(rows[:, s.KIND])),
        replica=pa.array(replica, mask=~only),
        isr=_isr(result.cell.leader, followers, rows[:, s.ISR_AFTER], is_produce),
        isr_before=_isr(result.cell.leader, followers, rows[:, s.ISR_BEFORE], is_produce),
        high_watermark=_offsets(rows[:, s.HIGH_WATERMARK]),
        log_end_offset=_offsets(rows[:, s.LOG_END_OFFSET]),
        detail=_details(rows),
    )


def _latencies(config: FleetConfig, result: CellRun) -> pa.Table:
    """How long produces took: a row for each hour and each class in which there are any."""
    hours, places = np.nonzero(result.latencies)
    starts, counts = bucket_starts()[places], result.latencies[hours, places]
    details = [
        [("acks", "-1"), ("latency_ms", str(start)), ("count", str(count))]
        for start, count in zip(starts, counts, strict=True)
    ]
    return rows_table(
        config.run,
        np.minimum((hours + 1) * s.HOUR_MS, config.duration_ms) - 1,
        broker=result.cell.leader,
        topic=TOPIC,
        kind="latency",
        detail=pa.array(details, SCHEMA.field("detail").type),
    )


def _offsets(values: s.Ints) -> pa.Array:
    """A column of offsets; -1 is unknown."""
    return pa.array(values, mask=values < 0)


def _members(masks: s.Ints, slots: int) -> NDArray[np.bool_]:
    """bool[rows, slots] of a column of bit masks."""
    return (masks[:, None] >> np.arange(slots)) & 1 == 1


def _isr(
    leader: int, followers: NDArray[np.int32], masks: s.Ints, is_null: NDArray[np.bool_]
) -> pa.Array:
    """Broker lists, leader first, then followers in the order of assignment."""
    brokers = np.hstack([np.full((len(masks), 1), leader, np.int32), followers])
    is_member = np.hstack([np.ones((len(masks), 1), np.bool_), _members(masks, followers.shape[1])])
    is_member[is_null] = False
    offsets = _starts(is_member.sum(axis=1), is_null)
    return pa.ListArray.from_arrays(offsets, pa.array(brokers[is_member]))


def _details(rows: s.Ints) -> pa.Array:
    """Maps by kind of row, nulls where there is nothing more to say."""
    kinds = rows[:, s.KIND]
    sizes = np.select([kinds == s.SHRINK, kinds >= s.REMOVAL], [len(DETAILS), 1])
    keys, values = np.empty((2, int(sizes.sum())), dtype=object)
    firsts = np.cumsum(sizes) - sizes
    for index, (name, column) in enumerate(DETAILS):
        at = firsts[kinds == s.SHRINK] + index
        keys[at], values[at] = name, rows[kinds == s.SHRINK, column].astype(str)
    for kind, (name, value) in ONE_DETAIL.items():
        at = firsts[kinds == kind]
        keys[at], values[at] = name, value
    texts = (pa.array(keys, pa.string()), pa.array(values, pa.string()))
    return pa.MapArray.from_arrays(_starts(sizes, sizes == 0), *texts)


def _starts(sizes: NDArray[np.int64], is_null: NDArray[np.bool_]) -> pa.Array:
    """Offsets of lists of these sizes; null where the list is."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.array(offsets, mask=np.append(is_null, False))
