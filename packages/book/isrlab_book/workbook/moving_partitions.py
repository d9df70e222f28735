"""Moving partitions: how fast, under which throttle, and the effect of a forgotten throttle.

A fourth broker joins three, and takes a follower's place in some partitions. Leaders and the new
broker are throttled to one rate, as by kafka-reassign-partitions.sh, for the partitions of a batch,
which move at the same time. Times are in seconds, rates in bytes per second.
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
from isrlab.pace import USABLE
from isrlab.show.bands import Span, isr_rows, plot_bands
from isrlab.show.controls import LiveFigure, choice
from isrlab.show.curves import Curve, Scale, plot_curves
from isrlab.show.matrix import plot_matrix
from isrlab.show.style import FAINT, headline, panels
from isrlab_ops.recordings.reassigned import ADVICE, sessions

LEADERS = 3  # of the small cluster; the broker after them is new
LIMITS_S = 180, 600  # times above these have other colours
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


class MoveResult(NamedTuple):
    """The cost of a reassignment."""

    done_s: list[float]  # of each partition that is done, from `reassign_s` on; ascending
    wait_s: float  # a lower bound for the longest wait of a produce with acks=all
    failed: int  # produces
    short_minutes: float  # partition-minutes with an ISR below the replication factor


def joined_by_a_broker(config: FleetConfig, moves: int = 3) -> FleetConfig:
    """A cluster of three; a new broker replaces a follower of `moves` partitions of each leader."""
    before = assignment(config.with_(brokers=LEADERS))
    after = before.copy()
    after[: moves * LEADERS, -1] = LEADERS + 1
    texts = [" ".join(",".join(map(str, row)) for row in rows.tolist()) for rows in (before, after)]
    return config.with_(assigned=texts[0], reassigned=texts[1])


def moving(config: FleetConfig) -> int:
    """How many partitions move."""
    return int((assignment(config) != target(config)).any(axis=1).sum())


def throttled(config: FleetConfig, bytes_per_s: int, batch: int) -> FleetConfig:
    """This move with a throttle (0: none) and batches of `batch` partitions (0: all)."""
    return config.with_(throttle_bytes_per_s=bytes_per_s, moves_at_once=batch or moving(config))


@lru_cache(maxsize=128)
def moved(config: FleetConfig) -> MoveResult:
    """Simulate the move of a fleet."""
    events, start_s = fleet.simulate_local(config), config.reassign_s
    costs = measures(events, config.replication_factor, 1, (0, config.duration_ms))
    return MoveResult(
        [move.ts_ms / 1000 - start_s for move in exact.moves(events) if move.joined],
        max(wait.latency_ms for wait in exact.waits(events)) / 1000,
        round(costs["produce_error"]),
        costs["under_replicated_minutes"],
    )


def least_throttle(produced: float, at_leader: int, at_newcomer: int, copies: int = 3) -> float:
    """Bytes/s that a throttle must exceed, or newcomers never catch up: about `USABLE` of it gets
    through, and `produced` bytes/s go into each partition. A leader has `at_leader` partitions of a
    batch (followers in the ISR and newcomers each take all new data), a new broker `at_newcomer`.
    """
    return produced * max(at_leader * copies, at_newcomer) / USABLE


def expected_s(config: FleetConfig) -> float:
    """By a formula: backlog / (usable throttle - incoming), batch by batch, while the logs grow.

    Each leader, and the new broker, may copy at the throttle's rate; the slower side decides.
    """
    left, own = moving(config), len(leaders(config))
    batch = config.moves_at_once or left
    produced = config.records_per_s * config.record_bytes
    done_s, written = 0.0, config.backlog_records * config.record_bytes
    while left:
        now = min(batch, left)
        busy, each = min(now, own), -(-now // own)
        incoming = produced * each * config.replication_factor
        rate = USABLE * config.throttle_bytes_per_s
        rest = min(busy * (rate - incoming), rate - produced * now)
        if rest <= 0:
            return np.inf
        done_s += now * (written + produced * (config.reassign_s + done_s)) / rest
        left -= now
    return done_s


def beside_real_brokers() -> list[dict[str, str]]:
    """Nine partitions of 40 MB, moved by 3.9.2 under each throttle in one batch, and by this model;
    producers write 50 kB/s to each, and the move begins 30 s after the backlog is complete."""
    taken_s: dict[str, list[float]] = {}
    for run in sessions(ADVICE):
        if "throttle" in run.settings:
            longest_s = max(each.moved_s for each in run.tries)
            taken_s.setdefault(run.settings["throttle"], []).append(longest_s)
    base = SMALL.with_(partitions=9, records_per_s=2.5, backlog_records=2_000, reassign_s=30)
    rows = []
    for speed in sorted(taken_s, key=lambda text: float(text.split()[0])):
        config = throttled(joined_by_a_broker(base), int(float(speed.split()[0]) * 1e6), 0)
        real_s, model_s = taken_s[speed], moved(config).done_s[-1]
        rows.append({
            "throttle": speed, "real brokers": " and ".join(_seconds(s) for s in real_s),
            "simulation": _seconds(model_s), "formula": _seconds(expected_s(config)),
            "simulation / real": f"{model_s / max(real_s):.2f}",
        })  # fmt: skip
    return rows


def grid(config: FleetConfig, throttles: Sequence[int], batches: Sequence[int]) -> pd.DataFrame:
    """A row for each pair; `done_s` is infinite if the run ended before the last move did."""
    rows = []
    for speed, many in product(throttles, batches):
        each = throttled(config, speed, many)
        move, wanted = moved(each), moving(each)
        done_s = move.done_s[-1] if len(move.done_s) == wanted else np.inf
        formula_s = expected_s(each) if speed else np.nan
        rows.append((speed, many or wanted, len(move.done_s), done_s, formula_s, *move[1:]))
    names = "throttle batch moved done_s formula_s wait_s failed short_minutes"
    return pd.DataFrame(rows, columns=names.split())


def plot_one(config: FleetConfig = ONE) -> Axes:
    """One partition that moves: which brokers copy it, and which are in sync."""
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
    """Two tables by throttle and batch: the time beside the formula's, and the longest wait."""
    figure, axes = panels(1, 2, (9.2, 3.9), sharey=True)
    times: dict[str, dict[str, str | tuple[str, str]]] = {}
    waits: dict[str, dict[str, str | tuple[str, str]]] = {}
    for row in table.to_dict("records"):
        column, name = f"{row['batch']:.0f}", rate(row["throttle"])
        text = " | ".join(_seconds(s) for s in (row["done_s"], row["formula_s"]) if not np.isnan(s))
        word = ("safe", "flapping", "diverged")[sum(row["done_s"] > limit for limit in LIMITS_S)]
        times.setdefault(name, {})[column] = text, word
        waits.setdefault(name, {})[column] = f"{row['wait_s']:.2f} s", "wait"
    words = f"up to {LIMITS_S[0]} s", f"up to {LIMITS_S[1]} s", "longer"
    legend = dict(zip(("safe", "flapping", "diverged"), words, strict=True))
    plot_matrix(times, "Until all have moved | by the formula", legend=legend, ax=axes[0, 0])
    plot_matrix(waits, "Longest wait of a produce", colours={"wait": FAINT}, ax=axes[0, 1])
    for ax in axes.flat:
        ax.set_xlabel("partitions in a batch")
    late = np.isinf(table["done_s"]).sum()
    best = table[table["throttle"] > 0].nsmallest(1, "done_s").iloc[0]
    title = f"{late} of {len(table)} do not end; the quickest under a throttle takes "
    title += f"{best['done_s']:,.0f} s ({rate(best['throttle'])}, batches of {best['batch']:.0f})"
    return headline(figure, title)


