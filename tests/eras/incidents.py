"""Incidents of `data/recordings/incidents` that are a fault at a known time, on the engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eras.faults import Change, played
from eras.kept import Done

FOLDER = Path(__file__).parents[2] / "data" / "recordings" / "incidents"
# Nobody whose session ends or whose leadership moves in a pause: that is of chance (see `window`)
NAMES = ("a-412-follower-paused", "b-412-follower-killed", "d-392-rolling-restart",
         "e-282-follower-paused", "k-412-quiet-control", "s-0822-follower-paused")  # fmt: skip


def read(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / name / "truth.json").read_text())


def pairs(name: str) -> Iterator[tuple[str, list[Change], list[Change]]]:
    """Of each partition: its name, the ISRs that were stored, and the engine's."""
    truth = read(name)
    config = truth["config"]
    session_ms = config.get("zookeeper.session.timeout.ms", 9_000)
    limits = {"replica_lag_time_max_ms": config["replica.lag.time.max.ms"],
              "session_timeout_ms": session_ms}  # fmt: skip
    rows = [(a["t_ms"], a["what"], a.get("broker") or 0) for a in truth["actions"]]
    names = {"topics created": "producing", "process started": "start"}
    done = [Done(ms, names.get(what, what.split()[0]), broker, "") for ms, what, broker in rows
            if ms <= truth["logs_end_ms"]]  # fmt: skip
    for topic, partitions in truth["topics"].items():
        for number, replicas in partitions.items():
            key = f"{topic}-{number}"
            first = Change(0, frozenset(replicas), replicas[0])
            changes = [Change(c["t_ms"], frozenset(c["isr_to"]), c["leader_to"])
                       for c in truth["isr_changes"] if c["partition"] == key]  # fmt: skip
            yield (
                key,
                [first, *changes],
                played(truth["kafka_version"], tuple(replicas), done, limits),
            )
