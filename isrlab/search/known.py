"""What a state of the engine's space is made of: numbered objects, and what can be seen in them."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from isrlab.engine import messages as m
from isrlab.engine.choices import LagClock
from isrlab.engine.frozen import Frozen, replace
from isrlab.engine.log import Log
from isrlab.engine.model import NO_LEADER, Broker, Follower, Leader
from isrlab.engine.partition import Controller
from isrlab.world.cluster import START_MS, Cluster

State = tuple[Any, ...]
NOW_MS, OLD_MS = START_MS, 1
_TALK = (  # of followers with their leaders; on a link only one side's follower waits for answers
    m.Fetch, m.OffsetsForLeaderEpoch, m.ListOffsets,
    m.FetchResponse, m.EpochEndOffset, m.ListOffsetsResponse,
)  # fmt: skip
_encode = msgspec.msgpack.Encoder().encode


class Stopped(Frozen):
    """A broker without a process: what its next one will find."""

    id: int
    log: Log
    broker_epoch: int
    was_clean: bool = False
    is_halted: bool = False
    is_new: bool = False  # no reassignment has named it yet


class Promised(Frozen):
    """What an observer remembers."""

    committed: tuple[tuple[str, int], ...] = ()
    acknowledged: tuple[tuple[str, int], ...] = ()
    disks_lost: tuple[int, ...] = ()
    went_back: bool = False  # a leader's high watermark, within its epoch


class Late(Frozen):
    """A follower's clock at its leader has become too old."""

    follower: int
    fetches: bool  # though it still fetches


class Local(Frozen):
    """What a broker can do by itself."""

    is_dead: bool = False
    can_start: bool = False
    leads: bool = False
    parked: int = 0  # the message that expires its oldest fetch
    lates: tuple[tuple[Any, int], ...] = ()  # actions, and their messages
    follows: int = 0  # from whom it waits for an answer
    request: int = 0  # the number of what it asked
    waiting: tuple[tuple[int, int], ...] = ()  # (follower, number) of fetches that are parked here
    retry: int = 0  # the message that makes it ask again
    register: int = 0
    checkpoint: bool = False
    unanswered: int = -1  # the number of its ISR change


