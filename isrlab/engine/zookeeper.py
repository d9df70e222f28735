"""How the ZooKeeper-era controller changes a partition: elections, removals, reassignment.

Theory of operation. The controller elects the first assigned replica that is alive and in the ISR;
if there is none and unclean election is allowed, the first that is alive. It also removes a dead
broker from the ISR, unless that is the only member. Every write of the controller raises the leader
epoch; a leader's own ISR writes do not.

A reassignment begins with a write that names old and new replicas. The controller watches the ISR;
once all targets are in it, one write drops the old ones from the list and, if necessary, elects a
leader; a further write for each old one removes it from the ISR. Left out: targets that cannot be
elected because all are dead, and the random order of the list up to 2.3.

Source: PartitionLeaderSelector.scala 0.8.2.2:49-98, Election.scala 2.7.2, ReplicaStateMachine.scala
0.10.2.2:239-262, KafkaController.scala 0.10.2.2:571-624, 839-880 and 1063-1095, 2.5.1:561-623.
"""

from isrlab.engine.frozen import replace
from isrlab.engine.model import NO_LEADER
from isrlab.engine.partition import Controller


def elect(controller: Controller, asks_unclean: bool = False) -> Controller:
    """Elect a live ISR member; else, if that is allowed, any live replica; else no leader."""
    available = controller.available
    leader = _first_in_sync(controller)
    if leader != NO_LEADER:
        return _write(controller, leader, tuple(i for i in controller.isr if i in available))
    allows_unclean = asks_unclean or controller.settings.unclean_leader_election_enable
    leader = next((r for r in controller.replicas if r in available), NO_LEADER)
    if leader != NO_LEADER and allows_unclean:
        return _write(controller, leader, (leader,))
    if controller.leader == NO_LEADER:
        return controller
    keeps = controller.version.keeps_last_isr_member or not allows_unclean
    return _write(controller, NO_LEADER, controller.isr if keeps else ())


def elect_preferred(controller: Controller) -> Controller:
    """Make the first assigned replica the leader, if it is alive and in the ISR."""
    head = controller.replicas[0]
    is_in_sync = head in controller.isr and head in controller.available
    if head == controller.leader or not is_in_sync:
        return controller
    return _write(controller, head, controller.isr)


def lose(controller: Controller, broker: int) -> Controller:
    """Elect another leader if this dead broker led, and take it out of the ISR."""
    return _without(elect(controller) if controller.leader == broker else controller, broker)


def shut_down(controller: Controller, broker: int) -> Controller:
    """Take a stopping broker out of the ISR, unless it leads and has no successor."""
    if controller.leader != broker:
        return _without(controller, broker)
    successor = _first_in_sync(controller, but=broker)
    if successor == NO_LEADER:
        return controller
    return _write(controller, successor, tuple(i for i in controller.isr if i != broker))


def reassign(controller: Controller, wanted: tuple[int, ...]) -> Controller:
    """Start a reassignment; replicas that only an earlier reassignment added are dropped.

    Source: onPartitionReassignment, and reassignTo of ReplicaAssignment, 2.5.1.
    """
    state = controller.state
    everyone = tuple(dict.fromkeys((*wanted, *state.origin)))
    adding = tuple(r for r in everyone if r not in state.origin)
    removing = tuple(r for r in everyone if r not in wanted)
    plan = replace(state, replicas=everyone, adding=adding, removing=removing)
    after = replace(controller, state=plan)
    for unneeded in set(state.adding) - set(adding):
        after = _without(after, unneeded)
    if not (adding or removing) or plan.is_moved(controller.version):
        return _moved(after)
    return _write(after, after.leader, after.isr)


def move_on(controller: Controller) -> Controller:
    """Complete the reassignment if the changed ISR allows it."""
    return _moved(controller) if controller.state.is_moved(controller.version) else controller


def _moved(controller: Controller) -> Controller:
    """Make the targets the replicas; one of them leads, and the old replicas leave the ISR."""
    state = controller.state
    plan = replace(state, replicas=state.target, adding=(), removing=())
    after = replace(controller, state=plan)
    stays = controller.leader in plan.replicas and controller.leader in controller.available
    after = _write(after, controller.leader if stays else _first_in_sync(after), controller.isr)
    for removed in state.removing:
        after = _without(after, removed)
    return after


def _first_in_sync(controller: Controller, but: int = NO_LEADER) -> int:
    in_sync = (r for r in controller.replicas if r in controller.isr and r != but)
    return next((r for r in in_sync if r in controller.available), NO_LEADER)


def _without(controller: Controller, broker: int) -> Controller:
    """Remove `broker` from the ISR and the leadership, unless it is the last ISR member."""
    if broker not in controller.isr or len(controller.isr) == 1:
        return controller
    isr = tuple(i for i in controller.isr if i != broker)
    return _write(controller, NO_LEADER if controller.leader == broker else controller.leader, isr)


def _write(controller: Controller, leader: int, isr: tuple[int, ...]) -> Controller:
    return controller.storing(leader=leader, isr=isr, leader_epoch=controller.leader_epoch + 1)
