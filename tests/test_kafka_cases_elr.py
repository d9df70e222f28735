"""Kafka's own cases of eligible leader replicas (M1-M13) and of the leader's recovery state.

M1 to M9 are those of PartitionChangeBuilderTest, M10 to M13 of ReplicationControlManagerTest.
Min ISR is 3, the assignment (1, 2, 3, 4), leader epoch 100, partition epoch 200, unless said.
"""

from __future__ import annotations

import pytest

from isrlab.engine import controller as machine
from isrlab.engine import kraft
from isrlab.engine import messages as m
from isrlab.engine.frozen import replace
from isrlab.engine.model import NO_LEADER, Settings
from isrlab.engine.partition import Controller, PartitionState
from isrlab.engine.rules import effective_min_isr
from isrlab.engine.versions import PRESETS, KafkaVersion
from isrlab.world import scenario

ALL = (1, 2, 3, 4)
M2, M3 = (1, (1, 2), (3,), (4,)), (1, (1,), (3,), (2,))
LAST_LEADER = (NO_LEADER, (), (), (1,))


@pytest.mark.parametrize(
    ("case", "before", "target", "alive", "doubtful", "stored", "bumps"),
    [  # stored are leader, ISR, ELR and last known ELR; doubtful are disks after a power loss
        ("M1", (1, ALL), (1, 2), (1, 2, 4), (), (1, (1, 2), (3, 4), ()), 0),
        ("M1-no-elr", (1, ALL), (1, 2), (1, 2, 4), (), (1, (1, 2), (), ()), 0),
        ("M2", M2, (1, 2, 3), (1, 2, 4), (), (1, (1, 2, 3), (), ()), 0),
        ("M2-no-elr", M2, (1, 2, 3), (1, 2, 4), (), (1, (1, 2, 3), (), ()), 0),
        ("M3", M3, (1, 4), (1, 2, 4), (), (1, (1, 4), (3,), ()), 0),
        ("M3-no-elr", M3, (1, 4), (1, 2, 4), (), (1, (1, 4), (), ()), 0),
        ("M4", (1, (1,), (2, 3)), (1,), (1, 2, 4), (3,), (1, (1,), (2,), ()), 0),
        ("M4-no-elr", (1, (1,), (2, 3)), (1,), (1, 2, 4), (3,), (1, (1,), (), ()), 0),
        ("M5", (1, (1,), (3,)), (), (2, 3, 4), (), (3, (3,), (1,), ()), 1),
        ("M6", (1, ALL), (), (), (), (NO_LEADER, (), ALL, (1,)), 1),
        ("M6-no-elr", (1, ALL), (), (), (), (NO_LEADER, ALL, (), ()), 1),
        ("M7", (NO_LEADER, (), ALL, (1,)), (), (), (2,), (NO_LEADER, (), (1, 3, 4), (1,)), 0),
        ("M8", LAST_LEADER, (), ALL, (), (1, (1,), (), ()), 1),
        # KAFKA-19522: the trunk of 2024-10 elects it all the same
        ("M8-dead", LAST_LEADER, (), (2, 3), (), LAST_LEADER, 0),
        ("M9", (NO_LEADER, (), (3,), (1,)), (), (1, 2, 4), (), (NO_LEADER, (), (3,), (1,)), 0),
    ],
)
def test_change(case, before, target, alive, doubtful, stored, bumps) -> None:
    leader, isr, *elrs = before
    state = PartitionState(ALL, leader, isr, 100, 200, *elrs)
    controller = cluster_of("N" if "no-elr" in case else "O", ALL, state, alive)
    after = kraft.change(controller, "preferred", doubtful, isr=target)
    assert sets(after) == stored
    assert after.state.is_recovering is (case == "M8")
    assert after.leader_epoch - 100 == bumps
    is_same = replace(after.state, partition_epoch=200) == state
    assert after.partition_epoch == (200 if is_same else 201)
    assert (after is controller) is is_same


