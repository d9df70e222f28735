"""The rules of a leader, version by version: produce, high watermark, and what a fetch gets.

Broker 1 leads, 2 and 3 follow; times are milliseconds since the leadership began.
"""

from __future__ import annotations

import pytest
from cases.leader_bench import LeaderBench, log_of
from cases.table import Case, in_every_column, play

from isrlab.engine.versions import PRESETS

ALL = "ABCDGN"
UNTIL_G = "ABCDG"
TWO_OF_THREE = {"replicas": (1, 2, 3), "isr": (1, 2)}


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


PRODUCE = (
    Case(  # the slow third member is waited for, although min ISR is 2
        "acks-all-waits-for-the-whole-isr",
        ALL,
        {"replicas": (1, 2, 3), "min_insync_replicas": 2},
        (
            (("append", 1, -1), {"produced": []}),
            (("fetch", 2, 1), {"produced": [], "hw": 0}),
            (("fetch", 3, 1), {"produced": [None], "hw": 1}),
        ),
    ),
    Case(
        "not-enough-replicas-after-append",
        UNTIL_G,
        {"min_insync_replicas": 2},
        (
            (("append", 1, -1), {"produced": []}),
            (("wait", 30_001), {}),
            (
                ("check",),
                {"hw": 1, "leo": 1, "produced": ["NOT_ENOUGH_REPLICAS_AFTER_APPEND"]},
            ),
        ),
    ),
    Case(
        "timed-out-under-the-freeze",
        "N",
        {"min_insync_replicas": 2},
        (
            (("append", 1, -1), {"produced": []}),
            (("wait", 30_001), {}),
            (("check",), {"pending": (1,)}),
            (("answer",), {"isr": (1,), "hw": 0, "produced": []}),
            (("expire_produce",), {"hw": 0, "leo": 1, "produced": ["REQUEST_TIMED_OUT"]}),
            (("expire_produce",), {"produced": ["REQUEST_TIMED_OUT"]}),
        ),
    ),
    Case(
        "timed-out-record-stays",
        ALL,
        {},
        (
            (("append", 1, -1), {}),
            (("expire_produce",), {"leo": 1, "produced": ["REQUEST_TIMED_OUT"]}),
            (("fetch", 2, 1), {"hw": 1, "produced": ["REQUEST_TIMED_OUT"]}),
        ),
    ),
    Case(  # acks=2 counts copies; the high watermark still waits for broker 3
        "acks-2-counts-copies",
        "A",
        {"replicas": (1, 2, 3)},
        (
            (("append", 1, 2), {"produced": []}),
            (("fetch", 2, 1), {"produced": [None], "hw": 0}),
        ),
    ),
    Case(
        "acks-2-knows-no-min-isr",
        "A",
        TWO_OF_THREE | {"min_insync_replicas": 3},
        ((("append", 1, 2), {}), (("fetch", 2, 1), {"produced": [None]})),
    ),
    Case(
        "leadership-lost",
        "ABCDG",
        {},
        (
            (("append", 1, -1), {}),
            (("order", 6, 2, (1, 2), None, 2), {"produced": ["NOT_LEADER_FOR_PARTITION"]}),
        ),
    ),
    Case(
        "leadership-lost",
        "N",
        {},
        (
            (("append", 1, -1), {}),
            (("order", 6, 2, (1, 2), None, 2), {"produced": ["NOT_LEADER_OR_FOLLOWER"]}),
        ),
    ),
    Case(  # checked before anything else
        "bad-acks-to-a-follower",
        "BCDGN",
        {},
        (
            (("order", 6, 2, (1, 2), None, 2), {}),
            (("append", 1, 2), {"produced": ["INVALID_REQUIRED_ACKS"]}),
        ),
    ),
)


# The high watermark


