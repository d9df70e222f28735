"""The decisions of Kafka's replication as scalar functions, one for each rule.

Theory of operation. A rule takes numbers and returns a number or a truth value. If releases differ
in a rule, the form that applies is also an argument (usually an `IntEnum` of `choices.py`). So the
engine and the compiled fleet kernel call the same functions: plain Python here, `numba.njit(rule)`
there. That is why they use nothing but arithmetic and comparisons.

Conventions, as everywhere in Kafka: a log end offset is the offset the next record will get; the
high watermark is the first offset that is not yet readable; an unknown offset is -1; times are
milliseconds. The record at offset o is committed iff o < high watermark.

Source lines name the file and tag in the apache/kafka repository, with P = Partition.scala,
R = Replica.scala, RM = ReplicaManager.scala, RFT/AFT = Replica/AbstractFetcherThread.scala.
"""

from isrlab.engine.choices import (
    ClockReset,
    Eligibility,
    ExpandRule,
    HighWatermarkSet,
    LagClock,
    Reassignment,
    ShrinkRule,
)

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1

RETENTION_CHECK_MS = 300_000  # log.retention.check.interval.ms
ISR_CHANGE_TICK_MS = 2_500  # the isr-change-propagation task (RM 0.9.0.1:209)
ISR_CHANGE_QUIET_MS = 5_000  # announce a change when none followed for this long
ISR_CHANGE_BLACKOUT_MS = 60_000  # or when the last announcement is this long ago


# Follower state kept by the leader


def last_caught_up_time_ms(
    lag_clock: int,
    fetch_offset: int,
    leader_end_offset: int,
    last_fetch_leader_end_offset: int,
    last_fetch_time_ms: int,
    last_caught_up_ms: int,
    now_ms: int,
) -> int:
    """The follower's lag clock after a fetch at `fetch_offset`.

    Source: 0.8.2.2 R:50-59 (every fetch); 0.9.0.1 R:48-62 (only at the log end); 0.10.2.2 R:64-80,
    3.7.1 R:108-143 (at the log end, or as of the previous fetch at what was then the log end).
    """
    if lag_clock == LagClock.LAST_FETCH:
        return now_ms
    if fetch_offset >= leader_end_offset:
        return max(last_caught_up_ms, now_ms)
    if (
        lag_clock == LagClock.CAUGHT_UP_TO_PREVIOUS_FETCH
        and fetch_offset >= last_fetch_leader_end_offset
    ):
        return max(last_caught_up_ms, last_fetch_time_ms)
    return last_caught_up_ms


def lag_clock_in_new_epoch(
    clock_reset: int,
    lag_clock: int,
    in_isr: bool,
    last_caught_up_ms: int,
    now_ms: int,
    long_ago_ms: int,
) -> int:
    """The follower's lag clock at the start of a leader epoch, of a new leader or the same one.

    Since 0.10.2 a replica outside the ISR counts as never caught up, so the high watermark does not
    wait for it. In 0.8 every clock is set to now; from 0.9.0 to 0.10.1 none changes.
    Source: R 0.8.2.2:50 (every replica, now); 0.10.2.2:80, 3.7.1:150-186 (ISR now, else 0).
    """
    if clock_reset == ClockReset.NEVER:
        return last_caught_up_ms
    if in_isr or lag_clock == LagClock.LAST_FETCH:
        return now_ms
    return long_ago_ms


def last_fetch_time_in_new_epoch(
    clock_reset: int, in_isr: bool, last_fetch_time_ms: int, now_ms: int, long_ago_ms: int
) -> int:
    """The follower's last fetch time in a new epoch; not used where `forgets_end_offset` holds.

    Source: as `lag_clock_in_new_epoch`.
    """
    if clock_reset == ClockReset.NEVER:
        return last_fetch_time_ms
    if in_isr or clock_reset != ClockReset.ON_EPOCH_BUMP:
        return now_ms
    return long_ago_ms


def forgets_end_offset(lag_clock: int, is_new_leader: bool) -> bool:
    """In a new epoch the leader does not know where its followers' logs end until they fetch.

    Source: as `lag_clock_in_new_epoch`; a leader that keeps leading forgets it only in 0.8.
    """
    return is_new_leader or lag_clock == LagClock.LAST_FETCH


# In or out of sync


