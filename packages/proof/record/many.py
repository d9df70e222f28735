"""Many topics of one cluster under one schedule: each is a try of its own.

The controller decides each partition by itself, so ten topics that are moved in one request, and
whose leader is killed with one signal, are ten tries of one schedule. They share the moment of the
kill and the throttle: how much of each its followers have copied by then differs. A topic belongs
to a group, which is treated in one way; its name is the group and a number.
"""

from __future__ import annotations

import lzma
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from isrlab_ops.recordings.reassigned import FOLDER, ClusterRun, TopicMoment, TopicTry
from record import config, inside
from record.cluster import Cluster
from record.inside import Stored

VALUE_BYTES = 64_000
SLOW, FREE = 20_000, 1_000_000_000  # bytes/s of a throttle
OPTIONS = {"enable.idempotence": False, "linger.ms": 0,
           "request.timeout.ms": 90_000, "message.timeout.ms": 120_000}  # fmt: skip
NEWS = "using ELR", "below high watermark"  # log lines with these are kept


@dataclass
class Group:
    """Topics treated alike; `watched`: the partition with records, whose fate is a try's result."""

    name: str
    replicas: tuple[int, ...]
    tries: int
    partitions: int = 1
    min_isr: int = 2
    acks: str = "all"
    size: int = VALUE_BYTES  # of a record
    settings: dict[str, str] = field(
        default_factory=lambda: {"follower.replication.throttled.replicas": "*"}
    )

    @property
    def watched(self) -> int:
        return self.partitions - 1

    @property
    def topics(self) -> list[str]:
        return [f"{self.name}{number}" for number in range(self.tries)]


