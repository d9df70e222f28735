"""The controller: who leads, who is in the ISR, which brokers are alive, and whom it tells.

Theory of operation. The stored state of the partition is changed by conditional writes only. Up to
2.6 leaders write ISR changes into ZooKeeper themselves and the controller learns of them later;
from 2.7 they ask the controller. Elections, and the removal of dead brokers from the ISR, are the
controller's own writes, by the rules of `zookeeper.py` or `kraft.py`. It tells brokers by
`LeaderAndIsr`; in KRaft they read the same from the metadata log.

A broker that restarts faster than its session expires is noticed only since broker epochs exist
(KIP-380). Before, this model lets the stored state stand and sends it to the broker again, as a
controller that fails over in that moment does. In KRaft the registration of the new incarnation
fences the former at once; a real one waits for the former's session to end.

Left out: several controllers, reassignment, topic deletion, and in KRaft the pause between
registration and unfencing.

Source: KafkaController.scala (0.8.2-3.9), ReplicationControlManager.java (KRaft).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isrlab.engine import kraft, zookeeper
from isrlab.engine import messages as m
from isrlab.engine.frozen import replace
from isrlab.engine.model import NO_LEADER
from isrlab.engine.partition import Controller
from isrlab.engine.rules import UNKNOWN_EPOCH

Step = tuple[Controller, tuple[m.Output, ...]]


def step(controller: Controller, message: m.Message, now_ms: int) -> Step:
    """The controller after `message`, and whom it tells. Raises TypeError on any other message."""
    handler = HANDLERS.get(type(message))
    if handler is None:
        raise TypeError(f"not a message for the controller: {message!r}")
    return handler(controller, message)


def _news(before: Controller, after: Controller) -> tuple[m.Output, ...]:
    """Metadata to everyone, and the new decision to every replica if there is one."""
    news = orders(after) if after.state != before.state else ()
    return (*metadata_orders(after), *news)


# ISR changes that leaders ask for


def _on_alter_partition(before: Controller, request: m.AlterPartition) -> Step:
    error = _refusal(before, request)
    if error:
        refusal = m.AlterPartitionResponse(request.request, error=error)
        return before, (m.Send(request.broker, refusal),)
    after, version = before, before.version
    if set(request.isr) != set(before.isr) or before.state.is_recovering:
        if version.kraft:
            after = kraft.change(before, request.isr, is_recovering=request.is_recovering)
        else:
            after = before.storing(isr=request.isr)
    answer = m.AlterPartitionResponse(
        request.request, after.leader_epoch, after.partition_epoch, after.isr
    )
    # In KRaft the replicas read every change of the partition from the metadata log
    news = orders(after) if version.kraft and after.state != before.state else ()
    # KC 2.7.2:2325 tells everyone who is in sync at once
    metadata = () if version.writes_zookeeper else metadata_orders(after)
    return after, (m.Send(request.broker, answer), *metadata, *news)


def _refusal(controller: Controller, request: m.AlterPartition) -> str | None:
    if controller.version.kraft:
        return _kraft_refusal(controller, request)
    writes_zookeeper = controller.version.writes_zookeeper
    if request.leader_epoch < controller.leader_epoch and not writes_zookeeper:
        return "FENCED_LEADER_EPOCH"
    if request.partition_epoch == controller.partition_epoch or _is_there(controller, request):
        return None
    return "BADVERSION" if writes_zookeeper else "INVALID_UPDATE_VERSION"


def _is_there(controller: Controller, request: m.AlterPartition) -> bool:
    """The stored state already says what the leader wants: a retry after a lost answer."""
    return (
        set(request.isr) == set(controller.isr)
        and request.leader_epoch == controller.leader_epoch
        and request.broker == controller.leader
    )


def _kraft_refusal(controller: Controller, request: m.AlterPartition) -> str | None:
    """Source: validateAlterPartitionData, ReplicationControlManager.java trunk:1150-1254."""
    state = controller.state
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
        (not _are_eligible(controller, request), "INELIGIBLE_REPLICA"),
    )
    return next((error for fails, error in checks if fails), None)


def _are_eligible(controller: Controller, request: m.AlterPartition) -> bool:
    epochs = {b.id: b.broker_epoch for b in controller.alive if b.is_active}
    proposed = zip(request.isr, request.broker_epochs, strict=True)
    return all(i in epochs and e in (UNKNOWN_EPOCH, epochs[i]) for i, e in proposed)


# Brokers that come and go


def _on_register(before: Controller, message: m.RegisterBroker) -> Step:
    """A broker process has started. A leaderless partition may have found its leader."""
    broker = message.broker
    outputs: tuple[m.Output, ...] = ()
    if before.is_alive(broker) and before.version.notices_fast_bounce:
        before, outputs = _lose_broker(before, broker)
    after = before
    if not message.was_clean and before.version.eligible_leader_replicas:
        after = kraft.lose(before, broker, is_unclean=True)  # written as it registers, still fenced
    others = tuple(b for b in after.alive if b.id != broker)
    info = m.BrokerInfo(broker, message.broker_epoch)
    after = replace(after, alive=tuple(sorted((*others, info), key=lambda b: b.id)))
    after = _returned(after)
    known = () if after.state != before.state else (m.Send(broker, after.order),)
    return after, (*outputs, *_news(before, after), *known)


def _returned(controller: Controller) -> Controller:
    """What a returning broker changes: who may lead where nobody does."""
    if not controller.version.kraft:
        has_leader = controller.is_alive(controller.leader)
        return controller if has_leader else zookeeper.elect(controller)
    if controller.leader != NO_LEADER:
        return controller
    return kraft.change(controller, controller.isr)  # handleBrokerUnfenced


def _on_session_expired(controller: Controller, message: m.SessionExpired) -> Step:
    known = {(b.id, b.broker_epoch) for b in controller.alive}
    is_known = (message.broker, message.broker_epoch) in known
    return _lose_broker(controller, message.broker) if is_known else (controller, ())


def _lose_broker(before: Controller, broker: int) -> Step:
    """A broker is dead, or fenced."""
    left = replace(before, alive=tuple(b for b in before.alive if b.id != broker))
    after = (kraft if left.version.kraft else zookeeper).lose(left, broker)
    return after, _news(before, after)


def _on_controlled_shutdown(before: Controller, message: m.ControlledShutdown) -> Step:
    """A broker wants to stop: its leadership moves, then it leaves the ISR.

    In the ZooKeeper era a follower is first told to stop fetching, and is not told that it has left
    the ISR: neither may bring it back. Source: KC 0.8.2.2:261-270, 2.5.1:1141-1151;
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


