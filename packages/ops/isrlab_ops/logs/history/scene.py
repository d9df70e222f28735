"""One run beyond its single partitions: when brokers log, when they are gone, what they print.

A broker that was silent at the end, or has no log here, confirms nothing; a leader whose release
does not print what it stores contradicts nothing. No rule may treat such missing lines as faults.
"""

import math
import os
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypeAlias

from isrlab.engine.versions import release
from isrlab.events.statements import Key, Statement
from isrlab_ops.logs.history.clocks import Clock
from isrlab_ops.logs.history.replicas import Incarnation, incarnations_of_topic

QUIET = 0.1  # of the run: a broker's log that is silent for longer at the end has ended
QUIET_MS = 60_000  # at least
BLIP_MS = 2_000  # a broker fenced and unfenced within this: a new controller repeats old records
QUORUM = "__cluster_metadata"  # its voters are not an ISR
KRAFT_SIGNS = ("heartbeat_failed", "controller_lost")
KRAFT_CAUSES = ("fenced", "unfenced")

Edges: TypeAlias = tuple[int, int]  # the first and the last moment of a log
OfBrokers: TypeAlias = dict[int | None, list[int]]  # times, in order


class Scene:
    """One run. `rows`: its statements on one clock, in order; `files`: its rows of
    `BrokerLogs.files`, which show how long each log continues."""

    def __init__(
        self,
        rows: Sequence[Statement],
        files: Sequence[dict[str, Any]] = (),
        clocks: Sequence[Clock] = (),
    ) -> None:
        self.rows, self.files, self.clocks = rows, files, clocks
        self.run = rows[0].run if rows else ""

    @cached_property
    def lives(self) -> dict[Key, list[Incarnation]]:
        """By partition: the topics that had its name, one after the other."""
        groups: dict[Key, list[Statement]] = defaultdict(list)
        for row in self.rows:
            if row.topic not in (None, QUORUM) and row.partition is not None:
                groups[row.key].append(row)
        return {key: incarnations_of_topic(rows) for key, rows in sorted(groups.items())}

    # Logs

    @cached_property
    def bounds(self) -> dict[int | None, Edges]:
        """When the log of each broker begins and ends; None: files of unknown brokers."""
        ahead = {clock.broker: clock.ahead_ms for clock in self.clocks}
        times: OfBrokers = defaultdict(list)
        of_file: dict[str, int | None] = {}
        of_folder: dict[str, set[int | None]] = defaultdict(set)
        for row in self.rows:
            times[row.broker].append(row.ts_ms)
            of_file.setdefault(row.file, row.broker)
            of_folder[os.path.dirname(row.file)].add(row.broker)
        for file in self.files:
            folder = of_folder.get(os.path.dirname(file["file"]), set())
            only = next(iter(folder)) if len(folder) == 1 else None
            broker = of_file.get(file["file"], only)
            stamps = [file[name] for name in ("first_ms", "last_ms") if file.get(name) is not None]
            times[broker] += [ms - ahead.get(broker, 0) for ms in stamps]
        return {broker: (min(stamps), max(stamps)) for broker, stamps in times.items() if stamps}

    @cached_property
    def start_ms(self) -> int:
        return min(first_ms for first_ms, _ in self.bounds.values())

    @cached_property
    def end_ms(self) -> int:
        return max(last_ms for _, last_ms in self.bounds.values())

    @cached_property
    def ends(self) -> dict[int, int]:
        """By broker: when its log ended, if long before the end; none with a metadata log."""
        if self.has_metadata_log:
            return {}
        until_ms = self.end_ms - max(QUIET_MS, QUIET * (self.end_ms - self.start_ms))
        return {b: ms for b, (_, ms) in self.bounds.items() if b is not None and ms < until_ms}

    @cached_property
    def order(self) -> dict[str, list[tuple[int, int]]]:
        """By file: line number and time of each event, in the order of the file."""
        places: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for row in self.rows:
            if row.file and not row.is_exact:
                places[row.file].append((row.line, row.printed_ms))
        return {file: sorted(lines) for file, lines in places.items()}

    @cached_property
    def created(self) -> dict[tuple[Key, int | None], list[int]]:
        """When each broker made an empty log of a partition."""
        created: dict[tuple[Key, int | None], list[int]] = defaultdict(list)
        for row in self.rows:
            folder = row.detail.get("dir") if row.kind == "hosted" else None
            if folder and not folder.endswith("-future"):
                created[row.key, row.broker].append(row.ts_ms)
        return created

    @cached_property
    def words(self) -> OfBrokers:
        """By broker: the times of its events, and of the last lines of its files."""
        last_ms = {file["file"]: file["last_ms"] for file in self.files}
        words: OfBrokers = defaultdict(list)
        for row in self.rows:
            if row.file and not row.is_exact and row.broker is not None:
                last = last_ms.get(row.file) or row.printed_ms
                words[row.broker] += [row.ts_ms, last + row.ts_ms - row.printed_ms]
        for times in words.values():
            times.sort()
        return words

    @cached_property
    def back(self) -> dict[tuple[int, str], list[int]]:
        """By broker and file: the lines at which its clock was set back by an unknown amount."""
        back: dict[tuple[int, str], list[int]] = defaultdict(list)
        for clock in self.clocks:
            if clock.part and clock.is_bound and clock.broker is not None:
                file, _, line = clock.part.rpartition(":")
                insort(back[clock.broker, file], int(line))
        return back

    # Processes

    @cached_property
    def starts(self) -> OfBrokers:
        """When each broker's process started."""
        starts: OfBrokers = defaultdict(list)
        for row in self.rows:
            if (row.kind == "restart" and row.is_own) or row.detail.get("sign") == "starting":
                starts[row.broker].append(row.ts_ms)
        return starts

    @cached_property
    def gone(self) -> list[tuple[int, int]]:
        """When each broker died or was fenced, except for a blip, in order of time."""
        went = [r for r in self.rows if r.kind in ("crash", "restart") and r.replica is not None]
        came: OfBrokers = defaultdict(list)
        for row in went:
            if row.kind == "restart":
                came[row.replica].append(row.ts_ms)
        return sorted(
            (row.ts_ms, row.replica or 0)
            for row in went
            if row.kind == "crash"
            and not is_within(came[row.replica], row.ts_ms, row.ts_ms + BLIP_MS)
        )

    def covers(self, broker: int | None, from_ms: int, to_ms: int) -> bool:
        """Whether one process of this broker, whose start is logged, runs throughout this time."""
        words, starts = self.words.get(broker, []), self.starts.get(broker, [])
        later = bisect_right(words, to_ms)
        again_ms = min((at_ms for at_ms in starts if at_ms > from_ms), default=math.inf)
        is_whole = any(at_ms < from_ms for at_ms in starts)
        return is_whole and later < len(words) and words[later] < again_ms

    # Kinds of lines that are printed

    @cached_property
    def has_metadata_log(self) -> bool:
        return any(row.is_exact for row in self.rows)

    @cached_property
    def is_kraft(self) -> bool:
        return self.hears_all or any(
            row.detail.get("sign") in KRAFT_SIGNS
            or row.detail.get("cause") in KRAFT_CAUSES
            or "mode" in row.detail
            for row in self.rows
        )

    @cached_property
    def hears_all(self) -> bool:
        """Whether a metadata log is here or, as in KRaft, each follower prints each ISR."""
        return self.has_metadata_log or any(
            row.kind == "metadata" and row.is_own and "correlation" not in row.detail
            for row in self.rows
        )

    @cached_property
    def release(self) -> str | None:
        """The newest release that a line names; None without one, or for an unknown release."""
        names = {row.detail["release"] for row in self.rows if "release" in row.detail}
        try:
            return max(names, key=release, default=None)
        except ValueError:
            return None

    @cached_property
    def printing(self) -> frozenset[int | None]:
        """Brokers that print stored states: from 2.4 on, even if they had no occasion to.

        Since 2.4 a new leader prints its high watermark, since 2.2 a request prints which
        replicas are out of sync.
        """
        own = [row for row in self.rows if row.is_own]
        leads = [row.high_watermark is not None for row in own if row.kind == "leader"]
        asks_at_length = any("out_of_sync" in row.detail for row in own)
        commits = any(row.kind == "isr_commit" for row in own)
        is_so = commits or any(leads) or (asks_at_length and not leads)
        return frozenset(row.broker for row in self.rows if row.is_request and is_so)

    @cached_property
    def unheard(self) -> frozenset[int]:
        """Leaders without a log here, unless other logs make up for it."""
        named = {r.replica for r in self.rows if r.kind in ("leader", "follower")}
        hears_all = None in self.bounds or self.hears_all
        missing = (b for b in named - self.bounds.keys() if b is not None and b != -1)
        return frozenset() if hears_all else frozenset(missing)


def is_within(times: Sequence[int], from_ms: int, to_ms: int) -> bool:
    """Whether one of these sorted times lies between the two moments, both included."""
    place = bisect_left(times, from_ms)
    return place < len(times) and times[place] <= to_ms
