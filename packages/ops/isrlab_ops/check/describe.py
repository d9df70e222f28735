"""Partitions from the output of `kafka-topics --describe`, of releases 0.8.0 to 4.x.

Source: ListTopicCommand 0.8.0, TopicCommand 0.8.1 to 4.x (small letters in 0.8.0; Elr and
LastKnownElr since 3.8; a reassignment adds fields). Tabs may have become blanks. From 2.2 on the
line of a topic also has settings from its brokers' files; before, only the topic's own.
"""

import re
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from isrlab.events.wording import counted

_IDS = r"\d{1,10}(?:,\d{1,10})*"
_PARTITION = re.compile(  # of a line in which each run of blanks is one blank
    r"topic: ?(?P<topic>\S+) partition: ?(?P<number>\d{1,9}) leader: ?(?P<leader>\S+)"
    rf" replicas: ?(?P<replicas>{_IDS}) isr:(?: ?(?P<isr>{_IDS}))?(?P<rest>(?: [a-z].*)?)",
    re.IGNORECASE,
)
_REST = re.compile(  # further fields; one without a value is an empty list
    r"(?: Adding Replicas:(?P<adding>.*?) Removing Replicas:(?P<removing>.*?))?"
    rf"(?: Elr:(?: ?(?P<elr>{_IDS}|N/A))? LastKnownElr:(?: ?(?P<last>{_IDS}|N/A))?)?"
    rf"(?: MarkedForDeletion: true)?(?: Offline:(?: ?{_IDS})?)?"
)
_TOPIC = re.compile(
    r"Topic:(?P<blank> ?)(?P<topic>\S+)(?P<id> TopicId: ?\S+)? PartitionCount: ?(?P<count>\d{1,9})"
    r" ReplicationFactor: ?\d+ Configs:(?P<configs>.*)"
)
_MIN_ISR = re.compile(r"(?:^|[ ,])min\.insync\.replicas=(\d{1,9})(?=[ ,]|$)")
_UNCLEAN = re.compile(r"(?:^|[ ,])unclean\.leader\.election\.enable=(true|false)(?=[ ,]|$)")
_NEARLY_MIN_ISR = re.compile(r"min\.in|sync\.replicas")  # with a missing or a wrong letter
_NEARLY_UNCLEAN = re.compile(r"unclean\.leader|election\.enable")
_THROTTLED = re.compile(r"(?:^|[ ,])((?:leader|follower)\.replication\.throttled\.replicas)=.")
_NO_LEADER = ("none", "-1")
EXAMPLE = "Topic: orders  Partition: 0  Leader: 1  Replicas: 1,2,3  Isr: 1,2,3"


class DescribedPartition(NamedTuple):
    """A partition; `leader` is -1 if there is none, a setting None if it is not known."""

    topic: str
    number: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    min_isr: int | None = None
    unclean: bool | None = None

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.number}"

    @property
    def is_odd(self) -> bool:
        """Whether the ISR has a broker that is no replica, as in KAFKA-9672."""
        return not {*self.isr} <= {*self.replicas}


class DescribedTopic(NamedTuple):
    """The line of a topic. `shows_all`: also brokers' settings, so those absent have defaults.
    `throttles`: the settings that throttle some of its replicas."""

    partition_count: int
    min_isr: int | None
    unclean: bool | None
    shows_all: bool
    throttles: tuple[str, ...]


class TopicsDescription(NamedTuple):
    """`forms`: the layouts of partition lines and topic lines; one tool prints one of each. Their
    last two flags: the line has an Elr field or a TopicId, and the brokers filled it. `others`: all
    other lines that are not empty."""

    partitions: list[DescribedPartition]
    topics: dict[str, DescribedTopic]
    forms: set[tuple[str, bool, bool, bool]]
    others: list[str]


def described(text: str) -> TopicsDescription:
    """All partitions, topics and other lines of the text. Raises ValueError with the wrong line."""
    description = TopicsDescription([], {}, set(), [])
    for number, line in enumerate(text.splitlines(), 1):
        line = " ".join(line.split())
        try:
            if match := _PARTITION.fullmatch(line):
                _add_partition(description, match)
            elif match := _TOPIC.match(line):
                _add_topic(description, match)
            elif "partition:" in (small := line.lower()) and "replicas:" in small:
                raise ValueError(f"not like '{EXAMPLE}'")
            elif line:
                description.others.append(f"line {number}: {line[:120]!r}")
        except ValueError as error:
            raise ValueError(f"line {number} is {error}: {line[:160]!r}") from None
    names = Counter(partition.name for partition in description.partitions)
    if not names:
        raise ValueError(f"no line of a partition, such as '{EXAMPLE}', in {text[:80]!r}")
    if twice := [name for name, count in names.items() if count > 1]:
        raise ValueError(f"{counted(len(twice), 'partition')} listed twice: {twice[0]}")
    return description


