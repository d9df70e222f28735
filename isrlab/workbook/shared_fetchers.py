"""Who shares a fetcher thread with a hot partition, and who is evicted for it.

Tables come as pandas, from `isrlab.fleet.evictions` and `isrlab.churn.under_replicated`; what a
thread has to carry is computed from the settings. A *neighbour* is a partition that is not hot and
has the same leader as the first hot one, partition 0: others are fetched by other threads.
"""

from __future__ import annotations

from collections.abc import Sequence

import ipywidgets as widgets
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter

from isrlab.fleet import load
from isrlab.fleet.cell import cell, run_cell
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.kernel.state import KIND, PARTITION, SHRINK
from isrlab.fleet.layout import assignment, fetcher_id
from isrlab.fleet.lens import Trace
from isrlab.show.controls import choice, png, redrawn
from isrlab.show.style import INK, bare, plain

MB = 2**20
LOOKS = {  # colour of a partition, and what it means
    "hot": ("#D55E00", "hot, evicted"),
    "evicted": ("#F0B27A", "neighbour, evicted"),
    "warm": ("#8A9BA8", "hot, stays"),
    "shares": ("#CFD8DC", "neighbour on the hot thread, stays"),
    "apart": ("#F4F6F7", "on another thread, stays"),
}
THREADS = tuple(range(1, 9))
SHARES = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0)
SIZES_MB = (1, 5, 10, 20, 50, 100, 150, 200, 300, 400)
SMALL = FleetConfig(
    version="3.7", partitions=48, minutes=5, load="steady", stall_s=0, follower_spread=0,
    records_per_s=20, hot_partitions=1, hot_times=1_100, num_replica_fetchers=2,
    replica_fetch_max_bytes=200 * MB, replica_fetch_response_max_bytes=200 * MB,
)  # fmt: skip


def heated(config: FleetConfig, share: float) -> FleetConfig:
    """The fleet with hot partitions that bring `share` of what one fetcher thread can carry."""
    one = config.records_per_s * config.record_bytes
    return config.with_(hot_times=share * config.follower_bytes_per_s / one)


def sized(config: FleetConfig, size_mb: float) -> FleetConfig:
    """The fleet with both limits of a fetch response at `size_mb` MiB."""
    size = round(size_mb * MB)
    return config.with_(replica_fetch_max_bytes=size, replica_fetch_response_max_bytes=size)


def divided(config: FleetConfig) -> FleetConfig:
    """The fleet with one thread's bandwidth divided among all threads of a pair of brokers."""
    share = config.follower_bytes_per_s // config.num_replica_fetchers
    return config.with_(follower_bytes_per_s=share, name=f"{config.run} divided")


def longest_loop_s(config: FleetConfig) -> float:
    """How long a hot thread is busy with one response: its bytes by the thread's bytes/s.

    A hot partition with a backlog fills its share; the others add what they have, at most the rest.
    """
    hot = max(1, len([p for p in _led(config) if p < config.hot_partitions]))
    size = min(hot * config.replica_fetch_max_bytes, config.replica_fetch_response_max_bytes)
    return size / config.follower_bytes_per_s


def thread_loads(config: FleetConfig) -> pd.DataFrame:
    """What the threads that read from the hot leader carry: a row for each broker and fetcher.

    `share` above 1 means that the thread can never catch up.
    """
    replicas = assignment(config.partitions, config.brokers, config.replication_factor)
    rows: dict[tuple[int, int], float] = {}
    for partition in _led(config):
        times = config.hot_times if partition < config.hot_partitions else 1.0
        produced = config.records_per_s * config.record_bytes * times
        for broker in replicas[partition, 1:].tolist():
            key = broker, fetcher_id(partition, config.num_replica_fetchers)
            rows[key] = rows.get(key, 0.0) + produced
    table = pd.DataFrame(
        [
            (broker, fetcher, produced, load.follower_bytes_per_s(config, broker))
            for (broker, fetcher), produced in sorted(rows.items())
        ],
        columns=["broker", "fetcher", "produced_bytes_per_s", "bytes_per_s"],
    )
    return table.assign(share=table["produced_bytes_per_s"] / table["bytes_per_s"])


def neighbours(config: FleetConfig) -> tuple[list[int], list[int]]:
    """The neighbours on the thread of a hot partition, and those on other threads."""
    cold = [p for p in _led(config) if p >= config.hot_partitions]
    sharing = [p for p in cold if _look(config, p, 0) == "shares"]
    return sharing, [p for p in cold if p not in sharing]


