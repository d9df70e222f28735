"""What was lost: unclean elections, logs that were cut or came back empty, no leader.

Theory of operation. Four things are looked for in each partition, each in lines of its own kind.

1. *Unclean*: a controller says so; the new leader does (its partition "was marked as RECOVERING");
   or two stored ISRs, one after the other, share no broker, for a clean election needs a member.
   A controller of 3.9 also prints "UNCLEAN" for the end of a reassignment: its ISRs share members.
2. *Cut*: a replica truncates its log. What it had from there on is gone from the partition, for
   since 0.11 only records that the leader does not have are cut. Below its high watermark they had
   been committed; above it, only producers with acks=1 or 0 had been answered for them. What
   producers with acks=all may have under way is left out. Up to 0.10.2 every follower cuts to its
   high watermark and copies again: there only a fetch beyond the leader's end shows a loss.
3. *Emptied*: a replica makes its log anew though it had one, and nobody deleted the partition.
4. *Leaderless*: a controller names no leader, or all members of the ISR are down: from the moment
   at which the last of them went, not from the first line that says so.

What is of one partition and follows from one thing is one loss: an unclean election, the time
without leader before it, and the logs that are cut after it. Losses of one kind that begin together
are one incident. When the lost records were appended stands between two moments: the last one at
which a leader's log is known to have ended before them, and the one at which the broker that held
them stopped leading.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from isrlab.events.exact import Key
from isrlab.logs.history.record import Record, Row, Span, about, key_of
from isrlab.logs.incidents.parties import QUIET_MS

LEADERLESS_MS = 1_000  # an election takes less
AFTER_MS = 10_000  # within which lines tell of one election, or of the end of a time without leader
# What producers with acks=all may have under way: max.in.flight.requests.per.connection, or more
IN_FLIGHT, IN_FLIGHT_MS = 5, 2_000
FENCED_MS = 60_000  # within which a controller notices that a broker is gone


@dataclass(frozen=True)
class LostRange:
    """Records that a replica had and that are gone from the partition: offsets `first` to `last`,
    both included. They were appended no earlier and no later than this; None where no line tells.
    """

    topic: str
    partition: int
    first: int
    last: int
    appended_from_ms: int | None = None
    appended_to_ms: int | None = None


@dataclass
class Loss:
    """What one partition lost, by what, and the lines that show it."""

    kind: str  # unclean, cut, emptied, tail_cut, leaderless
    key: Key
    start_ms: int
    end_ms: int
    is_over: bool = True
    rows: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))  # by kind
    lost: LostRange | None = None
    leaderless: list[Span] = field(default_factory=list)

    def add(self, kind: str, row: Row) -> None:
        self.rows[kind].append(row)
        self.end_ms = max(self.end_ms, row["ts_ms"])


class Down(NamedTuple):
    broker: int
    from_ms: int
    to_ms: int
    row: Row  # that says so
    others: frozenset[int] = frozenset()  # who was down then


@dataclass
class Cut:
    """A replica's log that was truncated; `end`: where it ended before, None if no line says."""

    row: Row
    to: int
    end: int | None
    high_watermark: int | None
    refused: list[int]  # when others could not connect to this broker

    @property
    def is_committed(self) -> bool:
        return self.high_watermark is not None and self.to < self.high_watermark


def losses(record: Record) -> list[list[Loss]]:
    """The losses of all partitions, those of one kind that begin together in one list."""
    lines = _Lines(record)
    groups: list[list[Loss]] = []
    every = [loss for key in lines.keys for loss in _of_partition(key, lines, record)]
    for loss in sorted(every, key=lambda each: (each.start_ms, each.key)):
        alike = (g for g in reversed(groups[-20:]) if g[0].is_over == loss.is_over)
        near = (g for g in alike if g[0].kind == loss.kind)
        home = next((g for g in near if loss.start_ms - g[-1].start_ms <= QUIET_MS), None)
        if home is None:
            groups.append([loss])
        else:
            home.append(loss)
    return groups


