"""Losses: unclean elections, logs that were truncated or came back empty, times without a leader.

Theory of operation. Each partition is searched for four kinds of loss.

1. *Unclean*: a controller reports it; the new leader does (its partition "was marked as
   RECOVERING"); or two successive stored ISRs share no broker, for a clean election needs a member.
   Not if the new leader was in the last ISR that had members: since 4.0 "UNCLEAN" also reports the
   election of the last known leader, and in 3.9 the end of a reassignment.
2. *Cut*: a replica truncates its log. The records from there on are gone from the partition,
   because since 0.11 only records that the leader lacks are truncated. Below the high watermark
   they had been committed, and are lost. Above it, they are lost if their producers use acks=1,
   which no log shows. Every change of leader leaves the records of a short time: these are left
   out. Up to 0.10.2 every follower truncates to its high watermark and copies again, so only a
   fetch beyond the leader's end shows a loss.
3. *Emptied*: a replica creates its log although it had one, and the partition was not deleted.
4. *Leaderless*: a controller names no leader, or all members of the ISR are down: from the moment
   when the last of them went down, not from the first line that shows it.

Consequences of one cause in one partition are one loss: an unclean election, the time without a
leader before it, and the truncations after it. Losses of one kind that begin together are one
incident. The lost records were appended between two moments: the last one at which a leader's log
is known to have ended before them, and the one at which the broker that held them stopped leading.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, pairwise
from math import inf
from operator import itemgetter

from isrlab.events.exact import Key
from isrlab.events.spans import Interval
from isrlab.events.statements import Statement
from isrlab_ops.logs.history.record import Record
from isrlab_ops.logs.incidents.leaderless import Leaderless
from isrlab_ops.logs.incidents.parties import QUIET_MS

AFTER_MS = 10_000  # lines this close are about one election, or one end of a time without leader
# What a change of leader leaves truncated, whatever the acks: the records of a short time
SHORT_MS, FEW = 2_000, 5


@dataclass(frozen=True)
class LostRange:
    """Records that a replica had and that are gone from the partition: offsets `first` to `last`,
    both included. The times bound when they were appended; None if unknown.
    """

    topic: str
    partition: int
    first: int
    last: int
    appended_from_ms: int | None = None
    appended_to_ms: int | None = None


@dataclass
class Loss:
    """A loss in one partition, its cause, and the lines that show it."""

    kind: str  # unclean, cut, emptied, tail_cut, leaderless
    key: Key
    start_ms: int
    end_ms: int
    is_over: bool = True
    rows: dict[str, list[Statement]] = field(default_factory=lambda: defaultdict(list))  # by kind
    lost: LostRange | None = None
    leaderless: list[Interval] = field(default_factory=list)

    def add(self, kind: str, row: Statement) -> None:
        self.rows[kind].append(row)
        self.end_ms = max(self.end_ms, row.ts_ms)


@dataclass
class LogTruncation:
    """A replica's log that was truncated; `end`: where it ended before, None if unknown."""

    row: Statement
    to: int
    end: int | None
    high_watermark: int | None
    refused: list[int]  # when others could not connect to this broker

    @property
    def is_committed(self) -> bool:
        return self.high_watermark is not None and self.to < self.high_watermark


def losses(record: Record) -> list[list[Loss]]:
    """The losses of all partitions, grouped by kind and common beginning."""
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


