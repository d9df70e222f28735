"""07: timing wheels and how they turn, parked fetches of a run, and when followers learn news."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

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


class Turn(NamedTuple):
    """The wheels at one moment, and what moved since the moment before."""

    now_ms: int
    timer: Timer
    moves: tuple[Move, ...] = ()


def turns(timer: Timer, times_ms: Iterable[int]) -> list[Turn]:
    """The wheels at each of these times, ascending, in ms."""
    found = []
    for now_ms in times_ms:
        timer, moves = timer.advance(now_ms)
        found.append(Turn(now_ms, timer, moves))
    return found


def plot_turning(found: Sequence[Turn], names: Sequence[str] = ()) -> Figure:
    """The wheels at some moments, the finest inside; slot 0 is at the top, time goes clockwise.

    The grey slot is where a wheel's clock is. A dot is a task; `names` gives each its colour
    (default: those of the first moment, in order).
    """
    columns = min(3, len(found))
    rows = -(-len(found) // columns)
    names = names or sorted(task.id for task in found[0].timer.tasks)
    size = (max(4.2, 3.7 * columns), 4.2 * rows)
    figure, grid = style.panels(rows, columns, size, subplot_kw={"projection": "polar"})
    for ax in grid.flat[len(found) :]:
        ax.axis("off")
    for turn, ax in zip(found, grid.flat, strict=False):
        _draw_wheels(ax, turn, names)
    return style.headline(figure, turning_finding(found)) if len(found) > 1 else figure


def _draw_wheels(ax: PolarAxes, turn: Turn, names: Sequence[str]) -> None:
    """A ring of bars for each wheel, 1 wide, from radius 1.2 on."""
    ax.set_theta_zero_location("N")
    ax.set_theta_direction(-1)
    for level, wheel in enumerate(turn.timer.wheels):
        bottom, step = 1.2 + 1.2 * level, 2 * np.pi / wheel.size
        colours = ["#BBBBBB" if n == wheel.hand else style.WHITE for n in range(wheel.size)]
        ax.bar(np.arange(wheel.size) * step, 1, step, bottom, align="edge", color=colours,
               edgecolor=style.GREY, linewidth=0.6)  # fmt: skip
        for number, slot in wheel.slots.items():
            for nth, task in enumerate(slot.tasks):
                at = (number + 0.5) * step, bottom + (nth + 0.5) / len(slot.tasks)
                colour = style.broker_colour(names.index(task.id) + 1)
                box = {"boxstyle": "circle", "facecolor": colour, "edgecolor": style.WHITE}
                ax.text(*at, style.plain(task.id), ha="center", va="center", fontsize=7,
                        fontweight="bold", color=style.WHITE, bbox=box)  # fmt: skip
        ground = {"facecolor": style.WHITE, "edgecolor": "none", "pad": 0.4}
        ax.text(0, bottom + 1.1, f"{wheel.tick_ms:,} ms a slot", ha="center", va="center",
                fontsize=6.5, bbox=ground)  # fmt: skip
    ax.text(0, 0, f"{turn.now_ms} ms", ha="center", va="center", fontsize=10)
    ax.axis("off")
    ax.set_title(style.plain(turn_finding(turn)), fontsize=9, loc="center")


def turn_finding(turn: Turn) -> str:
    """What has moved since the last picture, in one sentence."""
    ran = [f"{m.task.id} at {m.at_ms} ms" for m in turn.moves if m.runs]
    fell = sorted({m.task.id for m in turn.moves if not m.runs})
    parts = [f"runs: {style.listed(ran)}"] if ran else []
    parts += [f"finer wheel: {style.listed(fell)}"] if fell else []
    return "; ".join(parts) or f"{style.counted(len(turn.timer.tasks), 'task')} left"


def turning_finding(found: Sequence[Turn]) -> str:
    """How many tasks ran, and whether on time."""
    runs = [m for turn in found for m in turn.moves if m.runs]
    late = max((abs(m.at_ms - m.task.expiration_ms) for m in runs), default=0)
    falls = sum(not m.runs for turn in found for m in turn.moves)
    timing = "each in its millisecond" if late == 0 else f"up to {late} ms off"
    left = len(found[-1].timer.tasks)
    return f"{len(runs)} tasks run, {timing}, after {falls} moves to finer wheels; {left} left"


def wheel_slider(timer: Timer, until_ms: int, step_ms: int = 1) -> widgets.VBox:
    """A slider through time, in ms; the wheels are redrawn as the reader moves it."""
    slider = widgets.IntSlider(
        value=0, min=0, max=until_ms, step=step_ms, description="ms",
        layout=widgets.Layout(width="560px"),
    )  # fmt: skip

    names = sorted(task.id for task in timer.tasks)

    def draw() -> Figure:
        before = timer.advance(slider.value - step_ms)[0] if slider.value else timer
        return plot_turning(turns(before, [slider.value]), names)

    return controls.redrawn((slider,), draw)


# Parked fetches of a run


class Wait(NamedTuple):
    """One fetch at the leader, from being parked to being answered (None: it still waits)."""

    replica: int
    start_ms: int
    deadline_ms: int
    end_ms: int | None
    cause: str


def waits(run: Run) -> list[Wait]:
    """Every fetch that was parked in a run, by what completed it; times are since its start."""
    start = run.frames[run.first_frame].now_ms
    since: dict[ParkedFetch, int] = dict.fromkeys(_parked(run.frames[0]), run.frames[0].now_ms)
    ends: list[tuple[ParkedFetch, int, int | None, str]] = []
    for before, after in pairwise(run.frames):
        for parked in _parked(before) - _parked(after):
            begun = since.pop(parked, before.now_ms)
            ends.append((parked, begun - start, after.now_ms - start, _cause(parked, after)))
        since |= dict.fromkeys(_parked(after) - _parked(before), after.now_ms)
    ends += [(parked, begun - start, None, "") for parked, begun in since.items()]
    return sorted(
        Wait(parked.fetch.replica, begun, begun + parked.fetch.max_wait_ms, end, cause)
        for parked, begun, end, cause in ends
        if end is None or end >= 0
    )


def _parked(frame: Frame) -> set[ParkedFetch]:
    roles = [b.role for b in frame.brokers.values() if isinstance(b.role, Leader)]
    return {parked for role in roles for parked in role.parked}


def _cause(parked: ParkedFetch, frame: Frame) -> str:
    if isinstance(frame.message, m.ExpireFetch):
        return "expiry"
    leader = frame.brokers.get(frame.target)
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
    found, frames = waits(run), run.frames[run.first_frame :]
    leader, last_ms = frames[-1].controller.leader, frames[-1].now_ms - frames[0].now_ms
    names = {leader: f"leader {leader}: high watermark"}
    names |= {number: f"fetches of {number}" for number in sorted({w.replica for w in found})}
    appends = f"leader {leader}: appends"
    rows: dict[str, list[Span]] = {appends: [], **{name: [] for name in names.values()}}
    events: dict[str, list[Event]] = {name: [] for name in rows}
    for wait in found:
        colour, marker, _ = CAUSES[wait.cause]
        end_ms = last_ms if wait.end_ms is None else wait.end_ms
        rows[names[wait.replica]].append(Span(max(wait.start_ms, 0) / 1000, end_ms / 1000, colour))
        if wait.cause:
            events[names[wait.replica]].append(Event(end_ms / 1000, marker, colour))
    for before, after in pairwise(frames):
        now_s = (after.now_ms - frames[0].now_ms) / 1000
        if isinstance(after.message, m.Produce) and after.target == leader:
            events[appends].append(Event(now_s, "v", style.INK))
        for number, log in after.disks.items():
            if number in names and log.high_watermark != before.disks[number].high_watermark:
                text = f"HW {log.high_watermark}"
                events[names[number]].append(Event(now_s, "|", style.INK, text))
    legend = {c: f"ended by {text}" if marker else text for c, marker, text in CAUSES.values()}
    ax = plot_bands(rows, waits_finding(found), events=events, legend=legend)
    ax.set_xlim(-0.01 * last_ms / 1000, 1.04 * last_ms / 1000)
    return ax


def waits_finding(found: Sequence[Wait]) -> str:
    """What ended the waits, in one sentence."""
    ended = [w.cause for w in found if w.end_ms is not None]
    texts = [f"{n} by {CAUSES[cause][2]}" for cause in CAUSES if (n := ended.count(cause))]
    return (
        f"{len(ended)} parked fetches answered: {', '.join(texts)}"
        if ended
        else "No fetch is answered"
    )


# When the follower learns the high watermark


def news_delays_ms(run: Run) -> list[int]:
    """For each high watermark of the leader, ms until every live replica knows as much."""
    frames = run.frames[run.first_frame :]
    leader, delays = frames[-1].controller.leader, []
    for i, (before, after) in enumerate(pairwise(frames), start=1):
        goal = after.disks[leader].high_watermark
        if goal > before.disks[leader].high_watermark:
            known = [all(b.log.high_watermark >= goal for b in f.brokers.values()) for f in frames]
            if True in known[i:]:
                delays.append(frames[known.index(True, i)].now_ms - after.now_ms)
    return delays


def plot_news(delays_ms: Mapping[str, Mapping[str, float]]) -> Axes:
    """Delays in ms: for each producer (key) and each version, until the followers know."""
    versions = list(next(iter(delays_ms.values())))
    curves = {
        producer: Curve(range(len(versions)), list(delays.values()), style=":")
        for producer, delays in delays_ms.items()
    }
    places = Scale("Kafka version", ticks=range(len(versions)), names=versions, low=-0.5)
    delay = Scale("ms from the leader's high watermark\nto the followers'")
    return plot_curves(curves, news_finding(delays_ms), (places, delay), ax=style.axes(9, 3.6))


def news_finding(delays_ms: Mapping[str, Mapping[str, float]]) -> str:
    """Which versions are quickest, in one sentence."""
    first = next(iter(delays_ms))
    worst = max(delays_ms[first].values())
    quick = [version for version, ms in delays_ms[first].items() if ms < worst]
    if not quick:
        return f"Every version: {worst:.0f} ms ({first})"
    ms = max(delays_ms[first][version] for version in quick)
    return f"{style.listed(quick)}: {ms:.0f} ms, all others {worst:.0f} ms ({first})"
