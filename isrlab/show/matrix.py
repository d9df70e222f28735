"""A table with a word in each field: the outcome of a schedule (row) in a version (column)."""

import textwrap
from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from isrlab.show import style


def plot_matrix(
    cells: Mapping[str, Mapping[str, str | tuple[str, str]]],
    title: str,
    *,
    colours: Mapping[str, str] | None = None,
    legend: Mapping[str, str] | None = None,
    size: tuple[float, float] = (0.74, 0.4),
    is_upright: bool = False,
) -> Axes:
    """A field for each row and column: a word in the word's colour, or a text and such a word.

    `colours` are for words outside `style.OUTCOMES`, and `legend` explains them; `size` is the
    width and height of a field in inches; `is_upright` turns the heads of columns.
    """
    rows, columns = list(cells), list(next(iter(cells.values())))
    texts = [cell if isinstance(cell, str) else cell[0] for row in cells.values()
             for cell in row.values()]  # fmt: skip
    words = [] if is_upright else [word for column in columns for word in column.split()]
    most = max(len(line) for text in [*words, *texts] for line in text.split("\n"))
    field = min(size[0], max(0.06 * most + 0.03, (style.WIDTH - 2) / len(columns)))
    heads = [
        textwrap.fill(c, int(field / 0.066), break_long_words=False, break_on_hyphens=False)
        for c in columns
    ]
    room = int((style.WIDTH - 0.2 - field * len(columns)) / 0.066)  # characters of a row's name
    names = [textwrap.fill(row, max(room, 16)) for row in rows]
    high = max(size[1], 0.08 + 0.14 * max(name.count("\n") + 1 for name in names))
    longest = max(len(line) for name in names for line in name.split("\n"))
    width = 0.4 + 0.066 * longest + field * len(columns)
    ax = style.axes(max(5.4, width), 1.0 + high * len(rows))
    shades = style.OUTCOMES | dict(colours or {})
    for y, row in enumerate(rows):
        for x, column in enumerate(columns):
            cell = cells[row][column]
            text, word = (cell, cell) if isinstance(cell, str) else cell
            colour = shades.get(word, style.PALE)
            ax.add_patch(Rectangle((x, y), 1, 1, facecolor=colour, edgecolor=style.WHITE, lw=1.5))
            ax.text(x + 0.5, y + 0.5, style.plain(text), ha="center", va="center", fontsize=8,
                    color=style.INK)  # fmt: skip
    ax.set_xlim(0, len(columns))
    ax.set_ylim(len(rows), 0)
    ax.set_xticks([x + 0.5 for x in range(len(columns))], [style.plain(head) for head in heads])
    ax.set_yticks([y + 0.5 for y in range(len(rows))], [style.plain(name) for name in names])
    ax.xaxis.tick_top()
    ax.tick_params(axis="x", rotation=90 * is_upright)
    for word, meaning in (legend or {}).items():
        colour = shades.get(word, style.PALE)
        ax.add_patch(Rectangle((0, 0), 0, 0, facecolor=colour, edgecolor=style.PALE, label=meaning))
    style.legend_below(ax)
    style.finish(ax, title, spines=())
    ax.tick_params(length=0, top=False)
    return ax
