"""The controller: leaders, ISRs, live brokers, and the messages that announce them.

Theory of operation. The stored state of the partition is changed by conditional writes only. Up to
2.6 leaders write ISR changes into ZooKeeper themselves and the controller learns of them later;
from 2.7 they ask the controller. Elections, and the removal of dead brokers from the ISR, are the
controller's own writes, by the rules of `zookeeper.py` or `kraft.py`. Brokers are informed by
`LeaderAndIsr`; in KRaft they read the same from the metadata log. A reassignment adds replicas;
once these are in the ISR, the replicas that are to leave are removed.

A broker that restarts faster than its session expires is noticed only since broker epochs exist
(KIP-380). Before it, this model leaves the stored state alone and sends it to the broker again, as
a controller that fails over at that moment does. In KRaft the registration of the new incarnation
fences the former one immediately; a real controller waits until the former session ends.

Left out: several controllers, and in KRaft the pause between registration and unfencing.

Source: KafkaController.scala (0.8.2-3.9), ReplicationControlManager.java (KRaft).
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from isrlab.engine import kraft, zookeeper
from isrlab.engine import messages as m
from isrlab.engine.choices import Reassignment
from isrlab.engine.frozen import replace
from isrlab.engine.model import NO_LEADER
from isrlab.engine.partition import Controller, PartitionState
from isrlab.engine.rules import UNKNOWN_EPOCH

KAFKA_FAILS = "UNKNOWN_SERVER_ERROR"

ControllerStep = tuple[Controller, tuple[m.Output, ...]]


def step(controller: Controller, message: m.Message, now_ms: int) -> ControllerStep:
    """The controller after `message`, and the messages it sends. Raises TypeError for a message
    that no controller handles, and NoReplicaError where Kafka's controller fails."""
    handler = HANDLERS.get(type(message))
    if handler is None:
        raise TypeError(f"not a message for the controller: {message!r}")
    return handler(controller, message)


def _news(before: Controller, after: Controller) -> tuple[m.Output, ...]:
    """The metadata for every live broker, then the new decision, if there is one."""
    return (*metadata_orders(after), *_decision(before, after))


def _decision(before: Controller, after: Controller) -> tuple[m.Output, ...]:
    """A new decision: orders to live replicas, and to live brokers that must delete theirs."""
    if after.state == before.state:
        return ()
    gone = (r for r in before.replicas if r not in after.replicas and after.is_alive(r))
    return (*orders(after), *(m.Send(r, m.StopReplica(deletes=True)) for r in gone))


# ISR changes that leaders ask for


def _on_alter_partition(before: Controller, request: m.AlterPartition) -> ControllerStep:
    error = _refusal(before, request)
    if error:
        refusal = m.AlterPartitionResponse(request.request, error=error)
        return before, (m.Send(request.broker, refusal),)
    stored, version = before, before.version
    if version.kraft:
        stored = kraft.change(before, isr=request.isr, is_recovering=request.is_recovering)
    elif set(request.isr) != set(before.isr):
        stored = before.storing(isr=request.isr)
    answer = m.AlterPartitionResponse(
        request.request, stored.leader_epoch, stored.partition_epoch, stored.isr
    )
    if stored.leader != before.leader:  # the change has completed a reassignment
        answer = m.AlterPartitionResponse(request.request, error="NEW_LEADER_ELECTED")
    # In KRaft the replicas read every change of the partition from the metadata log
    after = stored if version.kraft else zookeeper.move_on(stored)
    news = _decision(before if version.kraft else stored, after)
    # KC 2.7.2:2325 sends all brokers the ISR immediately
    metadata = () if version.writes_zookeeper and not news else metadata_orders(after)
    return after, (m.Send(request.broker, answer), *metadata, *news)


def _refusal(controller: Controller, request: m.AlterPartition) -> str | None:
    if controller.version.kraft:
        return _kraft_refusal(controller, request)
    writes_zookeeper = controller.version.writes_zookeeper
    if request.leader_epoch < controller.leader_epoch and not writes_zookeeper:
        return "FENCED_LEADER_EPOCH"
    stored = controller.state  # already what the leader wants: a retry after a lost answer
    is_there = (request.broker, request.leader_epoch) == (stored.leader, stored.leader_epoch)
    is_there = is_there and set(request.isr) == set(stored.isr)
    if request.partition_epoch == controller.partition_epoch or is_there:
        return None
    return "BADVERSION" if writes_zookeeper else "INVALID_UPDATE_VERSION"


