"""06: timing wheels, and how they turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets
import numpy as np
from matplotlib.figure import Figure
from matplotlib.projections import PolarAxes

from isrlab.closeups.purgatory import Move, Task, Timer
from isrlab.show import controls, style


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
    return controls.Redrawn((slider,), lambda ms: plot_wheels(timer.advance(before[ms])[0], ms))


def moves_of(delay_ms: int, tick_ms: int = 1) -> list[Move]:
    """Into which slots a task of an otherwise empty timer comes, until it runs."""
    timer, first = Timer.at(0, tick_ms=tick_ms).add(Task("t", delay_ms), now_ms=0)
    return [first, *timer.advance(delay_ms)[1]]
