"""One look for one thing in every figure: colours that a colour-blind reader tells apart.

The log end offset is a solid line, the high watermark a dashed one, what is not committed is
hatched, and a broker keeps its colour. Text that comes from logs or scripts is escaped: matplotlib
would read a dollar sign as mathematics.
"""

from __future__ import annotations

from matplotlib.axes import Axes

# Okabe and Ito's palette, without black and yellow
_BROKER_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
LOST = "#D55E00"
INK = "#333333"
PALE = "#DDDDDD"
OUTCOMES = {
    "safe": ("#C7E9DC", "safe"),
    "lost": ("#F6C28B", "lost"),
    "diverged": ("#E58A8A", "diverged"),
    "offline": ("#D9D9D9", "offline"),
    "stalled": ("#CFC3E6", "stalled"),
    "flapping": ("#F3E79B", "flapping"),
}


def broker_colour(broker: int) -> str:
    return _BROKER_COLOURS[(broker - 1) % len(_BROKER_COLOURS)]


def plain(text: object) -> str:
    """Text that matplotlib draws as it is."""
    return str(text).replace("\\", "\\\\").replace("$", r"\$")


def bare(ax: Axes, *sides: str) -> None:
    """Leave only the named spines."""
    for name, spine in ax.spines.items():
        spine.set_visible(name in sides)