def _kraft_refusal(controller: Controller, request: m.AlterPartition) -> str | None:
    """The error, or None. Source: validateAlterPartitionData, RCM trunk:1150-1254."""
    state = controller.state
    active = {b.id: b.broker_epoch for b in controller.alive if b.is_active}
    proposed = zip(request.isr, request.broker_epochs, strict=True)
    is_eligible = all(i in active and e in (UNKNOWN_EPOCH, active[i]) for i, e in proposed)
    checks = (
        (request.leader_epoch > state.leader_epoch, "NOT_CONTROLLER"),
        (request.partition_epoch > state.partition_epoch, "NOT_CONTROLLER"),
        (request.leader_epoch < state.leader_epoch, "FENCED_LEADER_EPOCH"),
        (request.broker != state.leader, "INVALID_REQUEST"),
        (request.partition_epoch < state.partition_epoch, "INVALID_UPDATE_VERSION"),
        (not set(request.isr) <= set(controller.replicas), "INVALID_REQUEST"),
        (state.leader not in request.isr, "INVALID_REQUEST"),
        (request.is_recovering and len(request.isr) > 1, "INVALID_REQUEST"),
        (request.is_recovering and not state.is_recovering, "INVALID_REQUEST"),
        (not is_eligible, "INELIGIBLE_REPLICA"),
    )
    return next((error for fails, error in checks if fails), None)


# Brokers that come and go


def _on_register(before: Controller, message: m.RegisterBroker) -> ControllerStep:
    """Register a started broker process. A leaderless partition may have found its leader."""
    broker = message.broker
    outputs: tuple[m.Output, ...] = ()
    if before.is_alive(broker) and before.version.notices_fast_bounce:
        before, outputs = _lose_broker(before, broker)
    after = before
    if before.version.handles_shutdown_again and not message.is_known:  # while it is still fenced
        is_unclean = before.version.eligible_leader_replicas and not message.was_clean
        after = kraft.lose(before, broker, is_unclean)
    if before.version.kraft and message.is_moved:
        after = kraft.assign_directory(after)
    if not message.is_known:
        after = replace(after, offline=tuple(b for b in after.offline if b != broker))
    others = tuple(b for b in after.alive if b.id != broker)
    info = m.BrokerInfo(broker, message.broker_epoch)
    after = replace(after, alive=tuple(sorted((*others, info), key=lambda b: b.id)))
    if not before.version.kraft and not after.is_alive(after.leader):
        after = zookeeper.elect(after)
    elif before.version.kraft and after.leader == NO_LEADER:
        after = kraft.change(after)  # handleBrokerUnfenced
    known = () if after.state != before.state else _known_order(after, broker)
    left_ms = before.deleted_retention_ms
    if left_ms and before.version.restart_revives_settings and not message.is_known:
        known = (*known, m.Send(broker, replace(_metadata(after), retention_ms=left_ms)))
    return after, (*outputs, *_news(before, after), *known)


def _known_order(controller: Controller, broker: int) -> tuple[m.Output, ...]:
    """The decision, sent again to a replica; in KRaft a broker that is none deletes its log."""
    if broker in controller.replicas:
        return (m.Send(broker, controller.order),)
    return (m.Send(broker, m.StopReplica(deletes=True)),) if controller.version.kraft else ()


def _on_session_expired(controller: Controller, message: m.SessionExpired) -> ControllerStep:
    """Fence a broker; since 4.0 once more if it has stopped, because its contact is kept."""
    known = {b.id: b.broker_epoch for b in controller.alive}
    stopped = message.broker_epoch if controller.version.handles_shutdown_again else None
    is_known = known.get(message.broker, stopped) == message.broker_epoch
    return _lose_broker(controller, message.broker) if is_known else (controller, ())


def _lose_broker(before: Controller, broker: int) -> ControllerStep:
    """Handle the death or the fencing of a broker."""
    alive = tuple(b for b in before.alive if b.id != broker)
    return _lose(before, replace(before, alive=alive), broker)


def _lose(before: Controller, left: Controller, broker: int) -> ControllerStep:
    after = (kraft if left.version.kraft else zookeeper).lose(left, broker)
    return after, _news(before, after)


def _on_offline_directory(before: Controller, message: m.OfflineDirectory) -> ControllerStep:
    """Handle a replica whose directory fails: it leaves the ISR as if its broker had died, and in
    KRaft enters the ELR like any other. Source: handleDirectoriesOffline, RCM 4.3.1:1508-1533.
    """
    broker, offline = message.broker, {*before.offline, message.broker}
    return _lose(before, replace(before, offline=tuple(sorted(offline))), broker)


