"""ISR churn under bursts: one burst in an operator's units, upgrades, faults, a large day.

A burst is *predicted* to keep a follower behind for `behind_s`, from bytes and rates alone.
"""

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pyspark.sql import DataFrame

from isrlab import churn, fleet
from isrlab.fleet import load
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.layout import fetcher_id
from isrlab.installed import DATA
from isrlab.show import style
from isrlab.show.bands import Span, shade
from isrlab.show.controls import LiveFigure, Number, pick, pictured
from isrlab.show.curves import Curve, Scale, plot_bars, plot_curves
from isrlab.show.player import PlayerImage


class Burst(NamedTuple):
    """A burst in an operator's units; partitions have three replicas each."""

    mb_per_s: float = 100  # into one broker, from producers
    length_s: float = 30
    steady_mb_per_s: float = 20  # into one broker, before and after
    brokers: int = 6
    share: float = 1  # of the broker's partitions that the burst hits
    copy_mb_per_s: float = 30  # by one fetcher thread
    threads: int = 1
    limit_s: float = 30
    fetch_mib: float = 1
    response_mib: float = 10
    latency_ms: int = 2
    version: str = "4.4"

    @property
    def of_a_pair(self) -> float:
        """Which share of what one broker leads another one follows."""
        return 2 / (self.brokers - 1)


TYPICAL = Burst()
ON_A_PAIR = 12  # partitions of the simulated pair of brokers
LONGEST_S = 900  # of a picture
CONTROLS = {  # of a field: its name, stops of a player, least and most
    "mb_per_s": ("burst into a broker (MB/s)", (20, 50, 100, 200), 0, 10_000),
    "length_s": ("burst length (s)", (5, 15, 30, 60), 1, 600),
    "steady_mb_per_s": ("steady load of a broker (MB/s)", (5, 20, 60), 0, 10_000),
    "brokers": ("brokers", (3, 6, 12, 40), 3, 10_000),
    "share": ("share of partitions hit", (0.1, 0.5, 1), 0.1, 1),
    "copy_mb_per_s": ("a fetcher thread copies (MB/s)", (10, 30, 80), 1, 10_000),
    "threads": ("num.replica.fetchers", (1, 2, 4), 1, 16),
    "limit_s": ("replica.lag.time.max (s)", (10, 30, 60), 1, 600),
    "fetch_mib": ("replica.fetch.max (MiB)", (0.25, 1, 10), 0.001, 1_000),
    "response_mib": ("replica.fetch.response.max (MiB)", (2, 10, 100), 0.001, 1_000),
    "latency_ms": ("network, one way (ms)", (2, 25, 100), 1, 5_000),
}  # fmt: skip
UPGRADES: dict[str, dict[str, Any]] = {
    "2.4": {"version": "2.4"},
    "2.4 with 30 s": {"version": "2.4", "replica_lag_time_max_ms": 30_000},
    **{release: {"version": release} for release in ("3.6", "3.9", "4.1", "4.4")},
}
ERRORS = {
    "NOT_ENOUGH_REPLICAS": "refused", "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "failed after append",
    "REQUEST_TIMED_OUT": "timed out",
}  # fmt: skip
AS_IT_IS = "bursts and stalls"  # the stored day without a change
PAID = {  # by one leader's partitions in the stored day: what is counted, and its column
    "evictions": "evictions", "one copy (min)": "alone_min", "refused": "refused",
    "failed after append": "after append", "timed out": "timed out",
}  # fmt: skip
ADDED = {  # by a restart
    "a copy fewer (s)": "removed_s", "partitions at one copy": "alone", "one copy (s)": "alone_s",
    "produces that failed": "failed", "that waited for 10 s or more": "10 s",
}  # fmt: skip
RELEASES = ("0.8.2", "0.9.0", "2.4", "3.6", "3.9", "4.1", "4.4")


def bursts(config: FleetConfig) -> dict[int, list[int]]:
    """When bursts begin (ms), and the partitions that each one hits."""
    hit: dict[int, list[int]] = {}
    for partition in range(config.partitions):
        for start in load.burst_starts_ms(config, partition).astype(int).tolist():
            hit.setdefault(start, []).append(partition)
    return dict(sorted(hit.items()))


