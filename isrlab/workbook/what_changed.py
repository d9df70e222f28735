"""What changed: two runs of a cluster, metric by metric, and what the ISR hides.

`compared` is `churn.compare` and `risk` is `truth.time_at_risk`, both as pandas. Of every metric
less is better. A wait of `RemoteTimeMs` is the least of its class: the text says up to what.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from IPython.display import HTML
from matplotlib.axes import Axes

from isrlab import churn
from isrlab.fleet.kernel.rows import bucket_starts
from isrlab.show.curves import plot_bars
from isrlab.show.style import BLUE, VERMILION, axes, counted, listed
from isrlab.show.table import table

SIDES = {"better (less)": -1, "worse (more)": 1}
HIDDEN = {
    "stalled_ms": "acks=all waits: a follower is stalled in the ISR",
    "under_replicated_ms": "acknowledged with one copy fewer: a follower is out of the ISR",
    "at_risk_ms": "either of them",
}


def changes_table(compared: pd.DataFrame) -> HTML:
    """Every metric was and now, the change also in percent of what was, and what it means."""
    change = compared["change"]
    data = {
        "metric": compared["metric"],
        "was": [*map(_value, compared["metric"], compared["was"])],
        "now": [*map(_value, compared["metric"], compared["now"])],
        "change": _percents(compared),
        "": np.select([change > 0, change < 0], ["worse", "better"], ""),
        "meaning": compared["metric"].map(churn.METRICS),
    }
    return table(pd.DataFrame(data))


def plot_changes(compared: pd.DataFrame) -> Axes:
    """What fell to the left (better), what rose to the right (worse), by the larger of both."""
    known = compared.dropna()
    moved = known[known["change"] != 0].sort_values("change", key=lambda change: change < 0)
    better, worse = (moved.loc[sign * moved["change"] > 0, "metric"] for sign in SIDES.values())
    title = f"{counted(len(better), 'metric')} better, {len(worse)} worse, "
    title += f"{len(known) - len(moved)} the same"
    title += f"\nWorse: {listed([*worse])}" if len(worse) else ""
    share = 100 * moved["change"] / moved[["was", "now"]].max(axis=1)
    parts = {name: share.where(sign * share > 0, 0.0) for name, sign in SIDES.items()}
    notes = [
        f"{_value(metric, was)} → {_value(metric, now)}   {percent}"
        for metric, was, now, percent in _rows(moved)
    ]
    label = "change, as a share of the larger of the two runs (%)"
    colours = dict(zip(SIDES, (BLUE, VERMILION), strict=True))
    ax = axes(9.5, 1.4 + 0.36 * max(len(moved), 2))
    return plot_bars([*moved["metric"]], parts, title, label, notes=notes, colours=colours, ax=ax)


def changes_finding(compared: pd.DataFrame) -> str:
    """The two runs in one sentence: what is worse, what is better, and how much is the same."""
    known = compared.dropna()
    moved = known[known["change"] != 0]
    if moved.empty:
        return "Nothing has changed."
    parts = []
    for word, sign in (("Worse", 1), ("Better", -1)):
        rows = _rows(moved[sign * moved["change"] > 0])
        changes = [f"{name} from {_value(name, a)} to {_value(name, b)}" for name, a, b, _ in rows]
        parts += [f"{word}: {', '.join(changes)}."] if changes else []
    rest = len(known) - len(moved)
    return " ".join([*parts, *([f"{counted(rest, 'metric')} the same."] if rest else [])])


def hidden_table(risk: pd.DataFrame) -> HTML:
    """In partition-minutes of each run, was before now: who stalled, and did the ISR say so."""
    minutes = risk.groupby("run")[list(HIDDEN)].sum().div(60_000).rename(columns=HIDDEN)
    shown = minutes.T.rename_axis("partition-minutes").reset_index()
    order = ["partition-minutes", *[run for run in ("was", "now") if run in shown]]
    return table(shown[order].round(1))


def hidden_finding(risk: pd.DataFrame) -> str:
    """How long acks=all waited for a stalled follower, was and now; empty if unknown."""
    if risk.empty:
        return ""
    waited = risk.groupby("run")["stalled_ms"].sum().div(60_000)
    was, now = (waited.get(run, 0.0) for run in ("was", "now"))
    text = "Time during which produces waited for a stalled follower"
    return f"{text}: from {was:,.0f} to {now:,.0f} partition-minutes."


def _value(metric: str, value: float) -> str:
    """A number of a metric; of a wait, up to what its class reaches."""
    if pd.isna(value):
        return "unknown"
    if metric.startswith("RemoteTimeMs"):
        starts = bucket_starts()
        place = int(starts.searchsorted(value, side="right"))
        if place < len(starts) and starts[place] > value + 1:
            return f"up to {starts[place]:,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _rows(compared: pd.DataFrame) -> list[tuple[str, float, float, str]]:
    """Of each metric: its name, was, now, and the change in percent."""
    columns = [compared[name].tolist() for name in ("metric", "was", "now")]
    return [*zip(*columns, _percents(compared), strict=True)]


def _percents(compared: pd.DataFrame) -> list[str]:
    """Each change in percent of what was."""
    texts = []
    for was, change in zip(compared["was"], compared["change"], strict=True):
        percent = "new" if was == 0 else f"{100 * change / was:+.0f} %"
        texts.append("" if pd.isna(change) else percent if change else "the same")
    return texts
