"""Choosing the lag limit: one stall under a limit, and the cost of each limit for a fleet.

`bands` is the result of `churn.bands` for `costs`: a row for each limit and metric.
"""

from collections.abc import Sequence

import ipywidgets as widgets
import pandas as pd
from matplotlib.axes import Axes
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isrlab import fleet
from isrlab.churn.history import columns
from isrlab.engine import rules
from isrlab.engine.versions import KafkaVersion
from isrlab.events import exact
from isrlab.fleet import load, truth
from isrlab.fleet.config import FleetConfig
from isrlab.show.bands import Span, shade
from isrlab.show.controls import LiveFigure, Number, pictured
from isrlab.show.curves import Curve, Scale, plot_curves
from isrlab.show.offsets import Offsets, isr_of, plot_offsets
from isrlab.show.player import PlayerImage
from isrlab.show.style import INK, STATES, axes, mark
from isrlab.world import scenario

COSTS = {  # columns of `costs`: colour and marker, what it is
    "stalled_minutes": ((STATES["waits"], "s"), "nothing new is committed: acks=all and consumers"),
    "under_replicated_minutes": ((STATES["out"], "o"), "acks=all: acknowledged with a copy fewer"),
    "at_risk_minutes": ((INK, "D"), "acks=1: acknowledged with a copy fewer"),
}
EVICTIONS = {
    "false_evictions": ((STATES["false alarm"], "s"), "false"),
    "right_evictions": ((STATES["real"], "o"), "right: in a long stall"),
}
DEFAULTS_S = {10.0: "default to 2.4", 30.0: "since 2.5"}
PAIR = FleetConfig(
    version="3.7", partitions=2, brokers=2, replication_factor=2, minutes=8,
    load="steady", records_per_s=20, stall_s=20, stall_every_s=60,
)  # fmt: skip
MINUTES = "partition-minutes per hour"
STOPS = """
partition replicas=1,2,3 replica.lag.time.max.ms={limit_s}s
produce 1 m1
stabilize
advance {phase_ms}ms
pause 2 {what}
produce 1 m2
advance {wait_s}s
"""
PHASES = 6  # moments of a stop, spread over the time between two checks of the ISR
SUCCESSION = """
partition replicas=1,2,3 replica.lag.time.max.ms={limit_s}s
produce 1 m1 acks=1
stabilize
pause 2 fetcher
produce 1 m2 acks=1
advance {stalled_s}s
produce 1 m3 acks=1
advance 1s
kill 1
resume 2
elect
advance 10s
stabilize
"""


def plot_stall(config: FleetConfig = PAIR) -> Axes:
    """A stall of the only follower: when it is evicted, and for how long nothing is committed."""
    stalls = [(a, b) for a, b in zip(*load.stalls(config, 2), strict=True) if a > 2_000]
    start, end = map(int, stalls[0] if stalls else (5_000, 5_000))
    trace = fleet.trace(config, 0, sample_ms=100).around(start, 5_000, end - start + 10_000)
    first, last = int(trace.ts_ms[0]), int(trace.ts_ms[-1])
    absences = exact.absences(fleet.simulate_local(config), end_ms=last)
    away = [(a.start_ms, a.end_ms or last) for a in absences if a.key.partition == 0]
    away = [(left, back) for left, back in away if back > first]
    evicted_ms = min([end, *[left for left, _ in away if left >= start]])
    spans = [Span(start / 1000, evicted_ms / 1000, "waits", "stalled, counted in the ISR")]
    spans += [Span(left / 1000, back / 1000, "out", "out of the ISR") for left, back in away]
    out_s = sum(back - left for left, back in away) / 1000
    then = f", then the follower is out for {out_s:.0f} s" if away else "; no follower is evicted"
    title = f"Limit {config.lag_time_ms / 1000:g} s, stall {config.stall_s:g} s: nothing is "
    title += f"committed for {(evicted_ms - start) / 1000:.0f} s{then}"
    data = Offsets(
        trace.ts_ms / 1000, trace.leader, trace.log_end_offset, trace.high_watermark,
        trace.followers,
    )  # fmt: skip
    return plot_offsets(data, title, ax=shade(axes(9.5, 3.6), spans))


