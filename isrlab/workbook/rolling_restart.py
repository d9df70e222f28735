"""Rolling restart: how long brokers need to come back, and when the next one may go down.

Times are in seconds from when a broker is back. `share` is the load by what a fetcher thread can
fetch: above 0, below 1, since at 1 there is no coming back (ValueError).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import ipywidgets as widgets
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isrlab import churn, fleet
from isrlab.brokerlogs import recordings
from isrlab.events import exact
from isrlab.events.measures import measures
from isrlab.fleet import load, recovery
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.sums import by_run
from isrlab.show.bands import plot_isr_sizes
from isrlab.show.controls import Redrawn, choice
from isrlab.show.curves import Curve, Scale, plot_curves, plot_ticks
from isrlab.show.style import INK, STATES, mark, panels
from isrlab.world import scenario
from isrlab.world.words import START_MS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MEASURED, HALF = (STATES["measured"], "o"), (STATES["measured"], "_")
FORMULA = (STATES["formula"], "")
RECORDED_PER_S = 260  # of all producers of the recordings in a burst, see data/recordings/README.md
RATES = (1.15, 1.25, 1.5, 2, 3, 5, 10)  # of a fetcher, in multiples of the produce rate
SMALL = FleetConfig(
    version="3.7", partitions=12, brokers=4, load="steady", min_insync_replicas=2, stall_s=0,
    follower_spread=0, batch_every_ms=500,
)  # fmt: skip


def one_restart(config: FleetConfig, share: float, down_s: float) -> FleetConfig:
    """The fleet, loaded by `share`, with one restart, of broker 1, and time enough to come back."""
    every_s = down_s + 60 + 1.5 * recovery.catch_up_s(share, down_s)
    return _loaded(config, share).with_(
        restart_s=float(down_s), restart_every_s=every_s, minutes=(2 * every_s - 1) / 60,
        name=f"share={share:g} down={down_s:g}s",
    )  # fmt: skip


def rolling(config: FleetConfig, share: float, down_s: float, wait: float) -> FleetConfig:
    """The fleet, loaded by `share`, with a restart of every broker one after another.

    `wait`: from one restart to the next, as a multiple of `recovery.safe_restart_every_s`; it is at
    least as long as a broker is down.
    """
    every_s = max(float(down_s), wait * recovery.safe_restart_every_s(share, down_s))
    end_s = config.brokers * every_s + down_s + 60 + 1.5 * recovery.catch_up_s(share, down_s)
    return _loaded(config, share).with_(
        restart_s=float(down_s), restart_every_s=every_s, minutes=end_s / 60,
        name=f"share={share:g} wait={wait:g}",
    )  # fmt: skip


def on_machines(
    config: FleetConfig, brokers: int, machine_bytes_per_s: float, name: str
) -> FleetConfig:
    """The same partitions and load on so many brokers, each of which fetches at such a rate.

    All fetcher threads of a broker divide it; `config.restart_s` decides how long it runs.
    """
    rate = round(machine_bytes_per_s / ((brokers - 1) * config.num_replica_fetchers))
    moved = config.with_(brokers=brokers, follower_bytes_per_s=rate, name=name)
    rejoin_s = recovery.expected_rejoin_s(moved, 1)
    every_s = config.restart_s + 60 + (1.5 * rejoin_s if np.isfinite(rejoin_s) else 3_600)
    return moved.with_(restart_every_s=every_s, minutes=(2 * every_s - 1) / 60)


def at_rate(config: FleetConfig, rate: float) -> FleetConfig:
    """One restart on machines that fetch so many times what is produced."""
    half = recovery.loaded(config, 0.5)
    produced = 0.5 * half.follower_bytes_per_s * (config.brokers - 1)
    return on_machines(half, config.brokers, rate * produced, f"{rate:g} times")


def new_replica(config: FleetConfig, share: float, backlog_s: float) -> FleetConfig:
    """The fleet with an empty broker 1, which an idle thread would fill in `backlog_s`."""
    unit = _loaded(config, share).with_(restart_s=0.0, new_broker=1, backlog_records=1_000)
    records = 1_000 * backlog_s / ((1 - share) * recovery.expected_rejoin_s(unit, 1))
    minutes = (30 + 1.5 * recovery.catch_up_s(share, 0, backlog_s)) / 60
    name = f"share={share:g} backlog={backlog_s:g}s"
    return unit.with_(backlog_records=round(records), minutes=minutes, name=name)


def _loaded(config: FleetConfig, share: float) -> FleetConfig:
    if not 0 < share < 1:
        raise ValueError(f"share={share} is out of range; valid: above 0, below 1")
    return recovery.loaded(config, share)


def replaced(
    config: FleetConfig, brokers: tuple[int, int], share: float, rate: float
) -> tuple[FleetConfig, FleetConfig]:
    """The same partitions and load on many machines, and on few that fetch `rate` times as much."""
    many, few = brokers
    fetch = 10_000_000.0 * (many - 1)
    wide = config.with_(partitions=many * (many - 1), batch_every_ms=1_000)
    loaded = recovery.loaded(on_machines(wide, many, fetch, "large"), share)
    return (
        on_machines(loaded, many, fetch, f"{many} large"),
        on_machines(loaded, few, rate * fetch, f"{few} small"),
    )


def compared(measured: pd.DataFrame, configs: Sequence[FleetConfig]) -> pd.DataFrame:
    """The rows of `churn.rejoins` for some fleets, in their order: seconds, share, formula."""
    fleets = {config.run: config for config in configs}
    rows = measured[measured["run"].isin(fleets)].copy()
    rows["run"] = pd.Categorical(rows["run"], list(fleets))
    rows = rows.sort_values(["run", "down_ms"], ignore_index=True).astype({"run": str})
    keys = list(zip(rows["run"], rows["broker"], strict=True))
    table = rows[["run", "broker"]].assign(
        share=[recovery.load_share(fleets[run], broker) for run, broker in keys],
        down_s=(rows["up_ms"] - rows["down_ms"]) / 1000,
        formula_s=[recovery.expected_rejoin_s(fleets[run], broker) for run, broker in keys],
        partitions=rows["partitions"],
        still_out=rows["still_out"],
    )
    names = ("first", "median", "last")
    return table.assign(**{f"{n}_s": rows[f"{n}_ms"].astype(float) / 1000 for n in names})


def recorded_outages(spark: SparkSession) -> DataFrame:
    """When brokers of the recordings were stopped or killed, and started again, for `rejoins`."""
    rows = [
        (run, outage.broker, outage.start_ms, outage.end_ms)
        for release, run in recordings.RUNS.items()
        for outage in recordings.outages(release, "SIGKILL", "SIGTERM")
    ]
    return spark.createDataFrame(rows, churn.OUTAGES_SCHEMA)


def unfenced(events: DataFrame) -> pd.DataFrame:
    """When the controller of a recording took each broker back: run, broker, ts_ms.

    A broker's own controller log is left out: at its start it repeats what had been before.
    """
    rows = events.where("kind = 'restart' and broker != replica").select("run", "replica", "ts_ms")
    return rows.toPandas().rename(columns={"replica": "broker"})


def recorded_rejoins(measured: pd.DataFrame, taken_back: pd.DataFrame) -> pd.DataFrame:
    """Returns of real brokers, in seconds from the start of the process.

    `most_records`: as many as were produced at most while it was away, for all partitions together.
    """
    both = measured.reset_index().merge(taken_back, on=["run", "broker"])
    back_ms = both[both["ts_ms"] > both["up_ms"]].groupby("index")["ts_ms"].min()
    down_s = (measured["up_ms"] - measured["down_ms"]) / 1000
    return measured[["run", "broker", "partitions"]].assign(
        down_s=down_s,
        most_records=(down_s * RECORDED_PER_S).round().astype(int),
        unfenced_s=(back_ms - measured["up_ms"]) / 1000,
        first_s=measured["first_ms"].astype(float) / 1000,
        last_s=measured["last_ms"].astype(float) / 1000,
    )


def after_return(moves: pd.DataFrame, config: FleetConfig) -> pd.Series:
    """Of `churn.moves`, s until broker 1 is back in each partition after its restart."""
    up_ms = load.restarts(config, 1)[1][0]
    mine = moves[(moves["run"] == config.run) & (moves["replica"] == 1)]
    is_back = (mine["change"] == "joins") & (mine["ts_ms"] > up_ms)
    back = mine[is_back].groupby("partition")["ts_ms"].min()
    return (back - up_ms) / 1000


def waits(
    configs: Sequence[FleetConfig], refused: pd.DataFrame, under: pd.DataFrame
) -> pd.DataFrame:
    """For each rolling restart what `by_run` sums; `wait` is in multiples of the safe wait."""
    rows = []
    for config in configs:
        share, every_s = recovery.load_share(config, 1), config.restart_every_s
        safe_s = recovery.safe_restart_every_s(share, config.restart_s)
        rows.append((config.run, share, every_s, every_s / safe_s))
    table = pd.DataFrame(rows, columns=["run", "share", "every_s", "wait"])
    return table.join(by_run(configs, refused, under), on="run")


def waits_for_the_gone(config: FleetConfig, versions: Sequence[str]) -> pd.DataFrame:
    """How long produces of a rolling restart waited at most, and how many timed out, by version.

    `longest_wait_s` is the least of a class, of those that were acknowledged. `engine_timed_out`:
    of the one produce in the scenario gone_broker.
    """
    rows = []
    for version in versions:
        events = fleet.simulate_local(config.with_(version=version, name=version))
        longest_ms = max((wait.latency_ms for wait in exact.waits(events)), default=0)
        run = scenario.play(scenario.read("gone_broker"), version=version)
        tables = (events, (0, config.duration_ms)), (run.events(), (START_MS, run.cluster.now_ms))
        timed_out = [round(measures(each, 3, 2, span_ms)["timed_out"]) for each, span_ms in tables]
        rows.append((version, longest_ms / 1000, *timed_out))
    columns = ["version", "longest_wait_s", "timed_out", "engine_timed_out"]
    return pd.DataFrame(rows, columns=columns)


def headroom(
    config: FleetConfig, share: float, down_s: float, designs: Sequence[tuple[int, int]]
) -> pd.DataFrame:
    """What one broker after another costs, and what a second failure at the same time costs more.

    `designs`: replication factor and min.insync.replicas. A second failure is the next broker,
    which goes down before the first is back (at 0.6 of the safe wait). Times are partition-minutes;
    `formula` is the expected time with one replica missing.
    """
    rows = []
    for copies, least in designs:
        fleets = config.with_(replication_factor=copies, min_insync_replicas=least)
        calm, early = (rolling(fleets, share, down_s, wait) for wait in (1.33, 0.6))
        once, twice = (
            measures(fleet.simulate_local(each), copies, least, (0, each.duration_ms))
            for each in (calm, early)
        )
        away = config.partitions * (copies - 1)  # of each partition, every follower once
        rows.append({
            "replicas": copies, "min.insync.replicas": least, "headroom": copies - least - 1,
            "one missing": once["under_replicated_minutes"],
            "formula": away * recovery.safe_restart_every_s(share, down_s) / 60,
            "refused": once["produce_error"],
            "two: under min ISR": twice["under_min_isr_minutes"],
            "two: single copy": twice["one_copy_minutes"], "two: refused": twice["produce_error"],
        })  # fmt: skip
    return pd.DataFrame(rows).round(1)


def plot_rejoin_times(table: pd.DataFrame) -> Axes:
    """Rejoin time by load: from the first to the last partition, and the formula as a line."""
    down_s = float(table["down_s"].iloc[0])
    shares = np.linspace(0.01, 0.995, 400)
    line = np.array([recovery.catch_up_s(share, down_s) for share in shares])
    percent, last = table["share"] * 100, table["last_s"]
    curves = {
        "formula: down × share / (1 − share)": Curve(shares * 100, line, look=FORMULA),
        "last partition back": Curve(percent, last, table["first_s"], last, MEASURED, ""),
        "half of them back": Curve(percent, table["median_s"], look=HALF, style=""),
    }
    x = Scale("produced, as a share of what a fetcher thread can fetch (%)", high=100)
    y = Scale("s after the broker is back", high=1.25 * float(last.max()))
    off = (last / table["formula_s"] - 1).abs().max() * 100
    title = f"Down for {down_s:g} s: the last partition is back within {off:.0f} % of the formula"
    return plot_curves(curves, title, (x, y))


def plot_returns(times_s: Mapping[str, pd.Series]) -> Axes:
    """Which share of a broker's partitions is back, over time, for several fleets."""
    curves, parts = {}, []
    for name, times in times_s.items():
        seconds = np.sort(times.to_numpy(float))
        back = np.arange(len(seconds) + 1) / len(seconds) * 100
        curves[name] = Curve([0, *seconds], back, is_step=True)
        half, last = np.median(seconds), seconds[-1]
        parts.append(f"{name}: half after {half:,.0f} s, all after {last:,.0f} s")
    scales = Scale("s after the broker is back"), Scale("partitions back in sync (%)", high=103)
    return plot_curves(curves, "; ".join(parts), scales)


