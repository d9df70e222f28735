"""A rolling restart: how long brokers need to come back, and when the next one may go down.

Tables come as pandas, from `isrlab.churn`; times are in seconds from when a broker is back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from isrlab import churn
from isrlab.fleet import load, recovery
from isrlab.fleet.config import FleetConfig
from isrlab.show.style import INK, bare, plain
from isrlab.workbook.claims import recorded
from isrlab.workbook.slow_leader import ERRORS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMULA = "#D55E00"
MEASURED = "#0072B2"
_SECONDS = FuncFormatter(lambda value, _: f"{value:,.3g}" if value < 10 else f"{value:,.0f}")
RECORDED_PER_S = 260  # of all producers of the recordings in a burst, see data/recordings/README.md


def one_restart(config: FleetConfig, share: float, down_s: float) -> FleetConfig:
    """The fleet, loaded by `share`, with one restart, of broker 1, and time enough to come back.

    Raises ValueError unless `share` is above 0 and below 1: at 1 there is no coming back.
    """
    _require_share(share)
    after_s = 60 + 1.5 * recovery.catch_up_s(share, down_s)
    moved = recovery.loaded(config, share)
    return moved.with_(
        restart_s=float(down_s),
        restart_every_s=down_s + after_s,
        minutes=(2 * (down_s + after_s) - 1) / 60,
        name=f"share={share:g} down={down_s:g}s",
    )


def rolling(config: FleetConfig, share: float, down_s: float, wait: float) -> FleetConfig:
    """The fleet, loaded by `share`, with a restart of every broker one after another.

    `wait`: from one restart to the next, as a multiple of `recovery.safe_restart_every_s`; it is at
    least as long as a broker is down. Raises ValueError as `one_restart`.
    """
    _require_share(share)
    every_s = max(float(down_s), wait * recovery.safe_restart_every_s(share, down_s))
    end_s = config.brokers * every_s + down_s + 60 + 1.5 * recovery.catch_up_s(share, down_s)
    return recovery.loaded(config, share).with_(
        restart_s=float(down_s),
        restart_every_s=every_s,
        minutes=end_s / 60,
        name=f"share={share:g} wait={wait:g}",
    )


def on_machines(
    config: FleetConfig, brokers: int, machine_bytes_per_s: float, name: str
) -> FleetConfig:
    """The same partitions and load on so many brokers, each of which fetches at such a rate.

    All fetcher threads of a broker divide it; `config.restart_s` decides how long it runs.
    """
    threads = (brokers - 1) * config.num_replica_fetchers
    moved = config.with_(
        brokers=brokers, follower_bytes_per_s=round(machine_bytes_per_s / threads), name=name
    )
    rejoin_s = recovery.expected_rejoin_s(moved, 1)
    every_s = config.restart_s + 60 + (1.5 * rejoin_s if np.isfinite(rejoin_s) else 3_600)
    return moved.with_(restart_every_s=every_s, minutes=(2 * every_s - 1) / 60)


def new_replica(config: FleetConfig, share: float, backlog_s: float) -> FleetConfig:
    """The fleet, loaded by `share`, with a broker 1 that begins empty.

    The rest has so much that an idle thread would fetch it in `backlog_s`. Raises ValueError as
    `one_restart`.
    """
    _require_share(share)
    one = recovery.loaded(config.with_(restart_s=0.0), share)
    unit = one.with_(new_broker=1, backlog_records=1_000)
    records = 1_000 * backlog_s / ((1 - share) * recovery.expected_rejoin_s(unit, 1))
    return unit.with_(
        backlog_records=round(records),
        minutes=(30 + 1.5 * recovery.catch_up_s(share, 0, backlog_s)) / 60,
        name=f"share={share:g} backlog={backlog_s:g}s",
    )


def compared(measured: pd.DataFrame, configs: Sequence[FleetConfig]) -> pd.DataFrame:
    """The rows of `churn.rejoins` for some fleets, in their order: seconds, share, formula."""
    fleets = {one.run: one for one in configs}
    place = measured["run"].map({run: index for index, run in enumerate(fleets)})
    measured = (
        measured.assign(place=place)
        .dropna(subset="place")
        .sort_values(["place", "down_ms"], ignore_index=True)
    )
    keys = list(zip(measured["run"], measured["broker"], strict=True))
    table = pd.DataFrame(
        {
            "run": measured["run"],
            "broker": measured["broker"],
            "share": [recovery.load_share(fleets[run], broker) for run, broker in keys],
            "down_s": (measured["up_ms"] - measured["down_ms"]) / 1000,
            "formula_s": [recovery.expected_rejoin_s(fleets[run], broker) for run, broker in keys],
            "partitions": measured["partitions"],
            "still_out": measured["still_out"],
        }
    )
    for name in ("first", "median", "last"):
        table[f"{name}_s"] = measured[f"{name}_ms"].astype(float) / 1000
    return table


def recorded_outages(spark: SparkSession) -> DataFrame:
    """When brokers of the recordings were stopped or killed, and started again, for `rejoins`."""
    rows = []
    for run in recorded.KAFKA.values():
        done = pd.read_csv(recorded.RECORDINGS / run / "timeline.csv")
        done["ms"] = pd.to_datetime(done["time_utc"]).astype("int64") // 1_000_000
        for one in done[done["action"].isin(["SIGKILL", "SIGTERM"])].itertuples():
            again = (done["action"] == "start") & (done["broker"] == one.broker)
            up_ms = done.loc[again & (done["ms"] > one.ms), "ms"].min()
            rows.append((run, int(one.broker), int(one.ms), int(up_ms)))  # type: ignore[arg-type]
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
    rows = []
    for one in measured.itertuples():
        is_same = (taken_back["run"] == one.run) & (taken_back["broker"] == one.broker)
        stamps = taken_back.loc[is_same & (taken_back["ts_ms"] > one.up_ms), "ts_ms"]
        rows.append((one.run, one.broker, one.partitions, one.down_ms, one.up_ms, stamps.min()))
    names = ["run", "broker", "partitions", "down_ms", "up_ms", "unfenced_ms"]
    table = pd.DataFrame(rows, columns=names)
    down_s = (table["up_ms"] - table["down_ms"]) / 1000
    found: dict[str, pd.Series | np.ndarray] = {
        "down_s": down_s,
        "most_records": (down_s * RECORDED_PER_S).round().astype(int),
        "unfenced_s": (table["unfenced_ms"] - table["up_ms"]) / 1000,
        "first_s": measured["first_ms"].to_numpy(float) / 1000,
        "last_s": measured["last_ms"].to_numpy(float) / 1000,
    }
    return table[names[:3]].assign(**found)


def plot_rejoin_times(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Rejoin time by load: from the first to the last partition, and the formula as a line."""
    ax = ax or _axes(7.2, 3.8)
    down_s = float(table["down_s"].iloc[0])
    shares = np.linspace(0.01, 0.995, 400)
    line = [recovery.catch_up_s(share, down_s) for share in shares]
    ax.plot(shares * 100, line, color=FORMULA, label="formula: down × share / (1 − share)")
    x = table["share"] * 100
    ax.vlines(x, table["first_s"], table["last_s"], color=MEASURED, linewidth=2, alpha=0.5)
    ax.plot(x, table["last_s"], "o", color=MEASURED, markersize=5, label="last partition back")
    ax.plot(x, table["median_s"], "_", color=MEASURED, markersize=10, label="half of them back")
    ax.set_xlim(0, 100)
    ax.set_ylim(0, 1.25 * float(table["last_s"].max()))
    ax.set_xlabel("produced, as a share of what a fetcher thread can fetch (%)")
    ax.set_ylabel("s after the broker is back")
    ax.yaxis.set_major_formatter(_SECONDS)
    off = (table["last_s"] / table["formula_s"] - 1).abs().max() * 100
    said = f"Down for {down_s:g} s: the last partition is back within {off:.0f} % of the formula"
    ax.set_title(said, loc="left", fontsize=10)
    ax.legend(frameon=False, fontsize=8, loc="upper left")
    bare(ax, "left", "bottom")
    return ax


