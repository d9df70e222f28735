"""Three combined nodes, each a broker and a voter: stops with and without a majority of voters.

python -m record.combined 4.1.2        in the folder packages/proof

First the stops that `isrlab check` refuses, because fewer than two of the three voters would stay:
the active controller is shut down together with a follower, and both followers are killed. While
one node is left, records are sent with acks=all, and the node is asked for leaders and ISRs. Then
one node is started, later the other. Last, the roll that `check` proposes: one node at a time, the
active controller at the end. A process that has not ended 30 s after SIGTERM gets SIGKILL.

A file in data/check keeps what Kafka's tools printed before each stop, which partitions refused the
record, what the node or nodes that were left knew, and how many changes of partitions the metadata
log has from the loss of the majority until a voter was back. tests/ops/test_check_quorum.py
predicts it again.
"""

from __future__ import annotations

import lzma
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import click
import msgspec
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from record import config, inside
from record.cluster import Cluster

FOLDER = Path(__file__).parents[3] / "data" / "check"
NODES = (1, 2, 3)
CONTROLLERS = 50  # the controller's port of a node, counted from its own port
SETTINGS = {"replica.lag.time.max.ms": 4_000, "broker.session.timeout.ms": 4_000,
            "broker.heartbeat.interval.ms": 500}  # fmt: skip
TOPIC, PARTITIONS = "t", ((1, 2, 3), (2, 3, 1), (3, 1, 2))
GRACE_S, LEFT_S, PROBE_S = 30, 12, 10
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"


class Combined(Cluster):
    """A cluster in which every node is a broker and a voter; there is no node 100."""

    def __init__(self, version: str) -> None:
        super().__init__(version, NODES, SETTINGS, kraft=True)
        voters = ",".join(f"{n}@127.0.0.1:{self.base + CONTROLLERS + n}" for n in NODES)
        for number in NODES:
            port = self.base + number
            own = {"process.roles": "broker,controller", "controller.quorum.voters": voters,
                   "listeners": f"PLAINTEXT://127.0.0.1:{port},"
                                f"CONTROLLER://127.0.0.1:{port + CONTROLLERS}"}  # fmt: skip
            path = self.home(number) / "server.properties"
            lines = (line.partition("=")[::2] for line in path.read_text().splitlines())
            config.write(path, {**dict(lines), **own})

    def __enter__(self) -> Self:
        for number in NODES:
            command = config.java(
                self.version, "kafka.tools.StorageTool", "format", "--cluster-id",
                config.CLUSTER_ID, "--config", self.home(number) / "server.properties",
            )  # fmt: skip
            subprocess.run(command, capture_output=True, check=True)
        return self

    def described(self) -> dict[str, str]:
        """What Kafka's tools print about topics and quorum."""
        return {
            "topics": self.run_tool(TOPICS, "--describe"),
            "status": self.run_tool(QUORUM, "describe", "--status"),
            "replication": self.run_tool(QUORUM, "describe", "--replication"),
        }

    def leads(self) -> int:
        """The active controller."""
        return int(self.described()["status"].partition("LeaderId:")[2].split()[0])

    def send(self) -> list[str]:
        """Send each partition a record with acks=all; return those that refused."""
        options = {"acks": "all", "message.timeout.ms": PROBE_S * 1000, "linger.ms": 0,
                   "request.timeout.ms": 5_000, "enable.idempotence": False}  # fmt: skip
        producer, accepted = Producer({**self.client(), **options}), set[int]()
        for number in range(len(PARTITIONS)):
            producer.produce(TOPIC, b"m", partition=number, on_delivery=lambda error, message: (
                None if error else accepted.add(message.partition())))  # fmt: skip
        producer.flush(PROBE_S + 10)
        return [f"{TOPIC}-{n}" for n in range(len(PARTITIONS)) if n not in accepted]

    def known(self) -> dict[str, list[object]]:
        """Leader and ISR of each partition, as the first live node knows them."""
        topics = AdminClient(self.client(self.live()[0])).list_topics(TOPIC, timeout=10).topics
        return {f"{TOPIC}-{n}": [p.leader, sorted(p.isrs)]
                for n, p in sorted(topics[TOPIC].partitions.items())}  # fmt: skip

    def stop(self, numbers: Sequence[int]) -> dict[str, str]:
        """Shut nodes down together; returns how each ended."""
        for number in numbers:
            self.note(f"shut down {number}")
            self.processes[number].terminate()
        end, ended = time.monotonic() + GRACE_S, dict[str, str]()
        for number in numbers:
            with suppress(subprocess.TimeoutExpired):
                self.processes[number].wait(max(0.1, end - time.monotonic()))
            ended[str(number)] = "clean" if self.processes[number].poll() is not None else "killed"
            if ended[str(number)] == "killed":
                self.kill(number)
        return ended

    def full(self) -> None:
        """Wait until every ISR is full on every live node."""
        self._until(lambda: all(len(isr) == 3 for _, isr in self.known().values()), "full")  # type: ignore[arg-type]
        time.sleep(3)

    def changes(self, from_s: float, to_s: float) -> int:
        """The changes of partitions that the longest metadata log has between two times."""
        logs = [inside.changes_in(self.home(number) / "data") for number in NODES]
        return sum(from_s * 1000 < ts_ms < to_s * 1000 for ts_ms, *_ in max(logs, key=len))

    def stored(self, topic: str, partition: int = 0) -> inside.Stored:
        return inside.stored_in(self.home(NODES[0]) / "data", topic, partition)


