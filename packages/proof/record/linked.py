"""Record fetcher threads, or followers, that share one link, in data/recordings/advice.

    python -m record.linked two-threads 3.9.2 --store        in the folder packages/proof

Followers reach broker 1 through a relay here that lets 4 MB/s through to them: in chunks of 16 kB,
each connection in its turn, so that a connection without work takes nothing. A fetcher thread is
a connection. A try is a topic of four partitions led by broker 1: with two threads, one fetches
the even partitions and the other the odd ones. Each partition gets a small record every 0.2 s; then
a backlog comes to one partition, or to two. The lag limit is 6 s. A try's `bytes` moments have the
number of bytes of its partition that each broker has.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

import click
from confluent_kafka import Producer

from isrlab_ops.recordings.reassigned import ADVICE, ClusterRun, TopicTry
from record import config, inside
from record.cluster import Cluster
from record.many import moment, report

MB = 1_000_000
RATE, CHUNK_BYTES, BURST_S, PARTITIONS = 4 * MB, 16_384, 0.1, 4
LARGE, SMALL, EVERY_S = 20_000, 1_000, 0.2
LISTENER, RELAY = 50, 70  # these ports, counted from a broker's own port
LAG_MS = 6_000


class Situation(NamedTuple):
    """`backlog_mb`: backlogs of partitions 0, 1, ...; `is_shared`: one link for all connections."""

    backlog_mb: tuple[int, ...]
    fetchers: int = 2
    mib: int = 0  # both limits of a response; 0: the defaults, 1 and 10
    is_shared: bool = True
    followers: tuple[int, ...] = (2,)


SITUATIONS = {
    "default-sizes": Situation((40,)),
    "large-sizes": Situation((40,), mib=64),
    "one-thread": Situation((22, 11), fetchers=1),
    "two-threads": Situation((22, 11)),
    "own-links": Situation((22, 11), is_shared=False),
    "two-followers": Situation((22,), followers=(2, 3)),
}


@dataclass
class Relay:
    """A relay between two ports of this machine, which passes `rate` bytes/s back at most."""

    port: int
    target: int
    rate: int
    is_shared: bool
    _free: dict[object, float] = field(default_factory=dict)  # when a link has sent all
    _turns: dict[object, asyncio.Lock] = field(default_factory=dict)

    def __enter__(self) -> Self:
        ready = threading.Event()

        async def serve() -> None:
            self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
            await asyncio.start_server(self._relay, "127.0.0.1", self.port, limit=CHUNK_BYTES)
            ready.set()
            await self._over.wait()

        self._thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
        self._thread.start()
        ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", self.target, limit=CHUNK_BYTES)
        link = self if self.is_shared else writer
        for stream in (writer, forth):
            stream.transport.set_write_buffer_limits(CHUNK_BYTES)
        with suppress(asyncio.CancelledError):  # the end
            await asyncio.gather(
                _copied(reader, forth, None), _copied(back, writer, self._turn(link))
            )

    def _turn(self, link: object) -> Callable[[int], Awaitable[None]]:
        """A function that waits until a link has sent some bytes, for each connection in turn."""
        key = id(link)
        lock = self._turns.setdefault(key, asyncio.Lock())

        async def send(size: int) -> None:
            async with lock:  # first come, first served
                now = time.monotonic()
                self._free[key] = max(self._free.get(key, 0), now - BURST_S) + size / self.rate
                await asyncio.sleep(self._free[key] - now)

        return send


async def _copied(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    send: Callable[[int], Awaitable[None]] | None,
) -> None:
    """Copy all data from one side to the other, until one of them closes."""
    with suppress(ConnectionError):
        while data := await reader.read(CHUNK_BYTES):
            if send:
                await send(len(data))
            writer.write(data)
            await writer.drain()
    writer.close()


class Linked(Cluster):
    """Broker 1 leads, and its followers reach it through a relay."""

    def __init__(self, version: str, situation: Situation) -> None:
        sizes = {"replica.fetch.max.bytes": situation.mib * 2**20,
                 "replica.fetch.response.max.bytes": situation.mib * 2**20}  # fmt: skip
        settings = {"replica.lag.time.max.ms": LAG_MS, "num.replica.fetchers": situation.fetchers}
        self.settings: dict[str, object] = {**settings, **(sizes if situation.mib else {})}
        super().__init__(version, (1, *situation.followers), self.settings)
        for number in self.brokers:
            port = self.base + number
            given = {name: f"PLAINTEXT://127.0.0.1:{port},REPLICATION://127.0.0.1:{port + shift}"
                     for name, shift in (("listeners", LISTENER), ("advertised.listeners",
                                         RELAY if number == 1 else LISTENER))}  # fmt: skip
            given["inter.broker.listener.name"] = "REPLICATION"
            given["listener.security.protocol.map"] = ",".join(
                f"{name}:PLAINTEXT" for name in ("CONTROLLER", "PLAINTEXT", "REPLICATION")
            )
            with (self.home(number) / "server.properties").open("a") as file:
                file.writelines(f"{name}={value}\n" for name, value in given.items())

    def bytes_of(self, number: int, topic: str, partition: int) -> int:
        folder: Path = self.home(number) / "data" / f"{topic}-{partition}"
        return sum(path.stat().st_size for path in folder.glob("*.log"))


@contextmanager
def small_records(cluster: Cluster, topic: str) -> Iterator[Producer]:
    """Send each partition a record every 0.2 s, and yield a producer for more; a batch for each."""
    options = {"acks": "1", "linger.ms": 0, "batch.num.messages": 1, "enable.idempotence": False}
    producer, over = Producer({**cluster.client(), **options}), threading.Event()

    def feed() -> None:
        while not over.wait(EVERY_S):
            for partition in range(PARTITIONS):
                producer.produce(topic, b"." * SMALL, partition=partition)
            producer.poll(0)

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    try:
        yield producer
    finally:
        over.set()
        thread.join()
        producer.flush(30)


def one_try(cluster: Linked, situation: Situation, name: str, number: int) -> list[TopicTry]:
    topic, backlogs = f"{name}-{number}", situation.backlog_mb
    cluster.create(topic, *[(1, *situation.followers)] * PARTITIONS)
    tries = [TopicTry(name, topic, each, lost=0) for each in range(PARTITIONS)]
    with small_records(cluster, topic) as producer:
        time.sleep(3 + random.random() * LAG_MS / 2_000)  # a random phase of the ISR check
        cluster.note(f"{topic}: backlogs of {backlogs} MB")
        for record in range(max(backlogs) * MB // LARGE):
            for partition, mb in enumerate(backlogs):
                if record < mb * MB // LARGE:
                    producer.produce(topic, b"." * LARGE, partition=partition)
            producer.poll(0)
        while _look(cluster, [*zip(tries, backlogs, strict=False)]):
            time.sleep(0.25)
        cluster.note(f"{topic}: copied")
        time.sleep(1)
    cluster.until(lambda: all(len(cluster.stored(topic, each).isr) == len(cluster.brokers)
                              for each in range(PARTITIONS)), f"{topic}: all in sync")  # fmt: skip
    return tries


def _look(cluster: Linked, tries: list[tuple[TopicTry, int]]) -> bool:
    """Note the bytes that brokers have of partitions with a backlog; returns whether some lack any.

    Nothing else is read, because this process also runs the relay.
    """
    lacking = False
    for each, mb in tries:
        held = {n: cluster.bytes_of(n, each.topic, each.partition) for n in cluster.brokers}
        at_s = round(time.time() - cluster.began, 2)
        each.moments.append(moment("bytes", at_s, inside.Stored(1), held))
        lacking |= min(held.values()) < max(*held.values(), mb * MB) - LARGE
    return lacking


def changes(cluster: Linked, tries: list[TopicTry]) -> None:
    """Add to `tries` each state of their partitions that the controller has stored."""
    places = {(each.topic, each.partition): each for each in tries}
    for ts_ms, place, stored in inside.changes_in(cluster.home(config.CONTROLLER) / "data"):
        if place in places:
            at_s = round(ts_ms / 1000 - cluster.began, 3)
            places[place].moments.append(moment("stored", at_s, stored, {}))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name", type=click.Choice(list(SITUATIONS)))
@click.argument("release")
@click.option("--tries", default=10, show_default=True, help="Topics, one after the other.")
@click.option("--store", is_flag=True, help="Keep it in data/recordings/advice.")
def main(name: str, release: str, tries: int, store: bool) -> None:
    """Let fetchers of real brokers share a link, on a release such as 3.9.2."""
    situation, seen = SITUATIONS[name], list[TopicTry]()
    with Linked(release, situation) as cluster:
        port = cluster.base + 1
        with Relay(port + RELAY, port + LISTENER, RATE, situation.is_shared):
            cluster.start(*cluster.brokers)
            for number in range(tries):
                seen += one_try(cluster, situation, name, number)
                print(cluster.timeline[-3:], flush=True)
            changes(cluster, seen)
        kind = "shared" if situation.is_shared else "of each connection"
        texts = {key: str(value) for key, value in cluster.settings.items()}
        began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(cluster.began))
        timeline = [(round(at, 2), text) for at, text in cluster.timeline]
        made = ClusterRun(release, 0, began, cluster.brokers,
                          texts | {"link": f"4 MB/s, {kind}"}, timeline, seen)  # fmt: skip
    report(made, f"{release}-{name}-1", is_stored=store, folder=ADVICE)


if __name__ == "__main__":
    main()
