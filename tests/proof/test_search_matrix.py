"""The stored answers of the search are complete and right, for each question and release."""

from __future__ import annotations

import pytest

from isrlab_proof.search import matrix

REPAIRED = [*matrix.COLUMNS][-1]
SAMPLE = [
    ("a restarted follower, two crashes", "0.10.2"),
    ("a restarted follower, two crashes", "2.4"),
    ("two leaders, one more record", "0.11"),
    ("two leaders, one more record", "2.0.0"),
    ("unclean elections", "0.11"),
    ("one of two partitions is moved and back", "4.3"),
    ("one of two partitions is moved and back", "4.3: only replicas are eligible"),
    ("one of two partitions is moved and back", "4.3: min ISR of its own replicas"),
    ("one of two partitions is moved and back", REPAIRED),
    ("a drain while two brokers are down", "4.3"),
    ("a move is cancelled", "4.1"),
    ("a move is cancelled", REPAIRED),
]


@pytest.mark.parametrize(("question", "rules"), SAMPLE)
def test_an_answer_is_what_the_search_says_today(question: str, rules: str) -> None:
    """If several schedules are shortest, any of them is right."""
    known, found = matrix.stored()[question, rules], matrix.ask(question, rules)
    assert found._replace(seconds=known.seconds, schedule=known.schedule) == known


def test_every_question_is_answered_and_every_break_plays_under_the_clock() -> None:
    answers = matrix.stored()
    for question in matrix.QUESTIONS:
        wanted = {*matrix.COLUMNS}
        wanted |= {r for r in matrix.SWITCHED if answers[question, matrix.base_of(r)].actions}
        assert {rules for asked, rules in answers if asked == question} == wanted
    assert all(answer.is_played == bool(answer.actions) for answer in answers.values())


def test_all_repairs_together_keep_every_promise() -> None:
    ends = {question: matrix.stored()[question, REPAIRED].actions for question in matrix.QUESTIONS}
    assert set(ends.values()) == {0}


def test_the_ladder_is_found() -> None:
    """Each repair closes its hole, and the next needs one more record, or one more replica."""
    answers = matrix.stored()
    last = {question: [r for r in matrix.RELEASES if answers[question, r].actions][-1]
            for question in list(matrix.QUESTIONS)[:5]}  # fmt: skip
    assert list(last.values()) == ["0.10.2", "0.10.2", "0.11", "2.0.0", "2.0.1"]
    race = [r for r in matrix.RELEASES if answers["an order meets a request", r].actions]
    assert race[0] == "3.6"


def test_a_changed_question_is_asked_again_and_the_rest_is_kept(tmp_path, monkeypatch) -> None:
    path, answers = tmp_path / "answers.csv", matrix.stored()
    first, second = (answers["a move is cancelled", rules] for rules in ("4.1", "4.3"))
    matrix.keep(first, path)
    matrix.keep(second._replace(asked="something else"), path)
    assert list(matrix.stored(path).values()) == [first]
    matrix.keep(second, path)
    assert list(matrix.stored(path).values()) == [first, second]
