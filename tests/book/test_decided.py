"""When a loss was decided, and what both the curve and the explorer choose their steps from."""

from __future__ import annotations

import random
from copy import deepcopy

import pytest

from isrlab.engine.versions import PRESETS
from isrlab.installed import DATA
from isrlab.world import scenario, words
from isrlab.world.actions import KINDS, enabled, play_line
from isrlab.world.decided import MIX, StoryStep, decided, mix_of
from isrlab.world.exploring import Exploration
from isrlab.world.script import Run
from isrlab_book.explorer.decided import DecisionCurves
from isrlab_ops.logs.incidents.look import Findings, look
from isrlab_ops.logs.incidents.retold import retold

BOUNCE = scenario.read("loss_bounce")


def test_the_loss_is_decided_when_the_last_copy_dies_and_never_with_leader_epochs():
    lost = decided(BOUNCE, count=30)
    assert lost.jump is not None and lost.jump.line == "kill 1"
    assert lost.steps[0].share < 0.1 and lost.steps[-1].interval == (1.0, 1.0)
    assert next(step.line for step in lost.steps if step.is_over) == "deliver controller>2 all"
    assert "0.10.2: decided by step 11 of 15, kill 1: the risk goes from" in lost.sentence
    safe = decided(BOUNCE, "0.11", count=6)
    assert safe.jump is None and not any(step.broken for step in safe.steps)
    assert "none of the continuations" in safe.sentence


def test_rows_are_the_same_however_the_work_is_divided():
    alone, divided, other = (
        decided(BOUNCE, count=8, length=6, jobs=jobs, seed=seed)
        for jobs, seed in ((1, 3), (2, 3), (1, 4))
    )
    assert alone == divided
    assert alone != other


def test_the_mix_is_what_breaks_it():
    power = decided("partition replicas=1,2\nproduce 1 m1 acks=1\nstabilize", "0.10.2",
                    mix=mix_of("power=9"), count=20)  # fmt: skip
    quiet = decided("partition replicas=1,2\nproduce 1 m1 acks=1\nstabilize", "0.10.2",
                    mix={"settle": 1.0}, count=20)  # fmt: skip
    assert sum(step.broken for step in power.steps) > 0
    assert sum(step.broken for step in quiet.steps) == 0
    assert "power 9" in power.how and "lose" not in quiet.how


def test_intervals_are_wilsons():
    assert StoryStep(0, "", "", 0, 10).interval == pytest.approx((0, 0.2775), abs=1e-3)
    assert StoryStep(0, "", "", 5, 10).interval == pytest.approx((0.2366, 0.7634), abs=1e-3)


@pytest.mark.parametrize("text", ["kil=1", "kill", "kill=x", "kill=1.2.3"])
def test_a_mix_that_is_none_is_refused_with_those_known(text):
    with pytest.raises(ValueError, match="known: deliver, lose"):
        mix_of(text)
    assert set(MIX) <= set(KINDS)


def test_a_promise_that_is_none_is_refused():
    with pytest.raises(ValueError, match="known: high_watermark_within_log"):
        decided(BOUNCE, promise="luck")
    with pytest.raises(ValueError, match="begins with a 'partition' line"):
        decided("# nothing")


def seen(run: Run) -> list[object]:
    parts = [(words.status(p.cluster), p.cluster.queue, len(p.frames)) for p in run.topic]
    return [*parts, run.violations]


@pytest.mark.parametrize("version", PRESETS.values(), ids=str)
def test_all_that_is_offered_can_be_played_and_a_copy_leaves_its_origin_alone(version):
    chance = random.Random(7)
    for text in ("partition replicas=1,2,3", "partition replicas=1,2\npartition p1 replicas=2"):
        run = Exploration(text, [version.name]).run(version.name, 0)
        for _ in range(5):
            before, other = seen(run), deepcopy(run)
            for action in enabled(run):
                play_line(deepcopy(run), action.line)
            assert seen(run) == before
            play_line(run, line := chance.choice(enabled(run)).line)
            play_line(other, line)
            assert seen(other) == seen(run)


# Recorded incidents


def recorded(name: str) -> Findings:
    return look(DATA / "recordings" / "incidents" / name / "logs")


@pytest.mark.parametrize(
    ("name", "partitions"), [("402-unclean", 6), ("282-unclean", 2), ("440-unclean", 2)]
)
def test_the_engine_loses_the_very_offsets_that_a_recorded_partition_lost(name, partitions):
    findings = recorded(name)
    lost = {(each.topic, each.partition): each for i in findings.incidents for each in i.lost}
    assert len(lost) == partitions
    for key in findings.partitions:
        story = retold(findings.record, key)
        ends = scenario.play(story.text).outcome
        assert not story.differs
        if (key.topic, key.partition) not in lost:
            assert (ends.word, key.topic) == ("safe", "audit")
            continue
        offsets = lost[key.topic, key.partition]
        names = [part.split("..") for part in ends.lost]
        assert (int(names[0][0]), int(names[-1][1])) == (offsets.first, offsets.last)
        assert min(story.states, story.ends) >= 3 and "election.enable=true" in story.how


def test_what_was_not_fetched_is_not_given_to_a_follower_and_was_never_committed():
    findings = recorded("431-acks-one")
    key = next(key for key in findings.partitions if key.topic == "orders")
    story = retold(findings.record, key)
    assert "cut 2 3" in story.text and not story.differs
    run = scenario.play(story.text)
    assert run.outcome.word == "safe"  # acks=1: no promise was made
    assert all("98..126" not in [r.id for r in log.records] for log in run.cluster.disks.values())


def test_a_recorded_loss_was_decided_when_a_replica_without_the_records_came_back():
    findings = recorded("402-unclean")
    story = retold(findings.record, findings.partitions[-1])
    curve = decided(story.text, count=40)
    assert curve.jump is not None and curve.jump.line == "start 3"
    assert curve.steps[-1].is_over and curve.steps[2].share < 0.1
    at = next(line for line in story.text.splitlines() if line.startswith("start 3"))
    assert "2026-11-22 05:47:51" in at and "broker-3/server.log.gz:190" in at


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("412-emptied-last", "broker 2 came back without its log"),
        ("01103-controller-paused", r"the log shows leader 2, ISR 2,3, and the engine has leader"),
        ("0822-leader-woke", "no line names the release"),
    ],
)
def test_a_history_that_the_engine_cannot_follow_is_refused(name, why):
    findings = recorded(name)
    with pytest.raises(ValueError, match=why):
        for key in findings.partitions:
            retold(findings.record, key)


def test_a_curve_is_shown_with_its_sentence_as_text():
    curves = [decided(BOUNCE, version, count=5) for version in ("0.10.2", "0.11")]
    shown = DecisionCurves(curves)._repr_html_()
    assert "0.11: no step decides; none of the continuations break the promise." in shown
    assert 'alt="0.10.2: decided by step' in shown and "<script" not in shown
    hostile = decided("partition replicas=1,2\nproduce 1 '<b>&'", "3.7", count=2)
    assert "&lt;b&gt;&amp;" in DecisionCurves([hostile]).svg
