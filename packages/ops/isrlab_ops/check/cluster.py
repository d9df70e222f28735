"""The state of a cluster, from any source, and what that source cannot show.

Theory of operation. The text of kafka-topics, a metadata log and a live cluster all become one
`ClusterState`. Missing information is never assumed to be favourable: if the release is not known,
all releases that could have printed the text are checked, and a sentence in `unsure` keeps every
answer from being "safe". A text that is certainly incomplete is refused.

Source: TopicCommand.java, trunk of 2024-10-25: a topic has its own line with its partition count
unless only some partitions were requested; each line ends with a line break.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from isrlab.engine.versions import GENERATIONS, KafkaVersion
from isrlab.events.wording import counted, printable
from isrlab_ops.check import quorum
from isrlab_ops.check.describe import DescribedPartition, TopicsDescription, described, racks_of

NO_LEADER = -1
ANY = (0, 8, 2)  # the oldest known release
SHOWS_MOVES, SHOWS_IDS, SHOWS_ELR = (2, 4), (2, 8), (3, 7)  # the first release that shows them
SHOWS_BROKERS_SETTINGS = (3, 0)  # 2.8 with --zookeeper shows only a topic's own
NOISE = re.compile(  # what a JVM or its logger may print first
    r"line \d+: .(\[?\d{4}-\d\d-\d\d[ T]|"
    r"(?:WARN|INFO|DEBUG|SLF4J|WARNING|NOTE|Picked up|OpenJDK|log4j)\b|"
    r"Default(?:ed|ing) container |Use 'kubectl |Unable to use a TTY|If you don't see a)"
)  # the last line: what kubectl exec and kubectl run print first
HELD = re.compile(r"(\S+)/(\d+) (?:will be|is already) under-replicated \(.*if broker (\d+) is re")


class CheckError(ValueError):
    """Why there is no answer: one printable sentence."""

    def __init__(self, text: object) -> None:
        super().__init__(printable(str(text)))


@dataclass(frozen=True)
class ClusterState:
    """`racks`: the rack of every known broker, "" without one. `alive`: up, unfenced, not shutting
    down. `versions`: the rules that may apply, one if release and mode are known. `past`, for
    `exposed`: emptied replicas, whether the creation was read, and replicas without their log.
    `quorum`: the voters, as a partition (quorum.py). `held`: brokers that Strimzi does not restart,
    and why. `cordoned`: brokers all of whose log directories are; None: the source hides it."""

    source: str
    partitions: list[DescribedPartition]
    racks: dict[int, str]
    alive: frozenset[int]
    versions: tuple[KafkaVersion, ...]
    settings: dict[tuple[str, str], str] = field(default_factory=dict)  # by topic or broker, name
    past: dict[tuple[str, int], tuple[Any, ...]] = field(default_factory=dict)
    has_elr: bool = False  # the feature is on, or some ELR is not empty
    shows_moves: bool = True
    is_kraft: bool | None = None  # None: the source does not show it
    unsure: tuple[str, ...] = ()  # these keep any answer from being "safe"
    unseen: str = ""  # what this source never shows
    quorum: DescribedPartition | None = None
    held: dict[int, str] = field(default_factory=dict)
    cordoned: frozenset[int] | None = None

    @property
    def zones(self) -> dict[str, frozenset[int]]:
        """The brokers of each zone, none if no zone is known."""
        names = sorted({rack for rack in self.racks.values() if rack})
        return {n: frozenset(b for b, rack in self.racks.items() if rack == n) for n in names}

    @property
    def nodes(self) -> frozenset[int]:
        """All brokers and voters."""
        return frozenset({*self.racks, *(self.quorum.replicas if self.quorum else ())})

    def require(self, brokers: Iterable[int]) -> frozenset[int]:
        """These brokers, as a set. Raises CheckError for an unknown one."""
        wanted = frozenset(brokers)
        if unknown := sorted(wanted - self.nodes):
            known = ", ".join(map(str, sorted(self.nodes)[:12]))
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
    return dict.fromkeys(sorted({b for p in partitions for b in (*p.replicas, *p.isr, *p.elr)}), "")


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
        voters, nodes, is_behind, others = quorum.shown_in(text)
        description = described(others)
        if wrong := next(_missing(others, description), None):
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
        p._replace(min_isr=p.min_isr or 1, unclean=bool(p.unclean)) if p.topic in defaults else p
        for p in description.partitions
    ]
    in_sync = frozenset(b for p in partitions if p.leader != NO_LEADER for b in p.isr)
    if nodes and (missing := sorted(in_sync - nodes)):
        raise CheckError(f"the table of the quorum lacks broker {missing[0]}: it may be cut")
    unsure = "the text has no line of a topic, so partitions may be missing: describe without "
    unsure += "--under-replicated-partitions and similar options"
    settings = {(topic, name): "set" for topic, own in topics.items() for name in own.throttles}
    return ClusterState(
        "kafka-topics --describe", partitions, brokers_of(partitions), in_sync, versions, settings,
        has_elr=has_elr, shows_moves=versions[0].first >= SHOWS_MOVES,
        is_kraft=has_elr or voters is not None or None,
        unsure=(quorum.BEHIND,) * is_behind + (unsure,) * (not topics), quorum=voters,
        unseen="brokers without a replica, topics that are not in the text, brokers' throttles"
        + ", whether eligible leader replicas are on" * (not has_elr),
        held={int(m[3]): f"{m[1]}-{m[2]}" for m in HELD.finditer(text)},
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
    return (replace(known, name=version),)


def with_options(
    state: ClusterState, min_isr: int | None = None, zones: str = "",
    unclean: bool | None = None, zookeeper: bool | None = None, *, voters: str = "",
) -> ClusterState:  # fmt: skip
    """The state with the operator's options: min.insync.replicas where it is not shown, unclean
    election, the zone of each broker, the mode, and voters: "1,2,3", "none", or a text that has
    them. Raises CheckError for zones or voters that do not match, and for ZooKeeper without it."""
    if zookeeper and state.is_kraft:
        raise CheckError("this cluster runs KRaft, not ZooKeeper")
    is_kraft = state.is_kraft if zookeeper is None else not zookeeper
    versions = [v for v in state.versions if not v.kraft or is_kraft is not False]
    if not is_kraft:  # 3.3 to 3.9 have both
        versions += [v.with_(kraft=False) for v in state.versions if v.kraft and v.last < (4, 0)]
    if not versions:
        raise CheckError("Kafka 4 has no ZooKeeper")
    partitions = [p._replace(
        min_isr=min_isr if p.min_isr is None else p.min_isr,
        unclean=p.unclean if unclean is None else unclean,
    ) for p in state.partitions]  # fmt: skip
    try:
        racks = racks_of(zones, set(state.racks)) if zones else state.racks
        voting, more = _quorum(replace(state, versions=tuple(versions)), voters)
    except ValueError as error:
        raise CheckError(error) from None
    state.require(racks)
    unsure = state.unsure + more
    heeds = any(not v.kraft or v.kraft_elects_uncleanly for v in versions)
    unclear = {p.topic for p in partitions if p.unclean is None and heeds}
    unset = {p.topic for p in partitions if p.min_isr is None}
    for what, topics in (("min.insync.replicas (--min-isr)", unset),
                         ("unclean election (--unclean, --no-unclean)", unclear)):  # fmt: skip
        names = min(topics, default="") + f" and {len(topics) - 1} more" * (len(topics) > 1)
        unsure += (f"{what} of topic {names} is not shown",) * bool(topics)
    return replace(
        state, partitions=partitions, racks=racks, versions=tuple(versions), unsure=unsure,
        quorum=voting,
    )  # fmt: skip


def _quorum(state: ClusterState, voters: str) -> tuple[DescribedPartition | None, tuple[str, ...]]:
    """The quorum, without voters that may be down; and what is not known of it."""
    is_behind, can_be = False, any(v.kraft for v in state.versions)
    if voters == "none" or not can_be:
        given: DescribedPartition | None = quorum.NONE
    elif re.fullmatch(r"\d{1,9}(,\d{1,9})*", voters):
        given = quorum.of_voters({*map(int, voters.split(","))})
    else:
        given, _, is_behind, _ = quorum.shown_in(voters)
        if voters and not given:
            raise ValueError(f"--voters {voters!r:.40} is no list such as 1,2,3, none, or a file")
    if voters and given and state.quorum and given.replicas != state.quorum.replicas:
        raise ValueError(f"--voters contradicts the voters of the {state.source}")
    if (shown := state.quorum or given) is None:
        return None, (quorum.NOT_SHOWN,)
    is_apart = shown.leader >= 0 or state.racks.keys().isdisjoint(shown.replicas)
    up = (b for b in shown.isr if b in state.alive or (is_apart and b not in state.racks))
    return shown._replace(isr=tuple(up)), (quorum.BEHIND,) * is_behind
