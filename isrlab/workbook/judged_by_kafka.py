"""Notebook 24: what Kafka's own classes showed, and the engine beside them, step by step.

Everything is computed from the stored verdicts (`isrlab.judged`): each run is played again by the
engine when the notebook runs. A rule is *noticed* if the engine, with another form of that rule,
shows something else than Kafka did, somewhere in the runs of a class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise, product
from typing import Any, NamedTuple

import ipywidgets as widgets
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isrlab import judged
from isrlab.engine import versions
from isrlab.engine.choices import Form
from isrlab.engine.versions import GENERATIONS, RULES, KafkaVersion
from isrlab.judged import Run, Step
from isrlab.show import bands, controls, curves, matrix, style
from isrlab.world import scenario

DEFAULTS = {"unclean_leader_election_enable", "replica_lag_time_max_ms", "replica_lag_max_messages",
            "session_timeout_ms", "producer_acks"}  # fmt: skip
RULED = [rule for rule in RULES if rule not in DEFAULTS]
PARTITION = "partition"  # the class whose runs are drawn
BROKERS = (2, 3, 4)  # its followers
FACT_COLOURS = {"same": style.WHITE, "changed": style.PALE, "differs": style.OUTCOMES["diverged"]}
POWER_COLOURS = {"noticed": style.OUTCOMES["safe"], "not noticed": style.OUTCOMES["lost"],
                 "one form": style.FAINT}  # fmt: skip
FACTS = {"maximal": "maximal ISR", "is_pending": "pending", "asked": "requests", "isr": "ISR"}
FACTS |= {"leo": "LEO", "hw": "HW", "end_then": "LEO then", "partition_epoch": "partition epoch"}
FACTS |= {"caught_up": "caught up (ms)", "fetched": "fetched (ms)", "broker_epoch": "broker epoch"}


# All of them


def replay() -> pd.DataFrame:
    """The stored steps of each class and release, played again: how many, how many differ."""
    counts = judged.figures()
    counts["differ"] = [
        sum(
            bool(step.differs)
            for run in judged.read(kind, release)
            for step in beside(run, release)
        )
        for kind, release in zip(counts["class"], counts["release"], strict=True)
    ]
    return counts


def beside(run: Run, release: str) -> list[Step]:
    return list(run.beside(KafkaVersion.of(release)))


def plot_replay(counts: pd.DataFrame) -> Axes:
    """Steps by class and release, and whether the engine showed the same."""
    releases = sorted({*counts["release"]}, key=versions.release)
    cells: dict[str, dict[str, str | tuple[str, str]]] = {}
    known = {(r["class"], r["release"]): r for r in counts.to_dict("records")}
    for kind in dict.fromkeys(counts["class"]):
        row = cells.setdefault(kind, dict.fromkeys(releases, ("", "not stored")))
        for release in releases:
            if found := known.get((kind, release)):
                word = "differ" if found["differ"] else "same"
                row[release] = f"{found['steps']:,}", word
    title = f"{counts['steps'].sum():,} steps of {style.counted(len(releases), 'release')}: "
    title += f"Kafka and the engine differ in {counts['differ'].sum():,}"
    colours = {"same": style.OUTCOMES["safe"], "differ": style.OUTCOMES["diverged"]}
    legend = {"same": "steps that show the same", "differ": "some step differs"}
    colours["not stored"] = style.FAINT
    return matrix.plot_matrix(cells, title, colours=colours, legend=legend)


def errors_by_command(kind: str = PARTITION) -> dict[str, Counter[str]]:
    """For each command of a class the errors in it or in its answer, "" for none, by count."""
    errors: dict[str, Counter[str]] = {}
    for release in judged.releases(kind):
        for run in judged.read(kind, release):
            for (name, *words), state in zip(run.schedule, run.states, strict=True):
                said = [word for word in (*words, state.get("response")) if isinstance(word, str)]
                errors.setdefault(name, Counter()).update(said or [""])
    return dict(sorted(errors.items(), key=lambda item: -item[1].total()))


def plot_commands(kind: str = PARTITION) -> Axes:
    """How often each command was given to a class, and how often an error was in it."""
    errors = errors_by_command(kind)
    fine = [counts[""] for counts in errors.values()]
    bad = [counts.total() - counts[""] for counts in errors.values()]
    parts = {"without an error": fine, "with an error": bad}
    colours = {"without an error": style.GREY, "with an error": style.SERIES[1]}
    notes = [style.counted(len(counts) - 1, "error") if len(counts) > 1 else ""
             for counts in errors.values()]  # fmt: skip
    title = f"{sum(fine) + sum(bad):,} commands to the class {kind}, {sum(bad):,} with an error"
    return curves.plot_bars(list(errors), parts, title, "steps", notes=notes, colours=colours)


# One run


def one(release: str, number: int, kind: str = PARTITION) -> Run:
    """A stored schedule. Raises ValueError naming what there is."""
    runs = judged.read(kind, release)
    if not 0 <= number < len(runs):
        raise ValueError(f"schedule {number} of {release}: there are 0 to {len(runs) - 1}")
    return runs[number]


def plot_run(release: str, number: int) -> Figure:
    """A whole schedule: offsets and ISR after each step, of Kafka (lines) and engine (dots)."""
    steps = beside(one(release, number), release)
    figure, grid = style.panels(2, 1, (9.2, 5.2), sharex=True, height_ratios=(3, 2))
    _draw_offsets(grid[0, 0], steps)
    rows: dict[str, list[bands.Span]] = {}
    for replica in BROKERS:
        for name, side in (("Kafka", "kafka"), ("engine", "engine")):
            rows[f"{replica} in the ISR: {name}"] = _members(steps, replica, side)
    bands.plot_bands(rows, "", legend={}, ax=grid[1, 0])
    grid[1, 0].set(xlabel="step", xlim=(0, len(steps)))
    wrong = sum(bool(step.differs) for step in steps)
    title = f"{release}, schedule {number}: {len(steps)} steps, {wrong} differ"
    return style.headline(figure, title)


def _draw_offsets(ax: Axes, steps: list[Step]) -> None:
    x = np.arange(len(steps)) + 0.5
    lines = [(f"{n}.leo", f"LEO of {n}", style.broker_colour(n), "-") for n in BROKERS]
    lines += [("leo", "LEO", style.INK, "-"), ("hw", "HW", style.INK, "--")]
    for name, label, colour, dashes in lines:
        kafka, engine = (
            [_offset(getattr(step, side).get(name)) for step in steps]
            for side in ("kafka", "engine")
        )
        ax.step(x, kafka, where="mid", color=colour, linestyle=dashes, linewidth=1.6, label=label)
        ax.plot(x, engine, ".", color=colour, markersize=4)
    ax.set(ylabel="offset", ylim=(-0.5, None))
    style.finish(ax, "lines: Kafka; dots: the engine; a follower's LEO is what the leader knows")
    ax.legend(loc="upper left", ncols=2, fontsize=8)


def _offset(value: int | None) -> float:
    return np.nan if value is None or value < 0 else value


def _members(steps: list[Step], replica: int, side: str) -> list[bands.Span]:
    spans: list[bands.Span] = []
    for place, step in enumerate(steps):
        isr = getattr(step, side).get("isr")
        state = "not known" if isr is None else f"broker {replica}" if replica in isr else "out"
        start = spans.pop().start_s if spans and spans[-1].state == state else place
        spans.append(bands.Span(start, place + 1, state))
    return spans


def plot_step(before: Step | None, step: Step, title: str) -> Figure:
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
    ax: Axes, subjects: Mapping[str, list[str]], steps: tuple[Step | None, Step]
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


def step_player(release: str, number: int, kind: str = PARTITION) -> widgets.VBox:
    """A slider through the steps of a schedule that show something new: both sides after each."""
    steps = beside(one(release, number, kind), release)
    told = [0, *(n for n, (old, new) in enumerate(pairwise(steps), 1) if old.kafka != new.kafka)]
    slider = widgets.IntSlider(value=0, min=0, max=len(told) - 1, description="step")

    def draw(place: int) -> Figure:
        step, before = steps[told[place]], steps[told[place] - 1] if place else None
        title = f"Step {told[place] + 1}, {spoken(step.command)}: {len(step.kafka)} values "
        return plot_step(before, step, f"{title}compared, {len(step.differs)} differ")

    return controls.Redrawn([slider], draw, most=len(told))


def run_player(release: str, number: int) -> widgets.VBox:
    """Whole schedules: a release, and which of its schedules."""
    releases = judged.releases(PARTITION)
    least = min(len(judged.read(PARTITION, name)) for name in releases)
    which = controls.choice("schedule", range(least), number)
    return controls.Redrawn([controls.pick("release", releases, release), which], plot_run)


def spoken(command: list[Any]) -> str:
    """A command in words."""
    name, *words = command
    match name, words:
        case "fetch", [replica, offset, last, epoch, incarnation]:
            asked = f"fetch of {replica} at {offset}"
            asked += f", last epoch {last}" if last >= 0 else ""
            asked += f", in epoch {epoch}" if epoch >= 0 else ""
            return f"{asked}, broker epoch {incarnation}" if incarnation >= 0 else asked
        case "order", [epoch, version, isr, *leader]:
            who = f"{leader[0]} leads" if leader else "1 leads"
            return f"order: {who} epoch {epoch}, partition epoch {version}, ISR {_text(isr)}"
        case "brokers", known:
            return "brokers: " + ", ".join(
                f"{n} {'trusted' if is_well else 'fenced'} (broker epoch {epoch})"
                for n, epoch, is_well in known
            )
        case "answer", [error]:
            return f"answer to the ISR request: {error or 'stored'}"
        case "wait", [duration_ms]:
            return f"{duration_ms:,} ms"
        case "produce", []:
            return "produce with acks=all"
        case "append", [count]:
            return f"append of {style.counted(count, 'record')}"
        case "check", []:
            return "the periodic ISR check"
    return " ".join(map(str, command))


# What a wrong engine would show


class Notice(NamedTuple):
    """Where a run first shows something else than Kafka did, by another form of a rule."""

    before: Step | None
    step: Step
    place: int  # of the step in its schedule, from 1
    schedule: int


def other_forms(version: KafkaVersion, rule: str) -> dict[str, KafkaVersion]:
    """The release with each other form of one rule, by the form's name."""
    value = getattr(version, rule)
    every = type(value) if isinstance(value, Form) else {getattr(v, rule) for v in GENERATIONS}
    others = [version.with_(**{rule: other}) for other in sorted(set(every) - {value})]
    return {other.form(rule): other for other in others}


