"""Reads one line of a broker log: an event, or why it could not be read, or nothing of interest.

Theory of operation. A line is head and message. A search for a few words lets most lines go at
once. Then the formats are asked in the order of the table, each only if its longest piece of fixed
text occurs in the message. What no format reads is unread if a replication logger printed it and it
speaks of replication, and is let go otherwise. Lines without a head follow one that has a head: the
stack traces of Java. They count only if they tell of a refused produce, or are a line torn off its
head.

Brokers print local time without a zone, so the zone is an argument of the reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from isrlab.brokerlogs.fields import COLUMNS, FIELDS, TooLargeError, Values, number
from isrlab.brokerlogs.formats import FORMATS, IMPOSSIBLE, NO_NEWS, Format

Event = dict[str, object]
OF_ITSELF = (
    "leader",
    "crash",
    "restart",
    "hosted",
    "failed",
)  # their replica: the broker
ZONE_STEP_MS = 15 * 60 * 1000  # every zone is a multiple of it


class Unread(NamedTuple):
    """A line that tells of replication, or might, and could not be read; `text` may show it."""

    reason: str
    text: str = ""


class Head(NamedTuple):
    """What stands before and after a message; `ts_ms` is UTC."""

    ts_ms: int
    level: str
    message: str
    logger: str | None


_EXCEPTIONS = tuple(form for form in FORMATS if "{exception}" in form.template)

_HEAD = re.compile(
    r"(?:\S{1,80} +\| |\S{15,40} (?:stdout|stderr) [FP] )?"  # what docker and kubelet put before
    r"\[(?P<hour>\d{4}-\d\d-\d\d[ T]\d\d):(?P<minute>\d\d):(?P<second>\d\d)[,.](?P<ms>\d{3})\] "
    r"(?P<level>[A-Z]{4,5})[:\s]+(?P<rest>.*)",
    re.DOTALL,
)
_LOGGER = re.compile(r" \((?P<logger>[A-Za-z_][\w.$]*)\)$")
_SOURCE = re.compile(
    r"[\[ ](?:broker[= ]|Broker |Controller |id=|brokerId=|replicaId=|Server )(\d+)"
)

# Words without which a line cannot be of interest; bytes, because most lines end here. Each begins
# with a fixed letter: `re` then skips quickly to a place where one can begin.
INTERESTING = re.compile(
    rb"ISR|Truncat|truncat|eader [Ee]poch|LeaderAndIsr|become-|nlineP|etch offset|of range"
    rb"|started|STARTED|SHUTDOWN|shut down completed|brokers: |Broker failure|enc(?:ing|ed) broker"
    rb"|modifying the registration|alter partition|AlterPartition|partition change for"
    rb"|new partition |Created partition|unclean election|min\.isr|insync replicas|isr-expiration"
    rb"|last offset|lagging behind|marked as failed|Stopping serving|A(?:FTER_APPEND|fterAppend)"
    rb"|Failed to (?:alter|elect)|log dirs |are offline|Disk error|Error while |isr: \["
    rb"|Created log for|loaded for partition|Added fetcher|failed log dir|Kafka startTimeMs|Halting"
    rb"|failed to change state|Initiated state change"
    rb"|signal |hutting |SHUTTING|starting|STARTING|unflushed|state changed|Session |additional"
    rb"|Unable to |Socket error|a heartbeat|fetch timeout|Becoming |elected as|rror in |in-flight"
    rb"|session timed|No space|OutOfMemory|Too many open|configuration :|entityPath"
    rb"|being reassigned|reassigning p"
)
# What an operator must know, in a wording that no form reads: never let go.
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
_LOGGERS = re.compile(
    r"kafka\.cluster\.|state\.change\.logger|kafka\.controller\.|FetcherThread$|FetcherManager$"
    r"|\.(?:Unified|Local)?Log$|kafka\.server\.(?:Replica|Alter|KafkaServer)|KafkaScheduler$"
)


@dataclass(slots=True)
class LineReader:
    """Reads the lines of one file in order, and remembers the head that the next may belong to."""

    time_zone: str = "UTC"
    _after: Head | None = None
    _passed: bytes = b""
    _first: Head | None = None
    _heads: int = 0
    _headless: int = 0

    def read(self, line: str) -> Event | Unread | None:
        """The event that a line tells, or why it is unread, or None for one that tells nothing."""
        try:
            head = self._head(line)
        except ValueError:
            return Unread("no such date or time")
        if head is None:
            self._headless += 1
            return self._without_head(line)
        self._heads += 1
        self._first = self._first or head
        self._after, self._passed = head, b""
        return read_message(head)

    def pass_by(self, line: bytes) -> None:
        """Take note of a line without a word of interest: what follows may need its head."""
        if line[:1] == b"[":
            self._passed = line
            if self._first is None:
                self._first = self._head(line.decode("utf-8", "replace"))

    def seen(self) -> dict[str, int | None]:
        """Between which times the lines lie, and how many of those read had a head."""
        last = self._head(self._passed.decode("utf-8", "replace")) if self._passed else self._after
        ends: list[int | None] = [head.ts_ms for head in (self._first, last) if head] or [None]
        heads = {"heads": self._heads, "headless": self._headless}
        return {"first_ms": ends[0], "last_ms": ends[-1], **heads}

    def _head(self, line: str) -> Head | None:
        """The parts of a line that begins with a time; ValueError if there is no such time."""
        match = _HEAD.match(line)
        if match is None:
            return None
        minute, second = int(match["minute"]), int(match["second"])
        if minute > 59 or second > 59:
            raise ValueError(match[0])
        hour_ms = _hour_ms(match["hour"], self.time_zone)
        ts_ms = hour_ms + (minute * 60 + second) * 1000 + int(match["ms"])
        rest = match["rest"].rstrip()
        logger = _LOGGER.search(rest)
        message = rest[: logger.start()].rstrip() if logger else rest
        return Head(ts_ms, match["level"], message, logger["logger"] if logger else None)

    def _without_head(self, line: str) -> Event | Unread | None:
        for form in _EXCEPTIONS:
            if form.landmark in line and (match := form.regex.fullmatch(line.strip())):
                if self._passed:
                    self._after = self._head(self._passed.decode("utf-8", "replace"))
                    self._passed = b""
                if self._after is None:
                    return Unread("an error without a time")
                return _event(form, match, self._after)
        if counted := _counted(line):
            return counted
        is_torn = _ABOUT_ISR.search(line) is not None
        return Unread("no time at the beginning of the line") if is_torn else None


@lru_cache(maxsize=1024)
def _hour_ms(hour: str, time_zone: str) -> int:
    """Milliseconds since the epoch at the start of a local hour; ValueError if no broker ran then
    or will for long (pandas' time ends in 2262)."""
    if not "1970" <= hour[:4] < "2200":
        raise ValueError(hour)
    local = datetime.fromisoformat(f"{hour}:00:00").replace(tzinfo=ZoneInfo(time_zone))
    return int(local.timestamp()) * 1000


def read_line(line: str, time_zone: str = "UTC") -> Event | Unread | None:
    """One line by itself: the event that it tells, why it is unread, or None if it tells nothing.

    The event has the columns of `events.SCHEMA` that the line knows, without `run`.
    """
    return LineReader(time_zone).read(line)


def read_message(head: Head) -> Event | Unread | None:
    """The event of a message whose head is known."""
    message = head.message
    for before, whole, why in IMPOSSIBLE:
        if before.search(message) and whole.search(message):
            return Unread(f"no broker prints this: {why}")
    for form in FORMATS:
        if form.landmark in message and (match := form.regex.fullmatch(message)):
            return _event(form, match, head)
    return _remainder(head)


def _event(form: Format, match: re.Match[str], head: Head) -> Event | Unread:
    """The event of a line that fits a form, or why it is none after all."""
    try:
        event = _filled(form, match, head)
    except TooLargeError as error:
        return Unread(f"no broker prints this: {error}")
    return _doubt(event, head) or event


def _filled(form: Format, match: re.Match[str], head: Head) -> Event:
    values: Values = {}
    for name in form.fields:
        # Later fields do not overrule earlier ones: the line's own words come before nested states.
        values = FIELDS[name].read(name, match[name] or "") | values
    event: Event = {"ts_ms": head.ts_ms, "kind": form.kind}
    event |= {name: value for name, value in values.items() if name in COLUMNS}
    each = values.pop("each", None)
    detail = form.fixed | {n: str(value) for n, value in values.items() if n not in COLUMNS}
    if "broker" not in event and (source := _SOURCE.search(head.message)):
        event["broker"] = number("broker", source[1])
    if each is not None:  # of those that one line names together
        event["each"] = each
    return _completed(event, detail) | {"detail": detail}


def expanded(event: Event) -> Iterator[Event]:
    """An event for each of those that a line names together, or the one."""
    detail = dict(event["detail"])  # type: ignore[call-overload]
    named: list[dict[str, object]] = event.pop("each", [{}])  # type: ignore[assignment]
    for own in named or ([{}] if event["kind"] == "failed" else []):
        columns = {name: value for name, value in own.items() if name in COLUMNS}
        more = {name: str(value) for name, value in own.items() if name not in columns}
        yield event | columns | {"detail": detail | more}


def _completed(event: Event, detail: dict[str, str]) -> Event:
    """The event with what its kind implies: who leads, who died, who came back."""
    broker, is_own = event.get("broker"), "said_by" not in detail
    if event["kind"] == "isr_commit" and "isr" not in event:  # a controller changed the leader only
        event["kind"] = "leader"
    kind = event["kind"]
    if kind in OF_ITSELF and kind != "leader" and "each" not in event:
        event.setdefault("replica", broker)
    if kind == "clock":
        ahead_ms = int(str(event["ts_ms"])) - int(detail["start_ms"])
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
    return event


def _doubt(event: Event, head: Head) -> Unread | None:
    """Why no broker can have printed this line although it has the right form."""
    kind, after, before = event["kind"], event.get("isr"), event.get("isr_before")
    is_of_leader = "said_by" not in dict(event["detail"])  # type: ignore[call-overload]
    if not is_of_leader or kind not in ("isr_shrink", "isr_expand", "isr_commit"):
        return None
    if head.level not in ("INFO", "TRACE"):
        return Unread(f"no broker prints this: ISR lines are INFO or TRACE, never {head.level}")
    if isinstance(after, list) and isinstance(before, list):
        small, large = (after, before) if kind == "isr_shrink" else (before, after)
        if not set(small) < set(large):
            return Unread("no broker prints this: the lists do not fit the word before them")
    return None


def _counted(message: str) -> Unread | None:
    return next((Unread(why) for text, why in _COUNTED.items() if text in message), None)


def _remainder(head: Head) -> Unread | None:
    """A message that no format reads: unread if it speaks of replication, else let go."""
    message = head.message
    if _ABOUT_ISR.search(message):
        if "#" in message:
            return Unread("masked: a # stands where a number belongs")
        return Unread("an ISR line of no known form")
    if counted := _counted(message):
        return counted
    if head.logger is None or not _LOGGERS.search(head.logger):
        return None
    if not _REPLICATION.search(message) or NO_NEWS.search(message):
        return None
    if "isr-expiration" in message:
        return Unread("the task that checks the ISR failed; the line names no partition")
    return Unread("speaks of replication in no known form")
