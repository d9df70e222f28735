"""Stories that begin alike: what they share is played once."""

from collections.abc import Iterable, Iterator
from copy import deepcopy

from isrlab.engine.versions import KafkaVersion
from isrlab.world.commands import obey
from isrlab.world.script import Run, parse

Stories = Iterable[tuple[int, str, str]]  # number, lines, rest


def branches(known: KafkaVersion, start: str, stories: Stories) -> Iterator[tuple[int, Run]]:
    """The number and the run of each story: `start`, all lines so far, and its own rest."""
    run = Run([], known)
    _play(run, start)
    for number, lines, rest in stories:
        _play(run, lines)
        _play(story := deepcopy(run), rest)
        yield number, story


def _play(run: Run, text: str) -> None:
    for command in (command for block in parse(text) for command in block.commands):
        obey(run, command)
