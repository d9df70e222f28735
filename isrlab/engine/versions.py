"""Every generation of Kafka's replication rules as one frozen record of choices and defaults.

Theory of operation. Kafka's rules changed many times between 0.8.2 and 4.x, but each release
changed only a few of them. A `KafkaVersion` is therefore a row of choices: each field names one
rule, its value is the form that the rule has in that release, and `choices.py` lists the forms. The
engine asks for a form and never for a release number. `GENERATIONS` is the one table of releases.
Generations that share a letter differ little; the preset matrix has one column for each letter.

Source of every value: the apache/kafka repository at the tag named in `tag`. If a KIP or JIRA
brought a form and is known, the label of the form names it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from itertools import accumulate
from typing import Any

from isrlab.engine import choices as c
from isrlab.engine.frozen import Shared

LAST = 99  # stands for the last patch release of a line


def switch(off: str, on: str, at_first: bool = False) -> Any:
    """A field for a rule that is on or off, with a label for each."""
    return field(default=at_first, metadata={"words": (off, on)})


@dataclass(frozen=True, slots=True)
class KafkaVersion(Shared):
    """One generation: the form of each rule, then the defaults that changed with releases.

    The values of the fields here are those of 0.8.2; `CHANGES` lists what came later.
    """

    column: str  # letter in the preset matrix
    name: str  # the shortest name a user would type
    releases: str  # every release with these rules, as "3.6" or "3.3-3.4"
    tag: str  # the tag the rules were read at
    first: tuple[int, ...]  # the numbers of the first of `releases`
    last: tuple[int, ...]

    lag_clock: c.LagClock = c.LagClock.LAST_FETCH
    clock_reset: c.ClockReset = c.ClockReset.ALWAYS
    shrink_rule: c.ShrinkRule = c.ShrinkRule.STUCK_OR_MESSAGES
    isr_checks_per_lag_time: int = 1  # followers leave after 1-2 lag times; with 2 after 1-1.5
    expand_rule: c.ExpandRule = c.ExpandRule.HIGH_WATERMARK
    eligibility: c.Eligibility = c.Eligibility.ANY
    expand_waits_under_min_isr: bool = switch(
        "the ISR also grows under min ISR",
        "under min ISR a replica that would leave again may not join (KAFKA-19996)",
    )
    high_watermark_set: c.HighWatermarkSet = c.HighWatermarkSet.ISR
    high_watermark_held_under_min_isr: bool = switch(
        "high watermark also moves under min ISR", "high watermark held under min ISR (KAFKA-15583)"
    )
    high_watermark_after_shrink: c.AfterShrink = c.AfterShrink.IMMEDIATELY
    high_watermark_only_if_follower_moved: bool = switch(
        "high watermark checked at every fetch",
        "high watermark checked only when a follower has moved (KAFKA-8841)",
    )
    isr_write: c.IsrWrite = c.IsrWrite.ZOOKEEPER
    after_isr_error: c.AfterIsrError = c.AfterIsrError.WAITS
    order_frees_isr_request: bool = switch(
        "an order leaves the place of an unanswered ISR change taken (KAFKA-12686)",
        "an order frees the place of an unanswered ISR change, and the next is never sent",
        at_first=True,
    )
    ignores_known_order: bool = switch(
        "KRaft: an order with the partition epoch that is known ends an ISR change on its way",
        "KRaft: an order with the partition epoch that is known changes nothing",
    )
    reassignment: c.Reassignment = c.Reassignment.GOES_ON
    truncation: c.Truncation = c.Truncation.HIGH_WATERMARK
    follow_again: c.FollowAgain = c.FollowAgain.OTHER_LEADER
    epoch_entry: c.EpochEntry = c.EpochEntry.NONE
    cleans_epochs_at_log_end: bool = switch(
        "a truncation to the log end keeps empty epochs",
        "a truncation to the log end drops empty epochs (KAFKA-10706)",
    )
    pushes_high_watermark: bool = switch(
        "a new high watermark answers no fetch",
        "a new high watermark answers waiting fetches (KIP-392)",
    )
    # KRaft until metadata version 3.6
    epoch_bump_on_isr_shrink: bool = switch(
        "a shrink leaves the leader epoch as it is (KAFKA-15021)",
        "KRaft: a shrink raises the leader epoch",
    )
    logs_expanding_isr: bool = switch(
        'no "Expanding ISR" line in the log', 'an "Expanding ISR" line in the log', at_first=True
    )
    fences_stale_leader_epoch: bool = switch(
        "requests carry no leader epoch", "requests carry the leader epoch they expect (KIP-320)"
    )
    refuses_former_incarnation: bool = switch(
        "a fetch from before its broker's restart is served",
        "a fetch from before its broker's restart is refused (KAFKA-15221)",
    )
    halts_on_log_end_past_leader: bool = switch(
        "a follower ahead of its leader truncates",
        "a follower ahead of a clean leader halts",
        at_first=True,
    )
    notices_fast_bounce: bool = switch(
        "a fast restart goes unnoticed by the controller",
        "no restart is too fast for the controller (KIP-380)",
    )
    keeps_last_isr_member: bool = switch(
        "with unclean election, the ISR may become empty",
        "the last ISR member stays in when it dies, even with unclean election",
    )
    failed_fetch_resets_follower: bool = switch(
        "a fetch that failed says nothing of its follower (KAFKA-8400)",
        "after a fetch that failed the leader does not know where the follower's log ends",
        at_first=True,
    )
    accepts_any_acks: bool = switch(
        "acks are 0, 1 or all", "acks=2 and more wait for that many copies", at_first=True
    )
    not_leader_error: str = "NOT_LEADER_FOR_PARTITION"  # what a broker that does not lead answers
    # 2.8-3.2 had KRaft as a preview, and 3.3-3.9 had ZooKeeper as a second mode
    kraft: bool = switch("ZooKeeper is the usual mode", "KRaft is the usual mode")
    kraft_elects_uncleanly: bool = switch(
        "KRaft ignores unclean.leader.election.enable: only an operator elects uncleanly",
        "KRaft heeds unclean.leader.election.enable (KAFKA-12670)",
    )
    handles_shutdown_again: bool = switch(
        "a broker that returns from a clean shutdown is only unfenced",
        "KRaft: a registration is first handled as a shutdown, even a clean one (KAFKA-18106)",
    )
    eligible_leader_replicas: bool = switch(
        "no eligible leader replicas", "eligible leader replicas, for new clusters (KIP-966)"
    )
    restart_revives_settings: bool = switch(
        "a broker that starts drops the settings of a deleted topic",
        "KRaft: a broker that starts brings back the settings of a deleted topic",
    )
    directory_change_keeps_elr: bool = switch(
        "another directory of a replica empties the partition's ELR",
        "another directory of a replica leaves the ELR as it is (pull request 20716)",
    )
    elr_of_replicas_only: bool = switch(
        "a removed replica may stay, or become, an eligible leader replica",
        "only replicas of the partition are eligible leader replicas (KIP-966 as written)",
    )
    min_isr_of_own_partition: bool = switch(
        "the controller counts the replicas of partition 0 for the min ISR of each partition",
        "the controller counts each partition's own replicas for its min ISR, as leaders do",
    )
    unclean_leader_election_enable: bool = switch(
        "unclean election is off (KIP-106)", "unclean election is on", at_first=True
    )
    replica_lag_time_max_ms: int = 10_000  # KIP-537 made it 30 s
    replica_lag_max_messages: int | None = 4_000  # 0.8 only
    session_timeout_ms: int = 6_000  # ZooKeeper session, or KRaft broker session
    producer_acks: int = 1  # of the Java producer; -1 is "all" (KIP-679)

    @property
    def writes_zookeeper(self) -> bool:
        """Whether leaders write ISR changes into ZooKeeper; from 2.7 they ask the controller."""
        return self.isr_write <= c.IsrWrite.ZOOKEEPER_NOTIFY

    @property
    def removal_raises_leader_epoch(self) -> bool:
        """Whether the leader epoch rises when the controller takes a follower out of the ISR.

        Every write of a ZooKeeper controller raises it; in KRaft, a shrink did up to 3.5.
        """
        return not self.kraft or self.epoch_bump_on_isr_shrink

    @classmethod
    def of(cls, name: str | KafkaVersion) -> KafkaVersion:
        """The rules of a release as a user types it: "0.10.2", "2.5.1", "3.9".

        Any patch number is accepted. Raises ValueError for an unknown minor release.
        """
        if isinstance(name, KafkaVersion):
            return name
        numbers = release(name)
        begun = [v for v in GENERATIONS if v.first <= numbers]
        if not begun:
            raise ValueError(unknown(name))
        return begun[-1]

    def with_(self, **choices: object) -> KafkaVersion:
        """The generation with these rules (listed in its name), a form also by its own name.

        Raises ValueError for an unknown rule or form.
        """
        for rule in sorted(set(choices) - set(RULES)):
            raise ValueError(f"unknown rule {rule!r}; known: {', '.join(RULES)}")
        for rule, value in choices.items():
            kind = type(getattr(self, rule))
            if issubclass(kind, c.Form) and isinstance(value, str):
                if value not in (forms := kind.__members__):
                    raise ValueError(f"{rule} has no form {value!r}; known: {', '.join(forms)}")
                choices[rule] = forms[value]
        switched = ", ".join(f"{k}={getattr(v, 'name', v)}" for k, v in choices.items())
        return replace(self, name=f"{self.name} ({switched})", **choices)  # type: ignore[arg-type]

    def label(self, rule: str) -> str:
        """The form of one rule in words, with the KIP or JIRA that brought it, if any."""
        value = getattr(self, rule)
        if isinstance(value, c.Form):
            return value.label
        if isinstance(value, bool):
            return next(str(f.metadata["words"][value]) for f in fields(self) if f.name == rule)
        return f"{rule.replace('_', ' ')}: {self.form(rule)}"

    def form(self, rule: str) -> str:
        """The form of one rule in a word or a number: "read to log end", "yes", "10,000"."""
        value = getattr(self, rule)
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, c.Form):
            return value.name.lower().replace("_", " ")
        if rule == "producer_acks" and value == -1:
            return "all"
        return "none" if value is None else f"{value:,}" if isinstance(value, int) else str(value)

    def __str__(self) -> str:
        return self.name


# In no release: proposals of JIRA issues, and repairs of the data loss in 4.1 to 4.4
PROPOSED = (
    "expand_waits_under_min_isr", "ignores_known_order", "elr_of_replicas_only",
    "min_isr_of_own_partition",
)  # fmt: skip
RULES = tuple(field.name for field in fields(KafkaVersion))[6:]  # all but column, name, ..., last


def release(text: str, rest: int = LAST) -> tuple[int, ...]:
    """The numbers of a release, for comparisons: (0, 10, 2, 99) for "0.10.2", (2, 8, 99) for "2.8".

    A name means its last release: "2.0" is 2.0.1, so 2.0 >= (2, 0, 1). Where it begins a range
    ("since 2.0"), ask with `rest=0`. Raises ValueError for an unknown release, and for a
    `KafkaVersion`, whose releases may differ in details that no rule of the engine covers.
    """
    if isinstance(text, KafkaVersion):
        raise ValueError(unknown(f"{text.releases} (a generation)"))
    parts = str(text).strip().removeprefix("v").split(".")
    if not 2 <= len(parts) <= 4 or not all(p.isascii() and p.isdigit() for p in parts):
        raise ValueError(unknown(text))
    major, minor, *others = map(int, parts)
    ends = [end for version in GENERATIONS for end in (version.first, version.last)]
    last_minor = max((end[1] for end in ends if end[0] == major), default=-1)
    if minor > last_minor or (major, minor) < GENERATIONS[0].first[:2]:
        raise ValueError(unknown(text))
    return (major, minor, *others, rest)


def unknown(text: object) -> str:
    known = ", ".join(version.releases for version in GENERATIONS)
    return f"unknown Kafka version {text!r}; known: {known}"


def row(names: str, **changes: Any) -> dict[str, Any]:
    """The changes of one generation; `names` are its column, name, releases and tag, or its column
    and one release that stands for the other three."""
    column, name, *more = names.split(maxsplit=3)
    releases, tag = more or (name, name)
    ends = [tuple(map(int, end.split("."))) for end in releases.split("-")]
    named = {"column": column, "name": name, "releases": releases, "tag": tag}
    return {**named, "first": ends[0], "last": ends[-1], **changes}


# Left out: 0.8.0 and 0.8.1 had no min.insync.replicas; 0.11.0-1.0.1 and 1.1.0 truncated nothing
# when neither log has epochs (KAFKA-6857: upgrades only); 2.7.0 and 2.7.1 took an answer with their
# own partition epoch for a stale one.
CHANGES = (
    row("A 0.8.2 0.8.2 0.8.2.2"),
    row(
        "B 0.9.0 0.9.0-0.10.1 0.9.0.1",
        lag_clock=c.LagClock.READ_TO_LOG_END,
        clock_reset=c.ClockReset.NEVER,
        shrink_rule=c.ShrinkRule.TIME,
        isr_write=c.IsrWrite.ZOOKEEPER_NOTIFY,
        accepts_any_acks=False,
        replica_lag_max_messages=None,
    ),
    row(
        "C 0.10.2 0.10.2 0.10.2.2",
        lag_clock=c.LagClock.CAUGHT_UP_TO_PREVIOUS_FETCH,
        clock_reset=c.ClockReset.ALWAYS,
        isr_checks_per_lag_time=2,
        high_watermark_set=c.HighWatermarkSet.ISR_OR_FRESH_CLOCK,
    ),
    row(
        "D 0.11 0.11-1.0 0.11.0.2",
        truncation=c.Truncation.EPOCH_ONE_ROUND,
        epoch_entry=c.EpochEntry.ON_APPEND,
        unclean_leader_election_enable=False,
    ),
    row("D 1.1 1.1 1.1.1", keeps_last_isr_member=True),
    row("D 2.0.0", truncation=c.Truncation.EPOCH_ITERATIVE),
    row(
        "E 2.0 2.0.1 2.0.1",
        expand_rule=c.ExpandRule.EPOCH_START,
        epoch_entry=c.EpochEntry.ON_BECOMING_LEADER,
        follow_again=c.FollowAgain.AFTER_A_GAP,
        halts_on_log_end_past_leader=False,
    ),
    row(
        "E 2.1 2.1 2.1.1",
        shrink_rule=c.ShrinkRule.TIME_UNLESS_AT_LOG_END,
        follow_again=c.FollowAgain.EVERY_EPOCH,
        fences_stale_leader_epoch=True,
    ),
    row("E 2.2 2.2-2.3 2.2.2", notices_fast_bounce=True),
    row(
        "F 2.4 2.4 2.4.1",
        reassignment=c.Reassignment.REPLACEABLE,
        high_watermark_only_if_follower_moved=True,
        pushes_high_watermark=True,
        failed_fetch_resets_follower=False,
    ),
    row("G 2.5 2.5 2.5.1", replica_lag_time_max_ms=30_000, session_timeout_ms=18_000),
    row("H 2.6.0", pushes_high_watermark=False, not_leader_error="NOT_LEADER_OR_FOLLOWER"),
    row("H 2.6 2.6.1-2.6.3 2.6.3", cleans_epochs_at_log_end=True),
    row(
        "I 2.7 2.7 2.7.2",
        isr_write=c.IsrWrite.ALTER_ISR,
        high_watermark_set=c.HighWatermarkSet.MAXIMAL_ISR_OR_FRESH_CLOCK,
        high_watermark_after_shrink=c.AfterShrink.NEVER,
        logs_expanding_isr=False,
    ),
    row("J 2.8 2.8 2.8.2", truncation=c.Truncation.ON_FETCH, epoch_bump_on_isr_shrink=True),
    row("J 3.0 3.0 3.0.2", order_frees_isr_request=False, producer_acks=-1),
    row(
        "K 3.1 3.1 3.1.2",
        high_watermark_after_shrink=c.AfterShrink.ON_COMMIT,
        after_isr_error=c.AfterIsrError.REVERTS,
    ),
    row("K 3.2.0", isr_write=c.IsrWrite.ALTER_PARTITION),
    row("K 3.2 3.2.1-3.2.3 3.2.3", after_isr_error=c.AfterIsrError.RESENDS),
    row(
        "L 3.3 3.3-3.4 3.3.2",
        clock_reset=c.ClockReset.ON_EPOCH_BUMP,
        eligibility=c.Eligibility.NOT_FENCED,
        high_watermark_set=c.HighWatermarkSet.MAXIMAL_ISR_OR_CAUGHT_UP,
        epoch_entry=c.EpochEntry.ON_EPOCH_BUMP,
        reassignment=c.Reassignment.NEW_IN_SYNC,
        kraft=True,
        session_timeout_ms=9_000,
    ),
    row("L 3.5 3.5 3.5.2", eligibility=c.Eligibility.BROKER_EPOCH),
    row(
        "M 3.6 3.6 3.6.2",
        high_watermark_set=c.HighWatermarkSet.MAXIMAL_ISR_OR_CAUGHT_UP_AND_ELIGIBLE,
        epoch_bump_on_isr_shrink=False,
    ),
    row("N 3.7 3.7 3.7.1", high_watermark_held_under_min_isr=True, refuses_former_incarnation=True),
    row("N 3.8 3.8 3.8.0", reassignment=c.Reassignment.ALL_IN_SYNC, restart_revives_settings=True),
    row("N 3.9 3.9 3.9.0", kraft_elects_uncleanly=True),
    row("O 4.0 4.0 trunk of 2024-10-25", handles_shutdown_again=True),
    row("O 4.1 4.1-4.2 4.1.2", eligible_leader_replicas=True),
    row(
        "P 4.3 4.3-4.4 4.3.1",
        reassignment=c.Reassignment.NEW_IN_SYNC_UNLESS_FEWER,
        directory_change_keeps_elr=True,
    ),
)

# A generation equals the one before it, except for the fields that its row names
_FIRST = KafkaVersion(**CHANGES[0])
GENERATIONS = (*accumulate(CHANGES[1:], lambda v, changes: replace(v, **changes), initial=_FIRST),)
# Generations within a column: another one represents them in the matrix
NOT_IN_MATRIX = (
    "1.1", "2.0.0", "2.0", "2.1", "2.6.0", "3.0", "3.2.0", "3.2", "3.5", "3.8", "3.9", "4.0",
)  # fmt: skip
PRESETS = {v.column: v for v in GENERATIONS if v.name not in NOT_IN_MATRIX}
