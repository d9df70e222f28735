"""Notebook 24: rules that are switched, and rules that a reader writes."""

from __future__ import annotations

import re

import pytest

from isrlab.engine import rules
from isrlab.engine.versions import KafkaVersion
from isrlab.world import scenario
from isrlab_book.workbook import try_a_rule
from isrlab_proof.search.everything import try_all

ONE_LAG = {"produces": 1, "crashes": 1, "lags": 1}


def easier(expand_rule, follower_end_offset, high_watermark, leader_epoch_start_offset):
    """A follower joins at the start offset of the epoch, wherever the high watermark is."""
    return follower_end_offset >= leader_epoch_start_offset


@pytest.mark.parametrize("name", try_a_rule.PROPOSALS)
def test_a_rule_shows_in_its_story_and_in_its_picture(name) -> None:
    idea = try_a_rule.proposal(name)
    texts = {scenario.play(scenario.read(idea.story), version=v).printed
             for v in (idea.base, idea.tried)}  # fmt: skip
    assert len(texts) == 2
    assert "With the rule" in str(try_a_rule.beside(idea))


@pytest.mark.parametrize(
    ("name", "release", "broken", "kept"),
    [
        ("do not hold the high watermark", "", "broken by 9 actions", "no scenario within"),
        ("do not hold the high watermark", "4.1", "broken by 9 actions", "no scenario within"),
        ("wait to join under min ISR", "", "no scenario within", "no scenario within"),
        ("wait to join under min ISR", "3.7", "no scenario within", "no scenario within"),
        pytest.param(
            *("KIP-101 without KIP-279", "", "broken by 14", "no scenario of up to 14 actions"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_search_judges_a_rule(name, release, broken, kept) -> None:
    idea = try_a_rule.proposal(name, release)
    versions = {"with the rule": idea.tried, "as released": idea.base}
    results = try_a_rule.searched(idea, versions)
    sentence = try_a_rule.finding(idea, [], results)
    with_the_rule, as_released = sentence.split("; as released: ")
    assert broken in with_the_rule and kept in as_released


def test_what_notices_a_rule() -> None:
    idea = try_a_rule.proposal("do not hold the high watermark")
    before, after = try_a_rule.known(idea.base), try_a_rule.known(idea.tried)
    changed = {row["scenario"]: row["with_the_rule"] for row in try_a_rule.changed(before, after)}
    assert changed["last_replica_standing"] == "lost"
    assert "sync_cycle" not in changed
    rows = {row["judge"]: row for row in try_a_rule.judged_rows(before, after)}
    assert rows["Kafka's unit tests"]["first"].startswith("kafka_leader D1: step 1")
    assert rows["Kafka's partition, 4.4.0"]["differ_from_Kafka"] > 0
    assert not any(row["differ_from_Kafka"] for row in try_a_rule.judged_rows(before, before))


def test_a_rule_of_ones_own_is_heard_by_the_engine_the_scenarios_and_the_search() -> None:
    base, kept = KafkaVersion.of("4.1"), rules.can_join_isr
    story = scenario.read("join_at_high_watermark")
    usual = scenario.play(story, version=base).printed
    with try_a_rule.own_rule(can_join_isr=easier):
        assert scenario.play(story, version=base).printed != usual
        found = try_all(base, "partition replicas=1,2", ONE_LAG, "committed_records_survive")
        assert len(found.actions) == 14
        assert found.text is not None
        assert scenario.play(found.text, version=base).outcome.lost == ("m1",)
    assert rules.can_join_isr is kept
    assert try_all(base, "partition replicas=1,2", ONE_LAG, "committed_records_survive").holds


def test_a_rule_of_ones_own_ends_with_its_block_also_after_an_error() -> None:
    kept = rules.can_join_isr
    with pytest.raises(KeyError), try_a_rule.own_rule(can_join_isr=easier):
        raise KeyError
    assert rules.can_join_isr is kept


@pytest.mark.parametrize(
    ("functions", "problem"),
    [
        ({"can_joyn": easier}, "no rule 'can_joyn'; known: .*can_join_isr"),
        ({"is_caught_up": easier}, "is_caught_up takes (follower_end_offset, leader_end_offset"),
    ],
)
def test_what_is_no_rule_is_refused(functions, problem) -> None:
    with (
        pytest.raises(ValueError, match=problem.replace("(", re.escape("("))),
        try_a_rule.own_rule(**functions),
    ):
        pass


def test_a_wrong_question_says_what_would_be_right() -> None:
    with pytest.raises(ValueError, match="no rule 'luck'; known: complete before"):
        try_a_rule.proposal("luck")
    with pytest.raises(ValueError, match=r"Kafka 4\.3 has this rule already"):
        try_a_rule.proposal("complete before all are in sync", "4.3")
    idea = try_a_rule.proposal("wait to join under min ISR", budgets="crash=1")
    with pytest.raises(ValueError, match="no budget 'crash'"):
        try_a_rule.searched(idea, {"with the rule": idea.tried})


def test_the_fleet_says_what_a_rule_costs_if_its_kernel_knows_it() -> None:
    idea = try_a_rule.proposal("do not hold the high watermark")
    how, rows = try_a_rule.cost(idea.base, idea.tried, idea.story)
    assert how.startswith("A fleet of 60 partitions")
    assert any(row["as_released"] != row["with_the_rule"] for row in rows)
    idea = try_a_rule.proposal("wait to join under min ISR")
    how, rows = try_a_rule.cost(idea.base, idea.tried, idea.story)
    shrinks = rows[0]
    assert how.startswith("A fleet") and int(shrinks["with_the_rule"]) < int(shrinks["as_released"])
    drained = try_a_rule.proposal("complete before all are in sync")
    how, _ = try_a_rule.cost(drained.base, drained.tried, drained.story)
    assert how.endswith("the kernel of the fleet does not know this rule")


def test_the_hunt_knows_rules_that_a_release_has_and_repairs() -> None:
    brought = try_a_rule.hunted(try_a_rule.proposal("complete before all are in sync"))
    assert {row["with_the_rule"] for row in brought} == {"brought by it"}
    silenced = try_a_rule.hunted(try_a_rule.proposal("ELR of replicas only"))
    assert {row["with_the_rule"] for row in silenced} == {"silenced"}
    assert try_a_rule.hunted(try_a_rule.proposal("wait to join under min ISR")) == []
