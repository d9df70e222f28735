"""Notebook 18: the hours of a log, replayed in the fleet as they were and with other settings.

Without a log, the faults are random, and there is nothing to compare the fleet with. A band is over
seeds: the phase of the ISR check, the load, the speed of followers.
"""

from collections.abc import Sequence
from statistics import median

import ipywidgets as widgets
import numpy as np
from IPython.display import HTML
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isrlab.events.exact import Absence
from isrlab.fleet import FleetConfig, settings
from isrlab.show import style
from isrlab.show.controls import LiveFigure, choice
from isrlab.show.curves import Curve, Scale, plot_curves, plot_ticks
from isrlab.show.style import counted
from isrlab.show.table import table
from isrlab_book.workbook.what_if.replay import Cost, LogReplay, ReplayOutcome, outcomes, replay_of
from isrlab_ops.logs.incidents.look import look

SEEN, MODEL = "in the log", "the fleet"
COSTS = {  # of `Cost`
    "evictions": "evicted by their leaders",
    "removals": "removed by the controller",
    "missing_minutes": "a copy fewer (partition-minutes)",
    "waiting_minutes": "commits blocked by a stalled replica (partition-minutes)",
    "longest_wait_s": "99 % of produces waited up to (s)",
    "refused": "produces refused",
    "timed_out": "produces timed out",
}
DRAWN = ("missing_minutes", "waiting_minutes", "longest_wait_s")
CLOSE = 0.2  # relative difference below which the fleet reproduces the log
STEP_MS = 200


def replay_logs(log_dir: str, base: FleetConfig, time_zone: str | None = None) -> LogReplay:
    """The fleet that replays a folder of logs; without one, `base` as it is.

    Raises ValueError if the logs have nothing to replay.
    """
    if not log_dir:
        return LogReplay(base, ReplayOutcome([], Cost(0, 0, 0)), {}, 0)
    return replay_of(look(log_dir, time_zone=time_zone).record, base)


def is_of_logs(real: LogReplay) -> bool:
    return bool(real.brokers)


def is_reproduced(real: LogReplay, runs: Sequence[ReplayOutcome]) -> bool:
    """Whether the fleet's departures and missing copies are close to the log's, or span them."""
    pairs = [
        (real.recorded.cost.evictions + real.recorded.cost.removals,
         [run.cost.evictions + run.cost.removals for run in runs]),
        (real.recorded.cost.missing_minutes, [run.cost.missing_minutes for run in runs]),
    ]  # fmt: skip
    return all(
        min(values) <= recorded <= max(values) or abs(median(values) - recorded) <= CLOSE * recorded
        for recorded, values in pairs
    )


