"""A slow leader beside a slow follower: who evicts whom, what it costs, and what would help.

Tables come as pandas, from `isrlab.churn.blame` and `isrlab.churn`; the small fleet under the
controls is simulated here. Its seed gives one trouble at about one minute, to broker 3, whichever
of the two roles is in trouble.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import ipywidgets as widgets
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isrlab import brokerlogs, fleet
from isrlab.fleet import load
from isrlab.fleet.config import FleetConfig
from isrlab.show.controls import choice, png, redrawn
from isrlab.show.style import INK, bare
from isrlab.workbook.claims import recorded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROLES = {"leader": "leader_stall_s", "follower": "stall_s"}
NAMES = {"leader": "slow leader", "follower": "slow follower"}
COLOURS = {"slow leader": "#D55E00", "slow follower": "#0072B2"}
SIZES = ("#D55E00", "#E69F00", "#F3D9A4")  # ISR of one, of two, of more
SIZE = (9.8, 3.4)  # inches, of a small fleet
LENGTHS_S = (5, 10, 20, 25, 30, 35, 40, 45, 60, 90, 120)
LIMITS_S = (5, 10, 20, 30, 45, 60, 90)
ERRORS = {
    "refused": ("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
    "timed_out": ("REQUEST_TIMED_OUT", "DELIVERY_TIMEOUT"),
}
SMALL = FleetConfig(
    version="3.7", partitions=30, brokers=6, minutes=4, load="steady", records_per_s=20,
    min_insync_replicas=2, stall_s=0, stall_every_s=7_200, leader_stall_every_s=7_200, seed=352,
)  # fmt: skip


def in_trouble(config: FleetConfig, role: str, length_s: float, every_s: float) -> FleetConfig:
    """The fleet with brokers that stand still for `length_s` every `every_s`, in one role.

    Raises ValueError for another role than "leader" and "follower".
    """
    if role not in ROLES:
        raise ValueError(f"unknown role {role!r}; known: {', '.join(ROLES)}")
    every = ROLES[role].replace("stall_s", "stall_every_s")
    calm = dict.fromkeys(ROLES.values(), 0.0)
    changes = calm | {ROLES[role]: float(length_s), every: float(every_s)}
    return config.with_(**changes, name=NAMES[role])


def under_limits(config: FleetConfig, limits_s: Sequence[float]) -> list[FleetConfig]:
    """The fleet once for each `replica.lag.time.max.ms`, in seconds."""
    return [
        config.with_(replica_lag_time_max_ms=round(s * 1000), name=f"{config.run} limit={s:g}s")
        for s in limits_s
    ]


def stopped(spark: SparkSession) -> DataFrame:
    """Who was paused or killed in the recordings: as `truth.troubles`, in every role at once."""
    rows = [
        (run, f"{role} {one.broker}", one.broker, one.start_ms, one.end_ms)
        for kafka, run in recorded.KAFKA.items()
        for one in recorded.absences(kafka)
        for role in ("leader", "follower", "broker")
    ]
    return spark.createDataFrame(
        rows, "run string, cause string, broker int, from_ms long, to_ms long"
    )


def recorded_events(spark: SparkSession) -> DataFrame:
    """The events of both recordings, as runs "kafka-3.9" and "kafka-4.1"."""
    several = [
        brokerlogs.read(spark, recorded.RECORDINGS / run).events for run in recorded.KAFKA.values()
    ]
    return several[0].unionByName(several[1])


def verdict_counts(judged: pd.DataFrame) -> pd.DataFrame:
    """Incidents of each run: verdicts that are right, wrong or unclear, and those with no cause."""
    unclear = judged["verdict"] == "unclear"
    fate = np.select([judged["is_right"].astype(bool), unclear], ["right", "unclear"], "wrong")
    table = pd.crosstab(judged["run"], fate)
    return table.reindex(columns=["right", "unclear", "wrong"], fill_value=0)


def spared_counts(evictions: pd.DataFrame) -> pd.DataFrame:
    """Of `truth.spared`, for each run: evictions, those spared, those right after a stall."""
    of_run = evictions.groupby("run")
    counts = {
        "evictions": of_run.size(),
        "spared": of_run["is_spared"].sum(),
        "right after the stall": of_run["is_after"].sum(),
    }
    return pd.DataFrame(counts)


def costs(
    configs: Sequence[FleetConfig], refused: pd.DataFrame, under: pd.DataFrame, pairs: pd.DataFrame
) -> pd.DataFrame:
    """One row for each run, for each trouble on average: what producers and operators suffer.

    `refused` from `churn.refused_produce`, `under` from `churn.under_min_isr`, `pairs` from
    `churn.evictions_by_pair`. Minutes are partition-minutes.
    """
    rows = []
    for one in configs:
        errors = refused[refused["run"] == one.run].groupby("error")["produces"].sum()
        minutes = under.loc[under["run"] == one.run, "under_min_isr_ms"].sum() / 60_000
        evictions = pairs.loc[pairs["run"] == one.run, "evictions"].sum()
        count = troubles_of(one)
        sums = [evictions, minutes, *(sum(errors.get(e, 0) for e in k) for k in ERRORS.values())]
        rows.append((one.run, one.lag_time_ms / 1000, count, *(s / max(1, count) for s in sums)))
    names = ["evictions", "under_min_isr_minutes", *ERRORS]
    return pd.DataFrame(rows, columns=["run", "lag_limit_s", "troubles", *names])


def troubles_of(config: FleetConfig) -> int:
    """How many stalls a fleet has, of leaders and followers."""
    return sum(
        len(stalls(config, broker)[0])
        for stalls in (load.stalls, load.leader_stalls)
        for broker in range(1, config.brokers + 1)
    )


def by_broker(
    config: FleetConfig, pairs: pd.DataFrame, under: pd.DataFrame, acks: pd.DataFrame
) -> pd.DataFrame:
    """What each broker of one run shows: shrinks as leader, evictions, under-replication, latency.

    `under` from `churn.under_replicated_by_leader`, `acks` from
    `churn.commit_latency`.
    """
    own = [table[table["run"] == config.run] for table in (pairs, under, acks)]
    columns = {
        "evicts": own[0].groupby("leader")["evictions"].sum(),
        "is evicted": own[0].groupby("replica")["evictions"].sum(),
        "under-replicated (s)": own[1].set_index("leader")["under_replicated_ms"] / 1000,
        "p99 of produces (s)": own[2].set_index("broker")["p99_ms"] / 1000,
    }
    table = pd.DataFrame(columns, index=range(1, config.brokers + 1)).fillna(0)
    return table.rename_axis("broker").round(1).astype({"evicts": int, "is evicted": int})


def pairs_of(events: pa.Table) -> pd.DataFrame:
    """As `churn.evictions_by_pair`, of the events of `fleet.simulate_local`."""
    rows = [
        (row["run"], row["broker"], replica)
        for row in events.select(["run", "broker", "kind", "isr", "isr_before"]).to_pylist()
        if row["kind"] == "isr_shrink"
        for replica in set(row["isr_before"]) - set(row["isr"])
    ]
    table = pd.DataFrame(rows, columns=["run", "leader", "replica"])
    return table.groupby(["run", "leader", "replica"]).size().rename("evictions").reset_index()


def plot_pairs(pairs: pd.DataFrame, brokers: int, *, ax: Axes | None = None) -> Axes:
    """Leaders as rows, replicas as columns: how often that leader evicted that replica."""
    ax = ax or _axes(4.4, 3.6)
    counts = np.zeros((brokers, brokers))
    places = tuple(pairs[side].to_numpy(int) - 1 for side in ("leader", "replica"))
    np.add.at(counts, places, pairs["evictions"].to_numpy(float))
    ax.imshow(counts, cmap="Oranges", vmin=0, vmax=1.6 * max(1, counts.max()))
    for leader, replica in np.argwhere(np.eye(brokers) == 0):
        count = int(counts[leader, replica])
        ax.text(replica, leader, f"{count:,}" if count else "·", ha="center", va="center",
                fontsize=9 if brokers <= 8 else 6, color=INK)  # fmt: skip
    ticks = range(0, brokers, max(1, brokers // 12))
    ax.set_xticks(ticks, [str(t + 1) for t in ticks])
    ax.set_yticks(ticks, [str(t + 1) for t in ticks])
    ax.set_xlabel("evicted replica on broker")
    ax.set_ylabel("by leader on broker")
    ax.set_title(_pairs_title(counts), loc="left", fontsize=10)
    bare(ax)
    ax.tick_params(length=0, labelsize=8)
    return ax


def _pairs_title(counts: np.ndarray) -> str:
    total = int(counts.sum())
    if not total:
        return "Nobody is evicted"
    rows, columns = (int((counts.sum(axis=axis) > 0).sum()) for axis in (1, 0))
    return f"{total:,} evictions: by {_count(rows, 'leader')}, of {_count(columns, 'replica')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def plot_isr_sizes(events: pa.Table, config: FleetConfig, *, ax: Axes | None = None) -> Axes:
    """How many partitions lack replicas in their ISR, over time; black: a broker is away."""
    ax = ax or _axes(6.4, 3.0)
    times, sizes = isr_sizes(events, config)
    short = sizes[:, :-1]
    labels = ["leader alone", *[f"{size} in the ISR" for size in range(2, short.shape[1] + 1)]]
    ax.stackplot(times / 1000, short.T, colors=SIZES, labels=labels, step="post")
    top = max(5.0, 1.45 * float(short.sum(axis=1).max()))
    for away in (load.stalls, load.leader_stalls, load.restarts):
        for broker in range(1, config.brokers + 1):
            for start, end in zip(*away(config, broker), strict=True):
                ax.plot([start / 1000, end / 1000], [0.92 * top] * 2, color=INK, linewidth=5)
                ax.annotate(f"{broker}", ((start + end) / 2000, 0.92 * top), (0, 4),
                            textcoords="offset points", ha="center", fontsize=8)  # fmt: skip
    ax.set_xlim(0, config.duration_ms / 1000)
    ax.set_ylim(0, top)
    ax.set_xlabel("time (s); bar above: that broker is away")
    ax.set_ylabel("partitions with a short ISR")
    ax.set_title(_sizes_title(times, sizes, config), loc="left", fontsize=10)
    ax.legend(frameon=False, fontsize=8, loc="upper right", bbox_to_anchor=(1, 0.9), ncols=2)
    bare(ax, "left", "bottom")
    return ax


def isr_sizes(events: pa.Table, config: FleetConfig) -> tuple[np.ndarray, np.ndarray]:
    """Times (ms) of ISR changes, and the number of partitions for each ISR size from then on."""
    counts = np.zeros(config.replication_factor, np.int64)
    counts[-1] = config.partitions
    times, rows = [0], [counts.copy()]
    for row in events.select(["ts_ms", "kind", "isr", "isr_before"]).to_pylist():
        if row["kind"] == "isr_commit":
            counts[len(row["isr_before"]) - 1] -= 1
            counts[len(row["isr"]) - 1] += 1
            times.append(row["ts_ms"])
            rows.append(counts.copy())
    return np.array([*times, config.duration_ms]), np.array([*rows, counts])


def _sizes_title(times: np.ndarray, sizes: np.ndarray, config: FleetConfig) -> str:
    short = sizes[:, : config.min_isr(config.replication_factor) - 1].sum(axis=1)
    minutes = float((short[:-1] * np.diff(times)).sum()) / 60_000
    out = config.partitions - int(sizes[:, -1].min())
    refuse = f"{minutes:.1f} partition-minutes under min ISR"
    return f"{out} of {config.partitions} partitions under-replicated; {refuse}"


def plot_trouble(config: FleetConfig = SMALL, *, figure: Figure | None = None) -> Figure:
    """A small fleet: who evicts whom, and the sizes of all ISRs over time."""
    figure = figure or plt.figure(figsize=SIZE)
    # margins by hand: a layout costs 80 ms
    grid = {"left": 0.06, "right": 0.985, "top": 0.88, "bottom": 0.15, "wspace": 0.22}
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.9], gridspec_kw=grid)
    events = fleet.simulate_local(config)
    plot_pairs(pairs_of(events), config.brokers, ax=left)
    plot_isr_sizes(events, config, ax=right)
    return figure


def trouble_controls(config: FleetConfig = SMALL) -> widgets.VBox:
    """Who stands still, for how long, and under which lag limit; and the picture of it."""
    role = widgets.Dropdown(
        options=[("a leader's reads", "leader"), ("a follower's fetchers", "follower")],
        description="what stands still",
        style={"description_width": "160px"},
        layout=widgets.Layout(width="560px"),
    )
    length, limit = choice("for (s)", LENGTHS_S, 45), choice("lag limit (s)", LIMITS_S, 30)
    return redrawn(
        (role, length, limit),
        lambda: trouble_png(config, role.value, length.value, limit.value),
    )


def trouble_png(config: FleetConfig, role: str, length_s: float, limit_s: float) -> bytes:
    """The picture of `plot_trouble` as PNG."""
    moved = in_trouble(config, role, length_s, config.stall_every_s)
    limited = moved.with_(replica_lag_time_max_ms=round(limit_s * 1000))
    return png(plot_trouble(limited, figure=Figure(figsize=SIZE, dpi=80)))


def plot_limits(
    several: dict[str, pd.DataFrame], length_s: float, *, ax: Axes | None = None
) -> Axes:
    """Produces that failed in each trouble, by lag limit: refused, and timed out."""
    ax = ax or _axes(7.2, 3.4)
    said = []
    for name, table in several.items():
        x, y = table["lag_limit_s"], table["timed_out"]
        ax.plot(x, y, color=COLOURS[name], marker="o", markersize=5, label=f"{name}: timed out")
        ax.plot(
            x, table["refused"], color=COLOURS[name], marker="s", markersize=4, linestyle="--",
            label=f"{name}: refused",
        )  # fmt: skip
        said.append(f"{name} {y.iloc[0]:,.0f} → {y.iloc[-1]:,.0f}")
    ax.axvline(length_s, color=INK, linewidth=0.8, linestyle=":")
    ax.text(length_s, 0.98, f" length of a stall, {length_s:g} s", fontsize=8, va="top",
            transform=ax.get_xaxis_transform())  # fmt: skip
    ax.set_ylim(bottom=0)
    ax.set_xlabel("replica.lag.time.max.ms (s)")
    ax.set_ylabel("produces (batches) per trouble")
    ax.set_title(f"Timed out, shortest to longest limit: {'; '.join(said)}", loc="left", fontsize=9)
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0, -0.2), ncols=2)
    bare(ax, "left", "bottom")
    return ax


def finding(several: dict[str, pd.DataFrame], limit_s: float, verdicts: pd.DataFrame) -> str:
    """What a trouble costs in both fleets, and how many verdicts were right, in one sentence."""
    said = []
    for name, table in several.items():
        row = table[table["lag_limit_s"] == limit_s].iloc[0]
        said.append(
            f"{name}: {row['evictions']:.1f} evictions, {row['under_min_isr_minutes']:.1f} "
            f"partition-minutes under min ISR, {row['refused']:,.0f} produces refused, "
            f"{row['timed_out']:,.0f} timed out"
        )
    right, total = int(verdicts["right"].sum()), int(verdicts.to_numpy().sum())
    return (
        f"For each trouble, limit {limit_s:g} s, {'; '.join(said)}; "
        f"{right} of {total} incidents blamed on the right broker in the right role, "
        f"{int(verdicts['wrong'].sum())} on a wrong one."
    )


def _axes(width: float, height: float) -> Axes:
    return plt.subplots(figsize=(width, height), layout="constrained")[1]