def plot_waits(table: pd.DataFrame) -> Axes:
    """Partition-minutes under min ISR by the wait between two restarts, a line for each load."""
    curves = {
        f"load {100 * float(share):.0f} %": Curve(rows["wait"], rows["under_min_isr_minutes"])
        for share, rows in table.groupby(table["share"].round(3))
    }
    minutes, is_early = table["under_min_isr_minutes"], table["wait"] < 0.999
    title = (
        f"Partition-minutes under min ISR: {minutes[is_early].sum():,.0f} below the safe wait, "
        f"{minutes[~is_early].sum():,.0f} from it on"
    )
    x = Scale("from one restart to the next, as a multiple of the safe wait")
    y = Scale("partition-minutes\nunder min ISR")
    return plot_curves(curves, title, (x, y), marks={1: "down / (1 − share)"})


def plot_headroom(table: pd.DataFrame, down_s: float) -> Axes:
    """Rejoin time by fetch rate, the load the same: both axes by factors."""
    times, last_s = 1 / table["share"].to_numpy(float), table["last_s"]
    rates = np.geomspace(1.005, 1.3 * times.max(), 300)
    formula = np.array([recovery.catch_up_s(1 / rate, down_s) for rate in rates])
    curves = {
        "formula": Curve(rates, formula, look=FORMULA),
        "last partition back, simulated": Curve(times, last_s, look=MEASURED, style=""),
    }
    ticks = [tick for tick in (1, 1.25, 1.5, 2, 3, 5, 10, 20, 50) if tick <= rates.max()]
    x = Scale("fetch rate, in multiples of the produce rate", "log", ticks=ticks)
    title = (
        f"Down for {down_s:g} s: back after {last_s.min():,.0f} s with {times.max():.3g} times the "
        f"produce rate, after {last_s.max():,.0f} s with {times.min():.3g} times"
    )
    return plot_curves(curves, title, (x, Scale("s until back in sync", "log")))


