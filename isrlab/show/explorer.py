"""The explorer: the reader takes the next step, and two versions play it side by side.

Theory of operation. `Exploration` knows what was tried; here it becomes a description (`view`) that
the front end, `explorer.js`, turns into buttons, pictures and a tree. The front end sends back what
the reader chose, and decides nothing. The row of all versions is made after the pictures have gone
out, so that a click does not wait for it. Where the kernel is gone, a page stands in its place: the
tree, and a picture of each step.
"""

from __future__ import annotations

import html
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from isrlab.engine.versions import PRESETS
from isrlab.show import style
from isrlab.show.explorer_svg import Palette, draw_messages, draw_replicas
from isrlab.world import words
from isrlab.world.actions import EVERYBODY, enabled
from isrlab.world.cluster import NotSettledError
from isrlab.world.exploring import Exploration
from isrlab.world.script import Run

LOOK = Palette(
    (style.BLUE, style.ORANGE, style.GREEN, style.PINK, style.BROWN),
    *(style.INK, style.GREY, style.PALE, style.LOST, style.WHITE),
)
MOST_SHOWN = 4  # steps whose messages are drawn, the last ones
_WORDS = style.OUTCOMES | {"impossible": style.WHITE}


class Explorer(anywidget.AnyWidget):
    """A scenario that is open, by the rules of one or two versions; see `Exploration`."""

    _esm = Path(__file__).with_name("explorer.js")
    _css = Path(__file__).with_name("explorer.css")
    view = traitlets.Dict().tag(sync=True)
    cells = traitlets.List().tag(sync=True)

    def __init__(self, text: str, versions: Sequence[str] = (), at: int | None = None) -> None:
        self.story = Exploration(text, versions, at)
        super().__init__(view=view_of(self.story), cells=cells_of(self.story))
        self.on_msg(self._heed)

    def _heed(self, _: object, asked: dict[str, Any], __: object) -> None:
        """What the reader chose. A wrong line or text changes nothing, and is answered."""
        story, problem = self.story, ""
        try:
            match asked:
                case {"play": str(line)}:
                    story.play(line)
                case {"go": int(number)}:
                    story.go(number)
                case {"versions": [*names]}:
                    story.compare([str(name) for name in names if name])
                case {"open": str(text)}:
                    story = Exploration(text, story.versions)
        except (ValueError, NotSettledError) as error:
            problem = str(error)
        self.story = story
        self.view = view_of(story, problem)
        self.cells = cells_of(story)

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        shown: Any = super()._repr_mimebundle_(**options)
        data, metadata = shown if isinstance(shown, tuple) else (shown, {})
        return {**data, "text/html": page_of(self.story)}, metadata


def view_of(story: Exploration, problem: str = "") -> dict[str, Any]:
    """All that the front end shows, as numbers and text; pictures are SVG."""
    first, here = story.versions[0], story.current
    differs = story.differs()
    return {
        "versions": story.versions,
        "releases": list(dict.fromkeys([*(v.name for v in PRESETS.values()), *story.versions])),
        "actions": actions_of(story.run(first)),
        "panels": [panel_of(story, version) for version in story.versions],
        "tree": [node_of(story, number, differs) for number in range(len(story.tree))],
        "path": story.path(here),
        "next": story.tree[here].last,
        "differs": differs,
        "text": story.text,
        "problem": problem,
        "said": problem or _said(story, differs),
    }


def _said(story: Exploration, differs: int | None) -> str:
    """What a screen reader hears after a step."""
    parts = [story.tree[story.current].line or "The start."]
    for version in story.versions:
        why = story.problem(version, story.current)
        caption = story.tree[story.current].captions.get(version, "")
        parts.append(f"{version}: {f'not possible, {why}' if why else caption or 'set up.'}")
        parts += [f"{name} is broken." for name in story.broken(version, story.current)]
    return " ".join([*parts, "The versions differ from here on." * (differs == story.current)])


