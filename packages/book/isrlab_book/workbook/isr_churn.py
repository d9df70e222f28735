"""ISR churn under bursts: every era, current faults, an interactive fleet, a large day.

An eviction is *needless* if its follower was running at the check and back within some seconds. A
burst is *predicted* to keep a follower behind for `behind_s`, from bytes and rates alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import Any

import ipywidgets as widgets
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isrlab import churn, fleet
from isrlab.engine.versions import PRESETS, RULES
from isrlab.fleet import evictions, load
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.evictions import REASONS
from isrlab.fleet.given import pauses_of
from isrlab.fleet.layout import assignment
from isrlab.installed import DATA
from isrlab.show import style
from isrlab.show.bands import Span, shade
from isrlab.show.controls import LiveFigure, Number, pick
from isrlab.show.curves import Curve, Scale, plot_bars, plot_curves

GENERATIONS = tuple(version.name for version in PRESETS.values())
FEW = ("0.8.2", "0.9.0", "0.10.2", "2.4", "3.6", "4.3")  # enough for a curve
_SHADES = style.VERMILION, style.SERIES[1], style.SKY, style.SERIES[3], style.GREY
COLOURS = dict(zip(REASONS, _SHADES, strict=True))
SLOW_LINK = "latency 2 0-{end} 250"
TROUBLES: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("", {}),
    "disk of broker 2 at half speed": ("fetchers 2 0-{end}", {"stall_speed": 0.5}),
    "250 ms to broker 2": (SLOW_LINK, {}),
    "250 ms to broker 2 and fetch sizes ten times": (
        SLOW_LINK,
        {"replica_fetch_max_bytes": 10_485_760, "replica_fetch_response_max_bytes": 104_857_600},
    ),
    "20 s stall of broker 2 in each burst": ("fetchers 2 {start}-{stop}", {}),
    "20 s restart of broker 2 in each burst": ("down 2 {start}-{stop}", {}),
}
TROUBLE_S = 20
AFTER_REMOVAL = (  # rules that a fleet feels only if the controller removes a broker
    "clock_reset", "fences_stale_leader_epoch", "fetches_after_removal",
    "removal_raises_leader_epoch",
)  # fmt: skip
SMALL = FleetConfig(
    version="4.3", partitions=60, minutes=10, load="together", burst_records=60_000, burst_s=10,
    burst_every_s=150, burst_share=0.5, stall_s=0, min_insync_replicas=2,
    replica_lag_time_max_ms=30_000,
)  # fmt: skip
CONTROLS = {  # of a setting: its name, stops of a player, least and most, unit
    "burst_records": ("burst height (records)", (20_000, 60_000, 120_000), 0, 10**7, 1),
    "burst_s": ("burst length (s)", (0, 10, 40), 0, 600, 1),
    "burst_every_s": ("burst interval (s)", (60, 150, 300), 5, 3_600, 1),
    "burst_share": ("share of partitions hit", (0.1, 0.5, 1), 0, 1, 1),
    "replica_lag_time_max_ms": ("lag limit (s)", (10, 30, 60), 1, 600, 1_000),
    "fetch_latency_ms": ("network, one way (ms)", (2, 100, 300), 1, 5_000, 1),
    "replica_fetch_max_bytes": ("fetch.max.bytes (MiB)", (0.25, 1, 10), 0.001, 1_000, 2**20),
    "replica_fetch_response_max_bytes":
        ("response.max.bytes (MiB)", (2, 10, 100), 0.001, 1_000, 2**20),
    "num_replica_fetchers": ("fetcher threads", (1, 2, 4), 1, 16, 1),
}  # fmt: skip


def counts(left: pd.DataFrame, configs: Iterable[FleetConfig], back_s: float) -> pd.DataFrame:
    """Evictions an hour of each fleet: by reason, all, and those that were `needless`."""
    rows = []
    by_run = dict(iter(left.groupby("run")))
    for config in configs:
        own = by_run.get(config.run, left[:0])
        needless = own["is_at_work"] & (own["out_s"] <= back_s)
        row = {why: (own["reason"] == why).sum() for why in REASONS}
        row |= {"evictions": len(own), "needless": needless.sum()}
        names = {"run": config.run, "setting": config.run.split(" seed=")[0], "seed": config.seed}
        rows.append(names | {name: 60 * n / config.minutes for name, n in row.items()})
    return pd.DataFrame(rows)


def steps(counted: pd.DataFrame, eras: Sequence[FleetConfig]) -> pd.DataFrame:
    """What each generation changes against the one before on the very same load, seed by seed:
    mean difference an hour of each reason, with its 90 % interval, where that excludes 0."""
    frames = []
    for was, now in pairwise(eras):
        pair = [counted[counted["setting"] == each.run].set_index("seed") for each in (was, now)]
        change = (pair[1][[*REASONS]] - pair[0][[*REASONS]]).assign(step=f"{was.run} → {now.run}")
        felt = churn.bands(change, "step", [*REASONS]).assign(rules=rules_changed(was, now))
        frames.append(felt[(felt["low"] > 0) | (felt["high"] < 0)])
    every = pd.concat(frames, ignore_index=True)
    every["an hour"] = [
        f"{r.mean:+,.0f} ({r.low:+,.0f} to {r.high:+,.0f})" for r in every.itertuples()
    ]
    return every.rename(columns={"metric": "evictions"})[["step", "evictions", "an hour", "rules"]]


def rules_changed(was: FleetConfig, now: FleetConfig) -> str:
    """The rules that differ from those of `was`, if this fleet can feel them, in words."""
    before, after = was.rules()._asdict(), now.rules()._asdict()
    words = {rule: now.kafka.label(rule) for rule in RULES} | {
        "isr_check_period_ms": f"checks every {style.duration(now.isr_check_period_ms)}",
        "replica_lag_time_max_ms": f"limit {style.duration(now.lag_time_ms)}",
        "waits_for_controller": now.kafka.label("isr_write"),
        "shrink_raises_leader_epoch": now.kafka.label("epoch_bump_on_isr_shrink"),
    }
    idle = {"replica_lag_max_messages"} | (set() if now.restart_s else set(AFTER_REMOVAL))
    felt = [name for name in after if after[name] != before[name] and name not in idle]
    return ", ".join(words.get(name, f"{name} {after[name]}") for name in felt)


def plot_eras(counted: pd.DataFrame, versions: Sequence[str], title: str) -> Axes:
    """Evictions an hour under the rules of each generation, by reason, mean over seeds. One
    bar for neighbouring generations whose fleets all evict the same."""
    fleets = counted.set_index("setting")[[*REASONS, "evictions", "needless"]]
    alike = [[*same] for _, same in groupby(versions, lambda v: fleets.loc[v].to_numpy().tobytes())]
    ends = [[name.split()[0] for name in (same[0], same[-1])] for same in alike]
    means = fleets.loc[[same[0] for same in alike]].groupby(level=0, sort=False).mean()
    means.index = pd.Index(["–".join(dict.fromkeys(pair)) for pair in ends])
    notes = [f"{row.evictions:,.0f}, {row.needless:,.0f} needless" for row in means.itertuples()]
    parts = {why: means[why] for why in REASONS if means[why].any()}
    label = f"evictions an hour, mean of {counted['seed'].nunique()} seeds"
    ax = style.axes(9.2, 1.6 + 0.3 * len(means))
    most, idle = means["evictions"].idxmax(), means["needless"].idxmax()
    title += f", evict most in {most}" + f", and most needlessly in {idle}" * (most != idle)
    return plot_bars([*means.index], parts, title, label, notes=notes, colours=COLOURS, ax=ax)


def plot_needless(left: pd.DataFrame, versions: Sequence[str], minutes: float) -> Axes:
    """How many evictions are needless, by how soon a follower must be back to be called so."""
    seconds, curves = np.geomspace(0.1, 100, 31), {}
    hours = left["run"].str.split("=").str[-1].nunique() * minutes / 60
    for version in versions:
        own = left[left["run"].str.startswith(f"{version} seed=") & left["is_at_work"]]["out_s"]
        curves[version] = Curve(seconds, [(own <= limit).sum() / hours for limit in seconds])
    ends = (f"{v} {curves[v].y[0]:,.0f} to {curves[v].y[-1]:,.0f}" for v in versions)
    scales = Scale("back within (s)", "log"), Scale("needless evictions an hour")
    return plot_curves(
        curves,
        f"The longer the time allowed, the more evictions are needless: {', '.join(ends)}",
        scales,
    )


def bursts(config: FleetConfig) -> dict[int, list[int]]:
    """When bursts begin (ms), and the partitions that each one hits."""
    hit: dict[int, list[int]] = {}
    for partition in range(config.partitions):
        for start in load.burst_starts_ms(config, partition).astype(int).tolist():
            hit.setdefault(start, []).append(partition)
    return dict(sorted(hit.items()))


def troubled(config: FleetConfig, trouble: str) -> FleetConfig:
    """The fleet with one of the `TROUBLES`, either all the time or from the start of each burst."""
    (form, settings), end = TROUBLES[trouble], round(config.minutes * 60)
    starts = [start / 1000 for start in bursts(config)] if "{start}" in form else [0.0]
    times = [{"start": f"{s:.3f}", "stop": f"{s + TROUBLE_S:.3f}", "end": end} for s in starts]
    pauses = ", ".join(form.format(**each) for each in times if form)
    name = f"{trouble}, bursts of {config.burst_records:,} seed={config.seed}"
    return config.with_(pauses=pauses, name=name, **settings)


def behind_s(
    burst_bytes: float, steady_bytes_per_s: float, fetch_bytes_per_s: float, stall_s: float = 0
) -> float:
    """For how long (s) a burst keeps a follower behind: it copies the burst, and the load of a
    stall before it, at its fetch rate minus the steady load."""
    spare = fetch_bytes_per_s - steady_bytes_per_s
    left = burst_bytes + steady_bytes_per_s * stall_s
    return stall_s + left / spare if spare > 0 else math.inf


def links(fleets: Iterable[FleetConfig], left: pd.DataFrame, alone_s: int = 150) -> pd.DataFrame:
    """Each burst on each link (leader to follower) that has the trouble of its fleet, unless
    another burst comes within `alone_s`; fleets with restarts are left out.

    `behind_s`: for how long it should keep the follower behind, from settings alone; `evicts`: the
    leader did evict the follower.
    """
    rows, by_run = [], dict(iter(left.groupby("run")))
    for config in (each for each in fleets if "down" not in each.pauses):
        layout, hit_at, own = assignment(config), bursts(config), by_run.get(config.run, left[:0])
        gaps = np.diff([-(10**9), *hit_at, config.duration_ms]) / 1000
        is_alone = np.minimum(gaps[:-1], gaps[1:]) > alone_s
        pairs = sorted({(each[0], broker) for each in layout.tolist() for broker in each[1:]})
        for leader, broker in pairs:
            if config.pauses and broker != 2 and not ("latency" in config.pauses and leader == 2):
                continue
            follows = (layout[:, 0] == leader) & (layout[:, 1:] == broker).any(axis=1)
            out = own[own["replica"].eq(broker) & own["partition"].isin(np.flatnonzero(follows))]
            stall_s = TROUBLE_S if " stall " in config.run else 0
            steady = follows.sum() * config.records_per_s * config.record_bytes
            for start in np.array([*hit_at], dtype=int)[is_alone].tolist():
                hit = int(follows[hit_at[start]].sum())
                size, rate = hit * config.burst_records, _rate(config, leader, broker, hit)
                behind = behind_s(size * config.record_bytes, steady, rate, stall_s)
                evicts = out["ts_ms"].between(start, start + 1000 * alone_s).any()
                rows.append((config.run.split(",")[0], behind, bool(evicts)))
    return pd.DataFrame(rows, columns=["trouble", "behind_s", "evicts"])


def _rate(config: FleetConfig, leader: int, broker: int, hit: int) -> float:
    """Bytes that a fetcher thread copies in a second: by its disk, and a round trip per fetch."""
    rate = float(load.follower_bytes_per_s(config, broker))
    if config.stall_speed and len(load.stalls(config, broker)[0]):
        rate *= config.stall_speed
    slow = [p.latency_ms for p in pauses_of(config.pauses) if p.broker in (leader, broker)]
    trip_s = 2 * max([config.fetch_latency_ms, *slow]) / 1000
    most = config.replica_fetch_response_max_bytes
    most = min(max(hit, 1) * config.replica_fetch_max_bytes, most)
    return most / (most / rate + trip_s)


def plot_formula(rows: pd.DataFrame, limit_s: float) -> Axes:
    """Which share of bursts evicts, by the predicted time behind in limits, for each trouble."""
    curves = {}
    for name, own in rows.groupby("trouble", sort=False):
        quarters = (4 * own["behind_s"] / limit_s).clip(upper=11).astype(int)
        shares = own.groupby(quarters)["evicts"].mean()
        curves[str(name)] = Curve((shares.index + 0.5) / 4, 100 * shares)
    scales = Scale("predicted time behind (lag limits)", high=3), Scale("evicted (%)")
    ax = shade(style.axes(9.2, 4), [Span(1, 1.5, "waits", "decided by when the check falls")])
    return plot_curves(curves, f"A follower {evicted(rows, limit_s)}", scales, ax=ax)


def evicted(rows: pd.DataFrame, limit_s: float) -> str:
    """How many bursts evict, if predicted to keep a follower behind for < 1 or > 1.5 limits."""
    limits = rows["behind_s"] / limit_s
    below, above = rows[limits < 1]["evicts"], rows[limits > 1.5]["evicts"]
    text = f"behind for less than the limit: {below.sum():,} of {len(below):,} evicted; "
    return f"{text}for more than one and a half: {above.sum():,} of {len(above):,}"


def costs(counted: pd.DataFrame, latency: pd.DataFrame, failed: pd.DataFrame) -> pd.DataFrame:
    """What each trouble costs, mean over seeds (and 90 % interval): evictions and needless ones,
    the wait that 1 in 1,000 with acks=all exceeds, attempts that time out or are refused."""
    rows = counted.set_index("run").rename(columns={"evictions": "evictions/h"})
    rows["needless/h"] = rows["needless"]
    rows["1 in 1,000 waits (s)"] = latency.set_index("run")["p999_ms"] / 1000
    errors = failed.pivot_table("produces", "run", "error", "sum")
    for name, error in {"timed out": "REQUEST_TIMED_OUT", "refused": "NOT_ENOUGH_REPLICAS"}.items():
        rows[name] = errors.get(error, 0)
    bands = churn.bands(rows.fillna(0), "setting", ["evictions/h", *rows.columns[-4:]])
    three = bands[["mean", "low", "high"]].clip(lower=0).to_numpy()
    bands["text"] = [f"{mean:,.3g} ({low:,.3g} to {high:,.3g})" for mean, low, high in three]
    wide = bands.pivot(index="setting", columns="metric", values="text")
    return wide.loc[rows["setting"].unique()].reset_index()


def finding(counted: pd.DataFrame, rows: pd.DataFrame, limit_s: float, back_s: float) -> str:
    """How the eras differ by an independent measure, and how well a formula predicts evictions."""
    means = counted.groupby("setting", sort=False)[["evictions", "needless"]].mean().round()
    eras = ", ".join(f"{row[0]} {row[1]:,.0f} ({row[2]:,.0f})" for row in means.itertuples())
    return (
        f"The same bursts, one limit, mean of {counted['seed'].nunique()} seeds: evictions an hour "
        f"(needless: fetchers at work, back within {back_s:g} s): {eras}. A follower "
        f"{evicted(rows, limit_s)}."
    )


def seconds_behind(trace: fleet.Trace) -> dict[int, np.ndarray]:
    """Broker -> age of the oldest record that it lacks, in s, whatever the version's lag clock."""
    ends, ts_ms = trace.log_end_offset, trace.ts_ms
    had = {b: np.searchsorted(ends, end, "right") - 1 for b, end in trace.followers.items()}
    return {b: np.where(at < len(ends) - 1, ts_ms - ts_ms[at], 0) / 1000 for b, at in had.items()}


