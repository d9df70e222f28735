"""The stored results of the hunt: every kind is complete, and its schedule uses known actions."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from hunt import engine, javac, kinds, repairs
from isrlab.engine.choices import Reassignment
from judge.jars import NoJarsError

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
    assert kind.verdict in {"bug", "harmless", "by design"}
    assert not kind.repair or kind.repair in repairs.REPAIRS
    first, *actions = kind.schedule.split("; ")
    assert first.startswith(("cluster brokers=", "whole brokers=")) and actions
    for action in (first, *actions):
        assert any(re.fullmatch(x, action) for x in TEMPLATES), f"no action is written {action}"


def test_a_kind_names_a_promise():
    promises = re.findall(r"^    ([A-Z_]+)\(", (JAVA / "Promise.java").read_text(), re.M)
    assert {kind.broken.split()[0] for kind in KINDS.values()} <= set(promises)


ROW = ["ANSWERED X", "ELR_INDEX ", "3", "60", "1.5", "cluster; kill 1"]
UNCLEAN = ["UNCLEAN_COMES ", "UNCLEAN_COMES ", *ROW[2:5], "cluster; create t0 min=1 unclean=1 1"]


def classes(silencing=(), sources=("4.1.2", "4.3.1"), holds=()):
    """Kafka's classes as `kinds.of` asks them: these repairs silence every break."""

    def broken(release, schedule, repairs):
        if repairs and release not in sources:
            raise NoJarsError(release)
        return [] if release in holds or {*repairs} & {*silencing} else [ROW[0], UNCLEAN[0].strip()]

    return broken


def explained(row, release, broken):
    return kinds.of(release, kinds.Break.of(row), KINDS, broken)


def test_a_break_belongs_to_the_kind_whose_promise_was_broken_first_if_its_repair_silences_it():
    mended = classes(["index_of_cleared_elr"])
    assert explained(ROW, "4.3.1", mended) == (["index_of_cleared_elr"], [])
    assert explained(ROW, "4.3.1", classes()) == ([], ["index_of_cleared_elr"])
    assert explained(["ANSWERED X", "EPOCHS_RISE back", *ROW[2:]], "4.3.1", mended) == ([], [])


def test_a_release_without_sources_is_judged_by_the_nearest_that_has_them():
    mended = ["index_of_cleared_elr"]
    assert explained(ROW, "4.4.0", classes(mended))[0] == mended
    assert explained(ROW, "4.4.0", classes(mended, holds=["4.3.1"]))[0] == []
    assert explained(ROW, "4.2.2", classes(mended, holds=["4.3.1"]))[0] == mended


def test_a_kind_explains_nothing_in_other_releases():
    assert explained(UNCLEAN, "3.8.1", classes()) == (["unclean_leader_ignored"], [])
    assert explained(UNCLEAN, "4.3.1", classes()) == ([], ["unclean_leader_ignored"])
    assert explained(ROW, "4.5.0", classes(["index_of_cleared_elr"]))[0] == []


def test_a_kind_without_a_repair_has_a_shape_and_explains_no_consequence():
    assert [kind.name for kind in KINDS.values() if not kind.repair and not kind.shape] == []
    assert explained([*UNCLEAN[:5], "cluster; create t0 unclean=0"], "3.8.1", classes()) == ([], [])
    assert explained(["X", *UNCLEAN[1:]], "3.8.1", classes()) == ([], ["unclean_leader_ignored"])


# Wrong patches whose promise no schedule of 40 s broke.
UNSEEN = {
    "the last known leader is elected although the ELR has members",  # and marked as unclean
    "a reassignment does not wait for its new replicas",  # these join later
}


def test_wrong_patches_of_kafka_are_noticed_and_called_new():
    rows = list(csv.DictReader((kinds.FILE.with_name("wrong.csv")).open()))
    assert {row["patch"]: row["promise"] for row in rows} == {
        name: patch["promise"] for name, patch in repairs.WRONG.items()
    }
    seen = [row for row in rows if row["patch"] not in UNSEEN]
    assert len(seen) >= 25 and all(float(row["seconds"]) <= 40 for row in seen)
    assert [row["seconds"] for row in rows if row["patch"] in UNSEEN] == ["", ""]


STORED = {kind: (release, states) for kind, release, states in engine.stored()}


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_the_engine_stores_what_kafkas_controller_stored_or_cannot_play_the_kind(kind):
    if kind.name not in STORED:
        with pytest.raises(engine.UnplayableError):
            engine.played(kind.releases[-1], kind.schedule)
        return
    release, theirs = STORED[kind.name]
    assert engine.played(release, kind.schedule) == theirs


def test_the_states_that_are_kept_notice_other_rules_of_the_engine():
    for name, rule in (
        ("elr_of_one_partition", {"elr_of_replicas_only": True}),
        ("min_isr_of_partition_0", {"min_isr_of_own_partition": True}),
        ("reassignment_back", {"reassignment": Reassignment.ALL_IN_SYNC}),
        ("elr_cleared_without_leader", {"eligible_leader_replicas": False}),
    ):
        release, theirs = STORED[name]
        assert engine.played(release, KINDS[name].schedule, **rule) != theirs, name


def test_an_action_that_the_engine_has_not_is_named():
    with pytest.raises(engine.UnplayableError, match="directories"):
        engine.played("4.3.1", "cluster brokers=2 two-dirs=1 elr=1 min=1; fail-dir 1:0")