def plot_returns(several: dict[str, pd.DataFrame], *, ax: Axes | None = None) -> Axes:
    """Which share of a broker's partitions is back, over time, for several fleets.

    Each table: `back_ms` and `left_ms` of `churn.rejoin_times`, for one outage.
    """
    ax = ax or _axes(7.2, 3.2)
    said = []
    for (name, times), colour, style in zip(
        several.items(), (MEASURED, FORMULA, "#009E73"), ("-", "--", ":"), strict=False
    ):
        seconds = np.sort(times["after_s"].to_numpy(float))
        share = np.arange(1, len(seconds) + 1) / len(seconds) * 100
        ax.step(
            [0, *seconds], [0, *share], where="post", color=colour, linestyle=style,
            label=plain(name),
        )  # fmt: skip
        half, last = np.median(seconds), seconds[-1]
        said.append(f"{plain(name)}: half after {half:,.0f} s, all after {last:,.0f} s")
    ax.set_xlim(left=0)
    ax.set_ylim(0, 103)
    ax.set_xlabel("s after the broker is back")
    ax.set_ylabel("partitions back in sync (%)")
    ax.set_title("; ".join(said), loc="left", fontsize=9)
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    bare(ax, "left", "bottom")
    return ax


def after_return(times: pd.DataFrame, config: FleetConfig, broker: int = 1) -> pd.DataFrame:
    """Of `churn.rejoin_times`, the first return to each partition after a broker's restart."""
    up_ms = load.restarts(config, broker)[1][0]
    mine = times[(times["run"] == config.run) & (times["replica"] == broker)]
    back = mine[mine["back_ms"] > up_ms].groupby("partition")["back_ms"].min()
    return pd.DataFrame({"after_s": (back - up_ms) / 1000})


