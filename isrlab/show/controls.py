"""Widgets around the figures: a slider through a run, redrawn as the reader moves it."""

from __future__ import annotations

import html
import io
from collections.abc import Callable, Sequence

import ipywidgets as widgets
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from isrlab.show.replicas import plot_replicas
from isrlab.world import words
from isrlab.world.frames import Frame
from isrlab.world.script import Run


def step_slider(run: Run) -> widgets.VBox:
    """A slider through every step of a run: the message, and the replicas after it."""
    frames = _steps(run)
    cache: dict[int, bytes] = {}
    picture = widgets.Image(format="png", layout=widgets.Layout(max_width="760px"))
    caption = widgets.HTML()
    slider = widgets.IntSlider(
        value=0,
        min=0,
        max=len(frames) - 1,
        description="step",
        layout=widgets.Layout(width="560px"),
    )

    def draw(step: int) -> None:
        if step not in cache:
            cache[step] = _png(frames[step])
        picture.value = cache[step]
        caption.value = f"<code>{html.escape(words.message_line(frames[step]))}</code>"

    slider.observe(lambda change: draw(change["new"]), names="value")
    draw(0)
    return widgets.VBox([slider, caption, picture])


def choice(
    description: str,
    options: Sequence[float],
    value: float | None,
    form: Callable[[float], str] = "{:,}".format,
) -> widgets.SelectionSlider:
    """A slider over fixed values that moves by mouse or arrow keys and speaks when released."""
    values = sorted({*options, value} if value is not None else {*options})
    return widgets.SelectionSlider(
        options=[(form(option), option) for option in values],
        value=value,
        description=description,
        continuous_update=False,
        style={"description_width": "160px"},
        layout=widgets.Layout(width="560px"),
    )


def redrawn(controls: Sequence[widgets.Widget], draw: Callable[[], bytes]) -> widgets.VBox:
    """Controls above a picture (PNG) that is drawn again whenever one of them has a new value."""
    picture = widgets.Image(format="png", layout=widgets.Layout(max_width="900px"))

    def redraw(_: object = None) -> None:
        picture.value = draw()

    for control in controls:
        control.observe(redraw, names="value")
    redraw()
    return widgets.VBox([*controls, picture])


def png(figure: Figure) -> bytes:
    """A figure as PNG; quick to make, not small."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", pil_kwargs={"compress_level": 1})
    return buffer.getvalue()


def _steps(run: Run) -> list[Frame]:
    """The steps worth a look: those after the set-up that carry a message or change something."""
    frames = run.frames[run.first_frame :]
    kept = [
        frame
        for before, frame in zip([None, *frames], frames, strict=False)
        if frame.source != frame.target
        or before is None
        or before.disks != frame.disks
        or before.brokers != frame.brokers
    ]
    return kept or frames


def _png(frame: Frame) -> bytes:
    figure = Figure(figsize=(7.2, 0.8 + 0.78 * len(frame.disks)), dpi=100)
    plot_replicas(frame, ax=figure.subplots())
    figure.tight_layout()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    plt.close(figure)
    return buffer.getvalue()
