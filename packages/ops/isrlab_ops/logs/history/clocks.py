"""The clock differences between brokers, as far as logs show them, and all events on one clock.

Theory of operation. Several brokers log a fact (a partition's version, its leader epoch) at about
the same moment; a broker that was paused or is starting logs it late, but never early. So the
differences between the timestamps of two brokers, taken at moments far apart, cluster tightly
around the difference of their clocks, while late lines scatter. The cluster's median counts, unless
it is below `NOISE_MS` or, in a busy broker's seconds of lateness, not far above its scatter. The
median clock is taken as correct; a metadata log takes precedence over all.

Versions bound the other clocks: a broker logs version 7 after another broker stored version 6.

A clock that was set back shows within a file, whose lines are in order whatever their timestamps
say: from there on it counts as another clock. Other brokers may show how far; otherwise only a
lower bound is known (the step back of the timestamps), and `is_bound` is set.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import combinations, pairwise
from statistics import median
from typing import NamedTuple, TypeAlias

from isrlab.events.statements import REQUESTS, Statement

NOISE_MS = 1_000  # smaller differences cannot be distinguished from message latency
TIGHT_MS = 2_000  # differences this close form one cluster
APART_MS = 5_000  # the statements of a cluster must span at least this time
LATE_MS, BUSY_MS = 5_000, 10_000  # how late a line may be, and all lines of a busy broker
BACK_MS = 60_000  # a timestamp this far before that of an earlier line: the clock was set back
EARLY_VERSIONS = ("isr_commit", "leader")  # logged first by the broker that decides

Unit: TypeAlias = tuple[str, int | None, str]  # run, broker, part of a file after a step back


class Clock(NamedTuple):
    """The clock of a broker: it is `ahead_ms` ahead of the common one (negative: behind).

    `pairs`: how many facts shared with one broker show it (with the best one; 0: none, or only the
    order of versions). `is_bound`: the difference may be larger. `is_alone`: no broker of
    the majority confirms the clock. `part`: the file and the line from which this holds, if the
    clock was set back.
    """

    run: str
    broker: int | None
    part: str
    ahead_ms: int
    pairs: int
    is_bound: bool
    is_alone: bool


def align_clocks(rows: list[Statement]) -> list[Clock]:
    """The clocks of the brokers that logged these rows; changes the rows' `ts_ms` to one clock."""
    units = _units(rows)
    facts: dict[tuple, dict[Unit, int]] = defaultdict(dict)
    for row, unit in zip(rows, units, strict=True):
        for fact in _facts(row):
            facts[fact][unit] = min(row.ts_ms, facts[fact].get(unit, row.ts_ms))
    ahead, pairs = _solved(sorted(set(units), key=str), facts)
    bounded = _bounded(rows, units, ahead, pairs)
    for row, unit in zip(rows, units, strict=True):
        row.ts_ms -= ahead[unit]
    asking = {u for row, u in zip(rows, units, strict=True) if row.kind in REQUESTS}
    alone = _alone(facts, ahead, asking)
    return [
        Clock(*unit, ahead[unit], pairs[unit], unit in bounded, unit in alone)
        for unit in ahead
        if unit[1] is not None
    ]


def _alone(
    facts: dict[tuple, dict[Unit, int]], ahead: dict[Unit, int], asking: set[Unit]
) -> set[Unit]:
    """The units whose clock cannot be compared with the majority, because no broker of the majority
    logged the same facts at about the same moment."""
    groups = {unit: {unit} for stamps in (*facts.values(), asking) for unit in stamps}
    for stamps in facts.values():
        times = sorted((ms - ahead[unit], str(unit), unit) for unit, ms in stamps.items())
        for (first_ms, _, first), (second_ms, _, second) in pairwise(times):
            if second_ms - first_ms <= TIGHT_MS and groups[first] is not groups[second]:
                groups[first] |= groups[second]
                for unit in groups[second]:
                    groups[unit] = groups[first]
    return set(groups) - max(groups.values(), key=len, default=set())


