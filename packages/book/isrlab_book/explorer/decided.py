"""How likely a promise is to break after each step of a story, as SVG: a page has no matplotlib."""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise

from isrlab.engine.versions import PRESETS, KafkaVersion
from isrlab.show.colours import GENERATIONS, GREY, INK, PALE, WHITE
from isrlab.show.svg import BOLD, Drawing, as_image, line_at, text_at
from isrlab.world.decided import Decision

_LEFT, _WIDTH, _ROW, _TOP = 380, 300, 22, 34  # in pixels
_LONGEST = 58  # characters of a step's text
_PROMISES = {"committed_records_survive": "a committed record is lost", "logs_agree": "logs part"}


class DecisionCurves:
    """The curves of one or more versions for a notebook; the title names the step that decided."""

    def __init__(self, curves: Sequence[Decision]) -> None:
        promise = _PROMISES.get(curves[0].promise, f"{curves[0].promise} is broken")
        self.title = ". ".join(curve.sentence for curve in curves) + "."
        self.axis = f"Continuations in which {promise}, after each step"
        self.svg = draw_decided(curves)

    def __repr__(self) -> str:
        return f"{self.title} {self.axis}."

    def _repr_html_(self) -> str:
        caption = f"{escape(self.title)}<br>{escape(self.axis)}:"
        image = as_image(self.svg, repr(self))
        return f'<figure style="margin: 0"><figcaption>{caption}</figcaption>{image}</figure>'


def draw_decided(curves: Sequence[Decision]) -> str:
    """A row for each step, and for each version a curve with its 95 % band."""
    longest = max(curves, key=lambda curve: len(curve.steps))
    height = _TOP + _ROW * len(longest.steps) + 12
    parts = [line_at((x, _TOP, x, height - 12), PALE) + text_at(x, height, f"{share:.0%}", GREY)
             for share, x in ((n / 4, _x(n / 4)) for n in range(5))]  # fmt: skip
    if jump := curves[0].jump:
        y = _y(jump.number) - _ROW / 2
        parts.append(f'<rect x="0" y="{y}" width="100%" height="{_ROW}" fill="{PALE}"/>')
    for step in longest.steps:
        shown = step.text if len(step.text) <= _LONGEST else f"{step.text[: _LONGEST - 2]} …"
        parts.append(text_at(6, _y(step.number) + 4, f"{step.number}  {shown}", INK, "start"))
    for place, curve in enumerate(curves):
        release = KafkaVersion.of(curve.version.split()[0]).column
        parts += _curve(curve, GENERATIONS[[*PRESETS].index(release)], place)
    return str(Drawing(_LEFT + _WIDTH + 60, height, "".join(parts)))


def _x(share: float) -> float:
    return round(_LEFT + share * _WIDTH, 1)


def _y(number: int) -> float:
    return _TOP + _ROW * number + _ROW / 2


def _curve(curve: Decision, colour: str, place: int) -> Iterable[str]:
    """One version's curve: solid with filled dots if it is the first, else dashed and hollow."""
    low = [f"{_x(step.interval[0])},{_y(step.number)}" for step in curve.steps]
    high = [f"{_x(step.interval[1])},{_y(step.number)}" for step in curve.steps]
    yield f'<polygon points="{" ".join([*low, *high[::-1]])}" fill="{colour}" opacity="0.2"/>'
    dashes, fill = ('stroke-dasharray="5 3"', WHITE) if place else ("", colour)
    for a, b in pairwise(curve.steps):
        ends = _x(a.share), _y(a.number), _x(b.share), _y(b.number)
        yield line_at(ends, colour, f'stroke-width="2" {dashes}')
    for step in curve.steps:
        dot = f'<circle cx="{_x(step.share)}" cy="{_y(step.number)}" r="3.5" fill="{fill}"'
        yield f'{dot} stroke="{colour}"/>'
    name = f"{'○' if place else '●'} {curve.version}"
    yield text_at(_LEFT + 130 * place, 14, name, colour, "start", more=BOLD)
