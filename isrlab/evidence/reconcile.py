"""From what brokers said to what is known: each stored change once, on one clock, and what is not.

`reconcile` takes the events of logs as they were said and gives a table of the same form that a
simulation has: a row `isr_commit` for each stored state of a partition's ISR, versions ascending,
with who made it and the line that says so; `unknown` where from some moment on nobody says what the
ISR is; `log_start` and `log_end` for each broker. `events.exact` and `isrlab.churn` ask that table.

Theory of operation. Clocks first (`clocks.put_right`), then each partition by itself (`stored`),
then doubts about the last state that is known of it, for only a successor proves that a state held:
a member of it has died and nobody says that it left; its leader's log ends before the others do;
a clock was set back in between. Before the first line about a partition nothing is known, unless it
was created then.

The replicas of a partition *at a time* are those of the last line that names them all
(`replicas_from` "assignment"), else those that were in its ISR or had a log of it so far ("seen").
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from isrlab.events import schema
from isrlab.events.exact import Key
from isrlab.evidence.clocks import Clock, put_right
from isrlab.evidence.replicas import Replicas, broker_ids, lives
from isrlab.evidence.stored import (
    ASKED,
    MISSING,
    NEWER,
    UNLIKE,
    Found,
    Row,
    State,
    is_exact,
    is_own,
    stored,
)

QUIET = 0.1  # of its run: so long may a broker's log be silent before its end counts as one
QUIET_MS = 60_000  # and never less
BLIP_MS = 2_000  # a broker fenced and unfenced within this is a controller that repeats the past
QUORUM = "__cluster_metadata"  # its voters are no ISR
PRIMARY = ("isr_commit", "leader", "isr_shrink", "isr_expand")  # kinds of who knows first


class Gap(NamedTuple):
    """When nobody says what the ISR of a partition was, and why; without a key, of a whole run."""

    key: Key | None
    from_ms: int
    to_ms: int
    why: str


class Evidence(NamedTuple):
    """What the logs of some runs prove. `events`: events.SCHEMA in order of time, on one clock."""

    events: pa.Table
    clocks: list[Clock]
    unknown: list[Gap]


class Scene(NamedTuple):
    """What is known of one run besides its partitions."""

    start_ms: int
    end_ms: int
    ends: dict[int, int]  # by broker, its last line, if that is long before the end
    gone: list[tuple[int, int]]  # ms, broker: who died or was fenced when
    back: dict[
        tuple[int, str], list[int]
    ]  # lines from which on a clock was set back, unknown how far
    printing: frozenset[int]  # brokers that print what is stored
    unheard: frozenset[int]  # leaders of whom there is no log, and whom no follower replaces


def reconcile(events: pa.Table, files: pa.Table | None = None) -> Evidence:
    """What these events of broker logs prove.

    `files` (of `BrokerLogs`; columns file, first_ms, last_ms) tells when each log begins and ends;
    without it, its events do.
    """
    rows = [row | {"detail": dict(row["detail"] or ())} for row in events.to_pylist()]
    clocks = put_right(rows)
    rows.sort(key=_time_and_place)
    names = sorted({row["run"] for row in rows})
    found: list[Row] = []
    vague: list[Gap] = []
    gaps: list[Gap] = []
    for run in names:
        of_run = [row for row in rows if row["run"] == run]
        bounds = _bounds(of_run, files, {c.broker: c.ahead_ms for c in clocks if c.run == run})
        scene = _scene(of_run, bounds, clocks)
        first = len(gaps)
        for key, lines in _partitions(of_run):
            states = proven(key, lines, scene)
            gaps += _gaps(key, states, scene.end_ms)
            found += states
        found += [row for row in of_run if row["kind"] not in ("isr_commit", "deleted")]
        for broker, edges in bounds.items():
            for kind, ms in zip(("log_start", "log_end"), edges, strict=True):
                found.append(_row_of({"run": run, "broker": broker}, ms, kind))
        vague += _of_the_whole(of_run, gaps[first:], clocks, scene)
    found.sort(key=_in_order)
    return Evidence(pa.Table.from_pylist(found, schema=schema.SCHEMA), clocks, vague + gaps)


def _time_and_place(row: Row) -> tuple:
    detail = row["detail"]
    return row["ts_ms"], detail.get("file", ""), int(detail.get("line", 0))


def _in_order(row: Row) -> tuple:
    """Of one moment: what ends or is not known, what was asked for, what is stored, the end."""
    ranks = {"log_start": -2, "unknown": -1, "deleted": -1, "isr_commit": 1, "log_end": 2}
    rank = ranks.get(row["kind"], 0)
    return row["ts_ms"], rank, row["topic"] or "", row["partition"] or 0, _time_and_place(row)


def _partitions(rows: Sequence[Row]) -> Iterator[tuple[Key, list[Row]]]:
    groups: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        if row["topic"] not in (None, QUORUM) and row["partition"] is not None:
            groups[Key(row["run"], row["topic"], row["partition"])].append(row)
    yield from sorted(groups.items())


# Runs


Edges: TypeAlias = tuple[int, int]  # the first and the last moment of a log


def _bounds(
    rows: Sequence[Row], files: pa.Table | None, ahead: dict[int | None, int]
) -> dict[int | None, Edges]:
    """When the log of each broker (None: of files whose broker is not known) begins and ends."""
    spans: dict[int | None, list[int]] = defaultdict(list)
    of_file: dict[str, int | None] = {}
    of_folder: dict[str, set[int | None]] = defaultdict(set)
    for row in rows:
        broker, file = row["broker"], row["detail"].get("file", "")
        spans[broker].append(row["ts_ms"])
        of_file.setdefault(file, broker)
        of_folder[os.path.dirname(file)].add(broker)
    for file in files.to_pylist() if files is not None else []:
        folder = of_folder.get(os.path.dirname(file["file"]), set())
        only = next(iter(folder)) if len(folder) == 1 else None
        broker = of_file.get(file["file"], only)
        stamps = [file[name] for name in ("first_ms", "last_ms") if file.get(name) is not None]
        if file["run"] == rows[0]["run"]:
            spans[broker] += [ms - ahead.get(broker, 0) for ms in stamps]
    return {broker: (min(stamps), max(stamps)) for broker, stamps in spans.items() if stamps}


def _scene(rows: Sequence[Row], bounds: dict[int | None, Edges], clocks: Sequence[Clock]) -> Scene:
    start_ms = min(first_ms for first_ms, _ in bounds.values())
    end_ms = max(last_ms for _, last_ms in bounds.values())
    quiet_ms = max(QUIET_MS, QUIET * (end_ms - start_ms))
    has_metadata_log = any(is_exact(row) for row in rows)
    ends = {b: ms for b, (_, ms) in bounds.items() if b is not None and ms < end_ms - quiet_ms}
    went = [r for r in rows if r["kind"] in ("crash", "restart") and r["replica"] is not None]
    came: dict[int, list[int]] = defaultdict(list)
    for row in went:
        if row["kind"] == "restart":
            came[row["replica"]].append(row["ts_ms"])
    gone = [
        (row["ts_ms"], row["replica"])
        for row in went
        if row["kind"] == "crash"
        and not _is_within(came[row["replica"]], row["ts_ms"], row["ts_ms"] + BLIP_MS)
    ]
    back: dict[tuple[int, str], list[int]] = defaultdict(list)
    for clock in clocks:
        if clock.part and clock.is_bound and clock.broker is not None:
            file, _, line = clock.part.rpartition(":")
            insort(back[clock.broker, file], int(line))
    asking = {r["broker"] for r in rows if r["kind"] in ASKED}
    prints = _print_commits(rows)
    printing = asking if prints else set()
    named = (r["replica"] for r in rows if r["kind"] in ("leader", "follower") and r["replica"])
    hears_all = None in bounds or has_metadata_log or any(map(_is_of_a_follower, rows))
    unheard = frozenset[int]() if hears_all else frozenset(named) - bounds.keys() - {-1}
    return Scene(
        start_ms, end_ms, {} if has_metadata_log else ends, gone, back, frozenset(printing), unheard
    )


def _is_of_a_follower(row: Row) -> bool:
    """In KRaft each follower prints each ISR."""
    return row["kind"] == "metadata" and is_own(row) and "correlation" not in row["detail"]


def _print_commits(rows: Sequence[Row]) -> bool:
    """Leaders print what is stored: since 2.4, even if they had no occasion to.

    Since 2.4 a new leader prints its high watermark, since 2.2 a request prints who is out of sync.
    """
    own = [row for row in rows if is_own(row)]
    leads = [row["high_watermark"] is not None for row in own if row["kind"] == "leader"]
    asks_at_length = any("out_of_sync" in row["detail"] for row in own)
    return (
        any(r["kind"] == "isr_commit" for r in own) or any(leads) or (asks_at_length and not leads)
    )


def _of_the_whole(
    rows: Sequence[Row], gaps: Sequence[Gap], clocks: Sequence[Clock], scene: Scene
) -> Iterator[Gap]:
    """What the logs of this run can never show."""
    run = rows[0]["run"]
    fenced = [r["ts_ms"] for r in rows if r["detail"].get("cause") in ("fenced", "unfenced")]
    told = [gap.why for gap in gaps if not _is_batched(gap, fenced)]
    alone = sorted({str(each.broker) for each in clocks if each.run == run and each.is_alone})
    reasons = {
        f"nothing shows that the clock of broker {', '.join(alone)} is right, and so in which "
        "order all this happened": bool(alone),
        "lines are missing from these logs; if all lines about the last changes of a partition are "
        "missing, nothing shows it": any(each in (MISSING, NEWER, UNLIKE) for each in told),
        "no log of a controller is here: what a controller took out of an ISR shows only where a "
        "leader's line starts from another ISR": not any(not is_own(row) for row in rows),
        "leaders do not print the version of what they store: if all lines about a change are "
        "missing, nothing shows it": any(row["kind"] in ASKED for row in rows)
        and not scene.printing,
    }
    for why, holds in reasons.items():
        if holds:
            yield Gap(None, scene.start_ms, scene.end_ms, why)


def _is_batched(gap: Gap, fenced: Sequence[int]) -> bool:
    """A KRaft controller changed several things at once: brokers print only what came of it."""
    return _is_within(fenced, gap.from_ms - BLIP_MS, gap.to_ms)


def _is_within(times: Sequence[int], from_ms: int, to_ms: int) -> bool:
    """One of these times, which are in order, lies between these two or is one of them."""
    place = bisect_left(times, from_ms)
    return place < len(times) and times[place] <= to_ms


# Partitions


def proven(key: Key, rows: Sequence[Row], scene: Scene) -> list[Row]:
    """The rows `isr_commit`, `unknown` and `deleted` of one partition, in order of time."""
    proven_rows: list[Row] = []
    for life in lives(rows):
        found = stored(life, scene.printing)
        states = [each for each in found if each.state is not None]
        first = states[0] if states else None
        why, start_ms = f"no line {'before ' * bool(states)}tells its ISR", scene.start_ms
        if proven_rows:
            why, start_ms = "the topic was created again", proven_rows[-1]["ts_ms"] + 1
        is_created = first is not None and _is_created(first.state) and not proven_rows
        if life and life[0]["kind"] in ("deleted", "unhosted"):
            proven_rows.append(_row_of(key._asdict(), max(life[0]["ts_ms"], start_ms), "deleted"))
        elif not is_created and (first is None or start_ms < first.ts_ms):
            proven_rows.append(_row_of(key._asdict(), start_ms, "unknown", why))
        found = sorted([*found, *_doubts(found, scene)], key=lambda each: each.ts_ms)
        proven_rows += _with_replicas(key, found, life)
    return proven_rows


def _is_created(state: State | None) -> bool:
    if state is None or state.row["kind"] in ("isr_shrink", "isr_expand"):
        return False
    return state.version == 0 or (state.version is None and state.leader_epoch == 0)


def _doubts(found: Sequence[Found], scene: Scene) -> Iterator[Found]:
    """Why the state that is known last, or the one before a gap, may not have held until then."""
    for each, after in zip(found, [*found, None][1:], strict=True):
        state, until_ms = each.state, after.ts_ms if after else scene.end_ms + 1
        if state is None or state.isr is None:
            continue
        is_back = _is_set_back(state, after, scene)
        if is_back and each.ts_ms + 1 < until_ms:
            yield Found(each.ts_ms + 1, None, why="a clock was set back, nobody says how far")
        elif after is None or after.state is None:
            doubts = [(ms, f"broker {b} was gone, and no line says that it left the ISR")
                      for ms, b in scene.gone[bisect_left(scene.gone, (each.ts_ms + 1,)):]
                      if b in state.isr and len(state.isr) > 1]  # fmt: skip
            if state.leader in scene.ends:
                end_ms = max(scene.ends[state.leader], each.ts_ms) + 1
                doubts.append((end_ms, f"the log of its leader, broker {state.leader}, ends"))
            if state.leader in scene.unheard:
                doubts.append((each.ts_ms + 1, f"no log of its leader, broker {state.leader}"))
            sooner = [(ms, why) for ms, why in doubts if each.ts_ms < ms < until_ms]
            if sooner:
                ms, why = min(sooner)
                yield Found(ms, None, why=why)


def _is_set_back(state: State, after: Found | None, scene: Scene) -> bool:
    """Between this state and the next a clock was set back, and nobody says how far."""
    detail = state.row["detail"]
    starts = scene.back.get((state.row["broker"], detail.get("file", "")), [])
    next_row = after.state.row if after and after.state else None
    is_there = next_row is not None and next_row["detail"].get("file") == detail.get("file")
    until = int(next_row["detail"]["line"]) if is_there and next_row else 2**62
    nth = bisect_right(starts, int(detail.get("line", 0)))
    return nth < len(starts) and starts[nth] <= until


def _with_replicas(key: Key, found: Sequence[Found], rows: Sequence[Row]) -> list[Row]:
    """The rows, each state with the partition's replicas then; again where these change."""
    told = Replicas(rows)
    made: list[Row] = []
    for each, after in zip(found, [*found, None][1:], strict=True):
        state = each.state
        if state is None or state.isr is None:
            made.append(_row_of(key._asdict(), each.ts_ms, "unknown", each.why))
            continue
        told.seen |= {*state.isr, *(each.before or ())}
        told.advance(each.ts_ms)
        if state.replicas is not None:
            told.assigned = broker_ids(state.replicas)
        made.append(_row(key, each, told))
        while (ms := told.next_ms()) is not None and (after is None or ms < after.ts_ms):
            was = told.now
            told.advance(ms)
            if told.now != was:
                made.append(_row(key, each, told) | {"ts_ms": ms, "isr_before": state.isr})
    return made