def behind_s(
    burst_bytes: float, steady_bytes_per_s: float, fetch_bytes_per_s: float, stall_s: float = 0
) -> float:
    """For how long (s) a burst keeps a follower behind: it copies the burst, and the load of a
    stall before it, at its fetch rate minus the steady load."""
    spare = fetch_bytes_per_s - steady_bytes_per_s
    left = burst_bytes + steady_bytes_per_s * stall_s
    return stall_s + left / spare if spare > 0 else math.inf


def _rate(config: FleetConfig, hit: int) -> float:
    """Bytes that a fetcher thread copies in a second: as set, and a round trip per fetch."""
    most = _response(config, hit)
    return most / (most / config.follower_bytes_per_s + 2 * config.fetch_latency_ms / 1000)


def _response(config: FleetConfig, hit: int) -> int:
    """The most bytes that a response brings, of so many partitions."""
    most = max(hit, 1) * config.replica_fetch_max_bytes
    return min(most, config.replica_fetch_response_max_bytes)


def fleet_of(burst: Burst) -> FleetConfig:
    """A leader and two followers, each of which copies what a follower of one pair copies."""
    base = FleetConfig(
        version=burst.version, partitions=ON_A_PAIR, assigned=" ".join(["1,2,3"] * ON_A_PAIR),
        seed=854, load="together", burst_every_s=3_600, burst_s=burst.length_s, stall_s=0,
        burst_share=burst.share, record_bytes=1_000, batch_every_ms=200, follower_spread=0,
        follower_bytes_per_s=round(burst.copy_mb_per_s * 1e6), min_insync_replicas=2,
        num_replica_fetchers=int(burst.threads), fetch_latency_ms=int(burst.latency_ms),
        replica_lag_time_max_ms=round(1000 * burst.limit_s),
        replica_fetch_max_bytes=round(burst.fetch_mib * 2**20),
        replica_fetch_response_max_bytes=round(burst.response_mib * 2**20),
    )  # fmt: skip
    ((start_ms, hit),) = bursts(base).items()
    records = burst.mb_per_s * burst.of_a_pair * burst.length_s * 1000 / len(hit)
    behind = min(waits_s(burst, base), LONGEST_S)
    end_s = start_ms / 1000 + max(behind, burst.length_s) + 2 * burst.limit_s
    return base.with_(
        burst_records=round(records), minutes=min(end_s, LONGEST_S) / 60,
        records_per_s=burst.steady_mb_per_s * burst.of_a_pair * 1000 / ON_A_PAIR,
    )  # fmt: skip


def waits_s(burst: Burst, config: FleetConfig | None = None) -> float:
    """For how long the burst keeps a follower behind: the thread with most of it decides. 0 if no
    thread ever lacks more than one response brings."""
    config = config or fleet_of(burst)
    (hit,) = bursts(config).values()
    threads = [fetcher_id(partition, config.num_replica_fetchers) for partition in hit]
    most = max(map(threads.count, threads))
    into = burst.mb_per_s * burst.of_a_pair * 1e6 * most / len(hit)
    steady = burst.steady_mb_per_s * burst.of_a_pair * 1e6 / config.num_replica_fetchers
    rate = _rate(config, most)
    if rate > steady and (into + steady - rate) * burst.length_s <= _response(config, most):
        return 0
    return behind_s(into * burst.length_s, steady, rate)


def verdict(burst: Burst) -> str:
    """What the formula says about the follower, and the formula with the burst's numbers."""
    behind, limit, pair = waits_s(burst), burst.limit_s, burst.of_a_pair
    size, steady = burst.mb_per_s * pair * burst.length_s, burst.steady_mb_per_s * pair
    full_s = burst.response_mib * 2**20 / (burst.copy_mb_per_s * 1e6)
    risk = (
        f"\nA full response takes {full_s:,.0f} s, more than half of the limit: partitions that the"
        " burst does not hit can be evicted too."
    ) * (full_s > limit / 2)
    risk += "\nBefore 0.10.2 other rules also evict followers." * (burst.version in RELEASES[:2])
    if behind == 0:
        return f"No fetch leaves records behind, so followers stay in the ISR.{risk}"
    if math.isinf(behind):
        return f"The steady load alone is more than a follower copies: it never catches up.{risk}"
    text = f"This burst keeps a follower behind for {behind:,.0f} s; your limit is {limit:g} s, so "
    if behind < limit:
        text += "it stays in the ISR, and acks=all waits that long."
    elif behind <= 1.5 * limit:
        text += f"it is evicted if an ISR check (every {limit / 2:g} s) comes after {limit:g} s."
    else:
        text += f"it is evicted {limit:g} to {1.5 * limit:g} s after it fell behind."
    spare = size / behind
    rates = f"({spare + steady:,.1f} − {steady:,.1f} MB/s)"
    text += f"\n{size:,.0f} MB on a pair of brokers ÷ {rates} = {behind:,.0f} s."
    if behind >= limit:
        most = limit * spare / pair / burst.length_s
        text += f" It stays with bursts of at most {most:,.0f} MB/s into a broker, or with a limit"
        text += f" above {behind:,.0f} s; acks=all then waits that long."
    return text + risk


