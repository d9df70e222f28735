"""Rolling restart: how long brokers take to recover, and when the next one may go down.

Times are in seconds; a recovery begins when the broker is back. `share` is the load divided by what
a fetcher thread can fetch: above 0 and below 1 (else ValueError); at 1 a broker never recovers.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets as widgets
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isrlab import fleet
from isrlab.engine.versions import KafkaVersion
from isrlab.events import exact
from isrlab.events.exact import IsrSpan
from isrlab.events.measures import measures
from isrlab.fleet import load, place, recovery
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.layout import assignment
from isrlab.fleet.sums import by_run
from isrlab.show.bands import Span, size_state, stack
from isrlab.show.controls import LiveFigure, choice
from isrlab.show.curves import Curve, Scale, plot_curves, plot_ticks
from isrlab.show.style import INK, STATES, finish, mark, panels, plain
from isrlab.world import scenario
from isrlab.world.words import START_MS
from isrlab_ops.check.cluster import ClusterState
from isrlab_ops.check.describe import DescribedPartition
from isrlab_ops.check.outcome import Shapes

SMALL = FleetConfig(
    version="3.7", partitions=12, brokers=4, load="steady", min_insync_replicas=2, stall_s=0,
    follower_spread=0, batch_every_ms=500,
)  # fmt: skip


def one_restart(config: FleetConfig, share: float, down_s: float) -> FleetConfig:
    """The fleet, loaded by `share`, with one restart of broker 1 and enough time to recover."""
    every_s = down_s + 60 + 1.5 * recovery.catch_up_s(share, down_s)
    return _loaded(config, share).with_(
        restart_s=float(down_s), restart_every_s=every_s, minutes=(2 * every_s - 1) / 60,
        name=f"share={share:g} down={down_s:g}s",
    )  # fmt: skip


def rolling(config: FleetConfig, share: float, down_s: float, wait: float) -> FleetConfig:
    """The fleet, loaded by `share`, with a restart of every broker one after another.

    `wait`: from one restart to the next, as a multiple of `recovery.safe_restart_every_s`; that
    time is at least `down_s`.
    """
    every_s = max(float(down_s), wait * recovery.safe_restart_every_s(share, down_s))
    end_s = config.brokers * every_s + down_s + 60 + 1.5 * recovery.catch_up_s(share, down_s)
    return _loaded(config, share).with_(
        restart_s=float(down_s), restart_every_s=every_s, minutes=end_s / 60,
        name=f"share={share:g} wait={wait:g}",
    )  # fmt: skip


def _loaded(config: FleetConfig, share: float) -> FleetConfig:
    if not 0 < share < 1:
        raise ValueError(f"share={share} is out of range; valid: above 0, below 1")
    return recovery.loaded(config, share)


def compared(measured: pd.DataFrame, configs: Sequence[FleetConfig]) -> pd.DataFrame:
    """The rows of `churn.rejoins` for some fleets, in their order, in s, beside the formula."""
    rows = []
    for config in configs:
        for row in measured[measured["run"] == config.run].to_dict("records"):
            rows.append({
                "run": config.run,
                "share": recovery.load_share(config, row["broker"]),
                "down_s": (row["up_ms"] - row["down_ms"]) / 1000,
                "formula_s": recovery.expected_rejoin_s(config, row["broker"]),
                "partitions": row["partitions"],
                **{f"{name}_s": row[f"{name}_ms"] / 1000 for name in ("first", "median", "last")},
            })  # fmt: skip
    return pd.DataFrame(rows)


def waits(
    configs: Sequence[FleetConfig], refused: pd.DataFrame, under: pd.DataFrame
) -> pd.DataFrame:
    """The sums of `by_run` for each rolling restart; `wait` is in multiples of the safe wait."""
    rows = []
    for config in configs:
        share, every_s = recovery.load_share(config, 1), config.restart_every_s
        safe_s = recovery.safe_restart_every_s(share, config.restart_s)
        rows.append((config.run, share, every_s, every_s / safe_s))
    table = pd.DataFrame(rows, columns=["run", "share", "every_s", "wait"])
    return table.join(by_run(configs, refused, under), on="run")


def waits_for_the_gone(versions: Sequence[str]) -> pd.DataFrame:
    """How many produces of the scenario gone_broker timed out in each version."""
    rows = []
    for version in versions:
        run = scenario.play(scenario.read("gone_broker"), version=version)
        numbers = measures(run.events(), 3, 2, (START_MS, run.cluster.now_ms))
        rows.append((version, round(numbers["timed_out"])))
    return pd.DataFrame(rows, columns=["release", "timed_out"])


def headroom(
    config: FleetConfig, share: float, down_s: float, designs: Sequence[tuple[int, int]]
) -> pd.DataFrame:
    """The cost of a rolling restart, and of a second failure during it, for each design.

    `designs`: replication factor and min.insync.replicas. A second failure is the next broker,
    which goes down before the first is back (at 0.6 of the safe wait). Times are partition-minutes;
    `formula` is the expected time with one replica missing.
    """
    rows = []
    for copies, least in designs:
        fleets = config.with_(replication_factor=copies, min_insync_replicas=least)
        calm, early = (rolling(fleets, share, down_s, wait) for wait in (1.33, 0.6))
        once, twice = (
            measures(fleet.simulate_local(each), copies, least, (0, each.duration_ms))
            for each in (calm, early)
        )
        away = config.partitions * (copies - 1)  # of each partition, every follower once
        rows.append({
            "replicas": copies, "min.insync.replicas": least, "headroom": copies - least - 1,
            "one missing": once["under_replicated_minutes"],
            "formula": away * recovery.safe_restart_every_s(share, down_s) / 60,
            "refused": once["produce_error"],
            "two: under min ISR": twice["under_min_isr_minutes"],
            "two: single copy": twice["one_copy_minutes"], "two: refused": twice["produce_error"],
        })  # fmt: skip
    return pd.DataFrame(rows).round(1)


def led_elsewhere(config: FleetConfig) -> FleetConfig:
    """The fleet when broker 1 is back: its partitions are led by their next replica."""
    replicas = [row[1:] + row[:1] if row[0] == 1 else row for row in assignment(config).tolist()]
    return config.with_(assigned=" ".join(",".join(map(str, row)) for row in replicas))


def leaders_back(config: FleetConfig, parts: Sequence[float]) -> pd.DataFrame:
    """How many of its partitions broker 1 leads again after an election of preferred leaders.

    Broker 1 restarts once, and does not lead meanwhile. The election comes `parts` (at most 2) of
    the computed rejoin time after its return; only members of an ISR are elected.
    """
    away = led_elsewhere(config)
    rejoin_s = recovery.expected_rejoin_s(away, 1)
    every_s = config.restart_s + 60 + 2 * rejoin_s
    away = away.with_(restart_every_s=every_s, minutes=(2 * every_s - 1) / 60)
    up_ms = 1000 * (every_s + config.restart_s)
    own = np.flatnonzero(assignment(config)[:, 0] == 1).tolist()
    out = [a for a in exact.absences(fleet.simulate_local(away)) if a.replica == 1]
    rows = []
    for part in parts:
        now_ms = up_ms + 1000 * part * rejoin_s
        missing = {a.key.partition for a in out
                   if a.start_ms <= now_ms and (a.end_ms is None or now_ms < a.end_ms)}  # fmt: skip
        rows.append((part, part * rejoin_s, len(own), len({*own} - missing)))
    names = ["rejoin times", "elected_after_s", "led before", "leads again"]
    return pd.DataFrame(rows, columns=names).round({"elected_after_s": 1})


def plot_rejoin_times(table: pd.DataFrame) -> Axes:
    """Rejoin time by load: from the first to the last partition, and the formula as a line."""
    down_s = float(table["down_s"].iloc[0])
    shares = np.linspace(0.01, 0.995, 400)
    line = np.array([recovery.catch_up_s(share, down_s) for share in shares])
    percent, last, look = table["share"] * 100, table["last_s"], (STATES["measured"], "o")
    curves = {
        "formula: down × share / (1 − share)": Curve(
            shares * 100, line, look=(STATES["formula"], "")
        ),
        "last partition back": Curve(percent, last, table["first_s"], last, look, ""),
        "half of them back": Curve(percent, table["median_s"], look=(look[0], "_"), style=""),
    }
    x = Scale("produced, as a share of what a fetcher thread can fetch (%)", high=100)
    y = Scale("s after the broker is back", high=1.25 * float(last.max()))
    off = (last / table["formula_s"] - 1).abs().max() * 100
    title = f"Down for {down_s:g} s: the last partition is back within {off:.0f} % of the formula"
    return plot_curves(curves, title, (x, y))


def plot_waits(table: pd.DataFrame) -> Axes:
    """Partition-minutes under min ISR by the wait between two restarts, a line for each load."""
    curves = {
        f"load {100 * float(share):.0f} %": Curve(rows["wait"], rows["under_min_isr_minutes"])
        for share, rows in table.groupby(table["share"].round(3))
    }
    minutes, is_early = table["under_min_isr_minutes"], table["wait"] < 0.999
    title = (
        f"Partition-minutes under min ISR: {minutes[is_early].sum():,.0f} below the safe wait, "
        f"{minutes[~is_early].sum():,.0f} at or above it"
    )
    x = Scale("from one restart to the next, as a multiple of the safe wait")
    y = Scale("partition-minutes\nunder min ISR")
    return plot_curves(curves, title, (x, y), marks={1: "down / (1 − share)"})


def plot_restart(config: FleetConfig) -> Figure:
    """A rolling restart: short ISRs over time, and each broker's return beside the formula."""
    figure, grid = panels(2, 1, (5.4, 4.7), height_ratios=[1.2, 1])
    events = fleet.simulate_local(config)
    sizes = config.partitions, config.replication_factor, config.min_isr(config.replication_factor)
    brokers = range(1, config.brokers + 1)
    down = {b: [int(times[0]) for times in load.restarts(config, b)] for b in brokers}
    away = [(str(b), start / 1000, end / 1000) for b, (start, end) in down.items()]
    spans = exact.isr_spans(events, config.duration_ms, 0)
    plot_isr_sizes(spans, sizes, away=away, ax=grid[0, 0])
    returns_s: dict[int, dict[exact.Key, float]] = {b: {} for b in brokers}  # the first of each
    for move in exact.moves(events):
        after_ms = move.ts_ms - down[move.replica][1]
        if move.joined and after_ms > 0:
            returns_s[move.replica].setdefault(move.key, after_ms / 1000)
    rows = {f"broker {b}": {"": [*times.values()]} for b, times in returns_s.items()}
    limit_s = config.restart_every_s - config.restart_s
    late = sum(t > limit_s for b in brokers[:-1] for t in returns_s[b].values())
    expected = [recovery.expected_rejoin_s(config, broker) for broker in brokers]
    last = max([limit_s, *expected, *(t for times in returns_s.values() for t in times.values())])
    scale = Scale("s after it is back (diamond: formula)", high=1.1 * last)
    title = f"{late} {'replica returns' if late == 1 else 'replicas return'} after the next restart"
    below = plot_ticks(rows, title, scale, ax=grid[1, 0])
    below.plot(expected, range(len(expected)), "d", color=INK)
    side = "right" if limit_s > last / 2 else "left"
    mark(below, limit_s, "next broker goes down", side=side)
    return figure


