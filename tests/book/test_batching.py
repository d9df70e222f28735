"""The broker's batches of ISR changes: which request takes which change, and when it is sent.

K4 is a case of AlterPartitionManagerTest; the id is ours.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isrlab_book.closeups.batching import SentBatch, play

RELEASES = ("2.7", "2.8", "3.0", "3.1", "3.2.0", "3.2.1", "3.7", "4.1")


@pytest.mark.parametrize("release", RELEASES[1:])
def test_k4_one_in_flight(release):
    """The first change is sent immediately and alone; later ones wait and are sent together."""
    requests = play(release, {"tp0": 10, "tp1": 20, "tp2": 110, "tp3": 400})
    assert requests == [
        SentBatch(10, ("tp0",), 110),
        SentBatch(110, ("tp1", "tp2"), 210),
        SentBatch(400, ("tp3",), 500),
    ]


def test_2_7_sends_on_its_timer_only():
    requests = play("2.7", {"tp0": 0, "tp1": 50, "tp2": 51, "tp3": 210})
    assert requests == [
        SentBatch(50, ("tp0", "tp1"), 150),
        SentBatch(150, ("tp2",), 250),
        SentBatch(250, ("tp3",), 350),
    ]


def test_changes_of_one_moment_find_the_broker_busy_but_for_the_first():
    """testSingleBatch."""
    requests = play("3.7", {f"tp{number}": 0 for number in range(10)})
    assert [len(request.partitions) for request in requests] == [1, 9]


def test_what_is_impossible():
    for release in ("2.6", "trunk", "3", "7.3"):
        with pytest.raises(ValueError, match="ZooKeeper" if release == "2.6" else "unknown"):
            play(release, {"tp0": 0})


times = st.dictionaries(st.integers(0, 20), st.integers(0, 1_000), max_size=12)


@given(st.sampled_from(RELEASES), times, st.integers(1, 700))
def test_one_request_in_flight_and_no_change_forgotten(release, times, round_trip_ms):
    submitted = {f"tp{number}": ms for number, ms in times.items()}
    requests = play(release, submitted, round_trip_ms)
    taken = [name for request in requests for name in request.partitions]
    assert sorted(taken) == sorted(submitted)
    for before, after in pairwise(requests):
        assert before.answered_ms <= after.sent_ms
    for request in requests:
        assert all(submitted[name] <= request.sent_ms for name in request.partitions)
