"""How far the fleet model's simplifications can mislead.

A *base* is a fleet; a *check* changes something that should not matter, or that the model had to
choose, or leaves out. Each check is run at every seed beside the base at that seed: the result is
the change of each answer in percent, paired. The yardstick is how far the bases of different seeds
lie apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, fields
from functools import partial
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes

from isrlab.engine.versions import GENERATIONS
from isrlab.fleet.config import LOADS, TRACE, FleetConfig
from isrlab.fleet.kernel.state import STEPS
from isrlab.show.matrix import plot_matrix
from isrlab.show.style import OUTCOMES, PALE, listed

ANSWERS = {  # of which base, column, what it is
    "old shrinks": ("old", "shrinks_per_hour", "shrinks per hour, {old}"),
    "new shrinks": ("new", "shrinks_per_hour", "shrinks per hour, {new}"),
    "under-replicated": ("new", "under_replicated_per_hour", "minutes under-replicated per hour"),
    "p50": ("steady", "p50_ms", "median wait, ms, no bursts"),
    "p99": ("steady", "p99_ms", "99 % wait, ms, no bursts"),
}
BASE, OTHERS = "base", "other seeds"
COUNTS = ["old shrinks", "new shrinks", "under-replicated"]


class Check(NamedTuple):
    """A change to a fleet: its name, the function, and by how much it stretches times."""

    name: str
    change: Callable[[FleetConfig], FleetConfig]
    stretch: int = 1


def finer(config: FleetConfig) -> FleetConfig:
    """The fleet with a tenth of the time step: all its times longer, all rates lower."""
    known = {"replica_lag_time_max_ms": config.lag_time_ms}
    known["session_timeout_ms"] = config.session_ms
    values = asdict(config.with_(**known))
    longer = {n: v * 10 for n, v in values.items() if n.endswith(("_ms", "_s", "minutes"))}
    lower = {n: type(v)(v / 10) for n, v in values.items() if n.endswith("per_s")}
    return config.with_(**(longer | lower))


def smaller(config: FleetConfig) -> FleetConfig:
    """The fleet with ten times as many records a tenth the size, and limits in records to match."""
    more = {name: getattr(config, name) * 10 for name in ("records_per_s", "burst_records")}
    more["replica_lag_max_messages"] = config.lag_messages and config.lag_messages * 10
    return config.with_(**more, record_bytes=config.record_bytes // 10)


CHECKS = (
    Check("time step a tenth as long", finer, 10),
    Check("records a tenth the size", smaller),
    Check("bursts in one batch", partial(FleetConfig.with_, burst_s=0.0)),
    Check("messages 1 ms, not 2", partial(FleetConfig.with_, fetch_latency_ms=1)),
    Check("messages 4 ms, not 2", partial(FleetConfig.with_, fetch_latency_ms=4)),
    Check("controller 100 ms, not 10", partial(FleetConfig.with_, isr_commit_ms=100)),
    Check("followers all alike", partial(FleetConfig.with_, follower_spread=0.0)),
    Check("followers differ by half", partial(FleetConfig.with_, follower_spread=0.5)),
    Check("stalled brokers fenced", partial(FleetConfig.with_, replica_lag_time_max_ms=6_000)),
)
CUTS = [check.name for check in CHECKS[:3]]  # of time, records and bursts


def bases(config: FleetConfig, old: str) -> dict[str, FleetConfig]:
    """A fleet with bursts by an old version's rules and by its own, and a fleet without bursts."""
    return {"old": config.with_(version=old), "new": config, "steady": config.with_(load="steady")}


def fleets(start: dict[str, FleetConfig], seeds: int) -> list[FleetConfig]:
    """Each base and each check of it, at every seed; runs are "base: check: seed"."""
    return [
        change(base.with_(seed=seed)).with_(name=f"{name}: {check}: {seed}")
        for name, base in start.items()
        for seed in range(base.seed, base.seed + seeds)
        for check, change, _ in (Check(BASE, lambda config: config), *CHECKS)
    ]


def answers(alarms: pd.DataFrame, absences: pd.DataFrame, latency: pd.DataFrame) -> pd.DataFrame:
    """A row for each check and seed, a column for each of `ANSWERS`, in units of the base.

    From `truth.alarms`, `churn.under_replicated` (of the new base) and `churn.commit_latency`, for
    the runs of `fleets`.
    """
    out_s = absences.groupby("run")["under_replicated_ms"].sum() / 1000
    data = alarms.merge(latency, on="run", how="left")
    data["under_replicated_per_hour"] = data["run"].map(out_s).fillna(0) / data["minutes"]
    data[["base", "check", "seed"]] = data["run"].str.split(": ", expand=True)
    stretch = data["check"].map({check.name: check.stretch for check in CHECKS}).fillna(1)
    data["shrinks_per_hour"] *= stretch
    data[["p50_ms", "p99_ms"]] = data[["p50_ms", "p99_ms"]].div(stretch, axis=0)
    by_run = data.pivot(index=["check", "seed"], columns="base")
    columns = {answer: by_run[column, base] for answer, (base, column, _) in ANSWERS.items()}
    return pd.DataFrame(columns).astype(float)