def remedies(burst: Burst) -> dict[str, float]:
    """The time behind as it is, and with larger settings or a slower producer."""
    fetches = [min(4 * n, 2_000) for n in (burst.fetch_mib, burst.response_mib)]
    half: dict[str, Any] = {"length_s": 2 * burst.length_s, "mb_per_s": burst.mb_per_s / 2}
    tried = {
        "as it is": burst,
        "twice the fetcher threads": burst._replace(threads=2 * burst.threads),
        "4 × the fetch sizes": burst._replace(fetch_mib=fetches[0], response_mib=fetches[1]),
        "half as high, twice as long": burst._replace(**half),
    }
    return {name: waits_s(each) for name, each in tried.items()}


def plot_burst(burst: Burst = TYPICAL) -> PlayerImage:
    """The MB that a follower of the pair lacks, simulated, and the formula's time behind, now and
    with remedies; the verdict below."""
    config, times = fleet_of(burst), remedies(burst)
    ((start_ms, hit),) = bursts(config).items()
    trace = fleet.trace(config, hit[0], sample_ms=max(50, config.duration_ms // 600))
    seconds, is_out = (trace.ts_ms - start_ms) / 1000, trace.isr_size < 1 + len(trace.followers)
    edges = np.flatnonzero(np.diff(is_out, prepend=False, append=False)).reshape(-1, 2).tolist()
    away = [Span(seconds[a], seconds[b - 1], "out", "out of the ISR") for a, b in edges]
    lacks = len(hit) * trace.lag_records[2] * config.record_bytes / 1e6
    figure, grid = style.panels(2, 1, (5.4, 4.1), height_ratios=[1.5, 1])
    scales = Scale("s since the burst began", low=-5), Scale("MB that a follower lacks")
    curve = Curve(seconds, lacks, width=1.5, look=(style.broker_colour(2), ""))
    marks = {burst.limit_s: "limit"} | ({times["as it is"]: "formula"} if away else {})
    plot_curves({"": curve}, "", scales, marks=marks, ax=shade(grid[0, 0], away))
    grid[0, 0].set_xlim(-5, seconds[-1])
    shown = [min(each, LONGEST_S) for each in times.values()]
    notes = [
        f"{s:,.0f} s" if 0 < s < math.inf else "never ends" if s else "keeps up"
        for s in times.values()
    ]
    plot_bars(
        [*times], {"": shown}, "", "seconds behind, by the formula", notes=notes, ax=grid[1, 0]
    )
    grid[1, 0].set_xlim(0, 1.25 * max(*shown, burst.limit_s))
    style.mark(grid[1, 0], burst.limit_s, "limit")
    out = f"evicted after {away[0].start_s:.0f} s" if away else "not evicted"
    out += f", {len(away)} times" * (len(away) > 1)
    title = f"Simulated, release {burst.version}: up to {lacks.max():,.0f} MB behind, {out}"
    return pictured(style.headline(figure, title), verdict(burst))


def burst_controls(burst: Burst = TYPICAL) -> LiveFigure:
    """Numbers to type, with fixed values in a player, and the picture for them."""
    numbers = [
        Number(name, stops, value=getattr(burst, field), min=low, max=high)
        for field, (name, stops, low, high) in CONTROLS.items()
    ]

    def draw(*values: Any) -> PlayerImage:
        return plot_burst(Burst(**dict(zip([*CONTROLS, "version"], values, strict=True))))

    return LiveFigure([*numbers, pick("release", RELEASES, burst.version)], draw, one_by_one=True)


def upgrades(base: FleetConfig, seeds: Iterable[int]) -> list[FleetConfig]:
    """The fleet under each of `UPGRADES`, each with all seeds."""
    each = [base.with_(name=name, **changes) for name, changes in UPGRADES.items()]
    return fleet.sweep(each, "seed", seeds)


def costs(events: DataFrame, fleets: Iterable[FleetConfig]) -> pd.DataFrame:
    """What each fleet paid, in an hour: evictions, minutes of partitions at one copy, and produces
    that were refused, failed after the leader had appended them, or timed out."""
    runs = {config.run: config for config in fleets}
    end_ms = max(config.duration_ms for config in runs.values())
    out = churn.removals(events).where("by = 'leader'").groupBy("run").count().toPandas()
    alone = churn.isr_times(events, end_ms=end_ms).toPandas().groupby("run")["one_copy_ms"].sum()
    failed = churn.refused_produce(events, ["run"]).toPandas()
    rows = failed.pivot_table("produces", "run", "error", "sum").rename(columns=ERRORS)
    rows = rows.reindex(index=[*runs], columns=[*ERRORS.values()])
    rows.insert(0, "one copy (min)", alone / 60_000)
    rows.insert(0, "evictions", out.set_index("run")["count"])
    hours = pd.Series({run: config.minutes / 60 for run, config in runs.items()})
    rows = rows.fillna(0).div(hours, axis=0)
    names = rows.index.str.split(" seed=")
    return rows.assign(release=names.str[0], seed=names.str[1])


def _signed(number: float) -> str:
    return f"{number:+,.0f}" if abs(number) >= 100 else f"{number:+.2g}"


def steps(paid: pd.DataFrame) -> pd.DataFrame:
    """What each of `UPGRADES` changes against the one before, on the same load, seed by seed: mean
    an hour, with its 90 % interval."""
    frames, columns = [], [*paid.columns[:5]]
    for was, now in pairwise(UPGRADES):
        pair = [paid[paid["release"] == name].set_index("seed")[columns] for name in (was, now)]
        frames.append((pair[1] - pair[0]).assign(step=f"{was} → {now}"))
    felt = churn.bands(pd.concat(frames), "step", columns)
    each: Iterable[Any] = felt.itertuples()
    felt["text"] = [
        f"{_signed(r.mean)} ({_signed(r.low)} to {_signed(r.high)})" if r.high > r.low else "0"
        for r in each
    ]
    wide = felt.pivot(index="step", columns="metric", values="text")[columns]
    return wide.loc[[frame["step"].iloc[0] for frame in frames]].reset_index()


def day(name: str) -> pd.DataFrame:
    """A table of the stored day, `by_hour` or `by_leader`; the README beside it says what ran."""
    return pd.read_csv(DATA / "fleet_day" / f"{name}.csv.gz")


def plot_day(by_hour: pd.DataFrame, by_leader: pd.DataFrame) -> Figure:
    """Evictions in each hour, by trouble; and in all, under each change that was tried."""
    figure, grid = style.panels(1, 2, (9.2, 3.6), width_ratios=[1.2, 1])
    whole = by_hour[by_hour["run"] == AS_IT_IS]
    names = sorted(set(whole["trouble"]))
    looks = dict(zip(names, style.SERIES, strict=False))
    curves = {
        str(name): Curve(rows["hour"], rows["evictions"], look=(looks[str(name)], "o"))
        for name, rows in whole.groupby("trouble")
    }
    hours = Scale("hour of the day", ticks=range(0, 25, 6)), Scale("evictions")
    plot_curves(curves, "By hour", hours, ax=grid[0, 0])
    means = paired(by_leader)["evictions"].groupby(level=0, sort=False).mean()
    ratio = 100 * means["now"] / means["was"]
    plot_bars(
        [*ratio.index], {"": ratio}, "With one change, in %", "evictions, in %", ax=grid[0, 1]
    )
    style.mark(grid[0, 1], 100, "")
    totals = whole.groupby("trouble")["evictions"].sum().items()
    text = ", ".join(f"{name} {total:,}" for name, total in totals)
    leaders = (by_leader["run"] == AS_IT_IS).sum()
    return style.headline(figure, f"Evictions in a day by {leaders} leaders: {text}")


def paired(by_leader: pd.DataFrame) -> pd.DataFrame:
    """What each leader's partitions paid as it is (`was`) and with a change (`now`): rows by
    change and leader, two columns for each of `PAID`."""
    own = by_leader.assign(alone_min=by_leader["alone_s"] / 60).set_index(["run", "leader"])
    base = own.loc[AS_IT_IS]
    frames = {}
    for run, rows in own.groupby(level=0, sort=False):
        now = rows.droplevel(0)
        frames[run] = pd.concat(
            {name: pd.DataFrame({"was": base[key], "now": now[key]}) for name, key in PAID.items()},
            axis=1, join="inner",
        ).dropna()  # fmt: skip
    return pd.concat({r: f for r, f in frames.items() if r != AS_IT_IS and "restart" not in str(r)})


def remedied(by_leader: pd.DataFrame) -> pd.DataFrame:
    """Each change: how many leaders tried it, and the mean of a leader's day before and after it,
    with the 90 % interval of the difference, leader by leader."""
    rows = []
    for run, own in paired(by_leader).groupby(level=0, sort=False):
        row = {"change": run, "leaders": len(own)}
        for name in PAID:
            was, now = own[name]["was"], own[name]["now"]
            change = pd.DataFrame({"run": run, "x": now - was})
            band: Any = next(churn.bands(change, "run", ["x"]).itertuples())
            interval = f" ({band.low:+,.0f} to {band.high:+,.0f})" if band.high > band.low else ""
            row[name] = f"{was.mean():,.0f} → {now.mean():,.0f}{interval}"
        rows.append(row)
    return pd.DataFrame(rows)


def restarted(by_leader: pd.DataFrame) -> pd.DataFrame:
    """What one restart of a broker adds to the day of a leader's partitions, leader by leader: a
    mean, with its 90 % interval where leaders differ. The brokers are followers there."""
    own = by_leader.assign(failed=by_leader[["refused", "after append", "timed out"]].sum(axis=1))
    base, rows = own[own["run"] == AS_IT_IS].set_index("leader"), []
    for run, of_run in own[own["run"].str.contains("restart")].groupby("run", sort=False):
        each, count = of_run.set_index("leader"), 60 if "rolling" in str(run) else 3  # restarts
        row = {"": run, "restarts": count, "leaders": len(each)}
        for name, key in ADDED.items():
            more = (each[key] - base.loc[each.index, key]) / count
            change = pd.DataFrame({"run": run, "x": more})
            band: Any = next(churn.bands(change, "run", ["x"]).itertuples())
            text = f" ({band.low:,.2g} to {band.high:,.2g})" if band.high > band.low else ""
            row[name] = f"{band.mean:,.3g}{text}"
        rows.append(row)
    return pd.DataFrame(rows)


def finding(paid: pd.DataFrame, by_formula: pd.DataFrame, by_leader: pd.DataFrame) -> str:
    """What the upgrades change, how well the formula predicts, and what helps on the stored day."""
    means = paid.groupby("release", sort=False)["evictions"].mean()
    each = ", ".join(f"{name} {mean:,.0f}" for name, mean in means.items())
    day = paired(by_leader)["evictions"].groupby(level=0, sort=False).mean()
    ratios = ", ".join(f"{run} {row.now / row.was:.0%}" for run, row in day.iterrows())
    return (
        f"Evictions an hour, mean of {paid['seed'].nunique()} seeds: {each}. A follower "
        f"{evicted(by_formula)}. On the stored day, evictions with one change: {ratios}."
    )


def plot_formula(by_formula: pd.DataFrame) -> Axes:
    """Which share of the day's bursts evicts a follower, by the predicted time behind."""
    shares = 100 * by_formula["sum"] / by_formula["size"]
    curve = Curve((by_formula["quarter"] + 0.5) / 4, shares, look=(style.VERMILION, "o"))
    scales = Scale("predicted time behind (lag limits)", high=3), Scale("evicted (%)")
    ax = shade(style.axes(7.6, 2.8), [Span(1, 1.5, "waits", "decided by when the check falls")])
    return plot_curves({"": curve}, f"A follower {evicted(by_formula)}", scales, ax=ax)


def evicted(by_formula: pd.DataFrame) -> str:
    """How many bursts evict, if predicted to keep a follower behind for < 1 or > 1.5 limits."""
    below, above = (by_formula[rows].sum() for rows in (
        by_formula["quarter"] < 4, by_formula["quarter"] > 5))  # fmt: skip
    text = f"behind for less than the limit: {below['sum']:,} of {below['size']:,} evicted; "
    return f"{text}for more than one and a half: {above['sum']:,} of {above['size']:,}"
