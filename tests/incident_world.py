"""Simulated incidents of all kinds, written as the logs of every broker.

ISR changes come from the fleet, with a fault at a known time; lines about processes, sessions and
disks are the examples of signs.txt with broker and time filled in. A seed determines one incident:
kind, release, broker and times. `spoil` removes a log or lines, or moves a clock.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from isrlab.fleet import FleetConfig, simulate_local
from isrlab_ops.logs.reader.formats import FORMATS
from log_writer import filled, is_printed_by, write_line

START_MS = 1_790_000_000_000
MINUTES = 5
RELEASES = ("0.8.2", "0.10.2", "1.1", "2.4", "2.8", "3.4", "3.9", "4.1")
ASSIGNED = "1,2,3 2,3,1 3,1,2 1,3,2 2,1,3 3,2,1"
EVERY_MS = 10_000  # a broker logs a line at least this often
TOPIC = "load"
DROPPED = 0.3  # share of the lines
SPOILT = ("", "missing", "clock", "dropped")


@dataclass
class Scene:
    """One incident: the input of the fleet, additional log lines, and the truth."""

    kind: str
    release: str
    broker: int
    random: random.Random
    pauses: str = ""
    stops_ms: int | None = None  # the broker logs nothing from here to starts_ms
    starts_ms: int | None = None
    only: tuple[int, int] | None = None  # the pair whose link is cut
    says: list[tuple[int, int, str]] = field(
        default_factory=list
    )  # ms, broker, message (and level)
    expected: tuple[str, ...] = ()
    blamed: tuple[int, ...] = ()
    from_s: float = 0
    to_s: float = 0

    @property
    def kraft(self) -> bool:
        return tuple(map(int, self.release.split("."))) >= (3, 3)

    @property
    def others(self) -> list[int]:
        return [broker for broker in (1, 2, 3) if broker != self.broker]

    def sign(self, name: str, at_s: float, broker: int, **fills: object) -> None:
        """The line of signs.txt that brokers of this release print, with `fills` put in."""
        forms = [
            f for f in FORMATS if f.kind in ("sign", "failed") and is_printed_by(f, self.release)
        ]
        for form in forms:
            if name in (form.fixed.get("sign"), form.fixed.get("cause")):
                match = form.regex.fullmatch(form.example)
                texts = dict(match.groupdict()) if match else {}
                texts |= {"broker": broker, "topic": TOPIC, "partition": 0} | fills
                known = {n: str(t) for n, t in texts.items() if n in form.fields}
                message = re.sub(r"(?<=[ \[]id=)\d+", str(broker), filled(form, known))
                line = f"{form.level} {message} ({form.logger})"
                self.says.append((round(at_s * 1000), broker, line))
                return
        raise LookupError(f"{self.release} prints no {name}")


Kind = Callable[[Scene], None]


def _stall(scene: Scene, roles: str, what: tuple[str, ...]) -> None:
    pauses = [f"{role} {scene.broker} {scene.from_s}-{scene.to_s}" for role in roles.split()]
    scene.pauses = ", ".join(pauses)
    scene.expected, scene.blamed = what, (scene.broker,)


def follower_stalled(scene: Scene) -> None:
    _stall(scene, "fetchers", ("follower_stalled", "follower_slow"))


def leader_stalled(scene: Scene) -> None:
    _stall(scene, "leader", ("leader_stalled",))


def broker_stalled(scene: Scene) -> None:
    _stall(scene, "fetchers leader", ("broker_stalled",))


def _down(scene: Scene, what: str, *, comes_back: bool, in_order: bool = False) -> None:
    to_s = scene.to_s if comes_back else MINUTES * 60
    scene.pauses = f"down {scene.broker} {scene.from_s}-{to_s}"
    scene.expected, scene.blamed = (what,), () if in_order else (scene.broker,)
    scene.stops_ms = round(scene.from_s * 1000)
    for second in range(round(scene.from_s) + 1, round(to_s) - 6, 5):
        _refused(scene, second)
    if comes_back:
        scene.starts_ms = round((scene.to_s - 6) * 1000)
        scene.sign("starting", scene.to_s - 6, scene.broker)
    if in_order:
        scene.sign("stop_asked", scene.from_s - 1, scene.broker)
    elif comes_back:
        scene.sign("unclean_start", scene.to_s - 5, scene.broker)


def _refused(scene: Scene, at_s: int) -> None:
    """Add lines of other brokers that cannot connect to a process that does not run."""
    for broker in scene.others:
        fetcher = f"[ReplicaFetcherThread-0-{scene.broker}], Error in fetch Name: FetchRequest;"
        text = f"{fetcher} Possible cause: java.nio.channels.ClosedChannelException"
        more = ""
        if scene.release != "0.8.2":
            text = f"[ReplicaFetcher replicaId={broker}, leaderId={scene.broker}, fetcherId=0] "
            text += "Error in response for fetch request (type=FetchRequest)"
            more = "\njava.io.IOException: Connection to kafka:9092 "
            more += f"(id: {scene.broker} rack: null) failed."
        line = f"WARN {text} (kafka.server.ReplicaFetcherThread){more}"
        scene.says.append((at_s * 1000 + broker, broker, line))


def died(scene: Scene) -> None:
    _down(scene, "died", comes_back=False)


def died_and_back(scene: Scene) -> None:
    _down(scene, "died_and_back", comes_back=True)


def restart(scene: Scene) -> None:
    _down(scene, "restart", comes_back=True, in_order=True)


def disk_full(scene: Scene) -> None:
    _down(scene, "disk_full", comes_back=False)
    scene.says.append((round(scene.from_s * 1000) - 20, scene.broker, "ERROR Error while appending "
                       "records to load-0 in dir /d (kafka.server.LogDirFailureChannel)\n"
                       "java.io.IOException: No space left on device"))  # fmt: skip


def session_lost(scene: Scene) -> None:
    scene.pauses = f"down {scene.broker} {scene.from_s}-{scene.to_s}"
    scene.expected, scene.blamed = ("session_lost", "old_state"), (scene.broker,)
    scene.sign("session_lost", scene.to_s - 0.5, scene.broker)


def link_cut(scene: Scene) -> None:
    scene.only = (scene.broker, scene.others[0])
    scene.expected, scene.blamed = ("link_cut",), ()


def zookeeper_away(scene: Scene) -> None:
    scene.pauses = f"down {scene.broker} {scene.to_s}-{scene.to_s + 5}"
    scene.expected, scene.blamed = ("zookeeper_away",), ()
    for broker in (1, 2, 3):
        scene.sign("zookeeper_gone", scene.from_s + scene.random.random(), broker)
        scene.sign("session_lost", scene.to_s + scene.random.random(), broker)


def controller_stalled(scene: Scene) -> None:
    scene.pauses = f"down {scene.broker} {scene.to_s}-{scene.to_s + 1}"
    scene.expected, scene.blamed = ("controller_stalled",), (100,)
    for broker in (1, 2, 3):
        for at_s in range(round(scene.from_s) + 5, round(scene.to_s), 5):
            scene.sign("heartbeat_failed", at_s + scene.random.random(), broker)
    log = "org.apache.kafka.controller"
    for seconds, change in ((0, 1), (0.3, -1)):
        record = f"BrokerRegistrationChangeRecord(brokerId={scene.broker}, brokerEpoch=9, fenced="
        text = "INFO [QuorumController id=100] Replayed BrokerRegistrationChangeRecord modifying "
        text += f"the registration for broker {scene.broker}: {record}{change}, "
        text += f"inControlledShutdown=0, logDirs=[]) ({log}.ClusterControlManager)"
        scene.says.append((round((scene.to_s + seconds) * 1000), 100, text))


def fetcher_gave_up(scene: Scene) -> None:
    scene.pauses = f"fetchers {scene.broker} {scene.from_s}-{MINUTES * 60}"
    scene.expected, scene.blamed = ("fetcher_gave_up",), (scene.broker,)
    for partition, leader in enumerate((1, 2, 3, 1, 2, 3)):
        if leader != scene.broker:
            scene.sign("fetcher gave up", scene.from_s, scene.broker, partition=partition,
                       leader=leader)  # fmt: skip


def throttle_left_behind(scene: Scene) -> None:
    scene.pauses = f"fetchers {scene.broker} {scene.from_s}-{MINUTES * 60}"
    scene.expected, scene.blamed = ("throttle_left_behind",), ()
    config = "leader.replication.throttled.replicas -> 0:1,0:2"
    for broker in (1, 2, 3):
        scene.sign("configured", 20, broker, topic=TOPIC, config=config)


def power_failure(scene: Scene) -> None:
    scene.expected, scene.blamed, scene.broker = ("power_failure",), (), 0
    scene.stops_ms, scene.starts_ms = round(scene.from_s * 1000), round(scene.to_s * 1000)
    for broker in (1, 2, 3):
        at_s = scene.to_s + 5 * scene.random.random()
        scene.sign("starting", at_s, broker)
        scene.sign("unclean_start", at_s + 1, broker)


def quiet(scene: Scene) -> None:
    scene.expected = ()


KINDS: tuple[Kind, ...] = (
    follower_stalled, leader_stalled, broker_stalled, died, died_and_back, restart, disk_full,
    session_lost, link_cut, zookeeper_away, controller_stalled, fetcher_gave_up,
    throttle_left_behind, power_failure, quiet,
)  # fmt: skip
SINCE = {controller_stalled: "3.4", fetcher_gave_up: "2.4", throttle_left_behind: "1.1"}
UNTIL = {session_lost: "2.8", zookeeper_away: "2.8"}


def incident(seed: int) -> Scene:
    """The incident of a seed; consecutive seeds cycle through the kinds."""
    rng, kind = random.Random(seed), KINDS[seed % len(KINDS)]
    first = RELEASES.index(SINCE.get(kind, RELEASES[0]))
    last = RELEASES.index(UNTIL.get(kind, RELEASES[-1]))
    release = rng.choice(RELEASES[first : last + 1])
    scene = Scene(kind.__name__, release, rng.choice((1, 2, 3)), rng)
    scene.from_s = round(rng.uniform(60, 120), 1)
    scene.to_s = round(scene.from_s + rng.uniform(50, 70), 1)
    kind(scene)
    return scene


def write_logs(scene: Scene, folder: Path, seed: int) -> None:
    """Write the logs of all brokers, one folder each."""
    rng = random.Random(seed)
    lines: dict[int, list[tuple[int, str]]] = {broker: [] for broker in (1, 2, 3)}
    for event in _events(scene):
        if line := _line(event, scene.release):
            lines[event["broker"]].append((event["ts_ms"], line))
    for broker, own in lines.items():
        noise = range(0, MINUTES * 60_000, EVERY_MS)
        text = "INFO Removed 0 expired offsets in 0 milliseconds. (kafka.server.GroupCoordinator)"
        own += [(ms + rng.randrange(1000), text) for ms in noise if not _is_gone(scene, broker, ms)]
    for ms, broker, text in scene.says:
        lines.setdefault(broker, []).append((ms, text))
    for broker, own in lines.items():
        home = folder / f"broker-{broker}"
        home.mkdir(parents=True)
        written = [_stamped(ms, text) for ms, text in sorted(own, key=lambda each: each[0])]
        (home / "server.log").write_text("\n".join(written) + "\n")


def spoil(folder: Path, how: str, seed: int) -> None:
    """Spoil the logs: one broker's is `missing` or has its `clock` off, or lines are `dropped`."""
    rng = random.Random(seed)
    victim = folder / f"broker-{rng.choice((1, 2, 3))}"
    if how == "missing":
        shutil.rmtree(victim)
    elif how == "clock":
        apart = timedelta(seconds=rng.choice((-90, -30, 30, 90)))

        def moved(match: re.Match[str]) -> str:
            return f"[{datetime.fromisoformat(match[1]) + apart},"

        path = victim / "server.log"
        path.write_text(re.sub(r"(?m)^\[([-\d]+ [:\d]+),", moved, path.read_text()))
    elif how == "dropped":
        for path in sorted(folder.glob("*/server.log")):
            lines = path.read_text().splitlines(keepends=True)
            path.write_text("".join(line for line in lines if rng.random() > DROPPED))


