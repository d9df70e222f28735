"""Each field of `KafkaVersion` matters: in some schedule switching only this field shows.

A row is a field, a version, another value of that field, and a schedule: a scenario of the library
or of cases/scenes.txt by its name, or a script. Compared are the output and the partition's stored
states after each step. Every form that a rule has had must be on one side of some row.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import product

import pytest

import log_writer
from cases.scenes import SCENES
from isrlab.engine import choices as c
from isrlab.engine import rules
from isrlab.engine.log import LeaderEpochCache
from isrlab.engine.versions import GENERATIONS, PROPOSED, KafkaVersion
from isrlab.engine.versions import RULES as NAMES
from isrlab.world import scenario

RULES = (
    ("lag_clock", "0.8.2", c.LagClock.READ_TO_LOG_END, "steady_with_pauses"),
    ("lag_clock", "0.9.0", c.LagClock.CAUGHT_UP_TO_PREVIOUS_FETCH, "steady_with_pauses"),
    ("clock_reset", "0.9.0", c.ClockReset.ALWAYS, "lost_race"),
    ("clock_reset", "0.9.0", c.ClockReset.ON_EPOCH_BUMP, "lost_race"),
    ("shrink_rule", "0.8.2", c.ShrinkRule.TIME, "message_burst"),
    ("shrink_rule", "1.1", c.ShrinkRule.TIME_UNLESS_AT_LOG_END, "idle_pauses"),
    ("isr_checks_per_lag_time", "0.10.2", 1, "stalled"),
    ("expand_rule", "2.0.1", c.ExpandRule.HIGH_WATERMARK, "joined_too_early"),
    ("eligibility", "3.3", c.Eligibility.ANY, "shutting_down"),
    ("eligibility", "3.5", c.Eligibility.NOT_FENCED, "late_join"),
    ("expand_waits_under_min_isr", "3.7", True, "flapping"),
    ("high_watermark_set", "0.10.2", c.HighWatermarkSet.ISR, "catching_up"),
    ("high_watermark_set", "2.7", c.HighWatermarkSet.ISR_OR_FRESH_CLOCK, "join_in_flight"),
    ("high_watermark_set", "3.6", c.HighWatermarkSet.MAXIMAL_ISR_OR_CAUGHT_UP, "gone_but_fresh"),
    ("high_watermark_held_under_min_isr", "3.7", False, "under_min_isr"),
    ("high_watermark_after_shrink", "3.1", c.AfterShrink.NEVER, "stalled"),
    ("high_watermark_after_shrink", "3.1", c.AfterShrink.IMMEDIATELY, "shrink_stall"),
    ("high_watermark_only_if_follower_moved", "2.7", False, "three_replicas"),
    ("isr_write", "0.9.0", c.IsrWrite.ZOOKEEPER, "steady_with_pauses"),
    ("isr_write", "2.7", c.IsrWrite.ZOOKEEPER_NOTIFY, "shrink_stall"),
    ("isr_write", "3.9", c.IsrWrite.ALTER_ISR, "recovery"),
    ("after_isr_error", "3.1", c.AfterIsrError.WAITS, "error_not_retried"),
    ("after_isr_error", "3.2.1", c.AfterIsrError.REVERTS, "error_not_retried"),
    ("order_frees_isr_request", "2.8", False, "change_never_sent"),
    ("ignores_known_order", "3.7", True, "known_order"),
    ("reassignment", "2.3", c.Reassignment.REPLACEABLE, "partition\nreassign 4\nreassign cancel"),
    ("reassignment", "3.7", c.Reassignment.ALL_IN_SYNC, "moved_too_early"),
    ("reassignment", "4.3", c.Reassignment.ALL_IN_SYNC, "drained_and_back"),
    ("truncation", "0.11", c.Truncation.HIGH_WATERMARK, "loss_three_replicas"),
    ("truncation", "2.0.0", c.Truncation.EPOCH_ONE_ROUND, "fast_leader_change"),
    ("truncation", "2.8", c.Truncation.EPOCH_ITERATIVE, "restart"),
    ("follow_again", "2.1", c.FollowAgain.OTHER_LEADER, "shutting_down"),
    ("follow_again", "2.1", c.FollowAgain.AFTER_A_GAP, "shutting_down"),
    ("epoch_entry", "0.11", c.EpochEntry.NONE, "loss_three_replicas"),
    ("epoch_entry", "2.0.1", c.EpochEntry.ON_APPEND, "found_divergence_of_two"),
    ("cleans_epochs_at_log_end", "2.6.1", False, "empty_epochs"),
    ("pushes_high_watermark", "2.4", False, "idle_push"),
    ("epoch_bump_on_isr_shrink", "3.5", False, "stalled"),
    ("fences_stale_leader_epoch", "2.1", False, "fenced_follower"),
    ("refuses_former_incarnation", "3.7", False, "late_fetch"),
    ("halts_on_log_end_past_leader", "0.10.2", False, "loss_then_halt"),
    ("notices_fast_bounce", "2.2", False, "bounce"),
    ("keeps_last_isr_member", "1.1", False, "all_dead"),
    ("failed_fetch_resets_follower", "2.2", False, "failed_fetch"),
    ("accepts_any_acks", "0.8.2", False, "partition replicas=1,2\nproduce 1 acks=2\nstabilize"),
    ("not_leader_error", "2.6", "NOT_LEADER_FOR_PARTITION", "partition\nproduce 2"),
    ("kraft", "3.7", False, "follower_dies"),
    ("kraft_elects_uncleanly", "3.9", False, "unclean_by_hand"),
    ("handles_shutdown_again", "4.0", False, "registered_and_lost"),
    ("eligible_leader_replicas", "4.1", False, "last_replica_standing"),
    ("directory_change_keeps_elr", "4.1", True, "failed_disk"),
    ("restart_revives_settings", "4.3", False, "deleted_settings"),
    ("elr_of_replicas_only", "4.3", True, "drained_and_back"),
    ("min_isr_of_own_partition", "4.1", True, "first_partition_of_one"),
)
DEFAULTS = (
    ("unclean_leader_election_enable", "2.5", True, "leader_dies"),
    ("replica_lag_time_max_ms", "2.5", 10_000, "stalled"),
    ("replica_lag_max_messages", "0.8.2", 5, "burst"),
    ("session_timeout_ms", "2.5", 6_000, "follower_dies"),
    ("producer_acks", "2.8", -1, "partition replicas=1,2\nproduce 1\nadvance 1s"),
)
ROWS = RULES + DEFAULTS
ELSEWHERE = {"logs_expanding_isr"}  # not a rule of the engine: see below


def seen(script: str, version: KafkaVersion) -> tuple:
    """The visible results of a run: its output, and the stored state after each step."""
    library = {p.stem for p in scenario.LIBRARY.glob("*.txt")}
    text = scenario.read(script) if script in library else SCENES.get(script, script)
    run = scenario.play(text, version=version)
    return run.printed, tuple(dict.fromkeys(frame.controller.state for frame in run.frames))


@pytest.mark.parametrize(("field", "version", "value", "script"), ROWS)
def test_switching_only_this_shows(field, version, value, script) -> None:
    base = KafkaVersion.of(version)
    assert getattr(base, field) != value
    assert seen(script, base) != seen(script, base.with_(**{field: value}))


def test_no_field_and_no_form_is_forgotten() -> None:
    assert {row[0] for row in ROWS} | ELSEWHERE == set(NAMES)
    shown = {(row[0], row[2]) for row in ROWS}
    shown |= {(row[0], getattr(KafkaVersion.of(row[1]), row[0])) for row in ROWS}
    forms = {(f, v) for f in NAMES for v in _all_values(f) if isinstance(v, bool | IntEnum)}
    assert forms - shown - SAME_EFFECT - {(f, v) for f, v in forms if f in ELSEWHERE} == set()


def _all_values(field: str) -> set:
    used = {getattr(version, field) for version in GENERATIONS}
    example = next(iter(used))
    return set(type(example)) if isinstance(example, IntEnum) else used


def test_every_form_is_that_of_some_release() -> None:
    """Proposed rules are left out."""
    for field in NAMES:
        used = {getattr(version, field) for version in GENERATIONS}
        if field in PROPOSED:
            assert used == {False}
        else:
            assert used == _all_values(field) and len(used) > 1, field


# Only Kafka's text differs: an epoch that has an entry never gets another one
SAME_EFFECT = {("epoch_entry", c.EpochEntry.ON_EPOCH_BUMP)}


def test_a_replica_at_the_leaders_end_never_holds_the_high_watermark_back() -> None:
    """So 3.3 changed the text of this rule, but not its effect."""
    older = c.HighWatermarkSet.MAXIMAL_ISR_OR_FRESH_CLOCK
    newer = c.HighWatermarkSet.MAXIMAL_ISR_OR_CAUGHT_UP
    for in_maximal, end, caught_up_ms in product((False, True), (3, 7), (0, 90)):
        facts = (False, in_maximal, True, end, 7, caught_up_ms, 100, 30)
        minima = {
            min([7, end] if rules.holds_back_high_watermark(form, *facts) else [7])
            for form in (older, newer)
        }
        assert len(minima) == 1


def test_an_epoch_that_has_an_entry_never_gets_another_one() -> None:
    version = KafkaVersion.of("3.2")
    cache = LeaderEpochCache(((0, 0), (4, 10)))
    assert cache.assign(4, 25, version) is cache


@pytest.mark.parametrize("version", GENERATIONS, ids=str)
def test_expanding_isr_lines(version) -> None:
    """Not a rule of the engine, but one of the reader and the writer of broker logs.

    2.7 has the line only for ISR changes in ZooKeeper, and its leaders ask the controller.
    """
    release = version.name if version.name.count(".") < 3 else version.name.rsplit(".", 1)[0]
    is_printed = bool(log_writer.forms("isr_expand", release))
    assert is_printed is (version.logs_expanding_isr or version.name == "2.7")
