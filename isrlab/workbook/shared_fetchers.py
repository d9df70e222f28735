"""Shared fetchers: who shares a fetcher thread with a hot partition, and who is evicted for it.

What a thread has to carry is computed from the settings. A *neighbour* is a partition that is not
hot and has the same leader as the first hot one, partition 0: others have other threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import ipywidgets as widgets
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from isrlab import fleet
from isrlab.events import exact
from isrlab.fleet import load
from isrlab.fleet.cell import cell
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.layout import assignment, fetcher_id
from isrlab.show.controls import Redrawn, choice
from isrlab.show.curves import Curve, Scale, plot_curves
from isrlab.show.matrix import plot_matrix
from isrlab.show.style import BLUE, FAINT, GREY, ORANGE, PALE, VERMILION, WHITE

MB = 2**20
COLOURS = {"hot": VERMILION, "evicted": ORANGE, "warm": GREY, "shares": PALE, "apart": FAINT}
LOOKS = {  # what a field of such a partition means
    "hot": "hot, evicted (×)",
    "evicted": "neighbour, evicted (×)",
    "warm": "hot, stays",
    "shares": "neighbour on the hot thread, stays",
    "apart": "on another thread, stays",
}
SIZES_MB = (1, 5, 10, 20, 50, 100, 150, 200, 300, 400)
MINUTES = Scale("under-replicated neighbours\n(partition-minutes per hour)")
SMALL = FleetConfig(
    version="3.7", partitions=48, minutes=5, load="steady", stall_s=0, follower_spread=0,
    records_per_s=20, hot_partitions=1, hot_times=1_100, num_replica_fetchers=2,
    replica_fetch_max_bytes=200 * MB, replica_fetch_response_max_bytes=200 * MB,
)  # fmt: skip


def heated(config: FleetConfig, share: float) -> FleetConfig:
    """The fleet with hot partitions that bring `share` of what one fetcher thread can carry."""
    usual = config.records_per_s * config.record_bytes
    return config.with_(hot_times=share * config.follower_bytes_per_s / usual)


def sized(config: FleetConfig, size_mb: float) -> FleetConfig:
    """The fleet with both limits of a fetch response at `size_mb` MiB."""
    size = round(size_mb * MB)
    return config.with_(replica_fetch_max_bytes=size, replica_fetch_response_max_bytes=size)


def divided(config: FleetConfig) -> FleetConfig:
    """The fleet with one thread's bandwidth divided among all threads of a pair of brokers."""
    share = config.follower_bytes_per_s // config.num_replica_fetchers
    return config.with_(follower_bytes_per_s=share, name=f"{config.run} divided")


def _led(config: FleetConfig) -> list[int]:
    """The partitions with the leader of partition 0."""
    replicas = assignment(config)
    return np.flatnonzero(replicas[:, 0] == replicas[0, 0]).tolist()


def _look(is_hot: bool, is_evicted: bool, shares: bool) -> str:
    if is_hot:
        return "hot" if is_evicted else "warm"
    return "evicted" if is_evicted else "shares" if shares else "apart"


def longest_loop_s(config: FleetConfig) -> float:
    """How long a hot thread is busy with one response: its bytes by the thread's bytes/s.

    A hot partition with a backlog fills its share; the others add what they have, at most the rest.
    """
    hot = max(1, len([p for p in _led(config) if p < config.hot_partitions]))
    size = min(hot * config.replica_fetch_max_bytes, config.replica_fetch_response_max_bytes)
    return size / config.follower_bytes_per_s


def symptoms(evictions: pd.DataFrame, configs: Mapping[str, FleetConfig]) -> pd.DataFrame:
    """What a leader saw when it evicted, in each situation, hot partitions apart: medians."""
    names = {config.run: name for name, config in configs.items()}
    hot = {config.run: config.hot_partitions for config in configs.values()}
    rows = evictions[evictions["run"].isin(hot)]
    rows = rows.assign(
        situation=rows["run"].map(names),
        partition=np.where(rows["partition"] < rows["run"].map(hot), "hot", "other"),
    )
    medians = rows.groupby(["situation", "partition"], sort=False)
    columns = ["lag_records", "since_fetch_ms", "since_caught_up_ms"]
    return medians[columns].median().astype(int).assign(evictions=medians.size())


