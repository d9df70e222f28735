"""Notebook 05: parked fetches of a run, what wakes them, and the wheels that time them out."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import ipywidgets as widgets
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.projections import PolarAxes

from isrlab.engine import messages as m
from isrlab.engine.model import Leader, ParkedFetch
from isrlab.show import controls, style
from isrlab.show.bands import BandMark, Span, plot_bands
from isrlab.world.frames import Frame
from isrlab.world.script import Run
from isrlab_book.closeups import purgatory
from isrlab_book.closeups.purgatory import Move, Task, Timer
from isrlab_book.closeups.segment import Batch, Reader, SegmentedLog

CAUSES = {  # what completes a parked fetch: colour, mark, words
    "append": (style.SERIES[2], "o", "new records"),
    "high watermark": (style.SERIES[0], "D", "a new high watermark"),
    "expiry": (style.SERIES[1], "^", "timeout"),
    "other": (style.GREY, "s", "something else"),
    "": (style.PALE, "", "still waits"),
}


# Parked fetches of a run


class ParkedWait(NamedTuple):
    """One fetch at the leader, from when it is parked to its answer (None: it still waits)."""

    replica: int
    start_ms: int
    end_ms: int | None
    cause: str


def waits(run: Run) -> list[ParkedWait]:
    """Every fetch that was parked in a run, with its cause of completion; times from the start."""
    since, ended = dict[ParkedFetch, int](), list[ParkedWait]()
    for frame in run.frames:
        now_ms = frame.now_ms - run.frames[run.first_frame].now_ms
        roles = [broker.role for broker in frame.brokers.values()]
        waiting = {p for role in roles if isinstance(role, Leader) for p in role.parked}
        for p in since.keys() - waiting if now_ms >= 0 else ():
            ended.append(ParkedWait(p.fetch.replica, since[p], now_ms, _cause(p, frame)))
        since = {parked: since.get(parked, now_ms) for parked in waiting}
    ended += [
        ParkedWait(parked.fetch.replica, start_ms, None, "") for parked, start_ms in since.items()
    ]
    return sorted(ended)


def _cause(parked: ParkedFetch, frame: Frame) -> str:
    leader = frame.brokers.get(frame.target)
    if isinstance(frame.message, m.ExpireFetch):
        return "expiry"
    if leader is None or not isinstance(leader.role, Leader):
        return "other"
    if parked.fetch.offset < leader.log.log_end_offset:
        return "append"
    is_own = isinstance(frame.message, m.Fetch) and frame.message.replica == parked.fetch.replica
    return "other" if is_own else "high watermark"


def plot_waits(run: Run) -> Axes:
    """Parked fetches over time: each bar is a wait; its colour and end mark show what ended it.

    Above them the appends and the high watermark of the leader; in each follower's row a tick where
    it learns the high watermark.
    """
    shown, frames = waits(run), run.frames[run.first_frame :]
    leader, last_s = frames[-1].controller.leader, (frames[-1].now_ms - frames[0].now_ms) / 1000
    appends = f"leader {leader}: appends"
    names = {leader: f"leader {leader}: high watermark"}
    names |= {number: f"fetches of {number}" for number in sorted({w.replica for w in shown})}
    rows = {name: list[Span]() for name in (appends, *names.values())}
    events = {name: list[BandMark]() for name in rows}
    for wait in shown:
        name, (colour, marker, _) = names[wait.replica], CAUSES[wait.cause]
        end_s = last_s if wait.end_ms is None else wait.end_ms / 1000
        rows[name].append(Span(max(wait.start_ms, 0) / 1000, end_s, colour))
        events[name] += [BandMark(end_s, marker, colour)] if marker else []
    for before, after in pairwise(frames):
        now_s = (after.now_ms - frames[0].now_ms) / 1000
        if isinstance(after.message, m.Produce) and after.target == leader:
            events[appends].append(BandMark(now_s, "v", style.INK))
        for number in names.keys() & after.disks.keys():
            new = after.disks[number].high_watermark
            if new != before.disks[number].high_watermark:
                events[names[number]].append(BandMark(now_s, "|", style.INK, f"HW {new}"))
    legend = {c: f"ended by {text}" if marker else text for c, marker, text in CAUSES.values()}
    causes = [wait.cause for wait in shown if wait.cause]
    texts = [f"{n} by {text}" for cause, (*_, text) in CAUSES.items() if (n := causes.count(cause))]
    title = f"{len(causes)} parked fetches answered: {', '.join(texts)}"
    title = title if causes else "No fetch is answered"
    ax = plot_bands(rows, title, events=events, legend=legend)
    ax.set_xlim(-0.01 * last_s, 1.04 * last_s)
    return ax


# Which event wakes which request


def three_requests(
    wait_ms: int, reader: Reader = Reader.CONSUMER, open_transaction: int | None = None
) -> pd.DataFrame:
    """The answers to a follower, another reader, and a produce with acks=all: when, and why.

    Follower and reader wait at offset 3 from 0 ms on. At 20 ms the produce appends a record, at
    25 ms the follower's next fetch raises the high watermark to 4 and is parked.
    """
    log = SegmentedLog.empty("3.7").append(Batch(0, 2, size_bytes=300))
    log = replace(log, high_watermark=3, open_transaction=open_transaction)
    logs, room = {"t-0": log}, purgatory.Purgatory(Timer.at(0))
    asks = {"the follower's fetch": Reader.FOLLOWER, "the consumer's fetch": reader}
    for name, kind in asks.items():
        fetch = purgatory.parked_fetch(name, logs, [("t-0", kind, 3, 1_000)], deadline_ms=wait_ms)
        room, _ = room.watch(fetch, logs, now_ms=0)
    logs = {"t-0": log.append(Batch(3, 3, size_bytes=100))}
    room, appended = room.check("t-0", logs, purgatory.Cause.APPEND, now_ms=20)
    produce = purgatory.Operation(
        "the produce", ("t-0",), 30_000, purgatory.WaitingProduce((("t-0", 4),))
    )
    room, _ = room.watch(produce, logs, now_ms=20)
    logs = {"t-0": replace(logs["t-0"], high_watermark=4)}
    room, raised = room.check("t-0", logs, purgatory.Cause.HIGH_WATERMARK, now_ms=25)
    asked = [("t-0", Reader.FOLLOWER, 4, 1_000)]
    again = purgatory.parked_fetch(
        "the follower's next fetch", logs, asked, deadline_ms=25 + wait_ms
    )
    room, _ = room.watch(again, logs, now_ms=25)
    _, expired = room.advance(now_ms=25 + wait_ms)
    rows = [(c.at_ms, c.operation.id, str(c.cause)) for c in (*appended, *raised, *expired)]
    return pd.DataFrame(rows, columns=["ms", "who is answered", "by"])


# The wheels


def plot_wheels(timer: Timer, now_ms: int) -> Figure:
    """The wheels at a moment, the finest inside; the title says what has just moved.

    Slot 0 is at the top, time goes clockwise; the grey slot is where a wheel's clock is. A dot is
    a task, coloured by its name.
    """
    timer, moves = timer.advance(now_ms)
    figure, grid = style.panels(1, 1, (4.2, 4.2), subplot_kw={"projection": "polar"})
    ax = grid[0, 0]
    ax.axis("off")
    _draw_wheels(ax, timer, now_ms)
    ax.set_title(style.plain(_moved(timer, moves)), fontsize=9, loc="center")
    return figure


def _moved(timer: Timer, moves: Sequence[Move]) -> str:
    """The tasks that moved since the previous picture."""
    ran = [f"{move.task.id} at {move.at_ms} ms" for move in moves if move.runs]
    fell = sorted({move.task.id for move in moves if not move.runs})
    parts = [f"runs: {style.listed(ran)}"] if ran else []
    parts += [f"finer wheel: {style.listed(fell)}"] if fell else []
    return "; ".join(parts) or f"The wheels hold {style.counted(len(timer.tasks), 'task')}"


def _draw_wheels(ax: PolarAxes, timer: Timer, now_ms: int) -> None:
    """A ring of bars for each wheel, 1 wide, from radius 1.2 on."""
    ax.set_theta_zero_location("N")
    ax.set_theta_direction(-1)
    middle: dict[str, Any] = {"ha": "center", "va": "center"}
    for level, wheel in enumerate(timer.wheels):
        bottom, step, hand = 1.2 + 1.2 * level, 2 * np.pi / wheel.size, wheel.slot(wheel.current_ms)
        colours = [style.PALE if slot == hand else style.WHITE for slot in range(wheel.size)]
        ax.bar(np.arange(wheel.size) * step, 1, step, bottom, align="edge", color=colours,
               edgecolor=style.GREY, linewidth=0.6)  # fmt: skip
        for begins_ms, tasks in wheel.slots.items():
            for nth, task in enumerate(tasks):
                along, across = (nth + 1) / (len(tasks) + 1), (nth + 0.5) / len(tasks)
                at = (wheel.slot(begins_ms) + along) * step, bottom + across
                colour = style.broker_colour(sum(map(ord, task.id)))
                box = {"boxstyle": "circle", "facecolor": colour, "edgecolor": style.WHITE}
                ax.text(*at, style.plain(task.id), fontsize=8, fontweight="bold",
                        color=style.WHITE, bbox=box, **middle)  # fmt: skip
        ground = {"facecolor": style.WHITE, "edgecolor": "none", "pad": 0.4}
        label = f"{wheel.tick_ms:,} ms a slot"
        ax.text(np.pi, bottom + 0.5, label, fontsize=8, bbox=ground, **middle)
    ax.text(0, 0, f"{now_ms} ms", fontsize=10, **middle)


def wheel_slider(timer: Timer, times_ms: Sequence[int]) -> widgets.VBox:
    """A slider through some moments, ascending, in ms; each picture says what has just moved."""
    before = dict(zip(sorted(times_ms), [-1, *sorted(times_ms)], strict=False))
    slider = controls.choice("ms", [*before], min(before))
    return controls.LiveFigure((slider,), lambda ms: plot_wheels(timer.advance(before[ms])[0], ms))


def moves_of(delay_ms: int, tick_ms: int = 1) -> list[Move]:
    """The slots that a task of an otherwise empty timer passes through until it runs."""
    timer, first = Timer.at(0, tick_ms=tick_ms).add(Task("t", delay_ms), now_ms=0)
    return [first, *timer.advance(delay_ms)[1]]
