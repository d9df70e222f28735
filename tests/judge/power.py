"""Which verdicts are kept, and what they notice: rules switched by hand, neighbours' rules."""

from __future__ import annotations

from typing import Any

from isrlab.engine.choices import Form
from isrlab.engine.versions import GENERATIONS, RULES, KafkaVersion
from isrlab.judged import Run

STEPS = 2_000  # kept of each release, or more where a rule needs it
# Rules of followers, controllers, producers and logs, or in no release: no leader's step asks them
NOT_A_LEADERS = {
    "truncation", "follow_again", "halts_on_log_end_past_leader", "cleans_epochs_at_log_end",
    "epoch_bump_on_isr_shrink", "notices_fast_bounce", "keeps_last_isr_member",
    "eligible_leader_replicas", "logs_expanding_isr", "expand_waits_under_min_isr",
    "unclean_leader_election_enable", "replica_lag_time_max_ms", "replica_lag_max_messages",
    "session_timeout_ms", "producer_acks",
}  # fmt: skip
LEADERS = [rule for rule in RULES if rule not in NOT_A_LEADERS]


def neighbours(version: KafkaVersion) -> dict[str, KafkaVersion]:
    """The generations before and after, if any rule of a leader is another there."""
    place = GENERATIONS.index(version)
    near = GENERATIONS[max(0, place - 1) : place + 2]
    return {v.name: v for v in near if _rules(v) != _rules(version)}


def _rules(version: KafkaVersion) -> list[object]:
    return [getattr(version, rule) for rule in LEADERS]


def switched(version: KafkaVersion) -> dict[str, KafkaVersion]:
    """A release with each rule of a leader that it could have otherwise, by "rule=form"."""
    made = {}
    for rule in LEADERS:
        for value in _values(rule, getattr(version, rule)):
            other = version.with_(**{rule: value})
            made[f"{rule}={other.form(rule)}"] = other
    return made


def _values(rule: str, value: Any) -> list[Any]:
    every = type(value) if isinstance(value, Form) else {getattr(v, rule) for v in GENERATIONS}
    return sorted(set(every) - {value})


def unnoticed(runs: list[Run], others: dict[str, KafkaVersion]) -> dict[str, KafkaVersion]:
    """Which other rules all these runs agree with, too."""
    return {n: v for n, v in others.items() if all(run.agrees(v) for run in runs)}


def choose(runs: list[Run], version: KafkaVersion) -> list[Run]:
    """The first runs, `STEPS` of them, and each later one that notices what none has before."""
    left, chosen, steps = switched(version) | neighbours(version), [], 0
    for run in runs:
        still = unnoticed([run], left)
        if steps < STEPS or still != left:
            chosen.append(run)
            steps += len(run.schedule)
        left = still
    return chosen