class _Partition:
    """The rows about losses of one partition, in order of time."""

    def __init__(self) -> None:
        self.own: list[Statement] = []  # the ends, and beginnings, of a replica's log
        self.unclean: list[Statement] = []

    @cached_property
    def elected(self) -> list[Statement]:
        """Elections of leaders that report where their log ends."""
        return [r for r in self.own if r.kind == "leader" and r.log_end_offset is not None]

    @cached_property
    def deleted_ms(self) -> list[int]:
        return [row.ts_ms for row in self.own if row.kind == "deleted"]

    @cached_property
    def _ends(self) -> list[tuple[int, int, int]]:
        """(time of a row, moment that it describes, leader's log end then), by time of the row."""
        return [(r.ts_ms, *each) for r in self.own for each in _ends_of_leader(r)]

    def ends(self, until_ms: float = inf) -> list[tuple[int, int]]:
        """The log ends of leaders by moment, as far as rows before `until_ms` report them."""
        place = bisect_left(self._ends, until_ms, key=itemgetter(0))
        return [(at_ms, end) for _, at_ms, end in self._ends[:place]]

    @cached_property
    def itself(self) -> dict[int | None, tuple[list[int], list[int]]]:
        """When each broker reported its own log end, and when it became leader."""
        times: dict[int | None, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for row in filter(_is_of_itself, self.own):
            times[row.broker][0].append(row.ts_ms)
            if row.kind == "leader":
                times[row.broker][1].append(row.ts_ms)
        return times


class _Lines:
    """The rows about losses, by partition, and which brokers were down."""

    def __init__(self, record: Record) -> None:
        self.of: dict[Key, _Partition] = defaultdict(_Partition)
        topic_of = {
            row.detail["topic_id"].removeprefix("Some(").removesuffix(")"): row.topic
            for kind in ("leader", "isr_commit")
            for row in record.rows[kind]
            if row.topic is not None and "topic_id" in row.detail
        }
        for row in (*record.rows["leader"], *record.said_of("unclean_election")):
            if row.detail.get("unclean") or row.kind == "sign":
                topic = row.topic or topic_of.get(row.detail.get("topic_id", ""))
                if topic is not None and not {*(row.isr or ())} & {*(row.isr_before or ())}:
                    self.of[Key(row.run, topic, row.partition or 0)].unclean.append(row)
        kinds = ("leader", "follower", "hosted", "unhosted", "truncate", "isr_shrink", "deleted")
        rows = [row for kind in kinds for row in record.rows[kind]] + record.said_of("loaded")
        for row in sorted(rows, key=lambda each: each.ts_ms):
            if row.topic is not None and row.partition is not None:
                self.of[row.key].own.append(row)
        self.stored: dict[Key, list[Statement]] = defaultdict(list)
        for row in record.rows["isr_commit"]:
            self.stored[row.key].append(row)
        self.leaderless = Leaderless(record)
        self.refused: dict[int | None, list[int]] = defaultdict(list)  # connections to each broker
        for row in record.said_of("not_listening"):
            self.refused[row.replica].append(row.ts_ms)
        self.keys = sorted({*self.of, *self.stored})


def _of_partition(key: Key, lines: _Lines, record: Record) -> list[Loss]:
    """The losses of one partition, in order."""
    losses: list[Loss] = []
    partition = lines.of[key]
    causes = [(row, "unclean") for row in _unclean(key, lines, record)]
    causes += [(row, "emptied") for row in _emptied(partition.own)]
    for row, kind in sorted(causes, key=lambda cause: cause[0].ts_ms):
        if not losses or row.ts_ms - losses[-1].end_ms > AFTER_MS:
            losses.append(Loss(kind, key, row.ts_ms, row.ts_ms))
        losses[-1].add(kind, row)
    for loss in losses:
        _put_election(loss, partition)
    for cut in _cuts(partition, lines):
        _put_cut(cut, key, losses, partition)
    for span, row in lines.leaderless.of(key, partition.deleted_ms):
        _put_leaderless(span, row, key, losses, record)
    return losses


def _put_election(loss: Loss, partition: _Partition) -> None:
    """Add the lost records: those of earlier leaders that the new leader lacks."""
    near = (loss.start_ms - AFTER_MS, loss.end_ms + AFTER_MS)
    place = bisect_left(partition.elected, near[0], key=lambda row: row.ts_ms)
    new = next((row for row in partition.elected[place : place + 1] if row.ts_ms <= near[1]), None)
    if new is None:
        return
    emptied = {row.broker for row in loss.rows["emptied"]}
    if loss.kind == "emptied" and new.broker not in emptied:
        return  # a follower that copies everything again
    if loss.kind == "emptied":
        loss.rows["leads"].append(new)
    ends = partition.ends(near[0])
    first, last = new.log_end_offset or 0, max((end for _, end in ends), default=0) - 1
    if first <= last:
        to_ms = min(at_ms for at_ms, end in ends if end > last)
        from_ms = max((at_ms for at_ms, end in ends if end <= first), default=None)
        loss.lost = LostRange(loss.key.topic, loss.key.partition, first, last, from_ms, to_ms)


def _unclean(key: Key, lines: _Lines, record: Record) -> Iterator[Statement]:
    spans = record.spans.get(key, ())
    for row in lines.of[key].unclean:
        leader = row.broker if row.kind == "sign" else row.replica
        earlier = (span.isr for span in reversed(spans) if span.start_ms <= row.ts_ms)
        if leader not in next((isr for isr in earlier if isr and isr != (leader,)), ()):
            yield row
    at = {row.ts_ms: row for row in lines.stored.get(key, ())}
    for before, after in pairwise(spans):
        is_next = before.end_ms == after.start_ms and before.isr and after.isr
        if is_next and set(before.isr).isdisjoint(after.isr) and after.start_ms in at:
            yield at[after.start_ms]


def _emptied(rows: list[Statement]) -> Iterator[Statement]:
    """Rows that create a log which existed already."""
    had: set[int | None] = set()
    for row in rows:
        if row.kind in ("deleted", "unhosted"):
            had.clear()  # the partition moves, or is deleted: a log created later is a new one
        elif row.kind == "hosted" and not row.detail.get("dir", "-future").endswith("-future"):
            if row.broker in had:
                yield row
            had.add(row.broker)


def _cuts(partition: _Partition, lines: _Lines) -> Iterator[LogTruncation]:
    """The truncations of each replica's log."""
    # By broker, its last known log end; none while it leads.
    ends: dict[int | None, int | None] = {}
    marks: dict[int | None, int] = {}
    for row in partition.own:
        broker, kind, end = row.broker, row.kind, row.log_end_offset
        refused = lines.refused.get(broker, [])
        if kind == "truncate" and row.high_watermark is not None:
            marks[broker] = row.high_watermark
        if kind == "truncate" and "fetch_offset" in row.detail:
            if row.detail.get("which_end", "latest") != "latest":
                continue  # the leader's log begins later: retention deleted the skipped records
            to = int(row.detail["fetch_offset"])
            yield LogTruncation(row, end or 0, to, marks.get(broker), refused)
            ends[broker] = end
        elif kind == "truncate" and "dir" in row.detail:  # 0.11 and later
            yield LogTruncation(row, end or 0, ends.get(broker), marks.get(broker), refused)
            ends[broker] = end
        elif kind != "truncate" and end is not None:
            ends[broker] = end
        if kind == "leader" and row.detail.get("said_by") is None:
            ends.pop(broker, None)
        if kind != "truncate" and row.high_watermark is not None:
            marks[broker] = row.high_watermark


def _put_cut(cut: LogTruncation, key: Key, losses: list[Loss], partition: _Partition) -> None:
    """Add a truncation to the loss that caused it, or else as a loss of its own."""
    ts_ms = cut.row.ts_ms
    if cut.end is not None and cut.end <= cut.to:
        return
    if cut.end is None and not cut.is_committed:
        return
    kind = "cut" if cut.is_committed else "tail_cut"
    end = cut.end if cut.end is not None else cut.high_watermark or 0
    causes = [each for each in losses if each.start_ms <= ts_ms]
    home = causes[-1] if causes else None
    lost = _dated(LostRange(key.topic, key.partition, cut.to, end - 1), cut, partition, home)
    if home is None or home.kind not in ("unclean", "emptied", kind):
        if kind == "tail_cut" and _is_short(lost, partition):
            return
        home = Loss(kind, key, ts_ms, ts_ms)
        losses.append(home)
    home.add(kind, cut.row)
    if (held := home.lost) is not None:  # another replica had less of it, or more
        first, last = min(cut.to, held.first), max(end - 1, held.last)
        to_ms = max(lost.appended_to_ms or 0, held.appended_to_ms or 0)
        lost = _dated(replace(lost, first=first, last=last), cut, partition, home)
        lost = replace(lost, appended_to_ms=to_ms)
    home.lost = lost


def _is_short(lost: LostRange, partition: _Partition) -> bool:
    """Whether these are no more records than are usually appended in a short time (a few, if that
    is not known)."""
    to_ms, count = lost.appended_to_ms or 0, lost.last + 1 - lost.first
    before = next((point for point in partition.ends() if point[0] < to_ms), None)
    if count <= FEW or before is None:
        return count <= FEW
    at_ms, end = before
    return count * (to_ms - at_ms) < SHORT_MS * (lost.last + 1 - end)


def _put_leaderless(
    span: Interval, row: Statement, key: Key, losses: list[Loss], record: Record
) -> None:
    """Add a time without leader to the loss that began when it ended, or else as a loss."""
    from_ms, to_ms = span
    for loss in losses:
        if loss.kind in ("unclean", "emptied") and abs(loss.start_ms - to_ms) <= AFTER_MS:
            loss.start_ms = from_ms
            break
    else:
        loss = Loss("leaderless", key, from_ms, to_ms, is_over=to_ms < record.end_ms)
        losses.append(loss)
    loss.rows["leaderless"].append(row)
    loss.leaderless.append(span)


def _dated(
    lost: LostRange, cut: LogTruncation, partition: _Partition, home: Loss | None
) -> LostRange:
    """The range, with the times between which its records were appended, if they are known."""
    ts_ms, to_ms = cut.row.ts_ms, cut.row.ts_ms
    itself, led = partition.itself[cut.row.broker]
    if nth := bisect_left(led, ts_ms):
        later = (times[bisect_right(times, led[nth - 1]) :][:1] for times in (itself, cut.refused))
        to_ms = min([ts_ms, *chain(*later)])
    is_caused = home is not None and home.kind in ("unclean", "emptied")
    until_ms = min(to_ms, home.start_ms) if home is not None and is_caused else to_ms
    ends = partition.ends(ts_ms)
    known = (at_ms for at_ms, end in ends if end <= lost.first and at_ms <= until_ms)
    return replace(lost, appended_from_ms=max(known, default=None), appended_to_ms=to_ms)


def _is_of_itself(row: Statement) -> bool:
    """Whether a broker reports its own log end, becoming leader or follower, or starting."""
    is_own = "said_by" not in row.detail
    return is_own and (row.kind in ("leader", "follower") or row.detail.get("sign") == "loaded")


def _ends_of_leader(row: Statement) -> Iterator[tuple[int, int]]:
    """Moments, with an upper bound of the leader's log end: when it becomes leader, when it removes
    a replica, and when that replica was caught up."""
    detail = row.detail
    if row.kind in ("leader", "isr_shrink") and row.log_end_offset is not None:
        yield row.ts_ms, row.log_end_offset
    ends = detail.get("out_of_sync_end_offset", "").split(",")
    times = detail.get("last_caught_up_time_ms", "").split(",")
    for ms, end in zip(times, ends, strict=False):
        if ms.isdigit() and end.isdigit() and len(ms) == 13:
            yield int(ms), int(end)