def restart_controls(config: FleetConfig = SMALL) -> widgets.VBox:
    """Sliders for downtime, load and wait, and the whole rolling restart."""
    down = choice("down for (s)", (30, 60), 60)
    shares = (0.3, 0.6, 0.8, 0.9)
    busy = choice("load (% of fetch rate)", shares, 0.6, lambda value: f"{100 * value:.0f}")
    every = choice("wait / safe wait", (0.5, 0.75, 1.25), 0.75, "{:g}".format)
    return LiveFigure(
        (down, busy, every), lambda s, share, wait: plot_restart(rolling(config, share, s, wait))
    )


def finding(table: pd.DataFrame) -> str:
    """The formula against the simulation."""
    off = (table["last_s"] / table["formula_s"] - 1).abs().max()
    return (
        f"Over loads of {table['share'].min():.0%} to {table['share'].max():.0%} the last "
        f"partition of this run is back within {off:.0%} of the formula."
    )


def refusals(waited: pd.DataFrame) -> str:
    """Rolling restarts before the safe wait against later ones."""
    refused, is_early = waited["refused"], waited["wait"] < 0.999
    early, safe = refused[is_early], refused[~is_early]
    return (
        f"Rolling restarts below the safe wait had {early.sum():,} produces refused in "
        f"{len(early)} runs, those at or above it {safe.sum():,} in {len(safe)}."
    )


