"""An all-seeing observer of a cluster: its frames, its events, and what it has promised.

The engine reports nothing: what happened is what changed. So an event can never say anything that
the state does not. Brokers speak of their own steps; what the stored state of the partition says is
read from the controller. After every step of a broker the safety properties are asked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from heapq import merge
from operator import attrgetter
from typing import Any, Protocol, cast

from isrlab.engine import messages as m
from isrlab.engine import safety
from isrlab.engine.controller import Controller
from isrlab.engine.frozen import replace
from isrlab.engine.log import Log, Record
from isrlab.engine.model import (
    NO_LEADER,
    Broker,
    CommittedIsr,
    Follower,
    Leader,
    PendingExpandIsr,
    PendingShrinkIsr,
)
from isrlab.world.frames import Event, Fault, Frame, Outcome, Prefix

_KIND = {"logs_agree": "diverged"}  # of the event that a broken property makes; else "lost"


class World(Protocol):
    """What is observed."""

    now_ms: int
    brokers: dict[int, Broker]
    disks: dict[int, Log]
    controller: Controller


class Observer:
    """What an all-seeing observer remembers of a run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.frames: list[Frame] = []
        self.events: list[Event] = []
        self.committed: dict[str, int] = {}  # record -> offset
        self.acknowledged: dict[str, int] = {}  # record -> acks
        self.disks_lost: set[int] = set()  # brokers that have lost unflushed records
        self._verified = safety.Verified()
        self.violations: dict[str, str] = {}
        self._verified = safety.Verified()
        self._records: dict[int, list[Record]] = {}  # of each disk; frames share them
        self._logs: dict[int, tuple[Log, Log]] = {}  # of each disk: as it is, and as frames keep it
        self._brokers: dict[int, tuple[Broker, Broker]] = {}

    def note(self, kind: str, broker: int | None = None, **columns: Any) -> None:
        place = len(self.frames) + len(self.events)
        self.events.append(Event(place, self.world.now_ms, kind, broker, **columns))

    def keep(
        self, source: int, target: int, message: m.Message | Fault, was_lost: bool = False
    ) -> None:
        """A frame: what the cluster looks like now."""
        world, place = self.world, len(self.frames) + len(self.events)
        disks = {number: self._kept_log(number, log) for number, log in world.disks.items()}
        brokers = {number: self._kept_broker(broker) for number, broker in world.brokers.items()}
        state = (brokers, disks, world.controller)
        self.frames.append(Frame(place, world.now_ms, source, target, message, *state, was_lost))

    def _kept_log(self, number: int, log: Log) -> Log:
        """The log over records that all frames share while it grows: a long run stays cheap."""
        if number in self._logs and self._logs[number][0] is log:
            return self._logs[number][1]
        shared, count = self._records.get(number, []), len(log.records)
        if count < len(shared) or (shared and log.records[len(shared) - 1] is not shared[-1]):
            shared = []
        shared.extend(log.records[len(shared) :])
        self._records[number] = shared
        records = cast("tuple[Record, ...]", Prefix(shared, count))
        self._logs[number] = log, replace(log, records=records)
        return self._logs[number][1]

    def _kept_broker(self, broker: Broker) -> Broker:
        number = broker.id
        if number not in self._brokers or self._brokers[number][0] is not broker:
            kept = replace(broker, log=self._kept_log(number, broker.log))
            self._brokers[number] = broker, kept
        return self._brokers[number][1]

    def since(self, place: int) -> Iterator[Frame | Event]:
        """Frames and events from a place on, in order."""
        parts = (
            e[bisect_left(e, place, key=attrgetter("place")) :] for e in (self.frames, self.events)
        )
        return merge(*parts, key=attrgetter("place"))

    # What a step has changed

    def compare(
        self, before: Broker, after: Broker, message: m.Message, outputs: tuple[m.Output, ...]
    ) -> None:
        """Note the events of one step of one broker."""
        at: dict[str, Any] = {
            "broker": after.id,
            "leader_epoch": after.role.leader_epoch if after.role else None,
            "partition_epoch": after.role.partition_epoch if after.role else None,
            "high_watermark": after.log.high_watermark,
            "log_end_offset": after.log.log_end_offset,
            "isr": after.role.isr if isinstance(after.role, Leader) else None,
        }
        self._compare_roles(before, after, at)
        self._compare_isr(before, after, message, at)
        if _is_cut(before.log, after.log):
            self.note("truncate", **at)
        if before.log.high_watermark != after.log.high_watermark:
            self.note("high_watermark", **at)
        if any(
            isinstance(o, m.Send) and isinstance(o.message, m.IsrChangeNotification)
            for o in outputs
        ):
            self.note("notify", **at)
        if isinstance(message, m.UpdateMetadata) and before.metadata != after.metadata:
            self.note("metadata", **at)
        self._remember_commits(before, after)

    def _compare_roles(self, before: Broker, after: Broker, at: Mapping[str, Any]) -> None:
        old, new = before.role, after.role
        if isinstance(new, Leader) and before.leader_epoch != new.leader_epoch:
            self.note("leader", **at)
        if isinstance(new, Follower) and not (
            isinstance(old, Follower) and old.leader == new.leader
        ):
            self.note("follower", **at, replica=new.leader)

    def _compare_isr(
        self, before: Broker, after: Broker, message: m.Message, at: dict[str, Any]
    ) -> None:
        old, new = before.role, after.role
        if not isinstance(new, Leader):
            return
        state = new.isr_state
        is_asked = not isinstance(old, Leader) or old.isr_state != state
        if is_asked and not isinstance(state, CommittedIsr):
            asked = at | {"isr": state.proposed_isr, "isr_before": state.isr}
            if isinstance(state, PendingExpandIsr):
                self.note("isr_expand", **asked, replica=state.joining)
            elif isinstance(state, PendingShrinkIsr):
                only = state.leaving[0] if len(state.leaving) == 1 else None
                knew = _knew(after.log, new, state.leaving, self.world.now_ms)
                self.note("isr_shrink", **asked, replica=only, detail=knew)
        if isinstance(message, m.AlterPartitionResponse) and message.error:
            self.note("isr_rejected", **at, detail={"error": message.error})
        if isinstance(old, Leader) and old.leader_epoch == new.leader_epoch and old.isr != new.isr:
            self.note("isr_commit", **at, isr_before=old.isr)

    def compare_stored(
        self, before: Controller | None, message: m.Message | Fault | None = None
    ) -> None:
        """Note the stored ISR, if the controller's step changed it, as said by the controller."""
        now = self.world.controller
        if before is not None and set(before.isr) == set(now.isr):
            return
        detail = {"said_by": "controller", "leader": str(now.leader)}
        if isinstance(message, m.AlterPartition):
            detail["asked_by"] = "leader"
        self.note(
            "isr_commit",
            leader_epoch=now.leader_epoch,
            partition_epoch=now.partition_epoch,
            isr=now.isr,
            isr_before=before.isr if before else None,
            detail=detail,
        )

    # What was promised

    def _remember_commits(self, before: Broker, after: Broker) -> None:
        """A record is committed once a leader's high watermark has passed it."""
        if not isinstance(after.role, Leader):
            return
        start = before.log.high_watermark if isinstance(before.role, Leader) else 0
        for offset in range(max(start, after.log.log_start_offset), after.log.high_watermark):
            record = after.log.record_at(offset)
            if record is not None:
                self.committed.setdefault(record.id, offset)

    def view(self, before: dict[int, Broker] | None = None) -> safety.View:
        return safety.View(
            self.world.brokers,
            self.world.brokers if before is None else before,
            self.world.controller,
            self.committed,
            self.acknowledged,
            len(self.disks_lost),
            self._verified,
        )

    def ask_safety(self, before: dict[int, Broker]) -> None:
        """Note each property that is broken for the first time."""
        view = self.view(before)
        for name, holds in safety.PROPERTIES.items():
            wrong = None if name in self.violations else holds(view)
            if wrong is not None:
                self.violations[name] = wrong
                self.note(_KIND.get(name, "lost"), detail={"property": name, "text": wrong})

    @property
    def outcome(self) -> Outcome:
        return Outcome(
            lost=tuple(safety.missing_committed(self.view())),
            lost_acknowledged=tuple(safety.missing_acknowledged(self.view())),
            diverged=tuple(safety.disagreements(self.view())),
            has_leader=self.world.controller.leader != NO_LEADER,
            violations=dict(self.violations),
        )


def _knew(log: Log, role: Leader, leaving: tuple[int, ...], now_ms: int) -> dict[str, str]:
    """How far behind the leaving replicas are; what the leader never saw is left out."""
    gone = [r for r in role.remotes if r.id in leaving]
    caught_up_ms = max(r.last_caught_up_time_ms for r in gone)
    fetched_ms = max(r.last_fetch_time_ms for r in gone)
    knew = {"lag_records": max(log.log_end_offset - max(r.log_end_offset, 0) for r in gone)}
    if caught_up_ms > 0:
        knew["since_caught_up_ms"] = now_ms - caught_up_ms
    if fetched_ms > 0:
        knew["since_fetch_ms"] = now_ms - fetched_ms
    return {key: str(value) for key, value in knew.items()}


def _is_cut(before: Log, after: Log) -> bool:
    """Records went; no step both cuts a log and adds to it, so the last one in common tells."""
    if before.records is after.records:
        return False
    last = len(before.records) - 1
    return (
        len(after.records) <= last
        or after.log_start_offset != before.log_start_offset
        or (last >= 0 and after.records[last] != before.records[last])
    )
