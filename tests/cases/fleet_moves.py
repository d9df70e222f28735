"""A partition whose leader moves: the same outages and elections for the engine and for the fleet.

As in `fleet_engine.py`, time 0 is when the brokers learn of their leader. The fleet gets only
settings; its load and the times of its isr-expiration tasks are patched in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cases import fleet_engine
from cases.fleet_engine import apply_pauses, changes, clock, deliver_due, produces, started
from isrlab.engine import messages as m
from isrlab.engine.frozen import replace
from isrlab.engine.log import Log
from isrlab.engine.model import NO_LEADER, RECORD_BYTES, Leader
from isrlab.fleet import load
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.given import Pause, written
from isrlab.fleet.kernel import state as s
from isrlab.fleet.kernel.rows import bucket_starts
from isrlab.fleet.moments import LEAVES_MS
from isrlab.fleet.moving import MovingCluster
from isrlab.fleet.tables import ONE_DETAIL
from isrlab.world import faults

DURATION_MS = 900
ASKED = ("isr_shrink", "isr_expand")


@dataclass(frozen=True)
class Outage:
    """An outage of a broker, at the times when other machines notice it; ms from 0."""

    broker: int
    start_ms: int
    end_ms: int
    is_clean: bool


@dataclass(frozen=True, kw_only=True)
class Scene(fleet_engine.Given):
    """A partition on brokers 1, 2, ..., which may stop and return."""

    brokers: int
    session_ms: int
    outages: tuple[Outage, ...]
    elections: tuple[int, ...]  # when brokers learn of elections of the preferred leader
    target: tuple[int, ...] = ()  # its replicas after a reassignment, as many as before
    reassign_ms: int = 0  # when brokers learn of it

    @property
    def ids(self):
        return range(1, self.brokers + 1)

    @property
    def replicas(self):
        return self.ids[: len(self.target) or self.brokers]


@dataclass(frozen=True)
class Seen:
    """The results by which engine and fleet are compared."""

    leaders: list  # (ms, (leader, leader epoch, ISR, high watermark, log end)), at changes
    asked: list  # (ms, kind, ISR before, ISR after)
    logs: dict  # broker -> final (log end, high watermark)
    failures: list  # (ms, error) of produces, ascending
    waits_ms: list  # of acknowledged produces with acks=all, ascending


def error(name):
    """The error, with one name for all errors of a missing leader."""
    is_lost = name.startswith("NOT_LEADER") or name == "NETWORK_EXCEPTION"
    return "NO LEADER" if is_lost else name


# The engine


def engine_play(scene):
    more = {"unclean_leader_election_enable": False, "session_timeout_ms": scene.session_ms}
    cluster = started(scene, scene.replicas, **more)
    _join(cluster, scene)
    values, times, former = [_seen(cluster)], [scene.first_ms], 1
    for now_ms in range(scene.first_ms + 1, DURATION_MS):
        cluster.now_ms = clock(scene, now_ms)
        _act(cluster, scene, now_ms)
        deliver_due(cluster, before=fleet_engine.APPEND)
        former = _leading(cluster) or former
        fleet_engine.append(cluster, scene, former, now_ms)
        deliver_due(cluster, before=fleet_engine.LAST)
        _ask_halts(cluster)
        values.append(_seen(cluster))
        times.append(now_ms)
    asked = [
        (
            event.ts_ms - clock(scene, 0),
            ASKED.index(event.kind),
            *(tuple(sorted(isr)) for isr in (event.isr_before, event.isr)),
        )
        for event in cluster.events
        if event.kind in ASKED and not event.is_stored_state
    ]
    failures, waits_ms = produces(cluster, scene)
    failures = sorted((ms, error(name)) for ms, name in failures)
    logs = _ends(scene, cluster.disks)
    return Seen(changes(times, values), sorted(asked), logs, failures, waits_ms)


def _join(cluster, scene):
    """Start the brokers that hold no replica yet."""
    for broker in scene.ids[len(scene.replicas) :]:
        cluster.replicas = (*cluster.replicas, broker)
        cluster.disks[broker], cluster.epochs[broker] = Log(), 0
        cluster.latencies[frozenset((broker, m.CONTROLLER))] = scene.controller_latency_ms
        faults.start(cluster, broker)


class Halted(Exception):
    """A broker halted rather than truncate its log; the fleet does not model that."""


def _ask_halts(cluster):
    if any(e.kind == "crash" and e.detail["by"].startswith("halt") for e in cluster.events):
        raise Halted


def _ends(scene, logs):
    """Log end and high watermark of each broker; if it is down, as its next process finds them."""
    away = {
        outage.broker
        for outage in scene.outages
        if outage.start_ms + LEAVES_MS * outage.is_clean < DURATION_MS <= outage.end_ms
    }
    found = {broker: log.load() if broker in away else log for broker, log in logs.items()}
    return {broker: (log.log_end_offset, log.high_watermark) for broker, log in found.items()}


def _act(cluster, scene, now_ms):
    """Apply the scene's events at the beginning of this millisecond."""
    fleet_engine.apply_latencies(cluster, scene, now_ms)
    apply_pauses(cluster, scene, scene.ids, now_ms)
    before_ms = scene.controller_latency_ms
    for outage in scene.outages:
        broker = outage.broker
        if not outage.is_clean and now_ms == outage.start_ms:
            cluster.kill(broker)
        if outage.is_clean and now_ms == outage.start_ms + LEAVES_MS:
            cluster.stop_process(broker, "clean_shutdown")
            cluster.disks[broker] = cluster.disks[broker].flush().checkpoint()
            cluster.clean.add(broker)
            cluster.reset_connections(broker)
            cluster.lose_session(broker, at_once=True)
    for outage in scene.outages:
        broker = outage.broker
        if outage.is_clean and now_ms == outage.start_ms - before_ms:
            cluster.brokers[broker] = replace(cluster.brokers[broker], is_shutting_down=True)
            cluster.tell(broker, m.CONTROLLER, m.ControlledShutdown(broker))
        if now_ms == outage.end_ms - before_ms:
            faults.start(cluster, broker)
    if scene.target and now_ms + before_ms == scene.reassign_ms:
        faults.reassign(cluster, scene.target)
    if now_ms + before_ms in scene.elections:
        cluster.tell(m.CONTROLLER, m.CONTROLLER, m.ElectLeaders("preferred"))


