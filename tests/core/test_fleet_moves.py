"""Leaders that move: fleet and engine agree on leaders and logs, to the millisecond.

`ISRLAB_SCENES=5000` in the environment draws that many new scenes in each run.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, assume, example, given, reject, settings
from hypothesis import strategies as st

from cases.fleet_engine import drawn, drawn_pauses, looking_at
from cases.fleet_moves import DURATION_MS, Halted, Outage, Scene, engine_play, fleet_play
from isrlab import fleet
from isrlab.engine.messages import ACKS_ALL
from isrlab.engine.versions import PRESETS
from isrlab.events import exact
from isrlab.fleet import load, recovery
from isrlab.fleet.cell import ALL
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.kernel.rows import bucket, bucket_starts
from isrlab.fleet.layout import assignment, target
from isrlab.fleet.moments import LEAVES_MS
from isrlab.fleet.moving import MovingCluster
from isrlab.fleet.simulate import run_plan


@st.composite
def outages_of(draw, broker, delays):
    """None, one or two outages of a broker; `delays`: latency, controller latency, session."""
    latency_ms, order_ms, session_ms = delays
    now_ms, rows = latency_ms + order_ms + 2, []
    for _ in range(draw(st.integers(0, 2))):
        is_clean = draw(st.booleans())
        least = 2 * order_ms + 1 + (LEAVES_MS if is_clean else session_ms)
        start_ms = now_ms + draw(st.integers(0, 300))
        end_ms = start_ms + least + draw(st.integers(0, 300))
        rows.append(Outage(broker, start_ms, end_ms, is_clean))
        now_ms = end_ms + order_ms + 1
    return tuple(rows)


@st.composite
def scenes(draw, columns=tuple(PRESETS), reassigns=False):
    """A partition on two to four brokers, with outages; it may be reassigned."""
    given, brokers = drawn(draw, columns, DURATION_MS, (1, 5, 40)), draw(st.integers(2, 4))
    latency_ms, order_ms = given["latency_ms"], given["controller_latency_ms"]
    session_ms = draw(st.sampled_from([85, 120]))
    delays = latency_ms, order_ms, session_ms
    each = [draw(outages_of(broker, delays)) for broker in range(1, brokers + 1)]
    pauses = [
        tuple(row for row in drawn_pauses(draw, latency_ms) if not meets(outages, row, order_ms))
        for outages in each
    ]
    target = draw(st.permutations(range(1, brokers + 1))) if reassigns and brokers > 2 else ()
    assume(tuple(target[1:]) != tuple(range(1, brokers)))
    if target:  # while it moves it has one replica more, and min ISR could exceed the usual number
        given["min_isr"] = min(given["min_isr"], brokers - 1)
    elections = draw(st.sets(st.integers(latency_ms + order_ms + 2, DURATION_MS), max_size=4))
    return Scene(
        **given,
        brokers=brokers,
        session_ms=session_ms,
        pauses=tuple(pauses),
        outages=tuple(outage for outages in each for outage in outages),
        elections=tuple(sorted(elections)),
        target=tuple(target[1:]),
        reassign_ms=draw(st.integers(latency_ms + order_ms + 2, 500)) if target else 0,
    )


def meets(outages, pause, order_ms):
    start, end = pause
    return any(start <= o.end_ms and end >= o.start_ms - order_ms - 1 for o in outages)


def judged(scene):
    """The engine's results, with latencies as coarse as the kernel counts them."""
    seen, starts = engine_play(scene), bucket_starts()
    return replace(seen, waits_ms=[int(starts[bucket.py_func(ms)]) for ms in seen.waits_ms])


