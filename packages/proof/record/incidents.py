"""Record one incident of a real cluster, whose cause and losses are known, with the brokers' logs.

    python -m record.incidents unclean 4.4.0     # data/recordings/incidents/440-unclean

Brokers 1, 2 and 3 hold the topics `orders` and `audit`. With ZooKeeper a fourth broker, without a
replica, is the controller; in KRaft it is node 100, or a quorum of 100, 101 and 102.

Kept are the brokers' logs and the truth: what was done when, the ISRs at the end, and how many
acknowledged records of each partition are gone, with their range of offsets and of times.
"""

from __future__ import annotations

import argparse
import ctypes
import gzip
import json
import os
import re
import resource
import shutil
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from judge import jars
from record import config
from record.cluster import Cluster
from record.migration import NODE, Migrating, migration

FOLDER = Path(__file__).parents[3] / "data" / "recordings" / "incidents"
LAG_MS, SESSION_MS = 6_000, 9_000
EVERY_S = 0.3  # a record to each partition
NEW_NETWORK = 0x4000_0000  # CLONE_NEWNET
HOST = "10.77.0.3"
NETWORK = f"""link set lo up\naddr add {HOST}/32 dev lo\nlink add away type veth peer nobody
link set away up\nlink set nobody up\naddr add 10.99.0.1/24 dev away\nroute add {HOST}/32 dev away
neigh add {HOST} lladdr 02:00:00:00:00:03 dev away"""  # for `ip -batch`
HELPER, QUORUM = 4, (100, 101, 102)
JARS = bytes(Path.home() / ".m2" / "repository")
Script = Callable[["Recorder"], None]


class Nodes(Cluster):
    """A cluster with controllers 101 and 102: processes like brokers, but no client asks them."""

    def live(self) -> list[int]:
        return [number for number in super().live() if number < min(QUORUM)]


def _quorum(version: str, base: int) -> dict[int, config.Settings]:
    """Settings of three controllers, and of brokers that know them."""
    voters = ",".join(f"{n}@127.0.0.1:{base + n}" for n in QUORUM)
    own: dict[int, config.Settings] = {n: {"controller.quorum.voters": voters} for n in (1, 2, 3)}
    for n in QUORUM:
        own[n] = {"controller.quorum.voters": voters, "process.roles": "controller",
                  "listeners": f"CONTROLLER://127.0.0.1:{base + n}"}  # fmt: skip
    return own


def _give_a_host(cluster: Cluster) -> None:
    """Give broker 3 an address in a network of this process alone. Once the address is deleted,
    packets to it go to a link with nobody at its other end. Needs root."""
    if ctypes.CDLL(None).unshare(NEW_NETWORK):
        raise PermissionError("a network of its own needs root")
    subprocess.run(["ip", "-batch", "-"], input=NETWORK, text=True, check=True)
    path, port = cluster.home(3) / "server.properties", cluster.base + 3
    path.write_text(f"{path.read_text()}listeners=PLAINTEXT://0.0.0.0:{port}\n"
                    f"advertised.listeners=PLAINTEXT://{HOST}:{port}\n")  # fmt: skip


