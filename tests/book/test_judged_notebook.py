"""The notebook *Who judges this?*: what it counts, draws and says about a wrong engine."""

from __future__ import annotations

import re

import pytest

from isrlab.engine.versions import KafkaVersion
from isrlab.show.colours import OUTCOMES, PALE, WHITE
from isrlab_book.workbook.who_judges_this import by_kafka as notebook
from isrlab_book.workbook.who_judges_this import hunted
from isrlab_proof import judged


def test_a_wrong_rule_shows_in_the_steps() -> None:
    with pytest.raises(ValueError, match="no rule 'x'; known"):
        notebook.step_player("3.9.2", 0, wrong="x")
    with pytest.raises(ValueError, match="one form only"):
        notebook.step_player("3.9.2", 0, wrong="expand_waits_under_min_isr")
    player = notebook.step_player("3.9.2", 32, wrong="high_watermark_set")
    slider = player.inputs[0]
    assert not player.draw().alt.endswith(" 0 differ")
    slider.value -= 1
    assert player.draw().alt.endswith(" 0 differ")


def test_what_is_drawn_of_a_step_marks_what_is_new_and_what_differs() -> None:
    before, step = [*notebook.one("3.9.2", 2, "partition").beside(KafkaVersion.of("3.9.2"))][1:3]
    assert step.command == ["append", 1]
    wrong = step._replace(engine=step.engine | {"hw": 7})
    drawn = notebook.draw_step(before, wrong, "a title").parts
    rects = re.findall(r'<rect x="(.*?)" y="(.*?)" width="(.*?)" .*?fill="(.*?)"/>', drawn)
    texts = re.findall(r'<text x="(.*?)" y="(.*?)".*?>(.*?)<', drawn)
    inside = {(float(x) + float(w) / 2 + 1, float(y) + 14): fill for x, y, w, fill in rects}
    fields = [(inside.get((float(x), float(y))), text) for x, y, text in texts]
    assert (OUTCOMES["diverged"], "7") in fields
    assert {PALE, WHITE} < {colour for colour, _ in fields}  # what is new, what is as before


@pytest.mark.parametrize(
    ("kind", "command", "text"),
    [
        ("partition", ["check"], "check"),
        ("partition", ["order", 2, 2, [1, 3]], "order, epoch 2, partition epoch 2, isr 1,3"),
        ("partition", ["answer", None], "answer, error -"),
        ("follower", ["diverges", 3, 1, 2], "diverges, base 3, epoch 1, end offset 2"),
    ],
)
def test_a_command_is_put_into_words(kind, command, text) -> None:
    assert notebook.spoken(kind, command) == text


def test_a_schedule_that_is_not_stored_is_refused() -> None:
    with pytest.raises(ValueError, match="valid: 0 to"):
        notebook.one("3.9.2", 1000, "partition")


def test_what_is_left_is_named_with_its_reason() -> None:
    shown = notebook.found_table()
    left = [entry for entry in judged.found().values() if notebook.is_left(entry)]
    said = [row["in the engine"] for row in shown]
    assert sum(text.startswith("different on purpose: ") for text in said) == len(left)
    counts = judged.figures().assign(differ=0)
    said = notebook.finding(counts, notebook.mutants()[0])
    assert f"and {len(left)} remain on purpose" in said
    assert "wrong variants of the rules of 4.4.0" in said


def test_each_kind_of_the_hunt_has_a_promise_in_words_and_a_scenario() -> None:
    for name, kind in hunted.kinds().items():
        assert set(hunted.promises(kind)) <= set(hunted.PROMISES.values()), name
        assert hunted.shortest(name)[0].startswith(("cluster", "whole"))
    with pytest.raises(ValueError, match="unknown kind 'x'; known: index"):
        hunted.shortest("x")
    rows = hunted.plot_promises().get_yticklabels()
    assert {" ".join(row.get_text().split()) for row in rows} == set(hunted.PROMISES.values())
    assert hunted.held()["holds"].sum() > 9
