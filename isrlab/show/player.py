"""Pictures that a reader moves through without a kernel, in a page or in a stored notebook.

Theory of operation. All views of a control are drawn once, when its cell runs, and embedded as SVG,
or as PNG with few colours. One script, `player.js`, turns them into sliders; it only reads numbers
and text and sets pictures. A report's page allows the browser to run only this script, by its hash.
Without scripts there is one picture, and a list that opens with the others.
"""

import base64
import html
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

SCRIPT = Path(__file__).with_name("player.js").read_text(encoding="utf-8")
_COLOURS = 32
_BY_COLOUR = Image.Quantize.FASTOCTREE  # other methods confuse small areas of orange and vermilion
SVG = "svg+xml"
_CAPTION = "font-family: monospace; white-space: pre-line"


@dataclass(frozen=True)
class Slider:
    """The names of the values to choose from, and the initial position."""

    name: str
    values: Sequence[str]
    at: int


@dataclass(frozen=True)
class PlayerImage:
    """The view for one choice: a PNG or SVG, its alt text, and lines below."""

    data: bytes
    alt: str
    caption: str = ""
    format: str = "png"


def player(
    sliders: Sequence[Slider], views: Sequence[PlayerImage], one_by_one: bool = False
) -> str:
    """The HTML of a player. `views` has all combinations of values, the last slider changing first;
    with `one_by_one`, each slider's values in turn, with the others at their initial positions.

    The picture without scripts is the last, or that of the initial positions if these are set.
    """
    start = sliders[0].at
    for slider in () if one_by_one else sliders[1:]:
        start = start * len(slider.values) + slider.at
    still = views[start if one_by_one else start or -1]
    pictures = {view.data: view for view in [still, *views]}  # each once, the still one first
    places = {data: place for place, data in enumerate(pictures)}
    data = {
        "sliders": [vars(slider) for slider in sliders],
        "oneByOne": one_by_one,
        "frames": [(places[view.data], view.caption) for view in views],
    }
    first, *others = (_figure(view) for view in ([still, *list(pictures.values())[1:]]))
    more = f"<summary>{len(others)} more</summary>{''.join(others)}"
    return (
        f'<div class="player" data-player="{html.escape(json.dumps(data))}">{first}'
        f"{f'<details>{more}</details>' if others else ''}</div><script>{SCRIPT}</script>"
    )


def _figure(view: PlayerImage) -> str:
    data = small(view.data) if view.format == "png" else view.data
    image = base64.b64encode(data).decode()
    alt, caption = html.escape(view.alt), html.escape(view.caption)
    return (
        f'<figure style="margin: 0"><img alt="{alt}" src="data:image/{view.format};base64,{image}">'
        f'<figcaption style="{_CAPTION}">{caption}</figcaption></figure>'
    )


def small(png: bytes) -> bytes:
    """A picture reduced to few colours."""
    buffer = io.BytesIO()
    image = Image.open(io.BytesIO(png)).convert("RGB")
    few = image.quantize(_COLOURS, _BY_COLOUR, dither=Image.Dither.NONE)
    few.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
