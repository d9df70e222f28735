"""Engine and kernel agree: the same arrivals and pauses give the same ISR changes, to the ms.

Both call the functions of `engine/rules.py`. Everything around them is written twice: when a broker
fetches, what a leader remembers, what waits for the controller, when the high watermark is checked.
A partition of the engine is a cell of the kernel with one partition and a thread for each follower.
Receiving and writing take no time here, and only a partition's limit bounds a response.

`ISRLAB_SCENES=5000` in the environment draws that many new scenes in each run.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cases.fleet_engine import Scene, Seen, Shutdown, changes, drawn, drawn_pauses, looking_at, play
from isrlab.engine.messages import ACKS_ALL
from isrlab.engine.model import RECORD_BYTES
from isrlab.engine.versions import PRESETS
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.kernel import state as s
from isrlab.fleet.kernel.rows import bucket, bucket_starts
from isrlab.fleet.lens import watched
from isrlab.fleet.tables import ONE_DETAIL

DURATION_MS = 700
FOR_GOOD_MS = 10**6


@st.composite
def scenes(draw, columns=tuple(PRESETS)):
    """A partition with one or two followers, and its input."""
    given, followers = drawn(draw, columns, DURATION_MS, (1, 5, 40, 130)), draw(st.integers(1, 2))
    pauses = tuple(drawn_pauses(draw, given["latency_ms"]) for _ in range(followers))
    return Scene(**given, followers=followers, pauses=pauses)


def kernel_pauses(scene):
    """Stalls of each follower in the kernel's form; a follower that shuts down stalls forever."""
    pauses = [[(*row, 0) for row in rows] for rows in scene.pauses]
    if scene.shutdown:
        pauses[scene.shutdown.slot].append((scene.shutdown.stops_ms(scene), FOR_GOOD_MS, 0))
    return [np.array(rows, dtype=np.int64).reshape(-1, 3) for rows in pauses]


def kernel_setup(scene):
    """The scene as a cell of a fleet."""
    config = FleetConfig(
        version=PRESETS[scene.column],
        replica_lag_time_max_ms=scene.lag_ms,
        replica_lag_max_messages=scene.lag_messages,
        isr_commit_ms=2 * scene.controller_latency_ms,
        request_timeout_ms=scene.timeout_ms,
        delivery_timeout_ms=0,
        min_insync_replicas=scene.min_isr,
    )
    down = scene.shutdown
    restarts = [(down.removed_ms(scene), down.slot, FOR_GOOD_MS)] if down else []
    fetch_bytes = scene.fetch_records * RECORD_BYTES
    return s.Setup(
        rules=config.rules()._replace(min_isr=config.min_isr(1 + scene.followers)),
        links=s.Links(scene.latency_ms, fetch_bytes, 2**40, scene.wait_ms, 1),
        thread_of=np.arange(scene.followers)[None, :],
        bytes_per_s=np.full(scene.followers, s.UNLIMITED_BYTES_PER_S),
        stalls=kernel_pauses(scene),
        restarts=np.array(restarts, dtype=np.int64).reshape(-1, 3),
        record_bytes=RECORD_BYTES,
        first_tick_ms=scene.first_tick_ms,
        acks_all=scene.acks == ACKS_ALL,
        duration_ms=DURATION_MS,
        latencies=[
            np.array([row[1:] for row in scene.slow if row[0] in (1, broker)]).reshape(-1, 3)
            for broker in range(2, 2 + scene.followers)
        ],
    )


def kernel_play(scene):
    """Play the scene in the kernel, and sample the partition every millisecond."""
    state = s.new_state(kernel_setup(scene))
    table = np.array(scene.arrivals, dtype=np.int64).reshape(-1, 2)
    partition = np.zeros(len(table), np.int32)
    arrivals = s.Arrivals(table[:, 0].copy(), partition, table[:, 1].astype(np.int32))
    rows, samples = watched(state, arrivals, 0, range(DURATION_MS))
    is_change, is_failure = rows[:, s.KIND] < s.COMMIT, rows[:, s.KIND] >= s.REFUSED
    asked = rows[is_change][:, [s.TS_MS, s.KIND, s.ISR_BEFORE, s.ISR_AFTER]]
    failures = rows[is_failure][:, [s.TS_MS, s.KIND]].tolist()
    times, high_watermarks, isrs = samples[:, [0, 2, 3]].T.tolist()
    return Seen(
        changes=[tuple(row) for row in asked.tolist()],
        isrs=changes(times, isrs),
        high_watermarks=changes(times, high_watermarks),
        ends=[samples[-1, 1], *samples[-1, 4:]],
        failures=sorted((ms, ONE_DETAIL[kind][1]) for ms, kind in failures),
        waits_ms=np.repeat(bucket_starts(), state.latencies.sum(axis=0)).tolist(),
    )


def engine_play(scene):
    """Play the scene in the engine; latencies are as coarse as the kernel counts them."""
    seen, starts = play(scene, DURATION_MS), bucket_starts()
    waits = [int(starts[bucket.py_func(waited_ms)]) for waited_ms in seen.waits_ms]
    return replace(seen, waits_ms=waits)


@looking_at(120)
@given(scenes())
def test_engine_and_kernel_agree_to_the_millisecond(scene):
    assert kernel_play(scene) == engine_play(scene)


