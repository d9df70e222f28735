"""The one table that every producer writes and every question, figure and report reads.

One row for each thing that happened to a partition, whoever says so: the engine, the fleet, or the
log of a real broker. Columns that a producer cannot know are null. Offsets are Kafka's: the log end
offset is the next one to be written, the high watermark the first that is not readable.

`broker` is who says it. What the stored state of the partition itself says (the controller, and up
to 2.6 ZooKeeper) has `detail.said_by` "controller"; in a scenario its `broker` is null, for the
controller is no broker there. `detail.txt` lists every key that `detail` may have.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from typing import TYPE_CHECKING, Any

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
    "position": "a leader says where the log of `replica` ends: a follower's, or its own",
    "crash": "a broker died, was stopped or fenced; `replica` is that broker",
    "restart": "a broker came back; `replica` is that broker",
    "config": "a setting of replication was changed: `detail.name`, `detail.value`, of `detail.of`",
    "deleted": "the partition was deleted with its topic",
    "produce_error": "a produce was refused or timed out; `detail.error` says which",
    "produce_ack": "a produce was acknowledged to its client",
    "latency": "how long produces with acks=all waited: one row for each leader, hour and class",
    "lost": "a committed record is gone from the leader's log",
    "diverged": "two replicas hold different records at one offset",
    "notify": "a leader announced ISR changes to the controller",
    "metadata": "a broker learned of a change from the controller",
    "hosted": "a broker has a log of the partition, or begins to copy it; `replica` is that broker",
    "unhosted": "a broker deletes its log of the partition; `replica` is that broker",
    "failed": "a replica, or a log directory with all that are in it, stopped: `replica`, `cause`",
    "offline": "no leader could be found for the partition",
    "clock": "a process said when it started: `detail.zone_offset_ms` is its clock's zone",
    "sign": "a line that tells why an ISR changes; `detail.sign` says what it is a sign of",
    "unknown": "from here to the next stored ISR nobody says what it is; `detail.why`",
    "log_start": "the first line that there is of a broker",
    "log_end": "the last line that there is of a broker: what comes later is not known",
}

_LINES = files(__package__).joinpath("detail.txt").read_text("utf-8").splitlines()  # or in a zip
_CELLS = [[cell.strip() for cell in line.split("|")] for line in _LINES if "|" in line]
DETAIL: dict[str, dict[str, str]] = {  # by kind of row: the keys it may have, and what they mean
    kind: {key: text for key, kinds, text in _CELLS if kinds == "*" or kind in kinds.split()}
    for kind in KINDS
}

# `detail.error` of a failed produce: what its producer sees of it
PRODUCE_FAILURES: dict[str, tuple[str, ...]] = {
    "refused": ("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
    "timed_out": ("REQUEST_TIMED_OUT", "DELIVERY_TIMEOUT"),
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


def table(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as an Arrow table of the schema.

    Raises ValueError on a kind, a column or a key of `detail` that is not listed above.
    """
    for row in rows:
        kind = row["kind"]
        _check("event kind", [kind], KINDS)
        _check("event column", row, COLUMNS)
        _check(f"detail of {kind}", dict(row.get("detail") or ()), DETAIL[kind])
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _check(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in sorted(set(names) - set(known)):
        raise ValueError(f"unknown {what} {name!r}; known: {', '.join(known)}")
