"""Questions to a small events table, in plain Python, exact to the millisecond."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

Key = tuple[str, str, int]  # run, topic, partition


@dataclass(frozen=True, slots=True)
class IsrSpan:
    """From when to when (ms) the stored ISR of a partition was this."""

    start_ms: int
    end_ms: int
    isr: tuple[int, ...]


def isr_spans(events: pa.Table, end_ms: int | None = None) -> dict[Key, list[IsrSpan]]:
    """The stored ISR of each partition in time, from the first that is known."""
    spans: dict[Key, list[IsrSpan]] = {}
    names = ["run", "topic", "partition", "ts_ms", "kind", "isr"]
    rows = events.select(names).to_pylist()
    last = end_ms if end_ms is not None else max((row["ts_ms"] for row in rows), default=0)
    for row in rows:
        if row["kind"] not in ("leader", "isr_commit") or row["isr"] is None:
            continue
        known = spans.setdefault((row["run"], row["topic"], row["partition"]), [])
        isr = tuple(sorted(row["isr"]))
        if known and known[-1].isr == isr:
            continue
        if known:
            known[-1] = IsrSpan(known[-1].start_ms, row["ts_ms"], known[-1].isr)
        known.append(IsrSpan(row["ts_ms"], last, isr))
    return spans