HEARS_NOTHING_YET = Scene(  # at the end broker 1 has started, and waits for orders
    column="A", brokers=2, lag_ms=150, lag_messages=20, min_isr=1, latency_ms=6,
    controller_latency_ms=40, wait_ms=10, fetch_records=1, first_tick_ms=7, session_ms=85,
    arrivals=((7, 22), (860, 5)), pauses=((), ()), elections=(),
    outages=(Outage(1, 48, 214, False), Outage(1, 434, DURATION_MS, False)),
)  # fmt: skip
DIES_AS_ITS_EPOCH_BEGINS = Scene(  # the epoch of its shrink: followers drop later answers
    column="L", brokers=2, lag_ms=150, lag_messages=1, min_isr=1, latency_ms=9,
    controller_latency_ms=1, wait_ms=200, fetch_records=1, first_tick_ms=11, session_ms=85,
    arrivals=((163, 12),), pauses=((), ()), elections=(), outages=(Outage(1, 238, 326, False),),
)  # fmt: skip
HEARS_OF_ANOTHER = Scene(  # broker 4 stalls with an answer to write, and learns that 3 left
    column="M", brokers=4, lag_ms=75, lag_messages=1, min_isr=3, latency_ms=6,
    controller_latency_ms=40, wait_ms=60, fetch_records=10, first_tick_ms=40, session_ms=85,
    arrivals=(*((ms, 1) for ms in range(7, 47)), (242, 9), (259, 12), (437, 2), (585, 1)),
    pauses=((), ((163, 293), (294, 296), (346, 541)), (), ((96, 106), (207, 299))),
    slow=((2, 47, 332, 38),), elections=(),
    outages=(Outage(1, 244, 636, False), Outage(3, 135, 301, False)),
)  # fmt: skip
HEARS_OF_NOBODY = Scene(  # its leader left, with an answer in flight: broker 2 drops it
    column="A", brokers=2, lag_ms=40, lag_messages=1, min_isr=1, latency_ms=4,
    controller_latency_ms=1, wait_ms=10, fetch_records=1, first_tick_ms=35, session_ms=85,
    arrivals=((46, 60),), pauses=((), ()), slow=((2, 181, 285, 46),), elections=(),
    outages=(Outage(1, 218, 382, True),),
)  # fmt: skip
ELECTS_BEFORE_IT_IS_STORED = Scene(  # the dead leader's request arrives after an election
    column="N", brokers=3, lag_ms=75, lag_messages=4, min_isr=3, latency_ms=8,
    controller_latency_ms=40, wait_ms=60, fetch_records=10, first_tick_ms=41, session_ms=85,
    arrivals=((181, 2),), pauses=((), (), ((108, 202),)), elections=(193,),
    outages=(Outage(1, 192, 475, False),),
)  # fmt: skip
ASKS_TOO_LATE = Scene(  # the leader's request arrives after another one was elected
    column="K", brokers=4, lag_ms=40, lag_messages=4, min_isr=2, latency_ms=1,
    controller_latency_ms=40, wait_ms=200, fetch_records=1, first_tick_ms=29, session_ms=85,
    arrivals=((366, 10),), pauses=((), (), (), ()), elections=(),
    outages=(Outage(1, 51, 278, False), Outage(2, 510, 727, True)),
)  # fmt: skip
ASKS_AS_ANOTHER_COMES = Scene(  # broker 1 asks where logs diverge, broker 3 returns: 1 truncates
    column="F", brokers=4, lag_ms=40, lag_messages=4, min_isr=3, latency_ms=8,
    controller_latency_ms=5, wait_ms=60, fetch_records=3, first_tick_ms=26, session_ms=85,
    arrivals=(*((ms, 3) for ms in range(30, 51, 5)), (158, 7)), pauses=((), (), (), ()),
    elections=(326,), outages=(Outage(1, 52, 149, False), Outage(3, 52, 149, False)),
)  # fmt: skip
RAISES_IT_ITSELF = Scene(  # a fetch of 2.4 is answered with the high watermark that it raised
    column="F", brokers=4, lag_ms=75, lag_messages=1, min_isr=1, latency_ms=3,
    controller_latency_ms=5, wait_ms=60, fetch_records=1000, first_tick_ms=75, session_ms=85,
    arrivals=((703, 2), (721, 2), (739, 2)), pauses=((), (), ((675, 715), (757, 941)), ()),
    elections=(), outages=(), target=(2, 4, 3), reassign_ms=430,
)  # fmt: skip
MOVES_ON_A_LATE_CHANGE = Scene(  # the leader dies with the last change in flight to the controller
    column="K", brokers=4, lag_ms=75, lag_messages=4, min_isr=1, latency_ms=4,
    controller_latency_ms=40, wait_ms=200, fetch_records=1000, first_tick_ms=45, session_ms=120,
    arrivals=((569, 1),), pauses=((), (), (), ()), elections=(),
    outages=(Outage(1, 115, 590, False),), target=(2, 3, 4), reassign_ms=46,
)  # fmt: skip
MOVED_JUST_BEFORE = Scene(  # broker 3 would join in the ms in which 1 completes the move: refused
    column="F", brokers=4, lag_ms=150, lag_messages=4, min_isr=2, latency_ms=6, session_ms=120,
    controller_latency_ms=5, wait_ms=10, fetch_records=1000, first_tick_ms=75, elections=(729,),
    arrivals=((196, 1), (499, 1)), pauses=((), (), (), ()), target=(2, 1, 4), reassign_ms=355,
    outages=(Outage(1, 231, 399, True), Outage(2, 260, 493, False), Outage(3, 221, 464, True)),
)  # fmt: skip
ALL_STOP_AT_ONCE = Scene(  # the parked fetch that is returned carries no high watermark
    column="I", brokers=3, lag_ms=150, lag_messages=1, min_isr=2, latency_ms=4,
    controller_latency_ms=1, wait_ms=200, fetch_records=3, first_tick_ms=52, session_ms=85,
    arrivals=((301, 4),), pauses=((), (), ()), elections=(), acks=ACKS_ALL,
    outages=tuple(Outage(b, *row, True) for b in (1, 3) for row in ((307, 485), (572, 861))),
)  # fmt: skip


