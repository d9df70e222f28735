"""ISR churn: one partition in a burst, then fleets compared by version, and a fleet to try.

Tables come as pandas. A false alarm is an eviction of a follower that was caught up within the lag
time. The sliders simulate one partition closely and a small fleet in three versions.
"""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isrlab import fleet
from isrlab.events import exact
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.lens import Trace
from isrlab.show import offsets
from isrlab.show.bands import Span, shade
from isrlab.show.controls import Redrawn, choice
from isrlab.show.curves import Curve, Scale, plot_bars, plot_curves
from isrlab.show.style import axes, broker_colour, counted, duration, headline, listed, panels

VERSIONS = ("0.8.2", "0.9.0", "0.10.2")
MESSAGES = 4_000  # the default of replica.lag.max.messages
SMALL = FleetConfig(partitions=30, minutes=10, burst_every_s=100, stall_s=0, seed=1)


def around(partition: Trace, moments_ms: np.ndarray) -> Trace:
    """The seconds around the first of some moments; without any, around the highest burst."""
    highest_ms = partition.ts_ms[partition.most_lag_records.argmax()]
    return partition.around([*moments_ms, highest_ms][0])


def plot_lag(trace: Trace, *, ax: Axes | None = None) -> Axes:
    """How far each follower is behind, the message limit, and the checks that alone look at it."""
    seconds, limit = trace.ts_ms / 1000, trace.config.lag_messages
    edges = np.flatnonzero(np.diff(_is_out(trace), prepend=False, append=False))
    away = [Span(seconds[start], seconds[end - 1], "out", "a follower is out of the ISR")
            for start, end in edges.reshape(-1, 2).tolist()]  # fmt: skip
    curves = {}
    for place, (broker, lag) in enumerate(trace.lag_records.items()):
        look, width = (broker_colour(broker), ""), 3 / (1 + 1.5 * place)
        curves[f"broker {broker}"] = Curve(seconds, lag, look=look, width=width)
    top = 1.12 * max(1.0, float(trace.most_lag_records.max()), 1.3 * (limit or 0))
    scales = (
        Scale("time (s)", low=seconds[0], high=seconds[-1]), Scale("lag (records)", high=top)
    )  # fmt: skip
    marks = dict.fromkeys((trace.ticks_ms / 1000).tolist(), "ISR check")
    limits = {} if limit is None else {float(limit): f"replica.lag.max.messages = {limit:,}"}
    ax = shade(ax or axes(7.6, 3.2), away)
    return plot_curves(curves, _lag_title(trace), scales, marks=marks, limits=limits, ax=ax)


def _is_out(trace: Trace) -> np.ndarray:
    return trace.isr_size < 1 + len(trace.followers)


def _lag_title(trace: Trace) -> str:
    """Who left, when, and for how long; or that nobody did."""
    evicted_ms, version = trace.evictions_ms(), trace.config.version
    if len(evicted_ms) == 0:
        behind = int(trace.most_lag_records.max())
        return f"{version}: up to {behind:,} records behind, and no check evicts anybody"
    out_s = float(_is_out(trace).sum() * (trace.ts_ms[1] - trace.ts_ms[0])) / 1000
    leave = [broker for broker, member in trace.in_isr.items() if not member.all()]
    who = f"broker{'s' * (len(leave) > 1)} {' and '.join(map(str, sorted(leave)))}"
    return f"{version}: the check at {evicted_ms[0] / 1000:.1f} s evicts {who} for {out_s:.1f} s"


def plot_offsets(trace: Trace) -> Axes:
    """Log end offsets and high watermark; the title says what an eviction does to the latter."""
    data = offsets.Offsets(
        trace.ts_ms / 1000,
        trace.leader,
        trace.log_end_offset,
        trace.high_watermark,
        trace.followers,
    )
    step = int(np.diff(trace.isr_size).argmin()) + 1
    alone = int(trace.high_watermark[step]) - max(
        int(end[step]) for end in trace.followers.values()
    )
    text = f"followers fall {int(trace.most_lag_records.max()):,} records behind and return"
    if trace.isr_size[step] < trace.isr_size[step - 1] and alone > 0:
        text = f"{alone:,} records commit that only the leader has"
    return offsets.plot_offsets(data, f"{trace.config.version}: {text}")


