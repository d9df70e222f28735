"""The controller: who leads, who is in the ISR, and which brokers are alive.

Theory of operation. The stored state of the partition is leader, leader epoch, ISR and a version of
the whole (`partition_epoch`: the version of the ZooKeeper node, or KRaft's partition epoch). Only
conditional writes change it. Up to 2.6 leaders write ISR changes into ZooKeeper themselves and the
controller learns of them later; from 2.7 they ask the controller. Elections, and the removal of
dead brokers from the ISR, are the controller's own writes. It tells brokers by `LeaderAndIsr`.

A broker that restarts faster than its session expires is noticed only since broker epochs exist
(KIP-380). Before, this model lets the stored state stand and sends it to the broker again, as a
controller that fails over in that moment does. In KRaft the registration of the new incarnation
fences the former at once; a real one waits for the former's session to end.

Left out: several controllers, reassignment, topic deletion, ELR (KIP-966), and in KRaft the pause
between registration and unfencing.

Source: ReplicaStateMachine.scala, PartitionLeaderSelector.scala, KafkaController.scala (0.8.2-3.9);
PartitionChangeBuilder.java and ReplicationControlManager.java (KRaft).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from isrlab.engine.messages import (
    AlterPartition,
    AlterPartitionResponse,
    BrokerInfo,
    ControlledShutdown,
    ElectLeaders,
    IsrChangeNotification,
    LeaderAndIsr,
    Message,
    Output,
    RegisterBroker,
    Send,
    SessionExpired,
    UpdateMetadata,
)
from isrlab.engine.model import NO_LEADER, Settings
from isrlab.engine.rules import UNKNOWN_EPOCH
from isrlab.engine.versions import KafkaVersion

Step = tuple["Controller", tuple[Output, ...]]


@dataclass(frozen=True, slots=True)
class Controller:
    """The stored state of the partition and the controller's view of the brokers."""

    version: KafkaVersion
    settings: Settings
    replicas: tuple[int, ...]  # assigned, preferred leader first
    leader: int
    isr: tuple[int, ...]
    leader_epoch: int = 0
    partition_epoch: int = 0
    alive: tuple[BrokerInfo, ...] = ()
    last_unclean_epoch: int = UNKNOWN_EPOCH  # the newest epoch whose leader was outside the ISR

    def is_alive(self, broker: int) -> bool:
        return any(b.id == broker for b in self.alive)

    def is_available(self, broker: int) -> bool:
        return any(b.id == broker and b.is_active for b in self.alive)

    @property
    def order(self) -> LeaderAndIsr:
        return LeaderAndIsr(
            self.leader, self.leader_epoch, self.isr, self.partition_epoch, self.replicas
        )


def fail_over(controller: Controller, live: tuple[BrokerInfo, ...]) -> Step:
    """Another controller takes over, with the stored state and the brokers it finds alive.

    A dead follower that the former controller had not noticed stays in the ISR: a new controller
    acts on brokers that it sees dying, not on those that are gone. A leader that is gone is
    replaced. Source: initializeReplicaState, ReplicaStateMachine.scala 0.10.2.2:325-340, and
    onControllerFailover.
    """
    controller = replace(controller, alive=live)
    before = controller
    if not controller.is_alive(controller.leader):
        controller = _elect(controller)
    told = orders(controller) if controller != before else ()
    return controller, (*metadata_orders(controller), *told)


def step(controller: Controller, message: Message, now_ms: int) -> Step:
    """The controller after `message`, and whom it tells. Raises TypeError on any other message."""
    match message:
        case AlterPartition():
            return _on_alter_partition(controller, message)
        case RegisterBroker():
            return _on_register(controller, message)
        case SessionExpired():
            return _on_session_expired(controller, message)
        case ControlledShutdown():
            return _on_controlled_shutdown(controller, message)
        case ElectLeaders():
            return _on_elect_leaders(controller, message)
        case IsrChangeNotification():
            return controller, metadata_orders(controller)
    raise TypeError(f"not a message for the controller: {message!r}")


