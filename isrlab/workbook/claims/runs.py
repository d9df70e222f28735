"""What the claims ask of runs: when something happened, what a message carried, who had a record.

Each function reads a run of a scenario; none decides anything. Times are milliseconds since the
beginning of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from isrlab.engine.log import Log
from isrlab.engine.model import Leader, RemoteReplica
from isrlab.engine.versions import GENERATIONS, KafkaVersion
from isrlab.workbook.claims.model import By, Case, Statement
from isrlab.world import scenario
from isrlab.world.cluster import START_MS
from isrlab.world.frames import Event, Frame
from isrlab.world.script import Run

VERSIONS = GENERATIONS
Measure = Callable[[KafkaVersion], object]


def releases(first: str = "0.8.2", last: str = "4.3") -> tuple[KafkaVersion, ...]:
    """The generations from one release to another, both included."""
    start, end = (VERSIONS.index(KafkaVersion.of(name)) for name in (first, last))
    return VERSIONS[start : end + 1]


def is_before(version: KafkaVersion, release: str) -> bool:
    return VERSIONS.index(version) < VERSIONS.index(KafkaVersion.of(release))


def over(
    says: str,
    told: object | Measure,
    shown: Measure,
    versions: tuple[KafkaVersion, ...] = VERSIONS,
) -> Statement:
    """A statement with one case for each release; `told` is a value, or depends on the release."""
    cases = tuple(Case(v.releases, told(v) if callable(told) else told, shown(v)) for v in versions)
    return Statement(says, cases)


def situations(says: str, *cases: tuple[str, object, object]) -> Statement:
    """A statement with a case for each (situation, what is told, what is shown)."""
    return Statement(says, tuple(Case(*case) for case in cases), By.SITUATION)


def record(says: str, citation: str) -> Statement:
    """What no run decides: the citation says where it is written."""
    return Statement(says, by=By.RECORD, citation=citation)


@lru_cache(maxsize=1024)
def play(text: str, version: KafkaVersion | str) -> Run:
    """A scenario in one release, played once."""
    return scenario.play(text, version=version)


def library(name: str, version: KafkaVersion | str) -> Run:
    """The same for a scenario of the library."""
    return play(scenario.read(name), version)


# Events


def rows(run: Run, kind: str, **wanted: object) -> list[Event]:
    """The events of a kind with these values, in order."""
    return [
        row
        for row in run.cluster.events
        if row.kind == kind
        and not row.is_stored_state
        and all(getattr(row, k) == v for k, v in wanted.items())
    ]


def when(run: Run, kind: str, **wanted: object) -> int | None:
    """When the first such event happened; None if none did."""
    found = rows(run, kind, **wanted)
    return since_start(found[0]) if found else None


def since_start(row: Event) -> int:
    return row.ts_ms - START_MS


def acknowledged_ms(run: Run, name: str) -> int | None:
    """When the producer of a record had its answer."""
    for row in rows(run, "produce_ack"):
        if name in row.detail["records"].split():
            return since_start(row)
    return None


def cause_of(run: Run, row: Event) -> Frame:
    """The step in which an event happened."""
    return next(frame for frame in reversed(run.frames) if frame.place < row.place)


# States


def after_block(run: Run, number: int) -> Frame:
    """The cluster at the end of a block of the scenario (0-based)."""
    return run.frames[run.blocks[number].frames[1] - 1]


def high_watermark(frame: Frame) -> int:
    """The leader's."""
    return frame.brokers[frame.controller.leader].log.high_watermark


def remote(frame: Frame, follower: int) -> RemoteReplica:
    """A follower as its leader sees it."""
    role = frame.brokers[frame.controller.leader].role
    assert isinstance(role, Leader)
    found = role.remote(follower)
    assert found is not None
    return found


def copies(frame: Frame, name: str) -> int:
    """How many replicas have a record."""
    return sum(has(log, name) for log in frame.disks.values())


def has(log: Log, name: str) -> bool:
    return any(record.id == name for record in log.records)


def messages(run: Run, kind: type) -> list[Frame]:
    """The messages of a kind that arrived, in order."""
    return [f for f in run.frames if isinstance(f.message, kind) and not f.was_lost]
