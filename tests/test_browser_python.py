"""What a page in a browser runs needs nothing but Python and msgspec: no numpy, no Arrow.

Each test is a process of its own, in which any other package cannot be imported.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# The search of everything holds its states in arrays, and no page runs it.
WITH_ARRAYS = {"breadth_first", "everything", "expanding", "options"}

REFUSE = """
import sys
from importlib import import_module
from pathlib import Path

ALLOWED = {"isrlab", "msgspec", *sys.stdlib_module_names}
import zoneinfo  # which imports a module with a name of this machine

class OnlyPython:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in ALLOWED:
            raise ImportError(f"a page in a browser has no {name}")

sys.meta_path.insert(0, OnlyPython())
"""
IMPORT = "for name in sys.argv[1:]: import_module(name)"
PLAY = """
from isrlab.world import actions, exploring, scenario
for path in sorted(scenario.LIBRARY.glob("*.txt")):
    run = scenario.play(path.read_text())
    for block in run.blocks:
        assert block.printed.rstrip() == block.expected.rstrip(), path
explored = exploring.Exploration(path.read_text())
assert explored.frames(explored.versions[0], explored.current)
assert actions.enabled(explored.run(explored.versions[0]))
"""


def only_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", REFUSE + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def modules(folder: str) -> list[str]:
    names = sorted(path.stem for path in (ROOT / "isrlab" / folder).glob("*.py"))
    return [f"isrlab.{folder}.{name}" for name in names if name not in WITH_ARRAYS]


@pytest.mark.parametrize("name", ["numpy", "pyarrow", "matplotlib", "pyspark", "numba", "click"])
def test_other_packages_are_refused(name):
    assert f"has no {name}" in only_python(IMPORT, name).stderr


def test_engine_world_and_the_grammar_of_lines_need_only_python():
    names = [*modules("engine"), *modules("world"), "isrlab.logs.reader.lines"]
    assert len(names) > 30
    assert only_python(IMPORT, *names).stderr == ""


def test_every_scenario_plays_with_only_python():
    assert only_python(PLAY).stderr == ""