@looking_at(60)
@given(scenes())
@example(HEARS_NOTHING_YET)
@example(DIES_AS_ITS_EPOCH_BEGINS)
@example(HEARS_OF_ANOTHER)
@example(HEARS_OF_NOBODY)
@example(ELECTS_BEFORE_IT_IS_STORED)
@example(ASKS_TOO_LATE)
@example(ASKS_AS_ANOTHER_COMES)
@example(ALL_STOP_AT_ONCE)
def test_leaders_move_as_in_the_engine_to_the_millisecond(scene):
    agree(scene)


@looking_at(60)
@given(scenes(reassigns=True))
@example(RAISES_IT_ITSELF)
@example(MOVES_ON_A_LATE_CHANGE)
@example(MOVED_JUST_BEFORE)
def test_partitions_are_reassigned_as_in_the_engine_to_the_millisecond(scene):
    agree(scene)


def agree(scene):
    try:
        expected = judged(scene)
    except Halted:
        reject()
    with pytest.MonkeyPatch.context() as patch:
        assert fleet_play(scene, patch) == expected


def test_scenes_are_eventful():
    """The property is not vacuous: in its scenes leaders move, and produces fail."""
    seen = []

    @settings(max_examples=60, derandomize=True, database=None, phases=[Phase.generate])
    @given(scenes())
    def look(scene):
        with contextlib.suppress(Halted):
            seen.append(engine_play(scene))

    look()
    led = [[value and value[0] for _, value in each.leaders] for each in seen]
    moves = [sum(a != b for a, b in pairwise(leaders) if a and b) for leaders in led]
    assert sum(moves) > len(seen) / 4
    assert any(None in leaders for leaders in led)  # for a while there is no leader
    assert any(each.failures for each in seen)


MOVED = Scene(
    column="N", brokers=3, lag_ms=150, lag_messages=20, min_isr=2, latency_ms=3,
    controller_latency_ms=5, wait_ms=60, fetch_records=10, first_tick_ms=40, session_ms=85,
    arrivals=tuple((ms, 3) for ms in range(20, 880, 7)), pauses=((), ((430, 470),), ()),
    outages=(Outage(1, 120, 400, True), Outage(3, 500, 760, False)), elections=(450, 820),
    acks=ACKS_ALL,
)  # fmt: skip


