"""One style for all figures, with colours that colour-blind readers can distinguish.

The log end offset is a solid line, the high watermark a dashed one, uncommitted records are
hatched; a broker keeps its colour, a version its colour and marker, a state its colour, in every
notebook. Sizes, fonts and spines are `isrlab.mplstyle`. Text that comes from logs or scripts is
escaped: matplotlib would read a dollar sign as mathematics.
"""

# ruff: noqa: F405
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from IPython import get_ipython
from IPython.core.pylabtools import print_figure
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import offset_copy

from isrlab.engine.versions import PRESETS, KafkaVersion
from isrlab.events.wording import counted as counted
from isrlab.events.wording import duration as duration
from isrlab.events.wording import listed as listed
from isrlab.show.colours import *  # noqa: F403

plt.style.use(Path(__file__).with_name("isrlab.mplstyle"))

WIDTH = 9.2  # inches: the widest that a page shows without scaling
_CHARACTERS_PER_INCH = 12.5  # of a title

MARKERS = ("o", "s", "D", "^", "v", "P")
_BACK = {"facecolor": WHITE, "edgecolor": "none", "pad": 0.5, "alpha": 0.8}  # of text over lines
_DOTTED: dict[str, Any] = {"color": INK, "linewidth": 0.8, "linestyle": ":"}


