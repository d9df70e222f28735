"""Exercises are marked by running the answer: solutions pass, other attempts fail."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from isrlab_book import exercise, magic
from isrlab_book.workbook import moving_partitions

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in exercise.LIBRARY.glob("*.txt"))
NOTEBOOKS = [json.loads(p.read_text("utf-8")) for p in sorted((ROOT / "notebooks").glob("*.ipynb"))]
CELLS = ["".join(cell["source"]) for notebook in NOTEBOOKS for cell in notebook["cells"]]
STORED = [cell for cell in CELLS if cell.startswith("%%exercise")]

GIVEN = """\
[ask]
Do it.
[given]
partition replicas=1,2
produce 1 m1 acks=all
stabilize
"""
FLEET = "[ask]\nDo it.\n[fleet]\npartitions=10 minutes=5 stall_every_s=60 stall_s=40\n"


def failed(text: str, answer: str) -> list[str]:
    marks, _ = exercise.mark(exercise.parse("trial", text), answer)
    return [each.text for each in marks if not each.is_met]


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_meets_every_goal_and_doing_nothing_does_not(name):
    asked = exercise.read(name)
    assert asked.goals and asked.hints, "an exercise has goals and hints"
    assert magic.answer(name, asked.sections["solution"]).endswith("Solved.")
    assert "Not yet" in magic.answer(name, "# nothing")


def test_an_answer_is_scored_against_the_shortest_known():
    scored = magic.answer("lose_m2", "kill 1\nkill 2\nadvance 10s")
    assert "3 commands, as few as are known.\nSolved." in scored
    scored = magic.answer("lose_m2", exercise.read("lose_m2").sections["solution"])
    assert "5 commands; the shortest answer that is known has 3." in scored
    fleet = exercise.read("slower_bursts")
    assert not exercise.score(fleet, fleet.sections["solution"])


@pytest.mark.parametrize("name", NAMES)
def test_the_shortest_known_answer_is_not_longer_than_the_solution_and_is_allowed(name):
    each = exercise.read(name)
    assert 1 <= each.fewest <= len(exercise.commands(each.sections["solution"]))
    assert all(each.fewest <= int(most) for most in each.limits.get("commands", ()))


@pytest.mark.parametrize("cell", STORED, ids=lambda cell: cell.split("\n")[0])
def test_a_stored_cell_is_not_the_solution(cell):
    line, _, answer = cell.partition("\n")
    assert "Not yet" in magic.answer(line.removeprefix("%%exercise"), answer)


@pytest.mark.parametrize(
    ("goals", "answer", "text"),
    [
        ("0.10.2: lost", "advance 1s", "0.10.2: the end is safe, but should be lost"),
        ("0.11: lost m1", "advance 1s", "0.11: m1 is kept, but should be lost"),
        ("0.10.2: kept m1", "kill 2\nhard_bounce controller\nstart 2\ndeliver controller>2\n"
         "kill 1\nelect\nstabilize", "0.10.2: m1 is lost, but should be kept"),
        ("0.11: kept m2", "advance 1s", "0.11: m2 was never promised, but m2 should be kept"),
        ("0.11: kept m1", "kill 1\nkill 2",
         "0.11: no broker leads at the end, but m1 should be kept"),
        ("2.5: broken logs_agree", "advance 1s", "2.5: logs_agree holds, but should be broken"),
        ("2.5: prints m9 acknowledged", "advance 1s",
         "2.5: does not print “m9 acknowledged”, but should"),
        ("2.5: hides hw=1", "advance 1s", "2.5: prints “hw=1”, but should not"),
        ("2.5: isr_shrink == 2", "cut 1 2\nproduce 1\nadvance 60s",
         "2.5: isr_shrink is 1, but should be exactly 2"),
        ("2.5: safe\n[limits]\ncommands 1", "advance 1s\nadvance 1s", "2 commands, at most 1"),
        ("2.5: safe\n[limits]\nonly kill", "advance 1s",
         "advance is not to be used here, only kill"),
    ],
)  # fmt: skip
def test_a_wrong_answer_is_told_what_is_wrong(goals, answer, text):
    assert failed(f"{GIVEN}[goals]\n{goals}\n", answer) == [text]


def test_then_is_played_after_the_answer():
    text = GIVEN + "[then]\nproduce 1 m2 acks=all\nstabilize\n[goals]\n2.5: kept m1 m2\n"
    assert failed(text, "advance 1s") == []
    assert failed(text, "advance 1s\n----\nanything") == []


def test_a_fleet_is_run_here_and_its_numbers_are_goals():
    text = f"{FLEET}[limits]\nonly replica_lag_time_max_ms\n[goals]\n2.5: evictions == 0\n"
    (wrong,) = failed(text, "replica_lag_time_max_ms=10000")
    assert re.fullmatch(r"2\.5: evictions is \d+, but should be exactly 0", wrong)
    assert failed(text, "replica_lag_time_max_ms=60000  # longer than a stall") == []
    assert failed(text, "replica_lag_time_max_ms=60000 minutes=4") == [
        "minutes is not to be used here, only replica_lag_time_max_ms"
    ]


def test_produces_that_time_out_count_as_the_slowest():
    script = "produce 1 a acks=all\nadvance 1s\ncut 1 2\nproduce 1 b acks=all\nadvance 60s"
    goals = "timed_out == 1", "p99_ms >= 1000000", "under_replicated_minutes <= 1"
    given = GIVEN.replace("replicas=1,2", "replicas=1,2 replica.lag.time.max.ms=40000")
    assert failed(given + "\n2.5: ".join(["[goals]", *goals]), script) == []


@pytest.mark.parametrize(
    ("line", "cell", "words"),
    [
        ("nothing", "kill 1", ("'nothing'", "lose_m2")),
        ("", "kill 1", ("no exercise ''", "lose_m2")),
        ("lose_m2 twice", "kill 1", ("'twice'", "NAME, --hint, --solution")),
        ("lose_m2 --hint", None, ("expected one argument",)),
        ("lose_m2 --hint 9", None, ("no hint 9", "there are 3")),
        ("lose_m2", "advance 1s\nfrobnicate", ("line 2: frobnicate", "known:")),
        ("lose_m2", "'", ("line 1: '", "quotation")),
    ],
)
def test_what_cannot_be_played_is_an_error_in_words(line, cell, words):
    with pytest.raises(ValueError) as caught:
        magic.answer(line, cell)
    for word in words:
        assert word in str(caught.value)


def test_help_comes_when_it_is_asked_for():
    assert "at most six" in magic.answer("lose_m2")
    assert "truncates" in magic.answer("lose_m2 --hint 1")
    assert magic.answer("lose_m2 --solution").startswith("kill 1")


@pytest.mark.parametrize("text", ["[tasks]\nDo it.\n", "[goals]\n2.5: fine\n"])
def test_a_file_with_a_mistake_says_so(text):
    with pytest.raises(ValueError, match=r"known:|no goal 'fine'"):
        exercise.parse("trial", text)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("yours_ms = 500", "yours_ms = 8_421"),
        ("index_interval_bytes=400).segments[0]", "index_interval_bytes=250).segments[0]"),
        ("offset = 47", "offset = 22"),
        ("response_max_bytes = 900", "response_max_bytes = 970"),
        ("mb_per_s = 20", "mb_per_s = 26.7"),
        ("together = 9", "together = 3"),
    ],
)
def test_an_exercise_that_its_own_cell_marks_has_a_solution(wrong, right, capsys):
    ((notebook, cell),) = (
        (each, "".join(cell["source"]))
        for each in NOTEBOOKS
        for cell in each["cells"]
        if "marked(" in "".join(cell["source"]) and wrong in "".join(cell["source"])
    )
    names = {}
    for text in ("".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"):
        if not text.startswith("%%"):
            tree = ast.parse(re.sub(r"(?m)^%.*", "", text))
            tree.body = [each for each in tree.body if isinstance(each, ast.ImportFrom)]
            exec(compile(tree, "imports", "exec"), names)
    if "cluster" in cell:
        names["cluster"] = moving_partitions.BatchedMove()
    exec(cell, names)
    assert "✗" in capsys.readouterr().out  # after what a kernel says that is compiled
    exec(cell.replace(wrong, right), names)
    assert capsys.readouterr().out.endswith(": solved\n")
