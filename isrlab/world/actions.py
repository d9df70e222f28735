"""The possible next actions in a run, as lines of the scenario language, and their effects.

A line that delivers or drops a message can be played in every version: if no message is in flight
on its link, the line does nothing.
"""

from collections.abc import Collection, Iterator
from itertools import combinations
from typing import NamedTuple

from isrlab.engine import messages as m
from isrlab.engine.partition import PartitionState
from isrlab.world import words
from isrlab.world.cluster import Cluster
from isrlab.world.commands import ANY, COMMANDS, ONE, links_with_messages, obey
from isrlab.world.frames import Envelope
from isrlab.world.script import Block, Command, Run

EVERYBODY = -2  # in place of a machine, for the passing of time and for actions of all machines
KINDS = (
    "deliver", "lose", "settle", "wait", "produce", "kill", "start", "bounce", "shutdown",
    "restart", "power", "flush", "pause", "stall", "resume", "cut", "heal", "expire", "prefer",
    "unclean", "failover", "reassign",
)  # fmt: skip
MOST_BROKERS = 4  # to which a partition may move
WAITS = ("100ms", "600ms", "10s", "45s")
_ASKS_NOTHING = ("status", "check", "trace", "consume", "version", "partition")


class Action(NamedTuple):
    kind: str  # of KINDS
    machine: int  # a broker, the controller, or EVERYBODY
    line: str
    label: str
    envelope: Envelope | None = None  # the message that is delivered or lost
    part: str = ""  # the partition's name, if the topic has several


def enabled(run: Run, kinds: Collection[str] = KINDS) -> list[Action]:
    """All actions of these kinds that are possible now; actions on whole machines appear once."""
    actions: list[Action] = []
    for part in run.topic:
        for of in (_of_messages, _of_machines, _of_links, _of_operators):
            actions += _named(run, part, [a for a in of(part.cluster, kinds) if a.kind in kinds])
    return actions


def _named(run: Run, part: Run, actions: list[Action]) -> Iterator[Action]:
    for action in actions:
        name, _, rest = action.line.partition(" ")
        if run.others and COMMANDS[name].scope in (ONE, ANY):
            yield action._replace(line=f"{name} {part.name} {rest}".rstrip(), part=part.name)
        elif part is run:
            yield action


def _of_messages(cluster: Cluster, kinds: Collection[str]) -> Iterator[Action]:
    for link, first in links_with_messages(cluster).items():
        yield Action("deliver", first.target, f"deliver {link} any", "deliver", first)
        if first.source != m.CONTROLLER:  # a controller repeats its orders until they arrive
            yield Action("lose", first.target, f"drop {link} any", "lose", first)


def _of_machines(cluster: Cluster, kinds: Collection[str]) -> Iterator[Action]:
    for broker in sorted(cluster.replicas):
        what, leads = cluster.paused.get(broker), broker == cluster.controller.leader
        if broker not in cluster.brokers:
            yield Action("start", broker, f"start {broker}", "start")
            continue
        for acks in ("1", "all") if leads else ():
            yield Action("produce", broker, f"produce {broker} acks={acks}", f"write, acks={acks}")
        forms = _OF_BROKER if what is None else _OF_PAUSED
        for kind, line, label in (form for form in forms if form[0] in kinds):
            yield Action(kind, broker, line.format(broker), label.format(what))


_OF_STOPPING = (
    ("kill", "kill {}", "kill"),
    ("bounce", "hard_bounce {}", "kill and start"),
    ("shutdown", "clean_shutdown {}", "shut down cleanly"),
    ("restart", "clean_bounce {}", "shut down cleanly and start"),
    ("power", "power_loss {}", "lose power"),
    ("flush", "flush {}", "flush to disk"),
)
_OF_BROKER = (
    *_OF_STOPPING,
    ("pause", "pause {}", "pause"),
    ("stall", "pause {} fetcher", "stop fetching"),
)
_OF_PAUSED = (("resume", "resume {}", "resume the {}"), *_OF_STOPPING)


def _of_links(cluster: Cluster, kinds: Collection[str]) -> Iterator[Action]:
    machines = (*sorted(cluster.replicas), m.CONTROLLER)
    for broker, other in combinations(machines, 2) if {"cut", "heal"} & set(kinds) else ():
        kind, name = "heal" if cluster.is_cut(broker, other) else "cut", words.address(other)
        yield Action(kind, broker, f"{kind} {broker} {name}", f"{kind} the link to {name}")


def _of_operators(cluster: Cluster, kinds: Collection[str]) -> Iterator[Action]:
    if cluster.out_of_reach:
        gone = words.ids(sorted(cluster.out_of_reach))
        yield Action("expire", m.CONTROLLER, "elect", f"expire the session of {gone}")
    for kind, line in (("prefer", "elect preferred"), ("unclean", "elect unclean")):
        yield Action(kind, m.CONTROLLER, line, line)
    if not cluster.version.kraft:
        yield Action("failover", m.CONTROLLER, "hard_bounce controller", "fail over")
    brokers = sorted({*cluster.replicas, min(max(cluster.replicas) + 1, MOST_BROKERS)})
    for to in moves(cluster.controller.state, brokers) if "reassign" in kinds else ():
        line, label = f"reassign {words.ids(to)}" if to else "reassign cancel", "cancel the move"
        yield Action("reassign", m.CONTROLLER, line, f"move to {words.ids(to)}" if to else label)
    yield Action("settle", EVERYBODY, "stabilize", "deliver all")
    for wait in WAITS:
        yield Action("wait", EVERYBODY, f"advance {wait}", f"let {wait} pass")


def moves(state: PartitionState, brokers: Collection[int]) -> tuple[tuple[int, ...] | None, ...]:
    """The assignments that an operator may request: one or all replicas exchanged, one fewer, one
    more, or a cancellation (None)."""
    now, others = state.target, [b for b in brokers if b not in state.target]
    wanted = [tuple(b if r == gone else r for r in now) for gone in now for b in others]
    wanted += [tuple(r for r in now if r != gone) for gone in now] if len(now) > 1 else []
    wanted += [(*now, b) for b in others]
    wanted += [tuple(others[: len(now)])] if len(others) >= len(now) > 1 else []
    return (*wanted, *([None] if state.adding or state.removing else []))


def does_something(line: str) -> bool:
    """Whether a command is a step of a story, not set-up, a question or a comment."""
    words = line.split("#")[0].split()
    return bool(words) and words[0] not in _ASKS_NOTHING


def play_line(run: Run, line: str) -> None:
    """Play one more line. Raises ScriptError if that is impossible."""
    obey(run, Command(len(run.cluster.events) if run.world else 0, line))


def news(run: Run, before: Run) -> str:
    """The events in a run since it was copied from `before`, in a sentence for each partition."""
    sentences: list[str] = []
    for part, old in zip(run.topic, before.topic, strict=True):
        (frames, entries), (last_frame, last_entry) = old.place, part.place
        block = Block([], frames=(frames, last_frame), entries=(entries, last_entry))
        sentence, named = words.summary(part, block), f"{part.name}: " if run.others else ""
        sentences += [f"{named}{sentence}"] if sentence != words.NOTHING else []
    return " ".join(sentences) or words.NOTHING