def version_look(version: str | KafkaVersion) -> tuple[str, str]:
    """The colour and the marker of a version's generation, the same in every figure."""
    place = list(PRESETS.values()).index(PRESETS[KafkaVersion.of(version).column])
    return GENERATIONS[place], MARKERS[(place + place // len(MARKERS)) % len(MARKERS)]


def looks(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """A colour and a marker for each name: those of a version or a broker if it begins with one."""
    chosen: dict[str, tuple[str, str]] = {}
    for place, name in enumerate(names):
        if name.startswith("broker ") and name.split()[1].isdigit():
            chosen[name] = broker_colour(int(name.split()[1])), MARKERS[place % len(MARKERS)]
            continue
        try:
            chosen[name] = version_look(name.split()[0])
        except (ValueError, IndexError):
            chosen[name] = SERIES[place % len(SERIES)], MARKERS[place % len(MARKERS)]
    return chosen


# Making figures


def axes(width: float, height: float) -> Axes:
    """One Axes on a new figure, sizes in inches; narrowed to what a page shows."""
    return panels(1, 1, (width, height))[1][0, 0]


def panels(
    rows: int, columns: int, size: tuple[float, float], **options: Any
) -> tuple[Figure, np.ndarray]:
    """A new picture of `size` inches, at most `WIDTH` wide, and its Axes, object[rows, columns];
    `options` are those of plt.subplots."""
    size = min(size[0], WIDTH), size[1]
    options |= {"figsize": size, "FigureClass": Picture}
    return plt.subplots(rows, columns, squeeze=False, **options)


class Picture(Figure):
    """A figure that a notebook stores together with its titles as alt text.

    Jupyter shows the open figures after a cell. One that is also the cell's value is shown when
    Jupyter shows the value, after those drawn before it, and not again; Axes are no value to show.
    So no cell needs a semicolon, which Jupyter ignores in cells that nbval runs.
    """

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
        data = {"text/plain": repr(self), "image/png": print_figure(self, fmt="png", base64=True)}
        return data, {"image/png": {"alt": alt_text(self)}}

    def _ipython_display_(self) -> None:
        drawn = [plt.figure(number) for number in plt.get_fignums()]
        for figure in drawn[: drawn.index(self) + 1] if self in drawn else [self]:
            if isinstance(figure, Picture):
                data, about = figure._repr_mimebundle_()
                display(data, metadata=about, raw=True)
                plt.close(figure)


if shell := get_ipython():
    shell.display_formatter.ipython_display_formatter.for_type(Axes, lambda ax: None)


def alt_text(figure: Figure) -> str:
    """The titles of a figure, the finding first: for readers who do not see it."""
    titles = [figure.get_suptitle()]
    titles += [ax.get_title(loc="left") or ax.get_title() for ax in figure.axes]
    parts = [" ".join(title.split()).rstrip(".") for title in titles if title]
    return ". ".join(parts).replace(r"\$", "$").replace("\\\\", "\\") + "."


def finish(ax: Axes, title: str, *, spines: Sequence[str] = ("left", "bottom")) -> Axes:
    """The finding as the title, wrapped to the figure, and only the named spines, with ticks."""
    for name, spine in ax.spines.items():
        spine.set_visible(name in spines)
    ax.tick_params(left="left" in spines, bottom="bottom" in spines)
    is_alone = len(ax.figure.axes) == 1
    names = [line for tick in ax.get_yticklabels() for line in tick.get_text().split("\n")]
    left = 0.066 * max(map(len, names), default=0) * ax.figure.dpi / ax.figure.bbox.width
    share = 0.95 if is_alone else min(0.95, 1.35 * ax.get_position().width)
    text = _wrapped(title, ax, share - left)  # it begins where the axes do
    if is_alone and isinstance(ax.figure, Figure):
        ax.figure.set_figheight(ax.figure.get_figheight() + 0.17 * max(0, text.count("\n") - 1))
    is_above = ax.xaxis.get_tick_params().get("labeltop")  # else there is nothing to measure
    ax.set_title(text, y=None if is_above else 1.0)
    return ax


def headline(figure: Figure, title: str) -> Figure:
    """The finding of several panels together."""
    figure.suptitle(_wrapped(title, figure.axes[0], 0.9), x=0.01, ha="left", fontsize=11)
    return figure


def _wrapped(title: str, ax: Axes, share: float) -> str:
    """A title, escaped, in lines that fit into this share of the figure's width."""
    inches = ax.figure.bbox.width / ax.figure.dpi
    width = max(30, int(inches * share * _CHARACTERS_PER_INCH))
    lines = plain(title).replace(" → ", "\N{NO-BREAK SPACE}→\N{NO-BREAK SPACE}").split("\n")
    return "\n".join(part for line in lines for part in textwrap.wrap(line, width))


def legend_below(ax: Axes) -> None:
    """Put the legend under the axes and their label, where it hides nothing."""
    handles, labels = ax.get_legend_handles_labels()
    if not handles:
        return
    longest, inches = max(map(len, labels)), ax.figure.bbox.width / ax.figure.dpi
    options: dict[str, Any] = {"ncols": max(1, min(4, int(inches * 14 / (longest + 6))))}
    if len(ax.figure.axes) == 1:
        ax.figure.legend(handles, labels, loc="outside lower left", **options)
        return
    below = offset_copy(ax.transAxes, ax.get_figure(root=True), y=-30, units="points")
    options |= {"bbox_to_anchor": (0, 0), "bbox_transform": below, "borderaxespad": 0}
    ax.legend(handles, labels, loc="upper left", **options)  # each panel has its own


def name_rows(ax: Axes, names: Collection[str], notes: Mapping[str, str] | None = None) -> None:
    """Rows 0, 1, ... downwards: their names at the left, the `notes` of some at the right end."""
    ax.set_yticks(range(len(names)), [plain(name, 60) for name in names])
    ax.set_ylim(len(names) - 0.4, -0.6)
    for row, name in enumerate(names):
        if notes and name in notes:
            ax.text(1.01, row, plain(notes[name]), fontsize=8, va="center",
                    transform=ax.get_yaxis_transform())  # fmt: skip


def note(ax: Axes, x: float, y: float, text: str, *, points: float = 4, **options: Any) -> None:
    """Small text, `points` to the right (or left) of a place; `options` are those of matplotlib's
    text, such as its colour."""
    look: dict[str, Any] = {"fontsize": 8, "va": "center"}
    look |= {"ha": "left" if points > 0 else "right"} | options
    ax.annotate(plain(text), (x, y), (points, 0), textcoords="offset points", **look)


def mark(ax: Axes, x: float, text: str = "", *, side: str = "left", y: float = 0.98) -> None:
    """A dotted vertical line with its name at the top; `side` of the name touches the line."""
    ax.axvline(x, **_DOTTED)
    ax.text(x, y, f" {plain(text)} ", transform=ax.get_xaxis_transform(), fontsize=8, va="top",
            ha=side, bbox=_BACK if text else None)  # fmt: skip


def limit(ax: Axes, y: float, text: str = "") -> None:
    """A dotted horizontal line with its name at the right end."""
    ax.axhline(y, **_DOTTED)
    ax.annotate(plain(text), (1, y), (0, 2), xycoords=ax.get_yaxis_transform(), fontsize=8,
                va="bottom", ha="right", bbox=_BACK, textcoords="offset points")  # fmt: skip


# Words and numbers


def plain(text: object, most: int = 400) -> str:
    """Text to draw literally: no formulas or control characters, of limited length."""
    return printable(text, most).replace("\\", "\\\\").replace("$", r"\$")


def printable(text: object, most: int = 400) -> str:
    """Text without control characters, limited in length."""
    shown = "".join(
        c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in str(text)
    )
    return shown[: most // 2] + "…" + shown[-(most // 2) :] if len(shown) > most else shown


def thousands(value: float, _: object = None) -> str:
    """A tick label: 12,000; 12.5; 0.5."""
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"
