"""What becomes of one partition when brokers stop or fail: by the engine's own controller.

Theory of operation. Which broker leads, and how large the ISR is, does not depend on the numbers of
the brokers, only on their places in the replica list. So each *shape* of a partition is played
once: 50,000 partitions of a large cluster have a few dozen. All brokers that go are marked as
leaving before the first is taken out, as when a whole zone goes.

A reassignment on its way may complete while they are down, and take more replicas out of the ISR:
its new replicas are let join, and the worse of both states counts as `later`.

Left out: disks that fail, and records that a broker loses with its page cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from isrlab.check.cluster import NO_LEADER, ClusterState
from isrlab.engine import kraft, rules, zookeeper
from isrlab.engine.messages import BrokerInfo
from isrlab.engine.model import Settings
from isrlab.engine.partition import Controller, PartitionState
from isrlab.engine.versions import GENERATIONS, KafkaVersion
from isrlab.placement.describe import DescribedPartition

Places = tuple[int, ...]  # of brokers in the list of replicas; those that are none come after it


class Outcome(NamedTuple):
    """After some brokers went; `leader` is a broker. `writes`: acks=all is accepted.
    `later_writes`: also if a reassignment completes meanwhile."""

    leader: int
    isr_size: int
    writes: bool
    later_writes: bool
    is_unclean: bool


class Shape(NamedTuple):
    """What decides; `version` is the place of the rules among the generations."""

    version: int
    replicas: int
    leader: int
    isr: Places
    elr: Places
    last_known: Places
    adding: Places
    removing: Places
    dead: Places
    min_isr: int
    unclean: bool
    of_first: int  # replicas of partition 0


class Shapes:
    """The shape of each partition of a cluster, made once."""

    def __init__(self, state: ClusterState) -> None:
        self.state, self._firsts = state, state.first_counts()
        self._versions = [GENERATIONS.index(version) for version in state.versions]
        self._known: dict[tuple[str, int], tuple[Shape, dict[int, int]]] = {}

    def of(self, p: DescribedPartition) -> tuple[Shape, dict[int, int]]:
        """Its shape under the first of the versions, and the place of each broker."""
        if (shape := self._known.get(p[:2])) is None:
            shape = self._known[p[:2]] = self._shape(p)
        return shape

    def _shape(self, p: DescribedPartition) -> tuple[Shape, dict[int, int]]:
        place = {
            b: n for n, b in enumerate(dict.fromkeys((*p.replicas, *p.elr, *p.last_known_elr)))
        }
        alive = self.state.alive
        lists = (tuple([place[b] for b in ids]) for ids in
                 (p.isr, p.elr, p.last_known_elr, p.adding, p.removing))  # fmt: skip
        isr, elr, last, adding, removing = lists
        dead = tuple([n for b, n in place.items() if b not in alive])
        return Shape(
            self._versions[0], len(p.replicas), place.get(p.leader, NO_LEADER), isr, elr, last,
            adding, removing, dead, p.min_isr or 1, bool(p.unclean),
            self._firsts.get(p.topic, len(p.replicas)),
        ), place  # fmt: skip

    def outcome(
        self, p: DescribedPartition, down: Iterable[int] = (), is_stop: bool = True
    ) -> Outcome:
        """The worst under any of the versions; `is_stop`: a controlled shutdown, else a failure."""
        shape, place = self.of(p)
        gone = tuple([place[b] for b in down if b in place])
        worst = _play(shape, gone, is_stop)
        for version in self._versions[1:]:
            worst = min(worst, _play(shape._replace(version=version), gone, is_stop), key=_rank)
        if worst.leader == NO_LEADER:
            return worst
        return worst._replace(leader=next(b for b, n in place.items() if n == worst.leader))


def _rank(outcome: Outcome) -> tuple[bool, ...]:
    is_clean, has_leader = not outcome.is_unclean, outcome.leader != NO_LEADER
    return is_clean, has_leader, outcome.writes, outcome.later_writes


@lru_cache(maxsize=200_000)
def _play(shape: Shape, down: Places, is_stop: bool) -> Outcome:
    before = _controller(shape, down)
    after = before
    for broker in down:
        try:
            after = _without(after, broker, is_stop)
        except kraft.NoReplicaError:
            return Outcome(NO_LEADER, len(after.isr), False, False, False)
    may_lead = {*before.isr, *before.state.elr}
    is_unclean = after.leader not in (NO_LEADER, before.leader) and after.leader not in may_lead
    writes = _writes(after)
    later = writes and (not shape.adding or _writes(_completed(after)))
    return Outcome(after.leader, len(after.isr), writes, later, is_unclean)


def _controller(shape: Shape, down: Places) -> Controller:
    version = GENERATIONS[shape.version]
    settings = Settings.of(
        version, min_insync_replicas=max(1, shape.min_isr),
        unclean_leader_election_enable=shape.unclean,
    )  # fmt: skip
    stored = PartitionState(
        tuple(range(shape.replicas)), shape.leader, shape.isr, elr=shape.elr,
        last_known_elr=shape.last_known, adding=shape.adding, removing=shape.removing,
    )  # fmt: skip
    everyone = {*stored.replicas, *shape.elr, *shape.last_known} - {*shape.dead}
    alive = tuple(BrokerInfo(b, 1, b not in down) for b in sorted(everyone))
    return Controller(version, settings, stored, alive, shape.of_first)


def _without(controller: Controller, broker: int, is_stop: bool) -> Controller:
    if controller.version.kraft:
        return kraft.lose(controller, broker)
    if is_stop:
        controller = zookeeper.shut_down(controller, broker)
    return zookeeper.lose(controller, broker)


def _completed(controller: Controller) -> Controller:
    """With the replicas in sync that a reassignment adds, as far as they are up."""
    state, up = controller.state, controller.available
    isr = tuple(r for r in state.replicas if r in state.isr or (r in state.adding and r in up))
    if controller.version.kraft:
        return kraft.change(controller, isr=isr)
    return zookeeper.move_on(controller.storing(isr=isr))


def _writes(controller: Controller) -> bool:
    """acks=all is accepted: an available leader, and an ISR of min.insync.replicas."""
    return controller.leader in controller.available and rules.admits_acks_all(
        len(controller.isr), least(controller.version, controller.settings.min_insync_replicas,
                                   len(controller.replicas))
    )  # fmt: skip


def least(version: KafkaVersion, min_isr: int, replicas: int) -> int:
    """What a leader demands: from 3.7 never more than there are replicas (as high_watermark.py)."""
    is_capped = version.high_watermark_held_under_min_isr
    return rules.effective_min_isr(min_isr, replicas) if is_capped else min_isr
