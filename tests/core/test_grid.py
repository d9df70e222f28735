"""A grid is planned whole, or an error names what is valid; its page shows every point."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_report import NOTEBOOKS, make_report, text_of

from isrlab.report import gallery, notebooks
from isrlab.report.notebooks import NotebookError

ROOT = Path(__file__).parents[2]
GOOD = """
title: Limits and versions
notebook: works
grid:
  seed: 3
  version: [0.9.0, 2.10]
  lag_ms: [100, 200, 300]
"""


def read(tmp_path, text, name="limits.yaml"):
    file = tmp_path / name
    file.write_text(text)
    return notebooks.read_grid(file, NOTEBOOKS)


def test_every_combination_is_a_run(tmp_path):
    grid, runs = read(tmp_path, GOOD)
    assert (grid.name, grid.title) == ("limits", "Limits and versions")
    assert grid.axes == {"version": ["0.9.0", "2.10"], "lag_ms": [100, 200, 300]}
    assert [(run.given["version"], run.given["lag_ms"]) for run in runs] == [
        ("0.9.0", 100), ("0.9.0", 200), ("0.9.0", 300),
        ("2.10", 100), ("2.10", 200), ("2.10", 300),
    ]  # fmt: skip
    assert {run.given["seed"] for run in runs} == {3}
    assert grid.slugs == [run.slug for run in runs]
    assert len(set(grid.slugs)) == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1", "must hold `name: value` lines"),
        ("notebook: [", "cannot read .*limits.yaml"),
        (GOOD + "gird: 1", "unknown key 'gird'; known: notebook, title"),
        (GOOD.replace("works", "worked"), "unknown notebook 'worked'; known: 01_works"),
        (GOOD.replace("lag_ms", "lag"), "unknown parameter 'lag'; known:\n  01_works"),
        (GOOD.replace("seed", "sed"), "unknown parameter 'sed'; known:\n  01_works"),
        (GOOD.replace("200", "soon"), "'soon' is not a whole number"),
        (GOOD.replace("200", "100"), "a value occurs twice"),
        (GOOD.replace("[100, 200, 300]", "[]"), "2 version x 0 lag_ms give 0 points"),
        (GOOD.replace("[100, 200, 300]", str(list(range(51)))), "give 102 points; valid: 1 to 100"),
        ("notebook: works", "no values give 1 points"),
        ("notebook: works\ngrid: 3", "grid must hold `name: value` lines"),
    ],
)
def test_a_bad_grid_is_refused_with_what_is_valid(text, message, tmp_path):
    with pytest.raises(NotebookError, match=message):
        read(tmp_path, text)


@pytest.mark.parametrize("file", sorted((ROOT / "data" / "reports").glob("*.yaml")))
def test_the_grids_of_the_project_are_valid(file):
    if "\ngrid:" in file.read_text():
        assert 1 < len(notebooks.read_grid(file, ROOT / "notebooks")[1]) <= notebooks.MOST_POINTS


def test_a_page_shows_also_the_points_that_are_still_to_come(tmp_path):
    grid, _ = read(tmp_path, GOOD)
    gallery.write_index(tmp_path, grid)
    assert grid.columns == 3
    page = text_of(tmp_path, "grid-limits.html")
    assert page.count("not run yet") == 6
    assert 'href="grid-limits.html"' in text_of(tmp_path, "index.html")


def test_a_grid_makes_a_page_for_each_point_and_one_for_all(tmp_path):
    file = tmp_path / "a grid <b>.yaml"
    file.write_text(GOOD.replace("[0.9.0, 2.10]", "['0.10.2']").replace(", 300", ""))
    out = tmp_path / "out"
    done = make_report(out, "--grid", str(file))
    assert done.returncode == 0, done.stderr
    (page,) = out.glob("grid-*.html")
    text = page.read_text(encoding="utf-8")
    assert page.name in done.stdout
    assert "<b>" not in text
    assert text.count("data:image/png;base64,") == 2
    assert "lag_ms = 100" in text and "lag_ms = 200" in text
    assert text.count("Version 0.10.2 took") == 2
    assert len(list((out / "runs").glob("*.html"))) == 2
    again = make_report(out, "--grid", str(file), "--resume")
    assert again.stderr.count("kept: nothing it depends on has changed") == 2


def test_a_path_is_that_of_the_folder_where_the_command_is_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "server.log").write_text("")
    found = notebooks.find(Path(__file__).parents[2] / "notebooks", ["18"])
    (run,) = notebooks.plan(found, [("log_dir", "server.log"), ("log_dir_short", "none")])
    assert run.given["log_dir"] == str(tmp_path / "server.log")
    assert run.given["log_dir_short"] == "none"