def _is_gone(scene: Scene, broker: int, ms: int) -> bool:
    if scene.stops_ms is None or scene.broker not in (broker, 0):
        return False
    return scene.stops_ms - 1_000 <= ms < (scene.starts_ms or MINUTES * 60_000)


def _events(scene: Scene) -> Iterator[dict]:
    """The events of leaders, and the first state of each partition."""
    for partition, text in enumerate(ASSIGNED.split()):
        isr = list(map(int, text.split(",")))
        yield {
            "ts_ms": partition, "kind": "first", "broker": isr[0], "topic": TOPIC, "isr": isr,
            "partition": partition, "leader_epoch": 0, "partition_epoch": 0,
        }  # fmt: skip
    for leader in (1, 2, 3) if scene.only else (0,):
        pauses = scene.pauses
        if scene.only and leader in scene.only:
            other = next(broker for broker in scene.only if broker != leader)
            pauses = f"fetchers {other} {scene.from_s}-{scene.to_s}"
        config = FleetConfig(
            name="r", version=scene.release, partitions=6, brokers=3, minutes=MINUTES,
            assigned=ASSIGNED, pauses=pauses, load="steady", stall_s=0, records_per_s=20,
            batch_every_ms=100, seed=scene.random.randrange(2**31),
        )  # fmt: skip
        for row in simulate_local(config).to_pylist():
            if row["topic"] is not None and (leader in (0, row["broker"])):
                yield row | {"detail": dict(row["detail"] or ())}


