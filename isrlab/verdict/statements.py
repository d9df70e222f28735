"""What each line says of a partition's ISR, leader and versions, in one form.

A statement is one line (or one record of the metadata log). What it says of the stored state has a
version (the partition epoch, or ZooKeeper's), if the line prints it; a request is what a leader
wants. Partitions that were deleted and made anew are left out: their versions start again.
"""

from __future__ import annotations

import re
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
STARTING_MS = 10_000  # a controller replays its log before its broker says that it starts
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
    left_out: list[Key]
    is_kraft: bool
    away: Mapping[int, list[int]]  # broker: when it was said to be fenced, dead or leaving
    order: dict[str, list[tuple[int, int]]]  # file: line and time of each of its events
    ends: dict[int, int]  # broker: the last time in its files
    starts: dict[int, list[int]]  # broker: when its process started
    refusals: Mapping[int, list[int]]  # broker: when a write was refused, or ZooKeeper away
    release: str | None  # the newest that a broker says it runs
    has_controller: bool  # there are lines of a controller about brokers

    def covers(self, broker: int | None, from_ms: int, to_ms: int) -> bool:
        """The logs of this broker go back to the start of its process, and go on until then."""
        is_whole = any(at_ms < from_ms for at_ms in self.starts.get(broker or 0, ()))
        return is_whole and self.ends.get(broker or 0, 0) > to_ms


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
    is_kraft = any(map(_is_kraft, rows))
    elections = _elections(rows)
    partitions: dict[Key, list[Statement]] = defaultdict(list)
    order, away, refusals = defaultdict(list), defaultdict(list), defaultdict(list)
    ends: dict[int, int] = defaultdict(int)
    for row in rows:
        detail, ts_ms, broker = row["detail"], row["ts_ms"], row["broker"]
        said_by = detail.get("said_by", "")
        if "file" in detail and said_by != METADATA_LOG:
            order[detail["file"]].append((int(detail["line"]), row["printed_ms"]))
            if broker is not None:
                last = (last_ms or {}).get(detail["file"]) or row["printed_ms"]
                ends[broker] = max(ends[broker], last + ts_ms - row["printed_ms"])
        if row["kind"] == "crash" or detail.get("sign") == "stop_asked":
            away[row["replica"] if row["replica"] is not None else row["broker"]].append(ts_ms)
        if row["kind"] == "isr_rejected" or detail.get("sign") in NO_ZOOKEEPER:
            refusals[broker].append(ts_ms)
        if row["topic"] is None or row["partition"] is None:
            continue
        key = Key(row["run"], row["topic"], row["partition"])
        is_controllers = is_kraft and said_by == "controller"
        if row["kind"] in (*REQUESTS, *STATES) and not (
            is_controllers and _is_deposed(row, elections)
        ):
            partitions[key].append(statement(key, row))
    anew = _made_anew(rows)
    kept = {key: lines for key, lines in partitions.items() if key not in anew}
    for lines in kept.values():
        lines.sort(key=lambda line: (line.ts_ms, line.file, line.line))
    in_order = {file: sorted(lines) for file, lines in order.items()}
    return Run(
        kept,
        sorted(anew),
        is_kraft,
        away,
        in_order,
        ends,
        elections.starts,
        refusals,
        _newest(rows),
        any(r["kind"] in ("crash", "restart") and "said_by" in r["detail"] for r in rows),
    )


def _made_anew(rows: Iterable[dict[str, Any]]) -> set[Key]:
    """Partitions that were deleted, or whose topic has had several ids or beginnings."""
    lives: dict[Key, set[str]] = defaultdict(set)
    news: dict[Key, list[int]] = defaultdict(list)
    for row in rows:
        if row["topic"] is None or row["partition"] is None:
            continue
        detail, key = row["detail"], Key(row["run"], row["topic"], row["partition"])
        if row["kind"] == "deleted":
            lives[key] |= {"", "deleted"}
        if detail.get("from_state") == "NewPartition":
            news[key].append(row["ts_ms"])
        if topic_id := TOPIC_ID.search(detail.get("topic_id", "")):  # "Some(...)", or by itself
            lives[key].add(topic_id[0])
    anew = {key for key, names in lives.items() if len(names) > 1}
    return anew | {key for key, times in news.items() if max(times) - min(times) > NEW_MS}


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


class Elections(NamedTuple):
    """When a broker became the active controller, and when processes started."""

    elected: list[tuple[int, int]]
    starts: dict[int, list[int]]


def _elections(rows: Iterable[dict[str, Any]]) -> Elections:
    found = Elections([], defaultdict(list))
    for row in rows:
        sign = row["detail"].get("sign")
        if sign == "controller_elected":
            found.elected.append((row["ts_ms"], row["broker"]))
        elif sign == "starting" or (row["kind"] == "restart" and "said_by" not in row["detail"]):
            found.starts[row["broker"]].append(row["ts_ms"])
    return found


def _is_deposed(row: dict[str, Any], elections: Elections) -> bool:
    """A KRaft controller that another one replaces takes back what no majority has."""
    own = [at for at, who in elections.elected if who == row["broker"] and at <= row["ts_ms"]]
    until_ms = row["ts_ms"] + STARTING_MS
    started = [at for at in elections.starts[row["broker"]] if own and max(own) < at < until_ms]
    return bool(own and not started) and any(
        who != row["broker"] and max(own) < at < row["ts_ms"] + DEPOSED_MS
        for at, who in elections.elected
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
