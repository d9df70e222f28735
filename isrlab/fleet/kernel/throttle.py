"""The replication quotas: what replicas that are not in sync get, on purpose slowly.

Theory of operation. A broker has two. As a leader it measures the bytes of *throttled* partitions
that it sends to any follower; while the rate is above `leader.replication.throttled.rate`,
followers of throttled partitions that are not in the ISR get nothing. As a follower it measures
the bytes of throttled partitions that it has written, from all leaders together; while that rate is
above `follower.replication.throttled.rate`, its fetches leave out the throttled partitions whose
high watermark it has not reached. Both rates are `throttle_bytes_per_s`, as
kafka-reassign-partitions.sh sets them. Members always get everything, though it counts: below what
they take none catches up. Each rate is a mean over up to eleven samples of a second, from the
oldest of them until now.

A fetch that the leader answers with nothing is parked, and a fallen mean does not wake it: it waits
for a record, or for its time to be over. A thread that would leave out all its partitions sends no
fetch, and asks again after `replica.fetch.backoff.ms`.

Where a follower reads from several leaders its quota is shared by their cells, which then run side
by side (`clock.run_abreast`). A fetch is counted and composed when it comes in, a latency late.

Left out: what an answer is longer than its records.

Source: shouldLeaderThrottle and readFromLog, ReplicaManager.scala 3.7.1:1742 and 1976;
sizeOfThrottledPartitions, KafkaApis.scala; shouldFollowerThrottle, RemoteLeaderEndPoint.scala;
processPartitionData, ReplicaFetcherThread.scala; SimpleRate.java and SampledStat.java; KIP-73.
"""

from __future__ import annotations

from isrlab.fleet.kernel import state as s
from isrlab.fleet.kernel.compiled import compiled, inlined


@compiled
def is_exceeded(samples: s.Ints, rate: int, now_ms: int) -> bool:
    """More was counted than `rate` allows; samples that are too old begin anew."""
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
    """What a leader has sent, or a follower has written, of throttled partitions."""
    place = samples[s.SAMPLES, 0]
    if now_ms - samples[place, s.BEGAN_MS] >= s.SAMPLE_MS:
        place = (place + 1) % s.SAMPLES
        samples[s.SAMPLES, 0] = place
        samples[place, s.BEGAN_MS] = now_ms
        samples[place, s.SUM_BYTES] = 0
    samples[place, s.SUM_BYTES] += more_bytes


@inlined
def is_throttled(state: s.State, row: int, now_ms: int) -> bool:
    """A follower gets no records now."""
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
    """The thread whose fetch comes in has written what the last answer held."""
    thread = state.threads[number]
    if thread.throttled_bytes:
        count(state.received[thread.quota], now_ms, thread.throttled_bytes)
        thread.throttled_bytes = 0


@inlined
def is_left_out(state: s.State, row: int, now_ms: int) -> bool:
    """The fetch that comes in does not ask for this partition."""
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
