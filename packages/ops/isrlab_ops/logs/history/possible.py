"""Whether one stored state of a partition can follow another, by the engine's controllers.

The next state is one that the leader may ask for, or one that a controller of some generation
writes when some brokers are unavailable: every set of brokers, kind of election and setting is
tried, so a change is impossible only if no event leads to it. Missing information never makes a
change impossible: the replicas count only if the metadata log has them before and after; if lines
of the ZooKeeper era name several sets of replicas, a reassignment, which raises the leader epoch,
is also tried. Left out: the ELR before the change.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain, combinations, product
from typing import NamedTuple

from isrlab.engine import kraft, zookeeper
from isrlab.engine import messages as m
from isrlab.engine.choices import Reassignment
from isrlab.engine.frozen import replace
from isrlab.engine.model import NO_LEADER, Settings
from isrlab.engine.partition import Controller, PartitionState
from isrlab.engine.versions import GENERATIONS, KafkaVersion, release

MOST_REPLICAS = 6  # all of their subsets are tried
LAST_ZOOKEEPER = (3, 9, 99)
KRAFT = [v for v in GENERATIONS if v.kraft]
ZOOKEEPER = [v.with_(kraft=False) for v in GENERATIONS if v.first <= LAST_ZOOKEEPER]


class Registration(NamedTuple):
    """The registered state of a partition; None means not known. `isr` is in order of id."""

    isr: tuple[int, ...]
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...] | None = None  # preferred leader first
    moves: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())  # being added, being removed

    @property
    def place(self) -> tuple[object, ...]:
        """The partition's replicas, and those of its reassignment."""
        return self.replicas, *map(set, self.moves)


def candidates(is_kraft: bool, name: str | None = None) -> tuple[KafkaVersion, ...]:
    """The newest generation of each kind of controller that may have written a state, newest first.

    In KRaft the metadata version decides, which may be older than the release `name`. Raises
    ValueError if there is no such release.
    """
    until = release(name) if name else (99,)
    known = [v for v in (KRAFT if is_kraft else ZOOKEEPER) if v.first <= until]
    return tuple({_kind(v): v for v in known}.values())[::-1]


def releases(explaining: Iterable[KafkaVersion]) -> str:
    """The releases whose controllers write as these do, as "3.6-4.3"."""
    kinds = {_kind(version) for version in explaining}
    alike = [v for v in (*ZOOKEEPER, *KRAFT) if _kind(v) in kinds]
    first, last = alike[0].releases.split("-")[0], alike[-1].releases.split("-")[-1]
    return first if first == last else f"{first}-{last}"


def _kind(v: KafkaVersion) -> tuple[bool, ...]:
    """The rules that determine the states a controller stores."""
    if v.kraft:
        waits_for_all = v.reassignment == Reassignment.ALL_IN_SYNC
        return True, v.epoch_bump_on_isr_shrink, v.eligible_leader_replicas, waits_for_all
    return False, v.keeps_last_isr_member


def is_possible(
    version: KafkaVersion, before: Registration, after: Registration, replicas: tuple[int, ...]
) -> bool:
    """Whether `after` may directly follow `before`. With lines of the ZooKeeper era, `replicas` are
    all that were ever assigned, if one of the states has `moves`."""
    if before.leader is None or after.leader is None or len(replicas) > MOST_REPLICAS:
        return True
    epochs = before.leader_epoch, after.leader_epoch
    step = None if None in epochs else epochs[1] - epochs[0]  # type: ignore[operator]
    is_known = before.replicas is not None and after.replicas is not None
    has_moved, wanted = before.place != after.place, replicas
    stored = PartitionState(replicas, before.leader, before.isr)
    if before.replicas is not None and after.replicas is not None:
        wanted = tuple(r for r in after.replicas if r not in after.moves[1])
        adding, removing = before.moves
        stored = replace(stored, replicas=before.replicas, adding=adding, removing=removing)
    reached = _reached(version, stored, wanted if has_moved else ())
    ends = [end for end in reached if not is_known or end.place == after.place]
    return any(end[:2] == after[:2] and step in (None, end[2]) for end in ends)


@cache
def _reached(
    version: KafkaVersion, state: PartitionState, wanted: tuple[int, ...]
) -> tuple[Registration, ...]:
    """The states after any one write, each with the rise of the leader epoch; with `wanted`,
    including those of a reassignment to these replicas."""
    replicas = tuple(dict.fromkeys((*state.replicas, *wanted)))
    brokers = {broker: m.BrokerInfo(broker, 1) for broker in replicas}
    ends = []
    minima = (1, 2, 3) if version.eligible_leader_replicas else (1,)  # only ELR uses it
    for is_unclean, minimum in product((False, True), minima):
        settings = Settings.of(
            version, unclean_leader_election_enable=is_unclean, min_insync_replicas=minimum
        )
        for alive in _sets(replicas):
            infos = tuple(brokers[broker] for broker in alive)
            controller = Controller(version, settings, state, infos)
            ends += [after for after in _written(controller) if after.partition_epoch == 1]
            if wanted:
                ends += _reassigned(controller, wanted)
    if version.kraft:
        ends.append(state)  # other directories, or a cleared ELR
    return tuple(
        Registration(
            tuple(sorted(s.isr)), s.leader, s.leader_epoch, s.replicas, (s.adding, s.removing)
        )
        for s in dict.fromkeys(ends)
    )


def _reassigned(controller: Controller, wanted: tuple[int, ...]) -> Iterator[PartitionState]:
    """The first states after an operator starts a reassignment to these replicas, or cancels it."""
    if not controller.version.kraft:
        yield controller.storing(leader_epoch=controller.leader_epoch + 1).state
        return
    for after in (kraft.reassign(controller, wanted), kraft.cancel(controller)):
        if after is not None:
            yield after.state


def _sets(brokers: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return chain.from_iterable(combinations(brokers, n) for n in range(len(brokers), -1, -1))


def _written(controller: Controller) -> Iterator[PartitionState]:
    """The states that may be stored next: by the leader's requests, and by the controller."""
    is_kraft = controller.version.kraft
    isr, leader, replicas = controller.isr, controller.leader, controller.replicas
    if leader in replicas and len(controller.alive) == len(replicas):
        smaller = [part for part in _sets(isr) if leader in part and len(part) < len(isr)]
        larger = [(*isr, joining) for joining in replicas if joining not in isr]
        for asked in (*smaller, *larger):
            store = kraft.change if is_kraft else Controller.storing
            after = store(controller, isr=asked)
            yield after.state
    if is_kraft:
        left = tuple(i for i in isr if i in controller.available)
        for target, election in product((left, isr), (None, "preferred", "unclean")):
            yield kraft.change(controller, election, isr=target).state
        return
    writes = [zookeeper.elect(controller), zookeeper.elect_preferred(controller)]
    for away in replicas:
        writes += [zookeeper.lose(controller, away), zookeeper.shut_down(controller, away)]
        if away == leader:  # a new controller first removes a dead leader, then elects
            headless = replace(controller, state=replace(controller.state, leader=NO_LEADER))
            writes.append(zookeeper.lose(headless, away))
    yield from (after.state for after in writes)
