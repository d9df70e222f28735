"""13 Choosing the lag limit: one stall under a limit, and what each limit costs a fleet.

`bands` is what `churn.bands` makes of `truth.lag_limit_costs`: a row for each limit and metric.
"""

from __future__ import annotations

import ipywidgets as widgets
import pandas as pd
from matplotlib.axes import Axes

from isrlab import fleet
from isrlab.events import exact
from isrlab.fleet import load
from isrlab.fleet.config import FleetConfig
from isrlab.show.bands import Span, shade
from isrlab.show.controls import choice, redrawn
from isrlab.show.curves import Curve, Scale, plot_curves
from isrlab.show.offsets import Offsets, plot_offsets
from isrlab.show.style import INK, STATES, axes

COSTS = {  # columns of `truth.lag_limit_costs`: colour and marker, what it is
    "stalled_minutes": ((STATES["waits"], "s"), "stalled follower in the ISR: producers wait"),
    "under_replicated_minutes": ((STATES["out"], "o"), "under-replicated: a copy is missing"),
    "at_risk_minutes": ((INK, "D"), "at risk: either of them"),
}
EVICTIONS = {
    "false_evictions": ((STATES["false alarm"], "s"), "false"),
    "right_evictions": ((STATES["real"], "o"), "right: a long stall"),
}
DEFAULTS_S = {10.0: "default to 2.4", 30.0: "since 2.5"}
PAIR = FleetConfig(
    version="3.7", partitions=2, brokers=2, replication_factor=2, minutes=8,
    load="steady", records_per_s=20, stall_s=20, stall_every_s=60,
)  # fmt: skip
MINUTES = "partition-minutes per hour"


def plot_stall(config: FleetConfig = PAIR) -> Axes:
    """A stall of the only follower: when it is evicted, and for how long nothing is committed."""
    stalls = [(a, b) for a, b in zip(*load.stalls(config, 2), strict=True) if a > 2_000]
    start, end = map(int, stalls[0] if stalls else (5_000, 5_000))
    seen = fleet.trace(config, 0, sample_ms=100).around(start, 5_000, end - start + 10_000)
    first, last = int(seen.ts_ms[0]), int(seen.ts_ms[-1])
    absences = exact.absences(fleet.simulate_local(config), end_ms=last)
    away = [(a.start_ms, a.end_ms or last) for a in absences if a.key.partition == 0]
    away = [(left, back) for left, back in away if back > first]
    evicted_ms = min([end, *[left for left, _ in away if left >= start]])
    spans = [Span(start / 1000, evicted_ms / 1000, "waits", "stalled, counted in the ISR")]
    spans += [Span(left / 1000, back / 1000, "out", "out of the ISR") for left, back in away]
    out_s = sum(back - left for left, back in away) / 1000
    then = f", then the follower is out for {out_s:.0f} s" if away else "; nobody is evicted"
    title = f"Limit {config.lag_time_ms / 1000:g} s, stall {config.stall_s:g} s: producers wait "
    title += f"{(evicted_ms - start) / 1000:.0f} s{then}"
    data = Offsets(
        seen.ts_ms / 1000, seen.leader, seen.log_end_offset, seen.high_watermark, seen.followers
    )
    return plot_offsets(data, title, ax=shade(axes(9.5, 3.6), spans))