CATCHING_UP = (  # broker 2 is outside the ISR but was caught up at 0 ms as of its previous fetch
    (("fetch", 2, 5), {"2.caught_up": None}),
    (("append", 5), {"leo": 15, "hw": 15}),
    (("fetch", 2, 10), {"2.caught_up": 0}),
)

HIGH_WATERMARK = (
    Case(  # a leader that runs ahead can never be caught
        "isr-alone-counts",
        "AB",
        {"leo": 10, "hw": 10, "isr": (1,)},
        (
            (("fetch", 2, 5), {}),
            (("append", 5), {"hw": 15}),
            (("fetch", 2, 10), {}),
            (("append", 5), {"leo": 20, "hw": 20}),
            (("fetch", 2, 15), {"requests": 0}),
        ),
    ),
    Case(  # KAFKA-4485
        "fresh-clock-counts-too",
        "CDGN",
        {"leo": 10, "hw": 10, "isr": (1,)},
        (
            *CATCHING_UP,
            (("append", 5), {"leo": 20, "hw": 15}),
            (("fetch", 2, 15), {"asked": (1, 2)}),
        ),
    ),
    Case(
        "a-stale-clock-counts-no-more",
        "CDGN",
        {"leo": 10, "hw": 10, "isr": (1,)},
        (
            *CATCHING_UP,
            (("wait", 30_000), {}),
            (("append", 5), {"leo": 20, "hw": 15}),
            (("wait", 1), {"hw": 15}),
            (("append", 1), {"leo": 21, "hw": 21}),
        ),
    ),
    Case(  # KAFKA-15021
        "who-may-not-join-does-not-count",
        "N",
        {"leo": 10, "hw": 10, "isr": (1,)},
        (
            *CATCHING_UP,
            (("brokers", {2: (0, False)}), {}),
            (("append", 5), {"leo": 20, "hw": 20}),
        ),
    ),
    Case(
        "never-back",
        ALL,
        {"leo": 10},
        ((("fetch", 2, 8), {"hw": 8}), (("fetch", 2, 3), {"hw": 8, "2.leo": 3})),
    ),
    Case(
        "dead-third-replica-does-not-count",
        ALL,
        TWO_OF_THREE | {"leo": 10},
        ((("fetch", 2, 10), {"hw": 10, "3.leo": -1}),),
    ),
    Case(
        "under-min-isr",
        UNTIL_G,
        {"isr": (1,), "min_insync_replicas": 2},
        ((("append", 5), {"hw": 5}),),
    ),
    Case(  # KAFKA-15583
        "under-min-isr",
        "N",
        {"isr": (1,), "min_insync_replicas": 2},
        ((("append", 5), {"hw": 0}), (("fetch", 2, 5), {"hw": 0}), (("answer",), {"hw": 5})),
    ),
    Case(  # the price of the freeze: whoever reached it joins, is too late, and leaves
        "flapping-under-min-isr",
        "N",
        {"leo": 10, "isr": (1,), "min_insync_replicas": 2},
        (
            (("append", 90), {"leo": 100, "hw": 0}),
            (("fetch", 2, 10), {"pending": (1, 2)}),
            (("answer",), {"isr": (1, 2), "hw": 10}),
            (("check",), {"pending": (1,)}),
            (("answer",), {"isr": (1,), "hw": 10}),
            (("fetch", 2, 11), {"pending": (1, 2)}),
        ),
    ),
    Case(
        "min-isr-above-the-replica-count",
        "N",
        {"replicas": (1,), "min_insync_replicas": 2},
        ((("append", 5), {"hw": 5}),),
    ),
    Case(  # KAFKA-8841: a fetch that repeats its offset looks at nothing
        "a-repeated-fetch-looks-again",
        "CD",
        TWO_OF_THREE | {"leo": 5, "hw": 5},
        (
            (("fetch", 2, 5), {}),
            (("fetch", 3, 2), {}),
            (("append", 1), {}),
            (("fetch", 2, 6), {"hw": 6}),
            (("fetch", 3, 5), {"3.caught_up": 0}),
            (("append", 4), {}),
            (("fetch", 2, 10), {"hw": 6}),
            (("wait", 30_001), {}),
            (("fetch", 2, 10), {"hw": 10}),
        ),
    ),
    Case(
        "a-repeated-fetch-looks-at-nothing",
        "GN",
        TWO_OF_THREE | {"leo": 5, "hw": 5},
        (
            (("fetch", 2, 5), {}),
            (("fetch", 3, 2), {}),
            (("append", 1), {}),
            (("fetch", 2, 6), {"hw": 6}),
            (("fetch", 3, 5), {"3.caught_up": 0}),
            (("append", 4), {}),
            (("fetch", 2, 10), {"hw": 6}),
            (("wait", 30_001), {}),
            (("fetch", 2, 10), {"hw": 6}),
            (("append", 1), {"hw": 10}),
        ),
    ),
)