@pytest.mark.parametrize("column", "AL")
def test_windows_do_not_change_what_happens(column):
    scene, seen = replace(MOVED, column=column), []
    for window_ms in (1, 13, DURATION_MS):
        with pytest.MonkeyPatch.context() as patch:
            seen.append(replace(fleet_play(scene, patch, window_ms), leaders=[]))
    assert seen[0] == seen[1] == seen[2]
    assert seen[0].asked and seen[0].failures


# Whole clusters

ROLLED = FleetConfig(
    "3.7", partitions=24, brokers=4, minutes=6, load="steady", batch_every_ms=300, stall_s=0,
    seed=5, leaders="move", restart_s=20, restart_every_s=60, elections="130 170", name="rolled",
    rebalance_every_s=300, min_insync_replicas=2,
)  # fmt: skip


def leaders_by_time(rows, config):
    """By time (ms) and broker, how many partitions it then leads, from rows of kind `leader`."""
    led = dict(enumerate(assignment(config)[:, 0].tolist()))
    by_time = {}
    for row in rows:
        if row["kind"] == "leader":
            led[row["partition"]] = row["broker"]
            by_time[row["ts_ms"]] = Counter(led.values())
    return by_time


@pytest.fixture(scope="module")
def rolled():
    return fleet.simulate_local(ROLLED).to_pylist()


def test_leaders_go_with_their_broker_and_come_back_when_they_are_elected(rolled):
    by_time = leaders_by_time(rolled, ROLLED)
    assert [*by_time] == [60_000, 120_000, 130_000, 170_000, 180_000, 240_000, 300_000]
    assert by_time[60_000][1] == 0 and by_time[120_000][2] == 0
    assert by_time[130_000][1] >= 6 and by_time[130_000][2] == 0  # broker 2 is still down
    assert by_time[170_000] == dict.fromkeys((1, 2, 3, 4), 6)
    assert by_time[300_000] == dict.fromkeys((1, 2, 3, 4), 6)  # the automatic election
    assert not [row for row in rolled if row["kind"] == "isr_shrink"]


def test_every_isr_is_whole_again_and_nothing_is_lost():
    for spans in exact.isr_spans(fleet.simulate_local(ROLLED), ROLLED.duration_ms).values():
        assert len(spans[-1].isr) == 3
    cluster = MovingCluster(ROLLED)
    list(cluster.run())
    produced = load.arrivals(ROLLED, np.arange(ROLLED.partitions)).records.sum()
    ends = [cluster.cell_rows[int(b)].partition(p) for p, b in enumerate(cluster.leaders)]
    assert sum(int(row["log_end_offset"]) for row in ends) == produced


def test_a_dead_broker_is_missed_until_its_session_ends():
    config = ROLLED.with_(
        restart_s=0, pauses="dead 2 60-100", elections="", session_timeout_ms=9_000, minutes=2
    )
    rows = fleet.simulate_local(config).to_pylist()
    moved = [row for row in rows if row["kind"] == "leader"]
    assert {row["ts_ms"] for row in moved} == {69_005}
    assert len(moved) == 6
    lost = [r["ts_ms"] for r in rows if dict(r["detail"] or ()).get("error") == "NETWORK_EXCEPTION"]
    assert lost and min(lost) >= 60_000 and max(lost) < 69_005
    waits = {int(dict(r["detail"])["latency_ms"]) for r in rows if r["kind"] == "latency"}
    assert 8_000 < max(waits) <= 9_500  # the produce that was held longest


def test_a_worker_gives_the_same_rows():
    plan = pa.RecordBatch.from_pylist(
        [{"run": "rolled", "leader": ALL, "config": ROLLED.to_json(), "recorded": None}]
    )
    rows = pa.Table.from_batches(run_plan(iter([plan]))).to_pylist()
    key = str
    assert sorted(map(key, rows)) == sorted(map(key, fleet.simulate_local(ROLLED).to_pylist()))


