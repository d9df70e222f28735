"""Figures for a decision: which lag limit, and what has changed between two runs.

Tables come as pandas, from `isrlab.churn`. Each `plot_` function draws on one Axes; its title is
what the picture shows, computed from the same numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ipywidgets as widgets
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from isrlab import fleet
from isrlab.fleet import load
from isrlab.fleet.config import FleetConfig
from isrlab.show.controls import choice, png, redrawn
from isrlab.show.style import INK, bare, broker_colour, plain
from isrlab.workbook.your_cluster import table

if TYPE_CHECKING:
    from IPython.display import HTML
    from matplotlib.axes import Axes

COSTS = {  # columns of `truth.lag_limit_costs`: colour, marker, what it is
    "stalled_minutes": ("#D55E00", "s", "stalled follower in the ISR: producers wait"),
    "under_replicated_minutes": ("#0072B2", "o", "under-replicated: a copy is missing"),
    "at_risk_minutes": (INK, "D", "at risk: either of them"),
}
MARKED_S = (10.0, 30.0)  # the defaults up to 2.4, and since 2.5
LIMITS_S = (1, 2, 3, 5, 7, 10, 15, 20, 30, 45, 60)
LENGTHS_S = (2, 5, 10, 15, 20, 30, 45, 60, 90, 120)
PAIR = FleetConfig(
    version="3.7", partitions=2, brokers=2, replication_factor=2, minutes=8,
    load="steady", records_per_s=20, stall_s=20, stall_every_s=60,
)  # fmt: skip
SAMPLE_MS = 100
WAS, NOW = "#8A9BA8", "#0072B2"
_SECONDS = FuncFormatter(lambda value, _: f"{value:g}")


def plot_trade_off(bands: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """False evictions against time at risk and time in which producers wait, a point per limit."""
    ax = ax or _axes(7.2, 4.2)
    false = _curve(bands, "false_evictions")
    for metric, (colour, marker, label) in COSTS.items():
        if metric == "under_replicated_minutes":
            continue
        cost = _curve(bands, metric)
        ax.errorbar(
            false["mean"],
            cost["mean"],
            xerr=_reach(false),
            yerr=_reach(cost),
            color=colour,
            marker=marker,
            markersize=4,
            linewidth=1,
            elinewidth=0.6,
            label=label,
        )
        for limit_s in false.index if metric == "stalled_minutes" else _marked(bands):
            is_marked = limit_s in _marked(bands)
            ax.annotate(
                f"{limit_s:g} s",
                (false["mean"][limit_s], cost["mean"][limit_s]),
                (5, -12 if is_marked else 4),
                textcoords="offset points",
                fontsize=10 if is_marked else 7,
                fontweight="bold" if is_marked else "normal",
                color=colour,
            )
    ax.set_xscale("symlog", linthresh=1)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    ax.set_xlim(left=-0.1)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("false evictions per hour (up to 1 linear, then logarithmic)")
    ax.set_ylabel("partition-minutes per hour")
    ax.set_title(_trade_off_title(bands), loc="left", fontsize=10)
    ax.legend(frameon=False, fontsize=8)
    bare(ax, "left", "bottom")
    return ax


def plot_false_evictions(bands: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """False and right evictions per hour against the lag limit, with their bands."""
    ax = ax or _axes(7.2, 3.2)
    _plot_band(ax, bands, "false_evictions", ("#D55E00", "s", "false"))
    _plot_band(ax, bands, "right_evictions", ("#8A9BA8", "o", "right: a long stall"))
    ax.set_ylabel("evictions per hour")
    calm = _first_calm(bands)
    title = "False evictions at every limit"
    if calm is not None:
        title = f"From {calm:g} s on, less than one false eviction an hour"
    ax.set_title(title, loc="left", fontsize=10)
    return _limit_axis(ax, bands)


def plot_time_at_risk(bands: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Which part of the time at risk the metrics show, and in which producers wait."""
    ax = ax or _axes(7.2, 3.4)
    for metric, look in COSTS.items():
        _plot_band(ax, bands, metric, look)
    ax.set_ylabel("partition-minutes per hour")
    ax.set_title(_risk_title(_curve(bands, "at_risk_minutes")["mean"]), loc="left", fontsize=10)
    return _limit_axis(ax, bands)


