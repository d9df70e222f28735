"""How a KRaft controller changes a partition: target ISR, election, ELR, reassignment.

Theory of operation. Every event (a broker is fenced or unfenced, a leader asks for another ISR, an
operator for an election or for other replicas) becomes one change: the stored state, the targets
and the brokers that may lead determine the new leader and sets. Without eligible leader replicas
(ELR, KIP-966) the ISR never becomes empty: its last member stays, even if its broker is dead. With
ELR it may: the controller remembers the replicas that leave an ISR that is, or falls, below
min.insync.replicas. While the high watermark is held (KAFKA-15583) they have every committed
record, so electing one is clean.

A reassignment adds its replicas to the list, and the leader epoch stays; the change that completes
it, whatever its cause, drops the replicas to be removed, and raises the epoch if there are any.

Left out: the waves in which brokers are notified, and remembering all last known
members instead of the last leader (useLastKnownLeaderInBalancedRecovery=false).

Source: PartitionChangeBuilder.java, trunk of 2024-10-25, lines 215-320 and 400-570, with the last
known leader as corrected by KAFKA-19522 and pull request 20629, after 4.0.
"""

from typing import Any

from isrlab.engine import rules
from isrlab.engine.choices import IsrWrite
from isrlab.engine.frozen import replace
from isrlab.engine.model import NO_LEADER
from isrlab.engine.partition import Controller, PartitionState
from isrlab.engine.versions import KafkaVersion


class NoReplicaError(Exception):
    """Kafka's controller would elect a broker without a replica, and fails to find its directory.

    An operator's request is answered with an error; otherwise the active controller steps down.
    Source: LeaderAcceptor, RCM 4.1.2:2454; directory, PartitionRegistration.java.
    """


def change(
    controller: Controller,
    election: str | None = None,
    unclean_shutdown: tuple[int, ...] = (),
    **targets: Any,
) -> Controller:
    """The controller after a change towards `targets`, fields of its state such as `isr`; the same
    object if nothing changes.

    `election` is "online", "preferred", "unclean", or None for what the settings allow; the disks
    of the brokers in `unclean_shutdown` may have lost data. Raises NoReplicaError.
    """
    version, state = controller.version, controller.state
    has_elr = version.eligible_leader_replicas
    aimed = replace(controller, state=_completed(replace(state, **targets), version))
    isr = aimed.isr
    elr = _target_elr(controller, aimed.state, unclean_shutdown) if has_elr else ()
    leader, is_unclean = _elect(aimed, elr, election)
    if leader not in (NO_LEADER, *state.replicas):
        raise NoReplicaError(f"broker {leader} has no directory for this partition")
    if is_unclean:
        isr, elr = (leader,), ()
    elif leader != state.leader and leader in elr:
        isr, elr = (leader,), tuple(r for r in elr if r != leader)
    is_shrunk = not set(state.isr) <= set(isr)  # even if it may not get empty: 3.5.2:266, 305
    has_moved = not set(state.replicas) <= set(aimed.replicas)
    if not isr and not has_elr:
        isr = state.isr
    is_shrunk = is_shrunk and version.epoch_bump_on_isr_shrink
    bumps = leader != state.leader or has_moved or is_shrunk
    is_marked = is_unclean and version.isr_write == IsrWrite.ALTER_PARTITION  # KIP-704, 3.2
    changed = aimed.storing(
        leader=leader,
        isr=isr,
        leader_epoch=state.leader_epoch + bumps,
        elr=elr,
        last_known_elr=_last_known_elr(state, leader, bumps) if has_elr else (),
        is_recovering=is_marked or aimed.state.is_recovering,
    )
    same = replace(state, partition_epoch=changed.partition_epoch) == changed.state
    return controller if same else changed


def _completed(target: PartitionState, version: KafkaVersion) -> PartitionState:
    """Drop the replicas that a reassignment removes, once the rule of `version` lets it complete.

    Source: maybeCompleteReassignment, PartitionReassignmentReplicas.java.
    """
    if not target.is_moved(version):
        return target
    isr = tuple(i for i in target.isr if i not in target.removing)
    return replace(target, replicas=target.target, isr=isr, adding=(), removing=())


def reassign(controller: Controller, wanted: tuple[int, ...]) -> Controller:
    """Start a reassignment: add the new replicas, and keep the old ones until the new are in sync.

    Replicas that an earlier reassignment added count as existing. Its lists of replicas to add and
    to remove are kept where this one has none. Source: changePartitionReassignment, RCM 3.8.0.
    """
    state = controller.state
    removing = tuple(sorted(set(state.replicas) - set(wanted)))
    adding = tuple(sorted(set(wanted) - set(state.replicas)))
    return change(
        controller,
        "online",
        replicas=(*wanted, *removing),
        adding=adding or state.adding,
        removing=removing or state.removing,
    )


