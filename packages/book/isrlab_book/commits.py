"""How long each record waited for its followers, and for which one: from leaders' TRACE lines.

At level DEBUG, kafka.cluster.Partition logs every high watermark of a leader and the position that
each fetch shows of its follower; at TRACE also the leader's own log end, whenever a produce waits.
A record is appended when the leader's log end is first past it, and committed when the high
watermark is. The follower whose fetch moves the high watermark held the record back; the line of
that high watermark comes first, the follower's position within `SAME_FETCH_MS` after it. If no
fetch came then, the high watermark moved because a follower without the record had left the ISR.
That follower (of several, the one with the highest position) held the record back until it left.

Left out: records that were not committed within the log lines, or appended before the first line.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

SAME_FETCH_MS = 20
NO_FOLLOWER = 0  # the leader was alone in the ISR


class Commit(NamedTuple):
    """Records that were appended and committed together, up to `end_offset` (exclusive)."""

    topic: str
    partition: int
    leader: int
    end_offset: int
    records: int
    appended_ms: int
    committed_ms: int
    held_by: int  # a follower, or NO_FOLLOWER
    has_left: bool  # the wait ended because that follower left the ISR, without the records

    @property
    def wait_ms(self) -> int:
        return self.committed_ms - self.appended_ms


class _Reached:
    """The time at which each end offset was first reached; end offsets only grow."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.times: list[int] = []

    def add(self, end: int, ts_ms: int) -> None:
        if not self.ends or end > self.ends[-1]:
            self.ends.append(end)
            self.times.append(ts_ms)

    def when(self, end: int) -> int | None:
        place = bisect_left(self.ends, end)
        return self.times[place] if place < len(self.ends) else None


def commits(events: pa.Table) -> list[Commit]:
    """The commits in a table with `position` and `high_watermark` rows, ordered by time.

    A new leadership begins at the first row of another broker.
    """
    kinds = pa.array(["position", "high_watermark"])
    own = events.filter(pc.is_in(events["kind"], kinds))
    columns = ["topic", "partition", "broker", "kind", "replica", "log_end_offset",
               "high_watermark", "ts_ms"]  # fmt: skip
    rows = own.select(columns).to_pylist()
    commits_by_time: list[Commit] = []
    reigns: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        key = row["topic"], row["partition"]
        reign = reigns.setdefault(key, [])
        if reign and reign[-1]["broker"] != row["broker"]:
            commits_by_time += _of_reign(reign)
            reign.clear()
        reign.append(row)
    for reign in reigns.values():
        commits_by_time += _of_reign(reign)
    return sorted(commits_by_time, key=lambda commit: commit.committed_ms)


def _of_reign(rows: list[dict[str, Any]]) -> Iterator[Commit]:
    """The commits of one leader, from its rows in order."""
    if not rows:
        return
    leader, committed, ends = rows[0]["broker"], _Reached(), _Reached()
    followers: dict[int, _Reached] = {}
    for row in rows:
        if row["kind"] == "high_watermark":
            ends.add(row["high_watermark"], row["ts_ms"])  # alone in the ISR it logs no position
            committed.add(row["high_watermark"], row["ts_ms"])
        elif row["replica"] == leader:
            ends.add(row["log_end_offset"], row["ts_ms"])
        else:
            reached = followers.setdefault(row["replica"], _Reached())
            reached.add(row["log_end_offset"], row["ts_ms"])
    former = ends.ends[0] if ends.ends else 0
    for end, appended_ms in zip(ends.ends[1:], ends.times[1:], strict=True):
        committed_ms = committed.when(end)
        if committed_ms is not None:
            blamed = _held_by(followers, end, committed_ms)
            yield Commit(rows[0]["topic"], rows[0]["partition"], leader, end, end - former,
                         appended_ms, committed_ms, *blamed)  # fmt: skip
        former = end


def _held_by(followers: dict[int, _Reached], end: int, committed_ms: int) -> tuple[int, bool]:
    """The follower that held back the records up to `end`, and whether it had left the ISR."""
    latest_ms = committed_ms + SAME_FETCH_MS
    had = {r: at for r, each in followers.items() if (at := each.when(end)) and at <= latest_ms}
    without = [r for r in followers if r not in had]
    last = max(had, key=lambda r: had[r], default=NO_FOLLOWER)
    is_moved_by_fetch = last != NO_FOLLOWER and had[last] >= committed_ms - SAME_FETCH_MS
    if is_moved_by_fetch or not without:
        return last, False
    return max(without, key=lambda r: followers[r].ends[-1:]), True
