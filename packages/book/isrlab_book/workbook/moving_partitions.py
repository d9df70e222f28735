"""Moving partitions: how fast, under which throttle, and the effect of a forgotten throttle.

Replicas move to one new broker. Leaders and the new broker are throttled to one rate, as by
kafka-reassign-partitions.sh, for the partitions of a batch, which move at the same time. Times are
in seconds, sizes in bytes, rates in bytes per second.
"""

import math
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import ipywidgets as widgets
import pandas as pd
from matplotlib.axes import Axes

from isrlab.pace import USABLE, catch_up_s, copied_s
from isrlab.show import offsets
from isrlab.show.bands import Span, isr_rows, plot_bands
from isrlab.show.controls import LiveFigure, choice
from isrlab.show.curves import Curve, Scale, plot_curves
from isrlab.show.matrix import plot_matrix
from isrlab.world import scenario
from isrlab_ops.recordings.reassigned import ADVICE, ClusterRun, sessions

LIMITS_S = 300, 900  # times above these have other colours
RECORDED = 40e6, 50e3  # of each recorded partition: its size, what producers write to it
# The new replica on the faster machine has copied the log after 10 s, the other one after 15 s.
ONE = """partition leader=1 replicas=1,2,3 latency=2ms
produce 1 count=40
advance 10s
reassign 4,5,2
pause 4 fetcher
pause 5 fetcher
advance 10s
resume 4
advance 5s
resume 5
advance 10s"""


class BatchedMove(NamedTuple):
    """Partitions that move to one new broker, which takes a follower's place in each of them."""

    partitions: int = 9
    leaders: int = 3  # each leads as many of them as the others
    copies: int = 3  # replicas of a partition
    size: float = 200e6  # of each partition when the move begins
    produced: float = 1e6  # into each partition


def least_throttle(produced: float, at_leader: int, at_newcomer: int, copies: int = 3) -> float:
    """Bytes/s that a throttle must exceed, or newcomers never catch up: about `USABLE` of it gets
    through, and `produced` bytes/s go into each partition. A leader has `at_leader` partitions of a
    batch (followers in the ISR and newcomers each take all new data), a new broker `at_newcomer`.
    """
    return produced * max(at_leader * copies, at_newcomer) / USABLE


