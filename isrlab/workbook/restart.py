"""A rolling restart under sliders: short ISRs over time, and each broker's return.

Each move simulates a small fleet here and sends one picture; `plot_restart` is the same for paper.
"""

from __future__ import annotations

from collections.abc import Sequence

import ipywidgets as widgets
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isrlab import fleet
from isrlab.fleet import load, recovery
from isrlab.fleet.config import FleetConfig
from isrlab.show.controls import choice, png, redrawn
from isrlab.show.style import INK, bare, broker_colour
from isrlab.workbook.rolling_restart import FORMULA, rolling
from isrlab.workbook.slow_leader import SIZE, plot_isr_sizes

SHARES = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9)
DOWN_S = (10, 20, 30, 45, 60, 90)
WAITS = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25)
SMALL = FleetConfig(
    version="3.7", partitions=12, brokers=4, load="steady", min_insync_replicas=2, stall_s=0,
    follower_spread=0, batch_every_ms=500,
)  # fmt: skip


def plot_restart(config: FleetConfig, *, figure: Figure | None = None) -> Figure:
    """A rolling restart: short ISRs over time, and each broker's return beside the formula."""
    figure = figure or plt.figure(figsize=SIZE)
    # margins by hand: a layout costs 80 ms
    grid = {"left": 0.06, "right": 0.985, "top": 0.88, "bottom": 0.15, "wspace": 0.18}
    left, right = figure.subplots(1, 2, width_ratios=[2, 1], gridspec_kw=grid)
    events = fleet.simulate_local(config)
    plot_isr_sizes(events, config, ax=left)
    plot_rejoins(events, config, ax=right)
    return figure


def plot_rejoins(events: pa.Table, config: FleetConfig, *, ax: Axes | None = None) -> Axes:
    """When each broker was back in each of its ISRs, a dot for each; formula and next restart."""
    ax = ax or plt.subplots(figsize=(3.6, 3.2), layout="constrained")[1]
    after_s = _first_returns_s(events, config)
    limit_s = config.restart_every_s - config.restart_s
    late = sum((times > limit_s).sum() for b, times in after_s.items() if b < config.brokers)
    for broker, times in after_s.items():
        place = np.full(len(times), broker)
        ax.plot(times, place, "o", color=broker_colour(broker), markersize=4, alpha=0.6)
    brokers = range(1, config.brokers + 1)
    expected = [recovery.expected_rejoin_s(config, broker) for broker in brokers]
    ax.plot(expected, brokers, "|", color=INK, markersize=18, label="formula")
    ax.axvline(limit_s, color=FORMULA, linewidth=1, label="next broker goes down")
    ax.set_ylim(config.brokers + 0.9, 0.5)
    ax.margins(x=0.08)
    ax.set_xlim(left=0)
    ax.set_yticks(list(brokers), [f"broker {broker}" for broker in brokers])
    ax.set_xlabel("s after it is back: in sync again")
    ax.set_title(f"{late} returns come after the next restart", loc="left", fontsize=10)
    ax.legend(frameon=False, fontsize=7, loc="lower right", ncols=2)
    bare(ax, "left", "bottom")
    return ax


def _first_returns_s(events: pa.Table, config: FleetConfig) -> dict[int, np.ndarray]:
    """For each broker, when it was first back in each ISR after its restart, float64[n] s."""
    up_ms = {b: load.restarts(config, b)[1][0] for b in range(1, config.brokers + 1)}
    found: dict[int, dict[int, float]] = {broker: {} for broker in up_ms}
    for row in events.select(["ts_ms", "kind", "partition", "isr", "isr_before"]).to_pylist():
        if row["kind"] == "isr_commit":
            for broker in set(row["isr"]) - set(row["isr_before"]):
                if row["ts_ms"] > up_ms[broker]:
                    after_s = (row["ts_ms"] - up_ms[broker]) / 1000
                    found[broker].setdefault(row["partition"], after_s)
    return {broker: np.array(list(times.values())) for broker, times in found.items()}


def restart_controls(config: FleetConfig = SMALL) -> widgets.VBox:
    """Sliders for downtime, load and wait, and the whole rolling restart."""
    down = choice("down for (s)", DOWN_S, 60)
    share = choice("load (% of fetch rate)", SHARES, 0.6, lambda value: f"{100 * value:.0f}")
    wait = choice("wait / safe wait", WAITS, 0.75, "{:g}".format)
    return redrawn(
        (down, share, wait),
        lambda: restart_png(rolling(config, share.value, down.value, wait.value)),
    )


def restart_png(config: FleetConfig) -> bytes:
    """The picture of `plot_restart` as PNG."""
    return png(plot_restart(config, figure=Figure(figsize=SIZE, dpi=80)))


def waits_for_the_gone(configs: Sequence[FleetConfig]) -> pd.DataFrame:
    """For each fleet: how long produces waited at most (s), and how many timed out.

    Latencies are those of `latency` rows, so they are the least of a class.
    """
    rows = []
    for config in configs:
        events = fleet.simulate_local(config).select(["kind", "detail"]).to_pylist()
        details = [(row["kind"], dict(row["detail"] or ())) for row in events]
        waits = [int(said["latency_ms"]) for kind, said in details if kind == "latency"]
        errors = [said["error"] for kind, said in details if kind == "produce_error"]
        rows.append((config.run, max(waits) / 1000, errors.count("REQUEST_TIMED_OUT")))
    return pd.DataFrame(rows, columns=["run", "longest_wait_s", "timed_out"])
