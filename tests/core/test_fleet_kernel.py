"""The compiled fleet and the naive one give the same events for drawn cells, to the ms."""

from __future__ import annotations

import functools
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from isrlab.engine import rules
from isrlab.engine.versions import PRESETS
from isrlab.fleet.cell import run_window
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.kernel import log, membership
from isrlab.fleet.kernel import state as s
from isrlab.fleet.kernel.clock import _end_of_work
from isrlab.fleet.kernel.rows import bucket
from isrlab.fleet.kernel.state import Arrivals, Links, Setup, new_state
from isrlab.fleet.lens import watched
from naive_fleet import HOLDS_UNDER_MIN_ISR, ORDINARY, SAMPLE_MS, NaiveCell, work_until

DURATION_MS = 2_000
LAST_MS = DURATION_MS - 1
PLAIN = ORDINARY | {  # a partition with two fast followers
    "lag_ms": 200,
    "lag_messages": 0,
    "min_isr": 1,
    "latency_ms": 2,
    "bytes_per_s": [10**9, 10**9],
    "fetch_bytes": 10**6,
    "response_bytes": 10**6,
    "wait_ms": 20,
    "record_bytes": 1,
    "first_tick_ms": 0,
    "thread_of": [[0, 1]],
}

BATCHES = st.lists(
    st.tuples(st.integers(0, LAST_MS), st.integers(0, 2), st.integers(1, 60)), max_size=60
)
BURSTS = st.lists(  # (ms, partition, batches, ms between them, records in each)
    st.tuples(*(st.integers(*ends) for ends in ((0, LAST_MS), (0, 2), (1, 40), (1, 30), (1, 120)))),
    max_size=4,
)
SPEEDS = st.sampled_from([0, 0, 1, 250, 999, 1000])
STALLS = st.lists(st.tuples(st.integers(1, 600), st.integers(1, 600), SPEEDS), max_size=6)
GAPS = st.lists(st.tuples(st.integers(1, 600), st.integers(1, 300)), max_size=4)


def stall_rows(gaps):
    """Ascending (start, end, more) rows without overlaps, from (gap, length, more)."""
    rows, now = [], 0
    for gap, length, *more in gaps:
        rows.append((now + gap, now + gap + length, *more))
        now += gap + length
    return rows


@st.composite
def shared_links(draw, threads):
    """No link, one for all threads, or two for neighbouring ranges: (rate, first, past)."""
    rates, split = st.sampled_from([1_500, 30_000, 999_999]), draw(st.integers(0, threads))
    ranges = [(0, split), (split, threads)] if draw(st.booleans()) else []
    return [(draw(rates), *each) for each in ranges if each[0] < each[1]]


@st.composite
def extras(draw, threads):
    """Settings that only some cells have: slow leaders, restarts, new replicas, acks=all, ..."""
    restart = st.tuples(st.integers(1, 1_500), st.integers(0, threads - 1), st.integers(1, 400))
    restarts = draw(st.lists(restart, max_size=2, unique_by=lambda row: row[1]))
    backlog = draw(st.sampled_from([0, 0, 50, 400]))
    return {
        "min_bytes": draw(st.sampled_from([1, 1, 10, 200])),
        "shared_links": draw(shared_links(threads)),
        "leader_stalls": stall_rows(draw(GAPS)),
        "restarts": sorted((ms, thread, ms + length) for ms, thread, length in restarts),
        "acks_all": draw(st.booleans()),
        "timeout_ms": draw(st.sampled_from([60, 300, 30_000])),
        "delivery_ms": draw(st.sampled_from([0, 100, 700])),
        "backlog": backlog,
        "empty": tuple(draw(st.sets(st.integers(0, threads - 1), max_size=1))) if backlog else (),
    }