def plot_restart(config: FleetConfig) -> Figure:
    """A rolling restart: short ISRs over time, and each broker's return beside the formula."""
    figure, grid = panels(1, 2, (11, 3.6), width_ratios=[2, 1])
    events = fleet.simulate_local(config)
    sizes = config.partitions, config.replication_factor, config.min_isr(config.replication_factor)
    brokers = range(1, config.brokers + 1)
    down = {b: [int(times[0]) for times in load.restarts(config, b)] for b in brokers}
    away = [(str(b), start / 1000, end / 1000) for b, (start, end) in down.items()]
    spans = exact.isr_spans(events, config.duration_ms, 0)
    plot_isr_sizes(spans, sizes, away=away, ax=grid[0, 0])
    returns_s: dict[int, dict[exact.Key, float]] = {b: {} for b in brokers}  # the first of each
    for move in exact.moves(events):
        after_ms = move.ts_ms - down[move.replica][1]
        if move.joined and after_ms > 0:
            returns_s[move.replica].setdefault(move.key, after_ms / 1000)
    rows = {f"broker {b}": {"": [*times.values()]} for b, times in returns_s.items()}
    limit_s = config.restart_every_s - config.restart_s
    late = sum(t > limit_s for b in brokers[:-1] for t in returns_s[b].values())
    expected = [recovery.expected_rejoin_s(config, broker) for broker in brokers]
    last = max([limit_s, *expected, *(t for times in returns_s.values() for t in times.values())])
    scale = Scale("s after it is back (diamond: formula)", high=1.1 * last)
    right = plot_ticks(rows, f"{late} returns come after the next restart", scale, ax=grid[0, 1])
    right.plot(expected, range(len(expected)), "d", color=INK)
    side = "right" if limit_s > last / 2 else "left"
    mark(right, limit_s, "next broker goes down", side=side)
    return figure


