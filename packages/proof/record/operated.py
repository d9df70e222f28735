"""What operators see and do on real brokers: JMX gauges by cause, and several operations.

    python -m record.operated 4.3.1 gauges limits        in the folder packages/proof
    python -m record.operated 3.7.2 blocked

    gauges     Why partitions are under-replicated: each cause is made, and every broker's gauges
               are read (kafka.tools.JmxTool) while it lasts.
    limits     min.insync.replicas is raised while three replicas are in sync, and one of three.
    commits    The partition of __consumer_offsets of a group is under min ISR.
    transactions   The partition of __transaction_state of a producer is under min ISR.
    gate       A roll that waits for `isrlab check --watch`, and one that does not, under load.
    blocked    A replica is moved from broker 1 to 4 while broker 3, which stays, is dead.

A line for each is kept in data/check/operated.jsonl; notebooks show them.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from threading import Event, Thread
from typing import Self

import click
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from judge import jars
from record import checked, config, inside
from record.advice import REASSIGN
from record.cluster import Cluster

FILE = Path(__file__).parents[3] / "data" / "check" / "operated.jsonl"
BROKERS = (1, 2, 3, 4)
SETTINGS = {"replica.lag.time.max.ms": 4_000, "broker.session.timeout.ms": 4_000,
            "broker.heartbeat.interval.ms": 500, "replica.fetch.max.bytes": 30_000,
            "offsets.topic.num.partitions": 1, "offsets.topic.replication.factor": 3,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 3,
            "transaction.state.log.min.isr": 2}  # fmt: skip
BEANS = ("kafka.server:type=ReplicaManager,*", "kafka.server:type=ReplicaFetcherManager,*",
         "kafka.log:type=LogManager,*", "kafka.controller:type=KafkaController,*",
         "kafka.server:type=FollowerReplication")  # fmt: skip
GAUGES = ("UnderReplicatedPartitions", "UnderMinIsrPartitionCount", "AtMinIsrPartitionCount",
          "OfflineReplicaCount", "ReassigningPartitions", "FailedPartitionsCount",
          "DeadThreadCount", "MaxLag", "OfflineLogDirectoryCount", "OfflinePartitionsCount",
          "FencedBrokerCount", "byte-rate")  # fmt: skip
JMX = 105  # the JMX port of a broker, counted from its own port
RATE, MIN_ISR = "follower.replication.throttled.rate", "min.insync.replicas"


class Operated(Cluster):
    """Four brokers whose gauges can be read; broker 3 has two folders of logs."""

    def __init__(self, version: str) -> None:
        super().__init__(version, BROKERS, SETTINGS)
        for number in (*BROKERS, config.CONTROLLER):
            named = {"port": self.base + JMX + number % 50, "authenticate": "false", "ssl": "false"}
            self._java[number] = [
                f"-Dcom.sun.management.jmxremote.{k}={v}" for k, v in named.items()
            ]
        path = self.home(3) / "server.properties"
        text = path.read_text().replace("/data\n", f"/data,{self.home(3)}/more\n", 1)
        path.write_text(text)

    def __enter__(self) -> Self:
        super().__enter__()
        path = self.home(3) / "more" / "meta.properties"
        path.parent.mkdir()
        shutil.copy(self.home(3) / "data" / path.name, path)
        return self

    def gauges(self, number: int) -> dict[str, float]:
        """The gauges of one node that are not 0."""
        url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{self.base + JMX + number % 50}/jmxrmi"
        path = ":".join(jars.classpath(self.version, checked.tools))
        names = [word for bean in BEANS for word in ("--object-name", bean)]
        done = subprocess.run(
            ["java", "-Xmx128m", *config.JAVA, "-cp", path, "org.apache.kafka.tools.JmxTool",
             "--jmx-url", url, "--one-time", "--report-format", "properties", *names],
            capture_output=True, text=True, check=False, timeout=60)  # fmt: skip
        pairs = re.findall(r"(?m)^(.+?):(Value|byte-rate)=([\d.E+-]+)$", done.stdout)
        values = {a if a != "Value" else re.sub(r".*name=([^,]+).*", r"\1", bean): float(v)
                  for bean, a, v in pairs}  # fmt: skip
        return {k: round(v) for k, v in values.items() if k in GAUGES and round(v)}

    def change(self, kind: ResourceType, name: str, settings: config.Settings) -> None:
        entries = [ConfigEntry(key, str(value), incremental_operation=AlterConfigOpType.SET)
                   for key, value in settings.items()]  # fmt: skip
        resource = ConfigResource(kind, name, incremental_configs=entries)
        admin = AdminClient(self.client())
        admin.incremental_alter_configs([resource])[resource].result(60)

    def throttle(self, rate: int) -> None:
        """Bytes/s that each broker may copy of throttled partitions."""
        for number in self.live():
            self.change(ResourceType.BROKER, str(number), {RATE: rate})

    def fill(self, topic: str, partition: int, count: int, size: int = 20_000) -> None:
        """Send records, each in a batch of its own."""
        producer = Producer({**self.client(), "acks": "1", "linger.ms": 0})
        for _ in range(count):
            producer.produce(topic, "." * size, partition=partition)
            producer.flush(10)

    def in_sync(self, count: int) -> None:
        self._until(lambda: all(len(s.isr) == count for (t, _), s in self.all_stored().items()
                                if t in "tu"), f"{count} in sync")  # fmt: skip

    def state(self, topic: str) -> dict[str, object]:
        stored = self.stored(topic)
        return {
            name: getattr(stored, name) for name in ("leader", "replicas", "isr", "elr", "adding")
        }


def keep(version: str, what: str, **row: object) -> None:
    print(what, row, flush=True)
    with FILE.open("a") as file:
        file.write(json.dumps({"version": version, "what": what, **row}) + "\n")


def gauges(cluster: Operated) -> None:
    """Make each cause in turn; topic t has three partitions on brokers 1, 2 and 3, min ISR 2."""

    def read(cause: str, wait_s: float = 9) -> None:
        time.sleep(wait_s)
        nodes = [*cluster.live(), config.CONTROLLER]
        keep(cluster.version, "gauges", cause=cause, values={n: cluster.gauges(n) for n in nodes})

    def fill(count: int) -> None:
        for number in range(3):
            cluster.fill("t", number, count)

    cluster.create("t", *[(1, 2, 3)] * 3, settings={"min.insync.replicas": 2})
    cluster.create("u", (1, 2, 3))
    fill(30)
    cluster.fill("u", 0, 20, 10)
    read("none", 2)
    cluster.kill(3)
    fill(3)
    read("a broker is dead")
    cluster.start(3)
    cluster.in_sync(3)
    cluster.throttle(3_000)
    places = ",".join(f"{number}:{broker}" for number in range(3) for broker in (3, 4))
    cluster.change(ResourceType.TOPIC, "t", {"follower.replication.throttled.replicas": places})
    cluster.reassign("t", "1,2,4")
    read("a reassignment is in progress")
    cluster.reassign("t", "cancel")
    cluster.shut_down(3)
    fill(30)
    cluster.start(3)
    read("a throttle was left behind, and a broker came back")
    cluster.throttle(10**9)
    cluster.in_sync(3)
    folder = cluster.home(3) / "more"
    folder.rename(cluster.home(3) / "gone")
    folder.write_text("a file where a folder was")
    fill(3)
    read("a log directory is offline", 15)
    cluster.kill(3)
    folder.unlink()
    (cluster.home(3) / "gone").rename(folder)
    cluster.shut_down(1)
    cluster.shut_down(2)
    swap_batches(cluster.home(2) / "data" / "u-0" / f"{0:020}.log")
    cluster.start(2)
    cluster.start(1)
    for path in cluster.home(3).glob("*/u-0"):
        shutil.rmtree(path)
    cluster.start(3)
    read("the fetcher has given up on a partition", 15)


def swap_batches(path: Path) -> None:
    """Swap the third and the fourth batch of a segment; no follower accepts the result."""
    data = path.read_bytes()
    (a, size_a), (b, size_b) = [*inside.batches(data)][2:4]
    path.write_bytes(data[:a] + data[b : b + size_b] + data[a : a + size_a] + data[b + size_b :])


def limits(cluster: Operated) -> None:
    """The effect of raising min.insync.replicas on the answers to producers and consumers."""

    def look(moment: str, topic: str = "t") -> None:
        answer = cluster.produce(topic, "m", wait_s=8)[0]
        keep(cluster.version, "limits", moment=moment, answer=answer, **cluster.state(topic))

    cluster.create("t", (1, 2, 3), settings={"min.insync.replicas": 1})
    look("1 of 3 is demanded, 3 are in sync")
    cluster.change(ResourceType.TOPIC, "t", {MIN_ISR: 2})
    look("2 are demanded, 3 are in sync")
    cluster.change(ResourceType.TOPIC, "t", {MIN_ISR: 1})
    cluster.kill(2, 3)
    cluster.until(lambda: len(cluster.stored("t").isr) == 1, "alone")
    look("1 is demanded, 1 is in sync")
    cluster.change(ResourceType.TOPIC, "t", {MIN_ISR: 2})
    look("2 are demanded, 1 is in sync")
    cluster.start(2)
    cluster.until(lambda: len(cluster.stored("t").isr) == 2, "two in sync")
    look("2 are demanded, 2 are in sync")
    cluster.start(3)
    cluster.in_sync(3)
    cluster.kill(2, 3)
    cluster.until(lambda: len(cluster.stored("t").isr) == 1, "alone again")
    look("2 were demanded throughout, 1 is in sync")
    cluster.change(ResourceType.TOPIC, "t", {MIN_ISR: 3})
    time.sleep(3)
    look("the minimum is raised to 3 in the meantime")
    cluster.start(2, 3)
    cluster.in_sync(3)


def commits(cluster: Operated) -> None:
    """Let a group consume while its partition of __consumer_offsets is under min ISR."""
    options = {"group.id": "g", "enable.auto.commit": False, "session.timeout.ms": 10_000,
               "auto.offset.reset": "earliest"}  # fmt: skip

    def look(moment: str, consumer: Consumer) -> None:
        cluster.produce("t", "m", acks="1")
        end, records, error, began = time.monotonic() + 20, 0, "ok", time.monotonic()
        while not records and time.monotonic() < end:
            message = consumer.poll(0.5)
            records += message is not None and message.error() is None
        try:
            if records:
                consumer.commit(asynchronous=False)
        except KafkaException as refused:
            error = refused.args[0].name()
        keep(cluster.version, "commits", moment=moment, records=int(records),
             commit=error if records else "", took_s=round(time.monotonic() - began),
             **cluster.state("__consumer_offsets"))  # fmt: skip

    cluster.create("t", BROKERS)
    consumer = Consumer({**cluster.client(), **options})
    consumer.subscribe(["t"])
    look("2 of 3 replicas are demanded, 3 are in sync", consumer)
    cluster.change(ResourceType.TOPIC, "__consumer_offsets", {MIN_ISR: 2})
    stored = cluster.stored("__consumer_offsets")
    others = [b for b in stored.replicas if b != stored.leader]
    cluster.kill(*others)
    cluster.until(lambda: len(cluster.stored("__consumer_offsets").isr) == 1, "alone")
    look("2 are demanded, 1 is in sync", consumer)
    new = Consumer({**cluster.client(), **options, "group.id": "new"})
    new.subscribe(["t"])
    look("another group begins during the outage", new)
    cluster.start(*others)
    cluster.until(lambda: len(cluster.stored("__consumer_offsets").isr) == 3, "all")
    look("3 are in sync again", consumer)
    look("3 are in sync again, the other group", new)
    new.close()
    consumer.close()


def transactions(cluster: Operated) -> None:
    """Let two producers write, one of them new, while __transaction_state is under min ISR."""
    topic, waiting = "__transaction_state", dict[str, tuple[Producer, list[str]]]()

    def look(moment: str, name: str) -> None:
        """Try a transaction, repeating the request that was not answered before."""
        producer, steps = waiting.get(name) or (
            Producer({**cluster.client(), "transactional.id": name}), ["init"])  # fmt: skip
        steps, answer, began = steps or ["begin", "commit"], "ok", time.monotonic()
        try:
            while steps:
                step = f"{steps[0]}_transaction{'s' * (steps[0] == 'init')}"
                getattr(producer, step)(*[15] * (steps[0] != "begin"))
                if steps.pop(0) == "begin":
                    producer.produce("t", "m")
        except KafkaException as refused:
            answer = refused.args[0].name()
        waiting[name], took_s = (producer, steps), round(time.monotonic() - began)
        keep(cluster.version, "transactions", moment=moment, producer=name, step=step,
             answer=answer, took_s=took_s, **cluster.state(topic))  # fmt: skip

    cluster.create("t", BROKERS)
    for _ in range(2):
        look("2 of 3 replicas are demanded, 3 are in sync", "old")
    stored = cluster.stored(topic)
    others = [b for b in stored.replicas if b != stored.leader]
    cluster.kill(*others)
    cluster.until(lambda: len(cluster.stored(topic).isr) == 1, "alone")
    look("2 are demanded, 1 is in sync", "old")
    look("2 are demanded, 1 is in sync", "new")
    cluster.start(*others)
    cluster.until(lambda: len(cluster.stored(topic).isr) == 3, "all")
    for name in ("old", "new"):
        look("3 are in sync again", name)


def blocked(cluster: Operated) -> None:
    """Broker 3, which keeps its replica, dies in a throttled move; then the throttle is removed."""
    for topic, target in (("same", "4,2,3"), ("fewer", "4,3")):
        cluster.create(topic, (1, 2, 3), settings={"min.insync.replicas": 1})
        cluster.fill(topic, 0, 30)
        cluster.throttle(3_000)
        cluster.change(
            ResourceType.TOPIC, topic, {"follower.replication.throttled.replicas": "0:4"}
        )
        ids = [int(number) for number in target.split(",")]
        plan = cluster.folder / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": [
            {"topic": topic, "partition": 0, "replicas": ids}]}))  # fmt: skip
        cluster.run_tool(REASSIGN, "--reassignment-json-file", plan, "--execute")
        cluster.kill(3)
        cluster.until(lambda name=topic: 3 not in cluster.stored(name).isr, "broker 3 is out")
        cluster.throttle(10**9)
        for moment in ("broker 3 is dead", "broker 3 is back"):
            time.sleep(15)
            state = cluster.state(topic)
            keep(cluster.version, "blocked", target=target, moment=moment, **state)
            if 3 not in cluster.live():
                cluster.start(3)


def gate(cluster: Operated) -> None:
    """Three brokers are restarted in turn under load, with `isrlab check --watch` and without."""
    cluster.create("t", *[(1, 2, 3)] * 3, settings={"min.insync.replicas": 2})
    servers = ",".join(f"127.0.0.1:{cluster.base + number}" for number in BROKERS)
    for is_gated in (True, False):
        answers, over, waits = Counter[str](), Event(), list[float]()
        load = Thread(target=feed, args=(servers, answers, over))
        load.start()
        for broker in (1, 2, 3):
            asked = time.monotonic()
            if is_gated:
                subprocess.run([sys.executable, "-m", "isrlab", "check", "--bootstrap-server",
                                servers, "--restart", str(broker), "--watch", "1"],
                               cwd=FILE.parents[2], check=True, capture_output=True)  # fmt: skip
            waits.append(round(time.monotonic() - asked, 1))
            cluster.shut_down(broker)
            cluster.start(broker)
        time.sleep(10)
        over.set()
        load.join()
        cluster.in_sync(3)
        keep(cluster.version, "gate", gated=is_gated, waits_s=waits, answers=dict(answers))


def feed(servers: str, answers: Counter[str], over: Event) -> None:
    """Send records with acks=all without retries, and count the answers."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 0, "retries": 0,
                         "message.timeout.ms": 10_000, "log_level": 0})  # fmt: skip
    while not over.is_set():
        for number in range(3):
            producer.produce("t", "." * 20_000, partition=number, on_delivery=lambda error, _: (
                answers.update([error.name() if error else "ok"])))  # fmt: skip
        producer.poll(0.05)
    producer.flush(15)


SCRIPTS = {each.__name__: each for each in (gauges, limits, commits, transactions, blocked, gate)}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("version")
@click.argument("names", nargs=-1, type=click.Choice([*SCRIPTS]))
def main(version: str, names: tuple[str, ...]) -> None:
    """Run these scripts, each on a cluster of its own, and store the results."""
    for name in names:
        with Operated(version) as cluster:
            cluster.start(*BROKERS)
            SCRIPTS[name](cluster)


if __name__ == "__main__":
    main()
