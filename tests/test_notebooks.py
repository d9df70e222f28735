"""The notebooks of the workbook run, are thin, say what they find, and are stored clean.

Each is executed once: by `make report` if that has run it as it is now, else here. What a tutorial
then shows must be what is stored, pictures and controls aside.
"""

from __future__ import annotations

import ast
import base64
import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from isrlab.report import gallery, notebooks, run

ROOT = Path(__file__).parent.parent
PATHS = sorted((ROOT / "notebooks").glob("[0-9]*_*.ipynb"))
TUTORIALS = [path for path in PATHS if not notebooks.read(path).needs_spark]
SMALL = ROOT / "data" / "reports" / "test.yaml"  # parameters
MAX_CODE_LINES = 15
MAX_PIXELS = 1_700  # the width of a picture
WIDGET = "application/vnd.jupyter.widget-view+json"
NOT_COMPARED = "nbval-ignore-output"  # the tag that nbval knows

every = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def cells(path: Path, kind: str = "code") -> list:
    return [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == kind]


def tagged(path: Path, tag: str) -> list:
    return [cell for cell in cells(path) if tag in notebooks.tags(cell)]


def parsed(cell) -> ast.Module:
    """A cell's Python; magics, and what a cell magic owns, are not Python."""
    lines = [] if cell.source.startswith("%%") else cell.source.splitlines()
    return ast.parse("\n".join(line for line in lines if not line.startswith("%")))


@every
def test_has_one_parameters_cell_in_which_each_says_unit_and_range(path):
    (cell,) = tagged(path, "parameters")
    parameters = list(notebooks.read_parameters(cell.source))
    assert len(parameters) == len(parsed(cell).body), "assignments of literals only"
    assert [p.name for p in parameters if not p.comment] == []


@every
def test_has_one_finding_and_a_title(path):
    assert len(tagged(path, "finding")) == 1
    assert notebooks.read(path).title != path.stem


@every
def test_code_is_thin(path):
    for cell in cells(path):
        assert len(cell.source.splitlines()) <= MAX_CODE_LINES, cell.source
        for node in ast.walk(parsed(cell)):
            assert not isinstance(node, ast.FunctionDef | ast.ClassDef), cell.source
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
                assert names == ["matplotlib.pyplot"] or names[0].startswith("isrlab"), names
            if isinstance(node, ast.ImportFrom):
                assert node.module.partition(".")[0] == "isrlab", node.module


@every
def test_prose_goes_with_code(path):
    assert len(cells(path, "markdown")) >= len(cells(path))


@every
def test_is_stored_with_the_outputs_of_one_clean_run(path):
    code = cells(path)
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    kinds = [output.output_type for cell in code for output in cell.outputs]
    assert "error" not in kinds
    assert any("image/png" in o.get("data", {}) for cell in code for o in cell.outputs)


@every
def test_is_stored_without_what_changes_from_run_to_run(path):
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert stored["metadata"].keys() <= {"kernelspec", "language_info"}
    assert stored["metadata"].get("language_info", {}).keys() <= {"name"}
    for cell in stored["cells"]:
        assert cell["metadata"].keys() <= {"tags"}, cell["metadata"]


@every
def test_what_shows_controls_is_not_compared(path):
    shows = [c for c in cells(path) if any(WIDGET in o.get("data", {}) for o in c.outputs)]
    assert [c.source for c in shows if NOT_COMPARED not in notebooks.tags(c)] == []


@every
def test_pictures_are_at_most_as_wide_as_a_page(path):
    for cell in cells(path):
        for output in cell.outputs:
            if png := output.get("data", {}).get("image/png"):
                width = int.from_bytes(base64.b64decode(png)[16:20], "big")
                assert width <= MAX_PIXELS, cell.source


@pytest.fixture(scope="session")
def executed(request, tmp_path_factory) -> dict[str, tuple[gallery.Record, Path]]:
    """The record and the executed form of each notebook that the tests of this run ask for."""
    asked = {i.callspec.params["path"].stem for i in request.session.items if is_execution(i)}
    known = collected(ROOT / "reports")
    keys = {r.notebook.name: run.blank_record(r).key for r in planned(asked)}
    valid = {n: known[n] for n in asked & known.keys() if known[n][0].key == keys[n]}
    missing = sorted(n for n in asked if n not in valid or valid[n][0].status != gallery.OK)
    if missing:
        out = tmp_path_factory.mktemp("reports")
        command = [sys.executable, "-m", "isrlab", "report", *missing, "-f", str(SMALL)]
        subprocess.run([*command, "--out", str(out)], capture_output=True, check=False)
        valid |= collected(out)
    return valid


def is_execution(item) -> bool:
    return "executed" in getattr(item, "fixturenames", ())


def planned(names: set[str]) -> list[notebooks.Run]:
    return notebooks.plan(notebooks.find(ROOT / "notebooks", names))


def collected(out: Path) -> dict[str, tuple[gallery.Record, Path]]:
    """By notebook; of several runs of one, that with its own parameters."""
    records = sorted(gallery.read_records(out), key=lambda record: -len(record.given))
    return {r.notebook: (r, out / "runs" / f"{r.slug}.ipynb") for r in records}


@pytest.mark.slow
@every
def test_runs(path, executed):
    record, _ = executed[path.stem]
    if record.status == gallery.NOT_RUN:
        pytest.skip(record.error)
    assert record.status == gallery.OK, record.error
    assert record.finding


@pytest.mark.slow
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_shows_what_is_stored(path, executed):
    for now, stored in zip(cells(executed[path.stem][1]), cells(path), strict=True):
        if NOT_COMPARED not in notebooks.tags(stored):
            assert shown(now) == shown(stored), stored.source


def shown(cell) -> list:
    """What a cell shows in text; a stream is one text however it was cut up on its way."""
    parts: list = []
    for output in cell.outputs:
        if output.output_type != "stream":
            data = output.get("data", {})
            parts.append({kind: text for kind, text in data.items() if "image" not in kind})
        elif parts and isinstance(parts[-1], list) and parts[-1][0] == output.name:
            parts[-1][1] += output.text
        else:
            parts.append([output.name, output.text])
    return parts
