"""The state of a cluster, from any source, and what that source cannot show.

Theory of operation. The text of kafka-topics, a metadata log and a live cluster all become one
`ClusterState`. Missing information is never assumed to be favourable: if the release is not known,
all releases that could have printed the text are checked, and a sentence in `unsure` keeps every
answer from being "safe". A text that is certainly incomplete is refused.

Source: TopicCommand.java, trunk of 2024-10-25: a topic has its own line with its partition count
unless only some partitions were requested; each line ends with a line break.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from isrlab.engine.versions import GENERATIONS, KafkaVersion
from isrlab.events.wording import counted, printable
from isrlab.placement.describe import DescribedPartition, TopicsDescription, described, racks_of

NO_LEADER = -1
ANY = (0, 8, 2)  # the oldest known release
SHOWS_MOVES, SHOWS_IDS, SHOWS_ELR = (2, 4), (2, 8), (3, 7)  # the first release that shows them
SHOWS_BROKERS_SETTINGS = (3, 0)  # 2.8 with --zookeeper shows only a topic's own
NOISE = re.compile(  # what a JVM or its logger may print first
    r"line \d+: .(\[?\d{4}-\d\d-\d\d[ T]|"
    r"(?:WARN|INFO|DEBUG|SLF4J|WARNING|NOTE|Picked up|OpenJDK|log4j)\b)"
)


class CheckError(ValueError):
    """Why there is no answer: one printable sentence."""

    def __init__(self, text: object) -> None:
        super().__init__(printable(str(text)))


@dataclass(frozen=True)
class ClusterState:
    """`racks`: the rack of every known broker, "" without one. `alive`: up, unfenced, not shutting
    down. `versions`: the rules that may apply, one if release and mode are known. `past`, for
    `exposed`: a partition's emptied replicas, and whether its creation was read."""

    source: str
    partitions: list[DescribedPartition]
    racks: dict[int, str]
    alive: frozenset[int]
    versions: tuple[KafkaVersion, ...]
    settings: dict[tuple[str, str], str] = field(default_factory=dict)  # by topic or broker, name
    past: dict[tuple[str, int], tuple[set[int], bool]] = field(default_factory=dict)
    has_elr: bool = False  # the feature is on, or some ELR is not empty
    shows_moves: bool = True
    is_kraft: bool | None = None  # None: the source does not show it
    unsure: tuple[str, ...] = ()  # these keep any answer from being "safe"
    unseen: str = ""  # what this source never shows

    @property
    def zones(self) -> dict[str, frozenset[int]]:
        """The brokers of each zone, none if no zone is known."""
        names = sorted({rack for rack in self.racks.values() if rack})
        return {n: frozenset(b for b, rack in self.racks.items() if rack == n) for n in names}

    def require(self, brokers: Iterable[int]) -> frozenset[int]:
        """These brokers, as a set. Raises CheckError for an unknown one."""
        wanted = frozenset(brokers)
        if unknown := sorted(wanted - self.racks.keys()):
            known = ", ".join(map(str, sorted(self.racks)[:12]))
            raise CheckError(f"no broker {unknown[0]} here; the brokers are {known}")
        return wanted

    def chosen(self, texts: Iterable[str]) -> frozenset[int]:
        """The brokers of "3", "3,4" or "zone=a". Raises CheckError for other texts."""
        brokers: set[int] = set()
        for text in texts:
            if text.startswith("zone=") and text[5:] in self.zones:
                brokers |= self.zones[text[5:]]
            elif re.fullmatch(r"\d{1,9}(,\d{1,9})*", text):
                brokers |= {*map(int, text.split(","))}
            else:
                known = ", ".join(self.zones) or "none (--zone 1=a,2=b,...)"
                raise CheckError(f"{text[:40]!r} is neither a broker nor a zone; zones: {known}")
        return self.require(brokers)


def brokers_of(partitions: Iterable[DescribedPartition]) -> dict[int, str]:
    """The brokers that partitions name, without racks."""
    return dict.fromkeys(sorted({b for p in partitions for b in (*p.replicas, *p.elr)}), "")


def decoded(data: bytes) -> str:
    """The text of a redirected output: UTF-8, or UTF-16 from PowerShell."""
    is_wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")  # as PowerShell writes it
    text = data.decode("utf-16" if is_wide else "utf-8-sig", "replace")
    return text.replace("\r\n", "\n")


