"""Players: pictures that a reader moves through with sliders, with a kernel or without.

Theory of operation. What the sliders can choose is drawn once, when the cell runs, and embedded as
PNG of few colours. One script, `player.js`, shows the picture of the values that are chosen; it
reads numbers and text and sets pictures, nothing else. So JupyterLab, a stored notebook and a page
show the same. A report's page lets the browser run this very script, known by its hash, and no
other. Where no script runs, one picture stands there, and a list that opens with the others.
"""

from __future__ import annotations

import base64
import html
import io
import json
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from IPython.display import HTML
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from isrlab.engine.model import Leader
from isrlab.show import style
from isrlab.show.replicas import common_look, plot_replicas, visible
from isrlab.world import words
from isrlab.world.frames import Frame
from isrlab.world.script import Run

SCRIPT = Path(__file__).with_name("player.js").read_text(encoding="utf-8")
MOST_STEPS = 60  # of a run, shown one by one
MOST_VIEWS = 24  # of a player, unless it is a run's
_COLOURS = 32
_BY_COLOUR = Image.Quantize.FASTOCTREE  # the others take a legend's small orange for its vermilion
_CAPTION = "font-family: monospace; white-space: pre-line"


@dataclass(frozen=True, slots=True)
class Control:
    """A slider: the values that a reader can choose, by name, and the one that it begins with."""

    name: str
    values: Mapping[str, Any]
    value: Any

    @property
    def at(self) -> int:
        return [*self.values.values()].index(self.value)


@dataclass(frozen=True, slots=True)
class View:
    """What is shown for one choice: a PNG, its text for who does not see it, and lines below."""

    png: bytes
    alt: str
    caption: str = ""


Drawn = Figure | Axes | View


def choice(
    name: str,
    options: Iterable[float],
    value: float,
    form: Callable[[float], str] = "{:,}".format,
) -> Control:
    """Numbers to choose from, in order; `value` is added if it is missing."""
    return pick(name, [(form(each), each) for each in sorted({*options, value})], value)


def pick(name: str, options: Iterable[Any], value: Any) -> Control:
    """Values to choose from, or (name, value) pairs; `value` is added if it is missing."""
    pairs = [each if isinstance(each, tuple) else (each, each) for each in options]
    values = {str(each): chosen for each, chosen in pairs}
    if value not in values.values():
        values[str(value)] = value
    return Control(name, values, value)


def player(controls: Sequence[Control], draw: Callable[..., Drawn], most: int = MOST_VIEWS) -> HTML:
    """Sliders above the picture that `draw` makes of their values.

    It has a view of each combination, the last slider first to change; if these are more than
    `most`, of evenly chosen values. The picture without scripts is the last, or where the sliders
    begin if not at their starts.
    """
    counts = [len(control.values) for control in controls]
    while math.prod(counts) > most:
        counts[max(range(len(counts)), key=lambda n: (counts[n], n))] -= 1
    controls = [_thinned(*each) for each in zip(controls, counts, strict=True)]
    views = [_view(controls, draw, names) for names in product(*(c.values for c in controls))]
    start = 0
    for control in controls:
        start = start * len(control.values) + control.at
    still = views[start or -1]
    pictures = {view.png: view for view in [still, *views]}  # each once, that one first
    places = {png: place for place, png in enumerate(pictures)}
    sliders = [{"name": c.name, "values": [*c.values], "at": c.at} for c in controls]
    data = {"sliders": sliders, "frames": [(places[view.png], view.caption) for view in views]}
    first, *others = (_figure(view) for view in ([still, *list(pictures.values())[1:]]))
    more = f"<summary>{len(others)} more</summary>{''.join(others)}"
    return HTML(
        f'<div class="player" data-player="{html.escape(json.dumps(data))}">{first}'
        f"{f'<details>{more}</details>' if others else ''}</div><script>{SCRIPT}</script>"
    )


def _thinned(control: Control, count: int) -> Control:
    """With so many of its values, as evenly chosen as can be, where it begins among them."""
    last, place = len(control.values) - 1, control.at
    chosen = {round(n * last / (count - 1)) for n in range(count)}
    if place not in chosen:
        chosen -= {min(chosen - {0, last} or chosen, key=lambda n: abs(n - place))}
    kept = {name: v for n, (name, v) in enumerate(control.values.items()) if n in chosen | {place}}
    return replace(control, values=kept)


def _view(controls: Sequence[Control], draw: Callable[..., Drawn], names: Sequence[str]) -> View:
    chosen = list(zip(controls, names, strict=True))
    view = pictured(draw(*(control.values[name] for control, name in chosen)))
    values = ", ".join(f"{control.name} {name}" for control, name in chosen)
    return replace(view, caption=f"{values}\n{view.caption}".strip())


def pictured(drawn: Drawn, caption: str = "") -> View:
    """A figure as PNG, quick to make, not small, and the text that stands for it; it is closed."""
    if isinstance(drawn, View):
        return drawn
    figure = drawn.get_figure(root=True) if isinstance(drawn, Axes) else drawn
    assert figure is not None
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", pil_kwargs={"compress_level": 1})
    plt.close(figure)
    return View(buffer.getvalue(), style.alt_text(figure), caption)


def _figure(view: View) -> str:
    image = base64.b64encode(in_few_colours(view.png)).decode()
    alt, caption = html.escape(view.alt), html.escape(view.caption)
    return (
        f'<figure style="margin: 0"><img alt="{alt}" src="data:image/png;base64,{image}">'
        f'<figcaption style="{_CAPTION}">{caption}</figcaption></figure>'
    )


def in_few_colours(png: bytes) -> bytes:
    """The same picture, a fraction of its size."""
    buffer = io.BytesIO()
    image = Image.open(io.BytesIO(png)).convert("RGB")
    few = image.quantize(_COLOURS, _BY_COLOUR, dither=Image.Dither.NONE)
    few.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


# The steps of a run


def step_slider(run: Run) -> HTML:
    """A slider through every step of a run: the message, and the replicas after it.

    Of a run with more than MOST_STEPS steps, those that change the picture.
    """
    frames = _steps(run)
    look = common_look(frames)
    drawn: dict[Hashable, View] = {}

    def draw(step: int) -> View:
        state = _visible(frames[step])
        if state not in drawn:
            drawn[state] = pictured(plot_replicas(frames[step], **look))
        return replace(drawn[state], caption=words.message_line(frames[step]))

    return player([choice("step", range(len(frames)), 0)], draw, most=len(frames))


def _steps(run: Run) -> list[Frame]:
    """The steps worth a look: those after the set-up that carry a message or change something."""
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
    """What the picture of a frame depends on: all that a story shows, and followers as their
    leader knows them."""
    leaders = [broker.role for broker in frame.brokers.values() if isinstance(broker.role, Leader)]
    ends = [remote.log_end_offset for leader in leaders for remote in leader.remotes]
    return visible(frame), tuple(ends)
