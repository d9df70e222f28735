"""The table of generations agrees with the code, and with the sources of Kafka's releases.

A fact is one boundary, from both sides: looked up in Kafka's source at the two tags of its row, or
(4.x, and when KRaft became the usual mode) in its documentation.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from isrlab.engine import choices as c
from isrlab.engine import rules, versions
from isrlab.engine.versions import GENERATIONS, PRESETS, PROPOSED, RULES, KafkaVersion
from isrlab.fleet.config import FleetConfig
from isrlab.show import version_table
from isrlab.world import scenario
from isrlab_book.workbook import isr_churn_in_every_release as every_release

DOCUMENT = Path(__file__).parents[2] / "data" / "versions.md"
SET = c.HighWatermarkSet

FACTS = (  # rule, last release with a form, this form, first release with the next form, that form
    ("lag_clock", "0.8.2.2", c.LagClock.LAST_FETCH, "0.9.0.0", c.LagClock.READ_TO_LOG_END),
    ("lag_clock", "0.10.1.1", c.LagClock.READ_TO_LOG_END, "0.10.2.0", c.LagClock(2)),
    ("clock_reset", "0.8.2.2", c.ClockReset.ALWAYS, "0.9.0.0", c.ClockReset.NEVER),
    ("clock_reset", "0.10.1.1", c.ClockReset.NEVER, "0.10.2.0", c.ClockReset.ALWAYS),
    ("clock_reset", "3.2.3", c.ClockReset.ALWAYS, "3.3.0", c.ClockReset.ON_EPOCH_BUMP),
    ("shrink_rule", "0.8.2.2", c.ShrinkRule.STUCK_OR_MESSAGES, "0.9.0.0", c.ShrinkRule.TIME),
    ("shrink_rule", "2.0.1", c.ShrinkRule.TIME, "2.1.0", c.ShrinkRule.TIME_UNLESS_AT_LOG_END),
    ("isr_checks_per_lag_time", "0.10.1.1", 1, "0.10.2.0", 2),
    ("expand_rule", "2.0.0", c.ExpandRule.HIGH_WATERMARK, "2.0.1", c.ExpandRule.EPOCH_START),
    ("eligibility", "3.2.3", c.Eligibility.ANY, "3.3.0", c.Eligibility.NOT_FENCED),
    ("eligibility", "3.4.1", c.Eligibility.NOT_FENCED, "3.5.0", c.Eligibility.BROKER_EPOCH),
    ("high_watermark_set", "0.10.1.1", SET.ISR, "0.10.2.0", SET.ISR_OR_FRESH_CLOCK),
    ("high_watermark_set", "2.6.3", SET.ISR_OR_FRESH_CLOCK, "2.7.0", SET(2)),
    ("high_watermark_set", "3.2.3", SET(2), "3.3.0", SET.MAXIMAL_ISR_OR_CAUGHT_UP),
    ("high_watermark_set", "3.5.2", SET.MAXIMAL_ISR_OR_CAUGHT_UP, "3.6.0", SET(4)),
    ("high_watermark_held_under_min_isr", "3.6.2", False, "3.7.0", True),
    ("high_watermark_after_shrink", "2.6.3", c.AfterShrink(0), "2.7.0", c.AfterShrink.NEVER),
    ("high_watermark_after_shrink", "3.0.2", c.AfterShrink.NEVER, "3.1.0", c.AfterShrink.ON_COMMIT),
    ("high_watermark_only_if_follower_moved", "2.3.1", False, "2.4.0", True),
    ("isr_write", "0.8.2.2", c.IsrWrite.ZOOKEEPER, "0.9.0.0", c.IsrWrite.ZOOKEEPER_NOTIFY),
    ("isr_write", "2.6.3", c.IsrWrite.ZOOKEEPER_NOTIFY, "2.7.0", c.IsrWrite.ALTER_ISR),
    ("isr_write", "3.1.2", c.IsrWrite.ALTER_ISR, "3.2.0", c.IsrWrite.ALTER_PARTITION),
    ("after_isr_error", "3.0.2", c.AfterIsrError.WAITS, "3.1.0", c.AfterIsrError.REVERTS),
    ("after_isr_error", "3.2.0", c.AfterIsrError.REVERTS, "3.2.1", c.AfterIsrError.RESENDS),
    ("order_frees_isr_request", "2.8.2", True, "3.0.0", False),
    ("reassignment", "2.3.1", c.Reassignment.GOES_ON, "2.4.0", c.Reassignment.REPLACEABLE),
    ("reassignment", "3.2.3", c.Reassignment.REPLACEABLE, "3.3.0", c.Reassignment.NEW_IN_SYNC),
    ("reassignment", "3.7.1", c.Reassignment.NEW_IN_SYNC, "3.8.0", c.Reassignment.ALL_IN_SYNC),
    ("reassignment", "4.2.2", c.Reassignment.ALL_IN_SYNC, "4.3.0", c.Reassignment(4)),
    ("truncation", "0.10.2.2", c.Truncation.HIGH_WATERMARK, "0.11.0.0", c.Truncation(1)),
    ("truncation", "1.1.1", c.Truncation.EPOCH_ONE_ROUND, "2.0.0", c.Truncation.EPOCH_ITERATIVE),
    ("truncation", "2.7.2", c.Truncation.EPOCH_ITERATIVE, "2.8.0", c.Truncation.ON_FETCH),
    ("follow_again", "2.0.0", c.FollowAgain.OTHER_LEADER, "2.0.1", c.FollowAgain.AFTER_A_GAP),
    ("follow_again", "2.0.1", c.FollowAgain.AFTER_A_GAP, "2.1.0", c.FollowAgain.EVERY_EPOCH),
    ("epoch_entry", "0.10.2.2", c.EpochEntry.NONE, "0.11.0.0", c.EpochEntry.ON_APPEND),
    ("epoch_entry", "2.0.0", c.EpochEntry.ON_APPEND, "2.0.1", c.EpochEntry.ON_BECOMING_LEADER),
    ("epoch_entry", "3.2.3", c.EpochEntry.ON_BECOMING_LEADER, "3.3.0", c.EpochEntry.ON_EPOCH_BUMP),
    ("cleans_epochs_at_log_end", "2.6.0", False, "2.6.1", True),
    ("pushes_high_watermark", "2.3.1", False, "2.4.0", True),
    ("pushes_high_watermark", "2.5.1", True, "2.6.0", False),
    ("epoch_bump_on_isr_shrink", "2.7.2", False, "2.8.0", True),
    ("epoch_bump_on_isr_shrink", "3.5.2", True, "3.6.0", False),
    ("logs_expanding_isr", "2.6.3", True, "2.8.0", False),
    ("fences_stale_leader_epoch", "2.0.1", False, "2.1.0", True),
    ("refuses_former_incarnation", "3.6.2", False, "3.7.0", True),
    ("halts_on_log_end_past_leader", "2.0.0", True, "2.0.1", False),
    ("notices_fast_bounce", "2.1.1", False, "2.2.0", True),
    ("keeps_last_isr_member", "1.0.2", False, "1.1.0", True),
    ("failed_fetch_resets_follower", "2.3.1", True, "2.4.0", False),
    ("accepts_any_acks", "0.8.2.2", True, "0.9.0.0", False),
    ("not_leader_error", "2.5.1", "NOT_LEADER_FOR_PARTITION", "2.6.0", "NOT_LEADER_OR_FOLLOWER"),
    ("kraft", "3.2.3", False, "3.3.0", True),
    ("kraft_elects_uncleanly", "3.8.1", False, "3.9.0", True),
    ("handles_shutdown_again", "3.9.2", False, "4.0.0", True),
    ("eligible_leader_replicas", "4.0.0", False, "4.1.0", True),
    ("restart_revives_settings", "3.7.2", False, "3.8.0", True),
    ("directory_change_keeps_elr", "4.2.2", False, "4.3.0", True),
    ("unclean_leader_election_enable", "0.10.2.2", True, "0.11.0.0", False),
    ("replica_lag_time_max_ms", "2.4.1", 10_000, "2.5.0", 30_000),
    ("replica_lag_max_messages", "0.8.2.2", 4_000, "0.9.0.0", None),
    ("session_timeout_ms", "2.4.1", 6_000, "2.5.0", 18_000),
    ("session_timeout_ms", "3.2.3", 18_000, "3.3.0", 9_000),
    ("producer_acks", "2.8.2", 1, "3.0.0", -1),
)

TYPED = (  # a release as one may type it, and its column
    "0.8.2.2 A, 0.10.1.1 B, 0.10.2 C, 2.0.0 D, 2.0 E, 2.4 F, 2.5.0 G, 2.6.0 H, 2.7.1 I, 3.0.2 J, "
    "3.2.3 K, 3.5.1 L, 3.6.1 M, v3.9 N, 4.2.2 O, 4.3 P, 4.4.0 P"
)


def test_the_document_is_what_the_code_makes() -> None:
    """To update it: python -m isrlab versions --markdown > data/versions.md"""
    assert DOCUMENT.read_text(encoding="utf-8") == version_table.markdown()


def test_the_table_read_back_is_every_generation() -> None:
    """The cells, with each `=` replaced by the cell to its left, are the fields of the code."""
    lines = [x for x in DOCUMENT.read_text(encoding="utf-8").splitlines() if x.startswith("|")]
    head, _, *rows = [[cell.strip() for cell in x.strip("|").split("|")] for x in lines]
    assert head[1:] == [f"{v.column} {v.name}" for v in PRESETS.values()]
    assert [row[0] for row in rows[1:]] == [r.replace("_", " ") for r in RULES]
    for name, *cells in rows[1:]:
        value = ""
        for cell, version in zip(cells, PRESETS.values(), strict=True):
            value = value if cell == "=" else cell
            assert value == version.form(name.replace(" ", "_")), (name, version)


@pytest.mark.parametrize(("rule", "last", "before", "first", "after"), FACTS)
def test_boundary(rule, last, before, first, after) -> None:
    assert getattr(KafkaVersion.of(last), rule) == before
    assert getattr(KafkaVersion.of(first), rule) == after


def test_every_change_of_a_rule_is_a_fact_above() -> None:
    """No rule changes at a boundary that is not a fact."""
    known = {(rule, KafkaVersion.of(first)) for rule, *_, first, _ in FACTS}
    known.add(("logs_expanding_isr", KafkaVersion.of("2.7")))  # ZooKeeper path only: see 2.8
    for before, version in pairwise(GENERATIONS):
        for rule in RULES:
            if getattr(before, rule) != getattr(version, rule):
                assert (rule, version) in known, f"{rule} changes in {version}"


def test_any_release_of_a_generation_leads_to_it() -> None:
    for name, column in map(str.split, TYPED.split(", ")):
        assert KafkaVersion.of(name).column == column


def test_each_generation_is_under_its_name() -> None:
    assert "".join(PRESETS) == "ABCDEFGHIJKLMNOP"
    for version in GENERATIONS:
        assert KafkaVersion.of(version.name) is version


@pytest.mark.parametrize("rule", PROPOSED)
def test_a_proposed_rule_is_in_no_release(rule) -> None:
    assert not any(getattr(version, rule) for version in GENERATIONS)
    assert KafkaVersion.of("4.1").with_(expand_waits_under_min_isr=True).name.startswith("4.1 (")


class MadeUp(c.Form):
    AFTER_TWICE = 3, "out of sync after twice the lag time (KIP-9999)"


TWICE_THE_LAG_TIME = """
partition leader=1 replicas=1,2 replica.lag.time.max.ms=10000
produce 1 m1 acks=1
stabilize
pause 2 fetcher
produce 1 m2 acks=1
trace isr
advance 18s
"""


@pytest.fixture
def release_4_5(monkeypatch) -> KafkaVersion:
    """The example of CONTRIBUTING.md: a row, a form with its label, a branch of its rule."""
    row = versions.row("Q 4.5 4.5 none", shrink_rule=MadeUp.AFTER_TWICE)
    version = replace(GENERATIONS[-1], **row)
    is_out_of_sync = rules.is_out_of_sync

    def with_branch(shrink_rule, end, leader_end, caught_up_ms, now_ms, limit_ms, most):
        limit_ms *= 2 if shrink_rule == MadeUp.AFTER_TWICE else 1
        return is_out_of_sync(shrink_rule, end, leader_end, caught_up_ms, now_ms, limit_ms, most)

    monkeypatch.setattr(versions, "GENERATIONS", (*GENERATIONS, version))
    monkeypatch.setitem(PRESETS, "P", version)
    monkeypatch.setattr(rules, "is_out_of_sync", with_branch)
    return version


def test_a_new_release_is_one_row_one_form_one_branch_and_one_scenario(release_4_5) -> None:
    """Names, matrix, wording and scripts follow; no other place lists the releases."""
    assert KafkaVersion.of("4.5.1") is release_4_5
    with pytest.raises(ValueError, match=r"unknown Kafka version '4\.6'; known: .*, 4\.5$"):
        KafkaVersion.of("4.6")
    lines = version_table.markdown().splitlines()
    rows = {line.split(" | ")[0]: line for line in lines}
    assert rows["| rule"].endswith("| Q 4.5 |")
    assert rows["| shrink rule"].endswith("| after twice |")
    assert lines[-1] == f"- **4.5** (column Q): {MadeUp.AFTER_TWICE.label}"
    fleets = FleetConfig(version="4.4"), FleetConfig(version="4.5")
    assert every_release.rules_changed(*fleets) == MadeUp.AFTER_TWICE.label
    asked = "asks for isr=1 instead of 1,2"
    assert asked in scenario.play(TWICE_THE_LAG_TIME, version="4.3").printed
    assert asked not in scenario.play(TWICE_THE_LAG_TIME, version="4.5").printed
