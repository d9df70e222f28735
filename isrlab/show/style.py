"""One look for one thing in every figure: colours that a colour-blind reader tells apart.

The log end offset is a solid line, the high watermark a dashed one, what is not committed is
hatched; a broker keeps its colour, a version its colour and marker, a state its colour, in every
notebook. Sizes, fonts and spines are `isrlab.mplstyle`. Text that comes from logs or scripts is
escaped: matplotlib would read a dollar sign as mathematics.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import offset_copy

from isrlab.engine.versions import PRESETS, KafkaVersion

plt.style.use(Path(__file__).with_name("isrlab.mplstyle"))

MOST_PIXELS = 1_700  # the widest picture that a page shows without scrolling
MOST_NAMES = 5  # that a title lists
_CHARACTERS_PER_INCH = 12.5  # of a title

# Okabe and Ito's palette, without black and yellow
BLUE, ORANGE, GREEN = "#0072B2", "#E69F00", "#009E73"
PINK, SKY, VERMILION = "#CC79A7", "#56B4E9", "#D55E00"
INK, GREY, PALE, FAINT, WHITE = "#333333", "#8A9BA8", "#DDDDDD", "#F1F3F4", "#FFFFFF"
LOST = VERMILION
SERIES = (BLUE, VERMILION, GREEN, PINK, ORANGE, SKY)  # of what is neither broker nor version
MARKERS = ("o", "s", "D", "^", "v", "P")

STATES = {
    "leads": BLUE,
    "in sync": GREEN,
    "out": VERMILION,
    "stale": ORANGE,  # told something that is no longer true
    "waits": SKY,
    "away": "#666666",  # a broker that is down or does not answer
    "not known": "#EEEEEE",
    "false alarm": VERMILION,
    "real": GREY,
    "was": GREY,
    "now": BLUE,
    "measured": BLUE,
    "formula": VERMILION,
}
ISR_SIZES = {  # of a partition, by how many replicas are missing
    "full ISR": "#CFE3F2",
    "one missing": "#F3E79B",
    "more missing": ORANGE,
    "one copy left": VERMILION,
}
OUTCOMES = {
    "safe": "#C7E9DC",
    "lost": "#F6C28B",
    "diverged": "#E58A8A",
    "offline": "#D9D9D9",
    "stalled": "#CFC3E6",
    "flapping": "#F3E79B",
}
_BROKERS = (BLUE, ORANGE, GREEN, PINK, SKY, VERMILION)


def broker_colour(broker: int) -> str:
    return _BROKERS[(broker - 1) % len(_BROKERS)]


def version_look(version: str | KafkaVersion) -> tuple[str, str]:
    """The colour and the marker of a version's generation, the same in every figure."""
    place = list(PRESETS.values()).index(PRESETS[KafkaVersion.of(version).column])
    return SERIES[place % len(SERIES)], MARKERS[(place + place // len(SERIES)) % len(MARKERS)]


def looks(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """A colour and a marker for each name; a name that begins with a version has the version's."""
    chosen: dict[str, tuple[str, str]] = {}
    for place, name in enumerate(names):
        try:
            chosen[name] = version_look(name.split()[0])
        except (ValueError, IndexError):
            chosen[name] = SERIES[place % len(SERIES)], MARKERS[place % len(MARKERS)]
    return chosen


# Making figures


def axes(width: float, height: float) -> Axes:
    """One Axes on a new figure, sizes in inches; narrowed to what a page shows."""
    return plt.subplots(figsize=(min(width, MOST_PIXELS / 110), height))[1]


def panels(
    rows: int, columns: int, size: tuple[float, float], **options: object
) -> tuple[Figure, np.ndarray]:
    """A new figure of `size` inches and its Axes, object[rows, columns]; `options` of subplots."""
    width, height = size
    figure, grid = plt.subplots(
        rows, columns, figsize=(min(width, MOST_PIXELS / 110), height), squeeze=False, **options
    )  # type: ignore[call-overload]
    return figure, grid


def finish(ax: Axes, title: str, *, spines: Sequence[str] = ("left", "bottom")) -> Axes:
    """The finding as the title, wrapped to the figure, and only the named spines."""
    bare(ax, *spines)
    ax.set_title(_wrapped(plain(title), ax), loc="left")
    return ax


def headline(figure: Figure, title: str) -> Figure:
    """The finding of several panels together."""
    width = int(figure.get_figwidth() * _CHARACTERS_PER_INCH * 0.9)
    figure.suptitle("\n".join(textwrap.wrap(plain(title), width)), x=0.01, ha="left", fontsize=11)
    return figure


def _wrapped(title: str, ax: Axes) -> str:
    """A title in lines that fit over its axes: the whole figure's if it is the only one."""
    is_alone = len(ax.figure.axes) == 1
    share = 0.95 if is_alone else 0.95 * ax.get_position().width
    width = max(30, int(ax.figure.bbox.width / ax.figure.dpi * share * _CHARACTERS_PER_INCH))
    return "\n".join(part for line in title.split("\n") for part in textwrap.wrap(line, width))


def bare(ax: Axes, *sides: str) -> None:
    """Leave only the named spines, and no ticks where there is none."""
    for name, spine in ax.spines.items():
        spine.set_visible(name in sides)
    ax.tick_params(left="left" in sides, bottom="bottom" in sides)


def legend_below(ax: Axes) -> None:
    """The legend under the axes and their label, where it hides nothing."""
    handles, labels = ax.get_legend_handles_labels()
    longest = max((len(label) for label in labels), default=1)
    columns = max(1, min(4, int(ax.figure.bbox.width / ax.figure.dpi * 13 / (longest + 8))))
    if handles and len(ax.figure.axes) > 1:  # each panel has its own
        below = offset_copy(ax.transAxes, ax.get_figure(root=True), y=-30, units="points")
        ax.legend(handles, labels, loc="upper left", bbox_to_anchor=(0, 0), bbox_transform=below,
                  ncols=columns, borderaxespad=0)  # fmt: skip
    elif handles:
        ax.figure.legend(
            handles, labels, loc="outside lower left", ncols=columns, fontsize=8, frameon=False
        )


def mark(ax: Axes, x: float, text: str, *, side: str = "left") -> None:
    """A dotted vertical line with its name at the top."""
    ax.axvline(x, color=INK, linewidth=0.8, linestyle=":")
    pad = f" {text}" if side == "left" else f"{text} "
    ax.text(x, 0.98, pad, transform=ax.get_xaxis_transform(), fontsize=7, va="top", ha=side)


# Words and numbers


def plain(text: object, most: int = 400) -> str:
    """Text that matplotlib draws as it is: no formulas, no control characters, not too long."""
    return printable(text, most).replace("\\", "\\\\").replace("$", r"\$")


def printable(text: object, most: int = 400) -> str:
    """Text without control characters, and not too long."""
    shown = "".join(
        c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in str(text)
    )
    return shown[: most // 2] + "…" + shown[-(most // 2) :] if len(shown) > most else shown


def listed(names: Sequence[object], most: int = MOST_NAMES) -> str:
    """Names with commas; of many the first ones, and how many more."""
    shown = ", ".join(str(name) for name in names[:most])
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown


def counted(number: int, noun: str) -> str:
    """1 replica, 2 replicas."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(ms: float) -> str:
    """A time as one reads it: 340 ms, 12.4 s, 3 min 5 s, 2 h 10 min, 3 d 4 h."""
    seconds = ms / 1000
    if seconds < 1:
        return f"{ms:.0f} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    for size, unit, smaller, small in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= size:
            whole, rest = int(seconds // size), int(seconds % size // smaller)
            return f"{whole} {unit} {rest} {small}" if rest else f"{whole} {unit}"
    raise AssertionError(ms)


def thousands(value: float, _: object = None) -> str:
    """A tick label: 12,000; 12.5; 0.5."""
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"
