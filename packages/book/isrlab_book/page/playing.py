"""The Python side of the page in a browser: a message in, a message out, both JSON.

Theory of operation. A `Playground` holds one exploration. Each message is answered immediately with
the explorer's view (`explorer_view`). Slower results come in pieces (the row of all versions, the
marks of a challenge, the decision curve); `more` gives the next. A new message drops the remaining
pieces, except that a request for a decision curve adds its pieces after them. Scenarios come from
strangers: their length is limited here, their time by the page, which restarts this worker.
"""

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from isrlab.engine.safety import PROPERTIES
from isrlab.engine.versions import GENERATIONS
from isrlab.installed import DATA
from isrlab.world import decided, scenario
from isrlab.world.actions import does_something
from isrlab.world.cluster import NotSettledError
from isrlab.world.exploring import Exploration
from isrlab.world.script import parse
from isrlab_book import exercise
from isrlab_book.explorer import explained, link
from isrlab_book.explorer.decided import draw_decided
from isrlab_book.explorer.explorer_view import cells_of, heed, panel_of, view_of

OPENING, OPENING_VERSIONS, OPENING_AT = "elr_of_two", ("4.3", "4.0"), 0
MOST_STEPS = 400  # of a scenario that is opened; the tree of steps may grow further
PIECE = 4  # continuations of a curve in one piece, which a click may have to wait for
CONTINUATIONS, ROUND, LENGTH, SEED = 100, 20, 12, 1  # a curve is drawn after each round


class Playground:
    """One reader's exploration. An invalid message is answered with its problem."""

    def __init__(self) -> None:
        self.story = Exploration(scenario.read(OPENING), OPENING_VERSIONS, OPENING_AT)
        self.story.run(OPENING_VERSIONS[1], len(self.story.tree) - 1)
        self._ready = {"story": OPENING, "versions": [*OPENING_VERSIONS]}  # until asked for
        self.challenge: exercise.Exercise | None = None
        self.given = 0  # steps of the challenge, before the reader's
        self._left: Iterator[dict[str, Any]] = iter(())

    def ask(self, message: str) -> str:
        """The answer to a message of the page."""
        asked, problem = json.loads(message), ""
        ready, self._ready = self._ready, {}
        try:
            match asked:
                case {"at": int(at)} if asked == ready | {"at": at}:
                    self.story.go(at)
                case {"link": str(fragment)}:
                    opened = link.read(fragment)
                    self._open(opened.text, opened.versions, opened.at)
                case {"story": str(name)}:
                    self._open(scenario.read(name), asked.get("versions", ()), asked.get("at"))
                case {"challenge": str(name)}:
                    self._challenge(name)
                case {"text": str(text), "versions": [*versions], "at": int(at)}:
                    self._open(text, versions, at)
                case {"decide": {"promise": str(promise), "mix": str(mix)}}:
                    self._left = chain(self._left, self._curves(promise, decided.mix_of(mix)))
                    return json.dumps({"curve": {"share": 0}})
                case {"open": str(text)}:
                    named = text[:8] == "version " and text.split("\n")[0] not in self.story.text
                    self._open(text, () if named else self.story.versions, None)
                case _:
                    self.story, problem = heed(self.story, asked)
        except (ValueError, NotSettledError) as error:
            problem = str(error)
        self._left = chain(self._marks(), self._cells())
        return json.dumps({"view": self.view(problem)})

    def more(self) -> str:
        """The next of the remaining pieces; empty if there is none."""
        piece = next(self._left, None)
        return "" if piece is None else json.dumps(piece)

    def view(self, problem: str = "") -> dict[str, Any]:
        """The explorer's view, the link to it, and the name of the challenge."""
        story, here = self.story, len(self.story.path(self.story.current)) - 1
        return view_of(story, problem) | {
            "link": link.fragment(story.text, story.versions, here),
            "challenge": self.challenge.name if self.challenge else "",
        }

    def _open(self, text: str, versions: Iterable[str], at: int | None) -> None:
        if len(text) > link.MOST_TEXT:
            raise ValueError(f"a scenario has at most {link.MOST_TEXT:,} characters")
        steps = sum(does_something(c.text) for block in parse(text) for c in block.commands)
        if steps > MOST_STEPS:
            raise ValueError(f"the scenario has {steps:,} steps; at most {MOST_STEPS} are played")
        at = None if at is None else max(0, min(at, steps))
        self.story, self.challenge = Exploration(text, tuple(versions), at), None

    def _challenge(self, name: str) -> None:
        asked = exercise.read(name)
        versions = list(dict.fromkeys(version for version, _ in asked.goals))
        lines = asked.sections["given"].splitlines()
        self._open("\n".join(lines), versions, None)
        self.challenge, self.given = asked, len(self.story.path(self.story.current)) - 1

    def _cells(self) -> Iterator[dict[str, Any]]:
        for name in (version.name for version in GENERATIONS):
            for step in self.story.path(self.story.current):
                if name not in self.story.tree[step].runs:
                    self.story.run(name, step)
                    yield {}
        yield {"cells": cells_of(self.story)}

    def _marks(self) -> Iterator[dict[str, Any]]:
        """The marks of the reader's steps, by the goals of the challenge."""
        if self.challenge is None:
            return
        steps = self.story.path(self.story.current)
        given = self.challenge.sections["given"].splitlines()
        own = [line for line in self.story.text.splitlines() if does_something(line)]
        if own[: self.given] != [" ".join(x.split()) for x in given if does_something(x)]:
            self.challenge = None  # the reader left its given steps
            yield {"marks": {"done": False, "lines": [], "score": ""}}
            return
        answer = "\n".join(self.story.tree[step].line for step in steps[1 + self.given :])
        try:
            marks, _ = exercise.mark(self.challenge, answer)
        except (ValueError, NotSettledError) as error:
            yield {"marks": {"done": False, "lines": [f"✗ {error}"], "score": ""}}
            return
        done = bool(answer) and all(mark.is_met for mark in marks)
        lines = [f"{'✓' if mark.is_met else '✗'} {mark.text}" for mark in marks]
        score = exercise.score(self.challenge, answer) if done else ""
        count = len(exercise.commands(answer))
        yield {"marks": {"done": done, "lines": lines, "score": score, "count": count}}

    def _curves(self, promise: str, mix: Mapping[str, float]) -> Iterator[dict[str, Any]]:
        """The decision curve of each version up to the current step, after each round."""
        stories = {v: Exploration(self.story.text, (v,)) for v in self.story.versions}
        how = promise, mix, LENGTH, SEED
        broken: dict[str, dict[int, int]] = {}
        for version, story in stories.items():
            runs = {step: story.run(version, step) for step in story.path(story.current)}
            broken[version] = {s: 0 for s, run in runs.items() if promise not in run.violations}
        for first in range(0, CONTINUATIONS, ROUND):
            for version, story in stories.items():
                for step in broken[version]:
                    for number in range(first, first + ROUND):
                        seed, run = (SEED, step, number), story.run(version, step)
                        broken[version][step] += decided.breaks(run, promise, mix, LENGTH, seed)
                        if number % PIECE == 0:
                            yield {}
            count = first + ROUND
            curves = [decided.decision_of(story, version, how, broken[version], count)
                      for version, story in stories.items()]  # fmt: skip
            yield {"curve": {
                "svg": draw_decided(curves),
                "sentence": ". ".join(curve.sentence for curve in curves) + ".",
                "text": "\n\n".join(curve.table for curve in curves),
                "share": count / CONTINUATIONS,
            }}  # fmt: skip


