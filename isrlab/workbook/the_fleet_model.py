"""The fleet's model: its settings, and how far its simplifications can mislead.

A *base* is a fleet; a *check* changes something that should not matter, or that the model had to
choose, or leaves out. Its result is the change of each answer in percent. Seeds give the yardstick:
a change within their scatter says nothing.
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
BASE, SEED = "base", "seed"
COUNTS = ["old shrinks", "new shrinks", "under-replicated"]
ENDS = ["seeds, lowest", "seeds, highest"]


class Check(NamedTuple):
    """What is changed, how, and by how much its times are stretched."""

    name: str
    change: Callable[[FleetConfig], FleetConfig]
    stretch: int = 1


def finer(config: FleetConfig) -> FleetConfig:
    """The same fleet with a tenth of the time step: all its times longer, all rates lower."""
    known = {"replica_lag_time_max_ms": config.lag_time_ms}
    known["session_timeout_ms"] = config.session_ms
    values = asdict(config.with_(**known))
    longer = {n: v * 10 for n, v in values.items() if n.endswith(("_ms", "_s", "minutes"))}
    lower = {n: type(v)(v / 10) for n, v in values.items() if n.endswith("per_s")}
    return config.with_(**(longer | lower))


def smaller(config: FleetConfig) -> FleetConfig:
    """The same bytes in ten times as many records, and limits in records to match."""
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
    """A fleet with bursts under an old version's rules and its own, and one without bursts."""
    return {"old": config.with_(version=old), "new": config, "steady": config.with_(load="steady")}


def fleets(start: dict[str, FleetConfig], seeds: int) -> list[FleetConfig]:
    """Each base, once for each check and once for each further seed; runs are "base: check"."""
    made = []
    for name, base in start.items():
        made.append(base.with_(name=f"{name}: {BASE}"))
        made += [check.change(base).with_(name=f"{name}: {check.name}") for check in CHECKS]
        others = range(base.seed + 1, base.seed + seeds)
        made += [base.with_(name=f"{name}: {SEED} {seed}", seed=seed) for seed in others]
    return made


def answers(alarms: pd.DataFrame, absences: pd.DataFrame, latency: pd.DataFrame) -> pd.DataFrame:
    """A row for each check (and seed), a column for each of `ANSWERS`, in units of the base.

    From `truth.alarms`, `churn.under_replicated` (of the new base) and `churn.commit_latency`, for
    the runs of `fleets`.
    """
    out_s = absences.groupby("run")["under_replicated_ms"].sum() / 1000
    data = alarms.merge(latency, on="run", how="left")
    data["under_replicated_per_hour"] = data["run"].map(out_s).fillna(0) / data["minutes"]
    data[["base", "check"]] = data["run"].str.split(": ", n=1, expand=True)
    stretch = data["check"].map({check.name: check.stretch for check in CHECKS}).fillna(1)
    data["shrinks_per_hour"] *= stretch
    data[["p50_ms", "p99_ms"]] = data[["p50_ms", "p99_ms"]].div(stretch, axis=0)
    by_run = data.pivot(index="check", columns="base").loc[data["check"].unique()]
    columns = {answer: by_run[column, base] for answer, (base, column, _) in ANSWERS.items()}
    return pd.DataFrame(columns).astype(float)


def of_seeds(answered: pd.DataFrame) -> pd.DataFrame:
    """The rows of the base and of its other seeds, as `churn.bands` takes them: `fleet` is one."""
    is_seed = answered.index.str.startswith((BASE, SEED))
    return answered[is_seed].assign(fleet=BASE)


def sensitivity(answered: pd.DataFrame) -> pd.DataFrame:
    """The change of each answer in percent: a row for each check, then `ENDS`, of all seeds."""
    percent = 100 * (answered / answered.loc[BASE] - 1)
    ends = of_seeds(percent).drop(columns="fleet").agg(["min", "max"]).set_axis(ENDS)
    return pd.concat([percent.loc[[check.name for check in CHECKS]], ends]).rename_axis("check")


def beyond(percent: pd.DataFrame) -> pd.DataFrame:
    """Which answers a check moves further than any other seed does: a row a check, true or false.

    A wait that moves by no more than its class is wide (12.5 %) has not moved.
    """
    low, high = (percent.loc[end] for end in ENDS)
    slack = pd.Series({a: 100 / STEPS * c.endswith("_ms") for a, (_, c, _) in ANSWERS.items()})
    checks = percent.drop(ENDS)
    return (checks < low - slack) | (checks > high + slack)


def plot_sensitivity(answered: pd.DataFrame, names: dict[str, str]) -> Axes:
    """What each check changes, a column for each answer; `names` of "old" and "new"."""
    percent = sensitivity(answered)
    out, (low, high) = beyond(percent), (percent.loc[end] for end in ENDS)
    checks = [check.name for check in CHECKS]
    rows: dict[str, dict[str, tuple[str, str]]] = {n: {} for n in (BASE, *checks, "other seeds")}
    for answer, (_, _, text) in ANSWERS.items():
        head, base = text.format(**names), answered[answer].to_dict()[BASE]
        rows[BASE][head] = f"{base:,.0f}", ""
        rows["other seeds"][head] = f"{low[answer]:+.0f} to {high[answer]:+.0f} %", ""
        changes, moved = percent[answer].round().add(0.0).to_dict(), out[answer].to_dict()
        for check in checks:
            mark, word = ("  !", "beyond") if moved[check] else ("", "within")
            rows[check][head] = f"{changes[check]:+,.0f} %{mark}", word
    moving = [name for name in checks if out[COUNTS].loc[name].any()]
    title = f"What moves ISR counts further than any other seed: {listed(moving) or 'nothing'}"
    legend = {"beyond": "!  further than any other seed", "within": "within what other seeds do"}
    colours = {"": PALE, "beyond": OUTCOMES["lost"], "within": OUTCOMES["safe"]}
    return plot_matrix(rows, title, colours=colours, legend=legend, size=(1.05, 0.34))


def finding(percent: pd.DataFrame) -> str:
    """What the sizes of steps, records and batches change, what another seed, what fencing."""
    counts = percent[COUNTS].abs()
    cuts, seeds = (counts.loc[names].max().max() for names in (CUTS, ENDS))
    fencing = percent["under-replicated"][CHECKS[-1].name]
    return (
        "The model's time step, record size and burst batches change counts of shrinks and time "
        f"under-replicated by {cuts:.1f} % at most, another seed by up to {seeds:.0f} %. A time "
        f"step a tenth as long changes the median wait by {percent['p50'][CUTS[0]]:+.0f} %, and "
        f"fencing stalled brokers changes time under-replicated by {fencing:+.0f} %."
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
