"""The fields of log lines: what each may hold, and how it is read.

A `Field` turns text into values for columns of the events table and for `detail`. Most
are an integer or a word. The nested ones (`state`, `diff`, the out-of-sync lists) hold several
values.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from isrlab.events import names

Values = dict[str, object]
_NUMBER = re.compile(r"-?\d+")
_LIMITS = {"high_watermark": 2**63, "log_end_offset": 2**63}
COLUMNS = frozenset(names.COLUMNS) - {"run", "ts_ms", "kind", "detail"}


class TooLargeError(ValueError):
    """A number too large for its column, which Kafka cannot have printed."""


def number(name: str, text: str) -> int:
    """The number for a column. Raises TooLargeError if it has more bits than in Kafka."""
    if len(text) < 10:
        return int(text)
    limit = _LIMITS.get(name, 2**31)
    if len(text) > 20 or not -limit <= (value := int(text)) < limit:
        raise TooLargeError(f"a number too large for {name}")
    return value


@lru_cache(maxsize=65_536)
def _numbers(name: str, text: str) -> list[int]:
    return [number(name, each) for each in _NUMBER.findall(text)]


# Converters from text to the value of a column of the events table.
COLUMN: dict[str, Callable[[str, str], object]] = {
    **dict.fromkeys(COLUMNS, number),
    **dict.fromkeys(["isr", "isr_before"], _numbers),
    "topic": lambda _, text: text,
}


def _value(name: str, text: str) -> Values:
    """The value of a single field: a list, number or text for its column, or text for `detail`."""
    if name in COLUMNS:
        return {name: COLUMN[name](name, text)}
    return {name: text} if text else {}


def _brokers(name: str, text: str) -> Values:
    return {"each": [{"replica": number("replica", broker)} for broker in text.split(",")]}


class Field(NamedTuple):
    """`pattern` matches the field's text; `read` gives its values (None: the name decides how)."""

    pattern: str
    read: Callable[[str, str], Values] | None = None


def unkept(*_: str) -> Values:
    """No values: the text is ignored."""
    return {}


def _unkept(pattern: str) -> Field:
    return Field(pattern, unkept)


_OUT_OF_SYNC = re.compile(
    r"\(brokerId: (-?\d+), endOffset: (-?\d+|unknown)(?:, lastCaughtUpTimeMs: (-?\d+|unknown))?\)"
)
_OUT_OF_SYNC_NAMES = ("out_of_sync", "out_of_sync_end_offset", "last_caught_up_time_ms")


def _read_out_of_sync(_: str, text: str) -> Values:
    columns = zip(*_OUT_OF_SYNC.findall(text), strict=True)
    named = zip(_OUT_OF_SYNC_NAMES, columns, strict=True)
    return {name: ",".join(texts) for name, texts in named if any(texts)}


# A partition's state as the releases print it: Scala and Java records, JSON, 0.8's own format.
_IDS = r"\[[\d, ]*\]|List\([\d, ]*\)|Set\([\d, ]*\)|\d+(?:,\d+)*"
_STATE = re.compile(
    r'\b(?:[Ll]eader"?[:=] ?(?P<leader>-?\d+)'
    r'|(?:leaderEpoch|LeaderEpoch|leader_epoch)"?[:=] ?(?P<leader_epoch>-?\d+)'
    r"|(?:zkVersion|ZkVersion|partitionEpoch)[:=] ?(?P<partition_epoch>-?\d+)"
    rf'|(?:isr|ISR)"?[:=] ?(?P<isr>{_IDS})|(?:replicas=|AllReplicas:)(?P<replicas>{_IDS})'
    r"|isrWithBrokerEpoch=List\((?P<epochs>(?:[^()]*\([^()]*\))+)\)"
    r"|topicName='(?P<topic>[^']*)'|partitionIndex=(?P<partition>\d+))"
)


def _listed(_: str, text: str) -> str:
    return ",".join(re.findall(r"\d+", text))


_OF_STATE: dict[str, Callable[[str, str], object]] = COLUMN | {"replicas": _listed}