def _on_controlled_shutdown(before: Controller, message: m.ControlledShutdown) -> ControllerStep:
    """Let a broker stop: its leadership moves, then it leaves the ISR.

    In the ZooKeeper era a follower is first ordered to stop fetching, and the order that removes it
    from the ISR is not sent to it. Source: KC 0.8.2.2:261-270, 2.5.1:1141-1151;
    ReplicaStateMachine 2.5.1:213-226.
    """
    broker = message.broker
    alive = tuple(replace(b, is_active=False) if b.id == broker else b for b in before.alive)
    leaving = replace(before, alive=alive)
    is_kraft = before.version.kraft
    after = kraft.lose(leaving, broker) if is_kraft else zookeeper.shut_down(leaving, broker)
    news = _news(before, after)
    if is_kraft or before.leader == broker:
        return after, news
    kept_from_it = m.Send(broker, after.order)
    return after, (m.Send(broker, m.StopReplica()), *(o for o in news if o != kept_from_it))


def fail_over(controller: Controller, live: tuple[m.BrokerInfo, ...]) -> ControllerStep:
    """Let another controller take over, with the stored state and the brokers it finds alive.

    With ZooKeeper, a dead follower that the former controller had not noticed stays in the ISR: a
    new controller acts on brokers that die while it watches, not on those already gone. In KRaft
    the brokers that the former one had are fenced if missing: here all together, in Kafka one by
    one, as their sessions expire; nothing else changes a partition. A leader that is gone is
    replaced. All live replicas get the state again. Source: startup, ReplicaStateMachine.scala
    0.10.2.2:68-83 and 325-340, onControllerFailover; activate, ClusterControlManager.java 4.3.1.
    """
    before = replace(controller, alive=live)
    after = before
    if before.version.kraft:
        if any(controller.is_alive(i) and not before.is_alive(i) for i in before.isr):
            after = kraft.change(before, isr=tuple(i for i in before.isr if before.is_alive(i)))
    elif not before.is_alive(before.leader):
        after = zookeeper.elect(before)
    return after, (*metadata_orders(after), *orders(after))


def _on_elect_leaders(before: Controller, message: m.ElectLeaders) -> ControllerStep:
    """Elect for an operator: the preferred leader, or any leader at all.

    Source: electLeader, RCM trunk:1480-1530; onReplicaElection, KC 2.7.2:2140-2190.
    """
    is_preferred = message.kind == "preferred"
    has_it = before.leader == before.replicas[0] if is_preferred else before.leader != NO_LEADER
    if has_it:
        return before, (m.Send(m.CLIENT, m.ElectLeadersResponse("ELECTION_NOT_NEEDED")),)
    after = before
    if before.version.kraft:
        after = kraft.change(before, message.kind)
    elif is_preferred:
        after = zookeeper.elect_preferred(before)
    elif not before.is_alive(before.leader):
        after = zookeeper.elect(before, asks_unclean=True)
    error = None
    if after.state == before.state:
        wanted = "PREFERRED_LEADER" if is_preferred else "ELIGIBLE_LEADERS"
        error = f"{wanted}_NOT_AVAILABLE"
    return after, (*_decision(before, after), m.Send(m.CLIENT, m.ElectLeadersResponse(error)))


def tasks(controller: Controller) -> tuple[m.Output, ...]:
    """The timer of the controller's periodic task, if that can change anything."""
    may = controller.settings.unclean_leader_election_enable
    task = m.After(300_000, m.ElectUncleanLeaders())  # unclean.leader.election.interval.ms
    return (task,) if may and controller.version.kraft_elects_uncleanly else ()


def _on_unclean_task(before: Controller, _: m.ElectUncleanLeaders) -> ControllerStep:
    again = tasks(before)
    after = kraft.change(before, "unclean") if again and before.leader == NO_LEADER else before
    return after, (*_decision(before, after), *again)


def _on_reassign(before: Controller, message: m.AlterPartitionReassignments) -> ControllerStep:
    """Move to the replicas that an operator wants or, with None, back to the former ones.

    Source: alterPartitionReassignments, RCM 3.8.0 and KafkaController.scala 2.5.1:1563-1628.
    """
    wanted, error = message.target, _reassignment_error(before, message.target)
    after: Controller | None = before
    if error is None and not before.version.kraft:
        after = zookeeper.reassign(before, before.state.origin if wanted is None else wanted)
    elif error is None:
        try:
            after = kraft.cancel(before) if wanted is None else kraft.reassign(before, wanted)
        except kraft.NoReplicaError:
            error = KAFKA_FAILS
    if after is None:
        after, error = before, "INVALID_REPLICA_ASSIGNMENT"
    news = _news(before, after) if after.state != before.state else ()
    return after, (*news, m.Send(m.CLIENT, m.AlterPartitionReassignmentsResponse(error)))