def plot_evictions(evictions: pd.DataFrame) -> Figure:
    """Every eviction, a panel for each run: how late and how far the follower was; the limits."""
    runs = {str(run): rows for run, rows in evictions.groupby("run", sort=False)}
    count = max(1, len(runs))
    figure, grid = panels(1, count, (3.6 * count, 3.6), sharex=True, sharey=True)
    last_s = 1.05 * evictions["since_caught_up_ms"].max() / 1000
    most = 2 * evictions["lag_records"].max()
    scales = Scale("s since it had everything", high=last_s), Scale("", "log", low=0.5, high=most)
    for ax, (run, rows) in zip(grid[0], runs.items(), strict=False):
        false = int(rows["is_false_alarm"].sum())
        since_s, lag = rows["since_caught_up_ms"] / 1000, rows["lag_records"].clip(lower=1)
        plot_curves(
            {run: Curve(since_s, lag, style="")},
            f"{run}: {false:,} false, {len(rows) - false:,} real",
            scales,
            marks=dict.fromkeys(rows["lag_time_ms"].unique() / 1000, ""),
            limits=dict.fromkeys(rows["lag_messages"].dropna().unique().tolist(), ""),
            ax=ax,
        )
    grid[0, 0].set_ylabel("its lag (records)")
    return headline(figure, _evictions_title(evictions))


def _evictions_title(evictions: pd.DataFrame) -> str:
    if evictions.empty:
        return "Nobody is evicted"
    alarms = evictions.groupby("run", sort=False)["is_false_alarm"].agg(["sum", "size"])
    worst: Any = alarms["sum"].idxmax()
    false, total = alarms.loc[worst]
    return f"{worst}: {false:,} of {total:,} evictions hit a follower that had kept up until then"


def plot_sweep(by_height: pd.DataFrame) -> Axes:
    """False alarms per hour by the height of bursts, and from which height on there are any."""
    versions, heights = by_height["version"].unique(), by_height["burst_records"]
    rates = by_height.pivot(index=heights.name, columns="version", values="false_alarms_per_hour")
    first = by_height[by_height["false_alarms"] > 0].groupby("version")["burst_records"].min()
    title = f"No false alarm up to burst_records = {heights.max():,}"
    if len(first):
        parts = [
            f"{version} {'at every value' if height == heights.min() else f'from {height:,}'}"
            for version, height in first.sort_values(kind="stable").items()
        ]
        calm = [version for version in versions if version not in first]
        title = f"False alarms: {', '.join(parts)}{f'; never in {listed(calm)}' if calm else ''}"
    curves = {version: Curve(rates.index, rates[version]) for version in versions}
    scales = Scale("burst height (records)"), Scale("false alarms per hour")
    return plot_curves(curves, title, scales)


def finding(compared: pd.DataFrame) -> str:
    """The fleets compared, in one sentence; each with its lag limit, which differs, too."""
    rows: Any = compared.itertuples()
    parts = [
        f"{row.run} (limit {duration(row.lag_time_ms)}): {row.shrinks:,.0f} ISR shrinks, "
        f"{row.false_alarms:,.0f} false alarms"
        for row in rows
    ]
    first = compared.iloc[0]
    return (
        f"{counted(first['partitions'], 'partition')}, {first['minutes']:g} minutes, bursts of "
        f"{first['burst_records']:,} records in {first['burst_s']:g} s, the same for all: "
        f"{'; '.join(parts)}."
    )


def plot_burst(config: FleetConfig = SMALL) -> Figure:
    """Left: a partition in a burst that evicts under 0.8.2, if any does. Right: the fleet."""
    figure, grid = panels(1, 2, (11.0, 3.4), width_ratios=[1.5, 1])
    old = config.with_(version=VERSIONS[0], name="")
    partition = fleet.trace(old, fleet.most_evicting(old))
    plot_lag(around(partition, partition.evictions_ms()), ax=grid[0, 0])
    counts = np.array([false_alarms(each) for each in fleet.versions(config, VERSIONS)])
    false, total = counts.T * 60 / config.minutes
    notes = [f"{f:,.0f} false + {r:,.0f} real" for f, r in zip(false, total - false, strict=True)]
    title = f"False alarms, {counted(config.partitions, 'partition')}"
    label = "ISR shrinks per hour in the fleet"
    parts = {"false alarm": false, "real": total - false}
    plot_bars(VERSIONS, parts, title, label, notes=notes, ax=grid[0, 1])
    return figure


def burst_controls(config: FleetConfig = SMALL) -> widgets.VBox:
    """Sliders for burst height, burst length and message limit, and the picture they make."""
    sliders = {
        "burst_records": choice("burst height (records)", (10_000, 30_000, 60_000), 30_000),
        "burst_s": choice("burst length (s)", (1.0, 20.0), 1.0, "{:g}".format),
        "replica_lag_max_messages": choice("lag.max.messages", (4_000, 8_000, 16_000), MESSAGES),
    }
    return Redrawn(
        [*sliders.values()],
        lambda *values: plot_burst(config.with_(**dict(zip(sliders, values, strict=True)))),
    )


def false_alarms(config: FleetConfig) -> tuple[int, int]:
    """False alarms and all evictions of a fleet; followers that leave together count as one."""
    evictions = exact.evictions(fleet.simulate_local(config))
    ages = {(e.key, e.start_ms): e.since_caught_up_ms or 0 for e in evictions}
    return sum(age <= config.lag_time_ms for age in ages.values()), len(ages)
