"""From a step of the engine to rows of the events table, by comparing before and after.

The engine reports nothing: what happened is what changed. So an event can never say anything that
the state does not. The engine's brokers speak of their own steps; what the stored state of the
partition says is read from the controller, frame by frame (`stored_isr`).
"""

from __future__ import annotations

from collections.abc import Iterator

from isrlab.engine.messages import (
    AlterPartition,
    AlterPartitionResponse,
    IsrChangeNotification,
    Message,
    Output,
    Send,
    UpdateMetadata,
)
from isrlab.engine.model import (
    Broker,
    CommittedIsr,
    Follower,
    Leader,
    PendingExpandIsr,
    PendingShrinkIsr,
)
from isrlab.world.frames import Frame

Row = dict[str, object]


def changes(
    before: Broker, after: Broker, message: Message, outputs: tuple[Output, ...], now_ms: int
) -> Iterator[Row]:
    """The events of one step of one broker, without run, time and topic."""
    base = _position(after)
    yield from _role_events(before, after, base)
    yield from _isr_events(before, after, message, base, now_ms)
    if _is_cut(before, after):
        yield base | {"kind": "truncate"}
    if before.log.high_watermark != after.log.high_watermark:
        yield base | {"kind": "high_watermark"}
    if any(isinstance(o, Send) and isinstance(o.message, IsrChangeNotification) for o in outputs):
        yield base | {"kind": "notify"}
    if isinstance(message, UpdateMetadata) and before.metadata != after.metadata:
        yield base | {"kind": "metadata"}


def _position(broker: Broker) -> Row:
    row: Row = {
        "broker": broker.id,
        "leader_epoch": broker.role.leader_epoch if broker.role else None,
        "partition_epoch": broker.role.partition_epoch if broker.role else None,
        "high_watermark": broker.log.high_watermark,
        "log_end_offset": broker.log.log_end_offset,
    }
    if isinstance(broker.role, Leader):
        row["isr"] = list(broker.role.isr)
    return row


def _role_events(before: Broker, after: Broker, base: Row) -> Iterator[Row]:
    if isinstance(after.role, Leader) and before.leader_epoch != after.leader_epoch:
        yield base | {"kind": "leader"}
    if isinstance(after.role, Follower) and (
        not isinstance(before.role, Follower) or before.role.leader != after.role.leader
    ):
        yield base | {"kind": "follower", "replica": after.role.leader}


def _isr_events(
    before: Broker, after: Broker, message: Message, base: Row, now_ms: int
) -> Iterator[Row]:
    old, new = before.role, after.role
    if not isinstance(new, Leader):
        return
    state = new.isr_state
    is_asked = not isinstance(state, CommittedIsr) and (
        not isinstance(old, Leader) or old.isr_state != state
    )
    if isinstance(state, PendingExpandIsr) and is_asked:
        asked = {"isr": list(state.proposed_isr), "isr_before": list(state.isr)}
        yield base | asked | {"kind": "isr_expand", "replica": state.joining}
    elif isinstance(state, PendingShrinkIsr) and is_asked:
        asked = {"isr": list(state.proposed_isr), "isr_before": list(state.isr)}
        only = state.leaving[0] if len(state.leaving) == 1 else None
        detail = _why(after, new, state.leaving, now_ms)
        yield base | asked | {"kind": "isr_shrink", "replica": only, "detail": detail}
    if isinstance(message, AlterPartitionResponse) and message.error:
        yield base | {"kind": "isr_rejected", "detail": {"error": message.error}}
    if isinstance(old, Leader) and old.leader_epoch == new.leader_epoch and old.isr != new.isr:
        yield base | {"kind": "isr_commit", "isr_before": list(old.isr)}


def _why(broker: Broker, role: Leader, leaving: tuple[int, ...], now_ms: int) -> dict[str, str]:
    """How far behind the leaving replicas are; what the leader never saw is left out."""
    gone = [r for r in role.remotes if r.id in leaving]
    end = broker.log.log_end_offset
    fetched = max(r.last_fetch_time_ms for r in gone)
    caught_up = max(r.last_caught_up_time_ms for r in gone)
    values = {
        "lag_records": max(end - max(r.log_end_offset, 0) for r in gone),
        "since_caught_up_ms": now_ms - caught_up if caught_up > 0 else None,
        "since_fetch_ms": now_ms - fetched if fetched > 0 else None,
    }
    return {key: str(value) for key, value in values.items() if value is not None}


def stored_isr(before: Frame | None, after: Frame) -> Row | None:
    """The stored ISR, if it is another one than in the frame before."""
    was, now = before.controller if before else None, after.controller
    if was is not None and set(was.isr) == set(now.isr):
        return None
    asked = {"asked_by": "leader"} if isinstance(after.message, AlterPartition) else {}
    return {
        "ts_ms": after.now_ms,
        "kind": "isr_commit",
        "leader_epoch": now.leader_epoch,
        "partition_epoch": now.partition_epoch,
        "isr": list(now.isr),
        "isr_before": list(was.isr) if was else None,
        "detail": {"said_by": "controller", "leader": str(now.leader), **asked},
    }


def _is_cut(before: Broker, after: Broker) -> bool:
    if before.log.records is after.log.records:
        return False
    common = min(len(before.log.records), len(after.log.records))
    return (
        after.log.log_end_offset < before.log.log_end_offset
        or after.log.log_start_offset != before.log.log_start_offset
        or before.log.records[:common] != after.log.records[:common]
    )