def _units(rows: Sequence[Statement]) -> list[Unit]:
    """The clock of each row: its broker's or, if that was set back, that of a part of a file."""
    files: dict[tuple, list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        if row.file:
            file = row.run, row.broker, row.file
            files[file].append((row.line, row.ts_ms))
    parts: dict[tuple, list[int]] = {}
    for file, stamps in files.items():
        latest, starts = None, []
        for line, ts_ms in sorted(stamps):
            if latest is not None and ts_ms < latest - BACK_MS:
                starts.append(line)
                latest = ts_ms
            latest = ts_ms if latest is None else max(latest, ts_ms)
        if starts:
            parts[file] = starts
    units = []
    for row in rows:
        starts = parts.get((row.run, row.broker, row.file), [])
        nth = bisect_right(starts, row.line) if starts else 0
        part = f"{row.file}:{starts[nth - 1]}" if nth else ""
        broker = None if row.is_exact else row.broker
        units.append((row.run, broker, part))
    return units


def _facts(row: Statement) -> Iterable[tuple]:
    """The facts in this row that other brokers also log as soon as they learn of them."""
    place = row.run, row.topic, row.partition
    if row.topic is None or row.kind not in ("isr_commit", "leader", "follower", "metadata"):
        return
    if row.partition_epoch is not None:
        yield (*place, "version", row.partition_epoch)
    if row.leader_epoch is not None and row.kind in ("leader", "follower", "metadata"):
        yield (*place, "epoch", row.leader_epoch)


def _solved(
    units: list[Unit], facts: dict[tuple, dict[Unit, int]]
) -> tuple[dict[Unit, int], dict[Unit, int]]:
    """How far each clock is ahead, and how many statements show it."""
    places = {unit: place for place, unit in enumerate(units)}
    shared: dict[tuple[Unit, Unit], list[tuple[int, int]]] = defaultdict(list)
    for stamps in facts.values():
        for first, second in combinations(sorted(stamps, key=places.__getitem__), 2):
            shared[first, second].append((stamps[first], stamps[second]))
    links: dict[Unit, list[tuple[Unit, int, int]]] = defaultdict(list)
    hints: dict[Unit, list[tuple[Unit, int]]] = defaultdict(list)
    for (first, second), times in shared.items():
        difference, count, is_apart = _cluster(times)
        for here, there, ms in ((first, second, difference), (second, first, -difference)):
            hints[here].append((there, ms))
            if is_apart:
                links[here].append((there, ms, count))
    ahead, pairs = dict.fromkeys(units, 0), dict.fromkeys(units, 0)
    reached: set[Unit] = set()
    for unit in units:
        group, queue = {unit: 0}, [(0, "", unit, 0)]
        while queue and unit not in reached:  # the link with most statements comes first
            _, _, here, ms = heappop(queue)
            if here in group and here != unit:
                continue
            group[here] = ms
            for there, difference, count in links[here]:
                pairs[here] = max(pairs[here], count)
                if there not in group:
                    heappush(queue, (-count, str(there), there, ms + difference))
        if unit not in reached:
            reached |= group.keys()
            others = {
                there: group[here] + ms
                for here in group
                for there, ms in hints[here]
                if there not in group
            }
            ahead |= _centred(group, others)
    return ahead, pairs


def _centred(group: dict[Unit, int], others: dict[Unit, int]) -> dict[Unit, int]:
    """The clocks of a group relative to a metadata log's, else to the median; noise counts as zero.

    `others` are the clocks of brokers that share a single moment with it, too little to move them.
    """
    if len(group) == 1:
        return dict.fromkeys(group, 0)
    exact = [ms for (_, broker, _), ms in group.items() if broker is None]
    all_of_them = (*group.items(), *others.items())
    first = [ms for (_, broker, part), ms in all_of_them if not part and broker is not None]
    times = sorted(exact or first or group.values())
    middle = times[(len(times) - 1) // 2]
    return {unit: 0 if abs(ms - middle) < NOISE_MS else ms - middle for unit, ms in group.items()}


def _cluster(times: list[tuple[int, int]]) -> tuple[int, int, bool]:
    """The difference (second minus first) that most pairs agree on, how many, and if far apart."""
    differences = sorted((second - first, first) for first, second in times)
    start, first, last = 0, 0, 0  # of the largest group: `differences[first:last]`
    for end in range(len(differences)):
        while differences[end][0] - differences[start][0] > TIGHT_MS:
            start += 1
        if end + 1 - start > last - first:
            first, last = start, end + 1
    best = differences[first:last]
    moments = [first for _, first in best]
    is_apart = max(moments) - min(moments) >= APART_MS
    claimed = round(median(difference for difference, _ in best))
    low, high = (differences[n][0] for n in (len(times) // 10, -1 - len(times) // 10))
    is_steady = low * high > 0 and min(abs(low), abs(high)) >= 2 * (high - low)
    is_late = abs(claimed) < BUSY_MS or 2 * len(best) < len(differences)
    return 0 if is_late and not is_steady else claimed, len(best), is_apart


def _bounded(
    rows: Sequence[Statement], units: list[Unit], ahead: dict[Unit, int], pairs: dict[Unit, int]
) -> set[Unit]:
    """Move and return the clocks that the order of versions or of a file's lines proves wrong."""
    moved: set[Unit] = set()
    ends: dict[tuple, int] = {}  # the last moment of each part of a file
    for row, unit in sorted(zip(rows, units, strict=True), key=lambda pair: pair[0].place[1:]):
        if not row.file:
            continue
        file = row.run, row.broker, row.file
        if unit[2] and pairs[unit] == 0 and row.ts_ms - ahead[unit] <= ends.get(file, 0):
            ahead[unit] = row.ts_ms - ends[file] - NOISE_MS
            moved.add(unit)
        ends[file] = max(ends.get(file, 0), row.ts_ms - ahead[unit])
    versions: dict[tuple, dict[int, tuple[int, Unit]]] = defaultdict(dict)
    for row, unit in zip(rows, units, strict=True):
        if row.kind in EARLY_VERSIONS and row.partition_epoch is not None:
            by_version = versions[row.run, row.topic, row.partition]
            time = row.ts_ms, unit
            if row.partition_epoch not in by_version or row.is_own:
                by_version[row.partition_epoch] = time
    for by_version in versions.values():
        before = None
        for version in sorted(by_version):
            ts_ms, unit = by_version[version]
            if before is not None and before[1] != unit:
                late_ms = (before[0] - ahead[before[1]]) - (ts_ms - ahead[unit])
                if late_ms > LATE_MS and pairs[unit] == 0:
                    ahead[unit] -= late_ms
                    moved.add(unit)
            before = ts_ms, unit
    return moved
