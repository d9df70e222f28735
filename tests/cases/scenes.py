"""The scenarios of scenes.txt, by name: a line "scene NAME", then the script."""

from __future__ import annotations

from pathlib import Path

from isrlab.world import scenario

_PARTS = Path(__file__).with_name("scenes.txt").read_text().split("\nscene ")[1:]
SCENES = {name: script for name, _, script in (part.partition("\n") for part in _PARTS)}


def play(name: str, version: object) -> scenario.Run:
    return scenario.play(SCENES[name], version=version)
