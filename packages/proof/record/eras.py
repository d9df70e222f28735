"""One schedule of faults on a real cluster of each generation; what its brokers wrote is kept.

    python -m record.eras 2.4.1              # data/recordings/eras/2.4.1.tar.xz, three minutes
    python -m record.eras 2.4.1 --trace      # 2.4.1-trace.tar.xz: with TRACE of the leaders
    python -m record.eras 2.4.1 --pauses 30  # 2.4.1-pauses.tar.xz: nothing but pauses

Brokers 1, 2 and 3 hold three partitions. The controller holds none and is not touched: a fourth
broker, or in KRaft a node of its own. Broker 3 leads nothing at first. A record every 200 ms
goes to each partition with acks=all. Limits are short, and no two of them close together, so that
the same thing always happens first.

Kept are the brokers' files as they are (but see `REPEATED`), what was done when (`timeline.csv`),
and what was stored: ZooKeeper's transaction log as `stored.csv`, or the KRaft metadata log itself.
"""

from __future__ import annotations

import argparse
import csv
import io
import random
import re
import tarfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import Producer

from judge import jars
from record import config, transactions
from record.cluster import Cluster

FOLDER = Path(__file__).parents[3] / "data" / "recordings" / "eras"
TOPIC, REPLICAS = "orders", ((1, 2, 3), (1, 3, 2), (2, 1, 3))
CONTROLLER = 4  # with ZooKeeper: the broker that is started first
LAG_MS, SESSION_MS = 3_000, 9_000
# A pause is longer than the session, a flap than the lag limit only, a kill than the session.
# What is done to broker 3, for how many seconds, and how long all is well before what comes next
PAUSES = (("pause", 13, 3), ("flap", 5.5, 4), ("flap", 5.5, 4))
STOPS = (
    ("kill", (3,), "SIGKILL", 12, 3),
    ("controlled restart", (2,), "SIGTERM", 2, 3),
    ("leader killed", (1,), "SIGKILL", 12, 3),
    ("under min ISR", (3, 1), "SIGKILL", 12, 4),
)
BETWEEN_S = 6  # between the stops of two brokers
EVERY_S = 0.2
JARS = bytes(Path.home() / ".m2" / "repository")  # which brokers print as their class path
# 0.8 tries a dead leader again without a pause, thousands of times a second: few are kept
REPEATED, MOST_REPEATED = re.compile(rb"Reconnect due to socket error|\], Error in fetch "), 100


def lag_ms(release: config.Release) -> int:
    """The lag limit; 0.8 checks ISRs once in each such interval, and must do so within a flap."""
    return LAG_MS if release >= (0, 9) else 2_500


def settings(release: config.Release) -> config.Settings:
    kraft = release >= (3, 3)
    session = "broker.session.timeout.ms" if kraft else "zookeeper.session.timeout.ms"
    return {
        session: SESSION_MS,
        "replica.lag.time.max.ms": lag_ms(release),
        "min.insync.replicas": 2,
        "controlled.shutdown.enable": "true",
        "unclean.leader.election.enable": "false",
        **({"broker.heartbeat.interval.ms": 1_000} if kraft else {}),
    }


