"""How a KRaft controller changes a partition: target ISR, election, eligible leader replicas.

Theory of operation. Whatever happens to a partition (a broker is fenced or unfenced, a leader asks
for another ISR, an operator asks for an election) becomes one change: from the stored state, a
target ISR and the brokers that may lead now follow the new leader and the new sets. Without
eligible leader replicas (ELR, KIP-966) the ISR never becomes empty: its last member stays, even
dead. With them it may, because the replicas that left it below min.insync.replicas are remembered:
while the high watermark stands still (KAFKA-15583) they miss nothing that is committed, so electing
one of them is clean.

Left out: reassignment, directories, the several waves in which brokers are told, and remembering
all last known members instead of the last leader (useLastKnownLeaderInBalancedRecovery=false).

Source: PartitionChangeBuilder.java, trunk of 2024-10-25, lines 215-320 and 400-570. The test
whether the last known leader is alive is that of KAFKA-19522, which mended it.
"""

from __future__ import annotations

from isrlab.engine.choices import IsrWrite
from isrlab.engine.frozen import replace
from isrlab.engine.model import NO_LEADER
from isrlab.engine.partition import Controller, PartitionState
from isrlab.engine.rules import effective_min_isr


def change(
    controller: Controller,
    target_isr: tuple[int, ...],
    election: str | None = None,
    unclean_shutdown: tuple[int, ...] = (),
    is_recovering: bool | None = None,
) -> Controller:
    """The controller after a change towards `target_isr`; the same object if nothing changes.

    `election` is "preferred", "unclean", or None for what the settings allow; the disks of the
    brokers in `unclean_shutdown` may have lost data; `is_recovering` is what the leader says of
    itself, if it is the leader that asks.
    """
    version, state = controller.version, controller.state
    has_elr = version.eligible_leader_replicas
    elr = _target_elr(controller, target_isr, unclean_shutdown) if has_elr else ()
    leader, is_unclean = _elect(controller, target_isr, elr, election)
    if is_unclean:
        target_isr, elr = (leader,), ()
    elif leader != state.leader and leader in elr:
        target_isr, elr = (leader,), tuple(r for r in elr if r != leader)
    is_shrunk = not set(state.isr) <= set(target_isr)  # even if it may not be empty: 3.5.2:266, 305
    if not target_isr and not has_elr:
        target_isr = state.isr
    bumps = leader != state.leader or (version.epoch_bump_on_isr_shrink and is_shrunk)
    is_marked = is_unclean and version.isr_write == IsrWrite.ALTER_PARTITION  # KIP-704, 3.2
    says = state.is_recovering if is_recovering is None else is_recovering
    changed = controller.storing(
        leader=leader,
        isr=target_isr,
        leader_epoch=state.leader_epoch + bumps,
        elr=elr,
        last_known_elr=_last_known_elr(state, target_isr, leader) if has_elr else (),
        is_recovering=is_marked or says,
    )
    same = replace(state, partition_epoch=changed.partition_epoch) == changed.state
    return controller if same else changed


def lose(controller: Controller, broker: int, is_unclean: bool = False) -> Controller:
    """A broker is dead, fenced, wants to stop, or has come back from an unclean shutdown."""
    left = tuple(i for i in controller.isr if i != broker)
    return change(controller, left, unclean_shutdown=(broker,) if is_unclean else ())


def _target_elr(
    controller: Controller, target_isr: tuple[int, ...], unclean_shutdown: tuple[int, ...]
) -> tuple[int, ...]:
    """Who left too small an ISR, without those whose disks are doubtful."""
    wanted = controller.settings.min_insync_replicas
    if len(target_isr) >= effective_min_isr(wanted, len(controller.replicas)):
        return ()
    outside = {*controller.state.elr, *controller.isr} - set(target_isr)
    return tuple(sorted(outside - set(unclean_shutdown)))


def _elect(
    controller: Controller, target_isr: tuple[int, ...], elr: tuple[int, ...], election: str | None
) -> tuple[int, bool]:
    """(leader, whether the election is unclean): in assignment order, the present leader first."""
    replicas, available = controller.replicas, controller.available
    version, settings = controller.version, controller.settings
    eligible = [r for r in target_isr or elr if r in available]
    if election == "preferred" and replicas[0] in eligible:
        return replicas[0], False
    if controller.leader in eligible:
        return controller.leader, False
    first = next((r for r in replicas if r in eligible), NO_LEADER)
    if first != NO_LEADER:
        return first, False
    last = controller.state.last_known_elr
    is_last_hope = version.eligible_leader_replicas and not target_isr and not elr
    if is_last_hope and len(last) == 1 and last[0] in available:
        return last[0], True
    allows_unclean = version.kraft_elects_uncleanly and settings.unclean_leader_election_enable
    if election == "unclean" or (election is None and allows_unclean):
        alive = next((r for r in replicas if r in available), NO_LEADER)
        return alive, alive != NO_LEADER
    return NO_LEADER, False


def _last_known_elr(state: PartitionState, isr: tuple[int, ...], leader: int) -> tuple[int, ...]:
    """The leader before the partition lost it; forgotten as soon as there is one again."""
    if leader != NO_LEADER:
        return ()
    return (state.leader,) if state.leader != NO_LEADER and not isr else state.last_known_elr
