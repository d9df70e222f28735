"""The enabled actions in a state of the engine's space, and the promises broken there.

An action is a line of the scenario language, one of those that `world.actions.enabled` offers. Only
what time does in a scenario has a name of its own here: expire_fetch, retry, ask_again, checkpoint,
late; and so do fence and register, which are two lines. `KINDS` are the kinds with
a budget.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import permutations

from isrlab.engine import messages as m
from isrlab.engine import safety
from isrlab.engine.log import Log
from isrlab.engine.model import NO_LEADER, Broker, Leader
from isrlab.engine.partition import Controller, PartitionState
from isrlab.world import words
from isrlab.world.actions import moves
from isrlab.world.cluster import Cluster
from isrlab_proof.search import known
from isrlab_proof.search.known import Leads, Promises
from isrlab_proof.search.space import KINDS, Space
from isrlab_proof.search.tables import AtSlot, Query, Read, Transitions

_KIND = {kind: i for i, kind in enumerate(KINDS)}
# Promises that one broker, or a leader with one other, can break
_OF_BROKERS = "high_watermark_within_log", "leader_in_isr"
_OF_PAIRS = ("logs_agree",)
Left = tuple[frozenset[str], int]  # the kinds with budget left, the next request's number
Acts = Iterator[tuple[str, Transitions]]  # the enabled ones


class EngineSystem(Space):
    """A partition as a `System`: see `space.py`."""

    def __init__(
        self, cluster: Cluster, budgets: dict[str, int], extra: Iterable[int] = (),
        prompt: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(cluster, budgets, extra, prompt)
        left = Read(self.budget, self._left)
        rules: list[Query] = []
        for (source, target), slot in self.links.items():
            reads = Read(slot, known.head), *([left] if budgets.get("losses") and source else [])
            rules.append(Query(tuple(reads), partial(self._arrives, source, target)))
        controller, fates = Read(self.n), [Read(i, known.fate) for i in range(self.n)]
        for i, b in enumerate(self.ids):
            is_known = Read(self.n, known.knows(b))
            can = Read(i, partial(known.abilities, two_ways=self.two_ways))
            rules.append(Query((can, left), partial(self._of_broker, i)))
            named = [fates[k] for k in range(self.n) if self.ids[k] not in self.assigned and k != i]
            rules.append(Query((Read(i, known.can_start), *named), partial(self._starts, i)))
            links = [Read(self.links[ends], known.changes)
                     for ends in ((b, 0), (0, b)) if ends in self.links]  # fmt: skip
            asks = Read(i, known.unanswered)
            rules.append(Query((Read(i, known.epoch), is_known), partial(self._registers, i)))
            if not self.version.writes_zookeeper:
                rules.append(Query((asks, is_known, *links), partial(self._asks_again, i)))
            if budgets.get("shutdowns"):
                every = [Read(slot, bool) for slot in self.links.values()]
                reads = (fates[i], left, is_known, *every)
                rules.append(Query(reads, partial(self._shuts_down, i)))
        for f, b in permutations(self.ids, 2):
            reads = Read(self.slots[f], known.asking), Read(self.slots[b], known.waiting)
            talk = (Read(self.links[ends], known.talk) for ends in ((f, b), (b, f)))
            rules.append(Query((*reads, *talk), partial(self._retries, f, b)))
        alive = Read(self.n, _alive)
        rules.append(Query((alive, *fates), self._expires))
        if any(budgets.get(kind) for kind in ("elections", "uncleans", "reassigns", "failovers")):
            rules.append(Query((controller, left, *fates), self._of_operator))
        stored, promised = Read(self.n, known.stored), Read(self.promised)
        invariants = [Query((stored, promised), partial(self._breaks, NO_LEADER))]
        for i, b in enumerate(self.ids):
            leads, holds = Read(i, known.leads), Read(i, known.holds)
            invariants.append(Query((leads, holds, stored), partial(self._breaks_own, b)))
            invariants.append(Query((stored, promised, leads), partial(self._breaks, b)))
            for k, other in enumerate(self.ids):
                if k != i:
                    reads = stored, leads, Read(k, known.holds)
                    invariants.append(Query(reads, partial(self._breaks_pair, b, other)))
        self.rules: Sequence[Query] = rules
        self.invariants: Sequence[Query] = invariants

    def _left(self, budgets: tuple[int, ...]) -> Left:
        kinds = frozenset(kind for kind, count in zip(KINDS, budgets, strict=True) if count)
        return kinds, self.produced + self.total - budgets[0] - budgets[1]

    def _spends(self, kind: str) -> AtSlot:
        return self.budget, ("spend", _KIND[kind])

    # Actions

    def _arrives(
        self, source: int, target: int, message: m.Message | None, left: Left | None = None
    ) -> Acts:
        """The next message of a link arrives, or is lost."""
        if message is not None:
            name = "step" if target else "tell"
            taken, link = (self.links[source, target], ("take",)), words.link(source, target)
            yield f"deliver {link}", (taken, (self.slots[target], (name, message)))
            if left and "losses" in left[0]:
                yield f"drop {link}", (taken, self._spends("losses"))

    def _of_broker(self, i: int, can: known.Abilities | None, left: Left) -> Acts:
        """A broker's own actions, and its faults."""
        (kinds, request), b = left, self.ids[i]
        if can is None:
            return
        if can.oldest:
            yield f"expire_fetch {b}", ((i, ("step", m.ExpireFetch(*can.oldest))),)
        for kind, name, acks in (("produces", "1", 1), ("acks_all", "all", m.ACKS_ALL)):
            if can.leads and kind in kinds:
                message = m.Produce(request, (f"m{request + 1}",), acks)
                written = i, ("step", message, False, True)
                yield f"produce {b} acks={name}", (self._spends(kind), written)
        for late in can.lates if "lags" in kinds else ():
            how = "slow" if late.fetches else "gone"
            yield f"late {b} {late.follower} {how}", (self._spends("lags"), (i, ("step", late)))
        if "crashes" in kinds:
            yield f"kill {b}", (self._spends("crashes"), (i, ("crash",)))
        if "powers" in kinds:
            yield f"power_loss {b}", (self._spends("powers"), (i, ("lose power",)))
        if "flushes" in kinds and not can.is_flushed:
            yield f"flush {b}", (self._spends("flushes"), (i, ("flush",)))
        if "checkpoints" in kinds and not can.is_checkpointed:
            writes = i, ("step", m.CheckpointHighWatermark())
            yield f"checkpoint {b}", (self._spends("checkpoints"), writes)
        if "fences" in kinds:
            cut = [(self.links[to], ("clear",)) for to in ((0, b), (b, 0)) if to in self.links]
            yield f"fence {b}", (self._spends("fences"), *cut, (self.n, ("expire", b, True)))

    def _starts(self, i: int, can_start: bool, *fates: int) -> Acts:
        if can_start:
            outside = [b for k, b in enumerate(self.ids) if b not in self.assigned and k != i]
            is_named = dict(zip(outside, fates, strict=True))
            named = tuple(b for b in self.ids if b not in self.assigned and is_named.get(b) != 2)
            yield f"start {self.ids[i]}", ((i, ("start", named)),)

    def _registers(self, i: int, epoch: int | None, is_known: bool) -> Acts:
        """A live broker that lost its session registers again."""
        if epoch is not None and not is_known:
            b = self.ids[i]
            yield f"register {b}", ((self.n, ("tell", m.RegisterBroker(b, epoch, is_known=True))),)

    def _asks_again(self, i: int, request: int, is_known: bool, *links: tuple[int, ...]) -> Acts:
        if request >= 0 and is_known and not any(request in link for link in links):
            yield f"ask_again {self.ids[i]}", ((i, ("step", m.RetryAlterPartition())),)

    def _retries(
        self, follower: int, leader: int, asking: tuple[int, int] | None,
        waiting: tuple[tuple[int, int], ...] | None, *links: tuple[int, ...],
    ) -> Acts:  # fmt: skip
        """A follower repeats its request if neither the request nor its answer is in flight."""
        if asking is None or asking[0] != leader or waiting is None:
            return
        request = asking[1]
        if not any(request in link for link in links) and (follower, request) not in waiting:
            yield f"retry {follower}", ((self.slots[follower], ("step", m.RetryRequest(request))),)

    def _shuts_down(self, i: int, fate: int, left: Left, is_known: bool, *on_links: bool) -> Acts:
        if fate == 0 and "shutdowns" in left[0] and is_known and not any(on_links):
            stops = (i, ("stopping",)), (i, ("stopped",))
            yield f"clean_shutdown {self.ids[i]}", (self._spends("shutdowns"), *stops)

    def _expires(self, alive: tuple[int, ...], *fates: int) -> Acts:
        dead = self._dead(alive, fates)
        if dead:
            yield "elect", tuple((self.n, ("expire", b)) for b in dead)

    def _dead(self, alive: Iterable[int], fates: tuple[int, ...]) -> list[int]:
        return [b for b, fate in zip(self.ids, fates, strict=True) if fate and b in alive]

    def _of_operator(self, controller: Controller, left: Left, *fates: int) -> Acts:
        kinds, at = left[0], self.n
        dead = self._dead(_alive(controller), fates)
        for kind, budget in (("preferred", "elections"), ("unclean", "uncleans")):
            if budget in kinds:  # as in `faults.elect`
                gone = ((at, ("expire", b)) for b in dead)
                elects = at, ("elect", kind, controller.replicas[0])
                yield f"elect {kind}", (self._spends(budget), *gone, elects)
        if "failovers" in kinds and not self.version.kraft:
            live = tuple(b for b in _alive(controller) if b not in dead)
            yield "hard_bounce controller", (self._spends("failovers"), (at, ("fail over", live)))
        for target in moves(controller.state, self.ids) if "reassigns" in kinds else ():
            named = [b for b, fate in zip(self.ids, fates, strict=True)
                     if b not in self.assigned and fate != 2]  # fmt: skip
            then = [self._spends("reassigns")]
            for b in target or ():
                if fates[self.slots[b]] == 2:
                    named = [x for x in self.ids if x in (*named, b)]
                    then.append((self.slots[b], ("start", tuple(named))))
            then.append((at, ("tell", m.AlterPartitionReassignments(target))))
            yield f"reassign {words.ids(target) if target else 'cancel'}", tuple(then)

    # Promises: each answer is the sum of 1 << i over the broken ones

    def _breaks(
        self, who: int, state: PartitionState, promised: Promises, leads: Leads = None
    ) -> int:
        """All promises, judged from the leader alone, or from no broker if there is no leader."""
        if state.leader != who:
            return 0
        brokers = {who: self._shown(who, *leads)} if leads else {}
        known = dict(promised.committed), dict(promised.acknowledged)
        view = safety.View(brokers, {}, self._stored(state), *known, len(promised.disks_lost))
        return self._bits(view, self.promises) | promised.went_back << self.promises.index(
            "high_watermark_never_back"
        )

    def _breaks_own(self, b: int, leads: Leads, log: Log | None, state: PartitionState) -> int:
        if log is None:
            return 0
        broker = self._shown(b, *(leads or (log,)))
        return self._bits(safety.View({b: broker}, {}, self._stored(state)), _OF_BROKERS)

    def _breaks_pair(
        self, leader: int, other: int, state: PartitionState, leads: Leads, log: Log | None
    ) -> int:
        if state.leader != leader or not leads or log is None:
            return 0
        brokers = {leader: self._shown(leader, *leads), other: self._shown(other, log)}
        return self._bits(safety.View(brokers, {}, self._stored(state)), _OF_PAIRS)

    def _shown(self, b: int, log: Log, role: Leader | None = None) -> Broker:
        return Broker(b, self.version, self.settings, (), log, role)

    def _stored(self, state: PartitionState) -> Controller:
        return Controller(self.version, self.settings, state)

    def _bits(self, view: safety.View, names: Iterable[str]) -> int:
        wrong = {name for name in names if safety.PROPERTIES[name](view) is not None}
        return sum(1 << self.promises.index(name) for name in wrong)


def _alive(controller: Controller) -> tuple[int, ...]:
    return tuple(info.id for info in controller.alive)
