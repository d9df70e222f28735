"""The explorer's pictures: replicas and messages as SVG, from frames alone, without matplotlib.

The signs have the meanings that they have in `replicas` and `messages`. A picture has only shapes
and text; names from a scenario are escaped.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from isrlab.engine import messages as m
from isrlab.engine.model import Broker, Leader
from isrlab.events.wording import printable
from isrlab.show.colours import AS_TEXT
from isrlab.world import words
from isrlab.world.frames import Fault, Frame

MOST_OFFSETS = 8  # the last ones in the longest log
MOST_ARROWS = 12  # in a step; repetitions are drawn once
_LEFT, _BOX, _ROW, _LANE, _LINE, _HEAD = 118, 46, 64, 108, 30, 22  # in pixels
_LETTER = 6.4  # pixels, at most, on average
_PLUMBING = {"UpdateMetadata", "Disconnected"}


class Palette(NamedTuple):
    """The colours of `style`."""

    brokers: Sequence[str]
    ink: str
    grey: str
    pale: str
    lost: str
    white: str

    def of(self, machine: int) -> str:
        return self.brokers[(machine - 1) % len(self.brokers)] if machine > 0 else self.ink


def draw_replicas(frame: Frame, look: Palette, before: Frame | None = None) -> str:
    """Each replica's log. A record is hatched at or above that replica's high watermark, red if
    it differs from the leader's, and crossed out if truncated or lost since `before`."""
    end = max(
        2, *(log.log_end_offset for f in (frame, before or frame) for log in f.disks.values())
    )
    start = max(0, end - MOST_OFFSETS)
    labels = {number: _label(frame, number) for number in sorted(frame.disks)}
    longest = max(len(line) for label in labels.values() for line in label)
    zero = max(_LEFT, 14 + _LETTER * longest) - start * _BOX
    parts = [_hatches(frame.disks, look)]
    for row, (number, label) in enumerate(labels.items()):
        top = row * _ROW + 18
        colour = look.of(number) if number in frame.brokers else look.grey
        parts.append(text_at(6, top + 12, label[0], colour, "start", weight="bold"))
        parts += [text_at(6, top + 13 + 12 * nth, line, look.ink, "start")
                  for nth, line in enumerate(label) if nth]  # fmt: skip
        parts += _log(frame, before, number, (start, zero, top), look)
    width, height = zero + end * _BOX + 70, len(frame.disks) * _ROW + 22
    for offset in range(start, end):
        parts.append(text_at(_x(offset, zero) + _BOX / 2, height - 6, str(offset), look.grey))
    return svg(width, height, parts, look)


def _label(frame: Frame, number: int) -> list[str]:
    broker, state = frame.brokers.get(number), frame.controller.state
    details = []
    role = type(broker.role).__name__ if broker and broker.role else "no replica"
    if broker and isinstance(broker.role, Leader):
        details.append(f"ISR {words.ids(broker.role.isr)}, epoch {broker.role.leader_epoch}")
    elif number == state.leader:
        details.append("stored as leader")
    details += ["in the ELR"] if number in state.elr else []
    return [f"{number} {role if broker else 'dead'}", *details]


def _log(
    frame: Frame, before: Frame | None, number: int, place: tuple[int, float, float], look: Palette
) -> Iterable[str]:
    (start, zero, top), log, broker = place, frame.disks[number], frame.brokers.get(number)
    leader, colour = frame.brokers.get(frame.controller.leader), look.of(number)
    high, colour = log.high_watermark, colour if broker else look.grey
    old = before.disks.get(number, log) if before else log
    for offset in range(max(start, log.log_start_offset), log.log_end_offset):
        record = log.record_at(offset)
        theirs = leader.log.record_at(offset) if leader and _leads(leader) else None
        assert record is not None
        differs = theirs is not None and theirs.id != record.id
        fill = f"url(#open{number})" if offset >= high else colour
        edge, width = (look.lost, 3) if differs else (colour, 1)
        yield _box(_x(offset, zero), top, fill, f'stroke="{edge}" stroke-width="{width}"',
                   1 if offset >= high else 0.25)  # fmt: skip
        text = f"≠ {record.id}" if differs else record.id
        yield text_at(_x(offset, zero) + _BOX / 2, top + 14, text, edge if differs else look.ink)
        epoch = f"e{record.leader_epoch}" if frame.controller.leader_epoch else ""
        yield text_at(_x(offset, zero) + _BOX / 2, top + 27, epoch, look.ink)
    for offset in range(max(start, log.log_end_offset), old.log_end_offset):
        gone, x = old.record_at(offset), _x(offset, zero)
        yield _box(x, top, "none", f'stroke="{look.grey}" stroke-dasharray="2"')
        yield line_at((x + 2, top + 2, x + _BOX - 4, top + 30), look.lost)
        yield text_at(x + _BOX / 2, top + 20, gone.id if gone else "", look.grey)
    if broker and start <= log.log_end_offset:
        end = _x(log.log_end_offset, zero)
        yield line_at((end, top - 3, end, top + 44), colour, 'stroke-width="2.5"')
        yield text_at(end + 5, top + 44, f"LEO {log.log_end_offset}", colour, "start")
    if broker and start <= high:
        x = _x(high, zero) - 3 * (high == log.log_end_offset)
        yield line_at(
            (x, top - 6, x, top + 34), look.ink, 'stroke-width="1.6" stroke-dasharray="4 2"'
        )
        yield text_at(x + 6, top - 6, f"HW {high}", look.ink, "start")


