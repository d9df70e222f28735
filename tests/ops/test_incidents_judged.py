"""Simulated incidents of all kinds, written as logs and read again: is each named correctly?

`PYTHONPATH=tests python tests/ops/test_incidents_judged.py 210` prints the figures of each kind,
also for logs that were damaged: one is missing, a clock is skewed, lines are dropped.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter, defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from test_incidents import EXPECTED, MORE, RECORDED

import incident_world
from isrlab_book.workbook.your_cluster.figures import REAL
from isrlab_ops.logs.incidents.look import look
from isrlab_ops.logs.incidents.rules import TABLE

# Names of the same fault, when logs show more or less of it.
SAME = {
    "follower_slow": "follower_stalled", "frozen": "follower_stalled",
    "controller_away": "controller_stalled",
}  # fmt: skip
RIGHT, WRONG, NOT_KNOWN = "right", "wrong", "not known"


def judged(scene: incident_world.Scene, seed: int, how: str = "") -> tuple[list[str], str]:
    """The names that the logs of an incident get, and whether they are right: not known, if a
    right name comes without the one to blame."""
    with TemporaryDirectory() as folder:
        incident_world.write_logs(scene, Path(folder), seed)
        incident_world.spoil(Path(folder), how, seed)
        found = [i for i in look(folder).incidents if not TABLE.rule[i.what].guess]
    names = [SAME.get(incident.what, incident.what) for incident in found]
    if not scene.expected:
        return names, WRONG if names else RIGHT
    if not names:
        return names, NOT_KNOWN
    expected = {SAME.get(name, name) for name in scene.expected}
    if not expected.issuperset(names) or any(i.blamed not in ((), scene.blamed) for i in found):
        return names, WRONG
    return names, RIGHT if all(i.blamed == scene.blamed for i in found) else NOT_KNOWN


def figures(count: int, how: str) -> list[dict[str, object]]:
    """For each kind: how many there were, named correctly, wrongly or not at all; and how often
    other incidents got its name."""
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    taken = Counter[str]()
    for seed in range(count):
        scene = incident_world.incident(seed)
        names, outcome = judged(scene, seed, how)
        outcomes[scene.kind][outcome] += 1
        taken.update({name for name in names if name not in scene.expected})
    return [
        {"kind": kind, "logs": how or "whole", "all": c.total(), RIGHT: c[RIGHT], WRONG: c[WRONG],
         NOT_KNOWN: c[NOT_KNOWN], "named elsewhere": taken[kind]}
        for kind, c in outcomes.items()
    ]  # fmt: skip


def of_recordings() -> dict[str, object]:
    """Those of the recordings of real brokers."""
    known = MORE | {name: (incidents, 0) for name, incidents in EXPECTED.items()}
    looks = {name: look(RECORDED / name / "logs", min_isr=2).incidents for name in known}
    named = {name: [(i.what, i.blamed) for i in incidents] for name, incidents in looks.items()}
    right = sum(named[name] == incidents for name, (incidents, _) in known.items())
    return {"kind": REAL, "logs": "whole", "all": len(known), RIGHT: right,
            WRONG: len(known) - right, NOT_KNOWN: 0, "named elsewhere": 0}  # fmt: skip


@pytest.mark.parametrize("seed", range(2 * len(incident_world.KINDS)))
def test_a_simulated_incident_is_named_rightly(seed):
    scene = incident_world.incident(seed)
    names, outcome = judged(scene, seed)
    assert outcome == RIGHT, f"seed {seed}: {scene.kind} of {scene.release} is taken for {names}"


@pytest.mark.parametrize("seed", [11, 54, 73, 126, 195, 204])
def test_a_clock_that_cannot_be_compared_makes_no_incident_of_its_own(seed):
    """Each was once read as two incidents: no line relates the clock that is 30 or 90 s off."""
    scene = incident_world.incident(seed)
    names, outcome = judged(scene, seed, "clock")
    assert outcome == RIGHT, f"seed {seed}: {scene.kind} of {scene.release} is taken for {names}"


@pytest.mark.parametrize("seed", [2, 116])
def test_without_its_log_a_broker_is_not_called_slow(seed):
    scene = incident_world.incident(seed)
    assert judged(scene, seed, "missing") == ([], NOT_KNOWN)


if __name__ == "__main__":  # data/recordings/incidents/judged.csv
    rows = [row for how in incident_world.SPOILT for row in figures(int(sys.argv[1]), how)]
    rows.append(of_recordings())
    writer = csv.DictWriter(sys.stdout, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
