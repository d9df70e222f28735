"""The safety properties, by name, checked on the whole cluster after every step.

A property takes the view of an all-seeing observer and returns None, or a sentence that says what
is wrong. Some release or fault breaks each of the last three; only a bug in the engine breaks the
others.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from isrlab.engine import messages as m
from isrlab.engine.frozen import Frozen
from isrlab.engine.log import Log
from isrlab.engine.model import NO_LEADER, Broker, Leader
from isrlab.engine.partition import Controller


@dataclass(slots=True)
class Verified:
    """How much of a leader's log an observer has verified: a log that only grew still holds it."""

    log: Log = field(default_factory=Log)
    committed: int = 0  # verified records, counted in the order in which they were committed
    acknowledged: int = 0

    def follow(self, log: Log) -> None:
        """Continue with `log`; start over unless it extends the former log."""
        before = self.log.records
        starts_alike = log.log_start_offset == self.log.log_start_offset
        goes_on = log.records is before or (starts_alike and log.records[: len(before)] == before)
        if not goes_on:
            self.committed = self.acknowledged = 0
        self.log = log


class View(Frozen):
    """The state of the whole cluster after a step, as an all-seeing observer knows it."""

    brokers: Mapping[int, Broker]  # those alive
    before: Mapping[int, Broker]  # before the step
    controller: Controller
    committed: Mapping[str, int] = {}  # record -> the offset at which it was committed
    acknowledged: Mapping[str, int] = {}  # record -> acks it was sent with
    disks_lost: int = 0  # brokers that lost unflushed data, ever
    verified: Verified = msgspec.field(default_factory=Verified)  # the observer may reuse it

    @property
    def leader(self) -> Broker | None:
        """The broker that leads in the newest epoch, if it is alive and knows it."""
        broker = self.brokers.get(self.controller.leader)
        if broker is None or not isinstance(broker.role, Leader):
            return None
        return broker if broker.leader_epoch == self.controller.leader_epoch else None


def facts(broker: Broker) -> tuple[object, ...]:
    """All that properties read of a broker: while it stays the same, so do their answers."""
    role = broker.role
    leads = isinstance(role, Leader) and (role.isr, [r.log_end_offset for r in role.remotes])
    return broker.id, broker.log, broker.broker_epoch, broker.leader_epoch, leads


def high_watermark_within_log(view: View) -> str | None:
    """No high watermark is above its replica's log end offset."""
    for broker in view.brokers.values():
        log = broker.log
        if log.high_watermark > log.log_end_offset:
            return f"broker {broker.id} has hw {log.high_watermark} > leo {log.log_end_offset}"
    return None


def high_watermark_never_back(view: View) -> str | None:
    """A leader's high watermark never goes back within its epoch."""
    for number, broker in view.brokers.items():
        before = view.before.get(number)
        if before and _reign(before) and _reign(before) == _reign(broker):
            old, new = before.log.high_watermark, broker.log.high_watermark
            if new < old:
                return f"leader {number} moved its hw back from {old} to {new}"
    return None


def _reign(broker: Broker) -> tuple[int, int] | None:
    """(leader epoch, broker epoch) of a leader."""
    is_leader = isinstance(broker.role, Leader)
    return (broker.leader_epoch, broker.broker_epoch) if is_leader else None


def leader_in_isr(view: View) -> str | None:
    """A leader is a member of its own ISR, at the broker and in the stored state."""
    controller = view.controller
    if controller.leader != NO_LEADER and controller.leader not in controller.isr:
        return f"stored leader {controller.leader} is not in the stored ISR {controller.isr}"
    for number, broker in view.brokers.items():
        if isinstance(broker.role, Leader) and number not in broker.role.isr:
            return f"leader {number} is not in its ISR {broker.role.isr}"
    return None


def committed_records_survive(view: View) -> str | None:
    """Every record below a leader's high watermark is in the log of every later leader."""
    missing = list(missing_committed(view))
    return f"committed {_names(missing)} not in the log of leader" if missing else None


def missing_committed(view: View) -> Iterator[str]:
    """The committed records that the current leader does not have."""
    if view.leader is None:
        return
    log = view.leader.log
    view.verified.follow(log)
    is_complete = True
    for record_id, offset in islice(view.committed.items(), view.verified.committed, None):
        here = log.record_at(offset)
        if here is None or here.id != record_id:
            is_complete = False
            yield record_id
    if is_complete:
        view.verified.committed = len(view.committed)


def logs_agree(view: View) -> str | None:
    """A follower holds exactly the leader's records up to the log end that its leader knows."""
    for number, offset in disagreements(view):
        assert view.leader is not None
        logs = view.leader.log, view.brokers[number].log
        ours, theirs = (log.read(offset, offset + 1)[0].id for log in logs)
        led = f"{ours} on leader {view.leader.id}"
        return f"offset {offset} is {led} but {theirs} on follower {number}"
    return None


def disagreements(view: View) -> Iterator[tuple[int, int]]:
    """(follower, first offset) for each follower that differs from its leader."""
    leader = view.leader
    if leader is None or not isinstance(leader.role, Leader):
        return
    for remote in leader.role.remotes:
        if (follower := view.brokers.get(remote.id)) is None:
            continue
        end = min(remote.log_end_offset, follower.log.log_end_offset)
        start = max(leader.log.log_start_offset, follower.log.log_start_offset)
        ours, theirs = (x.log.read(start, end) if start < end else () for x in (leader, follower))
        if ours != theirs:
            pairs = enumerate(zip(ours, theirs, strict=True), start)
            yield remote.id, next(offset for offset, (a, b) in pairs if a != b)


def acknowledged_records_survive(view: View) -> str | None:
    """An acks=all record survives while fewer than min.insync.replicas disks lost data."""
    if view.leader is None or view.disks_lost >= view.controller.settings.min_insync_replicas:
        return None
    missing = list(missing_acknowledged(view, m.ACKS_ALL))
    wrong = f"acknowledged (acks=all) {_names(missing)} not in the log of leader"
    return wrong if missing else None


def missing_acknowledged(view: View, acks: int | None = None) -> Iterator[str]:
    """The acknowledged records (at one level of acks, or at any) that the leader does not have."""
    if view.leader is None:
        return
    view.verified.follow(view.leader.log)
    fresh = list(islice(view.acknowledged.items(), view.verified.acknowledged, None))
    held = {r.id for r in view.leader.log.records} if fresh else set()
    missing = [(record_id, level) for record_id, level in fresh if record_id not in held]
    if not missing:
        view.verified.acknowledged = len(view.acknowledged)
    yield from (record_id for record_id, level in missing if acks in (None, level))


def _names(ids: list[str]) -> str:
    return " ".join(ids) if len(ids) <= 6 else f"{ids[0]}..{ids[-1]} ({len(ids)} records)"


_OF_THE_ENGINE = high_watermark_within_log, high_watermark_never_back, leader_in_isr
_OF_RECORDS = committed_records_survive, logs_agree, acknowledged_records_survive
PROPERTIES: dict[str, Callable[[View], str | None]] = {
    holds.__name__: holds for holds in (*_OF_THE_ENGINE, *_OF_RECORDS)
}
