"""The one table that every producer writes and every question, figure and report reads.

One row for each thing that happened to a partition, whoever says so: the engine, the fleet, or the
log of a real broker. Columns that a producer cannot know are null. Offsets are Kafka's: the log end
offset is the next one to be written, the high watermark the first that is not readable.

`broker` is who says it. What the stored state of the partition itself says (the controller, and up
to 2.6 ZooKeeper) has `detail.said_by` "controller"; in a scenario its `broker` is null, for the
controller is no broker there. `DETAIL` lists every key that `detail` may have, by kind of row.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    "crash": "a broker died, was stopped or fenced; `replica` is that broker",
    "restart": "a broker came back; `replica` is that broker",
    "produce_error": "a produce was refused or timed out; `detail.error` says which",
    "produce_ack": "a produce was acknowledged to its client",
    "latency": "how long produces with acks=all waited: one row for each leader, hour and class",
    "lost": "a committed record is gone from the leader's log",
    "diverged": "two replicas hold different records at one offset",
    "notify": "a leader announced ISR changes to the controller",
    "metadata": "a broker learned of a change from the controller",
}

# What `detail` may say besides the columns: (of which kinds, what it means and in which unit).
# Values are text; several are joined by commas. Those of log lines are named in brokerlogs/.
_KEYS: dict[str, tuple[str, str]] = {
    "said_by": ("*", "'controller' if that says it, and not the broker concerned"),
    "file": ("*", "the log file that a line was read from"),
    "line": ("*", "its number there, from 1"),
    "lag_records": ("isr_shrink", "the most records that a leaving replica lacks"),
    "since_caught_up_ms": ("isr_shrink", "ms since a leaving replica had all (the shortest)"),
    "since_fetch_ms": ("isr_shrink", "ms since a leaving replica fetched (the shortest)"),
    "out_of_sync": ("isr_shrink", "ids of the leaving replicas"),
    "out_of_sync_end_offset": ("isr_shrink", "their log end offsets, or 'unknown'"),
    "last_caught_up_time_ms": ("isr_shrink", "ms since the epoch when each had all, or 'unknown'"),
    "asked_by": ("isr_commit", "'leader' if the controller stores what a leader asked for"),
    "under_min_isr": ("isr_commit", "'true' if fewer than min.insync.replicas are left"),
    "removed": ("isr_commit", "id of the replica that a controller took out"),
    "transition": ("isr_commit", "the state of the replica for which it did"),
    "asked": ("isr_rejected", "the refused state, as printed"),
    "reason": ("isr_rejected", "the controller's, as printed"),
    "reset_to": ("isr_rejected", "the state that the leader goes back to, as printed"),
    "error": ("isr_rejected produce_error", "Kafka's name of the error"),
    "unclean": ("leader", "'true' for an unclean election"),
    "from_state": ("leader", "state of the partition before"),
    "to_state": ("leader", "state of the partition after"),
    "previous_leader": ("leader follower", "broker id, as printed"),
    "previous_leader_epoch": ("leader follower", "leader epoch before, -1 for none"),
    "leader": ("isr_commit isr_rejected truncate crash metadata", "its id, -1 for none"),
    "topic_id": ("isr_commit leader metadata", "as printed"),
    "elr": ("isr_commit leader metadata", "ids of the eligible leader replicas"),
    "replicas": ("leader metadata", "ids of the assigned replicas"),
    "controller_id": ("leader metadata", "who sent the order"),
    "controller_epoch": ("isr_commit leader metadata", "of the controller that says or sends it"),
    "correlation": ("leader metadata", "number of the request that brought the order"),
    "step": ("truncate", "'decided' by the fetcher, or 'done' in the log"),
    "fetch_offset": ("truncate", "the offset that the fetcher asked for"),
    "which_end": ("truncate", "of the leader's log: latest, start, local log start"),
    "answer": ("truncate", "the leader's, as printed"),
    "answered_epoch": ("truncate", "the leader epoch in it"),
    "completed": ("truncate", "'false' if another round follows"),
    "dir": ("truncate", "the log directory"),
    "cause": ("truncate crash restart", "why: 'leader epoch', 'fenced', 'shut down', ..."),
    "fetcher": ("truncate crash", "number of the fetcher thread"),
    "leader_end_offset": ("crash", "log end offset of the leader for which it halted"),
    "by": ("crash", "the fault in a scenario, or 'halt: ' and the reason"),
    "broker_epoch": ("crash restart", "of the process"),
    "brokers": ("crash restart metadata", "ids of who died or came back; metadata: how many know"),
    "live": ("leader restart", "ids of the live brokers"),
    "count": ("produce_error produce_ack latency", "members of the ISR; else how many produces"),
    "minimum": ("produce_error", "how many members were required"),
    "min_insync_replicas": ("produce_error", "the setting"),
    "records": ("produce_error produce_ack", "their names in a scenario, apart by blanks"),
    "acks": ("produce_ack latency", "0, 1, or -1 for all"),
    "latency_ms": ("produce_ack latency", "ms that it waited for the ISR (the least of its class)"),
    "property": ("lost diverged", "the broken one of engine/safety.py"),
    "text": ("lost diverged", "what is wrong, as a sentence"),
}
DETAIL: dict[str, dict[str, str]] = {
    kind: {
        key: text for key, (kinds, text) in _KEYS.items() if kinds == "*" or kind in kinds.split()
    }
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
