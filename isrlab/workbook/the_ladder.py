"""The ladder: the same schedules climb through every generation, and what each does to them.

A cell is one run of one schedule under the rules of one version. To what became of the records
(diverged, lost, offline, safe) two words are added for what became of the service: *stalled*, when
the high watermark could move by its own rule but nobody looks, and *flapping*, when a replica joins
and leaves the ISR again and again. A click on a cell (here: two lists to choose from) plays it.
"""

from __future__ import annotations

import html
import io
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import ipywidgets as widgets
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from isrlab.engine.high_watermark import settle
from isrlab.engine.log import Log
from isrlab.engine.versions import GENERATIONS, PRESETS, KafkaVersion
from isrlab.show.replicas import plot_outcomes, plot_story, story_finding
from isrlab.show.style import INK, LOST, PALE, bare, broker_colour, plain
from isrlab.world import scenario
from isrlab.world.cluster import START_MS
from isrlab.world.frames import Frame
from isrlab.world.script import Run

MOST_RECORDS = 100  # of a log that is drawn record by record
FLAPS = 2  # as often as this a replica joins and leaves again


@dataclass(frozen=True, slots=True)
class Rung:
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
Matrix = dict[str, dict[str, str]]


# One cell


def word(run: Run) -> str:
    """The worst that a run shows: diverged, lost, offline, stalled, flapping, or safe."""
    of_records = run.outcome.word
    if of_records != "safe":
        return of_records
    if is_stalled(run):
        return "stalled"
    return "flapping" if flapping(run) else "safe"


def is_stalled(run: Run) -> bool:
    """The leader's high watermark would move now, if only the leader looked (KAFKA-13091)."""
    leader = run.cluster.leader
    if leader is None:
        return False
    looked, _ = settle(leader, run.cluster.now_ms)
    return looked.log.high_watermark > leader.log.high_watermark


def flapping(run: Run) -> dict[int, int]:
    """How often each replica that flaps was taken in by a leader and dropped again."""
    joined: set[int] = set()
    times: Counter[int] = Counter()
    for event in run.cluster.events:
        before, after = (_members(event, key) for key in ("isr_before", "isr"))
        if event["kind"] == "isr_expand":
            joined |= after - before
        elif event["kind"] == "isr_shrink":
            times.update((before - after) & joined)
            joined -= before - after
    return {replica: count for replica, count in times.items() if count >= FLAPS}


def _members(event: dict[str, object], key: str) -> set[int]:
    value = event.get(key)
    return set(value) if isinstance(value, list) else set()


def play(name: str, version: str | KafkaVersion) -> Run:
    """One cell of the ladder. Raises ValueError for an unknown schedule, with those known."""
    if name not in BY_SCENARIO:
        raise ValueError(f"no schedule {name!r} in the ladder; known: {', '.join(BY_SCENARIO)}")
    return scenario.play(scenario.read(name), version=version)


def sentence(run: Run) -> str:
    """What happened in a cell."""
    found, outcome = word(run), run.outcome
    count = len(outcome.lost)
    end = {
        "lost": f"{count} committed record{'s' * (count != 1)} not in the log of the leader",
        "offline": "no replica may lead",
        "stalled": "records that could be committed wait until somebody writes again",
        "flapping": f"a follower is taken in and dropped {sum(flapping(run).values())} times",
        "safe": "nothing happens to what was committed, and the ISR is calm",
    }
    if outcome.diverged:
        follower, offset = outcome.diverged[0]
        end["diverged"] = f"replica {follower} differs from its leader from offset {offset:,} on"
    return f"{found.capitalize()} in {run.cluster.version.name}: {end[found]}"


# The whole


def climb(
    versions: Iterable[str | KafkaVersion] | None = None, rungs: Iterable[Rung] = RUNGS
) -> Matrix:
    """The word of every cell: a row for each schedule, a column for each version."""
    asked = [KafkaVersion.of(v) for v in versions or PRESETS.values()]
    return {rung.label: {v.name: word(play(rung.scenario, v)) for v in asked} for rung in rungs}