@looking_at(120)
@given(scenes(("P",)))
def test_engine_and_kernel_agree_on_a_rule_that_is_only_proposed(scene):
    tried = PRESETS["P"].with_(expand_waits_under_min_isr=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PRESETS, "P", tried)
        assert kernel_play(scene) == engine_play(scene)


CALM = Scene(
    column="A", followers=2, lag_ms=75, lag_messages=20, min_isr=1, latency_ms=1,
    controller_latency_ms=1, wait_ms=10, fetch_records=1000, first_tick_ms=5, arrivals=(),
    pauses=((), ()),
)  # fmt: skip


def fresh_outsider(column):
    """Follower 2 is outside the ISR with a fresh clock, and stalls behind the others.

    It was evicted, resumed, and fetched up to the log end of its previous fetch, which sets its
    clock to 201. But follower 1 has moved the high watermark past it, so it does not join.
    """
    return replace(
        CALM,
        column=column,
        arrivals=((20, 1), (150, 9), (203, 3), (210, 3), (400, 2)),
        pauses=((), ((10, 200), (202, 206), (208, 600))),
    )


@pytest.mark.parametrize("column", PRESETS)
def test_a_fresh_outsider_holds_the_high_watermark_until_the_next_check(column):
    scene = fresh_outsider(column)
    seen = kernel_play(scene)
    assert seen == engine_play(scene)
    passed_ms = next(ms for ms, value in seen.high_watermarks if value == 16)
    if column in "AB":
        assert passed_ms == 212  # only the ISR counts
    elif column in "CDE":
        assert 201 + scene.lag_ms < passed_ms < 201 + scene.lag_ms + 20  # the next fetch
    else:
        assert passed_ms == 400  # the next append


def shrink_past_a_stale_outsider(column):
    """`fresh_outsider`, but follower 1 also stalls; at its eviction the outsider is stale."""
    return replace(
        fresh_outsider(column),
        arrivals=((20, 1), (150, 9), (203, 3), (210, 3), (270, 2)),
        pauses=(((213, 600),), ((10, 200), (202, 206), (208, 600))),
    )


@pytest.mark.parametrize(
    ("column", "at_the_shrink"), [("H", 18), ("I", 16), ("J", 16), ("K", None)]
)
def test_a_leader_that_asks_for_a_shrink_checks_its_high_watermark(column, at_the_shrink):
    scene = shrink_past_a_stale_outsider(column)
    seen = kernel_play(scene)
    assert seen == engine_play(scene)
    shrink_ms = next(ms for ms, kind, before, _ in seen.changes if kind == 0 and before == 1)
    assert dict(seen.high_watermarks).get(shrink_ms) == at_the_shrink


def broker_gone(column, is_clean, gap_ms):
    """Follower 2 shuts down, or is killed; `gap_ms` after its removal a record is produced.

    The lag limit is 200 ms: a leader that waits for the removed follower waits about that long.
    """
    shutdown = Shutdown(at_ms=300, slot=1, is_clean=is_clean, fetches_ms=25, session_ms=50)
    slower = {"lag_ms": 200, "latency_ms": 2, "controller_latency_ms": 5, "wait_ms": 60}
    calm = replace(
        CALM, column=column, **slower, first_tick_ms=50, acks=ACKS_ALL, shutdown=shutdown
    )
    removed_ms = shutdown.removed_ms(calm)
    return replace(calm, arrivals=((20, 1), (250, 2), (removed_ms + gap_ms, 3), (620, 4)))


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("column", PRESETS)
def test_which_leaders_wait_for_a_broker_that_the_controller_removed(column, is_clean):
    """Only a leader of 3.3 to 3.5 waits, for a broker that fetches while it shuts down."""
    scene = broker_gone(column, is_clean, gap_ms=30)
    kernel, engine = kernel_play(scene), engine_play(scene)
    assert replace(kernel, changes=[]) == replace(engine, changes=[])
    assert kernel.isrs == [(scene.shutdown.removed_ms(scene), 0b01)]
    waits = [4, 4, 4, 256] if column == "L" and is_clean else [4, 4, 4, 4]
    assert kernel.waits_ms == waits


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("column", PRESETS)
@pytest.mark.parametrize("gap_ms", [-4, -1, 1, 8])
def test_a_record_about_the_time_of_the_removal(column, is_clean, gap_ms):
    """In the engine, followers in a new epoch ask where the last one ended; not in the kernel."""
    scene = broker_gone(column, is_clean, gap_ms)
    kernel, engine = kernel_play(scene), engine_play(scene)
    assert kernel.isrs == engine.isrs
    pairs = list(zip(kernel.high_watermarks, engine.high_watermarks, strict=True))
    assert all(ours[1] == theirs[1] for ours, theirs in pairs)
    assert max(abs(ours[0] - theirs[0]) for ours, theirs in pairs) <= 10


def test_scenes_are_eventful():
    """The property is not vacuous: in its scenes ISRs shrink and expand, some repeatedly."""
    found = []

    @settings(max_examples=60, derandomize=True, database=None, phases=[Phase.generate])
    @given(scenes())
    def look(scene):
        found.append(kernel_play(scene))

    look()
    kinds = {change[1] for seen in found for change in seen.changes}
    assert kinds == {0, 1}
    assert sum(len(seen.changes) > 2 for seen in found) > len(found) / 4
