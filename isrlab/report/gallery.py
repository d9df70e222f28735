"""The pages of a report: one for each run, and the index that shows them all.

Theory of operation. A run leaves three files in `runs/`: the notebook if it ran, its page, and a
small JSON record. The index is made from all records there, so it can be rewritten after every run,
and it keeps the runs of earlier or interrupted reports. A grid leaves the list of its runs in
`grids/`; its page is made from the same records at the same times. A file appears under its name
only when it is complete. Pages contain everything they show; their content security policy forbids
the browser to load anything, or to run any script but isrlab's own three.
"""

import base64
import copy
import hashlib
import json
import os
import re
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

import nbformat
from nbconvert import HTMLExporter
from nbformat import NotebookNode

from isrlab.installed import NOTEBOOKS
from isrlab.report.notebooks import WIDGET, Grid, tags
from isrlab.report.pages import PAGES, SEARCH, START, TEMPLATES, finding, linked, outputs
from isrlab.show.player import SCRIPT, small
from isrlab.show.svg import as_page

PAGES.filters["literal"] = repr
CHOICES = (TEMPLATES / "choices.js").read_text(encoding="utf-8")
HASHES = [hashlib.sha256(script.encode()).digest() for script in (SCRIPT, CHOICES, SEARCH)]
PAGES.globals["scripts"] = " ".join(f"'sha256-{base64.b64encode(h).decode()}'" for h in HASHES)
PAGES.globals["choices"] = CHOICES
SVG = "image/svg+xml"
WIDGET_NOTE = "Interactive in JupyterLab."
OK, FAILED, NOT_RUN = "ok", "failed", "not run"
FOLDED = "<details><summary>{}</summary>\n\n```python\n{}\n```\n\n</details>"
NAV = re.compile(r"(?s)<nav>.*?</nav>")
Kept = TypeVar("Kept")


@dataclass(frozen=True)
class RunRecord:
    """The entry of one run in the index, and the key that decides whether it must run again."""

    slug: str
    notebook: str
    title: str
    parameters: dict[str, Any]
    given: list[str]  # names of the parameters that are not the notebook's own defaults
    versions: dict[str, str]
    kafka: str | None
    seed: int | None
    key: str  # digest of all that the result depends on
    status: str = NOT_RUN
    finding: str = ""
    error: str = ""
    seconds: float = 0.0
    ended: str = ""
    thumbnail: str = field(default="", repr=False)

    @property
    def reason(self) -> str:
        """The first line of the error; errors from Java fill pages."""
        return next(iter(self.error.strip().splitlines()), "")


def write_run(record: RunRecord, notebook: NotebookNode, out: Path) -> RunRecord:
    """Store the notebook if it ran, its page, and its record, which is returned; then the index."""
    ended = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    picture = thumbnail(notebook)
    record = replace(record, finding=finding(notebook), thumbnail=picture, ended=ended)
    stem = out / "runs" / record.slug
    if record.status != NOT_RUN:
        _write(Path(f"{stem}.ipynb"), json.dumps(notebook, indent=1))
    _write(Path(f"{stem}.html"), page(record, notebook))
    _write(Path(f"{stem}.json"), json.dumps(asdict(record), indent=1))
    write_index(out)
    return record


def write_index(out: Path, grid: Grid | None = None) -> None:
    """Write `index.html`, the pages of all grids, including the new one, and the links in pages."""
    if grid:
        _write(out / "grids" / f"{grid.name}.json", json.dumps(asdict(grid), indent=1))
    runs, grids = read_records(out), _read(out / "grids", Grid)
    shown: dict[str, Any] = {
        "runs": runs,
        "grids": grids,
        "counts": Counter(run.status for run in runs),
    }
    files = {run.notebook: f"{run.slug}.html" for run in reversed(runs)}  # of several the first
    for guest in _guests():
        shown |= guest.on_index(out)
    index = _render("index", "isrlab", start=start(), **shown)
    _write(out / "index.html", linked(index, {name: f"runs/{files[name]}" for name in files}))
    _link(out, runs, files | {START: "../index.html"})
    known = {run.slug: run for run in runs}
    for grid in grids:
        points = [known.get(slug) for slug in grid.slugs]
        _write(out / grid.page, _render("grid", f"{grid.title} · isrlab", grid=grid, points=points))


