"""Whether Kafka can have printed these lines: each is checked against Kafka's rules.

Theory of operation. The lines must not break a rule by themselves, nor against each other
(`rules.py`), nor against the engine: the very next version must be one that its controllers can
write (`possible.py`). That is tried with each generation that may have run (up to the release that
a line names); those that leave the fewest changes unexplained are the guess.

The rule `from` is also broken if a line is missing that Kafka always writes.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from isrlab.engine.versions import KafkaVersion
from isrlab.events.statements import REQUESTS
from isrlab_ops.logs.history.possible import candidates, is_possible, releases
from isrlab_ops.logs.history.rules import (
    RULES,
    RULES_OF_A_PARTITION,
    Account,
    Change,
    Fault,
    fault,
    of_one_line,
    within_limit,
)
from isrlab_ops.logs.history.scene import Scene

JUDGED = (*REQUESTS, "isr_commit", "leader", "follower", "metadata", "offline")  # kinds of lines
LATE_MS = 5_000  # a line's time is taken before it waits for the appender of a busy broker


class Verdict(NamedTuple):
    """The verdict on one run. `releases`: the one that is given or named by the lines, else those
    whose rules explain most `changes`."""

    run: str
    partitions: int
    changes: int
    releases: str
    faults: tuple[Fault, ...]


def judge(scene: Scene, release: str | None = None, lag_time_ms: int | None = None) -> Verdict:
    """The verdict on one run: explained, or the lines that cannot be true, in order of time.

    `release` is the newest that any broker ran (default: by its lines); `lag_time_ms` is
    replica.lag.time.max.ms. Raises ValueError for an unknown release.
    """
    release = release or scene.release
    faults = list(_misplaced(scene))
    accounts = accounts_of(scene)
    changes: list[Change] = []
    for account in accounts:
        for line in account.lines:
            faults += [*of_one_line(line), *within_limit(line, lag_time_ms)]
        for check in RULES_OF_A_PARTITION:
            faults += check(account)
        changes += account.changes
    unexplained = _unexplained(_generations(scene, accounts, release), changes)
    least = min(map(len, unexplained.values()))
    best = [version for version, left in unexplained.items() if len(left) == least]
    is_migrated = any("to_state" in row.detail and row.kind == "sign" for row in scene.rows)
    several = [*unexplained.values()] if is_migrated else [unexplained[best[0]]]
    odd = [each for each in several[0] if all(each in left for left in several)]
    faults += [fault(change.line, "next", change.line_before) for change in odd]
    first = {(each.file, each.line): each for each in reversed(faults)}
    ordered = sorted(first.values(), key=lambda each: (each.ts_ms, each.file, each.line))
    explaining = release or releases(best)
    partitions = {account.lines[0].key for account in accounts}
    return Verdict(scene.run, len(partitions), len(changes), explaining, tuple(ordered))


def accounts_of(scene: Scene) -> list[Account]:
    """The account of each partition; one that was deleted and created again has several."""
    lives = (life.rows for lives in scene.lives.values() for life in lives)
    lines = ([row for row in rows if row.kind in JUDGED] for rows in lives)
    return [Account(rows, scene) for rows in lines if rows]


def _generations(
    scene: Scene, accounts: Sequence[Account], release: str | None
) -> Sequence[KafkaVersion]:
    """The generations that may have written these lines."""
    kraft = candidates(True, release)
    if scene.is_kraft:
        return kraft or candidates(True)[-1:]  # a preview of KRaft
    details = (line.detail for account in accounts for line in account.lines)
    is_old = any(detail.get("controller_epoch", "").isdecimal() for detail in details)
    return (*candidates(False, release), *(() if is_old else kraft))


def _unexplained(
    versions: Sequence[KafkaVersion], changes: Sequence[Change]
) -> dict[KafkaVersion, list[Change]]:
    """By generation: the changes that its controllers cannot make."""
    kinds = {change[:3] for change in changes}
    impossible = {v: {kind for kind in kinds if not is_possible(v, *kind)} for v in versions}
    return {v: [each for each in changes if each[:3] in impossible[v]] for v in versions}


def _misplaced(scene: Scene) -> Iterator[Fault]:
    """Single lines timed long before the line above them, or long after the line below."""
    for file, lines in scene.order.items():
        for (_, left), (number, ts_ms), (_, right) in zip(
            lines, lines[1:], lines[2:], strict=False
        ):
            is_late = ts_ms < left - LATE_MS and left <= right + LATE_MS
            is_early = ts_ms > right + LATE_MS and left <= right + LATE_MS
            if is_late or is_early:
                yield Fault(None, "order", file, number, RULES["order"], "", ts_ms)
