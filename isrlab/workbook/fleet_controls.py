"""A small fleet under a slider: move the burst, and see who is evicted by which rule.

Each move simulates one partition closely and a small fleet in three versions, here in this process,
and sends one picture. `plot_burst` is the same picture for paper.
"""

from __future__ import annotations

import ipywidgets as widgets
import numpy as np
from matplotlib.figure import Figure

from isrlab import fleet
from isrlab.fleet.config import FleetConfig
from isrlab.show.controls import choice, png, redrawn
from isrlab.show.style import bare, plain
from isrlab.workbook.isr_churn import FALSE_ALARM, REAL, plot_lag

VERSIONS = ("0.8.2", "0.9.0", "0.10.2")
HEIGHTS = (1_000, 2_000, 5_000, 10_000, 15_000, 20_000, 30_000, 50_000, 100_000, 200_000)
LENGTHS_S = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
LIMITS = (500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000)
SMALL = FleetConfig(partitions=30, minutes=10, burst_every_s=100, stall_s=0, seed=1)
SAMPLE_MS = 20
DPI = 90


def burst_controls(config: FleetConfig = SMALL) -> widgets.VBox:
    """Sliders for burst height, burst length and message limit, and the picture they make."""
    height = choice("burst height (records)", HEIGHTS, config.burst_records)
    length = choice("burst length (s)", LENGTHS_S, config.burst_s)
    limit = choice("lag.max.messages", LIMITS, config.with_(version="0.8.2").lag_messages)

    def draw() -> bytes:
        return burst_png(
            config.with_(
                burst_records=height.value,
                burst_s=length.value,
                replica_lag_max_messages=limit.value,
            )
        )

    return redrawn((height, length, limit), draw)


def burst_png(config: FleetConfig) -> bytes:
    """The picture of `plot_burst` as PNG."""
    return png(plot_burst(config))


def plot_burst(config: FleetConfig = SMALL) -> Figure:
    """Left: a partition in a burst that evicts under 0.8.2, if any does. Right: the fleet."""
    figure = Figure(figsize=(9.6, 3.0), dpi=DPI)
    # margins by hand: a layout costs 80 ms
    grid = {"left": 0.1, "right": 0.985, "top": 0.9, "bottom": 0.17, "wspace": 0.2}
    left, right = figure.subplots(1, 2, width_ratios=[1.7, 1], gridspec_kw=grid)
    old = config.with_(version=VERSIONS[0], name="")
    seen = fleet.trace(old, fleet.most_evicting(old), SAMPLE_MS)
    evicted = seen.evictions_ms()
    moment = evicted[0] if len(evicted) else seen.ts_ms[seen.most_lag_records.argmax()]
    plot_lag(seen.around(int(moment), 3_000, 4_000), ax=left)
    _plot_counts(config, right)
    return figure


def _plot_counts(config: FleetConfig, ax: object) -> None:
    """Evictions per hour in each version, false alarms apart."""
    false, real = [], []
    for one in fleet.versions(config, VERSIONS):
        alarms, evictions = false_alarms(one)
        false.append(alarms * 60 / one.minutes)
        real.append((evictions - alarms) * 60 / one.minutes)
    names = [plain(name) for name in VERSIONS]
    ax.bar(names, false, color=FALSE_ALARM, label="false alarms")  # type: ignore[attr-defined]
    ax.bar(names, real, bottom=false, color=REAL, label="real")  # type: ignore[attr-defined]
    _dress(ax, false, real, config)


def _dress(ax, false, real, config) -> None:  # type: ignore[no-untyped-def]
    totals = np.add(false, real)
    for place, (alarms, total) in enumerate(zip(false, totals, strict=True)):
        ax.annotate(f"{alarms:,.0f}", (place, total), ha="center", va="bottom", fontsize=8)
    ax.set_ylim(0, max(1.0, totals.max() * 1.15))
    ax.set_ylabel("ISR shrinks per hour")
    ax.set_title(f"False alarms, {config.partitions} partitions", loc="left", fontsize=10)
    bare(ax, "left", "bottom")


def false_alarms(config: FleetConfig) -> tuple[int, int]:
    """False alarms and all evictions of a fleet, by the measure of `truth.evictions`."""
    rows = fleet.simulate_local(config).select(["kind", "detail"]).to_pylist()
    details = [dict(row["detail"]) for row in rows if row["kind"] == "isr_shrink"]
    ages = [int(detail["since_caught_up_ms"]) for detail in details]
    return sum(age <= config.lag_time_ms for age in ages), len(ages)