def plot_burst(config: FleetConfig = SMALL) -> Figure:
    """A partition in a burst: records and seconds behind, checks, absences; beside it the fleet's
    evictions in three releases."""
    figure, grid = style.panels(2, 2, (9.2, 4.6), width_ratios=[1.9, 1])
    trace = fleet.trace(config, fleet.most_evicting(config), sample_ms=500)
    ages, seconds = seconds_behind(trace), trace.ts_ms / 1000
    worst_s = seconds[np.max([*ages.values()], axis=0).argmax()]
    at_s = (*(trace.evictions_ms() / 1000), worst_s)[0]
    is_out = trace.isr_size < 1 + len(trace.followers)
    edges = np.flatnonzero(np.diff(is_out, prepend=False, append=False)).reshape(-1, 2).tolist()
    away = [Span(seconds[a], seconds[b - 1], "out", "out of the ISR") for a, b in edges]
    x = Scale("time (s); dotted: ISR checks", low=max(0, at_s - 45), high=at_s + 45)
    near = (seconds >= (x.low or 0)) & (seconds <= at_s + 45)
    marks = {ms / 1000: "" for ms in trace.ticks_ms.tolist() if abs(ms / 1000 - at_s) < 45}
    shown: Any = (trace.lag_records, config.lag_messages), (ages, config.lag_time_ms / 1000)
    for ax, label, (lag, limit) in zip(grid[:, 0], ("records", "seconds"), shown, strict=True):
        top = 1.2 * max(limit or 1.0, float(np.max([*lag.values()], axis=0)[near].max()))
        curves = {f"broker {b}": Curve(seconds, lag[b], width=1.5) for b in lag}
        scales, limits = (x, Scale(f"{label} behind", high=top)), {limit: "limit"} if limit else {}
        plot_curves(curves, "", scales, marks=marks, limits=limits, ax=shade(ax, away))
    grid[0, 0].set_xlabel("")
    grid[0, 0].get_legend().remove()
    bars = _needless_bars(config, figure.add_subplot(grid[0, 1].get_gridspec()[:, 1]))
    for ax in grid[:, 1]:
        ax.remove()
    most = float(np.max([*ages.values()], axis=0)[near].max())
    return style.headline(figure, f"{config.version}: up to {most:.0f} s behind; {bars}")