def stall_controls(config: FleetConfig = PAIR) -> widgets.VBox:
    """Sliders for the lag limit and the length of a stall, and the picture they make."""
    limits_s = 1, 2, 3, 5, 7, 10, 15, 20, 30, 45, 60
    limit = choice("lag limit (s)", limits_s, config.lag_time_ms // 1000)
    length = choice("stall (s)", (2, 5, *range(10, 40, 5), 45, 60, 90, 120), int(config.stall_s))

    def draw() -> Axes:
        limit_ms = 1000 * limit.value
        return plot_stall(config.with_(replica_lag_time_max_ms=limit_ms, stall_s=length.value))

    return redrawn((limit, length), draw)


def plot_trade_off(bands: pd.DataFrame) -> Axes:
    """False evictions against time at risk and time in which producers wait, a point per limit."""
    metrics = ("false_evictions", "stalled_minutes", "at_risk_minutes")
    (false, *costs), (low, high) = (_metric(bands, name) for name in metrics), _defaults(bands)
    x, curves, ax = false["mean"], {}, axes(8.4, 4.6)
    for metric, cost in zip(metrics[1:], costs, strict=True):
        (look, label), y = COSTS[metric], cost["mean"]
        shown = [*x.index] if metric == "stalled_minutes" else [low, high]
        texts = [f"{limit:g} s" if limit in shown else "" for limit in cost.index]
        curves[label] = Curve(x, y, cost["low"], cost["high"], look, texts=texts)
        ax.hlines(y, false["low"], false["high"], color=look[0], linewidth=0.6)
        ax.plot(x[[low, high]], y[[low, high]], look[1], color=look[0], markersize=10)
    waits = costs[0]["mean"]
    title = (
        f"From {low:g} s to {high:g} s: {_number(x[low])} → {_number(x[high])} false evictions "
        f"an hour, {_number(waits[low])} → {_number(waits[high])} min of waiting"
    )
    x_label = "false evictions per hour (up to 1 linear, then logarithmic); large: the defaults"
    return plot_curves(curves, title, (Scale(x_label, "symlog", low=-0.1), Scale(MINUTES)), ax=ax)


def plot_false_evictions(bands: pd.DataFrame) -> Axes:
    """False and right evictions per hour against the lag limit, with their bands."""
    false = _metric(bands, "false_evictions")["mean"]
    noisy = max(false.index[false >= 1], default=0)
    calm = false.index[false.index > noisy]
    title = "False evictions at every limit"
    if len(calm):
        title = f"From {calm[0]:g} s on, less than one false eviction an hour"
    return _plot_bands(bands, EVICTIONS, title, "evictions per hour")


def plot_time_at_risk(bands: pd.DataFrame) -> Axes:
    """Which part of the time at risk the metrics show, and in which producers wait."""
    risk = _metric(bands, "at_risk_minutes")["mean"]
    low, high = f"{risk.min():,.0f}", f"{risk.max():,.0f}"
    title = f"The same time at risk at every limit ({low} to {high} min)"
    if risk.max() - risk.min() > 0.05 * risk.max():
        title = f"Time at risk is least at {risk.idxmin():g} s ({low} min) and most at "
        title += f"{risk.idxmax():g} s ({high} min)"
    return _plot_bands(bands, COSTS, title, MINUTES)


def lag_limit_finding(bands: pd.DataFrame) -> str:
    """What the limit buys, at the values that Kafka has had as defaults, in one sentence."""
    parts = [
        f"at {limit_s:g} s {_mean(bands, 'false_evictions', limit_s)} false evictions, "
        f"{_mean(bands, 'stalled_minutes', limit_s)} partition-minutes in which producers wait, "
        f"{_mean(bands, 'under_replicated_minutes', limit_s)} under-replicated, "
        f"{_mean(bands, 'at_risk_minutes', limit_s)} at risk"
        for limit_s in _defaults(bands)
    ]
    return f"Per hour (mean, and band over seeds): {'; '.join(parts)}."


def _mean(bands: pd.DataFrame, metric: str, limit_s: float) -> str:
    row = _metric(bands, metric).loc[limit_s]
    return f"{row['mean']:,.1f} ({row['low']:,.1f} to {row['high']:,.1f})"


def _plot_bands(bands: pd.DataFrame, metrics: dict, title: str, label: str) -> Axes:
    curves = {}
    for metric, (look, name) in metrics.items():
        data = _metric(bands, metric)
        curves[name] = Curve(data.index, data["mean"], data["low"], data["high"], look)
    limits, seeds = sorted(set(bands["lag_limit_s"])), int(bands["seeds"].min())
    x_label = f"replica.lag.time.max.ms (s); bands over {seeds} seeds"
    x = Scale(x_label, "log", ticks=limits, names=[f"{limit:g}" for limit in limits])
    return plot_curves(curves, title, (x, Scale(label)), marks=DEFAULTS_S)


def _defaults(bands: pd.DataFrame) -> list[float]:
    """The two limits to talk about: Kafka's defaults, or the ends of the curve."""
    limits = sorted(set(bands["lag_limit_s"]))
    return [*DEFAULTS_S] if set(DEFAULTS_S) <= set(limits) else [limits[0], limits[-1]]


def _metric(bands: pd.DataFrame, metric: str) -> pd.DataFrame:
    return bands[bands["metric"] == metric].set_index("lag_limit_s").sort_index()


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
