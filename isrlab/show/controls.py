"""Widgets around the figures: a slider through a run, redrawn as the reader moves it."""

from __future__ import annotations

import html
import io

import ipywidgets as widgets
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from isrlab import trace
from isrlab.script import Run
from isrlab.show.replicas import plot_replicas
from isrlab.world import Frame


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
        caption.value = f"<code>{html.escape(trace.message_line(frames[step]))}</code>"

    slider.observe(lambda change: draw(change["new"]), names="value")
    draw(0)
    return widgets.VBox([slider, caption, picture])


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
