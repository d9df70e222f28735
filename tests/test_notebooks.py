"""The notebooks of the workbook are thin, say what they find, and are stored clean."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from isrlab.report import notebooks, run

ROOT = Path(__file__).parent.parent
PATHS = sorted((ROOT / "notebooks").glob("[0-9]*_*.ipynb"))
TUTORIALS = [p for p in PATHS if not notebooks.read(p).needs_spark]  # held by nbval
OTHERS = [path for path in PATHS if path not in TUTORIALS]
TEST_PARAMETERS = ROOT / "data" / "reports" / "test.yaml"
MAX_CODE_LINES = 15
WIDGET = "application/vnd.jupyter.widget-view+json"

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
def test_nbval_does_not_compare_controls(path):
    shows = [c for c in cells(path) if any(WIDGET in o.get("data", {}) for o in c.outputs)]
    assert [c.source for c in shows if "nbval-ignore-output" not in notebooks.tags(c)] == []


@pytest.mark.slow
@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.stem)
def test_runs_as_a_report(path, tmp_path):
    if notebooks.read(path).needs_spark and (problem := run.java_problem()):
        pytest.skip(problem)
    file = ["-f", str(TEST_PARAMETERS)] if TEST_PARAMETERS.exists() else []
    command = [sys.executable, "-m", "isrlab", "report", path.stem, *file, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
