"""Broker logs as tests write them down, and the history that they prove."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from isrlab.events import exact
from isrlab_ops.logs import reader
from isrlab_ops.logs.history import History, history_of

DAY_MS = 1_719_792_000_000  # 2024-07-01 00:00 UTC, the day of these logs


def at(clock: str) -> int:
    """The ms since the epoch of a time such as "08:00:01,5" on the day of these logs."""
    time = datetime.fromisoformat(f"2024-07-01 {clock.replace(',', '.')}").replace(tzinfo=UTC)
    return round(time.timestamp() * 1000)


def write(folder, logs: dict[str, str]):
    """Write logs to `folder`, from lines "08:00:01,500 INFO message (logger)" and blank ones."""
    for name, text in logs.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        stamped = (line.partition(" ")[::2] for line in lines)
        path.write_text("".join(f"[2024-07-01 {time}] {rest}\n" for time, rest in stamped))
    return folder


def prove(folder, logs: dict[str, str]) -> History:
    """The history that these logs prove."""
    read = reader.read_local(write(folder, logs), run="r")
    if isinstance(read, pa.Table):
        return history_of(read)
    return history_of(read.events, read.files)


def story(history: History, topic: str = "t", partition: int = 0) -> list[tuple]:
    """A partition's states: seconds of the day, and (ISR, writer, broker) or why it is unknown."""
    rows = [
        row | {"detail": dict(row["detail"])}
        for row in history.events.to_pylist()
        if row["kind"] in ("isr_commit", "unknown")
        and (row["topic"], row["partition"]) == (topic, partition)
    ]
    return [
        (
            (row["ts_ms"] - DAY_MS) / 1000,
            row["detail"]["why"]
            if row["isr"] is None
            else (sorted(row["isr"]), row["detail"].get("said_by", "leader"), row["broker"]),
        )
        for row in rows
    ]


def isrs(history: History, topic: str = "t", partition: int = 0) -> list[str]:
    """The ISRs of a partition in order, "?" where it is not known."""
    states = [what for _, what in story(history, topic, partition)]
    return ["?" if isinstance(what, str) else ",".join(map(str, what[0])) for what in states]


def under_replicated_ms(history: History, topic: str = "t", partition: int = 0) -> int:
    """How long, in ms, the partition is known to have lacked a replica."""
    spans = exact.isr_spans(history.events)[exact.Key("r", topic, partition)]
    return sum(s.end_ms - s.start_ms for s in spans if len(s.isr) < len(s.replicas))


def why_unknown(history: History, partition: int | None = 0) -> set[str]:
    gaps = history.gaps
    return {gap.why for gap in gaps if (gap.key.partition if gap.key else None) == partition}