@st.composite
def cells(draw):
    """A small cell: settings, wiring, stalls and arrivals."""
    bursts = draw(BURSTS)
    arrivals = draw(BATCHES) + [
        (start + index * gap, partition, records)
        for start, partition, count, gap, records in bursts
        for index in range(count)
    ]
    partitions = draw(st.integers(1, 3))
    slots = draw(st.integers(1, 3))
    threads = slots + draw(st.integers(0, 1))
    return (
        ORDINARY
        | (draw(extras(threads)) if draw(st.booleans()) else {})
        | {
            "column": draw(st.sampled_from(sorted(PRESETS))),
            "lag_ms": draw(st.sampled_from([97, 200, 450])),
            "lag_messages": draw(st.sampled_from([0, 5, 50, 300])),
            "min_isr": draw(st.integers(1, 3)),
            "latency_ms": draw(st.integers(1, 7)),
            "bytes_per_s": [
                draw(st.sampled_from([500, 2_000, 10_000, 10**9])) for _ in range(threads)
            ],
            "fetch_bytes": draw(st.sampled_from([1, 30, 200, 10**6])),
            "response_bytes": draw(st.sampled_from([5, 40, 300, 10**6])),
            "wait_ms": draw(st.sampled_from([20, 150, 500])),
            "commit_ms": draw(st.sampled_from([1, 60, 333])),
            "record_bytes": draw(st.sampled_from([1, 7])),
            "first_tick_ms": draw(st.integers(0, 300)),
            "thread_of": [
                draw(st.permutations(range(threads)).map(lambda p: list(p)[:slots]))
                for _ in range(partitions)
            ],
            "stalls": [stall_rows(draw(STALLS)) for _ in range(threads)],
            "arrivals": sorted(a for a in arrivals if a[0] < DURATION_MS and a[1] < partitions),
        }
    )


def naive_events(cell):
    """Results of the naive fleet: events, samples of partition 0, latencies."""
    names = ("column", "thread_of", "stalls", "arrivals", "record_bytes")
    column, *others = (cell[name] for name in names)
    naive = NaiveCell(column, cell, *others)
    events = naive.run(DURATION_MS, cell["first_tick_ms"])
    latencies = Counter(bucket.py_func(waited) for waited in naive.waited)
    return sorted(events), naive.samples, latencies


def kernel_cell(cell):
    """The input of the compiled fleet: its state at time 0, and arrivals."""
    config = FleetConfig(
        version=PRESETS[cell["column"]].name,
        replica_lag_time_max_ms=cell["lag_ms"],
        replica_lag_max_messages=cell["lag_messages"],
        min_insync_replicas=cell["min_isr"],
        isr_commit_ms=cell["commit_ms"],
        request_timeout_ms=cell["timeout_ms"],
        delivery_timeout_ms=cell["delivery_ms"],
    )
    slots = len(cell["thread_of"][0])
    # A drawn cell may have another replication factor than FleetConfig. Only test_fleet_engine.py
    # judges the leader epochs that shrinks begin (column L).
    rule = config.rules()._replace(
        min_isr=config.min_isr(1 + slots), shrink_raises_leader_epoch=False
    )
    names = ("latency_ms", "fetch_bytes", "response_bytes", "wait_ms")
    min_bytes = min(cell["min_bytes"], cell["response_bytes"])
    links = Links(*(cell[name] for name in names), min_bytes)
    setup = Setup(
        rules=rule,
        links=links,
        thread_of=np.array(cell["thread_of"], dtype=np.int64),
        bytes_per_s=np.array(cell["bytes_per_s"]),
        stalls=[kernel_stalls(rows) for rows in cell["stalls"]],
        record_bytes=cell["record_bytes"],
        first_tick_ms=cell["first_tick_ms"],
        leader_stalls=np.array(cell["leader_stalls"], dtype=np.int64).reshape(-1, 2),
        restarts=np.array(cell["restarts"], dtype=np.int64).reshape(-1, 3),
        acks_all=cell["acks_all"],
        backlog_records=cell["backlog"],
        empty_threads=cell["empty"],
        shared_links=cell["shared_links"],
        duration_ms=DURATION_MS,
    )
    ts_ms, *others = np.array(cell["arrivals"], dtype=np.int64).reshape(-1, 3).T.copy()
    arrivals = Arrivals(ts_ms, *(column.astype(np.int32) for column in others))
    return new_state(setup), arrivals