def contents() -> dict[str, Any]:
    """The constant contents of the page: stories, challenges, words, and its opening as a film."""
    playground, stories = Playground(), tomllib.loads((DATA / "stories.toml").read_text("utf-8"))
    return {
        "opening": {"story": OPENING, "versions": OPENING_VERSIONS, "at": OPENING_AT},
        "view": playground.view(),
        "film": film(playground.story, stories["film"]),
        "stories": stories["groups"],
        "challenges": {
            each.name: {**each.sections, "hints": each.hints, "fewest": each.fewest}
            for each in sorted(challenges(), key=lambda each: each.fewest)
        },
        "recordings": {name: name.replace("-", " ") for name in recordings()},
        "words": explained.words(),
        "promises": list(PROPERTIES),
        "most_link": link.MOST_LINK,
    }


def film(story: Exploration, sentences: Mapping[str, str]) -> dict[int, dict[str, Any]]:
    """What the views of some steps show, each with its sentence, without messages and buttons."""
    views, steps = dict[int, dict[str, Any]](), [int(step) for step in sentences]
    for step, following in zip(steps, [*steps[1:], 0], strict=True):
        story.go(step)
        panels = [panel_of(story, v) | {"heads": "", "messages": ""} for v in story.versions]
        path, differs = story.path(step), story.differs()
        views[step] = {"told": sentences[str(step)], "panels": panels, "path": path,
                       "next": following, "differs": differs, "actions": [], "announced": "",
                       "cells": cells_of(story, step)}  # fmt: skip
    story.go(0)
    return views


def recordings() -> dict[str, Path]:
    """The logs of real clusters that the page can open, by name."""
    folders = *DATA.glob("recordings/kafka-*"), *DATA.glob("recordings/incidents/*/")
    return {each.name: each for each in sorted(folders)}


def challenges() -> list[exercise.Exercise]:
    """The exercises whose answers are lines of a scenario. A fleet would need numpy."""
    return [e for e in map(exercise.read, exercise.names()) if not e.is_fleet]
