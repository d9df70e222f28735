"""Leaders that move, the fleet against the engine: who leads, and with what, to the millisecond.

`ISRLAB_SCENES=5000` in the environment looks at that many scenes, other ones each time.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from cases.fleet_moves import DURATION_MS, Outage, Scene, engine_play, fleet_play
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isrlab.engine.messages import ACKS_ALL
from isrlab.engine.versions import PRESETS
from isrlab.fleet.kernel.rows import bucket, bucket_starts
from isrlab.fleet.moments import LEAVES_MS

WANTED_SCENES = os.environ.get("ISRLAB_SCENES")
GAPS = st.lists(st.tuples(st.integers(1, 300), st.integers(1, 200)), max_size=4)
SINGLE = st.lists(st.tuples(st.integers(0, DURATION_MS), st.integers(1, 12)), max_size=12)
SERIES = st.lists(  # (ms, batches, ms between them, records in each)
    st.tuples(*(st.integers(*ends) for ends in ((0, DURATION_MS), (1, 60), (1, 20), (1, 5)))),
    max_size=3,
)


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
def scenes(draw, columns=tuple(PRESETS)):
    """A partition on two to four brokers, of which some go and come back."""
    latency_ms = draw(st.integers(1, 9))
    order_ms = draw(st.sampled_from([1, 5, 40]))
    session_ms = draw(st.sampled_from([85, 120]))
    brokers, lag_ms = draw(st.integers(2, 4)), draw(st.sampled_from([40, 75, 150]))
    records = {}
    for ms, count in draw(SINGLE):
        records[ms] = records.get(ms, 0) + count
    for start, batches, gap, count in draw(SERIES):
        for index in range(batches):
            records[start + index * gap] = records.get(start + index * gap, 0) + count
    delays = latency_ms, order_ms, session_ms
    each = [draw(outages_of(broker, delays)) for broker in range(1, brokers + 1)]
    pauses = []
    for outages in each:
        now, rows = latency_ms, []
        for gap, length in draw(GAPS):
            rows.append((now + gap, now + gap + length))
            now += gap + length
        pauses.append(tuple(r for r in rows if not any(meets(o, r, order_ms) for o in outages)))
    elections = draw(st.sets(st.integers(latency_ms + order_ms + 2, DURATION_MS), max_size=4))
    return Scene(
        column=draw(st.sampled_from(columns)),
        brokers=brokers,
        lag_ms=lag_ms,
        lag_messages=draw(st.sampled_from([1, 4, 20])),
        min_isr=draw(st.integers(1, 3)),
        latency_ms=latency_ms,
        controller_latency_ms=order_ms,
        wait_ms=draw(st.sampled_from([10, 60, 200])),
        fetch_records=draw(st.sampled_from([1, 3, 10, 1000])),
        first_tick_ms=latency_ms + draw(st.integers(1, lag_ms)),
        session_ms=session_ms,
        arrivals=tuple(row for row in sorted(records.items()) if latency_ms < row[0] < DURATION_MS),
        pauses=tuple(pauses),
        outages=tuple(outage for outages in each for outage in outages),
        elections=tuple(sorted(elections)),
        acks=draw(st.sampled_from([1, ACKS_ALL])),
        timeout_ms=draw(st.sampled_from([50, 30_000])),
    )


def meets(outage, pause, order_ms):
    return pause[0] <= outage.end_ms and pause[1] >= outage.start_ms - order_ms - 1


def judged(scene):
    """The engine's, with latencies as coarse as the kernel counts them."""
    seen, starts = engine_play(scene), bucket_starts()
    return replace(seen, waits_ms=[int(starts[bucket.py_func(ms)]) for ms in seen.waits_ms])


@pytest.mark.slow
@settings(
    max_examples=int(WANTED_SCENES or 60),
    derandomize=WANTED_SCENES is None,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(scenes())
def test_leaders_move_as_in_the_engine_to_the_millisecond(scene):
    with pytest.MonkeyPatch.context() as patch:
        assert fleet_play(scene, patch) == judged(scene)
