"""The replication quota: measured as Kafka measures it, and what it does to those it is for."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from isrlab import fleet
from isrlab.events import exact
from isrlab.fleet.kernel import state as s
from isrlab.fleet.kernel import throttle

RATE = 60_000


class Quota:
    """SampledStat and SimpleRate of 3.7.1, line by line: 11 samples of a second, made as needed."""

    def __init__(self):
        self.samples, self.current = [[0, 0]], 0

    def record(self, value, now_ms):
        if now_ms - self.samples[self.current][0] >= 1_000:
            self.current = (self.current + 1) % 11
            if self.current >= len(self.samples):
                self.samples.append([now_ms, 0])
            self.samples[self.current] = [now_ms, 0]
        self.samples[self.current][1] += value

    def is_exceeded(self, now_ms):
        for sample in self.samples:
            if now_ms - sample[0] >= 11_000:
                sample[:] = [now_ms, 0]
        elapsed_ms = max(now_ms - min(start for start, _ in self.samples), 1_000)
        return sum(value for _, value in self.samples) / elapsed_ms * 1_000 > RATE


@pytest.mark.parametrize("seed", range(20))
def test_the_quota_is_exceeded_when_it_is_in_kafka(seed):
    draws, now_ms, quota = np.random.default_rng(seed), 0, Quota()
    state = SimpleNamespace(
        quota=np.array([(0, 0)] + [(s.LONG_AGO_MS, 0)] * (s.SAMPLES - 1)),
        scalars=np.zeros(s.SCALARS, dtype=np.int64),
        links=SimpleNamespace(throttle_bytes_per_s=RATE),
    )
    answers = []
    for gap_ms in draws.integers(1, draws.choice([20, 600, 3_000]), 800).tolist():
        now_ms += gap_ms
        exceeded = quota.is_exceeded(now_ms)
        assert bool(throttle.is_exceeded.py_func(state, now_ms)) == exceeded, now_ms
        answers.append(exceeded)
        if not exceeded or draws.random() < 0.3:  # members get theirs
            sent_bytes = int(draws.integers(1, 3 * RATE))
            quota.record(sent_bytes, now_ms)
            throttle.count.py_func(state, now_ms, sent_bytes)
    assert {*answers} == {True, False}


# Every broker leads 2 or 3 partitions of 100 kB/s, and sends them to two followers
LEFT_BEHIND = fleet.FleetConfig(
    "3.7", partitions=8, brokers=3, minutes=2, load="steady", records_per_s=100, batch_every_ms=100,
    record_bytes=1_000, stall_s=0, follower_spread=0, pauses="down 3 20-40",
)  # fmt: skip


def back_after_s(rate):
    """Of each partition: how long after its return broker 3 was in the ISR again, 80 s at most."""
    found = exact.absences(fleet.simulate_local(LEFT_BEHIND.with_(throttle_bytes_per_s=rate)))
    assert {absence.replica for absence in found} == {3}
    return sorted(((a.end_ms or 120_000) - 40_000) / 1_000 for a in found)


def test_who_was_away_stays_out_if_the_quota_is_less_than_all_that_is_produced():
    """300 kB/s go to the member, and as much is needed not to fall further behind."""
    free, wide, narrow = (back_after_s(rate) for rate in (0, 700_000, 500_000))
    assert len(free) == 6 and max(free) < 1
    assert 5 < max(wide) < 30
    assert min(narrow) == 80


def test_members_get_everything_whatever_the_quota():
    quiet = LEFT_BEHIND.with_(pauses="")
    slow = quiet.with_(throttle_bytes_per_s=1)
    waits = [sorted(exact.waits(fleet.simulate_local(config))) for config in (quiet, slow)]
    assert waits[0] == waits[1] and not exact.absences(fleet.simulate_local(slow))