def _add_partition(description: TopicsDescription, match: re.Match[str]) -> None:
    rest, leader = _REST.fullmatch(match["rest"]), match["leader"]
    if rest is None or not (leader.isdecimal() or leader in _NO_LEADER):
        raise ValueError(f"not like '{EXAMPLE}'")
    leads = -1 if leader in _NO_LEADER else int(leader)
    replicas, isr = _ids(match["replicas"]), _ids(match["isr"])
    elr, last, added, removed = map(_ids, rest.group("elr", "last", "adding", "removing"))
    replicas = (*(b for b in added if b not in replicas), *replicas)  # the move has just begun
    is_whole = len({*replicas}) == len(replicas) and len({*isr}) == len(isr)
    is_moved_away = not {*removed} < {*replicas} or not {*removed}.isdisjoint(added)
    has_elr = " Elr:" in match["rest"]
    is_filled = has_elr and rest["elr"] != "N/A"
    is_odd = is_filled and not {*isr} <= {*replicas}  # without ZooKeeper, which permits it
    if not is_whole or is_moved_away or is_odd or leads not in (-1, *isr):
        raise ValueError("impossible for its replicas")
    topic, number = match["topic"], int(match["number"])
    own = known[1:3] if (known := description.topics.get(topic)) else ()
    description.partitions.append(
        DescribedPartition(topic, number, leads, replicas, isr, elr, last, added, removed, *own)
    )
    description.forms.add(("partition", match[0].startswith("topic"), has_elr, is_filled))


def _add_topic(description: TopicsDescription, match: re.Match[str]) -> None:
    configs, shows_all = match["configs"].strip(), match["id"] is not None
    least, unclean = _MIN_ISR.search(configs), _UNCLEAN.search(configs)
    is_altered = (least is None and _NEARLY_MIN_ISR.search(configs)) or (
        unclean is None and _NEARLY_UNCLEAN.search(configs)
    )
    if configs.endswith((",", "=")) or is_altered:
        raise ValueError("cut off, or has no value for min.insync.replicas or unclean election")
    if match["topic"] in description.topics:
        raise ValueError("about a topic that is described twice")
    description.topics[match["topic"]] = DescribedTopic(
        int(match["count"]), int(least[1]) if least else None,
        unclean[1] == "true" if unclean else None, shows_all, tuple(_THROTTLED.findall(configs)),
    )  # fmt: skip
    description.forms.add(("topic", not match["blank"], shows_all, shows_all))


def settings_of(least: str | None, unclean: str | None) -> tuple[int | None, bool | None]:
    """The values of min.insync.replicas and unclean election, None where they are not set."""
    count = int(least) if least and least.isdecimal() else None
    return count, unclean == "true" if unclean else None


@lru_cache(10_000)
def _ids(text: str | None) -> tuple[int, ...]:
    """The ids in a list of numbers, or of nodes as 2.4 prints them; "N/A" has none."""
    return tuple(
        map(int, re.findall(r"\(id: (\d+) ", text or "") or re.findall(r"\d+", text or ""))
    )


def racks_of(text: str, brokers: set[int]) -> dict[int, str]:
    """The rack of each broker from a text such as "1=a, 2=b"; "" for all if the text is empty.

    Raises ValueError for another form, and for brokers without a rack if others have one.
    """
    pairs = [part.split("=") for part in re.split(r"[,\s]+", text) if part]
    for pair in pairs:
        if len(pair) != 2 or not pair[0].isdecimal() or not pair[1]:
            raise ValueError(f"{'='.join(pair)!r} is not a rack assignment such as 1=a")
    racks = {int(broker): rack for broker, rack in pairs}
    if racks and (missing := sorted(brokers - racks.keys())):
        raise ValueError(f"no rack is given for broker {missing[0]}")
    return racks or dict.fromkeys(sorted(brokers), "")