class Many:
    """The groups of topics on one cluster, and their results."""

    def __init__(self, cluster: Cluster, *, is_apart: bool = False) -> None:
        """`is_apart`: each topic has a producer of its own. A broker reads no further request from
        a connection while one waits for followers, so topics that share a producer wait in turn.
        """
        self.cluster, self.groups, self.is_apart = cluster, list[Group](), is_apart
        self.tries: dict[str, TopicTry] = {}
        self.acknowledged: dict[str, set[str]] = {}  # the names of records, by topic
        self.longest_s = 0.0  # of all produces that were answered
        self._producers: dict[tuple[str, str], Producer] = {}

    def create(self, *groups: Group) -> None:
        new = list[NewTopic]()
        for group in groups:
            text = {**group.settings, "min.insync.replicas": str(group.min_isr)}
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
        """Send `count` records to each watched partition, and note the acknowledged ones."""
        groups = list(groups)
        for number in range(count):
            for producer in self.send(groups, number):
                producer.flush(90)
        numbers = sorted({len(self.acknowledged[topic]) for topic, _ in self.places(groups)})
        self.note(f"{numbers} of {count} records acknowledged in each")

    def send(
        self, groups: Iterable[Group], number: int, size: int | None = None, acks: str = ""
    ) -> list[Producer]:
        """Send the record with this number to each watched partition; returns producers to flush.
        Records sent with `acks` given do not count as acknowledged."""
        used = dict[tuple[str, str], Producer]()

        def on_delivery(error: object, message: Message, known: set[str], name: str) -> None:
            self.longest_s = max(self.longest_s, message.latency() or 0)
            if not error:
                known.add(name)

        for group in groups:
            for topic, partition in self.places([group]):
                chosen = acks or group.acks, topic if self.is_apart else ""
                if chosen not in self._producers:
                    self._producers[chosen] = Producer(
                        {**self.cluster.client(), **OPTIONS, "acks": chosen[0]}
                    )
                producer = used[chosen] = self._producers[chosen]
                known, name = self.acknowledged.setdefault(topic, set()), f"{number:05d}"
                known = set() if acks else known
                producer.produce(
                    topic, name.encode().ljust(size or group.size, b"."), partition=partition,
                    on_delivery=partial(on_delivery, known=known, name=name))  # fmt: skip
                producer.poll(0)
        return list(used.values())

    @contextmanager
    def load(self, groups: Iterable[Group], first: int, every_s: float) -> Iterator[None]:
        """While the block runs, send records to each watched partition, numbered from `first`."""
        over, groups = threading.Event(), list(groups)

        def feed() -> None:
            number, began = first, time.monotonic()
            while not over.is_set():
                self.send(groups, number)
                number += 1
                over.wait(max(0, began + (number - first) * every_s - time.monotonic()))

        thread = threading.Thread(target=feed, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def reassign(self, wanted: Mapping[str, str], groups: Iterable[Group]) -> None:
        """Send one request for all groups; `wanted`: the brokers of each partition, or "cancel"."""
        words = [f"{topic}-{number}={ids}" for group in groups for topic in group.topics
                 for number, ids in wanted.items()]  # fmt: skip
        names = ", ".join(group.name for group in groups)
        self.note(f"reassign {dict(wanted)} of {names}: {self.cluster.ask('reassign', *words)}")

    def throttle(self, bytes_a_second: int, *brokers: int) -> None:
        name = "follower.replication.throttled.rate"
        for broker in brokers or self.cluster.live():
            self.configure(ResourceType.BROKER, [str(broker)], name, str(bytes_a_second))

    def configure(self, kind: ResourceType, names: Iterable[str], name: str, value: str) -> None:
        """Set a setting of topics, or of one broker, in one request."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        asked = [ConfigResource(kind, of, incremental_configs=[entry]) for of in names]
        for left in reversed(range(9)):  # the broker that a client asks may be paused
            admin = AdminClient(self.cluster.client())
            answers = admin.incremental_alter_configs(asked, request_timeout=4).values()
            try:
                for answer in answers:
                    answer.result(60)
                break
            except KafkaException:
                if not left:
                    raise
        self.note(f"{name}={value} of {kind.name.lower()} {', '.join(of.name for of in asked)!r}")

    def until(self, groups: Iterable[Group], holds: Callable[[Stored], bool], text: str,
              wait_s: float = 90) -> bool:  # fmt: skip
        """Wait until a condition holds for each watched partition; note whether it did."""
        end, places = time.monotonic() + wait_s, self.places(groups)
        while True:
            known = self.cluster.all_stored()
            number = sum(holds(known.get(place, Stored())) for place in places)
            if number == len(places) or time.monotonic() > end:
                self.note(f"{text}: {number} of {len(places)}")
                return number == len(places)
            time.sleep(0.5)

    def look(self, name: str, groups: Iterable[Group], *, disks: bool = True) -> None:
        """Note the stored state of each watched partition, and each broker's number of records."""
        known, cluster = self.cluster.all_stored(), self.cluster
        for topic, number in self.places(groups):
            stored = known[topic, number]
            held = {
                n: len(cluster.disk(n, topic, number).records)
                for n in cluster.brokers
                if disks and (cluster.home(n) / "data" / f"{topic}-{number}").exists()
            }
            at_s = round(time.time() - cluster.began, 1)
            self.tries[topic].moments.append(moment(name, at_s, stored, held))
        self.note(f"looked: {name}")

    def changes(self, groups: Iterable[Group]) -> None:
        """Note each state of the watched partitions that the controller stored, with its time."""
        rows = inside.changes_in(self.cluster.home(config.CONTROLLER) / "data")
        places = dict(self.places(groups))
        for ts_ms, (topic, number), stored in rows:
            if places.get(topic) == number:
                at_s = round(ts_ms / 1000 - self.cluster.began, 3)
                self.tries[topic].moments.append(moment("stored", at_s, stored, {}))

    def finish(self, groups: Iterable[Group]) -> None:
        """Note acknowledged records that are lost once all has settled, and log lines about it."""
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

    def run(self, settings: Mapping[str, str], elr: int = 1) -> ClusterRun:
        """The recording of the cluster."""
        cluster = self.cluster
        began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(cluster.began))
        timeline = [(round(at, 1), text) for at, text in cluster.timeline]
        return ClusterRun(cluster.version, elr, began, cluster.brokers, dict(settings), timeline,
                          list(self.tries.values()))  # fmt: skip


def moment(name: str, at_s: float, stored: Stored, held: dict[int, int]) -> TopicMoment:
    return TopicMoment(name, at_s, stored.replicas, stored.adding, stored.leader,
                       stored.leader_epoch, stored.isr, stored.elr, held)  # fmt: skip


def report(made: ClusterRun, name: str, *, is_stored: bool, folder: Path = FOLDER) -> None:
    """Print how the tries ended; store them as a file of that name."""
    for seen in made.tries:
        moments = (f"{m.name}: leader {m.leader} isr {m.isr} elr {m.elr} {m.held}"
                   for m in seen.moments)  # fmt: skip
        print(seen.topic, seen.word, f"{seen.lost} of {seen.acknowledged}", *moments, sep="; ")
    if is_stored:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json.xz").write_bytes(lzma.compress(msgspec.json.encode(made)))
