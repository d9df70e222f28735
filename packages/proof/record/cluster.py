"""A cluster of real brokers: started, stopped, paused and killed, and gone when it is closed.

with Cluster("2.8.2", settings={"replica.lag.time.max.ms": 4000}) as cluster:
    cluster.create("t", (1, 2, 3), settings={"min.insync.replicas": 2})
    cluster.pause(2)
    print(cluster.produce("t", "m1", acks="all"), cluster.stored("t"))
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from judge import jars
from record import config, inside

FIRST_PORT, LAST_PORT, PORTS = 21_000, 31_000, 200  # a cluster has PORTS of them
UP_S = 90  # a start that takes longer has failed


class Cluster:
    """Brokers with ids from 1 to 99, and node 100: ZooKeeper, or a KRaft controller."""

    def __init__(
        self,
        version: str,
        brokers: Sequence[int] = (1, 2, 3),
        settings: config.Settings | None = None,
        *,
        own: Mapping[int, config.Settings] | None = None,
        **more: Any,
    ) -> None:
        """`own`: settings of single brokers. `more`: kraft (default: from 3.3 on), features (of
        KRaft, by name), loggers (levels by logger), java (options of the JVMs of single brokers),
        keep (whether to keep the folder).

        Raises NoJarsError if Java or Maven is missing.
        """
        self.version, self.release = version, jars.numbers(version)
        self.kraft: bool = more.get("kraft", self.release >= (3, 3))
        self.brokers, self.keep = tuple(brokers), more.get("keep", False)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.paused: set[int] = set()
        self.timeline: list[tuple[float, str]] = []
        config.java(version, "")  # the jars, before anything is made
        self._lock, self.base = _ports()
        self.folder = Path(tempfile.mkdtemp(prefix=f"isrlab-{version}-"))
        self.began = time.time()
        self._zookeeper: KazooClient | None = None
        loggers = more.get("loggers", {})
        nodes = (*brokers, config.CONTROLLER) if self.kraft else tuple(brokers)
        self._logging = {}
        for number in nodes:
            home = self.home(number)
            (home / "logs").mkdir(parents=True)
            chosen = {
                **config.broker(self.release, number, home, self.base, self.kraft),
                **(settings or {}),
                **(own or {}).get(number, {}),
            }
            config.write(home / "server.properties", chosen)
            self._logging[number] = config.logging(self.release, home, loggers)
        self._features, self._java = more.get("features", {}), more.get("java", {})

    def home(self, number: int) -> Path:
        return self.folder / f"broker-{number}"

    # Processes

    def __enter__(self) -> Self:
        try:
            if self.kraft:
                config.format_storage(self.version, self.folder, self._features)
                self._run(config.CONTROLLER)
            else:
                self._start_zookeeper()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every process, and remove the folder unless it is to be kept."""
        if self._zookeeper is not None:
            self._zookeeper.stop()
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()
        self._lock.close()
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _spawn(self, number: int, command: list[str], home: Path) -> None:
        with open(home / "console.out", "ab") as console:
            self.processes[number] = subprocess.Popen(
                command,
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,  # Ctrl-C reaches only this process, which ends them
                preexec_fn=config.dying_with_parent,
            )

    def _start_zookeeper(self) -> None:
        home = self.folder / "zookeeper"
        (home / "logs").mkdir(parents=True)
        port = self.base + config.CONTROLLER
        path = config.write(home / "zoo.cfg", config.zookeeper(home, port))
        logs = config.logging(self.release, home, {})
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = config.java(self.version, main, path, heap="128m", logs=logs)
        self._spawn(config.CONTROLLER, command, home)
        process = self.processes[config.CONTROLLER]
        self._until(lambda: _answers(port) or process.poll() is not None, "ZooKeeper answers")
        if process.poll() is not None:
            raise RuntimeError(f"ZooKeeper ended: {(home / 'console.out').read_text()[:200]}")
        self._zookeeper = KazooClient(f"127.0.0.1:{port}", timeout=5)
        self._zookeeper.start(60)

    def _run(self, number: int) -> None:
        home = self.home(number)
        logs = [*self._logging[number], *self._java.get(number, ())]
        command = config.java(self.version, "kafka.Kafka", "server.properties", logs=logs)
        self._spawn(number, command, home)

    def start(self, *numbers: int, wait: bool = True) -> None:
        """Start brokers and wait for them. With ZooKeeper the first one becomes the controller."""
        for number in numbers:
            self.note(f"start {number}")
            self._run(number)
            if wait and not self.kraft:
                self.until_up(number)
        if wait and self.kraft:
            for number in numbers:
                self.until_up(number)

    def until_up(self, number: int) -> None:
        self._until(lambda: self.is_up(number), f"broker {number} is up")
        self.note(f"broker {number} is up")

    def is_up(self, number: int) -> bool:
        """Whether a broker is registered and reachable. Raises RuntimeError if its process died."""
        if self.processes[number].poll() is not None:
            raise RuntimeError(f"broker {number} has ended: {self.said(number)[-1:]}")
        return _answers(self.base + number) and number in self.registered()

    def registered(self) -> set[int]:
        """The brokers registered in ZooKeeper or, in KRaft, known to some live broker."""
        if self._zookeeper is not None:
            if not self._zookeeper.exists("/brokers/ids"):
                return set()
            return set(map(int, self._zookeeper.get_children("/brokers/ids")))
        return {n for live in self.live() for n in self._known_to(live)}

    def live(self) -> list[int]:
        """Brokers whose process runs and is not paused."""
        running = (n for n in self.brokers if n in self.processes and n not in self.paused)
        return [n for n in running if self.processes[n].poll() is None]

    def _signal(self, word: str, number: int, what: signal.Signals) -> None:
        self.note(f"{word} {number}")
        self.processes[number].send_signal(what)

    def pause(self, number: int) -> None:
        self._signal("pause", number, signal.SIGSTOP)
        self.paused.add(number)

    def resume(self, number: int) -> None:
        self._signal("resume", number, signal.SIGCONT)
        self.paused.discard(number)

    def kill(self, *numbers: int) -> None:
        """Send SIGKILL to all of them at the same moment, paused or not."""
        for number in numbers:
            self._signal("kill", number, signal.SIGKILL)
        for number in numbers:
            self.processes[number].wait()
            self.paused.discard(number)

    def shut_down(self, number: int, wait_s: float = 60) -> None:
        """Send SIGTERM, for a controlled shutdown."""
        self._signal("shut down", number, signal.SIGTERM)
        self.processes[number].wait(wait_s)

    def lose_power(self, number: int, *topics: str) -> None:
        """Kill a broker, and remove from its disk what was never flushed: all of partition 0.

        Nothing here is flushed before a segment is rolled, so after a power failure the disk would
        have the empty file that was created first.
        """
        self.kill(number)
        self.note(f"broker {number} has lost what was not flushed")
        for topic in topics:
            for path in (self.home(number) / "data" / f"{topic}-0").iterdir():
                if path.suffix in (".log", ".index", ".timeindex", ".snapshot"):
                    path.unlink()

    # Requests

    def note(self, text: str) -> None:
        """Add a line to the timeline."""
        self.timeline.append((time.time() - self.began, text))

    def said(self, number: int, name: str = "server") -> list[str]:
        """A broker's log so far, line by line."""
        path = self.home(number) / "logs" / f"{name}.log"
        return path.read_text(errors="replace").splitlines() if path.exists() else []

    def client(self, number: int | None = None) -> dict[str, Any]:
        """The options of a confluent_kafka client, for one broker or for all live ones."""
        old = {"api.version.request": False, "broker.version.fallback": self.version}
        targets = [number] if number else self.live()
        return {
            "bootstrap.servers": ",".join(f"127.0.0.1:{self.base + n}" for n in targets),
            "log_level": 0,
            "socket.timeout.ms": 40_000,
            **(old if self.release < (0, 10) else {}),
        }

    def _known_to(self, number: int) -> set[int]:
        """The brokers in one broker's metadata; none while it does not answer."""
        try:
            return set(AdminClient(self.client(number)).list_topics(timeout=3).brokers)
        except KafkaException:
            return set()

    def create(
        self, topic: str, *partitions: Sequence[int], settings: config.Settings | None = None
    ) -> None:
        """Create a topic and wait for it. `partitions`: the replicas of each, the leader first."""
        text = {name: str(value) for name, value in (settings or {}).items()}
        if self._zookeeper is not None:
            created = json.dumps({"version": 1, "config": text}).encode()
            self._zookeeper.create(f"/config/topics/{topic}", created, makepath=True)
            replicas = {str(number): list(ids) for number, ids in enumerate(partitions)}
            assigned = json.dumps({"version": 1, "partitions": replicas}).encode()
            self._zookeeper.create(f"/brokers/topics/{topic}", assigned, makepath=True)
        else:
            new = NewTopic(topic, num_partitions=len(partitions), config=text,
                           replica_assignment=list(map(list, partitions)))  # fmt: skip
            admin = AdminClient(self.client())  # it must outlive its answer
            admin.create_topics([new])[topic].result(60)
        self.note(f"create {topic} on {' '.join(str(ids) for ids in partitions)}")
        self._until(lambda: all(len(self.stored(topic, number).isr) == len(ids)
                                for number, ids in enumerate(partitions)),
                    "the topic has its ISR")  # fmt: skip

    def stored(self, topic: str, partition: int = 0) -> inside.Stored:
        """Leader, epoch and ISR as the controller has them stored."""
        if self._zookeeper is not None:
            state = self._node(f"/brokers/topics/{topic}/partitions/{partition}/state")
            if not state:
                return inside.Stored()
            return inside.Stored(state["leader"], state["leader_epoch"], tuple(state["isr"]))
        return inside.stored_in(self.home(config.CONTROLLER) / "data", topic, partition)

    def all_stored(self) -> dict[tuple[str, int], inside.Stored]:
        """The stored state of all partitions of a KRaft cluster."""
        return inside.all_stored_in(self.home(config.CONTROLLER) / "data")

    def topic_ids(self) -> dict[str, str]:
        """The id of each topic of a KRaft cluster, as logs print it."""
        return inside.topic_ids_in(self.home(config.CONTROLLER) / "data")

    def controller(self) -> int:
        """The node that is the controller: a broker, 100 in a KRaft cluster, or -1 for none."""
        if self._zookeeper is None:
            return config.CONTROLLER
        return int(self._node("/controller").get("brokerid", -1))

    def _node(self, path: str) -> dict[str, Any]:
        """The content of a ZooKeeper node; empty if there is no such node."""
        assert self._zookeeper is not None
        try:
            return json.loads(self._zookeeper.get(path)[0])
        except NoNodeError:
            return {}

    def until(self, holds: Callable[[], bool], text: str) -> None:
        """Wait for a condition, and note when it held. Raises TimeoutError after `UP_S` seconds."""
        self._until(holds, text)
        self.note(text)

    def _until(self, holds: Callable[[], bool], text: str) -> None:
        end = time.monotonic() + UP_S
        while not holds():
            if time.monotonic() > end:
                raise TimeoutError(f"still waiting after {UP_S} s: {text}")
            time.sleep(0.05)

    def produce(self, topic: str, *names: str, acks: str = "all", wait_s: float = 60) -> list[str]:
        """Send records in one request each, one after the other, without retries; returns for
        each "ok", its error, or "no answer"."""
        options = {"acks": acks, "retries": 0, "message.timeout.ms": int(wait_s * 1000)}
        options |= {"request.timeout.ms": 30_000, "linger.ms": 0, "enable.idempotence": False}
        producer, outcomes = Producer({**self.client(), **options}), []
        for name in names:
            sent = time.monotonic()
            answers: list[str] = []
            producer.produce(
                topic,
                value=name.encode(),
                partition=0,
                on_delivery=lambda error, _, kept=answers: kept.append(
                    "ok" if error is None else error.name()
                ),
            )
            producer.flush(wait_s + 5)
            outcomes += answers or ["no answer"]
            took = time.monotonic() - sent
            self.note(f"produce {name} acks={acks}: {outcomes[-1]} after {took:.1f} s")
        return outcomes

    def ask(self, *words: str) -> str:
        """Send the KRaft controller a request of Ask.java; returns its errors, or "ok"."""
        where = f"bootstrap.controllers=127.0.0.1:{self.base + config.CONTROLLER}"
        is_refused = words[0] == "elect" or (words[0] == "reassign" and self.release < (4, 0))
        if is_refused:  # by controllers
            where = f"bootstrap.servers={self.client()['bootstrap.servers']}"
        command = config.java(self.version, "Ask", where, *words, heap="128m",
                              classes=config.compiled(self.version, "Ask.java"))  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.strip() or "ok"

    def run_tool(self, main: str, *words: object) -> str:
        """The output of one of Kafka's own tools, which connects to the first live broker."""
        command = config.java(self.version, main, "--bootstrap-server",
                              f"127.0.0.1:{self.base + self.live()[0]}", *words, heap="128m",
                              artifacts=jars.tools)  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{main}: {done.stdout}{done.stderr}")
        return done.stdout

    def reassign(self, topic: str, ids: str) -> None:
        """Ask for these replicas of partition 0, such as "1,2"; "cancel": for the old ones."""
        self.note(f"reassign {ids}: {self.ask('reassign', f'{topic}-0={ids}')}")

    def disk(self, number: int, topic: str, partition: int = 0) -> inside.Disk:
        return inside.disk(self.home(number) / "data", topic, partition)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _ports() -> tuple[socket.socket, int]:
    """A socket that reserves a block of ports on this machine, and the first port of the block."""
    for base in _bases():
        held = socket.socket()
        try:
            held.bind(("127.0.0.1", base))
        except OSError:
            held.close()
            continue
        return held, base
    raise RuntimeError(f"no free ports between {FIRST_PORT} and {LAST_PORT}")


def _bases() -> Iterator[int]:
    bases = range(FIRST_PORT, LAST_PORT, PORTS)
    first = os.getpid() % len(bases)
    return iter([*bases[first:], *bases[:first]])
