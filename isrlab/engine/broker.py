"""step: one message for one broker gives its next state and what it sends.

No clock, chance or I/O: the time is an argument, and whatever should happen later is a message the
broker asks to be handed back (`After`). A message that cannot occur raises and changes nothing; one
that is merely late (an answer to an old request, a timer of a lost leadership) changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from isrlab.engine import follower, isr, leader, rules
from isrlab.engine.choices import IsrWrite
from isrlab.engine.high_watermark import Step
from isrlab.engine.messages import (
    CONTROLLER,
    After,
    AlterPartitionResponse,
    CheckpointHighWatermark,
    Disconnected,
    EpochEndOffset,
    ExpireFetch,
    ExpireIsr,
    ExpireProduce,
    Fetch,
    FetchResponse,
    LeaderAndIsr,
    ListOffsets,
    ListOffsetsResponse,
    Message,
    OffsetsForLeaderEpoch,
    Output,
    Produce,
    PropagateIsrChanges,
    RetryAlterPartition,
    RetryRequest,
    StopReplica,
    UpdateMetadata,
)
from isrlab.engine.model import Broker, Follower, Leader

# What any broker handles: requests, if only with "not the leader", and answers to an ISR change
_ANY_ROLE: dict[type, Callable[..., Step]] = {
    Produce: leader.on_produce,
    Fetch: leader.on_fetch,
    OffsetsForLeaderEpoch: leader.on_offsets_for_leader_epoch,
    ListOffsets: leader.on_list_offsets,
    AlterPartitionResponse: isr.on_alter_partition_response,
    RetryAlterPartition: isr.on_retry_alter_partition,
}
# What means something to a leader only, and to a follower only; late ones are ignored
_LEADER: dict[type, Callable[..., Step]] = {
    ExpireFetch: leader.on_expire_fetch,
    ExpireProduce: leader.on_expire_produce,
}
_FOLLOWER: dict[type, Callable[..., Step]] = {
    FetchResponse: follower.on_fetch_response,
    EpochEndOffset: follower.on_epoch_end_offset,
    ListOffsetsResponse: follower.on_list_offsets_response,
    RetryRequest: follower.on_retry_request,
    StopReplica: follower.on_stop_replica,
}


def start(broker: Broker) -> Step:
    """A broker process that has just started on the log it finds, with its schedule."""
    broker = replace(
        broker,
        log=broker.log.load(),
        last_request=broker.broker_epoch * _REQUESTS_OF_A_PROCESS,
    )
    tasks = [After(_isr_period_ms(broker), ExpireIsr()), After(_checkpoint_ms(broker), _CHECKPOINT)]
    if broker.version.isr_write == IsrWrite.ZOOKEEPER_NOTIFY:
        tasks.append(After(rules.ISR_CHANGE_TICK_MS, PropagateIsrChanges()))
    return broker, tuple(tasks)


def step(broker: Broker, message: Message, now_ms: int) -> Step:
    """The broker after `message` at `now_ms`, and what it sends. Raises TypeError on no message."""
    kind = type(message)
    if kind in _ANY_ROLE:
        return _ANY_ROLE[kind](broker, message, now_ms)
    if kind in _LEADER:
        is_leader = isinstance(broker.role, Leader)
        return _LEADER[kind](broker, message, now_ms) if is_leader else (broker, ())
    if kind in _FOLLOWER:
        is_follower = isinstance(broker.role, Follower)
        return _FOLLOWER[kind](broker, message, now_ms) if is_follower else (broker, ())
    match message:
        case LeaderAndIsr():
            return _on_leader_and_isr(broker, message, now_ms)
        case UpdateMetadata():
            return replace(broker, metadata=message.brokers), ()
        case ExpireIsr() | PropagateIsrChanges() | CheckpointHighWatermark():
            return _on_schedule(broker, message, now_ms)
        case Disconnected():
            return _on_disconnected(broker, message, now_ms)
    raise TypeError(f"not a message for a broker: {message!r}")


def _on_leader_and_isr(broker: Broker, order: LeaderAndIsr, now_ms: int) -> Step:
    """Obey, unless a newer order has been seen. KRaft also counts ISR changes within an epoch."""
    role = broker.role
    if role is not None:
        is_old = order.leader_epoch < role.leader_epoch
        is_again = order.leader_epoch == role.leader_epoch and (
            not broker.version.kraft or order.partition_epoch < role.partition_epoch
        )
        if is_old or is_again:
            return broker, ()
    else:  # a process has just started: so have its clocks (RM 0.9.0.1:116-117)
        broker = replace(broker, last_isr_change_ms=now_ms, last_isr_announcement_ms=now_ms)
    if order.leader == broker.id:
        return leader.become_leader(broker, order, now_ms)
    return follower.become_follower(broker, order, now_ms)


def _on_schedule(broker: Broker, task: Message, now_ms: int) -> Step:
    """A periodic task: do it if this broker leads (a checkpoint in any case), and come again."""
    outputs: tuple[Output, ...] = ()
    is_leader = isinstance(broker.role, Leader)
    period = rules.ISR_CHANGE_TICK_MS
    if isinstance(task, CheckpointHighWatermark):
        broker, period = replace(broker, log=broker.log.checkpoint()), _checkpoint_ms(broker)
    elif isinstance(task, ExpireIsr):
        period = _isr_period_ms(broker)
        broker, outputs = isr.on_expire_isr(broker, now_ms) if is_leader else (broker, ())
    else:
        broker, outputs = isr.on_propagate_isr_changes(broker, now_ms)
    return broker, (*outputs, After(period, task))


def _on_disconnected(broker: Broker, event: Disconnected, now_ms: int) -> Step:
    if event.peer == CONTROLLER:
        return isr.on_controller_unreachable(broker, now_ms)
    if isinstance(broker.role, Follower):
        return follower.on_disconnected(broker, event, now_ms)
    return broker, ()


_CHECKPOINT = CheckpointHighWatermark()
# More than a process ever sends: an answer to the former process is none to the present one
_REQUESTS_OF_A_PROCESS = 1 << 32


def _checkpoint_ms(broker: Broker) -> int:
    return broker.settings.replica_high_watermark_checkpoint_interval_ms


def _isr_period_ms(broker: Broker) -> int:
    return rules.isr_check_period_ms(
        broker.settings.replica_lag_time_max_ms, broker.version.isr_checks_per_lag_time
    )
