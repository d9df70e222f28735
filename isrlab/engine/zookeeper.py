"""How the ZooKeeper-era controller changes a partition: elections, and dead brokers out of the ISR.

Theory of operation. The controller elects the first assigned replica that is alive and in the ISR;
if there is none and unclean election is allowed, the first that is alive. It takes a dead broker
out of the ISR after that, unless it is the last member. Every write of the controller raises the
leader epoch; the writes that leaders make for their ISR do not.

Source: PartitionLeaderSelector.scala 0.8.2.2:49-98, Election.scala 2.7.2, ReplicaStateMachine.scala
0.10.2.2:239-262, KafkaController.scala 0.10.2.2:1063-1095.
"""

from __future__ import annotations

from collections.abc import Collection

from isrlab.engine.frozen import Frozen, replace
from isrlab.engine.model import NO_LEADER
from isrlab.engine.partition import PartitionState


class Site(Frozen):
    """What the controller knows of the brokers, and what it may do."""

    replicas: tuple[int, ...]  # assigned, preferred leader first
    available: Collection[int]  # alive, and not shutting down
    allows_unclean: bool
    keeps_last_member: bool


def elect(state: PartitionState, site: Site) -> PartitionState:
    """A leader from the ISR; else, if that is allowed, any live replica; else none."""
    leader = first_in_sync(state, site)
    if leader != NO_LEADER:
        return with_leader(state, leader, tuple(i for i in state.isr if i in site.available))
    leader = next((r for r in site.replicas if r in site.available), NO_LEADER)
    if leader != NO_LEADER and site.allows_unclean:
        return with_leader(state, leader, (leader,))
    if state.leader == NO_LEADER:
        return state
    keeps = site.keeps_last_member or not site.allows_unclean
    return with_leader(state, NO_LEADER, state.isr if keeps else ())


def elect_preferred(state: PartitionState, site: Site) -> PartitionState:
    """The first assigned replica leads, if it is alive and in the ISR."""
    head = site.replicas[0]
    if head == state.leader or head not in state.isr or head not in site.available:
        return state
    return with_leader(state, head, state.isr)


def first_in_sync(state: PartitionState, site: Site) -> int:
    candidates = (r for r in site.replicas if r in state.isr and r in site.available)
    return next(candidates, NO_LEADER)


def without(state: PartitionState, broker: int) -> PartitionState:
    """The ISR without `broker`, unless it is the last member."""
    if broker not in state.isr or len(state.isr) == 1:
        return state
    return with_leader(state, state.leader, tuple(i for i in state.isr if i != broker))


def lose(state: PartitionState, broker: int, site: Site) -> PartitionState:
    """A broker is dead: elect another leader if it led, and take it out of the ISR."""
    if state.leader == broker:
        state = elect(state, site)
    return without(state, broker)


def shut_down(state: PartitionState, broker: int, site: Site) -> PartitionState:
    """A broker wants to stop: another takes over its leadership, and it leaves the ISR."""
    if state.leader != broker:
        return without(state, broker)
    successor = first_in_sync(state, site)
    if successor == NO_LEADER:
        return state
    return with_leader(state, successor, tuple(i for i in state.isr if i != broker))


def with_leader(state: PartitionState, leader: int, isr: tuple[int, ...]) -> PartitionState:
    return replace(
        state,
        leader=leader,
        isr=isr,
        leader_epoch=state.leader_epoch + 1,
        partition_epoch=state.partition_epoch + 1,
    )
