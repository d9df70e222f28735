"""The notebooks are thin, state their findings, are stored clean, and run.

nbval (`make test`) executes the tutorials and compares their outputs with the stored ones, except
pictures and controls. `make report` executes those on Spark, or this file does if no report has run
their current versions.
"""

from __future__ import annotations

import ast
import base64
import html
import json
import re
import subprocess
import sys
from functools import cache, partial
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import numpy as np
import pytest

from isrlab.installed import packages
from isrlab.report import gallery, notebooks, pages, run
from isrlab.show import svg

read, opened = cache(notebooks.read), cache(partial(nbformat.read, as_version=4))
ROOT = Path(__file__).parents[2]
PATHS = sorted(  # the glossary comes last, whatever its number
    (ROOT / "notebooks").glob("[0-9]*_*.ipynb"), key=lambda path: ("glossary" in path.stem, path)
)
TUTORIALS = [path for path in PATHS if not read(path).needs_spark]
SMALL = ROOT / "data" / "reports" / "test.yaml"  # parameters
PACKAGES = {package.name for package in packages()}
MAX_CODE_LINES = 15
# The limit of cells before the exercises, if not 26: for six variants of a loss, six reviews, and
# appendices of two notebooks each.
LONGER = {
    "10_data_loss_today": 40, "24_try_a_rule": 32, "25_how_the_rules_changed": 32,
    "26_when_was_it_decided": 44,
}  # fmt: skip
CHOSEN = {  # in which each prediction has choices
    "00_the_life_of_a_record", "01_high_watermark", "02_leaving_the_isr", "03_joining_the_isr",
    "04_telling_the_cluster", "07_data_loss", "08_log_divergence",
}  # fmt: skip
MAX_PIXELS = 1_700  # the width of a picture
MAX_PAGE_BYTES = 3_000_000
NOT_COMPARED = "nbval-ignore-output"  # the tag that nbval knows

every = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
# All but the first page, which is not an experiment.
each_run = pytest.mark.parametrize("path", PATHS[1:], ids=lambda path: path.stem)


def cells(path: Path, kind: str = "code") -> list:
    return [c for c in opened(path).cells if c.cell_type == kind]


def tagged(path: Path, tag: str) -> list:
    return [cell for cell in cells(path) if tag in notebooks.tags(cell)]


def answer(cell) -> int:
    """The number of the right choice, of a cell that shows the answer to a prediction; else 0."""
    given = [tag for tag in cell["metadata"].get("tags", []) if tag.startswith("answer:")]
    return int(given[0].partition(":")[2]) if given else 0


def parsed(cell) -> ast.Module:
    """A cell's Python, without magics and the contents of cell magics."""
    lines = [] if cell.source.startswith("%%") else cell.source.splitlines()
    return ast.parse("\n".join(line for line in lines if not line.startswith("%")))


@each_run
def test_has_one_parameters_cell_in_which_each_says_unit_and_range(path):
    (cell,) = tagged(path, "parameters")
    parameters = list(notebooks.read_parameters(cell.source))
    assert len(parameters) == len(parsed(cell).body), "assignments of literals only"
    assert [p.name for p in parameters if not p.comment] == []


@each_run
def test_has_one_finding_and_a_title(path):
    assert len(tagged(path, "finding")) == 1
    assert pages.finding(opened(path))
    assert read(path).title != path.stem


@every
def test_code_is_thin(path):
    for cell in cells(path):
        assert len(cell.source.splitlines()) <= MAX_CODE_LINES, cell.source
        for node in ast.walk(parsed(cell)):
            is_readers = "yours" in notebooks.tags(cell)  # the reader writes this rule
            assert is_readers or not isinstance(node, ast.FunctionDef | ast.ClassDef), cell.source
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
                assert names == ["matplotlib.pyplot"] or names[0].startswith("isrlab"), names
            if isinstance(node, ast.ImportFrom):
                assert node.module.partition(".")[0] in PACKAGES, node.module


@every
def test_ends_with_the_notebooks_before_and_after_it(path):
    place, name = PATHS.index(path), "[{}]({})".format
    links = {p: name(read(p).title.partition(":")[0], p.name) for p in PATHS}
    line = [f"← {links[p]}" for p in PATHS[:place][-1:]]
    line += [name("Glossary", PATHS[-1].name)] * (path not in PATHS[-2:])
    line += [f"{links[p]} →" for p in PATHS[place + 1 :][:1]]
    assert cells(path, "markdown")[-1].source == " · ".join(line)


@pytest.mark.parametrize("path", PATHS[1:-1], ids=lambda path: path.stem)
def test_is_read_in_a_quarter_of_an_hour(path):
    """Counts the cells before the exercises."""
    both = opened(path).cells
    ends = [n for n, cell in enumerate(both) if "\n## Exercises\n" in f"\n{cell.source}\n"]
    assert [*ends, len(both)][0] <= LONGER.get(path.stem, 26)


