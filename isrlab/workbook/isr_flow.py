"""The way of an ISR change: a flow chart with what a run did, batches, and answers to each error.

The chart's questions are those of `engine/isr.py`; how often each was asked and answered is counted
in the journal of a run, so a branch that nobody took is grey.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from isrlab.closeups import batching as batching
from isrlab.engine import broker as broker_machine
from isrlab.engine import controller as controller_machine
from isrlab.engine.choices import AfterShrink, IsrWrite
from isrlab.engine.frozen import replace
from isrlab.engine.isr import FINAL_ERRORS, REVERTING_ERRORS, is_pending, pending
from isrlab.engine.messages import (
    After,
    AlterPartition,
    AlterPartitionResponse,
    ExpireIsr,
    Fetch,
    Send,
    UpdateMetadata,
)
from isrlab.engine.model import CommittedIsr, Leader
from isrlab.show.style import INK, PALE, bare, broker_colour, plain
from isrlab.world import scenario
from isrlab.world.cluster import START_MS
from isrlab.world.frames import Frame
from isrlab.world.observer import Row
from isrlab.world.script import Run

_TAKEN = "#0072B2"


# The flow chart


@dataclass(slots=True)
class Flow:
    """How often a run took each branch, by name, and with which errors it was refused."""

    counts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)


def flow(run: Run) -> Flow:
    """Count the questions that leaders asked in a run, and their answers."""
    found = Flow()
    before: Frame | None = None
    for frame, rows in _steps(run):
        if before is not None and frame.brokers:
            _count_question(found, before, frame)
        _count_rows(found, rows)
        found.counts["told"] += isinstance(frame.message, UpdateMetadata) and not frame.was_lost
        before = frame
    counts = found.counts
    counts["keep"] = counts["checks"] - counts["leave"] - counts["leave_blocked"]
    counts["stay"] = counts["fetches"] - counts["join"] - counts["join_blocked"]
    counts["asked"] = counts["leave"] + counts["join"]
    counts["blocked"] = counts["leave_blocked"] + counts["join_blocked"]
    return found


def _steps(run: Run) -> Iterator[tuple[Frame, list[Row]]]:
    """Each step of the run with the events that it made."""
    frame: Frame | None = None
    rows: list[Row] = []
    for entry in run.cluster.journal:
        if not isinstance(entry, Frame):
            rows.append(entry)
            continue
        if frame is not None:
            yield frame, rows
        frame, rows = entry, []
    if frame is not None:
        yield frame, rows


def _count_question(found: Flow, before: Frame, frame: Frame) -> None:
    leader = before.brokers.get(frame.target)
    if leader is None or not isinstance(leader.role, Leader) or frame.was_lost:
        return
    busy = not isinstance(leader.role.isr_state, CommittedIsr)
    if isinstance(frame.message, ExpireIsr):
        found.counts["checks"] += 1
        found.counts["leave_blocked"] += busy
    elif isinstance(frame.message, Fetch) and frame.message.replica not in leader.role.maximal_isr:
        found.counts["fetches"] += 1
        found.counts["join_blocked"] += busy


def _count_rows(found: Flow, rows: list[Row]) -> None:
    kinds = Counter(str(row["kind"]) for row in rows)
    found.counts["leave"] += kinds["isr_shrink"]
    found.counts["join"] += kinds["isr_expand"]
    found.counts["stored"] += kinds["isr_commit"]
    found.counts["refused"] += kinds["isr_rejected"]
    found.counts["announced"] += kinds["notify"]
    if kinds["isr_commit"]:
        found.counts["moves" if kinds["high_watermark"] else "rests"] += 1
    for row in rows:
        detail = row.get("detail")
        if row["kind"] == "isr_rejected" and isinstance(detail, dict):
            found.errors[str(detail["error"])] += 1


_BOXES = {
    "check": (2.2, 0, "a check of the ISR:\nis a member out of sync?"),
    "fetch": (7.2, 0, "a fetch from outside the ISR:\nmay it join?"),
    "flight": (4.7, 1.35, "is a change in flight?"),
    "ask": (4.7, 2.5, ""),
    "stored": (4.7, 3.65, "is it stored?"),
    "watermark": (4.7, 4.85, ""),
    "tell": (4.7, 6.05, ""),
    "nothing": (0.2, 1.35, "nothing"),
    "outside": (9.4, 1.35, "stays outside"),
    "later": (8.2, 2.5, "waits for the answer"),
    "refused": (8.5, 3.65, ""),
    "moves": (1.0, 4.85, "it moves; whoever\nwaited is answered"),
}
_EDGES = (
    ("check", "nothing", "no", "keep"),
    ("check", "flight", "yes", "leave"),
    ("fetch", "flight", "yes", "join"),
    ("fetch", "outside", "no", "stay"),
    ("flight", "later", "yes", "blocked"),
    ("flight", "ask", "no", "asked"),
    ("ask", "stored", "", "asked"),
    ("stored", "refused", "no", "refused"),
    ("stored", "watermark", "yes", "stored"),
    ("watermark", "moves", "yes", "moves"),
    ("watermark", "tell", "", "stored"),
)


def plot_flow(run: Run, *, ax: Axes | None = None) -> Axes:
    """The leader's decisions about its ISR, with how often this run took each branch."""
    taken = flow(run)
    texts = _texts(run, taken)
    ax = ax or plt.subplots(figsize=(9.5, 6.2))[1]
    reached = {"check", "fetch"} | {b for _, b, _, key in _EDGES if taken.counts[key]}
    for start, end, word, key in _EDGES:
        _draw_edge(ax, start, end, word, taken.counts[key])
    for name, (x, y, text) in _BOXES.items():
        is_taken = name in reached
        look: dict[str, object] = {
            "boxstyle": "round,pad=0.45",
            "facecolor": "#E3EFF8" if is_taken else "white",
        }
        look |= {"edgecolor": _TAKEN if is_taken else PALE, "linewidth": 1.4}
        ax.text(
            x, y, plain(texts.get(name, text)), ha="center", va="center", fontsize=8.5, bbox=look,
            color=INK if is_taken else "#999999", zorder=3,
        )  # fmt: skip
    ax.set_xlim(-0.7, 10.4)
    ax.set_ylim(6.6, -0.5)
    ax.axis("off")
    ax.set_title(plain(flow_finding(run, taken)), fontsize=10, loc="left")
    return ax