# ISR changes that leaders ask for


def _on_alter_partition(controller: Controller, request: AlterPartition) -> Step:
    check = _kraft_refusal if controller.version.kraft else _zookeeper_refusal
    error = check(controller, request)
    if error:
        refusal = AlterPartitionResponse(request.request, error=error)
        return controller, (Send(request.broker, refusal),)
    if set(request.isr) != set(controller.isr):
        controller = replace(
            controller, isr=request.isr, partition_epoch=controller.partition_epoch + 1
        )
    answer = AlterPartitionResponse(
        request.request, controller.leader_epoch, controller.partition_epoch, controller.isr
    )
    return controller, (Send(request.broker, answer),)


def _zookeeper_refusal(controller: Controller, request: AlterPartition) -> str | None:
    """The conditional write fails, unless the node already says what it should."""
    if request.partition_epoch == controller.partition_epoch:
        return None
    is_there = (
        set(request.isr) == set(controller.isr)
        and request.leader_epoch == controller.leader_epoch
        and request.broker == controller.leader
    )
    return None if is_there else "BADVERSION"


def _kraft_refusal(controller: Controller, request: AlterPartition) -> str | None:
    """Source: validateAlterPartitionData, ReplicationControlManager.java trunk:1150-1254."""
    state = controller
    newer = (
        request.leader_epoch > state.leader_epoch or request.partition_epoch > state.partition_epoch
    )
    checks = (
        (newer, "NOT_CONTROLLER"),
        (request.leader_epoch < state.leader_epoch, "FENCED_LEADER_EPOCH"),
        (request.broker != state.leader, "INVALID_REQUEST"),
        (request.partition_epoch < state.partition_epoch, "INVALID_UPDATE_VERSION"),
        (not set(request.isr) <= set(state.replicas), "INVALID_REQUEST"),
        (state.leader not in request.isr, "INVALID_REQUEST"),
        (not _are_eligible(state, request), "INELIGIBLE_REPLICA"),
    )
    return next((error for fails, error in checks if fails), None)


def _are_eligible(controller: Controller, request: AlterPartition) -> bool:
    epochs = {b.id: b.broker_epoch for b in controller.alive if b.is_active}
    proposed = zip(request.isr, request.broker_epochs, strict=True)
    return all(i in epochs and e in (UNKNOWN_EPOCH, epochs[i]) for i, e in proposed)


# Brokers that come and go


def _on_register(controller: Controller, message: RegisterBroker) -> Step:
    """A broker process has started. A leaderless partition may have found its leader."""
    outputs: tuple[Output, ...] = ()
    if controller.is_alive(message.broker) and controller.version.notices_fast_bounce:
        controller, outputs = _lose_broker(controller, message.broker)
    others = tuple(b for b in controller.alive if b.id != message.broker)
    info = BrokerInfo(message.broker, message.broker_epoch)
    controller = replace(controller, alive=tuple(sorted((*others, info), key=lambda b: b.id)))
    before = controller
    if not controller.is_alive(controller.leader):
        controller = _elect(controller)
    told = orders(controller) if controller != before else ()
    known = () if told else (Send(message.broker, controller.order),)
    return controller, (*outputs, *metadata_orders(controller), *told, *known)


def _on_session_expired(controller: Controller, message: SessionExpired) -> Step:
    known = any(
        b.id == message.broker and b.broker_epoch == message.broker_epoch for b in controller.alive
    )
    return _lose_broker(controller, message.broker) if known else (controller, ())


def _lose_broker(controller: Controller, broker: int) -> Step:
    """A broker is dead: elect another leader if it led, and take it out of the ISR."""
    before = controller
    controller = replace(controller, alive=tuple(b for b in controller.alive if b.id != broker))
    if controller.leader == broker:
        controller = _elect(controller)
    if broker in controller.isr and len(controller.isr) > 1:
        controller = _without(controller, broker)
    changed = controller.partition_epoch != before.partition_epoch
    return controller, (
        *metadata_orders(controller),
        *(orders(controller) if changed else ()),
    )


