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
from isrlab.world.known import State, Stopped
from isrlab.world.space import KINDS, Space

Choice = tuple[tuple[Any, ...], State]
_KIND = {kind: i for i, kind in enumerate(KINDS)}
_FOR = {  # what a broker can be made to do, and the budget
    "crash": "crashes", "lose power": "powers", "flush": "flushes", "checkpoint": "checkpoints",
    "shut down": "shutdowns", "fence": "fences",
}  # fmt: skip


class EngineSystem(Space):
    """A partition as a `TransitionSystem`: see `space.py`."""

    def successors(self, state: State) -> list[Choice]:
        """(action, next state) for each action that is enabled."""
        self._arriving = []
        done: Callable[[list[Any]], State] = self._drain if self.prompt else tuple
        budgets = state[self.budget]
        out: list[Choice] = []
        losing = self._spend(budgets, _KIND["losses"]) if budgets[_KIND["losses"]] else None
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
        dead = []
        expiries = self._controller(state[self.n])[0]
        for i in range(self.n):
            local = self._local(state[i])
            if local.is_dead:
                if local.can_start:
                    after = list(state)
                    self._start(after, i)
                    out.append((("start", self.ids[i]), done(after)))
                if expiries[i]:
                    dead.append(i)
                continue
            for action, after in self._by_itself(state, i, local):
                out.append((action, done(after)))
            if local.leads and (budgets[0] or budgets[1]):
                out += [(action, done(after)) for action, after in self._produces(state, i)]
            if any(budgets[2:]):
                out += [(action, done(after)) for action, after in self._faults(state, i, local)]
        if dead:
            after = list(state)
            self._expire(after, dead)
            out.append((("expire", *(self.ids[i] for i in dead)), done(after)))
        if any(budgets[_KIND["elections"] : _KIND["checkpoints"]]):
            out += [(a, done(after)) for a, after in self._of_controller(state, dead)]
        return out

    def _by_itself(self, state: State, i: int, local: Any) -> Iterator[tuple[Any, list[Any]]]:
        """What costs nothing: it is a matter of time."""
        number, leader = self.ids[i], local.follows
        if local.parked:
            after = list(state)
            self._step(after, i, local.parked)
            yield ("answer oldest", number), after
        is_there = leader and not self._local(state[self.slots[leader]]).is_dead
        if is_there and not self._is_on_its_way(state, i, leader):
            after = list(state)
            self._step(after, i, local.retry)
            yield ("retry", number), after
        if self._is_cut_off(state, i):
            after = list(state)
            self._tell(after, local.register)
            yield ("register", number), after
        elif local.unanswered >= 0 and not self._alters(state, i, local.unanswered):
            after = list(state)
            self._step(after, i, self.ask_again)
            yield ("ask again", number), after

    def _produces(self, state: State, i: int) -> Iterator[tuple[Any, list[Any]]]:
        left = state[self.budget]
        request = self.produced + self.total - left[0] - left[1]
        for kind, acks, name in ((0, 1, "1"), (1, m.ACKS_ALL, "all")):
            if left[kind]:
                after = list(state)
                after[self.budget] = self._spend(left, kind)
                produce = m.Produce(request, (f"m{request + 1}",), acks)
                self._step(after, i, self._intern(produce))
                if after[i] != state[i]:  # it is not refused
                    yield ("produce", self.ids[i], name), after

    def _faults(self, state: State, i: int, local: Any) -> Iterator[tuple[Any, list[Any]]]:
        budgets, number = state[self.budget], self.ids[i]
        after = list(state)
        for name, kind in _FOR.items():
            if not budgets[_KIND[kind]]:
                continue
            after[self.budget] = self._spend(budgets, _KIND[kind])
            if self._strike(name, after, i, local):
                yield (name, number), after
            after = list(state)
        if budgets[_KIND["lags"]]:
            for action, message in local.lates:
                after = list(state)
                after[self.budget] = self._spend(budgets, _KIND["lags"])
                self._step(after, i, message)
                yield action, after

    def _strike(self, name: str, after: list[Any], i: int, local: Any) -> bool:
        """A fault of one broker. False: it makes no sense now."""
        broker, is_cut_off = self.objects[after[i]], self._is_cut_off(after, i)
        if name == "crash":
            self._stop(after, i)
        elif name == "lose power":
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
        key = state[self.n], state[self.promised]
        controller, promised = (self.objects[number] for number in key)
        lead = self.slots.get(controller.leader, -1) if controller.leader != NO_LEADER else -1
        leader = state[lead] if lead >= 0 else 0
        bits = self._wrong.get((leader, *key))
        if bits is None:
            bits = self._wrong[leader, *key] = self._breaks(controller, promised, leader)
        for i in range(self.n):
            pair = leader, state[i], key[0]
            more = self._wrong.get(pair)
            if more is None:
                more = self._wrong[pair] = self._breaks(controller, None, *pair[:2])
            bits |= more
        return bits

    def _breaks(self, controller: Any, promised: Any, *numbers: int) -> int:
        live = [self.objects[number] for number in numbers if number]
        brokers = {b.id: b for b in live if isinstance(b, Broker)}
        view = safety.View(brokers, brokers, controller)
        if promised is not None:
            known = dict(promised.committed), dict(promised.acknowledged)
            view = safety.View(brokers, brokers, controller, *known, len(promised.disks_lost))
        wrong = [holds(view) is not None for holds in safety.PROPERTIES.values()]
        wrong[self.promises.index("high_watermark_never_back")] = bool(
            promised and promised.went_back
        )
        return sum(1 << i for i, is_broken in enumerate(wrong) if is_broken)
