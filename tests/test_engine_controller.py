"""The controller: elections, the removal of dead brokers, and whom it lets into the ISR.

Cases L1 to L16 are those of PartitionChangeBuilderTest and ReplicationControlManagerTest.
"""

from __future__ import annotations

import pytest
from cases.table import Case, in_every_column, play

from isrlab.engine import controller as machine
from isrlab.engine import messages as m
from isrlab.engine.frozen import replace
from isrlab.engine.model import NO_LEADER, Settings
from isrlab.engine.partition import Controller, PartitionState
from isrlab.engine.versions import PRESETS, KafkaVersion
from isrlab.world import scenario


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
    state = PartitionState(replicas, leader, isr, 100, 200)
    return Controller(version, settings, state, live)


class ControllerBench:
    """What the controller stores after a message; `bumps` counts leader epochs."""

    def __init__(self, column: str, **state: object) -> None:
        self.before = self.after = controller(column, **state)

    def tell(self, kind: str, *fields: object) -> None:
        self.after, _ = machine.step(self.before, getattr(m, kind)(*fields), 0)
        before, after = self.before.state, self.after.state
        has_changed = replace(after, partition_epoch=before.partition_epoch) != before
        assert (self.after.partition_epoch > self.before.partition_epoch) is has_changed

    def see(self, name: str) -> object:
        if name == "bumps":
            return self.after.leader_epoch - self.before.leader_epoch
        if name == "is_unclean":
            return self.after.leader not in (NO_LEADER, *self.before.isr)
        return getattr(self.after, name)


@in_every_column("controller")
def test_decision(case: Case, column: str) -> None:
    play(ControllerBench(column, **case.setup), case.steps)


def dies(broker: int) -> m.SessionExpired:
    return m.SessionExpired(broker, 7)


def wants(isr: tuple[int, ...], epochs: tuple[int, ...] | None = None) -> m.AlterPartition:
    return m.AlterPartition(1, 5, 100, 200, isr, epochs or tuple(7 for _ in isr))


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
