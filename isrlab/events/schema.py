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
    "latency": "how long produces with acks=all waited: one row for each leader, hour and class",
    "lost": "a committed record is gone from the leader's log",
    "diverged": "two replicas hold different records at one offset",
    "notify": "a leader announced ISR changes to the controller",
    "metadata": "a broker learned of a change from the controller",
}

# What `detail` may say besides the columns: key -> meaning, with the unit. Values are text; lists
# are joined by commas. Keys of log lines are named by brokerlogs/, after the words of the line.
EVERY_KIND: dict[str, str] = {
    "said_by": "'controller' if that says it, and not the broker concerned",
    "file": "the log file that a line was read from",
    "line": "its number there, from 1",
}
_CONTROLLER_EPOCH = {"controller_epoch": "of the controller that said or sent it"}
_TOPIC_ID = {"topic_id": "the topic's id, as printed"}
_LEADER = {"leader": "the leader's broker id, -1 for none"}
_ERROR = {"error": "Kafka's name of the error"}
_RECORDS = {"records": "names of its records, apart by blanks"}
_ORDER = {"controller_id": "who sent the order", "correlation": "number of that request"}
_PREVIOUS = {
    "previous_leader": "broker id, as printed",
    "previous_leader_epoch": "leader epoch before, -1 for none",
}
_COUNTED = {"latency_ms": "wait for the ISR (ms)", "count": "of how many produces; 1 if absent"}
_PROCESS = {
    "cause": "shut down, fenced, unfenced, or why it halted",
    "broker_epoch": "of the process",
    "brokers": "ids of all that died or came back at once",
    "live": "ids of all that are alive",
}
_PROPERTY = {"property": "its name in engine/safety.py", "text": "what is wrong, as a sentence"}
DETAIL: dict[str, dict[str, str]] = {
    "isr_shrink": {
        "lag_records": "the most records that a leaving replica lacks",
        "since_caught_up_ms": "since a leaving one last had everything (ms, the shortest)",
        "since_fetch_ms": "since a leaving one last fetched (ms, the shortest)",
        "out_of_sync": "ids of the leaving replicas",
        "out_of_sync_end_offset": "their log end offsets, or 'unknown'",
        "last_caught_up_time_ms": "when each last had everything (ms since the epoch)",
    },
    "isr_expand": {},
    "isr_commit": {
        "asked_by": "'leader' if the controller stores what a leader asked for",
        "under_min_isr": "'true' if fewer than min.insync.replicas are left",
        "removed": "the replica that a controller took out",
        "transition": "the replica state for which it did",
        "elr": "eligible leader replicas after",
        **_LEADER, **_CONTROLLER_EPOCH, **_TOPIC_ID,
    },
    "isr_rejected": {
        "asked": "the refused state, as printed",
        "reason": "the controller's, as printed",
        "reset_to": "the state the leader goes back to, as printed",
        **_ERROR, **_LEADER,
    },
    "leader": {
        "unclean": "'true' for an unclean election",
        "from_state": "partition state before",
        "to_state": "and after",
        "live": "ids of the live replicas",
        "replicas": "ids of all assigned replicas",
        "elr": "eligible leader replicas after",
        **_CONTROLLER_EPOCH, **_ORDER, **_TOPIC_ID, **_PREVIOUS,
    },
    "follower": _PREVIOUS,
    "truncate": {
        "step": "'decided' by the fetcher, or 'done' in the log",
        "cause": "high watermark, leader epoch, or out of range",
        "fetch_offset": "the offset it wanted to read from",
        "which_end": "of the leader's log: latest, start, local log start",
        "answer": "the leader's, as printed",
        "answered_epoch": "the leader epoch in that answer",
        "completed": "whether another round follows, as printed",
        "fetcher": "number of the thread",
        "dir": "log directory",
        **_LEADER,
    },
    "high_watermark": {},
    "crash": {
        "by": "the fault in a scenario, or 'halt: ' and the reason",
        "leader_end_offset": "log end offset of the leader for which it halted",
        "fetcher": "number of the thread that halted it",
        **_LEADER, **_PROCESS,
    },
    "restart": _PROCESS,
    "produce_error": {
        "count": "members of the ISR at that time",
        "minimum": "how many were required",
        "min_insync_replicas": "the setting",
        **_ERROR, **_RECORDS,
    },
    "produce_ack": {"acks": "-1 for all", **_RECORDS, **_COUNTED},
    "latency": {"acks": "-1 for all", **_COUNTED},
    "lost": _PROPERTY,
    "diverged": _PROPERTY,
    "notify": {},
    "metadata": {
        "brokers": "how many brokers learned it, of those that a row tells of",
        "replicas": "ids of all assigned replicas",
        "elr": "eligible leader replicas after",
        **_LEADER, **_CONTROLLER_EPOCH, **_ORDER, **_TOPIC_ID,
    },
}  # fmt: skip

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
    """Rows as an Arrow table of the schema.

    Raises ValueError on a kind, a column or a key of `detail` that is not listed above.
    """
    for row in rows:
        kind, detail = str(row["kind"]), row.get("detail") or {}
        _check("event kind", {kind}, KINDS)
        _check("event column", row, COLUMNS)
        assert isinstance(detail, dict)
        _check(f"detail of {kind}", detail, EVERY_KIND | DETAIL[kind])
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _check(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise ValueError(f"unknown {what} {unknown[0]!r}; known: {', '.join(known)}")


def unlisted(events: pa.Table) -> set[tuple[str, str]]:
    """(kind, key) of every key of `detail` in a table that `DETAIL` does not list for its kind."""
    rows = events.select(["kind", "detail"]).to_pylist()
    pairs = {(row["kind"], key) for row in rows for key, _ in row["detail"] or ()}
    return {(kind, key) for kind, key in pairs if key not in EVERY_KIND | DETAIL[kind]}
