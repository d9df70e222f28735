"""The ladder: each schedule does its harm exactly in the generations that its issue names."""

from __future__ import annotations

import pytest
from matplotlib.axes import Axes

from isrlab.engine.versions import PRESETS, KafkaVersion
from isrlab.show import controls
from isrlab.workbook import last_replica_standing, the_ladder
from isrlab.world import scenario

pytestmark = pytest.mark.slow  # the whole ladder is climbed
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
def test_every_kind_of_cell_is_drawn_under_its_sentence(name) -> None:
    run = the_ladder.play(name, "0.9.0")
    drawn = the_ladder.plot_cell(name, run)
    title = drawn.get_title(loc="left") if isinstance(drawn, Axes) else drawn.get_suptitle()
    assert title == the_ladder.sentence(run)
    assert len(controls.png(drawn)) > 1_000


def test_the_extent_of_other_records_is_drawn() -> None:
    ax = the_ladder.plot_extents(the_ladder.play("real_offsets", "0.9.0"))
    widths = [[bar.get_width() for bar in bars] for bars in ax.containers]
    assert widths == [[2902, 602], [0, 2228], [0, 72]]
    assert "other records from 1,239,740,602" in [text.get_text() for text in ax.texts]


def test_the_chooser_opens_a_cell(matrix) -> None:
    schedules, versions, text, picture = the_ladder.cell_chooser(matrix, "stalled", "2.7").children
    before = picture.value
    versions.value = "3.1"
    assert picture.value != before
    assert "Safe in 3.1" in text.value
    schedules.value = "loss_three_replicas"
    assert "Safe in 3.1" in text.value
    assert the_ladder.finding(matrix).startswith("10 of 11 issues are repaired in Kafka 4.1; 2 of")


# Elections

FIRST, LAST = (list(last_replica_standing.FAILURES)[part] for part in (slice(5), slice(5, None)))


@pytest.mark.parametrize(
    ("version", "failures", "acks", "least", "words"),
    [
        ("3.7", LAST, "all", 2, "1 record lost|1 record lost|1 record lost"),
        ("4.1", LAST, "all", 2, "writes stop|writes stop|1 record lost"),
        *(
            (version, FIRST, *rest)
            for version in ("0.8.2", "2.5", "4.1")
            for rest in (
                ("1", 2, "go on|go on|go on|1 record lost|go on"),
                ("all", 1, "go on|go on|go on|stop|go on"),
                ("all", 2, "go on|go on|stop|stop|go on"),
                ("all", 3, "stop|stop|stop|stop|stop"),
            )
        ),
    ],
)
def test_what_each_failure_brings(version, failures, acks, least, words) -> None:
    runs = [last_replica_standing.trial(version, acks, least, failure) for failure in failures]
    outcomes = [last_replica_standing.word(run).removeprefix("writes ") for run in runs]
    assert outcomes == words.replace("writes ", "").split("|")


@pytest.mark.parametrize(
    ("version", "title", "last"),
    [
        ("3.7", "3.7: the committed m1 is lost", "★ ISR\nno m1"),
        ("4.1", "4.1: the committed m1 survives", "ISR\nhas m1"),
    ],
)
def test_candidates_are_drawn_change_by_change(version, title, last) -> None:
    run = scenario.play(scenario.read("last_replica_standing"), version=version)
    ax = last_replica_standing.plot_candidates(run, "m1")
    assert ax.get_title(loc="left") == title
    columns = len(ax.get_xticks())
    words = [text.get_text() for text in ax.texts]
    assert words[0] == "★ ISR\nhas m1"
    assert words[columns - 1] == last  # of broker 1


def test_candidates_name_the_time_without_a_leader() -> None:
    script = (
        "partition replicas=1\nproduce 1 m1 acks=1\nstabilize\nkill 1\nelect\nadvance 4s\nstart 1"
    )
    ax = last_replica_standing.plot_candidates(scenario.play(script, version="3.7"), "m1")
    assert ax.get_title(loc="left") == "3.7: the committed m1 survives; 4 s without a leader"


def test_the_table_names_the_settings_that_lose_least() -> None:
    cells = {
        "acks=1": {"one": "2 records lost", "two": "writes go on", "three": "writes go on"},
        "acks=all": {"one": "writes go on", "two": "1 record lost", "three": "writes stop"},
    }
    title = last_replica_standing.plot_table(cells).get_title(loc="left")
    assert title == "acks=all loses least: 1 record in 3 failures; writes stop in 1 more"
