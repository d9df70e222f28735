"""A scenario as one animated picture without a script, and small pictures for the first page.

Theory of operation. All frames are layers of one SVG, and CSS shows them in turn, in a page as well
as in an image. If a page has the numbers of the frames above the picture, choosing one stops there.
Readers who prefer reduced motion see the last frame.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

from isrlab.show.colours import AS_TEXT, DARK, OUTCOMES, STATES
from isrlab.show.membership import spans
from isrlab.world import words
from isrlab.world.script import Run
from isrlab_book.explorer.explorer_svg import draw_replicas, svg, text_at
from isrlab_book.explorer.explorer_view import LOOK

SHOWN_S = 5  # how long each frame is shown
_WIDTH, _LINE, _CHARACTERS = 400, 19, 54  # of a picture and its captions in pixels; of a line
_LOGS, _HEIGHT = 3 * _LINE + 16, 252  # the top of the two logs; the height of a picture
_DOOR, _ROW, _CELL = 340, 22, 5.8  # of a small picture in pixels: its width; a row; a cell


def film(run: Run) -> str:
    """A frame for each block of a scenario with two replicas, one after another, as SVG."""
    before, frames = None, []
    for number, block in enumerate(run.blocks, 1):
        frame = run.frames[block.frames[1] - 1]
        lines = textwrap.wrap(f"{number}. {words.caption(run, block)}", _CHARACTERS)
        text = (text_at(6, _LINE * n, line, LOOK.ink, "start") for n, line in enumerate(lines, 1))
        frames.append(
            f'<g class="frame f{number}"><g font-size="13.5">{"".join(text)}</g>'
            f'<g transform="translate(0 {_LOGS})">{draw_replicas(frame, LOOK, before)}</g></g>'
        )
        before = frame
    return svg(_WIDTH, _HEIGHT, [style_sheet(len(frames)), *frames, *_legend()], LOOK)


def _legend() -> list[str]:
    hatched = "hatched: above the replica's own high watermark (HW)"
    return [text_at(6, _HEIGHT - 8 - 13 * up, text, LOOK.grey, "start")
            for up, text in enumerate(("crossed out: deleted in this step", hatched))]  # fmt: skip


def style_sheet(count: int = 0) -> str:
    """The style sheet: dark colours, and the animation of `count` frames. With reduced motion only
    the last frame is shown."""
    fills = DARK | {text: DARK.get(light, light) for light, text in AS_TEXT.items()}
    dark = "".join(f'[fill="{light}"]{{fill:{to}}}' for light, to in fills.items())
    dark += "".join(f'[stroke="{light}"]{{stroke:{to}}}' for light, to in DARK.items())
    turns = "".join(
        f".f{n}{{animation-delay:{(n - 1 - count) * SHOWN_S}s}}" for n in range(1, count + 1)
    )
    motion = (
        f"@keyframes turn{{0%{{visibility:visible}}{100 / count:.3f}%{{visibility:hidden}}}}"
        f".frame{{visibility:hidden;animation:turn {count * SHOWN_S}s step-end infinite}}{turns}"
        "pattern *{visibility:visible}"
        "@media (prefers-reduced-motion:reduce){.frame{animation:none}"
        f".f{count}{{visibility:visible}}}}"
    ) if count else ""  # fmt: skip
    return f"<style>@media (prefers-color-scheme:dark){{{dark}}}{motion}</style>"


def draw_members(runs: Mapping[str, Run]) -> str:
    """A bar for each run: when its last replica was in the ISR, and when it was out."""
    end_s = max(span.end_s for run in runs.values() for span in spans(run))
    parts = [style_sheet(), *_key({word: STATES[word] for word in ("in sync", "out")})]
    for row, (name, run) in enumerate(runs.items(), 1):
        parts.append(text_at(4, _ROW * 1.5 * row, name, LOOK.ink, "start"))
        for span in spans(run):
            x, wide = span.start_s / end_s, max(span.end_s - span.start_s, 0.005 * end_s) / end_s
            at = 4 + (_DOOR - 8) * x, _ROW * 1.5 * row + 5, (_DOOR - 8) * wide
            parts.append(_bar(*at, STATES[span.state]))
    return svg(_DOOR, 30 + _ROW * 1.5 * len(runs), parts, LOOK)


def draw_cells(rows: Mapping[str, Mapping[str, str]]) -> str:
    """A row of cells for each schedule, a column for each release, coloured by how it ended."""
    ends = [end for cells in rows.values() for end in cells.values()]
    parts = [style_sheet(), *_key({end: OUTCOMES[end] for end in dict.fromkeys(ends)})]
    releases = "-".join(next(iter(rows.values()))).split("-")  # a column may stand for several
    parts.append(text_at(_DOOR - 2, 14, f"{releases[0]} to {releases[-1]}", LOOK.ink, "end"))
    for row, (label, cells) in enumerate(rows.items(), 1):
        parts.append(text_at(4, 12 + _ROW * row, label, LOOK.ink, "start"))
        for column, end in enumerate(cells.values()):
            x = _DOOR - _CELL * (len(cells) - column)
            parts.append(_bar(x, 3 + _ROW * row, _CELL - 1, OUTCOMES[end]))
    return svg(_DOOR, 8 + _ROW * (len(rows) + 1), parts, LOOK)


def _key(colours: Mapping[str, str]) -> Iterator[str]:
    for place, (name, colour) in enumerate(colours.items()):
        yield _bar(4 + 65 * place, 4, 12, colour)
        yield text_at(20 + 65 * place, 14, name, LOOK.ink, "start")


def _bar(x: float, y: float, width: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="12" fill="{colour}"/>'
