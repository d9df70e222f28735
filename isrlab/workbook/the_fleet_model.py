"""How far the fleet's simplifications can mislead: change one, run again, compare the answers.

A *base* is a fleet; a *check* changes something that should not matter, or that the model had to
choose, or leaves out. Its result is the change of each answer in percent. Seeds give the yardstick:
a change within their scatter says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from isrlab.fleet import load
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.kernel.state import STEPS
from isrlab.fleet.layout import assignment
from isrlab.fleet.recorded.writer import write_trace
from isrlab.show.style import INK, PALE, bare, plain

FINER = 10  # times
SMALLER = 10
TIMES_MS = (
    *("replica_fetch_wait_max_ms", "batch_every_ms", "fetch_latency_ms", "isr_commit_ms"),
    *("request_timeout_ms", "delivery_timeout_ms"),
)
TIMES_S = (
    *("minutes", "burst_s", "burst_every_s", "stall_s", "stall_every_s"),
    *("leader_stall_s", "leader_stall_every_s", "restart_s", "restart_every_s"),
)
ANSWERS = {  # of which base, column, what it is
    "old shrinks": ("old", "shrinks_per_hour", "shrinks, {old}"),
    "new shrinks": ("new", "shrinks_per_hour", "shrinks, {new}"),
    "under-replicated": ("new", "under_replicated_per_hour", "under-replicated, {new}"),
    "p50": ("steady", "p50_ms", "median wait, no bursts"),
    "p99": ("steady", "p99_ms", "99 % wait, no bursts"),
    "p50 bursts": ("new", "p50_ms", "median wait, bursts"),
}
COLOURS = ("#D55E00", "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#CC79A7")
MARKERS = ("s", "o", "D", "^", "v", "P")
BASE, SEED = "base", "seed"
ENDS = ["seeds, lowest", "seeds, highest"]
CUTS = ("clock ten times finer", "records a tenth the size", "bursts in one batch")


class Check(NamedTuple):
    """What is changed, why, and by how much its times are stretched."""

    name: str
    change: Callable[[FleetConfig], FleetConfig]
    stretch: int = 1


def finer(config: FleetConfig) -> FleetConfig:
    """The same fleet with a clock that ticks ten times as often: all times x 10, all rates / 10."""
    times = {name: getattr(config, name) * FINER for name in (*TIMES_MS, *TIMES_S)}
    return config.with_(
        **times,
        replica_lag_time_max_ms=config.lag_time_ms * FINER,
        records_per_s=config.records_per_s / FINER,
        follower_bytes_per_s=config.follower_bytes_per_s // FINER,
        leader_bytes_per_s=config.leader_bytes_per_s // FINER,
    )


def smaller(config: FleetConfig) -> FleetConfig:
    """The same bytes in ten times as many records, and limits in records to match."""
    limit = config.lag_messages
    return config.with_(
        record_bytes=config.record_bytes // SMALLER,
        records_per_s=config.records_per_s * SMALLER,
        burst_records=config.burst_records * SMALLER,
        replica_lag_max_messages=None if limit is None else limit * SMALLER,
    )


def as_trace(config: FleetConfig) -> FleetConfig:
    """The same load, written to a file and read back; it begins at its first batch."""
    return config.with_(trace_file=str(write_trace(config)), load="trace")


def setting(**changes: object) -> Callable[[FleetConfig], FleetConfig]:
    """A change of settings."""
    return lambda config: config.with_(**changes)


CHECKS = (
    Check("clock ten times finer", finer, FINER),
    Check("records a tenth the size", smaller),
    Check("load read from a trace", as_trace),
    Check("bursts in one batch", setting(burst_s=0.0)),
    Check("messages 1 ms, not 2", setting(fetch_latency_ms=1)),
    Check("messages 4 ms, not 2", setting(fetch_latency_ms=4)),
    Check("controller 100 ms, not 10", setting(isr_commit_ms=100)),
    Check("followers all alike", setting(follower_spread=0.0)),
    Check("followers differ by half", setting(follower_spread=0.5)),
    Check("stalled brokers fenced", setting(replica_lag_time_max_ms=6_000)),
)


def bases(config: FleetConfig, old: str) -> dict[str, FleetConfig]:
    """A fleet with bursts under an old version's rules and its own, and one without bursts."""
    return {
        "old": config.with_(version=old, name="old"),
        "new": config.with_(name="new"),
        "steady": config.with_(name="steady", load="steady"),
    }


def fleets(start: dict[str, FleetConfig], seeds: int) -> list[FleetConfig]:
    """Each base, once for each check and once for each further seed; runs are "base: check"."""
    made = []
    for name, base in start.items():
        made.append(base.with_(name=f"{name}: {BASE}"))
        made += [check.change(base).with_(name=f"{name}: {check.name}") for check in CHECKS]
        for seed in range(base.seed + 1, base.seed + seeds):
            made.append(base.with_(name=f"{name}: {SEED} {seed}", seed=seed))
    return made