def _link(out: Path, runs: list[RunRecord], files: dict[str, str]) -> None:
    """Set the links in each page: to other notebooks, neighbouring runs and the playground."""
    for before, run, after in zip([None, *runs], runs, [*runs[1:], None], strict=False):
        path = out / "runs" / f"{run.slug}.html"
        with suppress(OSError):
            page = path.read_text(encoding="utf-8")
            nav = _render("nav", "", run=run, before=before, after=after)
            changed = linked(nav.join(NAV.split(page, maxsplit=1)), files)
            for guest in _guests():
                changed = guest.linked(changed, out)
            if changed != page:
                _write(path, changed)


@cache
def _guests() -> list[Any]:
    """What adds to pages (entry points `isrlab.pages`): `on_index(out)` names what the index shows,
    `add_links(notebook)` adds links without an address, `linked(page, out)` sets the addresses."""
    return [entry.load() for entry in entry_points(group="isrlab.pages")]


@cache
def start() -> str:
    """The first notebook as HTML, with outputs but without code, and without its last cell, because
    the index has its own navigation. Without notebooks, nothing."""
    if not (NOTEBOOKS / f"{START}.ipynb").exists():
        return ""
    notebook = nbformat.read(NOTEBOOKS / f"{START}.ipynb", as_version=4)
    notebook.cells = notebook.cells[:-1]
    exporter = HTMLExporter(template_name="basic", exclude_input=True, exclude_output_prompt=True)
    return str(exporter.from_notebook_node(notebook)[0])


def read_records(out: Path) -> list[RunRecord]:
    """The records of earlier runs, by notebook; other files are ignored."""
    return sorted(_read(out / "runs", RunRecord), key=lambda run: (run.notebook, run.slug))


def page(record: RunRecord, notebook: NotebookNode) -> str:
    """The run as one HTML file."""
    notebook, failed = copy.deepcopy(notebook), ""
    for cell, output in outputs(notebook):
        if WIDGET in output.get("data", {}):  # without a player
            output.data = NotebookNode({"text/html": f'<p class="note">{WIDGET_NOTE}</p>'})
        elif svg := output.get("data", {}).get(SVG):
            alt = output.metadata.get(SVG, {}).get("alt", "")
            output.data = NotebookNode({"text/html": as_page(svg, alt)})
        if output.output_type == "error":
            failed = failed or f"cell-id={cell.id}"
    for place, cell in reversed([*enumerate(notebook.cells)]):  # what a page shows folded
        name = "Parameters" if {"parameters", "injected-parameters"} & {*tags(cell)} else "Code"
        if name == "Parameters" or cell.metadata.get("jupyter", {}).get("source_hidden"):
            folded = nbformat.v4.new_markdown_cell(FOLDED.format(name, cell.source))
            cell.metadata["transient"] = {"remove_source": True}
            notebook.cells.insert(place, folded)
    for guest in _guests():
        guest.add_links(notebook)
    cells, _ = _exporter().from_notebook_node(notebook)
    return _render("page", f"{record.title} · isrlab", run=record, cells=cells, error_cell=failed)


@cache
def _exporter() -> HTMLExporter:
    """One for all pages: to compile its templates takes longer than to make most pages."""
    quiet = {"exclude_input_prompt": True, "exclude_output_prompt": True}
    return HTMLExporter(template_name="basic", **quiet)


def thumbnail(notebook: NotebookNode) -> str:
    """A data URI of the first figure, preferably of a cell tagged `thumbnail`; "" if none."""
    for _, output in sorted(outputs(notebook), key=lambda pair: "thumbnail" not in tags(pair[0])):
        if svg := output.get("data", {}).get(SVG):
            return f"data:{SVG};base64," + base64.b64encode(svg.encode()).decode()
        if png := output.get("data", {}).get("image/png"):
            return (
                "data:image/png;base64," + base64.b64encode(small(base64.b64decode(png))).decode()
            )
    return ""


def _render(template: str, title: str, **shown: Any) -> str:
    return PAGES.get_template(f"{template}.html.j2").render(title=title, **shown)


def _read(folder: Path, kind: type[Kept]) -> list[Kept]:
    """The `kind` objects stored as JSON files in a folder; files that hold none are ignored."""
    kept = []
    for path in sorted(folder.glob("*.json")):
        with suppress(OSError, ValueError, TypeError):
            kept.append(kind(**json.loads(path.read_text(encoding="utf-8"))))
    return kept


def _write(path: Path, text: str) -> None:
    """Write a file so that no reader sees half of it, even after an interrupt."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
