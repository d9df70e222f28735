"""The forms that each rule has had: what a `KafkaVersion` chooses from."""

from __future__ import annotations

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
    NEVER = 1  # KAFKA-13091: only on asking, when the old ISR still counts; then at the next fetch
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


class FollowAgain(IntEnum):
    """When a follower that is told of its own leader again looks for their shared offset again."""

    OTHER_LEADER = 0  # never: only another leader counts
    AFTER_A_GAP = 1  # when it missed an epoch (KAFKA-7164)
    EVERY_EPOCH = 2  # in every new epoch (KIP-320)


class EpochEntry(IntEnum):
    """When a leader writes its epoch and start offset into the leader-epoch cache."""

    NONE = 0
    ON_APPEND = 1  # with the first record of the epoch (KIP-101)
    ON_BECOMING_LEADER = 2  # before any record (KAFKA-7415)
    ON_EPOCH_BUMP = 3  # the same, unless only the partition epoch changed (KAFKA-13790)
