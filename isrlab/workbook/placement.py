"""24: which brokers share partitions, and what becomes of them when several brokers fail."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from isrlab import placement
from isrlab.placement import FATES, Partition
from isrlab.show import curves, style

MOST_BYTES = 50_000_000  # of a description
MOST_FAILURES = 10  # of a curve
LABELS = {
    "zookeeper": "Kafka with ZooKeeper", "kraft": "Kafka with KRaft", "random": "by chance",
    "copyset": "copysets", "described": "as described",
}  # fmt: skip


class Placements(NamedTuple):
    """The same topics by each placement, and the racks of the brokers."""

    racks: dict[int, str]
    placed: dict[str, list[Partition]]

    def chances(self, name: str, fate: str, counts: Iterable[int]) -> list[placement.Chance]:
        """How likely so many broken brokers bring some partition to a fate."""
        bad = placement.bad_sets(self.placed[name], self.units, fate)
        return [placement.chance(bad, len(self.racks), count) for count in counts]

    @property
    def units(self) -> dict[int, int]:
        return placement.units_of(self.racks)


def generated(brokers: int, topics: int, partitions: int, racks: int = 0) -> Placements:
    """So many equal topics of three replicas with min ISR 2; brokers dealt to racks in turn."""
    names = {n: f"rack {(n - 1) % racks + 1}" if racks else "" for n in range(1, brokers + 1)}
    wanted = {f"topic {number}": (partitions, 3, 2) for number in range(topics)}
    every = placement.ALGORITHMS
    return Placements(names, {name: placement.placed(name, names, wanted) for name in every})


def described(text: str, racks: str, min_isr: int) -> Placements:
    """A cluster as kafka-topics describes it, and its topics placed anew."""
    partitions = placement.describe(text, min_isr)
    names = placement.racks_of(racks, {b for p in partitions for b in p.replicas})
    topics: dict[str, tuple[int, int, int]] = {}
    for p in partitions:
        topic = p.name.rpartition("-")[0]
        count, factor, _ = topics.get(topic, (0, 0, 0))
        topics[topic] = count + 1, max(factor, len(p.replicas)), p.min_isr
    every = {name: placement.placed(name, names, topics) for name in placement.ALGORITHMS}
    return Placements(names, {"described": partitions} | every)


def read(describe_file: str, racks: str, min_isr: int, default: Placements) -> Placements:
    """The cluster of a file, or without one the default."""
    if not describe_file:
        return default
    with Path(describe_file).open("rb") as file:
        return described(file.read(MOST_BYTES).decode("utf-8", "replace"), racks, min_isr)


def plot_shared(cluster: Placements) -> Figure:
    """For each placement a square: how many partitions each pair of brokers has in common."""
    figure, grid = style.panels(1, len(cluster.placed), (9.2, 3.3), sharey=True)
    units, many = cluster.units, len(cluster.racks)
    shared = {name: placement.shares(p, units, 2) for name, p in cluster.placed.items()}
    most = max(max(pairs.values(), default=1) for pairs in shared.values())
    ramp = LinearSegmentedColormap.from_list("", [style.WHITE, style.SKY, style.BLUE, style.INK])
    for ax, (name, pairs) in zip(grid.flat, shared.items(), strict=True):
        square = np.zeros((many, many))
        for (a, b), number in pairs.items():
            square[a, b] = square[b, a] = number
        ax.imshow(square, cmap=ramp, vmin=0, vmax=most, interpolation="nearest")
        ax.set(xticks=[0, many - 1], yticks=[0, many - 1])
        ends = [min(cluster.racks), max(cluster.racks)]
        ax.set_xticklabels(ends)
        ax.set_yticklabels(ends)
        ax.set_title(f"{LABELS[name]}:\n{len(pairs)} pairs", fontsize=9)
    grid[0, 0].set_ylabel("broker")
    fewest, widest = (f(shared, key=lambda name: len(shared[name])) for f in (min, max))
    return style.headline(
        figure,
        f"A broker shares partitions with {placement.partners(cluster.placed[fewest], units):.1f} "
        f"others ({LABELS[fewest]}) to "
        f"{placement.partners(cluster.placed[widest], units):.1f} ({LABELS[widest]}); "
        f"darker: more partitions, up to {most:,}",
    )


def _percent(chance: placement.Chance) -> str:
    if chance.is_exact:
        return f"{100 * chance.value:.3g}%"
    return f"{100 * chance.low:.3g} to {100 * chance.high:.3g}%"


def plot_chances(cluster: Placements, fate: str = FATES[1]) -> Axes:
    """The probability by the number of failures, a line for each placement; dotted the formula."""
    counts = range(1, min(MOST_FAILURES, len(cluster.racks)) + 1)
    drawn = {}
    for name in cluster.placed:
        chances = cluster.chances(name, fate, counts)
        value, low, high = ([100 * c[i] for c in chances] for i in range(3))
        drawn[LABELS[name]] = curves.Curve(list(counts), value, low, high)
    first = next(iter(cluster.placed.values()))
    if not any(cluster.racks.values()):
        formula = [100 * placement.by_chance(first, len(cluster.racks), fate, k) for k in counts]
        look = style.STATES["formula"], ""
        drawn["by chance, formula"] = curves.Curve(list(counts), formula, look=look, style=":")
    scales = curves.Scale("brokers that fail at once", low=1), curves.Scale("probability (%)")
    return curves.plot_curves(drawn, _difference(cluster, fate), scales)


def _difference(cluster: Placements, fate: str) -> str:
    failures = min(3, len(cluster.racks))
    chances = {name: cluster.chances(name, fate, [failures])[0] for name in cluster.placed}
    low, high = (f(chances, key=lambda name: chances[name].value) for f in (min, max))
    return (
        f"Of {len(cluster.racks)} brokers {failures} fail, and some partition is {fate}: "
        f"{_percent(chances[low])} "
        f"({LABELS[low]}) to {_percent(chances[high])} ({LABELS[high]})"
    )


def finding(cluster: Placements) -> str:
    """How much the placement changes the chance, and that it does not change the mean."""
    first = next(iter(cluster.placed.values()))
    mean = placement.expected(first, cluster.units, FATES[1], min(3, len(cluster.racks)))
    return f"{_difference(cluster, FATES[1])}; on average {mean:.3g} partitions by each"


def rows(cluster: Placements, failures: int, by_rack: bool = False) -> list[dict[str, str]]:
    """A row for each placement: the chances of each fate, partitions offline, and partners."""
    units = placement.units_of(cluster.racks, by_rack)
    table = []
    for name, partitions in cluster.placed.items():
        row = {"placement": LABELS[name]}
        for fate in FATES:
            bad = placement.bad_sets(partitions, units, fate)
            row[fate] = _percent(placement.chance(bad, len({*units.values()}), failures))
        mean = placement.expected(partitions, units, FATES[1], failures)
        row["offline on average"] = f"{mean:.3g}"
        row["partners of a broker"] = f"{placement.partners(partitions, cluster.units):.3g}"
        table.append(row)
    return table
