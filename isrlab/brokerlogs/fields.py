"""What a field of a log line may hold: how it is written, how it is read, how it is printed.

A `Field` turns text into values for columns of the events table and for `detail`, and back. Most
are an integer or a word. The nested ones (`state`, `diff`, the out-of-sync lists) hold several
values.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

Values = dict[str, object]

COLUMNS = frozenset(
    [
        "broker",
        "topic",
        "partition",
        "leader_epoch",
        "partition_epoch",
        "replica",
        "isr",
        "isr_before",
        "high_watermark",
        "log_end_offset",
    ]
)


def _int_list(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"-?\d+", text)]


def _joined(values: object) -> str:
    return ",".join(map(str, values)) if isinstance(values, (list, tuple)) else str(values or "")


_OUT_OF_SYNC = re.compile(
    r"\(brokerId: (-?\d+), endOffset: (-?\d+|unknown)(?:, lastCaughtUpTimeMs: (-?\d+|unknown))?\)"
)


def _read_out_of_sync(text: str) -> Values:
    rows = _OUT_OF_SYNC.findall(text)
    values: Values = {
        "out_of_sync": ",".join(row[0] for row in rows),
        "out_of_sync_end_offset": ",".join(row[1] for row in rows),
    }
    if any(row[2] for row in rows):
        values["last_caught_up_time_ms"] = ",".join(row[2] for row in rows)
    return values


def _print_out_of_sync(values: Values, with_clocks: bool) -> str:
    replicas = str(values["out_of_sync"]).split(",")
    offsets = str(values["out_of_sync_end_offset"]).split(",")
    unknown = ",".join("unknown" for _ in replicas)
    clocks = str(values.get("last_caught_up_time_ms", unknown)).split(",")
    return " ".join(
        f"(brokerId: {replica}, endOffset: {offset}"
        + (f", lastCaughtUpTimeMs: {clock})" if with_clocks else ")")
        for replica, offset, clock in zip(replicas, offsets, clocks, strict=True)
    )


# A partition's state as the releases print it: Scala and Java records, JSON, 0.8's own format.
_IDS = r"\[[\d, ]*\]|List\([\d, ]*\)|Set\([\d, ]*\)|\d+(?:,\d+)*"
_STATE: dict[str, re.Pattern[str]] = {
    "leader": re.compile(r'\b[Ll]eader"?[:=] ?(-?\d+)'),
    "leader_epoch": re.compile(r'\b(?:leaderEpoch|LeaderEpoch|leader_epoch)"?[:=] ?(-?\d+)'),
    "partition_epoch": re.compile(r"\b(?:zkVersion|ZkVersion|partitionEpoch)[:=] ?(-?\d+)"),
    "isr": re.compile(rf'\b(?:isr|ISR)"?[:=] ?({_IDS})'),
    "replicas": re.compile(rf"\b(?:replicas=|AllReplicas:)({_IDS})"),
    "topic": re.compile(r"\btopicName='([^']*)'"),
    "partition": re.compile(r"\bpartitionIndex=(\d+)"),
}
_BROKER_STATES = re.compile(r"isrWithBrokerEpoch=List\((.*?\))\)")


def _read_state(text: str) -> Values:
    values: Values = {}
    for name, pattern in _STATE.items():
        if found := pattern.search(text):
            values[name] = found.group(1)
    if found := _BROKER_STATES.search(text):
        values["isr"] = ",".join(re.findall(r"brokerId=(-?\d+)", found.group(1)))
    for name in ("isr", "replicas"):
        if name in values:
            values[name] = _int_list(str(values[name]))
    if "replicas" in values:
        values["replicas"] = _joined(values["replicas"])
    for name in ("leader_epoch", "partition_epoch", "partition"):
        if name in values:
            values[name] = int(str(values[name]))
    return values


_DIFF = re.compile(
    r"(isr|leader|leaderEpoch|partitionEpoch|elr): (\[[\d, ]*\]|-?\d+) -> (\[[\d, ]*\]|-?\d+)"
)


def _read_diff(text: str) -> Values:
    values: Values = {}
    for name, before, after in _DIFF.findall(text):
        if name == "isr":
            values |= {"isr_before": _int_list(before), "isr": _int_list(after)}
        elif name == "leaderEpoch":
            values["leader_epoch"] = int(after)
        elif name == "partitionEpoch":
            values["partition_epoch"] = int(after)
        else:
            values[name] = after.strip("[]")
    return values


@dataclass(frozen=True, slots=True)
class Field:
    """`pattern` is what it may look like; `read` gives its values, `write` its text for an
    event."""

    pattern: str
    read: Callable[[str, str], Values]
    write: Callable[[str, Values], str]


def _word(name: str, text: str) -> Values:
    return {name: text} if text else {}


def _plain(name: str, values: Values) -> str:
    return str(values.get(name, ""))


def _nothing(name: str, text: str) -> Values:
    return {}


def _number(name: str, text: str) -> Values:
    return {name: int(text)} if name in COLUMNS else {name: text}


def _ids(name: str, text: str) -> Values:
    return {name: _int_list(text)} if name in COLUMNS else _word(name, text)


def _under_min_isr(name: str, text: str) -> Values:
    return {name: "true"} if text else {}


NUMBER = Field(r"-?\d+", _number, _plain)
WORD = Field(r"\S+", _word, _plain)
TEXT = Field(r".*?", _word, _plain)
IDS = Field(r"(?:-?\d+(?:, ?-?\d+)*)?", _ids, lambda name, values: _joined(values.get(name)))
_ITEMS = r"\(brokerId: [^()]*\)(?: \(brokerId: [^()]*\))*"

FIELDS: dict[str, Field] = {
    "topic": Field(r"[^\s\[\],]+", _word, _plain),
    "partition": Field(r"\d+", _number, _plain),
    "broker": Field(r"\d+", _number, _plain),
    "isr": IDS,
    "isr_before": IDS,
    "adding": IDS,
    "removing": IDS,
    "brokers": Field(r"\d+(?:,\d+)*", _word, _plain),
    "deleted": IDS,
    "bounced": IDS,
    "live": IDS,
    "under_min_isr": Field(
        r"(?:\(under-min-isr\))?",
        _under_min_isr,
        lambda name, values: "(under-min-isr)" if values.get(name) else "",
    ),
    "out_of_sync": Field(
        _ITEMS, lambda _, text: _read_out_of_sync(text), lambda _, v: _print_out_of_sync(v, False)
    ),
    "out_of_sync_since": Field(
        _ITEMS, lambda _, text: _read_out_of_sync(text), lambda _, v: _print_out_of_sync(v, True)
    ),
    "state": Field(r".*?", lambda _, text: _read_state(text), _plain),
    "diff": Field(r".*", lambda _, text: _read_diff(text), _plain),
    "topic_id": WORD,
    "previous_leader": WORD,
    "completed": WORD,
    "error": Field(r"[A-Z][A-Z_]+", _word, _plain),
    "from_state": WORD,
    "to_state": WORD,
    "transition": WORD,
    "dir": TEXT,
    "text": Field(r".*", _nothing, _plain),
    "asked": TEXT,
    "reset_to": TEXT,
    "reason": Field(r".*", _word, _plain),
    "answer": Field(r".*", _word, _plain),
    "truncation_state": Field(
        r"(?:Offset)?TruncationState", _nothing, lambda *_: "TruncationState"
    ),
    "who": Field(r"\S+'s|\S+ \S+'s", _nothing, lambda *_: "replica's"),
    "whom": Field(r"replica|follower|.*?", _nothing, lambda *_: "replica"),
    "which_end": Field(r"latest|start|local log start", _word, _plain),
    "fully": Field(r"R|Truncate fully and r", _nothing, lambda *_: "R"),
    "the": Field(r"(?:the )?", _nothing, lambda *_: ""),
    "failed_to": Field(r"Failed to|Controller failed to", _nothing, lambda *_: "Failed to"),
    "zk": Field(r"(?:zk )?", _nothing, lambda *_: ""),
    "alter": Field(r"alterIsr|AlterPartition", _nothing, lambda *_: "AlterPartition"),
    "created": Field(
        r"Created partition|Replayed PartitionRecord for new partition",
        _nothing,
        lambda *_: "Replayed PartitionRecord for new partition",
    ),
    "at_epoch": Field(r"(?: at epoch -?\d+)?", _nothing, lambda *_: ""),
    "same": Field(r"-?\d+", _nothing, _plain),
    "exception": Field(r"(?:Caused by: )?[\w.$]*", _nothing, lambda *_: ""),
    "isr_set": Field(r"(?:Set\([\d, ]*\)|\[[\d, ]*\]|: \d+)", _nothing, _plain),
    "live_replicas": Field(r"(?:, live replica\(s\) broker\.id are : .*|\.?)", _nothing, _plain),
    "any_prefix": Field(r"(?:\[[^\]]*\][,:]? ?)?", _nothing, lambda *_: ""),
}
CONTROLLER_PREFIX = r"\[(?:QuorumController id=|Controller id=|Controller )(?P<broker>\d+)\]:? "
