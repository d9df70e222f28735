"""Can Kafka have done this? Every line about a partition is held against Kafka's rules.

Theory of operation. Statements (`statements.py`) must not break a rule by themselves (a shrink that
adds a member), against each other (two members' lists for one version, two leaders in one epoch),
against the order in which a broker learns (versions only grow), or against the engine: the very
next version must be one that its controllers can write (`possible.py`). The rules are tried with
each generation that may have run (up to the release that a line names); those that leave the fewest
changes unexplained are the guess.

The rule `from` is also broken where a line is missing that Kafka always writes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from isrlab.engine import rules
from isrlab.engine.choices import ShrinkRule
from isrlab.engine.versions import KafkaVersion
from isrlab.verdict.contradictions import RULES_OF_A_PARTITION, Step, steps_of
from isrlab.verdict.faults import RULES, Fault, fault
from isrlab.verdict.possible import candidates, is_possible, releases
from isrlab.verdict.statements import Run, Statement, runs

LATE_MS = 2_000


class Verdict(NamedTuple):
    """Of one run. `releases`: as its lines say, or whose rules explain most of its `changes`."""

    run: str
    partitions: int
    left_out: int
    changes: int
    releases: str
    faults: tuple[Fault, ...]


def verdicts(
    events: pa.Table,
    files: pa.Table | None = None,
    release: str | None = None,
    lag_time_ms: int | None = None,
) -> list[Verdict]:
    """For each run of these events of logs: explained, or which lines cannot be.

    `files` (of `BrokerLogs`) says how long each log goes on. `release` is the newest that any
    broker ran (default: as its lines say); `lag_time_ms` is replica.lag.time.max.ms. Faults are in
    order of time. Raises ValueError for an unknown release.
    """
    return [judge(n, run, release, lag_time_ms) for n, run in runs(events, files).items()]


def judge(
    name: str, run: Run, release: str | None = None, lag_time_ms: int | None = None
) -> Verdict:
    """The verdict of one run."""
    faults = list(_misplaced(run))
    changes, unexplained = 0, defaultdict[KafkaVersion, list[Step]](list)
    release = release or run.release
    versions = candidates(True, release) or candidates(True)[-1:]  # a preview of KRaft
    if not run.is_kraft:  # as far as its lines tell
        said = (line.detail for of_one in run.partitions.values() for line in of_one)
        is_old = any(detail.get("controller_epoch", "").isdecimal() for detail in said)
        versions = (*candidates(False, release), *(() if is_old else candidates(True, release)))
    for lines in run.partitions.values():
        for line in lines:
            faults += [*_alone(line), *_limit(line, lag_time_ms)]
        for check in RULES_OF_A_PARTITION:
            faults += check(lines, run)
        steps = [*steps_of(lines, run)]
        changes += len(steps)
        for version in versions:
            unexplained[version] += [s for s in steps if not is_possible(version, *s[:3])]
    least = min(len(unexplained[version]) for version in versions)
    best = next(version for version in versions if len(unexplained[version]) == least)
    explaining = release or releases(v for v in versions if len(unexplained[v]) == least)
    faults += [fault(line, "next", other) for *_, line, other in unexplained[best]]
    first = {(each.file, each.line): each for each in reversed(faults)}
    order = {f"{line.file}:{line.line}": line.ts_ms for x in run.partitions.values() for line in x}
    ordered = sorted(first.values(), key=lambda f: (order.get(f"{f.file}:{f.line}", 0), f[:4]))
    return Verdict(
        name, len(run.partitions), len(run.left_out), changes, explaining, tuple(ordered)
    )


# One line by itself


def _alone(line: Statement) -> Iterator[Fault]:
    isr, before, leader = line.isr, line.before, line.leader
    is_new = line.detail.get("from_state") == "NewPartition"
    for number in (line.version, line.epoch):
        if number is not None and (number < 0 or (is_new and number > 0)):
            yield fault(line, "counted")
    if isr is None:
        return
    if len(set(isr)) < len(isr) or (before and len(set(before)) < len(before)):
        yield fault(line, "twice")
    if leader is not None and leader >= 0 and leader not in isr:
        yield fault(line, "leads")
    if line.replicas and not set(isr) <= set(line.replicas):
        yield fault(line, "assigned")
    if before is None or not line.is_request:
        return
    if line.kind == "isr_shrink":
        if not (set(isr) < set(before) and line.leader in before):
            yield fault(line, "shrink")
        gone = line.detail.get("out_of_sync")
        if gone and {*map(int, gone.split(","))} != set(before) - set(isr):
            yield fault(line, "named")
    elif not (set(before) < set(isr) and len(isr) == len(before) + 1):
        yield fault(line, "grow")


def _limit(line: Statement, lag_time_ms: int | None) -> Iterator[Fault]:
    since = line.detail.get("since_caught_up_ms")
    if lag_time_ms is None or since is None or line.kind != "isr_shrink":
        return
    if not rules.is_out_of_sync(ShrinkRule.TIME, 0, 1, 0, int(since), lag_time_ms, 0):
        yield fault(line, "limit")


# Files


def _misplaced(run: Run) -> Iterator[Fault]:
    """A line whose time is long before that of lines in front of it, and which stands alone so."""
    for file, lines in run.order.items():
        for (_, left), (number, ts_ms), (_, right) in zip(
            lines, lines[1:], lines[2:], strict=False
        ):
            is_late = ts_ms < left - LATE_MS and left <= right + LATE_MS
            is_early = ts_ms > right + LATE_MS and left <= right + LATE_MS
            if is_late or is_early:
                yield Fault(None, "order", file, number, RULES["order"], "")