def of_text(text: str, version: str | None = None) -> ClusterState:
    """The state in the output of `kafka-topics --describe`; `version` is the brokers' release.

    Raises CheckError if lines are missing, are not of that tool, or have two layouts.
    """
    try:
        description = described(text)
        if wrong := next(_missing(text, description), None):
            raise ValueError(wrong)
    except ValueError as error:
        raise CheckError(error) from None
    topics, versions = description.topics, possible_versions(version, _oldest(description))
    has_elr = any(p.elr or p.last_known_elr for p in description.partitions)
    if has_elr:  # so these rules apply
        versions = tuple(v for v in versions if v.eligible_leader_replicas) or versions
    shows_all = versions[0].first >= SHOWS_BROKERS_SETTINGS  # so other settings have their defaults
    defaults = {name for name, topic in topics.items() if shows_all and topic.shows_all}
    partitions = [
        p._replace(min_isr=1) if p.min_isr is None and p.topic in defaults else p
        for p in description.partitions
    ]
    in_sync = frozenset(b for p in partitions if p.leader != NO_LEADER for b in p.isr)
    unsure = "the text has no line of a topic, so partitions may be missing: describe without "
    unsure += "--under-replicated-partitions and similar options"
    return ClusterState(
        "kafka-topics --describe", partitions, brokers_of(partitions), in_sync, versions,
        has_elr=has_elr, shows_moves=versions[0].first >= SHOWS_MOVES,
        is_kraft=has_elr or None, unsure=() if topics else (unsure,),
        unseen="brokers without a replica, topics that are not in the text, throttles"
        + ", whether eligible leader replicas are on" * (not has_elr),
    )  # fmt: skip


def _missing(text: str, description: TopicsDescription) -> Iterator[str]:
    """Sentences about lines that are missing, truncated or in another layout."""
    yield from (f"{line} is not a line of kafka-topics --describe"
                for line in description.others if not NOISE.match(line))  # fmt: skip
    if len({kind for kind, *_ in description.forms}) < len(description.forms):
        yield "the lines have two layouts: they come from two releases, or some are cut"
    if not text.endswith("\n"):
        yield "the text ends within a line: its last line may be cut"
    counts, topics = Counter(p.topic for p in description.partitions), description.topics
    for topic, number, *_, least, unclean in description.partitions:
        if topic in topics and (least, unclean) != topics[topic][1:3]:
            yield f"topic {topic!r} has a partition before its own line: lines are out of order"
        if number >= counts[topic]:
            count = counted(counts[topic], "partition")
            yield f"topic {topic!r} has a partition {number}, but only {count} in the text"
        if topics and topic not in topics:
            yield f"topic {topic!r} has partitions, but no line of its own"
    for topic, line in topics.items():
        if counts[topic] != line.partition_count:
            count = counted(line.partition_count, "partition")
            yield f"topic {topic!r} has {count}, and {counts[topic]} of them in the text"


def _oldest(description: TopicsDescription) -> tuple[int, ...]:
    """The first release whose brokers fill in the fields of the text; the tool may be newer."""
    filled = {kind for kind, *_, is_filled in description.forms if is_filled}
    moves = any(p.adding or p.removing for p in description.partitions)
    if "partition" in filled:
        return SHOWS_ELR
    return SHOWS_IDS if "topic" in filled else SHOWS_MOVES if moves else ANY


def possible_versions(
    version: str | None, oldest: tuple[int, ...] = ANY
) -> tuple[KafkaVersion, ...]:
    """The rules of a release, or of all releases from the oldest possible one on.

    Raises CheckError for an unknown release, and for one older than `oldest`.
    """
    if version is None:
        return tuple(v for v in GENERATIONS if v.last >= oldest)
    try:
        known = KafkaVersion.of(version)
    except ValueError as error:
        raise CheckError(error) from None
    if known.last < oldest:
        name = ".".join(map(str, oldest))
        raise CheckError(
            f"brokers of Kafka {version} do not fill these fields; {name} and newer do"
        )
    return (known,)


def with_options(
    state: ClusterState, min_isr: int | None = None, zones: str = "",
    unclean: bool | None = None, zookeeper: bool | None = None,
) -> ClusterState:  # fmt: skip
    """The state with the operator's options: min.insync.replicas where it is not shown, unclean
    election, the zone of each broker, and the mode. Raises CheckError for zones that do not match
    the brokers, and for ZooKeeper on a cluster without it."""
    if zookeeper and state.is_kraft:
        raise CheckError("this cluster runs KRaft, not ZooKeeper")
    is_kraft = state.is_kraft if zookeeper is None else not zookeeper
    versions = [v for v in state.versions if not v.kraft or is_kraft is not False]
    if not is_kraft:  # 3.3 to 3.9 have both
        versions += [v.with_(kraft=False) for v in state.versions if v.kraft and v.last < (4, 0)]
    if not versions:
        raise CheckError("Kafka 4 has no ZooKeeper")
    default = any(v.unclean_leader_election_enable for v in versions)
    partitions = [p._replace(
        min_isr=min_isr if p.min_isr is None else p.min_isr,
        unclean=unclean if unclean is not None else default if p.unclean is None else p.unclean,
    ) for p in state.partitions]  # fmt: skip
    try:
        racks = racks_of(zones, set(state.racks)) if zones else state.racks
    except ValueError as error:
        raise CheckError(error) from None
    state.require(racks)
    unsure = state.unsure
    if missing := sorted({p.topic for p in partitions if p.min_isr is None}):
        names = missing[0] + f" and {len(missing) - 1} more" * (len(missing) > 1)
        unsure += (f"min.insync.replicas of topic {names} is not shown (--min-isr)",)
    return replace(
        state, partitions=partitions, racks=racks, versions=tuple(versions), unsure=unsure
    )