def _row(key: Key, found: Found, told: Replicas) -> Row:
    """A stored state as a row of events."""
    state = found.state
    assert state is not None and state.isr is not None
    grows = found.before is not None and set(found.before) < set(state.isr)
    is_leaders = state.is_leaders or grows
    detail = {n: v for n in ("file", "line", "elr") if (v := state.row["detail"].get(n))}
    detail["replicas"] = ",".join(map(str, sorted(told.now)))
    detail["replicas_from"] = "assignment" if told.assigned or told.gone else "seen"
    if state.leader is not None:
        detail["leader"] = str(state.leader)
    if not is_leaders:
        detail["said_by"] = "controller"
    if state.request is not None and state.request["ts_ms"] > found.ts_ms:
        state.request["ts_ms"] = found.ts_ms  # it asked before: the clocks differ that much
    is_late = state.row["kind"] not in PRIMARY
    if is_late and is_own(state.row) and state.request is not None:
        detail["earliest_ms"] = str(state.request["ts_ms"])
    return dict.fromkeys(schema.COLUMNS) | {
        **key._asdict(),
        "ts_ms": found.ts_ms,
        "broker": state.leader if is_leaders else state.row["broker"],
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.version,
        "kind": "isr_commit",
        "isr": state.isr,
        "isr_before": found.before,
        "detail": detail,
    }


def _row_of(names: Row, ts_ms: int, kind: str, why: str = "") -> Row:
    more = {"ts_ms": ts_ms, "kind": kind, "detail": {"why": why} if why else {}}
    return dict.fromkeys(schema.COLUMNS) | names | more


def _gaps(key: Key, rows: Sequence[Row], end_ms: int) -> Iterator[Gap]:
    """From when to when the ISR of a partition is not known."""
    for row, to_ms in zip(rows, [*(row["ts_ms"] for row in rows[1:]), end_ms], strict=False):
        if row["kind"] == "unknown" and row["ts_ms"] < to_ms:
            yield Gap(key, row["ts_ms"], to_ms, row["detail"]["why"])
