"""The rules of a follower, version by version: where it cuts, what it believes, when it waits.

Broker 2 follows broker 1.
"""

from __future__ import annotations

import pytest
from cases.follower_bench import FollowerBench

from isrlab.engine import broker as machine
from isrlab.engine import messages as m
from isrlab.engine.model import Broker

ALL = "ABCDGN"
NOT_LEADER = dict.fromkeys("ABCDG", "NOT_LEADER_FOR_PARTITION") | {"N": "NOT_LEADER_OR_FOLLOWER"}


BEYOND_THE_LEADER = {"log": ((0, 10),), "hw": 10}


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
