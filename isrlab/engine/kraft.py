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

from isrlab.engine.frozen import Frozen, replace
from isrlab.engine.model import NO_LEADER
from isrlab.engine.partition import PartitionState


class Rules(Frozen):
    """What of the cluster decides about a change."""

    replicas: tuple[int, ...]  # assigned, preferred leader first
    min_isr: int  # effective
    has_elr: bool = False
    bumps_epoch_on_shrink: bool = False
    remembers_last_leader: bool = True  # one last known leader, instead of all last known members
    marks_recovery: bool = True  # after an unclean election (KIP-704, 3.2)


class Change(Frozen):
    """What is wanted: another ISR, perhaps another leader."""

    target_isr: tuple[int, ...]
    acceptable: tuple[int, ...]  # the brokers that may lead
    election: str = "online"  # or "preferred", or "unclean"
    unclean_shutdown: tuple[int, ...] = ()  # brokers whose disks may have lost data
    is_recovering: bool | None = None  # what the leader says of itself


def change(state: PartitionState, rules: Rules, wanted: Change) -> PartitionState:
    """The stored state after a change; the same object if nothing changes."""
    target_isr = wanted.target_isr
    elr, last_known = _target_elr(state, rules, wanted)
    leader, is_unclean = _elect(state, rules, wanted, elr)
    if leader != state.leader and leader in elr and not is_unclean:
        target_isr, elr = (leader,), tuple(r for r in elr if r != leader)
    if is_unclean:
        target_isr, elr, last_known = (leader,), (), ()
    if not target_isr and not rules.has_elr:
        target_isr = state.isr
    if rules.has_elr and rules.remembers_last_leader:
        last_known = _last_leader(state, target_isr, leader)
    is_shrunk = not set(state.isr) <= set(target_isr)
    recovering = state.is_recovering if wanted.is_recovering is None else wanted.is_recovering
    bumps = leader != state.leader or (rules.bumps_epoch_on_shrink and is_shrunk)
    changed = replace(
        state,
        leader=leader,
        isr=target_isr,
        leader_epoch=state.leader_epoch + bumps,
        elr=elr,
        last_known_elr=last_known,
        is_recovering=(is_unclean and rules.marks_recovery) or recovering,
    )
    if changed == state:
        return state
    return replace(changed, partition_epoch=state.partition_epoch + 1)


def _target_elr(
    state: PartitionState, rules: Rules, wanted: Change
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(ELR, last known ELR): who left too small an ISR, and who of them is doubtful."""
    if not rules.has_elr or len(wanted.target_isr) >= rules.min_isr:
        return (), ()
    outside = {*state.elr, *state.isr} - set(wanted.target_isr)
    elr = tuple(sorted(outside - set(wanted.unclean_shutdown)))
    known = (outside | set(state.last_known_elr)) - set(wanted.target_isr) - set(elr)
    return elr, tuple(sorted(known))


def _elect(
    state: PartitionState, rules: Rules, wanted: Change, elr: tuple[int, ...]
) -> tuple[int, bool]:
    """(leader, whether the election is unclean): in assignment order, the present leader first."""
    acceptable = wanted.acceptable
    eligible = [r for r in wanted.target_isr or elr if r in acceptable]
    if wanted.election == "preferred" and rules.replicas[0] in eligible:
        return rules.replicas[0], False
    if state.leader in eligible:
        return state.leader, False
    first = next((r for r in rules.replicas if r in eligible), NO_LEADER)
    if first != NO_LEADER:
        return first, False
    is_last_hope = rules.has_elr and rules.remembers_last_leader and not wanted.target_isr
    last = state.last_known_elr
    if is_last_hope and not elr and len(last) == 1 and last[0] in acceptable:
        return last[0], True
    if wanted.election == "unclean":
        alive = next((r for r in rules.replicas if r in acceptable), NO_LEADER)
        return alive, alive != NO_LEADER
    return NO_LEADER, False


def _last_leader(state: PartitionState, isr: tuple[int, ...], leader: int) -> tuple[int, ...]:
    """The leader before the partition lost it; forgotten as soon as there is one again."""
    if leader != NO_LEADER:
        return ()
    if state.leader != NO_LEADER and not isr:
        return (state.leader,)
    return state.last_known_elr
