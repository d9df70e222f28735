"""Which verdicts are stored, and which wrong rules they detect: switched ones, neighbours' ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from isrlab.engine.choices import Form
from isrlab.engine.versions import GENERATIONS, RULES, KafkaVersion
from isrlab_proof.judged import JudgedRun
from judge import mutants

STEPS = 2_000  # kept of each release, or more where a rule needs it
# The rules that each class depends on. Not listed: defaults of the fleet and of clients, rules of
# ZooKeeper's controllers, the task that checks the ISR, and a proposed rule that no release has
RULES_OF = {
    "partition": (
        "lag_clock", "clock_reset", "shrink_rule", "expand_rule", "eligibility",
        "high_watermark_set", "high_watermark_held_under_min_isr", "high_watermark_after_shrink",
        "high_watermark_only_if_follower_moved", "isr_write", "after_isr_error",
        "order_frees_isr_request", "ignores_known_order", "epoch_entry", "pushes_high_watermark",
        "refuses_former_incarnation", "failed_fetch_resets_follower", "accepts_any_acks",
        "not_leader_error",
    ),
    "follower": (
        "truncation", "follow_again", "epoch_entry", "cleans_epochs_at_log_end",
        "fences_stale_leader_epoch", "halts_on_log_end_past_leader",
    ),
    "controller": (
        "epoch_bump_on_isr_shrink", "eligible_leader_replicas", "kraft_elects_uncleanly",
        "reassignment", "elr_of_replicas_only", "min_isr_of_own_partition",
        "handles_shutdown_again",
    ),
}  # fmt: skip
assert {rule for rules in RULES_OF.values() for rule in rules} <= set(RULES)


def neighbours(version: KafkaVersion, kinds: Iterable[str]) -> dict[str, KafkaVersion]:
    """The generations before and after, if they differ in a rule that these classes depend on."""
    place, asked = GENERATIONS.index(version), rules_of(kinds)
    near = GENERATIONS[max(0, place - 1) : place + 2]
    own = [getattr(version, rule) for rule in asked]
    return {v.name: v for v in near if [getattr(v, rule) for rule in asked] != own}


def rules_of(kinds: Iterable[str]) -> list[str]:
    return sorted({rule for kind in kinds for rule in RULES_OF[kind]})


def switched(version: KafkaVersion, kinds: Iterable[str]) -> dict[str, KafkaVersion]:
    """The release with each other form of each rule of these classes, by "rule=form"."""
    made = {}
    for rule in rules_of(kinds):
        for value in _values(rule, getattr(version, rule)):
            other = version.with_(**{rule: value})
            made[f"{rule}={other.form(rule)}"] = other
    return made


def _values(rule: str, value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    every = type(value) if isinstance(value, Form) else {getattr(v, rule) for v in GENERATIONS}
    return sorted(set(every) - {value})


def unnoticed(runs: list[JudgedRun], others: dict[str, KafkaVersion]) -> dict[str, KafkaVersion]:
    """The other rules with which all these runs also agree."""
    return {n: v for n, v in others.items() if all(run.agrees(v) for run in runs)}


def choose(runs: list[JudgedRun], version: KafkaVersion) -> list[JudgedRun]:
    """The first runs, up to `STEPS` steps, and each later one that detects another wrong rule."""
    kinds = [runs[0].kind]
    left, chosen, steps = switched(version, kinds) | neighbours(version, kinds), [], 0
    wrong = list(mutants.variants(version))
    for run in runs:
        still, missed = unnoticed([run], left), mutants.survivors(wrong, [run], version)
        if steps < STEPS or (still, missed) != (left, wrong):
            chosen.append(run)
            steps += len(run.schedule)
        left, wrong = still, missed
    return chosen
