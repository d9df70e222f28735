"""One scene in both models: a follower that stands still for a while, in the engine and the fleet.

The engine moves messages between brokers that hold records; the kernel of the fleet moves numbers.
Both are given the same batches, the same stall and the same phase of the expiry task. Order within
one millisecond is left to each of them (tests/test_fleet_engine.py fixes it, and compares thousands
of random scenes to the millisecond). Left out: the leader epoch that a shrink raises in KRaft from
3.3 to 3.5, which the kernel does not have.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from isrlab.engine.messages import ACKS_ALL, ExpireIsr
from isrlab.engine.model import RECORD_BYTES
from isrlab.engine.versions import IsrWrite
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.kernel.clock import run
from isrlab.fleet.kernel.rows import bucket_starts
from isrlab.fleet.kernel.state import (
    COMMIT,
    EVENT_COLUMNS,
    ISR_AFTER,
    KIND,
    TS_MS,
    UNLIMITED_BYTES_PER_S,
    Arrivals,
    Out,
    Setup,
    new_state,
)
from isrlab.world import faults
from isrlab.world.cluster import START_MS, Cluster

LEADER, STANDING = 1, 3


class Scene(NamedTuple):
    """A partition with two followers; broker 3 stands still from `from_ms` to `to_ms`."""

    config: FleetConfig
    until_ms: int = 90_000
    every_ms: int = 137  # between batches of one record with acks=all
    from_ms: int = 20_003
    to_ms: int = 60_007


class Played(NamedTuple):
    """What a model makes of a scene."""

    changes: list[tuple[int, int]]  # (ms, members of the stored ISR)
    waits_ms: list[int]  # of acknowledged produces, ascending


def compared(scene: Scene) -> pd.DataFrame:
    """Both models: when the ISR changed, and how long produces waited; a row for each answer."""
    engine, first_tick_ms = play_engine(scene)
    kernel = play_kernel(scene, first_tick_ms)
    starts = bucket_starts()
    coarse = starts[np.searchsorted(starts, engine.waits_ms, side="right") - 1].tolist()
    rows = [("produces acknowledged", len(engine.waits_ms), len(kernel.waits_ms))]
    for number, (one, other) in enumerate(zip(engine.changes, kernel.changes, strict=False), 1):
        rows.append((f"ISR change {number}: members", one[1], other[1]))
        rows.append((f"ISR change {number}: ms", one[0], other[0]))
    for share in (0.5, 0.9, 1.0):
        of_both = [np.quantile(w, share, method="inverted_cdf") for w in (coarse, kernel.waits_ms)]
        rows.append((f"{share:.0%} wait at most: class of ms", int(of_both[0]), int(of_both[1])))
    return pd.DataFrame(rows, columns=["answer", "engine", "kernel"])


def play_engine(scene: Scene) -> tuple[Played, int]:
    """The engine's answers, and when its expiry task first ran; time 0 as for the kernel."""
    config = scene.config
    cluster = Cluster(
        config.kafka.with_(epoch_bump_on_isr_shrink=False),
        replicas=(LEADER, 2, STANDING),
        latency_ms=config.fetch_latency_ms,
        replica_lag_time_max_ms=config.lag_time_ms,
        replica_socket_timeout_ms=10**9,
    )
    zero_ms = START_MS + config.fetch_latency_ms
    ticks = [e.due_ms for e in cluster.queue if isinstance(e.message, ExpireIsr)]
    arrivals = _arrivals_ms(scene)
    acts = [(ms, str(ms)) for ms in arrivals]
    acts += [(scene.from_ms, "pause"), (scene.to_ms, "resume"), (scene.until_ms, "end")]
    for ms, act in sorted(acts):
        cluster.advance(zero_ms + ms - cluster.now_ms)
        if act == "pause":
            faults.pause(cluster, STANDING, "fetcher")
        elif act == "resume":
            faults.resume(cluster, STANDING)
        elif act != "end":
            cluster.produce(LEADER, (act,), acks=ACKS_ALL)
    events: list[dict[str, Any]] = list(cluster.events)
    commits = [e for e in events if e["kind"] == "isr_commit" and e["broker"] == LEADER]
    waits = [
        e["ts_ms"] - zero_ms - int(e["detail"]["records"])
        for e in events
        if e["kind"] == "produce_ack"
    ]
    changes = [(e["ts_ms"] - zero_ms, len(e["isr"])) for e in commits]
    return Played(changes, sorted(waits)), min(ticks) - zero_ms


def play_kernel(scene: Scene, first_tick_ms: int) -> Played:
    """The kernel's answers."""
    config = scene.config
    asks = config.kafka.isr_write > IsrWrite.ZOOKEEPER_NOTIFY
    stall = np.array([[scene.from_ms, scene.to_ms, 0]])
    setup = Setup(
        rules=config.rules()._replace(isr_commit_ms=2 * config.fetch_latency_ms if asks else 0),
        links=config.links()._replace(leader_bytes_per_s=0),
        thread_of=np.array([[0, 1]]),
        bytes_per_s=np.full(2, UNLIMITED_BYTES_PER_S),
        stalls=[stall[:0], stall],
        record_bytes=RECORD_BYTES,
        first_tick_ms=first_tick_ms,
        acks_all=True,
        duration_ms=scene.until_ms,
    )
    out = Out(np.zeros((1_000, EVENT_COLUMNS), np.int64), np.zeros((0, 6), np.int64), -1, 0)
    state = new_state(setup, out)
    ts_ms = _arrivals_ms(scene)
    ones = np.ones(len(ts_ms), np.int32)
    arrivals = Arrivals(np.array(ts_ms, np.int64), ones * 0, ones)
    rows = out.events[: run(state, arrivals, scene.until_ms)]
    stored = rows[rows[:, KIND] == COMMIT]
    changes = [(int(row[TS_MS]), 1 + int(row[ISR_AFTER]).bit_count()) for row in stored]
    waits = np.repeat(bucket_starts(), state.latencies.sum(axis=0))
    return Played(changes, waits.tolist())


def _arrivals_ms(scene: Scene) -> list[int]:
    return list(range(1_000, scene.until_ms, scene.every_ms))