def _draw_edge(ax: Axes, start: str, end: str, word: str, count: int) -> None:
    (x0, y0, _), (x1, y1, _) = _BOXES[start], _BOXES[end]
    colour = _TAKEN if count else PALE
    style = "-" if count else "--"
    is_upright = x0 == x1
    look: dict[str, object] = {
        "arrowstyle": "-|>",
        "color": colour,
        "linewidth": 1.6,
        "linestyle": style,
    }
    look |= {"shrinkA": 16, "shrinkB": 15 if is_upright else 19}
    ax.annotate("", (x1, y1), (x0, y0), arrowprops=look, zorder=1)
    label = f"{word} ×{count:,}".strip() if count else word
    if not (word or count):
        return
    back = {"facecolor": "white", "edgecolor": "none", "pad": 0.4}
    ax.text(
        (x0 + x1) / 2 + 0.12 * is_upright, (y0 + y1) / 2, label, fontsize=8, va="center", zorder=2,
        ha="left" if is_upright else "center", bbox=None if is_upright else back,
        color=INK if count else "#999999",
    )  # fmt: skip


def _texts(run: Run, taken: Flow) -> dict[str, str]:
    """What the boxes say that are not the same in every version."""
    version = run.cluster.version
    by_zookeeper = version.isr_write <= IsrWrite.ZOOKEEPER_NOTIFY
    number = taken.counts["announced"]
    ways = {
        IsrWrite.ZOOKEEPER: "nobody is told",
        IsrWrite.ZOOKEEPER_NOTIFY: "announced when 5 s are quiet, or after 60 s:\n"
        f"{number} announcement{'' if number == 1 else 's'}",
    }
    told = ways.get(version.isr_write, "the controller tells every broker at once")
    errors = ", ".join(f"{name} ×{n}" for name, n in taken.errors.items())
    never = version.high_watermark_after_shrink == AfterShrink.NEVER
    looks = "nobody looks at the\nhigh watermark (KAFKA-13091)"
    return {
        "ask": "write ZooKeeper, if its version is v" if by_zookeeper else "ask the controller",
        "refused": f"the ISR stays\n{errors}".strip(),
        "watermark": looks if never else "can the high watermark move?",
        "tell": told,
    }


