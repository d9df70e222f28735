"""The first page, also a notebook: a moving picture, three doors and questions.

Theory of operation. `notebooks/00_start_here.ipynb` is prose, a cell that shows a moving picture
and three doors, and a cell that shows the questions of operators; a report's index shows the same.
The pictures in `data/pictures` are drawn from the engine's runs (`workbook/start_here.py`;
`pytest tests/book/test_landing.py --rewrite`).
"""

import re
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path

import jinja2
import yaml
from IPython.display import HTML

from isrlab.installed import DATA, NOTEBOOKS
from isrlab.report.pages import SEARCH
from isrlab_book import exercise

TEMPLATES = jinja2.FileSystemLoader(Path(__file__).with_name("templates"))
RANKED = re.compile(r"^(?:(\d+)\. )?(.+)$")
PAGES = jinja2.Environment(loader=TEMPLATES, autoescape=True)


@dataclass(frozen=True)
class Question:
    """An operator's question, its answer in one sentence, and the section that shows why; `rank`:
    its place among the ten that are asked most, or 0."""

    text: str
    answer: str
    anchor: str
    rank: int = 0


def questions() -> dict[str, list[Question]]:
    """The questions that each notebook answers, by notebook; under "" those that none answers."""
    loaded = yaml.safe_load((DATA / "questions.yaml").read_text(encoding="utf-8"))
    return {
        notebook: [
            Question(text, answer.replace("`", ""), f"#{section.replace(' ', '-')}", int(rank or 0))
            for section, asked in sections.items()
            for whole, answer in asked.items()
            for rank, text in RANKED.findall(whole)
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
    """For 00_start_here: the questions, each with its answer in a sentence, and a search field."""
    known = questions()
    ranked = [(q.rank, name, q) for name, group in known.items() for q in group if q.rank]
    most_asked = [(name, question) for _, name, question in sorted(ranked)]
    template = PAGES.get_template("questions.html.j2")
    return HTML(template.render(questions=known, most_asked=most_asked, search=SEARCH))


def show_exercises() -> HTML:
    """For 00_start_here: all exercises, those first whose shortest known answers are short."""
    begun = re.compile(r"%%exercise (\w+)")
    paths = NOTEBOOKS.glob("*_*.ipynb")
    places = {name: p.stem for p in paths for name in begun.findall(p.read_text(encoding="utf-8"))}
    asked = [exercise.read(name) for name in sorted(places)]
    return HTML(PAGES.get_template("exercises.html.j2").render(exercises=asked, shown=places))
