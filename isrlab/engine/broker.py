"""One step: a broker takes one message, and returns its next state and the messages it sends.

No clock, chance or I/O: the time is an argument, and whatever should happen later is a message the
broker asks to be handed back (`After`). A message that cannot occur raises and changes nothing; one
that is merely late (an answer to an old request, a timer of a lost leadership) changes nothing.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from isrlab.engine import follower, isr, leader, rules
from isrlab.engine import messages as m
from isrlab.engine.choices import IsrWrite
from isrlab.engine.frozen import replace
from isrlab.engine.high_watermark import Step
from isrlab.engine.model import Broker, Follower, Leader

# More than a process ever sends, so an answer to the former process never matches the new one
_REQUESTS_OF_A_PROCESS = 1 << 32


def start(broker: Broker) -> Step:
    """The broker as its process starts: its log is loaded, its periodic tasks are scheduled."""
    last_request = broker.broker_epoch * _REQUESTS_OF_A_PROCESS
    broker = replace(broker, log=broker.log.load(), last_request=last_request)
    tasks = [_again(broker, m.ExpireIsr()), _again(broker, m.CheckpointHighWatermark())]
    if broker.version.isr_write == IsrWrite.ZOOKEEPER_NOTIFY:
        tasks.append(_again(broker, m.PropagateIsrChanges()))
    return broker, tuple(tasks)


def step(broker: Broker, message: m.Message, now_ms: int) -> Step:
    """The broker after `message`, and what it sends. Raises TypeError for an unknown message."""
    handler = HANDLERS[type(broker.role)].get(type(message))
    if handler is not None:
        return handler(broker, message, now_ms)
    if type(message) in KINDS:
        return broker, ()
    raise TypeError(f"not a message for a broker: {message!r}")


def _on_leader_and_isr(broker: Broker, order: m.LeaderAndIsr, now_ms: int) -> Step:
    """Obey an order of a newer leader epoch; in KRaft, also one of this epoch that is not older."""
    role = broker.role
    if broker.is_offline:
        return broker, ()
    if role is None:  # a process has just started: so have its clocks (RM 0.9.0.1:116-117)
        broker = replace(broker, last_isr_change_ms=now_ms, last_isr_announcement_ms=now_ms)
    elif order.leader_epoch < role.leader_epoch:
        return broker, ()
    elif order.leader_epoch == role.leader_epoch:
        least = role.partition_epoch + broker.version.ignores_known_order
        if not broker.version.kraft or order.partition_epoch < least:
            return broker, ()
        if isinstance(role, Leader) and order.leader == broker.id:
            return leader.on_new_isr(broker, order, now_ms)
    if order.leader == broker.id:
        return leader.become_leader(broker, order, now_ms)
    return follower.become_follower(broker, order, now_ms)


def _retention(broker: Broker, retention_ms: int) -> m.After:
    """The next retention check; records may go one interval later than in Kafka."""
    newest = broker.log.records[-1] if broker.log.records else None
    delay_ms = max(retention_ms, rules.RETENTION_CHECK_MS)
    return m.After(delay_ms, m.DeleteOldSegments(retention_ms, newest))


def _on_delete_old_segments(broker: Broker, check: m.DeleteOldSegments, now_ms: int) -> Step:
    log, again = broker.log, _retention(broker, check.retention_ms)
    is_old = check.newest is not None and check.newest == again.message.newest
    start = rules.expired_end_offset(is_old, log.log_end_offset, log.high_watermark)
    return replace(broker, log=log.starting_at(start)), (again,)


def _again(broker: Broker, task: m.Message) -> m.After:
    """The message that runs a periodic task again after its period."""
    if isinstance(task, m.CheckpointHighWatermark):
        return m.After(broker.settings.replica_high_watermark_checkpoint_interval_ms, task)
    if isinstance(task, m.PropagateIsrChanges):
        return m.After(rules.ISR_CHANGE_TICK_MS, task)
    lag_ms = broker.settings.replica_lag_time_max_ms
    return m.After(rules.isr_check_period_ms(lag_ms, broker.version.isr_checks_per_lag_time), task)


def _on_task(broker: Broker, task: m.Message, now_ms: int) -> Step:
    outputs: tuple[m.Output, ...] = ()
    if isinstance(task, m.CheckpointHighWatermark):
        broker = replace(broker, log=broker.log.checkpoint())
    elif isinstance(task, m.PropagateIsrChanges):
        broker, outputs = isr.on_propagate_isr_changes(broker, now_ms)
    elif isinstance(broker.role, Leader):
        broker, outputs = isr.on_expire_isr(broker, now_ms)
    return broker, (*outputs, _again(broker, task))


def _on_disconnected(broker: Broker, event: m.Disconnected, now_ms: int) -> Step:
    if event.peer == m.CONTROLLER:
        return isr.on_controller_unreachable(broker, now_ms)
    if isinstance(broker.role, Follower):
        return follower.on_disconnected(broker, event, now_ms)
    return broker, ()


def _on_update_metadata(broker: Broker, news: m.UpdateMetadata, _: int) -> Step:
    wanted, settings = news.min_isr, broker.settings
    if wanted not in (None, settings.min_insync_replicas):
        settings = dataclasses.replace(settings, min_insync_replicas=wanted)
    checks = (_retention(broker, news.retention_ms),) if news.retention_ms else ()
    return replace(broker, metadata=news.brokers, settings=settings), checks


Handler = Callable[[Broker, Any, int], Step]
ANY_ROLE: dict[type, Handler] = {  # requests too, if only to answer "not the leader"
    m.Produce: leader.on_produce,
    m.Fetch: leader.on_fetch,
    m.OffsetsForLeaderEpoch: leader.on_offsets_for_leader_epoch,
    m.ListOffsets: leader.on_list_offsets,
    m.AlterPartitionResponse: isr.on_alter_partition_response,
    m.RetryAlterPartition: isr.on_retry_alter_partition,
    m.LeaderAndIsr: _on_leader_and_isr,
    m.StopReplica: follower.on_stop_replica,
    m.UpdateMetadata: _on_update_metadata,
    m.ExpireIsr: _on_task,
    m.CheckpointHighWatermark: _on_task,
    m.DeleteOldSegments: _on_delete_old_segments,
    m.PropagateIsrChanges: _on_task,
    m.Disconnected: _on_disconnected,
}
# The handler of each message in each role; a message not listed here came too late: do nothing
HANDLERS: dict[type, dict[type, Handler]] = {
    type(None): ANY_ROLE,
    Leader: ANY_ROLE
    | {m.ExpireFetch: leader.on_expire_fetch, m.ExpireProduce: leader.on_expire_produce},
    Follower: ANY_ROLE
    | {
        m.FetchResponse: follower.on_fetch_response,
        m.EpochEndOffset: follower.on_epoch_end_offset,
        m.ListOffsetsResponse: follower.on_list_offsets_response,
        m.RetryRequest: follower.on_retry_request,
    },
}
KINDS = {kind for handlers in HANDLERS.values() for kind in handlers}
