"""The controller: elections, dead brokers, admission to the ISR, eligible leader replicas.

The cases are in cases/controller.txt and elr.txt; Kafka's own are named there by their ids.
"""

from __future__ import annotations

import pytest

from cases.bench import ControllerBench
from cases.table import Case, in_every_column, play
from isrlab.engine import controller as machine
from isrlab.engine.versions import PRESETS, KafkaVersion
from isrlab.world import scenario


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


@pytest.mark.parametrize(("alive", "isr"), [((1, 2, 3), (2, 1)), ((1, 2), (2, 1, 3))])
def test_a_new_kraft_controller_fences_only_who_was_there(alive, isr) -> None:
    before = ControllerBench("N", alive=alive).before
    assert machine.fail_over(before, before.alive[:2])[0].isr == isr
