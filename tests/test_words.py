"""The texts that a reader sees first avoid the habits of speech that a list of words can hold."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HABITS = {  # what not to write: what to write, or why
    r"\b(whoever|whom|somebody|nobody|everybody)\b": "a broker or a replica is no person: name it",
    r"\b(stands?|stood|standing) still\b": "it stalls, stops, or does not move",
    r"\bat once\b": "immediately; or together",
    r"\bfor (long|ever)\b": "for a long time; forever",
    r",? too[.,;:)]": "also, before the verb",
    r"\b(is|are|was|were) (told|said)\b": "logs show it, commands report it, machines learn it",
    r"\bput (right|out)\b": "corrected; removed",
    r"\btroubles?\b": "a fault, a stall, an outage",
    r"\b(generations?|(?<!record\.)eras?)\b": "release",
    r"\b(each|every|no|some|other|these) versions?\b": "release",
    r"\bschedules?\b": "scenario; a scenario that is played is a run",
}
TEXTS = [
    *ROOT.glob("notebooks/*.ipynb"), *ROOT.glob("data/exercises/*.txt"), ROOT / "README.md",
    *ROOT.glob("data/scenarios/*.txt"), *ROOT.glob("data/claims/*.yaml"), ROOT / "CONTRIBUTING.md",
    *ROOT.glob("packages/ops/isrlab_ops/logs/incidents/rules.toml"), ROOT / "data/questions.yaml",
]  # fmt: skip


def prose(path: Path) -> str:
    """What a reader reads of a file: markdown without headings, which are anchors; comments."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        lines = [line for c in cells if c["cell_type"] == "markdown" for line in c["source"]]
        return "".join(line for line in lines if not line.startswith("#"))
    if path.parent.name == "scenarios":
        return "\n".join(line for line in text.split("\n") if line.startswith("#"))
    return re.sub(r'^[# ]+(blames .*|"[^"]+":)$', "", text, flags=re.MULTILINE)  # no prose


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_a_text_has_none_of_the_habits(path):
    text = prose(path)
    habits = re.finditer("|".join(HABITS), text, re.I)
    found = [text[max(0, each.start() - 50) : each.end()] for each in habits]
    assert not found, HABITS


def test_no_docstring_begins_with_the_same():
    """It would point at its neighbour, instead of saying what its own function does."""
    for path in [p for top in ("isrlab", "tools", "tests") for p in (ROOT / top).rglob("*.py")]:
        kinds = (ast.FunctionDef, ast.ClassDef, ast.Module)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, kinds):
                assert not (ast.get_docstring(node) or "").startswith("The same"), (path, node)
