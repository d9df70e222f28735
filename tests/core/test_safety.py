"""Every safety property catches something: a real loss, or a corrupted state."""

from __future__ import annotations

import pytest

from cases import scenes
from cases.bench import LeaderBench, log_of
from isrlab.engine import safety
from isrlab.engine.frozen import replace
from isrlab.engine.versions import PRESETS
from isrlab.world.cluster import Cluster

ALL = tuple(v.name for v in PRESETS.values())


@pytest.mark.parametrize("column", PRESETS)
@pytest.mark.parametrize("name", scenes.SCENES)
def test_a_scene_breaks_what_it_says_and_ends_so(name: str, column: str) -> None:
    run = scenes.play(name, PRESETS[column])
    expected = {fate for fate, columns in scenes.FATES[name].items() if column in columns}
    assert {run.outcome.word, *run.cluster.violations} - {"safe"} == expected


def test_every_property_is_covered() -> None:
    by_scene = {fate for fates in scenes.FATES.values() for fate in fates}
    by_hand = {"high_watermark_within_log", "high_watermark_never_back", "leader_in_isr"}
    ends = {"lost", "diverged", "offline"}
    assert by_scene - ends | by_hand == set(safety.PROPERTIES)


@pytest.mark.parametrize("version", ALL)
def test_acknowledged_is_not_committed(version: str) -> None:
    """With acks=1 a record is lost that was acknowledged, but never committed."""
    run = scenes.play("acks_1_loss", version)
    assert run.outcome.lost == ()
    assert run.outcome.lost_acknowledged == ("m1",)
    assert run.outcome.violations == {}


def test_what_the_observer_says() -> None:
    run = scenes.play("kip_101_divergence", "0.10.2")
    assert run.cluster.violations == {
        "committed_records_survive": "committed m2 not in the log of leader",
        "logs_agree": "offset 1 is m3 on leader 2 but m2 on follower 1",
    }
    kinds = [e.kind for e in run.cluster.events if e.kind in ("lost", "diverged")]
    assert kinds == ["lost", "diverged"]


def test_a_record_that_replaced_a_lost_one_counts_too() -> None:
    """Offset 10 was committed twice: m11 in epoch 1, m21 in epoch 2. Epoch 3 loses m21."""
    run = scenes.play("kip_279", "2.5")
    assert run.outcome.lost == ("m21", "m22", "m23", "m24", "m25")
    assert run.outcome.word == "lost"


# The first three by hand, because no version and no fault breaks them


def view(broker: object, before: object = None, **stored: object) -> safety.View:
    cluster = Cluster("3.7", (1, 2))
    state = replace(cluster.controller.state, **stored)
    controller = replace(cluster.controller, state=state)
    return safety.View({1: broker}, {1: before or broker}, controller)


def test_high_watermark_beyond_the_log() -> None:
    broker = LeaderBench("N", leo=3).broker
    assert safety.high_watermark_within_log(view(broker)) is None
    wrong = replace(broker, log=replace(broker.log, high_watermark=4))
    found = safety.high_watermark_within_log(view(wrong))
    assert found == "broker 1 has hw 4 > leo 3"
    with pytest.raises(ValueError, match="not within the log"):
        broker.log.with_high_watermark(4)


def test_high_watermark_goes_back() -> None:
    bench = LeaderBench("N", leo=3, hw=2)
    lower = replace(bench.broker, log=replace(bench.broker.log, high_watermark=1))
    found = safety.high_watermark_never_back(view(lower, before=bench.broker))
    assert found == "leader 1 moved its hw back from 2 to 1"
    assert safety.high_watermark_never_back(view(bench.broker, before=lower)) is None
    bench.order(6, 2, (1, 2))  # in a new epoch it may go back
    assert safety.high_watermark_never_back(view(lower, before=bench.broker)) is None


def test_leader_outside_its_isr() -> None:
    bench = LeaderBench("N", leo=3)
    assert safety.leader_in_isr(view(bench.broker)) is None
    assert "stored leader 1" in safety.leader_in_isr(view(bench.broker, isr=(2,)))
    with pytest.raises(AssertionError, match=r"leader 1 is not in its ISR \(2,\)"):
        bench.order(5, 2, (2,))
    state = replace(bench.broker.role.isr_state, isr=(2,))
    wrong = replace(bench.broker, role=replace(bench.broker.role, isr_state=state))
    assert safety.leader_in_isr(view(wrong)) == "leader 1 is not in its ISR (2,)"


def test_disagreement_ends_where_the_leader_believes_the_follower_is() -> None:
    """Records beyond a follower's last fetch are not compared, so they may differ."""
    cluster = Cluster("3.7", (1, 2))
    cluster.produce(1, ("a", "b"), acks=1)
    cluster.stabilize()
    other = log_of(cluster.version, (0, 4))
    cluster.brokers[2] = replace(cluster.brokers[2], log=other)
    assert list(safety.disagreements(cluster.observer.view())) == [(2, 0)]
    longer = replace(other, records=cluster.brokers[1].log.records + other.records[2:])
    cluster.brokers[2] = replace(cluster.brokers[2], log=longer)
    assert list(safety.disagreements(cluster.observer.view())) == []


def test_promise_ends_when_too_many_disks_lost_data() -> None:
    run = scenes.play("last_of_the_isr", "3.7")
    one = run.cluster.observer.view()
    assert one.disks_lost == 1
    assert safety.acknowledged_records_survive(one) is not None
    assert safety.acknowledged_records_survive(replace(one, disks_lost=2)) is None
