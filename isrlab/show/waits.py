"""How long produces wait: a histogram in classes, and the tail of several."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from isrlab.show.curves import Curve, Scale, plot_curves
from isrlab.show.style import SKY, axes, duration

ZERO_MS = 0.3  # where a wait of 0 ms stands on the logarithmic scale
QUANTILES = {0.5: "half", 0.99: "99 %", 0.999: "99.9 %"}
_TIMES = Scale(
    "wait for the ISR",
    "log",
    ticks=(ZERO_MS, 1, 10, 100, 1_000, 10_000, 100_000),
    names=("0", "1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s"),
    low=ZERO_MS,
    high=100_000,
)


def quantile(histogram: pd.DataFrame, share: float) -> int:
    """The least `latency_ms` at or below which this share of `count` lies; 0 of none."""
    ordered = histogram.sort_values("latency_ms")
    so_far = ordered["count"].cumsum()
    if so_far.empty:
        return 0
    place = int(np.searchsorted(so_far, np.ceil(share * so_far.iloc[-1] - 1e-6)))
    return int(ordered["latency_ms"].iloc[place])


def plot_histogram(histogram: pd.DataFrame, *, subject: str = "", ax: Axes | None = None) -> Axes:
    """How many produces waited how long, both scales logarithmic, with three quantiles.

    `histogram` has `latency_ms` (the least of its class: events of kind `latency`) and `count`.
    """
    ax = ax or axes(7.6, 2.9)
    starts = histogram["latency_ms"].to_numpy(float)
    share = 100 * histogram["count"].to_numpy(float) / max(1.0, histogram["count"].sum())
    eighths = 2 ** np.floor(np.log2(np.maximum(starts, 8))) / 8
    widths = np.where(starts == 0, 0.4, eighths)
    ax.bar(np.maximum(starts, ZERO_MS), share, width=widths, align="edge", color=SKY)
    within = {name: quantile(histogram, of) for of, name in QUANTILES.items()}
    scales = _TIMES, Scale("share of produces (%)", "log", low=0.0005, high=200)
    text = ", ".join(f"{name} within {duration(value)}" for name, value in within.items())
    marks = {max(value, ZERO_MS): "" for value in within.values()}
    return plot_curves({}, subject + text[:1].upper() + text[1:], scales, marks=marks, ax=ax)


def plot_tails(histograms: pd.DataFrame, labels: Mapping[str, str]) -> Axes:
    """The share of produces that wait longer than a time: a line for each `run` in `labels`."""
    curves, worst = {}, []
    for run, name in labels.items():
        ordered = histograms[histograms["run"] == run].sort_values("latency_ms")
        counts = ordered["count"].to_numpy(float)
        longer = 100 * (1 - (np.cumsum(counts) - counts) / max(1.0, counts.sum()))
        starts = np.maximum(ordered["latency_ms"].to_numpy(float), ZERO_MS)
        curves[name] = Curve(starts, longer, is_step=True)
        worst.append(f"{name}: {duration(quantile(ordered, 0.999))}")
    return plot_curves(
        curves,
        "1 in 1,000 waits at least: " + "; ".join(worst),
        (_TIMES, Scale("produces that wait longer (%)", "log", low=0.005, high=140)),
        limits={50: "half", 1: "1 in 100", 0.1: "1 in 1,000"},
    )