def answers(alarms: pd.DataFrame, absences: pd.DataFrame, latency: pd.DataFrame) -> pd.DataFrame:
    """A row for each check (and seed), a column for each of `ANSWERS`, in units of the base.

    From `truth.alarms`, `churn.under_replicated` (of the new base) and `churn.commit_latency`, for
    the runs of `fleets`.
    """
    out_ms = absences.groupby("run")["under_replicated_ms"].sum()
    table = alarms.merge(latency, on="run", how="left").assign(
        under_replicated_per_hour=lambda t: t["run"].map(out_ms).fillna(0) / 1000 / t["minutes"]
    )
    parts = table["run"].str.split(": ", n=1, expand=True)
    table = table.assign(base=parts[0], check=parts[1])
    stretch = table["check"].map({check.name: check.stretch for check in CHECKS}).fillna(1)
    table["shrinks_per_hour"] *= stretch
    for name in ("p50_ms", "p99_ms"):
        table[name] /= stretch
    columns = {
        answer: table[table["base"] == base].set_index("check")[column].astype(float)
        for answer, (base, column, _) in ANSWERS.items()
    }
    return pd.DataFrame(columns).loc[list(dict.fromkeys(table["check"]))]


def sensitivity(found: pd.DataFrame) -> pd.DataFrame:
    """The change of each answer in percent of the base, a row for each check, seeds last.

    The rows `seeds, lowest` and `seeds, highest` are the range over the seeds, the base's own too.
    """
    percent = 100 * (found / found.loc[BASE] - 1)
    of_seed = percent[percent.index.str.startswith(SEED)]
    of_seed = pd.concat([percent.loc[[BASE]], of_seed])
    rows = percent.loc[[check.name for check in CHECKS]]
    ends = pd.DataFrame([of_seed.min(), of_seed.max()], index=ENDS)
    return pd.concat([rows, ends]).rename_axis("check")


def plot_sensitivity(
    percent: pd.DataFrame, names: dict[str, str], *, ax: Axes | None = None
) -> Axes:
    """The changes in percent: a row for each check, a mark for each answer; seeds as bars.

    `names` are what `{old}` and `{new}` stand for in the legend.
    """
    ax = ax or plt.subplots(figsize=(9.2, 5.2), layout="constrained")[1]
    rows = percent.drop(ENDS)
    places = np.arange(len(rows) + 1)[::-1]
    offsets = np.linspace(0.3, -0.3, len(ANSWERS))
    for (answer, (_, _, label)), colour, marker, lift in zip(
        ANSWERS.items(), COLOURS, MARKERS, offsets, strict=True
    ):
        low, high = percent.loc[ENDS, answer].to_numpy(float)
        ax.plot([low, high], [lift, lift], color=colour, linewidth=4, solid_capstyle="butt")
        text = plain(label.format(**names))
        ax.plot(
            rows[answer], places[:-1] + lift, ls="", marker=marker, ms=5, color=colour, label=text
        )
    for place in places[:-1] - 0.5:
        ax.axhline(place, color=PALE, linewidth=0.8, zorder=0)
    ax.axvline(0, color=INK, linewidth=1)
    ax.set_xscale("symlog", linthresh=10)
    most = float(np.nanmax(np.abs(percent.to_numpy(float))))
    ticks = [t for t in (-100, -30, -10, -3, 3, 10, 30, 100, 300, 1000) if -100 <= t <= 1.5 * most]
    ax.set_xlim(-130, max(30.0, 1.6 * float(np.nanmax(percent.to_numpy(float)))))
    ax.set_xticks([0, *ticks], ["0", *(f"{tick:+d}" for tick in ticks)])
    ax.set_yticks(places, [*(plain(name) for name in rows.index), "other seeds (range)"])
    ax.set_xlabel("change of the answer (%), linear within 10 %")
    ax.set_title(_sensitivity_title(percent), loc="left", fontsize=10)
    ax.legend(frameon=False, fontsize=8, ncols=3, loc="upper left", bbox_to_anchor=(0, -0.12))
    bare(ax, "left", "bottom")
    return ax


def _sensitivity_title(percent: pd.DataFrame) -> str:
    clock = percent.loc["clock ten times finer", ["old shrinks", "new shrinks"]].abs().max()
    seeds = percent.loc[ENDS, ["old shrinks", "new shrinks"]]
    return (
        f"A finer clock changes shrinks by {clock:.1f} % at the most, "
        f"another seed by up to {seeds.abs().to_numpy().max():.0f} %"
    )


def beyond(percent: pd.DataFrame) -> pd.DataFrame:
    """For each answer the range over seeds in percent, and which checks leave it, worst first.

    A wait that moves by no more than its class is wide (12.5 %) has not moved.
    """
    rows = []
    for answer, (_, column, _) in ANSWERS.items():
        low, high = percent.loc[ENDS, answer].to_numpy(float)
        slack = 100 / STEPS if column.endswith("_ms") else 0.0
        changes = zip(percent.index[:-2].astype(str), percent[answer][:-2], strict=True)
        out = [
            (abs(by), f"{name} {by:+.0f} %")
            for name, by in changes
            if not low - slack <= by <= high + slack
        ]
        names = ", ".join(text for _, text in sorted(out, reverse=True)) or "none"
        rows.append((answer, f"{low:+.0f} to {high:+.0f} %", names))
    return pd.DataFrame(rows, columns=["answer", "other seeds", "beyond them"])


