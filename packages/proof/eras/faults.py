"""A recording's faults at their times in the engine: does it make the same ISR history?

A recording has the times at which a process was paused, resumed, killed, shut down, and ready
again. The engine gets only these times; it has its own clock and timers. All stored ISRs are
compared: their sequence exactly, their times within the range that the rule allows, because the
phase of a leader's periodic check is not recorded.
"""

from __future__ import annotations

from typing import NamedTuple

from eras.kept import Done, Recording
from isrlab.engine.versions import KafkaVersion
from isrlab.world import faults
from isrlab.world.cluster import START_MS, Cluster
from isrlab.world.frames import Request

EVERY_MS = 200  # between two records
SESSION_MS = 9_000
REPLICAS = ((1, 2, 3), (1, 3, 2), (2, 1, 3))
SLACK_MS = 1_500  # for delays of a busy machine
TOGETHER_MS = 3_000  # two returns within this time may have either order


class Change(NamedTuple):
    """The stored ISR from `ts_ms` on, and the leader."""

    ts_ms: int
    isr: frozenset[int]
    leader: int

    @property
    def name(self) -> str:
        """The ISR as text, such as "1 2 3"."""
        return " ".join(map(str, sorted(self.isr)))


def of_kafka(recording: Recording, partition: int) -> list[Change]:
    states = [s for s in recording.stored if s.partition == partition]
    return without_repetition([Change(s.ts_ms, frozenset(s.isr), s.leader) for s in states])


def of_engine(recording: Recording, partition: int) -> list[Change]:
    """The engine's changes under the recording's faults; times are those of the recording."""
    begun, end_ms = recording.begun_ms, recording.done[-1].ts_ms
    cluster = Cluster(
        recording.version, REPLICAS[partition], latency_ms=1, min_insync_replicas=2,
        replica_lag_time_max_ms=recording.lag_ms, session_timeout_ms=SESSION_MS,
    )  # fmt: skip
    cluster.observer.asked = ()  # no promise: that takes a third of the time
    actions = [d for d in recording.done if d.ts_ms > begun and d.broker]
    sent: Request | None = None
    while cluster.now_ms - START_MS < end_ms - begun:
        now_ms = begun + cluster.now_ms - START_MS
        while actions and actions[0].ts_ms <= now_ms:
            _do(cluster, actions.pop(0))
        leader = cluster.controller.leader
        if leader in cluster.replicas and not _waits(cluster, sent, leader):
            sent = cluster.produce(leader, (f"m{len(cluster.requests)}",))
        next_ms = min([now_ms + EVERY_MS, *(a.ts_ms for a in actions[:1])])
        cluster.advance(next_ms - now_ms)
    rows = [e.row for e in cluster.events if e.kind == "isr_commit" and e.is_stored_state]
    return without_repetition([
        Change(begun + r["ts_ms"] - START_MS, frozenset(r["isr"]), int(r["detail"]["leader"]))
        for r in rows
    ])  # fmt: skip


def _waits(cluster: Cluster, sent: Request | None, leader: int) -> bool:
    """Whether the producer waits: a broker answers one request before it reads another."""
    return (
        sent is not None
        and sent.broker == leader
        and sent.error is None
        and sent.ids[0] not in cluster.observer.acknowledged
    )


def _do(cluster: Cluster, done: Done) -> None:
    broker = done.broker
    if done.action == "SIGSTOP":
        faults.pause(cluster, broker)
    elif done.action == "SIGCONT":
        faults.resume(cluster, broker)
    elif done.action == "SIGKILL":
        cluster.kill(broker)
    elif done.action == "SIGTERM":
        faults.clean_shutdown(cluster, broker)
    elif done.action == "start":
        faults.start(cluster, broker)


def without_repetition(states: list[Change]) -> list[Change]:
    """The states that changed the ISR; returns at about the same time are one change."""
    kept: list[Change] = []
    for state in states:
        if kept and state.isr == kept[-1].isr:
            continue
        before = kept[-2].isr if len(kept) > 1 else frozenset(range(99))
        is_near = bool(kept) and state.ts_ms - kept[-1].ts_ms < TOGETHER_MS
        if is_near and before < kept[-1].isr < state.isr:
            kept[-1] = state
        else:
            kept.append(state)
    return kept


def window(recording: Recording, former: int, kafka: Change, engine: Change) -> tuple[int, int]:
    """The range of times (ms) in which the rule behind this change lets it happen.

    A leader checks its followers every half lag limit (0.8: every lag limit). If the controller
    elects, `former` led before: a session ends between two thirds of its length and its full length
    after the fault. A replica returns between its process's start and when it is seen in sync.
    """
    before = [d for d in recording.done if d.ts_ms <= engine.ts_ms + SLACK_MS and d.broker]
    if not before or before[-1].action in ("SIGCONT", "start"):
        seen = (d.ts_ms for d in recording.done if d.action == "seen in sync")
        return engine.ts_ms - SLACK_MS, next(ms for ms in seen if ms > engine.ts_ms) + SLACK_MS
    open_ms = recording.lag_ms // KafkaVersion.of(recording.version).isr_checks_per_lag_time
    if before[-1].action in ("SIGTERM", "process gone") and former != kafka.leader:
        open_ms = SESSION_MS // 3
    return engine.ts_ms - open_ms - SLACK_MS, engine.ts_ms + open_ms + SLACK_MS