@every
def test_an_answer_is_hidden_until_the_reader_has_chosen(path):
    """A prediction has two to four choices; the output and the text after it are folded. Not every
    answer has the same number."""
    both = opened(path).cells
    shows = [n for n, cell in enumerate(both) if answer(cell)]
    for n in shows:
        asked = both[n - 1].source.split("**Predict.**")[-1]
        choices = re.findall(r"(?m)^\d\. .+$", asked)
        assert 2 <= len(choices) <= 4 and answer(both[n]) <= len(choices), asked
        assert both[n].metadata.jupyter.outputs_hidden
        assert both[n + 1].source.startswith("<details><summary>Answer</summary>\n\n")
    predictions = sum(cell.source.count("**Predict.**") for cell in both)
    assert len(shows) == (predictions if path.stem in CHOSEN else 0)
    assert len(shows) < 3 or len({answer(both[n]) for n in shows}) > 1


@every
def test_prose_goes_with_code(path):
    assert len(cells(path, "markdown")) >= len(cells(path))


@each_run
def test_is_stored_with_the_outputs_of_one_clean_run(path):
    code = cells(path)
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    kinds = [output.output_type for cell in code for output in cell.outputs]
    assert "error" not in kinds
    shown = {kind for cell in code for o in cell.outputs for kind in o.get("data", {})}
    assert shown & {"image/png", "image/svg+xml"}


@every
def test_is_stored_without_what_changes_from_run_to_run(path):
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert stored["metadata"].keys() <= {"kernelspec", "language_info"}
    assert stored["metadata"].get("language_info", {}).keys() <= {"name"}
    for cell in stored["cells"]:
        is_folded = cell["metadata"].get("jupyter", {}).get("source_hidden")
        kept = {"tags"} | ({"jupyter"} if answer(cell) or is_folded else set())
        assert cell["metadata"].keys() <= kept, cell["metadata"]


@every
def test_controls_are_stored_as_players_and_not_compared(path):
    shows = [c for c in cells(path) if any("data-player" in str(o) for o in c.outputs)]
    assert notebooks.WIDGET not in path.read_text(), "the kernel is gone: see `make notebooks`"
    assert [c.source for c in shows if NOT_COMPARED not in notebooks.tags(c)] == []


@every
def test_every_control_of_a_player_changes_its_picture(path):
    for text in re.findall(r'data-player=\\"(.*?)\\"', path.read_text(encoding="utf-8")):
        data = json.loads(html.unescape(json.loads(f'"{text}"')))
        shape = [len(slider["values"]) for slider in data["sliders"]]
        places = [place for place, _ in data["frames"]]
        if data.get("oneByOne"):
            for slider, last in zip(data["sliders"], np.cumsum(shape), strict=True):
                assert len({*places[last - len(slider["values"]) : last]}) > 1, slider["name"]
            continue
        places = np.reshape(places, shape)
        for axis, slider in enumerate(data["sliders"]):
            assert np.diff(places, axis=axis).any(), slider["name"]


@every
def test_pictures_fit_on_a_page_and_say_in_words_what_they_show(path):
    """Each stored picture has its title as alt text."""
    outputs = (output for cell in cells(path) for output in cell.outputs)
    for output in outputs:
        if png := output.get("data", {}).get("image/png"):
            alt = output.metadata.get("image/png", {}).get("alt", "")
            assert int.from_bytes(base64.b64decode(png)[16:20], "big") <= MAX_PIXELS, alt
            assert len(alt) > 10
        if drawn := output.get("data", {}).get("image/svg+xml"):
            assert float(ElementTree.fromstring(drawn).get("width")) <= svg.WIDTH
            assert len(output.metadata["image/svg+xml"]["alt"]) > 10


@every
def test_its_page_is_small(path):
    (planned,) = notebooks.plan([read(path)])
    page = gallery.page(run.blank_record(planned), nbformat.read(path, as_version=4))
    assert len(page.encode()) < MAX_PAGE_BYTES


@pytest.fixture(scope="session")
def executed(request, tmp_path_factory) -> dict[str, gallery.RunRecord]:
    """By name, the records of the notebooks on Spark that this test run needs."""
    items = [i for i in request.session.items if "executed" in getattr(i, "fixturenames", ())]
    asked = {item.callspec.params["path"].stem for item in items}
    planned = notebooks.plan(notebooks.find(ROOT / "notebooks", asked))
    keys = {each.notebook.name: run.blank_record(each).key for each in planned}
    kept = gallery.read_records(ROOT / "reports")
    records = {r.notebook: r for r in kept if r.key == keys.get(r.notebook)}
    if missing := asked - {r.notebook for r in records.values() if r.status == gallery.OK}:
        out = tmp_path_factory.mktemp("reports")
        command = [sys.executable, "-m", "isrlab", "report", *missing, "-f", str(SMALL)]
        subprocess.run([*command, "--out", str(out)], capture_output=True, check=False)
        records |= {record.notebook: record for record in gallery.read_records(out)}
    return records


@pytest.mark.parametrize("path", sorted(set(PATHS) - set(TUTORIALS)), ids=lambda path: path.stem)
def test_runs_on_spark(path, executed):
    record = executed[path.stem]
    if record.status == gallery.NOT_RUN:
        pytest.skip(record.error)
    assert record.status == gallery.OK, record.error
    assert record.finding


def test_make_gives_nbval_all_notebooks_but_those_on_spark():
    asked = ["--eval", "print:;@echo $(TUTORIALS)", "print"]
    command = ["env", "-u", "MAKEFLAGS", "-u", "MAKELEVEL", "make", "--no-print-directory", *asked]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [ROOT / name for name in printed.split()] == sorted(TUTORIALS)
