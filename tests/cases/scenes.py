"""The scenarios of scenes.txt: a line "scene NAME FATE=COLUMNS ...", then the script.

A fate is how it ends, if not safely, or a promise that is broken on the way; none other is.
"""

from __future__ import annotations

from pathlib import Path

from isrlab.world import scenario

_PARTS = Path(__file__).with_name("scenes.txt").read_text().split("\nscene ")[1:]
_HEADS = [(head.split(), script) for head, _, script in (part.partition("\n") for part in _PARTS)]
SCENES = {name: script for (name, *_), script in _HEADS}
FATES = {name: dict(fate.split("=") for fate in fates) for (name, *fates), _ in _HEADS}


def play(name: str, version: object) -> scenario.Run:
    return scenario.play(SCENES[name], version=version)
