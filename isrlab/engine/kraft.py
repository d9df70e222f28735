"""How a KRaft controller changes a partition: target ISR, election, eligible leader replicas.

Theory of operation. Whatever happens to a partition (a broker is fenced or unfenced, a leader asks
for another ISR, an operator asks for an election) becomes one change: from the stored state, a
target ISR and the brokers that may lead now follow the new leader and the new sets. Without
eligible leader replicas (ELR, KIP-966) the ISR never becomes empty: its last member stays, even
dead. With them it may, because the replicas that left it below min.insync.replicas are remembered:
while the high watermark stands still (KAFKA-15583) they miss nothing that is committed, so electing
one of them is clean.

Left out: reassignment, directories, and the several waves in which brokers are told.

Source: PartitionChangeBuilder.java, trunk of 2024-10-25, lines 215-320 and 400-570. The test
whether the last known leader is alive is that of KAFKA-19522, which mended it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from isrlab.engine.model import NO_LEADER
from isrlab.engine.partition import PartitionState


@dataclass(frozen=True, slots=True)
class Rules:
    """What of the cluster decides about a change."""

    replicas: tuple[int, ...]  # assigned, preferred leader first
    min_isr: int  # effective
    has_elr: bool = False
    bumps_epoch_on_shrink: bool = False
    remembers_last_leader: bool = True  # one last known leader, instead of all last known members


def change(
    state: PartitionState,
    rules: Rules,
    target_isr: tuple[int, ...],
    acceptable: Collection[int],
    election: str = "online",
    unclean_shutdown: Collection[int] = (),
) -> PartitionState:
    """The stored state after a change; the same object if nothing changes.

    `acceptable` are the brokers that may lead; `election` is "online", "preferred" or "unclean".
    """
    elr, last_known = _target_elr(state, rules, target_isr, unclean_shutdown)
    leader, is_unclean = _elect(state, rules, target_isr, elr, acceptable, election)
    if leader != state.leader and leader in elr and not is_unclean:
        target_isr, elr = (leader,), tuple(r for r in elr if r != leader)
    if is_unclean:
        target_isr, elr, last_known = (leader,), (), ()
    if not target_isr and not rules.has_elr:
        target_isr = state.isr
    if rules.has_elr and rules.remembers_last_leader:
        last_known = _last_leader(state, target_isr, leader)
    is_shrunk = not set(state.isr) <= set(target_isr)
    bumps = leader != state.leader or (rules.bumps_epoch_on_shrink and is_shrunk)
    changed = replace(
        state,
        leader=leader,
        isr=target_isr,
        leader_epoch=state.leader_epoch + bumps,
        elr=elr,
        last_known_elr=last_known,
        is_recovering=state.is_recovering or is_unclean,
    )
    if changed == state:
        return state
    return replace(changed, partition_epoch=state.partition_epoch + 1)


def _target_elr(
    state: PartitionState,
    rules: Rules,
    target_isr: tuple[int, ...],
    unclean_shutdown: Collection[int],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(ELR, last known ELR): who left the ISR while it was too small, and who of them is
    doubtful."""
    if not rules.has_elr or len(target_isr) >= rules.min_isr:
        return (), ()
    candidates = (*state.elr, *(r for r in state.isr if r not in state.elr))
    outside = [r for r in candidates if r not in target_isr]
    elr = tuple(sorted(r for r in outside if r not in unclean_shutdown))
    known = {*outside, *state.last_known_elr} - set(target_isr) - set(elr)
    return elr, tuple(sorted(known))


def _elect(
    state: PartitionState,
    rules: Rules,
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    acceptable: Collection[int],
    election: str,
) -> tuple[int, bool]:
    """(leader, whether the election is unclean): in assignment order, the present leader first."""
    eligible = [r for r in isr or elr if r in acceptable]
    preferred = rules.replicas[0]
    if election == "preferred" and preferred in eligible:
        return preferred, False
    if state.leader in eligible:
        return state.leader, False
    first = next((r for r in rules.replicas if r in eligible), NO_LEADER)
    if first != NO_LEADER:
        return first, False
    if _can_lead_again(state, rules, isr, elr, acceptable):
        return state.last_known_elr[0], True
    if election == "unclean":
        alive = next((r for r in rules.replicas if r in acceptable), NO_LEADER)
        return alive, alive != NO_LEADER
    return NO_LEADER, False


def _can_lead_again(
    state: PartitionState,
    rules: Rules,
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    acceptable: Collection[int],
) -> bool:
    """Nobody is left but the last known leader, and it is back."""
    return (
        rules.has_elr
        and rules.remembers_last_leader
        and not isr
        and not elr
        and len(state.last_known_elr) == 1
        and state.last_known_elr[0] in acceptable
    )


def _last_leader(state: PartitionState, isr: tuple[int, ...], leader: int) -> tuple[int, ...]:
    """The leader before the partition lost it; forgotten as soon as there is one again."""
    if leader != NO_LEADER:
        return ()
    if state.leader != NO_LEADER and not isr:
        return (state.leader,)
    return state.last_known_elr