def _line(event: dict, release: str) -> str | None:
    """The line of an event without its time, or None."""
    is_controllers = (event.get("detail") or {}).get("said_by") == "controller"
    if event["kind"] == "first" or (event["kind"] == "isr_commit" and is_controllers):
        return _order(event, tuple(map(int, release.split("."))))
    if is_controllers or event["kind"] not in ("isr_shrink", "isr_expand", "isr_commit"):
        return None
    line = write_line(event | {"ts_ms": 0}, release)
    is_printed = line is not None and line.split(" ")[2] == "INFO"
    return line.partition("] ")[2] if line and is_printed else None


def _order(event: dict, release: tuple[int, ...]) -> str:
    """The line of a leader that receives its state from the controller."""
    isr, replicas = event["isr"], ASSIGNED.split()[event["partition"]].split(",")
    at, leader, epoch = event["partition"], event["broker"], event["leader_epoch"]
    epoch += event["kind"] == "isr_commit"  # a removal by the controller begins a leader epoch
    listed, version = ",".join(map(str, isr)), event["partition_epoch"]
    ending = f"controller 1 epoch 1 for partition {TOPIC}-{at} (state.change.logger)"
    order, number = "eceived LeaderAndIsr request", "correlation id 3 from"
    if release < (1,):
        state = f"(LeaderAndIsrInfo:(Leader:{leader},ISR:{listed},LeaderEpoch:{epoch},"
        state += f"ControllerEpoch:1),ReplicationFactor:3),AllReplicas:{','.join(replicas)})"
        ending = ending.replace(f"{TOPIC}-{at}", f"[{TOPIC},{at}]")
        return f"TRACE Broker {leader} r{order} {state} {number} {ending}"
    if release < (2, 4):
        state = f"PartitionState(controllerEpoch=1, leader={leader}, leaderEpoch={epoch}, isr="
        state += f"{listed}, zkVersion={version}, replicas={','.join(replicas)}, isNew=false)"
        return f"TRACE [Broker id={leader}] R{order} {state} {number} {ending}"
    state = f"LeaderAndIsrPartitionState(topicName='{TOPIC}', partitionIndex={at}, controllerEpoch"
    state += f"=1, leader={leader}, leaderEpoch={epoch}, isr={isr}, zkVersion={version}, replicas="
    state += f"[{', '.join(replicas)}], addingReplicas=[], removingReplicas=[], isNew=false)"
    ending = ending.replace(f" for partition {TOPIC}-{at}", "")
    return f"TRACE [Broker id={leader}] R{order} {state} {number} {ending}"


def _stamped(ms: int, text: str) -> str:
    moment = datetime.fromtimestamp((START_MS + ms) / 1000, UTC)
    return f"[{moment:%Y-%m-%d %H:%M:%S},{ms % 1000:03d}] {text}"