def cancel(controller: Controller) -> Controller | None:
    """Cancel the reassignment; None if that needs an unclean election, and none is allowed.

    Source: cancelPartitionReassignment, RCM 3.8.0; PartitionReassignmentRevert.java.
    """
    version, settings, state = controller.version, controller.settings, controller.state
    isr = tuple(i for i in state.isr if i not in state.adding)
    if not isr and not (version.kraft_elects_uncleanly and settings.unclean_leader_election_enable):
        return None
    isr = isr or state.origin[:1]
    return change(controller, isr=isr, replicas=state.origin, adding=(), removing=())


def lose(controller: Controller, broker: int, is_unclean: bool = False) -> Controller:
    """Handle a broker that is dead, fenced, stopping, or back from an unclean shutdown.

    The indexes of ISR and, if unclean, ELR members say where; a partition that they name twice is
    changed twice, by two equal records. Source: BrokersToIsrs and BrokersToElrs, RCM 3.8.0, 4.3.1.
    """
    elr = (*controller.state.elr, *controller.left_in_index) if is_unclean else ()
    times = (*controller.isr, *elr).count(broker)
    left = tuple(i for i in controller.isr if i != broker)
    if not times:
        return controller
    after = change(controller, unclean_shutdown=(broker,) if is_unclean else (), isr=left)
    state, again = after.state, times - 1
    leader_epoch = state.leader_epoch + again * (state.leader_epoch - controller.leader_epoch)
    epoch = state.partition_epoch + again * (state.partition_epoch - controller.partition_epoch)
    return replace(after, state=replace(state, leader_epoch=leader_epoch, partition_epoch=epoch))


def assign_directory(controller: Controller) -> Controller:
    """Store that a replica is in another directory. Up to 4.2 that empties the ELR, by mistake.

    Source: handleAssignReplicasToDirs, RCM 4.2.1:2283, 4.3.1:2360.
    """
    keeps = controller.version.directory_change_keeps_elr
    return controller.storing(elr=controller.state.elr if keeps else ())


def _target_elr(
    controller: Controller, target: PartitionState, unclean_shutdown: tuple[int, ...]
) -> tuple[int, ...]:
    """The replicas that left a too small ISR, except those that may have lost data.

    Kafka keeps brokers that no longer hold a replica. For any partition its controller takes the
    replica count of partition 0, while each leader takes its own. Source: maybePopulateTargetElr,
    4.3.1; and getTopicEffectiveMinIsr, RCM 4.3.1:2428.
    """
    wanted, version = controller.settings.min_insync_replicas, controller.version
    count = controller.replicas_of_partition_0
    if count is None:
        count = len(controller.replicas)
    if version.min_isr_of_own_partition:
        count = len(target.replicas)
    if len(target.isr) >= rules.effective_min_isr(wanted, count):
        return ()
    outside = {*controller.state.elr, *controller.isr} - set(target.isr)
    if version.elr_of_replicas_only:
        outside &= set(target.replicas)
    return tuple(sorted(outside - set(unclean_shutdown)))


def _elect(aimed: Controller, elr: tuple[int, ...], election: str | None) -> tuple[int, bool]:
    """(leader, whether the election is unclean): in assignment order, the current leader first."""
    replicas, available = aimed.replicas, aimed.available
    version, settings = aimed.version, aimed.settings
    eligible = [r for r in aimed.isr or elr if r in available]
    if election == "preferred" and replicas[0] in eligible:
        return replicas[0], False
    if aimed.leader in eligible:
        return aimed.leader, False
    first = next((r for r in replicas if r in eligible), NO_LEADER)
    if first != NO_LEADER:
        return first, False
    last = aimed.state.last_known_elr
    is_last_hope = version.eligible_leader_replicas and not aimed.isr and not elr
    if is_last_hope and len(last) == 1 and last[0] in available:
        return last[0], True
    allows_unclean = version.kraft_elects_uncleanly and settings.unclean_leader_election_enable
    if election == "unclean" or (election is None and allows_unclean):
        alive = next((r for r in replicas if r in available), NO_LEADER)
        return alive, alive != NO_LEADER
    return NO_LEADER, False


def _last_known_elr(state: PartitionState, leader: int, bumps: bool) -> tuple[int, ...]:
    """The last leader, while the partition has none; empty as soon as a leader is elected.

    If a new min ISR made the controller forget the leader, -1 is recorded when the epoch next
    rises. Source: maybeUpdateLastKnownLeader, PartitionChangeBuilder.java 4.3.1.
    """
    if leader != NO_LEADER:
        return ()
    return (state.leader,) if bumps and not state.last_known_elr else state.last_known_elr
