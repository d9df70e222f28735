"""Plots of numbers: curves with bands, bars, ticks, points.

Each takes named sequences and a title with the finding, and returns the Axes. Colours and markers
come from the names (`style.looks`), so a version looks the same everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from isrlab.show import style

Numbers: TypeAlias = "Sequence[float] | np.ndarray[Any, Any] | pd.Series[Any] | pd.Index[Any]"
_THOUSANDS = FuncFormatter(style.thousands)


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of one line; `low` and `high` are its band, `look` its colour and marker.

    `style` is matplotlib's for the line ("" for points only); `is_step`: it holds until the next.
    """

    x: Numbers
    y: Numbers
    low: Numbers | None = None
    high: Numbers | None = None
    look: tuple[str, str] | None = None
    style: str = "-"
    is_step: bool = False
    width: float | None = None


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis: its label, with the unit, and its kind; it begins at `low`, or 0 unless "log"."""

    label: str
    kind: str = "linear"
    ticks: Numbers | None = None
    names: Sequence[str] | None = None
    low: float | None = None
    high: float | None = None


def plot_curves(
    curves: Mapping[str, Curve],
    title: str,
    scales: tuple[Scale, Scale],
    *,
    marks: Mapping[float, str] | None = None,
    limits: Mapping[float, str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Lines with their bands. `marks` are dotted vertical lines, `limits` horizontal ones."""
    ax = ax or style.axes(7.6, 3.4)
    chosen = style.looks(curves)
    for name, curve in curves.items():
        colour, marker = curve.look or chosen[name]
        points: dict[str, Any] = {"marker": marker}
        if len(curve.x) > 60:  # too many for markers; a cloud is small and pale
            points = {} if curve.style else {"marker": marker, "markersize": 3, "alpha": 0.45}
        if curve.low is not None and curve.high is not None:
            ax.fill_between(
                curve.x, curve.low, curve.high, color=colour, alpha=0.2, linewidth=0,
                step="post" if curve.is_step else None,
            )  # fmt: skip
        ax.plot(
            curve.x, curve.y, color=colour, linestyle=curve.style or "none", linewidth=curve.width,
            drawstyle="steps-post" if curve.is_step else "default", label=style.plain(name),
            **points,
        )  # fmt: skip
    for axis, scale in (("x", scales[0]), ("y", scales[1])):
        _scale(ax, axis, scale)
    for place, (x, text) in enumerate((marks or {}).items()):
        is_far = ax.transAxes.inverted().transform(ax.transData.transform((x, 0)))[0] > 0.7
        style.mark(ax, x, text, side="right" if is_far else "left", y=0.98 - 0.07 * (place % 2))
    for y, text in (limits or {}).items():
        style.limit(ax, y, text)
    if len(curves) > 1:
        style.legend_below(ax)
    return style.finish(ax, title)


def _scale(ax: Axes, which: str, scale: Scale) -> None:
    axis, options = getattr(ax, f"{which}axis"), {"linthresh": 1} if scale.kind == "symlog" else {}
    getattr(ax, f"set_{which}scale")(scale.kind, **options)
    axis.set_major_formatter(_THOUSANDS)
    if scale.ticks is not None:
        names = scale.names or [style.thousands(tick) for tick in scale.ticks]
        axis.set_ticks(scale.ticks, names)
        axis.set_minor_locator(NullLocator())
    low = 0.0 if scale.low is None and scale.kind != "log" else scale.low
    ax.set(**{f"{which}lim": (low, scale.high), f"{which}label": scale.label})


def plot_bars(
    rows: Sequence[str],
    parts: Mapping[str, Numbers],
    title: str,
    label: str,
    *,
    notes: Sequence[str] | None = None,
    colours: Mapping[str, str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """A bar for each row, made of parts; negative parts to the left of zero. `notes`: at its end.

    Colours are those of `style.STATES` for parts that are states, or `colours`.
    """
    ax = ax or style.axes(8.0, 1.0 + 0.36 * max(len(rows), 2))
    chosen = style.looks(parts)
    places = np.arange(len(rows))
    ends = {sign: np.zeros(len(rows)) for sign in (-1, 1)}
    for name, values in parts.items():
        sizes = np.asarray(values, float)
        sign = -1 if (sizes < 0).any() else 1
        colour = (colours or {}).get(name) or style.STATES.get(name) or chosen[name][0]
        ax.barh(places, sizes, left=ends[sign], color=colour, height=0.62, label=style.plain(name))
        ends[sign] = ends[sign] + sizes
    for place, end in enumerate(ends[1]):
        style.note(ax, end, place, notes[place] if notes else style.thousands(end), fontsize=8)
    style.name_rows(ax, rows)
    ax.margins(x=0.22)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: style.thousands(abs(value))))
    if not (ends[-1] < 0).any():
        ax.set_xlim(left=0)
    ax.set_xlabel(label)
    if len(parts) > 1:
        style.legend_below(ax)
    return style.finish(ax, title, spines=("bottom",))


def plot_ticks(
    rows: Mapping[str, Mapping[str, Numbers]],
    title: str,
    scale: Scale,
    *,
    notes: Mapping[str, str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Single measurements: a tick for each, in rows, with the groups of a row side by side.

    A group without a name has the row's colour. The range of each row is shaded.
    """
    ax = ax or style.axes(9.0, 1.1 + 0.5 * max(len(rows), 2))
    groups = list(dict.fromkeys(group for row in rows.values() for group in row))
    chosen = style.looks([*groups, *rows])
    for y, (name, row) in enumerate(rows.items()):
        values = [float(value) for numbers in row.values() for value in numbers] or [0.0]
        ax.barh(y, max(values) - min(values), 0.6, left=min(values), color=style.PALE, zorder=0)
        for nth, group in enumerate(groups):
            numbers = np.asarray(row.get(group, ()), float)
            lift = 0.22 * (nth - (len(groups) - 1) / 2) if len(groups) > 1 else 0.0
            ax.plot(numbers, np.full(len(numbers), y + lift), "|",
                    color=style.STATES.get(group) or chosen[group or name][0],
                    markersize=14 if len(groups) == 1 else 8,
                    markeredgewidth=2.5 if len(numbers) < 4 else 1.2 if len(numbers) < 20 else 0.6,
                    label=style.plain(group) if y == 0 else None)  # fmt: skip
    _scale(ax, "x", scale)
    style.name_rows(ax, rows, notes)
    if len(groups) > 1:
        style.legend_below(ax)
    return style.finish(ax, title, spines=("bottom",))
