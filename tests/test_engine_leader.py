"""The rules of a leader, version by version: produce, high watermark, and what a fetch gets.

Broker 1 leads, 2 and 3 follow; times are milliseconds since the leadership began.
"""

from __future__ import annotations

import pytest
from cases.leader_bench import LeaderBench, log_of

from isrlab.engine.versions import PRESETS

ALL = "ABCDGN"
UNTIL_G = "ABCDG"


# Produce


@pytest.mark.parametrize(
    ("columns", "replicas", "isr", "min_isr", "acks", "leo", "produced"),
    [
        (ALL, (1, 2), (1, 2), 2, 0, 1, []),
        (ALL, (1, 2), (1, 2), 2, 1, 1, [None]),
        (ALL, (1, 2), (1, 2), 2, -1, 1, []),  # waits for the high watermark
        (ALL, (1, 2), (1, 2), 1, -1, 1, []),  # for every member, not for min ISR of them
        (ALL, (1, 2), (1,), 1, -1, 1, [None]),
        (ALL, (1, 2), (1,), 2, 0, 1, []),  # min.insync.replicas is a matter of acks=all alone
        (ALL, (1, 2), (1,), 2, 1, 1, [None]),
        (ALL, (1, 2), (1,), 2, -1, 0, ["NOT_ENOUGH_REPLICAS"]),
        (ALL, (1, 2, 3), (1, 2), 3, -1, 0, ["NOT_ENOUGH_REPLICAS"]),
        (UNTIL_G, (1,), (1,), 2, -1, 0, ["NOT_ENOUGH_REPLICAS"]),
        ("N", (1,), (1,), 2, -1, 1, [None]),  # never more than there are replicas
        ("A", (1, 2), (1, 2), 1, 2, 1, []),
        ("A", (1, 2), (1,), 1, 2, 1, []),
        ("BCDGN", (1, 2), (1, 2), 1, 2, 0, ["INVALID_REQUIRED_ACKS"]),
    ],
)
def test_produce_by_acks_min_isr_and_isr(columns, replicas, isr, min_isr, acks, leo, produced):
    for column in columns:
        bench = LeaderBench(column, replicas=replicas, isr=isr, min_insync_replicas=min_isr)
        bench.append(1, acks)
        assert (bench.see("leo"), bench.see("produced")) == (leo, produced), column


# The high watermark


# How the high watermark reaches a follower


# With the older set the follower that is one fetch behind never joins


@pytest.mark.parametrize(("rule", "joins"), [(0, False), (1, True)])
def test_why_a_fresh_clock_counts(rule: int, joins: bool) -> None:
    bench = LeaderBench("C", leo=10, hw=10, isr=(1,), rules={"high_watermark_set": rule})
    bench.fetch(2, 5)
    for offset in range(10, 60, 5):
        bench.append(5)
        bench.fetch(2, offset)
        if bench.see("isr") == (1, 2):
            break
    assert (bench.see("isr") == (1, 2)) is joins


# Checkpoints


@pytest.mark.parametrize("column", ALL)
def test_checkpoints_of_two_partitions_d7(column: str) -> None:
    """D7: each log keeps its own."""
    one, other = (log_of(PRESETS[column], (0, 20)) for _ in range(2))
    one = one.with_high_watermark(5).checkpoint()
    assert one.checkpointed_high_watermark == 5
    other = other.with_high_watermark(15).checkpoint()
    one = one.with_high_watermark(10)
    assert one.checkpointed_high_watermark == 5
    found = [log.checkpoint().load().high_watermark for log in (other, one)]
    assert found == [15, 10]
