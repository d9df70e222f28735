"""Widgets for figures: a slider through a run, and figures redrawn as values change.

With a kernel, JupyterLab shows the widget. The same output has a player (`show/player.py`), built
when the cell ran, for pages, stored notebooks and front ends without widgets.
"""

import base64
import html
import io
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import ipywidgets as widgets
import matplotlib.pyplot as plt
import numpy as np
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from isrlab.engine.model import Leader
from isrlab.show import style
from isrlab.show.player import SVG, PlayerImage, Slider, player
from isrlab.show.replicas import common_look, draw_replicas, visible
from isrlab.show.svg import Drawing
from isrlab.world import words
from isrlab.world.frames import Frame
from isrlab.world.script import Run

MOST_STEPS = 60  # of a run, shown individually
MOST_VIEWS = 24  # of a player, except for runs
NO_WIDGETS = "A control: to move it, open the notebook where Jupyter widgets or HTML can be shown."
Drawn = Figure | Axes | Drawing | PlayerImage
_LOOK: dict[str, Any] = {
    "style": {"description_width": "160px"},
    "layout": widgets.Layout(width="560px"),
}


def step_slider(run: Run) -> widgets.VBox:
    """A slider through every step of a run: the message, and the replicas after it.

    For a run with more than MOST_STEPS steps, only those that change the picture.
    """
    frames = _steps(run)
    look = common_look(frames)
    slider = widgets.IntSlider(value=0, min=0, max=len(frames) - 1, description="step", **_LOOK)
    drawn: dict[Hashable, PlayerImage] = {}

    def draw(step: int) -> PlayerImage:
        state = _visible(frames[step])
        if state not in drawn:
            drawn[state] = pictured(draw_replicas(frames[step], **look))
        return replace(drawn[state], caption=words.message_line(frames[step]))

    return LiveFigure([slider], draw, most=len(frames))


def choice(
    description: str,
    options: Sequence[float],
    value: float | None,
    form: Callable[[float], str] = "{:,}".format,
) -> widgets.SelectionSlider:
    """A slider over fixed values, for mouse or arrow keys, that reports its value when released."""
    values = sorted({*options, value} if value is not None else {*options})
    names = [(form(option), option) for option in values]
    return widgets.SelectionSlider(
        options=names, value=value, description=description, continuous_update=False, **_LOOK
    )


class Number(widgets.BoundedFloatText):
    """A number to type, from `min` to `max`; `stops` are its values in a player."""

    def __init__(self, description: str, stops: Sequence[float], **limits: Any) -> None:
        super().__init__(description=description, **_LOOK | limits)
        self.stops = sorted({*stops, self.value})


def pick(description: str, options: Sequence[Any], value: Any) -> widgets.Dropdown:
    """A list to choose from: values, or (name, value) pairs; `value` is added if it is missing."""
    values = [option[1] if isinstance(option, tuple) else option for option in options]
    options = [*options, *([] if value in values else [value])]
    return widgets.Dropdown(options=options, value=value, description=description, **_LOOK)