def isr_check_period_ms(replica_lag_time_max_ms: int, checks_per_lag_time: int) -> int:
    """How often the isr-expiration task runs.

    Source: RM 0.8.2.2:138 (lag), 0.10.2.2:221 (lag/2).
    """
    return max(1, replica_lag_time_max_ms // checks_per_lag_time)


def is_out_of_sync(
    shrink_rule: int,
    follower_end_offset: int,
    leader_end_offset: int,
    last_caught_up_ms: int,
    now_ms: int,
    replica_lag_time_max_ms: int,
    replica_lag_max_messages: int,
) -> bool:
    """The follower must leave the ISR. A lag of exactly the limit is still in sync.

    Source: getOutOfSyncReplicas. P 0.8.2.2:341-362 (stuck, or more messages behind than the limit);
    P 0.9.0.1:405-424 (time); P 2.1.1:660-676, 3.7.1:1287-1305 (time, and not at the log end).
    """
    if (
        shrink_rule == ShrinkRule.TIME_UNLESS_AT_LOG_END
        and follower_end_offset == leader_end_offset
    ):
        return False
    if now_ms - last_caught_up_ms > replica_lag_time_max_ms:
        return True
    return (
        shrink_rule == ShrinkRule.STUCK_OR_MESSAGES
        and follower_end_offset >= 0
        and leader_end_offset - follower_end_offset > replica_lag_max_messages
    )


def can_join_isr(
    expand_rule: int, follower_end_offset: int, high_watermark: int, leader_epoch_start_offset: int
) -> bool:
    """A fetching replica may join: it has reached the high watermark, however long it lagged.

    Source: maybeExpandIsr. P 0.8.2.2:239-253; P 2.5.1:703-706 and 3.7.1:1022-1058 (also the start
    of the leader's epoch, else a record that the former leader committed could be missing).
    """
    if follower_end_offset < high_watermark:
        return False
    return expand_rule == ExpandRule.HIGH_WATERMARK or (
        follower_end_offset >= leader_epoch_start_offset
    )


def is_isr_eligible(
    eligibility: int, is_active: bool, fetched_broker_epoch: int, known_broker_epoch: int
) -> bool:
    """The broker of a replica may be in the ISR as far as the leader's metadata says.

    Source: isReplicaIsrEligible. P 3.3.2:874-900 (not fenced, not shutting down); P 3.7.1:1060-1093
    (and its last fetch came from the incarnation that is registered; -1 skips that, but a replica
    that has not fetched in this leadership has no epoch at all).
    """
    if eligibility == Eligibility.ANY:
        return True
    if not is_active:
        return False
    return (
        eligibility == Eligibility.NOT_FENCED
        or fetched_broker_epoch == UNKNOWN_EPOCH
        or fetched_broker_epoch == known_broker_epoch
    )


def is_caught_up(
    follower_end_offset: int,
    leader_end_offset: int,
    last_caught_up_ms: int,
    now_ms: int,
    replica_lag_time_max_ms: int,
) -> bool:
    """At the leader's end, or there within the lag time. Source: isCaughtUp, R 3.3.2:61-70."""
    is_fresh = now_ms - last_caught_up_ms <= replica_lag_time_max_ms
    return follower_end_offset == leader_end_offset or is_fresh


# The leader's high watermark


def effective_min_isr(min_insync_replicas: int, replica_count: int) -> int:
    """min.insync.replicas, but never more than there are replicas. Source: P 3.7.1:381-383."""
    return min(min_insync_replicas, replica_count)


def holds_back_high_watermark(
    high_watermark_set: int,
    in_isr: bool,
    in_maximal_isr: bool,
    is_eligible: bool,
    follower_end_offset: int,
    leader_end_offset: int,
    last_caught_up_ms: int,
    now_ms: int,
    replica_lag_time_max_ms: int,
) -> bool:
    """The high watermark waits for this follower: the leader's minimum counts its end offset.

    Source: maybeIncrementLeaderHW. P 0.9.0.1:352-365 (ISR); 0.10.2.2:361-375 (ISR or fresh clock);
    2.7.2:887-898 (maximal ISR); 3.3.2:967-980 (or caught up); 3.6.2:1103-1120 (and eligible).
    """
    if high_watermark_set == HighWatermarkSet.ISR:
        return in_isr
    is_fresh = now_ms - last_caught_up_ms <= replica_lag_time_max_ms
    if high_watermark_set == HighWatermarkSet.ISR_OR_FRESH_CLOCK:
        return in_isr or is_fresh
    if high_watermark_set == HighWatermarkSet.MAXIMAL_ISR_OR_FRESH_CLOCK:
        return in_maximal_isr or is_fresh
    is_caught_up = follower_end_offset == leader_end_offset or is_fresh
    if high_watermark_set == HighWatermarkSet.MAXIMAL_ISR_OR_CAUGHT_UP:
        return in_maximal_isr or is_caught_up
    return in_maximal_isr or (is_caught_up and is_eligible)


def next_high_watermark(
    high_watermark: int,
    min_end_offset: int,
    is_held_under_min_isr: bool,
    isr_size: int,
    effective_min: int,
) -> int:
    """The leader's high watermark rises to the minimum end offset, except if held under min ISR.

    `isr_size` counts the committed ISR. Source: P 2.5.1:772-783; P 3.7.1:1166-1185 (KAFKA-15583).
    """
    if is_held_under_min_isr and isr_size < effective_min:
        return high_watermark
    return max(high_watermark, min_end_offset)


def admits_acks_all(isr_size: int, min_insync_replicas: int) -> bool:
    """An acks=all produce is accepted, or (after the append) answered without an error.

    Source: appendRecordsToLeader and checkEnoughReplicasReachOffset, P 0.8.2.2:364-376, 260-297.
    """
    return isr_size >= min_insync_replicas


# The follower


def follower_high_watermark(log_end_offset: int, leader_high_watermark: int) -> int:
    """A follower's high watermark after a fetch; it may go back. Source: RFT 0.8.2.2:57-61."""
    return min(log_end_offset, leader_high_watermark)


def has_diverged(
    end_epoch: int, end_offset: int, last_fetched_epoch: int, fetch_offset: int
) -> bool:
    """The leader's answer (end_epoch, end_offset) shows that the follower has another history.

    Source: readRecords, P 3.7.1:1523-1553 (KIP-595).
    """
    return end_epoch < last_fetched_epoch or end_offset < fetch_offset


def truncation_offset(
    log_end_offset: int,
    high_watermark: int,
    leader_epoch: int,
    leader_end_offset: int,
    own_epoch: int,
    own_end_offset: int,
) -> int:
    """Where a follower truncates its log, given the leader's answer and its own end of that epoch.

    The truncation is final unless `needs_another_round`. Unknown epochs and offsets are -1. Source:
    getOffsetTruncationState, AFT 2.0.1:320-366, 3.7.1:342-400 (KIP-279); for the answers of
    0.11-1.1, which carry no epoch, RFT 0.11.0.2:257-285.
    """
    if leader_end_offset == UNKNOWN_OFFSET:
        return high_watermark
    if leader_epoch == UNKNOWN_EPOCH or own_end_offset == UNKNOWN_OFFSET:
        return min(leader_end_offset, log_end_offset)
    if own_epoch != leader_epoch:
        return min(own_end_offset, log_end_offset)
    return min(own_end_offset, leader_end_offset, log_end_offset)


def needs_another_round(
    leader_epoch: int, leader_end_offset: int, own_epoch: int, own_end_offset: int
) -> bool:
    """The leader named an epoch that this log lacks: truncate, then ask about an earlier one.

    Source: AFT 2.0.1:320-366.
    """
    return (
        leader_end_offset != UNKNOWN_OFFSET
        and leader_epoch != UNKNOWN_EPOCH
        and own_end_offset != UNKNOWN_OFFSET
        and own_epoch != leader_epoch
    )


# Retention, directories, and moving a partition


def expired_end_offset(is_newest_old: bool, log_end_offset: int, high_watermark: int) -> int:
    """Where retention makes the log begin: at its end, if its newest record is older than
    retention.ms and all are committed (here a log is one segment); else 0, which changes nothing.

    Source: deletableSegments and deleteRetentionMsBreachedSegments, UnifiedLog.java 4.3.1:1879.
    """
    return log_end_offset if is_newest_old and high_watermark == log_end_offset else 0


def proves_clean_shutdown(was_clean: bool, has_failed_directory: bool) -> bool:
    """A started broker proves a clean shutdown: each directory in log.dirs now has its marker.

    A directory that has failed has none; one that was taken out is not asked for it. Source:
    readBrokerEpochFromCleanShutdownFiles, LogManager.scala 4.3.1:1528.
    """
    return was_clean and not has_failed_directory


def completes_reassignment(
    reassignment: int, targets: tuple[int, int], new: tuple[int, int], leaving: int
) -> bool:
    """A reassignment can be completed. `targets` and `new` are (how many, how many of them in the
    ISR), of all target replicas and of those it adds; `leaving` is how many replicas it removes.

    Source: areReplicasInIsr, KafkaController.scala 0.10.2.2:571-577, and isReassignmentComplete,
    2.5.1:804 (all targets); maybeCompleteReassignment, PartitionReassignmentReplicas.java
    3.7.1:98-133 (all new ones, at least one target), 3.8.0:98-122 (all targets), 4.3.1:94-130.
    """
    is_all, is_new = targets[0] == targets[1], targets[1] > 0 and new[0] == new[1]
    if reassignment == Reassignment.NEW_IN_SYNC:
        return is_new
    if reassignment == Reassignment.NEW_IN_SYNC_UNLESS_FEWER:
        return is_new and (is_all or new[0] >= leaving)
    return is_all


# Announcing changes to the controller


def announces_isr_change(now_ms: int, last_change_ms: int, last_announcement_ms: int) -> bool:
    """A ZooKeeper-era leader announces its ISR changes to the controller now.

    Source: RM 0.9.0.1:169-180.
    """
    return (
        last_change_ms + ISR_CHANGE_QUIET_MS < now_ms
        or last_announcement_ms + ISR_CHANGE_BLACKOUT_MS < now_ms
    )
