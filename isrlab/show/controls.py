"""Widgets around the figures: a slider through a run, and any figure redrawn as values change."""

from __future__ import annotations

import html
import io
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import ipywidgets as widgets
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isrlab.show.replicas import plot_replicas
from isrlab.world import words
from isrlab.world.frames import Frame
from isrlab.world.script import Run

_LOOK: dict[str, Any] = {
    "style": {"description_width": "160px"},
    "layout": widgets.Layout(width="560px"),
}


def step_slider(run: Run) -> widgets.VBox:
    """A slider through every step of a run: the message, and the replicas after it."""
    frames = _steps(run)
    slider = widgets.IntSlider(value=0, min=0, max=len(frames) - 1, description="step", **_LOOK)
    caption = widgets.HTML()

    @lru_cache(maxsize=len(frames))
    def picture(step: int) -> bytes:
        return png(plot_replicas(frames[step]))

    def draw() -> bytes:
        line = words.message_line(frames[slider.value])
        caption.value = f"<code>{html.escape(line)}</code>"
        return picture(slider.value)

    return redrawn((slider, caption), draw)


def choice(
    description: str,
    options: Sequence[float],
    value: float | None,
    form: Callable[[float], str] = "{:,}".format,
) -> widgets.SelectionSlider:
    """A slider over fixed values that moves by mouse or arrow keys and speaks when released."""
    values = sorted({*options, value} if value is not None else {*options})
    names = [(form(option), option) for option in values]
    return widgets.SelectionSlider(
        options=names, value=value, description=description, continuous_update=False, **_LOOK
    )


def pick(description: str, options: Sequence[Any], value: Any) -> widgets.Dropdown:
    """A list to choose from: values, or (name, value) pairs; `value` is added if it is missing."""
    values = [option[1] if isinstance(option, tuple) else option for option in options]
    options = [*options, *([] if value in values else [value])]
    return widgets.Dropdown(options=options, value=value, description=description, **_LOOK)


def redrawn(
    controls: Sequence[widgets.Widget], draw: Callable[[], Figure | Axes | bytes]
) -> widgets.VBox:
    """Controls above a picture that is drawn again whenever one of them has a new value."""
    picture = widgets.Image(format="png", layout=widgets.Layout(max_width="900px"))

    def redraw(_: object = None) -> None:
        picture.value = png(draw())

    for control in controls:
        if not isinstance(control, widgets.HTML):  # a caption that `draw` fills
            control.observe(redraw, names="value")
    redraw()
    return widgets.VBox([*controls, picture])


def png(drawn: Figure | Axes | bytes) -> bytes:
    """A picture as PNG, quick to make, not small; the figure is closed."""
    if isinstance(drawn, bytes):
        return drawn
    figure = drawn.get_figure(root=True) if isinstance(drawn, Axes) else drawn
    assert figure is not None
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", pil_kwargs={"compress_level": 1})
    plt.close(figure)
    return buffer.getvalue()


def _steps(run: Run) -> list[Frame]:
    """The steps worth a look: those after the set-up that carry a message or change something."""
    frames = run.frames[run.first_frame :]
    return frames[:1] + [
        frame
        for before, frame in pairwise(frames)
        if frame.source != frame.target
        or (before.disks, before.brokers) != (frame.disks, frame.brokers)
    ]