def _seconds(value: float) -> str:
    return "not ended" if np.isinf(value) else f"{value:,.0f} s"


def rate(bytes_per_s: float) -> str:
    """A rate in words; 0 is no throttle."""
    return f"{round(bytes_per_s / 1e6, 2):g} MB/s" if bytes_per_s else "no throttle"


def plot_progress(config: FleetConfig) -> Axes:
    """How many partitions have moved, over time, and when the formula expects the last."""
    move, wanted, formula_s = moved(config), moving(config), expected_s(config)
    many, end_s = len(move.done_s), config.duration_ms / 1000 - config.reassign_s
    if many == wanted:
        end_s = min(end_s, 1.15 * max(move.done_s[-1], min(formula_s, 2 * move.done_s[-1])))
    curve = Curve([0, *move.done_s, end_s], [*range(many + 1), many], is_step=True)
    last = f"the last after {move.done_s[-1]:,.0f} s" if many else "none"
    title = f"{rate(config.throttle_bytes_per_s)}, batches of {config.moves_at_once or wanted}: "
    title += f"{many} of {wanted} move, {last}; a produce waits for up to {move.wait_s:.1f} s"
    scales = Scale("s since it began", high=end_s), Scale("have moved", high=1.2 * wanted)
    marks = {formula_s: "all, by the formula"} if formula_s < end_s else {}
    return plot_curves({"moved": curve}, title, scales, marks=marks)


