"""The explorer's content as numbers and text: one description for every front end.

Theory of operation. `Exploration` holds the steps; `view_of` describes them, and the front end,
`explorer.js`, turns the description into buttons, pictures and a tree. The reader's choice comes
back to `heed`. A widget (`explorer`) and a page without a kernel (`isrlab_book.page`) differ only
in the transport. Nothing here needs matplotlib, so it runs in a browser.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby, islice
from typing import Any

from isrlab.engine.versions import GENERATIONS, KafkaVersion
from isrlab.show.colours import OUTCOMES, WHITE
from isrlab.show.messages import Arrow, arrows_of, draw_lanes, is_drawn
from isrlab.show.replicas import draw_logs
from isrlab.world import words
from isrlab.world.actions import EVERYBODY, enabled
from isrlab.world.cluster import NotSettledError
from isrlab.world.exploring import Exploration
from isrlab.world.script import Run

MOST_SHOWN = 4  # steps whose messages are drawn: the last ones
MOST_ARROWS = 12  # in a step; repetitions are drawn once
WIDTH = 600  # of a picture in pixels, if that is enough
LOOK: dict[str, Any] = {"most": WIDTH, "notes": False}  # of replicas, which have no title here
_WORDS = OUTCOMES | {"impossible": WHITE}


def heed(story: Exploration, asked: Mapping[str, Any]) -> tuple[Exploration, str]:
    """Apply the reader's choice; returns the exploration, and the error or ""."""
    try:
        match asked:
            case {"play": str(line)}:
                story.play(line)
            case {"go": int(number)}:
                story.go(number)
            case {"versions": [*names]}:
                story.compare([str(name) for name in names if name])
            case {"open": str(text)}:
                named = text.startswith("version ") and text.splitlines()[0] not in story.text
                rules = [] if named else [story.rules[name] for name in story.versions]
                story = Exploration(text, rules)
    except (ValueError, NotSettledError) as error:
        return story, str(error)
    return story, ""


def view_of(story: Exploration, problem: str = "") -> dict[str, Any]:
    """All that the front end shows, as numbers and text; pictures are SVG."""
    differs = story.differs()
    return {
        "told": "",
        "versions": story.versions,
        "names": {v.name: releases_of(v) for v in (*GENERATIONS, *story.rules.values())},
        "actions": actions_of(story.run(story.versions[0])),
        "panels": [panel_of(story, version) for version in story.versions],
        "tree": [node_of(story, number, differs) for number in range(len(story.tree))],
        "path": story.path(story.current),
        "next": story.tree[story.current].last,
        "differs": differs,
        "text": story.text,
        "problem": problem,
        "announced": problem or _announced(story, differs),
    }


def _announced(story: Exploration, differs: int | None) -> str:
    """The text for a screen reader after a step."""
    parts = [story.tree[story.current].line or "The start."]
    for version in story.versions:
        why = story.problem(version, story.current)
        caption = story.tree[story.current].captions.get(version, "")
        what = f"not possible, {why}" if why else caption or "set up."
        parts.append(f"{releases_of(story.rules[version])}: {what}")
        parts += [f"{name} is broken." for name in story.broken(version, story.current)]
    return " ".join([*parts, "The releases differ from here on." * (differs == story.current)])


def actions_of(run: Run) -> list[dict[str, Any]]:
    """The buttons, by machine; a message is worded as in a trace."""
    groups: dict[int, list[dict[str, str]]] = {}
    for action in enabled(run):
        label = f"{action.part} {action.label}".strip()
        if action.envelope:
            text = words.describe(action.envelope.message, run.cluster.version)
            label += f" {' '.join(text.split())} from {words.address(action.envelope.source)}"
        button = {"line": action.line, "label": label, "kind": action.kind}
        groups.setdefault(action.machine, []).append(button)
    names = {EVERYBODY: "Time", 0: "Controller"}
    return [
        {"name": names.get(machine, f"Broker {machine}"), "actions": groups[machine]}
        for machine in sorted(groups, key=lambda machine: (machine <= 0, -machine))
    ]


def releases_of(version: KafkaVersion) -> str:
    """All releases that a name stands for, and the rules that were switched by hand."""
    return " ".join([version.releases, *version.name.split()[1:]])


def panel_of(story: Exploration, version: str) -> dict[str, Any]:
    """A version's pictures of the current step, with their alt texts."""
    here, run = story.current, story.run(version)
    parent = story.run(version, story.tree[here].parent)
    steps = [step for step in story.path(story.current) if step][-MOST_SHOWN:]
    ends = [(part.frames[-1], old.frames[-1] if here else None)
            for part, old in zip(run.topic, parent.topic, strict=True)]  # fmt: skip
    filled = [any(f and log.log_end_offset for f in pair for log in (f.disks.values() if f else ()))
              for pair in ends]  # fmt: skip
    pictures = [str(draw_logs(frame, before=old, **LOOK)) if is_filled or not any(filled) else ""
                for (frame, old), is_filled in zip(ends, filled, strict=True)]  # fmt: skip
    rows = list[Arrow | str]()
    for step in steps:
        rows += [story.tree[step].line, *_arrows(story, version, step)]
    heads, messages = map(str, draw_lanes(rows, WIDTH)) if rows else ("", "")
    return {
        "version": releases_of(story.rules[version]),
        "pictures": pictures,
        "heads": heads,
        "messages": messages,
        "status": ["\n".join(words.status(part.cluster)) for part in run.topic],
        "caption": story.tree[here].captions.get(version, "The set-up."),
        "problem": story.problem(version, here),
        "broken": [f"{name}: {how}" for name, how in run.violations.items()],
        "word": story.word(version),
    }


@lru_cache(32)
def _arrows(story: Exploration, version: str, step: int) -> list[Arrow]:
    """The messages of a step, each once, with its number of occurrences."""
    frames = filter(is_drawn, story.frames(version, step))
    counts = Counter(arrow for frame in frames for arrow in arrows_of(frame))
    return [replace(arrow, text=f"{arrow.text}{f'  ×{count}' * (count > 1)}")
            for arrow, count in islice(counts.items(), MOST_ARROWS)]  # fmt: skip


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
    """The outcome of the steps so far in every release, with its colour, in ranges."""
    ends = groupby(GENERATIONS, lambda version: story.word(version.name, step))
    return [{"version": span(list(same)), "word": word, "colour": _WORDS[word]}
            for word, same in ends]  # fmt: skip


def span(versions: Sequence[KafkaVersion]) -> str:
    """The first and the last release of neighbouring versions: "0.11 to 2.0.1", "3.9"."""
    first, last = versions[0].releases.split("-")[0], versions[-1].releases.split("-")[-1]
    return " to ".join(dict.fromkeys((first, last)))