# One zone gone


def without_a_zone(version: str, brokers: int, partitions: int) -> list[dict[str, object]]:
    """How many partitions refuse acks=all with one zone of three gone, and after one more restart.

    KRaft places a topic on that many brokers, a third of them in each zone; brokers of zone c die.
    """
    racks = {broker: "abc"[broker % 3] for broker in range(brokers)}
    alive = frozenset(broker for broker, rack in racks.items() if rack != "c")
    rows = []
    for copies, least in ((3, 2), (3, 1), (4, 2), (5, 2), (5, 3)):
        held = _described(racks, partitions, copies, least)
        rows.append(_left(version, racks, alive, held, f"{copies} replicas, min ISR {least}"))
    homes = {broker: racks[broker] for broker in sorted(alive)}  # of all that is moved there
    held = _described(homes, partitions, 3, 2)
    return [*rows, _left(version, racks, alive, held, "3 replicas, min ISR 2, moved to two zones")]


def _described(
    racks: dict[int, str], partitions: int, copies: int, least: int
) -> list[DescribedPartition]:
    placed = place.placed("kraft", racks, [(partitions, copies)])
    return [DescribedPartition("t", n, r[0], r, r, min_isr=least) for n, r in enumerate(placed)]


def _left(
    version: str, racks: dict[int, str], alive: frozenset[int],
    held: Sequence[DescribedPartition], design: str,
) -> dict[str, object]:  # fmt: skip
    isrs = [tuple(b for b in p.replicas if b in alive) for p in held]
    left = [p._replace(leader=isr[0], isr=isr) for p, isr in zip(held, isrs, strict=True)]
    shapes = Shapes(ClusterState("placed", left, racks, alive, (KafkaVersion.of(version),)))
    refused = [len(shapes.effect({broker}).refuse) for broker in sorted(alive)]
    return {
        "design": design, "refused now": len(shapes.effect().refuse),
        "brokers that may restart": refused.count(0),
        "refused by one restart": f"{min(refused)} to {max(refused)}",
        "fewest copies meanwhile": min(len({*isr} - {b}) for isr in isrs for b in alive),
    }  # fmt: skip


