"""What a notebook of a report shows, and the links between its pages.

A link to a notebook such as `[...](07_data_loss.ipynb#The-rule)` leads to the notebook's page as
soon as there is one; until then it is plain text.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2
import nbformat

from isrlab.report.notebooks import tags

TEMPLATES = Path(__file__).with_name("templates")
PAGES = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True)
SEARCH = (TEMPLATES / "search.js").read_text(encoding="utf-8")  # of the first page's questions
START = "00_start_here"  # the notebook that the index shows
LINK = re.compile(r'<a (?:href="[^"]*" )?(?:href|data-to)="(\d\d_\w+)\.ipynb(#[^"]*)?">')


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
    if shown.keys() & {"image/png", "image/svg+xml"}:
        return ""
    plain = shown.get("text/markdown") or shown.get("text/plain", "")
    return re.sub(r"""(?s)\A(['"])(.*)\1\Z""", r"\2", plain)
