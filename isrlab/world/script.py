"""The parts of a script: commands and blocks, and its run."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

from isrlab import events
from isrlab.engine.versions import KafkaVersion
from isrlab.world.cluster import Cluster
from isrlab.world.frames import OUTCOMES, Frame, Outcome

if TYPE_CHECKING:
    import pyarrow as pa  # not available in a browser

SEPARATOR = "----"
MOST_CAPTION = 140  # characters; a longer comment explains, and is no caption


class ScriptError(ValueError):
    """A scenario that cannot be played: the line, what is wrong, what would be valid."""

    def __init__(self, line: int, text: str, problem: str) -> None:
        super().__init__(f"line {line}: {text.strip()}\n  {problem}")
        self.line = line


@lru_cache(maxsize=1000)  # continuations repeat the same few lines a hundred thousand times
def _split(text: str) -> tuple[str, ...]:
    return tuple(shlex.split(text, comments=True))


@dataclass(frozen=True, slots=True)
class Command:
    line: int
    text: str

    def fail(self, problem: str) -> ScriptError:
        return ScriptError(self.line, self.text, problem)

    @property
    def words(self) -> list[str]:
        """The words of the line; none for an empty line or a comment."""
        try:
            return list(_split(self.text))
        except ValueError as error:
            raise self.fail(str(error)) from None


@dataclass(slots=True)
class Block:
    """The lines up to a separator, and their expected output."""

    source: list[Command]
    expected: str = ""
    printed: str = ""
    frames: tuple[int, int] = (0, 0)  # this block's frames of the run
    entries: tuple[int, int] = (0, 0)  # and its frames and events

    @property
    def commands(self) -> list[Command]:
        return [line for line in self.source if line.text.strip() and not _is_comment(line)]

    @property
    def comment(self) -> str:
        """Its last paragraph of comments: one written sentence, if it is to be a caption."""
        return self.comments[-1] if self.comments else ""

    @property
    def comments(self) -> list[str]:
        lines = [c.text for c in self.source if _is_comment(c) or not c.text.strip()]
        groups = groupby(lines, key=lambda text: bool(text.strip()))
        return [" ".join(line.strip(" #") for line in g) for is_text, g in groups if is_text]


def _is_comment(line: Command) -> bool:
    return line.text.lstrip().startswith("#")


def parse(text: str) -> list[Block]:
    """The blocks of a script. A script without any separator is one block."""
    blocks: list[Block] = []
    source: list[Command] = []
    expected: list[str] | None = None  # from the separator on
    for number, line in enumerate(text.splitlines(), 1):
        if expected is not None and line.strip():
            expected.append(line.rstrip())
        elif expected is not None:
            blocks.append(Block(source, "\n".join(expected)))
            source, expected = [], None
        elif line.strip() == SEPARATOR:
            expected = []
        elif source or line.strip():
            source.append(Command(number, line))
    last = Block(source, "\n".join(expected or ()))
    return [*blocks, last] if last.commands or expected is not None else blocks


@dataclass(slots=True)
class Run:
    """A script that is being played, and afterwards everything it showed."""

    blocks: list[Block]
    forced_version: KafkaVersion | None = None
    version: KafkaVersion | None = None
    world: Cluster | None = None
    trace: str = "off"  # prints "on": messages and events; "off": events; "isr": those of the ISR
    next_record: int = 1
    lines: list[str] = field(default_factory=list)
    next_entry: int = 0  # the first of the frames and events that are not printed yet
    first_frame: int = 0  # the frames before it show the cluster being set up
    name: str = "p0"
    others: list[Run] = field(default_factory=list)  # a run for each further partition
    page: list[str] = field(default_factory=list)  # the lines of all of them

    @property
    def topic(self) -> list[Run]:
        """This partition and, if it is the first, the topic's others."""
        return [self, *self.others]

    @property
    def place(self) -> tuple[int, int]:
        """The number of frames, and of printed entries."""
        return (len(self.frames), self.next_entry) if self.world else (0, 0)

    def of(self, name: str) -> Run:
        """One partition's run, for pictures and tables. Raises ValueError with the known names."""
        for part in self.topic:
            if part.name == name:
                return part
        known = ", ".join(part.name for part in self.topic)
        raise ValueError(f"no partition {name!r}; there are {known}")

    def another(self) -> Run:
        """Add the run of a further partition, with the same blocks."""
        blocks, name = [replace(block) for block in self.blocks], f"p{len(self.topic)}"
        part = Run(blocks, self.forced_version, self.version, trace=self.trace, name=name)
        self.others.append(part)
        return part

    @property
    def cluster(self) -> Cluster:
        if self.world is None:
            raise ValueError("the script has no 'partition' line yet")
        return self.world

    @property
    def frames(self) -> list[Frame]:
        return self.cluster.frames

    def events(self, name: str | None = None) -> pa.Table:
        """The events, as a table of `events.SCHEMA` in order; `name` is its `run`.

        Times are those of the run's own clock, which starts at `START_MS`. The default name is the
        version's.
        """
        return events.table(self.rows(name))

    def rows(self, name: str | None = None) -> list[dict[str, Any]]:
        """The rows of `events` as dicts, which need no Arrow."""
        where: dict[str, object] = {"run": name or self.cluster.version.name, "topic": "t"}
        where["partition"] = self.cluster.number
        return [event.row | where for event in self.cluster.events]

    def at(self, words: str) -> Frame:
        """The last frame of the first block whose comment has `words`, or raises ValueError."""
        for block in self.blocks:
            if words.lower() in block.comment.lower() and block.frames[1]:
                return self.frames[block.frames[1] - 1]
        raise ValueError(f"no block has {words!r} in the last paragraph of its comment")

    @property
    def outcome(self) -> Outcome:
        """The outcome of the partition with the worst one."""
        outcomes = [part.cluster.observer.outcome for part in self.topic]
        return max(outcomes, key=lambda outcome: OUTCOMES.index(outcome.word))

    @property
    def violations(self) -> dict[str, str]:
        """The safety properties broken in any partition, by name, with a sentence for each."""
        broken: dict[str, str] = {}
        for part in reversed(self.topic):
            broken |= part.cluster.violations
        return broken

    @property
    def printed(self) -> str:
        """What each block printed, one after the other."""
        return "\n\n".join(b.printed for b in self.blocks) + "\n"

    @property
    def rewritten(self) -> str:
        """The script with its current output."""
        parts = [[*(c.text for c in b.source), SEPARATOR, b.printed, ""] for b in self.blocks]
        return "\n".join("\n".join(part) for part in parts)