class _Lines:
    """The rows that losses are found in, by partition and in order of time."""

    def __init__(self, record: Record) -> None:
        self.topic_of = {
            row["detail"]["topic_id"].removeprefix("Some(").removesuffix(")"): row["topic"]
            for kind in ("leader", "isr_commit")
            for row in record.rows[kind]
            if row["topic"] is not None and "topic_id" in row["detail"]
        }
        self.unclean: dict[Key, list[Row]] = defaultdict(list)
        for row in (*record.rows["leader"], *record.said_of("unclean_election")):
            if row["detail"].get("unclean") or row["kind"] == "sign":
                topic = row["topic"] or self.topic_of.get(row["detail"].get("topic_id", ""))
                if topic is not None and not {*(row["isr"] or ())} & {*(row["isr_before"] or ())}:
                    self.unclean[Key(row["run"], topic, row["partition"])].append(row)
        self.own: dict[Key, list[Row]] = defaultdict(list)  # where a replica's log ends, and begins
        kinds = ("leader", "follower", "hosted", "unhosted", "truncate", "isr_shrink", "deleted")
        rows = [row for kind in kinds for row in record.rows[kind]] + record.said_of("loaded")
        for row in sorted(rows, key=lambda each: each["ts_ms"]):
            if row["topic"] is not None and row["partition"] is not None:
                self.own[key_of(row)].append(row)
        self.stored: dict[Key, list[Row]] = defaultdict(list)
        for row in record.rows["isr_commit"]:
            self.stored[key_of(row)].append(row)
        self.named: dict[Key, list[int]] = defaultdict(list)  # when somebody names a leader
        for row in sorted(rows + record.rows["isr_commit"], key=lambda each: each["ts_ms"]):
            leader = row["replica"] if row["kind"] in ("leader", "follower") else None
            leader = row["detail"].get("leader", -1) if row["kind"] == "isr_commit" else leader
            if leader is not None and int(leader) >= 0 and row["topic"] is not None:
                self.named[key_of(row)].append(row["ts_ms"])
        self.deleted: dict[Key, list[Row]] = defaultdict(list)
        for row in record.rows["deleted"]:
            self.deleted[key_of(row)].append(row)
        self.downs = _downs(record)
        self.refused: dict[int, list[int]] = defaultdict(list)  # connections to each broker
        for row in record.said_of("not_listening"):
            self.refused[row["replica"]].append(row["ts_ms"])
        self.keys = sorted({*self.own, *self.unclean, *self.stored})


def _of_partition(key: Key, lines: _Lines, record: Record) -> list[Loss]:
    """The losses of one partition, in order."""
    found: list[Loss] = []
    causes = [(row, "unclean") for row in _unclean(key, lines, record)]
    causes += [(row, "emptied") for row in _emptied(lines.own[key])]
    for row, kind in sorted(causes, key=lambda cause: cause[0]["ts_ms"]):
        if not found or row["ts_ms"] - found[-1].end_ms > AFTER_MS:
            found.append(Loss(kind, key, row["ts_ms"], row["ts_ms"]))
        found[-1].add(kind, row)
    for loss in found:
        _put_election(loss, lines.own[key])
    for cut in _cuts(key, lines):
        _put_cut(cut, key, found, lines)
    for span, row in _leaderless(key, lines, record):
        _put_leaderless(span, row, key, found, record)
    return found


def _put_election(loss: Loss, rows: list[Row]) -> None:
    """Who leads after it, and what is known to be lost by that: all that a leader before had and
    the new one has not."""
    near = (loss.start_ms - AFTER_MS, loss.end_ms + AFTER_MS)
    own = [row for row in rows if row["kind"] == "leader" and row["log_end_offset"] is not None]
    new = next((row for row in own if near[0] <= row["ts_ms"] <= near[1]), None)
    if new is None:
        return
    emptied = {row["broker"] for row in loss.rows["emptied"]}
    if loss.kind == "emptied" and new["broker"] not in emptied:
        return  # a follower that copies all of it again
    if loss.kind == "emptied":
        loss.rows["leads"].append(new)
    before = [each for row in rows if row["ts_ms"] < near[0] for each in _ends_of_leader(row)]
    first, last = new["log_end_offset"], max((end for _, end in before), default=0) - 1
    if first <= last:
        begun_ms = max((ms for ms, end in before if end <= first), default=None)
        to_ms = min(ms for ms, end in before if end > last)
        loss.lost = LostRange(loss.key.topic, loss.key.partition, first, last, begun_ms, to_ms)


def _unclean(key: Key, lines: _Lines, record: Record) -> Iterator[Row]:
    yield from lines.unclean.get(key, ())
    spans = record.spans.get(key, ())
    at = {row["ts_ms"]: row for row in lines.stored.get(key, ())}
    for before, after in pairwise(spans):
        is_next = before.end_ms == after.start_ms and before.isr and after.isr
        if is_next and set(before.isr).isdisjoint(after.isr) and after.start_ms in at:
            yield at[after.start_ms]


def _emptied(rows: list[Row]) -> Iterator[Row]:
    """A log is made that was there already."""
    had: set[int] = set()
    for row in rows:
        if row["kind"] in ("deleted", "unhosted"):
            had.clear()  # the partition moves, or is deleted: a log that is made then is a new one
        elif row["kind"] == "hosted" and _is_made(row):
            if row["broker"] in had:
                yield row
            had.add(row["broker"])


