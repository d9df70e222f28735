"""Notebook 19: how long a produce waits for the ISR, and where that time goes.

A *wait* begins when the leader appends a batch and ends when the high watermark reaches its end:
what Kafka calls RemoteTimeMs. One produce is seen by a lens that looks at every millisecond;
thousands are counted in classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import ipywidgets as widgets
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from isrlab import fleet
from isrlab.events import exact
from isrlab.fleet import load
from isrlab.fleet.config import FleetConfig
from isrlab.show.controls import choice, redrawn
from isrlab.show.curves import Curve, Scale, plot_curves
from isrlab.show.style import (
    BLUE,
    INK,
    PALE,
    VERMILION,
    axes,
    broker_colour,
    duration,
    finish,
    legend_below,
)
from isrlab.show.waits import plot_histogram

LATENCIES_MS = (1, 2, 5, 10, 20, 50, 100)
STALLS_S = (0, 1, 2, 5, 10, 20, 30, 45, 60)
PAIR = FleetConfig(
    version="4.1", partitions=1, brokers=2, replication_factor=2, minutes=0.05, load="steady",
    records_per_s=500, batch_every_ms=40, fetch_latency_ms=10, stall_s=0, follower_spread=0,
)  # fmt: skip
SMALL = FleetConfig(
    version="4.1", partitions=6, minutes=5, load="steady", records_per_s=20, batch_every_ms=500,
    stall_s=5, stall_every_s=60, replica_lag_time_max_ms=10_000,
)  # fmt: skip
FAILED = {
    "refused/h": "NOT_ENOUGH_REPLICAS",
    "too few after append/h": "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "timed out/h": "REQUEST_TIMED_OUT",
}


# One produce


def waits(seen: fleet.Trace) -> pd.DataFrame:
    """Every batch of a partition that was seen each ms: `ts_ms`, `records`, and its `wait_ms`.

    Batches that are not committed when the trace ends are left out.
    """
    records = np.diff(seen.log_end_offset, prepend=0)
    at = np.flatnonzero(records)
    done = np.searchsorted(seen.high_watermark, seen.log_end_offset[at])
    at, done = at[done < len(seen.ts_ms)], done[done < len(seen.ts_ms)]
    wait_ms = seen.ts_ms[done] - seen.ts_ms[at]
    return pd.DataFrame({"ts_ms": seen.ts_ms[at], "records": records[at], "wait_ms": wait_ms})


def high_watermark_lag(configs: Sequence[FleetConfig]) -> pd.DataFrame:
    """How many records wait in partition 0 of each fleet, on average: measured, and rate x wait."""
    rows = []
    for config in configs:
        seen = fleet.trace(config, 0, sample_ms=1)
        each = waits(seen)
        rate = float(seen.log_end_offset[-1]) / config.duration_ms
        mean_ms = float(np.average(each["wait_ms"], weights=each["records"]))
        lag = float((seen.log_end_offset - seen.high_watermark).mean())
        rows.append((config.fetch_latency_ms, rate * 1000, mean_ms, rate * mean_ms, lag))
    columns = ["fetch_latency_ms", "records_per_s", "mean_wait_ms", "rate_x_wait", "lag_records"]
    return pd.DataFrame(rows, columns=columns)


def plot_produce(seen: fleet.Trace, share: float) -> Axes:
    """One produce between a leader and its only follower: the messages that it waits for.

    `share` chooses it: 0 for the shortest wait of the trace, 1 for the longest. A fetch that moved
    the follower's end left the leader as an answer two one-way delays and the writing before.
    """
    ax = axes(7.6, 2.8)
    config, delay_ms = seen.config, seen.config.fetch_latency_ms
    each = waits(seen).sort_values("wait_ms", kind="stable")
    zero, _, wait_ms = each.iloc[round(share * (len(each) - 1))].tolist()
    (broker,) = seen.followers
    moved = np.diff(seen.followers[broker], prepend=0)
    ax.axvspan(0, wait_ms, color=PALE, linewidth=0, zorder=-1)
    for at in np.flatnonzero(moved).tolist():
        arrives_ms = int(seen.ts_ms[at]) - zero
        size = int(moved[at]) * config.record_bytes
        write_ms = -(-size * 1000 // load.follower_bytes_per_s(config, broker))
        left_ms = arrives_ms - 2 * delay_ms - write_ms
        if -3 * delay_ms <= left_ms <= wait_ms:
            is_waited_for = arrives_ms == wait_ms or arrives_ms > 0 > left_ms
            alpha = 1.0 if is_waited_for else 0.35
            _arrow(ax, (left_ms, 1), (left_ms + delay_ms, 0), BLUE, alpha)
            _arrow(ax, (arrives_ms - delay_ms, 0), (arrives_ms, 1), VERMILION, alpha)
    for place, number in ((1, 1), (0, 2)):
        ax.axhline(place, color=broker_colour(number), linewidth=3, zorder=0)
    ax.set_yticks([1, 0], ["leader", "follower"])
    ax.set(ylim=(-0.25, 1.55), xlim=(-2.2 * delay_ms, wait_ms + 1.2 * delay_ms))
    ax.text(0, 1.08, "appended", va="bottom", fontsize=8, color=INK)
    ax.text(wait_ms, 1.08, "high watermark\npasses it", ha="right", va="bottom", fontsize=8)
    ax.plot([], [], color=BLUE, label="answer with records")
    ax.plot([], [], color=VERMILION, label="next fetch: says how far the follower is")
    legend_below(ax)
    ax.set_xlabel("time since the leader appended it (ms)")
    why = "A fetch was parked" if wait_ms < 3 * delay_ms else "The fetch had just been answered"
    times = f"{wait_ms / delay_ms:.1f} times the one-way delay of {delay_ms} ms"
    return finish(ax, f"{why}: it waits {wait_ms} ms, {times}", spines=("bottom",))


def _arrow(
    ax: Axes, start: tuple[float, int], end: tuple[float, int], colour: str, alpha: float
) -> None:
    look = {"arrowstyle": "-|>", "color": colour, "alpha": alpha, "lw": 1.6}
    ax.annotate("", xy=end, xytext=start, arrowprops=look, annotation_clip=False)


# Many produces


def with_settings(table: pd.DataFrame, configs: Sequence[FleetConfig], *names: str) -> pd.DataFrame:
    """A table with a row for each run, in the order of `configs`, with those of their settings."""
    rows = [(config.run, *(getattr(config, name) for name in names)) for config in configs]
    settings = pd.DataFrame(rows, columns=["run", *names])
    return settings.merge(table, on="run", how="left").drop(columns="run")


def plot_by_network(table: pd.DataFrame) -> Axes:
    """Median and 99th percentile of the waits by one-way delay; the band is 2 to 4 delays.

    `table` has `fetch_latency_ms`, `p50_ms` and `p99_ms`.
    """
    delays = table["fetch_latency_ms"].to_numpy(float)
    times = table["p50_ms"] / delays
    curves = {
        "2 to 4 one-way delays": Curve(
            delays, 3 * delays, 2 * delays, 4 * delays, look=(INK, ""), style="-."
        ),
        "median": Curve(delays, table["p50_ms"]),
        "99th percentile": Curve(delays, table["p99_ms"]),
    }
    title = (
        f"Half of the produces wait {times.min():.1f} to {times.max():.1f} times the one-way delay "
        "or less"
    )
    scales = (
        Scale("one-way delay of a message between brokers (ms)", "log", ticks=delays),
        Scale("wait of a produce (ms)", "log"),
    )
    return plot_curves(curves, title, scales)


def summary(
    latency: pd.DataFrame,
    refused: pd.DataFrame,
    alone: pd.DataFrame,
    configs: Sequence[FleetConfig],
) -> pd.DataFrame:
    """A row for each fleet: waits, failures per hour, and time in which one copy is enough.

    From `churn.commit_latency`, `churn.refused_produce` by run, and `churn.under_min_isr` for 2.
    `one copy accepts` are partition-minutes per hour in which only the leader was in the ISR and
    produces were acknowledged all the same.
    """
    counts = refused.pivot_table(index="run", columns="error", values="produces", aggfunc="sum")
    alone_ms = alone.groupby("run")["under_min_isr_ms"].sum()
    rows = []
    for config in configs:
        asks = config.acks_all_share > 0
        waited = latency.set_index("run").reindex([config.run]).iloc[0]
        failed = counts.reindex(index=[config.run], columns=[*FAILED.values()]).fillna(0).iloc[0]
        is_enough = not asks or config.min_isr(config.replication_factor) < 2
        minutes = float(alone_ms.get(config.run, 0.0)) / 60_000 if is_enough else 0.0
        row = {
            "acks": "all" if asks else "1",
            "min ISR": str(config.min_insync_replicas) if asks else "any",
            **{name: waited[name] if asks else 0.0 for name in ("p50_ms", "p99_ms", "p999_ms")},
            **{name: failed[error] * 60 / config.minutes for name, error in FAILED.items()},
        }
        rows.append({**row, "one copy accepts (min/h)": minutes * 60 / config.minutes})
    return pd.DataFrame(rows).round(1)


def finding(table: pd.DataFrame) -> str:
    """What the loosest, the safe and the strictest setting of `summary` cost, in one sentence."""
    loose, safe, strict = (table[table["min ISR"] == size].iloc[0] for size in "123")
    return (
        f"Where followers stall now and then, acks=all makes half of the produces wait "
        f"{duration(loose['p50_ms'])} and 1 in 1,000 {duration(loose['p999_ms'])}; min ISR 1 "
        f"accepts one copy for {loose['one copy accepts (min/h)']:,.1f} partition-minutes an hour, "
        f"min ISR 2 refuses {safe['refused/h']:,.0f} tries instead, min ISR 3 "
        f"{strict['refused/h']:,.0f}."
    )


# A small fleet under sliders


def waits_here(config: FleetConfig) -> pd.DataFrame:
    """The histogram of a small fleet, simulated here: `latency_ms`, `count`."""
    waits = exact.waits(fleet.simulate_local(config))
    table = pd.DataFrame(
        [(w.latency_ms, w.produces) for w in waits], columns=["latency_ms", "count"]
    )
    return table.groupby("latency_ms", as_index=False).sum()


def wait_controls(config: FleetConfig = SMALL) -> widgets.VBox:
    """Sliders for network latency and the length of stalls, and the histogram that they make."""
    delay = choice("one-way delay (ms)", LATENCIES_MS, config.fetch_latency_ms, "{:g}".format)
    stall = choice("stalls of brokers (s)", STALLS_S, config.stall_s, "{:g}".format)

    def draw() -> Axes:
        return plot_histogram(
            waits_here(config.with_(fetch_latency_ms=delay.value, stall_s=stall.value))
        )

    return redrawn((delay, stall), draw)
