"""14 What changed: two runs of a cluster, metric by metric, and what the ISR hides.

`compared` is `churn.compare` and `risk` is `truth.time_at_risk`, both as pandas.
"""

from __future__ import annotations

import pandas as pd
from IPython.display import HTML
from matplotlib.axes import Axes

from isrlab.show.curves import Scale, plot_ticks
from isrlab.show.style import axes, counted
from isrlab.show.table import table

HIDDEN = {
    "stalled_ms": "producers wait: a follower stands still in the ISR",
    "under_replicated_ms": "a follower is out of the ISR",
    "at_risk_ms": "at risk: either of them",
}


def changes_table(compared: pd.DataFrame) -> HTML:
    """Every metric was and now, with the change also in percent of what was."""
    texts = {name: [*map(_number, compared[name])] for name in ("was", "now")}
    change = [_number(value, "+") for value in compared["change"]]
    return table(compared.assign(**texts, change=change, percent=_percents(compared)))


def plot_changes(compared: pd.DataFrame) -> Axes:
    """Each metric was and now, as shares of the larger of both."""
    known = compared.dropna()
    fell, rose = ((sign * known["change"] > 0).sum() for sign in (-1, 1))
    same = len(known) - fell - rose
    title = f"{counted(fell, 'metric')} fell, {rose} rose, {same} stayed the same"
    known = known[(known["was"] != 0) | (known["now"] != 0)]
    rows, notes = {}, {}
    for metric, was, now, percent in _rows(known):
        top = max(was, now)
        rows[metric] = {"was": [was / top], "now": [now / top]}
        notes[metric] = f"{_number(was)} → {_number(now)}   {percent}"
    scale = Scale("share of the larger of the two runs", ticks=(0, 0.5, 1), high=1.02, low=-0.02,
                  names=("0", "50 %", "100 %"))  # fmt: skip
    ax = axes(9.0, 1.1 + 0.36 * max(len(rows), 2))
    return plot_ticks(rows, title, scale, notes=notes, ax=ax)


def changes_finding(compared: pd.DataFrame) -> str:
    """The two runs in one sentence: what changed, what is the same."""
    known = compared.dropna()
    moved, same = known[known["change"] != 0], known[known["change"] == 0]
    if moved.empty:
        return "Nothing has changed."
    parts = [f"{name} {_number(a)} to {_number(b)} ({by})" for name, a, b, by in _rows(moved)]
    rest = f" The same: {', '.join(same['metric'])}." if len(same) else ""
    return f"Changed: {', '.join(parts)}.{rest}"


def hidden_table(risk: pd.DataFrame) -> HTML:
    """In partition-minutes of each run, was before now: who stood still, and did the ISR say so."""
    minutes = risk.groupby("run")[list(HIDDEN)].sum().div(60_000).rename(columns=HIDDEN)
    shown = minutes.T.rename_axis("partition-minutes").reset_index()
    order = ["partition-minutes", *[run for run in ("was", "now") if run in shown]]
    return table(shown[order].round(1))


def hidden_finding(risk: pd.DataFrame) -> str:
    """How long producers waited for a follower that stood still, was and now; empty if unknown."""
    if risk.empty:
        return ""
    waited = risk.groupby("run")["stalled_ms"].sum().div(60_000)
    was, now = (waited.get(run, 0.0) for run in ("was", "now"))
    return f"Producers waited for a follower that stood still: {was:,.0f} to {now:,.0f} min."


def _number(value: float, sign: str = "") -> str:
    if pd.isna(value):
        return "unknown"
    return f"{value:{sign},.0f}" if abs(value) >= 100 else f"{value:{sign}.3g}"


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
