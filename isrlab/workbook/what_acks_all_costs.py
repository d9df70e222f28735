"""What acks=all costs: how long a produce waits for the ISR, and where that time goes.

Tables come as pandas, from `isrlab.churn`; the picture of one produce is made of a
`isrlab.fleet.Trace` that looks at every millisecond. A *wait* begins when the leader appends a
batch and ends when the high watermark reaches its end: what Kafka calls RemoteTimeMs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from isrlab import fleet
from isrlab.fleet import load
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.kernel.state import EXACT_MS, STEPS
from isrlab.show.controls import choice, png, redrawn
from isrlab.show.style import INK, PALE, bare, broker_colour, plain

ANSWER, FETCH, WAIT = "#0072B2", "#D55E00", "#CFC3E6"
QUANTILES = {"p50_ms": ("#0072B2", "o", "median"), "p99_ms": ("#D55E00", "s", "99th percentile")}
RUN_COLOURS = ("#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7", INK)
ZERO_AT = 0.4  # where a logarithmic axis has room for a wait of 0 ms
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
FAILED = ("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "REQUEST_TIMED_OUT")


# One produce


def waits(seen: fleet.Trace) -> pd.DataFrame:
    """Every batch of a partition that was seen each ms: `ts_ms`, `records`, and its `wait_ms`.

    Batches that are not committed when the trace ends are left out.
    """
    records = np.diff(seen.log_end_offset, prepend=0)
    at = np.flatnonzero(records)
    done = np.searchsorted(seen.high_watermark, seen.log_end_offset[at])
    is_done = done < len(seen.ts_ms)
    at, done = at[is_done], done[is_done]
    rows = {"ts_ms": seen.ts_ms[at], "records": records[at]}
    return pd.DataFrame(rows | {"wait_ms": seen.ts_ms[done] - seen.ts_ms[at]})


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


def plot_produce(seen: fleet.Trace, share: float, *, ax: Axes | None = None) -> Axes:
    """One produce between a leader and its only follower: the messages that it waits for.

    `share` chooses it: 0 for the shortest wait of the trace, 1 for the longest. What moves a
    follower's end left its leader two latencies and the writing before.
    """
    ax = ax or _axes(7.2, 2.6)
    config = seen.config
    each = waits(seen).sort_values("wait_ms", kind="stable")
    one = each.iloc[round(share * (len(each) - 1))]
    zero, wait_ms = int(one["ts_ms"]), int(one["wait_ms"])
    (broker,) = seen.followers
    ax.axvspan(0, wait_ms, color=WAIT, linewidth=0, zorder=-1)
    for arrives_ms, size in _loops(seen, broker):
        left_ms, got_ms = _sent(config, broker, arrives_ms, size)
        if left_ms - zero < -3 * config.fetch_latency_ms or left_ms > zero + wait_ms:
            continue
        is_its = arrives_ms == zero + wait_ms
        alpha = 1.0 if is_its or arrives_ms > zero > left_ms else 0.35
        for start, end, colour, down in (
            (left_ms, left_ms + config.fetch_latency_ms, ANSWER, True),
            (got_ms, arrives_ms, FETCH, False),
        ):
            _arrow(ax, start - zero, end - zero, (colour, alpha), down=down)
    _lanes(ax, config, wait_ms)
    ax.set_title(_produce_title(config, wait_ms), loc="left", fontsize=10)
    return ax


def _loops(seen: fleet.Trace, broker: int) -> list[tuple[int, int]]:
    """Fetches that showed a new end of the follower: when they came in, and the records."""
    moved = np.diff(seen.followers[broker], prepend=0)
    at = np.flatnonzero(moved)
    return list(zip(seen.ts_ms[at].tolist(), moved[at].tolist(), strict=True))


def _sent(config: FleetConfig, broker: int, arrives_ms: int, records: int) -> tuple[int, int]:
    """When the answer with these records left the leader, and when they were written."""
    size = records * config.record_bytes
    write_ms = -(-size * 1000 // load.follower_bytes_per_s(config, broker))
    written_ms = arrives_ms - config.fetch_latency_ms
    return written_ms - write_ms - config.fetch_latency_ms, written_ms


def _arrow(ax: Axes, start: float, end: float, look: tuple[str, float], *, down: bool) -> None:
    colour, alpha = look
    ax.annotate(
        "",
        xy=(end, 0 if down else 1),
        xytext=(start, 1 if down else 0),
        arrowprops={"arrowstyle": "-|>", "color": colour, "alpha": alpha, "lw": 1.6},
        annotation_clip=False,
    )


def _lanes(ax: Axes, config: FleetConfig, wait_ms: int) -> None:
    for place, broker in ((1, 1), (0, 2)):
        ax.axhline(place, color=broker_colour(broker), linewidth=3, zorder=0)
    ax.set_yticks([1, 0], ["leader", "follower"])
    ax.set_ylim(-0.25, 1.55)
    ax.set_xlim(-2.2 * config.fetch_latency_ms, wait_ms + 1.2 * config.fetch_latency_ms)
    ax.text(0, 1.08, "appended", va="bottom", fontsize=8, color=INK)
    ax.text(
        wait_ms, 1.08, "high watermark\npasses it", ha="right", va="bottom", fontsize=8, color=INK
    )
    ax.plot([], [], color=ANSWER, label="answer with records")
    ax.plot([], [], color=FETCH, label="next fetch: tells what it has")
    ax.legend(frameon=False, fontsize=8, ncols=2, loc="upper right", bbox_to_anchor=(1, -0.2))
    ax.set_xlabel("time since the leader appended it (ms)", loc="left")
    ax.tick_params(axis="y", length=0)
    bare(ax, "bottom")


def _produce_title(config: FleetConfig, wait_ms: int) -> str:
    latency_ms = config.fetch_latency_ms
    trips = wait_ms / latency_ms
    why = "a fetch was parked" if trips < 3 else "the fetch had just been answered"
    return f"{why.capitalize()}: it waits {wait_ms} ms, {trips:.1f} times the {latency_ms} ms way"


# Many produces


def with_settings(table: pd.DataFrame, configs: Sequence[FleetConfig], *names: str) -> pd.DataFrame:
    """A table with a row for each run, in the order of `configs`, with those of their settings."""
    rows = [(one.run, *(getattr(one, name) for name in names)) for one in configs]
    settings = pd.DataFrame(rows, columns=["run", *names])
    return settings.merge(table, on="run", how="left").drop(columns="run")


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
    for one in configs:
        asks = one.acks_all_share > 0
        waited = latency.set_index("run").reindex([one.run]).iloc[0]
        failed = counts.reindex(index=[one.run], columns=FAILED).fillna(0).iloc[0]
        is_enough = not asks or one.min_isr(one.replication_factor) < 2
        minutes = float(alone_ms.get(one.run, 0.0)) / 60_000 if is_enough else 0.0
        rows.append(
            {
                "acks": "all" if asks else "1",
                "min ISR": str(one.min_insync_replicas) if asks else "any",
                **{name: waited[name] if asks else 0.0 for name in ("p50_ms", "p99_ms", "p999_ms")},
                "refused/h": failed[FAILED[0]] * 60 / one.minutes,
                "too few after append/h": failed[FAILED[1]] * 60 / one.minutes,
                "timed out/h": failed[FAILED[2]] * 60 / one.minutes,
                "one copy accepts (min/h)": minutes * 60 / one.minutes,
            }
        )
    return pd.DataFrame(rows).round(1)


def finding(table: pd.DataFrame) -> str:
    """What the best and the strictest setting of `summary` cost, in one sentence."""
    loose, safe, strict = (table[table["min ISR"] == size].iloc[0] for size in "123")
    return (
        f"Where followers stall now and then, acks=all makes half of the produces wait "
        f"{duration(loose['p50_ms'])} and 1 in 1,000 {duration(loose['p999_ms'])}; min ISR 1 "
        f"accepts one copy for {loose['one copy accepts (min/h)']:,.1f} partition-minutes an hour, "
        f"min ISR 2 refuses {safe['refused/h']:,.0f} tries instead, min ISR 3 "
        f"{strict['refused/h']:,.0f}."
    )


def plot_histogram(histogram: pd.DataFrame, *, subject: str = "", ax: Axes | None = None) -> Axes:
    """How many produces waited how long, in classes on a logarithmic scale, with two quantiles.

    `histogram` has `latency_ms` (least of its class) and `count`.
    """
    ax = ax or _axes(7.2, 2.8)
    starts = histogram["latency_ms"].to_numpy(float)
    counts = histogram["count"].to_numpy(float)
    share = 100 * counts / max(1.0, counts.sum())
    is_zero = starts == 0
    lefts, widths = np.where(is_zero, ZERO_AT, starts), np.where(is_zero, 0.3, class_width(starts))
    ax.bar(lefts, share, width=widths, align="edge", color="#56B4E9")
    ax.set_xscale("log")
    ax.set_xlim(ZERO_AT, 100_000)
    ax.set_yscale("log")
    ax.set_ylim(0.0005, 200)
    said = []
    for share_of, name in ((0.5, "half"), (0.99, "99 %"), (0.999, "99.9 %")):
        value = quantile(histogram, share_of)
        said.append(f"{name} within {duration(value)}")
        ax.axvline(max(value, ZERO_AT), color=INK, linewidth=1, ls=":")
    _time_axis(ax)
    ax.set_ylabel("share of produces (%)")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    text = ", ".join(said)
    ax.set_title(plain(subject + text[:1].upper() + text[1:]), loc="left", fontsize=10)
    bare(ax, "left", "bottom")
    return ax


def plot_tails(histograms: pd.DataFrame, labels: dict[str, str], *, ax: Axes | None = None) -> Axes:
    """The share of produces that wait longer than a time: a line for each run in `labels`."""
    ax = ax or _axes(7.2, 3.6)
    worst = []
    for (run, label), colour in zip(labels.items(), RUN_COLOURS, strict=False):
        one = histograms[histograms["run"] == run].sort_values("latency_ms")
        counts = one["count"].to_numpy(float)
        longer = 100 * (1 - (np.cumsum(counts) - counts) / counts.sum())
        starts = np.maximum(one["latency_ms"].to_numpy(float), ZERO_AT)
        ax.step(starts, longer, where="post", color=colour, label=label)
        worst.append(f"{plain(label)}: {duration(quantile(one, 0.999))}")
    for share, name in ((50, "half"), (1, "1 in 100"), (0.1, "1 in 1,000")):
        ax.axhline(share, color=PALE, linewidth=1, zorder=0)
        ax.annotate(name, (100_000, share), ha="right", va="bottom", fontsize=8, color=INK)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(ZERO_AT, 100_000)
    ax.set_ylim(0.005, 140)
    _time_axis(ax)
    ax.set_ylabel("produces that wait longer (%)")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.set_title("1 in 1,000 waits longer than, " + "; ".join(worst), loc="left", fontsize=9)
    ax.legend(frameon=False, fontsize=8, loc="lower left")
    bare(ax, "left", "bottom")
    return ax


def plot_by_network(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Median and 99th percentile of the waits against the way of a message.

    `table` has `fetch_latency_ms`, `p50_ms` and `p99_ms`; shaded: two to four times the way.
    """
    ax = ax or _axes(7.2, 3.4)
    ways = table["fetch_latency_ms"].to_numpy(float)
    ax.fill_between(ways, 2 * ways, 4 * ways, color=WAIT, linewidth=0, label="2 to 4 ways")
    for name, (colour, marker, label) in QUANTILES.items():
        ax.plot(ways, table[name], color=colour, marker=marker, label=label)
    ax.set_xscale("log")
    ax.set_yscale("log")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(NullLocator())
    ax.set_xticks(ways)
    ax.set_xlabel("time of a message between brokers, one way (ms)")
    ax.set_ylabel("wait of a produce (ms)")
    times = table["p50_ms"] / ways
    few, many = f"{times.min():.1f}", f"{times.max():.1f}"
    ax.set_title(
        f"Half of the produces wait {few} to {many} times the way or less", loc="left", fontsize=10
    )
    ax.legend(frameon=False, fontsize=8, loc="upper left")
    bare(ax, "left", "bottom")
    return ax