def move_controls(config: FleetConfig, table: pd.DataFrame) -> widgets.VBox:
    """Sliders for throttle and batch, with the values of a grid, and the progress of the move."""
    rates, counts = (sorted(set(table[name].tolist())) for name in ("throttle", "batch"))
    sliders = choice("throttle", rates, rates[0], rate), choice("batch", counts, counts[0])
    return LiveFigure(sliders, lambda speed, many: plot_progress(throttled(config, speed, many)))


def back_after(
    config: FleetConfig, throttles: Sequence[int], down: Sequence[float]
) -> dict[str, float]:
    """By throttle, the time (s) from the return of broker 3 until it is in all ISRs, or infinity.

    No partition moves, every replica is throttled, and broker 3 is down in the interval `down`.
    """
    each = config.with_(
        reassigned="", assigned="", backlog_records=0, brokers=LEADERS, minutes=5,
        pauses=f"down {LEADERS} {down[0]:g}-{down[1]:g}",
    )  # fmt: skip
    back = {}
    for speed in throttles:
        out = exact.absences(fleet.simulate_local(each.with_(throttle_bytes_per_s=speed)))
        ends = [np.inf if a.end_ms is None else a.end_ms / 1000 for a in out]
        back[rate(speed)] = max(ends) - down[1]
    return back


def finding(config: FleetConfig, table: pd.DataFrame) -> str:
    """Which moves end, how fast, the minimum throttle, the formula's error, and the cost."""
    bound, every = table[table["throttle"] > 0], moving(config)
    done, produced = bound[np.isfinite(bound["done_s"])], config.records_per_s * config.record_bytes
    parts = []
    for batch in sorted(set(table["batch"].tolist())):
        least = least_throttle(produced, -(-batch // LEADERS), batch, config.replication_factor)
        parts.append(f"{rate(least)} for batches of {batch}")
    off = (done["formula_s"] / done["done_s"] - 1).abs().replace(np.inf, np.nan).dropna()
    return (
        f"{len(done)} of {len(bound)} ways to move {every} partitions under a throttle end in "
        f"{config.minutes:g} minutes, after {done['done_s'].min():,.0f} to "
        f"{done['done_s'].max():,.0f} s, and the formula is off by {100 * off.median():.0f}% in "
        f"the median, {100 * off.max():.0f}% at most. The throttle must exceed about "
        f"{', '.join(parts)}. A produce waited for up to {table['wait_s'].max():.1f} s; "
        f"{table['failed'].sum()} failed."
    )
