"""The fleet's model: its settings, one cell, and how far its simplifications can mislead.

A *base* is a fleet; a *check* changes something that should not matter, or that the model had to
choose, or leaves out. Its result is the change of each answer in percent. Seeds give the yardstick:
a change within their scatter says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, fields
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes

from isrlab import fleet
from isrlab.engine.messages import ExpireIsr
from isrlab.engine.versions import GENERATIONS
from isrlab.events import exact
from isrlab.fleet import cell, load
from isrlab.fleet.config import LOADS, TRACE, FleetConfig
from isrlab.fleet.kernel.rows import bucket_starts
from isrlab.fleet.kernel.state import STEPS
from isrlab.fleet.layout import assignment
from isrlab.fleet.sums import quantile
from isrlab.installed import DATA
from isrlab.show.curves import Curve, Scale, plot_curves
from isrlab.show.matrix import plot_matrix
from isrlab.show.messages import Arrow, plot_arrows
from isrlab.show.style import OUTCOMES, PALE, listed
from isrlab.world import faults
from isrlab.world.cluster import START_MS, Cluster
from isrlab.world.script import Run

ANSWERS = {  # of which base, column, what it is
    "old shrinks": ("old", "shrinks_per_hour", "shrinks per hour, {old}"),
    "new shrinks": ("new", "shrinks_per_hour", "shrinks per hour, {new}"),
    "under-replicated": ("new", "under_replicated_per_hour", "minutes under-replicated per hour"),
    "p50": ("steady", "p50_ms", "median wait, ms, no bursts"),
    "p99": ("steady", "p99_ms", "99 % wait, ms, no bursts"),
    "p50 bursts": ("new", "p50_ms", "median wait, ms, bursts"),
}
BASE, SEED = "base", "seed"
COUNTS = ["old shrinks", "new shrinks", "under-replicated"]
ENDS = ["seeds, lowest", "seeds, highest"]
LEADER = 1


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


def as_trace(config: FleetConfig) -> FleetConfig:
    """The same load, written to a file and read back; it begins at its first batch."""
    return config.with_(trace_file=str(fleet.write_trace(config)), load=TRACE)


CHECKS = (
    Check("time step a tenth as long", finer, 10),
    Check("records a tenth the size", smaller),
    Check("load read from a trace", as_trace),
    Check("bursts in one batch", partial(FleetConfig.with_, burst_s=0.0)),
    Check("messages 1 ms, not 2", partial(FleetConfig.with_, fetch_latency_ms=1)),
    Check("messages 4 ms, not 2", partial(FleetConfig.with_, fetch_latency_ms=4)),
    Check("controller 100 ms, not 10", partial(FleetConfig.with_, isr_commit_ms=100)),
    Check("followers all alike", partial(FleetConfig.with_, follower_spread=0.0)),
    Check("followers differ by half", partial(FleetConfig.with_, follower_spread=0.5)),
    Check("stalled brokers fenced", partial(FleetConfig.with_, replica_lag_time_max_ms=6_000)),
)
CUTS = [CHECKS[0].name, CHECKS[1].name, CHECKS[3].name]  # of time, records and bursts


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


def plot_cell(config: FleetConfig) -> Axes:
    """A round of every fetcher thread (of at most four) that reads from one leader."""
    wired = cell.cell(config.with_(load="steady", trace_file=""), LEADER)
    lanes = {LEADER: f"broker {LEADER} leads {len(wired.partitions):,} partitions"}
    arrows, ms = [], f"{config.fetch_latency_ms} ms"
    answer = f"answer: {ms}, or parked up to {config.replica_fetch_wait_max_ms} ms"
    for thread, broker in enumerate(wired.thread_brokers[:4]):
        reads = int((wired.thread_of == thread).sum())
        rate = load.follower_bytes_per_s(config, broker) / 1e6
        lanes[broker] = f"broker {broker} writes {rate:.1f} MB/s"
        fetch = Arrow(broker, LEADER, f"a thread fetches {reads:,} partitions: {ms}")
        arrows += [fetch, Arrow(LEADER, broker, answer)]
    title = (
        f"One of {len(cell.leaders(config))} cells: {len(wired.thread_brokers)} threads read from "
        f"broker {LEADER}, which checks the ISR every {config.isr_check_period_ms / 1000:g} s "
        f"(limit {config.lag_time_ms / 1000:g} s)"
    )
    return plot_arrows(arrows, title, lanes=lanes)


def compared(config: FleetConfig) -> pd.DataFrame:
    """Engine and fleet with the same batches, stalls and checks; a row for each answer.

    One partition on three brokers, whose followers write as fast as may be: that takes the engine
    no time, and the fleet the least that it counts, 1 ms. The leader epoch that a shrink raises in
    KRaft from 3.3 to 3.5 is left out.
    """
    config = config.with_(
        partitions=1, brokers=3, replication_factor=3, load="steady", follower_spread=0.0,
        follower_bytes_per_s=10**12, isr_commit_ms=2 * config.fetch_latency_ms,
    )  # fmt: skip
    events = {"engine": _play(config), "fleet": fleet.simulate_local(config)}
    columns = {model: _answers(table) for model, table in events.items()}
    return pd.DataFrame(columns).rename_axis("answer").reset_index()


def _answers(events: pa.Table) -> dict[str, int]:
    """What the leader of one partition knew: produces, changes of its ISR, classes of waits."""
    own, starts = events.filter(pc.equal(events["broker"], LEADER)), bucket_starts()
    waits = exact.waits(own)
    classes = np.searchsorted(starts, [wait.latency_ms for wait in waits], side="right") - 1
    counts = [wait.produces for wait in waits]
    histogram = pd.DataFrame({"latency_ms": starts[classes], "count": counts})
    rows = {"produces acknowledged": sum(counts)}
    for number, move in enumerate(exact.moves(own), 1):
        what = f"broker {move.replica} {'joins' if move.joined else 'leaves'}"
        rows[f"ISR change {number}: {what}, ms"] = move.ts_ms
    shares = {f"{share:.0%} wait at most: class of ms": share for share in (0.5, 0.9, 1.0)}
    return rows | {name: quantile(histogram, share) for name, share in shares.items()}


def _play(config: FleetConfig) -> pa.Table:
    """The events of the engine under a fleet's load, ms from the fleet's start."""
    cluster = Cluster(
        config.kafka.with_(epoch_bump_on_isr_shrink=False), (LEADER, 2, 3),
        latency_ms=config.fetch_latency_ms, replica_lag_time_max_ms=config.lag_time_ms,
        replica_socket_timeout_ms=10**9,
    )  # fmt: skip
    first_ms = START_MS + config.fetch_latency_ms
    tick_ms = min(e.due_ms for e in cluster.queue if isinstance(e.message, ExpireIsr))
    tick_ms -= first_ms + load.first_tick_ms(config, LEADER)
    zero_ms = first_ms + tick_ms % config.isr_check_period_ms  # both check at the same moments
    times = load.arrivals(config, np.arange(1)).ts_ms.tolist()
    acts: list[tuple[int, Callable[[], object]]] = [
        (ms, partial(cluster.produce, LEADER, (f"m{nth}",))) for nth, ms in enumerate(times)
    ]
    for follower in (2, 3):
        stop = partial(faults.pause, cluster, follower, "fetcher")
        starts, ends = (part.tolist() for part in load.stalls(config, follower))
        acts += [(ms, stop) for ms in starts]
        acts += [(ms, partial(faults.resume, cluster, follower)) for ms in ends]
    for ms, act in sorted(acts, key=itemgetter(0)):
        if ms < config.duration_ms:
            cluster.advance(zero_ms + ms - cluster.now_ms)
            act()
    cluster.advance(zero_ms + config.duration_ms - cluster.now_ms)
    events = Run([], world=cluster).events()
    place = events.schema.get_field_index("ts_ms")
    return events.set_column(place, "ts_ms", pc.subtract(events["ts_ms"], zero_ms))


def coincidences(configs: Iterable[FleetConfig]) -> pd.DataFrame:
    """How often the bursts of so many leaders are being copied at once, in percent of the time.

    `follower_MB_per_s` is what a follower broker would then have to write, at the speed of each of
    its threads. Copying a burst takes its length, or longer if a thread needs longer for its bytes;
    bursts that one leader has at the same time count as one.
    """
    tables = []
    for config in configs:
        counts = np.bincount(_copying(config).sum(axis=0), minlength=2)
        table = pd.DataFrame({"bursts": config.load, "leaders_at_once": np.arange(len(counts))})
        table["percent_of_time"] = 100 * counts / counts.sum()
        rate = config.follower_bytes_per_s / 1e6
        tables.append(table.assign(follower_MB_per_s=table["leaders_at_once"] * rate))
    return pd.concat(tables, ignore_index=True)


def _copying(config: FleetConfig) -> np.ndarray:
    """bool[leader, tenth of a second]: whether a burst of a leader is being copied."""
    replicas = assignment(config)
    write_s = config.burst_records * config.record_bytes / config.follower_bytes_per_s
    copy_ms = 1000 * max(config.burst_s, write_s)
    busy = np.zeros((config.brokers + 1, config.duration_ms // 100 + 1), dtype=bool)
    for partition, leader in enumerate(replicas[:, 0].tolist()):
        for start in load.burst_starts_ms(config, partition).tolist():
            busy[leader, int(start / 100) : int((start + copy_ms) / 100) + 1] = True
    return busy


def day() -> pd.DataFrame:
    """What leaders of a large fleet did in each hour of a day; the README beside it says which."""
    return pd.read_csv(DATA / "fleet_day" / "hours.csv")


def plot_day(hours: pd.DataFrame) -> Axes:
    """Waits with acks=all in each hour of a `day`."""
    waits = {"half": "p50_ms", "1 in 100": "p99_ms", "1 in 1,000": "p99.9_ms"}
    curves = {name: Curve(hours["hour"], hours[column]) for name, column in waits.items()}
    low, high = hours["p99_ms"].min(), hours["p99_ms"].max()
    title = f"1 produce in 100 waits {low:,} ms at night and {high:,} ms by day"
    scales = Scale("hour of the day", ticks=range(0, 25, 6)), Scale("longer than (ms)", "log")
    return plot_curves(curves, title, scales)


def retry_bound(latency: pd.DataFrame, refused: pd.DataFrame, retry_ms: int) -> pd.DataFrame:
    """By how much a producer's pause between retries could lengthen the mean wait of each run.

    The model lets a refused produce in as soon as the ISR is large enough; a real one comes up to
    `retry_ms` later. From `churn.commit_latency` and `churn.refused_produce`, by run.
    """
    errors = refused.pivot(index="run", columns="error", values="produces")
    errors = errors.reindex(latency["run"], columns=["NOT_ENOUGH_REPLICAS", "DELIVERY_TIMEOUT"])
    tries, given_up = errors.fillna(0).to_numpy(float).T
    result = latency[["run", "count", "p50_ms"]].assign(held=tries - given_up)
    return result.assign(mean_longer_by_ms=result["held"] / result["count"] * retry_ms)
