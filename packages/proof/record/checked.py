"""The predictions of `isrlab check` for a stop, compared with what real brokers then do.

python -m record.checked 4.3.1 --states 6        in the folder packages/proof

Six brokers in three zones, with topics of one to four replicas, some with a min ISR that needs all
of them. In each drawn state up to two brokers are dead; in most, partitions move under a throttle.
kafka-topics describes it. Up to three brokers, some that may go down and some that block, are shut
down one after another; a record with acks=all is sent to each partition, and the broker comes back.
A file keeps the text, what kafka-topics lists by its own options, which partitions refused the
record, and what the controller had stored. tests/ops/test_check_real.py predicts all of it again.
"""

from __future__ import annotations

import lzma
import random
import subprocess
import time
from pathlib import Path

import click
import msgspec
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from isrlab_ops.check import cluster as described
from isrlab_ops.check import stored
from isrlab_ops.check.outcome import Shapes
from judge import jars
from record import config
from record.cluster import Cluster

FOLDER = Path(__file__).parents[3] / "data" / "check"
BROKERS = (1, 2, 3, 4, 5, 6)
RACKS = dict(zip(BROKERS, "abcabc", strict=True))
LISTS = ("under-replicated", "under-min-isr", "at-min-isr", "unavailable")
SLOW = 5_000  # bytes/s of the throttle
SETTINGS = {"replica.lag.time.max.ms": 4_000, "broker.session.timeout.ms": 4_000,
            "broker.heartbeat.interval.ms": 500, "replica.fetch.max.bytes": 30_000}  # fmt: skip
PROBE_S = 10
FOLLOWER_RATE = "follower.replication.throttled.rate"
FOLLOWER_LIST = "follower.replication.throttled.replicas"


class Trial(Cluster):
    """A cluster with its topics, and the requests to it."""

    def __init__(self, version: str, seed: int) -> None:
        own = {number: {"broker.rack": rack} for number, rack in RACKS.items()}
        super().__init__(version, BROKERS, SETTINGS, own=own, kraft=True)
        self.draw = random.Random(seed)
        self.topics: dict[str, list[list[int]]] = {}

    def topics_command(self, *words: str) -> str:
        """The output of kafka-topics --describe with these options."""
        servers = self.client()["bootstrap.servers"]
        path = jars.classpath(self.version, tools)
        command = ["java", "-Xmx128m", *config.JAVA, "-cp", ":".join(path),
                   "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", servers,
                   "--describe", *words]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout

    def make_topics(self, count: int) -> None:
        new = []
        for number in range(count):
            copies = self.draw.choice((1, 2, 2, 3, 3, 3, 3, 4, 4, 4))
            spare = self.draw.choice((0, 1, 1, 1, 2, 2, 2, 2, 2, 2))
            settings = {"min.insync.replicas": str(max(1, copies - spare))}
            if self.draw.random() < 0.15:
                settings["unclean.leader.election.enable"] = "true"
            ids = [self.draw.sample(BROKERS, copies) for _ in range(self.draw.randint(1, 2))]
            self.topics[f"t{number:02d}"] = ids
            new.append(
                NewTopic(f"t{number:02d}", len(ids), replica_assignment=ids, config=settings)
            )
        admin = AdminClient(self.client())  # it must outlive its answers
        for answer in admin.create_topics(new).values():
            answer.result(60)
        time.sleep(4)
        for _ in range(50):
            self.send(20_000)

    def send(self, size: int = 10) -> set[str]:
        """Send each partition a record with acks=all; return those that refused."""
        options = {"acks": "all", "message.timeout.ms": PROBE_S * 1000, "linger.ms": 0,
                   "request.timeout.ms": 5_000, "enable.idempotence": False}  # fmt: skip
        producer, refused = Producer({**self.client(), **options}), set[str]()
        for topic, ids in self.topics.items():
            for number in range(len(ids)):
                producer.produce(
                    topic, b"." * size, partition=number,
                    on_delivery=lambda error, _, name=f"{topic}-{number}": (
                        refused.add(name) if error else None))  # fmt: skip
        producer.flush(PROBE_S + 10)
        return refused

    def move(self, count: int) -> None:
        """Move `count` partitions to other brokers, under a throttle."""
        words, lists = [], dict[str, list[str]]()
        for topic in self.draw.sample(sorted(self.topics), count):
            ids = self.topics[topic][0]
            target = self.draw.sample(BROKERS, max(1, len(ids) - (self.draw.random() < 0.3)))
            lists[topic] = [f"0:{broker}" for broker in target if broker not in ids]
            words.append(f"{topic}-0={','.join(map(str, target))}")
        changes = [({FOLLOWER_RATE: str(SLOW)}, ResourceType.BROKER, str(b)) for b in BROKERS]
        changes += [({FOLLOWER_LIST: ",".join(names)}, ResourceType.TOPIC, topic)
                    for topic, names in lists.items() if names]  # fmt: skip
        self.configure(changes)
        if (answer := self.ask("reassign", *words)) != "ok":
            raise RuntimeError(f"reassign {' '.join(words)}: {answer}")

    def configure(self, changes: list[tuple[dict[str, str], ResourceType, str]]) -> None:
        admin = AdminClient(self.client())
        for settings, kind, name in changes:  # a request has one broker at most
            entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
                       for key, value in settings.items()]  # fmt: skip
            resource = ConfigResource(kind, name, incremental_configs=entries)
            admin.incremental_alter_configs([resource])[resource].result(60)

    def undo(self) -> None:
        """Restore the cluster: every broker up, no partition moving, every replica in sync."""
        self.start(*(b for b in BROKERS if b not in self.live()))
        self.configure(
            [({FOLLOWER_RATE: "1000000000"}, ResourceType.BROKER, str(b)) for b in BROKERS]
        )
        end = time.monotonic() + 60
        while time.monotonic() < end:
            states = self.all_stored()
            if all({*s.isr} == {*s.replicas} and not s.adding for s in states.values()):
                break
            time.sleep(1)
        for (topic, number), state in self.all_stored().items():
            self.topics[topic][number] = list(state.replicas)

    def settle(self) -> None:
        """Wait until nothing that is stored has changed for three seconds."""
        last, since, end = self.all_stored(), time.monotonic(), time.monotonic() + 40
        while time.monotonic() - since < 3 and time.monotonic() < end:
            time.sleep(0.5)
            now = self.all_stored()
            last, since = now, since if now == last else time.monotonic()

    def stop(self, broker: int) -> dict[str, object]:
        """Shut a broker down and start it again; returns what was predicted, and what happened."""
        text = self.topics_command()
        log = self.home(config.CONTROLLER) / "data" / "__cluster_metadata-0"
        by_log = Shapes(stored.of_files(str(log))).effect({broker}).refuse
        alive = self.live()
        self.shut_down(broker)
        time.sleep(1.5)
        refused = sorted(self.send())
        after = {f"{topic}-{number}": [s.leader, list(s.isr)]
                 for (topic, number), s in self.all_stored().items()}  # fmt: skip
        self.start(broker)
        self.settle()
        return {"broker": broker, "alive": alive, "text": text, "by_log": sorted(by_log),
                "refused": refused, "after": after}  # fmt: skip


