"""The effect of stopped or failed brokers on partitions, by the engine's own controller.

Theory of operation. The leader and the size of the ISR depend on the positions of brokers in the
replica list, not on their ids. So each *shape* of a partition is played once: 50,000 partitions of
a large cluster have a few dozen. All brokers that go down are marked as leaving before the first is
removed, as when a whole zone fails. A reassignment may complete while they are down and remove more
replicas from the ISR: its new replicas join, and the worse state counts.

Left out: disks that fail, and records that a broker loses with its page cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from isrlab.check.cluster import NO_LEADER, ClusterState
from isrlab.engine import kraft, rules, zookeeper
from isrlab.engine.messages import BrokerInfo
from isrlab.engine.model import Settings
from isrlab.engine.partition import Controller, PartitionState
from isrlab.engine.versions import KafkaVersion
from isrlab.placement.describe import DescribedPartition

Places = tuple[int, ...]  # positions of brokers in the list of replicas, and after it


class StopOutcome(NamedTuple):
    """The state after brokers went down; `leader` is a position. `writes`: acks=all is accepted,
    `later_writes`: also if a reassignment completes; `loses`: the leader was elected uncleanly."""

    leader: int
    isr_size: int
    writes: bool
    later_writes: bool
    loses: bool


class Effect(NamedTuple):
    """The effect on all partitions: how many each broker comes to lead; which refuse acks=all, with
    their leaders (-1: none); which have no leader; which lose records."""

    elected: Counter[int]
    refuse: dict[str, int]
    leaderless: list[str]
    lose: list[str]


class Shape(NamedTuple):
    """Everything that determines the outcome in a release."""

    replicas: int
    lists: tuple[Places, ...]  # ISR, ELR, last known ELR, adding, removing, dead
    leader: int
    min_isr: int
    unclean: bool
    of_first: int  # replicas of partition 0


class Shapes:
    """The shape of each partition of a cluster, and its outcomes, each computed once."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self._firsts = {p.topic: len(p.replicas) for p in state.partitions if p.number == 0}
        self._played: dict[Shape, dict[tuple[Places, bool], StopOutcome]] = {}
        self._shapes = {p[:2]: self._shape(p) for p in state.partitions}

    def outcome(
        self, p: DescribedPartition, down: Collection[int] = (), is_stop: bool = True
    ) -> StopOutcome:
        """The worst outcome in any version; `is_stop`: a controlled shutdown, not a failure."""
        shape, place, played = self._shapes[p[:2]]
        case = tuple([n for b, n in place.items() if b in down]), is_stop
        if case not in played:
            played[case] = min(
                (_play(shape, version, *case) for version in self.state.versions),
                key=lambda o: (not o.loses, o.leader >= 0, o.writes, o.later_writes),
            )
        return played[case]

    def leader(self, p: DescribedPartition, after: StopOutcome) -> int:
        """The broker that leads afterwards."""
        return NO_LEADER if after.leader < 0 else [*self._shapes[p[:2]][1]][after.leader]

    def effect(self, down: Collection[int] = (), is_stop: bool = True) -> Effect:
        """The effect on all partitions if these brokers go down together."""
        effect = Effect(Counter(), {}, [], [])
        for p in self.state.partitions:
            after = self.outcome(p, down, is_stop)
            leader = self.leader(p, after)
            if leader not in (p.leader, NO_LEADER):
                effect.elected[leader] += 1
            if not after.writes:
                effect.refuse[p.name] = leader
            effect.leaderless.extend([p.name] * (leader == NO_LEADER))
            effect.lose.extend([p.name] * after.loses)
        return effect

    def _shape(
        self, p: DescribedPartition
    ) -> tuple[Shape, dict[int, int], dict[tuple[Places, bool], StopOutcome]]:
        """Its shape, the position of each broker, and the known outcomes of this shape."""
        everyone = dict.fromkeys((*p.replicas, *p.elr, *p.last_known_elr))
        place = {b: n for n, b in enumerate(everyone)}
        dead = [b for b in place if b not in self.state.alive]
        lists = (p.isr, p.elr, p.last_known_elr, p.adding, p.removing, dead)
        places = tuple([tuple([place[b] for b in ids]) if ids else () for ids in lists])
        copies, leader = len(p.replicas), place.get(p.leader, NO_LEADER)
        numbers = p.min_isr or 1, bool(p.unclean), self._firsts.get(p.topic, copies)
        shape = Shape(copies, places, leader, *numbers)
        return shape, place, self._played.setdefault(shape, {})


def _play(shape: Shape, version: KafkaVersion, down: Places, is_stop: bool) -> StopOutcome:
    after = before = _controller(shape, version, down)
    for broker in down:
        try:
            if version.kraft:
                after = kraft.lose(after, broker)
            else:
                after = zookeeper.shut_down(after, broker) if is_stop else after
                after = zookeeper.lose(after, broker)
        except kraft.NoReplicaError:
            return StopOutcome(NO_LEADER, len(after.isr), False, False, False)
    clean = (NO_LEADER, before.leader, *before.isr, *before.state.elr)
    writes = _writes(after)
    later = writes and (not before.state.adding or _writes(_completed(after)))
    return StopOutcome(after.leader, len(after.isr), writes, later, after.leader not in clean)


def _controller(shape: Shape, version: KafkaVersion, down: Places) -> Controller:
    isr, elr, last, adding, removing, dead = shape.lists
    replicas = tuple(range(shape.replicas))
    settings = Settings.of(version, min_insync_replicas=max(1, shape.min_isr),
                           unclean_leader_election_enable=shape.unclean)  # fmt: skip
    stored = PartitionState(replicas, shape.leader, isr, 0, 0, elr, last, False, adding, removing)
    up = sorted({*replicas, *elr, *last} - {*dead})
    alive = tuple(BrokerInfo(b, 1, b not in down) for b in up)
    return Controller(version, settings, stored, alive, shape.of_first)


def _completed(controller: Controller) -> Controller:
    """The controller once the live replicas that a reassignment adds are in sync."""
    state, up = controller.state, controller.available
    isr = tuple(r for r in state.replicas if r in state.isr or (r in state.adding and r in up))
    if controller.version.kraft:
        return kraft.change(controller, isr=isr)
    return zookeeper.move_on(controller.storing(isr=isr))


def _writes(controller: Controller) -> bool:
    """acks=all is accepted: an available leader, and an ISR of min.insync.replicas."""
    wanted, count = controller.settings.min_insync_replicas, len(controller.replicas)
    enough = rules.admits_acks_all(len(controller.isr), least(controller.version, wanted, count))
    return controller.leader in controller.available and enough


def least(version: KafkaVersion, min_isr: int, replicas: int) -> int:
    """The min ISR of a leader: from 3.7 at most the number of replicas (as high_watermark.py)."""
    is_capped = version.high_watermark_held_under_min_isr
    return rules.effective_min_isr(min_isr, replicas) if is_capped else min_isr


def most_demanded(state: ClusterState, min_isr: int, replicas: int) -> int:
    """The largest min ISR of a leader with this many replicas, in any of the releases."""
    return max(least(version, min_isr, replicas) for version in state.versions)
