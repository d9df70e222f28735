"""An all-seeing observer of a cluster keeps its frames and events, and checks safety properties.

The engine reports nothing: an event is a change of state, so it can never contradict the state.
Events of brokers come from their own steps, and events of the stored state from the controller. The
safety properties are checked after every step that changes a broker.
"""

from typing import Any

from isrlab.engine import messages as m
from isrlab.engine import safety
from isrlab.engine.controller import Controller
from isrlab.engine.frozen import SharedDict, SharedList
from isrlab.engine.log import Log
from isrlab.engine.model import NO_LEADER, Broker, CommittedIsr, Follower, Leader, PendingExpandIsr
from isrlab.world.frames import Envelope, Event, Frame, Outcome

Role = Leader | Follower | None
_OF_ROLE = "leader_epoch", "partition_epoch", "isr"


class Observer:
    def __init__(self, world: Any) -> None:  # the `Cluster`, whose module imports this one
        self.world = world
        self.frames = SharedList[Frame]()
        self.events = SharedList[Event]()
        self.entries = SharedList[Frame | Event]()  # both, in order
        self.committed = SharedDict[str, int]()  # record -> offset
        self.acknowledged = SharedDict[str, int]()  # record -> acks
        self.disks_lost: set[int] = set()  # brokers that have lost unflushed records
        self.violations: dict[str, str] = {}
        self._verified = safety.Verified()
        self._asked_about: tuple[tuple[object, ...], list[Broker]] = (), []
        self.asked = tuple(safety.PROPERTIES)
        self.is_silent = False  # whether to keep no frames and events

    def ask_only(self, *promises: str) -> None:
        """From now on check only these properties, and keep nothing: that takes half the time."""
        self.asked, self.is_silent = promises, True

    def note(self, kind: str, broker: int | None = None, **columns: Any) -> None:
        if self.is_silent:
            return
        self.events.append(Event(len(self.entries), self.world.now_ms, kind, broker, **columns))
        self.entries.append(self.events[-1])

    def keep(self, envelope: Envelope, was_lost: bool = False) -> None:
        """Keep a frame of the cluster."""
        if self.is_silent:
            return
        world, e = self.world, envelope
        state = (dict(world.brokers), dict(world.disks), world.controller)
        place, now_ms = len(self.entries), world.now_ms
        self.frames.append(Frame(place, now_ms, e.source, e.target, e.message, *state, was_lost))
        self.entries.append(self.frames[-1])

    # Changes of a step

    def compare(
        self, before: Broker, after: Broker, message: m.Message, outputs: tuple[m.Output, ...]
    ) -> None:
        """Note the events of one step of one broker."""
        for record, offset in committed_by(before, after):
            self.committed.setdefault(record, offset)
        if self.is_silent:
            return
        role, old, log = after.role, before.role, after.log
        if isinstance(role, Follower) and getattr(old, "leader", None) != role.leader:
            self.note("follower", **_columns(after), replica=role.leader)
        elif isinstance(role, Leader):
            self._compare_leaders(old, role, message, after)
        sent = [type(output.message) for output in outputs if isinstance(output, m.Send)]
        news = {
            "truncate": before.log is not log and _is_cut(before.log, log),
            "high_watermark": role and before.log.high_watermark != log.high_watermark,
            "notify": m.IsrChangeNotification in sent,
            "metadata": before.metadata is not after.metadata and before.metadata != after.metadata,
        }
        for kind in filter(news.get, news):
            self.note(kind, **_columns(after))

    def _compare_leaders(self, old: Role, new: Leader, message: object, after: Broker) -> None:
        is_elected = not old or old.leader_epoch != new.leader_epoch
        if is_elected:
            self.note("leader", **_columns(after))
        state = new.isr_state
        if not isinstance(state, CommittedIsr) and getattr(old, "isr_state", None) != state:
            asked = _columns(after) | {"isr": state.proposed_isr, "isr_before": state.isr}
            if isinstance(state, PendingExpandIsr):
                self.note("isr_expand", **asked, replica=state.joining)
            else:
                only = state.leaving[0] if len(state.leaving) == 1 else None
                knew = _knew(after.log.log_end_offset, new, state.leaving, self.world.now_ms)
                self.note("isr_shrink", **asked, replica=only, detail=knew)
        if isinstance(message, m.AlterPartitionResponse) and message.error:
            self.note("isr_rejected", **_columns(after), detail={"error": message.error})
        if isinstance(old, Leader) and not is_elected and old.isr != new.isr:
            self.note("isr_commit", **_columns(after), isr_before=old.isr)

    def compare_stored(self, before: Controller | None, message: object = None) -> None:
        """Note the stored ISR and replicas, if the controller's step changed them."""
        now = self.world.controller
        has_moved = before is not None and before.state.replicas != now.state.replicas
        if before is not None and set(before.isr) == set(now.isr) and not has_moved:
            return
        detail = {"said_by": "controller", "leader": str(now.leader)}
        for name in ("replicas", "adding", "removing") if has_moved else ():
            detail[name] = ",".join(map(str, getattr(now.state, name)))
        if isinstance(message, m.AlterPartition):
            detail["asked_by"] = "leader"
        epochs = {"leader_epoch": now.leader_epoch, "partition_epoch": now.partition_epoch}
        isr_before = before.isr if before else None
        self.note("isr_commit", None, isr=now.isr, isr_before=isr_before, detail=detail, **epochs)

    # Safety properties

    def view(self, before: dict[int, Broker] | None = None) -> safety.View:
        live, controller = self.world.brokers, self.world.controller
        promised = (self.committed, self.acknowledged, len(self.disks_lost), self._verified)
        return safety.View(live, live if before is None else before, controller, *promised)

    def ask_safety(self, before: Broker) -> None:
        """After a step of a broker, note each property that is broken for the first time.

        Most steps change only clocks and fetches in flight, of which no property knows.
        """
        promised = len(self.committed), len(self.acknowledged), len(self.disks_lost)
        now = (self.world.controller, *promised), [*self.world.brokers.values()]
        was, self._asked_about = self._asked_about, now
        if now[0] == was[0] and len(now[1]) == len(was[1]) and all(map(_is_alike, now[1], was[1])):
            return
        view = self.view({**self.world.brokers, before.id: before})
        for name in self.asked:
            wrong = None if name in self.violations else safety.PROPERTIES[name](view)
            if wrong is not None:
                self.violations[name] = wrong
                kind = "diverged" if name == "logs_agree" else "lost"
                self.note(kind, detail={"property": name, "text": wrong})

    @property
    def outcome(self) -> Outcome:
        view = self.view()
        return Outcome(
            lost=tuple(safety.missing_committed(view)),
            lost_acknowledged=tuple(safety.missing_acknowledged(view)),
            diverged=tuple(safety.disagreements(view)),
            has_leader=self.world.controller.leader != NO_LEADER,
            violations=dict(self.violations),
        )


