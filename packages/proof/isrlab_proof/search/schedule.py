"""Schedules of the search as scenario text, which the clocked world plays.

Theory of operation. An action is a line of the scenario language. The text is built while it is
played, since a line may need others before it in the current cluster. Actions without a line (a
parked fetch that expires, a retry, an ISR check) happen when time passes, so the text lets time
pass, and the settings in its second line prevent anything else from happening then. A follower is
late when it has not fetched for the lag time: so time passes at an earlier step, while all other
followers fetch. Each earlier step is tried, and the first text that breaks the promise in the
clocked world is the result. A schedule for which no times are found has no text.
"""

from collections.abc import Iterator, Sequence

from isrlab.engine import messages as m
from isrlab.engine import safety
from isrlab.engine.model import Follower, Leader
from isrlab.world import scenario
from isrlab.world.cluster import Cluster, NotSettledError
from isrlab.world.commands import COMMANDS, ONE, obey
from isrlab.world.script import Command, Run, ScriptError
from isrlab.world.words import link
from isrlab_proof.search.enabled import EngineSystem
from isrlab_proof.search.space import Space
from isrlab_proof.search.tables import Component, Tables

LONG = "1000h"  # longer than any schedule
TIMERS = {  # of the actions that happen when time passes
    "expire_fetch": m.ExpireFetch, "retry": m.RetryRequest, "late": m.ExpireIsr,
    "checkpoint": m.CheckpointHighWatermark, "ask_again": m.RetryAlterPartition,
}  # fmt: skip
LAG_S, WAIT_S = 30, 9  # for late followers; three waits of a parked fetch fit in between


class Impossible(Exception):
    """The clocked world cannot perform this action now."""


