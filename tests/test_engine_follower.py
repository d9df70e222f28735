"""The rules of a follower, version by version: where it cuts, what it believes, when it waits.

Broker 2 follows broker 1.
"""

from __future__ import annotations

import pytest
from cases.follower_bench import FollowerBench
from cases.table import Case, in_every_column, play

from isrlab.engine import broker as machine
from isrlab.engine import messages as m
from isrlab.engine.model import Broker

ALL = "ABCDGN"
NOT_LEADER = dict.fromkeys("ABCDG", "NOT_LEADER_FOR_PARTITION") | {"N": "NOT_LEADER_OR_FOLLOWER"}

BECOMING = (
    Case(  # its own high watermark is all it can trust
        "cuts-to-the-high-watermark",
        "ABC",
        {"log": ((0, 10),), "hw": 7},
        ((("look",), {"leo": 7, "hw": 7, "asks": ("Fetch", 7)}),),
    ),
    Case(
        "asks-for-its-epoch",
        "DG",
        {"log": ((0, 6), (3, 4)), "hw": 7},
        ((("look",), {"leo": 10, "asks": ("OffsetsForLeaderEpoch", 3)}),),
    ),
    Case(
        "fetches-at-once",
        "N",
        {"log": ((0, 6), (3, 4)), "hw": 7},
        ((("look",), {"leo": 10, "asks": ("Fetch", 10), "last_fetched_epoch": 3}),),
    ),
    Case(
        "no-epochs-no-question",
        "DGN",
        {},
        ((("look",), {"leo": 0, "asks": ("Fetch", 0)}),),
    ),
    Case(  # the checkpoint may say more than the disk holds
        "high-watermark-within-the-log",
        ALL,
        {"log": ((0, 3),), "hw": 9},
        ((("look",), {"leo": 3, "hw": 3}),),
    ),
    Case(  # the same leader again: nothing to find out, it was thought until 2.1
        "same-leader-new-epoch",
        "ABCD",
        {"log": ((0, 10),), "hw": 10},
        ((("order", 12), {"epoch": 12, "asks": None}),),
    ),
    Case(
        "same-leader-new-epoch",
        "G",
        {"log": ((0, 10),), "hw": 10},
        ((("order", 12), {"epoch": 12, "asks": ("OffsetsForLeaderEpoch", 0)}),),
    ),
    Case(
        "same-leader-new-epoch",
        "N",
        {"log": ((0, 10),), "hw": 10},
        ((("order", 12), {"epoch": 12, "asks": ("Fetch", 10)}),),
    ),
    Case(
        "old-order",
        ALL,
        {},
        ((("order", 8, 3), {"epoch": 9, "leader": 1}), (("order", 9, 3, 0), {"leader": 1})),
    ),
    Case(
        "no-leader",
        ALL,
        {},
        ((("order", 10, -1), {"leader": -1, "is_waiting": True, "asks": None}),),
    ),
)

TRUNCATING = (
    Case(
        "one-round-unknown",
        "D",
        {"log": ((0, 6), (3, 4)), "hw": 7},
        ((("epoch_ends", -1, -1), {"leo": 7, "asks": ("Fetch", 7)}),),
    ),
    Case(
        "one-round-nothing-to-cut",
        "D",
        {"log": ((0, 6), (3, 4)), "hw": 7},
        ((("epoch_ends", -1, 12), {"leo": 10, "hw": 7, "asks": ("Fetch", 10)}),),
    ),
    Case(  # KIP-279: the leader never had epoch 3; cut, then ask about the one before
        "round-after-round",
        "G",
        {"log": ((0, 6), (1, 2), (3, 4)), "hw": 5},
        (
            (("look",), {"asks": ("OffsetsForLeaderEpoch", 3)}),
            (("epoch_ends", 2, 20), {"leo": 8, "asks": ("OffsetsForLeaderEpoch", 1)}),
            (("epoch_ends", 0, 4), {"leo": 4, "hw": 4, "asks": ("Fetch", 4)}),
        ),
    ),
    Case(  # it led epoch 2 without a record; the leader has records of epoch 1: asked for ever
        "KAFKA-10706",
        "G",
        {"log": ((0, 5),), "epoch": 1},
        (
            (("order", 2, 2), {}),
            (("order", 3, 1), {"epochs": ((0, 0), (2, 5)), "asks": ("OffsetsForLeaderEpoch", 2)}),
            (("epoch_ends", 1, 6), {"leo": 5, "asks": None, "backs_off_ms": 1_000}),
            (("retry",), {"asks": ("OffsetsForLeaderEpoch", 2)}),
        ),
    ),
    Case(
        "KAFKA-10706",
        "N",
        {"log": ((0, 5),), "epoch": 1},
        (
            (("order", 2, 2), {}),
            (("order", 3, 1), {"asks": ("Fetch", 5), "last_fetched_epoch": 2}),
            (("diverging", 1, 6), {"asks": ("Fetch", 5), "last_fetched_epoch": 0}),
            (("look",), {"epochs": ((0, 0),)}),
        ),
    ),
    Case(
        "unknown-epoch",
        "G",
        {"log": ((0, 6), (3, 4)), "hw": 7},
        ((("epoch_ends", -1, -1), {"leo": 7, "asks": ("Fetch", 7)}),),
    ),
)