def costs(
    evictions: pd.DataFrame, absences: pd.DataFrame, configs: Sequence[FleetConfig]
) -> pd.DataFrame:
    """Evictions and under-replicated minutes of each run, per hour, of hot ones and neighbours."""
    rows = []
    for config in configs:
        left, out = (table[table["run"] == config.run] for table in (evictions, absences))
        is_left, is_out = (t["partition"] < config.hot_partitions for t in (left, out))
        minutes = out["under_replicated_ms"] / 60_000
        sums = is_left.sum(), (~is_left).sum(), minutes[is_out].sum(), minutes[~is_out].sum()
        per_hour = [60 * number / config.minutes for number in sums]
        rows.append((config.run, config.num_replica_fetchers, *per_hour))
    names = ["hot_evictions", "neighbour_evictions", "hot_minutes", "neighbour_minutes"]
    return pd.DataFrame(rows, columns=["run", "num_replica_fetchers", *names])


def plot_threads(config: FleetConfig = SMALL) -> Axes:
    """Each fetcher thread of one follower with the partitions it reads, and who is evicted."""
    evicted = {out.key.partition for out in exact.evictions(fleet.simulate_local(config))}
    follower, number = int(cell(config, 1).followers[0, 0]), config.num_replica_fetchers
    led, threads = _led(config), {}
    usual = config.records_per_s * config.record_bytes / load.follower_bytes_per_s(config, follower)
    for fetcher in range(number):
        own = [p for p in led if fetcher_id(p, number) == fetcher]
        hot = [p for p in own if p < config.hot_partitions]
        share = usual * (len(hot) * (config.hot_times - 1) + len(own))
        threads[f"thread {fetcher}\nload {share:.3g}"] = [
            (f"{p} ×" if p in evicted else str(p), _look(p in hot, p in evicted, bool(hot)))
            for p in own
        ]
    cells = {
        str(y + 1): {name: ps[y] if y < len(ps) else ("", "") for name, ps in threads.items()}
        for y in range(max(map(len, threads.values())))
    }
    near = {p for p in led if p >= config.hot_partitions}
    title = f"{len(evicted & near)} of {len(near)} neighbours evicted; a full response takes "
    title += f"{longest_loop_s(config):,.1f} s"
    colours = {**COLOURS, "": WHITE}
    ax = plot_matrix(cells, title, colours=colours, legend=LOOKS, size=(0.9, 0.24))
    ax.set_xlabel(f"fetcher threads of broker {follower} and their partitions; load: of capacity")
    return ax


def plot_costs(tables: Mapping[str, pd.DataFrame]) -> Axes:
    """Under-replicated minutes of neighbours by number of threads, a line for each situation."""
    curves, parts = {}, []
    for name, table in tables.items():
        minutes = table["neighbour_minutes"]
        curves[name] = Curve(table["num_replica_fetchers"], minutes)
        parts.append(f"{name} {minutes.iloc[0]:,.0f} → {minutes.iloc[-1]:,.0f}")
    threads = next(iter(tables.values()))["num_replica_fetchers"]
    title = f"Minutes per hour, {threads.iloc[0]} → {threads.iloc[-1]} threads: {'; '.join(parts)}"
    return plot_curves(curves, title, (Scale("num.replica.fetchers", ticks=threads), MINUTES))