def _is_made(row: Row) -> bool:
    """A line "Created log", and not of one that is to replace another of the same broker."""
    return "dir" in row["detail"] and not row["detail"]["dir"].endswith("-future")


def _cuts(key: Key, lines: _Lines) -> Iterator[Cut]:
    """What each replica cut from its log."""
    ends: dict[int, int] = {}  # by broker, where its log ended; none while it leads and it grows
    marks: dict[int, int] = {}
    for row in lines.own[key]:
        broker, kind, end = row["broker"], row["kind"], row["log_end_offset"]
        if kind == "truncate" and row["high_watermark"] is not None:
            marks[broker] = row["high_watermark"]
        if kind == "truncate" and "fetch_offset" in row["detail"]:
            if row["detail"].get("which_end", "latest") != "latest":
                continue  # the leader's log begins later: what is skipped was deleted by retention
            ends[broker] = int(row["detail"]["fetch_offset"])
            yield Cut(row, end, ends[broker], marks.get(broker), lines.refused[broker])
            ends[broker] = end
        elif kind == "truncate" and "dir" in row["detail"]:  # 0.11 and later
            yield Cut(row, end, ends.get(broker), marks.get(broker), lines.refused[broker])
            ends[broker] = end
        elif kind != "truncate" and end is not None:
            ends[broker] = end
        if kind == "leader" and row["detail"].get("said_by") is None:
            ends.pop(broker, None)
        if kind != "truncate" and row["high_watermark"] is not None:
            marks[broker] = row["high_watermark"]


def _put_cut(cut: Cut, key: Key, found: list[Loss], lines: _Lines) -> None:
    """A cut belongs to what came before it; by itself it is a loss of its own."""
    ts_ms = cut.row["ts_ms"]
    if cut.end is not None and cut.end <= cut.to:
        return
    if cut.end is None and not cut.is_committed:
        return
    kind = "cut" if cut.is_committed else "tail_cut"
    end = cut.end if cut.end is not None else cut.high_watermark or 0
    causes = [each for each in found if each.start_ms <= ts_ms]
    home = causes[-1] if causes else None
    lost = _dated(LostRange(key.topic, key.partition, cut.to, end - 1), cut, lines.own[key], home)
    if home is None or home.kind not in ("unclean", "emptied", kind):
        if kind == "tail_cut" and _may_be_under_way(lost, lines.own[key]):
            return
        home = Loss(kind, key, ts_ms, ts_ms)
        found.append(home)
    home.add(kind, cut.row)
    if (held := home.lost) is not None:  # another replica had less of it, or more
        first, last = min(cut.to, held.first), max(end - 1, held.last)
        to_ms = max(lost.appended_to_ms or 0, held.appended_to_ms or 0)
        lost = _dated(replace(lost, first=first, last=last), cut, lines.own[key], home)
        lost = replace(lost, appended_to_ms=to_ms)
    home.lost = lost


def _may_be_under_way(lost: LostRange, rows: list[Row]) -> bool:
    """So few records that producers with acks=all may wait for their acknowledgement: a handful, or
    what is usually appended in a short time (not known: so many)."""
    to_ms, count = lost.appended_to_ms or 0, lost.last + 1 - lost.first
    points = [(ms, end) for row in rows for ms, end in _ends_of_leader(row) if ms < to_ms]
    grown = lost.last + 1 - points[0][1] if points else 0
    return count <= IN_FLIGHT or count * (to_ms - points[0][0]) < IN_FLIGHT_MS * grown


def _put_leaderless(span: Span, row: Row, key: Key, found: list[Loss], record: Record) -> None:
    """A time without leader that an unclean election ended is a part of that."""
    from_ms, to_ms = span
    for loss in found:
        if loss.kind in ("unclean", "emptied") and abs(loss.start_ms - to_ms) <= AFTER_MS:
            loss.start_ms = from_ms
            break
    else:
        loss = Loss("leaderless", key, from_ms, to_ms, is_over=to_ms < record.end_ms)
        found.append(loss)
    loss.rows["leaderless"].append(row)
    loss.leaderless.append(span)


def _dated(lost: LostRange, cut: Cut, rows: list[Row], home: Loss | None) -> LostRange:
    """With the time in which these records were appended: under a leader before that election."""
    broker, ts_ms = cut.row["broker"], cut.row["ts_ms"]
    before = [row for row in rows if row["ts_ms"] < ts_ms]
    own = [row for row in before if row["broker"] == broker and _is_of_itself(row)]
    led = [row["ts_ms"] for row in own if row["kind"] == "leader"]
    ends = [row["ts_ms"] for row in own if led and row["ts_ms"] > led[-1]]
    gone = [ms for ms in cut.refused if led and led[-1] < ms < ts_ms]
    to_ms = min([*ends, *gone, ts_ms])
    is_caused = home is not None and home.kind in ("unclean", "emptied")
    until_ms = min(to_ms, home.start_ms) if home is not None and is_caused else to_ms
    from_ms = [ms for row in before for ms, end in _ends_of_leader(row) if end <= lost.first]
    known_ms = max((ms for ms in from_ms if ms <= until_ms), default=None)
    return replace(lost, appended_from_ms=known_ms, appended_to_ms=to_ms)


