"""The controller: elections, dead brokers, whom it lets into the ISR, eligible leader replicas.

The cases are in cases/controller.txt and elr.txt; Kafka's own are named there by their ids.
"""

from __future__ import annotations

import pytest
from cases.table import Case, in_every_column, play

from isrlab.engine import controller as machine
from isrlab.engine import kraft
from isrlab.engine import messages as m
from isrlab.engine.frozen import replace
from isrlab.engine.model import NO_LEADER, Settings
from isrlab.engine.partition import Controller, PartitionState
from isrlab.engine.versions import PRESETS, KafkaVersion
from isrlab.world import scenario

ANSWERS = m.AlterPartitionResponse | m.ElectLeadersResponse


class ControllerBench:
    """One partition in leader epoch 100 and partition epoch 200; brokers live in their epoch 7."""

    def __init__(
        self,
        column: str,
        replicas: tuple[int, ...] = (2, 1, 3),
        isr: tuple[int, ...] | None = None,
        leader: int = 1,
        alive: tuple[int, ...] | None = None,
        unclean: bool = False,
        min_isr: int = 2,
        **state: object,
    ) -> None:
        version = PRESETS[column]
        settings = Settings.of(
            version, unclean_leader_election_enable=unclean, min_insync_replicas=min_isr
        )
        live = (m.BrokerInfo(i, 7) for i in sorted(replicas if alive is None else alive))
        stored = PartitionState(replicas, leader, replicas if isr is None else isr, 100, 200)
        self.before = self.after = Controller(
            version, settings, replace(stored, **state), tuple(live)
        )
        self.sent: list[m.Send] = []

    # What may be done

    def tell(self, kind: str, *fields: object) -> None:
        message = getattr(m, kind)(*fields)
        after, outputs = machine.step(self.after, message, 0)
        self._become(after)
        self.sent = [output for output in outputs if isinstance(output, m.Send)]
        assert {o.message for o in self.sent if isinstance(o.message, m.LeaderAndIsr)} <= {
            after.order
        }
        for answer in self.answers:
            assert answer.to == getattr(message, "broker", m.CLIENT)
            assert after == self.before or not answer.message.error

    def change(self, isr: tuple[int, ...], doubtful: tuple[int, ...] = ()) -> None:
        """What KRaft makes of a target ISR; the disks of `doubtful` may have lost data."""
        self._become(kraft.change(self.after, "preferred", doubtful, isr=isr))
        assert (self.after is self.before) is (self.after.state == self.before.state)

    def _become(self, after: Controller) -> None:
        self.before, self.after = self.after, after
        before, state = self.before.state, after.state
        has_changed = replace(state, partition_epoch=before.partition_epoch) != before
        assert state.partition_epoch - before.partition_epoch == has_changed

    def wants(
        self,
        isr: tuple[int, ...],
        broker_epochs: tuple[int, ...] | None = None,
        is_recovering: bool = False,
    ) -> None:
        """The leader asks for this ISR."""
        state, epochs = self.after.state, broker_epochs or tuple(7 for _ in isr)
        numbers = state.leader_epoch, state.partition_epoch
        self.tell("AlterPartition", state.leader, 5, *numbers, isr, epochs, is_recovering)

    def fence(self, *brokers: int) -> None:
        for broker in brokers:
            self.tell("SessionExpired", broker, 7)

    def unfence(self, *brokers: int) -> None:
        for broker in brokers:
            self.tell("RegisterBroker", broker, 7)

    # What may be seen

    @property
    def answers(self) -> list[m.Send]:
        return [output for output in self.sent if isinstance(output.message, ANSWERS)]

    def see(self, name: str) -> object:
        if name == "bumps":
            return self.after.leader_epoch - self.before.leader_epoch
        if name == "is_unclean":
            return self.after.leader not in (NO_LEADER, *self.before.isr)
        if name == "error":
            return self.answers[-1].message.error
        if name == "answer":
            answer = self.answers[-1].message
            return answer.leader_epoch, answer.partition_epoch, answer.isr
        if name in ("orders", "told"):
            kind = m.LeaderAndIsr if name == "orders" else m.UpdateMetadata
            return sorted(output.to for output in self.sent if isinstance(output.message, kind))
        if name == "told_inactive":
            known = next(o.message for o in self.sent if isinstance(o.message, m.UpdateMetadata))
            return [broker.id for broker in known.brokers if not broker.is_active]
        return getattr(self.after.state, name)


@in_every_column("controller", "elr")
def test_decision(case: Case, column: str) -> None:
    play(ControllerBench(column, **case.setup), case.steps)


def test_impossible_message_raises() -> None:
    with pytest.raises(TypeError, match="not a message for the controller"):
        machine.step(ControllerBench("N").after, "hello", 0)


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
    ordered = [line for line in run.lines if "metadata record" in line]
    assert any("is_recovering=True" in line for line in ordered)


def test_no_recovery_state_before_3_2() -> None:
    old = KafkaVersion.of("3.1").with_(kraft=True)
    run = scenario.play(RECOVERY, version=old)
    assert not any(f.controller.state.is_recovering for f in run.frames)
