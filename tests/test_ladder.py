"""The ladder: each schedule does its harm exactly in the generations that its issue names."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pytest

from isrlab.engine.versions import PRESETS, KafkaVersion
from isrlab.workbook import last_replica_standing, the_ladder
from isrlab.world import scenario

LETTERS = {"s": "safe", "l": "lost", "d": "diverged", "f": "flapping", "x": "stalled"}
ROWS = {  # columns A to O
    "message_burst": "fssssssssssssss",
    "steady_with_pauses": "sfsssssssssssss",
    "loss_three_replicas": "lllssssssssssss",
    "divergence_power_loss": "dddllllllllllls",
    "real_offsets": "dddllllllllllll",
    "fast_leader_change": "ddddlllllllllll",
    "joined_too_early": "llllsssssssssss",
    "idle_pauses": "ffffsssssssssss",
    "stalled": "ssssssssxxsssss",
    "flapping": "sssssssssssssff",
    "last_replica_standing": "lllllllllllllls",
}
REPAIRS = {
    "KAFKA-1546": "0.9.0-0.10.1",
    "KAFKA-4485": "0.10.2",
    "KIP-101": "0.11-1.0",
    "KAFKA-3919": "0.11-1.0",
    "KIP-279": "2.0.0",
    "KAFKA-7128": "2.0.1",
    "KAFKA-7152": "2.1",
    "KAFKA-13091": "3.1",
    "KAFKA-19996": "",
    "KIP-966": "4.1-4.3",
}


@pytest.fixture(scope="module")
def matrix() -> the_ladder.Matrix:
    return the_ladder.climb()


@pytest.mark.parametrize("rung", the_ladder.RUNGS, ids=lambda rung: rung.scenario)
def test_row(matrix, rung) -> None:
    expected = [LETTERS[letter] for letter in ROWS[rung.scenario]]
    assert list(matrix[rung.label].values()) == expected
    assert list(matrix[rung.label]) == [v.name for v in PRESETS.values()]


def test_repairs_to_the_very_release(matrix) -> None:
    found = the_ladder.repairs(matrix)
    assert {r.issue: found[r.label] for r in the_ladder.RUNGS} == REPAIRS


def test_stalled_2_8_to_3_0_and_the_next_append_ends_it() -> None:
    text = scenario.read("stalled")
    assert the_ladder.word(scenario.play(text, version="3.0")) == "stalled"
    again = text.replace("consume 1\n", "produce 1 m2 acks=1\nconsume 1\n")
    run = scenario.play(again, version="3.0")
    assert not the_ladder.is_stalled(run)
    assert "reads up to offset 2" in run.printed


def test_the_proposed_rule_ends_the_flapping() -> None:
    proposed = KafkaVersion.of("4.1").with_(expand_waits_under_min_isr=True)
    assert the_ladder.word(the_ladder.play("flapping", proposed)) == "safe"
    assert the_ladder.flapping(the_ladder.play("flapping", "4.1"))[2] >= the_ladder.FLAPS


def test_unknown_schedule_names_the_known() -> None:
    with pytest.raises(ValueError, match="known: message_burst"):
        the_ladder.play("nothing", "3.7")


def test_real_offsets() -> None:
    old, new = (the_ladder.play("real_offsets", v) for v in ("0.9.0", "0.11"))
    assert old.outcome.diverged == ((2, 1_239_740_602),)
    assert len(old.outcome.lost) == len(new.outcome.lost) == 1_239_742_830 - 1_239_740_602
    assert new.outcome.diverged == ()
    bad = "partition replicas=1,2 start=-5"
    with pytest.raises(scenario.ScriptError, match="count between"):
        scenario.play(bad)


@pytest.mark.parametrize("name", ["stalled", "flapping", "real_offsets"])
def test_every_kind_of_cell_is_drawn(name) -> None:
    figure = the_ladder.plot_cell(name, the_ladder.play(name, "2.7"))
    figure.canvas.draw()
    plt.close(figure)


def test_the_chooser_opens_a_cell(matrix) -> None:
    box = the_ladder.cell_chooser(matrix, "stalled", "2.7")
    schedules, versions = box.children[0].children
    before = box.children[1].value
    versions.value = "3.1"
    assert box.children[1].value != before
    assert "Safe in 3.1" in box.children[2].value
    schedules.value = "loss_three_replicas"
    ax = the_ladder.plot_ladder(matrix, chosen=("stalled", "2.7"))
    assert ax.get_title(loc="left").startswith("10 of 11 issues are repaired in Kafka 4.1; 2 of")
    plt.close("all")


# Elections


def test_table_with_and_without_eligible_leader_replicas() -> None:
    last = list(last_replica_standing.FAILURES)[5:]
    before, after = (
        last_replica_standing.table(v, last)["acks=all, min ISR 2"] for v in ("3.7", "4.1")
    )
    assert list(before.values()) == ["lost 1", "lost 1", "lost 1"]
    assert list(after.values()) == ["stop", "stop", "lost 1"]


@pytest.mark.parametrize(
    ("acks", "least", "words"),
    [
        ("1", 2, "go on|go on|go on|lost 1|go on"),
        ("all", 1, "go on|go on|go on|stop|go on"),
        ("all", 2, "go on|go on|stop|stop|go on"),
        ("all", 3, "stop|stop|stop|stop|stop"),
    ],
)
@pytest.mark.parametrize("version", ["0.8.2", "2.5", "4.1"])
def test_failures_that_every_version_takes_alike(version, acks, least, words) -> None:
    first = list(last_replica_standing.FAILURES)[:5]
    found = [last_replica_standing.trial(version, acks, least, failure).word for failure in first]
    assert found == words.split("|")


def test_pictures_of_elections_say_what_they_show() -> None:
    run = scenario.play(scenario.read("last_replica_standing"), version="4.1")
    ax = last_replica_standing.plot_candidates(run, "m1")
    assert ax.get_title(loc="left") == "4.1: the committed m1 survives"
    found = {"acks=all, min ISR 2": {"one": "go on", "two": "lost 1", "three": "stop"}}
    title = last_replica_standing.plot_table(found).get_title(loc="left")
    assert "1 record in 3 failures; writes stop in 1 more" in title
    plt.close("all")
