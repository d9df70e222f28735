"""The names in the events table: its columns, the kinds of its rows, the keys of their details.

They are apart from the schema so that code which needs only names imports no Arrow: the grammar of
log lines also runs in a browser, where there is none.
"""

from importlib.resources import files

COLUMNS: tuple[str, ...] = (
    "run", "ts_ms", "broker", "topic", "partition", "leader_epoch", "partition_epoch", "kind",
    "replica", "isr", "isr_before", "high_watermark", "log_end_offset", "detail",
)  # fmt: skip
KINDS: dict[str, str] = {
    "isr_shrink": "a leader asks for a smaller ISR (printed before it is stored)",
    "isr_expand": "a leader asks for a larger ISR",
    "isr_commit": "an ISR is stored; `isr` is what counts from now on",
    "isr_rejected": "an ISR change was refused; `detail.error` says by which error",
    "leader": "a broker became leader of the partition",
    "follower": "a broker became follower of the partition; `replica` is its leader",
    "truncate": "a replica truncated its log to `log_end_offset`",
    "high_watermark": "a replica's high watermark moved",
    "position": "a leader reports the log end offset of `replica`: of a follower, or its own",
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
    "failed": "a replica, or a log directory with all replicas in it, stopped: `replica`, `cause`",
    "offline": "no leader could be found for the partition",
    "clock": "a process logged its start time: `detail.zone_offset_ms` is its clock's zone",
    "sign": "a line that indicates why an ISR changes; `detail.sign` names the cause",
    "unknown": "no line shows the ISR from here to the next stored one; `detail.why`",
    "log_start": "the first line of a broker's logs",
    "log_end": "the last line of a broker's logs: later events are not known",
}

# How a failed produce ends for its producer, by `detail.error`
PRODUCE_FAILURES: dict[str, tuple[str, ...]] = {
    "refused": ("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
    "timed_out": ("REQUEST_TIMED_OUT", "DELIVERY_TIMEOUT"),
}

_LINES = files(__package__).joinpath("detail.txt").read_text("utf-8").splitlines()  # or in a zip
_CELLS = [[cell.strip() for cell in line.split("|")] for line in _LINES if "|" in line]
DETAIL: dict[str, dict[str, str]] = {  # by kind of row: the keys it may have, and what they mean
    kind: {key: text for key, kinds, text in _CELLS if kinds == "*" or kind in kinds.split()}
    for kind in KINDS
}
