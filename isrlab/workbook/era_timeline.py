"""One partition under the same load in every era: who is out of its ISR, when, and why.

A small fleet is simulated here, in this process, fast enough for a slider. Generations whose rules
are the same for a fleet are simulated once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import ipywidgets as widgets
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isrlab import fleet
from isrlab.fleet import load
from isrlab.fleet.arrow import to_arrow
from isrlab.fleet.cell import leaders, run_cell
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.kernel.state import Rules
from isrlab.fleet.layout import assignment
from isrlab.show.controls import choice, png, redrawn
from isrlab.show.style import INK, PALE, bare, plain
from isrlab.workbook.same_load_every_era import GENERATIONS, REASONS, draw_legend, reason

FEW = ("0.8.2", "0.9.0", "0.10.2", "2.2", "2.7", "3.1", "3.7")  # enough for a slider
HEIGHTS = (1_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 300_000, 400_000)
NEVER_MS = 2**62
AT_START = (0, "behind")  # out from the start
ALIKE_MS = 500  # within which two histories are drawn as one
STALLS_S = (0, 5, 8, 12, 16, 20, 25, 30, 40, 60)
SMALL = FleetConfig(
    partitions=3, minutes=6, burst_records=200_000, burst_s=20, burst_every_s=150,
    batch_every_ms=20_000, stall_s=20, stall_every_s=150, min_insync_replicas=2,
    replica_lag_time_max_ms=10_000, seed=8,
)  # fmt: skip


class Absence(NamedTuple):
    """A replica out of the ISR: who, from when to when, and why it was evicted."""

    partition: int
    replica: int
    from_ms: int
    to_ms: int
    reason: str


def absences(config: FleetConfig, leader: int) -> list[Absence]:
    """Every time that a replica was out of the ISR of a partition that `leader` leads."""
    out: list[Absence] = []
    left: dict[tuple[int, int], tuple[int, str]] = {}
    joined_ms: dict[tuple[int, int], int] = {}
    knew: dict[int, dict[str, int]] = {}
    columns = ("ts_ms", "partition", "kind", "isr_before", "isr", "detail")
    for row in to_arrow(config, run_cell(config, leader)).select(columns).to_pylist():
        ts_ms, partition = row["ts_ms"], row["partition"]
        if row["kind"] == "isr_shrink":
            knew[partition] = {key: int(value) for key, value in row["detail"]}
        elif row["kind"] == "isr_commit":
            before, after = set(row["isr_before"]), set(row["isr"])
            for key in ((partition, replica) for replica in before - after):
                since_joined_ms = ts_ms - joined_ms.get(key, -NEVER_MS)
                left[key] = ts_ms, _reason(config, knew[partition], since_joined_ms)
            for key in ((partition, replica) for replica in after - before):
                from_ms, why = left.pop(key, AT_START)
                out.append(Absence(*key, from_ms, ts_ms, why))
                joined_ms[key] = ts_ms
    for (partition, replica), (from_ms, why) in left.items():
        out.append(Absence(partition, replica, from_ms, config.duration_ms, why))
    return out


def _reason(config: FleetConfig, knew: dict[str, int], since_joined_ms: int) -> str:
    age_ms = knew["since_caught_up_ms"]
    limits = config.lag_time_ms, config.lag_messages
    return reason(knew["lag_records"], age_ms, *limits, since_joined_ms)


def most_telling(config: FleetConfig, names: Iterable[str] = GENERATIONS) -> int:
    """The partition with evictions for most reasons in these versions; of several the busiest."""
    found = [
        away
        for one in _by_rules(fleet.versions(config, names)).values()
        for leader in leaders(config)
        for away in absences(one[0], leader)
    ]
    whys = [{a.reason for a in found if a.partition == p} for p in range(config.partitions)]
    times = [sum(a.partition == p for a in found) for p in range(config.partitions)]
    return max(range(config.partitions), key=lambda p: (len(whys[p]), times[p]))


def plot_eras(
    config: FleetConfig = SMALL,
    partition: int = 0,
    names: Iterable[str] = GENERATIONS,
    *,
    ax: Axes | None = None,
) -> Axes:
    """One partition under the same load in several versions: who is out of the ISR, and why.

    Versions in which the same happens to it share a row. On top, what happens to all of them: its
    bursts, and the stalls of its followers. Raises ValueError if there is no such partition.
    """
    if not 0 <= partition < config.partitions:
        raise ValueError(f"partition={partition} out of range; valid: 0 to {config.partitions - 1}")
    rows = _distinct(fleet.versions(config, names), partition)
    ax = ax or plt.subplots(figsize=(9.6, 1.4 + 0.52 * len(rows)), layout="constrained")[1]
    followers = _replicas(config, partition)[1:]
    _draw_causes(ax, config, partition, followers)
    for place, (_, era) in enumerate(rows, start=1):
        for lane, replica in enumerate(followers):
            away = [one for one in era if one.replica == replica]
            ax.broken_barh(
                [(one.from_ms / 1000, (one.to_ms - one.from_ms) / 1000) for one in away],
                (place - 0.36 + 0.72 * lane / len(followers), 0.72 / len(followers) - 0.04),
                color=[REASONS[one.reason][0] for one in away],
                linewidth=1.2,  # so that no bar is too short to see
            )
        ax.axhline(place - 0.5, color=PALE, linewidth=0.8)
    labels = [f"{_span(versions)}   {_outcome(era)}" for versions, era in rows]
    ax.set_yticks(range(len(rows) + 1), ["bursts, stalls", *labels], fontsize=8)
    ax.set_ylim(len(rows) + 0.5, -0.5)
    ax.set_xlim(0, config.duration_ms / 1000)
    lanes = ", ".join(map(str, followers))
    ax.set_xlabel(f"time (s); in each row from the top: replicas {lanes}, coloured while out")
    ax.set_title(_eras_title(rows, partition), loc="left", fontsize=10)
    draw_legend(
        ax, [why for why in REASONS if any(a.reason == why for _, e in rows for a in e)], -0.12
    )
    bare(ax, "bottom")
    ax.tick_params(left=False)
    return ax


def _by_rules(configs: Iterable[FleetConfig]) -> dict[Rules, list[FleetConfig]]:
    """The fleets that run by the same rules, together."""
    alike: dict[Rules, list[FleetConfig]] = {}
    for config in configs:
        alike.setdefault(config.rules(), []).append(config)
    return alike


def _distinct(
    configs: Iterable[FleetConfig], partition: int
) -> list[tuple[list[str], list[Absence]]]:
    """Neighbouring versions in which the same happens to a partition, and what."""
    rows: list[tuple[list[str], list[Absence]]] = []
    for several in _by_rules(configs).values():
        names = [one.kafka.name for one in several]
        leader = _replicas(several[0], partition)[0]
        era = [away for away in absences(several[0], leader) if away.partition == partition]
        if rows and _is_alike(rows[-1][1], era):
            rows[-1][0].extend(names)
        else:
            rows.append((names, era))
    return rows


def _is_alike(one: list[Absence], other: list[Absence]) -> bool:
    """The same, but for the milliseconds of a round trip to the controller."""
    near = [
        a.replica == b.replica
        and a.reason == b.reason
        and abs(a.from_ms - b.from_ms) + abs(a.to_ms - b.to_ms) < ALIKE_MS
        for a, b in zip(one, other, strict=False)
    ]
    return len(one) == len(other) and all(near)


def _replicas(config: FleetConfig, partition: int) -> list[int]:
    """The brokers of a partition, its leader first."""
    placed = assignment(config.partitions, config.brokers, config.replication_factor)
    return list(placed[partition].tolist())


def _draw_causes(ax: Axes, config: FleetConfig, partition: int, followers: list[int]) -> None:
    for start_ms in load.burst_starts_ms(config, partition):
        ax.broken_barh([(start_ms / 1000, max(config.burst_s, 1))], (-0.36, 0.22), color=INK)
    for lane, broker in enumerate(followers):
        starts, ends = load.stalls(config, broker)
        height = 0.44 / len(followers)
        bars = [((s / 1000), (e - s) / 1000) for s, e in zip(starts, ends, strict=True)]
        ax.broken_barh(bars, (-0.1 + lane * height, height - 0.04), color="0.7")


def _span(versions: list[str]) -> str:
    return plain(versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}")


def _outcome(era: list[Absence]) -> str:
    out_s = sum(away.to_ms - away.from_ms for away in era) / 1000
    return f"{len(era)}×, {out_s:.0f} s"


def _eras_title(rows: list[tuple[list[str], list[Absence]]], partition: int) -> str:
    counts = [len(era) for _, era in rows]
    most, least = int(np.argmax(counts)), int(np.argmin(counts))
    if len(rows) == 1:
        return f"Partition {partition}: {counts[0]} evictions, the same in every version"
    said = [f"{counts[place]} evictions in {_span(rows[place][0])}" for place in (most, least)]
    return f"Partition {partition}, the same load with {len(rows)} endings: {', '.join(said)}"


def era_controls(config: FleetConfig = SMALL) -> widgets.VBox:
    """Sliders for burst height and length of stall, and one partition in a `FEW` generations."""
    height = choice("burst height (records)", HEIGHTS, config.burst_records)
    stall = choice("stall (s)", STALLS_S, int(config.stall_s))
    partition = most_telling(config, FEW)

    def draw() -> bytes:
        moved = config.with_(burst_records=height.value, stall_s=stall.value)
        return eras_png(moved, partition)

    return redrawn((height, stall), draw)


def eras_png(config: FleetConfig, partition: int) -> bytes:
    """The picture of `plot_eras` as PNG."""
    figure = Figure(figsize=(9.6, 4.6), dpi=90)  # margins by hand: a layout costs 80 ms
    axes = figure.subplots(gridspec_kw={"left": 0.19, "right": 0.98, "top": 0.93, "bottom": 0.25})
    plot_eras(config, partition, FEW, ax=axes)
    return png(figure)
