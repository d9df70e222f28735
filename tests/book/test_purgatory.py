"""Timing wheels, the purgatory, and when a waiting fetch or produce completes.

J19 is a case of TimerTest; the id is ours.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isrlab.engine.versions import PRESETS
from isrlab.show.messages import high_watermark_delays
from isrlab.world import scenario
from isrlab_book.closeups import purgatory as p
from isrlab_book.closeups.purgatory import Cause, PolledQueue, Purgatory, Task, Timer
from isrlab_book.closeups.segment import Batch, Reader, SegmentedLog
from isrlab_book.workbook import parked_fetches

START_MS = 1_000_000_000_007  # not a multiple of any tick


def ran(moves) -> Counter:
    return Counter(move.task.id for move in moves if move.runs)


def filled(timer, delays, now_ms=START_MS):
    """The timer with tasks "0", "1", ... for these delays (ms), and the moves that add them."""
    moves = []
    for number, delay in enumerate(delays):
        timer, move = timer.add(Task(str(number), now_ms + delay), now_ms)
        moves.append(move)
    return timer, moves


# J19, and what a wheel does step by step


@pytest.mark.parametrize("step_ms", [1, 7, 50, 2_000])
def test_j19_every_task_runs_once(step_ms):
    """Delays (ms): 0-4 once, 10-99 twice, 100-499 once; the tick is 1 ms, wheels have 3 slots."""
    delays = [*range(5), *range(10, 100), *range(10, 100), *range(100, 500)]
    timer, moves = filled(Timer.at(START_MS, tick_ms=1, size=3), delays)
    done = ran(moves)
    assert len(done) == 1  # a delay of 0 ms has expired already
    for now in range(START_MS, START_MS + 500 + step_ms, step_ms):
        timer, moves = timer.advance(now)
        done += ran(moves)
    assert done == Counter(str(number) for number in range(len(delays)))
    assert timer.tasks == ()


def test_already_expired_tasks_run_immediately():
    """Source: testAlreadyExpiredTask."""
    timer, moves = filled(Timer.at(START_MS), range(-5, 0))
    assert len(ran(moves)) == 5 and timer.tasks == ()


PLACES = {  # wheel and slot for a delay in ms
    1: (0, 1), 19: (0, 19), 20: (1, 1), 399: (1, 19), 400: (2, 1), 7_999: (2, 19),
    8_000: (3, 1), 30_000: (3, 3), 160_000: (4, 1),
}  # fmt: skip


@pytest.mark.parametrize(("delay", "place"), PLACES.items())
def test_which_wheel_and_slot(delay, place):
    timer, move = Timer.at(0).add(Task("t", delay), 0)
    assert move.target == place
    assert [w.tick_ms for w in timer.wheels] == [20**k for k in range(place[0] + 1)]


def test_a_task_falls_from_wheel_to_wheel():
    """509 ms: slot 400-799 of the third wheel, 500-519 of the second, 509 of the first."""
    timer, _ = Timer.at(0).add(Task("t", 509), 0)
    _, moves = timer.advance(600)
    assert [(m.at_ms, m.target) for m in moves] == [
        (400, (1, 5)),  # slot 5 of the second wheel: 500-519
        (500, (0, 9)),
        (509, None),
    ]


def test_an_idle_wheel_keeps_its_clock():
    """Only a due slot moves its clock; a task added later moves once more, and runs on time."""
    timer, _ = Timer.at(57).add(Task("t", 10_057), 57)
    assert [w.current_ms for w in timer.wheels] == [57, 40, 0, 0]  # rounded down
    timer, moves = Timer.at(0).advance(1_000)
    assert (timer.wheels[0].current_ms, moves) == (0, ())
    timer, move = timer.add(Task("t", 1_005), 1_000)
    assert move.target == (2, 2)
    timer, moves = timer.advance(1_004)
    assert not any(m.runs for m in moves)
    timer, moves = timer.advance(1_005)
    assert [m.at_ms for m in moves if m.runs] == [1_005]


def test_cancelled_tasks_leave_the_wheel_and_not_the_queue():
    timer, _ = Timer.at(0).add(Task("t", 500), 0)
    assert timer.cancel("t").tasks == ()
    assert ran(timer.cancel("t").advance(1_000)[1]) == Counter()
    queue, _ = PolledQueue().add(Task("t", 500), 0)
    assert len(queue.cancel("t").tasks) == 1


tasks = st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 300)), max_size=40)


@settings(max_examples=80, deadline=None)
@given(tasks, st.integers(2, 25), st.integers(1, 10**6), st.lists(st.integers(1, 900), max_size=9))
def test_every_task_runs_once_and_on_time(delays, size, start, steps):
    """With a tick of 1 ms every task runs exactly on time."""
    timer, now, moves, expirations = Timer.at(start, size=size), start, [], {}
    for number, (delay, pause) in enumerate(delays):
        now += pause
        timer, passed = timer.advance(now)
        expirations[str(number)] = now + delay
        timer, move = timer.add(Task(str(number), now + delay), now)
        moves += [*passed, move]
    for step in [*steps, 20_000]:
        now += step
        timer, passed = timer.advance(now)
        moves += passed
    assert timer.tasks == ()
    assert {m.task.id: m.at_ms for m in moves if m.runs} == expirations
    assert set(ran(moves).values()) <= {1}


@settings(max_examples=60, deadline=None)
@given(tasks, st.integers(2, 10), st.integers(2, 9))
def test_a_coarse_tick_is_early_by_less_than_a_tick(delays, size, tick):
    """A task runs when its tick begins."""
    timer, moves = filled(Timer.at(START_MS, tick, size), [delay for delay, _ in delays])
    timer, passed = timer.advance(START_MS + 30_000)
    late = [m.at_ms - m.task.expiration_ms for m in (*moves, *passed) if m.runs]
    assert len(late) == len(delays)
    assert all(-tick < ms <= 0 for ms in late)


@settings(max_examples=60, deadline=None)
@given(tasks, st.integers(1, 500))
def test_the_queue_of_0_8_2_is_on_time_too(delays, step):
    """It polls for 200 ms, but a task that expires ends the poll, so wheel and queue agree."""
    runs = []
    for timer in (Timer.at(START_MS), PolledQueue()):
        timer, moves = filled(timer, [1 + delay for delay, _ in delays])[0], []
        for now in range(START_MS, START_MS + 20_001 + step, step):
            timer, passed = timer.advance(now)
            moves += passed
        runs.append(sorted((move.at_ms, move.task.id) for move in moves if move.runs))
    assert runs[0] == runs[1] and len(runs[0]) == len(delays)


# When a waiting operation completes


def log(batches: int, high_watermark: int = 0, segment_bytes: int = 10**9) -> SegmentedLog:
    made = SegmentedLog.empty(segment_bytes=segment_bytes)
    for offset in range(batches):
        made = made.append(Batch(offset, offset, 100))
    return replace(made, high_watermark=high_watermark)


def fetch(log: SegmentedLog, reader: Reader, offset: int, min_bytes: int = 1) -> p.WaitingFetch:
    asked = [("t-0", reader, offset, 250)]
    return p.parked_fetch("f", {"t-0": log}, asked, 500, min_bytes).condition


@pytest.mark.parametrize(
    ("reader", "min_bytes", "now", "completes"),
    [
        (Reader.FOLLOWER, 1, log(3, 3), False),
        (Reader.FOLLOWER, 1, log(4, 3), True),  # an append
        (Reader.CONSUMER, 1, log(4, 3), False),  # an append does not concern consumers
        (Reader.CONSUMER, 1, log(4, 4), True),  # a new high watermark
        (Reader.READ_COMMITTED, 1, replace(log(4, 4), open_transaction=3), False),
        (Reader.READ_COMMITTED, 1, replace(log(5, 5), open_transaction=4), True),
        (Reader.FOLLOWER, 200, log(4, 3), False),
        (Reader.FOLLOWER, 200, log(5, 3), True),
        (Reader.FOLLOWER, 300, log(9, 3), False),  # a partition counts up to its limit of 250
    ],
)
def test_when_a_fetch_completes(reader, min_bytes, now, completes):
    assert fetch(log(3, 3), reader, 3, min_bytes).is_satisfied({"t-0": now}) is completes


def test_a_fetch_completes_when_the_log_end_is_on_another_segment():
    """After a roll, a truncation or the loss of the partition, whatever min.bytes is."""
    assert fetch(log(3, 3), Reader.FOLLOWER, 3).is_satisfied({})
    before = log(3, segment_bytes=300)
    condition = fetch(before, Reader.FOLLOWER, 3, 10_000)
    assert not condition.is_satisfied({"t-0": before})
    assert condition.is_satisfied({"t-0": log(4, segment_bytes=300)})
    later = fetch(log(5, segment_bytes=300), Reader.FOLLOWER, 5, 10_000)
    assert later.is_satisfied({"t-0": log(2, segment_bytes=300)})


def test_a_rolled_segment_alone_does_not_complete_a_consumers_fetch():
    """Its bound is the same offset, only in another file now."""
    condition = fetch(log(3, 3, segment_bytes=300), Reader.CONSUMER, 3)
    assert not condition.is_satisfied({"t-0": log(4, 3, segment_bytes=300)})
    assert condition.is_satisfied({"t-0": log(4, 4, segment_bytes=300)})


def test_bytes_of_all_partitions_count():
    logs = {"t-0": log(3), "t-1": log(3)}
    asked = [(name, Reader.FOLLOWER, 3, 1_000) for name in logs]
    condition = p.parked_fetch("f", logs, asked, 500, min_bytes=200).condition
    assert not condition.is_satisfied(logs | {"t-0": log(4)})
    assert condition.is_satisfied({"t-0": log(4), "t-1": log(4)})


def test_a_produce_waits_for_every_high_watermark():
    condition = p.WaitingProduce((("t-0", 3), ("t-1", 2)))
    assert not condition.is_satisfied({"t-0": log(3, 3), "t-1": log(3, 1)})
    assert condition.is_satisfied({"t-0": log(3, 3), "t-1": log(3, 2)})


# The purgatory


def waiting(number: int, *keys: str, deadline: int = 500) -> p.Operation:
    """An operation that is satisfied by "logs" which contain its number."""
    condition = SimpleNamespace(is_satisfied=lambda logs: number in logs)
    return p.Operation(str(number), keys, deadline, condition)


def test_expiry_completes_once():
    purgatory, now = Purgatory(Timer.at(0)).watch(waiting(1, "a", "b"), {}, 0)
    purgatory, early = purgatory.advance(499)
    assert now == early == ()
    purgatory, (done,) = purgatory.advance(500)
    assert (done.at_ms, done.cause) == (500, Cause.EXPIRY)
    assert purgatory.check("a", {1}, Cause.APPEND, 501)[1] == ()


def test_an_append_completes_once():
    purgatory, _ = Purgatory(Timer.at(0)).watch(waiting(1, "a", "b"), {}, 0)
    purgatory, none = purgatory.check("other", {1}, Cause.APPEND, 10)
    assert none == ()
    purgatory, (done,) = purgatory.check("a", {1}, Cause.APPEND, 12)
    assert (done.at_ms, done.cause) == (12, Cause.APPEND)
    assert (purgatory.watchers["a"], purgatory.watchers["b"]) == ((), ("1",))
    purgatory, none = purgatory.check("b", {1}, Cause.APPEND, 13)
    assert (none, purgatory.watchers["b"]) == ((), ())
    assert purgatory.advance(1_000)[1] == ()


def test_what_need_not_wait():
    for deadline, logs, cause in ((500, {1}, Cause.IMMEDIATELY), (0, {}, Cause.EXPIRY)):
        operation = waiting(1, "a", deadline=deadline)
        purgatory, (done,) = Purgatory(Timer.at(0)).watch(operation, logs, 0)
        assert (done.cause, purgatory.waiting) == (cause, {})


steps = st.lists(
    st.tuples(st.just("watch"), st.sets(st.sampled_from("abc"), min_size=1), st.integers(0, 999))
    | st.tuples(st.just("check"), st.sampled_from("abc"), st.sets(st.integers(0, 40)))
    | st.tuples(st.just("advance"), st.integers(0, 400), st.none()),
    max_size=60,
)


@settings(max_examples=100, deadline=None)
@given(steps)
def test_each_operation_completes_exactly_once(script):
    purgatory = Purgatory(Timer.at(0))
    now, made, done = 0, 0, []
    for action, what, more in script:
        if action == "watch":
            made += 1
            operation = waiting(made, *sorted(what), deadline=now + more)
            purgatory, more = purgatory.watch(operation, {}, now)
        elif action == "check":
            purgatory, more = purgatory.check(what, more, Cause.APPEND, now)
        else:
            now += what
            purgatory, more = purgatory.advance(now)
        done += more
        assert len(purgatory.waiting) + len(done) == made
    done += purgatory.advance(now + 2_000)[1]
    assert Counter(c.operation.id for c in done) == Counter(str(n + 1) for n in range(made))
    expired = [c for c in done if c.cause == Cause.EXPIRY]
    assert all(c.at_ms == c.operation.deadline_ms for c in expired)


# Parked fetches of the engine's runs, as the figures see them

SCRIPT = "partition replicas=1,2,3 latency=5\nproduce 1 m1\nadvance 700ms\nproduce 1 m2\n"
SCRIPT += "advance 1200ms"


@pytest.mark.parametrize("version", PRESETS.values(), ids=str)
def test_what_ends_the_waits_of_a_run(version):
    run = scenario.play(SCRIPT, version=version)
    ended = [wait for wait in parked_fetches.waits(run) if wait.end_ms is not None]
    assert {w.cause for w in ended} - {"high watermark"} == {"append", "expiry"}
    assert any(w.cause == "high watermark" for w in ended) is version.pushes_high_watermark
    waited_ms = [(w.end_ms - w.start_ms, w.cause == "expiry") for w in ended]
    assert all(ms == 500 if has_expired else ms <= 500 for ms, has_expired in waited_ms)
    delays = high_watermark_delays(run.frames[run.first_frame :])
    assert max(delays) == (5 if version.pushes_high_watermark else 505)


def test_each_reader_is_woken_by_what_moves_its_bound():
    woken = parked_fetches.three_requests(500)
    assert woken["ms"].tolist() == [20, 25, 25, 525]
    assert woken["by"].tolist() == ["append", "high watermark", "high watermark", "expiry"]
    rows = parked_fetches.three_requests(500, Reader.READ_COMMITTED, 3).values.tolist()
    assert [500, "the consumer's fetch", "expiry"] in rows


def test_only_two_releases_push_the_high_watermark():
    script = "partition replicas=1,2 latency=5\nproduce 1 m1\nadvance 2s"
    runs = {v.name: scenario.play(script, version=v) for v in PRESETS.values()}
    delays = {n: max(high_watermark_delays(r.frames[r.first_frame :])) for n, r in runs.items()}
    assert [name for name, delay_ms in delays.items() if delay_ms == 5] == ["2.4", "2.5"]
    assert {*delays.values()} == {5, 505}
