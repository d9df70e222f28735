"""The fleet's settings as a table, one cell of it as a picture, and the time that a fetch takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from isrlab.engine.versions import PRESETS
from isrlab.fleet import load
from isrlab.fleet.cell import cell
from isrlab.fleet.config import LOADS, TRACE, FleetConfig
from isrlab.show.style import INK, bare, broker_colour, plain


def settings() -> pd.DataFrame:
    """Every setting of `FleetConfig`, a row each: name, default, unit, valid values, meaning."""
    rows = []
    for item in fields(FleetConfig):
        limits = item.metadata
        default = "" if item.default is MISSING else item.default
        rows.append(
            {
                "setting": item.name,
                "default": _readable("by version" if default is None else default),
                "unit": limits.get("unit", ""),
                "valid": _valid(item.name, limits),
                "what it does": limits["meaning"],
            }
        )
    return pd.DataFrame(rows)


def fetch_budget(config: FleetConfig, records: int = 1) -> pd.DataFrame:
    """Where the time of one round of a fetcher goes, in ms, at the least and at the most.

    The answer holds `records` records; the slowest and the fastest follower decide the range.
    """
    size = records * config.record_bytes
    rates = [load.follower_bytes_per_s(config, broker) for broker in range(1, config.brokers + 1)]
    sending = size * 1000 / config.leader_bytes_per_s if config.leader_bytes_per_s else 0.0
    rows = [
        ("fetch travels", config.fetch_latency_ms, config.fetch_latency_ms),
        ("leader parks it, if it has nothing", 0, config.replica_fetch_wait_max_ms),
        ("leader sends, others wait", sending, sending),
        ("answer travels", config.fetch_latency_ms, config.fetch_latency_ms),
        ("follower receives and writes", *(-(-size * 1000 // r) for r in (max(rates), min(rates)))),
        ("stall of the follower", 0, 1000 * config.stall_s),
        ("stall of the leader", 0, 1000 * config.leader_stall_s),
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["what", "least_ms", "most_ms"]).astype({"most_ms": float})


def plot_budget(budget: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """The parts of a round, from least to most, on a scale that shows both 1 ms and 20 s."""
    ax = ax or _axes(7.6, 2.8)
    places = np.arange(len(budget))[::-1]
    least, most = budget["least_ms"].to_numpy(float), budget["most_ms"].to_numpy(float)
    ax.barh(places, most, color="#CFE3F2", height=0.6, label="at the most")
    ax.barh(places, least, color="#0072B2", height=0.6, label="always")
    for place, low, high in zip(places, least, most, strict=True):
        text = f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"
        ax.annotate(f" {text} ms", (high, place), va="center", fontsize=8, color=INK)
    ax.set_xscale("symlog", linthresh=1)
    ax.set_xlim(0, max(100.0, 12 * most.max()))
    ticks = [0, *(10**power for power in range(6) if 10**power < 12 * most.max())]
    ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    ax.set_yticks(places, [plain(what) for what in budget["what"]])
    ax.set_xlabel("ms (logarithmic above 1)")
    ax.set_title(
        f"A round of a fetcher: {least.sum():,.0f} ms if nothing is in its way", loc="left",
        fontsize=10,
    )  # fmt: skip
    ax.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1, 0.3))
    bare(ax, "left", "bottom")
    return ax


def plot_cell(config: FleetConfig, *, leader: int = 1, ax: Axes | None = None) -> Axes:
    """One leader, its partitions, and the fetcher threads that read from it; times on the way."""
    ax = ax or _axes(8.6, 3.2)
    one = cell(config.with_(load="steady", trace_file=""), leader)
    threads = one.thread_brokers
    _box(ax, (0.2, 0.6), 2.6, 2.4, broker_colour(leader))
    ax.text(1.5, 2.72, f"leader: broker {leader}", ha="center", fontsize=10, color=INK)
    loads = f"{len(one.partitions):,} partitions\n{config.records_per_s:g} records/s each"
    ax.text(1.5, 1.95, plain(loads), ha="center", va="center", fontsize=9, color=INK)
    every_s, limit_s = config.isr_check_period_ms / 1000, config.lag_time_ms / 1000
    check = f"ISR checked every {every_s:g} s\nlimit {limit_s:g} s"
    ax.text(1.5, 1.1, check, ha="center", va="center", fontsize=8, color=INK)
    shown = threads[:4]
    tops = np.linspace(2.3, 0.5, len(shown)) if len(shown) > 1 else np.array([1.5])
    for number, (broker, top) in enumerate(zip(shown, tops, strict=True)):
        reads = int((one.thread_of == number).sum())
        rate = load.follower_bytes_per_s(config, broker) / 1e6
        _box(ax, (7.1, top), 2.8, 0.62, broker_colour(broker))
        said = f"broker {broker}, a thread: {reads:,} partitions\nwrites {rate:.1f} MB/s"
        ax.text(8.5, top + 0.31, said, ha="center", va="center", fontsize=8, color=INK)
        for lift, start, end in ((0.42, 7.05, 2.85), (0.2, 2.85, 7.05)):
            ax.annotate(
                "", xy=(end, top + lift), xytext=(start, top + lift),
                arrowprops={"arrowstyle": "-|>", "color": INK if lift > 0.3 else "#0072B2"},
            )  # fmt: skip
        way = config.fetch_latency_ms
        ax.text(4.95, top + 0.47, f"fetch, {way} ms", ha="center", fontsize=8, color=INK)
        parked = f"answer, {way} ms (parked up to {config.replica_fetch_wait_max_ms} ms)"
        ax.text(4.95, top + 0.02, parked, ha="center", fontsize=8, color="#0072B2")
    ax.set_xlim(0, 10)
    ax.set_ylim(0.2, 3.2)
    ax.axis("off")
    cells = min(config.brokers, config.partitions)
    ax.set_title(
        f"One of {cells} cells: {len(threads)} threads read from broker {leader}", loc="left",
        fontsize=10,
    )  # fmt: skip
    return ax


def _box(ax: Axes, corner: tuple[float, float], width: float, height: float, edge: str) -> None:
    box = FancyBboxPatch(
        corner, width, height, boxstyle="round,pad=0.02", linewidth=2, edgecolor=edge, fc="white"
    )
    ax.add_patch(box)


def _valid(name: str, limits: Mapping[str, Any]) -> str:
    if "low" in limits:
        return f"{_readable(limits['low'])} to {_readable(limits['high'])}"
    if name == "version":
        names = [version.name for version in PRESETS.values()]
        return f"{names[0]} to {names[-1]}"
    return ", ".join([*LOADS, TRACE]) if name == "load" else "text"


def _readable(value: object) -> str:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number:
        return str(value)
    return f"{value:,}" if value < 1e9 else f"{value:.3g}"  # type: ignore[operator]


def _axes(width: float, height: float) -> Axes:
    return plt.subplots(figsize=(width, height), layout="constrained")[1]