def symptoms(evictions: pd.DataFrame, configs: Sequence[FleetConfig]) -> pd.DataFrame:
    """What a leader saw when it evicted, hot partitions apart: medians of each run."""
    hot = {one.run: one.hot_partitions for one in configs}
    rows = evictions[evictions["run"].isin(hot)]
    is_hot = rows["partition"] < rows["run"].map(hot)
    names = ["lag_records", "since_fetch_ms", "since_caught_up_ms"]
    medians = rows.groupby(["run", is_hot.map({True: "hot", False: "other"}).rename("partition")])
    return medians[names].median().astype(int).assign(evictions=medians.size())


def by_partition(evictions: pd.DataFrame, configs: Sequence[FleetConfig]) -> pd.DataFrame:
    """A row for each run and partition of the hot leader: its thread, and how often it left."""
    times = evictions.groupby(["run", "partition"]).size()
    rows = [
        (one.run, one.num_replica_fetchers, partition, _look(one, partition, evicted), evicted)
        for one in configs
        for partition in _led(one)
        for evicted in [int(times.get((one.run, partition), 0))]
    ]
    columns = ["run", "num_replica_fetchers", "partition", "look", "evictions"]
    return pd.DataFrame(rows, columns=columns)


def costs(
    evictions: pd.DataFrame, absences: pd.DataFrame, configs: Sequence[FleetConfig]
) -> pd.DataFrame:
    """Evictions and under-replicated minutes of each run, per hour, of hot ones and neighbours."""
    rows = []
    for one in configs:
        left = evictions.loc[evictions["run"] == one.run, "partition"]
        out = absences[absences["run"] == one.run]
        is_hot = out["partition"] < one.hot_partitions
        minutes = out["under_replicated_ms"] / 60_000
        sums = (
            (left < one.hot_partitions).sum(), (left >= one.hot_partitions).sum(),
            minutes[is_hot].sum(), minutes[~is_hot].sum(),
        )  # fmt: skip
        rows.append((one.run, one.num_replica_fetchers, *(60 * s / one.minutes for s in sums)))
    names = ["hot_evictions", "neighbour_evictions", "hot_minutes", "neighbour_minutes"]
    return pd.DataFrame(rows, columns=["run", "num_replica_fetchers", *names])


