"""The leader's replication quota: what it sends replicas that are not in sync, on purpose slowly.

Theory of operation. A broker measures the bytes of *throttled* partitions that it sends to any
follower, as a mean over up to eleven samples of a second, from the oldest of them until now. While
the mean is above `leader.replication.throttled.rate`, followers of throttled partitions that are
not in the ISR get nothing; members always do, though what they get counts. So what members take is
not left for the others: below their rate nobody catches up. A fetch that gets nothing is parked,
and nobody tells it that the mean has fallen: it waits for a record, or for its time to be over.

Left out: the followers' own quota (a sum over all leaders; the tool sets both to one rate), and
what an answer is longer than its records.

Source: shouldLeaderThrottle and readFromLog, ReplicaManager.scala 3.7.1:1742 and 1976;
sizeOfThrottledPartitions, KafkaApis.scala; SimpleRate.java and SampledStat.java; KIP-73.
"""

from __future__ import annotations

from isrlab.fleet.kernel import state as s
from isrlab.fleet.kernel.compiled import compiled, inlined


@compiled
def is_exceeded(state: s.State, now_ms: int) -> bool:
    """More was sent than the quota allows; samples that are too old begin anew."""
    oldest_ms, sent_bytes = now_ms, s.ZERO
    for place in range(s.SAMPLES):
        if state.quota[place, s.BEGAN_MS] == s.LONG_AGO_MS:
            continue
        if now_ms - state.quota[place, s.BEGAN_MS] >= s.SAMPLES * s.SAMPLE_MS:
            state.quota[place, s.BEGAN_MS] = now_ms
            state.quota[place, s.SENT_BYTES] = 0
        oldest_ms = min(oldest_ms, state.quota[place, s.BEGAN_MS])
        sent_bytes += state.quota[place, s.SENT_BYTES]
    elapsed_ms = max(now_ms - oldest_ms, s.SAMPLE_MS)
    return sent_bytes * 1000 > state.links.throttle_bytes_per_s * elapsed_ms


@inlined
def is_throttled(state: s.State, row: int, now_ms: int) -> bool:
    """A follower gets no records now."""
    if state.links.throttle_bytes_per_s == s.UNLIMITED_BYTES_PER_S:
        return False
    follower = state.followers[row]
    leader = state.partitions[follower.partition]
    is_outside = (leader.isr >> follower.slot) & 1 == 0
    return leader.is_throttled == 1 and is_outside and is_exceeded(state, now_ms)


@compiled
def count(state: s.State, now_ms: int, sent_bytes: int) -> None:
    """What an answer holds of throttled partitions."""
    place = state.scalars[s.SAMPLE]
    if now_ms - state.quota[place, s.BEGAN_MS] >= s.SAMPLE_MS:
        place = (place + 1) % s.SAMPLES
        state.scalars[s.SAMPLE] = place
        state.quota[place, s.BEGAN_MS] = now_ms
        state.quota[place, s.SENT_BYTES] = 0
    state.quota[place, s.SENT_BYTES] += sent_bytes
