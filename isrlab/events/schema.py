"""The schema of the events table, which every source of events writes.

The table has one row for each event, from the engine, the fleet, or the log of a real
broker. Columns that a source does not know are null. Offsets are Kafka's: the log end
offset is the next one to be written, the high watermark the first that is not readable.

`broker` is the broker that reports the event. A row about the stored state of the partition (from
the controller, and up to 2.6 from ZooKeeper) has `detail.said_by` "controller"; in a scenario its
`broker` is null, because the controller is not a broker there. `detail.txt` lists all detail keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from isrlab.events.names import COLUMNS, DETAIL, KINDS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_TYPES = {
    **dict.fromkeys(["run", "topic", "kind"], pa.string()),
    **dict.fromkeys(["ts_ms", "high_watermark", "log_end_offset"], pa.int64()),
    **dict.fromkeys(["broker", "partition", "leader_epoch", "partition_epoch"], pa.int32()),
    "replica": pa.int32(),
    **dict.fromkeys(["isr", "isr_before"], pa.list_(pa.int32())),
    "detail": pa.map_(pa.string(), pa.string()),
}
SCHEMA = pa.schema(
    [
        pa.field(name, _TYPES[name], nullable=name not in ("run", "ts_ms", "kind"))
        for name in COLUMNS
    ]
)


def spark_schema() -> StructType:
    """The schema for Spark: readers and kernels return exactly these columns in this order."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(SCHEMA)


def table(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as an Arrow table of the schema.

    Raises ValueError for an unknown kind, column or key of `detail`, with the known ones.
    """
    for row in rows:
        kind = row["kind"]
        _check("event kind", [kind], KINDS)
        _check("event column", row, COLUMNS)
        _check(f"detail of {kind}", dict(row.get("detail") or ()), DETAIL[kind])
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _check(label: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in sorted(set(names) - set(known)):
        raise ValueError(f"unknown {label} {name!r}; known: {', '.join(known)}")
