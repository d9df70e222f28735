"""Every generation of Kafka's replication rules as one frozen record of choices and defaults.

Theory of operation. Kafka's rules changed many times between 0.8.2 and 4.x, but always one rule
at a time. A `KafkaVersion` is therefore a row of choices: each field names one rule, its value
says which form of the rule that release has, and `rules.py` holds the forms. Nothing else in
isrlab asks "which version is this?". The letters are the columns of the preset matrix; fifteen
are distinguishable, and `PRESETS` holds those that are modelled so far.

Source of every value: the apache/kafka repository at the tag named in `tag`; the KIP or JIRA that
changed a rule stands beside the field.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum


class LagClock(IntEnum):
    """What a follower must do for its clock `last_caught_up_time_ms` to be set."""

    LAST_FETCH = 0  # any fetch at all (0.8)
    READ_TO_LOG_END = 1  # a fetch at the leader's log end offset (KAFKA-1546)
    CAUGHT_UP_TO_PREVIOUS_FETCH = 2  # or at the end offset the previous fetch saw (KAFKA-4485)


class ClockReset(IntEnum):
    """When a broker that becomes leader restarts its followers' clocks."""

    ALWAYS = 0  # at every LeaderAndIsr, even one sent again
    NEVER = 1  # an old clock survives: the first check may drop a healthy follower
    ON_EPOCH_BUMP = 2  # only when the leader epoch rises (KAFKA-13790)


class ShrinkRule(IntEnum):
    """What makes an ISR member out of sync."""

    STUCK_OR_MESSAGES = 0  # no fetch for the lag time, or too many messages behind
    TIME = 1  # not caught up for the lag time (KAFKA-1546)
    TIME_UNLESS_AT_LOG_END = 2  # the same, but never at the leader's log end offset (KAFKA-7152)


class ExpandRule(IntEnum):
    """What lets a fetching replica into the ISR."""

    HIGH_WATERMARK = 0  # its end offset has reached the high watermark
    EPOCH_START = 1  # and the start of the leader's epoch (KAFKA-7128)


class Eligibility(IntEnum):
    """What else the leader must believe about the broker of a replica that would join."""

    ANY = 0
    NOT_FENCED = 1  # neither fenced nor shutting down (KIP-841)
    BROKER_EPOCH = 2  # and still the incarnation that fetched (KIP-903)


class HighWatermarkSet(IntEnum):
    """Whose end offsets the high watermark is the minimum of (the leader always counts)."""

    ISR = 0
    ISR_OR_FRESH_CLOCK = 1  # and replicas whose lag clock is fresh (KAFKA-4485)
    MAXIMAL_ISR_OR_FRESH_CLOCK = 2  # the ISR as if every change in flight had grown it (KIP-497)
    MAXIMAL_ISR_OR_CAUGHT_UP = 3  # fresh clock, or at the leader's end offset (KAFKA-13790)
    MAXIMAL_ISR_OR_CAUGHT_UP_AND_ELIGIBLE = 4  # and allowed to join (KAFKA-15021)


class AfterShrink(IntEnum):
    """When a leader that shrank the ISR looks at its high watermark again."""

    AT_ONCE = 0
    NEVER = 1  # KAFKA-13091: it waits for the next append or fetch
    ON_COMMIT = 2


class IsrWrite(IntEnum):
    """How a leader makes an ISR change durable."""

    ZOOKEEPER = 0  # conditional write of the state znode; nobody is told
    ZOOKEEPER_NOTIFY = 1  # and a change notification for the controller, delayed (0.9)
    ALTER_ISR = 2  # a request to the controller (KIP-497)
    ALTER_PARTITION = 3  # the same, renamed, with the leader's recovery state (KIP-704)


class Truncation(IntEnum):
    """How a follower finds the offset it shares with a new leader."""

    HIGH_WATERMARK = 0  # it cuts its log at its own high watermark
    EPOCH_ONE_ROUND = 1  # it asks the leader once where its last epoch ends (KIP-101)
    EPOCH_ITERATIVE = 2  # it asks again for each epoch the leader does not know (KIP-279)
    ON_FETCH = 3  # the leader's fetch response says where the logs diverge (KIP-595)


