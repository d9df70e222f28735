"""Notebook 11: the same schedules climb through every generation, and what each does to them.

A cell is one run of one schedule under the rules of one version. To what became of the records
(diverged, lost, offline, safe) two words are added for what became of the service: *stalled*, when
the high watermark could move by its own rule but nobody looks, and *flapping*, when a replica joins
and leaves the ISR again and again. A click on a cell (here: two lists to choose from) plays it.
"""

from __future__ import annotations

import html
from collections import Counter
from itertools import pairwise
from math import inf
from typing import NamedTuple

import ipywidgets as widgets
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isrlab.engine.high_watermark import settle
from isrlab.engine.log import Log
from isrlab.engine.versions import GENERATIONS, PRESETS, KafkaVersion
from isrlab.events import exact
from isrlab.show import bands, controls, curves, offsets, replicas, style
from isrlab.world import scenario
from isrlab.world.script import Run

MOST_RECORDS = 100  # of a log that is drawn record by record
FLAPS = 2  # as often as this a replica joins and leaves again


class Rung(NamedTuple):
    """A schedule, the issue it stands for, and the word that the issue's repair ends."""

    issue: str
    scenario: str
    word: str

    @property
    def label(self) -> str:
        return f"{self.scenario.replace('_', ' ')} ({self.issue})"


# In the order in which Kafka climbed them
RUNGS = (
    Rung("KAFKA-1546", "message_burst", "flapping"),
    Rung("KAFKA-4485", "steady_with_pauses", "flapping"),
    Rung("KIP-101", "loss_three_replicas", "lost"),
    Rung("KIP-101", "divergence_power_loss", "diverged"),
    Rung("KAFKA-3919", "real_offsets", "diverged"),
    Rung("KIP-279", "fast_leader_change", "diverged"),
    Rung("KAFKA-7128", "joined_too_early", "lost"),
    Rung("KAFKA-7152", "idle_pauses", "flapping"),
    Rung("KAFKA-13091", "stalled", "stalled"),
    Rung("KAFKA-19996", "flapping", "flapping"),
    Rung("KIP-966", "last_replica_standing", "lost"),
)
BY_SCENARIO = {rung.scenario: rung for rung in RUNGS}
EXTENTS = {  # parts of a log
    "as the leader": style.GREEN,
    "other records than the leader": style.LOST,
    "as the leader again": style.SKY,
}
Matrix = dict[str, dict[str, str]]


# One cell


def word(run: Run) -> str:
    """The worst that a run shows: diverged, lost, offline, stalled, flapping, or safe."""
    if run.outcome.word == "safe" and is_stalled(run):
        return "stalled"
    return "flapping" if run.outcome.word == "safe" and flapping(run) else run.outcome.word


def is_stalled(run: Run) -> bool:
    """The leader's high watermark would move now, if only the leader looked (KAFKA-13091)."""
    if (leader := run.cluster.leader) is None:
        return False
    return settle(leader, run.cluster.now_ms)[0].log.high_watermark > leader.log.high_watermark


def flapping(run: Run) -> dict[int, int]:
    """How often each replica that flaps was taken into the ISR and then evicted by its leader."""
    events, joined = run.events(), dict[int, int]()
    for move in exact.moves(events):
        if move.joined:
            joined.setdefault(move.replica, move.ts_ms)
    evictions = exact.evictions(events)
    times = Counter(e.replica for e in evictions if joined.get(e.replica, inf) < e.start_ms)
    return {replica: count for replica, count in times.items() if count >= FLAPS}


def play(name: str, version: str | KafkaVersion) -> Run:
    """One cell of the ladder. Raises ValueError for an unknown schedule, with those known."""
    if name not in BY_SCENARIO:
        raise ValueError(f"no schedule {name!r} in the ladder; known: {', '.join(BY_SCENARIO)}")
    return scenario.play(scenario.read(name), version=version)


def sentence(run: Run) -> str:
    """What happened in a cell."""
    what, outcome = word(run), run.outcome
    lost = style.counted(len(outcome.lost), "committed record")
    follower, offset = (*outcome.diverged, (0, 0))[0]
    end = {
        "diverged": f"replica {follower} differs from its leader from offset {offset:,} on",
        "lost": f"{lost} not in the log of the leader",
        "offline": "no replica may lead",
        "stalled": "records that could be committed wait until somebody writes again",
        "flapping": f"a follower is taken in and dropped {sum(flapping(run).values())} times",
        "safe": "nothing happens to what was committed, and the ISR is calm",
    }
    return f"{what.capitalize()} in {run.cluster.version.name}: {end[what]}"