def stall_controls(config: FleetConfig = PAIR) -> widgets.VBox:
    """Numbers for the lag limit and the length of a stall, and the picture they make."""
    limit = Number("lag limit (s)", (5, 10, 20), value=config.lag_time_ms / 1_000, min=1, max=600)
    length = Number("stall (s)", (4, 8, 12, 40, 60), value=config.stall_s, min=1, max=120)

    def draw(limit_s: float, stall_s: float) -> PlayerImage:
        chosen = config.with_(replica_lag_time_max_ms=round(1_000 * limit_s), stall_s=stall_s)
        caption = f"{limit_s:g} s sits out stalls shorter than that, and makes producers and "
        return pictured(plot_stall(chosen), f"{caption}consumers wait up to {1.5 * limit_s:g} s")

    return LiveFigure((limit, length), draw)


def plot_removals(version: str, limits_s: Sequence[float]) -> Axes:
    """The longest stay in the ISR of a follower whose fetcher, or whose whole process, stops.

    The stop falls on `PHASES` moments between two checks of the ISR; the longest stay is drawn.
    """
    session_s = KafkaVersion.of(version).session_timeout_ms / 1000
    names = {"only its fetcher stops": "fetcher", "the whole process stops": ""}
    x, y = sorted(limits_s), "longest time until it leaves the ISR (s)"
    stays = {name: [_stays_s(version, s, what) for s in x] for name, what in names.items()}
    near = min(range(len(x)), key=lambda place: abs(x[place] - 30))
    title = f"Limit {x[near]:g} s: a stopped fetcher stays in the ISR for up to "
    title += " s, a stopped process up to ".join(f"{stays[name][near]:.3g}" for name in names)
    curves = {name: Curve(x, times) for name, times in stays.items()}
    limits = {session_s: f"session timeout, {session_s:g} s"}
    return plot_curves(curves, f"{title} s", (_limits_axis(x), Scale(y)), limits=limits)


def _stays_s(version: str, limit_s: float, what: str) -> float:
    """Seconds from the stop of broker 2 until the ISR shrinks, the longest of all phases."""
    checks = KafkaVersion.of(version).isr_checks_per_lag_time
    period_ms = rules.isr_check_period_ms(round(limit_s * 1000), checks)
    stays = []
    for phase in range(PHASES):
        phase_ms = round(phase * period_ms / PHASES)
        wait = {"wait_s": 2 * limit_s + 30, "phase_ms": phase_ms}
        run = scenario.play(STOPS.format(limit_s=limit_s, what=what, **wait), version=version)
        stays.append(isr_of(run)[0].end_ms - phase_ms)
    return max(stays) / 1000


def successors(version: str, limits_s: Sequence[float], stalled_s: float = 46) -> list[dict]:
    """After broker 2's fetcher has stalled for `stalled_s`, m3 is written with acks=1, broker 3
    copies it, and the leader dies: the new leader and the fate of m3, for each lag limit."""
    rows = []
    for limit_s in sorted(limits_s):
        text = SUCCESSION.format(limit_s=limit_s, stalled_s=stalled_s)
        cluster = scenario.play(text, version=version).cluster
        leader = cluster.controller.leader
        records = {record.id for record in cluster.disks[leader].records}
        outcome = "kept" if "m3" in records else "lost"
        rows.append({"lag limit (s)": limit_s, "new leader": leader, "m3 (acks=1)": outcome})
    return rows


def fleets(
    config: FleetConfig,
    limits_s: list[float],
    stalls_s: list[float],
    *,
    still_share: float,
    seeds: int,
) -> list[FleetConfig]:
    """A fleet for each lag limit (s), length of stall (s) and seed, from `config.seed` on.

    Each length of stall takes up `still_share` of a broker's time, and comes with its share of the
    bursts, so that the costs of all fleets of one limit and seed can be added up.
    """
    return [
        config.with_(
            name=f"{config.run} limit={limit_s} stall={stall_s} seed={seed}",
            seed=seed,
            replica_lag_time_max_ms=round(limit_s * 1000),
            stall_s=stall_s,
            stall_every_s=stall_s * (1 / still_share - 1),
            burst_every_s=config.burst_every_s * len(stalls_s),
        )
        for limit_s in limits_s
        for stall_s in stalls_s
        for seed in range(config.seed, config.seed + seeds)
    ]


