"""07: timing wheels and how they turn, parked fetches of a run, and when followers learn news."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import ipywidgets as widgets
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.projections import PolarAxes

from isrlab.closeups.purgatory import Move, Timer
from isrlab.engine import messages as m
from isrlab.engine.model import Leader, ParkedFetch
from isrlab.show import controls, style
from isrlab.show.bands import Event, Span, plot_bands
from isrlab.show.curves import Curve, Scale, plot_curves
from isrlab.world.frames import Frame
from isrlab.world.script import Run

CAUSES = {  # what completes a parked fetch: colour, mark, words
    "append": (style.GREEN, "o", "new records"),
    "high watermark": (style.BLUE, "D", "a new high watermark"),
    "expiry": (style.ORANGE, "^", "timeout"),
    "other": (style.GREY, "s", "something else"),
    "": (style.PALE, "", "still waits"),
}


# Wheels


def plot_turning(timer: Timer, times_ms: Sequence[int]) -> Figure:
    """The wheels at some moments, ascending, the finest inside; the title says what has run.

    Slot 0 is at the top, time goes clockwise; the grey slot is where a wheel's clock is. A dot is
    a task, coloured by its name.
    """
    columns, all_moves = min(3, len(times_ms)), list[Move]()
    rows = -(-len(times_ms) // columns)
    size = max(4.2, 3.7 * columns), 4.2 * rows
    figure, grid = style.panels(rows, columns, size, subplot_kw={"projection": "polar"})
    for ax in grid.flat:
        ax.axis("off")
    for now_ms, ax in zip(times_ms, grid.flat, strict=False):
        timer, moves = timer.advance(now_ms)
        all_moves += moves
        _draw_wheels(ax, timer, now_ms)
        ax.set_title(style.plain(_news(timer, moves)), fontsize=9, loc="center")
    if len(times_ms) == 1:
        return figure
    off_ms = [abs(move.at_ms - move.task.expiration_ms) for move in all_moves if move.runs]
    title = f"{len(off_ms)} tasks run, "
    title += f"up to {max(off_ms)} ms off" if any(off_ms) else "each in its millisecond"
    title += f", after {len(all_moves) - len(off_ms)} moves to finer wheels"
    return style.headline(figure, f"{title}; {len(timer.tasks)} left")


def _news(timer: Timer, moves: Sequence[Move]) -> str:
    """What has moved since the picture before."""
    ran = [f"{move.task.id} at {move.at_ms} ms" for move in moves if move.runs]
    fell = sorted({move.task.id for move in moves if not move.runs})
    parts = [f"runs: {style.listed(ran)}"] if ran else []
    parts += [f"finer wheel: {style.listed(fell)}"] if fell else []
    return "; ".join(parts) or f"{style.counted(len(timer.tasks), 'task')} left"


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
                at = (wheel.slot(begins_ms) + 0.5) * step, bottom + (nth + 0.5) / len(tasks)
                colour = style.broker_colour(sum(map(ord, task.id)))
                box = {"boxstyle": "circle", "facecolor": colour, "edgecolor": style.WHITE}
                ax.text(*at, style.plain(task.id), fontsize=7, fontweight="bold",
                        color=style.WHITE, bbox=box, **middle)  # fmt: skip
        ground = {"facecolor": style.WHITE, "edgecolor": "none", "pad": 0.4}
        label = f"{wheel.tick_ms:,} ms a slot"
        ax.text(0, bottom + 1.1, label, fontsize=6.5, bbox=ground, **middle)
    ax.text(0, 0, f"{now_ms} ms", fontsize=10, **middle)


def wheel_slider(timer: Timer, until_ms: int) -> widgets.VBox:
    """A slider through time, in ms; the wheels are redrawn as the reader moves it."""
    slider = widgets.IntSlider(0, 0, until_ms, description="ms", layout={"width": "560px"})
    return controls.redrawn(
        (slider,), lambda: plot_turning(timer.advance(slider.value - 1)[0], [slider.value])
    )


# Parked fetches of a run


class Wait(NamedTuple):
    """One fetch at the leader, from being parked to being answered (None: it still waits)."""

    replica: int
    start_ms: int
    end_ms: int | None
    cause: str


def waits(run: Run) -> list[Wait]:
    """Every fetch that was parked in a run, by what completed it; times are since its start."""
    since, ended = dict[ParkedFetch, int](), list[Wait]()
    for frame in run.frames:
        now_ms = frame.now_ms - run.frames[run.first_frame].now_ms
        roles = [broker.role for broker in frame.brokers.values()]
        waiting = {p for role in roles if isinstance(role, Leader) for p in role.parked}
        for p in since.keys() - waiting if now_ms >= 0 else ():
            ended.append(Wait(p.fetch.replica, since[p], now_ms, _cause(p, frame)))
        since = {parked: since.get(parked, now_ms) for parked in waiting}
    ended += [Wait(parked.fetch.replica, start_ms, None, "") for parked, start_ms in since.items()]
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
    """Parked fetches over time: a bar is a wait, its colour and the mark at its end what ended it.

    Above them the appends and the high watermark of the leader; in each follower's row a bar where
    it learns the high watermark.
    """
    shown, frames = waits(run), run.frames[run.first_frame :]
    leader, last_s = frames[-1].controller.leader, (frames[-1].now_ms - frames[0].now_ms) / 1000
    appends = f"leader {leader}: appends"
    names = {leader: f"leader {leader}: high watermark"}
    names |= {number: f"fetches of {number}" for number in sorted({w.replica for w in shown})}
    rows = {name: list[Span]() for name in (appends, *names.values())}
    events = {name: list[Event]() for name in rows}
    for wait in shown:
        name, (colour, marker, _) = names[wait.replica], CAUSES[wait.cause]
        end_s = last_s if wait.end_ms is None else wait.end_ms / 1000
        rows[name].append(Span(max(wait.start_ms, 0) / 1000, end_s, colour))
        events[name] += [Event(end_s, marker, colour)] if marker else []
    for before, after in pairwise(frames):
        now_s = (after.now_ms - frames[0].now_ms) / 1000
        if isinstance(after.message, m.Produce) and after.target == leader:
            events[appends].append(Event(now_s, "v", style.INK))
        for number in names.keys() & after.disks.keys():
            new = after.disks[number].high_watermark
            if new != before.disks[number].high_watermark:
                events[names[number]].append(Event(now_s, "|", style.INK, f"HW {new}"))
    legend = {c: f"ended by {text}" if marker else text for c, marker, text in CAUSES.values()}
    causes = [wait.cause for wait in shown if wait.cause]
    texts = [f"{n} by {text}" for cause, (*_, text) in CAUSES.items() if (n := causes.count(cause))]
    title = f"{len(causes)} parked fetches answered: {', '.join(texts)}"
    title = title if causes else "No fetch is answered"
    ax = plot_bands(rows, title, events=events, legend=legend)
    ax.set_xlim(-0.01 * last_s, 1.04 * last_s)
    return ax


# When the follower learns the high watermark


def news_delays_ms(run: Run) -> list[int]:
    """For each high watermark of the leader, ms until every live replica knows as much."""
    frames = run.frames[run.first_frame :]
    leader, delays = frames[-1].controller.leader, []
    for i, (before, after) in enumerate(pairwise(frames), start=1):
        goal = after.disks[leader].high_watermark
        if goal > before.disks[leader].high_watermark:
            lows = ((f, min(b.log.high_watermark for b in f.brokers.values())) for f in frames[i:])
            known_ms = next((frame.now_ms for frame, low in lows if low >= goal), None)
            delays += [] if known_ms is None else [known_ms - after.now_ms]
    return delays


def plot_news(delays_ms: Mapping[str, Mapping[str, float]]) -> Axes:
    """Delays in ms: for each producer (key) and each version, until the followers know.

    The title says which versions are quickest, for the first producer.
    """
    producer, delays = next(iter(delays_ms.items()))
    worst, numbers = max(delays.values()), range(len(delays))
    title, quick = "Every version:", {name: ms for name, ms in delays.items() if ms < worst}
    if quick:
        title = f"{style.listed(list(quick))}: {max(quick.values()):.0f} ms, all others"
    curves = {name: Curve(numbers, list(ms.values()), style=":") for name, ms in delays_ms.items()}
    places = Scale("Kafka version", ticks=numbers, names=list(delays), low=-0.5)
    delay = Scale("ms from the leader's high watermark\nto the followers'")
    title += f" {worst:.0f} ms ({producer})"
    return plot_curves(curves, title, (places, delay), ax=style.axes(9, 3.6))
