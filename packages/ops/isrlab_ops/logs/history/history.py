"""From log lines to a history: each stored change once, on one clock, gaps, and contradictions.

`history_of` takes the events of logs exactly as their lines report them. The `events` of its result
form a table like a simulation's: a row `isr_commit` for each stored ISR of a partition, in order of
version, with the broker that made it and the line that shows it; `unknown` from the moment when no
line shows the ISR; `log_start` and `log_end` for each broker. `events.exact` and `isrlab.churn`
query that table. Its `faults` are the lines that break a rule of Kafka (`verdict`).

Theory of operation. Clocks first (`clocks.align_clocks`), then each partition by itself (`states`),
then doubts about its last known state, because only a successor proves that a state held: a member
died and no line reports its removal; its leader's log ends before the others; a clock was set back
in between. Before the first line about a partition nothing is known, unless it was created then.

The replicas of a partition *at a time* are those of the last line that names them all
(`replicas_from` "assignment"), else those in its ISR or with a log of it so far ("seen").
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from isrlab.events.statements import (
    OF_LEADERS,
    BrokerIds,
    Events,
    Key,
    Statement,
    statement,
    statements,
    table_of,
)
from isrlab_ops.logs.history.clocks import Clock, align_clocks
from isrlab_ops.logs.history.replicas import Incarnation, KnownReplicas
from isrlab_ops.logs.history.rules import Fault
from isrlab_ops.logs.history.scene import BLIP_MS, Scene, is_within
from isrlab_ops.logs.history.states import MISSING, NEWER, UNLIKE, PlacedState, StoredState, stored
from isrlab_ops.logs.history.verdict import Verdict, judge

if TYPE_CHECKING:
    import pyarrow as pa

PRIMARY = (*OF_LEADERS, "leader")  # the kinds logged by the broker that decides


class Gap(NamedTuple):
    """A time in which no line shows a partition's ISR, and why; without a key, any partition's."""

    key: Key | None
    from_ms: int
    to_ms: int
    why: str


@dataclass(frozen=True)
class History:
    """The history that the logs of some runs prove. `rows`: in order of time, on one clock."""

    rows: list[Statement]
    clocks: list[Clock]
    gaps: list[Gap]
    scenes: list[Scene]

    @cached_property
    def events(self) -> pa.Table:
        """The rows as a table of events.SCHEMA."""
        return table_of(self.rows)

    @cached_property
    def faults(self) -> list[Fault]:
        """The lines that Kafka cannot have printed, by run and in order of time."""
        return [fault for verdict in self.verdicts() for fault in verdict.faults]

    def verdicts(self, release: str | None = None, lag_time_ms: int | None = None) -> list[Verdict]:
        """For each run: explained, or the lines that cannot be true.

        `release` is the newest that any broker ran (default: by its lines); `lag_time_ms` is
        replica.lag.time.max.ms. Raises ValueError for an unknown release.
        """
        return [judge(scene, release, lag_time_ms) for scene in self.scenes]


def history_of(events: Events, files: pa.Table | Sequence[dict[str, Any]] = ()) -> History:
    """The history that these events of broker logs prove; the events are not changed.

    `files` (of `BrokerLogs`; run, file, first_ms, last_ms) shows when each log begins and ends;
    without it, the events do.
    """
    runs: dict[str, list[Statement]] = defaultdict(list)
    for row in map(copy, events) if isinstance(events, Sequence) else statements(events):
        runs[row.run].append(row)
    read: dict[str, list[dict]] = defaultdict(list)
    for file in files if isinstance(files, Sequence) else files.to_pylist():
        read[file["run"]].append(file)
    history = History([], [], [], [])
    vague: list[Gap] = []
    for run, rows in sorted(runs.items()):
        clocks = align_clocks(rows)
        in_order = sorted(rows, key=lambda row: row.place)
        _put_aside_too_late(in_order)
        scene = Scene(in_order, read[run], clocks)
        gaps = _add(scene, history.rows)
        vague += _of_the_whole(scene, gaps)
        history.gaps.extend(gaps)
        history.clocks.extend(clocks)
        history.scenes.append(scene)
    history.gaps[:0] = vague
    history.rows.sort(key=_in_order)
    return history


def _put_aside_too_late(rows: Sequence[Statement]) -> None:
    """Turn fencings by a deposed controller into signs: it was paused, and on waking
    fences brokers although another was elected. These decisions are never stored."""
    failed = [(r.broker, r.ts_ms) for r in rows if r.detail.get("sign") == "not_stored"]
    for row in (r for r in rows if r.detail.get("cause") == "fenced" and r.kind == "crash"):
        near = (ms for broker, ms in failed if broker == row.broker)
        if "broker_epoch" not in row.detail and any(0 <= ms - row.ts_ms <= BLIP_MS for ms in near):
            others = {name: text for name, text in row.detail.items() if name != "cause"}
            row.kind, row.detail = "sign", others | {"sign": "fenced_too_late"}


def _add(scene: Scene, rows: list[Statement]) -> list[Gap]:
    """Add the rows that one run proves to `rows`. Returns the gaps in that run."""
    gaps: list[Gap] = []
    # Requests that belong before the stored state, though their timestamps are later.
    earlier: dict[int, int] = {}
    for key, lives in scene.lives.items():
        states = proven(key, lives, scene, earlier)
        gaps += _gaps(key, states, scene.end_ms)
        rows += states
    for row in scene.rows:
        if row.kind not in ("isr_commit", "deleted"):
            ts_ms = earlier.get(id(row))
            rows.append(row if ts_ms is None else msgspec.structs.replace(row, ts_ms=ts_ms))
    for broker, edges in scene.bounds.items():
        for kind, ms in zip(("log_start", "log_end"), edges, strict=True):
            rows.append(statement(run=scene.run, broker=broker, ts_ms=ms, kind=kind))
    return gaps


def _in_order(row: Statement) -> tuple:
    """By time; at one moment: starts of logs, gaps, other rows, stored states, ends of logs."""
    ranks = {"log_start": -2, "unknown": -1, "deleted": -1, "isr_commit": 1, "log_end": 2}
    return row.ts_ms, ranks.get(row.kind, 0), row.topic or "", row.partition or 0, row.place


def _of_the_whole(scene: Scene, gaps: Sequence[Gap]) -> Iterator[Gap]:
    """The gaps that the logs of this run can never fill."""
    rows = scene.rows
    fenced = [row.ts_ms for row in rows if row.detail.get("cause") in ("fenced", "unfenced")]
    # Gaps at a fencing do not count: KRaft makes several changes, and brokers print the result.
    whys = {g.why for g in gaps if not is_within(fenced, g.from_ms - BLIP_MS, g.to_ms)}
    alone = sorted({str(clock.broker) for clock in scene.clocks if clock.is_alone})
    reasons = {
        f"nothing shows that the clock of broker {', '.join(alone)} is right, and so in which "
        "order all this happened": bool(alone),
        "lines are missing from these logs; if all lines about the last changes of a partition are "
        "missing, nothing shows it": not whys.isdisjoint((MISSING, NEWER, UNLIKE)),
        "no log of a controller is here: what a controller took out of an ISR shows only where a "
        "leader's line starts from another ISR": all(row.is_own for row in rows),
        "leaders do not print the version of what they store: if all lines about a change are "
        "missing, nothing shows it": any(row.is_request for row in rows) and not scene.printing,
    }
    for why, holds in reasons.items():
        if holds:
            yield Gap(None, scene.start_ms, scene.end_ms, why)


# Partitions


def proven(
    key: Key, lives: Sequence[Incarnation], scene: Scene, earlier: dict[int, int]
) -> list[Statement]:
    """The rows `isr_commit`, `unknown` and `deleted` of one partition, in order of time."""
    proven_rows: list[Statement] = []
    for (life, after), following in zip(lives, [*lives[1:], None], strict=True):
        placed = stored(life, scene.printing)
        states = [each for each in placed if each.state is not None]
        first = states[0] if states else None
        why, start_ms = f"no line {'before ' * bool(states)}tells its ISR", scene.start_ms
        if proven_rows:
            why, start_ms = "the topic was created again", proven_rows[-1].ts_ms + 1
        is_created = first is not None and _is_created(first.state) and not proven_rows
        if after is not None:
            proven_rows.append(_row_of(key, max(after.ts_ms, start_ms), "deleted", row=after))
        elif not is_created and (first is None or start_ms < first.ts_ms):
            proven_rows.append(_row_of(key, start_ms, "unknown", why))
            if proven_rows[:-1] and life and life[0].ts_ms > start_ms:  # by then it was deleted
                proven_rows.append(_row_of(key, life[0].ts_ms - 1, "deleted", row=life[0]))
        end_ms, rest = scene.end_ms, life
        if following is not None:
            end_ms, rest = (following.after or following.rows[0]).ts_ms, []
        placed = sorted([*placed, *_doubts(placed, scene, end_ms, rest)], key=lambda s: s.ts_ms)
        proven_rows += _with_replicas(key, placed, life, earlier)
    return proven_rows


def _is_created(state: StoredState | None) -> bool:
    if state is None or state.row.is_request:
        return False
    return state.version == 0 or (state.version is None and state.leader_epoch == 0)


def _doubts(
    placed: Sequence[PlacedState], scene: Scene, end_ms: int, rows: Sequence[Statement]
) -> Iterator[PlacedState]:
    """Why the last known state, or a state before a gap, may have ended earlier than `end_ms`."""
    deleted = [(row.ts_ms, row.replica) for row in rows if row.kind == "unhosted"]
    for each, after in zip(placed, [*placed, None][1:], strict=True):
        state, until_ms = each.state, after.ts_ms if after else end_ms + 1
        if state is None or state.isr is None:
            continue
        is_back = _is_set_back(state, after, scene)
        if is_back and each.ts_ms + 1 < until_ms:
            yield PlacedState(each.ts_ms + 1, None, why="a clock was set back by an unknown amount")
        elif after is None or after.state is None:
            places = (bisect_left(scene.gone, (ms,)) for ms in (each.ts_ms + 1, until_ms))
            away = (gone for gone in scene.gone[slice(*places)] if gone[1] in state.isr)
            doubts = [(ms, f"broker {b} was gone, and no line says that it left the ISR")
                      for ms, b in islice(away, 1) if len(state.isr) > 1]  # fmt: skip
            doubts += [(ms, f"broker {b} deleted its log, and no line says that it left the ISR")
                       for ms, b in deleted if b in state.isr
                       and (b == state.leader or state.leader not in scene.bounds)]  # fmt: skip
            if state.leader in scene.ends:
                last_ms = max(scene.ends[state.leader], each.ts_ms) + 1
                doubts.append((last_ms, f"the log of its leader, broker {state.leader}, ends"))
            if state.leader in scene.unheard:
                doubts.append((each.ts_ms + 1, f"no log of its leader, broker {state.leader}"))
            sooner = [(ms, why) for ms, why in doubts if each.ts_ms < ms < until_ms]
            if sooner:
                ms, why = min(sooner)
                yield PlacedState(ms, None, why=why)


def _is_set_back(state: StoredState, after: PlacedState | None, scene: Scene) -> bool:
    """A clock was set back by an unknown amount between this state and the next."""
    row, later = state.row, after.state.row if after and after.state else None
    starts = scene.back.get((row.broker or 0, row.file), [])
    until = later.line if later is not None and later.file == row.file else 2**62
    nth = bisect_right(starts, row.line)
    return nth < len(starts) and starts[nth] <= until


def _with_replicas(
    key: Key, placed: Sequence[PlacedState], rows: Sequence[Statement], earlier: dict[int, int]
) -> list[Statement]:
    """The rows, each state with the replicas at that time, repeated when the replicas change."""
    replicas = KnownReplicas(rows)
    made: list[Statement] = []
    for each, after in zip(placed, [*placed, None][1:], strict=True):
        state = each.state
        if state is None or state.isr is None:
            made.append(_row_of(key, each.ts_ms, "unknown", each.why))
            continue
        replicas.seen |= {*state.isr, *(each.before or ())}
        replicas.advance(each.ts_ms)
        if state.replicas is not None:
            replicas.assigned = set(state.replicas)
        if state.request is not None and state.request.ts_ms > each.ts_ms:
            earlier[id(state.request)] = each.ts_ms  # the clocks differ by that much
        made.append(_row(key, each.ts_ms, each.before, state, replicas))
        while (ms := replicas.next_ms()) is not None and (after is None or ms < after.ts_ms):
            was = replicas.now
            replicas.advance(ms)
            if replicas.now != was:
                made.append(_row(key, ms, state.isr, state, replicas))
    return made


def _row(
    key: Key, ts_ms: int, before: BrokerIds | None, state: StoredState, replicas: KnownReplicas
) -> Statement:
    """A stored state as a row of events."""
    row, isr = state.row, state.isr or ()
    is_leaders = state.is_leaders or (before is not None and set(before) < set(isr))
    detail = {name: text for name in ("file", "line", "elr") if (text := row.detail.get(name))}
    detail["replicas"] = ",".join(map(str, sorted(replicas.now)))
    detail["replicas_from"] = "assignment" if replicas.assigned or replicas.gone else "seen"
    if state.leader is not None:
        detail["leader"] = str(state.leader)
    if not is_leaders:
        detail["said_by"] = "controller"
    if row.kind not in PRIMARY and row.is_own and state.request is not None:
        detail["earliest_ms"] = str(min(state.request.ts_ms, ts_ms))
    return statement(
        **key._asdict(),
        ts_ms=ts_ms,
        broker=state.leader if is_leaders else row.broker,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.version,
        kind="isr_commit",
        isr=isr,
        isr_before=before,
        detail=detail,
    )


def _row_of(
    key: Key, ts_ms: int, kind: str, why: str = "", row: Statement | None = None
) -> Statement:
    """A row `unknown` or `deleted`; `row` is the line that shows it."""
    detail = {"why": why} if why else {}
    if row is not None and row.file:
        detail |= {"file": row.file, "line": str(row.line)}
    return statement(**key._asdict(), ts_ms=ts_ms, kind=kind, detail=detail)


def _gaps(key: Key, rows: Sequence[Statement], end_ms: int) -> Iterator[Gap]:
    """The times in which the ISR of a partition is not known."""
    for row, to_ms in zip(rows, [*(row.ts_ms for row in rows[1:]), end_ms], strict=False):
        if row.kind == "unknown" and row.ts_ms < to_ms:
            yield Gap(key, row.ts_ms, to_ms, row.detail["why"])