class _Text:
    """The lines so far, and the run that has played them."""

    def __init__(self, system: Space, head: list[str]) -> None:
        self.system, self.run = system, Run([], system.version)
        self.lines: list[str] = []
        self.part = ""  # of the topic, if it has several: the last is searched
        for line in head:
            self.play(line)
        self.part = self.run.topic[-1].name if self.run.others else ""

    @property
    def cluster(self) -> Cluster:
        return self.run.topic[-1].cluster

    def play(self, line: str) -> None:
        word = line.split()[0]
        is_ours = COMMANDS[word].scope == ONE or word in ("reassign", "check") or "elect " in line
        if self.part and is_ours:
            line = line.replace(" ", f" {self.part} ", 1)
        self.lines.append(line)
        try:
            obey(self.run, Command(len(self.lines), line))
        except (ScriptError, NotSettledError) as error:
            raise Impossible(str(error)) from None

    def act(self, action: str, state: Sequence[Component]) -> None:
        """Play an action: its line, after others that make the cluster ready for it."""
        verb, *words = action.split()
        if verb in ("deliver", "drop"):
            ends = next(ends for ends in self.system.links if link(*ends) == words[0])
            self._pass_on(state, ends, verb)
        elif verb in ("kill", "power_loss", "start"):
            broker = int(words[0])
            self._drop_all(broker)
            if verb == "start" and self.cluster.is_cut(broker, m.CONTROLLER):
                self.play(f"heal {broker} controller")
            self.play(action)
        elif verb == "fence":
            self.play(f"cut {words[0]} controller")
            self._drop_all(int(words[0]), (m.CONTROLLER,))
            self.play("elect")
        elif verb == "register":
            self.play(f"heal {words[0]} controller")
        elif verb in TIMERS:
            self._wait(verb, int(words[0]), words[1:])
        else:
            self.play(action)

    def settle(self) -> None:
        """If the controller is prompt, deliver all messages from and to it."""
        while self.system.prompt:
            ours = (e for e in self.cluster.queue if e.partition == self.cluster.number)
            pairs = ((e.source, e.target) for e in ours if not e.is_timer)
            ends = next((pair for pair in pairs if m.CONTROLLER in pair), None)
            if ends is None:
                return
            self.play(f"deliver {link(*ends)}")

    def _pass_on(self, state: Sequence[Component], ends: tuple[int, int], verb: str) -> None:
        """Deliver the next message, after any metadata, which the space leaves out."""
        queue, where = state[self.system.links[ends]], link(*ends)
        assert isinstance(queue, tuple)
        wanted = queue[0]
        waiting = self.cluster.on_link(*ends)
        for count, envelope in enumerate(waiting, 1):
            message = envelope.message
            is_same = type(message) is type(wanted)
            if isinstance(wanted, m.UpdateMetadata) and is_same:
                is_same = message.brokers == wanted.brokers
            if is_same:
                if verb == "drop" and count > 1:
                    self.play(f"deliver {where} {count - 1}")
                self.play(f"{verb} {where}{f' {count}' if verb == 'deliver' and count > 1 else ''}")
                return
        raise Impossible(f"no {type(wanted).__name__} on {where}")

    def _drop_all(self, broker: int, others: tuple[int, ...] = ()) -> None:
        """Drop messages to a broker without a process or, with `others`, on cut links."""
        links = [(source, broker) for source in others or (0, *sorted(self.cluster.disks))]
        links += [(broker, other) for other in others]
        for source, target in links:
            if self.cluster.on_link(source, target):
                self.play(f"drop {link(source, target)} all")

    def _wait(self, name: str, broker: int, words: list[str]) -> None:
        """Let time pass until a timer fires."""
        cluster = self.cluster
        role = cluster.brokers[broker].role
        wanted: dict[str, int] = {}
        if name == "expire_fetch" and isinstance(role, Leader):
            fetch = role.parked[0].fetch
            wanted = {"replica": fetch.replica, "request": fetch.request}
        elif name == "retry" and isinstance(role, Follower):
            wanted = {"request": role.request}
        elif name == "late" and isinstance(role, Leader):
            self._outlast(int(words[0]), role)
        for event in cluster.queue:
            message = event.message
            is_ours = event.is_timer and event.target == broker and type(message) is TIMERS[name]
            if is_ours and all(getattr(message, key) == wanted[key] for key in wanted):
                self.play(f"advance {event.due_ms - cluster.now_ms}ms")
                return
        raise Impossible(f"nothing will fire for {name}")

    def _outlast(self, follower: int, role: Leader) -> None:
        """Make the next check find this follower's clock too old."""
        remote = role.remote(follower)
        assert remote is not None
        age = self.cluster.now_ms - remote.last_caught_up_time_ms
        if 0 <= age <= LAG_S * 1_000:
            self.play(f"advance {LAG_S * 1_000 - age + 1}ms")

    def keep_fresh(self, follower: int) -> None:
        """Let nearly the lag time pass, in which only the other followers fetch."""
        for _ in range((LAG_S - 1) // WAIT_S):
            self.play(f"advance {WAIT_S}s")
            for number, broker in sorted(self.cluster.brokers.items()):
                role = broker.role
                if isinstance(role, Follower) and number != follower:
                    for ends in ((role.leader, number), (number, role.leader)):
                        self.play(f"deliver {link(*ends)} any")


def text_of(system: EngineSystem, partition: str, actions: list[str], promise: str) -> str | None:
    """A scenario with these actions that breaks the promise; None if no times for it are found.

    `partition` is the `partition` line at the start of the search, with any lines that follow it.
    """
    states, tables = [tuple(system.first)], Tables(system)
    for action in actions:
        states.append(dict(tables.successors(states[-1]))[action])
    lates = [i for i, action in enumerate(actions) if action.startswith("late")]
    for early in [None, *range(lates[0], -1, -1)] if lates else [None]:
        for head in _heads(system, partition, actions):
            try:
                text = _Text(system, head)
                for i, (action, state) in enumerate(zip(actions, states, strict=False)):
                    if i == early:
                        text.keep_fresh(int(actions[lates[0]].split()[2]))
                    text.act(action, state)
                    text.settle()
                text.play(f"check {promise}")
            except Impossible:
                continue
            if _is_broken(system, "\n".join(text.lines), promise):
                return "\n".join(text.lines)
    return None


def _heads(system: Space, partition: str, actions: list[str]) -> Iterator[list[str]]:
    """First lines with settings under which only the timers fire that the schedule waits for."""
    names = {action.split()[0] for action in actions}
    waits = names & TIMERS.keys()
    settings = [f"session.timeout.ms={LONG}"]
    if waits:
        lag = f"{LAG_S}s" if "late" in names else LONG
        wait = LONG if "expire_fetch" not in names and "late" not in names else f"{WAIT_S}s"
        settings += [f"replica.lag.time.max.ms={lag}", f"replica.fetch.wait.max.ms={wait}"]
        settings += [f"replica.socket.timeout.ms={LONG}", f"request.timeout.ms={LONG}"]
        if "checkpoint" not in names:
            settings += [f"replica.high.watermark.checkpoint.interval.ms={LONG}"]
    first, *others = partition.splitlines()
    line = " ".join((first, *settings))
    head = [f"version {system.version.name.split()[0]}"]  # without rules switched by hand
    if waits:
        yield [*head, f"{line} latency=20m", *others]
    yield [*head, line, *others]


def _is_broken(system: Space, text: str, promise: str) -> bool:
    run = scenario.play(text, version=system.version).topic[-1]
    return promise in run.violations or (
        safety.PROPERTIES[promise](run.cluster.observer.view()) is not None
    )