def lag_limit_finding(bands: pd.DataFrame) -> str:
    """What the limit buys, at the values that Kafka has had as defaults, in one sentence."""
    said = [
        f"at {s:g} s {_said(bands, 'false_evictions', s)} false evictions, "
        f"{_said(bands, 'stalled_minutes', s)} partition-minutes in which producers wait, "
        f"{_said(bands, 'under_replicated_minutes', s)} under-replicated, "
        f"{_said(bands, 'at_risk_minutes', s)} at risk"
        for s in _marked(bands)
    ]
    return f"Per hour (mean, and band over seeds): {'; '.join(said)}."


def plot_stall(config: FleetConfig = PAIR, *, ax: Axes | None = None) -> Axes:
    """A stall of the only follower: when it is evicted, and for how long nothing is committed."""
    ax = ax or _axes(7.2, 3.2)
    starts, ends = load.stalls(config, 2)
    later = np.flatnonzero(starts > 2_000)
    seen = fleet.trace(config, 0, SAMPLE_MS)
    start, end = (int(starts[later[0]]), int(ends[later[0]])) if len(later) else (5_000, 5_000)
    seen = seen.around(start, 5_000, end - start + 10_000)
    seconds = (seen.ts_ms - start) / 1000
    base = int(seen.log_end_offset[0])
    still = (seen.ts_ms >= start) & (seen.ts_ms < end)
    member = seen.in_isr[2]
    top = float(seen.log_end_offset[-1] - base) * 1.05
    for where, colour, label in (
        (still & member, COSTS["stalled_minutes"][0], "stands still, counted in the ISR"),
        (~member, COSTS["under_replicated_minutes"][0], "out of the ISR"),
    ):
        ax.fill_between(
            seconds, 0, top, where=where, color=colour, alpha=0.22, linewidth=0, label=label
        )
    end_of_leader = seen.log_end_offset - base
    ax.plot(seconds, end_of_leader, color=broker_colour(1), label="leader, log end")
    ax.plot(seconds, seen.followers[2] - base, color=broker_colour(2), label="follower, log end")
    ax.plot(seconds, seen.high_watermark - base, color=INK, ls="--", label="high watermark")
    ax.set_xlabel("time since the follower stands still (s)")
    ax.set_ylabel("offset since then (records)")
    ax.set_ylim(0, top)
    waits = float((still & member).sum()) * SAMPLE_MS / 1000
    out = float((~member).sum()) * SAMPLE_MS / 1000
    then = f", then the follower is out for {out:.0f} s" if out else "; nobody is evicted"
    ax.set_title(
        f"Limit {config.lag_time_ms / 1000:g} s, stall {config.stall_s:g} s: "
        f"producers wait {waits:.0f} s{then}",
        loc="left",
        fontsize=10,
    )
    ax.legend(frameon=False, fontsize=8, loc="upper left")
    bare(ax, "left", "bottom")
    return ax


