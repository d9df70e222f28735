"""Scenarios are text: commands, `----`, and what they print.

    # A comment says what happens and why it is interesting.
    version 0.10.2
    partition leader=1 replicas=1,2
    produce 1 m1 m2 acks=1
    stabilize
    status
    ----
      1  Leader    leo=2 hw=2 isr=1,2   m1 m2
      2  Follower  leo=2 hw=0           m1 m2

A block is one or more commands, one a line, then `----`, then what the whole block prints, up to an
empty line. Tests compare that with the current output (`pytest --rewrite` updates it). Commands
print only what they change; `status` shows every replica, `trace on` shows every message. The last
paragraph of comments above a block, one sentence of at most 140 characters, is its caption in
pictures, wherever the block prints what the file says (`words.caption`).
"""

from itertools import groupby

from isrlab.engine.versions import GENERATIONS, KafkaVersion
from isrlab.installed import DATA
from isrlab.world.commands import COMMANDS, obey
from isrlab.world.script import Run, ScriptError, parse

LIBRARY = DATA / "scenarios"


def read(name: str) -> str:
    """The text of a scenario in `data/scenarios`. Raises ValueError with the known names."""
    known = sorted(p.stem for p in LIBRARY.glob("*.txt"))
    if name not in known:
        raise ValueError(f"no scenario {name!r}; known: {', '.join(known)}")
    return (LIBRARY / f"{name}.txt").read_text(encoding="utf-8")


def outcomes(scripts: dict[str, str]) -> dict[str, dict[str, str]]:
    """For each label, the outcome of its schedule in a word, by releases.

    All generations are played; neighbours in which each schedule ends alike share a column.
    """
    ends = {v: [play(text, v).outcome.word for text in scripts.values()] for v in GENERATIONS}
    rows: dict[str, dict[str, str]] = {label: {} for label in scripts}
    for _, alike in groupby(GENERATIONS, key=ends.__getitem__):
        same = list(alike)
        names = dict.fromkeys((same[0].releases.split("-")[0], same[-1].releases.split("-")[-1]))
        for label, word in zip(scripts, ends[same[0]], strict=True):
            rows[label]["-".join(names)] = word
    return rows


def play(text: str, version: str | KafkaVersion | None = None) -> Run:
    """Play a script; `version` overrides its own. Raises ScriptError with the line at fault."""
    run = Run(parse(text), None if version is None else KafkaVersion.of(version))
    commands = [command for block in run.blocks for command in block.commands]
    if not commands:
        raise ScriptError(1, text[:60], f"no command; known: {', '.join(COMMANDS)}")
    for index, block in enumerate(run.blocks):
        begins = {part.name: part.place for part in run.topic}
        run.page = []
        for part in run.topic:
            part.lines = []
        for command in block.commands:
            obey(run, command)
        for part in run.topic:
            begin = begins.get(part.name, (0, 0))
            own = part.blocks[index]
            own.frames, own.entries = zip(begin, part.place, strict=True)
            own.printed = "\n".join(run.page) or "ok"
    if run.world is None:
        raise commands[-1].fail("the script ends without a 'partition' line")
    return run
