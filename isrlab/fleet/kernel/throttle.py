"""Replication quotas, which slow down the replication to followers that are not in sync.

Theory of operation. A broker has two quotas. As a leader it measures the bytes of *throttled*
partitions that it sends to any follower; while the rate is above that of the leader's quota,
followers of throttled partitions that are not in the ISR get nothing. As a follower it measures
the bytes of throttled partitions that it has written, from all leaders together; while that rate is
above the follower's quota, its fetches leave out the throttled partitions whose high watermark it
has not reached. `throttle_bytes_per_s` sets both `leader.replication.throttled.rate` and
`follower.replication.throttled.rate`, as kafka-reassign-partitions.sh does. ISR members always get
everything, but these bytes count: if members take the whole quota, no other replica catches up.
Each rate is a mean over up to eleven samples of a second, from the oldest of them until now.

A fetch for which the leader's quota leaves nothing is parked. A falling rate does not wake it: it
waits for a record or for its timeout. A thread whose fetch would leave out all its partitions sends
none, and tries again after `replica.fetch.backoff.ms`.

The cells of all leaders that a follower reads from share its quota, so they run in step
(`clock.run_abreast`). A fetch is counted and composed when it arrives, one latency too late.

Left out: the bytes of an answer that are not records.

Source: shouldLeaderThrottle and readFromLog, ReplicaManager.scala 3.7.1:1742 and 1976;
sizeOfThrottledPartitions, KafkaApis.scala; shouldFollowerThrottle, RemoteLeaderEndPoint.scala;
processPartitionData, ReplicaFetcherThread.scala; SimpleRate.java and SampledStat.java; KIP-73.
"""

from __future__ import annotations

from isrlab.fleet.kernel import state as s
from isrlab.fleet.kernel.compiled import compiled, inlined


@compiled
def is_exceeded(samples: s.Ints, rate: int, now_ms: int) -> bool:
    """Whether the measured rate is above `rate`; resets samples that are too old."""
    oldest_ms, sum_bytes = now_ms, s.ZERO
    for place in range(s.SAMPLES):
        if samples[place, s.BEGAN_MS] == s.LONG_AGO_MS:
            continue
        if now_ms - samples[place, s.BEGAN_MS] >= s.SAMPLES * s.SAMPLE_MS:
            samples[place, s.BEGAN_MS] = now_ms
            samples[place, s.SUM_BYTES] = 0
        oldest_ms = min(oldest_ms, samples[place, s.BEGAN_MS])
        sum_bytes += samples[place, s.SUM_BYTES]
    return sum_bytes * 1000 > rate * max(now_ms - oldest_ms, s.SAMPLE_MS)


@compiled
def count(samples: s.Ints, now_ms: int, more_bytes: int) -> None:
    """Count bytes of throttled partitions that a leader has sent or a follower has written."""
    place = samples[s.SAMPLES, 0]
    if now_ms - samples[place, s.BEGAN_MS] >= s.SAMPLE_MS:
        place = (place + 1) % s.SAMPLES
        samples[s.SAMPLES, 0] = place
        samples[place, s.BEGAN_MS] = now_ms
        samples[place, s.SUM_BYTES] = 0
    samples[place, s.SUM_BYTES] += more_bytes


@inlined
def is_throttled(state: s.State, row: int, now_ms: int) -> bool:
    """Whether a quota keeps the follower from getting records now."""
    rate = state.links.throttle_bytes_per_s
    if rate == s.UNLIMITED_BYTES_PER_S:
        return False
    follower = state.followers[row]
    if follower.is_left_out:
        return True
    leader = state.partitions[follower.partition]
    is_outside = (leader.isr >> follower.slot) & 1 == 0
    return leader.is_throttled == 1 and is_outside and is_exceeded(state.sent, rate, now_ms)


@inlined
def note_written(state: s.State, number: int, now_ms: int) -> None:
    """Count a thread's last answer, which it has written by the time its next fetch arrives."""
    thread = state.threads[number]
    if thread.throttled_bytes:
        count(state.received[thread.quota], now_ms, thread.throttled_bytes)
        thread.throttled_bytes = 0


@inlined
def is_left_out(state: s.State, row: int, now_ms: int) -> bool:
    """Whether the arriving fetch leaves out this partition because of the follower's quota."""
    rate = state.links.throttle_bytes_per_s
    if rate == s.UNLIMITED_BYTES_PER_S:
        return False
    follower = state.followers[row]
    is_behind = follower.end < state.partitions[follower.partition].high_watermark
    follower.is_left_out = 0
    if is_behind and follower.is_throttled:
        quota = state.threads[follower.thread].quota
        follower.is_left_out = int(is_exceeded(state.received[quota], rate, now_ms))
    return follower.is_left_out == 1
