"""The effect of stopped or failed brokers on partitions, by the engine's own controller.

Theory of operation. The leader and the size of the ISR depend on the positions of brokers in the
replica list, not on their ids. So each *shape* of a partition is played once: 50,000 partitions of
a large cluster have a few dozen. All brokers that go down are marked as leaving before the first is
removed, as when a whole zone fails. A reassignment may complete while they are down and remove more
replicas from the ISR: its new replicas join, and the worse state counts.

A partition blocks a broker if, after the broker has shut down cleanly, the partition has no leader,
refuses acks=all, loses records to an unclean or doubtful election, or would refuse acks=all if a
known or possible reassignment completes meanwhile. A partition that already refuses writes blocks
all its replicas: stopping one in sync makes it worse, and the others must catch up.

The quorum of the controllers is one more partition: a stop blocks that leaves no majority of its
voters. Without a majority nothing is elected and no ISR changes.

Each stop that nothing blocks is tried on: with every sequence of two more failures, and any broker
that comes back after none, one or both. While acks=all is accepted, the replicas in the ISR have
every acknowledged record; records are lost if the controller elects another replica.

Left out: disks that fail, and records that a broker loses with its page cache.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable
from contextlib import suppress
from typing import NamedTuple

from isrlab.engine import controller as controllers
from isrlab.engine import kraft, rules, zookeeper
from isrlab.engine.frozen import replace
from isrlab.engine.messages import BrokerInfo, Message, RegisterBroker, SessionExpired
from isrlab.engine.model import Settings
from isrlab.engine.partition import Controller, PartitionState
from isrlab.engine.versions import KafkaVersion
from isrlab_ops.check.cluster import NO_LEADER, ClusterState
from isrlab_ops.check.describe import DescribedPartition

RF_1, NO_SPARE = "it is the only replica", "min ISR equals the number of replicas"
LOSES, LEADERLESS = "records would be lost", "it has no leader already"
ONLY, UNDER_MIN, AT_MIN = "no other replica may lead", "already under min ISR", "at min ISR"
MOVING = "a reassignment is in progress"
PERHAPS_MOVING = "a replica on a live broker is out of sync: perhaps a reassignment"
NO_MAJORITY, ODD = "no majority of the voters would be up", "its ISR has a broker without a replica"
FEW = "several of its copies would go down together"
FAILURES = 2  # after a stop, that may lose no record
WORST_FIRST = (NO_MAJORITY, ODD, LOSES, LEADERLESS, ONLY, UNDER_MIN, AT_MIN, MOVING,
               PERHAPS_MOVING, NO_SPARE, RF_1, FEW)  # fmt: skip


class StopOutcome(NamedTuple):
    """A partition after brokers went down; `leader` is a position. `loses`: the leader's election
    was unclean or doubtful. `writes`: acks=all is accepted; `later_writes`: even if a reassignment
    completes. `why`: why the partition blocks a restart, "" if it does not."""

    loses: bool
    leader: int
    writes: bool
    later_writes: bool
    isr_size: int
    why: str = ""


class BlockingPartition(NamedTuple):
    """A partition that keeps brokers from going down. `refuses`: it would refuse acks=all."""

    partition: DescribedPartition
    why: str
    refuses: bool


class Effect(NamedTuple):
    """The effect on all partitions: how many each broker is newly elected to lead; which refuse
    acks=all, with their leaders (-1: none); which have no leader; which lose records."""

    elected: Counter[int]
    refuse: dict[str, int]
    leaderless: list[str]
    lose: list[str]


LaterLoss = tuple[str, frozenset[int], tuple[int, ...]]  # all fail but the last, which returns
Played = dict[tuple[tuple[int, ...], bool], StopOutcome]  # by the positions that go down, and how


class Shapes:
    """The shape of each partition of a cluster, and its outcomes, each computed once.

    `doubtful`: partitions with an eligible replica that may lack records."""

    def __init__(self, state: ClusterState, doubtful: Container[tuple[str, int]] = ()) -> None:
        self.state, self._doubtful = state, doubtful
        self._firsts = {p.topic: len(p.replicas) for p in state.partitions if p.number == 0}
        self._played: dict[tuple[object, ...], Played] = {}
        self._shapes = {p[:2]: self._shape(p) for p in state.partitions}

    def _shape(self, p: DescribedPartition) -> tuple[dict[int, int], Played]:
        """The position of each broker, and the known outcomes of this shape."""
        brokers = dict.fromkeys((*p.replicas, *p.isr, *p.elr, *p.last_known_elr))
        place = {b: n for n, b in enumerate(brokers)}
        dead = [b for b in place if b not in self.state.alive]
        lists = (p.isr, p.elr, p.last_known_elr, p.adding, p.removing, dead)
        places = [tuple([place[b] for b in ids]) if ids else () for ids in lists]
        shape = (len(p.replicas), place.get(p.leader), p.min_isr, p.unclean,
                 self._firsts.get(p.topic), p[:2] in self._doubtful, *places)  # fmt: skip
        return place, self._played.setdefault(shape, {})

    def outcome(
        self, p: DescribedPartition, down: Collection[int] = (), is_stop: bool = True
    ) -> StopOutcome:
        """The worst outcome in any version; `is_stop`: a controlled shutdown, not a failure."""
        place, played = self._shapes[p[:2]]
        case = tuple([n for b, n in place.items() if b in down]), is_stop
        if case not in played:
            gone = [b for b in place if b in down]
            each = [self._play(p, version, gone, is_stop) for version in self.state.versions]
            worst = min(each, key=lambda o: (not o.loses, o.leader >= 0, *o[2:4]))
            played[case] = worst._replace(
                leader=place.get(worst.leader, NO_LEADER), why=self._why(p, worst, gone)
            )
        if self.has_majority(down):
            return played[case]
        after = NO_LEADER if p.leader in down else place.get(p.leader, NO_LEADER)
        works = played[case].writes and after >= 0 and {*p.isr}.isdisjoint(down)
        return StopOutcome(False, after, works, works, len(p.isr), NO_MAJORITY)

    def has_majority(self, down: Collection[int]) -> bool:
        """Whether the voters that stay up are a majority, as far as the voters are known."""
        voters = self.state.quorum
        return not voters or sum(b not in down for b in voters.isr) >= (voters.min_isr or 0)

    def later(self, stops: Iterable[frozenset[int]]) -> list[LaterLoss]:
        """What two more failures would lose, for the first of these stops after which they do."""
        for stop in stops:
            losses, known = list[LaterLoss](), dict[tuple[object, ...], tuple[int, ...]]()
            for p in self.state.partitions:
                place, played = self._shapes[p[:2]]
                case = id(played), *(n for b, n in place.items() if b in stop)
                if len(case) > 1 and case not in known:
                    gone = [b for b in place if b in stop]
                    each = (self._later(p, version, gone) for version in self.state.versions)
                    known[case] = tuple([place.get(b, -1) for b in next(filter(None, each), ())])
                then = tuple([[*place, NO_LEADER][n] for n in known.get(case, ())])
                losses += [(p.name, stop, then)] * bool(then)
            if losses:
                return losses
        return []

    def leader(self, p: DescribedPartition, after: StopOutcome) -> int:
        """The broker that leads afterwards."""
        return NO_LEADER if after.leader < 0 else [*self._shapes[p[:2]][0]][after.leader]

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

    def blocks(self, groups: Iterable[frozenset[int]]) -> list[list[BlockingPartition]]:
        """For each group of brokers, the partitions that block a common restart, worst first."""
        members = [*groups]
        blocks: list[list[BlockingPartition]] = [[] for _ in members]
        of_broker: dict[int, list[int]] = defaultdict(list)
        for number, group in enumerate(members):
            for broker in group:
                of_broker[broker].append(number)
        for p in self.state.partitions:
            for number in {number for b in {*p.replicas, *p.isr} for number in of_broker[b]}:
                after = self.outcome(p, members[number])
                if after.why and after.why != NO_MAJORITY:
                    blocks[number].append(BlockingPartition(p, after.why, not after.writes))
        for group, each in zip(members, blocks, strict=True):
            if self.state.quorum and group and not self.has_majority(group):
                each.append(BlockingPartition(self.state.quorum, NO_MAJORITY, False))
            each.sort(key=lambda block: WORST_FIRST.index(block.why))
        return blocks

    def _play(
        self, p: DescribedPartition, version: KafkaVersion, down: list[int], is_stop: bool
    ) -> StopOutcome:
        try:
            after = self._stopped(p, version, down, is_stop)
            writes = _writes(after)
            later = writes and (not p.adding or _writes(_completed(after)))
        except kraft.NoReplicaError:
            return StopOutcome(False, NO_LEADER, False, False, len(p.isr))
        is_doubtful = p[:2] in self._doubtful and bool(p.isr) and {*p.isr} <= {*down}
        is_clean = after.leader in (NO_LEADER, p.leader, *p.isr, *p.elr)
        return StopOutcome(is_doubtful or not is_clean, after.leader, writes, later, len(after.isr))

    def _stopped(
        self, p: DescribedPartition, version: KafkaVersion, down: list[int], is_stop: bool = True
    ) -> Controller:
        """The controller after these brokers have shut down together, or failed."""
        settings = Settings.of(version, min_insync_replicas=p.min_isr or 1,
                               unclean_leader_election_enable=p.unclean is not False)  # fmt: skip
        stored = PartitionState(p.replicas, p.leader, p.isr, 0, 0, p.elr, p.last_known_elr, False,
                                p.adding, p.removing)  # fmt: skip
        up = (b for b in self._shapes[p[:2]][0] if b in self.state.alive)
        alive = tuple(BrokerInfo(b, 1, b not in down) for b in up)
        after = Controller(version, settings, stored, alive, self._firsts.get(p.topic))
        for broker in down:
            if version.kraft:
                after = kraft.lose(after, broker)
            else:
                after = zookeeper.shut_down(after, broker) if is_stop else after
                after = zookeeper.lose(after, broker)
        return after

    def _later(
        self, p: DescribedPartition, version: KafkaVersion, down: list[int]
    ) -> tuple[int, ...]:
        """The failures that lose records after a stop, and the broker that returns; () if none."""
        has_all = {*p.isr} | ({*p.elr} if p[:2] not in self._doubtful else set())
        after = self._stopped(p, version, down)
        after = replace(after, alive=tuple(b for b in after.alive if b.is_active))
        todo = [(after, {*after.isr} if _writes(after) else has_all, list[int]())]
        for state, complete, failed in todo:
            for b in self._shapes[p[:2]][0]:
                change: Message = RegisterBroker(b, 2, b not in failed)
                if is_up := b in state.available:
                    change = SessionExpired(b, 1)
                with suppress(kraft.NoReplicaError):
                    after = controllers.step(state, change, 0)[0]
                    has_all = {*after.isr} if _writes(after) else complete
                    if len(failed) < FAILURES + (not is_up) and after.leader not in (-1, *complete):
                        return (*failed, b, *[NO_LEADER] * is_up)
                    if len(failed) < FAILURES and is_up:
                        todo.append((after, has_all, [*failed, b]))
        return ()

    def _why(self, p: DescribedPartition, after: StopOutcome, down: list[int]) -> str:
        """Why the partition blocks these brokers, "" if it does not."""
        may_move = not (self.state.shows_moves or {*down}.isdisjoint(p.isr)) and any(
            b in self.state.alive for b in p.replicas if b not in p.isr
        )
        if after.later_writes and not (after.loses or may_move or p.is_odd):
            return ""
        copies = len(p.replicas)
        reasons = (
            (p.is_odd, ODD), (after.loses, LOSES), (p.leader == NO_LEADER, LEADERLESS),
            (copies == 1, RF_1),
            (most_demanded(self.state, p.min_isr or 1, copies) >= copies == len(p.isr), NO_SPARE),
            (after.later_writes, PERHAPS_MOVING), (after.writes, MOVING),
            (after.leader == NO_LEADER, ONLY), (down and self.outcome(p).writes, AT_MIN),
        )  # fmt: skip
        return next((why for holds, why in reasons if holds), UNDER_MIN)


def _completed(controller: Controller) -> Controller:
    """The controller once the live replicas that a reassignment adds are in sync."""
    state, up = controller.state, controller.available
    isr = tuple(r for r in state.replicas if r in state.isr or (r in state.adding and r in up))
    if controller.version.kraft:
        return kraft.change(controller, isr=isr)
    return zookeeper.move_on(controller.storing(isr=isr))


def _writes(controller: Controller) -> bool:
    """Whether acks=all is accepted: a leader is available, and the ISR has min.insync.replicas."""
    wanted, count = controller.settings.min_insync_replicas, len(controller.replicas)
    enough = rules.admits_acks_all(len(controller.isr), least(controller.version, wanted, count))
    return controller.leader in controller.available and enough


def least(version: KafkaVersion, min_isr: int, replicas: int) -> int:
    """A leader's min ISR: from 3.7 at most the number of replicas (as in high_watermark.py)."""
    is_capped = version.high_watermark_held_under_min_isr
    return rules.effective_min_isr(min_isr, replicas) if is_capped else min_isr


def most_demanded(state: ClusterState, min_isr: int, replicas: int) -> int:
    """The largest min ISR of a leader with this many replicas, in any of the releases."""
    return max(least(version, min_isr, replicas) for version in state.versions)
