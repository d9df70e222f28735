"""The state of a cluster, from whatever shows it, and what that source cannot show.

Theory of operation. The text of kafka-topics, a metadata log and a live cluster all become one
`ClusterState`. What a source leaves open is never guessed to the better: where the release is not
known, all releases that could have printed it are asked, and a sentence in `unsure` keeps every
answer from being "safe". A text that cannot be whole is refused.

Source: TopicCommand.java, trunk of 2024-10-25: a topic has its own line with its partition count
unless only some partitions were asked for; each line ends with a line break.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from isrlab.engine.versions import GENERATIONS, KafkaVersion
from isrlab.events.wording import counted, printable
from isrlab.placement.describe import DescribedPartition, Description, described, racks_of

NO_LEADER = -1
SHOWS_MOVES, SHOWS_IDS, SHOWS_ELR = (2, 4), (2, 8), (3, 7)  # the first release whose text has it
NOISE = re.compile(  # what a JVM or its logger may print before
    r"\[?\d{4}-\d\d-\d\d[ T]|(?:WARN|INFO|DEBUG|SLF4J|WARNING|NOTE|Picked up|OpenJDK|log4j)\b"
)


class CheckError(ValueError):
    """Why nothing can be answered; one sentence."""


@dataclass(frozen=True)
class ClusterState:
    """`racks`: of every broker that is known, "" without one. `alive`: neither dead nor fenced nor
    on its way down. `versions`: the rules that may apply, one if the release is known."""

    source: str
    partitions: list[DescribedPartition]
    racks: dict[int, str]
    alive: frozenset[int]
    versions: tuple[KafkaVersion, ...]
    settings: dict[tuple[str, str], str] = field(default_factory=dict)  # by topic or broker, name
    has_elr: bool = False  # the feature is on, or replicas are in it
    shows_moves: bool = True
    unsure: tuple[str, ...] = ()  # these keep any answer from being "safe"
    unseen: tuple[str, ...] = ()  # this source never shows it

    @property
    def zones(self) -> dict[str, frozenset[int]]:
        """The brokers of each zone, none if no zone is known."""
        names = sorted({rack for rack in self.racks.values() if rack})
        return {n: frozenset(b for b, rack in self.racks.items() if rack == n) for n in names}

    def first_counts(self) -> dict[str, int]:
        """Of each topic how many replicas partition 0 has."""
        return {p.topic: len(p.replicas) for p in self.partitions if p.number == 0}


def of_text(text: str, version: str | None = None) -> ClusterState:
    """What `kafka-topics --describe` printed; `version` is the release of the brokers.

    Raises CheckError where lines are missing or are of two layouts.
    """
    try:
        description = described(text)
        _refuse_what_is_not_whole(text, description)
        versions = possible_versions(version, _oldest(description))
    except ValueError as error:
        raise CheckError(printable(str(error))) from None
    has_elr = any(p.elr or p.last_known_elr for p in description.partitions)
    if has_elr:  # so these rules apply
        versions = tuple(v for v in versions if v.eligible_leader_replicas) or versions
    partitions = _with_defaults(description, versions)
    brokers = sorted({b for p in partitions for b in (*p.replicas, *p.elr)})
    shows_moves = versions[0].first >= SHOWS_MOVES
    unseen = ["brokers without a replica, topics that are not in the text, throttles, and records "
              "on their way"]  # fmt: skip
    if not has_elr:
        unseen.append("whether eligible leader replicas are on")
    unsure = []
    if not description.topics:
        unsure.append("the text has no line of a topic, so partitions may be missing: describe "
                      "without --under-replicated-partitions and the like")  # fmt: skip
    return ClusterState(
        "described by kafka-topics", partitions, dict.fromkeys(brokers, ""),
        alive_by(partitions), versions, shows_moves=shows_moves,
        has_elr=has_elr, unsure=tuple(unsure), unseen=tuple(unseen),
    )  # fmt: skip


def _refuse_what_is_not_whole(text: str, description: Description) -> None:
    """Raises ValueError for lines that are missing, cut or of another layout."""
    if strange := [line for line in description.others if not NOISE.match(line.split("'", 1)[1])]:
        raise ValueError(f"{strange[0]} is no line of kafka-topics --describe")
    for kind in ("topic", "partition"):
        if len([form for form in description.forms if form[0] == kind]) > 1:
            raise ValueError(f"the lines of {kind}s have two layouts: they come from two releases, "
                             "or some are cut")  # fmt: skip
    if not text.endswith("\n"):
        raise ValueError("the text ends within a line: its last line may be cut")
    counts = Counter(p.topic for p in description.partitions)
    highest: dict[str, int] = {}
    for p in description.partitions:
        highest[p.topic] = max(highest.get(p.topic, 0), p.number)
    for topic, number in highest.items():
        if counts[topic] <= number:
            raise ValueError(f"topic {topic!r} has a partition {number}, but only "
                             f"{counted(counts[topic], 'partition')} in the text")  # fmt: skip
        if description.topics and topic not in description.topics:
            raise ValueError(f"topic {topic!r} has partitions, but no line of its own")
    for topic, line in description.topics.items():
        if counts[topic] != line.partition_count:
            raise ValueError(f"topic {topic!r} has {counted(line.partition_count, 'partition')}, "
                             f"and {counts[topic]} of them in the text")  # fmt: skip


def _oldest(description: Description) -> tuple[int, ...]:
    """The first release that prints this layout."""
    forms = description.forms
    has_elr = any(kind == "partition" and shows_elr for kind, _, shows_elr in forms)
    has_id = any(kind == "topic" and shows_id for kind, _, shows_id in forms)
    has_moves = any(p.adding or p.removing for p in description.partitions)
    marks = (has_elr, SHOWS_ELR), (has_id, SHOWS_IDS), (has_moves, SHOWS_MOVES)
    return next((first for holds, first in marks if holds), (0, 8, 2))


def possible_versions(
    version: str | None, oldest: tuple[int, ...] = (0, 8, 2)
) -> tuple[KafkaVersion, ...]:
    """The rules of a release, or of all from the oldest possible one on.

    Raises ValueError for an unknown release, and for one older than the layout.
    """
    if version is None:
        return tuple(v for v in GENERATIONS if v.last >= oldest)
    known = KafkaVersion.of(version)
    if known.last < oldest:
        name = ".".join(map(str, oldest))
        raise ValueError(f"Kafka {version} does not print this layout; {name} and newer do")
    return (known,)


def _with_defaults(
    description: Description, versions: tuple[KafkaVersion, ...]
) -> list[DescribedPartition]:
    """What a topic does not set has its default, if what brokers set is shown there as well."""
    unclean = any(v.unclean_leader_election_enable for v in versions)
    partitions = []
    for p in description.partitions:
        line = description.topics.get(p.topic)
        default = 1 if line and line.shows_all else None
        least = default if p.min_isr is None else p.min_isr
        is_unclean = unclean if p.unclean is None else p.unclean
        partitions.append(p._replace(min_isr=least, unclean=is_unclean))
    return partitions


def alive_by(partitions: Iterable[DescribedPartition]) -> frozenset[int]:
    """Brokers that are in sync with a leader somewhere: the others may be dead."""
    return frozenset(b for p in partitions if p.leader != NO_LEADER for b in p.isr)


def with_options(
    state: ClusterState,
    min_isr: int | None = None,
    zones: str = "",
    unclean: bool | None = None,
) -> ClusterState:
    """With what an operator adds: min.insync.replicas and unclean election where they are not
    shown, and the zone of each broker. Raises CheckError for a zone of some brokers only."""
    partitions = [
        p._replace(
            min_isr=min_isr if p.min_isr is None else p.min_isr,
            unclean=p.unclean if unclean is None else unclean,
        )
        for p in state.partitions
    ]
    racks = state.racks
    if zones:
        try:
            racks = racks_of(zones, set(racks))
        except ValueError as error:
            raise CheckError(printable(str(error))) from None
        if unknown := sorted(racks.keys() - state.racks.keys()):
            raise CheckError(f"--zone names broker {unknown[0]}, which this cluster does not have")
    unsure = list(state.unsure)
    if missing := sorted({p.topic for p in partitions if p.min_isr is None}):
        names = printable(missing[0]) + (f" and {len(missing) - 1} more" if missing[1:] else "")
        unsure.append(f"min.insync.replicas of topic {names} is not shown: give --min-isr")
    return replace(state, partitions=partitions, racks=racks, unsure=tuple(unsure))


def require_brokers(state: ClusterState, brokers: Iterable[int]) -> frozenset[int]:
    """Raises CheckError for a broker that is not there."""
    wanted = frozenset(brokers)
    if unknown := sorted(wanted - state.racks.keys()):
        known = ", ".join(map(str, sorted(state.racks)[:12]))
        raise CheckError(f"no broker {unknown[0]} here; the brokers are {known}")
    return wanted


def chosen(state: ClusterState, texts: Iterable[str]) -> frozenset[int]:
    """The brokers of "3", "3,4" or "zone=a". Raises CheckError for others."""
    brokers: set[int] = set()
    for text in texts:
        name, is_zone, zone = text.partition("=")
        if is_zone and name == "zone" and zone in state.zones:
            brokers |= state.zones[zone]
        elif not is_zone and re.fullmatch(r"\d{1,9}(,\d{1,9})*", text):
            brokers |= {*map(int, text.split(","))}
        else:
            known = ", ".join(state.zones) or "none: give --zone 1=a,2=b,..."
            shown = printable(text[:40])
            raise CheckError(f"{shown!r} is no broker and no zone; zones: {printable(known)}")
    return require_brokers(state, brokers)


def settings_of(values: Mapping[tuple[str, str], str], wanted: str) -> dict[str, str]:
    """By topic or broker, the values of all settings whose name ends so."""
    return {of: value for (of, name), value in values.items() if name.endswith(wanted) and value}
