"""Simulated incidents of all kinds, written as logs and read again: is each named rightly?

`python tests/test_incidents_judged.py 200` prints precision and recall of each kind.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import incident_world
import pytest

from isrlab.incidents.find import UNKNOWN
from isrlab.incidents.look import look

# One thing, seen more or less closely.
SAME = {"follower_slow": "follower_stalled", "frozen": "follower_stalled"}
RIGHT, WRONG, NOT_KNOWN = "right", "wrong", "not known"


def judged(scene: incident_world.Scene, seed: int) -> tuple[list[str], str]:
    """What the logs of an incident are taken for, and whether that is right."""
    with TemporaryDirectory() as folder:
        incident_world.write_logs(scene, Path(folder), seed)
        found = [i for i in look(folder).incidents if i.what not in UNKNOWN]
    names = [SAME.get(incident.what, incident.what) for incident in found]
    if not scene.expected:
        return names, WRONG if names else RIGHT
    if not names:
        return names, NOT_KNOWN
    expected = {SAME.get(name, name) for name in scene.expected}
    is_right = all(
        name in expected and incident.blamed == scene.blamed
        for name, incident in zip(names, found, strict=True)
    )
    return names, RIGHT if is_right else WRONG


def figures(count: int) -> list[tuple[str, int, int, int, int]]:
    """Of each kind: how many there were, named rightly, wrongly, not known; and how often another
    kind was taken for it."""
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    taken = Counter[str]()
    for seed in range(count):
        scene = incident_world.incident(seed)
        names, outcome = judged(scene, seed)
        outcomes[scene.kind][outcome] += 1
        taken.update(name for name in names if name not in scene.expected and outcome == WRONG)
    return [
        (kind, c.total(), c[RIGHT], c[WRONG], c[NOT_KNOWN], taken[kind])
        for kind, c in outcomes.items()
    ]


@pytest.mark.parametrize("seed", range(2 * len(incident_world.KINDS)))
def test_a_simulated_incident_is_named_rightly(seed):
    scene = incident_world.incident(seed)
    names, outcome = judged(scene, seed)
    assert outcome == RIGHT, f"seed {seed}: {scene.kind} of {scene.release} is taken for {names}"


if __name__ == "__main__":
    print(f"{'kind':<22} {'all':>4} {'right':>6} {'wrong':>6} {'not known':>10} {'others':>7}")
    for kind, *numbers in figures(int(sys.argv[1])):
        print(f"{kind:<22} {numbers[0]:>4} {numbers[1]:>6} {numbers[2]:>6} {numbers[3]:>10}"
              f" {numbers[4]:>7}")  # fmt: skip