def finding(percent: pd.DataFrame) -> str:
    """What the cut of time, records and bursts changes, what another seed, and what fencing."""
    counts = ["old shrinks", "new shrinks", "under-replicated"]
    median = float(percent["p50"]["clock ten times finer"])
    fenced = float(percent["under-replicated"]["stalled brokers fenced"])
    cut = percent.loc[list(CUTS), counts].abs().to_numpy().max()
    seeds = percent.loc[ENDS, counts].abs().to_numpy().max()
    return (
        f"How time, records and bursts are cut changes shrinks and time under-replicated by "
        f"{cut:.1f} % at the most, another seed by up to {seeds:.0f} %; a finer clock changes the "
        f"median wait by {median:+.0f} %, and fencing stalled brokers time under-replicated by "
        f"{fenced:+.0f} %."
    )


# What cells do not know of each other


def coincidences(config: FleetConfig) -> pd.DataFrame:
    """How often the bursts of so many leaders are being copied at once, in percent of the time.

    `follower_MB_per_s` is what a follower broker would then have to write, at the speed that each
    of its fetcher threads is given. The copying of a burst takes its length, or longer if a thread
    needs longer for its bytes; bursts that one leader has at the same time count as one.
    """
    replicas = assignment(config.partitions, config.brokers, config.replication_factor)
    burst_bytes = config.burst_records * config.record_bytes
    copy_ms = max(1000 * config.burst_s, 1000 * burst_bytes / config.follower_bytes_per_s)
    busy = np.zeros((config.brokers + 1, config.duration_ms // 100 + 1), dtype=bool)
    for partition, leader in enumerate(replicas[:, 0].tolist()):
        for start in load.burst_starts_ms(config, partition).tolist():
            busy[leader, int(start / 100) : int((start + copy_ms) / 100) + 1] = True
    at_once = busy.sum(axis=0)
    counts = np.bincount(at_once, minlength=2)
    rate = config.follower_bytes_per_s / 1e6
    return pd.DataFrame(
        {
            "leaders_at_once": np.arange(len(counts)),
            "percent_of_time": 100 * counts / counts.sum(),
            "follower_MB_per_s": np.arange(len(counts)) * rate,
        }
    )


def retry_bound(latency: pd.DataFrame, refused: pd.DataFrame, retry_ms: int) -> pd.DataFrame:
    """By how much a producer's pause between tries could lengthen the mean wait of each run.

    The model lets a refused produce in as soon as the ISR is large enough; a real one comes up to
    `retry_ms` later. From `churn.commit_latency` and `churn.refused_produce`, by run.
    """
    tries = refused[refused["error"] == "NOT_ENOUGH_REPLICAS"].set_index("run")["produces"]
    given_up = refused[refused["error"] == "DELIVERY_TIMEOUT"].set_index("run")["produces"]
    table = latency[["run", "count", "p50_ms"]].assign(
        held=lambda t: t["run"].map(tries).fillna(0) - t["run"].map(given_up).fillna(0)
    )
    return table.assign(mean_longer_by_ms=table["held"] / table["count"] * retry_ms)


# Loads


def plot_loads(configs: Iterable[FleetConfig], *, ax: Axes | None = None) -> Axes:
    """Records of a whole fleet per second, by time: a line for each fleet, in 120 steps."""
    ax = ax or plt.subplots(figsize=(8.0, 3.0), layout="constrained")[1]
    said = []
    for config, colour in zip(configs, COLOURS[1:], strict=False):
        step_ms = config.duration_ms / 120
        drawn = load.arrivals(config, np.arange(config.partitions))
        sums = np.bincount(
            (drawn.ts_ms / step_ms).astype(int), weights=drawn.records, minlength=120
        )
        hours = (np.arange(120) + 0.5) * step_ms / 3_600_000
        ax.plot(hours, sums * 1000 / step_ms, color=colour, label=plain(config.run))
        said.append(f"{plain(config.run)} {sums.max() / sums.mean():.1f}")
    ax.set_ylim(0, None)
    ax.set_xlabel("time from the start (hours)")
    ax.set_ylabel("records/s")
    ax.set_title(f"Busiest time against the mean: {', '.join(said)}", loc="left", fontsize=10)
    ax.legend(frameon=False, fontsize=8, loc="upper left")
    bare(ax, "left", "bottom")
    return ax


def of_seeds(found: pd.DataFrame) -> pd.DataFrame:
    """The rows of the base and of its other seeds, as `churn.bands` takes them: `fleet` is one."""
    is_seed = [name == BASE or name.startswith(SEED) for name in found.index]
    return found[is_seed].assign(fleet="base")