def sensitivity(answered: pd.DataFrame) -> pd.DataFrame:
    """By check and answer: mean, lowest and highest change in percent beside the base of each seed.

    The rows of `BASE` compare each seed's base with the mean of all seeds. `moves`: the answer
    changes in one direction at every seed; a wait, by more than the width of its class (12.5 %).
    """
    base = answered.loc[BASE]
    rows = []
    for check in (BASE, *(check.name for check in CHECKS)):
        changed, beside = (base, base.mean()) if check == BASE else (answered.loc[check], base)
        percent = 100 * (changed / beside - 1)
        for answer, (_, column, _) in ANSWERS.items():
            changes = percent[answer]
            low, high = changes.min(), changes.max()
            slack = 100 / STEPS if column.endswith("_ms") else 0
            rows.append((check, answer, changes.mean(), low, high, low > slack or high < -slack))
    columns = ["check", "answer", "mean", "low", "high", "moves"]
    return pd.DataFrame(rows, columns=columns).set_index(["check", "answer"])


def plot_sensitivity(answered: pd.DataFrame, names: dict[str, str]) -> Axes:
    """What each check changes, a column for each answer; `names`: the "old" and "new" version."""
    changes, checks = sensitivity(answered), [check.name for check in CHECKS]
    values = changes.to_dict("index")
    rows: dict[str, dict[str, tuple[str, str]]] = {n: {} for n in (BASE, *checks, OTHERS)}
    for answer, (_, _, text) in ANSWERS.items():
        head = text.format(**names)
        rows[BASE][head] = f"{answered.loc[BASE][answer].mean():,.0f}", ""
        for check in (*checks, BASE):
            mean, low, high, moves = values[check, answer].values()
            ends = f"{low + 0.0:+,.0f} to {high + 0.0:+,.0f} %"
            row = rows[OTHERS if check == BASE else check]
            row[head] = (ends, "") if check == BASE else (
                f"{round(mean) + 0.0:+,.0f} ({ends})", "moves" if moves else "either way"
            )  # fmt: skip
    moving = [name for name in checks if changes.loc[name].loc[COUNTS, "moves"].any()]
    title = f"Changes that move a count in one direction at every seed: {listed(moving) or 'none'}"
    legend = {"moves": "one direction at every seed", "either way": "up or down, by seed"}
    colours = {"": PALE, "moves": OUTCOMES["lost"], "either way": OUTCOMES["safe"]}
    return plot_matrix(rows, title, colours=colours, legend=legend, size=(1.5, 0.34))


def finding(changes: pd.DataFrame) -> str:
    """The effects of the sizes of steps, records and batches, of another seed, and of fencing."""
    counts = changes[changes.index.isin(COUNTS, level="answer")]
    cuts = counts.loc[CUTS, "mean"].abs().max()
    seeds = counts.loc[BASE, ["low", "high"]].abs().max().max()
    means = changes["mean"].to_dict()
    fencing, median = means[CHECKS[-1].name, "under-replicated"], means[CUTS[0], "p50"]
    return (
        "Compared at the same seed, the model's time step, record size and burst batches change "
        f"the counts of shrinks and the time under-replicated by at most {cuts:.1f} % on average. "
        f"A single seed lies up to {seeds:.0f} % from the mean of the seeds. A time step a tenth "
        f"as long changes the median wait by {median:+.0f} %, and fencing stalled brokers changes "
        f"the time under-replicated by {fencing:+.0f} %."
    )


def settings() -> pd.DataFrame:
    """Every setting of `FleetConfig`, a row each: name, default, unit, valid values, meaning."""
    last = GENERATIONS[-1].releases.split("-")[-1]
    words = {"version": f"{GENERATIONS[0].name} to {last}", "load": ", ".join([*LOADS, TRACE])}
    rows = []
    for item in fields(FleetConfig):
        limits = item.metadata
        ends = [_readable(limits[end]) for end in ("low", "high") if end in limits]
        valid = " to ".join(ends) or words.get(item.name, "text")
        default = "by version" if item.default is None else _readable(item.default)
        rows.append((item.name, default, limits.get("unit", ""), valid, limits["meaning"]))
    return pd.DataFrame(rows, columns=["setting", "default", "unit", "valid", "what it does"])


def _readable(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if value < 1e9 else f"{value:.3g}"
