"""The engine as one cell of a fleet: a cluster that is driven millisecond by millisecond.

The fleet's kernel and the engine model the same cluster; here the engine gets the kernel's
input. At time 0 the broker learns that it leads. Neither model defines the order of events within a
millisecond, so the kernel's order is used: timeouts of produces, answers of the controller, the
append, fetches by follower, the isr-expiration task. The rest is the engine's own order.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from isrlab.engine import messages as m
from isrlab.engine.model import RECORD_BYTES
from isrlab.engine.versions import PRESETS, KafkaVersion
from isrlab.world import faults
from isrlab.world.cluster import START_MS, Cluster
from isrlab.world.frames import Envelope

LEADER = 1
ASKED = {"isr_shrink": 0, "isr_expand": 1}
NO_WAIT_FOR_AN_ANSWER_MS = 10**9  # the socket timeout: a stalled fetcher sends only one request
SLOW = st.tuples(*(st.integers(*ends) for ends in ((1, 4), (0, 600), (1, 300), (1, 60))))
GAPS = st.lists(st.tuples(st.integers(1, 250), st.integers(1, 250)), max_size=5)


@dataclass(frozen=True)
class Shutdown:
    """A follower's broker that stops for good. Times are ms from 0."""

    at_ms: int  # when it asks for a controlled shutdown, or is killed
    slot: int
    is_clean: bool
    fetches_ms: int  # in KRaft: how long it still fetches after it asked
    session_ms: int  # after which the controller notices that it has been killed

    def removed_ms(self, scene: Scene) -> int:
        """When the leader learns that the follower was removed."""
        silent_ms = 0 if self.is_clean else self.session_ms
        return self.at_ms + silent_ms + scene.controller_latency_ms

    def stops_ms(self, scene: Scene) -> int:
        """When the follower stops sending fetches."""
        return self.at_ms + (self.fetches_ms if self.is_clean and scene.version.kraft else 0)


@dataclass(frozen=True, kw_only=True)
class Given:
    """One partition, and its input from outside. Times are ms from 0."""

    column: str  # of the preset matrix
    lag_ms: int
    lag_messages: int
    min_isr: int
    latency_ms: int
    controller_latency_ms: int
    wait_ms: int
    fetch_records: int  # in one response
    first_tick_ms: int  # of broker 1
    arrivals: tuple[tuple[int, int], ...]  # (ms, records), ascending, at most one per ms
    pauses: tuple[tuple[tuple[int, int], ...], ...]  # of each fetcher: (start, end) ms, ascending
    acks: int = 1
    timeout_ms: int = 30_000  # that a produce may wait
    slow: tuple[
        tuple[int, int, int, int], ...
    ] = ()  # (broker, start, end, ms one way), may overlap

    @property
    def version(self) -> KafkaVersion:
        return PRESETS[self.column]

    @property
    def first_ms(self) -> int:
        """When the first fetches arrive; nothing may happen until then."""
        return self.latency_ms


@dataclass(frozen=True, kw_only=True)
class Scene(Given):
    """One leader that never changes, and its followers, one of which may stop."""

    followers: int
    shutdown: Shutdown | None = None


