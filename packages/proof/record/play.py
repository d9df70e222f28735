"""Play a schedule on real brokers, and record the result.

A schedule is a scenario of `data/scenarios`. Its commands `produce`, `kill`, `clean_shutdown`,
`start`, `pause`, `resume` and (KRaft) `reassign` apply to real brokers as they are; the engine's
others (such as `stabilize`, `advance`, `deliver` and `status`) are skipped, because real brokers do
these things by themselves. The actions after `#>` on a line replace that line: one or
several of these, separated by `;`.

    wait 9.5               seconds
    quiet 6                until nothing has changed for so many seconds
    until leader 2         the controller has stored that broker 2 leads; or, with !2, another
    until isr 1            the controller has stored this ISR
    until copied m2        every running replica has m2
    until known m2         every running replica also knows that m2 is committed
    until gone 2           broker 2 is no longer registered (ZooKeeper)
    until controller 2     broker 2 is the controller (ZooKeeper)
    produce, kill, start, pause, resume, lose_power      as in a scenario; several brokers at a time
    clean_shutdown, reassign, configure, elect           as in a scenario

After `#>` the `partition` line has the order in which the brokers are started, the session timeouts
of single brokers, and settings of all brokers:

    start=3,1,2 session=1:2s,2:8s,3:6s replica.fetch.wait.max.ms=9000
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from isrlab.engine.log import LeaderEpochCache, Log, Record
from isrlab.engine.partition import PartitionState
from isrlab.world import script
from isrlab_ops.recordings.recorded import BlockEnd, Try
from judge import jars

if TYPE_CHECKING:
    from record.cluster import Cluster

TOPIC = "t"
SETTLE_S = 0.8  # longer than the brokers wait between two checkpoints of the high watermark
OF_THE_TOPIC = "min.insync.replicas", "unclean.leader.election.enable"  # others are of brokers
# applied to real brokers, just as they are written
DONE = "produce", "kill", "clean_shutdown", "start", "pause", "resume", "reassign"
OF_ENGINE = "version", "advance", "check", "deliver", "elect", "hard_bounce", "stabilize", "status"
ABOUT = f"{TOPIC}-0", f"[{TOPIC},0]", "alting", "xiting"
NEWS = ("runcat", "ISR", "alt", "xiting", "eader", "epoch", "shut")


@dataclass
class Setup:
    replicas: tuple[int, ...] = (1, 2, 3)
    start: tuple[int, ...] = ()
    sessions_ms: dict[int, int] = field(default_factory=dict)
    topic: dict[str, str] = field(default_factory=dict)
    brokers: dict[str, str] = field(default_factory=dict)


def setup_of(text: str) -> Setup:
    """The set-up in the `partition` line of a schedule. Raises ValueError for a scenario that has
    no actions on real brokers where it needs them."""
    commands = [command for block in script.parse(text) for command in block.commands]
    for command in commands:
        if "#>" not in command.text and command.words[0] not in (*DONE, *OF_ENGINE, "partition"):
            raise command.fail(
                "no action for real brokers: write one after #> (packages/proof/record/play.py)"
            )
    lines = [command for command in commands if command.words[0] == "partition"]
    if not lines or "#>" not in lines[0].text:
        raise ValueError("the schedule has no partition line with #> and how brokers are started")
    return _setup(lines[0].words[1:], lines[0].text.partition("#>")[2].split())


def _setup(given: list[str], real: list[str]) -> Setup:
    options = dict(word.split("=", 1) for word in (*given, *real))
    ids = [int(number) for number in options.pop("replicas", "1,2,3").split(",")]
    leader = int(options.pop("leader", ids[0]))
    replicas = (leader, *(number for number in ids if number != leader))
    found = Setup(replicas, tuple(map(int, options.pop("start", "3,1,2").split(","))))
    for part in options.pop("session", "").split(","):
        number, _, length = part.rpartition(":")
        if part:
            found.sessions_ms[int(number or 0)] = round(float(length.rstrip("s")) * 1000)
    options.pop("latency", None)
    found.topic = {name: options.pop(name) for name in OF_THE_TOPIC if name in options}
    found.brokers = options
    return found


def cluster(version: str, text: str, features: dict[str, int], keep: bool = False) -> Cluster:
    """The cluster that a schedule wants, not started yet."""
    from record.cluster import Cluster  # needs client libraries, unlike reading recordings

    setup = setup_of(text)
    plain: dict[str, object] = dict(setup.brokers)
    own: dict[int, dict[str, object]] = {}
    if (kraft := jars.numbers(version) >= (3, 3)) and setup.sessions_ms:
        # the controller decides, and has one session length for all
        plain["broker.session.timeout.ms"] = str(max(setup.sessions_ms.values()))
    else:
        for number, length_ms in setup.sessions_ms.items():
            for broker in [number] if number else setup.start:
                own[broker] = {"zookeeper.session.timeout.ms": length_ms}
    return Cluster(version, sorted(setup.start), plain, own=own, kraft=kraft,
                   features=features, keep=keep)  # fmt: skip


class Play:
    """One try; `seen` is its recording."""

    def __init__(self, cluster: Cluster, text: str) -> None:
        self.cluster, self.text, self.setup = cluster, text, setup_of(text)
        self.seen = Try(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(cluster.began)))

    def run(self) -> Try:
        self.cluster.start(*self.setup.start)
        self.cluster.create(TOPIC, self.setup.replicas, settings=self.setup.topic)
        time.sleep(1)  # until every follower has fetched
        for block in script.parse(self.text):
            for command in block.commands:
                _, mark, real = command.text.partition("#>")
                self._obey(command.words, real.strip() if mark else None)
            time.sleep(SETTLE_S)
            self.seen.moments.append(self._moment())
        self.seen.timeline = [(round(at, 2), what) for at, what in self.cluster.timeline]
        self.seen.said = list(self._said())
        return self.seen

    def _obey(self, words: list[str], real: str | None) -> None:
        if words[0] == "partition":
            return
        if real is None and words[0] not in OF_ENGINE:
            self._do(words)
        for action in (real or "").split(";") if real else ():
            self._do(action.split())

    def _do(self, words: list[str]) -> None:
        cluster = self.cluster
        known: dict[str, Callable[..., object]] = {
            "wait": lambda seconds: time.sleep(float(seconds)),
            "quiet": lambda seconds: self._quiet(float(seconds)),
            "until": self._until,
            "produce": self._produce,
            "kill": lambda *numbers: cluster.kill(*map(int, numbers)),
            "clean_shutdown": lambda number: cluster.shut_down(int(number)),
            "reassign": lambda ids: cluster.reassign(TOPIC, ids),
            "start": lambda *numbers: [self._start(int(number)) for number in numbers],
            "pause": lambda *numbers: [cluster.pause(int(number)) for number in numbers],
            "resume": lambda *numbers: [cluster.resume(int(number)) for number in numbers],
            "configure": lambda setting: cluster.note(
                f"{setting}: {cluster.ask('config', setting)}"
            ),
            "elect": lambda kind: cluster.note(
                f"elect {kind}: {cluster.ask('elect', f'{TOPIC}-0={kind}')}"
            ),
            "lose_power": lambda number: cluster.lose_power(int(number), TOPIC),
        }
        if words[0] not in known:
            raise ValueError(f"a schedule cannot {' '.join(words)!r}; known: {', '.join(known)}")
        known[words[0]](*words[1:])

    def _quiet(self, length_s: float) -> None:
        state, since, begun = self._moment(), time.monotonic(), time.monotonic()
        while time.monotonic() < min(since + length_s, begun + 60):
            time.sleep(0.3)
            if (now := self._moment()) != state:
                state, since = now, time.monotonic()
        self.cluster.note(f"quiet {length_s:g}")

    def _until(self, what: str, value: str) -> None:
        cluster = self.cluster
        known: dict[str, Callable[[], bool]] = {
            "leader": lambda: (
                (cluster.stored(TOPIC).leader == int(value.strip("!"))) is (value[0] != "!")
            ),
            "isr": lambda: set(cluster.stored(TOPIC).isr) == set(map(int, value.split(","))),
            "copied": lambda: all(value in names for names, _ in self._copies()),
            "known": lambda: all(value in names[:hw] for names, hw in self._copies()),
            "gone": lambda: int(value) not in cluster.registered(),
            "controller": lambda: cluster.controller() == int(value),
        }
        if what not in known:
            raise ValueError(f"unknown condition: until {what!r}; known: {', '.join(known)}")
        cluster.until(known[what], f"{what} {value}")

    def _copies(self) -> list[tuple[list[str], int]]:
        """The records of every running replica, and its high watermark as last written."""
        running = set(self.cluster.live()) & set(self.setup.replicas)
        disks = [self.cluster.disk(number, TOPIC) for number in running]
        return [([text for _, text, _ in d.records], d.high_watermark) for d in disks]

    def _produce(self, *rest: str) -> None:
        options = dict(word.split("=", 1) for word in rest if "=" in word)
        names = [word for word in rest if "=" not in word and not word.isdecimal()]
        answers = self.cluster.produce(TOPIC, *names, acks=options.get("acks", "all"))
        self.seen.answers |= zip(names, answers, strict=True)

    def _start(self, number: int) -> None:
        """Start a broker, and wait until it is up or has ended."""
        self.cluster.start(number, wait=False)
        process = self.cluster.processes[number]
        end = time.monotonic() + 60
        while process.poll() is None and not self.cluster.is_up(number):
            if time.monotonic() > end:
                raise TimeoutError(f"broker {number} is not up after 60 s")
            time.sleep(0.05)
        self.cluster.note(f"broker {number} " + ("is up" if process.poll() is None else "ended"))

    def _moment(self) -> BlockEnd:
        """The stored state, and each replica's log."""
        stored, replicas = self.cluster.stored(TOPIC), tuple(sorted(self.setup.replicas))
        epoch, elr = stored.leader_epoch, stored.elr
        known = () if self.cluster.kraft else tuple(sorted(self.cluster.registered()))
        return BlockEnd(
            PartitionState(replicas, stored.leader, stored.isr, epoch, elr=elr),
            {number: self._life(number) for number in replicas},
            {number: self._log(number) for number in replicas},
            known,
        )

    def _log(self, number: int) -> Log:
        disk = self.cluster.disk(number, TOPIC)
        start = disk.records[0][0] if disk.records else 0
        return Log(
            records=tuple(Record(text, epoch) for _, text, epoch in disk.records),
            log_start_offset=start,
            high_watermark=min(disk.high_watermark, start + len(disk.records)),
            checkpointed_high_watermark=disk.high_watermark,
            epochs=LeaderEpochCache(disk.epochs),
        )

    def _life(self, number: int) -> str:
        if number in self.cluster.paused:
            return "paused"
        if self.cluster.processes[number].poll() is not None:
            return "dead"
        return "alive" if self.cluster.is_up(number) else "hangs"

    def _said(self) -> Iterator[tuple[int, str, str]]:
        """The brokers' own lines about this partition, and about halting."""
        for number in self.cluster.brokers:
            for name in ("server", "controller", "state-change"):
                kept = ""
                for line in self.cluster.said(number, name):
                    about = any(word in line for word in ABOUT) and any(w in line for w in NEWS)
                    is_detail = " TRACE " in line and "truncated logs" not in line
                    if about and not is_detail and line[26:] != kept:
                        kept = line[26:]  # without its time: old brokers repeat some lines forever
                        yield number, name, line