class Recorder:
    """The actions on a cluster, and their known results."""

    def __init__(self, cluster: Cluster, release: config.Release) -> None:
        self.cluster, self.release = cluster, release
        self.topics: dict[str, tuple[tuple[int, ...], ...]] = {}
        self.acked: dict[tuple[str, int], list[tuple[int, str, int]]] = defaultdict(list)
        self.made_ms: dict[str, int] = {}  # when each topic was created
        self.actions: list[dict[str, Any]] = []
        self._stop, self._feeders = threading.Event(), list[threading.Thread]()

    def note(self, what: str) -> None:
        self.actions.append({"t_ms": round(time.time() * 1000), "what": what})
        print(datetime.now(UTC).isoformat(timespec="milliseconds"), what, flush=True)

    def do(self, text: str) -> None:
        """Run actions, separated by `;`: `kill 3; wait 5; start 3`."""
        for part in text.split(";"):
            word, *given = part.split()
            if word == "wait":
                time.sleep(float(given[0]))
                continue
            self.note(part.strip())
            getattr(self, f"_{word}")(*given)

    def _start(self, *numbers: str) -> None:
        for number in numbers:
            self.cluster.start(int(number), wait=False)
        for number in map(int, numbers):
            if number < min(QUORUM):
                self.cluster.until_up(number)
                self.note(f"broker {number} is up")

    def _launch(self, number: str) -> None:
        """Start a process without waiting for it, because it may not come up."""
        self.cluster.start(int(number), wait=False)

    def _end(self, number: str) -> None:
        """Kill a process if it has not ended after 20 s: in KRaft a wrong cluster id ends none."""
        try:
            self.cluster.processes[int(number)].wait(20)
        except subprocess.TimeoutExpired:
            self._kill(number)
            self.note(f"{number} had not ended, and was killed")

    def _kill(self, *numbers: str) -> None:
        self.cluster.kill(*map(int, numbers))

    def _pause(self, *numbers: str) -> None:
        for number in numbers:
            self.cluster.pause(int(number))

    def _resume(self, *numbers: str) -> None:
        for number in numbers:
            self.cluster.resume(int(number))

    def _shut(self, *numbers: str) -> None:
        for number in numbers:
            self.cluster.shut_down(int(number))

    def _slow(self, number: str, for_s: str, awake_s: str = "0.1", asleep_s: str = "0.9") -> None:
        """For `for_s` seconds let a process in turn sleep for `asleep_s` and run for `awake_s`."""
        end = time.monotonic() + float(for_s)
        while time.monotonic() < end:
            self.cluster.pause(int(number))
            time.sleep(float(asleep_s))
            self.cluster.resume(int(number))
            time.sleep(float(awake_s))
        self.note(f"{number} runs freely again")

    def _disk(self, number: str, ms: str) -> None:
        """Delay each append to a log of a broker with the agent by `ms`; 0: no longer."""
        gate = self.cluster.folder / f"gate-{number}"
        if int(ms):
            gate.with_suffix(".new").write_text(ms)
            gate.with_suffix(".new").rename(gate)
        else:
            gate.unlink()

    def _empty(self, number: str, topic: str) -> None:
        """Remove the folders of a topic from a broker's disk."""
        for path in (self.cluster.home(int(number)) / "data").glob(f"{topic}-*"):
            shutil.rmtree(path)

    def _lose(self, number: str) -> None:
        """Take the host of a broker away: its process stops, and nothing answers at its address."""
        self.cluster.pause(int(number))
        subprocess.run(["ip", "addr", "del", f"{HOST}/32", "dev", "lo"], check=True)

    def _burn(self, count: str, for_s: str) -> None:
        """Let processes that only compute run on the processor of the cluster."""
        busy = [subprocess.Popen(["yes"], stdout=subprocess.DEVNULL) for _ in range(int(count))]
        time.sleep(float(for_s))
        for process in busy:
            process.kill()

    def _damage(self, number: str, topic: str) -> None:
        """Overwrite the last byte of a topic's partition 0 on a broker's disk."""
        (path,) = (self.cluster.home(int(number)) / "data" / f"{topic}-0").glob("*.log")
        with path.open("r+b") as file:
            file.seek(-1, os.SEEK_END)  # where a batch has the number of its last record's headers
            file.write(b"\xff")

    def _large(self, topic: str, size: str) -> None:
        """Send one large record with acks=1 to partition 0 of a topic."""
        options = self.cluster.client() | {"acks": 1, "message.max.bytes": 2 * int(size)}
        producer = Producer(options)
        producer.produce(topic, bytes(int(size)), partition=0)
        producer.flush(5)

    def _limit(self, number: str) -> None:
        """Let a broker open no more files than it has open now."""
        pid = self.cluster.processes[int(number)].pid
        limit = len(os.listdir(f"/proc/{pid}/fd"))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, limit))

    def _elect(self, *numbers: str) -> None:
        """Let the preferred replicas of partitions of `orders` lead."""
        for number in numbers:
            self.note(self.cluster.ask("elect", f"orders-{number}=preferred"))

    def _settle(self, for_s: str = "40") -> None:
        """Wait until all ISRs are full, but at most for `for_s` seconds."""
        end = time.monotonic() + float(for_s)
        while time.monotonic() < end:
            full = (len(self.cluster.stored(t, p).isr) == len(ids) for t, p, ids in self.places())
            if all(full):
                self.note("in sync")
                break
            time.sleep(0.3)
        time.sleep(3)

    def places(self) -> Iterator[tuple[str, int, tuple[int, ...]]]:
        for topic, partitions in self.topics.items():
            for number, ids in enumerate(partitions):
                yield topic, number, ids

    def create(self, topic: str, *partitions: tuple[int, ...], **settings: object) -> None:
        self.note(f"create {topic} on {' '.join(map(str, map(list, partitions)))} {settings or ''}")
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.cluster.create(topic, *partitions, settings=named)
        self.topics[topic], self.made_ms[topic] = partitions, round(time.time() * 1000)

    def delete(self, topic: str) -> None:
        self.note(f"delete {topic}")
        admin = AdminClient(self.cluster.client())  # its requests end with it
        admin.delete_topics([topic])[topic].result(60)
        self.topics.pop(topic)

    def reassign(self, topic: str, ids: str) -> None:
        """Ask the controller for these replicas of partition 0, or "cancel"."""
        self.note(f"reassign {topic}-0 {ids}")
        self.cluster.reassign(topic, ids)

    def feed(self, topic: str, acks: str, every_s: float = EVERY_S, linger_ms: int = 0) -> None:
        """Send records to every partition of a topic until the recording is over."""
        self.note(f"produce to {topic}, acks={acks}, each {every_s:g} s, linger.ms={linger_ms}")
        options = {"acks": acks, "linger.ms": linger_ms}
        thread = threading.Thread(target=self._feed, args=(topic, options, every_s), daemon=True)
        self._feeders.append(thread)
        thread.start()

    def _feed(self, topic: str, options: dict[str, Any], every_s: float) -> None:
        options |= {"topic.metadata.refresh.interval.ms": 2_000, "message.timeout.ms": 8_000,
                    "enable.idempotence": False}  # fmt: skip
        everyone = ",".join(f"127.0.0.1:{self.cluster.base + n}" for n in (1, 2, 3))
        options |= self.cluster.client() | {"bootstrap.servers": everyone}
        count, places = 0, range(len(self.topics[topic]))
        producers = [Producer(options) for _ in places]
        while not self._stop.is_set():
            sent_ms = round(time.time() * 1000)
            for partition, producer in zip(places, producers, strict=True):
                text = f"{topic}-{partition}-{count}"
                try:
                    producer.produce(
                        topic,
                        text.encode(),
                        partition=partition,
                        on_delivery=self._kept(topic, partition, text, sent_ms),
                    )
                except (KafkaException, BufferError):  # the topic is gone for now
                    continue
                producer.poll(0)
            count += 1
            time.sleep(every_s)
        for producer in producers:
            producer.flush(3)

    def _kept(self, topic: str, partition: int, text: str, sent_ms: int) -> Callable[..., None]:
        def kept(error: object, message: Any) -> None:
            if error is None:
                self.acked[topic, partition].append((message.offset(), text, sent_ms))

        return kept

    def stop(self) -> None:
        self._stop.set()
        for thread in self._feeders:
            thread.join()

    def lost(self) -> dict[str, dict[str, int]]:
        """Offsets, number and times of acknowledged records that a leader lacks, by partition."""
        gone = {}
        for topic, partition, ids in self.places():
            leader = self.cluster.stored(topic, partition).leader
            home = leader if leader and leader > 0 else ids[0]
            held = {r[0]: r[1] for r in self.cluster.disk(home, topic, partition).records}
            acked = self.acked[topic, partition]
            acked = [each for each in acked if each[2] >= self.made_ms[topic]]  # deleted, not lost
            missing = {at: ms for at, text, ms in acked if held.get(at) != text}
            if missing:
                gone[f"{topic}-{partition}"] = {
                    "first": min(missing), "last": max(missing), "records": len(missing),
                    "sent_from_ms": min(missing.values()), "sent_to_ms": max(missing.values()),
                }  # fmt: skip
        return gone


