"""One look for one thing in every figure: colours that a colour-blind reader tells apart.

The log end offset is a solid line, the high watermark a dashed one, what is not committed is
hatched, and a broker keeps its colour. Text that comes from logs or scripts is escaped: matplotlib
would read a dollar sign as mathematics.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

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


def draw_matrix(ax: Axes, cells: dict[str, dict[str, tuple[str, str]]]) -> None:
    """A field for each row and column, in its (colour, word); the columns' names stand above."""
    rows, columns = list(cells), list(next(iter(cells.values())))
    for y, row in enumerate(rows):
        for x, column in enumerate(columns):
            colour, word = cells[row][column]
            ax.add_patch(Rectangle((x, y), 1, 1, facecolor=colour, edgecolor="white", linewidth=2))
            ax.text(x + 0.5, y + 0.5, word, ha="center", va="center", fontsize=8, color=INK)
    ax.set_xlim(0, len(columns))
    ax.set_ylim(len(rows), 0)
    ax.set_xticks([x + 0.5 for x in range(len(columns))], [plain(c) for c in columns])
    ax.set_yticks([y + 0.5 for y in range(len(rows))], [plain(r) for r in rows])
    ax.xaxis.tick_top()
    ax.tick_params(length=0, labelsize=9)
    bare(ax)
