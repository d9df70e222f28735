"""Prints events as the log lines of a chosen release, in the words of the table that reads them.

For tests, and to hold a simulation beside real logs. A line carries what its release prints: an
event of a kind that a release does not print (an expansion since 2.8) gives None.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

from isrlab.brokerlogs.fields import FIELDS, Values
from isrlab.brokerlogs.formats import FORMATS, Format

KINDS = ("isr_shrink", "isr_expand", "isr_commit", "isr_rejected", "leader", "follower", "truncate")
# What a line of some releases says, and an event of a simulation need not know.
_DEFAULTS: Values = {"topic_id": "None", "previous_leader": "None", "dir": "/kafka"}
_DEFAULTS |= {"previous_leader_epoch": "-1"}


def write(events: Iterable[Mapping[str, object]], release: str) -> Iterator[str]:
    """The lines that brokers of `release`, such as "0.10.2" or "3.9", print for these events.

    Events that this release prints no line for are left out. Raises ValueError for a release that
    does not exist.
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


def forms(kind: str, release: str, said_by: str = "leader") -> list[Format]:
    """The formats in which brokers of a release tell events of a kind, as leader or follower, or
    with `said_by` "controller" as that."""
    printed = [form for form in FORMATS if form.is_printed_by(release) and form.kind == kind]
    return [f for f in printed if kind in KINDS and f.fixed.get("said_by", "leader") == said_by]


def _values(event: Mapping[str, object]) -> Values:
    """Columns and details under the names that the fields of formats have; nulls left out."""
    detail = event.get("detail")
    known = dict(detail) if isinstance(detail, Mapping) else {}
    known |= {name: value for name, value in event.items() if value is not None}
    before, after = known.get("isr_before"), known.get("isr")
    if isinstance(before, list) and isinstance(after, list) and "out_of_sync" not in known:
        known["out_of_sync"] = ",".join(str(replica) for replica in before if replica not in after)
    return _DEFAULTS | known


def _message(form: Format, values: Values) -> str | None:
    """The template filled in; None if a field has no value, or the event says another thing."""
    if any(str(values.get(name, text)) != text for name, text in form.fixed.items()):
        return None
    texts = {name: FIELDS[name].write(name, values) for name in form.fields}
    written = {name: text for name, text in texts.items() if text is not None}
    whole = written.keys() == texts.keys()
    return form.filled(written | {"controller": _prefix(written)}) if whole else None


def _prefix(written: Mapping[str, str]) -> str:
    return f"[Controller id={written.get('broker')}] "
