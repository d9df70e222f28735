"""The replication quota: measured as Kafka measures it, and its effect on throttled followers."""

from __future__ import annotations

import numpy as np
import pytest

from isrlab import fleet
from isrlab.events import exact
from isrlab.fleet.kernel import state as s
from isrlab.fleet.kernel import throttle
from naive_fleet import Quota

RATE = 60_000


@pytest.mark.parametrize("seed", range(20))
def test_the_quota_is_exceeded_when_it_is_in_kafka(seed):
    draws, now_ms, quota = np.random.default_rng(seed), 0, Quota(RATE)
    samples, answers = s.no_samples(1)[0], []
    for gap_ms in draws.integers(1, draws.choice([20, 600, 3_000]), 800).tolist():
        now_ms += gap_ms
        exceeded = quota.is_exceeded(now_ms)
        assert bool(throttle.is_exceeded.py_func(samples, RATE, now_ms)) == exceeded, now_ms
        answers.append(exceeded)
        if not exceeded or draws.random() < 0.3:  # members get theirs
            sent_bytes = int(draws.integers(1, 3 * RATE))
            quota.record(sent_bytes, now_ms)
            throttle.count.py_func(samples, now_ms, sent_bytes)
    assert {*answers} == {True, False}


# Partitions of 100 kB/s; while broker 3 is down brokers 1 and 2 lead four each
LEFT_BEHIND = fleet.FleetConfig(
    "3.7", partitions=8, brokers=3, minutes=2, load="steady", records_per_s=100, batch_every_ms=100,
    record_bytes=1_000, stall_s=0, follower_spread=0, pauses="down 3 20-40", leaders="move",
    rebalance_every_s=0, replica_fetch_max_bytes=50_000,
)  # fmt: skip


def back_after_s(rate):
    """Of each partition: how long after its return broker 3 was in the ISR again, 80 s at most."""
    found = exact.absences(fleet.simulate_local(LEFT_BEHIND.with_(throttle_bytes_per_s=rate)))
    assert {absence.replica for absence in found} == {3}
    return sorted(((a.end_ms or 120_000) - 40_000) / 1_000 for a in found)


def test_who_was_away_stays_out_if_the_quota_is_less_than_all_that_is_produced():
    """A leader sends 400 kB/s to the member; broker 3 needs 800 kB/s, and its quota binds first.

    It lacks 16 MB, for which its own quota leaves 600 kB/s, those of the leaders twice as much.
    """
    free, wide, narrow = (back_after_s(rate) for rate in (0, 1_400_000, 700_000))
    assert len(free) == 8 and max(free) < 2
    assert 22 < max(wide) < 40
    assert min(narrow) == 80


def test_members_get_everything_whatever_the_quota():
    quiet = LEFT_BEHIND.with_(pauses="")
    slow = quiet.with_(throttle_bytes_per_s=1)
    waits = [sorted(exact.waits(fleet.simulate_local(config))) for config in (quiet, slow)]
    assert waits[0] == waits[1] and not exact.absences(fleet.simulate_local(slow))
