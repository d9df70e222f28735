"""What the hunt keeps: every kind is complete, its schedule is written in actions that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hunt import javac, kinds, repairs

JAVA = Path(javac.__file__).parent / "java"
KINDS = kinds.stored()
# `create t% min=% *` of Op.java, as a pattern
TEMPLATES = [
    re.escape(text).replace("%", "-?[0-9]+").replace(r"\*", "[0-9,/]+")
    for text in re.findall(r'^    [A-Z_]+\("([^"]+)"', (JAVA / "Op.java").read_text(), re.M)
]


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_a_kind_is_complete_and_can_be_played(kind):
    assert kind.what and kind.source and kind.known and set(kind.releases) <= set(javac.RELEASES)
    assert kind.verdict in {"bug", "harmless", "by design", "open"}
    assert not kind.repair or kind.repair in repairs.REPAIRS
    first, *actions = kind.schedule.split("; ")
    assert first.startswith(("cluster brokers=", "whole brokers=")) and actions
    for action in (first, *actions):
        assert any(re.fullmatch(x, action) for x in TEMPLATES), f"no action is written {action}"


def test_a_kind_names_a_promise():
    promises = re.findall(r"^    ([A-Z_]+)\(", (JAVA / "Promise.java").read_text(), re.M)
    assert {kind.broken.split()[0] for kind in KINDS.values()} <= set(promises)


def test_a_break_belongs_to_the_kind_whose_promise_was_broken_first():
    row = ["ANSWERED X", "ELR_INDEX ", "3", "60", "1.5", "cluster; kill 1"]
    assert "index_of_cleared_elr" in kinds.of(kinds.Break.of(row), KINDS)
    assert kinds.of(kinds.Break.of(["ANSWERED X", "EPOCHS_RISE back", *row[2:]]), KINDS) == ""