# The incidents. The time between two actions is longer than the lag limit and the session.


def _usual(recorder: Recorder) -> None:
    recorder.create("orders", (1, 2, 3), (2, 3, 1), (3, 1, 2), min_insync_replicas=2)
    recorder.feed("orders", "all")


def unclean(recorder: Recorder) -> None:
    """The last member of the ISR dies; a replica that had left it before is elected."""
    recorder.create("orders", (2, 3), (3, 2), min_insync_replicas=1,
                    unclean_leader_election_enable="true")  # fmt: skip
    recorder.create("audit", (1, 2), (2, 1))
    recorder.feed("orders", "1")
    recorder.feed("audit", "all")
    recorder.do("wait 10; kill 3; wait 14; kill 2; wait 14; start 3; wait 6; start 2; settle")


def acks_one(recorder: Recorder) -> None:
    """A follower is paused for less than the lag limit, its leader takes records with acks=1 and
    dies, the follower wakes and is elected as a member of the ISR."""
    recorder.create("orders", (2, 3), (2, 3), min_insync_replicas=1)
    recorder.create("audit", (1, 3), (3, 1))
    recorder.feed("orders", "1", 0.1)
    recorder.feed("audit", "all")
    recorder.do("wait 10; pause 3; wait 3; kill 2; resume 3; wait 15; start 2; settle")


