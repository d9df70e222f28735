"""Figures of fleets: one partition in a burst, then thousands compared by version.

Each `plot_` function draws on one Axes and returns it; the title is what the picture shows, taken
from the same numbers. Tables come as pandas, from `isrlab.fleet.questions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.ticker import FuncFormatter

from isrlab.fleet.lens import Trace
from isrlab.show.style import INK, bare, broker_colour, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FALSE_ALARM, REAL = "#D55E00", "#8A9BA8"
RUN_COLOURS = ("#D55E00", "#E69F00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9")
WIDTHS = (3.0, 1.2, 0.8, 0.6, 0.5, 0.4, 0.3, 0.3)  # of followers: one may lie upon another
RUN_MARKERS = ("o", "s", "D", "^", "v", "P")
_THOUSANDS = FuncFormatter(lambda value, _: f"{value:,.0f}")


def _axes(width: float = 7.2, height: float = 3.0) -> Axes:
    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def plot_offsets(seen: Trace, *, ax: Axes | None = None) -> Axes:
    """The leader's and the followers' log end offsets and the high watermark over time."""
    ax = ax or _axes()
    seconds = seen.ts_ms / 1000
    base = int(seen.log_end_offset[0])
    leader = seen.log_end_offset - base
    ax.fill_between(
        seconds,
        seen.high_watermark - base,
        leader,
        facecolor="none",
        edgecolor="0.75",
        hatch="////",
        linewidth=0,
        label="not committed",
    )
    colour = broker_colour(seen.leader)
    ax.plot(seconds, leader, color=colour, label=f"broker {seen.leader} (leader), log end")
    for (broker, end), width in zip(seen.followers.items(), WIDTHS, strict=False):
        name = f"broker {broker}, log end"
        ax.plot(seconds, end - base, color=broker_colour(broker), linewidth=width, label=name)
    ax.plot(seconds, seen.high_watermark - base, color=INK, linestyle="--", label="high watermark")
    ax.set_xlabel("time (s)")
    ax.set_ylabel("offset since then (records)")
    ax.yaxis.set_major_formatter(_THOUSANDS)
    ax.set_title(_offsets_title(seen), loc="left", fontsize=10)
    ax.legend(frameon=False, fontsize=8)
    bare(ax, "left", "bottom")
    return ax


def _offsets_title(seen: Trace) -> str:
    """What an eviction does to the high watermark, if there is one."""
    step = int((seen.isr_size[1:] - seen.isr_size[:-1]).argmin()) + 1
    best = max(int(end[step]) for end in seen.followers.values())
    alone = int(seen.high_watermark[step]) - best
    if seen.isr_size[step] < seen.isr_size[step - 1] and alone > 0:
        return f"{plain(seen.config.version)}: {alone:,} records commit that only the leader has"
    behind = int(seen.most_lag_records.max())
    return f"{plain(seen.config.version)}: followers fall {behind:,} records behind and return"


def plot_lag(seen: Trace, *, ax: Axes | None = None) -> Axes:
    """How far each follower is behind, the message limit, and the ticks that alone look at it."""
    ax = ax or _axes()
    seconds = seen.ts_ms / 1000
    limit = seen.config.lag_messages
    for (broker, lag), width in zip(seen.lag_records.items(), WIDTHS, strict=False):
        name = f"broker {broker}"
        ax.plot(seconds, lag, color=broker_colour(broker), linewidth=width, label=name)
    top = max(1.0, float(seen.most_lag_records.max()), 1.3 * (limit or 0)) * 1.12
    if limit is not None:
        ax.axhline(limit, color=FALSE_ALARM, linewidth=1)
        text = f"replica.lag.max.messages = {limit:,}"
        ax.annotate(
            text,
            (seconds[-1], limit),
            (-2, 3),
            textcoords="offset points",
            ha="right",
            fontsize=8,
            color=INK,
        )
    for tick in seen.ticks_ms / 1000:
        ax.axvline(tick, color=INK, linewidth=1, linestyle=":")
        ax.annotate(
            "ISR check",
            (tick, top),
            (3, -9),
            textcoords="offset points",
            fontsize=8,
            color=INK,
        )
    out = seen.isr_size < 1 + len(seen.followers)
    ax.fill_between(seconds, 0, top, where=out, color=FALSE_ALARM, alpha=0.18, linewidth=0)
    ax.set_ylim(0, top)
    ax.set_xlim(seconds[0], seconds[-1])
    ax.set_xlabel("time (s); shaded: a follower is out of the ISR")
    ax.set_ylabel("lag (records)")
    ax.yaxis.set_major_formatter(_THOUSANDS)
    ax.set_title(_lag_title(seen), loc="left", fontsize=10)
    ax.legend(frameon=False, fontsize=8, loc="upper left")
    bare(ax, "left", "bottom")
    return ax


def _lag_title(seen: Trace) -> str:
    """Who left, when, and for how long; or that nobody did."""
    evicted = seen.evictions_ms()
    version = plain(seen.config.version)
    behind = int(seen.most_lag_records.max())
    if len(evicted) == 0:
        return f"{version}: up to {behind:,} records behind, and no check evicts anybody"
    step_ms = int(seen.ts_ms[1] - seen.ts_ms[0])
    out_s = float((seen.isr_size < 1 + len(seen.followers)).sum()) * step_ms / 1000
    leave = sorted(b for b, member in seen.in_isr.items() if not member.all())
    who = ("broker " if len(leave) == 1 else "brokers ") + " and ".join(map(str, leave))
    return f"{version}: the check at {evicted[0] / 1000:.1f} s evicts {who} for {out_s:.1f} s"


def plot_versions(compared: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Evictions per hour of each run, false alarms apart from real ones."""
    ax = ax or _axes(7.2, 0.9 + 0.45 * len(compared))
    rows = compared.iloc[::-1]
    false = rows["false_alarms_per_hour"].to_numpy()
    real = (rows["shrinks_per_hour"] - rows["false_alarms_per_hour"]).to_numpy()
    names = [plain(run) for run in rows["run"]]
    ax.barh(names, false, color=FALSE_ALARM, label="false alarms: caught up within the lag time")
    ax.barh(names, real, left=false, color=REAL, label="really behind for longer")
    for place, (one, other) in enumerate(zip(false, real, strict=True)):
        ax.annotate(
            f"{one:,.0f} false + {other:,.0f} real",
            (one + other, place),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    ax.set_xlabel("ISR shrinks per hour in the fleet")
    ax.xaxis.set_major_formatter(_THOUSANDS)
    ax.margins(x=0.22)
    ax.set_title(_versions_title(compared), loc="left", fontsize=10)
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    bare(ax, "bottom")
    ax.tick_params(left=False)
    return ax


def _versions_title(compared: pd.DataFrame) -> str:
    by_alarms = compared.sort_values("false_alarms_per_hour", kind="stable")
    best, worst = by_alarms.iloc[0], by_alarms.iloc[-1]
    if worst["false_alarms_per_hour"] == best["false_alarms_per_hour"]:
        return f"{best['false_alarms_per_hour']:,.0f} false alarms an hour in every version"
    most, least = worst["false_alarms_per_hour"], best["false_alarms_per_hour"]
    return (
        f"The same load: {most:,.0f} false alarms an hour in {plain(worst['version'])}, "
        f"{least:,.0f} in {plain(best['version'])}"
    )


def plot_under_replicated(compared: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Partition-minutes with fewer replicas in the ISR than there are."""
    ax = ax or _axes(7.2, 0.9 + 0.4 * len(compared))
    rows = compared.iloc[::-1]
    minutes = rows["under_replicated_minutes"].to_numpy(float)
    ax.barh([plain(run) for run in rows["run"]], minutes, color=REAL)
    for place, value in enumerate(minutes):
        text = f"{value:,.1f}" if value < 10 else f"{value:,.0f}"
        ax.annotate(
            text, (value, place), (4, 0), textcoords="offset points", va="center", fontsize=8
        )
    ax.set_xlabel("under-replicated partition-minutes")
    ax.margins(x=0.1)
    most = compared.sort_values("under_replicated_minutes").iloc[-1]
    ax.set_title(
        f"Most time under-replicated: {plain(most['run'])}, "
        f"{most['under_replicated_minutes']:,.0f} partition-minutes",
        loc="left",
        fontsize=10,
    )
    bare(ax, "bottom")
    ax.tick_params(left=False)
    return ax


def plot_evictions(evictions: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Every eviction: for how long the follower had lacked something, and how much it lacked."""
    ax = ax or _axes(7.2, 3.8)
    runs = list(dict.fromkeys(evictions["run"]))
    for run, colour, marker in zip(runs, RUN_COLOURS, RUN_MARKERS, strict=False):
        rows = evictions[evictions["run"] == run]
        ax.scatter(
            rows["since_caught_up_ms"] / 1000,
            rows["lag_records"].clip(lower=1),
            s=14,
            alpha=0.45,
            color=colour,
            marker=marker,
            linewidths=0,
            label=f"{plain(run)} ({len(rows):,})",
        )
    for limit in sorted(set(evictions["lag_time_ms"])):
        ax.axvline(limit / 1000, color=INK, linewidth=0.8, linestyle=":")
    for limit in sorted(set(evictions["lag_messages"].dropna())):
        ax.axhline(limit, color=INK, linewidth=0.8, linestyle=":")
    ax.set_yscale("log")
    ax.set_xlim(left=0)
    ax.yaxis.set_major_formatter(_THOUSANDS)
    ax.set_xlabel("time since the evicted follower had everything (s); dotted: the limits")
    ax.set_ylabel("its lag (records)")
    ax.set_title(_evictions_title(evictions), loc="left", fontsize=10)
    if runs:
        for handle in ax.legend(frameon=False, fontsize=8).legend_handles:
            if handle is not None:
                handle.set_alpha(1)
    bare(ax, "left", "bottom")
    return ax


def _evictions_title(evictions: pd.DataFrame) -> str:
    if evictions.empty:
        return "Nobody is evicted"
    alarms = evictions.groupby("run", sort=False)["is_false_alarm"].sum()
    run, false = str(alarms.idxmax()), int(alarms.max())
    total = int((evictions["run"] == run).sum())
    return (
        f"{plain(run)}: {false:,} of {total:,} evictions hit a follower that had kept up until then"
    )


def plot_sweep(
    compared: pd.DataFrame,
    setting: str = "burst_records",
    label: str = "burst height (records)",
    *,
    ax: Axes | None = None,
) -> Axes:
    """False alarms per hour against one setting, a line for each version."""
    ax = ax or _axes(7.2, 3.4)
    versions = list(dict.fromkeys(compared["version"]))
    for version, colour, marker in zip(versions, RUN_COLOURS, RUN_MARKERS, strict=False):
        rows = compared[compared["version"] == version].sort_values(setting)
        alarms = rows["false_alarms_per_hour"].to_numpy(float)
        ax.plot(
            rows[setting], alarms, color=colour, marker=marker, markersize=5, label=plain(version)
        )
    ax.set_xlabel(label)
    ax.set_ylabel("false alarms per hour")
    ax.xaxis.set_major_formatter(_THOUSANDS)
    ax.yaxis.set_major_formatter(_THOUSANDS)
    ax.set_ylim(bottom=0)
    ax.set_title(_sweep_title(compared, setting), loc="left", fontsize=10)
    ax.legend(frameon=False, fontsize=8, title="version", title_fontsize=8)
    bare(ax, "left", "bottom")
    return ax


def _sweep_title(compared: pd.DataFrame, setting: str) -> str:
    """The value at which each rule begins to raise false alarms."""
    alarms = compared[compared["false_alarms"] > 0].groupby("version")[setting].min()
    least = compared[setting].min()
    if alarms.empty:
        return f"No false alarm up to {setting} = {compared[setting].max():,}"
    said = [
        f"{plain(version)} {'at every value' if value == least else f'from {value:,}'}"
        for version, value in alarms.sort_values(kind="stable").items()
    ]
    return f"False alarms: {', '.join(said)}" + _never(compared, alarms.index.tolist())


def _never(compared: pd.DataFrame, alarming: list[str]) -> str:
    calm = [v for v in dict.fromkeys(compared["version"]) if v not in alarming]
    return f"; never in {', '.join(plain(v) for v in calm)}" if calm else ""


def finding(compared: pd.DataFrame) -> str:
    """The fleets compared, in one sentence."""
    said = [
        f"{row['run']}: {row['shrinks']:,.0f} ISR shrinks, {row['false_alarms']:,.0f} false alarms"
        for _, row in compared.iterrows()
    ]
    one = compared.iloc[0]
    return (
        f"{one['partitions']:,} partitions, {one['minutes']:g} minutes, bursts of "
        f"{one['burst_records']:,} records in {one['burst_s']:g} s, the same for all: "
        f"{'; '.join(said)}."
    )
