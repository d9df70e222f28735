"""A scenario as one animated picture without a script, and small pictures for the first page.

Theory of operation. All frames are layers of one SVG, and CSS shows them in turn, in a page as well
as in an image. If a page has the numbers of the frames above the picture, choosing one stops there.
Readers who prefer reduced motion see the last frame.
"""

from collections.abc import Iterator, Mapping

from isrlab.show.colours import AS_TEXT, DARK, GREY, INK, OUTCOMES, STATES
from isrlab.show.membership import spans
from isrlab.show.replicas import draw_logs
from isrlab.show.svg import Drawing, text_at, titled
from isrlab.world import words
from isrlab.world.script import Run

SHOWN_S = 5  # how long each frame is shown
_WIDTH, _HEIGHT, _LINES = 400, 265, 3  # of a picture in pixels; the lines of a caption
_DOOR, _ROW, _CELL = 340, 22, 5.8  # of a small picture in pixels: its width; a row; a cell


def film(run: Run) -> str:
    """A frame for each block of a scenario with two replicas, one after another, as SVG."""
    before, frames = None, []
    for number, block in enumerate(run.blocks, 1):
        frame, caption = run.frames[block.frames[1] - 1], words.caption(run, block)
        picture = titled(f"{number}. {caption}", draw_logs(frame, before=before), _WIDTH, _LINES)
        frames.append(f'<g class="frame f{number}">{picture.parts}</g>')
        before = frame
    return str(Drawing(_WIDTH, _HEIGHT, "".join([style_sheet(len(frames)), *frames, *_legend()])))


def _legend() -> list[str]:
    hatched = "hatched: above the replica's own high watermark (HW)"
    return [text_at(6, _HEIGHT - 8 - 13 * up, text, GREY, "start")
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
        parts.append(text_at(4, _ROW * 1.5 * row, name, INK, "start"))
        for span in spans(run):
            x, wide = span.start_s / end_s, max(span.end_s - span.start_s, 0.005 * end_s) / end_s
            at = 4 + (_DOOR - 8) * x, _ROW * 1.5 * row + 5, (_DOOR - 8) * wide
            parts.append(_bar(*at, STATES[span.state]))
    return str(Drawing(_DOOR, 30 + _ROW * 1.5 * len(runs), "".join(parts)))


def draw_cells(rows: Mapping[str, Mapping[str, str]]) -> str:
    """A row of cells for each scenario, a column for each release, coloured by how it ended."""
    ends = [end for cells in rows.values() for end in cells.values()]
    parts = [style_sheet(), *_key({end: OUTCOMES[end] for end in dict.fromkeys(ends)})]
    releases = "-".join(next(iter(rows.values()))).split("-")  # a column may stand for several
    parts.append(text_at(_DOOR - 2, 14, f"{releases[0]} to {releases[-1]}", INK, "end"))
    for row, (label, cells) in enumerate(rows.items(), 1):
        parts.append(text_at(4, 12 + _ROW * row, label, INK, "start"))
        for column, end in enumerate(cells.values()):
            x = _DOOR - _CELL * (len(cells) - column)
            parts.append(_bar(x, 3 + _ROW * row, _CELL - 1, OUTCOMES[end]))
    return str(Drawing(_DOOR, 8 + _ROW * (len(rows) + 1), "".join(parts)))


def _key(colours: Mapping[str, str]) -> Iterator[str]:
    for place, (name, colour) in enumerate(colours.items()):
        yield _bar(4 + 65 * place, 4, 12, colour)
        yield text_at(20 + 65 * place, 14, name, INK, "start")


def _bar(x: float, y: float, width: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="12" fill="{colour}"/>'