# How the high watermark reaches a follower


FETCH = (
    Case(  # what a busy leader sends is what was true before the fetch
        "high-watermark-one-fetch-behind",
        ALL,
        {"leo": 2},
        (
            (("fetch", 2, 1), {"response": 1, "response_hw": 0, "hw": 1}),
            (("append", 1), {}),
            (("fetch", 2, 2), {"response": 1, "response_hw": 1, "hw": 2}),
        ),
    ),
    Case(
        "idle-waits-for-the-parked-fetch",
        "ABCDN",
        {"leo": 1},
        (
            (("fetch", 2, 1), {"response": None, "hw": 1}),
            (("expire_fetch",), {"response": 0, "response_hw": 1}),
        ),
    ),
    Case(  # KIP-392 in 2.4 and 2.5; the answer does not count as sent, so it comes twice
        "idle-is-pushed",
        "G",
        {"leo": 1},
        (
            (("fetch", 2, 1), {"response": 0, "response_hw": 1}),
            (("fetch", 2, 1), {"response": 0, "response_hw": 1}),
            (("fetch", 2, 1), {"response": None}),
        ),
    ),
    Case(
        "parked-fetch-gets-data",
        ALL,
        {"leo": 1},
        (
            (("fetch", 2, 1), {}),
            (("expire_fetch",), {}),
            (("fetch", 2, 1), {}),
            (("fetch", 2, 1), {"response": None}),
            (("append", 2), {"response": 2, "response_hw": 1}),
        ),
    ),
    Case(
        "epoch-is-fenced",
        "GN",
        {"leo": 10},
        (
            (("fetch", 2, 5, -1, 4), {"response": "FENCED_LEADER_EPOCH", "2.leo": -1}),
            (("fetch", 2, 5, -1, 6), {"response": "UNKNOWN_LEADER_EPOCH", "2.leo": -1}),
            (("fetch", 2, 5, -1, 5), {"response": 5, "2.leo": 5}),
        ),
    ),
    Case(
        "beyond-the-log-end",
        ALL,
        {"leo": 10},
        ((("fetch", 2, 11), {"response": "OFFSET_OUT_OF_RANGE", "2.leo": -1, "hw": 0}),),
    ),
    Case(
        "before-the-log-start",
        ALL,
        {"leo": 10},
        (
            (("log_starts_at", 5), {}),
            (("fetch", 2, 4), {"response": "OFFSET_OUT_OF_RANGE"}),
            (("fetch", 2, 5), {"response": 5}),
        ),
    ),
    Case(  # a diverging epoch changes nothing that the leader knows
        "diverging-is-no-news",
        "N",
        {"log": ((0, 2), (3, 3))},
        ((("fetch", 2, 4, 2), {"response": (0, 2), "2.leo": -1, "hw": 0}),),
    ),
)


@in_every_column(PRODUCE + HIGH_WATERMARK + FETCH)
def test_rule(case: Case, column: str) -> None:
    play(LeaderBench(column, **case.setup), case.steps_in(column))


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
