"""The steps of a story, and how likely a promise is to break if chance goes on after each."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from matplotlib.figure import Figure

from isrlab.show import style
from isrlab.world.decided import Decision

_LONGEST = 62  # characters of a step's text
_PROMISES = {"committed_records_survive": "a committed record is lost", "logs_agree": "logs part"}


def plot_decided(curves: Sequence[Decision]) -> Figure:
    """A curve with its band of 95 % for each version; the step that decides the first is marked.

    The steps and what each did are those of the first version.
    """
    steps = curves[0].steps
    texts = [textwrap.shorten(step.text, _LONGEST, placeholder=" …") for step in steps]
    ax = style.axes(style.WIDTH, 1.5 + 0.2 * len(steps))
    for curve in curves:
        colour, marker = style.version_look(curve.version)
        places = [step.number for step in curve.steps]
        low, high = zip(*(step.interval for step in curve.steps), strict=True)
        ax.fill_betweenx(places, low, high, color=colour, alpha=0.2, linewidth=0)
        ax.plot([step.share for step in curve.steps], places, color=colour, marker=marker,
                label=style.plain(curve.version), clip_on=False)  # fmt: skip
    if jump := curves[0].jump:
        ax.axhspan(jump.number - 0.5, jump.number + 0.5, color=style.PALE, zorder=0, linewidth=0)
    ax.set_yticks(range(len(steps)), [style.plain(f"{n}  {text}") for n, text in enumerate(texts)])
    ax.set(ylim=(len(steps) - 0.5, -0.5), xlim=(0, 1))
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    promise = _PROMISES.get(curves[0].promise, f"{curves[0].promise} is broken")
    ax.set_xlabel(f"continuations in which {promise}")
    style.legend_below(ax)
    style.finish(ax, "")
    figure = ax.get_figure(root=True)
    assert isinstance(figure, Figure)
    return style.headline(figure, "\n".join(curve.sentence for curve in curves))