def _needless_bars(config: FleetConfig, ax: Axes) -> str:
    """Draw the fleet's evictions in three releases; returns those in its own, in words."""
    releases, rows = [*dict.fromkeys([*FEW[:2], config.version])], []
    for each in fleet.versions(config, releases):
        own = counts(evictions.judged(each, fleet.simulate_local(each)), [each], 10)
        rows.append((own["needless"][0], own["evictions"][0] - own["needless"][0]))
    parts = dict(zip(("needless", "others"), np.array(rows).T, strict=True))
    colours = {"needless": style.VERMILION, "others": style.GREY}
    plot_bars(releases, parts, "", "evictions an hour", colours=colours, ax=ax)
    mine = rows[releases.index(config.version)]
    return f"{sum(mine):,.0f} evictions an hour, {mine[0]:,.0f} of them needless"


def burst_controls(config: FleetConfig = SMALL) -> widgets.VBox:
    """Numbers to type, with fixed values in a player, and the picture for them."""
    numbers = [
        Number(name, stops, value=getattr(config, setting) / unit, min=low, max=high)
        for setting, (name, stops, low, high, unit) in CONTROLS.items()
    ]

    def draw(*values: Any) -> Figure:
        changes: dict[str, Any] = {"version": values[-1]}
        for (setting, control), value in zip(CONTROLS.items(), values, strict=False):
            number = value * control[-1]
            is_whole = isinstance(getattr(config, setting), int)
            changes[setting] = round(number) if is_whole else number
        return plot_burst(config.with_(**changes))

    return LiveFigure([*numbers, pick("version", FEW, config.version)], draw, one_by_one=True)