def fail_over(controller: Controller, live: tuple[m.BrokerInfo, ...]) -> Step:
    """Another controller takes over, with the stored state and the brokers it finds alive.

    A dead follower that the former controller had not noticed stays in the ISR: a new controller
    acts on brokers that it sees dying, not on those that are gone. A leader that is gone is
    replaced. All live replicas are told the state anew. Source: startup, initializeReplicaState,
    ReplicaStateMachine.scala 0.10.2.2:68-83 and 325-340, and onControllerFailover. In KRaft those
    that are gone are fenced: here all at once, really one by one, as their sessions expire.
    """
    before = replace(controller, alive=live)
    after = before
    if before.version.kraft:
        after = kraft.change(before, tuple(i for i in before.isr if before.is_alive(i)))
    elif not before.is_alive(before.leader):
        after = zookeeper.elect(before)
    return after, (*metadata_orders(after), *orders(after))


def _on_elect_leaders(before: Controller, message: m.ElectLeaders) -> Step:
    """An operator asks for the preferred leader, or for any leader at all.

    Source: electLeader, RCM trunk:1480-1530; onReplicaElection, KC 2.7.2:2140-2190.
    """
    after = before
    if before.version.kraft:
        after = kraft.change(before, before.isr, message.kind)
    elif message.kind == "preferred":
        after = zookeeper.elect_preferred(before)
    elif not before.is_alive(before.leader):
        after = zookeeper.elect(before, asks_unclean=True)
    answer = m.Send(m.CLIENT, m.ElectLeadersResponse(_election_error(before, after, message)))
    news = orders(after) if after.state != before.state else ()
    return after, (*news, answer)


def _election_error(before: Controller, after: Controller, asked: m.ElectLeaders) -> str | None:
    is_preferred = asked.kind == "preferred"
    has_it = before.leader == before.replicas[0] if is_preferred else before.leader != NO_LEADER
    if has_it:
        return "ELECTION_NOT_NEEDED"
    if after.state != before.state:
        return None
    return "PREFERRED_LEADER_NOT_AVAILABLE" if is_preferred else "ELIGIBLE_LEADERS_NOT_AVAILABLE"


# Telling the brokers


def orders(controller: Controller) -> tuple[m.Output, ...]:
    """The present decision, for every live replica."""
    return tuple(m.Send(r, controller.order) for r in controller.replicas if controller.is_alive(r))


def orders_for(controller: Controller, broker: int) -> tuple[m.Output, ...]:
    """All that one broker must know, for one that may have missed it."""
    return m.Send(broker, _metadata(controller)), m.Send(broker, controller.order)


def metadata_orders(controller: Controller) -> tuple[m.Output, ...]:
    """Which brokers are alive and who is in sync, for every live broker."""
    return tuple(m.Send(b.id, _metadata(controller)) for b in controller.alive)


def _metadata(controller: Controller) -> m.UpdateMetadata:
    """The stored state as it is now: before it tells, a controller reads what leaders wrote."""
    return m.UpdateMetadata(controller.alive, controller.isr, controller.partition_epoch)


HANDLERS: dict[type, Callable[[Controller, Any], Step]] = {
    m.AlterPartition: _on_alter_partition,
    m.RegisterBroker: _on_register,
    m.SessionExpired: _on_session_expired,
    m.ControlledShutdown: _on_controlled_shutdown,
    m.ElectLeaders: _on_elect_leaders,
    m.IsrChangeNotification: lambda controller, news: (controller, metadata_orders(controller)),
}
