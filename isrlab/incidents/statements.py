"""What each line says of a partition's ISR, leader and versions, in one form.

A statement is one line (or one record of the metadata log). What it says of the stored state has a
version (the partition epoch, or ZooKeeper's), if the line prints it; a request is what a leader
wants. Partitions that were deleted and made anew are left out: their versions start again.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from isrlab.events.exact import Key

TOPIC_ID = re.compile(r"[\w-]{22}")
REQUESTS = ("isr_shrink", "isr_expand")
STATES = ("isr_commit", "leader", "follower", "metadata", "offline")
KRAFT_SIGNS = ("heartbeat_failed", "controller_lost")
KRAFT_CAUSES = ("fenced", "unfenced")
METADATA_LOG = "metadata log"
NEW_MS = 1_000  # several controllers may say that a partition is new, but at once
DEPOSED_MS = 60_000  # so long before another is elected may what a KRaft controller says be undone


class Statement(NamedTuple):
    """One line. None is what it does not say; `by` is the broker whose log it is."""

    key: Key
    ts_ms: int
    file: str
    line: int
    kind: str
    by: int | None
    said_by: str  # "", "controller" or "metadata log"
    version: int | None
    epoch: int | None
    leader: int | None
    isr: tuple[int, ...] | None
    before: tuple[int, ...] | None
    replicas: tuple[int, ...] | None
    detail: dict[str, str]

    @property
    def is_request(self) -> bool:
        return self.kind in REQUESTS

    @property
    def is_own(self) -> bool:
        """The leader says it of itself."""
        return not self.said_by and self.by is not None and self.by == self.leader

    @property
    def members(self) -> frozenset[int] | None:
        return None if self.isr is None else frozenset(self.isr)


class Run(NamedTuple):
    """The statements of a run: by partition, and what else matters for them."""

    partitions: dict[Key, list[Statement]]
    left_out: list[Key]
    is_kraft: bool
    away: dict[int, list[int]]  # broker: when it was said to be fenced, dead or leaving
    order: dict[str, list[tuple[int, int]]]  # file: line and time of each of its events
    has_controller: bool


def runs(events: pa.Table) -> dict[str, Run]:
    """The statements of each run."""
    rows = defaultdict(list)
    for row in events.to_pylist():
        rows[row["run"]].append(row | {"detail": dict(row["detail"] or ())})
    return {name: _run(of_run) for name, of_run in rows.items()}


def _run(rows: Sequence[dict[str, Any]]) -> Run:
    is_kraft = any(map(_is_kraft, rows))
    elected = [
        (row["ts_ms"], row["broker"])
        for row in rows
        if row["detail"].get("sign") == "controller_elected"
    ]
    partitions: dict[Key, list[Statement]] = defaultdict(list)
    order, away, news = defaultdict(list), defaultdict(list), defaultdict(list)
    lives: dict[Key, set[str]] = defaultdict(set)
    has_controller = False
    for row in rows:
        detail, ts_ms = row["detail"], row["ts_ms"]
        said_by = detail.get("said_by", "")
        has_controller |= bool(said_by)
        if "file" in detail and said_by != METADATA_LOG:
            order[detail["file"]].append((int(detail["line"]), ts_ms))
        if row["kind"] == "crash" or detail.get("sign") == "stop_asked":
            away[row["replica"] if row["replica"] is not None else row["broker"]].append(ts_ms)
        if row["topic"] is None or row["partition"] is None:
            continue
        key = Key(row["run"], row["topic"], row["partition"])
        if row["kind"] == "deleted":
            lives[key] |= {"", "deleted"}
        if detail.get("from_state") == "NewPartition":
            news[key].append(ts_ms)
        if topic_id := TOPIC_ID.search(detail.get("topic_id", "")):  # "Some(...)", or by itself
            lives[key].add(topic_id[0])
        if row["kind"] in (*REQUESTS, *STATES):
            is_deposed = is_kraft and said_by == "controller" and _is_deposed(row, elected)
            if not is_deposed:
                partitions[key].append(statement(key, row))
    anew = {key for key, names in lives.items() if len(names) > 1}
    anew |= {key for key, times in news.items() if max(times) - min(times) > NEW_MS}
    kept = {key: lines for key, lines in partitions.items() if key not in anew}
    for lines in kept.values():
        lines.sort(key=lambda line: (line.ts_ms, line.file, line.line))
    in_order = {file: sorted(lines) for file, lines in order.items()}
    return Run(kept, sorted(anew), is_kraft, dict(away), in_order, has_controller)


def _is_kraft(row: dict[str, Any]) -> bool:
    detail = row["detail"]
    return (
        detail.get("said_by") == METADATA_LOG
        or detail.get("sign") in KRAFT_SIGNS
        or detail.get("cause") in KRAFT_CAUSES
    )


def _is_deposed(row: dict[str, Any], elected: Iterable[tuple[int, int]]) -> bool:
    """A KRaft controller that another one replaces takes back what no majority has."""
    own = [ts_ms for ts_ms, broker in elected if broker == row["broker"] and ts_ms <= row["ts_ms"]]
    return bool(own) and any(
        broker != row["broker"] and max(own) < ts_ms < row["ts_ms"] + DEPOSED_MS
        for ts_ms, broker in elected
    )


def statement(key: Key, row: dict[str, Any]) -> Statement:
    """What an event of a log says; `row` with `detail` as a dict."""
    detail, kind = row["detail"], row["kind"]
    said_by, leader = detail.get("said_by", ""), None
    if kind in ("leader", "follower"):
        leader = row["replica"]
    elif kind == "offline":
        leader = -1
    elif re.fullmatch(r"-?\d{1,9}", detail.get("leader", "")):
        leader = int(detail["leader"])
    elif not said_by and kind.startswith("isr_"):
        leader = row["broker"]
    return Statement(
        key, row["ts_ms"], detail.get("file", ""), int(detail.get("line", 0)), kind, row["broker"],
        said_by, row["partition_epoch"], row["leader_epoch"], leader, _ids(row["isr"]),
        _ids(row["isr_before"]), _ids(re.findall(r"\d{1,9}", detail.get("replicas", "")) or None),
        detail,
    )  # fmt: skip


def _ids(values: Sequence[Any] | None) -> tuple[int, ...] | None:
    return None if values is None else tuple(map(int, values))