def flow_finding(run: Run, taken: Flow) -> str:
    """Asked, stored, refused, in one sentence."""
    counts = taken.counts
    looks, asked = counts["checks"] + counts["fetches"], counts["asked"]
    text = f"{looks:,} looks at the ISR, {asked} change{'' if asked == 1 else 's'} asked for: "
    text += f"{counts['stored']} stored, {counts['refused']} refused"
    return f"{run.cluster.version.name}: {text}"


# What a leader does about each answer


def reactions(version: str) -> dict[str, str]:
    """Error -> what a leader with an ISR change in flight does about it, tried on the engine."""
    script = (
        "partition replicas=1,2 latency=10ms replica.lag.time.max.ms=10000\n"
        "pause 2 fetcher\nproduce 1 acks=1\nadvance 14s"
    )
    cluster = scenario.play(script, version=version).cluster
    if cluster.writes_zookeeper:
        raise ValueError(f"{version} writes ZooKeeper itself; nothing is in flight for long")
    cluster.advance(START_MS + 15_005 - cluster.now_ms)
    errors = (*REVERTING_ERRORS, *FINAL_ERRORS, "NOT_CONTROLLER", "UNKNOWN_SERVER_ERROR")
    leader = cluster.brokers[1]
    found = {}
    for error in errors:
        answer = AlterPartitionResponse(pending(leader).request, error=error)
        after, outputs = broker_machine.step(leader, answer, cluster.now_ms)
        asks = any(isinstance(getattr(o, "message", None), AlterPartition) for o in outputs)
        waits = "keeps the larger set, and waits to be told more"
        kept = waits if is_pending(after) else "takes its request back"
        found[error] = "asks again at once" if asks else kept
    return found


def validation_order(version: str = "3.7") -> list[tuple[str, str]]:
    """A request wrong in every way, mended one thing at a time: (mended, KRaft's answer)."""
    known = scenario.play("partition replicas=1,2,3", version=version).cluster.controller
    state = replace(known.state, leader_epoch=5, partition_epoch=7)
    controller = replace(known, state=state)
    request = AlterPartition(2, 1, 4, 8, (9,), (99,))
    steps: tuple[tuple[str, dict[str, object]], ...] = (
        ("nothing", {}),
        ("not newer than the controller", {"partition_epoch": 6}),
        ("the present leader epoch", {"leader_epoch": 5}),
        ("from the leader", {"broker": 1}),
        ("the present partition epoch", {"partition_epoch": 7}),
        ("only assigned replicas", {"isr": (2, 3), "broker_epochs": (99, 0)}),
        ("with the leader", {"isr": (1, 2, 3), "broker_epochs": (0, 99, 0)}),
        ("every member's present incarnation", {"broker_epochs": (0, 0, 0)}),
    )
    found = []
    for mended, changes in steps:
        request = replace(request, **changes)  # type: ignore[arg-type]
        _, outputs = controller_machine.step(controller, request, 0)
        answer = outputs[0].message if isinstance(outputs[0], Send) else None
        assert isinstance(answer, AlterPartitionResponse)
        found.append((mended, answer.error or "stored"))
    return found