def actions_of(run: Run) -> list[dict[str, Any]]:
    """The buttons, by machine; a message is described as its line in a trace is."""
    groups: dict[int, list[dict[str, str]]] = {}
    for action in enabled(run):
        label = f"{action.part} {action.label}".strip()
        if action.envelope:
            text = words.describe(action.envelope.message, run.cluster.version)
            label += f" {' '.join(text.split())} from {words.address(action.envelope.source)}"
        groups.setdefault(action.machine, []).append(
            {"line": action.line, "label": label, "kind": action.kind}
        )
    names = {EVERYBODY: "Time", 0: "Controller"}
    return [
        {"name": names.get(machine, f"Broker {machine}"), "actions": groups[machine]}
        for machine in sorted(groups, key=lambda machine: (machine <= 0, -machine))
    ]


def panel_of(story: Exploration, version: str) -> dict[str, Any]:
    """A version's pictures where the reader stands, and the text that stands for them."""
    here, run = story.current, story.run(version)
    parent = story.run(version, story.tree[here].parent)
    steps = [step for step in story.path(here) if step][-MOST_SHOWN:]
    pictures = [
        draw_replicas(part.frames[-1], LOOK, old.frames[-1] if here else None)
        for part, old in zip(run.topic, parent.topic, strict=True)
    ]
    drawn = [(story.tree[step].line, story.frames(version, step)) for step in steps]
    return {
        "version": version,
        "pictures": pictures,
        "messages": draw_messages(drawn, LOOK) if drawn else "",
        "status": "\n".join(line for part in run.topic for line in words.status(part.cluster)),
        "caption": story.tree[here].captions.get(version, "The set-up."),
        "problem": story.problem(version, here),
        "broken": [f"{name}: {how}" for name, how in run.violations.items()],
        "word": story.word(version),
    }


def node_of(story: Exploration, number: int, differs: int | None) -> dict[str, Any]:
    """A step in the tree, with the promises that it broke in the first version."""
    tried, first = story.tree[number], story.versions[0]
    return {
        "line": tried.line or "the start",
        "parent": tried.parent,
        "broken": story.broken(first, number),
        "differs": number == differs,
    }


def cells_of(story: Exploration, step: int | None = None) -> list[dict[str, str]]:
    """How the steps so far end in every version, and the colour of that."""
    ends = {version.name: story.word(version.name, step) for version in PRESETS.values()}
    return [{"version": name, "word": end, "colour": _WORDS[end]} for name, end in ends.items()]


def page_of(story: Exploration) -> str:
    """The storyboard to its end, as HTML without scripts; where it stands is open."""
    steps, first = story.path(story.current), story.versions[0]
    while following := story.tree[steps[-1]].last:
        steps.append(following)
    board = []
    for step in steps:
        run, tried = story.run(first, step), story.tree[step]
        broken = "".join(f" ✗ {name}" for name in story.broken(first, step))
        caption = tried.captions.get(first, "The set-up.") + broken
        images = (
            f'<img alt="{html.escape(chr(10).join(words.status(part.cluster)))}" '
            f'src="data:image/svg+xml;base64,{_base64(draw_replicas(part.frames[-1], LOOK))}"><br>'
            for part in run.topic
        )
        board.append(
            f"<details{' open' * (step == story.current)}><summary><code>"
            f"{html.escape(tried.line or 'the start')}</code> {html.escape(caption)}</summary>"
            f"{''.join(images)}</details>"
        )
    cells = "".join(
        f'<td style="background: {cell["colour"]}">{cell["version"]}<br>{cell["word"]}</td>'
        for cell in cells_of(story, steps[-1])
    )
    note = (
        f"{first}, step by step, and the end in every version. To take other steps, run this cell."
    )
    return f"<div><p>{note}</p>{''.join(board)}<table><tr>{cells}</tr></table></div>"


def _base64(svg: str) -> str:
    return b64encode(svg.encode()).decode()