def refused(cluster: Combined, numbers: Sequence[int], *, hard: bool = False) -> dict[str, object]:
    """Shut down or kill two of three voters together, although that is refused."""
    row: dict[str, object] = {"what": "without majority", "stopped": [*numbers]}
    row |= cluster.described() | {"before": cluster.known()}
    if hard:
        cluster.kill(*numbers)
    row["ended"] = dict.fromkeys(map(str, numbers), "killed") if hard else cluster.stop(numbers)
    lost_s = time.time()
    time.sleep(LEFT_S)
    row |= {"refused": cluster.send(), "known": cluster.known()}
    back_s = time.time()
    cluster.start(numbers[0])
    row["then_refused"] = cluster.send()
    row["back_s"] = round(time.time() - back_s, 1)
    cluster.start(numbers[1])
    cluster.full()
    row["changes"] = [cluster.changes(lost_s, back_s), cluster.changes(back_s, time.time())]
    row["lost_s"] = round(back_s - lost_s, 1)
    return row


def rolled(cluster: Combined) -> list[dict[str, object]]:
    """Restart one node after the other, the active controller last."""
    last, rows = cluster.leads(), list[dict[str, object]]()
    for number in [*(n for n in NODES if n != last), last]:
        row: dict[str, object] = {"what": "roll", "stopped": [number], **cluster.described()}
        row |= {"before": cluster.known(), "ended": cluster.stop([number])}
        time.sleep(1.5)
        row |= {"refused": cluster.send(), "known": cluster.known()}
        cluster.start(number)
        cluster.full()
        rows.append(row)
    return rows


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("version")
def main(version: str) -> None:
    """Stop nodes of a real cluster of three combined nodes."""
    with Combined(version) as cluster:
        cluster.start(*NODES)
        cluster.create(TOPIC, *PARTITIONS)
        leader = cluster.leads()
        rows = [refused(cluster, [leader, min({*NODES} - {leader})])]
        leader = cluster.leads()
        rows.append(refused(cluster, [n for n in NODES if n != leader], hard=True))
        rows += rolled(cluster)
    for row in rows:
        print({k: v for k, v in row.items() if k not in ("topics", "status", "replication")})
    lines = b"".join(msgspec.json.encode({"version": version} | row) + b"\n" for row in rows)
    (FOLDER / f"{version}-combined.jsonl.xz").write_bytes(lzma.compress(lines))


if __name__ == "__main__":
    main()