def restart_controls(config: FleetConfig = SMALL) -> widgets.VBox:
    """Sliders for downtime, load and wait, and the whole rolling restart."""
    down = choice("down for (s)", (30, 60), 60)
    shares = (0.3, 0.6, 0.8, 0.9)
    busy = choice("load (% of fetch rate)", shares, 0.6, lambda value: f"{100 * value:.0f}")
    every = choice("wait / safe wait", (0.5, 0.75, 1.25), 0.75, "{:g}".format)
    return Redrawn(
        (down, busy, every), lambda s, share, wait: plot_restart(rolling(config, share, s, wait))
    )


def finding(table: pd.DataFrame, waited: pd.DataFrame, real: pd.DataFrame) -> str:
    """Formula against simulation, too early against early enough, and real brokers, in one."""
    off = (table["last_s"] / table["formula_s"] - 1).abs().max()
    refused, is_early = waited["refused"], waited["wait"] < 0.999
    early, safe = refused[is_early], refused[~is_early]
    return (
        f"Over loads of {table['share'].min():.0%} to {table['share'].max():.0%} the last "
        f"partition is back within {off:.0%} of the formula; rolling restarts below the safe wait "
        f"had {early.sum():,} produces refused in {len(early)} runs, from it on {safe.sum():,} in "
        f"{len(safe)}; real brokers with little to fetch were back {real['last_s'].min():.1f} to "
        f"{real['last_s'].max():.1f} s after their start."
    )