def day(name: str) -> pd.DataFrame:
    """The table `by_hour` or `by_broker` of the stored day; the README beside it says what ran."""
    return pd.read_csv(DATA / "fleet_day" / f"{name}.csv.gz")


def plot_day(by_hour: pd.DataFrame, by_broker: pd.DataFrame) -> Figure:
    """Evictions in each hour, by trouble, with the control runs; in bursts, by broker's speed."""
    figure, grid = style.panels(1, 2, (9.2, 3.8), width_ratios=[1.4, 1])
    whole, brokers = (rows[rows["run"] == "bursts and stalls"] for rows in (by_hour, by_broker))
    looks = dict(zip(sorted(set(whole["trouble"])), style.SERIES, strict=False))
    curves = {
        str(name): Curve(rows["hour"], rows["evictions"], look=(looks[name], "o"))
        for name, rows in whole.groupby("trouble")
    }
    for run, colour in (("bursts alone", looks["burst"]), ("stalls alone", looks["stall"])):
        own = by_hour[by_hour["run"] == run].groupby("hour")["evictions"].sum()
        curves[f"control: {run}"] = Curve(own.index, own, look=(colour, ""), style="--")
    hours = Scale("hour of the day", ticks=range(0, 25, 6))
    plot_curves(curves, "By hour", (hours, Scale("evictions")), ax=grid[0, 0])
    burst = brokers[brokers["trouble"] == "burst"]
    cloud = {"": Curve(burst["mb_per_s"], burst["evictions"], style="", look=(looks["burst"], "o"))}
    speed = Scale("a fetcher thread copies (MB/s)", low=brokers["mb_per_s"].min() - 0.1)
    plot_curves(cloud, "By broker, in bursts", (speed, Scale("")), ax=grid[0, 1])
    totals = whole.groupby("trouble")["evictions"].sum().items()
    text = ", ".join(f"{name} {total:,}" for name, total in totals)
    return style.headline(figure, f"Evictions in a day by {whole['leaders'].max()} leaders: {text}")
