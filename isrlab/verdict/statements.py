"""What each line says of a partition's ISR, leader and versions, in one form.

A statement is one line (or one record of the metadata log). What it says of the stored state has a
version (the partition epoch, or ZooKeeper's), if the line prints it; a request is what a leader
wants. Partitions that were deleted and made anew are left out: their versions start again.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from isrlab.engine.versions import release
from isrlab.events.exact import Key
from isrlab.evidence.clocks import put_right

TOPIC_ID = re.compile(r"[\w-]{22}")
REQUESTS = ("isr_shrink", "isr_expand")
STATES = ("isr_commit", "leader", "follower", "metadata", "offline")
KRAFT_SIGNS = ("heartbeat_failed", "controller_lost")
KRAFT_CAUSES = ("fenced", "unfenced")
NO_ZOOKEEPER = ("session_lost", "zookeeper_gone", "zookeeper_silent")
METADATA_LOG = "metadata log"
NEW_MS = 1_000  # several controllers may say that a partition is new, but at once


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
    moves: tuple[tuple[int, ...], tuple[int, ...]]  # replicas that are being added, and removed
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
    left_out: list[Key]  # deleted, or made anew
    is_kraft: bool
    release: str | None  # the newest that a broker says it runs
    order: dict[str, list[tuple[int, int]]]  # file: line and time of each of its events
    words: dict[int | None, list[int]]  # broker: times of its events, and the last of its files
    starts: dict[int | None, list[int]]  # broker: when its process started
    refusals: dict[int | None, list[int]]  # broker: when a write was refused, or ZooKeeper away

    def covers(self, broker: int | None, from_ms: int, to_ms: int) -> bool:
        """One process of this broker tells of all this time, from its start on."""
        words, starts = self.words[broker], self.starts[broker]
        later = bisect_right(words, to_ms)
        again_ms = min((at_ms for at_ms in starts if at_ms > from_ms), default=math.inf)
        is_whole = any(at_ms < from_ms for at_ms in starts)
        return is_whole and later < len(words) and words[later] < again_ms


def runs(events: pa.Table, files: pa.Table | None = None) -> dict[str, Run]:
    """The statements of each run; `files` (of `BrokerLogs`) says how long each log goes on."""
    rows = defaultdict(list)
    for row in events.to_pylist():
        own = {"detail": dict(row["detail"] or ()), "printed_ms": row["ts_ms"]}
        rows[row["run"]].append(row | own)
    for of_run in rows.values():
        put_right(of_run)
    last = {} if files is None else {f["file"]: f["last_ms"] for f in files.to_pylist()}
    return {name: run_of(of_run, last) for name, of_run in rows.items()}


def run_of(rows: list[dict[str, Any]], last_ms: Mapping[str, int | None] | None = None) -> Run:
    """The statements of one run; rows of events on one clock, with `detail` as a dict, and
    `printed_ms` for the time of the line."""
    of_broker = (defaultdict[int | None, list[int]](list) for _ in range(3))
    order = defaultdict[str, list[tuple[int, int]]](list)
    run = Run({}, [], any(map(_is_kraft, rows)), _newest(rows), order, *of_broker)
    partitions: dict[Key, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        detail, ts_ms, broker = row["detail"], row["ts_ms"], row["broker"]
        if "file" in detail and detail.get("said_by") != METADATA_LOG:
            order[detail["file"]].append((int(detail["line"]), row["printed_ms"]))
            if broker is not None:
                last = (last_ms or {}).get(detail["file"]) or row["printed_ms"]
                run.words[broker] += [ts_ms, last + ts_ms - row["printed_ms"]]
        is_started = row["kind"] == "restart" and "said_by" not in detail
        if is_started or detail.get("sign") == "starting":
            run.starts[broker].append(ts_ms)
        if row["kind"] == "isr_rejected" or detail.get("sign") in NO_ZOOKEEPER:
            run.refusals[broker].append(ts_ms)
        if row["topic"] is not None and row["partition"] is not None:
            partitions[Key(row["run"], row["topic"], row["partition"])].append(row)
    for places in order.values():
        places.sort()
    for words in run.words.values():
        words.sort()
    for key, told in partitions.items():
        if _is_made_anew(told):
            run.left_out.append(key)
            continue
        lines = [statement(key, row) for row in told if row["kind"] in (*REQUESTS, *STATES)]
        if lines:
            run.partitions[key] = sorted(lines, key=lambda x: (x.ts_ms, x.file, x.line))
    return run


def _is_made_anew(rows: Iterable[dict[str, Any]]) -> bool:
    """The partition was deleted, or its topic has had several ids or beginnings."""
    ids, news = set(), []
    for row in rows:
        detail = row["detail"]
        if row["kind"] == "deleted":
            return True
        if detail.get("from_state") == "NewPartition":
            news.append(row["ts_ms"])
        if topic_id := TOPIC_ID.search(detail.get("topic_id", "")):  # "Some(...)", or by itself
            ids.add(topic_id[0])
    return len(ids) > 1 or (bool(news) and max(news) - min(news) > NEW_MS)


def _newest(rows: Iterable[dict[str, Any]]) -> str | None:
    """The newest release that a line names; None without one, or if Kafka has no such release."""
    names = {row["detail"]["release"] for row in rows if "release" in row["detail"]}
    try:
        return max(names, key=release, default=None)
    except ValueError:
        return None


def _is_kraft(row: dict[str, Any]) -> bool:
    detail = row["detail"]
    return (
        detail.get("said_by") == METADATA_LOG
        or detail.get("sign") in KRAFT_SIGNS
        or detail.get("cause") in KRAFT_CAUSES
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
        _ids(row["isr_before"]), _listed(detail, "replicas") or None,
        (_listed(detail, "adding"), _listed(detail, "removing")), detail,
    )  # fmt: skip


def _listed(detail: Mapping[str, str], name: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d{1,9}", detail.get(name, ""))))


def _ids(values: Sequence[Any] | None) -> tuple[int, ...] | None:
    return None if values is None else tuple(map(int, values))