def stall_controls(config: FleetConfig = PAIR) -> widgets.VBox:
    """Sliders for the lag limit and the length of a stall, and the picture they make."""
    limit = choice("lag limit (s)", LIMITS_S, config.lag_time_ms // 1000)
    length = choice("stall (s)", LENGTHS_S, int(config.stall_s))

    def draw() -> bytes:
        moved = config.with_(replica_lag_time_max_ms=1000 * limit.value, stall_s=length.value)
        return stall_png(moved)

    return redrawn((limit, length), draw)


def stall_png(config: FleetConfig) -> bytes:
    """The picture of `plot_stall` as PNG."""
    figure = Figure(figsize=(7.2, 3.2), layout="constrained", dpi=100)
    plot_stall(config, ax=figure.subplots())
    return png(figure)


def changes_table(compared: pd.DataFrame) -> HTML:
    """What `churn.compare` found, with the change also in percent of what was."""
    shown = compared.assign(
        was=[_number(value) for value in compared["was"]],
        now=[_number(value) for value in compared["now"]],
        change=[_number(value, "+") for value in compared["change"]],
        percent=[_percent(row.was, row.change) for row in compared.itertuples()],
    )
    return table(shown)


def hidden_table(risk: pd.DataFrame) -> HTML:
    """What `truth.time_at_risk` found, in partition-minutes of each run, was before now."""
    rows = {
        "stalled_ms": "producers wait: a follower stands still in the ISR",
        "under_replicated_ms": "a follower is out of the ISR",
        "at_risk_ms": "at risk: either of them",
    }
    minutes = risk.groupby("run")[list(rows)].sum().div(60_000)
    shown = minutes.rename(columns=rows).T.rename_axis("partition-minutes").reset_index()
    order = ["partition-minutes", *[run for run in ("was", "now") if run in shown]]
    return table(shown[order].round(1))


def hidden_finding(risk: pd.DataFrame) -> str:
    """How long producers waited for a follower that stood still, was and now; empty if unknown."""
    waited = risk.groupby("run")["stalled_ms"].sum().div(60_000)
    if waited.empty:
        return ""
    was, now = (waited.get(run, 0.0) for run in ("was", "now"))
    return f"Producers waited for a follower that stood still: {was:,.0f} to {now:,.0f} min."


def plot_changes(compared: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Each metric was and now, as shares of the larger of both."""
    rows = compared.dropna()
    rows = rows[(rows["was"] != 0) | (rows["now"] != 0)].iloc[::-1]
    ax = ax or _axes(7.6, 1.2 + 0.32 * len(rows))
    top = rows[["was", "now"]].max(axis=1).to_numpy()
    places = np.arange(len(rows))
    was, now = (rows[name].to_numpy() / top for name in ("was", "now"))
    ax.hlines(places, was, now, color="0.7", linewidth=2, zorder=1)
    ax.scatter(was, places, color=WAS, marker="o", s=42, label="was", zorder=2)
    ax.scatter(now, places, color=NOW, marker="D", s=34, label="now", zorder=3)
    for place, row in zip(places, rows.itertuples(), strict=True):
        text = f"{_number(row.was)} → {_number(row.now)}   {_percent(row.was, row.change)}"
        ax.annotate(text, (1.04, place), va="center", fontsize=8)
    ax.set_yticks(places, [plain(metric) for metric in rows["metric"]])
    ax.set_xlim(-0.03, 1.5)
    ax.set_xticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    ax.set_xlabel("share of the larger of the two runs")
    ax.set_title(_changes_title(compared), loc="left", fontsize=10)
    if len(rows):
        ax.legend(frameon=False, fontsize=8, ncols=2, loc="upper left", bbox_to_anchor=(0, -0.12))
    bare(ax, "bottom")
    ax.tick_params(left=False)
    return ax


def changes_finding(compared: pd.DataFrame) -> str:
    """The two runs in one sentence: what fell, what rose, what is the same."""
    known = compared.dropna()
    said = [
        f"{row.metric} {_number(row.was)} to {_number(row.now)} ({_percent(row.was, row.change)})"
        for row in known[known["change"] != 0].itertuples()
    ]
    same = known.loc[known["change"] == 0, "metric"].tolist()
    parts = [f"Changed: {', '.join(said)}." if said else "Nothing has changed."]
    return " ".join(parts + ([f"The same: {', '.join(same)}."] if said and same else []))


def _changes_title(compared: pd.DataFrame) -> str:
    known = compared.dropna()
    fell, rose = int((known["change"] < 0).sum()), int((known["change"] > 0).sum())
    same = int((known["change"] == 0).sum())
    return f"{fell} metrics fell, {rose} rose, {same} stayed the same"


def _trade_off_title(bands: pd.DataFrame) -> str:
    false = _curve(bands, "false_evictions")["mean"]
    waits = _curve(bands, "stalled_minutes")["mean"]
    low, high = _marked(bands)
    return (
        f"From {low:g} s to {high:g} s: {_number(false[low])} → {_number(false[high])} false "
        f"evictions an hour, {_number(waits[low])} → {_number(waits[high])} min of waiting"
    )


def _risk_title(risk: pd.Series) -> str:
    if risk.max() - risk.min() <= 0.05 * risk.max():
        return f"The same time at risk at every limit ({risk.min():,.0f} to {risk.max():,.0f} min)"
    return (
        f"Time at risk is least at {risk.idxmin():g} s ({risk.min():,.0f} min) and most at "
        f"{risk.idxmax():g} s ({risk.max():,.0f} min)"
    )


def _marked(bands: pd.DataFrame) -> list[float]:
    """The two limits to talk about: Kafka's defaults, or the ends of the curve."""
    limits = sorted(set(bands["lag_limit_s"]))
    return list(MARKED_S) if set(MARKED_S) <= set(limits) else [limits[0], limits[-1]]


def _plot_band(ax: Axes, bands: pd.DataFrame, metric: str, look: tuple[str, str, str]) -> None:
    colour, marker, label = look
    curve = _curve(bands, metric)
    ax.fill_between(curve.index, curve["low"], curve["high"], color=colour, alpha=0.2, linewidth=0)
    ax.plot(curve.index, curve["mean"], color=colour, marker=marker, markersize=4, label=label)


def _limit_axis(ax: Axes, bands: pd.DataFrame) -> Axes:
    limits = sorted(set(bands["lag_limit_s"]))
    ax.set_xscale("log")
    ax.set_xticks(limits)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(_SECONDS)
    for marked in MARKED_S:
        ax.axvline(marked, color=INK, linewidth=0.8, linestyle=":")
        text = "default to 2.4" if marked == MARKED_S[0] else "since 2.5"
        ax.annotate(
            text, (marked, 0.98), (2, 0), xycoords=ax.get_xaxis_transform(),
            textcoords="offset points", fontsize=7, va="top", color=INK,
        )  # fmt: skip
    ax.set_ylim(bottom=0)
    seeds = int(bands["seeds"].min())
    ax.set_xlabel(f"replica.lag.time.max.ms (s); bands over {seeds} seeds")
    ax.legend(frameon=False, fontsize=8)
    bare(ax, "left", "bottom")
    return ax


def _curve(bands: pd.DataFrame, metric: str) -> pd.DataFrame:
    return bands[bands["metric"] == metric].set_index("lag_limit_s").sort_index()


def _reach(curve: pd.DataFrame) -> np.ndarray:
    """How far the band reaches below and above the mean."""
    reach = np.array([curve["mean"] - curve["low"], curve["high"] - curve["mean"]])
    return np.maximum(reach, 0)


def _first_calm(bands: pd.DataFrame) -> float | None:
    """The smallest limit from which on the mean stays below one false eviction an hour."""
    false = _curve(bands, "false_evictions")["mean"]
    noisy = false.index[false >= 1]
    calm = false.index[false.index > (noisy.max() if len(noisy) else 0)]
    return float(calm[0]) if len(calm) else None


def _said(bands: pd.DataFrame, metric: str, limit_s: float) -> str:
    row = _curve(bands, metric).loc[limit_s]
    return f"{row['mean']:,.1f} ({row['low']:,.1f} to {row['high']:,.1f})"


def _number(value: Any, sign: str = "") -> str:
    if pd.isna(value):
        return "unknown"
    return f"{value:{sign},.0f}" if abs(value) >= 100 else f"{value:{sign}.3g}"


def _percent(was: Any, change: Any) -> str:
    if pd.isna(change):
        return ""
    if was == 0:
        return "the same" if change == 0 else "new"
    return f"{100 * change / was:+.0f} %" if change else "the same"


def _axes(width: float, height: float) -> Axes:
    return plt.subplots(figsize=(width, height), layout="constrained")[1]
