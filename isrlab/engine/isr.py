"""The ISR: replicas that leave and join it, and how a leader makes the change durable.

Theory of operation. An ISR change is a request (`AlterPartition`). Up to 2.6 the leader itself
writes to ZooKeeper and waits, so the answer comes before anything else and nothing stays pending.
From 2.7 the controller decides, and until it answers the leader uses the larger of the two sets
(`maximal_isr`): either may turn out to be the stored one. The leader never removes itself, and no
setting of min.insync.replicas stops a shrink.

Left out: several partitions in one request (`closeups/batching.py` models that queue by itself).

Source: maybeShrinkIsr, maybeExpandIsr, submitAlterPartition (Partition.scala),
AlterPartitionManager.
"""

from isrlab.engine import messages as m
from isrlab.engine import model, rules
from isrlab.engine.choices import AfterIsrError, AfterShrink, IsrWrite
from isrlab.engine.frozen import replace
from isrlab.engine.high_watermark import Step, is_eligible, lag, settle
from isrlab.engine.model import Broker, Leader, PendingExpandIsr, PendingShrinkIsr, RemoteReplica
from isrlab.engine.reading import leader_of

ALTER_PARTITION_RETRY_MS = 50
# Errors after which the leader takes its change back (P 3.7.1:1892-1944)
REVERTING_ERRORS = ("OPERATION_NOT_ATTEMPTED", "INELIGIBLE_REPLICA")
# and those after which it keeps the larger set until an order from the controller
FINAL_ERRORS = (
    "UNKNOWN_TOPIC_OR_PARTITION",
    "UNKNOWN_TOPIC_ID",
    "FENCED_LEADER_EPOCH",
    "INVALID_UPDATE_VERSION",
    "INVALID_REQUEST",
    "NEW_LEADER_ELECTED",
)


def on_expire_isr(broker: Broker, now_ms: int) -> Step:
    """The isr-expiration task: ask to remove followers out of sync (getOutOfSyncReplicas)."""
    role = leader_of(broker)
    rule, most = broker.version.shrink_rule, broker.settings.replica_lag_max_messages
    leaving = tuple(
        r.id
        for r in role.remotes
        if r.id in role.isr and rules.is_out_of_sync(rule, *lag(broker, r, now_ms), most)
    )
    if not leaving or is_pending(broker):
        return broker, ()
    broker, asked = _ask(broker, PendingShrinkIsr(role.isr, leaving, broker.last_request + 1))
    if broker.version.high_watermark_after_shrink != AfterShrink.NEVER:
        return broker, asked
    return settle(broker, now_ms, asked)  # 2.7-3.0 check now, while the old ISR still counts


def _waits_under_min_isr(broker: Broker, remote: RemoteReplica, now_ms: int) -> bool:
    """Whether a follower must wait: under min ISR it joins only if caught up (KAFKA-19996)."""
    least = rules.effective_min_isr(broker.settings.min_insync_replicas, len(broker.replicas))
    waits = broker.version.expand_waits_under_min_isr and len(leader_of(broker).isr) < least
    return waits and not rules.is_caught_up(*lag(broker, remote, now_ms))


def maybe_expand_isr(
    broker: Broker, remote: RemoteReplica, now_ms: int, looks: bool = True
) -> Step:
    """Ask for an ISR with this follower if it may join. Time matters only with KAFKA-19996.

    `looks`: after this fetch the leader checks its high watermark.
    """
    role, rule = leader_of(broker), broker.version.expand_rule
    end, start = remote.log_end_offset, role.leader_epoch_start_offset
    joins = (
        remote.id not in role.maximal_isr
        and not is_pending(broker)
        and rules.can_join_isr(rule, end, broker.log.high_watermark, start)
        and is_eligible(broker, remote)
        and not _waits_under_min_isr(broker, remote, now_ms)
    )
    if not joins:
        return broker, ()
    return _ask(broker, PendingExpandIsr(role.isr, remote.id, broker.last_request + 1, looks))


def _ask(broker: Broker, state: PendingExpandIsr | PendingShrinkIsr) -> Step:
    """Ask for a change, unless an earlier request is unanswered.

    There is one slot for a partition: the manager refuses another request
    (OPERATION_NOT_ATTEMPTED), and the ISR stays as it was. In 2.7 and 2.8 an order of a new epoch
    frees the slot; what is put into it then is forgotten when the answer to the earlier one comes.
    Source: submit, clearPending, AlterIsrManager 2.8.2:127-140 and 265; 3.0.2:115,
    AlterPartitionManager 3.7.1:155-170.
    """
    role, earlier = leader_of(broker), broker.unanswered
    pends = replace(broker, role=replace(role, isr_state=state), last_request=state.request)
    if earlier is None:
        return _submit(pends)
    is_freed = broker.version.order_frees_isr_request and earlier.leader_epoch != role.leader_epoch
    return pends if is_freed else broker, ()


def _submit(broker: Broker) -> Step:
    """Send the request that the pending state stands for."""
    role, state = leader_of(broker), pending(broker)
    isr = state.proposed_isr
    known = {r.id: max(r.broker_epoch, rules.UNKNOWN_EPOCH) for r in role.remotes}
    epochs = known | {broker.id: broker.broker_epoch}
    epochs_of_isr = tuple(epochs[i] for i in isr)
    request = m.AlterPartition(
        broker.id, state.request, role.leader_epoch, role.partition_epoch, isr, epochs_of_isr
    )
    return replace(broker, unanswered=request), (m.Send(m.CONTROLLER, request),)


