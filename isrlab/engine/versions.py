"""Every generation of Kafka's replication rules as one frozen record of choices and defaults.

Theory of operation. Kafka's rules changed many times between 0.8.2 and 4.x, but always one rule
at a time. A `KafkaVersion` is therefore a row of choices: each field names one rule, its value
says which form of the rule that release has, and `rules.py` holds the forms. Nothing else in
isrlab asks "which version is this?". The letters are the columns of the preset matrix; fifteen
are distinguishable, and `PRESETS` holds one version for each.

Source of every value: the apache/kafka repository at the tag named in `tag`; the KIP or JIRA that
changed a rule stands beside the field.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from isrlab.engine.choices import (
    AfterShrink,
    ClockReset,
    Eligibility,
    EpochEntry,
    ExpandRule,
    FollowAgain,
    HighWatermarkSet,
    IsrWrite,
    LagClock,
    ShrinkRule,
    Truncation,
)


@dataclass(frozen=True, slots=True)
class KafkaVersion:
    """One generation: the form of each rule, then the defaults that changed with releases."""

    column: str  # letter in the preset matrix
    name: str  # the shortest name that a user would type
    releases: str  # every release with these rules
    tag: str  # the tag the rules were read at

    lag_clock: LagClock
    clock_reset: ClockReset
    shrink_rule: ShrinkRule
    isr_checks_per_lag_time: int  # 2 since 0.10.2: followers leave after 1.0-1.5 lag times, not 1-2
    expand_rule: ExpandRule
    eligibility: Eligibility
    expand_waits_under_min_isr: bool  # KAFKA-19996, proposed: in no release
    high_watermark_set: HighWatermarkSet
    high_watermark_held_under_min_isr: bool  # KAFKA-15583
    high_watermark_after_shrink: AfterShrink
    high_watermark_only_if_follower_moved: bool  # KAFKA-8841
    isr_write: IsrWrite
    truncation: Truncation
    follow_again: FollowAgain
    epoch_entry: EpochEntry
    cleans_epochs_at_log_end: bool  # a cut that cuts nothing drops empty epochs (KAFKA-10706)
    pushes_high_watermark: bool  # news of it answers a waiting fetch at once (KIP-392)
    epoch_bump_on_isr_shrink: bool  # KRaft until metadata version 3.6 (KAFKA-15021)
    logs_expanding_isr: bool  # the broker log has an "Expanding ISR" line
    fences_stale_leader_epoch: bool  # requests carry the leader epoch they expect (KIP-320)
    refuses_former_incarnation: bool  # a fetch from before its broker's restart (KAFKA-15221)
    halts_on_log_end_past_leader: bool  # a follower ahead of a clean leader halts (up to 2.0.0)
    notices_fast_bounce: bool  # broker epochs: no restart is too fast for the controller (KIP-380)
    keeps_last_isr_member: bool  # when it dies, even with unclean election (1.1)
    accepts_any_acks: bool  # acks=2 and more wait for that many copies (0.8)
    not_leader_error: str  # what a broker that does not lead answers
    kraft: bool  # the usual mode; 2.8-3.2 had it as a preview, 3.3-3.9 kept ZooKeeper as well
    eligible_leader_replicas: bool  # KIP-966, on by default for new clusters

    unclean_leader_election_enable: bool  # KIP-106 made it false
    replica_lag_time_max_ms: int  # KIP-537 made it 30 s
    replica_lag_max_messages: int | None  # 0.8 only
    session_timeout_ms: int  # ZooKeeper session, or KRaft broker session
    producer_acks: int  # of the Java producer; -1 is "all" (KIP-679)

    @classmethod
    def of(cls, name: str | KafkaVersion) -> KafkaVersion:
        """The rules of a release as a user types it: "0.10.2", "2.5.1", "3.9".

        Raises ValueError for a release that does not exist.
        """
        if isinstance(name, KafkaVersion):
            return name
        numbers = release(name)
        return [v for first, v in RELEASES if numbers >= first][-1]

    def with_(self, **choices: object) -> KafkaVersion:
        """The same generation with some choices switched by hand, named so that it shows."""
        unknown = sorted(set(choices) - set(self.__dataclass_fields__))
        if unknown:
            raise ValueError(
                f"unknown rule {unknown[0]!r}; known: {', '.join(self.__dataclass_fields__)}"
            )
        switched = ", ".join(f"{k}={getattr(v, 'name', v)}" for k, v in choices.items())
        named = {"name": f"{self.name} ({switched})", **choices}
        return replace(self, **named)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return self.name


def release(name: str) -> tuple[int, ...]:
    """The numbers of a release, to be compared: (0, 10, 2, 2) for "0.10.2.2".

    Without its last number a name means the last such release: "2.0" is 2.0.1, "2.6" is 2.6.3.
    Raises ValueError for a release that does not exist, and for a generation: some have releases
    that differ in what no rule of the engine asks for (0.10.0 and 0.10.1).
    """
    numbers = series(name)
    is_short = len(numbers) == (3 if numbers[0] == 0 else 2)
    return (*numbers, _LAST) if is_short else numbers


def series(name: str) -> tuple[int, ...]:
    """The numbers of a release or of a series of releases, as written: (2, 6) for "2.6".

    So it also is the first of a series: `release("2.6.1") >= series("2.6")`. Raises ValueError for
    what has not two to four numbers, or has numbers of no release.
    """
    parts = str(name).strip().removeprefix("v").split(".")
    is_dotted = 2 <= len(parts) <= 4 and all(p.isascii() and p.isdigit() for p in parts)
    numbers = tuple(int(p) for p in parts) if is_dotted else ()
    is_known = RELEASES[0][0] <= numbers and numbers[1] <= _LAST_MINOR.get(numbers[0], -1)
    if isinstance(name, KafkaVersion) or not is_known:
        known = ", ".join(v.releases for _, v in RELEASES)
        shown = f"{name.releases} (a generation)" if isinstance(name, KafkaVersion) else name
        raise ValueError(f"unknown Kafka version {shown!r}; known: {known}")
    return numbers


_LAST = 99  # of the releases that differ in their last number only
_LAST_MINOR = {0: 11, 1: 1, 2: 8, 3: 9, 4: 3}  # of each major release

# Each generation says what it changed; everything else is as in the one before. A letter is a
# column of the preset matrix; some changes within a column have a row of their own (2.0.0, 3.0).
# Left out: 0.8.0 and 0.8.1 had no min.insync.replicas; 0.11.0-1.0.1 and 1.1.0 cut nothing when both
# logs are without epochs (KAFKA-6857: upgrades only); 2.7.0 and 2.7.1 took an answer with their own
# partition epoch for an old one.
_A = KafkaVersion(
    column="A",
    name="0.8.2",
    releases="0.8.2",
    tag="0.8.2.2",
    lag_clock=LagClock.LAST_FETCH,
    clock_reset=ClockReset.ALWAYS,
    shrink_rule=ShrinkRule.STUCK_OR_MESSAGES,
    isr_checks_per_lag_time=1,
    expand_rule=ExpandRule.HIGH_WATERMARK,
    eligibility=Eligibility.ANY,
    expand_waits_under_min_isr=False,
    high_watermark_set=HighWatermarkSet.ISR,
    high_watermark_held_under_min_isr=False,
    high_watermark_after_shrink=AfterShrink.AT_ONCE,
    high_watermark_only_if_follower_moved=False,
    isr_write=IsrWrite.ZOOKEEPER,
    truncation=Truncation.HIGH_WATERMARK,
    follow_again=FollowAgain.OTHER_LEADER,
    epoch_entry=EpochEntry.NONE,
    cleans_epochs_at_log_end=False,
    pushes_high_watermark=False,
    epoch_bump_on_isr_shrink=False,
    logs_expanding_isr=True,
    fences_stale_leader_epoch=False,
    refuses_former_incarnation=False,
    halts_on_log_end_past_leader=True,
    notices_fast_bounce=False,
    keeps_last_isr_member=False,
    accepts_any_acks=True,
    not_leader_error="NOT_LEADER_FOR_PARTITION",
    kraft=False,
    eligible_leader_replicas=False,
    unclean_leader_election_enable=True,
    replica_lag_time_max_ms=10_000,
    replica_lag_max_messages=4_000,
    session_timeout_ms=6_000,
    producer_acks=1,
)
_B = replace(
    _A,
    column="B",
    name="0.9.0",
    releases="0.9.0-0.10.1",
    tag="0.9.0.1",
    lag_clock=LagClock.READ_TO_LOG_END,
    clock_reset=ClockReset.NEVER,
    shrink_rule=ShrinkRule.TIME,
    isr_write=IsrWrite.ZOOKEEPER_NOTIFY,
    accepts_any_acks=False,
    replica_lag_max_messages=None,
)
_C = replace(
    _B,
    column="C",
    name="0.10.2",
    releases="0.10.2",
    tag="0.10.2.2",
    lag_clock=LagClock.CAUGHT_UP_TO_PREVIOUS_FETCH,
    clock_reset=ClockReset.ALWAYS,
    isr_checks_per_lag_time=2,
    high_watermark_set=HighWatermarkSet.ISR_OR_FRESH_CLOCK,
)
_D = replace(
    _C,
    column="D",
    name="0.11",
    releases="0.11-1.0",
    tag="0.11.0.2",
    truncation=Truncation.EPOCH_ONE_ROUND,
    epoch_entry=EpochEntry.ON_APPEND,
    unclean_leader_election_enable=False,
)
_D_1_1 = replace(_D, name="1.1", releases="1.1", tag="1.1.1", keeps_last_isr_member=True)
_D_2_0_0 = replace(
    _D_1_1,
    name="2.0.0",
    releases="2.0.0",
    tag="2.0.0",
    truncation=Truncation.EPOCH_ITERATIVE,
)
_E = replace(
    _D_2_0_0,
    column="E",
    name="2.0",
    releases="2.0.1",
    tag="2.0.1",
    expand_rule=ExpandRule.EPOCH_START,
    epoch_entry=EpochEntry.ON_BECOMING_LEADER,
    follow_again=FollowAgain.AFTER_A_GAP,
    halts_on_log_end_past_leader=False,
)
_E_2_1 = replace(
    _E,
    name="2.1",
    releases="2.1",
    tag="2.1.1",
    shrink_rule=ShrinkRule.TIME_UNLESS_AT_LOG_END,
    follow_again=FollowAgain.EVERY_EPOCH,
    fences_stale_leader_epoch=True,
)
_E_2_2 = replace(_E_2_1, name="2.2", releases="2.2-2.3", tag="2.2.2", notices_fast_bounce=True)
_F = replace(
    _E_2_2,
    column="F",
    name="2.4",
    releases="2.4",
    tag="2.4.1",
    high_watermark_only_if_follower_moved=True,
    pushes_high_watermark=True,
)
_G = replace(
    _F,
    column="G",
    name="2.5",
    releases="2.5",
    tag="2.5.1",
    replica_lag_time_max_ms=30_000,
    session_timeout_ms=18_000,
)
_H_2_6_0 = replace(
    _G,
    column="H",
    name="2.6.0",
    releases="2.6.0",
    tag="2.6.0",
    pushes_high_watermark=False,
    not_leader_error="NOT_LEADER_OR_FOLLOWER",
)
_H = replace(
    _H_2_6_0,
    name="2.6",
    releases="2.6.1-2.6.3",
    tag="2.6.3",
    cleans_epochs_at_log_end=True,
)
_I = replace(
    _H,
    column="I",
    name="2.7",
    releases="2.7",
    tag="2.7.2",
    isr_write=IsrWrite.ALTER_ISR,
    high_watermark_set=HighWatermarkSet.MAXIMAL_ISR_OR_FRESH_CLOCK,
    high_watermark_after_shrink=AfterShrink.NEVER,
    logs_expanding_isr=False,
)
_J = replace(
    _I,
    column="J",
    name="2.8",
    releases="2.8",
    tag="2.8.2",
    truncation=Truncation.ON_FETCH,
    epoch_bump_on_isr_shrink=True,
)
_J_3_0 = replace(_J, name="3.0", releases="3.0", tag="3.0.2", producer_acks=-1)
_K = replace(
    _J_3_0,
    column="K",
    name="3.1",
    releases="3.1",
    tag="3.1.2",
    high_watermark_after_shrink=AfterShrink.ON_COMMIT,
)
_K_3_2 = replace(_K, name="3.2", releases="3.2", tag="3.2.3", isr_write=IsrWrite.ALTER_PARTITION)
_L = replace(
    _K_3_2,
    column="L",
    name="3.3",
    releases="3.3-3.4",
    tag="3.3.2",
    clock_reset=ClockReset.ON_EPOCH_BUMP,
    eligibility=Eligibility.NOT_FENCED,
    high_watermark_set=HighWatermarkSet.MAXIMAL_ISR_OR_CAUGHT_UP,
    epoch_entry=EpochEntry.ON_EPOCH_BUMP,
    kraft=True,
    session_timeout_ms=9_000,
)
_L_3_5 = replace(_L, name="3.5", releases="3.5", tag="3.5.2", eligibility=Eligibility.BROKER_EPOCH)
_M = replace(
    _L_3_5,
    column="M",
    name="3.6",
    releases="3.6",
    tag="3.6.2",
    high_watermark_set=HighWatermarkSet.MAXIMAL_ISR_OR_CAUGHT_UP_AND_ELIGIBLE,
    epoch_bump_on_isr_shrink=False,
)
_N = replace(
    _M,
    column="N",
    name="3.7",
    releases="3.7-3.9",
    tag="3.7.1",
    high_watermark_held_under_min_isr=True,
    refuses_former_incarnation=True,
)
_O = replace(_N, column="O", name="4.0", releases="4.0", tag="trunk of 2024-10-25")
_O_4_1 = replace(_O, name="4.1", releases="4.1-4.3", eligible_leader_replicas=True)

# The first release of each row, ascending; `KafkaVersion.of` takes the last that is not newer.
RELEASES: tuple[tuple[tuple[int, ...], KafkaVersion], ...] = (
    ((0, 8), _A),
    ((0, 9), _B),
    ((0, 10, 2), _C),
    ((0, 11), _D),
    ((1, 1), _D_1_1),
    ((2, 0), _D_2_0_0),
    ((2, 0, 1), _E),
    ((2, 1), _E_2_1),
    ((2, 2), _E_2_2),
    ((2, 4), _F),
    ((2, 5), _G),
    ((2, 6), _H_2_6_0),
    ((2, 6, 1), _H),
    ((2, 7), _I),
    ((2, 8), _J),
    ((3, 0), _J_3_0),
    ((3, 1), _K),
    ((3, 2), _K_3_2),
    ((3, 3), _L),
    ((3, 5), _L_3_5),
    ((3, 6), _M),
    ((3, 7), _N),
    ((4, 0), _O),
    ((4, 1), _O_4_1),
)

# One version for each column of the preset matrix.
PRESETS: dict[str, KafkaVersion] = {
    v.column: v for v in (_A, _B, _C, _D, _E_2_2, _F, _G, _H, _I, _J, _K, _L, _M, _N, _O_4_1)
}