def cluster_of(
    column: str = "O",
    replicas: tuple[int, ...] = (0, 1, 2, 3),
    state: PartitionState | None = None,
    alive: tuple[int, ...] | None = None,
    min_isr: int = 3,
    **settings: object,
) -> Controller:
    """All brokers live in their epoch 7; the first leads."""
    version = PRESETS[column]
    chosen = Settings.of(version, min_insync_replicas=min_isr, **settings)
    live = tuple(m.BrokerInfo(i, 7) for i in (replicas if alive is None else alive))
    full = PartitionState(replicas, replicas[0], replicas, 100, 200)
    return Controller(version, chosen, state or full, live)


def play(controller: Controller, *messages: m.Message) -> Controller:
    for message in messages:
        controller, _ = machine.step(controller, message, 0)
    return controller


def fence(*brokers: int, epoch: int = 7) -> list[m.Message]:
    return [m.SessionExpired(b, epoch) for b in brokers]


def unfence(*brokers: int) -> list[m.Message]:
    return [m.RegisterBroker(b, 7) for b in brokers]


def sets(controller: Controller) -> tuple:
    state = controller.state
    return state.leader, state.isr, state.elr, state.last_known_elr


def wants(controller: Controller, *isr: int, **more: object) -> m.AlterPartition:
    state = controller.state
    epochs = tuple(7 for _ in isr)
    return m.AlterPartition(
        state.leader, 9, state.leader_epoch, state.partition_epoch, isr, epochs, **more
    )


def test_m10_leader_shrinks_and_expands() -> None:
    """RC testEligibleLeaderReplicas_ShrinkAndExpandIsr: RF 3, min ISR 2."""
    controller = cluster_of(replicas=(0, 1, 2), min_isr=2)
    controller = play(controller, wants(controller, 0, 1))
    assert sets(controller) == (0, (0, 1), (), ())
    controller = play(controller, wants(controller, 0))
    assert sets(controller) == (0, (0,), (1,), ())
    controller = play(controller, wants(controller, 0, 1))
    assert sets(controller) == (0, (0, 1), (), ())


def test_m11_fenced_brokers() -> None:
    """The one that leaves while the ISR is large enough is not remembered."""
    controller = play(cluster_of(), *fence(2, 3))
    assert controller.state.elr == (3,)
    controller = play(controller, *fence(1))
    assert (controller.state.elr, controller.state.last_known_elr) == ((1, 3), ())
    controller = play(controller, *unfence(1, 2, 3))
    assert sets(controller) == (0, (0,), (1, 3), ())


@pytest.mark.parametrize(("wanted", "replicas", "effective"), [(5, 3, 3), (2, 3, 2), (1, 3, 1)])
def test_m12_effective_min_isr(wanted: int, replicas: int, effective: int) -> None:
    assert effective_min_isr(wanted, replicas) == effective
    controller = cluster_of(replicas=tuple(range(replicas)), min_isr=wanted)
    controller = play(controller, *fence(*range(1, replicas)))
    assert len(controller.state.elr) == effective - 1  # those that left it when it was too small


def test_m13_clean_election_from_the_elr() -> None:
    controller = play(cluster_of(), *fence(1, 2, 3))
    assert (controller.state.elr, controller.state.last_known_elr) == ((2, 3), ())
    controller = play(controller, *unfence(2), *fence(0))
    assert sets(controller) == (2, (2,), (0, 3), ())
    assert not controller.state.is_recovering


def test_unclean_shutdown_takes_a_broker_out_of_the_elr() -> None:
    controller = play(cluster_of(), *fence(1, 2, 3), m.RegisterBroker(2, 8, was_clean=False))
    assert (controller.state.elr, controller.state.last_known_elr) == ((3,), ())


# L6, L10, L16 and the recovery state


def test_l6_isr_shrink_bumps_the_leader_epoch_up_to_3_5() -> None:
    for column, bumps in (("L", 1), ("M", 0)):
        three = (2, 1, 3)
        controller = cluster_of(column, three, PartitionState(three, 1, three, 100, 200))
        smaller = play(controller, wants(controller, 2, 1))
        assert smaller.leader_epoch - 100 == bumps
        larger = play(smaller, wants(smaller, 2, 1, 3))
        assert larger.leader_epoch == smaller.leader_epoch


