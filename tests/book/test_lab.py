"""isrlab in a notebook: names after a dot, help, completion, outputs."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import ipywidgets
import matplotlib.pyplot as plt
import nbformat
import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_notebook

import isrlab
from isrlab.report import notebooks
from isrlab.show import controls
from isrlab_book import magic

HEAVY = ("IPython", "matplotlib", "numba", "numpy", "pyspark", "pyarrow")


def test_names_each_with_its_help():
    names = [name for name in dir(isrlab) if name != "__version__"]
    assert names == sorted(isrlab.__all__)
    for name in names:
        assert re.search(rf"\b{name}\b", isrlab.__doc__), name
        assert (getattr(isrlab, name).__doc__ or "").strip(), name
    with pytest.raises(AttributeError, match="no 'plya'; it has play"):
        isrlab.plya  # noqa: B018


def test_importing_isrlab_imports_nothing_that_is_heavy():
    code = f"import sys, isrlab; dir(isrlab); print([n for n in {HEAVY} if n in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


@pytest.fixture(scope="module")
def shell():
    shell = InteractiveShell.instance()
    magic.load_ipython_extension(shell)
    magic.load_ipython_extension(shell)
    assert shell.Completer.custom_matchers.count(magic.complete) == 1
    yield shell
    InteractiveShell.clear_instance()


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("%%scenario --ver", ["--version"]),
        ("%%scenario --version 0.1", ["0.10.2", "0.11"]),
        ("%%scenario\npro", ["produce"]),
        ("%%scenario\npartition min.ins", ["min.insync.replicas="]),
        ("%%scenario\nelect ", ["preferred", "unclean"]),
        ("%%scenario\nversion 0.8", ["0.8.2"]),
        ("%%exercise lose_m2\nhard_b", ["hard_bounce"]),
        ("%exercise lose_m", ["lose_m2"]),
        ("%%exercise lose_m", ["lose_m2"]),
        ("import os\nos.path.isab", ["isabs"]),
    ],
)
def test_tab_completes_what_may_stand_there(shell, cell, expected):
    with provisionalcompleter():
        found = [each.text for each in shell.Completer.completions(cell, len(cell))]
    assert found == expected


def test_help_of_the_magic_lists_the_commands(shell):
    text = shell.find_magic("scenario", "cell").__doc__
    assert "\nproduce BROKER [NAME..]" in text
    assert "--version V" in text


def test_a_control_can_be_seen_without_widgets_from_the_first_moment(monkeypatch):
    bundles = []

    class ShownAnswer:
        def update(self, bundle, raw):
            bundles.append(bundle)

    def display(bundle, raw, display_id):
        bundles.append(bundle)
        return ShownAnswer()

    monkeypatch.setattr(controls, "display", display)
    box = controls.LiveFigure([controls.choice("a", (1, 2), 2)], lambda a: plt.plot([1, a])[0].axes)
    box._ipython_display_()
    first, then = bundles
    assert notebooks.WIDGET in first and notebooks.WIDGET in then
    assert first["image/png"].startswith("iVBOR") and first["text/plain"] == controls.NO_WIDGETS
    assert "data-player" in then["text/html"] and "image/png" not in then


def test_what_jupyterlab_saves_has_no_widget_beside_its_player():
    widget = {notebooks.WIDGET: {"model_id": "1"}}
    outputs = [
        nbformat.v4.new_output("display_data", data | widget)
        for data in ({"text/html": "player"}, {"text/plain": repr(ipywidgets.Text())})
    ]
    cell = nbformat.v4.new_code_cell("", outputs=outputs)
    content = json.loads(nbformat.writes(nbformat.v4.new_notebook(cells=[cell])))
    notebooks.save_players(model={"type": "notebook", "content": content}, path="")
    saved = [output["data"] for output in content["cells"][0]["outputs"]]
    assert [notebooks.WIDGET in data for data in saved] == [False, True]
    notebooks.save_players(model={"type": "file", "content": "text"})


@pytest.mark.parametrize(
    "cell", ["%%scenario\npartitoin replicas=1,2", "%%exercise keep_m3\nkill 1"]
)
def test_a_wrong_cell_fails_where_nobody_reads_it(cell):
    """papermill and nbval allow no input; JupyterLab does, and then shows the sentence alone."""
    notebook = new_notebook(cells=[*map(new_code_cell, ("%load_ext isrlab_book.magic", cell))])
    with pytest.raises(CellExecutionError, match="known"):
        NotebookClient(notebook, kernel_name="python3", timeout=60).execute()

    lab = NotebookClient(notebook, kernel_name="python3", timeout=60)
    lab.on_notebook_start = lambda notebook: setattr(lab.kc, "allow_stdin", True)
    lab.execute()
    assert "known" in notebook.cells[1].outputs[0]["text"]