def writes_in_flight(recorder: Recorder) -> None:
    """Both followers are paused for less than the lag limit; their leader appends a batch of each
    producer with acks=all, and is killed. It comes back and truncates what it had acknowledged to
    nobody."""
    recorder.create("orders", (1, 2, 3), (1, 3, 2), (2, 3, 1), min_insync_replicas=2)
    recorder.feed("orders", "all", 0.02, linger_ms=1_500)
    recorder.do("wait 10; pause 2 3; wait 3; kill 1; resume 2 3; wait 12; start 1; settle")


def power_failure(recorder: Recorder) -> None:
    """All brokers are killed at one moment and started again; with eligible leader replicas the
    controller elects the last known leader."""
    recorder.create("orders", (1, 2, 3), (2, 3, 1), (3, 1, 2), min_insync_replicas=2)
    recorder.feed("orders", "all", 0.1)
    recorder.do("wait 10; kill 1 2 3; wait 14; start 1 2 3; settle")


def emptied_last(recorder: Recorder) -> None:
    """The last member of the ISR comes back without its data, and leads."""
    recorder.create("orders", (2, 3), (3, 2), min_insync_replicas=1)
    recorder.create("audit", (1, 2), (2, 1))
    recorder.feed("orders", "1")
    recorder.feed("audit", "all")
    recorder.do("wait 10; kill 3; wait 14; kill 2; empty 2 orders; wait 12; start 2; wait 6")
    recorder.do("start 3; settle")


def emptied_follower(recorder: Recorder) -> None:
    """A follower comes back without its data, and copies them from its leader: nothing is lost."""
    _usual(recorder)
    recorder.do("wait 10; kill 3; empty 3 orders; wait 13; start 3; settle")


def leaderless(recorder: Recorder) -> None:
    """Both replicas die; the one that had left the ISR comes back first, and may not lead."""
    recorder.create("orders", (2, 3), (3, 2), min_insync_replicas=1)
    recorder.create("audit", (1, 2), (2, 1))
    recorder.feed("orders", "all")
    recorder.do("wait 10; kill 3; wait 14; kill 2; wait 14; start 3; wait 12; start 2; settle")