def plot_isr_sizes(
    partitions: Mapping[Any, Sequence[IsrSpan]],
    sizes: tuple[int, int, int],
    ax: Axes,
    away: Sequence[tuple[str, float, float]] = (),
) -> Axes:
    """How many partitions have a short ISR, over time (s), by its size; the title has the maximum.

    `sizes`: partitions in all, replicas of each, and min.insync.replicas. `away`: (name, from, to)
    of brokers that were away, in s, drawn above.
    """
    total, replicas, min_isr = sizes
    spans = [span for several in partitions.values() for span in several]
    worst = stack(ax, (Span(s.start_ms / 1000, s.end_ms / 1000,
                            size_state(len(s.isr), replicas)) for s in spans)).max()  # fmt: skip
    top = max(5.0, 1.3 * worst)
    for name, start_s, end_s in away:
        ax.plot([start_s, end_s], [0.92 * top] * 2, color=INK, linewidth=5)
        middle = (start_s + end_s) / 2
        ax.text(middle, 0.94 * top, plain(name), ha="center", va="bottom", fontsize=8)
    last_s = max([*(s.end_ms / 1000 for s in spans), *(end_s for *_, end_s in away)], default=0.0)
    ax.set(xlim=(0, last_s), ylim=(0, top))
    ax.set_xlabel("time since the start (s); bar above: that broker is away")
    under_ms = sum(s.end_ms - s.start_ms for s in spans if len(s.isr) < min_isr)
    title = f"{worst} of {total} partitions under-replicated"
    return finish(ax, f"{title}; {under_ms / 60_000:.1f} partition-minutes under min ISR")
