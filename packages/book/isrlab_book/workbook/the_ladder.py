"""Notebook 11: the same schedules in every generation, and their outcomes.

A cell is one run of one schedule under the rules of one version. The outcomes of the records
(diverged, lost, offline, safe) are extended by two outcomes of the service: *stalled*, when the
high watermark could move by its own rule but is not checked, and *flapping*, when a replica joins
and leaves the ISR again and again.

A bug is fixed where its own word no longer appears. Its schedule can still end badly: where logs no
longer diverge, records discarded by an unclean election are still lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import inf
from typing import Any, NamedTuple

from matplotlib.axes import Axes

from isrlab.engine.high_watermark import settle
from isrlab.engine.versions import GENERATIONS, PRESETS, KafkaVersion
from isrlab.events import exact
from isrlab.show.matrix import plot_matrix
from isrlab.world import scenario
from isrlab.world.script import Run
from isrlab_proof.search.matrix import COLUMNS, QUESTIONS, RELEASES, SWITCHED, stored

FLAPS = 2  # how often a replica joins and leaves again


class Rung(NamedTuple):
    """A schedule, the issue it stands for, the word that its repair ends, and what was wrong."""

    issue: str
    scenario: str
    word: str
    label: str  # what a reader sees go wrong
    flaw: str


# In the order in which Kafka climbed them
# fmt: off
RUNGS = (
    Rung("KAFKA-1546", "message_burst", "flapping", "a burst evicts healthy followers",
         "counted records where time was needed"),
    Rung("KAFKA-4485", "steady_with_pauses", "flapping", "a steady load evicts a follower",
         "compared one instant where two fetches were needed"),
    Rung("KIP-101", "loss_three_replicas", "lost", "a restarted follower loses records",
         "a follower trusted its own high watermark, not its leader's history"),
    Rung("KIP-101", "divergence_power_loss", "diverged", "logs diverge in a power failure",
         "compared offsets, not the records' leader epochs"),
    Rung("KAFKA-3919", "real_offsets", "diverged", "logs diverge, as in KAFKA-3919",
         "the same, in a power cut that happened"),
    Rung("KIP-279", "fast_leader_change", "diverged", "logs diverge in two fast elections",
         "asked about one epoch where several differed"),
    Rung("KAFKA-7128", "joined_too_early", "lost", "a follower joins too early",
         "let a replica in at the old high watermark of a new leader"),
    Rung("KAFKA-7152", "idle_pauses", "flapping", "an idle follower is evicted",
         "judged by its clock a follower that was missing nothing"),
    Rung("KAFKA-13091", "stalled", "stalled", "the high watermark stalls",
         "did not re-check the high watermark when a shrink was stored"),
    Rung("KAFKA-19996", "flapping", "flapping", "a slow follower flaps",
         "lets a replica in at a high watermark that is being held"),
    Rung("KIP-966", "last_replica_standing", "lost", "the last replica loses its disk",
         "trusted the last member of the ISR, whatever its disk had lost"),
)
# fmt: on
BY_SCENARIO = {rung.scenario: rung for rung in RUNGS}
Matrix = dict[str, dict[str, str]]


# One cell


def word(run: Run) -> str:
    """The worst that a run shows: diverged, lost, offline, stalled, flapping, or safe."""
    if run.outcome.word == "safe" and is_stalled(run):
        return "stalled"
    return "flapping" if run.outcome.word == "safe" and flapping(run) else run.outcome.word


def is_stalled(run: Run) -> bool:
    """Whether the high watermark would move now, if only the leader checked (KAFKA-13091)."""
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


# The whole


def climb() -> Matrix:
    """The word of every cell: a row for each schedule, a column for each version."""
    versions = PRESETS.values()
    return {r.label: {v.name: word(play(r.scenario, v)) for v in versions} for r in RUNGS}


def repaired(matrix: Matrix) -> dict[str, str]:
    """For each schedule the first version from which its own word never appears, or ''."""
    firsts = {}
    for rung in RUNGS:
        row = matrix[rung.label]
        last = max((i for i, cell in enumerate(row.values()) if cell == rung.word), default=-1)
        firsts[rung.label] = [*row, ""][last + 1]
    return firsts


def repairs(matrix: Matrix) -> dict[str, str]:
    """The exact release of each repair: releases within a column are also played."""
    ends = repaired(matrix)
    for rung in RUNGS:
        if version := ends[rung.label]:
            good = GENERATIONS.index(KafkaVersion.of(version))
            while good and word(play(rung.scenario, GENERATIONS[good - 1])) != rung.word:
                good -= 1
            ends[rung.label] = GENERATIONS[good].releases
    return ends


def finding(matrix: Matrix) -> str:
    """How many bugs are fixed in the last column, and how many of their schedules still lose."""
    done = [label for label, first in repaired(matrix).items() if first]
    last = list(next(iter(matrix.values())))[-1]
    losing = [label for label in done if matrix[label][last] in ("lost", "diverged")]
    text = f"{len(done)} of {len(matrix)} bugs are fixed in Kafka {last}"
    if losing:
        text += f"; of the schedules, {len(losing)} lose records there all the same, "
        text += "by unclean elections"
    return text


# The same, found by a search


def plot_searched() -> Axes:
    """How many actions the shortest schedule needs to break a promise: questions by releases."""
    cells = _searched(QUESTIONS, COLUMNS)
    lost = [q for q, row in cells.items() if any(word == "lost" for _, word in row.values())]
    still = sum([*row.values()][-1][1] == "lost" for row in cells.values())
    title = f"In {len(lost)} of {len(cells)} rows some release breaks the promise"
    title += f"; with all repairs, {still or 'none'} does"
    return plot_matrix(cells, title, legend=LEGEND)


def plot_switched() -> Axes:
    """How single rules change the answers for the last release: questions by rules."""
    answers, last = stored(), [*RELEASES][-1]
    rows = [question for question in QUESTIONS if answers[question, last].actions]
    cells = _searched(rows, [last, *SWITCHED])
    ends = [sum(row[rules][1] in ("safe", "searched") for row in cells.values())
            for rules in cells[rows[0]] if rules.startswith(last)]  # fmt: skip
    title = f"A single repair ends up to {max(ends)} of the {len(rows)} losses of {last}"
    return plot_matrix(cells, title, legend=LEGEND, size=(1.15, 0.4))


LEGEND = {"lost": "broken by so many actions, and by no fewer", "safe": "no schedule breaks it",
          "searched": "no schedule of up to so many actions breaks it"}  # fmt: skip


def _searched(rows: Iterable[str], columns: Iterable[str]) -> dict[str, Any]:
    answers, looks = stored(), {"broken": "lost", "all": "safe"}
    heads = {rules: COLUMNS[rules].releases if rules in RELEASES else rules for rules in columns}
    return {q: {head: (answers[q, rules].field, looks.get(answers[q, rules].ended, "searched"))
                if (q, rules) in answers else ("not asked", "")
                for rules, head in heads.items()} for q in rows}  # fmt: skip


def questions() -> list[dict[str, Any]]:
    """The question that each row puts to the search, and the effort of all its columns."""
    rows, answers = [], stored()
    for name, (about, promise, budgets, of, *_) in QUESTIONS.items():
        done = [answer for (question, _), answer in answers.items() if question == name]
        rows.append({"question": name, "about": about, "promise": promise.replace("_", " "),
                     "budgets": budgets, "begins_with": "; ".join(of.splitlines()),
                     "states": sum(answer.states for answer in done),
                     "took_s": round(sum(answer.seconds for answer in done))})  # fmt: skip
    return rows
