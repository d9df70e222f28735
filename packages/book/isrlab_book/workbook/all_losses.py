"""Notebook 11: every known loss and divergence, by the rules of every release.

A cell is one run of one scenario. It leads to the step that decided: the first after which its
release and the nearest one that ends otherwise differ.
"""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from html import escape
from itertools import groupby
from typing import Any, NamedTuple

from IPython.display import HTML
from matplotlib.axes import Axes

from isrlab.engine.versions import GENERATIONS, KafkaVersion
from isrlab.installed import DATA
from isrlab.show.colours import OUTCOMES
from isrlab.show.matrix import plot_matrix
from isrlab.world import scenario
from isrlab.world.exploring import Exploration
from isrlab.world.script import Run
from isrlab_book.explorer import link
from isrlab_book.explorer.explorer import Explorer
from isrlab_proof.search.matrix import COLUMNS, QUESTIONS, RELEASES, SWITCHED, stored

RECORDS = "lost", "diverged"


class Flaw(NamedTuple):
    """A row of `data/flaws.csv`, newest flaws first."""

    scenario: str
    issue: str  # or a report in data/upstream
    word: str  # the one that its repair ends
    label: str  # what a reader sees go wrong
    mistake: str
    words: str  # how it ends, oldest releases first: "26sa 2lo" is safe in 26, then lost in 2


FLAWS = tuple(map(Flaw._make, [*csv.reader((DATA / "flaws.csv").open(encoding="utf-8"))][1:]))
Matrix = dict[str, dict[KafkaVersion, str]]


def play(name: str, version: str | KafkaVersion) -> Run:
    """One cell. Raises ValueError for an unknown scenario."""
    return scenario.play(scenario.read(name), version=version)


@cache
def every_cell() -> Matrix:
    """The word of every scenario by the rules of every release."""
    return {f.scenario: {v: play(f.scenario, v).outcome.word for v in GENERATIONS} for f in FLAWS}


def ranges(row: dict[KafkaVersion, str]) -> Iterator[tuple[list[KafkaVersion], str]]:
    """Neighbouring versions with the same word."""
    for same, versions in groupby(row, key=row.__getitem__):
        yield list(versions), same


def decided(name: str, version: KafkaVersion) -> tuple[tuple[str, ...], int]:
    """The versions to compare and the step that decided: the first difference from the nearest
    release that ends otherwise, or the step that broke a promise if every release ends so."""
    row, place = every_cell()[name], GENERATIONS.index(version)
    others = [v for v in GENERATIONS if row[v] != row[version]]
    near = sorted(others, key=lambda v: abs(GENERATIONS.index(v) - place))[:1]
    versions = tuple(v.name for v in (version, *near))
    story = Exploration(scenario.read(name), versions)
    path = story.path(story.current)
    broken = next((step for step in path if story.broken(version.name, step)), path[-1])
    return versions, path.index(story.differs() or broken)


def explore(name: str, version: str) -> Explorer:
    """A cell, opened at the step that decided. Raises KeyError for a scenario of another page."""
    versions, at = decided(name, KafkaVersion.of(version))
    return Explorer(scenario.read(name), versions, at)


def show_all() -> HTML:
    """The table: a row for each scenario, a column for each release, newest first; a cell leads to
    its step."""
    heads = "".join(f"<th><span>{v.releases}</span></th>" for v in reversed(GENERATIONS))
    rows = [f"<tr><th>{escape(f.label)}</th>{''.join(_cells(f.scenario))}</tr>" for f in FLAWS]
    style = (
        ".losses th{text-align:left;font-weight:400;min-width:11em}.losses thead th{min-width:0;"
        "padding:2px}.losses thead span{writing-mode:vertical-rl}.losses td{padding:2px 0;"
        "color:#222;text-align:center!important;border:1px solid #fff;font-size:11px}"
        ".losses a{color:#222}"
    )
    head = f"<thead><tr><th>what happens</th>{heads}</tr></thead>"
    whole = "".join(['<table class="losses">', head, *rows, "</table>"])
    return HTML(f'<style>{style}</style><div style="overflow-x:auto">{whole}</div>')


def _cells(name: str) -> Iterator[str]:
    for versions, what in reversed([*ranges(every_cell()[name])]):
        is_last = versions[-1] is GENERATIONS[-1]
        compared, at = decided(name, versions[0 if is_last else -1])
        fragment = link.fragment(scenario.read(name), compared, at)
        short = what if len(versions) > 1 or len(what) < 5 else what[:3] + "."
        yield (f'<td colspan="{len(versions)}" style="background:{OUTCOMES[what]}" title="{what}">'
               f'<a data-play="{fragment}">{short}</a></td>')  # fmt: skip


def needs(name: str) -> str:
    """The failure that a scenario needs to lose records, beside stops and requests; or none."""
    text = scenario.read(name)
    if "unclean.leader.election.enable=true" in text or "elect unclean" in text:
        return "an unclean election"
    words = {"power_loss": "a power failure", "fail_directory": "a failed disk"}
    return next((failure for word, failure in words.items() if word in text), "none of these")


def finding() -> str:
    """How many scenarios lose records in the newest release, and what they need for it."""
    last, cells = GENERATIONS[-1], every_cell()
    counts = Counter(needs(name) for name in cells if cells[name][last] in RECORDS)
    parts = sorted(counts.items(), key=lambda part: (part[0] == "none of these", part[1]))
    return (
        f"Kafka {last.releases} loses committed records in {counts.total()} of these {len(cells)} "
        f"scenarios: {', '.join(f'{count} with {failure}' for failure, count in parts)}"
    )


# The same, found by a search


def plot_searched() -> Axes:
    """How many actions the shortest scenario needs to break a promise: questions by releases."""
    cells = _searched(QUESTIONS, COLUMNS)
    lost = [q for q, row in cells.items() if any(word == "lost" for _, word in row.values())]
    last = [[*row.values()][-1][1] for row in cells.values()]
    title = f"Within these bounds some release breaks {len(lost)} of {len(cells)} promises, and all"
    title += f" repairs together break {last.count('lost') or 'none'}"
    return plot_matrix(cells, title, legend=LEGEND)


def plot_switched() -> Axes:
    """How single rules change the answers for the last release: questions by rules."""
    answers, last = stored(), [*RELEASES][-1]
    rows = [question for question in QUESTIONS if answers[question, last].actions]
    cells = _searched(rows, [last, *SWITCHED])
    ends = [sum(row[rules][1] in ("safe", "searched") for row in cells.values())
            for rules in cells[rows[0]] if rules.startswith(last)]  # fmt: skip
    title = f"With one repair the search finds {len(rows) - max(ends)} of {len(rows)} losses of "
    return plot_matrix(cells, f"{title}{last}, within its bounds", legend=LEGEND, size=(1.15, 0.4))


LEGEND = {"lost": "broken by so many actions, and by no fewer", "safe": "no scenario breaks it",
          "searched": "not broken by so many actions; more were not tried"}  # fmt: skip


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
