"""Plays a schedule on the engine's controller, and compares its state with Kafka's at each action.

The engine has one topic, whose brokers learn of everything immediately. `WHY_NOT` lists the actions
that it cannot express. data/hunt/stored.csv keeps the states of Kafka's controller, so that a test
can compare the engine with them without Java; `python -m hunt RELEASE --replay=all` compares again.
"""

from __future__ import annotations

import contextlib
import csv
import re
from pathlib import Path

from hunt import javac, kinds
from isrlab.engine import kraft
from isrlab.engine import messages as m
from isrlab.engine.frozen import replace
from isrlab.engine.kraft import NoReplicaError
from isrlab.engine.partition import Controller
from isrlab.engine.versions import KafkaVersion
from isrlab_proof.judged.controller import ControllerPlayer
from judge import jars

FILE = Path(kinds.FILE).with_name("stored.csv")
FAILED = "the controller fails"
WHY_NOT = {
    "whole": "messages between brokers; data/scenarios/known_order.txt, under_min_isr.txt and"
    " raised_minimum.txt play the three kinds that need them",
    "delete": "a topic that goes, and indices that name it",
    "grow": "partitions that come later",
    "unregister": "brokers that go for good",
    "feature": "ELR that is switched while the controller runs",
    "new-controller": "a controller that reads a snapshot",
    "fail-dir|cordon|move-dir": "log directories",
    "balance": "the periodic balancing of leaders",
    "config t* unclean": "unclean elections that are allowed later",
}
PARTITION = re.compile(
    r"\[t(\d+)-(\d+) leader=(-?\d+) epoch=(\d+) isr=\[(.*?)\] elr=\[(.*?)\] replicas=\[(.*?)\]"
    r" \+\[(.*?)\] -\[(.*?)\]"
)


class UnplayableError(Exception):
    """The engine cannot express an action; the message says what it lacks."""


def _shown(leader: int, epoch: int, *sets: object) -> str:
    """One partition: leader/leader epoch, ISR, ELR, replicas, those to add and those to remove."""
    isr, elr, replicas, adding, removing = (
        [int(x) for x in each.split(",") if x.strip()] if isinstance(each, str) else list(each)
        for each in sets
    )
    texts = [sorted(isr), sorted(elr), replicas, sorted(adding), sorted(removing)]
    return f"{leader}/{epoch} " + " ".join(",".join(map(str, x)) or "-" for x in texts)


def kafka(release: str, schedule: str, repaired: tuple[str, ...] = ()) -> list[str]:
    """The states of Kafka's controller after each action, until it fails."""
    states: list[str] = []
    for what, *_ in javac.replayed(release, schedule, repaired):
        if re.match(r"    BROKEN ANSWERED \w+(Exception|Error):", what):
            return [*states[:-1], FAILED]
        if re.match(r"  [a-z]", what):
            found = PARTITION.finditer(what)
            states.append("; ".join(_shown(int(x[3]), int(x[4]), *x.groups()[4:]) for x in found))
    return states


def played(release: str, schedule: str, **rules: object) -> list[str]:
    """The state that the engine stores at each step, by these rules. Raises UnplayableError."""
    first, *actions = schedule.split("; ")
    player = Player(release, first, rules)
    return [player.shown(), *(player.play(action) for action in actions)]


def agreement(release: str, schedule: str, repaired: tuple[str, ...] = ()) -> str:
    """In a few words: whether the engine stores the same states as Kafka."""
    try:
        ours = played(release, schedule)
    except UnplayableError as why:
        return f"the engine has no {why}"
    for action, own, their in zip(
        schedule.split("; "), ours, kafka(release, schedule, repaired), strict=False
    ):
        if own != their:
            return f"THE ENGINE DIFFERS after {action}: it has {own}, Kafka {their}"
    return "the engine agrees"


