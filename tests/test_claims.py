"""The claims: every row is there, every verdict computes, and each is of the class it was."""

from __future__ import annotations

import pytest

from isrlab.engine import rules
from isrlab.workbook import what_the_sources_say as show
from isrlab.workbook.claims import CLAIMS, THEMES, Claim, Finding, Kind, of_theme
from isrlab.workbook.claims.model import By, Case, Statement, spans
from isrlab.workbook.claims.recorded import KAFKA, absences, events
from isrlab.world import scenario

RIGHT, SOME, PARTLY, WRONG, NOTE = Kind
# The class of every row, and some words of its verdict: a change of the engine shows here.
EXPECTED = {
    1: (PARTLY, "000: off by one; 003: right"),
    2: (SOME, "001, 10 s and 5 s: right in 0.10.2-2.4 only"),
    3: (
        SOME,
        "002, set at the end only: right in 0.9.0-0.10.1 only",
    ),
    4: (SOME, "the ISR alone: right up to 0.10.1 only"),
    5: (PARTLY, "passes an ISR member: wrong; 000, else a follower never comes back: right"),
    6: (PARTLY, "leaving: right; it decides joining: wrong"),
    7: (WRONG, "off by one"),
    8: (SOME, "right up to 2.0"),
    9: (SOME, "right up to 3.6 only"),
    10: (PARTLY, "idle producer: right; busy producer: wrong"),
    11: (PARTLY, "right only: all replicas in the ISR"),
    12: (PARTLY, "only with weak settings: wrong"),
    13: (PARTLY, "right only: unclean election allowed"),
    14: (PARTLY, "right only: nothing written since"),
    15: (PARTLY, "right only: no election between"),
    16: (SOME, "the last replica loses power: right from 4.1 on only"),
    17: (PARTLY, "whose setting it is: wrong"),
    18: (PARTLY, "right only: ISR of 2"),
    19: (PARTLY, "a burst drops followers: right only: a look falls into it"),
    20: (PARTLY, "name: wrong; new in 0.9: wrong; default 10 s: right up to 2.4 only"),
    21: (SOME, "always one fetch behind: out: right in 0.9.0-0.10.1 only"),
    22: (PARTLY, "lost before 0.11: right"),
    23: (WRONG, "the response is lost: wrong; it arrives: wrong"),
    24: (NOTE, "the answer is yes"),
    25: (PARTLY, "002, MetadataRequest: wrong"),
    26: (PARTLY, "by release: right; with an older inter.broker.protocol.version: wrong"),
    27: (SOME, "right from 3.1 on only"),
    28: (PARTLY, "lag time raised in 2.5: right; it alone: wrong"),
    29: (SOME, "right in 0.10.1-2.3 only"),
    30: (SOME, "records of an older format: right in 2.4-2.5 only"),
    31: (WRONG, "wrong"),
    32: (RIGHT, "right"),
    33: (RIGHT, "the idle topic stays whole: right"),
    34: (RIGHT, "right"),
}


def test_every_row_is_there_once() -> None:
    assert list(CLAIMS) == list(range(1, 35))
    assert sorted(c.number for t in THEMES for c in of_theme(t)) == list(CLAIMS)


@pytest.mark.parametrize("number", CLAIMS)
def test_verdict(number: int) -> None:
    finding, (kind, words) = CLAIMS[number].verdict, EXPECTED[number]
    assert finding.kind == kind, finding.word
    assert words in finding.word
    assert finding.evidence.endswith((".", ".)"))


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=lambda c: str(c.number))
def test_only_what_no_run_can_decide_is_a_matter_of_record(claim: Claim) -> None:
    decided = [s for s in claim.verdict.statements if s.by != By.RECORD]
    assert decided, "at least one statement is computed"
    assert all(s.cases for s in decided)
    assert all(s.citation for s in claim.verdict.statements if s.by == By.RECORD)