def pending(broker: Broker) -> PendingExpandIsr | PendingShrinkIsr:
    """The ISR change in flight; raises TypeError if there is none."""
    state = leader_of(broker).isr_state
    if isinstance(state, model.CommittedIsr):
        raise TypeError(f"broker {broker.id} has no ISR change in flight")
    return state


def is_pending(broker: Broker) -> bool:
    """Whether this broker leads, and has an ISR change in flight."""
    role = broker.role
    return isinstance(role, Leader) and not isinstance(role.isr_state, model.CommittedIsr)


def on_alter_partition_response(
    broker: Broker, answer: m.AlterPartitionResponse, now_ms: int
) -> Step:
    """The ISR change is stored, or refused; the error decides which ISR the leader then assumes.

    Meanwhile an order may have reset the change, or the broker may have lost the leadership.
    """
    if broker.unanswered is None or broker.unanswered.request != answer.request:
        return broker, ()
    broker = replace(broker, unanswered=None)
    if not is_pending(broker) or pending(broker).request != answer.request:
        return broker, ()
    role = leader_of(broker)
    if broker.version.writes_zookeeper:
        return _on_zookeeper_answer(broker, answer, now_ms)
    if answer.error in REVERTING_ERRORS:
        return _commit(broker, role.isr, role.partition_epoch), ()
    if answer.error in FINAL_ERRORS:
        return broker, ()
    if answer.error:
        return _on_failure(broker)
    if answer.leader_epoch != role.leader_epoch or answer.partition_epoch < role.partition_epoch:
        return broker, ()
    broker = _commit(broker, answer.isr, answer.partition_epoch)
    looks = broker.version.high_watermark_after_shrink == AfterShrink.ON_COMMIT
    return settle(broker, now_ms, advance=looks)


def _on_failure(broker: Broker) -> Step:
    """After an error that is not final Kafka sends the change again. Up to 3.2.0 its slot is still
    taken then, so the retry is refused, and the change stays pending or, from 3.1 on, is reverted.

    Source: P 3.0.2:1353 and 1388, 3.1.2:1398-1403; AlterIsrManager 3.0.2:255-260, 3.2.1:297-302.
    """
    if broker.version.after_isr_error == AfterIsrError.RESENDS:
        return _submit(broker)
    role = leader_of(broker)
    if broker.version.after_isr_error == AfterIsrError.REVERTS:
        broker = _commit(broker, role.isr, role.partition_epoch)
    return broker, ()


def _on_zookeeper_answer(broker: Broker, answer: m.AlterPartitionResponse, now_ms: int) -> Step:
    """The conditional write took place, or, if the node had another version, nothing changed.

    From 2.4 on only a shrink, or a fetch that moved its follower, makes the leader look at its high
    watermark. Source: updateFollowerFetchState, P 2.4.1:588-623.
    """
    role, asked = leader_of(broker), pending(broker)
    looks = not isinstance(asked, PendingExpandIsr) or asked.looks
    if answer.error:
        return settle(_commit(broker, role.isr, role.partition_epoch), now_ms, advance=looks)
    broker = _commit(broker, answer.isr, answer.partition_epoch)
    if broker.version.isr_write == IsrWrite.ZOOKEEPER_NOTIFY:
        broker = replace(broker, last_isr_change_ms=now_ms, has_unannounced_change=True)
    return settle(broker, now_ms, advance=looks)


def _commit(broker: Broker, isr: tuple[int, ...], partition_epoch: int) -> Broker:
    role = leader_of(broker)
    assert broker.id in isr, f"leader {broker.id} is not in its ISR {isr}"
    assert partition_epoch >= role.partition_epoch, "the partition epoch falls"
    role = replace(role, isr_state=model.CommittedIsr(isr), partition_epoch=partition_epoch)
    return replace(broker, role=role)


def on_retry_alter_partition(broker: Broker, retry: m.RetryAlterPartition, now_ms: int) -> Step:
    return broker, (m.Send(m.CONTROLLER, broker.unanswered),) if broker.unanswered else ()


def on_controller_unreachable(broker: Broker, now_ms: int) -> Step:
    """Retry an ISR change that did not reach the controller; up to 2.6 take it back."""
    if broker.unanswered is None:
        return broker, ()
    if broker.version.writes_zookeeper:
        refusal = m.AlterPartitionResponse(broker.unanswered.request, error="SESSION_EXPIRED")
        return on_alter_partition_response(broker, refusal, now_ms)
    return broker, (m.After(ALTER_PARTITION_RETRY_MS, m.RetryAlterPartition()),)


def on_propagate_isr_changes(broker: Broker, now_ms: int) -> Step:
    """The isr-change-propagation task: notify the controller when changes pause, or after 60 s."""
    last_ms = broker.last_isr_change_ms, broker.last_isr_announcement_ms
    if not (broker.has_unannounced_change and rules.announces_isr_change(now_ms, *last_ms)):
        return broker, ()
    broker = replace(broker, has_unannounced_change=False, last_isr_announcement_ms=now_ms)
    return broker, (m.Send(m.CONTROLLER, m.IsrChangeNotification(broker.id)),)