def costs(runs: DataFrame, evictions: DataFrame, risk: DataFrame) -> DataFrame:
    """One row for each lag limit and seed, all lengths of stall added up, everything per hour.

    `runs` is from `fleet.runs`, `evictions` from `truth.judged_evictions`, `risk` from
    `truth.time_at_risk`.
    The minutes are partition-minutes.
    """
    counts = columns(
        "count_if(is_false) as false_evictions", "count_if(not is_false) as right_evictions"
    )
    times = ("at_risk", "under_replicated", "stalled")
    minutes = columns(*(f"sum({name}_ms) / 60000 as {name}_minutes" for name in times))
    judged = evictions.groupBy("run").agg(*counts)
    risks = risk.groupBy("run").agg(*minutes)
    names = [*judged.columns[1:], *risks.columns[1:]]
    return (
        truth.with_counts(runs, judged, risks)
        .groupBy(F.expr("lag_time_ms / 1000 as lag_limit_s"), "seed")
        .agg(*columns(*(f"sum({name} / (minutes / 60)) as {name}" for name in names)))
        .orderBy("lag_limit_s", "seed")
        .select("lag_limit_s", "seed", *names)
    )


def plot_false_evictions(bands: pd.DataFrame) -> Axes:
    """False and right evictions per hour against the lag limit, with their bands."""
    false = _metric(bands, "false_evictions")["mean"]
    noisy = max(false.index[false >= 1], default=0)
    calm = false.index[false.index > noisy]
    title = "False evictions at every limit"
    if len(calm):
        title = f"From {calm[0]:g} s on, less than one false eviction an hour"
    return _plot_bands(bands, EVICTIONS, title, "evictions per hour")


def plot_time_at_risk(bands: pd.DataFrame, version: str) -> Axes:
    """For how long acknowledged records lack a copy, by acks, and how long nothing is committed."""
    low, high = _defaults(bands)
    stalled, strict, _ = _changes(bands, *COSTS)
    title = f"With {high:g} s instead of {low:g} s, acks=all records lack a copy for {strict} "
    title += f"min an hour, and nothing is committed for {stalled} min"
    ax = _plot_bands(bands, COSTS, title, MINUTES)
    session_s = KafkaVersion.of(version).session_timeout_ms / 1000
    mark(ax, session_s, f"session timeout, {session_s:g} s", side="right", y=0.12)
    return ax


def lag_limit_finding(bands: pd.DataFrame) -> str:
    """The costs at Kafka's old and new default limit, in one sentence."""
    low, high = _defaults(bands)
    false, stalled, strict, loose = _changes(bands, "false_evictions", *COSTS)
    return (
        f"With a limit of {high:g} s instead of {low:g} s there are, per hour, {false} false "
        f"evictions; for {stalled} minutes nothing is committed; and records are acknowledged with "
        f"a copy fewer for {strict} minutes (acks=all) and {loose} minutes (acks=1)."
    )


def _changes(bands: pd.DataFrame, *metrics: str) -> list[str]:
    """The means of each metric at the two limits of `_defaults`, as text."""
    means = [_metric(bands, name)["mean"].loc[_defaults(bands)] for name in metrics]
    return [f"{now:,.0f} instead of {was:,.0f}" for was, now in means]


def _plot_bands(bands: pd.DataFrame, metrics: dict, title: str, label: str) -> Axes:
    curves = {}
    for metric, (look, name) in metrics.items():
        data = _metric(bands, metric)
        curves[name] = Curve(data.index, data["mean"], data["low"], data["high"], look)
    x = _limits_axis(sorted(set(bands["lag_limit_s"])), int(bands["seeds"].min()))
    return plot_curves(curves, title, (x, Scale(label)), marks=DEFAULTS_S)


def _limits_axis(limits_s: Sequence[float], seeds: int = 0) -> Scale:
    label = "replica.lag.time.max.ms (s)" + (f"; bands over {seeds} seeds" if seeds else "")
    return Scale(label, "log", ticks=limits_s, names=[f"{limit:g}" for limit in limits_s])


def _defaults(bands: pd.DataFrame) -> list[float]:
    """The two limits to compare in texts: Kafka's defaults, or else the ends of the curve."""
    limits = sorted(set(bands["lag_limit_s"]))
    return [*DEFAULTS_S] if set(DEFAULTS_S) <= set(limits) else [limits[0], limits[-1]]


def _metric(bands: pd.DataFrame, metric: str) -> pd.DataFrame:
    return bands[bands["metric"] == metric].set_index("lag_limit_s").sort_index()