def slow_leader_only(recorder: Recorder) -> None:
    """A broker that only leads, and follows no other, is too slow to serve its followers."""
    recorder.create("orders", (1, 2, 3), (1, 3, 2), min_insync_replicas=2)
    recorder.create("audit", (2, 3), (3, 2))
    recorder.feed("orders", "all")
    recorder.feed("audit", "all")
    recorder.do("wait 10; slow 1 45 0.03 2.5; settle")


def slow_disk(recorder: Recorder) -> None:
    """The disk of a broker that leads and follows nobody is slow: its request handlers wait for
    it, and the fetches of its followers for them."""
    recorder.create("orders", (1, 2, 3), (1, 3, 2), (1, 2, 3), min_insync_replicas=2)
    recorder.create("audit", (2, 3), (3, 2))
    recorder.feed("orders", "1", 0.1)
    recorder.feed("audit", "all")
    recorder.do("wait 10; disk 1 6000; wait 45; disk 1 0; settle")


def slow_disk_of_all(recorder: Recorder) -> None:
    """The disk of a broker that leads and follows is slow."""
    recorder.create("orders", (1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2), min_insync_replicas=2)
    recorder.feed("orders", "1", 0.1)
    recorder.do("wait 10; disk 1 6000; wait 45; disk 1 0; settle")


def quorum_lost(recorder: Recorder) -> None:
    """Two of three controllers are killed; meanwhile a broker dies, which no one can record."""
    _usual(recorder)
    recorder.do("wait 10; kill 101 102; wait 10; kill 3; wait 20; start 101 102; wait 15")
    recorder.do("start 3; settle")


def old_controller(recorder: Recorder) -> None:
    """The active controller is paused until another is elected, and wakes."""
    _usual(recorder)
    recorder.do(f"wait 10; pause {(n := _active(recorder))}; wait 25; resume {n}; wait 15; settle")


def frozen_controller(recorder: Recorder) -> None:
    """The only controller is paused for longer than the sessions."""
    _usual(recorder)
    recorder.do("wait 12; pause 100; wait 20; resume 100; wait 10; settle")


def _active(recorder: Recorder) -> int:
    """The controller that was the last to log that it is active."""
    said = {}
    for number in QUORUM:
        lines = recorder.cluster.said(number, "controller") + recorder.cluster.said(number)
        said[number] = max((x[:25] for x in lines if "Becoming the active controller" in x),
                           default="")  # fmt: skip
    return max(said, key=lambda number: said[number])


def cancelled(recorder: Recorder) -> None:
    """A reassignment to a broker that is down is cancelled; then a follower is paused."""
    recorder.create("orders", (1, 2), min_insync_replicas=1)
    recorder.create("audit", (1, 2), (2, 1))
    recorder.feed("orders", "all")
    recorder.do("wait 8; pause 3")
    recorder.reassign("orders", "1,3")
    recorder.do("wait 4")
    recorder.reassign("orders", "cancel")
    recorder.do("wait 2; resume 3; wait 12; pause 2; wait 13; resume 2; settle")


def made_again(recorder: Recorder) -> None:
    """A topic is deleted and created again with the same name; then a follower is paused."""
    _usual(recorder)
    recorder.do("wait 8")
    recorder.delete("orders")
    recorder.do("wait 4")
    recorder.create("orders", (1, 2, 3), (2, 1, 3), (1, 3, 2), min_insync_replicas=2)
    recorder.do("wait 15; pause 3; wait 14; resume 3; settle")


def start_fails(recorder: Recorder) -> None:
    """A broker is killed, started twice with another cluster's id, and then with the right one."""
    _usual(recorder)
    path = recorder.cluster.home(3) / "data" / "meta.properties"
    recorder.do("wait 8; kill 3")
    right = path.read_text()
    path.write_text(re.sub(r"cluster\.id=.*", "cluster.id=b3RoZXItY2x1c3Rlci1pZA", right))
    recorder.note("meta.properties of 3 names another cluster")
    recorder.do("wait 3; launch 3; end 3; wait 5; launch 3; end 3; wait 8")
    path.write_text(right)
    recorder.note("meta.properties of 3 is as it was")
    recorder.do("start 3; settle")


