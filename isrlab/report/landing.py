"""The first page of a report, also a notebook: a moving picture, three doors and questions.

Theory of operation. `notebooks/00_start_here.ipynb` is prose, a cell that shows a moving picture
and three doors, and a cell that shows the questions of operators; a report's index shows the same.
In a page, a link to a notebook such as `[...](07_data_loss.ipynb#The-rule)` leads to the notebook's
page as soon as there is one; until then it is plain text. The pictures in `data/pictures` are drawn
from the engine's runs (`workbook/start_here.py`; `pytest tests/test_landing.py --rewrite`).
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import nbformat
import yaml
from IPython.display import HTML

from isrlab.installed import DATA
from isrlab.report.notebooks import tags

TEMPLATES = jinja2.FileSystemLoader(Path(__file__).with_name("templates"))
PAGES = jinja2.Environment(loader=TEMPLATES, autoescape=True)
START, FILM = "00_start_here", "lost_step_by_step"  # the notebook, the scenario of its picture
LINK = re.compile(r'<a (?:href="[^"]*" )?(?:href|data-to)="(\d\d_\w+)\.ipynb(#[^"]*)?">')


@dataclass(frozen=True)
class Question:
    """An operator's question, its answer in one sentence, and the section that shows why."""

    text: str
    answer: str
    section: str

    @property
    def anchor(self) -> str:
        return "#" + self.section.replace(" ", "-")


def questions() -> dict[str, list[Question]]:
    """The questions that each notebook answers, by notebook; under "" those that none answers."""
    loaded = yaml.safe_load((DATA / "questions.yaml").read_text(encoding="utf-8"))
    return {
        notebook: [
            Question(text, answer.replace("`", ""), section)
            for section, asked in sections.items()
            for text, answer in asked.items()
        ]
        for notebook, sections in loaded.items()
    }


def show_first_page() -> HTML:
    """For 00_start_here: a moving picture of a record that is lost, and three doors."""
    pictures = {p.stem: p.read_text(encoding="utf-8") for p in (DATA / "pictures").glob("*.svg")}
    coded = {name: b64encode(svg.encode()).decode() for name, svg in pictures.items()}
    steps = pictures["lost"].count('<g class="frame')
    template = PAGES.get_template("first_page.html.j2")
    return HTML(template.render(film=pictures["lost"], steps=steps, pictures=coded))


def show_questions() -> HTML:
    """For 00_start_here: the questions, each with its answer in a sentence."""
    return HTML(PAGES.get_template("questions.html.j2").render(questions=questions()))


def linked(page: str, files: Mapping[str, str]) -> str:
    """`page` with links from notebooks to their files, for those that have one in `files`."""

    def link(match: re.Match[str]) -> str:
        notebook, anchor = match[1], match[2] or ""
        href = f'href="{files[notebook]}{anchor}" ' if notebook in files else ""
        return f'<a {href}data-to="{notebook}.ipynb{anchor}">'

    return LINK.sub(link, page)


def finding(notebook: nbformat.NotebookNode) -> str:
    """The text output of cells tagged `finding`, on one line."""
    texts = [_text(output) for cell, output in outputs(notebook) if "finding" in tags(cell)]
    return " ".join(" ".join(texts).split())


def outputs(notebook: nbformat.NotebookNode) -> Iterator[tuple[Any, Any]]:
    """Every output, with its cell."""
    return ((cell, output) for cell in notebook.cells for output in cell.get("outputs", []))


def _text(output: nbformat.NotebookNode) -> str:
    """The text of one output, "" for a figure. The quotes of a shown str are removed."""
    if output.output_type == "stream":
        return output.text if output.name == "stdout" else ""
    shown = output.get("data", {})
    if "image/png" in shown:
        return ""
    plain = shown.get("text/markdown") or shown.get("text/plain", "")
    return re.sub(r"""(?s)\A(['"])(.*)\1\Z""", r"\2", plain)