def plot_grid(grid: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Partitions of the hot leader by number of threads: who is evicted, and who sits elsewhere."""
    partitions = sorted(set(grid["partition"]))
    counts = sorted(set(grid["num_replica_fetchers"]))
    ax = ax or _axes(6.4, 1.3 + 0.22 * len(partitions))
    for row in grid.itertuples():
        x, y = counts.index(row.num_replica_fetchers), partitions.index(row.partition)
        ax.add_patch(
            Rectangle((x, y), 1, 1, facecolor=LOOKS[str(row.look)][0], edgecolor="white", lw=1.5)
        )
        if row.look in ("hot", "evicted"):
            ax.text(x + 0.5, y + 0.5, f"{row.evictions!s}×", ha="center", va="center", fontsize=7)
    ax.set_xlim(0, len(counts))
    ax.set_ylim(len(partitions), 0)
    ax.set_xticks([x + 0.5 for x in range(len(counts))], [str(count) for count in counts])
    ax.set_yticks([y + 0.5 for y in range(len(partitions))], [str(p) for p in partitions])
    ax.set_xlabel("num.replica.fetchers")
    ax.set_ylabel("partition (one leader)")
    ax.set_title(_grid_title(grid), loc="left", fontsize=10)
    _legend(ax, [look for look in LOOKS if look in set(grid["look"])])
    bare(ax)
    ax.tick_params(length=0, labelsize=8)
    return ax


def _grid_title(grid: pd.DataFrame) -> str:
    """How many neighbours are evicted with each number of threads."""
    evicted = (grid["look"] == "evicted").groupby(grid["num_replica_fetchers"]).sum()
    return f"Neighbours evicted, by number of threads: {', '.join(map(str, evicted))}"


def plot_costs(several: dict[str, pd.DataFrame], *, ax: Axes | None = None) -> Axes:
    """Under-replicated minutes of neighbours by number of threads, a line for each situation."""
    ax = ax or _axes(7.2, 3.2)
    said = []
    for (name, table), colour, marker in zip(
        several.items(), ("#0072B2", "#D55E00", "#009E73", "#CC79A7"), "osD^", strict=False
    ):
        x, y = table["num_replica_fetchers"], table["neighbour_minutes"]
        ax.plot(x, y, color=colour, marker=marker, markersize=5, label=plain(name))
        said.append(f"{plain(name)} {y.iloc[0]:,.0f} → {y.iloc[-1]:,.0f}")
    ax.set_ylim(bottom=0)
    ax.set_xlabel("num.replica.fetchers")
    ax.set_ylabel("under-replicated neighbours\n(partition-minutes per hour)")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.set_title(f"Fewest to most threads: {'; '.join(said)}", loc="left", fontsize=9)
    ax.legend(frameon=False, fontsize=8)
    bare(ax, "left", "bottom")
    return ax


def plot_sizes(
    table: pd.DataFrame, configs: Sequence[FleetConfig], *, ax: Axes | None = None
) -> Axes:
    """Under-replicated neighbours by size of a response, and where the loop reaches the limit."""
    ax = ax or _axes(7.2, 3.2)
    one = configs[0]
    sizes = np.array([config.replica_fetch_response_max_bytes / MB for config in configs])
    ax.plot(sizes, table["neighbour_minutes"], color="#0072B2", marker="o", markersize=5)
    limit_mb = one.follower_bytes_per_s * one.lag_time_ms / 1000 / MB
    for share, text, side in (
        (0.5, "loop = half the limit ", "right"),
        (1.0, " the limit", "left"),
    ):
        ax.axvline(share * limit_mb, color=INK, linewidth=0.8, linestyle=":")
        at = share * limit_mb, 0.97
        ax.text(*at, text, transform=ax.get_xaxis_transform(), fontsize=7, va="top", ha=side)
    ax.set_xscale("log")
    ax.set_xticks(sizes, [f"{size:g}" for size in sizes], fontsize=7)
    ax.minorticks_off()
    ax.set_ylim(bottom=0)
    ax.set_xlabel("replica.fetch.max.bytes and replica.fetch.response.max.bytes (MiB)")
    ax.set_ylabel("under-replicated neighbours\n(partition-minutes per hour)")
    ax.set_title(_sizes_title(table, sizes), loc="left", fontsize=10)
    bare(ax, "left", "bottom")
    return ax


def _sizes_title(table: pd.DataFrame, sizes: np.ndarray) -> str:
    harmed = sizes[table["neighbour_evictions"].to_numpy() > 0]
    if not len(harmed):
        return f"No neighbour is evicted up to responses of {sizes.max():g} MiB"
    return f"Neighbours of a hot partition leave the ISR from responses of {harmed.min():g} MiB on"


def plot_lags(traces: dict[str, Trace], *, ax: Axes | None = None) -> Axes:
    """How many records the slowest follower of some partitions lacks, over time."""
    ax = ax or _axes(7.2, 3.2)
    most = {name: int(seen.most_lag_records.max()) for name, seen in traces.items()}
    for (name, seen), colour in zip(
        traces.items(), ("#D55E00", "#0072B2", "#009E73", "#CC79A7"), strict=False
    ):
        ax.plot(
            seen.ts_ms / 1000, seen.most_lag_records, color=colour, linewidth=1, label=plain(name)
        )
        out = seen.isr_size < 1 + len(seen.followers)
        lag = np.where(out, seen.most_lag_records, np.nan)
        ax.plot(seen.ts_ms / 1000, lag, color=colour, linewidth=3.5, alpha=0.35)
    ax.set_yscale("symlog", linthresh=10)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.set_ylim(bottom=0)
    ax.set_xlabel("time (s); thick: a follower is out of the ISR")
    ax.set_ylabel("lag (records)")
    said = ", ".join(f"{plain(name)} {lag:,}" for name, lag in most.items())
    ax.set_title(f"MaxLag: {said}", loc="left", fontsize=9)
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0, -0.2), ncols=2)
    bare(ax, "left", "bottom")
    return ax


def plot_threads(config: FleetConfig = SMALL, *, ax: Axes | None = None) -> Axes:
    """Each fetcher thread of one follower with the partitions it reads, and who is evicted."""
    ax = ax or _axes(8.0, 3.4)
    evicted = _evicted(config)
    follower = int(cell(config, 1).followers[0, 0])
    loads = thread_loads(config).set_index(["broker", "fetcher"])["share"]
    columns: dict[int, list[int]] = {f: [] for f in range(config.num_replica_fetchers)}
    for partition in _led(config):
        columns[fetcher_id(partition, config.num_replica_fetchers)].append(partition)
    for x, (fetcher, partitions) in enumerate(columns.items()):
        for y, partition in enumerate(partitions):
            look = _look(config, partition, int(partition in evicted))
            ax.add_patch(
                Rectangle((x + 0.08, y), 0.84, 0.9, facecolor=LOOKS[look][0], edgecolor="0.8")
            )
            ax.text(x + 0.5, y + 0.45, str(partition), ha="center", va="center", fontsize=7)
        share = loads.get((follower, fetcher), 0.0)
        ax.annotate(
            f"{share:.3g}", (x + 0.5, 1.02), xycoords=ax.get_xaxis_transform(),
            ha="center", fontsize=8,
        )  # fmt: skip
    ax.set_xlim(0, max(4, len(columns)))
    ax.set_ylim(max(map(len, columns.values())), 0)
    ax.set_xticks([x + 0.5 for x in range(len(columns))], [f"thread {f}" for f in columns])
    ax.set_yticks([])
    ax.set_xlabel(f"fetcher threads of broker {follower}; above: its load by what it can carry")
    ax.set_title(_threads_title(config, evicted), loc="left", fontsize=10, pad=18)
    _legend(ax, list(LOOKS))
    bare(ax)
    ax.tick_params(length=0, labelsize=8)
    return ax


def _threads_title(config: FleetConfig, evicted: set[int]) -> str:
    neighbours = [p for p in _led(config) if p >= config.hot_partitions]
    count = len(evicted & set(neighbours))
    loop = f"a full response keeps the thread busy for {longest_loop_s(config):,.1f} s"
    return f"{count} of {len(neighbours)} neighbours evicted; {loop}"


def fetcher_controls(config: FleetConfig = SMALL) -> widgets.VBox:
    """Sliders for threads, heat and response size, and who is evicted."""
    threads = choice("num.replica.fetchers", THREADS, 2)
    heat = choice("hot / one thread", SHARES, 1.1, "{:g}".format)
    size = choice("max bytes (MiB)", SIZES_MB, 200)

    def draw() -> bytes:
        moved = heated(sized(config, size.value), heat.value)
        return threads_png(moved.with_(num_replica_fetchers=threads.value))

    return redrawn((threads, heat, size), draw)


def threads_png(config: FleetConfig) -> bytes:
    """The picture of `plot_threads` as PNG."""
    figure = Figure(figsize=(8.0, 3.8), dpi=90)  # margins by hand: a layout costs 80 ms
    axes = figure.subplots(gridspec_kw={"left": 0.03, "right": 0.98, "top": 0.87, "bottom": 0.25})
    plot_threads(config, ax=axes)
    return png(figure)


def finding(several: dict[str, pd.DataFrame]) -> str:
    """Who is evicted with the fewest and the most threads, in one sentence for all situations."""
    said = []
    for name, table in several.items():
        first, last = table.iloc[0], table.iloc[-1]
        said.append(
            f"{name}: {first['num_replica_fetchers']} to {last['num_replica_fetchers']} threads "
            f"take neighbours' evictions from {first['neighbour_evictions']:,.0f} to "
            f"{last['neighbour_evictions']:,.0f}, those of hot partitions from "
            f"{first['hot_evictions']:,.0f} to {last['hot_evictions']:,.0f}"
        )
    return f"Per hour, {'; '.join(said)}."


def _led(config: FleetConfig) -> list[int]:
    """The partitions with the leader of partition 0."""
    replicas = assignment(config.partitions, config.brokers, config.replication_factor)
    return [int(p) for p in np.flatnonzero(replicas[:, 0] == replicas[0, 0])]


def _look(config: FleetConfig, partition: int, evicted: int) -> str:
    if partition < config.hot_partitions:
        return "hot" if evicted else "warm"
    if evicted:
        return "evicted"
    number = config.num_replica_fetchers
    hot = [fetcher_id(p, number) for p in _led(config) if p < config.hot_partitions]
    return "shares" if fetcher_id(partition, number) in hot else "apart"


def _evicted(config: FleetConfig) -> set[int]:
    """Which partitions of the hot leader lose a replica; its cell is simulated here."""
    result = run_cell(config, 1)
    shrinks = result.events[result.events[:, KIND] == SHRINK]
    return set(result.cell.partitions[np.unique(shrinks[:, PARTITION])].tolist())


def _legend(ax: Axes, looks: list[str]) -> None:
    patches = [Patch(facecolor=LOOKS[k][0], edgecolor="0.8", label=LOOKS[k][1]) for k in looks]
    ax.legend(
        handles=patches, frameon=False, fontsize=8, ncols=3,
        loc="upper left", bbox_to_anchor=(0, -0.14),
    )  # fmt: skip


def _axes(width: float, height: float) -> Axes:
    return plt.subplots(figsize=(width, height), layout="constrained")[1]
