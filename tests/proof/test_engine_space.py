"""The search space does what the clocked world does: random walks compare both."""

from __future__ import annotations

import random
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from isrlab.engine import messages as m
from isrlab.engine.frozen import replace
from isrlab.engine.model import Broker, Follower, Leader
from isrlab.world import faults, scenario, words
from isrlab.world.actions import enabled, play_line
from isrlab.world.cluster import Cluster
from isrlab.world.commands import COMMANDS
from isrlab.world.script import Run
from isrlab_proof.search.enabled import EngineSystem
from isrlab_proof.search.known import NOW_MS
from isrlab_proof.search.schedule import TIMERS
from isrlab_proof.search.space import KINDS
from isrlab_proof.search.tables import Tables

LAG_MS, NEVER_MS = 10_000_000_000, 10**12
SLOW = {
    "replica_lag_time_max_ms": LAG_MS,
    "session_timeout_ms": NEVER_MS,
    "replica_socket_timeout_ms": NEVER_MS,
    "request_timeout_ms": NEVER_MS,
    "replica_high_watermark_checkpoint_interval_ms": NEVER_MS,
}


def view(world: Any, system: EngineSystem) -> list[Any]:
    """The parts of the state that must be equal in both."""

    def is_fresh(ms: int) -> bool:
        return ms > 1 and world.now_ms - ms <= LAG_MS

    rows: list[Any] = [world.controller.state, world.controller.alive]
    for i in system.ids:
        broker = world.brokers.get(i)
        if broker is None:
            rows.append((i, world.disks.get(i), world.epochs.get(i)))
            continue
        role = broker.role
        row = [i, broker.log, broker.broker_epoch, broker.leader_epoch, type(role).__name__]
        row.append(broker.unanswered and (broker.unanswered.isr, broker.unanswered.leader_epoch))
        row.append(broker.metadata if system.version.kraft else ())
        if isinstance(role, Follower):
            row += [role.leader, role.partition_epoch, role.is_truncating, role.is_waiting]
        if isinstance(role, Leader):
            row += [role.leader_epoch_start_offset, role.partition_epoch, role.isr_state.isr]
            row += [type(role.isr_state).__name__, role.maximal_isr, role.isr_state.proposed_isr]
            for r in role.remotes:
                clocks = is_fresh(r.last_caught_up_time_ms), is_fresh(r.last_fetch_time_ms)
                row += [replace(r, last_caught_up_time_ms=0, last_fetch_time_ms=0), clocks[0]]
                row += [clocks[1]] if system.two_ways else []
            row += [(p.fetch.replica, p.fetch.offset, p.fetch.leader_epoch) for p in role.parked]
            row += [(d.acks, d.required_offset) for d in role.delayed]
        rows.append(tuple(row))
    return rows


def of_space(system: EngineSystem, state: Any) -> Any:
    components = state[: system.n]
    return SimpleNamespace(
        now_ms=NOW_MS,
        controller=state[system.n],
        brokers={b.id: b for b in components if isinstance(b, Broker)},
        disks={b.id: b.log for b in components if not getattr(b, "is_new", False)},
        epochs={b.id: b.broker_epoch for b in components if not getattr(b, "is_new", False)},
    )


def purge(world: Cluster) -> None:
    """Deliver notices of broken connections, and drop messages that cannot arrive."""
    while True:
        gone = [
            e
            for e in world.queue
            if not e.is_timer
            and (
                isinstance(e.message, m.Disconnected)
                or (e.target and e.target not in world.brokers)
                or world.is_cut(e.source, e.target)
            )
        ]
        if not gone:
            return
        world.deliver(gone[0])


def timer(world: Cluster, broker: int, kind: type, **fields: int) -> Any:
    return next(
        e
        for e in world.queue
        if e.is_timer and e.target == broker and isinstance(e.message, kind)
        and e.incarnation == world.epochs[broker]
        and all(getattr(e.message, name) == value for name, value in fields.items())
    )  # fmt: skip


def deliver(world: Cluster, wanted: Any, source: int, target: int, was_lost: bool) -> None:
    """Deliver or lose a message; the space has no metadata without news, so that comes first."""
    while True:
        envelope = world.on_link(source, target)[0]
        message, is_news = envelope.message, isinstance(envelope.message, m.UpdateMetadata)
        same = (
            isinstance(wanted, m.UpdateMetadata)
            and getattr(message, "brokers", 0) == wanted.brokers
        )
        if is_news and not same:
            world.deliver(envelope)
            continue
        assert type(message) is type(wanted), (message, wanted)
        (world.drop if was_lost else world.deliver)(envelope)
        return