def stored() -> list[tuple[str, str, list[str]]]:
    """Kind, release, and the states of Kafka's controller after each action."""
    rows = csv.DictReader(FILE.open())
    return [(row["kind"], row["release"], row["states"].split(" | ")) for row in rows]


def store() -> None:
    """Stores Kafka's states for every kind that the engine can play, on its newest release."""
    with FILE.open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(("kind", "release", "states"))
        for kind in kinds.stored().values():
            with contextlib.suppress(UnplayableError):
                played(kind.releases[-1], kind.schedule)
                states = kafka(kind.releases[-1], kind.schedule)
                out.writerow((kind.name, kind.releases[-1], " | ".join(states)))


class Player:
    """The brokers of a hunt beside the engine's controller, with a method for each action."""

    def __init__(self, release: str, cluster: str, rules: dict[str, object]) -> None:
        word, *settings = cluster.split()
        if word in WHY_NOT:
            raise UnplayableError(WHY_NOT[word])
        given = {name: int(value) for name, value in (x.split("=") for x in settings)}
        has_elr = bool(given["elr"]) and jars.numbers(release) >= (4,)  # 3.9 has a preview, off
        self.may_elect_fenced = has_elr and jars.numbers(release) < (4, 1)
        self.version = KafkaVersion.of(release).with_(
            **{"eligible_leader_replicas": has_elr} | rules
        )
        self.cluster_min, self.topic_min = given["min"], 0
        self.brokers = range(1, given["brokers"] + 1)
        self.up = {*self.brokers}
        self.alive = {broker: m.BrokerInfo(broker, 0) for broker in self.up}  # to the controller
        self.clean: set[int] = set()  # were shut down cleanly
        self.registered: set[int] = set()  # and not unfenced yet
        self.stopping: set[int] = set()  # leaders, which wait for others to take over
        self.epoch = 0
        self.player: ControllerPlayer | None = None

    def play(self, action: str) -> str:
        word, *words = action.split()
        for name, why in WHY_NOT.items():
            if re.match(name.replace("*", r"\d+"), action):
                raise UnplayableError(why)
        getattr(self, word.replace("-", "_"), self.ignore)(*words)
        return self.shown()

    def shown(self) -> str:
        if self.player and self.player.has_failed:
            return FAILED
        states = [c.state for c in self.player.controllers] if self.player else []
        if self.may_elect_fenced and any(x.last_known_elr for x in states):
            raise UnplayableError("last known leader as in 4.0 (KAFKA-19522, pull request 20629)")
        return "; ".join(
            _shown(x.leader, x.leader_epoch, x.isr, x.elr, x.replicas, x.adding, x.removing)
            for x in states
        )

    def ignore(self, *_: str) -> None:
        """Actions that change no partition: `write` and `assign-dirs`."""

    def _state(self, place: str) -> tuple[int, Controller]:
        topic, number = place[1:].split("-")
        if self.player is None or topic != self.topic:
            raise UnplayableError("second topic")
        return int(number), self.player.controllers[int(number)]

    def _ask(self, message: m.Message, *partitions: int) -> None:
        if self.player and not self.player.has_failed:
            with contextlib.suppress(NoReplicaError):
                self.player._step(message, *partitions)
                return
            self.player.has_failed = True

    def create(self, topic: str, min_isr: str, unclean: str, lists: str) -> None:
        if self.player or len(self.alive) < len(self.up) or self.registered:
            raise UnplayableError("second topic, nor one whose replicas are not all up")
        self.topic, self.topic_min = topic[1:], _number(min_isr)
        self.player = ControllerPlayer(
            self.version, True, [[*map(int, x.split(","))] for x in lists.split("/")],
            min_insync_replicas=self.topic_min or self.cluster_min,
            unclean_leader_election_enable=bool(_number(unclean)),
        )  # fmt: skip
        alive = tuple(self.alive.values())
        self.player.controllers = [replace(c, alive=alive) for c in self.player.controllers]

    def kill(self, broker: str) -> None:
        self.up.discard(int(broker))
        self.clean.discard(int(broker))

    power = kill

    def expire(self, broker: str) -> None:
        info = self.alive.pop(int(broker), None)
        if info:
            self._ask(m.SessionExpired(info.id, info.broker_epoch))

    def stop(self, broker: str) -> None:
        """A controlled shutdown, which ends immediately if the broker led nothing."""
        number = int(broker)
        was_leader = self.player and any(c.leader == number for c in self.player.controllers)
        self._ask(m.ControlledShutdown(number))
        self.stopping.add(number)
        if not was_leader:
            self.expire(broker)
            self.up.discard(number)
            self.clean.add(number)

    def start(self, broker: str, _: str = "") -> None:
        """A broker registers. Its first heartbeat unfences it."""
        number = int(broker)
        if number in self.up or number in self.alive:  # it is up, or its session is not over
            return
        if self.version.handles_shutdown_again and self.player:
            is_unclean = number not in self.clean and self.version.eligible_leader_replicas
            try:
                lost = [kraft.lose(c, number, is_unclean) for c in self.player.controllers]
                self.player.controllers = lost
            except NoReplicaError:
                self.player.has_failed = True
        self.up.add(number)
        self.stopping.discard(number)
        self.clean.discard(number)
        self.registered.add(number)

    def beat(self, broker: str) -> None:
        number = int(broker)
        if number not in self.up or number in self.alive:
            return
        self.epoch += 1
        self.registered.discard(number)
        self.alive[number] = m.BrokerInfo(number, self.epoch)
        self._ask(m.RegisterBroker(number, self.epoch, is_known=True))

    def reassign(self, place: str, target: str = "") -> None:
        number, _ = self._state(place)
        wanted = tuple(map(int, target.split(","))) if target else None
        self._ask(m.AlterPartitionReassignments(wanted), number)

    cancel = reassign

    def elect(self, place: str, kind: str) -> None:
        self._ask(m.ElectLeaders(kind), self._state(place)[0])

    def unclean_timer(self) -> None:
        self._ask(m.ElectUncleanLeaders())

    def _alter(self, place: str, isr: set[int]) -> None:
        number, state = self._state(place)
        if state.leader not in self.up:
            return
        epochs = tuple(self.alive[x].broker_epoch if x in self.alive else -1 for x in sorted(isr))
        self._ask(m.AlterPartition(
            state.leader, 1, state.leader_epoch, state.partition_epoch, tuple(sorted(isr)), epochs
        ), number)  # fmt: skip

    def join(self, place: str, broker: str) -> None:
        _, state = self._state(place)
        if int(broker) in self.up & set(state.replicas) - set(state.isr):
            self._alter(place, {*state.isr, int(broker)})

    def shrink(self, place: str, broker: str) -> None:
        _, state = self._state(place)
        if int(broker) in state.isr and int(broker) != state.leader:
            self._alter(place, {*state.isr} - {int(broker)})

    def config(self, of: str, value: str) -> None:
        was_set, is_news = bool(self.topic_min), of == "cluster"
        if is_news:
            self.cluster_min = _number(value)
        else:
            self.topic_min = _number(value)
            is_news = was_set is not bool(self.topic_min)  # also if it is the cluster's value
        self._ask(m.IncrementalAlterConfigs(self.topic_min or self.cluster_min, is_news))

    def settle(self) -> None:
        """Restarts each broker that is down or unknown to the controller; all replicas catch up."""
        for broker in self.brokers:
            known = {*self.alive, *self.registered} - self.stopping
            if broker not in self.up or broker not in known:
                self.kill(str(broker))
                self.expire(str(broker))
                self.start(str(broker))
            self.beat(str(broker))
        controllers = self.player.controllers if self.player else []
        for number in [*range(len(controllers))] * 3:
            place = f"t{self.topic}-{number}"
            self._alter(place, set(self._state(place)[1].replicas))


def _number(text: str) -> int:
    return int(text.split("=")[1])