def looking_at(scenes: int) -> settings:
    """A fixed set of scenes, or with `ISRLAB_SCENES` that many new ones in each run."""
    wanted = os.environ.get("ISRLAB_SCENES")
    return settings(
        max_examples=int(wanted or scenes),
        derandomize=wanted is None,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def drawn(draw: Any, columns: Sequence[str], until_ms: int, controller_ms: Sequence[int]) -> dict:
    """The fields of `Given` except the pauses, drawn by Hypothesis."""
    single = st.tuples(st.integers(0, until_ms), st.integers(1, 12))
    series = (st.integers(*ends) for ends in ((0, until_ms), (1, 60), (1, 30), (1, 5)))
    records: dict[int, int] = {}
    for ms, count in draw(st.lists(single, max_size=12)):
        records[ms] = records.get(ms, 0) + count
    for start, batches, gap, count in draw(st.lists(st.tuples(*series), max_size=3)):
        for index in range(batches):
            records[start + index * gap] = records.get(start + index * gap, 0) + count
    latency_ms, lag_ms = draw(st.integers(1, 9)), draw(st.sampled_from([40, 75, 150]))
    return {
        "column": draw(st.sampled_from(columns)),
        "lag_ms": lag_ms,
        "lag_messages": draw(st.sampled_from([1, 4, 20])),
        "min_isr": draw(st.integers(1, 3)),
        "latency_ms": latency_ms,
        "controller_latency_ms": draw(st.sampled_from(controller_ms)),
        "wait_ms": draw(st.sampled_from([10, 60, 200])),
        "fetch_records": draw(st.sampled_from([1, 3, 10, 1000])),
        "first_tick_ms": latency_ms + draw(st.integers(1, lag_ms)),
        "arrivals": tuple(row for row in sorted(records.items()) if latency_ms < row[0] < until_ms),
        "acks": draw(st.sampled_from([1, m.ACKS_ALL])),
        "timeout_ms": draw(st.sampled_from([50, 30_000])),
        "slow": tuple(
            (broker, start, start + length, ms)
            for broker, start, length, ms in draw(st.lists(SLOW, max_size=2))
        ),
    }


def drawn_pauses(draw: Any, first_ms: int) -> tuple[tuple[int, int], ...]:
    """Pauses of one fetcher: (start, end) ms, ascending, that do not overlap."""
    rows, now = [], first_ms
    for gap, length in draw(GAPS):
        rows.append((now + gap, now + gap + length))
        now += gap + length
    return tuple(rows)


@dataclass(frozen=True)
class Seen:
    """The results by which both models are compared."""

    changes: list[tuple[int, int, int, int]]  # (ms, kind, ISR before, after) as masks of followers
    isrs: list[tuple[int, int]]  # (ms, committed ISR at its end as a mask), at changes
    high_watermarks: list[tuple[int, int]]  # the same
    ends: list[int]  # final log end of the leader, then the followers' that it knows
    failures: list[tuple[int, str]]  # (ms, error) of produces with acks=all, ascending
    waits_ms: list[int]  # of those acknowledged, ascending


def play(scene: Scene, until_ms: int) -> Seen:
    """Run the engine up to `until_ms`, exclusive."""
    session = {"session_timeout_ms": scene.shutdown.session_ms} if scene.shutdown else {}
    cluster = started(scene, (LEADER, *_followers(scene)), **session)
    values = [(_mask(_isr(cluster)), 0)]
    times = [scene.first_ms]
    for now_ms in range(scene.first_ms + 1, until_ms):
        _one_millisecond(cluster, scene, now_ms)
        values.append((_mask(_isr(cluster)), cluster.brokers[LEADER].log.high_watermark))
        times.append(now_ms)
    role, log = cluster.brokers[LEADER].role, cluster.brokers[LEADER].log
    ends = [log.log_end_offset, *(role.remote(b).log_end_offset for b in _followers(scene))]
    assert not cluster.violations, cluster.violations
    isrs, high_watermarks = (changes(times, column) for column in zip(*values, strict=True))
    return Seen(_changes(cluster, scene), isrs, high_watermarks, ends, *produces(cluster, scene))


def changes(times, values):
    """(time, value) wherever a value differs from the one before."""
    return [
        (now, value)
        for now, value, before in zip(times[1:], values[1:], values, strict=False)
        if value != before
    ]


def _isr(cluster: Cluster) -> tuple[int, ...]:
    return cluster.brokers[LEADER].role.isr


def started(scene: Given, brokers: Sequence[int], **more: Any) -> Cluster:
    """A cluster at `scene.first_ms`; broker 1 leads, and checks the ISR at the scene's ticks."""
    cluster = Cluster(
        scene.version,
        replicas=tuple(brokers),
        latency_ms=scene.latency_ms,
        min_insync_replicas=scene.min_isr,
        replica_lag_time_max_ms=scene.lag_ms,
        replica_fetch_wait_max_ms=scene.wait_ms,
        replica_fetch_max_bytes=scene.fetch_records * RECORD_BYTES,
        request_timeout_ms=scene.timeout_ms,
        replica_socket_timeout_ms=NO_WAIT_FOR_AN_ANSWER_MS,
        **({"replica_lag_max_messages": scene.lag_messages} if scene.lag_messages else {}),
        **more,
    )
    assert cluster.now_ms == clock(scene, scene.first_ms)
    for broker in brokers:
        cluster.latencies[frozenset((broker, m.CONTROLLER))] = scene.controller_latency_ms
    for envelope in list(cluster.queue):
        if envelope.target == LEADER and isinstance(envelope.message, m.ExpireIsr):
            cluster.queue.remove(envelope)
    tick_ms = clock(scene, scene.first_tick_ms)
    cluster.post(Envelope(tick_ms, LEADER, LEADER, m.ExpireIsr(), cluster.epochs[LEADER]))
    return cluster


def clock(scene: Given, now_ms: int) -> int:
    """The engine's clock: orders take one latency to arrive."""
    return START_MS + scene.latency_ms + now_ms


def _followers(scene: Scene) -> range:
    return range(LEADER + 1, LEADER + 1 + scene.followers)


def _one_millisecond(cluster: Cluster, scene: Scene, now_ms: int) -> None:
    cluster.topic.now_ms = clock(scene, now_ms)
    apply_latencies(cluster, scene, now_ms)
    apply_pauses(cluster, scene, _followers(scene), now_ms)
    if scene.shutdown:
        _shut_down(cluster, scene, scene.shutdown, now_ms)
    deliver_due(cluster, before=APPEND)
    append(cluster, scene, LEADER, now_ms)
    deliver_due(cluster, before=LAST)


def apply_pauses(cluster: Cluster, scene: Given, brokers: Sequence[int], now_ms: int) -> None:
    """Pause or resume the fetchers whose pauses begin or end now."""
    for broker, pauses in zip(brokers, scene.pauses, strict=True):
        if any(end == now_ms for _, end in pauses):
            faults.resume(cluster, broker)
        if any(start == now_ms for start, _ in pauses):
            faults.pause(cluster, broker, "fetcher")


def apply_latencies(cluster: Cluster, scene: Given, now_ms: int) -> None:
    """Set the latency of links between brokers: that of the slower end."""
    for one, other in combinations(cluster.replicas, 2):
        ways = [
            ms for b, start, end, ms in scene.slow if b in (one, other) and start <= now_ms < end
        ]
        cluster.latencies[frozenset((one, other))] = max([scene.latency_ms, *ways])


def append(cluster: Cluster, scene: Given, leader: int, now_ms: int) -> None:
    """Produce this millisecond's records; their names begin with the time."""
    for records in (count for ms, count in scene.arrivals if ms == now_ms):
        ids = tuple(f"{now_ms}.{number}" for number in range(records))
        cluster.produce(leader, ids, acks=scene.acks)


def _shut_down(cluster: Cluster, scene: Scene, shutdown: Shutdown, now_ms: int) -> None:
    broker = _followers(scene)[shutdown.slot]
    if now_ms == shutdown.at_ms and shutdown.is_clean:
        cluster.tell(broker, m.CONTROLLER, m.ControlledShutdown(broker))
    if now_ms == shutdown.stops_ms(scene):
        if shutdown.is_clean:
            cluster.stop_process(broker, "clean_shutdown")
        else:
            cluster.kill(broker)


_TIMEOUT, _CONTROL, _ANSWER, APPEND, _FETCH, _TICK, LAST = range(7)


def _turn(envelope: Envelope) -> tuple[int, int]:
    """The position of a message in the order within one millisecond."""
    message = envelope.message
    if isinstance(message, m.ExpireProduce):
        return _TIMEOUT, 0
    if m.CONTROLLER in (envelope.source, envelope.target):
        return _CONTROL, 0
    if isinstance(message, m.Fetch | m.ExpireFetch):
        return _FETCH, message.replica
    return (_TICK if isinstance(message, m.ExpireIsr) else _ANSWER), 0


def deliver_due(cluster: Cluster, before: int) -> None:
    """Deliver every message that is due and whose turn comes before `before`, also new ones.

    Messages of the same turn keep the order of the queue.
    """
    while True:
        due = [e for e in cluster.queue if e.due_ms <= cluster.now_ms and _turn(e)[0] < before]
        if not due:
            return
        cluster.deliver(min(due, key=_turn))


def _changes(cluster: Cluster, scene: Scene) -> list[tuple[int, int, int, int]]:
    zero_ms = clock(scene, 0)
    return [
        (event.ts_ms - zero_ms, ASKED[event.kind], _mask(event.isr_before), _mask(event.isr))
        for event in cluster.events
        if event.kind in ASKED and not event.is_stored_state
    ]


def produces(cluster: Cluster, scene: Given) -> tuple[list[tuple[int, str]], list[int]]:
    """The results of produces with acks=all; their record names begin with the time of sending."""
    zero_ms = clock(scene, 0)
    failures, waits_ms = [], []
    for event in cluster.events:
        if event.kind == "produce_error":
            failures.append((event.ts_ms - zero_ms, event.detail["error"]))
        elif event.kind == "produce_ack" and scene.acks == m.ACKS_ALL:
            sent_ms = int(event.detail["records"].split(".")[0])
            waits_ms.append(event.ts_ms - zero_ms - sent_ms)
    return sorted(failures), sorted(waits_ms)


def _mask(isr: tuple[int, ...]) -> int:
    return sum(1 << (broker - LEADER - 1) for broker in isr if broker != LEADER)