# The whole


def climb() -> Matrix:
    """The word of every cell: a row for each schedule, a column for each version."""
    versions = {version.name: version for version in PRESETS.values()}
    return {r.label: {v: word(play(r.scenario, versions[v])) for v in versions} for r in RUNGS}


def repaired(matrix: Matrix) -> dict[str, str]:
    """For each schedule the first version from which on its own word no longer appears, or ''."""
    firsts = {}
    for rung in RUNGS:
        row = matrix[rung.label]
        last = max((i for i, cell in enumerate(row.values()) if cell == rung.word), default=-1)
        firsts[rung.label] = [*row, ""][last + 1]
    return firsts


def repairs(matrix: Matrix) -> dict[str, str]:
    """The same to the very release: those within a column are played as well."""
    ends = repaired(matrix)
    for rung in RUNGS:
        if version := ends[rung.label]:
            good = GENERATIONS.index(KafkaVersion.of(version))
            while good and word(play(rung.scenario, GENERATIONS[good - 1])) != rung.word:
                good -= 1
            ends[rung.label] = GENERATIONS[good].releases
    return ends


def finding(matrix: Matrix) -> str:
    """How many issues the last column has behind it, and what happens there all the same."""
    done = [label for label, first in repaired(matrix).items() if first]
    last = list(next(iter(matrix.values())))[-1]
    losing = [label for label in done if matrix[label][last] in ("lost", "diverged")]
    rest = f"; {len(losing)} of these schedules lose records there all the same" if losing else ""
    return f"{len(done)} of {len(matrix)} issues are repaired in Kafka {last}{rest}"


def cell_chooser(matrix: Matrix, name: str = "stalled", version: str = "2.7") -> widgets.VBox:
    """Two lists: a schedule and a version. Below, the run of that cell, text and picture."""
    rows = [(rung.label, rung.scenario) for rung in RUNGS]
    schedules = controls.pick("schedule", rows, name)
    versions = controls.pick("version", list(next(iter(matrix.values()))), version)
    text = widgets.HTML()

    def draw() -> Figure | Axes:
        run = play(schedules.value, versions.value)
        text.value = f"<pre>{html.escape(sentence(run))}\n\n{html.escape(run.printed)}</pre>"
        return plot_cell(schedules.value, run)

    return controls.redrawn([schedules, versions, text], draw)


def plot_cell(name: str, run: Run) -> Figure | Axes:
    """One cell: who was in sync when, if that is its point; else the logs, long ones as bars."""
    if BY_SCENARIO[name].word == "flapping":
        return plot_members(run, sentence(run))
    if max(len(log.records) for log in run.cluster.disks.values()) > MOST_RECORDS:
        return plot_extents(run, sentence(run))
    return style.headline(replicas.plot_story(run), sentence(run))


def plot_members(run: Run, title: str | None = None) -> Axes:
    """When each replica was in the stored ISR."""
    spans = offsets.isr_of(run)
    count = f"{run.cluster.version.name}: {style.counted(len(spans) - 1, 'change')} of the ISR"
    rows = bands.isr_rows(spans, sorted(run.cluster.replicas))
    return bands.plot_bands(rows, title or f"{count} in {spans[-1].end_ms / 1000:g} s")


def plot_extents(run: Run, title: str | None = None) -> Axes:
    """Each replica's log as a bar: where it holds the leader's records, and where others."""
    disks = dict(sorted(run.cluster.disks.items()))
    leader = disks.get(run.cluster.controller.leader, Log())
    lengths, notes = [], []
    for log in disks.values():
        start, end = log.log_start_offset, log.log_end_offset
        pairs = ((at, log.record_at(at), leader.record_at(at)) for at in range(start, end))
        other = [at for at, own, leads in pairs if leads not in (None, own)] or [end]
        places = start, other[0], min(other[-1] + 1, end), end
        lengths.append([last - first for first, last in pairwise(places)])
        notes.append(f"other records from {other[0]:,}" if other[0] < end else f"ends at {end:,}")
    parts = zip(EXTENTS, zip(*lengths, strict=True), strict=True)
    filled = {name: numbers for name, numbers in parts if any(numbers)}
    label = f"offset, counted from {min(log.log_start_offset for log in disks.values()):,}"
    rows, title = [f"broker {number}" for number in disks], title or replicas.story_finding(run)
    return curves.plot_bars(rows, filled, title, label, notes=notes, colours=EXTENTS)
