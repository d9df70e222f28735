"""The components of a state in the engine's space, and the views of them."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from isrlab.engine import messages as m
from isrlab.engine.frozen import Frozen, replace
from isrlab.engine.log import Log
from isrlab.engine.model import NO_LEADER, Broker, CommittedIsr, Follower, Leader, RemoteReplica
from isrlab.engine.partition import Controller, PartitionState
from isrlab.world.cluster import START_MS

NOW_MS, OLD_MS = START_MS, 1
_TALK = (  # between followers and leaders; on a link only one side's follower waits for answers
    m.Fetch, m.OffsetsForLeaderEpoch, m.ListOffsets,
    m.FetchResponse, m.EpochEndOffset, m.ListOffsetsResponse,
)  # fmt: skip
_encode = msgspec.msgpack.Encoder().encode


class StoppedBroker(Frozen):
    """A broker without a process: the state in which its next process will start."""

    id: int
    log: Log
    broker_epoch: int
    was_clean: bool = False
    is_halted: bool = False
    is_new: bool = False  # no reassignment has named it yet


Machine = Broker | StoppedBroker
Leads = tuple[Log, Leader] | None  # a leader as promises see it


class Promises(Frozen):
    """The facts that an observer remembers."""

    committed: tuple[tuple[str, int], ...] = ()
    acknowledged: tuple[tuple[str, int], ...] = ()
    disks_lost: tuple[int, ...] = ()
    went_back: bool = False  # a leader's high watermark, within its epoch


class StaleClock(Frozen):
    """A follower's lag clock at its leader has expired."""

    follower: int
    fetches: bool  # whether it still fetches


def content(component: object) -> bytes:
    """The content of a component, without version and settings, which are equal in all states."""
    what: object = component
    if isinstance(component, Broker):
        b = component
        what = (b.id, b.replicas, b.log, b.role, b.broker_epoch, b.is_shutting_down, b.metadata,
                b.remembered, b.unanswered)  # fmt: skip
    elif isinstance(component, Controller):
        what = component.state, component.alive, component.replicas_of_partition_0
    elif isinstance(component, tuple):
        what = [(type(each).__name__, each) for each in component]
    return type(component).__name__.encode() + _encode(what)


# Views of a broker, of a link, or of the controller


def fate(broker: Machine) -> int:
    """0: alive, 1: dead, 2: never started."""
    return 1 + broker.is_new if isinstance(broker, StoppedBroker) else 0


def can_start(broker: Machine) -> bool:
    return isinstance(broker, StoppedBroker) and not (broker.is_halted or broker.is_new)


def epoch(broker: Machine) -> int | None:
    """The broker epoch of its process; None without one."""
    return None if isinstance(broker, StoppedBroker) else broker.broker_epoch


def recipient(broker: Machine) -> tuple[m.BrokerInfo, ...] | None:
    """The part of a broker that decides which messages are sent to it."""
    return None if isinstance(broker, StoppedBroker) else broker.metadata


def asking(broker: Machine) -> tuple[int, int] | None:
    """The leader that a follower waits for, and the number of its request."""
    role = getattr(broker, "role", None)
    if not isinstance(role, Follower) or role.is_waiting or role.leader == NO_LEADER:
        return None
    return role.leader, role.request


def waiting(broker: Machine) -> tuple[tuple[int, int], ...] | None:
    """(follower, number) of the fetches parked at a broker; None if the broker is dead."""
    role = getattr(broker, "role", None)
    parked = role.parked if isinstance(role, Leader) else ()
    asked = tuple((p.fetch.replica, p.fetch.request) for p in parked)
    return None if isinstance(broker, StoppedBroker) else asked


def talk(messages: tuple[m.Message, ...]) -> tuple[int, ...]:
    """The numbers of follower requests on a link, or of their answers."""
    return tuple(sorted(x.request for x in messages if isinstance(x, _TALK)))


def head(messages: tuple[m.Message, ...]) -> m.Message | None:
    """The next message of a link."""
    return messages[0] if messages else None


def changes(messages: tuple[m.Message, ...]) -> tuple[int, ...]:
    """The numbers of ISR changes on a link, or of their answers."""
    kinds = m.AlterPartition, m.AlterPartitionResponse
    return tuple(sorted(x.request for x in messages if isinstance(x, kinds)))


def unanswered(broker: Machine) -> int:
    """The number of the ISR change that a leader waits for; -1: none."""
    asked = getattr(broker, "unanswered", None)
    return asked.request if asked else -1


def knows(broker: int) -> Callable[[Controller], bool | None]:
    """A view: True if the controller considers this broker alive, else None."""
    return lambda controller: controller.is_alive(broker) or None


class Abilities(NamedTuple):
    """What a broker can do, and what can happen to it."""

    oldest: tuple[int, int] | None  # (follower, number) of the fetch that is parked first
    leads: bool
    lates: tuple[StaleClock, ...]
    is_flushed: bool
    is_checkpointed: bool


def abilities(broker: Machine, two_ways: bool) -> Abilities | None:
    if isinstance(broker, StoppedBroker):
        return None
    role, log = broker.role, broker.log
    parked = role.parked[:1] if isinstance(role, Leader) else ()
    return Abilities(
        next(((p.fetch.replica, p.fetch.request) for p in parked), None),
        isinstance(role, Leader),
        tuple(_lates(broker, two_ways)),
        log.flushed_end_offset == log.log_end_offset,
        log.checkpointed_high_watermark == log.high_watermark,
    )


def _lates(broker: Broker, two_ways: bool) -> Iterator[StaleClock]:
    """The followers whose clocks can expire here."""
    for remote in broker.role.remotes if isinstance(broker.role, Leader) else ():
        if remote.last_caught_up_time_ms > OLD_MS:
            yield StaleClock(remote.id, False)
            if two_ways and remote.last_fetch_time_ms > OLD_MS:
                yield StaleClock(remote.id, True)


# Views for promises, as in `safety.View`


def holds(broker: Machine) -> Log | None:
    """The log of a broker as promises see it; None without a process."""
    if isinstance(broker, StoppedBroker):
        return None
    return Log(broker.log.records, broker.log.log_start_offset, broker.log.high_watermark)


def leads(broker: Machine) -> Leads:
    """A leader's log, its ISR, and its followers' end offsets as it knows them."""
    log, role = holds(broker), getattr(broker, "role", None)
    if log is None or not isinstance(role, Leader):
        return None
    remotes = tuple(RemoteReplica(r.id, r.log_end_offset) for r in role.remotes)
    return log, Leader(role.leader_epoch, 0, 0, CommittedIsr(role.isr), remotes)


def stored(controller: Controller) -> PartitionState:
    state = controller.state
    return PartitionState(state.replicas, state.leader, state.isr, state.leader_epoch)


def number_of(broker_epoch: int, leader_epoch: int, alters: bool) -> int:
    """A request's number: each process has at most one of a kind in flight per leader epoch."""
    return broker_epoch * 1_000_000 + 2 * (leader_epoch + 1) + alters + 1


def aged(broker: Broker, late: StaleClock) -> Broker:
    role = broker.role
    assert isinstance(role, Leader)
    remote = role.remote(late.follower)
    assert remote is not None
    fetched_ms = remote.last_fetch_time_ms if late.fetches else OLD_MS
    aged = replace(remote, last_caught_up_time_ms=OLD_MS, last_fetch_time_ms=fetched_ms)
    remotes = tuple(aged if r is remote else r for r in role.remotes)
    return replace(broker, role=replace(role, remotes=remotes))