class Recording:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.rows = [("time_utc", "action", "broker", "detail")]
        self._stop = threading.Event()

    def note(self, action: str, broker: int | str = "", detail: str = "") -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.rows.append((now, action, str(broker), detail))
        print(*self.rows[-1], flush=True)

    def settle(self, then_s: float) -> None:
        """Wait until every stored ISR is full, and `then_s` more."""
        stored, places = self.cluster.stored, range(len(REPLICAS))
        self.cluster.until(lambda: all(len(stored(TOPIC, p).isr) == 3 for p in places), "in sync")
        self.note("seen in sync")
        time.sleep(then_s)

    def produce(self) -> None:
        """Send records to every partition until the recording is over."""
        options = {"acks": "all", "linger.ms": 0, "topic.metadata.refresh.interval.ms": 2_000}
        options |= self.cluster.client()
        producers = [Producer(options) for _ in REPLICAS]  # else one partition waits for another
        self.note("producing", "", f"acks=all, a record each {EVERY_S * 1000:g} ms and partition")
        began, count = time.monotonic(), 0
        while not self._stop.is_set():
            for partition, producer in enumerate(producers):
                producer.produce(TOPIC, value=b"%d" % count, partition=partition)
                producer.poll(0)
            count += 1
            time.sleep(max(0, began + count * EVERY_S - time.monotonic()))

    def pause(self, broker: int, for_s: float) -> None:
        self.note("SIGSTOP", broker)
        self.cluster.pause(broker)
        time.sleep(for_s)
        self.note("SIGCONT", broker)
        self.cluster.resume(broker)
        time.sleep(1)

    def stop(self, broker: int, action: str) -> None:
        self.note(action, broker)
        (self.cluster.kill if action == "SIGKILL" else self.cluster.shut_down)(broker)
        self.note("process gone", broker)

    def start(self, *brokers: int) -> None:
        for broker in brokers:
            self.note("start", broker)
            self.cluster.start(broker, wait=False)

    def faults(self) -> None:
        for what, for_s, then_s in PAUSES:
            self.note("fault", 3, what)
            self.pause(3, for_s)
            self.settle(then_s)
        for what, brokers, action, for_s, then_s in STOPS:
            self.note("fault", brokers[0], what)
            for broker in brokers:
                time.sleep(0 if broker == brokers[0] else BETWEEN_S)
                self.stop(broker, action)
            time.sleep(for_s)
            self.start(*brokers)
            self.settle(then_s)

    def pauses(self, count: int) -> None:
        """Pause a follower until it is evicted, `count` times, at random phases of ISR checks."""
        dice = random.Random(self.cluster.version)
        for _ in range(count):
            time.sleep(dice.uniform(0, 2 * lag_ms(self.cluster.release) / 1000))
            self.pause(3, 1 + 1.7 * lag_ms(self.cluster.release) / 1000)
            self.settle(0.5)

    def run(self, what: Callable[[], None]) -> None:
        kraft = self.cluster.kraft
        self.cluster.start(*(() if kraft else (CONTROLLER,)))
        self.note("version", "", self.cluster.version)
        self.start(1, 2, 3)
        for broker in (1, 2, 3):
            self.cluster.until_up(broker)
        self.cluster.create(TOPIC, *REPLICAS)
        self.note("topic created", "", TOPIC)
        feeder = threading.Thread(target=self.produce, daemon=True)
        feeder.start()
        try:
            self.settle(8)
            what()
        finally:
            self._stop.set()
            feeder.join()
        self.note("end of recording")

    def stored(self) -> list[tuple[object, ...]]:
        """The states that ZooKeeper stored: ms, partition, version, leader, leader epoch, ISR."""
        logs = sorted((self.cluster.folder / "zookeeper" / "data" / "version-2").glob("log.*"))
        return [row for path in logs for row in transactions.states(path.read_bytes(), TOPIC)]

    def keep(self, path: Path) -> None:
        """Write the recording into one file."""
        folder = self.cluster.folder
        texts = {"timeline.csv": _csv(self.rows)}
        if not self.cluster.kraft:
            texts["stored.csv"] = _csv([transactions.COLUMNS, *self.stored()])
        path.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path, "w:xz", preset=9) as kept:
            for log in sorted(folder.glob("broker-*/logs/*.log")):
                if log.stat().st_size:
                    written = log.read_bytes().replace(JARS, b"/kafka/lib")
                    _add(kept, f"{log.parts[-3]}/{log.name}", _thinned(written))
            metadata = folder / f"broker-{config.CONTROLLER}" / "data" / "__cluster_metadata-0"
            for part in sorted([*metadata.glob("*.log"), *metadata.glob("*.checkpoint")]):
                _add(kept, f"metadata/{part.name}", part.read_bytes())
            for name, text in texts.items():
                _add(kept, name, text)


def _add(kept: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    kept.addfile(entry, io.BytesIO(data))


def _thinned(data: bytes) -> bytes:
    """A log without all but the first `MOST_REPEATED` lines that match `REPEATED`."""
    lines, repeated = [], 0
    for line in data.splitlines(keepends=True):
        repeated += (is_repeated := REPEATED.search(line) is not None)
        if not is_repeated or repeated <= MOST_REPEATED:
            lines.append(line)
    return b"".join(lines)


def _csv(rows: list[tuple[object, ...]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("version", help="such as 2.4.1")
    parser.add_argument(
        "--trace", action="store_true", help="with TRACE of kafka.cluster.Partition"
    )
    parser.add_argument("--pauses", type=int, metavar="COUNT", help="record only this many pauses")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder (default: %(default)s)")
    args = parser.parse_args()
    release = jars.numbers(args.version)
    traced = "kafka.cluster" if release < (0, 9) else "kafka.cluster.Partition"
    loggers = {"kafka.log.LogCleaner": "OFF", "kafka.server.KafkaConfig": "WARN",
               **({traced: "TRACE"} if args.trace else {})}  # fmt: skip
    brokers = (1, 2, 3) if release >= (3, 3) else (CONTROLLER, 1, 2, 3)
    with Cluster(args.version, brokers, settings(release), loggers=loggers) as cluster:
        recording = Recording(cluster)
        recording.run((lambda: recording.pauses(args.pauses)) if args.pauses else recording.faults)
        name = "-pauses" if args.pauses else "-trace" if args.trace else ""
        recording.keep(args.out / f"{args.version}{name}.tar.xz")


if __name__ == "__main__":
    main()