def _is_alike(broker: Broker, other: Broker) -> bool:
    return broker is other or safety.facts(broker) == safety.facts(other)


def _columns(broker: Broker) -> dict[str, Any]:
    """The columns of an event that a broker's state fills; a follower has no ISR."""
    of_role = {name: getattr(broker.role, name, None) for name in _OF_ROLE}
    ends = {name: getattr(broker.log, name) for name in ("log_end_offset", "high_watermark")}
    return {"broker": broker.id} | ends | of_role


def committed_by(before: Broker, after: Broker) -> tuple[tuple[str, int], ...]:
    """The records, with their offsets, that a leader's high watermark passed in this step."""
    leads, led = isinstance(after.role, Leader), isinstance(before.role, Leader)
    if not leads or (led and after.log is before.log):
        return ()
    start = max(before.log.high_watermark if led else 0, after.log.log_start_offset)
    end = after.log.high_watermark
    read = after.log.read(start, end) if start < end else ()
    return tuple((record.id, offset) for offset, record in enumerate(read, start))


def _knew(end_offset: int, role: Leader, leaving: tuple[int, ...], now_ms: int) -> dict[str, str]:
    """How far the leaving replicas lag: an unknown log end is 0, an unknown time is left out."""
    gone = [r for r in role.remotes if r.id in leaving]
    knew = {"lag_records": str(max(end_offset - max(r.log_end_offset, 0) for r in gone))}
    last_ms = {"since_caught_up_ms": max(r.last_caught_up_time_ms for r in gone)}
    last_ms["since_fetch_ms"] = max(r.last_fetch_time_ms for r in gone)
    return knew | {key: str(now_ms - ms) for key, ms in last_ms.items() if ms > 0}


def _is_cut(before: Log, after: Log) -> bool:
    """Whether the log's start or old last record has changed; no step both cuts and appends."""
    if after.log_start_offset == before.log_end_offset:  # retention, or an empty log that grows
        return False
    kept = len(before.records)
    return before.records is not after.records and (
        after.log_start_offset != before.log_start_offset
        or after.records[kept - 1 : kept] != before.records[kept - 1 : kept]
    )
