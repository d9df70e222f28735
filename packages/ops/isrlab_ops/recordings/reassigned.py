"""Data losses on real brokers: the tries in `data/recordings/eligible`, and their outcomes.

`packages/proof/record/reassigned.py` and `race.py` make them; the schedules are those of
`data/upstream`. A file holds a cluster, such as `4.3.1-elr1-A.json.xz`; each topic is one try.
"""

import lzma
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from isrlab.installed import DATA

FOLDER = DATA / "recordings" / "eligible"
ADVICE = DATA / "recordings" / "advice"


class TopicMoment(msgspec.Struct):
    """The stored state of a partition; `held`: how many records each broker had on disk."""

    name: str
    at_s: float
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    held: dict[int, int] = {}


class TopicTry(msgspec.Struct):
    """`lost`: how many acknowledged records no replica had when all brokers were back; -1 until
    they have been counted."""

    variant: str
    topic: str
    partition: int
    acknowledged: int = 0
    lost: int = -1
    moments: list[TopicMoment] = []
    lines: list[str] = []  # of brokers and controllers, each prefixed with its id

    @property
    def word(self) -> str:
        """ "lost"; "stranded": no leader at the end; "leaderless": at some moment; "safe"; or
        "not counted"."""
        if self.lost:
            return "lost" if self.lost > 0 else "not counted"
        leads = [moment.leader >= 0 for moment in self.moments]
        return "safe" if all(leads) else "leaderless" if leads[-1] else "stranded"

    @property
    def moved_s(self) -> float:
        """The time from when the reassignment was stored until its completion was stored."""
        stored = [moment for moment in self.moments if moment.name == "stored"]
        begun_s = next(moment.at_s for moment in stored if moment.adding)
        return next(m.at_s for m in stored if m.at_s > begun_s and not m.adding) - begun_s


class ClusterRun(msgspec.Struct):
    """One cluster: when it began (UTC), what was done to it when (s), and the tries on it."""

    release: str
    elr: int
    began: str
    brokers: tuple[int, ...]
    settings: dict[str, str]
    timeline: list[tuple[float, str]]
    tries: list[TopicTry]


class Tally(NamedTuple):
    """The tries of a variant on a release, and how many ended with which `TopicTry.word`; `elr`:
    with eligible leader replicas."""

    release: str
    elr: bool
    variant: str
    tries: int
    lost: int
    leaderless: int
    stranded: int


def sessions(folder: Path = FOLDER) -> list[ClusterRun]:
    """The runs in `folder`: FOLDER has losses after a reassignment, ADVICE tests of advice."""
    paths = sorted(folder.glob("*.json.xz"))
    return [msgspec.json.decode(lzma.decompress(p.read_bytes()), type=ClusterRun) for p in paths]


def counts(variant: str | None = None, folder: Path = FOLDER) -> Iterator[Tally]:
    """The outcomes on each release, for all variants or one."""
    tries: dict[tuple[str, bool, str], list[TopicTry]] = {}
    for session in sessions(folder):
        for each in session.tries:
            if variant in (None, each.variant):
                key = session.release, bool(session.elr), each.variant
                tries.setdefault(key, []).append(each)
    for key in sorted(tries, key=lambda key: (key[2], key[0], key[1])):
        words = [each.word for each in tries[key]]
        ends = (words.count(word) for word in ("lost", "leaderless", "stranded"))
        yield Tally(*key, len(words), *ends)


def advised(names: Mapping[str, str]) -> list[dict[str, object]]:
    """The outcomes of the tries in ADVICE: a row for each release and each variant in `names`."""
    return [
        {"on real brokers": names[c.variant], "release": c.release, "tries": c.tries,
         "tries with a loss": c.lost, "tries without a leader for a time": c.leaderless}
        for c in counts(folder=ADVICE) if c.variant in names
    ]  # fmt: skip
