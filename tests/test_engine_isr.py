"""The rules of the ISR, version by version: lag clock, leaving, joining, telling the controller.

Broker 1 leads, 2 and 3 follow; times are milliseconds since the leadership began.
"""

from __future__ import annotations

import pytest
from cases.leader_bench import T0, LeaderBench
from cases.table import Case, in_every_column, play

from isrlab.engine import broker as machine
from isrlab.engine import messages as m
from isrlab.engine.model import Broker, Settings
from isrlab.engine.rules import last_caught_up_time_ms
from isrlab.engine.versions import PRESETS, LagClock

ALL = "ABCDGN"
UNTIL_D, UNTIL_G = "ABCD", "ABCDG"


# The lag clock


@pytest.mark.parametrize(
    ("fetch", "end", "end_then", "expected"),
    [  # last fetch at 40, last caught up at 30, now 50; expected in A, B and C
        (10, 10, 10, (50, 50, 50)),
        (11, 10, 10, (50, 50, 50)),
        (9, 10, 9, (50, 30, 40)),  # the end as of the previous fetch
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


CLOCK = (
    Case(  # one round trip behind for ever: 0.9 drops a follower that 0.10.2 keeps (KAFKA-4485)
        "steady-load",
        ALL,
        {"leo": 10, "replica_lag_time_max_ms": 100},
        (
            (("at", 60), {}),
            (("fetch", 2, 5), {}),
            (("append", 5), {"leo": 15}),
            (("at", 120), {}),
            (("fetch", 2, 10), {}),
            (("check",), {"asked": None}),
        ),
        only={
            "B": (
                (("at", 60), {}),
                (("fetch", 2, 5), {}),
                (("append", 5), {"leo": 15}),
                (("at", 120), {}),
                (("fetch", 2, 10), {}),
                (("check",), {"isr": (1,)}),
            )
        },
    ),
    Case(  # a new leadership: 0.9 keeps the clock of years ago and drops a healthy follower
        "old-clock-survives",
        "B",
        {"leo": 10},
        (
            (("fetch", 2, 10), {"2.caught_up": 0}),
            (("order", 6, 2, (1, 2), None, 2), {}),
            (("wait", 60_000), {}),
            (("order", 7, 3, (1, 2)), {"2.caught_up": 0, "2.leo": -1}),
            (("check",), {"isr": (1,)}),
        ),
    ),
    Case(
        "old-clock-is-reset",
        "ACDGN",
        {"leo": 10},
        (
            (("fetch", 2, 10), {"2.caught_up": 0}),
            (("order", 6, 2, (1, 2), None, 2), {}),
            (("wait", 60_000), {}),
            (("order", 7, 3, (1, 2)), {"2.caught_up": 60_000, "2.leo": -1}),
            (("check",), {"requests": 0}),
        ),
    ),
    Case(  # led on, out of the ISR: not even a fetch is remembered from 3.3 on
        "led-on-outside-the-isr",
        "CDG",
        {"leo": 10},
        (
            (("at", 100), {}),
            (("fetch", 2, 5), {}),
            (("order", 6, 2, (1,)), {"2.caught_up": None, "2.fetched": 100, "2.leo": 5}),
        ),
    ),
    Case(
        "led-on-outside-the-isr",
        "N",
        {"leo": 10},
        (
            (("at", 100), {}),
            (("fetch", 2, 5), {}),
            (("order", 6, 2, (1,)), {"2.caught_up": None, "2.fetched": None, "2.leo": 5}),
        ),
    ),
)


# Leaving and joining


SHRINK = (
    Case(
        "exactly-the-limit-stays",
        ALL,
        {"leo": 10},
        (
            (("wait", 30_000), {}),
            (("check",), {"requests": 0}),
            (("wait", 1), {}),
            (("check",), {"asked": (1,)}),
        ),
    ),
    Case(  # an idle topic and a dead follower that has everything
        "dead-at-the-log-end-leaves",
        UNTIL_D,
        {"leo": 10},
        ((("fetch", 2, 10), {}), (("wait", 30_001), {}), (("check",), {"isr": (1,)})),
    ),
    Case(
        "dead-at-the-log-end-stays-until-the-next-append",
        "GN",
        {"leo": 10},
        (
            (("fetch", 2, 10), {}),
            (("wait", 300_000), {}),
            (("check",), {"requests": 0}),
            (("append", 1), {}),
            (("check",), {"asked": (1,)}),
        ),
    ),
    Case(
        "min-isr-stops-no-shrink",
        UNTIL_G,
        {"leo": 10, "min_insync_replicas": 2},
        ((("wait", 30_001), {}), (("check",), {"isr": (1,)})),
    ),
    Case(
        "high-watermark-moves-with-the-shrink",
        UNTIL_G,
        {"leo": 10},
        ((("wait", 30_001), {"hw": 0}), (("check",), {"isr": (1,), "hw": 10})),
    ),
    Case(  # the stuck loop: the stale version is used again and again
        "cas-fails",
        UNTIL_G,
        {"leo": 10},
        (
            (("zookeeper", False), {}),
            (("wait", 30_001), {}),
            (("check",), {"requests": 1, "isr": (1, 2), "hw": 0, "pending": None}),
            (("check",), {"requests": 2, "isr": (1, 2), "hw": 0, "partition_epoch": 1}),
            (("order", 6, 7, (1, 2)), {"partition_epoch": 7}),
            (("zookeeper", True), {}),
            (("wait", 30_001), {}),
            (("check",), {"requests": 3, "isr": (1,), "hw": 10, "partition_epoch": 8}),
        ),
    ),
    Case(  # more messages behind than allowed counts only when the task runs
        "burst-between-two-checks",
        "A",
        {"replica_lag_max_messages": 3},
        (
            (("fetch", 2, 0), {}),
            (("append", 10), {"isr": (1, 2)}),
            (("fetch", 2, 10), {}),
            (("check",), {"isr": (1, 2)}),
        ),
    ),
)

EXPAND = (
    Case(
        "reaching-the-high-watermark-is-enough",
        UNTIL_D,
        {"leo": 10, "hw": 4, "isr": (1,)},
        (
            (("wait", 300_000), {"hw": 10}),
            (("fetch", 2, 9), {"requests": 0}),
            (("fetch", 2, 10), {"asked": (1, 2)}),
        ),
    ),
    Case(  # the high watermark is 0, for broker 3 lags; time plays no part
        "below-the-epoch-start",
        UNTIL_D,
        {"leo": 10, "replicas": (1, 2, 3), "isr": (1, 3)},
        ((("wait", 300_000), {}), (("fetch", 2, 0), {"asked": (1, 2, 3)})),
    ),
    Case(
        "below-the-epoch-start",
        "GN",
        {"leo": 10, "replicas": (1, 2, 3), "isr": (1, 3)},
        (
            (("wait", 300_000), {}),
            (("fetch", 2, 9), {"requests": 0}),
            (("fetch", 2, 10), {"asked": (1, 2, 3)}),
        ),
    ),
    Case(
        "cas-fails",
        UNTIL_G,
        {"leo": 10, "isr": (1,)},
        (
            (("zookeeper", False), {}),
            (("fetch", 2, 10), {"isr": (1,), "requests": 1, "pending": None}),
            (("fetch", 2, 10), {"isr": (1,), "requests": 2}),
            (("zookeeper", True), {}),
            (("fetch", 2, 10), {"isr": (1, 2), "requests": 3}),
        ),
    ),
)


@in_every_column(CLOCK + SHRINK + EXPAND)
def test_rule(case: Case, column: str) -> None:
    play(LeaderBench(column, **case.setup), case.steps_in(column))


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
        bench.order(5, 9, (1, 2))  # the controller's word ends it
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
    for task in tasks:  # each comes again, even where there is nothing to do yet
        assert machine.step(broker, task.message, T0)[1] == (task,)


NOTIFY = (
    Case(  # last change + 5 s must be over, strictly
        "announced-when-quiet",
        "BCDG",
        {"leo": 10, "isr": (1,)},
        (
            (("at", 100), {}),
            (("fetch", 2, 10), {"isr": (1, 2)}),
            (("at", 5_100), {}),
            (("tick",), {"notices": 0}),
            (("at", 5_101), {}),
            (("tick",), {"notices": 1}),
            (("at", 70_000), {}),
            (("tick",), {"notices": 1}),
        ),
    ),
    Case(
        "nobody-is-told",
        "AN",
        {"leo": 10, "isr": (1,)},
        ((("fetch", 2, 10), {}), (("at", 70_000), {}), (("tick",), {"notices": 0})),
    ),
)


@in_every_column(NOTIFY)
def test_notification(case: Case, column: str) -> None:
    play(LeaderBench(column, **case.setup), case.steps_in(column))


@pytest.mark.parametrize("column", "BCDG")
def test_constant_churn_is_announced_every_minute(column: str) -> None:
    bench = LeaderBench(column, leo=10, replica_lag_time_max_ms=1_000)
    told = []
    for now_ms in range(2_500, 125_001, 2_500):
        bench.at(now_ms)
        before = bench.notices
        bench.append(1)
        bench.check()  # out
        bench.fetch(2, bench.broker.log.log_end_offset)  # and in again
        bench.tick()
        told += [now_ms] * (bench.notices - before)
    assert told == [62_500, 125_000]


@pytest.mark.parametrize("column", "IJKLMNO")
@pytest.mark.parametrize("epoch", [5, 6], ids=["same epoch", "new epoch"])
def test_order_does_not_free_the_slot(column: str, epoch: int) -> None:
    """One request is on its way, whatever the leader believes; the next follows its answer."""
    bench = LeaderBench(column, leo=3, isr=(1,))
    bench.fetch(2, 3)
    bench.order(epoch, 2, (1,))
    bench.fetch(2, 3)
    assert (bench.see("requests"), bench.see("isr")) == (1, (1,))
    is_reset = column >= "L" or epoch == 6  # without KRaft an order of the same epoch is an old one
    assert bench.see("is_committed") is is_reset
    bench.step(m.Disconnected(m.CONTROLLER))
    bench.step(m.RetryAlterPartition())  # the same one, not what the leader would ask for now
    assert bench.requests[0] == bench.requests[1]
    bench.answer("FENCED_LEADER_EPOCH")
    bench.fetch(2, 3)
    assert bench.see("requests") == (3 if is_reset else 2)
