"""The lessons of the main path run with every release that a reader can choose.

Pictures are left out; the other cells are run, and the finding must print a sentence.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from functools import cache, lru_cache
from pathlib import Path

import nbformat
import pytest

from isrlab.engine.versions import GENERATIONS
from isrlab.report.notebooks import tags
from isrlab.world import scenario

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
CHOICE = 'release = \\"newest\\"'
LESSONS = [p for p in sorted(NOTEBOOKS.glob("0*")) if CHOICE in p.read_text("utf-8")]
LEFT_OUT = re.compile(r"(?m)^(?:%.*|(?:\w+\.)?(?:plot_\w+|Explorer)\(.*)$")


def played(path: Path, release: str) -> dict[str, str]:
    """What the cells of a lesson print under the rules of a release: by their source."""
    names, printed = dict[str, object](), dict[str, str]()
    for cell in nbformat.read(path, as_version=4).cells:
        is_left_out = cell.cell_type != "code" or cell.source.startswith("%%")
        if is_left_out or {"yours"} & {*tags(cell)}:
            continue
        source = LEFT_OUT.sub("", cell.source)
        if "parameters" in tags(cell):
            source += f"\nrelease = {release!r}"
        with redirect_stdout(io.StringIO()) as out:
            exec(compile(source, path.stem, "exec"), names)
        printed["finding" if "finding" in tags(cell) else cell.source] = out.getvalue()
    return printed


# The matrix of all releases is the same whichever one the lesson plays; and lessons share stories.
of_all = cache(lambda texts, outcomes=scenario.outcomes: outcomes(dict(texts)))
shared = lru_cache(200)(scenario.play)


@pytest.mark.parametrize("release", [v.name for v in GENERATIONS])
def test_every_lesson_has_its_finding_in_every_release(release, monkeypatch):
    assert len(LESSONS) == 5
    monkeypatch.setattr(scenario, "play", shared)
    monkeypatch.setattr(scenario, "outcomes", lambda texts: of_all(tuple(texts.items())))
    for path in LESSONS:
        finding = played(path, release)["finding"]
        assert re.fullmatch(r"[A-Z].*\.\n|[a-z].*\.\n", finding), path.stem
        assert not re.search(r"\b1 times|\b(0|[2-9]|\d\d) time\b", finding), finding