class EpochEntry(IntEnum):
    """When a leader writes its epoch and start offset into the leader-epoch cache."""

    NONE = 0
    ON_APPEND = 1  # with the first record of the epoch (KIP-101)
    ON_BECOMING_LEADER = 2  # before any record (KAFKA-7415)
    ON_EPOCH_BUMP = 3  # the same, unless only the partition epoch changed (KAFKA-13790)


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
    high_watermark_set: HighWatermarkSet
    high_watermark_held_under_min_isr: bool  # KAFKA-15583
    high_watermark_after_shrink: AfterShrink
    high_watermark_only_if_follower_moved: bool  # KAFKA-8841
    isr_write: IsrWrite
    truncation: Truncation
    epoch_entry: EpochEntry
    pushes_high_watermark: (
        bool  # a fetch is answered at once if the high watermark is news (KIP-392)
    )
    cleans_epochs_at_log_end: bool  # a cut that cuts nothing drops empty epochs (KAFKA-10706)
    epoch_bump_on_isr_shrink: bool  # KRaft until metadata version 3.6 (KAFKA-15021)
    logs_expanding_isr: bool  # the broker log has an "Expanding ISR" line
    fences_stale_leader_epoch: bool  # requests carry the leader epoch they expect (KIP-320)
    halts_on_log_end_past_leader: bool  # a follower ahead of a clean leader stops its broker (≤1.1)
    notices_fast_bounce: bool  # broker epochs: no restart is too fast for the controller (KIP-380)
    keeps_last_isr_member: bool  # when it dies, even with unclean election (1.1)
    accepts_any_acks: bool  # acks=2 and more wait for that many copies (0.8)
    not_leader_error: str  # what a broker that does not lead answers
    kraft: bool

    unclean_leader_election_enable: bool  # KIP-106 made it false
    replica_lag_time_max_ms: int  # KIP-537 made it 30 s
    replica_lag_max_messages: int | None  # 0.8 only
    session_timeout_ms: int  # ZooKeeper session, or KRaft broker session
    producer_acks: int  # of the Java producer; -1 is "all" (KIP-679)

    @classmethod
    def of(cls, name: str | KafkaVersion) -> KafkaVersion:
        """The generation of a release as a user types it: "0.10.2", "2.5.1", "3.9".

        Raises ValueError for a release that is not modelled yet, and for one that does not exist.
        """
        if isinstance(name, KafkaVersion):
            return name
        numbers = _release_numbers(name)
        column = next(
            (c for low, c in reversed(_FIRST_RELEASES) if numbers and numbers >= low), None
        )
        known = ", ".join(v.releases for v in PRESETS.values())
        if column is None or numbers[1] > _LAST_MINOR.get(numbers[0], -1):
            raise ValueError(f"unknown Kafka version {name!r}; known: {known}")
        if column not in PRESETS:
            raise ValueError(f"Kafka {name} is not modelled yet; modelled: {known}")
        return PRESETS[column]

    def with_(self, **choices: object) -> KafkaVersion:
        """The same generation with some choices switched by hand, named so that it shows."""
        unknown = sorted(set(choices) - set(self.__dataclass_fields__))
        if unknown:
            raise ValueError(
                f"unknown rule {unknown[0]!r}; known: {', '.join(self.__dataclass_fields__)}"
            )
        switched = ", ".join(f"{k}={getattr(v, 'name', v)}" for k, v in choices.items())
        return replace(self, **{"name": f"{self.name} ({switched})", **choices})  # type: ignore[arg-type]

    def __str__(self) -> str:
        return self.name


def _release_numbers(name: str) -> tuple[int, ...]:
    """(0, 10, 2) for "0.10.2.2"; empty if it is no dotted number of two to four parts."""
    parts = str(name).strip().removeprefix("v").split(".")
    if not 2 <= len(parts) <= 4 or not all(p.isascii() and p.isdigit() for p in parts):
        return ()
    return tuple(int(p) for p in parts)


