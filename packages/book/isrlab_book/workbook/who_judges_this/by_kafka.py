"""Kafka's own classes and the engine, compared step by step.

Everything is computed from the stored verdicts (`isrlab_proof.judged`): the engine plays each run
again when the notebook runs.
"""

import inspect
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import ipywidgets as widgets
import pandas as pd
from matplotlib.axes import Axes

from isrlab.engine import versions
from isrlab.engine.choices import Form
from isrlab.engine.versions import GENERATIONS, RULES, KafkaVersion
from isrlab.show import controls, matrix, style
from isrlab.show.colours import OUTCOMES, PALE, WHITE
from isrlab.show.svg import Drawing
from isrlab_book.fields import draw_fields
from isrlab_proof import judged
from isrlab_proof.judged import Compared, JudgedRun

DEFAULTS = {"unclean_leader_election_enable", "replica_lag_time_max_ms", "replica_lag_max_messages",
            "session_timeout_ms", "producer_acks"}  # fmt: skip
RULED = [rule for rule in RULES if rule not in DEFAULTS]
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
    colours = {"same": OUTCOMES["safe"], "differ": OUTCOMES["diverged"]}
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


def draw_step(before: Compared | None, step: Compared, title: str) -> Drawing:
    """Everything that is compared after a step: Kafka's values above the engine's."""
    own, subjects = "leader" if "maximal" in step.kafka else "state", dict[str, list[str]]()
    for name in step.kafka:
        subject, _, fact = name.partition(".")
        key = f"follower {subject}" if fact else "answers" if " " in name else own
        subjects.setdefault(key, []).append(name)
    if answers := subjects.pop("answers", []):
        subjects["answers"] = answers[-4:]  # the latest produces
    blocks = list[tuple[list[str], dict[str, list[tuple[str, str]]]]]()
    for subject, names in subjects.items():
        heads = [FACTS.get(fact, fact) for fact in (name.split(".")[-1] for name in names)]
        if not blocks or heads != blocks[-1][0]:
            blocks.append((heads, {}))
        for side, values in (("Kafka", step.kafka), ("engine", step.engine)):
            row = blocks[-1][1][f"{subject}: {side}"] = []
            for name in names:
                is_new = before and before.kafka.get(name) != step.kafka[name]
                fill = OUTCOMES["diverged"] if name in step.differs else PALE if is_new else WHITE
                row.append((_text(values.get(name)), fill))
    return draw_fields(title, blocks)


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

    def draw(place: int) -> Drawing:
        step, before = steps[places[place]], steps[places[place] - 1] if place else None
        title = f"Step {places[place] + 1}, {spoken(kind, step.command)}: {len(step.kafka)} values "
        return draw_step(before, step, f"{title}compared, {len(step.differs)} differ")

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


def finding(counts: pd.DataFrame, scores: pd.DataFrame) -> str:
    """How many steps were compared, how many differ, and how many wrong variants they notice."""
    releases = sorted({*counts["release"]}, key=versions.release)
    differences, newest = judged.found().values(), scores.iloc[-1]
    apart = newest["variants"] - newest["same"]
    left = sum(map(is_left, differences))
    return (
        f"The engine replays {counts['steps'].sum():,} steps of Kafka's own classes, {releases[0]} "
        f"to {releases[-1]}: {counts['differ'].sum():,} differ. They notice {newest['noticed']} of "
        f"{apart} wrong variants of the rules of {newest['release']}. "
        f"Of the {len(differences)} differences found so far, {len(differences) - left} are fixed "
        f"and {left} remain on purpose."
    )
