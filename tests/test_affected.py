"""`make check` runs the tests of the packages that changed, and of those that depend on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from affected import affected, owners

ROOT = Path(__file__).parent.parent
ALL = ["core", "ops", "proof", "book"]


@pytest.mark.parametrize("path, packages", [
    ("isrlab/engine/rules.py", ALL), ("packages/ops/isrlab_ops/check/risks.py", ["ops", "book"]),
    ("packages/proof/hunt/kinds.py", ["proof", "book"]), ("packages/book/hold/claims.py", ["book"]),
    ("tests/ops/test_check.py", ["ops", "book"]), ("data/scenarios/loss_bounce.txt", ALL),
    ("data/alerts/rules.yaml", ["ops", "book"]), ("notebooks/01_high_watermark.ipynb", ["book"]),
    ("pyproject.toml", ALL), ("tests/cases/table.py", ALL),
])  # fmt: skip
def test_what_changed_decides_which_tests_run(path, packages):
    assert affected([path]) == packages


def test_two_changes_need_the_tests_of_both():
    assert affected(["packages/book/x.py", "data/hunt/kinds.toml", "README.md"]) == [
        "proof",
        "book",
    ]


def test_each_file_of_the_data_belongs_to_one_package():
    given = {f"data/{path.name}" for path in (ROOT / "data").iterdir()} - {"data/budget.toml"}
    assert given == {name for name in owners() if name.startswith("data/")}
