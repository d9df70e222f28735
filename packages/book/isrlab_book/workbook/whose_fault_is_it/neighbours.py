"""A hot partition and its neighbours on the same fetcher thread: evictions, and what helps.

A *neighbour* has the same leader as the first hot partition, partition 0; other leaders have
other threads. What a thread has to carry is computed from the settings.
"""

from collections.abc import Mapping, Sequence
from itertools import product

import ipywidgets as widgets
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from isrlab import fleet
from isrlab.events import exact
from isrlab.fleet import load, place
from isrlab.fleet.cell import cell
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.layout import assignment, fetcher_id
from isrlab.show.colours import FAINT, GREY, OUTCOMES, PALE, VERMILION
from isrlab.show.controls import LiveFigure, choice
from isrlab.show.curves import Curve, Scale, plot_curves
from isrlab.show.svg import Drawing
from isrlab_book.fields import draw_fields

MB = 2**20
LOOKS = {  # the colours of partitions, and their meanings
    "hot": (VERMILION, "hot, evicted (×)"),
    "evicted": (OUTCOMES["lost"], "neighbour, evicted (×)"),
    "warm": (GREY, "hot, stays"),
    "shares": (PALE, "neighbour on the hot thread, stays"),
    "apart": (FAINT, "on another thread, stays"),
}
MINUTES = Scale("under-replicated neighbours\n(partition-minutes per hour)")
HOT = FleetConfig(
    version="3.7", partitions=48, minutes=10, load="steady", stall_s=0, follower_spread=0,
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


def sharing(config: FleetConfig) -> FleetConfig:
    """The fleet in which the threads of a pair of brokers share a link as fast as one of them."""
    rate, name = config.follower_bytes_per_s, f"{config.run} shared"
    return config.with_(link_bytes_per_s=rate, follower_bytes_per_s=10**12, name=name)


def placed(config: FleetConfig) -> FleetConfig:
    """The fleet with its topic placed as its version's controller does: KRaft's placer shuffles."""
    if not config.kafka.kraft:
        return config
    racks = dict.fromkeys(range(1, config.brokers + 1), "")
    topic = config.partitions, config.replication_factor
    rows = place.placed("kraft", racks, [topic], config.seed)
    return config.with_(assigned=" ".join(",".join(map(str, replicas)) for replicas in rows))


def plan(
    version: str, size_mb: float, threads: Sequence[int], seeds: Sequence[int]
) -> dict[str, list[FleetConfig]]:
    """Fleets by situation: hot partitions, size of responses, own or shared bandwidth."""
    runs: dict[str, list[FleetConfig]] = {}
    for seed, number in product(seeds, threads):
        single = placed(HOT.with_(version=version, seed=seed, num_replica_fetchers=number))
        six = sized(heated(single.with_(hot_partitions=6), 0.6), size_mb)
        situations = {
            "one hot, default sizes": sized(single, 1).with_(
                replica_fetch_response_max_bytes=10 * MB
            ),
            f"one hot, {size_mb:g} MiB": sized(single, size_mb),
            f"six hot, {size_mb:g} MiB, own bandwidth": six,
            f"six hot, {size_mb:g} MiB, one bandwidth": sharing(six),
        }
        for name, config in situations.items():
            run = config.with_(name=f"{name}, {number} threads, seed {seed}")
            runs.setdefault(name, []).append(run)
    return runs


def _led(config: FleetConfig) -> list[int]:
    """The partitions with the leader of partition 0."""
    replicas = assignment(config)
    return np.flatnonzero(replicas[:, 0] == replicas[0, 0]).tolist()


def _colour(is_hot: bool, is_evicted: bool, shares: bool) -> str:
    name = "warm" if is_hot else "shares" if shares else "apart"
    return LOOKS[("hot" if is_hot else "evicted") if is_evicted else name][0]


def longest_loop_s(config: FleetConfig) -> float:
    """How long a hot thread is busy with one response: its bytes by the thread's bytes/s.

    A hot partition with a backlog fills its share; the others add what they have, at most the rest.
    """
    hot = max(1, len([p for p in _led(config) if p < config.hot_partitions]))
    size = min(hot * config.replica_fetch_max_bytes, config.replica_fetch_response_max_bytes)
    return size / config.follower_bytes_per_s


def symptoms(evictions: pd.DataFrame, configs: Mapping[str, FleetConfig]) -> pd.DataFrame:
    """Medians of what leaders knew when they evicted, by situation, hot partitions apart."""
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


def harm(
    evictions: pd.DataFrame, absences: pd.DataFrame, configs: Sequence[FleetConfig]
) -> pd.DataFrame:
    """Evictions and under-replicated minutes per hour, by run: of hot partitions, and of others."""
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


def draw_threads(config: FleetConfig = HOT) -> Drawing:
    """Each fetcher thread of one follower with its partitions, and which of these it loses."""
    evicted = {out.key.partition for out in exact.evictions(fleet.simulate_local(config))}
    follower, number = int(cell(config, 1).followers[0, 0]), config.num_replica_fetchers
    led, threads = _led(config), dict[str, list[tuple[str, str]]]()
    usual = config.records_per_s * config.record_bytes / load.follower_bytes_per_s(config, follower)
    for fetcher in range(number):
        own = [p for p in led if fetcher_id(p, number) == fetcher]
        hot = [p for p in own if p < config.hot_partitions]
        share = usual * (len(hot) * (config.hot_times - 1) + len(own))
        threads[f"thread {fetcher}, load {share:.3g}"] = [
            (f"{p} ×" if p in evicted else str(p), _colour(p in hot, p in evicted, bool(hot)))
            for p in own
        ]
    near = {p for p in led if p >= config.hot_partitions}
    title = f"{len(evicted & near)} of {len(near)} neighbours are evicted, where a full response "
    title += f"takes {longest_loop_s(config):,.1f} s"
    return draw_fields(title, [([], threads)], wide=32, legend=LOOKS.values())


def fetcher_controls(config: FleetConfig = HOT) -> widgets.VBox:
    """Sliders for threads, heat and response size, and the resulting evictions."""
    threads = choice("num.replica.fetchers", range(1, 5), 2)
    heat = choice("hot / one thread", (0.9, 1.1), 1.1, "{:g}".format)
    size = choice("max bytes (MiB)", (1, 100, 200), 200)

    def draw(number: int, share: float, size_mb: float) -> Drawing:
        return draw_threads(
            heated(sized(config, size_mb), share).with_(num_replica_fetchers=number)
        )

    return LiveFigure((threads, heat, size), draw)


def plot_harm(tables: Mapping[str, pd.DataFrame]) -> Axes:
    """Under-replicated minutes of neighbours by number of threads, with the band of the seeds."""
    curves, parts = {}, []
    for name, rows in tables.items():
        minutes = rows.groupby("num_replica_fetchers")["neighbour_minutes"]
        mean = minutes.mean()
        curves[name] = Curve(mean.index, mean, minutes.min(), minutes.max())
        parts.append(f"{name} {mean.iloc[0]:,.0f} → {mean.iloc[-1]:,.0f}")
    title = f"{mean.index[0]} → {mean.index[-1]} threads: {'; '.join(parts)}"
    scales = Scale("num.replica.fetchers", ticks=mean.index), MINUTES
    return plot_curves(curves, title, scales)


def finding(harmed: Mapping[str, pd.DataFrame]) -> str:
    """Evictions of neighbours and of hot partitions, with the fewest and the most threads."""
    parts, columns = [], ["neighbour_evictions", "hot_evictions"]
    for name, rows in harmed.items():
        means = rows.groupby("num_replica_fetchers")[columns].mean()
        near, hot = (f"{m.iloc[0]:,.0f} → {m.iloc[-1]:,.0f}" for _, m in means.items())
        parts.append(f"{name}: neighbours {near}, hot {hot}")
    return f"Evictions per hour, from the fewest to the most threads: {'; '.join(parts)}."