def _is_of_itself(row: Row) -> bool:
    """A broker says where its own log ends, as it begins to lead or follow, or is started."""
    is_own = "said_by" not in row["detail"]
    return is_own and (
        row["kind"] in ("leader", "follower") or row["detail"].get("sign") == "loaded"
    )


def _ends_of_leader(row: Row) -> Iterator[tuple[int, int]]:
    """Moments, and where the leader's log ended then at the latest: as it begins to lead, as it
    removes a replica, and when that replica had all."""
    detail = row["detail"]
    if row["kind"] in ("leader", "isr_shrink") and row["log_end_offset"] is not None:
        yield row["ts_ms"], row["log_end_offset"]
    ends = detail.get("out_of_sync_end_offset", "").split(",")
    times = detail.get("last_caught_up_time_ms", "").split(",")
    for ms, end in zip(times, ends, strict=False):
        if ms.isdigit() and end.isdigit() and len(ms) == 13:
            yield int(ms), int(end)


# Time without a leader


def _leaderless(key: Key, lines: _Lines, record: Record) -> Iterator[tuple[Span, Row]]:
    """When a partition had no leader for a second or more, and the line that shows the beginning.

    It ends when a leader is named, or a member of the ISR is back: that one is elected then.
    """
    begins = [(r["ts_ms"], r) for r in record.rows["offline"] if r["topic"] and key_of(r) == key]
    spans, until_ms = record.spans.get(key, []), -1

    def isr_at(ts_ms: int) -> set[int]:
        place = bisect_right(spans, ts_ms, key=lambda span: span.start_ms) - 1
        is_there = place >= 0 and not any(
            spans[place].start_ms < row["ts_ms"] <= ts_ms for row in lines.deleted.get(key, ())
        )
        return set(spans[place].isr) if is_there else set()

    for down in lines.downs:
        isr = isr_at(down.from_ms)
        if down.broker in isr and isr <= down.others | {down.broker}:
            begins.append((down.from_ms, down.row))
    for from_ms, row in sorted(begins, key=lambda each: each[0]):
        isr = isr_at(from_ms)
        ends = [ms for ms in lines.named[key] if ms > from_ms][:1]
        ends += [d.to_ms for d in lines.downs if d.broker in isr and d.to_ms > from_ms]
        if from_ms >= until_ms:
            until_ms = min([*ends, record.end_ms])
            if until_ms - from_ms >= LEADERLESS_MS:
                yield (from_ms, until_ms), row


def _downs(record: Record) -> list[Down]:
    """When brokers were down: by the controller, else by those that could not connect to them."""
    says = [(row["ts_ms"], True, row) for row in record.rows["crash"]]
    back: dict[int | None, list[int]] = defaultdict(list)
    for row in record.rows["restart"]:
        says.append((row["ts_ms"], False, row))
        back[about(row)].append(row["ts_ms"])
    for row in record.starts:  # it is up later, if no line says when
        if not any(0 <= ms - row["ts_ms"] <= FENCED_MS for ms in back[row["broker"]]):
            says.append((row["ts_ms"], False, row))
    known: dict[int | None, list[int]] = defaultdict(list)
    for ts_ms, is_down, row in says:
        if is_down:
            known[about(row)].append(ts_ms)
    for row in record.said_of("not_listening"):
        if all(abs(row["ts_ms"] - ms) > FENCED_MS for ms in known[row["replica"]]):
            says.append((row["ts_ms"], True, row))
    found: list[Down] = []
    since: dict[int, tuple[int, Row]] = {}
    for ts_ms, is_down, row in sorted(says, key=lambda each: each[:2]):
        broker = row["replica"] if row["kind"] == "sign" and is_down else about(row)
        if broker is not None and is_down:
            since.setdefault(broker, (ts_ms, row))
        elif broker in since:
            found.append(Down(broker, since[broker][0], ts_ms, since.pop(broker)[1]))
    found += [Down(b, ms, record.end_ms + 1, row) for b, (ms, row) in since.items()]
    found.sort(key=lambda down: down.from_ms)
    return [
        each._replace(
            others=frozenset(d.broker for d in found if d.from_ms <= each.from_ms < d.to_ms)
        )
        for each in found
    ]
