"""Moving partitions: how fast, under which throttle, and what a throttle does that stays behind.

A fourth broker joins three, and takes a follower's place in some partitions. Their leaders are
throttled for all that moves. Times are in seconds, rates in bytes per second.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import ipywidgets as widgets
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isrlab import fleet
from isrlab.events import exact
from isrlab.events.measures import measures
from isrlab.fleet.cell import leaders
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.layout import assignment, target
from isrlab.show.bands import Span, isr_rows, plot_bands
from isrlab.show.controls import Redrawn, choice
from isrlab.show.curves import Curve, Scale, plot_curves
from isrlab.show.matrix import plot_matrix
from isrlab.show.style import headline, panels

LEADERS = 3  # of the small cluster; the broker after them is new
SMALL = FleetConfig(
    "3.7", partitions=12, brokers=LEADERS + 1, minutes=15, load="steady", records_per_s=50,
    batch_every_ms=200, record_bytes=20_000, stall_s=0, follower_spread=0, min_insync_replicas=2,
    backlog_records=10_000, leader_bytes_per_s=30_000_000, follower_bytes_per_s=100_000_000,
    leaders="move", rebalance_every_s=0,
)  # fmt: skip
ONE = SMALL.with_(
    partitions=1, brokers=5, minutes=1, assigned="1,2,3", reassigned="4,5,2", follower_spread=0.5,
    follower_bytes_per_s=10_000_000, leader_bytes_per_s=0,
)  # fmt: skip


class Moved(NamedTuple):
    """What a reassignment took."""

    done_s: list[float]  # of each partition that is done, from its start; ascending
    wait_s: float  # the longest of a produce with acks=all, at least
    failed: int  # produces
    short_minutes: float  # in which an ISR was smaller than the replication factor


def joined_by_a_broker(config: FleetConfig, moves: int = 3) -> FleetConfig:
    """A cluster of three, in which each leader gives so many of its partitions a new follower."""
    before = assignment(config.with_(brokers=LEADERS))
    after = before.copy()
    after[: moves * LEADERS, -1] = LEADERS + 1
    texts = [" ".join(",".join(map(str, row)) for row in rows.tolist()) for rows in (before, after)]
    return config.with_(assigned=texts[0], reassigned=texts[1])


def moving(config: FleetConfig) -> int:
    """How many partitions move."""
    return int((assignment(config) != target(config)).any(axis=1).sum())


def throttled(config: FleetConfig, bytes_per_s: int, at_once: int) -> FleetConfig:
    """The same with a throttle, 0 for none, and so many at once, 0 for all."""
    return config.with_(throttle_bytes_per_s=bytes_per_s, moves_at_once=at_once or moving(config))


@lru_cache(maxsize=128)
def moved(config: FleetConfig) -> Moved:
    """Simulate it."""
    events, start_s = fleet.simulate_local(config), config.reassign_s
    costs = measures(events, config.replication_factor, 1, (0, config.duration_ms))
    return Moved(
        [move.ts_ms / 1000 - start_s for move in exact.moves(events) if move.joined],
        max(wait.latency_ms for wait in exact.waits(events)) / 1000,
        round(costs["produce_error"]),
        costs["under_replicated_minutes"],
    )


def least_throttle(produced: float, moves: int, at_once: int, copies: int = 3) -> float:
    """Of a leader, bytes/s below which newcomers never catch up.

    It leads `moves` throttled partitions, into each of which `produced` bytes/s are written. The
    members of their ISRs take all of that, and `at_once` newcomers need as much each to keep up.
    """
    return produced * (moves * (copies - 1) + at_once)


def expected_s(config: FleetConfig) -> float:
    """Backlog / (throttle - incoming), a round after another, of logs that grow."""
    partitions, own = moving(config), len(leaders(config))
    at_once = config.moves_at_once or partitions
    busy, each = min(at_once, own), -(-at_once // own)
    produced = config.records_per_s * config.record_bytes
    least = least_throttle(produced, partitions // own, each, config.replication_factor)
    if config.throttle_bytes_per_s <= least:
        return np.inf
    done_s, written = 0.0, config.backlog_records * config.record_bytes
    for _ in range(-(-partitions // (busy * each))):
        backlog = each * (written + produced * (config.reassign_s + done_s))
        done_s += backlog / (config.throttle_bytes_per_s - least)
    return done_s


def grid(config: FleetConfig, throttles: Sequence[int], at_once: Sequence[int]) -> pd.DataFrame:
    """A row for each pair: `done_s` is infinite if the run ended before the last was done."""
    rows = []
    for speed, many in product(throttles, at_once):
        each = throttled(config, speed, many)
        move, wanted = moved(each), moving(each)
        done_s = move.done_s[-1] if len(move.done_s) == wanted else np.inf
        formula_s = expected_s(each) if speed else np.nan
        rows.append((speed, many or wanted, len(move.done_s), done_s, formula_s, *move[1:]))
    names = "throttle at_once moved done_s formula_s wait_s failed short_minutes"
    return pd.DataFrame(rows, columns=names.split())


def plot_one(config: FleetConfig = ONE) -> Axes:
    """One partition that moves: who copies it, and who is in sync."""
    events = fleet.simulate_local(config)
    (spans,) = exact.isr_spans(events, config.duration_ms, 0).values()
    old, new = assignment(config)[0].tolist(), target(config)[0].tolist()
    rows, start_s = isr_rows(spans, sorted({*old, *new})), config.reassign_s
    for broker, row in zip(sorted({*old, *new}), rows.values(), strict=True):
        row[:] = [each for each in row if each.state != "out"]
        if broker not in old:
            row.insert(0, Span(start_s, row[0].start_s, "waits", "copies"))
    took_s = spans[-1].start_ms / 1000 - start_s
    large_s = sum(s.end_ms - s.start_ms for s in spans if len(s.isr) > len(new)) / 1000
    title = f"{old} become {new} in {took_s:.1f} s; for {large_s:.1f} s the ISR has more than three"
    legend = {"waits": "copies", f"broker {old[0]}": "in the ISR, in the broker's colour"}
    return plot_bands(rows, title, legend=legend)


def plot_grid(table: pd.DataFrame) -> Figure:
    """Three tables by throttle and number: how long, how long by the formula, the longest wait."""
    figure, axes = panels(1, 3, (9.2, 3.6), sharey=True)
    sides = (
        ("done_s", "Until all have moved", (120, 360), "not ended"),
        ("formula_s", "The same by the formula", (120, 360), "never"),
        ("wait_s", "Longest wait of a produce", (0.3, 0.6), ""),
    )
    for ax, (name, title, limits, endless) in zip(axes.flat, sides, strict=True):
        cells: dict[str, dict[str, str | tuple[str, str]]] = {}
        for row in table.to_dict("records"):
            value, column = row[name], f"{row['at_once']:.0f}"
            word = ("safe", "flapping", "diverged")[sum(value > limit for limit in limits)]
            text = endless if np.isinf(value) else f"{value:,.{int(value < 2)}f} s"
            field = ("-", "offline") if np.isnan(value) else (text, word)
            cells.setdefault(rate(row["throttle"]), {})[column] = field
        plot_matrix(cells, title, ax=ax)
        ax.set_xlabel("partitions at once")
    worst = table.nlargest(1, "wait_s").iloc[0]
    late, most_s = np.isinf(table["done_s"]).sum(), f"{worst['wait_s']:.1f} s"
    title = f"{late} of {len(table)} have not ended; a produce waits for up to {most_s}"
    return headline(figure, f"{title} ({rate(worst['throttle'])}, {worst['at_once']:.0f} at once)")


def rate(bytes_per_s: float) -> str:
    """In words, 0 for none."""
    return f"{bytes_per_s / 1e6:g} MB/s" if bytes_per_s else "no throttle"


def plot_progress(config: FleetConfig) -> Axes:
    """How many partitions have moved, over time, and when all have by the formula."""
    move, wanted, formula_s = moved(config), moving(config), expected_s(config)
    many, end_s = len(move.done_s), config.duration_ms / 1000 - config.reassign_s
    curve = Curve([0, *move.done_s, end_s], [*range(many + 1), many], is_step=True)
    last = f"the last after {move.done_s[-1]:,.0f} s" if many else "none"
    title = f"{rate(config.throttle_bytes_per_s)}, {config.moves_at_once or wanted} at once: "
    title += f"{many} of {wanted} move, {last}; a produce waits for up to {move.wait_s:.1f} s"
    scales = Scale("s since it began", high=end_s), Scale("have moved", high=1.2 * wanted)
    marks = {formula_s: "all, by the formula"} if formula_s < end_s else {}
    return plot_curves({"moved": curve}, title, scales, marks=marks)


def move_controls(config: FleetConfig, table: pd.DataFrame) -> widgets.VBox:
    """Sliders for both, with the values of a grid, and how many partitions have moved."""
    rates, counts = (sorted(set(table[name].tolist())) for name in ("throttle", "at_once"))
    sliders = choice("throttle", rates, rates[0], rate), choice("at once", counts, counts[0])
    return Redrawn(sliders, lambda speed, many: plot_progress(throttled(config, speed, many)))


def lags(config: FleetConfig, down: Sequence[float]) -> pd.Series:
    """MB that broker 3 lacks of all that broker 1 leads, by s since the start.

    Nothing moves; the throttle is for all, and broker 3 is down from then to then (s).
    """
    each = config.with_(
        leaders="stay", reassigned="", assigned="", backlog_records=0, brokers=LEADERS, minutes=5,
        pauses=f"down {LEADERS} {down[0]:g}-{down[1]:g}",
    )  # fmt: skip
    led = np.flatnonzero(assignment(each)[:, 0] == 1).tolist()
    traces = [fleet.trace(each, partition, 1_000) for partition in led]
    lacks = sum(trace.lag_records[LEADERS] for trace in traces)
    return pd.Series(lacks * each.record_bytes / 1e6, traces[0].ts_ms / 1000)


def plot_lags(config: FleetConfig, throttles: Sequence[int], down: Sequence[float]) -> Axes:
    """What the broker that was down lacks, over time, for some throttles."""
    drawn, parts = {}, []
    for each in throttles:
        lack = lags(config.with_(throttle_bytes_per_s=each), down)
        drawn[rate(each)] = Curve(lack.index, lack)
        parts.append(f"{lack.iloc[-1]:,.0f} MB with {rate(each)}")
    title = f"In the end broker {LEADERS} lacks {', '.join(parts)}"
    scales = Scale("time since the start (s)"), Scale("MB that it lacks of broker 1's")
    return plot_curves(drawn, title, scales, marks={down[1]: "it is back"})


def finding(config: FleetConfig, table: pd.DataFrame) -> str:
    """What ends, how fast, the least throttle, and what it costs."""
    done, many = table[np.isfinite(table["done_s"])], moving(config) // LEADERS
    produced, most = config.records_per_s * config.record_bytes, table.max()
    least, every = (rate(least_throttle(produced, many, at_once)) for at_once in (1, many))
    return (
        f"{len(done)} of {len(table)} ways to move {moving(config)} partitions end in "
        f"{config.minutes:g} minutes, after {done['done_s'].min():,.0f} to "
        f"{done['done_s'].max():,.0f} s; the throttle must exceed {least} for one newcomer at a "
        f"leader, {every} for {many}; a produce waited for up to {most['wait_s']:.1f} s, an ISR "
        f"was too small for {most['short_minutes']:.1f} minutes"
    )