def first_notice(release: str, other: KafkaVersion) -> Notice | None:
    """The first step of a leader's runs that shows other rules."""
    for number, run in enumerate(judged.read(PARTITION, release)):
        before = None
        with suppress(ArithmeticError, LookupError, TypeError, ValueError):
            for place, step in enumerate(run.beside(other), 1):
                if step.differs:
                    return Notice(before, step, place, number)
                before = step
    return None


def power(releases: Sequence[str]) -> dict[str, dict[str, str]]:
    """For each rule and release, over all classes: noticed, not noticed, or of one form only.

    Raises ValueError for a release of which nothing is stored.
    """
    known = sorted({*judged.figures()["release"]}, key=versions.release)
    if unknown := [release for release in releases if release not in known]:
        raise ValueError(f"no verdicts of {unknown[0]!r} are stored; there are {', '.join(known)}")
    words: dict[str, dict[str, str]] = {}
    for rule, release in product(RULED, releases):
        others = other_forms(KafkaVersion.of(release), rule).values()
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
    title = f"{len(shown)} of {len(words)} rules are held by what Kafka showed"
    return matrix.plot_matrix(shown, title, colours=POWER_COLOURS, legend=legend, size=(0.6, 0.2))


def unnoticed(words: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Rules that no stored step of any release notices."""
    return [rule for rule, row in words.items() if "noticed" not in row.values()]


def switch_player(release: str, words: Mapping[str, Mapping[str, str]]) -> widgets.VBox:
    """One rule of the engine switched by hand: the first step at which Kafka's state shows it."""
    version = KafkaVersion.of(release)
    found = {
        f"{rule.replace('_', ' ')}: {form}": notice
        for rule, row in words.items()
        if row.get(release) == "noticed"
        for form, other in other_forms(version, rule).items()
        if (notice := first_notice(release, other))
    }

    def draw(name: str) -> Figure:
        notice = found[name]
        title = f"With “{name}” the engine is wrong after step {notice.place} of schedule "
        title += f"{notice.schedule}: {spoken(notice.step.command)}"
        return plot_step(notice.before, notice.step, title)

    return controls.Redrawn([controls.pick("rule", list(found), next(iter(found)))], draw)


# What was found


def is_left(entry: Mapping[str, Any]) -> bool:
    """The engine does otherwise, knowingly; the judge sees to it that this does not show."""
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
            "in the engine": f"otherwise: {entry['why']}" if is_left(entry) else "mended",
            "scenario": entry.get("scenario", entry.get("why", "")) if entry["is_mended"] else "",
        }
        for letter, entry in judged.found().items()
    ]


def shown(letter: str) -> str:
    """The scenario of a difference, played by the first release that shows it."""
    entry = judged.found().get(letter, {})
    if "scenario" not in entry:
        known = [name for name, each in judged.found().items() if "scenario" in each]
        raise ValueError(f"no scenario plays {letter!r}; there are {', '.join(known)}")
    run = scenario.play(scenario.read(entry["scenario"]))
    return f"{entry['scenario']}, in {run.version}: {entry['what']}\n\n{run.printed}"


def finding(counts: pd.DataFrame, words: Mapping[str, Mapping[str, str]]) -> str:
    """What was compared, what differs, and how much of the engine is held by it."""
    releases = sorted({*counts["release"]}, key=versions.release)
    held, found = len(words) - len(unnoticed(words)), judged.found().values()
    left = sum(map(is_left, found))
    return (
        f"{counts['steps'].sum():,} steps of Kafka's own classes, {releases[0]} to "
        f"{releases[-1]}, played again: {counts['differ'].sum():,} differ. {held} of the engine's "
        f"{len(words)} rules are held by them. Of {len(found)} differences that were found "
        f"{len(found) - left} are mended, and {left} are left and named."
    )
