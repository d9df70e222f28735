"""The explorer in a notebook: the reader takes the next step, and one or two versions play it.

Theory of operation. `explorer_view` describes the content; this module is the widget. The front
end, `explorer.js`, only sends back the reader's choice. The row of all versions is computed after
the pictures have been sent, so that a click does not wait for it. Without a kernel, a static page
takes the widget's place: a storyboard with a picture of each step, and the outcome in each version.
"""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from isrlab.show.replicas import draw_logs
from isrlab.show.svg import as_image
from isrlab.world import words
from isrlab.world.exploring import Exploration
from isrlab_book.explorer.explorer_view import LOOK, cells_of, heed, releases_of, view_of


class Explorer(anywidget.AnyWidget):
    """An open scenario under the rules of one or two versions; see `Exploration`."""

    _esm = Path(__file__).with_name("explorer.js")
    _css = Path(__file__).with_name("explorer.css")
    view = traitlets.Dict().tag(sync=True)
    cells = traitlets.List().tag(sync=True)

    def __init__(self, text: str, versions: Sequence[str] = (), at: int | None = None) -> None:
        self.story = Exploration(text, versions, at)
        super().__init__(view=view_of(self.story), cells=cells_of(self.story))
        self.on_msg(self._heed)

    def _heed(self, _: object, asked: dict[str, Any], __: object) -> None:
        self.story, problem = heed(self.story, asked)
        self.view = view_of(self.story, problem)
        self.cells = cells_of(self.story)

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        shown: Any = super()._repr_mimebundle_(**options)
        data, metadata = shown if isinstance(shown, tuple) else (shown, {})
        return {**data, "text/plain": "An explorer", "text/html": page_of(self.story)}, metadata


def page_of(story: Exploration) -> str:
    """A storyboard as HTML without scripts, with the current step open."""
    steps, first = story.path(story.current), story.versions[0]
    while following := story.tree[steps[-1]].last:
        steps.append(following)
    board = []
    for step in steps:
        run, tried = story.run(first, step), story.tree[step]
        broken = "".join(f" ✗ {name}" for name in story.broken(first, step))
        caption = tried.captions.get(first, "The set-up.") + broken
        images = (
            as_image(draw_logs(part.frames[-1], **LOOK), "\n".join(words.status(part.cluster)))
            for part in run.topic
        )
        board.append(
            f"<details{' open' * (step == story.current)}><summary><code>"
            f"{html.escape(tried.line or 'the start')}</code> {html.escape(caption)}</summary>"
            f"{''.join(f'{image}<br>' for image in images)}</details>"
        )
    cells = "".join(
        f'<td style="background: {cell["colour"]}">{cell["version"]}<br>{cell["word"]}</td>'
        for cell in cells_of(story, steps[-1])
    )
    note = (
        f"{releases_of(story.rules[first])}, step by step, and the end in every release. "
        "To take other steps, run this cell."
    )
    return f"<div><p>{note}</p>{''.join(board)}<table><tr>{cells}</tr></table></div>"