def act(system: EngineSystem, run: Run, state: Any, action: str) -> None:
    """Play an action of the search. A line must be one that the explorer offers."""
    world = run.cluster
    verb, *who = action.split()
    if verb in COMMANDS and verb != "produce":  # the explorer writes only to the newest leader
        line = f"{action} any" if verb in ("deliver", "drop") else action
        assert line in {each.line for each in enabled(run)}
    broker = int(who[0]) if who and who[0].isdecimal() else 0
    live = world.brokers.get(broker)
    if verb in ("deliver", "drop"):
        ends = tuple(int(end) if end.isdecimal() else m.CONTROLLER for end in who[0].split(">"))
        deliver(world, state[system.links[ends]][0], *ends, verb == "drop")
    elif verb in ("kill", "power_loss"):
        for source in system.ids:
            for envelope in world.on_link(source, broker):
                world.drop(envelope)
        play_line(run, action)
    elif verb == "start":
        if world.is_cut(broker, 0):
            faults.heal(world, broker, 0)
        play_line(run, action)
    elif verb == "fence":
        faults.network_partition(world, broker, 0)
        world.lose_session(broker, at_once=True)
    elif verb == "register":
        faults.heal(world, broker, 0)
    elif verb == "expire_fetch":
        fetch = live.role.parked[0].fetch
        wanted = {"replica": fetch.replica, "request": fetch.request}
        world.deliver(timer(world, broker, m.ExpireFetch, **wanted))
    elif verb == "retry":
        world.deliver(timer(world, broker, m.RetryRequest, request=live.role.request))
    elif verb == "late":  # only one clock ages; real time would age others
        old = {"last_caught_up_time_ms": 1}
        old |= {"last_fetch_time_ms": 1} if who[2] == "gone" else {}
        remotes = tuple(replace(r, **old) if r.id == int(who[1]) else r for r in live.role.remotes)
        world.brokers[broker] = replace(live, role=replace(live.role, remotes=remotes))
        world.deliver(timer(world, broker, m.ExpireIsr))
    elif verb in TIMERS:
        world.deliver(timer(world, broker, TIMERS[verb]))
    else:
        play_line(run, action)
    purge(world)


def walk(version: str, replicas: int, seed: int, length: int, extra: tuple[int, ...] = ()) -> int:
    """Take random steps in the search's tables and the engine, and compare; returns how many."""
    chance = random.Random(seed)
    settings = {
        "unclean_leader_election_enable": seed % 4 == 3,
        "min_insync_replicas": 1 + seed % 2,
    }
    line = f"partition replicas={words.ids(range(1, replicas + 1))}"
    for name, value in (SLOW | settings).items():
        line += f" {name.replace('_', '.')}={str(value).lower()}"
    run = scenario.play(line, version=version)
    world = run.cluster
    budgets = dict.fromkeys(KINDS, 3)
    system = EngineSystem(world, budgets, extra)
    tables = Tables(system)
    state, done = tuple(system.first), []
    assert view(of_space(system, state), system) == view(world, system)
    for step in range(length):
        choices = tables.successors(state)
        if not choices:
            return step
        action, after = choices[chance.randrange(len(choices))]
        done.append(action)
        act(system, run, state, action)
        ours, theirs = view(of_space(system, after), system), view(world, system)
        assert ours == theirs, (version, seed, done)
        known = after[system.promised]
        assert dict(known.committed) == world.observer.committed, (version, seed, done)
        assert dict(known.acknowledged) == world.observer.acknowledged, (version, seed, done)
        broken, before = (int(tables.broken(tables.row(s))[0]) for s in (after, state))
        for i, name in enumerate(system.promises):
            if broken >> i & 1 and name not in world.violations:
                assert before >> i & 1 or not action.startswith("deliver"), (seed, done, name)
        state = after
    return length


def test_no_two_replicas_are_alike() -> None:
    """Of two replicas in the ISR always the same one is elected, so they are not symmetric."""
    make = partial(EngineSystem, Cluster("3.7", (1, 2, 3)), {"crashes": 1})
    tables = Tables(make())
    state = tuple(tables.system.first)
    for action in ("kill 1", "elect"):
        state = dict(tables.successors(state))[action]
    assert state[tables.system.n].state.isr == (2, 3)
    assert state[tables.system.n].leader == 2


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize(
    "version", ["0.8.2", "0.10.2", "0.11", "2.0", "2.4", "2.7", "3.0", "3.3", "3.7", "4.1", "4.3"]
)
def test_walks_are_alike_in_the_world(version: str, replicas: int) -> None:
    assert sum(walk(version, replicas, seed, 40, (replicas + 1,)) for seed in range(5)) > 150
