"""Writes events as the log lines of a chosen release, with the reader's table of formats.

For tests, and to compare a simulation with real logs. An event of a kind that the release does not
log, such as an expansion since 2.8, gives no line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache

from isrlab.engine import versions
from isrlab_ops.logs.reader.fields import FIELDS, Values, unkept
from isrlab_ops.logs.reader.formats import FIELD, FORMATS, Format

KINDS = ("isr_shrink", "isr_expand", "isr_commit", "isr_rejected", "leader", "follower", "truncate")
# Values in the lines of some releases that simulated events may lack.
_DEFAULTS: Values = {"topic_id": "None", "previous_leader": "None", "dir": "/kafka"}
_DEFAULTS |= {"previous_leader_epoch": "-1"}
OUT_OF_SYNC_NAMES = ("out_of_sync", "out_of_sync_end_offset", "last_caught_up_time_ms")


def write(events: Iterable[Mapping[str, object]], release: str) -> Iterator[str]:
    """The lines that brokers of `release`, such as "0.10.2" or "3.9", print for these events.

    Events that this release does not log are left out. Raises ValueError for an unknown release.
    """
    return filter(None, (write_line(event, release) for event in events))


def write_line(event: Mapping[str, object], release: str) -> str | None:
    """The line for one event, or None if the release prints none, or the event lacks values."""
    values = _values(event)
    seconds, ms = divmod(int(str(event["ts_ms"])), 1000)
    stamp = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S},{ms:03d}"
    for form in forms(str(event["kind"]), release, str(values.get("said_by", "leader"))):
        message = _message(form, values)
        if message is not None:
            return f"[{stamp}] {form.level} {message} ({form.logger})"
    return None


def is_printed_by(form: Format, release: str) -> bool:
    """Whether brokers of this release, such as "0.10.2" or "3.9", print this form.

    Raises ValueError for an unknown release.
    """
    numbers = versions.release(release)
    last = versions.release(form.until) if form.until else numbers
    return versions.release(form.since, rest=0) <= numbers <= last


def filled(form: Format, texts: Mapping[str, str]) -> str:
    """The template with a text for each field, and the first of alternative texts."""
    return FIELD.sub(lambda f: texts.get(f[1], f[1].split("|")[0]), form.template)


@cache
def forms(kind: str, release: str, said_by: str = "leader") -> list[Format]:
    """The formats in which brokers of a release print events of a kind; with `said_by`
    "controller", those of the controller."""
    printed = [form for form in FORMATS if is_printed_by(form, release) and form.kind == kind]
    return [f for f in printed if kind in KINDS and f.fixed.get("said_by", "leader") == said_by]


def _values(event: Mapping[str, object]) -> Values:
    """The event's columns and details by the names of format fields, without nulls."""
    detail = event.get("detail")
    known = dict(detail) if isinstance(detail, Mapping) else {}
    known |= {name: value for name, value in event.items() if value is not None}
    before, after = known.get("isr_before"), known.get("isr")
    if isinstance(before, list) and isinstance(after, list) and "out_of_sync" not in known:
        known["out_of_sync"] = ",".join(str(replica) for replica in before if replica not in after)
    return _DEFAULTS | known


def _message(form: Format, values: Values) -> str | None:
    """The filled-in template, or None if a field has no value or the event contradicts it."""
    if any(str(values.get(name, text)) != text for name, text in form.fixed.items()):
        return None
    texts = {name: _text(name, values) for name in form.fields}
    written = {name: text for name, text in texts.items() if text is not None}
    whole = written.keys() == texts.keys()
    return filled(form, written | {"controller": _prefix(written)}) if whole else None


def _prefix(written: Mapping[str, str]) -> str:
    return f"[Controller id={written.get('broker')}] "


def _text(name: str, values: Values) -> str | None:
    """The text of a field for the values of an event, or None if a value is missing."""
    if name in WRITERS:
        return WRITERS[name](name, values)
    if FIELDS[name].read is unkept:
        return {"who": "replica's", "whom": "replica"}.get(name, "")
    return _plain(name, values) or ("" if name in BLANK else None)


def _plain(name: str, values: Values) -> str | None:
    value = values.get(name)
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return None if value is None else str(value)


def _write_out_of_sync(name: str, values: Values) -> str | None:
    if "out_of_sync" not in values:
        return None
    unknown = re.sub(r"[^,]+", "unknown", str(values["out_of_sync"]))
    columns = (str(values.get(key, unknown)).split(",") for key in OUT_OF_SYNC_NAMES)
    form = "(brokerId: {}, endOffset: {})"
    if name == "out_of_sync_since":
        form = "(brokerId: {}, endOffset: {}, lastCaughtUpTimeMs: {})"
    return " ".join(form.format(*texts) for texts in zip(*columns, strict=True))


def _write_state(_: str, values: Values) -> str | None:
    """A state as 1.1 to 3.9 print it."""
    if not {"isr", "leader", "leader_epoch"} <= values.keys():
        return None
    isr = ", ".join(map(str, values["isr"]))  # type: ignore[call-overload]
    version = values.get("partition_epoch", -1)
    epochs = f"leader={values['leader']}, leaderEpoch={values['leader_epoch']}"
    return f"LeaderAndIsr({epochs}, isr=List({isr}), zkVersion={version})"


def _write_members(_: str, values: Values) -> str | None:
    isr = values.get("isr")
    form = "ReplicaId: {}; Topic: {topic}; Partition: {partition}; isLocal: {}"
    if not isinstance(isr, list | tuple) or not {"topic", "partition"} <= values.keys():
        return None
    own = values.get("broker")
    return ",".join(form.format(i, str(i == own).lower(), **values) for i in isr)


def _write_diff(_: str, values: Values) -> str | None:
    """An ISR change as a KRaft controller prints it."""
    if not {"isr", "isr_before", "partition_epoch"} <= values.keys():
        return None
    epoch = int(str(values["partition_epoch"]))
    return f"isr: {values['isr_before']} -> {values['isr']}, partitionEpoch: {epoch - 1} -> {epoch}"


BLANK = ("adding", "removing", "deleted", "bounced", "live")  # fields that an event may lack
WRITERS: dict[str, Callable[[str, Values], str | None]] = {
    **dict.fromkeys(["out_of_sync", "out_of_sync_since"], _write_out_of_sync),
    "state": _write_state,
    "members": _write_members,
    "diff": _write_diff,
    "under_min_isr": lambda name, values: "(under-min-isr)" if values.get(name) else "",
}