@lru_cache(maxsize=65_536)  # brokers print the same states
def _read_state(_: str, text: str) -> Values:
    values: Values = {}
    for match in _STATE.finditer(text):
        name, value = str(match.lastgroup), match[match.lastindex or 0]
        if name == "epochs":
            name, value = "isr", ",".join(re.findall(r"brokerId=(-?\d+)", value))
        if name not in values:  # nested values come later
            values[name] = _OF_STATE[name](name, value) if name in _OF_STATE else value
    return values


_DIFF = re.compile(
    r"(isr|leader|leaderEpoch|partitionEpoch|elr): (\[[\d, ]*\]|-?\d+) -> (\[[\d, ]*\]|-?\d+)"
)
_DIFF_COLUMNS = {"leaderEpoch": "leader_epoch", "partitionEpoch": "partition_epoch"}


def _read_diff(_: str, text: str) -> Values:
    values: Values = {}
    for name, before, after in _DIFF.findall(text):
        if name == "isr":
            values |= _value("isr_before", before) | _value("isr", after)
        elif name in _DIFF_COLUMNS:
            values |= _value(_DIFF_COLUMNS[name], after)
        else:
            values[name] = after.strip("[]")
    return values


def _read_members(_: str, text: str) -> Values:
    """The ISR as releases up to 2.3 print it: every replica with its whole state."""
    return {"isr": [number("isr", i) for i in re.findall(r"[Rr]eplicaId[:=] ?(\d+)", text)]}


_LOG_END = re.compile(r"(?:(?:replica|broker) (\d+): )?(?:\(offset=)?(-?\d+)(?:,? \[?[^,]*?\])?\)?")


def _read_ends(name: str, text: str) -> Values:
    """The log ends of replicas, with their ids since 2.0; the largest is the leader's own."""
    ends = [(replica, number("log_end_offset", end)) for replica, end in _LOG_END.findall(text)]
    if not ends:
        return {}
    listed = ",".join(f"{replica}:{end}" if replica else str(end) for replica, end in ends)
    return {"log_end_offset": max(end for _, end in ends), name: listed}


def _read_awaiting(name: str, text: str) -> Values:
    return {name: ",".join(re.findall(r"broker (\d+):", text))}


# The partitions that a fetcher is added for, as the releases print them.
_NAMED = r"\[(?P<old>[^\s,\[\]]+),(?P<old_number>\d+)\]|(?P<name>[^\s,\[\]()]+)-(?P<number>\d+)"
_FETCHED = re.compile(
    rf"(?:{_NAMED})"
    r"(?:, initOffset (?P<old_offset>-?\d+) to broker (?:id:|BrokerEndPoint\()(?P<from>\d+)"
    r"| -> \(offset=(?P<offset>-?\d+), leaderEpoch=(?P<epoch>-?\d+)"
    r"| -> InitialFetchState\([^\[(]*(?:\([^)]*\),)?"
    r"BrokerEndPoint[\[(]id=(?P<source>\d+)[^\])]*[\])],(?P<new_epoch>-?\d+),(?P<new_offset>-?\d+))"
)


def _read_fetched(_: str, text: str) -> Values:
    """The values of each partition, as `each`: a list of columns and details."""
    each = []
    for match in _FETCHED.finditer(text):
        printed = {
            "topic": match["old"] or match["name"],
            "partition": match["old_number"] or match["number"],
            "leader_epoch": match["epoch"] or match["new_epoch"],
            "log_end_offset": match["old_offset"] or match["offset"] or match["new_offset"],
            "source": match["from"] or match["source"],
        }
        values = (_value(name, value) for name, value in printed.items() if value)
        each.append({key: value for part in values for key, value in part.items()})
    return {"each": each}


def _read_partitions(_: str, text: str) -> Values:
    names = (re.fullmatch(r"(.+)-(\d+)", name.strip()) for name in text.split(","))
    return {"each": [{"topic": n[1], **_value("partition", n[2])} for n in names if n]}