def done_s(move: BatchedMove, throttle: float, batch: int) -> list[float]:
    """When each batch (0: one batch with all) has moved; infinite for one that never ends.

    Each leader, and the new broker, may copy at the throttle's rate; the slower side decides. Logs
    grow until their batch begins.
    """
    ends, left, now_s = list[float](), move.partitions, 0.0
    while left:
        now = min(batch or left, left)
        at_leader, size = -(-now // move.leaders), move.size + move.produced * now_s
        now_s += max(
            copied_s(throttle, size, move.produced, at_leader * (move.copies - 1), at_leader),
            copied_s(throttle, size, move.produced, 0, now),
        )
        ends.append(now_s)
        left -= now
    return ends


def beside_real_brokers() -> pd.DataFrame:
    """Nine partitions moved by brokers of 3.9.2, a row for each move, beside the formula; the time
    of a batch is from when the controller stored its move to when it stored its end."""
    size, produced = RECORDED
    rows = []
    for run in sessions(ADVICE):
        if "throttle" in run.settings:
            mb_per_s, batch = float(run.settings["throttle"].split()[0]), _batch(run)
            move = BatchedMove(size=size, produced=produced)
            formula_s = done_s(move, 1e6 * mb_per_s, batch)[-1]
            real_s, waits = recorded_s(run), [text.split()[-2] for _, text in run.timeline
                                              if text.startswith("longest wait")]  # fmt: skip
            times = round(real_s), round(formula_s), round(real_s / formula_s, 2)
            rows.append((mb_per_s, batch, *times, " → ".join(waits)))
    names = ["throttle (MB/s)", "partitions in a batch", "real_s", "formula_s", "real / formula"]
    names.append("longest wait of a produce: before → during (s)")
    return pd.DataFrame(rows, columns=names).sort_values(names[:3], ignore_index=True)


def _batch(run: ClusterRun) -> int:
    return int(run.settings.get("batch", 9))


def recorded_s(run: ClusterRun) -> float:
    """How long the batches of a recorded move took, without the pauses between them."""
    longest_s: dict[int, float] = {}
    for place, each in enumerate(run.tries):
        batch = place // _batch(run)
        longest_s[batch] = max(longest_s.get(batch, 0.0), each.moved_s)
    return sum(longest_s.values())


def grid(move: BatchedMove, throttles: Sequence[int], batches: Sequence[int]) -> pd.DataFrame:
    """A row for each pair of a throttle and a batch, with `done_s` of the last batch."""
    rows = [
        (throttle, batch or move.partitions, done_s(move, throttle, batch)[-1])
        for throttle, batch in product(throttles, batches)
    ]
    return pd.DataFrame(rows, columns=["throttle", "batch", "done_s"])


def plot_one(version: str) -> Axes:
    """One partition that moves: which brokers copy it, and which are in sync."""
    run = scenario.play(ONE, version)
    old, new, spans = (1, 2, 3), (4, 5, 2), offsets.isr_of(run)
    rows = isr_rows(spans, sorted({*old, *new}))
    begin_s = 10.0
    for broker, row in zip(sorted({*old, *new}), rows.values(), strict=True):
        row[:] = [each for each in row if each.state != "out"]
        if broker not in old:
            row.insert(0, Span(begin_s, row[0].start_s, "waits", "copies"))
    took_s = spans[-1].start_ms / 1000 - begin_s
    large_s = sum(s.end_ms - s.start_ms for s in spans if len(s.isr) > len(new)) / 1000
    title = f"{[*old]} become {[*new]} in {took_s:.1f} s; "
    title += f"for {large_s:.1f} s the ISR has more than three"
    legend = {"waits": "copies", f"broker {old[0]}": "in the ISR, in the broker's colour"}
    return plot_bands(rows, title, legend=legend)


def plot_grid(table: pd.DataFrame) -> Axes:
    """A table by throttle and batch: the time until all partitions have moved."""
    cells: dict[str, dict[str, tuple[str, str]]] = {}
    for row in table.to_dict("records"):
        word = ("safe", "flapping", "diverged")[sum(row["done_s"] > limit for limit in LIMITS_S)]
        name = f"throttle {rate(row['throttle'])}"
        cells.setdefault(name, {})[f"{row['batch']:.0f}"] = _seconds(row["done_s"]), word
    words = f"up to {LIMITS_S[0]} s", f"up to {LIMITS_S[1]} s", "longer, or it never ends"
    legend = dict(zip(("safe", "flapping", "diverged"), words, strict=True))
    never, best = table["done_s"] == math.inf, table.nsmallest(1, "done_s").iloc[0]
    title = f"never done: {never.sum()} of {len(table)} moves; the quickest takes "
    title += f"{best['done_s']:,.0f} s ({rate(best['throttle'])}, batches of {best['batch']:.0f})"
    ax = plot_matrix(cells, title, legend=legend)
    ax.set_xlabel("partitions in a batch")
    return ax


def _seconds(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:,.0f} s"


def rate(bytes_per_s: float) -> str:
    """A rate in words; 0 is no throttle."""
    return f"{round(bytes_per_s / 1e6, 2):g} MB/s" if bytes_per_s else "no throttle"


def plot_progress(move: BatchedMove, throttle: float, batch: int) -> Axes:
    """How many partitions have moved, over time."""
    ends = [end for end in done_s(move, throttle, batch) if math.isfinite(end)]
    each = batch or move.partitions
    moved = [min(move.partitions, each * number) for number in range(len(ends) + 1)]
    end_s = 1.15 * (ends[-1] if ends else LIMITS_S[-1])
    curve = Curve([0, *ends, end_s], [*moved, moved[-1]], is_step=True)
    title = f"{rate(throttle)}, batches of {each}: {moved[-1]} of {move.partitions} move"
    title += f", the last after {ends[-1]:,.0f} s" if ends else "; the throttle is too low"
    scales = Scale("s since it began", high=end_s), Scale("have moved", high=1.2 * move.partitions)
    return plot_curves({"moved": curve}, title, scales)


def move_controls(move: BatchedMove, table: pd.DataFrame) -> widgets.VBox:
    """Sliders for throttle and batch, with the values of a grid, and the progress of the move."""
    rates, counts = (sorted(set(table[name].tolist())) for name in ("throttle", "batch"))
    sliders = choice("throttle", rates, rates[0], rate), choice("batch", counts, counts[0])
    return LiveFigure(sliders, lambda speed, many: plot_progress(move, speed, many))


def back_after(
    incoming: float, throttles: Sequence[int], down: Sequence[float]
) -> dict[str, float]:
    """By throttle, the time from the return of a broker until it has caught up, or infinity.

    No partition moves; every replica is throttled. The broker is down in the interval `down`, and
    then receives `incoming` bytes/s of new data; its leaders send no more than that to all others.
    """
    away_s = down[1] - down[0]
    return {rate(speed): catch_up_s(incoming / (USABLE * speed), away_s) for speed in throttles}


def finding(move: BatchedMove, table: pd.DataFrame, real: pd.DataFrame) -> str:
    """Which moves end, how fast, the minimum throttle, and the formula's error on real brokers."""
    done = table[table["done_s"] < math.inf]["done_s"]
    least = []
    for batch in sorted(set(table["batch"].tolist())):
        at_leader = -(-batch // move.leaders)
        bound = least_throttle(move.produced, at_leader, batch, move.copies)
        least.append(f"{rate(bound)} for batches of {batch}")
    return (
        f"{len(done)} of {len(table)} ways to move {move.partitions} partitions end, after "
        f"{done.min():,.0f} to {done.max():,.0f} s. The throttle must exceed about "
        f"{', '.join(least)}. {len(real)} moves on real brokers took {real['real / formula'].min()}"
        f" to {real['real / formula'].max()} times as long as the formula says."
    )
