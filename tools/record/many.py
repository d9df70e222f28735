"""Many topics of one cluster under one schedule: each is a try of its own.

The controller decides each partition by itself, so ten topics that are moved in one request, and
whose leader is killed with one signal, are ten tries of one schedule. They share the moment of the
kill and the throttle: how much of each its followers have copied by then differs. A topic belongs
to a group, which is treated in one way; its name is the group and a number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from isrlab.world.reassigned import TopicMoment, TopicTry
from record import config
from record.cluster import Cluster
from record.inside import Stored

VALUE_BYTES = 64_000
SLOW, FREE = 20_000, 1_000_000_000  # bytes a second of a throttle
NEWS = "using ELR", "below high watermark"  # what is kept of the logs


@dataclass
class Group:
    """`watched`: the partition that has records, and is what a try is about."""

    name: str
    replicas: tuple[int, ...]
    tries: int
    partitions: int = 1
    min_isr: int = 2
    tries_of: list[TopicTry] = field(default_factory=list)

    @property
    def watched(self) -> int:
        return self.partitions - 1

    @property
    def topics(self) -> list[str]:
        return [f"{self.name}{number}" for number in range(self.tries)]


class Many:
    """The groups of topics on one cluster, and what became of them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.groups = cluster, list[Group]()
        self.tries: dict[str, TopicTry] = {}
        self.acknowledged: dict[str, set[str]] = {}  # the names of records, by topic
        self._producer: Producer | None = None

    def create(self, *groups: Group) -> None:
        new, settings = list[NewTopic](), {"follower.replication.throttled.replicas": "*"}
        for group in groups:
            text = {**settings, "min.insync.replicas": str(group.min_isr)}
            assigned = [list(group.replicas)] * group.partitions
            new += [NewTopic(topic, num_partitions=len(assigned), replica_assignment=assigned,
                             config=text) for topic in group.topics]  # fmt: skip
        admin = AdminClient(self.cluster.client())
        for answer in admin.create_topics(new).values():
            answer.result(60)
        for group in groups:
            for topic in group.topics:
                self.tries[topic] = TopicTry(group.name, topic, group.watched)
        self.groups += groups
        self.note(f"create {', '.join(f'{len(g.topics)} topics {g.name}' for g in groups)}")

    def note(self, text: str) -> None:
        self.cluster.note(text)
        print(f"{self.cluster.timeline[-1][0]:7.1f} {text}", flush=True)

    def places(self, groups: Iterable[Group]) -> list[tuple[str, int]]:
        return [(topic, group.watched) for group in groups for topic in group.topics]

    def produce(self, groups: Iterable[Group], count: int) -> None:
        """So many records with acks=all to each watched partition; what was acknowledged counts."""
        places = self.places(groups)
        for number in range(count):
            self.send(groups, number, VALUE_BYTES).flush(90)
        numbers = sorted({len(self.acknowledged[topic]) for topic, _ in places})
        self.note(f"{numbers} of {count} records of {VALUE_BYTES} bytes acknowledged in each")

    def send(self, groups: Iterable[Group], number: int, size: int) -> Producer:
        """The record of that number to each watched partition; its producer, to be flushed."""
        options = {"acks": "all", "enable.idempotence": False, "linger.ms": 0,
                   "request.timeout.ms": 90_000, "message.timeout.ms": 120_000}  # fmt: skip
        if self._producer is None:
            self._producer = Producer({**self.cluster.client(), **options})
        for topic, partition in self.places(groups):
            known, name = self.acknowledged.setdefault(topic, set()), f"{number:05d}"
            self._producer.produce(
                topic, name.encode().ljust(size, b"."), partition=partition,
                on_delivery=lambda error, _, known=known, name=name: (
                    None if error else known.add(name)))  # fmt: skip
        return self._producer

    def reassign(self, wanted: Mapping[str, str], groups: Iterable[Group]) -> None:
        """`wanted`: for each partition its brokers, or "cancel"; of all groups in one request."""
        words = [f"{topic}-{number}={ids}" for group in groups for topic in group.topics
                 for number, ids in wanted.items()]  # fmt: skip
        names = ", ".join(group.name for group in groups)
        self.note(f"reassign {dict(wanted)} of {names}: {self.cluster.ask('reassign', *words)}")

    def throttle(self, bytes_a_second: int, *brokers: int) -> None:
        name = "follower.replication.throttled.rate"
        for broker in brokers or self.cluster.live():
            self.configure(ResourceType.BROKER, [str(broker)], name, str(bytes_a_second))

    def configure(self, kind: ResourceType, names: Iterable[str], name: str, value: str) -> None:
        """Set a setting of topics or brokers one broker at a time."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        asked = [ConfigResource(kind, of, incremental_configs=[entry]) for of in names]
        admin = AdminClient(self.cluster.client())
        for answer in admin.incremental_alter_configs(asked).values():
            answer.result(60)
        self.note(f"{name}={value} of {kind.name.lower()} {', '.join(of.name for of in asked)!r}")

    def until(self, groups: Iterable[Group], holds: Callable[[Stored], bool], text: str,
              wait_s: float = 90) -> bool:  # fmt: skip
        """Wait until it holds for each watched partition; noted, also if it did not come."""
        end, places = time.monotonic() + wait_s, self.places(groups)
        while True:
            known = self.cluster.all_stored()
            number = sum(holds(known.get(place, Stored())) for place in places)
            if number == len(places) or time.monotonic() > end:
                self.note(f"{text}: {number} of {len(places)}")
                return number == len(places)
            time.sleep(0.5)

    def look(self, name: str, groups: Iterable[Group], *, disks: bool = True) -> None:
        """What is stored of each watched partition, and how many records each broker has."""
        known, cluster = self.cluster.all_stored(), self.cluster
        for topic, number in self.places(groups):
            stored = known[topic, number]
            held = {
                n: len(cluster.disk(n, topic, number).records)
                for n in cluster.brokers
                if disks and (cluster.home(n) / "data" / f"{topic}-{number}").exists()
            }
            at_s = round(time.time() - cluster.began, 1)
            self.tries[topic].moments.append(
                TopicMoment(name, at_s, stored.replicas, stored.adding, stored.leader,
                       stored.leader_epoch, stored.isr, stored.elr, held))  # fmt: skip
        self.note(f"looked: {name}")

    def finish(self, groups: Iterable[Group]) -> None:
        """What is lost, of what was acknowledged, when all has settled; and the lines about it."""
        ids = self.cluster.topic_ids()
        for topic, number in self.places(groups):
            seen = self.tries[topic]
            left: set[str] = set()
            for broker in self.cluster.live():
                disk = self.cluster.disk(broker, topic, number)
                left |= {text[:5] for _, text, _ in disk.records}
            seen.acknowledged = len(self.acknowledged[topic])
            seen.lost = len(self.acknowledged[topic] - left)
            about = f"{topic}-{number} ", f"topicId {ids[topic]}, partition {number} "
            said = (
                f"{broker} {line}" for broker in (*self.cluster.brokers, config.CONTROLLER)
                for name in ("server", "controller") for line in self.cluster.said(broker, name)
                if any(word in line for word in NEWS) and any(word in line for word in about)
            )  # fmt: skip
            seen.lines = [line.replace(str(self.cluster.folder), "/kafka") for line in said]
