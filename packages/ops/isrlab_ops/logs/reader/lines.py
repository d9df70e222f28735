"""Reads one line of a broker log: an event, or why it could not be read, or nothing of interest.

Theory of operation. A line has a head and a message (layout.py). The formats are tried in the order
of the table, each only if its longest piece of fixed text occurs in the message. A message that no
format reads is unread if it is about an ISR, matters to an operator (`_COUNTED`), is impossible, or
concerns replication and has a replication logger; else it is ignored. Lines without a head, such as
stack traces, count only if they show an error of these kinds, or a line torn from its head.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from isrlab.engine import versions
from isrlab_ops.logs.reader.fields import COLUMNS, TooLargeError, number
from isrlab_ops.logs.reader.formats import FORMATS, IMPOSSIBLE, NO_NEWS, Format, likely
from isrlab_ops.logs.reader.layout import Head, Layout, is_continued
from isrlab_ops.logs.reader.stamps import utc_ms

Event: TypeAlias = dict[str, Any]
# Kinds whose replica is the broker that logs them, if the line names none
OF_ITSELF = ("leader", "crash", "restart", "hosted", "unhosted", "position", "failed")
ZONE_STEP_MS = 15 * 60 * 1000  # the offset of every zone is a multiple of it
OPERATOR = "operator"  # Strimzi's: its lines are about brokers, and no broker prints them
IMPOSSIBLE_LINE = "no broker prints this"  # how the reason begins
PARTITION_LOGGER = "kafka.cluster.Partition"  # a leader's ISR changes
MOST_LINES_BACK = 300  # from a line of a stack trace back to the line with its time


class Unread(NamedTuple):
    """A line that concerns replication, or may, and could not be read; `text` may quote it."""

    reason: str
    text: str = ""


_EXCEPTIONS = tuple(form for form in FORMATS if "{exception}" in form.template)

_SOURCE = re.compile(
    r"[\[ ](?:broker[= ]|Broker |Controller |id=|brokerId=|replicaId=|Server )(\d+)"
)
# Texts that matter to an operator: lines with them are never ignored, even if no form fits.
_COUNTED = {
    **dict.fromkeys(
        ["NotEnoughReplicasAfterAppend", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"],
        "a produce was refused after the append; the line names no partition"),
    **dict.fromkeys(
        ["Failed to alter partition", "ailed to update ISR"],
        "a refused ISR change of no known form"),
    " isr: [": "a change of a partition of no known form",
    **dict.fromkeys(
        ["marked as failed", "failed log directory", "all log dirs in", "Disk error while"],
        "a failure of no known form"),
}  # fmt: skip
_ABOUT_ISR = re.compile(r"Shrinking ISR|Expanding ISR|ISR updated|skip updating ISR")
_REPLICATION = re.compile(
    r"\bISR\b|Truncating|out of range|reset fetch offset|[Ll]eader [Ee]poch|LeaderAndIsr|become-"
    r"|Fencing broker|partition change|isr-expiration|min\.isr|lagging behind|OnlinePartition"
)
# Text that makes a line worth reading, for RE2: the fixed text of a form, counted words, a
# character that no broker writes; or words about replication, unless the line is known to be
# irrelevant.
_TEXTS = {form.landmark for form in FORMATS} | {*_COUNTED}
_ESCAPED = (re.escape(text).replace("\\ ", " ") for text in sorted(_TEXTS))
WANTED_TEXT = "|".join([*_ESCAPED, _ABOUT_ISR.pattern, "has no effect"])
WANTED = rf"{WANTED_TEXT}|[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]"
PERHAPS = f"{_REPLICATION.pattern}|ISR"


def _words(texts: Iterable[str]) -> tuple[bytes, ...]:
    """Words such that each text contains one of them."""
    least = {*texts}
    return tuple(sorted(t.encode() for t in least if not any(o in t for o in least - {t})))


def _longest_word(expression: str) -> str:
    plain = expression.replace(r"\b", "").replace("\\", "")
    return max(re.findall(r"[\w. -]+", plain), key=len)


# For a search by words: each relevant line contains one of these, or a control character.
WANTED_WORDS = _words([*_TEXTS, *_ABOUT_ISR.pattern.split("|"), "has no effect"])
PERHAPS_WORDS = _words(map(_longest_word, PERHAPS.split("|")))
LOGGERS = re.compile(
    r"\b(?:cluster\.|controller\.)|^(?:state\.change\.)?logger$|FetcherThread$|FetcherManager$"
    r"|(?:^|\.)(?:Unified|Local)?Log$|server\.(?:Replica|Alter|KafkaServer)|KafkaScheduler$"
)


@dataclass(slots=True)
class LineReader:
    """Reads lines of one file in order. `head` is that of the last line, or of the line that it
    continues; `heads` counts the lines of Kafka with a usable time.

    Local times are read in `time_zone`; with None as if they were UTC. `given`: a layout to try
    first.
    """

    time_zone: str | None
    layout: Layout
    given: Layout | None = None
    head: Head | None = None
    heads: int = 0
    headless: int = 0  # Kafka's lines without a head
    releases: tuple[str, ...] = ()  # that printed their names so far

    def read(self, line: str, before: Iterable[str] = ()) -> list[Event | Unread]:
        """The events of a line, or why it is unread; nothing for an irrelevant line.

        `before` gives the preceding lines, the nearest one first.
        """
        try:
            head = self.head = self.head_of(line)
        except ValueError:
            return [Unread("no such date or time")]
        if head is None:
            return [*self._without_head(line, before)]
        known = form_of(head.message)
        item = self._of_form(*known, head) if known else _remainder(head)
        if head.lacks:
            self.headless += 1
            item = item and Unread(f"the stamp has no {head.lacks}")
        else:
            self.heads += 1
        items = [item, *(self._exception(line, head) for line in head.rest)]
        return [each for each in items if each is not None]

    def _of_form(self, form: Format, match: re.Match[str], head: Head) -> Event | Unread:
        item = _event(form, match, head)
        if not isinstance(item, Unread) and item["kind"] == "sign":
            release = item["detail"].get("release")
            if release and release not in self.releases:
                self.releases += (release,)
        elif form.logger == PARTITION_LOGGER and not is_printed(
            form.since, form.until, self.releases
        ):
            until = form.until or "now"
            why = f"a form of {form.since} to {until}, in a log of {' and '.join(self.releases)}"
            return Unread(f"{IMPOSSIBLE_LINE}: {why}")
        return item

    def find_layout(self, lines: list[str]) -> None:
        """Find the layout of a sample of lines."""
        self.layout = Layout.of(lines)
        if self.given:
            self.layout = replace(self.given, other=self.layout)

    def head_of(self, line: str) -> Head | None:
        """The parts of a line, with its time in UTC. Raises ValueError for an impossible time."""
        head = self.layout.head(line)
        if self.time_zone is None or head is None or not head.is_local or head.lacks:
            return head
        return head._replace(ts_ms=utc_ms(head.ts_ms, self.time_zone), is_local=False)

    def time_of(self, line: str) -> Head | None:
        """Like `head_of`, but None for a line without a usable time."""
        with suppress(ValueError):
            if (head := self.head_of(line)) and not head.lacks:
                return head
        return None

    def _without_head(self, line: str, before: Iterable[str]) -> Iterator[Event | Unread]:
        source, text = self.layout.unwrapped(line)
        if any(form.landmark in text for form in _EXCEPTIONS):
            self.head = self._head_before(source, before)
            if item := self._exception(text, self.head):
                yield item
                return
        self.headless += not is_continued(text)
        if counted := _counted(text):
            yield counted
        elif _ABOUT_ISR.search(text):
            yield Unread("no time at the beginning of the line")

    def _head_before(self, source: str, before: Iterable[str]) -> Head | None:
        for line in islice(before, MOST_LINES_BACK):
            if (head := self.time_of(line)) and (head.source == source or not source):
                return head
        return None

    def _exception(self, text: str, head: Head | None) -> Event | Unread | None:
        for form in _EXCEPTIONS:
            if form.landmark in text and (match := form.regex.search(text.strip())):
                return _event(form, match, head) if head else Unread("an error without a time")
        return None


@lru_cache(maxsize=4096)
def is_printed(since: str, last: str | None, releases: tuple[str, ...]) -> bool:
    """Whether one of these releases may print a form of the releases from `since` to `last`. An
    unknown release may print anything."""
    for name in releases:
        try:
            number = versions.release(name)
        except ValueError:
            return True
        until = versions.release(last) if last else number
        if versions.release(since, rest=0) <= number <= until:
            return True
    return not releases


def read_line(line: str, time_zone: str = "UTC") -> Event | Unread | None:
    """A single line: its event, why it is unread, or None if it is irrelevant.

    The event has the columns of `events.SCHEMA` that the line shows, without `run`.
    """
    return next(iter(LineReader(time_zone, Layout.of([line])).read(line)), None)


def form_of(message: str) -> tuple[Format, re.Match[str]] | None:
    """The first format that reads a message, and its match."""
    for form in likely(message):
        if form.landmark in message and (match := form.regex.fullmatch(message)):
            return form, match
    return None


def _event(form: Format, match: re.Match[str], head: Head) -> Event | Unread:
    """The event of a line that matches a form, or why it is not one after all."""
    event: Event = {"ts_ms": head.ts_ms, "kind": form.kind}
    detail = form.fixed.copy()
    try:
        texts = match.groups("")
        for place, name, column, nested in form.parts:
            text = texts[place]
            if column:
                event[name] = column(name, text)
            elif nested is None:
                if text:
                    detail[name] = text
            else:
                for key, value in nested(name, text).items():
                    if key in COLUMNS or key == "each":  # for lines that name several
                        event[key] = value
                    else:
                        detail[key] = str(value)
        is_own = detail.get("said_by") != OPERATOR and "broker" not in event
        if is_own and (source := _SOURCE.search(head.message)):
            event["broker"] = number("broker", source[1])
        event["detail"] = detail
        _complete(event, detail)
    except TooLargeError as error:
        return Unread(f"{IMPOSSIBLE_LINE}: {error}")
    return _doubt(event, head) or event


def expanded(event: Event) -> Iterator[Event]:
    """One event for each partition or broker that a line lists; without a list, the event."""
    named = event.pop("each", None)
    if named is None or (not named and event["kind"] == "failed"):
        yield event
        return
    for own in named:
        columns = {name: value for name, value in own.items() if name in COLUMNS}
        more = {name: str(value) for name, value in own.items() if name not in columns}
        yield event | columns | {"detail": event["detail"] | more}


def _complete(event: Event, detail: dict[str, str]) -> None:
    """Add the values that the kind implies: the leader, the broker that died or came back."""
    broker, is_own = event.get("broker"), "said_by" not in detail
    if event["kind"] == "isr_commit" and "isr" not in event:  # a controller changed only the leader
        event["kind"] = "leader"
    kind = event["kind"]
    if kind in OF_ITSELF and kind != "leader" and "each" not in event:
        event.setdefault("replica", broker)
    if kind == "clock":
        ahead_ms = event["ts_ms"] - int(detail["start_ms"])
        detail["zone_offset_ms"] = str(round(ahead_ms / ZONE_STEP_MS) * ZONE_STEP_MS)
    if kind == "follower" and event.get("replica") == -1:
        event["kind"] = "offline"
        del event["replica"]
    if kind == "metadata" and is_own:
        detail.setdefault("leader", str(broker))
    if kind == "leader":
        leader = number("leader", detail.pop("leader", "-1"))
        event.setdefault("replica", broker if is_own and leader == -1 else leader)
        if event["replica"] == -1:  # a controller found no leader
            event["kind"] = "metadata"
            del event["replica"]
            detail["leader"] = "-1"
        elif detail.get("unclean"):
            event.setdefault("isr", [event["replica"]])


def _doubt(event: Event, head: Head) -> Unread | None:
    """Why no broker can have printed this line, although it has the right form."""
    kind, after, before = event["kind"], event.get("isr"), event.get("isr_before")
    if kind not in ("isr_shrink", "isr_expand", "isr_commit") or "said_by" in event["detail"]:
        return None
    if head.level not in ("INFO", "TRACE", ""):
        return Unread(f"{IMPOSSIBLE_LINE}: ISR lines are INFO or TRACE, never {head.level}")
    if after is not None and before is not None:
        small, large = (after, before) if kind == "isr_shrink" else (before, after)
        if not set(small) < set(large):
            return Unread(f"{IMPOSSIBLE_LINE}: the lists do not fit the word before them")
    return None


def _counted(message: str) -> Unread | None:
    return next((Unread(why) for text, why in _COUNTED.items() if text in message), None)


def _remainder(head: Head) -> Unread | None:
    """A message that no format reads: unread if it concerns replication, else ignored."""
    message = head.message
    for impossible, why in IMPOSSIBLE:
        if impossible.search(message):
            return Unread(f"{IMPOSSIBLE_LINE}: {why}")
    if _ABOUT_ISR.search(message):
        if "#" in message:
            return Unread("masked: a # stands where a number belongs")
        return Unread("an ISR line of no known form")
    if counted := _counted(message):
        return counted
    if head.logger is None or not LOGGERS.search(head.logger):
        return None
    if not _REPLICATION.search(message) or NO_NEWS.search(message):
        return None
    if "isr-expiration" in message:
        return Unread("the task that checks the ISR failed; the line names no partition")
    return Unread("speaks of replication in no known form")