def _band(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "the log does not say"
    low, high = (f"{value:,.3g}" for value in (min(known), max(known)))
    return low if low == high else f"{median(known):,.3g}, from {low} to {high}"


def plot_replay(real: LogReplay, runs: Sequence[ReplayOutcome], name: str = "") -> Axes:
    """How many replicas were out of their ISRs over time: in the log, and in the fleet."""
    times = np.arange(0, real.config.duration_ms + STEP_MS, STEP_MS)
    counts = np.array([_out(run.absences, times) for run in runs])
    x, middle = times / 1000, np.median(counts, axis=0)
    low, high = counts.min(axis=0), counts.max(axis=0)
    curves = {MODEL: Curve(x, middle, low, high, look=(style.BLUE, ""), is_step=True)}
    recorded = _out(real.recorded.absences, times)
    if is_of_logs(real):
        curves[SEEN] = Curve(x, recorded, look=(style.VERMILION, ""), is_step=True, width=1.6)
    missing = [run.cost.missing_minutes for run in runs]
    title = f"{name or 'As it was'}: {_band(missing)} partition-minutes with a copy fewer"
    title += f" (log: {real.recorded.cost.missing_minutes:.3g})" if is_of_logs(real) else ""
    top = 1.1 * max(1.0, float(high.max()), float(recorded.max()))
    scales = Scale("time since the start (s)"), Scale("replicas out of their ISRs", high=top)
    return plot_curves(curves, title, scales, ax=style.axes(5.4, 3.1))


def _out(absences: Sequence[Absence], times: np.ndarray) -> np.ndarray:
    """The number of absent replicas at each moment, int64[n]."""
    starts = np.sort([a.start_ms for a in absences])
    ends = np.sort([a.end_ms for a in absences if a.end_ms is not None])
    return np.searchsorted(starts, times, "right") - np.searchsorted(ends, times, "right")


# With other settings


def try_settings(
    real: LogReplay, changes: Sequence[str], seeds: int
) -> dict[str, list[ReplayOutcome]]:
    """These hours as they were, and with each of the changes ("NAME=VALUE ...").

    Raises ValueError for a setting that is unknown or out of range.
    """
    runs = {"as it was": outcomes(real.config, seeds)}
    for change in changes:
        runs[change] = outcomes(real.config.with_(**settings(change)), seeds)
    return runs


def plot_settings(runs: dict[str, list[ReplayOutcome]]) -> Figure:
    """The costs of each change: a tick for each seed."""
    figure, grid = style.panels(len(DRAWN), 1, (9.2, len(DRAWN) * (1.0 + 0.3 * len(runs))))
    for ax, cost in zip(grid.flat, DRAWN, strict=True):
        rows = {name: {"": [getattr(run.cost, cost) for run in several]}
                for name, several in runs.items()}  # fmt: skip
        plot_ticks(rows, COSTS[cost], Scale(""), ax=ax)
    return style.headline(figure, _sentence(runs))


def settings_table(real: LogReplay, runs: dict[str, list[ReplayOutcome]]) -> HTML:
    """All costs, with bands over seeds: in the log, in its replay, and with each of the changes."""
    played = {SEEN: [real.recorded]} | runs if is_of_logs(real) else runs
    rows = [
        {"": name} | {what: _band([getattr(run.cost, cost) for run in several])
                      for cost, what in COSTS.items()}
        for name, several in played.items()
    ]  # fmt: skip
    return table(rows)


def limit_player(real: LogReplay, limits_s: Sequence[float], seeds: int) -> widgets.VBox:
    """A control for the lag limit, and the same hours under it."""
    now_s = real.config.lag_time_ms / 1000

    def draw(limit_s: float) -> Axes:
        config = real.config.with_(replica_lag_time_max_ms=round(1000 * limit_s))
        return plot_replay(real, outcomes(config, seeds), f"Limit {limit_s:g} s")

    return LiveFigure([choice("lag limit (s)", limits_s, now_s, "{:g}".format)], draw)


def _sentence(runs: dict[str, list[ReplayOutcome]]) -> str:
    """The change that leaves a copy missing for the fewest partition-minutes, and its costs."""
    middle = {
        name: Cost(*(median(getattr(run.cost, cost) for run in several) for cost in COSTS))
        for name, several in runs.items()
    }
    was = middle.pop("as it was")
    if not middle:
        return f"As it was: {was.missing_minutes:.3g} partition-minutes with a copy fewer"
    best = min(middle, key=lambda name: middle[name].missing_minutes)
    now = middle[best]
    text = f"{best}: with a copy fewer {was.missing_minutes:.3g} → {now.missing_minutes:.3g}, "
    text += f"acks=all waits {was.waiting_minutes:.3g} → {now.waiting_minutes:.3g} "
    text += f"partition-minutes, 99 % of produces up to {was.longest_wait_s:.3g} → "
    return f"{text}{now.longest_wait_s:.3g} s"


def finding(real: LogReplay, runs: dict[str, list[ReplayOutcome]]) -> str:
    """How well the fleet reproduces the log, and what the best change would have done."""
    if not is_of_logs(real):
        return f"{_sentence(runs)}."
    cost, model = real.recorded.cost, runs["as it was"]
    if not is_reproduced(real, model):
        return (
            f"The fleet does not reproduce this log: {cost.missing_minutes:.3g} partition-minutes "
            f"with a copy fewer, the fleet {_band([run.cost.missing_minutes for run in model])}. "
            "What it would say of other settings is worth nothing here."
        )
    left = cost.evictions + cost.removals
    departures = [run.cost.evictions + run.cost.removals for run in model]
    missing = _band([run.cost.missing_minutes for run in model])
    text = f"Played again: {counted(round(left), 'departure')} from an ISR in the log, "
    text += f"{_band(departures)} in the fleet; {cost.missing_minutes:.3g} partition-minutes with "
    return f"{text}a copy fewer, {missing} in the fleet. With {_sentence(runs)}."
