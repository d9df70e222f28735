"""The search finds the historic losses by itself: each stored find, again, from its seed."""

from __future__ import annotations

import pytest

from isrlab.engine.versions import PRESETS
from isrlab.world import scenario
from isrlab_proof.search.at_random import Goal, Schedule, find, is_reached

CLEAN = "partition replicas=1,2 unclean.leader.election.enable=false"
UNCLEAN = "partition replicas=1,2 unclean.leader.election.enable=true"
ELECTIONS = ("produce", "kill", "start", "elect", "stabilize")
LOSS = Goal("committed_records_survive", "0.10.2", "0.11", CLEAN, ("controller",))
DIVERGENCE = Goal("logs_agree", "0.10.2", "0.11", UNCLEAN, ("power", "controller"))
FAST_CHANGE = Goal("logs_agree", "0.11", "2.0.1", UNCLEAN, words=ELECTIONS, length=60)
FINDS = {  # scenario: its seed, and what was looked for
    "found_loss": (3177, LOSS),
    "found_divergence": (1555, DIVERGENCE),
    "found_fast_leader_change": (2198, FAST_CHANGE),
}


@pytest.mark.parametrize("name", FINDS)
def test_the_seed_finds_the_scenario_again(name: str) -> None:
    seed, goal = FINDS[name]
    (shortest,) = find(goal, [seed])
    text = scenario.read(name)
    assert f"seed {seed}" in text
    played = [line for line in text.splitlines() if line and line[0] not in "# -"]
    assert shortest == (seed, "\n".join(line for line in played if not line.startswith("version")))


@pytest.mark.parametrize("name", FINDS)
def test_every_line_of_a_find_is_needed(name: str) -> None:
    _, goal = FINDS[name]
    lines = [c.text for b in scenario.play(scenario.read(name)).blocks for c in b.commands]
    lines = [line for line in lines if not line.startswith("version")]
    assert is_reached(goal, lines)
    for left_out in range(1, len(lines)):
        shorter = lines[:left_out] + lines[left_out + 1 :]
        assert not is_reached(goal, shorter), f"without {lines[left_out]!r} it is found as well"


@pytest.mark.parametrize("version", PRESETS.values(), ids=str)
def test_no_high_watermark_above_its_log(version: object) -> None:
    faults = ("power", "unclean", "controller")
    goal = Goal("high_watermark_within_log", str(version), partition=UNCLEAN, faults=faults)
    assert not list(find(goal, range(40)))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"property": "luck"}, "known: high_watermark_within_log"),
        ({"version": "9.1"}, "unknown Kafka version '9.1'"),
        ({"unless": "soon"}, "unknown Kafka version 'soon'"),
        ({"partition": "partition replicas=1,1"}, "1,1"),
        ({"words": ("explode",)}, "no command 'explode'"),
    ],
)
def test_a_wrong_goal_says_what_would_be_right(wrong: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Goal(**{"property": "logs_agree", "version": "0.11"} | wrong)


def test_a_schedule_ends_where_no_word_that_is_asked_for_makes_sense() -> None:
    schedule = Schedule("3.7", "partition replicas=1,2", ())
    for _ in range(5):
        schedule.choose(0, 0, ("kill",))
    assert [line.split()[0] for line in schedule.lines[2:]] == ["kill", "kill"]
    assert not schedule.run.cluster.brokers