def quantile(histogram: pd.DataFrame, share: float) -> int:
    """The least class of `latency_ms` that holds, with those below it, this share of `count`."""
    ordered = histogram.sort_values("latency_ms")
    so_far = ordered["count"].cumsum()
    if so_far.empty:
        return 0
    place = int(np.searchsorted(so_far, np.ceil(share * so_far.iloc[-1] - 1e-6)))
    return int(ordered["latency_ms"].iloc[place])


def class_width(starts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """How many ms each class of latency covers, float64[n]: 1, then a part of its doubling."""
    doublings = np.floor(np.log2(np.maximum(starts, EXACT_MS) / EXACT_MS)) + 1
    return np.where(starts < EXACT_MS, 1.0, 2.0**doublings * EXACT_MS / 2 / STEPS)


def duration(ms: float) -> str:
    """A time as one reads it: 8 ms, 1.4 s."""
    return f"{ms:,.0f} ms" if ms < 1_000 else f"{ms / 1000:.1f} s"


# Controls


def waits_here(config: FleetConfig) -> pd.DataFrame:
    """The histogram of a small fleet, computed in this process: `latency_ms`, `count`."""
    rows = fleet.simulate_local(config).select(["kind", "detail"]).to_pylist()
    told = [dict(row["detail"]) for row in rows if row["kind"] == "latency"]
    table = pd.DataFrame(
        [(int(one["latency_ms"]), int(one["count"])) for one in told],
        columns=["latency_ms", "count"],
    )
    return table.groupby("latency_ms")["count"].sum().reset_index()


def wait_controls(config: FleetConfig = SMALL) -> widgets.VBox:
    """Sliders for network latency and the length of stalls, and the histogram that they make."""
    way = choice("message, one way (ms)", LATENCIES_MS, config.fetch_latency_ms, "{:g}".format)
    stall = choice("stalls of brokers (s)", STALLS_S, config.stall_s, "{:g}".format)
    return redrawn(
        (way, stall),
        lambda: waits_png(config.with_(fetch_latency_ms=way.value, stall_s=stall.value)),
    )


def waits_png(config: FleetConfig) -> bytes:
    """The picture of `plot_histogram` for a small fleet, as PNG."""
    figure = Figure(figsize=(7.6, 2.8), dpi=90)
    figure.subplots_adjust(left=0.09, right=0.98, top=0.9, bottom=0.19)  # quicker than a layout
    plot_histogram(waits_here(config), ax=figure.subplots())
    return png(figure)


def _time_axis(ax: Axes) -> None:
    ticks = (ZERO_AT, 1, 10, 100, 1_000, 10_000, 100_000)
    ax.set_xticks(ticks, ["0", "1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s"])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("wait for the ISR")


def _axes(width: float, height: float) -> Axes:
    return plt.subplots(figsize=(width, height), layout="constrained")[1]
