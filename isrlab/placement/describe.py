"""Partitions out of what `kafka-topics --describe` prints, from 0.8.0 to 4.x.

Source: ListTopicCommand 0.8.0, TopicCommand 0.8.1 to 3.9 (small letters in 0.8.0; Elr and
LastKnownElr since 3.8; a reassignment has more fields). Blanks instead of tabs are fine. From
2.2 on the line of a topic also tells what its brokers' files set; before, a topic's own only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_IDS = r"\d{1,10}(?:,\d{1,10})*"
_PARTITION = re.compile(  # blanks in a row are one by then
    r"topic: ?(?P<topic>\S+) partition: ?(?P<number>\d{1,9}) leader: ?(?P<leader>\S+)"
    rf" replicas: ?(?P<replicas>{_IDS}) isr:(?: ?(?P<isr>{_IDS}))?(?P<rest>(?: [a-z].*)?)",
    re.IGNORECASE,
)
_TOPIC = re.compile(r"topic: ?(?P<topic>\S+) .*configs:(?P<configs>.*)", re.IGNORECASE)
_MIN_ISR = re.compile(r"\bmin\.insync\.replicas=(\d{1,9})\b")
_ELR = re.compile(rf"\bElr: ?({_IDS})")
EXAMPLE = "Topic: orders  Partition: 0  Leader: 1  Replicas: 1,2,3  Isr: 1,2,3"


class Partition(NamedTuple):
    """One partition: brokers that hold it, of these the ISR and the eligible leader replicas."""

    name: str
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    min_isr: int = 1


def describe(text: str, min_isr: int = 1) -> list[Partition]:
    """The partitions; `min_isr` of topics whose line names none.

    Raises ValueError with the line that cannot be, or with an example if none is a partition.
    """
    partitions = list(_partitions(text, min_isr))
    if not partitions:
        raise ValueError(f"no line of a partition, such as '{EXAMPLE}', in {text[:80]!r}")
    names = {partition.name for partition in partitions}
    if len(names) < len(partitions):
        raise ValueError(f"{len(partitions) - len(names)} partitions are there twice")
    return partitions


def _partitions(text: str, min_isr: int) -> Iterator[Partition]:
    least: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = " ".join(line.split())
        if match := _PARTITION.fullmatch(line):
            topic = match["topic"]
            elr = _ELR.search(match["rest"])
            replicas, isr, eligible = map(_ids, (match["replicas"], match["isr"], elr and elr[1]))
            if len({*replicas}) < len(replicas) or not {*isr, *eligible} <= {*replicas}:
                raise ValueError(f"line {number}: these replicas cannot be: {line[:120]!r}")
            name = f"{topic}-{match['number']}"
            yield Partition(name, replicas, isr, eligible, least.get(topic, min_isr))
        elif match := _TOPIC.match(line):
            if its_own := _MIN_ISR.search(match["configs"]):
                least[match["topic"]] = int(its_own[1])
        elif "partition:" in (small := line.lower()) and "replicas:" in small:
            raise ValueError(f"line {number}: {line[:120]!r} is not like '{EXAMPLE}'")


def _ids(text: str | None) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


def racks_of(text: str, brokers: set[int]) -> dict[int, str]:
    """The rack of each broker out of "1=a, 2=b"; "" of all if the text is empty.

    Raises ValueError for another form, and for brokers without a rack if others have one.
    """
    pairs = [part.split("=") for part in re.split(r"[,\s]+", text) if part]
    for pair in pairs:
        if len(pair) != 2 or not pair[0].isdecimal() or not pair[1]:
            raise ValueError(f"{'='.join(pair)!r} is no rack of a broker, such as 1=a")
    racks = {int(broker): rack for broker, rack in pairs}
    if racks and (missing := sorted(brokers - racks.keys())):
        raise ValueError(f"no rack is given for broker {missing[0]}")
    return racks or dict.fromkeys(sorted(brokers), "")