def idle_killed(recorder: Recorder) -> None:
    """A broker is killed whose partitions get no records: no leader removes it for its lag."""
    _idle(recorder)
    recorder.do("wait 6; kill 3; wait 25")


def idle_host_gone(recorder: Recorder) -> None:
    """The host of a broker is gone, whose partitions get no records."""
    _idle(recorder)
    recorder.do("wait 6; lose 3; wait 40")


def _idle(recorder: Recorder) -> None:
    recorder.create("orders", (1, 2, 3), (2, 3, 1), (3, 1, 2), min_insync_replicas=2)
    recorder.create("audit", (1, 2), (2, 1))
    recorder.feed("audit", "all")


def loaded(recorder: Recorder) -> None:
    """No broker fails; others compute on the one processor that all brokers share."""
    _usual(recorder)
    recorder.do("wait 10; burn 6 40; settle; wait 10")


def rolled_then_killed(recorder: Recorder) -> None:
    """All brokers are restarted one by one, and soon afterwards one of them is killed."""
    _usual(recorder)
    for number in "123":
        recorder.do(f"wait 4; shut {number}; wait 1; start {number}; settle 20")
    recorder.do("wait 5; kill 3; wait 14")


def wrong_address(recorder: Recorder) -> None:
    """A broker is restarted with an address that others cannot connect to, and leads again."""
    recorder.create("orders", (1, 2, 3), (2, 3, 1), (3, 1, 2), (3, 2, 1), min_insync_replicas=2)
    recorder.feed("orders", "all")
    recorder.do("wait 8; shut 3")
    path, port = recorder.cluster.home(3) / "server.properties", recorder.cluster.base + 33
    path.write_text(path.read_text() + f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n")
    recorder.note("advertised.listeners of 3 names another port")
    recorder.do("wait 2; start 3; wait 6; elect 2 3; wait 20")


def damaged(recorder: Recorder) -> None:
    """A byte of the leader's log is wrong, in a batch that a restarted follower has yet to copy."""
    recorder.create("orders", (1, 2, 3), (2, 3, 1), (2, 1, 3), min_insync_replicas=2)
    recorder.feed("orders", "all")
    recorder.do("wait 8; shut 3; wait 5; damage 1 orders; wait 3; start 3; wait 25")


def no_files(recorder: Recorder) -> None:
    """A broker may open no more files, and cannot write its checkpoints."""
    _usual(recorder)
    recorder.do("wait 10; limit 3; wait 25")


def too_large(recorder: Recorder) -> None:
    """A topic takes a record that is larger than what a follower fetches at once."""
    recorder.create("orders", (1, 2, 3), (2, 3, 1), (3, 1, 2), min_insync_replicas=2,
                    max_message_bytes=2_000_000)  # fmt: skip
    recorder.feed("orders", "all")
    recorder.do("wait 8; large orders 1500000; wait 25")


def lower_limit(recorder: Recorder) -> None:
    """A broker is restarted with a lower message.max.bytes than that of the leaders it follows."""
    _usual(recorder)
    recorder.do("wait 6; shut 3")
    path = recorder.cluster.home(3) / "server.properties"
    path.write_text(path.read_text() + "message.max.bytes=10000\n")
    recorder.note("message.max.bytes of 3 is 10000")
    recorder.do("wait 2; start 3; settle 20; wait 3; large orders 50000; wait 20")


def dir_locked(recorder: Recorder) -> None:
    """A second process is started on the directory of a hanging broker, and ends by itself."""
    _usual(recorder)
    recorder.do("wait 8; pause 3; wait 14")
    first = recorder.cluster.processes[3]
    recorder.do("launch 3; end 3; wait 5; launch 3; end 3; wait 6")
    recorder.cluster.processes[3] = first
    recorder.do("kill 3; wait 3; start 3; settle")


SCRIPTS: dict[str, Script] = {
    each.__name__.replace("_", "-"): each
    for each in (
        unclean, acks_one, writes_in_flight, power_failure, emptied_last, emptied_follower,
        leaderless, slow_leader_only, slow_disk, slow_disk_of_all,
        quorum_lost, old_controller, frozen_controller, cancelled, made_again,
        start_fails, dir_locked, idle_killed, idle_host_gone, loaded, rolled_then_killed,
        wrong_address, damaged, too_large, lower_limit, no_files, migration,
    )
}  # fmt: skip
WITH_QUORUM = ("quorum-lost", "old-controller")


def keep(recorder: Recorder, name: str, folder: Path, truth: dict[str, Any]) -> None:
    """Store the packed logs and the truth."""
    shutil.rmtree(folder, ignore_errors=True)
    here = bytes(recorder.cluster.folder)
    for log in sorted(recorder.cluster.folder.glob("broker-*/logs/*.log")):
        lines = [x for x in log.read_bytes().splitlines(keepends=True)
                 if b"environment:" not in x and b"host.name=" not in x]  # fmt: skip
        text = b"".join(lines).replace(JARS, b"/kafka/lib").replace(here, b"/srv/kafka")
        if text:
            path = folder / "logs" / log.parts[-3] / f"{log.name}.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(text, 9, mtime=0))
    (folder / "truth.json").write_text(json.dumps(truth) + "\n")


def record(name: str, version: str, out: Path) -> Path:
    release = jars.numbers(version)
    is_migration = name == "migration"
    kraft = release >= (3, 3) and not is_migration
    session = "broker.session.timeout.ms" if kraft else "zookeeper.session.timeout.ms"
    settings = {session: SESSION_MS, "replica.lag.time.max.ms": LAG_MS, "min.insync.replicas": 1,
                **({"broker.heartbeat.interval.ms": 1_000} if kraft else {})}  # fmt: skip
    is_quorum = name in WITH_QUORUM
    brokers = (1, 2, 3, *QUORUM[1:]) if is_quorum else (1, 2, 3) if kraft else (HELPER, 1, 2, 3)
    brokers = (1, 2, 3, NODE) if is_migration else brokers
    java: dict[int, list[str]] = {}
    kind = Migrating if is_migration else Nodes
    cluster = kind(version, brokers, settings, java=java, kraft=kraft)
    if name == "idle-host-gone":
        _give_a_host(cluster)
    if name == "loaded":
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if name.startswith("slow-disk"):
        java[1] = [f"-javaagent:{config.agent(version)}={cluster.folder / 'gate-1'},slow"]
    if is_quorum:
        for number, own in _quorum(version, cluster.base).items():
            path = cluster.home(number) / "server.properties"
            path.write_text(path.read_text() + "".join(f"{k}={v}\n" for k, v in own.items()))
    with cluster:
        if is_quorum:
            cluster.start(*QUORUM[1:], wait=False)
        recorder = Recorder(cluster, release)
        recorder.do(
            "start " + " ".join(str(n) for n in (*(HELPER,) * (HELPER in brokers), 1, 2, 3))
        )
        SCRIPTS[name](recorder)
        recorder.stop()
        places = [*recorder.places()]
        ends = {f"{t}-{p}": list(cluster.stored(t, p).isr) for t, p, _ in places}
        is_over = all(len(ends[f"{t}-{p}"]) == len(ids) for t, p, ids in places)
        folder = out / f"{''.join(map(str, release))}-{name}"
        cause = " ".join((SCRIPTS[name].__doc__ or name).split())
        truth = {"incident": folder.name, "kafka_version": version, "cause_class": cause,
                 "broker_to_blame": None, "over_at_end": is_over, "isr_at_end": ends,
                 "lost": recorder.lost(), "acknowledged": sum(map(len, recorder.acked.values())),
                 "actions": recorder.actions, "logs_end_ms": round(time.time() * 1000)}  # fmt: skip
        if isinstance(cluster, Migrating):
            truth["stored"] = cluster.changes([*recorder.topics])
        keep(recorder, name, folder, truth)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=SCRIPTS)
    parser.add_argument("version", help="such as 2.4.1")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder (default: %(default)s)")
    args = parser.parse_args()
    print(record(args.name, args.version, args.out))


if __name__ == "__main__":
    main()
