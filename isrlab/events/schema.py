"""The one table that every producer writes and every question, figure and report reads.

One row for each thing that happened to a partition, whoever says so: the engine, the fleet, or the
log of a real broker. Columns that a producer cannot know are null. Offsets are Kafka's: the log end
offset is the next one to be written, the high watermark the first that is not readable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

KINDS: dict[str, str] = {
    "isr_shrink": "a leader asks for a smaller ISR (printed before it is stored)",
    "isr_expand": "a leader asks for a larger ISR",
    "isr_commit": "an ISR is stored; `isr` is what counts from now on",
    "isr_rejected": "an ISR change was refused; `detail.error` says by which error",
    "leader": "a broker became leader of the partition",
    "follower": "a broker became follower of the partition; `replica` is its leader",
    "truncate": "a replica cut its log to `log_end_offset`",
    "high_watermark": "a replica's high watermark moved",
    "crash": "a broker died, was stopped or fenced; `replica` is that broker",
    "restart": "a broker came back; `replica` is that broker",
    "produce_error": "a produce was refused or timed out; `detail.error` says which",
    "produce_ack": "a produce was acknowledged to its client",
    "lost": "a committed record is gone from the leader's log",
    "diverged": "two replicas hold different records at one offset",
    "notify": "a leader announced ISR changes to the controller",
    "metadata": "a broker learned of a change from the controller",
}

SCHEMA = pa.schema(
    [
        pa.field("run", pa.string(), nullable=False),
        pa.field("ts_ms", pa.int64(), nullable=False),
        pa.field("broker", pa.int32()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("leader_epoch", pa.int32()),
        pa.field("partition_epoch", pa.int32()),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("replica", pa.int32()),
        pa.field("isr", pa.list_(pa.int32())),
        pa.field("isr_before", pa.list_(pa.int32())),
        pa.field("high_watermark", pa.int64()),
        pa.field("log_end_offset", pa.int64()),
        pa.field("detail", pa.map_(pa.string(), pa.string())),
    ]
)
COLUMNS: tuple[str, ...] = tuple(SCHEMA.names)


def spark_schema() -> StructType:
    """The same schema for Spark: readers and kernels return exactly these columns in this order."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(SCHEMA)


def table(rows: list[dict[str, object]]) -> pa.Table:
    """Rows as an Arrow table of the schema; raises ValueError on an unknown kind or column."""
    for row in rows:
        if row["kind"] not in KINDS:
            raise ValueError(f"unknown event kind {row['kind']!r}; known: {', '.join(KINDS)}")
        unknown = sorted(row.keys() - set(COLUMNS))
        if unknown:
            raise ValueError(f"unknown event column {unknown[0]!r}; known: {', '.join(COLUMNS)}")
    return pa.Table.from_pylist(rows, schema=SCHEMA)
