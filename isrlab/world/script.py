"""A script's parts: commands, blocks, and the run that a script becomes while it is played."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

import pyarrow as pa

from isrlab.engine.versions import KafkaVersion
from isrlab.events import table
from isrlab.world.cluster import Cluster
from isrlab.world.frames import Frame, Outcome

SEPARATOR = "----"


class ScriptError(ValueError):
    """A scenario that cannot be played: which line, what is wrong, what would be right."""

    def __init__(self, line: int, text: str, problem: str) -> None:
        super().__init__(f"line {line}: {text.strip()}\n  {problem}")
        self.line = line


@dataclass(frozen=True, slots=True)
class Command:
    """One line of a script."""

    line: int
    text: str

    def fail(self, problem: str) -> ScriptError:
        return ScriptError(self.line, self.text, problem)

    @property
    def words(self) -> list[str]:
        try:
            return shlex.split(self.text, comments=True)
        except ValueError as error:
            raise self.fail(str(error)) from None

    @property
    def arguments(self) -> list[str]:
        return [w for w in self.words[1:] if "=" not in w]

    @property
    def options(self) -> dict[str, str]:
        return dict(w.split("=", 1) for w in self.words[1:] if "=" in w)


@dataclass(slots=True)
class Block:
    """Commands and what they should print."""

    commands: list[Command]
    expected: str = ""
    comments: list[str] = field(default_factory=list)
    printed: str = ""
    frames: tuple[int, int] = (0, 0)  # which frames of the run are this block's
    source: list[str] = field(default_factory=list)  # the lines up to the separator


def parse(text: str) -> list[Block]:
    """The blocks of a script. A script without any separator is one block."""
    blocks: list[Block] = []
    source: list[str] = []
    start = 1
    lines = text.splitlines()
    index = 0
    while index < len(lines):
        if lines[index].strip() != SEPARATOR:
            source.append(lines[index])
            index += 1
            continue
        expected = []
        index += 1
        while index < len(lines) and lines[index].strip():
            expected.append(lines[index].rstrip())
            index += 1
        blocks.append(_block(source, start, "\n".join(expected)))
        source, start = [], index + 1
    if any(_is_command(line) for line in source):
        blocks.append(_block(source, start, ""))
    return blocks


def _is_command(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _block(source: list[str], first_line: int, expected: str) -> Block:
    while source and not source[0].strip():
        source, first_line = source[1:], first_line + 1
    commands = [Command(first_line + i, line) for i, line in enumerate(source) if _is_command(line)]
    comments = [line.lstrip("# ").rstrip() for line in source if line.lstrip().startswith("#")]
    return Block(commands, expected, comments, source=source)


@dataclass(slots=True)
class Run:
    """A script that is being played, and afterwards all that it showed."""

    blocks: list[Block]
    forced_version: KafkaVersion | None = None
    version: KafkaVersion | None = None
    world: Cluster | None = None
    is_tracing: bool = False
    shows_isr_only: bool = False
    next_record: int = 1
    lines: list[str] = field(default_factory=list)
    told: int = 0  # frames and events already printed
    first_frame: int = 0  # the frames before it show the cluster being set up

    @property
    def cluster(self) -> Cluster:
        if self.world is None:
            raise ValueError("the script has no 'partition' line yet")
        return self.world

    @property
    def frames(self) -> list[Frame]:
        return self.cluster.frames

    def events(self, name: str | None = None) -> pa.Table:
        """What happened, as a table of `events.SCHEMA` in order; `name` is its `run`.

        Times are those of the run's own clock, which starts at `START_MS`. The default name is the
        version's.
        """
        where = {"run": name or self.cluster.version.name, "topic": "t", "partition": 0}
        return table([event.row | where for event in self.cluster.events])

    @property
    def outcome(self) -> Outcome:
        return self.cluster.observer.outcome

    @property
    def printed(self) -> str:
        """What each block printed, one after the other."""
        return "\n\n".join(b.printed for b in self.blocks) + "\n"

    @property
    def rewritten(self) -> str:
        """The script with what it prints now."""
        parts = ["\n".join([*b.source, SEPARATOR, b.printed]) for b in self.blocks]
        return "\n".join(f"{part}\n" for part in parts)

    @property
    def first_difference(self) -> str | None:
        """The first block that prints something else than expected, as text; None if all agree."""
        for block in self.blocks:
            if block.expected.rstrip() != block.printed.rstrip():
                commands = "\n".join(c.text for c in block.commands)
                return f"{commands}\nexpected:\n{block.expected}\nprinted:\n{block.printed}"
        return None
