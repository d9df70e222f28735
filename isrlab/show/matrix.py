"""A word in each field of a table: what happened to a schedule (row) in a version (column)."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from isrlab.show.style import (
    INK,
    OUTCOMES,
    PALE,
    WHITE,
    axes,
    finish,
    legend_below,
    listed,
    plain,
)


def plot_matrix(
    cells: Mapping[str, Mapping[str, str | tuple[str, str]]],
    title: str,
    *,
    colours: Mapping[str, str] | None = None,
    legend: Mapping[str, str] | None = None,
    chosen: tuple[str, str] | None = None,
    size: tuple[float, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """A field for each row and column: a word in the word's colour, or a text and such a word.

    `colours` are those of words that `style.OUTCOMES` does not know, `legend` says what they mean;
    `chosen` (row, column) is outlined; `size` is the width and height of a field in inches.
    """
    rows, columns = list(cells), list(next(iter(cells.values())))
    width, height = size or (0.74, 0.4)
    widest = max(len(row) for row in rows)
    ax = ax or axes(max(6.0, 0.4 + 0.075 * widest + width * len(columns)), 1.0 + height * len(rows))
    for y, row in enumerate(rows):
        for x, column in enumerate(columns):
            cell = cells[row][column]
            text, word = (cell, cell) if isinstance(cell, str) else cell
            colour = (colours or {}).get(word) or OUTCOMES.get(word, PALE)
            ax.add_patch(Rectangle((x, y), 1, 1, facecolor=colour, edgecolor=WHITE, linewidth=2))
            ax.text(x + 0.5, y + 0.5, plain(text), ha="center", va="center", fontsize=8, color=INK)
            if chosen == (row, column):
                ax.add_patch(Rectangle((x, y), 1, 1, fill=False, edgecolor=INK, lw=2.4, zorder=3))
    ax.set_xlim(0, len(columns))
    ax.set_ylim(len(rows), 0)
    ax.set_xticks([x + 0.5 for x in range(len(columns))], [plain(c) for c in columns])
    ax.set_yticks([y + 0.5 for y in range(len(rows))], [plain(r) for r in rows])
    ax.xaxis.tick_top()
    for word, meaning in (legend or {}).items():
        colour = (colours or {}).get(word, PALE)
        ax.add_patch(Rectangle((0, 0), 0, 0, facecolor=colour, edgecolor=PALE, label=meaning))
    legend_below(ax)
    finish(ax, title, spines=())
    ax.tick_params(length=0, top=False)
    return ax


def outcome_finding(outcomes: Mapping[str, Mapping[str, str]]) -> str:
    """Up to which version something bad happens, and from which on everything is safe."""
    columns = list(next(iter(outcomes.values())))
    bad = _last_with(outcomes, {"lost", "diverged"})
    if bad is None:
        return "No version loses anything"
    if bad + 1 < len(columns):
        return f"Records are lost up to {columns[bad]}; all is safe from {columns[bad + 1]} on"
    split = _last_with(outcomes, {"diverged"})
    if split is None or split + 1 == len(columns):
        return f"Even {listed(columns[bad:])} can lose committed records"
    return f"Logs diverge up to {columns[split]}, and not from {columns[split + 1]} on"


def _last_with(outcomes: Mapping[str, Mapping[str, str]], words: set[str]) -> int | None:
    """The place of the last column in which any row has one of the words."""
    hits = [i for row in outcomes.values() for i, word in enumerate(row.values()) if word in words]
    return max(hits, default=None)