COPYING = (
    Case(
        "high-watermark-within-own-log",
        ALL,
        {},
        (
            (("data", 3, 9), {"leo": 3, "hw": 3, "asks": ("Fetch", 3)}),
            (("data", 1, 2), {"leo": 4, "hw": 2}),  # and it may go back
        ),
    ),
    Case(
        "answer-to-an-older-request",
        ALL,
        {},
        ((("late_data",), {"leo": 0, "asks": None}), (("data", 1, 0), {"leo": 1})),
    ),
    Case(
        "backs-off-for-a-second",
        ALL,
        {},
        (
            (("disconnect",), {"asks": None, "backs_off_ms": 1_000}),
            (("retry",), {"asks": ("Fetch", 0)}),
            (("disconnect", 3), {"asks": None, "backs_off_ms": None}),
        ),
    ),
    Case(
        "fenced-waits-for-the-controller",
        "GN",
        {},
        (
            (("fetch_fails", "FENCED_LEADER_EPOCH"), {"is_waiting": True, "asks": None}),
            (("retry",), {"asks": None}),
            (("data", 3, 0), {"leo": 0}),
            (("order", 10), {"is_waiting": False, "asks": ("Fetch", 0)}),
        ),
    ),
    Case(
        "fenced-while-truncating",
        "G",
        {"log": ((0, 3),)},
        ((("epoch_fails", "FENCED_LEADER_EPOCH"), {"is_waiting": True, "asks": None}),),
    ),
    Case(
        "ahead-of-the-leader-retries",
        "GN",
        {},
        (
            (("fetch_fails", "UNKNOWN_LEADER_EPOCH"), {"backs_off_ms": 1_000}),
            (("retry",), {"asks": ("Fetch", 0)}),
        ),
    ),
    Case(
        "epoch-question-is-repeated",
        "DG",
        {"log": ((0, 3),)},
        (
            (("disconnect",), {"asks": None, "backs_off_ms": 1_000}),
            (("retry",), {"asks": ("OffsetsForLeaderEpoch", 0)}),
        ),
    ),
)

OUT_OF_RANGE = (("fetch_fails", "OFFSET_OUT_OF_RANGE"), {"asks": ("ListOffsets", 2)})
BEYOND_THE_LEADER = {"log": ((0, 10),), "hw": 10}

OFFSETS = (
    Case(  # 0.11 has asked for its epoch before it fetches at all
        "cuts-to-the-leaders-end",
        "ABC",
        BEYOND_THE_LEADER | {"unclean_leader_election_enable": True},
        (OUT_OF_RANGE, (("offsets", 0, 7), {"leo": 7, "hw": 7, "asks": ("Fetch", 7)})),
    ),
    Case(
        "halts",
        "ABC",
        BEYOND_THE_LEADER | {"unclean_leader_election_enable": False},
        (OUT_OF_RANGE, (("offsets", 0, 7), {"leo": 10, "halts": True, "asks": None})),
    ),
    Case(
        "halts",
        "D",
        BEYOND_THE_LEADER,
        (
            (("epoch_ends", -1, 10), {"asks": ("Fetch", 10)}),
            OUT_OF_RANGE,
            (("offsets", 0, 7), {"leo": 10, "halts": True, "asks": None}),
        ),
    ),
    Case(
        "never-halts-since-2.0",
        "N",
        BEYOND_THE_LEADER | {"unclean_leader_election_enable": False},
        (OUT_OF_RANGE, (("offsets", 0, 7), {"leo": 7, "halts": False, "asks": ("Fetch", 7)})),
    ),
    Case(
        "never-halts-since-2.0",
        "G",
        BEYOND_THE_LEADER | {"unclean_leader_election_enable": False},
        (
            (("epoch_ends", 0, 10), {}),
            OUT_OF_RANGE,
            (("offsets", 0, 7), {"leo": 7, "halts": False}),
        ),
    ),
    Case(
        "starts-anew-where-the-leader-starts",
        ALL,
        {},
        (OUT_OF_RANGE, (("offsets", 4, 9), {"start": 4, "leo": 4, "hw": 4})),
    ),
    Case(  # the leader has grown meanwhile
        "in-range-after-all",
        ALL,
        {},
        (OUT_OF_RANGE, (("offsets", 0, 9), {"leo": 0, "asks": ("Fetch", 0)})),
    ),
)


@in_every_column(BECOMING + TRUNCATING + COPYING + OFFSETS)
def test_rule(case: Case, column: str) -> None:
    play(FollowerBench(column, **case.setup), case.steps_in(column))


@pytest.mark.parametrize("column", ALL)
def test_a_follower_serves_nobody(column: str) -> None:
    bench = FollowerBench(column)
    questions = (
        m.Fetch(3, 1, 0),
        m.OffsetsForLeaderEpoch(3, 1, 0),
        m.ListOffsets(3, 1),
        m.Produce(1, ("a",), 1),
    )
    for question in questions:
        after, outputs = machine.step(bench.broker, question, 0)
        assert outputs[0].message.error == NOT_LEADER[column]
        assert after == bench.broker
    assert machine.step(bench.broker, m.Produce(1, ("a",), 0), 0) == (bench.broker, ())


def test_impossible_messages_raise_and_change_nothing() -> None:
    bench = FollowerBench("N")
    before = bench.broker
    with pytest.raises(TypeError, match="not a message"):
        bench.step("hello")
    with pytest.raises(ValueError, match="fetched at 0 but got records at 7"):
        bench.step(m.FetchResponse(bench.request, 7, (), 0))
    assert bench.broker == before


def test_answers_to_a_former_process_are_stale() -> None:
    """A request number of one process is never that of the next, which asks anew."""
    first = FollowerBench("N")
    disk = first.broker.log
    again, _ = machine.start(
        Broker(2, first.version, first.broker.settings, (1, 2), disk, broker_epoch=1)
    )
    again, _ = machine.step(again, m.LeaderAndIsr(1, 9, (1, 2), 1, (1, 2)), 0)
    late = m.FetchResponse(first.request, 0, (m.Record("late", 9),), 0)
    assert machine.step(again, late, 0) == (again, ())
