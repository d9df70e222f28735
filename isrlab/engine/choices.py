"""The forms of the rules that are not simply on or off: what a `KafkaVersion` chooses from.

The compiled kernel identifies a form by its number; the label describes it where a table lists what
a release changed.
"""

from enum import IntEnum
from typing import Self


class Form(IntEnum):
    """One form of a rule."""

    label: str

    def __new__(cls, number: int, label: str) -> Self:
        form = int.__new__(cls, number)
        form._value_ = number
        form.label = label
        return form


class LagClock(Form):
    """What a follower must do for its clock `last_caught_up_time_ms` to be set."""

    LAST_FETCH = 0, "clock: any fetch"
    READ_TO_LOG_END = 1, "clock: a fetch at the log end (KAFKA-1546)"
    CAUGHT_UP_TO_PREVIOUS_FETCH = (
        2,
        "clock: a fetch at the log end of the previous fetch (KAFKA-4485)",
    )


class ClockReset(Form):
    """When a broker that becomes leader restarts its followers' clocks."""

    ALWAYS = 0, "clocks restart at every LeaderAndIsr, even a repeated one"
    NEVER = 1, "clocks never restart: the first check may drop a healthy follower"
    ON_EPOCH_BUMP = 2, "clocks restart only with a new leader epoch (KAFKA-13790)"


class ShrinkRule(Form):
    """What makes an ISR member out of sync."""

    STUCK_OR_MESSAGES = 0, "out of sync: no fetch for the lag time, or too many records behind"
    TIME = 1, "no limit in records (KAFKA-1546)"
    TIME_UNLESS_AT_LOG_END = 2, "a follower at the log end stays (KAFKA-7152)"


class ExpandRule(Form):
    """What lets a fetching replica into the ISR."""

    HIGH_WATERMARK = 0, "joins at the high watermark"
    EPOCH_START = 1, "joins from the start of the leader's epoch on (KAFKA-7128)"


class Eligibility(Form):
    """What the leader's metadata must show about a replica's broker before it may join."""

    ANY = 0, "any replica may join"
    NOT_FENCED = 1, "fenced and stopping brokers may not join (KIP-841)"
    BROKER_EPOCH = 2, "former incarnations may not join (KIP-903)"


class HighWatermarkSet(Form):
    """The replicas whose minimum end offset is the high watermark (the leader always counts)."""

    ISR = 0, "high watermark waits for the ISR"
    ISR_OR_FRESH_CLOCK = 1, "high watermark also waits for fresh clocks (KAFKA-4485)"
    MAXIMAL_ISR_OR_FRESH_CLOCK = 2, "high watermark waits for the maximal ISR (KIP-497)"
    MAXIMAL_ISR_OR_CAUGHT_UP = 3, "high watermark waits for replicas at the end (KAFKA-13790)"
    MAXIMAL_ISR_OR_CAUGHT_UP_AND_ELIGIBLE = (
        4,
        "high watermark waits only for replicas that may join (KAFKA-15021)",
    )


class AfterShrink(Form):
    """When a leader that shrank the ISR checks its high watermark."""

    IMMEDIATELY = 0, "high watermark checked right after a shrink"
    NEVER = 1, "high watermark not checked after a shrink, only at the next fetch"
    ON_COMMIT = 2, "high watermark checked when a shrink is committed (KAFKA-13091)"


class IsrWrite(Form):
    """How a leader makes an ISR change durable."""

    ZOOKEEPER = 0, "leaders write ISR changes to ZooKeeper and announce none"
    ZOOKEEPER_NOTIFY = 1, "leaders announce ISR changes to the controller, with a delay"
    ALTER_ISR = 2, "leaders ask the controller to store ISR changes (KIP-497)"
    ALTER_PARTITION = 3, "AlterIsr becomes AlterPartition (KIP-704)"


class AfterIsrError(Form):
    """What a leader does when its ISR change has failed with an error that is not final."""

    WAITS = 0, "an ISR change that failed stays pending if the leader asked the controller"
    REVERTS = 1, "an ISR change that failed is taken back (KAFKA-13254)"
    RESENDS = 2, "an ISR change that failed is sent again (KAFKA-14010)"


class Reassignment(Form):
    """Whether a reassignment in progress can be replaced or cancelled, and when it is complete."""

    GOES_ON = 0, "a reassignment that has begun goes on until all its replicas are in sync"
    REPLACEABLE = 1, "a reassignment can be cancelled, or replaced by another (KIP-455)"
    NEW_IN_SYNC = 2, "KRaft: a reassignment is complete when the replicas it adds are in sync"
    ALL_IN_SYNC = 3, "KRaft: a reassignment waits for all its replicas (KAFKA-15665)"
    NEW_IN_SYNC_UNLESS_FEWER = (
        4,
        "KRaft: a reassignment waits for the replicas that stay only if it leaves fewer "
        "(KAFKA-19975)",
    )


class Truncation(Form):
    """How a follower decides where to truncate its log to agree with a new leader's."""

    HIGH_WATERMARK = 0, "followers truncate to their high watermark"
    EPOCH_ONE_ROUND = 1, "followers ask once where their last epoch ends (KIP-101)"
    EPOCH_ITERATIVE = 2, "followers ask for each epoch the leader does not know (KIP-279)"
    ON_FETCH = 3, "the fetch response says where the logs diverge (KIP-595)"


class FollowAgain(Form):
    """Whether a follower that is ordered to follow its current leader truncates again."""

    OTHER_LEADER = 0, "followers compare logs with another leader only"
    AFTER_A_GAP = 1, "followers compare logs after a missed epoch (KAFKA-7164)"
    EVERY_EPOCH = 2, "followers compare logs in every new epoch (KIP-320)"


class EpochEntry(Form):
    """When a leader writes its epoch and start offset into the leader-epoch cache."""

    NONE = 0, "no leader epochs are kept"
    ON_APPEND = 1, "epochs enter the cache with their first record (KIP-101)"
    ON_BECOMING_LEADER = 2, "epochs enter the cache before any record (KAFKA-7415)"
    ON_EPOCH_BUMP = (
        3,
        "epochs enter the cache unless only the partition epoch changed (KAFKA-13790)",
    )
