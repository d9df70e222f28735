"""Bursts under the rules of every generation: evictions by reason, and what each step changes.

An eviction is *needless* if its follower was running at the check and back within some seconds.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise

import pandas as pd
from matplotlib.axes import Axes

from isrlab import churn
from isrlab.engine.versions import PRESETS, RULES
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.evictions import REASONS
from isrlab.show import style
from isrlab.show.curves import plot_bars

GENERATIONS = tuple(version.name for version in PRESETS.values())
FEW = ("0.8.2", "0.9.0", "0.10.2", "2.4", "3.6", "4.3")  # with their default limits
_SHADES = style.VERMILION, style.SERIES[1], style.SKY, style.SERIES[3], style.GREY
COLOURS = dict(zip(REASONS, _SHADES, strict=True))
AFTER_REMOVAL = (  # rules that a fleet feels only if the controller removes a broker
    "clock_reset", "fences_stale_leader_epoch", "fetches_after_removal",
    "removal_raises_leader_epoch",
)  # fmt: skip


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


def finding(counted: pd.DataFrame, back_s: float) -> str:
    """How the eras differ, by a measure that uses no release's own clock."""
    means = counted.groupby("setting", sort=False)[["evictions", "needless"]].mean().round()
    eras = ", ".join(f"{row[0]} {row[1]:,.0f} ({row[2]:,.0f})" for row in means.itertuples())
    return (
        f"The same bursts, one limit, mean of {counted['seed'].nunique()} seeds: evictions an hour "
        f"(needless: fetchers at work, back within {back_s:g} s): {eras}."
    )