def _leads(broker: Broker) -> bool:
    return isinstance(broker.role, Leader)


def draw_messages(steps: Iterable[tuple[str, Sequence[Frame]]], look: Palette) -> tuple[str, str]:
    """The machines' names, and below them the messages of each step, under the step's line; time
    goes down. The names are a picture of their own, which stays in sight."""
    drawn = [(line, _arrows(frames)) for line, frames in steps]
    frames = [frame for _, arrows in drawn for frame, _ in arrows]
    machines = sorted(
        {machine for f in frames for machine in (f.source, f.target)} | {m.CONTROLLER}
    )
    lanes = {machine: 60 + _LANE * place for place, machine in enumerate(machines)}
    parts, heads, y, width = list[str](), list[str](), 18, max(lanes.values()) + 200
    for line, arrows in drawn:
        parts.append(f'<rect x="0" y="{y - 14}" width="{width}" height="18" fill="{look.pale}"/>')
        parts.append(text_at(6, y, line, look.ink, "start", weight="bold"))
        y += _LINE
        for frame, count in arrows:
            parts += _arrow(frame, count, (lanes[frame.source], lanes[frame.target], y), look)
            y += _LINE
    for machine, x in lanes.items():
        name = words.address(machine)
        parts.insert(0, line_at((x, 0, x, y - 8), look.of(machine), 'opacity="0.5"'))
        heads.append(text_at(x, 15, name, look.of(machine), "middle", weight="bold"))
    return svg(width, _HEAD, heads, look), svg(width, y, parts, look)


def _arrows(frames: Sequence[Frame]) -> list[tuple[Frame, int]]:
    """The first messages of a step, each with its number of occurrences."""
    counts: dict[tuple[object, ...], int] = {}
    first: dict[tuple[object, ...], Frame] = {}
    for frame in frames:
        if frame.source == frame.target or isinstance(frame.message, Fault):
            continue
        if type(frame.message).__name__ not in _PLUMBING:
            text = words.describe(frame.message, frame.controller.version)
            key = frame.source, frame.target, text, frame.was_lost
            counts[key] = counts.get(key, 0) + 1
            first.setdefault(key, frame)
    return [(frame, counts[key]) for key, frame in first.items()][:MOST_ARROWS]


def _arrow(
    frame: Frame, count: int, place: tuple[float, float, float], look: Palette
) -> Iterable[str]:
    start, end, y = place
    colour = look.lost if frame.was_lost else look.of(frame.source)
    text = " ".join(words.describe(frame.message, frame.controller.version).split())
    text += f"  ×{count}" * (count > 1) + "  LOST" * frame.was_lost
    side = 1 if end > start else -1
    more = 'stroke-dasharray="3 3"' if frame.was_lost else ""
    yield line_at((start, y, end, y + 6), colour, f'stroke-width="1.5" {more}')
    head = f"{end},{y + 6} {end - 8 * side},{y + 1} {end - 8 * side},{y + 10}"
    yield f'<polygon points="{head}" fill="{colour}"/>'
    yield text_at(min(start, end) + 8, y - 3, text, colour if frame.was_lost else look.ink, "start")


def _x(offset: int, zero: float) -> float:
    return zero + offset * _BOX


def _hatches(brokers: Iterable[int], look: Palette) -> str:
    lines = "".join(
        f'<pattern id="open{n}" width="6" height="6" patternUnits="userSpaceOnUse">'
        f'<rect width="6" height="6" fill="{look.white}"/>'
        f'<path d="M0 6L6 0" stroke="{colour}" opacity="0.6"/></pattern>'
        for n, colour in ((n, look.of(n)) for n in brokers)
    )
    return f"<defs>{lines}</defs>"


def _box(x: float, y: float, fill: str, edge: str, opacity: float = 1) -> str:
    size = f'width="{_BOX - 3}" height="32"'
    return f'<rect x="{x + 1}" y="{y}" {size} fill="{fill}" fill-opacity="{opacity}" {edge}/>'


def line_at(ends: tuple[float, float, float, float], colour: str, more: str = "") -> str:
    x1, y1, x2, y2 = ends
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" {more}/>'


def text_at(
    x: float, y: float, text: str, colour: str, anchor: str = "middle", *, weight: str = "normal"
) -> str:
    shown = escape(printable(text)[:64])
    look = f'fill="{AS_TEXT.get(colour, colour)}" text-anchor="{anchor}" font-weight="{weight}"'
    return f'<text x="{x:g}" y="{y:g}" {look}>{shown}</text>'


def svg(width: float, height: float, parts: Iterable[str], look: Palette) -> str:
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    font = 'font-family="DejaVu Sans, sans-serif" font-size="10.5"'
    ground = f'<rect width="100%" height="100%" fill="{look.white}"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>{ground}{"".join(parts)}</svg>'


def as_image(svg: str, alt: str) -> str:
    """A picture as HTML that a page without scripts shows."""
    data = b64encode(svg.encode()).decode()
    return f'<img alt="{escape(alt)}" src="data:image/svg+xml;base64,{data}">'