_LAST_MINOR = {0: 11, 1: 1, 2: 8, 3: 9, 4: 3}  # of each major release

# The first release of each column. 2.0.0 stands between D and E and counts as E, whose iterative
# truncation it has; 0.8.0 and 0.8.1 had the rules of 0.8.2 without min.insync.replicas.
_FIRST_RELEASES: tuple[tuple[tuple[int, ...], str], ...] = (
    ((0, 8), "A"),
    ((0, 9), "B"),
    ((0, 10, 2), "C"),
    ((0, 11), "D"),
    ((2, 0), "E"),
    ((2, 4), "F"),
    ((2, 5), "G"),
    ((2, 6), "H"),
    ((2, 7), "I"),
    ((2, 8), "J"),
    ((3, 1), "K"),
    ((3, 3), "L"),
    ((3, 6), "M"),
    ((3, 7), "N"),
    ((4, 0), "O"),
)

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
    high_watermark_set=HighWatermarkSet.ISR,
    high_watermark_held_under_min_isr=False,
    high_watermark_after_shrink=AfterShrink.AT_ONCE,
    high_watermark_only_if_follower_moved=False,
    isr_write=IsrWrite.ZOOKEEPER,
    truncation=Truncation.HIGH_WATERMARK,
    epoch_entry=EpochEntry.NONE,
    cleans_epochs_at_log_end=False,
    pushes_high_watermark=False,
    epoch_bump_on_isr_shrink=False,
    logs_expanding_isr=True,
    fences_stale_leader_epoch=False,
    halts_on_log_end_past_leader=True,
    notices_fast_bounce=False,
    keeps_last_isr_member=False,
    accepts_any_acks=True,
    not_leader_error="NOT_LEADER_FOR_PARTITION",
    kraft=False,
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
    releases="0.11-1.1",
    tag="0.11.0.2",
    truncation=Truncation.EPOCH_ONE_ROUND,
    epoch_entry=EpochEntry.ON_APPEND,
    unclean_leader_election_enable=False,
)
_G = replace(
    _D,
    column="G",
    name="2.5",
    releases="2.5",
    tag="2.5.1",
    shrink_rule=ShrinkRule.TIME_UNLESS_AT_LOG_END,
    expand_rule=ExpandRule.EPOCH_START,
    high_watermark_only_if_follower_moved=True,
    truncation=Truncation.EPOCH_ITERATIVE,
    epoch_entry=EpochEntry.ON_BECOMING_LEADER,
    pushes_high_watermark=True,
    fences_stale_leader_epoch=True,
    halts_on_log_end_past_leader=False,
    notices_fast_bounce=True,
    keeps_last_isr_member=True,
    replica_lag_time_max_ms=30_000,
    session_timeout_ms=18_000,
)
_N = replace(
    _G,
    column="N",
    name="3.7",
    releases="3.7-3.9",
    tag="3.7.1",
    clock_reset=ClockReset.ON_EPOCH_BUMP,
    eligibility=Eligibility.BROKER_EPOCH,
    high_watermark_set=HighWatermarkSet.MAXIMAL_ISR_OR_CAUGHT_UP_AND_ELIGIBLE,
    high_watermark_held_under_min_isr=True,
    high_watermark_after_shrink=AfterShrink.ON_COMMIT,
    isr_write=IsrWrite.ALTER_PARTITION,
    truncation=Truncation.ON_FETCH,
    epoch_entry=EpochEntry.ON_EPOCH_BUMP,
    cleans_epochs_at_log_end=True,
    pushes_high_watermark=False,
    logs_expanding_isr=False,
    not_leader_error="NOT_LEADER_OR_FOLLOWER",
    kraft=True,
    session_timeout_ms=9_000,
    producer_acks=-1,
)

PRESETS: dict[str, KafkaVersion] = {v.column: v for v in (_A, _B, _C, _D, _G, _N)}
