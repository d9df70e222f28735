"""What may happen next in a state of the engine's space, and which promises do not hold there.

An action is a tuple: its name, then the brokers that it is about. `KINDS` names what has a budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from isrlab.engine import controller as controller_machine
from isrlab.engine import messages as m
from isrlab.engine import safety
from isrlab.engine.frozen import replace
from isrlab.engine.model import NO_LEADER, Broker
from isrlab.search.known import State, Stopped
from isrlab.search.space import KINDS, Space

Choice = tuple[tuple[Any, ...], State]
_KIND = {kind: i for i, kind in enumerate(KINDS)}
_FOR = {  # what a broker can be made to do, and the budget
    "crash": "crashes", "lose power": "powers", "flush": "flushes", "checkpoint": "checkpoints",
    "shut down": "shutdowns", "fence": "fences",
}  # fmt: skip
# What two brokers can break, whatever has been promised
_OF_PAIRS = "high_watermark_within_log", "leader_in_isr", "logs_agree"


class EngineSystem(Space):
    """A partition as a `TransitionSystem`: see `space.py`."""

    def successors(self, state: State) -> list[Choice]:
        """(action, next state) for each action that is enabled."""
        self._arriving = []
        done: Callable[[list[Any]], State] = self._drain if self.prompt else tuple
        budgets = state[self.budget]
        plan = self._plans.get(budgets)
        if plan is None:
            plan = self._plans[budgets] = self._plan(budgets)
        losing, producing, striking, lagging, acts = plan
        out: list[Choice] = []
        self._deliver(state, losing, done, out)
        dead, expiries = [], self._controller(state[self.n])[0]
        for i in range(self.n):
            local = self._locals.get(state[i]) or self._local(state[i])
            if not local.is_dead:
                self._of_time(state, i, local, out)
                if local.leads:
                    for name, spent, message in producing:
                        after = list(state)
                        after[self.budget] = spent
                        self._step(after, i, message)
                        if after[i] != state[i]:  # it is not refused
                            out.append((("produce", self.ids[i], name), done(after)))
                    for action, message in local.lates if lagging else ():
                        after = list(state)
                        after[self.budget] = lagging
                        self._step(after, i, message)
                        out.append((action, done(after)))
                for name, spent in striking:
                    after = list(state)
                    after[self.budget] = spent
                    if self._strike(name, after, i, local):
                        out.append(((name, self.ids[i]), done(after)))
                continue
            if local.can_start:
                after = list(state)
                self._start(after, i)
                out.append((("start", self.ids[i]), done(after)))
            if expiries[i]:
                dead.append(i)
        if dead:
            after = list(state)
            self._expire(after, dead)
            out.append((("expire", *(self.ids[i] for i in dead)), done(after)))
        if acts:
            out += [(a, done(after)) for a, after in self._of_controller(state, dead)]
        return out

    def _deliver(
        self, state: State, losing: Any, done: Callable[[list[Any]], State], out: list[Choice]
    ) -> None:
        """The next message of each link arrives, or is lost."""
        for action, slot, target in self.moves:
            if queue := state[slot]:
                after = list(state)
                after[slot] = queue[1:]
                if target == self.n:
                    self._tell(after, queue[0])
                else:
                    self._step(after, target, queue[0])
                out.append((action, done(after)))
                if losing and slot in self.can_lose:
                    after = list(state)
                    after[slot], after[self.budget] = queue[1:], losing
                    out.append((self.can_lose[slot], tuple(after)))

    def _plan(self, budgets: tuple[int, ...]) -> Any:
        """What these budgets allow: to lose, produce, strike and be late, each with those that are
        left then; and whether an operator or the controller may act."""
        left = {kind: self._spend(budgets, i) for i, kind in enumerate(KINDS) if budgets[i]}
        request = self.produced + self.total - budgets[0] - budgets[1]
        producing = [
            (name, left[kind], self._intern(m.Produce(request, (f"m{request + 1}",), acks)))
            for kind, name, acks in (("produces", "1", 1), ("acks_all", "all", m.ACKS_ALL))
            if kind in left
        ]
        striking = [(name, left[kind]) for name, kind in _FOR.items() if kind in left]
        acts = {"elections", "uncleans", "reassigns", "failovers"} & left.keys()
        return left.get("losses"), producing, striking, left.get("lags"), bool(acts)

    def _of_time(self, state: State, i: int, local: Any, out: list[Choice]) -> None:
        """What costs nothing: it is a matter of time."""
        message, name, leader = local.parked, "answer oldest", local.follows
        is_there = leader and not self._local(state[self.slots[leader]]).is_dead
        if is_there and not self._is_on_its_way(state, i, local):
            message, name = local.retry, "retry"
        if message:
            after = list(state)
            self._step(after, i, message)
            out.append(((name, self.ids[i]), self._drain(after)))
        if not self._controller(state[self.n])[0][i]:
            after = list(state)
            self._tell(after, local.register)
            out.append((("register", self.ids[i]), self._drain(after)))
        elif local.unanswered >= 0 and not self._alters(state, i, local.unanswered):
            after = list(state)
            self._step(after, i, self.ask_again)
            out.append((("ask again", self.ids[i]), self._drain(after)))

    def _strike(self, name: str, after: list[Any], i: int, local: Any) -> bool:
        """A fault of one broker. False: it makes no sense now."""
        if name == "crash":
            self._stop(after, i)
            return True
        broker, is_cut_off = self.objects[after[i]], self._is_cut_off(after, i)
        if name == "lose power":
            self._power(after, i)
        elif name == "flush":
            after[i] = self._intern(replace(broker, log=broker.log.flush()))
            return bool(broker.log.flushed_end_offset != broker.log.log_end_offset)
        elif name == "checkpoint" and local.checkpoint:
            self._step(after, i, self._intern(m.CheckpointHighWatermark()))
        elif name == "shut down" and not is_cut_off and not any(after[s] for s in self.ends):
            self._shut_down(after, i)
        elif name == "fence" and not is_cut_off:
            for slot in (self.links.get((0, broker.id)), self.links.get((broker.id, 0))):
                if slot is not None:
                    after[slot] = ()
            self._expire(after, [i])
        else:
            return False
        return True

    def _of_controller(self, state: State, dead: list[int]) -> Iterator[tuple[Any, list[Any]]]:
        budgets, controller = state[self.budget], self.objects[state[self.n]]
        has_lead = {"preferred": controller.replicas[0], "unclean": NO_LEADER}
        for kind, budget in (("preferred", "elections"), ("unclean", "uncleans")):
            if not budgets[_KIND[budget]]:
                continue
            after = list(state)
            after[self.budget] = self._spend(budgets, _KIND[budget])
            self._expire(after, dead)  # as in `faults.elect`
            leader = self.objects[after[self.n]].leader
            if (leader == has_lead[kind]) == (kind == "unclean"):
                self._tell(after, self._intern(m.ElectLeaders(kind)))
                yield ("elect", kind), after
        if budgets[_KIND["failovers"]] and not self.version.kraft:
            after = list(state)
            after[self.budget] = self._spend(budgets, _KIND["failovers"])
            live = [b for b in controller.alive if self.slots[b.id] not in dead]
            step = controller_machine.fail_over(controller, tuple(live))
            self._decide(after, self._controller_result(step))
            yield ("fail over",), after
        if budgets[_KIND["reassigns"]]:
            for target in self._controller(state[self.n])[1]:
                after = list(state)
                after[self.budget] = self._spend(budgets, _KIND["reassigns"])
                for broker in target or ():
                    stopped = self.objects[after[self.slots[broker]]]
                    if isinstance(stopped, Stopped) and stopped.is_new:
                        self._start(after, self.slots[broker])
                self._tell(after, self._intern(m.AlterPartitionReassignments(target)))
                yield ("reassign", *(target or ("cancel",))), after

    # What is promised

    def broken(self, state: State) -> int:
        """A sum of 1 << i for each promise that does not hold."""
        key = *state[: self.n + 1], state[self.promised]
        bits = self._wrong.get(key)
        if bits is None:
            controller, promised = self.objects[key[-2]], self.objects[key[-1]]
            lead = self.slots[controller.leader] if controller.leader != NO_LEADER else -1
            leader = state[lead] if lead >= 0 else 0
            bits = 0
            pairs = [(leader, number, key[-2]) for number in state[: self.n]]
            for parts in [(leader, key[-2], key[-1], 0), *pairs]:
                more = self._wrong.get(parts)
                if more is None:
                    own: Any = (promised, leader) if len(parts) == 4 else (None, *parts[:2])
                    more = self._wrong[parts] = self._breaks(controller, *own)
                bits |= more
            self._wrong[key] = bits
        return bits

    def _breaks(self, controller: Any, promised: Any, *numbers: int) -> int:
        live = [self.objects[number] for number in numbers if number]
        brokers = {b.id: b for b in live if isinstance(b, Broker)}
        view = safety.View(brokers, {}, controller)
        if promised is not None:
            known = dict(promised.committed), dict(promised.acknowledged)
            view = safety.View(brokers, {}, controller, *known, len(promised.disks_lost))
        asked = safety.PROPERTIES if promised is not None else _OF_PAIRS
        wrong = {name for name in asked if safety.PROPERTIES[name](view) is not None}
        if promised is not None and promised.went_back:
            wrong.add("high_watermark_never_back")
        return sum(1 << self.promises.index(name) for name in wrong)
