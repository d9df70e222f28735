"""A migration from ZooKeeper to KRaft, phase by phase, on real brokers of 3.9.

Source: KIP-866, and the steps of docs/ops ("ZooKeeper to KRaft Migration") of 3.9. Node 101 is the
KRaft controller; node 100 remains ZooKeeper's port.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from record import config, inside, transactions
from record.cluster import Cluster

if TYPE_CHECKING:
    from record.incidents import Recorder

NODE = 101  # the KRaft controller
OLD = ("broker.id", "zookeeper.", "inter.broker.protocol.version")  # settings only of ZooKeeper


class Migrating(Cluster):
    """A cluster of ZooKeeper that becomes one of KRaft."""

    is_final = False

    def live(self) -> list[int]:
        return [number for number in super().live() if number < config.CONTROLLER]

    def registered(self) -> set[int]:
        """Brokers of KRaft are not in ZooKeeper; other brokers know them."""
        return super().registered() | {n for live in self.live() for n in self._known_to(live)}

    def stored(self, topic: str, partition: int = 0) -> inside.Stored:
        if self.is_final:
            return inside.stored_in(self.home(NODE) / "data", topic, partition)
        return super().stored(topic, partition)

    def changes(self, topics: list[str]) -> list[list[Any]]:
        """Each stored state: ms, partition, partition epoch, leader, leader epoch, ISR. Those of
        ZooKeeper until KRaft's controller took over, then those of its metadata log."""
        places = sorted((self.folder / "zookeeper" / "data" / "version-2").glob("log.*"))
        logs = [path.read_bytes() for path in places]
        rows = [
            [ms, f"{topic}-{number}", version, leader, epoch, [int(n) for n in isr.split()]]
            for topic in topics
            for log in logs
            for ms, number, version, leader, epoch, isr in transactions.states(log, topic)
        ]
        kraft: list[list[Any]] = [
            [ms, f"{topic}-{number}", s.partition_epoch, s.leader, s.leader_epoch, list(s.isr)]
            for ms, (topic, number), s in inside.changes_in(self.home(NODE) / "data")
        ]
        from_ms = min(row[0] for row in kraft)
        return sorted([row for row in rows if row[0] < from_ms] + kraft)

    def write(self, number: int, *, zookeeper: bool, kraft: bool) -> None:
        """The settings of a node that uses ZooKeeper, KRaft or both."""
        port, path = self.base + number, self.home(number) / "server.properties"
        chosen = dict(line.partition("=")[::2] for line in path.read_text().splitlines())
        if kraft:
            kind = "CONTROLLER" if number == NODE else "PLAINTEXT"
            chosen |= {"controller.quorum.voters": f"{NODE}@127.0.0.1:{self.base + NODE}",
                       "controller.listener.names": "CONTROLLER",
                       "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                       "listeners": f"{kind}://127.0.0.1:{port}"}  # fmt: skip
        chosen.pop("zookeeper.metadata.migration.enable", None)
        if zookeeper and kraft:
            chosen["zookeeper.metadata.migration.enable"] = "true"
        if number == NODE or not zookeeper:
            chosen |= {"process.roles": "controller" if number == NODE else "broker",
                       "node.id": str(number)}  # fmt: skip
            chosen.pop("broker.id", None)
        if not zookeeper:
            chosen = {k: v for k, v in chosen.items() if not k.startswith(OLD)}
        config.write(path, chosen)

    def format_node(self) -> None:
        """Format the storage of the KRaft controller for the cluster that ZooKeeper knows."""
        path = self.home(NODE) / "server.properties"
        name = self._node("/cluster/id")["id"]
        shutil.rmtree(self.home(NODE) / "data", ignore_errors=True)
        command = config.java(self.version, "kafka.tools.StorageTool", "format", "--cluster-id",
                              name, "--config", path)  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def migration(recorder: Recorder) -> None:
    """A cluster of ZooKeeper is migrated to KRaft, and then a broker is killed."""
    cluster = recorder.cluster
    assert isinstance(cluster, Migrating)
    recorder.create("orders", (1, 2, 3), (2, 3, 1), (3, 1, 2), min_insync_replicas=2)
    recorder.feed("orders", "all")
    recorder.do("wait 10")
    recorder.note("phase: the KRaft controller is started, in migration mode")
    cluster.write(NODE, zookeeper=True, kraft=True)
    cluster.format_node()
    recorder.do(f"launch {NODE}")
    _until_said(cluster, "to PRE_MIGRATION")
    recorder.do("wait 5")
    recorder.note("phase: each broker is restarted in migration mode")
    _roll(recorder, zookeeper=True)
    _until_said(cluster, "PRE_MIGRATION to MIGRATION")
    recorder.note("phase: metadata is migrated, and written to both")
    recorder.do("wait 12; pause 2; wait 14; resume 2; settle")
    recorder.note("phase: each broker is restarted with KRaft alone")
    _roll(recorder, zookeeper=False)
    recorder.note("phase: the controller is restarted without ZooKeeper, which ends the migration")
    cluster.write(NODE, zookeeper=False, kraft=True)
    recorder.do(f"shut {NODE}; launch {NODE}")
    _until_said(cluster, "MIGRATION to POST_MIGRATION")
    cluster.is_final = True
    recorder.do("wait 5; elect 2; wait 8; kill 3; wait 20")


def _until_said(cluster: Cluster, text: str) -> None:
    cluster.until(lambda: any(text in line for line in cluster.said(NODE, "controller")), text)


def _roll(recorder: Recorder, zookeeper: bool) -> None:
    for number in (1, 2, 3):
        recorder.do(f"shut {number}")
        assert isinstance(recorder.cluster, Migrating)
        recorder.cluster.write(number, zookeeper=zookeeper, kraft=True)
        recorder.do(f"wait 1; start {number}; settle 30")