def _leading(cluster):
    leads = [b for b in cluster.brokers.values() if isinstance(b.role, Leader)]
    return max(leads, key=lambda b: b.leader_epoch).id if leads else None


def _seen(cluster):
    if (number := _leading(cluster)) is None:
        return None
    broker = cluster.brokers[number]
    ends = broker.log.high_watermark, broker.log.log_end_offset
    return number, broker.leader_epoch, tuple(sorted(broker.role.isr)), *ends


# The fleet


def config_of(scene):
    pauses = [
        Pause("fetchers", broker, *row)
        for broker, rows in zip(scene.ids, scene.pauses, strict=True)
        for row in rows
    ]
    for outage in scene.outages:
        role = "down" if outage.is_clean else "dead"
        pauses.append(Pause(role, outage.broker, outage.start_ms, outage.end_ms))
    pauses += [Pause("latency", *row) for row in scene.slow]
    return FleetConfig(
        version=scene.version.name, partitions=1, brokers=scene.brokers,
        replication_factor=len(scene.replicas), assigned=",".join(map(str, scene.replicas)),
        reassigned=",".join(map(str, scene.target)), reassign_s=scene.reassign_ms / 1000,
        minutes=DURATION_MS / 60_000, load="steady",
        leaders="move", rebalance_every_s=0, session_timeout_ms=scene.session_ms,
        elections=" ".join(f"{ms / 1000:.3f}" for ms in scene.elections), pauses=written(pauses),
        replica_lag_time_max_ms=scene.lag_ms, replica_lag_max_messages=scene.lag_messages,
        min_insync_replicas=scene.min_isr, record_bytes=RECORD_BYTES,
        replica_fetch_max_bytes=scene.fetch_records * RECORD_BYTES,
        replica_fetch_response_max_bytes=2**31 - 1,
        replica_fetch_wait_max_ms=scene.wait_ms, fetch_latency_ms=scene.latency_ms, stall_s=0,
        acks_all_share=float(scene.acks == m.ACKS_ALL), request_timeout_ms=scene.timeout_ms,
        delivery_timeout_ms=0, isr_commit_ms=2 * scene.controller_latency_ms,
    )  # fmt: skip


def fleet_play(scene, monkeypatch, window_ms=1):
    """The scene in the fleet, with its state sampled after each window."""
    config, table = config_of(scene), np.array(scene.arrivals, dtype=np.int64).reshape(-1, 2)

    def windows(*_):
        for end_ms in [*range(window_ms, DURATION_MS, window_ms), DURATION_MS]:
            rows = table[(table[:, 0] < end_ms) & (table[:, 0] >= end_ms - window_ms)]
            none = np.zeros(len(rows), np.int32)
            yield end_ms, s.Arrivals(rows[:, 0].copy(), none, rows[:, 1].astype(np.int32))

    monkeypatch.setattr(load, "windows", windows)
    monkeypatch.setattr(load, "follower_bytes_per_s", lambda *_: s.UNLIMITED_BYTES_PER_S)
    other_ms = config.isr_check_period_ms - scene.latency_ms
    joined_ms = config.isr_check_period_ms + scene.latency_ms
    ticks = dict.fromkeys(scene.ids[len(scene.replicas) :], joined_ms)
    ticks[1] = scene.first_tick_ms
    monkeypatch.setattr(load, "first_tick_ms", lambda _, broker: ticks.get(broker, other_ms))
    cluster = MovingCluster(config)
    seen = [(until_ms - 1, _led(cluster)) for until_ms in cluster.run()]
    times, values = zip(*[row for row in seen if row[0] >= scene.latency_ms], strict=True)
    asked, failures, waits = [], [], np.zeros(s.BUCKETS, np.int64)
    for cell_rows in cluster.cell_rows.values():
        run = cell_rows.run_so_far(DURATION_MS)
        for row in run.events.tolist():
            ms, kind, place = row[:3]
            if kind <= s.EXPAND:
                both = (
                    tuple(sorted(cell_rows.members(place, row[at])))
                    for at in (s.ISR_BEFORE, s.ISR_AFTER)
                )
                asked.append((ms, kind, *both))
            elif kind >= s.REFUSED and not (kind == s.NO_BROKER and row[s.LOG_END_OFFSET] >= 0):
                failures.append((ms, error(ONE_DETAIL[kind][1])))
        waits += run.latencies.sum(axis=0)
    cluster.known.read(0, int(cluster.leaders[0]), DURATION_MS)
    ends = _ends(scene, {b: cluster.known.at(0, b, DURATION_MS).log for b in scene.ids})
    waits_ms = np.repeat(bucket_starts(), waits).tolist()
    return Seen(changes(times, values), sorted(asked), ends, sorted(failures), waits_ms)


def _led(cluster):
    leader = int(cluster.leaders[0])
    if leader == NO_LEADER:
        return None
    row = cluster.cell_rows[leader].partition(0)
    isr = cluster.cell_rows[leader].members(0, int(row["isr"]))
    ends = int(row["high_watermark"]), int(row["log_end_offset"])
    return leader, int(row["leader_epoch"]), tuple(sorted(isr)), *ends
