"""Kafka's own classes and the engine, compared step by step.

Everything is computed from the stored verdicts (`isrlab_proof.judged`): the engine plays each run
again when the notebook runs. A rule is *noticed* if the engine, with another form of that rule,
differs from Kafka somewhere in the runs of a class.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from typing import Any

import ipywidgets as widgets
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isrlab.engine import versions
from isrlab.engine.choices import Form
from isrlab.engine.versions import GENERATIONS, RULES, KafkaVersion
from isrlab.show import controls, matrix, style
from isrlab_proof import judged
from isrlab_proof.judged import Compared, JudgedRun

DEFAULTS = {"unclean_leader_election_enable", "replica_lag_time_max_ms", "replica_lag_max_messages",
            "session_timeout_ms", "producer_acks"}  # fmt: skip
RULED = [rule for rule in RULES if rule not in DEFAULTS]
FACT_COLOURS = {"same": style.WHITE, "changed": style.PALE, "differs": style.OUTCOMES["diverged"]}
POWER_COLOURS = {"noticed": style.OUTCOMES["safe"], "not noticed": style.OUTCOMES["lost"],
                 "one form": style.FAINT}  # fmt: skip
FACTS = {"maximal": "maximal ISR", "is_pending": "pending", "asked": "requests", "isr": "ISR"}
FACTS |= {"leo": "LEO", "hw": "HW", "end_then": "LEO then", "partition_epoch": "partition epoch"}
FACTS |= {"caught_up": "caught up (ms)", "fetched": "fetched (ms)", "broker_epoch": "broker epoch"}


# All of them


def replay() -> pd.DataFrame:
    """The counts of stored steps by class and release, and how many differ when played again."""
    counts = judged.figures()
    counts["differ"] = [
        sum(bool(step.differs) for run in judged.read(kind, release)
            for step in run.beside(KafkaVersion.of(release)))
        for kind, release in zip(counts["class"], counts["release"], strict=True)
    ]  # fmt: skip
    return counts


def plot_replay(counts: pd.DataFrame) -> Axes:
    """Steps by class and release, and whether the engine showed the same."""
    releases = sorted({*counts["release"]}, key=versions.release)
    cells: dict[str, dict[str, str | tuple[str, str]]] = {}
    known = {(r["class"], r["release"]): r for r in counts.to_dict("records")}
    for kind in dict.fromkeys(counts["class"]):
        row = cells.setdefault(kind, dict.fromkeys(releases, ("", "not stored")))
        for release in releases:
            if figures := known.get((kind, release)):
                word = "differ" if figures["differ"] else "same"
                row[release] = f"{figures['steps']:,}", word
    title = f"{counts['steps'].sum():,} steps of {style.counted(len(releases), 'release')}: "
    title += f"Kafka and the engine differ in {counts['differ'].sum():,}"
    colours = {"same": style.OUTCOMES["safe"], "differ": style.OUTCOMES["diverged"]}
    legend = {"same": "steps that show the same", "differ": "some step differs"}
    colours["not stored"] = style.FAINT
    return matrix.plot_matrix(cells, title, colours=colours, legend=legend)


# One run


def one(release: str, number: int, kind: str) -> JudgedRun:
    """A stored scenario by its number. Raises ValueError with the valid numbers."""
    runs = judged.read(kind, release)
    if not 0 <= number < len(runs):
        raise ValueError(f"no scenario {number} of {release}; valid: 0 to {len(runs) - 1}")
    return runs[number]


def plot_step(before: Compared | None, step: Compared, title: str) -> Figure:
    """Everything that is compared after a step: Kafka's values above the engine's."""
    own, subjects = "leader" if "maximal" in step.kafka else "state", dict[str, list[str]]()
    for name in step.kafka:
        subject, _, fact = name.partition(".")
        key = f"follower {subject}" if fact else "answers" if " " in name else own
        subjects.setdefault(key, []).append(name)
    subjects["answers"] = subjects.get("answers", [])[-4:]  # the latest produces
    followers = [name for name in subjects if name.startswith("follower")]
    tables = [names for names in ([own], followers, ["answers"] * bool(subjects["answers"]))
              if names]  # fmt: skip
    heights = [2 * len(names) + 1.6 for names in tables]
    options = {"height_ratios": heights}
    figure, grid = style.panels(len(tables), 1, (9.2, 0.5 + 0.23 * sum(heights)), **options)
    for ax, names in zip(grid.flat, tables, strict=True):
        _draw_facts(ax, {subject: subjects[subject] for subject in names}, (before, step))
    return style.headline(figure, title)


def _draw_facts(
    ax: Axes, subjects: Mapping[str, list[str]], steps: tuple[Compared | None, Compared]
) -> None:
    before, step = steps
    cells: dict[str, dict[str, str | tuple[str, str]]] = {}
    for subject, names in subjects.items():
        for side, shown in (("Kafka", step.kafka), ("engine", step.engine)):
            row = cells.setdefault(f"{subject}: {side}", {})
            for name in names:
                old = before.kafka.get(name) if before else None
                word = "differs" if name in step.differs else "same"
                if word == "same" and before and old != step.kafka[name]:
                    word = "changed"
                fact = name.rpartition(".")[2]
                row[FACTS.get(fact, fact)] = _text(shown.get(name)), word
    matrix.plot_matrix(cells, "", colours=FACT_COLOURS, size=(1.5, 0.2), ax=ax)
    ax.tick_params(labelsize=8)


def _text(value: Any) -> str:
    if isinstance(value, list):
        pairs = value and isinstance(value[0], list)
        return " ".join(f"({e},{o})" for e, o in value[-2:]) if pairs else ",".join(map(str, value))
    words = {None: "-", True: "yes", False: "no"}
    is_word = value is None or isinstance(value, bool)
    text = words[value] if is_word else str(value)
    return text.replace("_", " ").lower() if len(text) > 12 else text


def step_player(
    release: str, number: int, kind: str = "partition", wrong: str = ""
) -> widgets.VBox:
    """A slider through the steps of a scenario that show something new: both sides after each.

    With `wrong`, the engine has another form of that rule, and the first step shown is the first
    that differs. Raises ValueError if there is no such rule, or no other form.
    """
    version = KafkaVersion.of(release)
    if wrong and wrong not in RULED:
        raise ValueError(f"no rule {wrong!r}; known: {', '.join(RULED)}")
    others = other_forms(version, wrong) if wrong else [version]
    if not others:
        raise ValueError(f"{wrong} has one form only")
    steps = list(one(release, number, kind).beside(others[0]))
    places = [0] + [n for n, (old, new) in enumerate(pairwise(steps), 1)
                  if old.kafka != new.kafka or old.differs != new.differs]  # fmt: skip
    first = next((n for n, place in enumerate(places) if steps[place].differs), 0)
    slider = widgets.IntSlider(value=first, min=0, max=len(places) - 1, description="step")

    def draw(place: int) -> Figure:
        step, before = steps[places[place]], steps[places[place] - 1] if place else None
        title = f"Step {places[place] + 1}, {spoken(kind, step.command)}: {len(step.kafka)} values "
        return plot_step(before, step, f"{title}compared, {len(step.differs)} differ")

    return controls.LiveFigure([slider], draw, most=len(places))


def spoken(kind: str, command: list[Any]) -> str:
    """A command to a class, with the names of its words."""
    name, *words = command
    _, player = judged.CLASSES[kind]
    _, *names = inspect.signature(getattr(player, name)).parameters
    named = [f"{n.replace('_', ' ')} {_text(w)}" for n, w in zip(names, words, strict=False)]
    return ", ".join([name, *named])


# What a wrong engine would show


def other_forms(version: KafkaVersion, rule: str) -> list[KafkaVersion]:
    """The release with each other form of one rule."""
    value = getattr(version, rule)
    every = type(value) if isinstance(value, Form) else {getattr(v, rule) for v in GENERATIONS}
    return [version.with_(**{rule: other}) for other in sorted(set(every) - {value})]


def power(releases: Sequence[str]) -> dict[str, dict[str, str]]:
    """For each rule and release, over all classes: noticed, not noticed, or of one form only.

    Raises ValueError for a release of which nothing is stored.
    """
    known = sorted({*judged.figures()["release"]}, key=versions.release)
    if unknown := [release for release in releases if release not in known]:
        raise ValueError(f"no verdicts of {unknown[0]!r} are stored; there are {', '.join(known)}")
    words: dict[str, dict[str, str]] = {}
    for rule, release in product(RULED, releases):
        others = other_forms(KafkaVersion.of(release), rule)
        kinds = [kind for kind in judged.CLASSES if release in judged.releases(kind)]
        runs = [run for kind in kinds for run in reversed(judged.read(kind, release))]
        was_noticed = any(not run.agrees(other) for other in others for run in runs)
        word = "noticed" if was_noticed else "not noticed" if others else "one form"
        words.setdefault(rule, {})[release] = word
    return words


def plot_power(words: Mapping[str, Mapping[str, str]]) -> Axes:
    """Rules that some verdict notices, by release."""
    shown = {
        rule.replace("_", " "): {release: ("", word) for release, word in row.items()}
        for rule, row in words.items()
        if "noticed" in row.values()
    }
    legend = {"noticed": "another form is noticed", "not noticed": "no stored step notices"}
    title = f"Stored steps would show an error in {len(shown)} of {len(words)} rules"
    return matrix.plot_matrix(shown, title, colours=POWER_COLOURS, legend=legend, size=(0.6, 0.2))


def unnoticed(words: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Rules that no stored step of any release notices."""
    return [rule for rule, row in words.items() if "noticed" not in row.values()]