class Known:
    """The objects of a search by their numbers, which are the same in every process."""

    def __init__(self, cluster: Cluster, extra: tuple[int, ...]) -> None:
        self.version, self.settings = cluster.version, cluster.settings
        self.assigned = cluster.replicas
        self.ids = (*sorted(cluster.replicas), *extra)
        self.n = len(self.ids)
        pairs = [(a, b) for a in self.ids for b in self.ids if a != b]
        pairs += [(m.CONTROLLER, b) for b in self.ids]
        if not self.version.writes_zookeeper:
            pairs += [(b, m.CONTROLLER) for b in self.ids]
        self.links = {pair: self.n + 1 + i for i, pair in enumerate(pairs)}
        self.slots = {b: i for i, b in enumerate(self.ids)} | {m.CONTROLLER: self.n}
        self.two_ways = self.version.lag_clock == LagClock.CAUGHT_UP_TO_PREVIOUS_FETCH
        self.objects: dict[int, Any] = {}
        self._locals: dict[int, Local] = {}
        self._spent: dict[tuple[Any, int], Any] = {}
        self._requests: dict[int, int] = {}
        self._known: dict[int, Any] = {}

    def _intern(self, thing: Any) -> int:
        content: Any = thing
        if isinstance(thing, Broker):
            content = [thing.id, thing.replicas, thing.log, thing.role, thing.broker_epoch]
            content += [thing.is_shutting_down, thing.metadata, thing.remembered, thing.unanswered]
        elif isinstance(thing, Controller):
            content = [thing.state, thing.alive]
        text = type(thing).__name__.encode() + _encode(content)
        number = int.from_bytes(blake2b(text, digest_size=8).digest(), "little") >> 4
        known = self.objects.setdefault(number, thing)
        if type(known) is not type(thing):
            raise RuntimeError("two objects have one number")
        return number

    def tables(self) -> dict[int, Any]:
        return self.objects

    def learn(self, tables: dict[int, Any] | None) -> None:
        self.objects |= tables or {}

    def canonical(self, state: tuple[Any, ...]) -> tuple[tuple[Any, ...], int]:
        return state, 1

    # What can be seen

    def _local(self, number: int) -> Local:
        local = self._locals.get(number)
        if local is None:
            local = self._locals[number] = self._look(self.objects[number])
        return local

    def _look(self, broker: Broker | Stopped) -> Local:
        if isinstance(broker, Stopped):
            return Local(True, can_start=not (broker.is_halted or broker.is_new))
        role, log, parked, lates, follows = broker.role, broker.log, 0, [], 0
        waiting: tuple[tuple[int, int], ...] = ()
        if isinstance(role, Leader):
            waiting = tuple((p.fetch.replica, p.fetch.request) for p in role.parked)
            if role.parked:
                fetch = role.parked[0].fetch
                parked = self._intern(m.ExpireFetch(fetch.replica, fetch.request))
            for remote in role.remotes:
                if remote.last_caught_up_time_ms > OLD_MS:
                    ways = (False, True) if remote.last_fetch_time_ms > OLD_MS else (False,)
                    for fetches in ways[: 1 + self.two_ways]:
                        action = ("late", broker.id, remote.id, "slow" if fetches else "gone")
                        lates.append((action, self._intern(Late(remote.id, fetches))))
        elif isinstance(role, Follower) and not role.is_waiting and role.leader != NO_LEADER:
            follows = role.leader
        retry = self._intern(m.RetryRequest(role.request)) if isinstance(role, Follower) else 0
        is_new = log.checkpointed_high_watermark != log.high_watermark
        asks = broker.unanswered is not None and not self.version.writes_zookeeper
        number = broker.unanswered.request if broker.unanswered and asks else -1
        return Local(
            leads=isinstance(role, Leader), parked=parked, lates=tuple(lates), follows=follows,
            retry=retry, checkpoint=is_new, unanswered=number, waiting=waiting,
            request=getattr(role, "request", 0),
            register=self._intern(m.RegisterBroker(broker.id, broker.broker_epoch)),
        )  # fmt: skip

    def _controller(self, number: int) -> Any:
        """By broker, the message that its session has ended (0: it has none); and the targets of
        reassignments."""
        known = self._known.get(number)
        if known is None:
            controller = self.objects[number]
            epochs = {info.id: info.broker_epoch for info in controller.alive}
            expiries = tuple(
                self._intern(m.SessionExpired(b, epochs[b])) if b in epochs else 0 for b in self.ids
            )
            known = self._known[number] = expiries, targets(controller, self.ids)
        return known

    def _is_on_its_way(self, state: State, i: int, local: Local) -> bool:
        """A follower's request, or its answer."""
        number, leader = self.ids[i], local.follows
        requests = self._requests
        for slot in (self.links[number, leader], self.links[leader, number]):
            for x in state[slot]:
                request = requests.get(x)
                if request is None:
                    message = self.objects[x]
                    is_ours = isinstance(message, _TALK)
                    request = requests[x] = message.request if is_ours else -1
                if request == local.request:
                    return True
        return (number, local.request) in self._local(state[self.slots[leader]]).waiting

    def _alters(self, state: tuple[Any, ...], i: int, request: int) -> bool:
        number = self.ids[i]
        on_links = (*state[self.links[number, 0]], *state[self.links[0, number]])
        kinds = m.AlterPartition, m.AlterPartitionResponse
        waiting = (self.objects[x] for x in on_links)
        return any(isinstance(x, kinds) and x.request == request for x in waiting)

    def _spend(self, budgets: tuple[int, ...], kind: int) -> tuple[int, ...]:
        key = budgets, kind
        left = self._spent.get(key)
        if left is None:
            left = self._spent[key] = (*budgets[:kind], budgets[kind] - 1, *budgets[kind + 1 :])
        return left


def number_of(broker_epoch: int, leader_epoch: int, alters: bool) -> int:
    """Of a process in a leader epoch no two requests of one kind are on their way."""
    return broker_epoch * 1_000_000 + 2 * (leader_epoch + 1) + alters + 1


def aged(broker: Broker, late: Late) -> Broker:
    role = broker.role
    assert isinstance(role, Leader)
    remote = role.remote(late.follower)
    assert remote is not None
    fetched_ms = remote.last_fetch_time_ms if late.fetches else OLD_MS
    aged = replace(remote, last_caught_up_time_ms=OLD_MS, last_fetch_time_ms=fetched_ms)
    remotes = tuple(aged if r is remote else r for r in role.remotes)
    return replace(broker, role=replace(role, remotes=remotes))


def targets(controller: Controller, brokers: tuple[int, ...]) -> tuple[tuple[int, ...] | None, ...]:
    """To which replicas an operator may move it: one exchanged, one fewer, one more; or back."""
    now = controller.state.target
    others = [b for b in brokers if b not in now]
    wanted = [tuple(b if r == gone else r for r in now) for gone in now for b in others]
    wanted += [tuple(r for r in now if r != gone) for gone in now] if len(now) > 1 else []
    wanted += [(*now, b) for b in others]
    is_going_on = controller.state.adding or controller.state.removing
    return (*wanted, *([None] if is_going_on else []))
