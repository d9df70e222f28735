"""Shapes and text as SVG: for notebooks, reports and pages alike.

Only Python: a page in a browser draws with it, too. Text from scripts and logs is escaped. Sizes
are in pixels; the widths of texts are estimates for DejaVu Sans.
"""

import textwrap
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from html import escape
from math import hypot
from typing import ParamSpec

from isrlab.events.wording import printable
from isrlab.show.colours import AS_TEXT, INK, WHITE

WIDTH = 920  # the widest that a page shows without scaling
LETTER = 6.1  # of text in the usual size
PANEL = 330  # the least width of a picture with a title: it fits on a phone
_GAP = 16  # between panels
_TITLE, _HEADLINE = 12.5, 14
_MOST = 200  # characters of a line of text
_OPEN, _CLOSE = '<svg class="panel"', "</svg>"
Given = ParamSpec("Given")


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture, and the text for readers who do not see it."""

    width: float
    height: float
    parts: str
    alt: str = ""

    def __repr__(self) -> str:
        return self.alt

    def __str__(self) -> str:
        size = f"{self.width:g} {self.height:g}"
        look = f'width="{self.width:g}" height="{self.height:g}" viewBox="0 0 {size}"'
        font = 'font-family="DejaVu Sans, sans-serif" font-size="10.5"'
        ground = f'<rect width="100%" height="100%" fill="{WHITE}"/>'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {look} {font}>{ground}{self.parts}{_CLOSE}'

    def _repr_svg_(self) -> tuple[str, dict[str, str]]:
        return str(self), {"alt": self.alt}


def shown(draw: Callable[Given, Drawing]) -> Callable[Given, None]:
    """A function that shows in a notebook, at once, what `draw` draws."""

    @wraps(draw)
    def plot(*args: Given.args, **options: Given.kwargs) -> None:
        from IPython.display import display

        display(draw(*args, **options))

    return plot


def titled(title: str, body: Drawing, least: float = PANEL, lines: int = 0) -> Drawing:
    """A picture under its title, which has at least so many `lines`."""
    width = max(least, body.width)
    wrapped = _wrapped(title, width, _TITLE)
    top = 17 * max(len(wrapped), lines) + 5
    text = _lines(wrapped, _TITLE)
    parts = f'{text}<g transform="translate(0 {top})">{body.parts}</g>'
    return Drawing(width, top + body.height, parts, title)


def board(title: str, rows: Sequence[Sequence[tuple[str, Drawing]]]) -> Drawing:
    """Panels in rows, each with its title, under the finding of all."""
    width = max(PANEL, *(body.width for row in rows for _, body in row))
    step, alts = width + _GAP, [f"{title.rstrip('.')}."]
    wrapped = _wrapped(title, step * len(rows[0]), _HEADLINE)
    parts, y = [f"<title>{escape(printable(title))}</title>{_lines(wrapped, _HEADLINE)}"], 0.0
    y = 19 * len(wrapped) + 9
    for row in rows:
        lines = max(len(_wrapped(name, width, _TITLE)) for name, _ in row)
        panels = [titled(name, body, width, lines) for name, body in row]
        parts += [str(panel).replace("<svg", f'{_OPEN} x="{step * nth:g}" y="{y:g}"', 1)
                  for nth, panel in enumerate(panels)]  # fmt: skip
        y += max(panel.height for panel in panels) + 8
        alts += [panel.alt for panel in panels]
    return Drawing(step * len(rows[0]) - _GAP, y, "".join(parts), " ".join(alts))


def _wrapped(title: str, width: float, size: float) -> list[str]:
    text = title.replace(" → ", "\N{NO-BREAK SPACE}→\N{NO-BREAK SPACE}")
    return textwrap.wrap(text, int(width / (0.58 * size)))


def _lines(wrapped: Sequence[str], size: float) -> str:
    return "".join(text_at(4, (size + 4.5) * n - 2, line, INK, "start", size=size)
                   for n, line in enumerate(wrapped, 1))  # fmt: skip


def as_image(svg: object, alt: str) -> str:
    """A picture as HTML that a page without scripts shows."""
    data = b64encode(str(svg).encode()).decode()
    return f'<img alt="{escape(alt)}" src="data:image/svg+xml;base64,{data}">'


def as_page(svg: str, alt: str) -> str:
    """A stored picture as HTML, in which its panels wrap on a phone."""
    head, *panels = svg.split(_OPEN)
    if not panels:
        return as_image(svg, alt)
    width, title = head.split('"')[3], head.split("<title>")[1].split("</title>")[0]
    images = "".join(as_image(f"<svg{panel.split(_CLOSE)[0]}{_CLOSE}", "") for panel in panels)
    look = f'class="panels" role="img" aria-label="{escape(alt)}" style="max-width: {width}px"'
    return f"<figure {look}><figcaption>{title}</figcaption>{images}</figure>"


# Shapes


def line_at(ends: tuple[float, float, float, float], colour: str, more: str = "") -> str:
    x1, y1, x2, y2 = ends
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}" {more}/>'


def arrow_at(ends: tuple[float, float, float, float], colour: str, more: str = "") -> str:
    """A line with a head at its second end."""
    x1, y1, x2, y2 = ends
    long = hypot(x2 - x1, y2 - y1) or 1
    dx, dy = 7 * (x2 - x1) / long, 7 * (y2 - y1) / long
    sides = ((x2 - dx - s * dy / 2, y2 - dy + s * dx / 2) for s in (1, -1))
    head = " ".join(f"{x:.1f},{y:.1f}" for x, y in ((x2, y2), *sides))
    line = line_at((x1, y1, x2 - dx / 2, y2 - dy / 2), colour, more)
    return f'{line}<polygon points="{head}" fill="{colour}"/>'


def text_at(
    x: float, y: float, text: str, colour: str, anchor: str = "middle", *, more: str = "",
    size: float = 0,
) -> str:  # fmt: skip
    """A line of text with further attributes, such as BOLD or HALO."""
    look = f'fill="{AS_TEXT.get(colour, colour)}" text-anchor="{anchor}" {more}'
    look += f' font-size="{size:g}"' * bool(size)
    return f'<text x="{x:.5g}" y="{y:.5g}" {look}>{escape(printable(text)[:_MOST])}</text>'


BOLD = 'font-weight="bold"'
HALO = f'stroke="{WHITE}" stroke-width="3" paint-order="stroke"'  # no line touches the text