def mutants() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Wrong variants of rules by release, and those that nothing notices (judge/mutants.py)."""
    scores, left = (pd.read_csv(judged.FOLDER / f"{x}.csv") for x in ("mutants", "survivors"))
    share = scores["noticed"] / (scores["variants"] - scores["same"])
    return scores.assign(percent=(100 * share).round(1)), left.fillna("")


# What was found


def is_left(entry: Mapping[str, Any]) -> bool:
    """Whether a known difference remains; the judge avoids it."""
    return not entry.get("is_mended", True)


def found_table() -> list[dict[str, str]]:
    """The differences that were found, what became of each, and the scenario that plays it."""
    return [
        {
            "": letter,
            "what Kafka does": entry["what"],
            "class": entry["class"],
            "releases": ", ".join(entry["releases"]),
            "in Kafka's source": entry["source"],
            "in the engine": f"different on purpose: {entry['why']}" if is_left(entry) else "fixed",
            "scenario": entry.get("scenario", entry.get("why", "")) if entry["is_mended"] else "",
        }
        for letter, entry in judged.found().items()
    ]


def finding(counts: pd.DataFrame, words: Mapping[str, Mapping[str, str]]) -> str:
    """How many steps were compared, how many differ, and how many rules they check."""
    releases = sorted({*counts["release"]}, key=versions.release)
    held, differences = len(words) - len(unnoticed(words)), judged.found().values()
    left = sum(map(is_left, differences))
    return (
        f"The engine replays {counts['steps'].sum():,} steps of Kafka's own classes, {releases[0]} "
        f"to {releases[-1]}: {counts['differ'].sum():,} differ. These steps would show an error in "
        f"{held} of the engine's {len(words)} rules. Of the {len(differences)} differences found "
        f"so far, {len(differences) - left} are fixed and {left} remain on purpose."
    )
