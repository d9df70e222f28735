"""Prints events as the log lines of a chosen release, in the words of the table that reads them.

For tests, and to hold a simulation beside real logs. A line carries what its release prints: an
event of a kind that a release does not print (an expansion since 2.8) gives None.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

from isrlab.brokerlogs.fields import FIELDS, NUMBER, Values
from isrlab.brokerlogs.grammar import SAID_BY_CONTROLLER, Format
from isrlab.brokerlogs.grammar_cluster import FORMATS
from isrlab.brokerlogs.lines import compiled

KINDS = (
    "isr_shrink",
    "isr_expand",
    "isr_commit",
    "isr_rejected",
    "leader",
    "follower",
    "truncate",
)


def write(events: Iterable[Mapping[str, object]], release: str) -> Iterator[str]:
    """The lines that brokers of `release`, such as "0.10.2" or "3.9", print for these events.

    Events that this release prints no line for are left out. Raises ValueError for a release that
    does not exist.
    """
    for event in events:
        line = write_line(event, release)
        if line is not None:
            yield line


def write_line(event: Mapping[str, object], release: str) -> str | None:
    """The line for one event, or None if the release prints none, or the event lacks values."""
    values = _values(event)
    form = next((f for f in forms(str(event["kind"]), release) if _can_fill(f, values)), None)
    if form is None:
        return None
    moment = datetime.fromtimestamp(int(str(event["ts_ms"])) // 1000, UTC)
    stamp = f"{moment:%Y-%m-%d %H:%M:%S},{int(str(event['ts_ms'])) % 1000:03d}"
    return f"[{stamp}] {form.level} {_filled(form, values)} ({form.logger})"


def forms(kind: str, release: str) -> list[Format]:
    """The formats in which brokers of a release tell events of a kind, as leader or follower."""
    return [
        form
        for form in FORMATS
        if form.kind == kind
        and kind in KINDS
        and form.is_printed_by(release)
        and not SAID_BY_CONTROLLER.items() <= form.fixed.items()
    ]


# What a line of some releases says, and an event of a simulation need not know.
_DEFAULTS: Values = {
    "topic_id": "None",
    "previous_leader": "None",
    "previous_leader_epoch": "-1",
    "dir": "/kafka",
}


def _values(event: Mapping[str, object]) -> Values:
    """Columns and details under the names that the fields of formats have; nulls left out."""
    detail = event.get("detail")
    known = dict(detail) if isinstance(detail, Mapping) else {}
    known |= {name: value for name, value in event.items() if value is not None}
    before, after = known.get("isr_before"), known.get("isr")
    if isinstance(before, list) and isinstance(after, list) and "out_of_sync" not in known:
        gone = [str(replica) for replica in before if replica not in after]
        known["out_of_sync"] = ",".join(gone)
        known["out_of_sync_end_offset"] = ",".join("unknown" for _ in gone)
    return _DEFAULTS | known


def _can_fill(form: Format, values: Values) -> bool:
    """Every field that needs a value has one, and what the form says of itself is what is meant."""
    if any(str(values.get(name, said)) != said for name, said in form.fixed.items()):
        return False
    return all(_is_optional(name) or name in values for name in compiled(form).fields)


_MAY_BE_EMPTY = ("under_min_isr", "adding", "removing", "text", "zk", "the", "at_epoch")


def _is_optional(name: str) -> bool:
    """The field may be empty, has a text of its own, or is made of others."""
    if name in _MAY_BE_EMPTY or name in ("any_prefix", "out_of_sync_since"):
        return True
    return name != "out_of_sync" and bool(FIELDS.get(name, NUMBER).write(name, {}))


def _filled(form: Format, values: Values) -> str:
    text = form.template
    for name in compiled(form).fields:
        text = text.replace(f"{{{name}}}", FIELDS.get(name, NUMBER).write(name, values))
    return text
