"""The part of the logs to look at, and why a filter for it matches nothing.

A misspelt name matches nothing, which must not pass for a calm cluster: such a filter raises a
doubt, which lists the existing names.
"""

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from isrlab.events.statements import Key, Statement
from isrlab_ops.logs.history.record import Record, clock
from isrlab_ops.logs.history.rules import Fault
from isrlab_ops.logs.incidents.find import Incident
from isrlab_ops.logs.reader.stamps import given_ms

NAMED = 8


class Window(NamedTuple):
    """The incidents to look at: those that touch this time, these topics and this broker."""

    since_ms: int | None = None
    until_ms: int | None = None
    topic: str | None = None  # a name, or a pattern with * and ?
    broker: int | None = None

    def has(self, incident: Incident) -> bool:
        end_ms = incident.end_ms
        return (
            (self.since_ms is None or end_ms is None or end_ms >= self.since_ms)
            and (self.until_ms is None or incident.start_ms <= self.until_ms)
            and (not incident.partitions or any(map(self.has_key, incident.partitions)))
            and (self.broker is None or self.broker in (*incident.out, *incident.who))
        )

    def has_fault(self, fault: Fault) -> bool:
        """Whether a line is about these topics, and no later than `until_ms`."""
        is_early = self.until_ms is None or fault.ts_ms <= self.until_ms
        return is_early and (fault.key is None or self.has_key(fault.key))

    def has_key(self, key: Key) -> bool:
        return self.topic is None or fnmatchcase(key.topic, self.topic)


def window(since: str | None, until: str | None, topic: str | None, broker: int | None) -> Window:
    """The window of these options: times are UTC unless they name a zone; empty or None is all.

    Raises ValueError for text that is not a time.
    """
    since_ms, until_ms = (given_ms(text) if text else None for text in (since, until))
    return Window(since_ms, until_ms, topic or None, broker)


def unmatched(window: Window, events: Sequence[Statement], record: Record) -> Iterator[str]:
    """Why a filter matches nothing; `record` is that of the events up to `until_ms`."""
    if not events:
        return
    topics = sorted({key.topic for key in record.spans})
    first, last = (pick(row.ts_ms for row in events) for pick in (min, max))
    span = f"these logs go from {clock(first)} to {clock(last)} UTC"
    since_ms, until_ms = window.since_ms, window.until_ms
    if since_ms is not None and until_ms is not None and since_ms > until_ms:
        yield f"--since {clock(since_ms)} is after --until {clock(until_ms)}"
    elif since_ms is not None and since_ms > last:
        yield f"nothing is after --since {clock(since_ms)}: {span}"
    elif until_ms is not None and until_ms < first:
        yield f"nothing is before --until {clock(until_ms)}: {span}"
    elif window.topic is not None and not any(map(window.has_key, record.spans)):
        yield f"no topic matches --topic {window.topic!r}; {_named('topics', topics)}"
    if window.broker is not None and window.broker not in record.brokers and record.brokers:
        brokers = _named("brokers", map(str, sorted(record.brokers)))
        yield f"no line names --broker {window.broker}; {brokers}"


def _named(what: str, names: Iterable[str]) -> str:
    shown = [*names]
    more = f" and {len(shown) - NAMED:,} more" if len(shown) > NAMED else ""
    return (
        f"there are the {what} {', '.join(shown[:NAMED])}{more}"
        if shown
        else f"there are no {what}"
    )
