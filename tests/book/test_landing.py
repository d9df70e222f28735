"""The first page links to each notebook, and each question to the section that answers it."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_markdown_cell, new_notebook

from isrlab.installed import DATA, NOTEBOOKS
from isrlab.report import gallery, notebooks, pages
from isrlab_book.page import landing
from isrlab_book.workbook import start_here

PATHS = {path.stem: path for path in sorted(NOTEBOOKS.glob("*.ipynb"))}
pictures = cache(start_here.pictures)
LINK = re.compile(r"\]\((?:(\d\d_\w+)\.ipynb)?(#[^)]+)?\)")
BLANK = gallery.RunRecord(
    slug="", notebook="", title="", parameters={}, given=[], versions={"isrlab": "1"}, kafka=None,
    seed=None, key="", status="ok",
)  # fmt: skip


def prose(path: Path) -> str:
    cells = nbformat.read(path, as_version=4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def anchors(notebook: str) -> set[str]:
    headings = re.findall(r"^#+ +(.+?) *$", prose(PATHS[notebook]), re.MULTILINE)
    return {"#" + re.sub(r"[*`]", "", heading).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", PATHS)
def test_links_between_notebooks_lead_to_a_section(name):
    for notebook, anchor in LINK.findall(prose(PATHS[name])):
        assert (notebook or name) in PATHS, notebook
        assert not anchor or anchor in anchors(notebook or name), (notebook, anchor)


@pytest.mark.parametrize("name", [name for name in landing.questions() if name])
def test_each_question_names_a_section_that_exists(name):
    assert {question.anchor for question in landing.questions()[name]} <= anchors(name)


def test_the_first_notebook_leads_to_all_others():
    linked = {notebook for notebook, _ in LINK.findall(prose(PATHS[pages.START]))}
    assert linked - {""} == PATHS.keys() - {pages.START}


def test_a_report_of_all_notebooks_does_not_run_the_first():
    assert pages.START not in {notebook.name for notebook in notebooks.find(NOTEBOOKS)}


def test_the_first_notebook_shows_the_first_page_and_the_questions():
    cells = nbformat.read(PATHS[pages.START], as_version=4).cells
    shown = [output.data["text/html"] for cell in cells for output in cell.get("outputs", [])]
    parts = landing.show_first_page, landing.show_questions, landing.show_exercises
    assert shown == [each().data for each in parts], "run it again"
    assert "→" not in gallery.start(), "an index has a way on of its own"


def test_the_pictures_of_the_first_page_are_those_of_the_engine(request):
    for name, picture in pictures().items():
        path = DATA / "pictures" / f"{name}.svg"
        if request.config.getoption("--rewrite"):
            path.write_text(picture, encoding="utf-8")
        assert path.read_text(encoding="utf-8") == picture, "pytest --rewrite draws it anew"


def test_the_moving_picture_shows_each_step_in_its_turn_and_rests_on_the_last():
    turns = re.findall(r"\.f(\d){animation-delay:(-\d+)s}", pictures()["lost"])
    assert [int(delay) for _, delay in turns] == sorted(-5 * n for n in range(1, len(turns) + 1))
    assert pictures()["lost"].count('<g class="frame') == len(turns) == 6
    still = pictures()["lost"].split("prefers-reduced-motion:reduce")[1]
    assert still.startswith("){.frame{animation:none}.f6{visibility:visible}}")
    page = landing.show_first_page().data
    assert page.count('type="radio"') == 7 and "<script" not in page, "play, and each step"


def write(out: Path, name: str, title: str, text: str) -> str:
    cells = [new_markdown_cell(text)]
    record = replace(BLANK, slug=name, notebook=name, title=title)
    gallery.write_run(record, new_notebook(cells=cells), out)
    return (out / "runs" / f"{name}.html").read_text(encoding="utf-8")


def test_a_link_is_text_until_its_page_is_there(tmp_path):
    link = "[lost](07_data_loss.ipynb#The-rule) [start](00_start_here.ipynb)"
    before = write(tmp_path, "06_reading_a_log", "Reading", link)
    assert 'href="07_data_loss' not in before and ">lost</a>" in before
    assert '<a href="../index.html" data-to="00_start_here.ipynb">start</a>' in before
    after = write(tmp_path, "07_data_loss", "Loss <b>", "[read](06_reading_a_log.ipynb)")
    assert '<a href="06_reading_a_log.html" rel="prev">← Reading</a>' in after
    page = (tmp_path / "runs" / "06_reading_a_log.html").read_text(encoding="utf-8")
    assert '<a href="07_data_loss.html#The-rule" data-to="07_data_loss.ipynb#The-rule">' in page
    assert '<a href="07_data_loss.html" rel="next">Loss &lt;b&gt; →</a>' in page
    index = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert '<a href="runs/07_data_loss.html" data-to="07_data_loss.ipynb">Data loss</a>' in index


def test_each_question_has_its_answer_in_a_sentence_and_leads_to_it():
    page = landing.show_questions().data
    question = landing.questions()["14_whose_fault_is_it"][0]
    assert f'<a href="14_whose_fault_is_it.ipynb{question.anchor}">{question.text}</a>' in page
    answered = [group for name, group in landing.questions().items() if name]
    for asked in (each for group in answered for each in group):
        assert asked.answer.endswith(".") and len(asked.answer.split()) <= 40, asked
    assert sorted(q.rank for group in answered for q in group if q.rank) == [*range(1, 11)]
    assert "<h3>Asked most" in page and page.count(f">{question.text}<") == 2