def _without(controller: Controller, broker: int) -> Controller:
    """The ISR without `broker`. ZooKeeper's controller raises the leader epoch with every write."""
    return replace(
        controller,
        isr=tuple(i for i in controller.isr if i != broker),
        partition_epoch=controller.partition_epoch + 1,
        leader_epoch=controller.leader_epoch + (0 if controller.version.kraft else 1),
    )


def _on_controlled_shutdown(controller: Controller, message: ControlledShutdown) -> Step:
    """A broker wants to stop: move its leadership, then take it out of the ISR."""
    broker = message.broker
    controller = replace(
        controller,
        alive=tuple(replace(b, is_active=False) if b.id == broker else b for b in controller.alive),
    )
    before = controller
    if controller.leader == broker:
        successor = _first_in_sync(controller)
        if successor == NO_LEADER:
            return controller, metadata_orders(controller)
        left = tuple(i for i in controller.isr if i != broker)
        controller = _with_leader(controller, successor, left)
    elif broker in controller.isr and len(controller.isr) > 1:
        controller = _without(controller, broker)
    told = orders(controller) if controller != before else ()
    return controller, (*metadata_orders(controller), *told)


# Elections


def _on_elect_leaders(controller: Controller, message: ElectLeaders) -> Step:
    before = controller
    if message.kind == "preferred":
        head = controller.replicas[0]
        if controller.leader != head and controller.is_available(head) and head in controller.isr:
            controller = _with_leader(controller, head, controller.isr)
    elif not controller.is_alive(controller.leader):
        controller = _elect(controller, allows_unclean=True)
    return controller, orders(controller) if controller != before else ()


def _first_in_sync(controller: Controller) -> int:
    """The first assigned replica that is available and in the ISR."""
    candidates = (
        r for r in controller.replicas if r in controller.isr and controller.is_available(r)
    )
    return next(candidates, NO_LEADER)


def _elect(controller: Controller, allows_unclean: bool | None = None) -> Controller:
    """A leader from the ISR; else, if unclean election is allowed, any live replica; else none."""
    leader = _first_in_sync(controller)
    if leader != NO_LEADER:
        isr = tuple(i for i in controller.isr if controller.is_alive(i))
        return _with_leader(controller, leader, isr)
    if allows_unclean is None:
        allows_unclean = controller.settings.unclean_leader_election_enable
    leader = next((r for r in controller.replicas if controller.is_available(r)), NO_LEADER)
    if leader != NO_LEADER and allows_unclean:
        elected = _with_leader(controller, leader, (leader,))
        return replace(elected, last_unclean_epoch=elected.leader_epoch)
    if controller.leader == NO_LEADER:
        return controller
    keeps = controller.version.keeps_last_isr_member or not allows_unclean
    return _with_leader(controller, NO_LEADER, controller.isr if keeps else ())


def _with_leader(controller: Controller, leader: int, isr: tuple[int, ...]) -> Controller:
    return replace(
        controller,
        leader=leader,
        isr=isr,
        leader_epoch=controller.leader_epoch + 1,
        partition_epoch=controller.partition_epoch + 1,
    )


# Telling the brokers


def orders(controller: Controller) -> tuple[Output, ...]:
    """The present decision, for every live replica."""
    return tuple(Send(r, controller.order) for r in controller.replicas if controller.is_alive(r))


def orders_for(controller: Controller, broker: int) -> tuple[Output, ...]:
    """All that one broker must know, for one that may have missed it."""
    return Send(broker, UpdateMetadata(controller.alive)), Send(broker, controller.order)


def metadata_orders(controller: Controller) -> tuple[Output, ...]:
    """Which brokers are alive, for every live broker."""
    return tuple(Send(b.id, UpdateMetadata(controller.alive)) for b in controller.alive)
