"""Reassignments in a fleet whose leaders move: which run now, and when each completes.

The rule is the engine's (`PartitionState.is_moved`). The kernel does not know it, and requests ISR
changes as usual. So the cells run ahead, and their events are searched for the change that would
complete a reassignment; when it is stored, all brokers hear of the new replicas. An operator starts
`moves_at_once` reassignments, and another whenever one completes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from isrlab.engine import messages as m
from isrlab.engine.frozen import replace
from isrlab.engine.model import NO_LEADER
from isrlab.engine.partition import Controller
from isrlab.engine.rules import UNKNOWN_EPOCH
from isrlab.fleet import moments
from isrlab.fleet.cell_rows import CellRows, mask
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.kernel import state as s
from isrlab.fleet.layout import assignment, target
from isrlab.fleet.moments import Moment, Turn


class LastChange(NamedTuple):
    """An ISR change that will complete a reassignment."""

    asked_ms: int
    partition: int
    leader: int


class Reassigning:
    """The pending and the running reassignments."""

    def __init__(
        self, config: FleetConfig, cell_rows: dict[int, CellRows], controllers: list[Controller]
    ) -> None:
        self._config, self._cell_rows, self._controllers = config, cell_rows, controllers
        self._target = target(config)
        moves = (self._target != assignment(config)).any(axis=1)
        self._left: list[int] = np.flatnonzero(moves).tolist()
        self.going: set[int] = set()

    def questions(self) -> Iterator[tuple[int, m.Message]]:
        """The next requests to the controllers."""
        room = (self._config.moves_at_once or len(self._left)) - len(self.going)
        begun, self._left = self._left[:room], self._left[room:]
        self._throttle([*self.going, *begun])
        for partition in begun:
            wanted = tuple(self._target[partition].tolist())
            yield partition, m.AlterPartitionReassignments(wanted)

    def _throttle(self, moving: Iterable[int]) -> None:
        """Set both lists of throttled replicas, for running and starting moves, as the tool does.

        Source: calculateProposedMoveMap, ReassignPartitionsCommand.java 4.0 (KIP-455).
        """
        for rows in self._cell_rows.values():
            rows.state.partitions["is_throttled"] = rows.state.followers["is_throttled"] = 0
        for partition in moving:
            state = self._controllers[partition].state
            sources = {*state.replicas} - {*state.adding}
            newcomers = {*self._target[partition].tolist()} - sources
            for broker in {*sources, *newcomers} & {*self._cell_rows}:
                rows = self._cell_rows[broker]
                rows.partition(partition)["is_throttled"] = broker in sources
                rows.throttle(partition, newcomers)

    def note(self, partition: int, after: Controller) -> bool:
        """Note a controller's decision; returns whether the next partition may start."""
        if after.state.adding or after.state.removing:
            self.going.add(partition)
            return False
        was_going = partition in self.going
        self.going.discard(partition)
        return was_going and bool(self._left)

    def last_changes(self, leader: int, events: s.Ints) -> list[LastChange]:
        """A leader's requested ISR changes that would complete reassignments."""
        rows, changes = self._cell_rows[leader], []
        for row in events[events[:, s.KIND] <= s.EXPAND].tolist():
            partition = int(rows.cell.partitions[row[s.PARTITION]])
            if partition in self.going:
                isr = rows.members(row[s.PARTITION], row[s.ISR_AFTER])
                controller = self._controllers[partition]
                if replace(controller.state, isr=isr).is_moved(controller.version):
                    changes.append(LastChange(row[s.TS_MS], partition, leader))
        return changes

    def refuses(self, rows: CellRows, partition: int) -> bool:
        """Whether an ISR change is too late, in the millisecond of completion; if so, undo it."""
        controller, row = self._controllers[partition], rows.partition(partition)
        is_moved = controller.state.is_moved(controller.version)
        if not (self._config.kafka.writes_zookeeper and partition in self.going and is_moved):
            return False
        row["isr"] = row["maximal_isr"] = mask(rows.order(partition), controller.isr)
        return True

    def turns(self, change: LastChange, now_ms: int) -> list[Turn]:
        """The turns in which a change is stored and heard of; none if it will be refused."""
        row = self._cell_rows[change.leader].partition(change.partition)
        decided_ms = heard_ms = int(row["due_ms"])
        if self._config.kafka.writes_zookeeper:
            decided_ms, heard_ms = now_ms, change.asked_ms + moments.order_ms(self._config)
        elif row["pending"] != s.PENDING:
            return []
        moment = Moment(heard_ms, moments.MOVED, 0, partition=change.partition)
        return [Turn(decided_ms, moments.DECIDED, moment), Turn(heard_ms, moments.HEARD, moment)]

    def question(
        self, leader: int, moment: Moment, late: tuple[int, ...]
    ) -> Iterator[tuple[int, m.Message]]:
        """The message with the ISR change (`late`: of a dead leader), unless it was refused."""
        if leader == NO_LEADER:
            return
        controller, rows = self._controllers[moment.partition], self._cell_rows[leader]
        row, isr = rows.partition(moment.partition), late or controller.isr
        if not (late or self._config.kafka.writes_zookeeper):
            if row["pending"] != s.PENDING or row["due_ms"] != moment.heard_ms:
                return
            isr = rows.members(int(rows.place_of[moment.partition]), int(row["pending_isr"]))
        numbers = controller.leader_epoch, controller.partition_epoch, isr
        asked = m.AlterPartition(leader, 0, *numbers, (UNKNOWN_EPOCH,) * len(isr))
        yield moment.partition, asked