def repaired(matrix: Matrix, rungs: Iterable[Rung] = RUNGS) -> dict[str, str]:
    """For each schedule the first version from which on its own word no longer appears, or ''."""
    found = {}
    for rung in rungs:
        row = matrix[rung.label]
        names = list(row)
        last = max((i for i, name in enumerate(names) if row[name] == rung.word), default=-1)
        found[rung.label] = names[last + 1] if last + 1 < len(names) else ""
    return found


def repairs(matrix: Matrix, rungs: Iterable[Rung] = RUNGS) -> dict[str, str]:
    """The same to the very release: those within a column are played as well."""
    found = repaired(matrix, rungs)
    for rung in rungs:
        if not found[rung.label]:
            continue
        good = GENERATIONS.index(KafkaVersion.of(found[rung.label]))
        while good and word(play(rung.scenario, GENERATIONS[good - 1])) != rung.word:
            good -= 1
        found[rung.label] = GENERATIONS[good].releases
    return found


def finding(matrix: Matrix) -> str:
    """How many issues the last column has behind it, and what happens there all the same."""
    done = [label for label, first in repaired(matrix).items() if first]
    last = list(next(iter(matrix.values())))[-1]
    losing = [label for label in done if matrix[label][last] in ("lost", "diverged")]
    rest = f"; {len(losing)} of these schedules lose records there all the same" if losing else ""
    return f"{len(done)} of {len(matrix)} issues are repaired in Kafka {last}{rest}"


def plot_ladder(
    matrix: Matrix, *, chosen: tuple[str, str] | None = None, ax: Axes | None = None
) -> Axes:
    """The matrix; `chosen` (a scenario and a version's name) is outlined."""
    columns = list(next(iter(matrix.values())))
    title = finding(matrix)
    ax = ax or plt.subplots(figsize=(4.2 + 0.72 * len(columns), 1.1 + 0.42 * len(matrix)))[1]
    plot_outcomes(matrix, ax=ax, title=title)
    if chosen:
        y = list(matrix).index(BY_SCENARIO[chosen[0]].label)
        x = columns.index(chosen[1])
        ax.add_patch(plt.Rectangle((x, y), 1, 1, fill=False, edgecolor=INK, linewidth=2.4))
    return ax


def cell_chooser(matrix: Matrix, name: str = "stalled", version: str = "2.7") -> widgets.VBox:
    """Two lists: a schedule and a version. Below, the run of that cell, picture and text."""
    columns = list(next(iter(matrix.values())))
    layout = widgets.Layout(width="380px")
    schedules = widgets.Dropdown(
        options=[(rung.label, rung.scenario) for rung in RUNGS],
        value=name,
        description="schedule",
        layout=layout,
    )
    versions = widgets.Dropdown(
        options=columns, value=version, description="version", layout=layout
    )
    picture = widgets.Image(format="png", layout=widgets.Layout(max_width="900px"))
    text = widgets.HTML()

    def draw(_: object = None) -> None:
        run = play(schedules.value, versions.value)
        picture.value = _png(schedules.value, run)
        printed = html.escape(f"{sentence(run)}\n\n{run.printed}")
        text.value = f"<pre>{printed}</pre>"

    for chooser in (schedules, versions):
        chooser.observe(draw, names="value")
    draw()
    return widgets.VBox([widgets.HBox([schedules, versions]), picture, text])


def _png(name: str, run: Run) -> bytes:
    figure = plot_cell(name, run)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=80)
    plt.close(figure)
    return buffer.getvalue()


def plot_cell(name: str, run: Run) -> Figure:
    """One cell: who was in sync when, if that is its point; else the logs, long ones as bars."""
    if BY_SCENARIO[name].word == "flapping":
        ax = plot_in_and_out(run)
        ax.set_title(plain(sentence(run)), fontsize=11, loc="left")
        return cast(Figure, ax.figure)
    if max(len(log.records) for log in run.cluster.disks.values()) > MOST_RECORDS:
        ax = plot_extents(run)
        ax.set_title(plain(sentence(run)), fontsize=11, loc="left")
        return cast(Figure, ax.figure)
    figure = plot_story(run)
    figure.suptitle(plain(sentence(run)), x=0.01, ha="left", fontsize=12)
    return figure