@pytest.mark.parametrize("claim", [c for c in CLAIMS.values() if c.script], ids=lambda c: c.number)
def test_scripts_can_be_shown(claim: Claim) -> None:
    scenario.play(claim.script, version=claim.version)


def test_an_unknown_theme_names_the_known() -> None:
    with pytest.raises(ValueError, match="high watermark"):
        of_theme("colours")


def test_a_verdict_turns_with_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "can_join_isr", lambda _, end, mark, start: end > mark)
    assert CLAIMS[7].decide().word == "right"


# Verdicts follow from cases


def statement(*agrees: bool, by: By = By.VERSION) -> Statement:
    names = ("0.8.2", "0.9.0-0.10.1", "0.10.2", "0.11-1.0", "1.1")
    cases = (Case(names[i], "a", "a" if a else "b") for i, a in enumerate(agrees))
    return Statement("it", tuple(cases), by)


@pytest.mark.parametrize(
    ("agrees", "kind", "word"),
    [
        ((True, True), RIGHT, "right"),
        ((False, False), WRONG, "wrong"),
        ((True, True, False), SOME, "right up to 0.10.1 only"),
        ((False, True, False), SOME, "right in 0.9.0-0.10.1 only"),
        ((False, False, True, False), SOME, "right in 0.10.2 only"),
        ((False, False, True, True), SOME, "right from 0.10.2 on only"),
        ((True, False, True), SOME, "right up to 0.8.2 and from 0.10.2 on only"),
    ],
)
def test_word_of_releases(agrees: tuple[bool, ...], kind: Kind, word: str) -> None:
    assert (statement(*agrees).kind, statement(*agrees).word) == (kind, word)


def test_word_of_situations_and_numbers() -> None:
    assert statement(True, False, by=By.SITUATION).word == "right only: 0.8.2"
    off = Statement("it", (Case("a", 7, 6), Case("b", 5, 4)))
    assert (off.kind, off.word) == (WRONG, "off by one")
    assert Statement("it", (Case("a", 7, 5),)).word == "wrong"
    assert Statement("it", (Case("a", True, False),)).word == "wrong"


def test_spans_do_not_claim_the_beginning_of_history() -> None:
    cases = (Case("0.11-1.0", 1, 1), Case("1.1", 1, 2))
    assert spans(cases) == "in 0.11-1.0"


def test_kind_of_several_statements() -> None:
    right, wrong = statement(True), statement(False)
    some, noted = statement(True, False), Statement("x", by=By.RECORD, citation="y")
    assert Finding((right, noted), "e").kind == RIGHT
    assert Finding((right, some), "e").kind == SOME
    assert Finding((right, wrong), "e").kind == PARTLY
    assert Finding((noted,), "e").kind == NOTE


# The recordings


@pytest.mark.parametrize(("kafka", "asked"), [("3.9", 24), ("4.1", 15)])
def test_recordings_are_read_as_their_readme_says(kafka: str, asked: int) -> None:
    assert sum(e["kind"] == "isr_shrink" for e in events(kafka)) == asked
    assert all(a.start_ms < a.end_ms for a in absences(kafka))
    assert kafka in KAFKA


# What is shown


@pytest.mark.parametrize("theme", THEMES)
def test_table_has_every_claim_of_its_theme(theme: str) -> None:
    page = show.table(theme).data
    assert page.count("<tr>") == len(of_theme(theme)) + 1
    assert "<script" not in page


def test_text_is_escaped() -> None:
    evil = Statement("<script>", (Case("<b>", "<i>", "<i>"),))
    page = show.verdict_html(Finding((evil,), "<u>"))
    assert "<script>" not in page and "<u>" not in page


def test_picker_shows_the_chosen_row() -> None:
    box = show.picker(5)
    choice, page = box.children
    choice.value = 8
    assert "Row 8" in page.value and "KAFKA-7152" in page.value


def test_overview_has_a_field_for_every_row() -> None:
    ax = show.plot_overview()
    assert len(ax.patches) == len(CLAIMS)
    assert "Of 30 claims" in ax.get_title(loc="left")