def kernel_events(cell):
    """Results of the compiled fleet: events, samples of partition 0, latencies."""
    state, arrivals = kernel_cell(cell)
    rows, samples = watched(state, arrivals, 0, [*range(0, DURATION_MS, SAMPLE_MS), LAST_MS])
    places = np.flatnonzero(state.latencies[0]).tolist()
    latencies = Counter({place: int(state.latencies[0, place]) for place in places})
    return sorted(map(tuple, rows.tolist())), [*map(tuple, samples[:-1].tolist())], latencies


def kernel_stalls(rows):
    """Stalls as int64[n, 3]: start, end, thousandths of speed left (0 if not given)."""
    return np.array([(*row, 0)[:3] for row in rows], dtype=np.int64).reshape(-1, 3)


def judged(cell):
    """The naive results; up to 3.6 min ISR may exceed the number of replicas."""
    replicas = 1 + len(cell["thread_of"][0])
    caps = cell["column"] in HOLDS_UNDER_MIN_ISR
    return naive_events({**cell, "min_isr": min(cell["min_isr"], replicas if caps else 9)})


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(cells())
@example(
    PLAIN
    | {  # a follower catches up while the shrink that evicts it is in flight: it must still rejoin
        "column": "N",
        "commit_ms": 333,
        "stalls": [[(80, 500)], []],
        "arrivals": [(100, 0, 9)],
    }
)
@example(
    PLAIN
    | {  # a fresh follower outside the ISR stalls: the high watermark waits while it is fresh
        "column": "C",
        "commit_ms": 1,
        "bytes_per_s": [10**9, 500],
        "stalls": [[], [(80, 500), (595, 1_500)]],
        "arrivals": [(100, 0, 9), *((ms, 0, 3) for ms in range(480, 620, 2))],
    }
)
def test_kernel_and_naive_fleet_agree_to_the_millisecond(cell):
    assert kernel_events(cell) == judged(cell)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(cells())
def test_a_run_in_many_windows_is_the_run_in_one(cell):
    _, events = run_window(*kernel_cell(cell), DURATION_MS)
    assert sorted(map(tuple, events.tolist())) == kernel_events(cell)[0]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 3_000), st.integers(0, 500), STALLS)
def test_work_pauses_in_a_stall(start_ms, work_ms, gaps):
    rows = stall_rows(gaps)
    config = FleetConfig()
    stalls = [kernel_stalls(rows)]
    thread_of = np.zeros((1, 1), np.int64)
    setup = Setup(config.rules(), config.links(), thread_of, np.ones(1), stalls, 1, 0)
    state = new_state(setup)
    state = state._replace(threads=state.threads.view(np.recarray))  # attributes, for plain Python
    done_ms = _end_of_work.py_func(state, 0, start_ms, work_ms)
    assert done_ms == work_until(start_ms, work_ms, rows)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(cells())
def test_tables_just_large_enough_for_one_millisecond_hold_the_same_rows(cell):
    """`taken` raises if `most_rows` is too small; no row here overwrites another one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s, "with_room", functools.partial(narrow, s.with_room))
        rows = kernel_events(cell)
    assert rows == kernel_events(cell)


def narrow(with_room, state, chunks=1):
    """The state with its tables cut to the rows that `with_room` must provide."""
    state = with_room(state, chunks)
    used, (partitions, slots) = int(state.scalars[s.CHUNKS_USED]), state.follower_at.shape
    assert used <= len(state.next_chunk)
    return state._replace(
        events=state.events[: s.most_rows(used, partitions, slots)],
        produces=state.produces[: (used + partitions + 1) * s.CHUNK],
        next_chunk=state.next_chunk[: used + partitions + 1],
    )


def test_the_kernel_calls_the_rules_and_does_not_restate_them():
    used = {
        membership: ("_is_out_of_sync", "_can_join_isr", "_last_caught_up_time_ms"),
        log: ("_next_high_watermark", "_holds_back_high_watermark", "_admits_acks_all"),
    }
    for module, name in ((module, name) for module, names in used.items() for name in names):
        assert getattr(module, name).py_func is getattr(rules, name[1:])