_INTEGERS = (
    "leader_epoch", "partition_epoch", "replica", "high_watermark", "log_end_offset", "leader",
    "answered_epoch", "broker_epoch", "controller_epoch", "controller_id", "correlation", "count",
    "fetch_offset", "fetcher", "leader_end_offset", "min_insync_replicas", "minimum",
    "previous_leader_epoch", "removed", "source", "start_ms", "elapsed_ms", "limit_ms",
    "required",
)  # fmt: skip
_WORDS = ("topic_id", "previous_leader", "completed", "from_state", "to_state", "transition")
_LIST = r"(?:-?\d+(?:, ?-?\d+)*)?"
_END = r"\(brokerId: -?\d+, endOffset: (?:-?\d+|unknown)"
_SINCE = rf"{_END}, lastCaughtUpTimeMs: (?:-?\d+|unknown)"
CONTROLLER_PREFIX = r"\[(?:QuorumController id=|Controller id=|Controller )(?P<broker>\d+)\]:? "

FIELDS: dict[str, Field] = {
    **dict.fromkeys(_INTEGERS, Field(r"-?\d+")),
    **dict.fromkeys(_WORDS, Field(r"\S+")),
    **dict.fromkeys(["isr", "isr_before"], Field(_LIST)),
    **dict.fromkeys(["adding", "removing", "deleted", "bounced", "live"], Field(_LIST)),
    **dict.fromkeys(["dir", "asked", "reset_to"], Field(r".*?")),
    "cluster": Field(r"[\w-]{8,64}"),
    "incarnation": _unkept(r"[\w-]+"),
    "cause": Field(r"[a-z0-9 ]{4,60}"),
    "release": Field(r"\d[\w.-]{2,30}"),
    "fetched": Field(r".*", _read_fetched),
    "partitions": Field(r"[^ ]*", _read_partitions),
    "others": _unkept(r"[^ ]*"),
    **dict.fromkeys(["reason", "answer", "config"], Field(r".*")),
    "topic": Field(r"[^\s\[\],]+"),
    **dict.fromkeys(["partition", "broker"], Field(r"\d+")),
    "brokers": Field(r"\d+(?:,\d+)*", _brokers),
    "error": Field(r"[A-Z][A-Z_]+"),
    "members": Field(r"[Rr]eplicaId[^\]]*(?:\[[^\]]*\][^\]]*)*", _read_members),
    "ends": Field(r"(?>[^()]*(?:\([^()]*\)[^()]*)*)", _read_ends),
    "awaiting": Field(r"[^()]*", _read_awaiting),
    "former": _unkept(r"(?:-?\d+ \[[^\]]*\]|\([^()]*\))"),
    "segment": _unkept(r"\[[^\]]*\]"),
    "which_end": Field(r"latest|start|local log start"),
    "under_min_isr": Field(
        r"(?:\(under-min-isr\))?", lambda name, text: {name: "true"} if text else {}
    ),
    "out_of_sync": Field(rf"{_END}\)(?: {_END}\))*", _read_out_of_sync),
    "out_of_sync_since": Field(rf"{_SINCE}\)(?: {_SINCE}\))*", _read_out_of_sync),
    "state": Field(r".*?", _read_state),
    "diff": Field(r".*", _read_diff),
    "controller": Field(CONTROLLER_PREFIX),
    "any_prefix": _unkept(r"(?:\[[^\]]*\][,:]? ?)?"),
    "at_epoch": _unkept(r"(?: at epoch -?\d+)?"),
    "exception": _unkept(r"(?:Caused by: )?[\w.$]*"),
    "isr_set": _unkept(r"(?:Set\([\d, ]*\)|\[[\d, ]*\]|: \d+)"),
    "live_replicas": _unkept(r"(?:, live replica\(s\) broker\.id are : .*|\.?)"),
    "text_of_uuid": _unkept(r"(?: with uuid .*)?"),
    **dict.fromkeys(["text", "rest"], _unkept(r".*")),
    **dict.fromkeys(
        ["request", "signal", "age_ms", "throttle_ms", "base_offset", "newer"], _unkept(r"\w+")
    ),
    "replicas": Field(r"\d+(?:,\d+)*"),
    "targets": Field(r"\w+\([\d, ]*\)", lambda name, text: {"replicas": _listed(name, text)}),
    "who": _unkept(r"\S+'s|\S+ \S+'s"),
    "whom": _unkept(r".*?"),
}