def tools(release: str) -> list[jars.Artifact]:
    """The jars of kafka-topics."""
    return [
        ("org.apache.kafka", "kafka-tools", release, ""),
        ("org.slf4j", "slf4j-nop", "1.7.36", ""),
    ]


def state_of(trial: Trial, number: int) -> dict[str, object]:
    """Draw a state, and stop up to three brokers in it; returns what is kept of them."""
    dead = trial.draw.sample(BROKERS, trial.draw.choice((0, 1, 1, 2)))
    if number % 3:
        trial.move(trial.draw.randint(1, 4))
    for broker in dead:
        (trial.kill if trial.draw.random() < 0.5 else trial.shut_down)(broker)
    time.sleep(5)
    trial.settle()
    lists = {name: trial.topics_command(f"--{name}-partitions") for name in LISTS}
    text = trial.topics_command()
    state = described.of_text(text, trial.version)
    live = trial.live()
    groups = Shapes(state).blocks(frozenset({b}) for b in live)
    blocking = [b for b, blocks in zip(live, groups, strict=True) if blocks]
    safe = [b for b in live if b not in blocking]
    brokers = [*safe[:2], *trial.draw.sample(blocking, min(len(blocking), 3 - len(safe[:2])))]
    kept = {"version": trial.version, "dead": dead, "text": text, "lists": lists, "stops": []}
    print(f"state {number}: dead {dead}, safe {safe}, blocking {blocking}", flush=True)
    for broker in brokers:
        stop = trial.stop(broker)
        kept["stops"].append(stop)  # type: ignore[attr-defined]
        before = described.of_text(str(stop["text"]), trial.version)
        wanted = sorted(Shapes(before).effect({broker}).refuse)
        right = wanted == stop["refused"] == stop["by_log"]
        print(
            f"  broker {broker}: {len(wanted)} refuse, {'right' if right else 'WRONG'}", flush=True
        )
        if not right:
            print(
                f"    text {wanted}\n    log  {stop['by_log']}\n    real {stop['refused']}",
                flush=True,
            )
    trial.undo()
    return kept


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("version")
@click.option("--states", default=6, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(version: str, states: int, seed: int) -> None:
    """Draw states of a real cluster, and stop brokers in them."""
    kept = []
    with Trial(version, seed) as trial:
        trial.start(*BROKERS)
        trial.make_topics(8)
        for number in range(states):
            kept.append(state_of(trial, number))
            FOLDER.mkdir(parents=True, exist_ok=True)
            lines = b"".join(msgspec.json.encode(each) + b"\n" for each in kept)
            (FOLDER / f"{version}-{seed}.jsonl.xz").write_bytes(lzma.compress(lines))


if __name__ == "__main__":
    main()