def test_l10_offline_and_online_again_still_recovering() -> None:
    state = PartitionState((1, 2, 3), 1, (1,), 100, 200, is_recovering=True)
    controller = cluster_of("N", (1, 2, 3), state, alive=(1,), min_isr=2)
    offline = play(controller, *fence(1))
    assert (offline.leader, offline.isr, offline.state.is_recovering) == (NO_LEADER, (1,), True)
    online = play(offline, *unfence(1))
    assert (online.leader, online.isr, online.state.is_recovering) == (1, (1,), True)
    assert online.leader_epoch == 102


@pytest.mark.parametrize(
    ("leader", "alive", "kind", "error"),
    [
        (NO_LEADER, (2,), "preferred", "PREFERRED_LEADER_NOT_AVAILABLE"),  # L16
        (2, (2,), "preferred", "PREFERRED_LEADER_NOT_AVAILABLE"),
        (1, (1, 2), "preferred", "ELECTION_NOT_NEEDED"),
        (1, (1, 2), "unclean", "ELECTION_NOT_NEEDED"),
        (NO_LEADER, (), "unclean", "ELIGIBLE_LEADERS_NOT_AVAILABLE"),
        (NO_LEADER, (2,), "unclean", None),
    ],
)
@pytest.mark.parametrize("column", "GN")
def test_l16_answers_to_an_election(column, leader, alive, kind, error):
    isr = (1,) if leader in (NO_LEADER, 1) else (leader,)
    state = PartitionState((1, 2), leader, isr, 100, 200)
    settings = {"unclean_leader_election_enable": True}
    before = cluster_of(column, (1, 2), state, alive, 1, **settings)
    after, outputs = machine.step(before, m.ElectLeaders(kind), 0)
    assert outputs[-1] == m.Send(m.CLIENT, m.ElectLeadersResponse(error))
    assert (after == before) is (error is not None)


def recovering(column: str = "N") -> Controller:
    controller = cluster_of(
        column, (1, 2, 3), min_isr=2, alive=(2, 3), unclean_leader_election_enable=True,
        state=PartitionState((1, 2, 3), NO_LEADER, (1,), 100, 200),
    )  # fmt: skip
    return play(controller, m.ElectLeaders("unclean"))


def test_unclean_election_marks_the_leader_as_recovering() -> None:
    controller = recovering()
    assert (controller.leader, controller.isr) == (2, (2,))
    assert controller.state.is_recovering
    assert controller.order.is_recovering


@pytest.mark.parametrize(
    ("isr", "is_recovering", "error"),
    [
        ((2,), True, None),
        ((2, 3), True, "INVALID_REQUEST"),
        ((2, 3), False, None),
        ((2,), False, None),
    ],
)
def test_recovery_ends_with_the_leaders_next_isr_change(isr, is_recovering, error) -> None:
    before = recovering()
    request = wants(before, *isr, is_recovering=is_recovering)
    after, outputs = machine.step(before, request, 0)
    answers = [o.message for o in outputs if isinstance(o.message, m.AlterPartitionResponse)]
    assert [a.error for a in answers] == [error]
    assert after.state.is_recovering is (is_recovering or error is not None)
    if not after.state.is_recovering:
        back = wants(after, 2, is_recovering=True)
        _, outputs = machine.step(after, back, 0)
        errors = [getattr(o.message, "error", None) for o in outputs]
        assert "INVALID_REQUEST" in errors  # never from recovered to recovering


RECOVERY = """
partition replicas=1,2 unclean.leader.election.enable=true
cut 1 2
produce 1 m1 acks=1
advance 70s
kill 1
heal 1 2
advance 20s
elect unclean
trace on
start 1
stabilize
"""


@pytest.mark.parametrize("version", ["3.6", "3.7", "4.0", "4.1"])
def test_a_real_leader_recovers_at_its_first_isr_change(version: str) -> None:
    run = scenario.play(RECOVERY, version=version)
    states = [f.controller.state.is_recovering for f in run.frames]
    assert True in states
    assert states[-1] is False
    ordered = [line for line in run.lines if "LeaderAndIsr" in line]
    assert any("is_recovering=True" in line for line in ordered)


def test_no_recovery_state_before_3_2() -> None:
    old = KafkaVersion.of("3.1").with_(kraft=True)
    run = scenario.play(RECOVERY, version=old)
    assert not any(f.controller.state.is_recovering for f in run.frames)