def waits(
    configs: Sequence[FleetConfig], refused: pd.DataFrame, under: pd.DataFrame
) -> pd.DataFrame:
    """One row for each rolling restart: wait, minutes under min ISR, produces that failed.

    `refused` from `churn.refused_produce`, `under` from `churn.under_min_isr`. `wait` is
    `restart_every_s` by the safe one.
    """
    rows = []
    for one in configs:
        share = recovery.load_share(one, 1)
        errors = refused[refused["run"] == one.run].groupby("error")["produces"].sum()
        failed = [sum(int(errors.get(name, 0)) for name in kind) for kind in ERRORS.values()]
        minutes = under.loc[under["run"] == one.run, "under_min_isr_ms"].sum() / 60_000
        wait = one.restart_every_s / recovery.safe_restart_every_s(share, one.restart_s)
        rows.append((one.run, share, one.restart_every_s, wait, minutes, *failed))
    names = ["run", "share", "every_s", "wait", "under_min_isr_minutes", *ERRORS]
    return pd.DataFrame(rows, columns=names)


def plot_waits(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Partition-minutes under min ISR by the wait between two restarts, a line for each load."""
    ax = ax or _axes(7.2, 3.2)
    looks = zip(("#56B4E9", "#0072B2", "#D55E00", "#CC79A7"), "osD^", strict=True)
    for (share, rows), (colour, marker) in zip(
        table.groupby(table["share"].round(3)), looks, strict=False
    ):
        ax.plot(
            rows["wait"], rows["under_min_isr_minutes"], color=colour, marker=marker,
            markersize=5, label=f"load {100 * share:.0f} %",
        )  # fmt: skip
    ax.axvline(1, color=INK, linewidth=0.8, linestyle=":")
    ax.text(1, 0.98, " down / (1 − share)", fontsize=8, va="top",
            transform=ax.get_xaxis_transform())  # fmt: skip
    ax.set_ylim(bottom=0)
    ax.set_xlabel("from one restart to the next, as a multiple of the safe wait")
    ax.set_ylabel("partition-minutes\nunder min ISR")
    early = table[table["wait"] < 0.999]["under_min_isr_minutes"].sum()
    late = table[table["wait"] >= 0.999]["under_min_isr_minutes"].sum()
    said = f"Partition-minutes under min ISR: {early:,.0f} below the safe wait, {late:,.0f} from it"
    ax.set_title(f"{said} on", loc="left", fontsize=10)
    ax.legend(frameon=False, fontsize=8)
    bare(ax, "left", "bottom")
    return ax


def plot_headroom(table: pd.DataFrame, down_s: float, *, ax: Axes | None = None) -> Axes:
    """Rejoin time by fetch rate, the load the same: both axes by factors."""
    ax = ax or _axes(7.2, 3.4)
    times = 1 / table["share"].to_numpy(float)
    rates = np.geomspace(1.005, 1.3 * times.max(), 300)
    ax.plot(
        rates, [recovery.catch_up_s(1 / r, down_s) for r in rates], color=FORMULA, label="formula"
    )
    ax.plot(times, table["last_s"], "o", color=MEASURED, label="last partition back, simulated")
    ax.axvline(1, color=INK, linewidth=0.8, linestyle=":")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ticks = [tick for tick in (1, 1.25, 1.5, 2, 3, 5, 10, 20, 50) if tick <= rates.max()]
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.yaxis.set_major_formatter(_SECONDS)
    ax.set_xlabel("fetch rate, in multiples of the produce rate")
    ax.set_ylabel("s until back in sync")
    least, most = table["last_s"].min(), table["last_s"].max()
    ax.set_title(
        f"Down for {down_s:g} s: back after {least:,.0f} s with {times.max():.3g} times the "
        f"produce rate, after {most:,.0f} s with {times.min():.3g} times",
        loc="left", fontsize=9,
    )  # fmt: skip
    ax.legend(frameon=False, fontsize=8)
    bare(ax, "left", "bottom")
    return ax


def finding(table: pd.DataFrame, waited: pd.DataFrame, real: pd.DataFrame) -> str:
    """Formula against simulation, too early against early enough, and real brokers, in one."""
    off = (table["last_s"] / table["formula_s"] - 1).abs().max()
    early, safe = waited[waited["wait"] < 0.999], waited[waited["wait"] >= 0.999]
    return (
        f"Over loads of {table['share'].min():.0%} to {table['share'].max():.0%} the last "
        f"partition is back within {off:.0%} of the formula; rolling restarts below the safe wait "
        f"had {early['refused'].sum():,} produces refused in {len(early)} runs, from it on "
        f"{safe['refused'].sum():,} in {len(safe)}; real brokers with little to fetch were back "
        f"{real['last_s'].min():.1f} to {real['last_s'].max():.1f} s after their start."
    )


def _require_share(share: float) -> None:
    if not 0 < share < 1:
        raise ValueError(f"share={share} is out of range; valid: above 0, below 1")


def _axes(width: float, height: float) -> Axes:
    return plt.subplots(figsize=(width, height), layout="constrained")[1]