# Several partitions of one broker


@dataclass(slots=True)
class Batch:
    """One request with the changes of several partitions."""

    sent_ms: int
    partitions: tuple[str, ...]
    answered_ms: int
    error: str | None = None


def batches(
    release: str, submitted: dict[str, int], round_trip_ms: int = 100, failures: int = 0
) -> list[Batch]:
    """The requests of one broker whose partitions submit a change at these times (ms).

    The first `failures` requests are answered with an error of the whole request.
    """
    state, outputs = batching.start(batching.BatchingRules.of(release))
    queue: list[tuple[int, int, object]] = []
    for number, (name, ms) in enumerate(submitted.items()):
        queue.append((ms, number, batching.Submit(batching.IsrChange(name, (1,)))))
    heapq.heapify(queue)
    found: list[Batch] = []
    now, sequence = 0, len(queue)
    answered: set[str] = set()
    while True:
        for output in outputs:
            sequence += 1
            if isinstance(output, After):
                heapq.heappush(queue, (now + output.delay_ms, sequence, output.message))
            elif isinstance(output, Send):
                batch = _sent(output, now, round_trip_ms, "X" if len(found) < failures else None)
                found.append(batch)
                results = tuple((p, None) for p in batch.partitions)
                answer = batching.AlterPartitionsResponse(
                    () if batch.error else results, batch.error
                )
                heapq.heappush(queue, (batch.answered_ms, sequence, answer))
            elif isinstance(output, batching.Answer):
                answered.add(output.change.partition)
        if len(answered) == len(submitted) or not queue:
            return found
        now, _, message = heapq.heappop(queue)
        state, outputs = batching.step(state, message)  # type: ignore[arg-type]


def _sent(output: Send, now: int, round_trip_ms: int, error: str | None) -> Batch:
    request = output.message
    assert isinstance(request, batching.AlterPartitions)
    names = tuple(change.partition for change in request.changes)
    is_failing = "STALE_BROKER_EPOCH" if error else None
    return Batch(now, names, now + round_trip_ms, is_failing)


def plot_batches(
    submitted: dict[str, int], requests: list[Batch], *, ax: Axes | None = None
) -> Axes:
    """Each partition's change: pale while it waits to be sent, solid while its request is away."""
    ax = ax or plt.subplots(figsize=(9.5, 1.2 + 0.32 * len(submitted)))[1]
    for row, (name, ms) in enumerate(submitted.items()):
        mine = [b for b in requests if name in b.partitions]
        ax.barh(row, mine[-1].answered_ms - ms, left=ms, height=0.6, color=PALE)
        for batch in mine:
            nth = requests.index(batch)
            width = batch.answered_ms - batch.sent_ms
            ax.barh(row, width, left=batch.sent_ms, height=0.6, color=broker_colour(nth + 1))
            text = f"request {nth + 1}{' fails' if batch.error else ''}"
            ax.text(batch.sent_ms + 3, row, text, fontsize=7, va="center", color="white")
    ax.set_yticks(range(len(submitted)), [plain(name) for name in submitted])
    ax.set_ylim(len(submitted) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(0, None)
    ax.set_xlabel("time (ms)")
    bare(ax, "bottom")
    ax.set_title(plain(batches_finding(submitted, requests)), fontsize=10, loc="left")
    return ax


def batches_finding(submitted: dict[str, int], requests: list[Batch]) -> str:
    """How many requests, and who waited longest."""
    done = {p: b.answered_ms for b in requests for p in b.partitions}
    waits = {p: done[p] - ms for p, ms in submitted.items()}
    last = max(waits, key=waits.__getitem__)
    return (
        f"{len(submitted)} changes in {len(requests)} requests, one at a time: "
        f"{last} waits longest, {waits[last]} ms"
    )