def plot_in_and_out(run: Run, *, ax: Axes | None = None) -> Axes:
    """When each replica was in the stored ISR."""
    replicas = sorted(run.cluster.replicas)
    ax = ax or plt.subplots(figsize=(9.5, 1.0 + 0.5 * len(replicas)))[1]
    changes: list[tuple[int, tuple[int, ...]]] = []
    for step in (entry for entry in run.cluster.journal if isinstance(entry, Frame)):
        if not changes or changes[-1][1] != step.controller.isr:
            changes.append((step.now_ms - START_MS, step.controller.isr))
    end = run.cluster.now_ms - START_MS
    for (since, isr), (until, _) in pairwise([*changes, (end, ())]):
        for y, number in enumerate(replicas):
            if number in isr:
                length = (until - since) / 1000
                ax.barh(y, length, 0.55, left=since / 1000, color=broker_colour(number))
    ax.set_yticks(range(len(replicas)), [f"broker {number}" for number in replicas])
    ax.set_ylim(len(replicas) - 0.5, -0.5)
    ax.set_xlim(0, end / 1000)
    ax.set_xlabel("time in s; a bar: in the stored ISR", fontsize=8)
    ax.tick_params(length=0, labelsize=8)
    bare(ax, "bottom")
    count = len(changes) - 1
    title = f"{run.cluster.version.name}: {count} change{'s' * (count != 1)} of the ISR"
    ax.set_title(plain(f"{title} in {end / 1000:g} s"), fontsize=11, loc="left")
    return ax


def plot_extents(run: Run, *, ax: Axes | None = None) -> Axes:
    """Each replica's log as a bar: where it holds the leader's records, and where others."""
    disks = dict(sorted(run.cluster.disks.items()))
    ax = ax or plt.subplots(figsize=(9.5, 1.1 + 0.7 * len(disks)))[1]
    start = min(log.log_start_offset for log in disks.values())
    leader = disks.get(run.cluster.controller.leader)
    marks = set()
    for y, (number, log) in enumerate(disks.items()):
        for first, last, agrees in _stretches(log, leader):
            colour = to_rgba(broker_colour(number), 0.35) if agrees else LOST
            ax.barh(y, last - first, 0.5, left=first - start, color=colour, edgecolor=INK)
            what = "as the leader" if agrees else "other records than the leader"
            text = what if number != run.cluster.controller.leader else "leader"
            if last - first > len(log.records) // 8:
                ax.text((first + last) / 2 - start, y, text, ha="center", va="center", fontsize=8)
            marks |= {first, last}
    ends = sorted(mark for mark in marks if mark != start)
    for row, mark in enumerate(ends):
        ax.axvline(mark - start, color=PALE, linewidth=0.8, zorder=0)
        ax.text(mark - start, -0.45 - 0.18 * (row % 3), f"{mark:,}", ha="right", fontsize=7.5)
    ax.set_yticks(range(len(disks)), [f"broker {number}" for number in disks])
    ax.set_ylim(len(disks) - 0.5, -1.05)
    ax.set_xlabel(f"offset, counted from {start:,}", fontsize=8)
    ax.tick_params(length=0, labelsize=8)
    bare(ax, "bottom")
    ax.set_title(plain(story_finding(run)), fontsize=11, loc="left")
    return ax


def _stretches(log: Log, leader: Log | None) -> list[tuple[int, int, bool]]:
    """(first, end, whether it agrees with the leader) of each stretch of a log."""
    found: list[tuple[int, int, bool]] = []
    for offset, record in enumerate(log.records, start=log.log_start_offset):
        theirs = leader.record_at(offset) if leader else None
        agrees = theirs is None or theirs == record
        if found and found[-1][2] == agrees:
            found[-1] = (found[-1][0], offset + 1, agrees)
        else:
            found.append((offset, offset + 1, agrees))
    return found
