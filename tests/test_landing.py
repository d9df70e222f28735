"""The first page leads to each notebook, and a question to the very section that answers it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_markdown_cell, new_notebook

from isrlab.report import gallery, landing, notebooks

PATHS = {path.stem: path for path in sorted(landing.NOTEBOOKS.glob("*.ipynb"))}
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
    linked = {notebook for notebook, _ in LINK.findall(prose(PATHS[landing.START]))}
    assert linked - {""} == PATHS.keys() - {landing.START}


def test_a_report_of_all_notebooks_does_not_run_the_first():
    assert landing.START not in {notebook.name for notebook in notebooks.find(landing.NOTEBOOKS)}


def test_the_first_notebook_shows_what_the_others_found():
    cells = nbformat.read(PATHS[landing.START], as_version=4).cells
    (shown,) = [output for cell in cells for output in cell.get("outputs", [])]
    assert shown.data["text/html"] == landing.show_questions().data, "run it again"
    assert "→" not in gallery.start(), "an index has a way on of its own"


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


def test_questions_stand_above_what_their_notebook_found():
    page = landing.questions_html({"14_whose_fault_is_it": ("Slow", "<b>149</b> timed out.")})
    question = landing.questions()["14_whose_fault_is_it"][0]
    assert f'<a href="14_whose_fault_is_it.ipynb{question.anchor}">{question.text}</a>' in page
    assert "&lt;b&gt;149&lt;/b&gt; timed out." in page
    assert landing.questions()["13_your_cluster"][0].text not in page