def test_what_cannot_be_played_is_said():
    with pytest.raises(ValueError, match="leaders='move'"):
        FleetConfig(pauses="dead 2 10-60")
    with pytest.raises(ValueError, match="none of dead, elections, reassigned"):
        REASSIGNED.with_(leaders="stay")
    with pytest.raises(ValueError, match="reassigned lists 1 partition; valid: partitions=8"):
        REASSIGNED.with_(reassigned="1,2,3")
    with pytest.raises(ValueError, match="valid: stay, move"):
        FleetConfig(leaders="go")
    with pytest.raises(ValueError, match="5,000 ms after it stopped; valid"):
        fleet.simulate_local(ROLLED.with_(restart_s=0, pauses="dead 2 10-15"))
    with pytest.raises(ValueError, match="'soon' is not a time"):
        FleetConfig(elections="soon")


def test_a_broker_leads_again_what_it_is_in_sync_for_when_leaders_are_elected():
    restarted = recovery.loaded(ROLLED.with_(elections="", follower_spread=0), 0.5)
    table = recovery.leaders_back(restarted, [("down", 0.01), ("down", 60), ("dead", 60)])
    assert table["led before"].tolist() == [6, 6, 6]
    at_once, later, killed = table["leads_again"]
    assert at_once == 0 < later <= 6 and killed > 0
    *still_alive, dead = table["refused: no leader"]
    assert still_alive == [0, 0] and dead > 0
    assert table["longest_wait_s"][2] > 8


# Reassignment

REASSIGNED = FleetConfig(
    "3.7", partitions=8, brokers=4, minutes=1, load="steady", records_per_s=20, batch_every_ms=100,
    record_bytes=1_000, stall_s=0, leaders="move", backlog_records=2_000, reassign_s=5, seed=3,
    reassigned="1,2,4 2,3,4 3,4,2 4,3,2 1,3,4 2,4,3 4,1,2 4,2,3",
)  # fmt: skip


@pytest.mark.parametrize("version", ["2.5", "2.8", "3.3", "3.7"])
def test_in_the_end_replicas_are_where_they_shall_be_and_nothing_is_lost(version):
    config = REASSIGNED.with_(version=version)
    cluster = MovingCluster(config)
    list(cluster.run())
    wanted = [tuple(row) for row in target(config).tolist()]
    assert [controller.replicas for controller in cluster.controllers] == wanted
    assert all(not c.state.adding and {*c.isr} == {*c.replicas} for c in cluster.controllers)
    produced = load.arrivals(config, np.arange(config.partitions)).records.sum()
    ends = [cluster.cell_rows[int(b)].partition(p) for p, b in enumerate(cluster.leaders)]
    assert sum(int(row["log_end_offset"]) - config.backlog_records for row in ends) == produced
    assert int(cluster.leaders[6]) in (4, 1)  # broker 3 led it, and has no replica now


@pytest.mark.parametrize("at_once", [1, 2])
def test_no_more_than_so_many_partitions_move_at_a_time(at_once):
    cluster, most = MovingCluster(REASSIGNED.with_(moves_at_once=at_once)), 0
    advance = cluster._advance

    def watched(arrivals, until_ms):
        nonlocal most
        most = max(most, len(cluster._reassigning.going))
        return advance(arrivals, until_ms)

    cluster._advance = watched
    list(cluster.run())
    assert most == at_once
    assert [c.replicas for c in cluster.controllers] == [*map(tuple, target(REASSIGNED).tolist())]


def completed_s(config):
    """Seconds from the start of the move until the last of five replicas is in sync; may be inf."""
    rows = fleet.simulate_local(config).to_pylist()
    times = [row["ts_ms"] for row in rows if row["kind"] == "isr_expand"]
    return max(times) / 1000 - config.reassign_s if len(times) == 5 else math.inf


def test_a_throttle_makes_a_reassignment_as_slow_as_it_says():
    """Five partitions of 2 MB move; ISR members use up the lowest rate, because they also count."""
    rates = 0, 10**6, 3 * 10**5, 3 * 10**4
    free, wide, narrow, none = (
        completed_s(REASSIGNED.with_(throttle_bytes_per_s=rate)) for rate in rates
    )
    assert free == wide < 1  # the mean over eleven seconds lets a burst pass
    assert 5 < narrow < 30
    assert none == math.inf