def plot_sizes(table: pd.DataFrame, configs: Sequence[FleetConfig]) -> Axes:
    """Under-replicated neighbours by size of a response, and where the loop reaches the limit."""
    sizes = np.array([config.replica_fetch_response_max_bytes / MB for config in configs])
    limit_mb = configs[0].follower_bytes_per_s * configs[0].lag_time_ms / 1000 / MB
    harmed = sizes[table["neighbour_evictions"].to_numpy() > 0]
    title = f"No neighbour is evicted up to responses of {sizes.max():g} MiB"
    if len(harmed):
        title = f"Neighbours of a hot partition leave from responses of {harmed.min():g} MiB on"
    label = "replica.fetch.max.bytes and replica.fetch.response.max.bytes (MiB)"
    minutes = table["neighbour_minutes"]
    top = 1.3 * max(1.0, float(minutes.max()))  # room for the names of the marks
    scales = Scale(label, "log", ticks=sizes), Scale(MINUTES.label, high=top)
    curves = {"neighbours": Curve(sizes, minutes)}
    marks = {limit_mb / 2: "loop = half the limit", limit_mb: "the limit"}
    return plot_curves(curves, title, scales, marks=marks)


def plot_rates(
    config: FleetConfig, delays_ms: Sequence[int], sizes_mb: Sequence[float] = (1, 2, 5, 10, 20)
) -> Axes:
    """What a follower that is behind receives, by size of a response and distance to the leader.

    Points are measured. Lines are the formula: a thread has one fetch in flight, so a response
    takes a round trip and its own bytes.
    """
    curves, parts, fine = {}, [], np.geomspace(min(sizes_mb), max(sizes_mb), 50)
    for delay_ms, look in zip(delays_ms, ((BLUE, "o"), (VERMILION, "s")), strict=True):
        far = config.with_(fetch_latency_ms=delay_ms)
        measured = [_received_mb_s(sized(far, size)) for size in sizes_mb]
        seconds = 2 * delay_ms / 1000 + fine * MB / config.follower_bytes_per_s
        formula = fine * MB / seconds / 1e6
        curves[f"{delay_ms} ms one way"] = Curve(sizes_mb, measured, look=look, style="")
        curves[f"formula, {delay_ms} ms"] = Curve(fine, formula, look=(look[0], ""), style="--")
        parts.append(f"{measured[0]:.1f} → {measured[-1]:.1f} MB/s, {delay_ms} ms away")
    title = f"{min(sizes_mb):g} → {max(sizes_mb):g} MiB: {'; '.join(parts)}"
    scales = Scale("size of a response (MiB)", "log", ticks=sizes_mb), Scale("received (MB/s)")
    return plot_curves(curves, title, scales)


def _received_mb_s(config: FleetConfig) -> float:
    """What the follower of the hot partition that lags most receives in the second half."""
    trace = fleet.trace(config, 0, sample_ms=100)
    end = trace.log_end_offset - trace.most_lag_records
    half = len(end) // 2
    seconds = (trace.ts_ms[-1] - trace.ts_ms[half]) / 1000
    return float((end[-1] - end[half]) * config.record_bytes / seconds / 1e6)


def fetcher_controls(config: FleetConfig = SMALL) -> widgets.VBox:
    """Sliders for threads, heat and response size, and who is evicted."""
    threads = choice("num.replica.fetchers", range(1, 5), 2)
    heat = choice("hot / one thread", (0.9, 1.1), 1.1, "{:g}".format)
    size = choice("max bytes (MiB)", (1, 100, 200), 200)

    def draw(number: int, share: float, size_mb: float) -> Axes:
        return plot_threads(
            heated(sized(config, size_mb), share).with_(num_replica_fetchers=number)
        )

    return Redrawn((threads, heat, size), draw)


def finding(tables: Mapping[str, pd.DataFrame]) -> str:
    """Who is evicted with the fewest and the most threads, in one sentence for all situations."""
    parts = []
    for name, rows in tables.items():
        first, last = rows.iloc[0], rows.iloc[-1]
        near, hot = (
            f"{first[column]:,.0f} → {last[column]:,.0f}"
            for column in ("neighbour_evictions", "hot_evictions")
        )
        parts.append(f"{name}: neighbours {near}, hot partition {hot}")
    threads = next(iter(tables.values()))["num_replica_fetchers"]
    counts = f"{threads.iloc[0]} → {threads.iloc[-1]} threads"
    return f"Evictions per hour, {counts}, with {'; '.join(parts)}."
