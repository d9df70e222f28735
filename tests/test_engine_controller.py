"""The controller: elections, the removal of dead brokers, and whom it lets into the ISR.

Cases L1 to L16 are those of PartitionChangeBuilderTest and ReplicationControlManagerTest.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from isrlab.engine import controller as machine
from isrlab.engine import messages as m
from isrlab.engine.controller import Controller
from isrlab.engine.model import NO_LEADER, Settings
from isrlab.engine.partition import PartitionState
from isrlab.engine.versions import PRESETS, KafkaVersion
from isrlab.world import scenario

ALL = "ABCDGN"


def controller(
    column: str,
    replicas: tuple[int, ...] = (2, 1, 3),
    isr: tuple[int, ...] = (2, 1, 3),
    leader: int = 1,
    alive: tuple[int, ...] = (1, 2, 3),
    unclean: bool = False,
) -> Controller:
    """FOO of the Kafka tests: leader epoch 100, partition epoch 200; brokers in their epoch 7."""
    version = PRESETS[column]
    settings = Settings.of(version, unclean_leader_election_enable=unclean, min_insync_replicas=2)
    live = tuple(m.BrokerInfo(i, 7) for i in alive)
    return Controller(version, settings, replicas, PartitionState(leader, isr, 100, 200), live)


@dataclass(frozen=True)
class Row:
    """A state, a message, and what is stored then; `bumps` counts leader epochs."""

    id: str
    columns: str
    state: dict[str, object]
    message: object
    leader: int
    isr: tuple[int, ...]
    bumps: int
    is_unclean: bool = False


def dies(broker: int) -> m.SessionExpired:
    return m.SessionExpired(broker, 7)


def wants(isr: tuple[int, ...], epochs: tuple[int, ...] | None = None) -> m.AlterPartition:
    return m.AlterPartition(1, 5, 100, 200, isr, epochs or tuple(7 for _ in isr))


UNCLEAN = {"unclean": True}
LAST_ONE = {"replicas": (1, 2), "isr": (1,), "alive": (1, 2)}
LAST_STOPS = m.ControlledShutdown(1)

ROWS = (
    Row(
        "L2",
        "N",
        {"isr": (1, 3), "alive": (1, 2), "leader": -1},
        m.RegisterBroker(5, 1),
        1,
        (1,),
        1,
    ),
    Row(
        "L4",
        "N",
        {"isr": (4,), "replicas": (2, 1, 3, 4), "leader": -1, "alive": (1, 2, 4)},
        m.ElectLeaders("unclean"),
        4,
        (4,),
        1,
    ),
    Row("L6-shrink", "N", {}, wants((2, 1)), 1, (2, 1), 0),
    Row(
        "L6-expand",
        "N",
        {"replicas": (2, 1, 3, 4), "alive": (1, 2, 3, 4)},
        wants((2, 1, 3, 4)),
        1,
        (2, 1, 3, 4),
        0,
    ),
    Row("L8-isr", "N", {}, wants((2, 1)), 1, (2, 1), 0),
    Row("L8-leader", "N", {}, dies(1), 2, (2, 3), 1),
    Row(
        "L10-offline",
        "N",
        {"isr": (1,), "alive": (1,)},
        dies(1),
        NO_LEADER,
        (1,),
        1,
    ),
    Row(
        "L10-online",
        "N",
        {"isr": (1,), "alive": (), "leader": NO_LEADER},
        m.RegisterBroker(1, 8),
        1,
        (1,),
        1,
    ),
    Row(
        "L16",
        "N",
        {"replicas": (1, 2), "isr": (1,), "leader": NO_LEADER, "alive": (2,)} | UNCLEAN,
        m.ElectLeaders("preferred"),
        NO_LEADER,
        (1,),
        0,
    ),
    # Leader offline: the assignment's order decides, not the ISR's
    Row("assignment-order", ALL, {"replicas": (1, 3, 2), "isr": (1, 2, 3)}, dies(1), 3, (2, 3), 1),
    Row("out-of-sync-is-passed", ALL, {"isr": (1, 3)}, dies(1), 3, (3,), 1),
    Row("follower-leaves-the-isr", "ABCDG", {}, dies(3), 1, (2, 1), 1),
    Row("follower-leaves-the-isr", "N", {}, dies(3), 1, (2, 1), 0),
    Row("outsider-dies", ALL, {"isr": (1, 2)}, dies(3), 1, (1, 2), 0),
    Row("another-incarnation", ALL, {}, m.SessionExpired(1, 6), 1, (2, 1, 3), 0),
    # Nobody in sync is left
    Row("offline", ALL, {"isr": (1,)}, dies(1), NO_LEADER, (1,), 1),
    Row("unclean", ALL, {"isr": (1,)} | UNCLEAN, dies(1), 2, (2,), 1, True),
    Row(
        "last-disk-gone-isr-empty",
        "ABCD",
        {"isr": (1,), "alive": (1,)} | UNCLEAN,
        dies(1),
        NO_LEADER,
        (),
        1,
    ),
    Row(
        "last-disk-gone-isr-kept",
        "GN",
        {"isr": (1,), "alive": (1,)} | UNCLEAN,
        dies(1),
        NO_LEADER,
        (1,),
        1,
    ),
    Row(
        "operator-elects-uncleanly",
        ALL,
        {"isr": (1,), "alive": (3,), "leader": NO_LEADER},
        m.ElectLeaders("unclean"),
        3,
        (3,),
        1,
        True,
    ),
    Row("nothing-to-elect", ALL, {}, m.ElectLeaders("unclean"), 1, (2, 1, 3), 0),
    # Preferred
    Row("preferred", ALL, {}, m.ElectLeaders("preferred"), 2, (2, 1, 3), 1),
    Row("preferred-out-of-sync", ALL, {"isr": (1, 3)}, m.ElectLeaders("preferred"), 1, (1, 3), 0),
    Row("preferred-dead", ALL, {"alive": (1, 3)}, m.ElectLeaders("preferred"), 1, (2, 1, 3), 0),
    Row("preferred-leads", ALL, {"leader": 2}, m.ElectLeaders("preferred"), 2, (2, 1, 3), 0),
    # Controlled shutdown
    Row("leader-moves-on", ALL, {}, m.ControlledShutdown(1), 2, (2, 3), 1),
    Row("follower-goes", "ABCDG", {}, m.ControlledShutdown(3), 1, (2, 1), 1),
    Row("follower-goes", "N", {}, m.ControlledShutdown(3), 1, (2, 1), 0),
    Row("last-member-stays", "ABCDG", LAST_ONE, LAST_STOPS, 1, (1,), 0),
    Row("last-member-stays", "N", LAST_ONE, LAST_STOPS, NO_LEADER, (1,), 1),
    # A restart before the session ended (KAFKA-1120, KIP-380)
    Row("fast-bounce-unseen", "ABCD", {}, m.RegisterBroker(1, 8), 1, (2, 1, 3), 0),
    Row("fast-bounce-seen", "GN", {}, m.RegisterBroker(1, 8), 2, (2, 3), 1),
)


def cases() -> list:
    return [
        pytest.param(row, column, id=f"{row.id}[{PRESETS[column].name}]")
        for row in ROWS
        for column in row.columns
    ]


@pytest.mark.parametrize(("row", "column"), cases())
def test_decision(row: Row, column: str) -> None:
    before = controller(column, **row.state)
    after, _ = machine.step(before, row.message, 0)
    assert (after.leader, after.isr) == (row.leader, row.isr)
    assert after.leader_epoch - before.leader_epoch == row.bumps
    has_changed = (after.leader, after.isr) != (before.leader, before.isr)
    assert (after.partition_epoch > before.partition_epoch) is has_changed
    assert (after.leader not in (NO_LEADER, *before.isr)) is row.is_unclean


def test_l12_shrink_and_expand() -> None:
    """L12: both are accepted; the answer is the stored state, one partition epoch later each."""
    state = controller("N", replicas=(0, 1, 2), isr=(0, 1, 2), leader=1, alive=(0, 1, 2))
    for partition_epoch, isr in ((200, (0, 1)), (201, (0, 1, 2))):
        request = m.AlterPartition(1, 9, 100, partition_epoch, isr, tuple(7 for _ in isr))
        state, outputs = machine.step(state, request, 0)
        answer = m.AlterPartitionResponse(9, 100, partition_epoch + 1, isr)
        assert outputs[0] == m.Send(1, answer)
        assert (state.isr, state.partition_epoch) == (isr, partition_epoch + 1)


FOUR = {"replicas": (1, 2, 3, 4), "isr": (1, 2, 3), "alive": (1, 2, 3, 4)}


@pytest.mark.parametrize(
    ("case", "state", "request_", "error"),
    [
        ("L14-fenced", FOUR | {"alive": (1, 2, 3)}, wants((1, 2, 3, 4)), "INELIGIBLE_REPLICA"),
        ("L14-epoch", FOUR, wants((1, 2, 3, 4), (7, 7, 7, 6)), "INELIGIBLE_REPLICA"),
        ("L14-unfenced", FOUR, wants((1, 2, 3, 4)), None),
        ("epoch-unknown", FOUR, wants((1, 2, 3, 4), (7, 7, 7, -1)), None),
        ("newer-epoch", {}, m.AlterPartition(1, 5, 101, 200, (1,), (7,)), "NOT_CONTROLLER"),
        ("newer-version", {}, m.AlterPartition(1, 5, 100, 201, (1,), (7,)), "NOT_CONTROLLER"),
        ("older-epoch", {}, m.AlterPartition(1, 5, 99, 200, (1,), (7,)), "FENCED_LEADER_EPOCH"),
        ("not-leader", {}, m.AlterPartition(2, 5, 100, 200, (2,), (7,)), "INVALID_REQUEST"),
        (
            "older-version",
            {},
            m.AlterPartition(1, 5, 100, 199, (1,), (7,)),
            "INVALID_UPDATE_VERSION",
        ),
        ("stranger", {}, wants((1, 9)), "INVALID_REQUEST"),
        ("without-leader", {}, wants((2, 3)), "INVALID_REQUEST"),
    ],
)
def test_alter_partition(case, state, request_, error):
    before = controller("N", **state)
    after, outputs = machine.step(before, request_, 0)
    assert outputs[0].to == request_.broker
    assert outputs[0].message.error == error
    assert (after == before) is (error is not None)


def test_l14_shutting_down() -> None:
    """L14: a broker in controlled shutdown may not join; its leader learns so from metadata."""
    state = controller("N", **FOUR)
    state, outputs = machine.step(state, m.ControlledShutdown(4), 0)
    told = next(o.message for o in outputs if isinstance(o.message, m.UpdateMetadata))
    assert m.BrokerInfo(4, 7, is_active=False) in told.brokers
    _, outputs = machine.step(state, wants((1, 2, 3, 4)), 0)
    assert outputs[0].message.error == "INELIGIBLE_REPLICA"


@pytest.mark.parametrize("column", "ABCDG")
@pytest.mark.parametrize(
    ("broker", "epoch", "version", "isr", "error"),
    [
        (1, 100, 200, (1, 2), None),
        (1, 100, 199, (1, 2), "BADVERSION"),
        (1, 100, 201, (1, 2), "BADVERSION"),
        (1, 100, 199, (1, 3, 2), None),  # the node says so already: a retry after a lost answer
        (1, 99, 199, (1, 3, 2), "BADVERSION"),
        (2, 100, 199, (1, 3, 2), "BADVERSION"),
    ],
)
def test_conditional_write(column, broker, epoch, version, isr, error):
    before = controller(column)
    request = m.AlterPartition(broker, 5, epoch, version, isr, tuple(7 for _ in isr))
    after, outputs = machine.step(before, request, 0)
    assert outputs[0].message.error == error
    assert after.leader_epoch == 100
    is_written = error is None and set(isr) != set(before.isr)
    assert after.partition_epoch == (201 if is_written else 200)


def test_who_is_told() -> None:
    after, outputs = machine.step(controller("G"), dies(1), 0)
    orders = [o.to for o in outputs if isinstance(o.message, m.LeaderAndIsr)]
    assert sorted(orders) == [2, 3]
    assert {o.message for o in outputs if isinstance(o.message, m.LeaderAndIsr)} == {after.order}
    told = [o.to for o in outputs if isinstance(o.message, m.UpdateMetadata)]
    assert sorted(told) == [2, 3]


def test_isr_notification_spreads_metadata_and_no_order() -> None:
    state = controller("G")
    after, outputs = machine.step(state, m.IsrChangeNotification(1), 0)
    assert after == state
    assert {type(o.message) for o in outputs} == {m.UpdateMetadata}


def test_impossible_message_raises() -> None:
    with pytest.raises(TypeError, match="not a message for the controller"):
        machine.step(controller("N"), "hello", 0)


@pytest.mark.parametrize(
    ("column", "hears"), [("C", []), ("J", []), ("L", [1, 2, 3]), ("O", [1, 2, 3])]
)
def test_who_hears_of_an_isr_change_by_an_order(column: str, hears: list[int]) -> None:
    """In KRaft every replica reads it from the metadata log; else only its leader knows."""
    _, outputs = machine.step(controller(column), wants((2, 1)), 0)
    orders = [o.to for o in outputs if isinstance(o.message, m.LeaderAndIsr)]
    assert sorted(orders) == hears


@pytest.mark.parametrize("version", PRESETS.values(), ids=str)
@pytest.mark.parametrize("broker", [1, 2], ids=["leader", "follower"])
def test_clean_bounce_is_one_leader_epoch(broker: int, version: KafkaVersion) -> None:
    """The broker that shuts down stays out of the ISR, and comes back without another epoch."""
    bumps = broker == 1 or not version.kraft or version.epoch_bump_on_isr_shrink
    script = f"partition replicas=1,2 latency=5ms\nadvance 1s\nclean_shutdown {broker}"
    stopped = scenario.play(script, version=version).cluster.controller
    assert (stopped.isr, stopped.leader_epoch) == ((3 - broker,), int(bumps))
    again = scenario.play(f"{script}\nstart {broker}\nadvance 1s", version=version)
    assert set(again.cluster.controller.isr) == {1, 2}
    assert again.cluster.controller.leader_epoch == int(bumps)