class LiveFigure(widgets.VBox):
    """Controls above a figure, which is redrawn whenever a value changes.

    A view may have a caption. Without a kernel a player takes over: it has a view for each
    combination of values, or for evenly chosen ones if there are more than `most`. With
    `one_by_one` it has each value of each control, with the others at their initial values, and
    the controls are below the figure. Contradictory values are refused in the caption.
    """

    def __init__(
        self,
        controls: Sequence[widgets.Widget],
        draw: Callable[..., Drawn],
        most: int = MOST_VIEWS,
        one_by_one: bool = False,
    ) -> None:
        self.inputs, self.draw_of, self.most = controls, draw, most
        self.one_by_one = one_by_one
        self.caption = widgets.HTML()
        self.picture = widgets.Image(layout=widgets.Layout(max_width="900px"))
        self.redraw()
        for control in self.inputs:
            control.observe(self.redraw, names="value")
            control.layout.width = "420px" if one_by_one else "560px"
        row = widgets.Box([*controls], layout=widgets.Layout(flex_flow="row wrap"))
        below = [self.picture, self.caption, row]
        super().__init__(below if one_by_one else [*controls, self.caption, self.picture])

    def draw(self, values: Sequence[Any] = ()) -> PlayerImage:
        """The view for these values of the controls (default: the current ones)."""
        try:
            return pictured(self.draw_of(*values or (control.value for control in self.inputs)))
        except ValueError as error:
            return PlayerImage(self.picture.value, "", str(error), self.picture.format)

    def redraw(self, _: object = None) -> None:
        self.drawn = [control.value for control in self.inputs], (view := self.draw())
        self.picture.format, self.picture.value = view.format, view.data
        lines = html.escape(view.caption)
        self.caption.value = f'<pre style="white-space: pre-wrap">{lines}</pre>' if lines else ""

    def player(self) -> str:
        """The HTML of the player, with all its views."""
        axes = [_options(control) for control in self.inputs]
        values = [control.value for control in self.inputs]
        if not self.one_by_one:
            counts = [len(axis) for axis in axes]
            while math.prod(counts) > self.most:
                counts[max(range(len(counts)), key=lambda n: (counts[n], n))] -= 1
            axes = [_thinned(*each) for each in zip(axes, counts, values, strict=True)]
        sliders = [
            Slider(control.description, [*axis], [*axis.values()].index(control.value))
            for control, axis in zip(self.inputs, axes, strict=True)
        ]
        choices: Iterable[Sequence[tuple[str, Any]]] = product(*(axis.items() for axis in axes))
        if self.one_by_one:
            first = [(s.values[s.at], value) for s, value in zip(sliders, values, strict=True)]
            choices = ([*first[:n], option, *first[n + 1 :]]
                       for n, axis in enumerate(axes) for option in axis.items())  # fmt: skip
        return player(sliders, [self._view(chosen) for chosen in choices], self.one_by_one)

    def _view(self, chosen: Sequence[tuple[str, Any]]) -> PlayerImage:
        """The view for these (name, value) pairs of the controls; the caption also names them."""
        pairs = zip(self.inputs, chosen, strict=True)
        values = ", ".join(f"{control.description} {name}" for control, (name, _) in pairs)
        (at, view), now = self.drawn, [value for _, value in chosen]
        view = view if now == at else self.draw(now)
        lines = (view.caption, values) if self.one_by_one else (values, view.caption)
        return replace(view, caption="\n".join(lines).strip())

    def _ipython_display_(self) -> None:
        """Show the widget and a still picture first; later the player replaces the picture."""
        widget = self._repr_mimebundle_()
        data, kind = self.picture.value, self.picture.format
        image = bytes(data).decode() if kind == SVG else base64.b64encode(data).decode()
        still = {"text/plain": NO_WIDGETS, f"image/{kind}": image}
        shown = display(widget | still, raw=True, display_id=True)
        player = {"text/plain": "A player", "text/html": self.player()}
        shown.update(widget | player, raw=True)


def _options(control: widgets.Widget) -> dict[str, Any]:
    """The values of a control, by name."""
    if isinstance(control, Number):
        return {f"{value:,.9g}": value for value in control.stops}
    if isinstance(control, widgets.IntSlider):
        return {str(n): n for n in range(control.min, control.max + 1, control.step)}
    pairs = (
        option if isinstance(option, tuple) else (option, option) for option in control.options
    )
    return {str(name): value for name, value in pairs}


def _thinned(axis: dict[str, Any], count: int, kept: Any) -> dict[str, Any]:
    """Values of an axis, spaced evenly, with `kept` among them."""
    last, place = len(axis) - 1, [*axis.values()].index(kept)
    chosen = {round(n * last / max(count - 1, 1)) for n in range(count)}
    if place not in chosen:
        chosen -= {min(chosen - {0, last} or chosen, key=lambda n: abs(n - place))}
    return {name: axis[name] for n, name in enumerate(axis) if n in chosen | {place}}


def pictured(drawn: Drawn, caption: str = "") -> PlayerImage:
    """A picture with its alt text; a figure as an uncompressed PNG, and closed."""
    if isinstance(drawn, PlayerImage):
        return drawn
    if isinstance(drawn, Drawing):
        return PlayerImage(str(drawn).encode(), drawn.alt, caption, SVG)
    figure = drawn.get_figure(root=True) if isinstance(drawn, Axes) else drawn
    assert figure is not None
    buffer, canvas = io.BytesIO(), FigureCanvasAgg(figure)
    canvas.draw()  # once; savefig would draw the figure twice
    Image.fromarray(np.asarray(canvas.buffer_rgba())).save(buffer, "png", compress_level=1)
    plt.close(figure)
    return PlayerImage(buffer.getvalue(), style.alt_text(figure), caption)


def _steps(run: Run) -> list[Frame]:
    """The relevant steps: those after the set-up that carry a message or change something."""
    frames = run.frames[run.first_frame :]
    steps = frames[:1] + [
        frame
        for before, frame in pairwise(frames)
        if frame.source != frame.target
        or (before.disks, before.brokers) != (frame.disks, frame.brokers)
    ]
    if len(steps) <= MOST_STEPS:
        return steps
    return steps[:1] + [now for was, now in pairwise(steps) if _visible(was) != _visible(now)]


def _visible(frame: Frame) -> Hashable:
    """Everything that the picture of a frame shows: the story's parts, and the followers as their
    leader knows them."""
    leaders = [broker.role for broker in frame.brokers.values() if isinstance(broker.role, Leader)]
    ends = [remote.log_end_offset for leader in leaders for remote in leader.remotes]
    return visible(frame), tuple(ends)