def _reassignment_error(controller: Controller, wanted: tuple[int, ...] | None) -> str | None:
    """Why a reassignment is refused, or None. In KRaft a partition may move to a dead broker."""
    state, version = controller.state, controller.version
    is_going_on = bool(state.adding or state.removing)
    if is_going_on and version.reassignment == Reassignment.GOES_ON:
        return "REASSIGNMENT_IN_PROGRESS"
    if wanted is None:
        return None if is_going_on else "NO_REASSIGNMENT_IN_PROGRESS"
    new = [r for r in wanted if r not in state.replicas]
    is_there = version.kraft or all(controller.is_alive(r) for r in new)
    return None if wanted and is_there else "INVALID_REPLICA_ASSIGNMENT"


def _on_configure(before: Controller, message: m.IncrementalAlterConfigs) -> ControllerStep:
    """A new min.insync.replicas of the topic makes KRaft forget eligible leaders; setting the
    cluster's does so even if the value stays the same.

    Source: incrementalAlterConfigResource and createClearElrRecordsAsNeeded,
    ConfigurationControlManager.java 4.1.2:217-300; removeTopicElrs, RCM 4.3.1:609-625.
    """
    wanted = message.min_insync_replicas
    settings = dataclasses.replace(before.settings, min_insync_replicas=wanted)
    after = configured = replace(before, settings=settings)
    is_news = message.of_cluster or settings != before.settings
    has_elr = bool(before.state.elr or before.state.last_known_elr)
    if has_elr and is_news and before.version.eligible_leader_replicas:
        left = (*before.left_in_index, *before.state.elr)
        after = replace(configured.storing(elr=(), last_known_elr=()), left_in_index=left)
    return after, (*metadata_orders(after), *_decision(configured, after))


def _on_recreate(before: Controller, message: m.RecreateTopic) -> ControllerStep:
    """Delete the topic, and create it again. Brokers that run drop its settings. One that starts
    reads settings and deletion in one delta (in Kafka, if both came after its last snapshot), and
    from 3.8 keeps them. Source: replay(RemoveTopicRecord), ConfigurationsDelta.java 3.7.2:71 (drops
    what the same delta has set), 3.8.0:71 and 4.3.1:73 (only what was set before).
    """
    target = before.state.target
    fresh = PartitionState(target, target[0], target)
    left_ms = message.retention_ms or before.deleted_retention_ms
    after = replace(before, state=fresh, left_in_index=(), deleted_retention_ms=left_ms)
    stops = (m.Send(r, m.StopReplica(deletes=True)) for r in before.replicas)
    return after, (*stops, *orders(after))


# Messages to the brokers


def orders(controller: Controller) -> tuple[m.Output, ...]:
    """The messages that give the current decision to every live replica."""
    return tuple(m.Send(r, controller.order) for r in controller.replicas if controller.is_alive(r))


def orders_for(controller: Controller, broker: int) -> tuple[m.Output, ...]:
    """Everything that one broker must know, in case it missed an update."""
    return m.Send(broker, _metadata(controller)), *_known_order(controller, broker)


def metadata_orders(controller: Controller) -> tuple[m.Output, ...]:
    """The message to each live broker: which brokers are alive, which replicas are in sync."""
    return tuple(m.Send(b.id, _metadata(controller)) for b in controller.alive)


def _metadata(controller: Controller) -> m.UpdateMetadata:
    """What brokers learn of the stored state, which includes what leaders wrote to ZooKeeper."""
    wanted = controller.settings.min_insync_replicas
    return m.UpdateMetadata(controller.alive, controller.isr, controller.partition_epoch, wanted)


HANDLERS: dict[type, Callable[[Controller, Any], ControllerStep]] = {
    m.AlterPartition: _on_alter_partition,
    m.RegisterBroker: _on_register,
    m.OfflineDirectory: _on_offline_directory,
    m.SessionExpired: _on_session_expired,
    m.ControlledShutdown: _on_controlled_shutdown,
    m.ElectLeaders: _on_elect_leaders,
    m.ElectUncleanLeaders: _on_unclean_task,
    m.AlterPartitionReassignments: _on_reassign,
    m.IncrementalAlterConfigs: _on_configure,
    m.RecreateTopic: _on_recreate,
    m.IsrChangeNotification: lambda controller, news: (controller, metadata_orders(controller)),
}
