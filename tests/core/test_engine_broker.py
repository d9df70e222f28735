"""A broker, version by version: the cases of tests/cases/*.txt, and others that do not fit there.

The kafka_* files are Kafka's own tests. Broker 1 leads, 2 and 3 follow (or broker 2 follows broker
1); times are in ms since broker 1 became the leader.
"""

from __future__ import annotations

from itertools import product

import pytest

from cases.bench import T0, FollowerBench, LeaderBench, log_of
from cases.table import Case, in_every_column, play
from isrlab.engine import broker as machine
from isrlab.engine import messages as m
from isrlab.engine.choices import LagClock
from isrlab.engine.model import Broker, Settings
from isrlab.engine.rules import last_caught_up_time_ms
from isrlab.engine.versions import PRESETS

ALL, UNTIL_G = "ABCDGN", "ABCDG"


@in_every_column("leader", "isr", "kafka_leader")
def test_leader(case: Case, column: str) -> None:
    play(LeaderBench(column, **case.setup), case.steps)


@in_every_column("follower", "kafka_truncation")
def test_follower(case: Case, column: str) -> None:
    play(FollowerBench(column, **case.setup), case.steps)


# Produce


@pytest.mark.parametrize(
    ("columns", "replicas", "isr", "min_isr", "acks", "leo", "produced"),
    [
        (ALL, (1, 2), (1, 2), 2, 0, 1, []),
        (ALL, (1, 2), (1, 2), 2, 1, 1, [None]),
        (ALL, (1, 2), (1, 2), 2, -1, 1, []),  # waits for the high watermark
        (ALL, (1, 2), (1, 2), 1, -1, 1, []),  # waits for every ISR member, not only for min ISR
        (ALL, (1, 2), (1,), 1, -1, 1, [None]),
        (ALL, (1, 2), (1,), 2, 0, 1, []),  # min.insync.replicas concerns only acks=all
        (ALL, (1, 2), (1,), 2, 1, 1, [None]),
        (ALL, (1, 2), (1,), 2, -1, 0, ["NOT_ENOUGH_REPLICAS"]),
        (ALL, (1, 2, 3), (1, 2), 3, -1, 0, ["NOT_ENOUGH_REPLICAS"]),
        (UNTIL_G, (1,), (1,), 2, -1, 0, ["NOT_ENOUGH_REPLICAS"]),
        ("N", (1,), (1,), 2, -1, 1, [None]),  # at most as many as there are replicas
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


# Checkpoints


@pytest.mark.parametrize("column", ALL)
def test_checkpoints_of_two_partitions_d7(column: str) -> None:
    """Case D7: each log has its own checkpoint."""
    one, other = (log_of(PRESETS[column], (0, 20)) for _ in range(2))
    one = one.with_high_watermark(5).checkpoint()
    assert one.checkpointed_high_watermark == 5
    other = other.with_high_watermark(15).checkpoint()
    one = one.with_high_watermark(10)
    assert one.checkpointed_high_watermark == 5
    found = [log.checkpoint().load().high_watermark for log in (other, one)]
    assert found == [15, 10]


# The lag clock


@pytest.mark.parametrize(
    ("fetch", "end", "end_then", "expected"),
    [  # last fetch at 40, last caught up at 30, now 50; expected in A, B and C
        (10, 10, 10, (50, 50, 50)),
        (11, 10, 10, (50, 50, 50)),
        (9, 10, 9, (50, 30, 40)),  # the log end at the previous fetch
        (9, 10, 10, (50, 30, 30)),
        (0, 10, -1, (50, 30, 40)),  # the first fetch in an epoch
    ],
)
def test_three_lag_clocks(fetch, end, end_then, expected):
    found = tuple(last_caught_up_time_ms(c, fetch, end, end_then, 40, 30, 50) for c in LagClock)
    assert found == expected


def test_lag_clock_never_goes_back():
    for clock in (LagClock.READ_TO_LOG_END, LagClock.CAUGHT_UP_TO_PREVIOUS_FETCH):
        assert last_caught_up_time_ms(clock, 10, 10, 10, 40, 60, 50) == 60
    assert last_caught_up_time_ms(LagClock.CAUGHT_UP_TO_PREVIOUS_FETCH, 9, 10, 9, 40, 60, 50) == 60


# Answers of the controller


@pytest.mark.parametrize("change", ["grow", "shrink"])
@pytest.mark.parametrize(
    ("error", "pending", "requests"),
    [
        ("UNKNOWN_TOPIC_OR_PARTITION", True, 1),
        ("UNKNOWN_TOPIC_ID", True, 1),
        ("FENCED_LEADER_EPOCH", True, 1),
        ("INVALID_UPDATE_VERSION", True, 1),
        ("INVALID_REQUEST", True, 1),
        ("NEW_LEADER_ELECTED", True, 1),
        ("OPERATION_NOT_ATTEMPTED", False, 1),
        ("INELIGIBLE_REPLICA", False, 1),
        ("NOT_CONTROLLER", True, 2),
        ("UNKNOWN_SERVER_ERROR", True, 2),
    ],
)
def test_answer_to_an_isr_change(change: str, error: str, pending: bool, requests: int) -> None:
    before = (1, 2) if change == "shrink" else (1,)
    bench = LeaderBench("N", leo=10, isr=before)
    bench.wait(30_001)
    bench.check() if change == "shrink" else bench.fetch(2, 10)
    bench.answer(error)
    assert (bench.see("pending") is not None, bench.see("requests")) == (pending, requests)
    assert bench.see("isr") == before
    if pending:
        assert bench.see("maximal") == (1, 2)
        bench.order(5, 9, (1, 2))  # an order of the controller ends it
        assert (bench.see("pending"), bench.see("isr")) == (None, (1, 2))


@pytest.mark.parametrize(
    ("epoch", "partition_epoch", "is_taken"),
    [(5, 2, True), (5, 1, True), (5, 0, False), (4, 2, False), (6, 2, False)],
)
def test_late_success_is_ignored(epoch: int, partition_epoch: int, is_taken: bool) -> None:
    bench = LeaderBench("N", leo=10, isr=(1,))
    bench.fetch(2, 10)
    request = bench.requests[-1].request
    bench.step(m.AlterPartitionResponse(request - 1, 5, 2, (1, 2)))
    assert bench.see("isr") == (1,)
    bench.step(m.AlterPartitionResponse(request, epoch, partition_epoch, (1, 2)))
    assert bench.see("isr") == ((1, 2) if is_taken else (1,))
    assert (bench.see("pending") is None) is is_taken


def test_unreachable_controller_is_asked_again_after_50_ms() -> None:
    bench = LeaderBench("N", leo=10, isr=(1,))
    bench.fetch(2, 10)
    _, outputs = machine.step(bench.broker, m.Disconnected(m.CONTROLLER), bench.now_ms)
    assert outputs == (m.After(50, m.RetryAlterPartition()),)
    bench.step(m.RetryAlterPartition())
    assert bench.requests[0] == bench.requests[1]
    bench.answer()
    bench.step(m.RetryAlterPartition())
    assert bench.see("requests") == 2


# The schedule


@pytest.mark.parametrize(
    ("column", "lag_ms", "checks_ms"),
    [
        ("A", 10_000, 10_000),
        ("B", 10_000, 10_000),
        ("C", 10_000, 5_000),
        ("D", 10_000, 5_000),
        ("G", 30_000, 15_000),
        ("N", 30_000, 15_000),
    ],
)
def test_schedule_of_a_broker(column: str, lag_ms: int, checks_ms: int) -> None:
    version = PRESETS[column]
    settings = Settings.of(version)
    assert settings.replica_lag_time_max_ms == lag_ms
    broker, tasks = machine.start(Broker(1, version, settings, (1, 2)))
    notifies = [m.After(2_500, m.PropagateIsrChanges())] if column in "BCDG" else []
    expected = [m.After(checks_ms, m.ExpireIsr()), m.After(5_000, m.CheckpointHighWatermark())]
    assert list(tasks) == expected + notifies
    for task in tasks:  # each repeats, even if there is nothing to do yet
        assert machine.step(broker, task.message, T0)[1] == (task,)


@pytest.mark.parametrize("column", "BCDG")
def test_constant_churn_is_announced_every_minute(column: str) -> None:
    bench = LeaderBench(column, leo=10, replica_lag_time_max_ms=1_000)
    announced_ms = []
    for now_ms in range(2_500, 125_001, 2_500):
        bench.at(now_ms)
        before = bench.notices
        bench.append(1)
        bench.check()  # broker 2 leaves the ISR
        bench.fetch(2, bench.broker.log.log_end_offset)  # and rejoins
        bench.tick()
        announced_ms += [now_ms] * (bench.notices - before)
    assert announced_ms == [62_500, 125_000]


@pytest.mark.parametrize(
    ("column", "epoch"), [*product("IJKLMNO", [5]), *product("KLMNO", [6])]
)  # in 2.7 and 2.8 an order with a new epoch frees it: "never-sent" in cases/isr.txt
def test_order_does_not_free_the_slot(column: str, epoch: int) -> None:
    """Only one request is in flight, whatever the leader knows; the next waits for its answer."""
    bench = LeaderBench(column, leo=3, isr=(1,))
    bench.fetch(2, 3)
    bench.order(epoch, 2, (1,))
    bench.fetch(2, 3)
    assert (bench.see("requests"), bench.see("isr")) == (1, (1,))
    is_reset = column >= "L" or epoch == 6  # without KRaft a repeated epoch is stale
    assert (bench.see("pending") is None) is is_reset
    bench.step(m.Disconnected(m.CONTROLLER))
    bench.step(m.RetryAlterPartition())  # repeats the request, whatever the leader wants now
    assert bench.requests[0] == bench.requests[1]
    bench.answer("FENCED_LEADER_EPOCH")
    bench.fetch(2, 3)
    assert bench.see("requests") == (3 if is_reset else 2)


NOT_LEADER = dict.fromkeys("ABCDG", "NOT_LEADER_FOR_PARTITION") | {"N": "NOT_LEADER_OR_FOLLOWER"}


@pytest.mark.parametrize("column", ALL)
def test_a_follower_refuses_all_requests(column: str) -> None:
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
    """A process never reuses a request number of its predecessor."""
    first = FollowerBench("N")
    disk = first.broker.log
    again, _ = machine.start(
        Broker(2, first.version, first.broker.settings, (1, 2), disk, broker_epoch=1)
    )
    again, _ = machine.step(again, m.LeaderAndIsr(1, 9, (1, 2), 1, (1, 2)), 0)
    late = m.FetchResponse(first.request, 0, (m.Record("late", 9),), 0)
    assert machine.step(again, late, 0) == (again, ())
