"""Placement: how likely some partition is offline when several brokers fail, by each placer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from matplotlib.axes import Axes

from isrlab import placement
from isrlab.placement import FATES, DescribedPartition
from isrlab.show import curves, style
from isrlab.show.controls import LiveFigure, choice, pick

MOST_BYTES = 50_000_000  # of a description
MOST_FAILURES = 10  # of a curve
LABELS = {
    "zookeeper": "Kafka with ZooKeeper", "kraft": "Kafka with KRaft", "random": "by chance",
    "copyset": "copysets", "described": "as described",
}  # fmt: skip


class Placements(NamedTuple):
    """Some topics under each placement, and the racks of the brokers."""

    racks: dict[int, str]
    placed: dict[str, list[DescribedPartition]]

    def chances(self, name: str, fate: str, counts: Iterable[int]) -> list[placement.Chance]:
        """The probability that some partition comes to `fate`, by number of failed brokers."""
        bad = placement.bad_sets(self.placed[name], self.units, fate)
        return [placement.chance(bad, len(self.racks), count) for count in counts]

    @property
    def units(self) -> dict[int, int]:
        return placement.units_of(self.racks)


def generated(
    brokers: int, topics: int, partitions: int, racks: int = 0, seed: int = 1
) -> Placements:
    """Equal topics with three replicas and min ISR 2; brokers are assigned to racks in turn."""
    names = {n: f"rack {(n - 1) % racks + 1}" if racks else "" for n in range(1, brokers + 1)}
    wanted = {f"topic {number}": (partitions, 3, 2) for number in range(topics)}
    every = placement.ALGORITHMS
    return Placements(names, {n: placement.placed(n, names, wanted, seed) for n in every})


def described(text: str, racks: str, min_isr: int) -> Placements:
    """A cluster as kafka-topics describes it, and its topics placed anew."""
    partitions = placement.describe(text, min_isr)
    names = placement.racks_of(racks, {b for p in partitions for b in p.replicas})
    topics: dict[str, tuple[int, int, int]] = {}
    for p in partitions:
        count, factor, _ = topics.get(p.topic, (0, 0, 0))
        topics[p.topic] = count + 1, max(factor, len(p.replicas)), p.min_isr or 1
    every = {name: placement.placed(name, names, topics) for name in placement.ALGORITHMS}
    return Placements(names, {"described": partitions} | every)


def read(describe_file: str, racks: str, min_isr: int, default: Placements) -> Placements:
    """The cluster of a file, or without one the default."""
    if not describe_file:
        return default
    with Path(describe_file).open("rb") as file:
        return described(file.read(MOST_BYTES).decode("utf-8", "replace"), racks, min_isr)


def _percent(chance: placement.Chance) -> str:
    if chance.is_exact:
        return f"{100 * chance.value:.3g}%"
    return f"{100 * chance.low:.3g} to {100 * chance.high:.3g}%"


def plot_chances(cluster: Placements, fate: str = FATES[1]) -> Axes:
    """The probability by the number of failures, a line for each placement."""
    counts = range(1, min(MOST_FAILURES, len(cluster.racks)) + 1)
    drawn = {}
    for name in cluster.placed:
        chances = cluster.chances(name, fate, counts)
        value, low, high = ([100 * c[i] for c in chances] for i in range(3))
        drawn[LABELS[name]] = curves.Curve(list(counts), value, low, high)
    scales = curves.Scale("number of failed brokers", low=1), curves.Scale("probability (%)")
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


def finding(chances: dict[str, list[list[float]]], sizes: Sequence[int], failures: int) -> str:
    """Lowest and highest probability that some partition is offline, by Kafka's two placers."""
    parts = []
    for place, size in enumerate(sizes):
        each = (f"{LABELS[n][11:]} {_range(chances[n][place])}" for n in ("zookeeper", "kraft"))
        parts.append(f"{size} partitions a topic: {', '.join(each)}")
    draws = len(chances["kraft"][0])
    return (
        f"{failures} brokers fail, and some partition is offline (lowest and highest of {draws} "
        f"draws of each placement). {'. '.join(parts)}."
    )


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.0f}%", f"{max(values):.0f}%"
    return low if low == high else f"{low} to {high}"


def chances_by_size(
    brokers: int, topics: int, sizes: Sequence[int], failures: int, draws: int
) -> dict[str, list[list[float]]]:
    """The probability (%) that some partition is offline: by placer, topic size and draw."""
    chances = {name: [list[float]() for _ in sizes] for name in placement.ALGORITHMS}
    for place, size in enumerate(sizes):
        for seed in range(1, draws + 1):
            cluster = generated(brokers, topics, size, seed=seed)
            for name, of_sizes in chances.items():
                (chance,) = cluster.chances(name, FATES[1], [failures])
                of_sizes[place].append(100 * chance.value)
    return chances


def plot_by_size(chances: dict[str, list[list[float]]], sizes: Sequence[int]) -> Axes:
    """A line for each placer, with the band of its draws."""
    drawn = {}
    for name, of_sizes in chances.items():
        mean, low, high = ([f(row) for row in of_sizes] for f in (fmean, min, max))
        drawn[LABELS[name]] = curves.Curve(list(sizes), mean, low, high)
    safer = [n for n, each in zip(sizes, _kraft_is_safer(chances), strict=True) if each]
    title = "By size of a topic"
    if safer and chances["kraft"][-1] > chances["zookeeper"][-1]:
        title = f"KRaft's placer is safer than ZooKeeper's with {style.listed(safer)} partitions a "
        title += "topic, and less safe with more"
    scales = (
        curves.Scale("partitions of a topic", "log", ticks=sizes),
        curves.Scale("some partition is offline (%)", low=0),
    )
    return curves.plot_curves(drawn, title, scales)


def _kraft_is_safer(chances: dict[str, list[list[float]]]) -> list[bool]:
    """Whether KRaft's placement is safer in every draw, by topic size."""
    return [max(a) < min(b) for a, b in zip(chances["kraft"], chances["zookeeper"], strict=True)]


def controls(brokers: int, topics: int, sizes: Sequence[int]) -> LiveFigure:
    """Controls for the size of a topic and the number of racks, and the resulting probabilities."""
    racks = pick("racks", [("none", 0), ("three", 3)], 0)
    return LiveFigure(
        (choice("partitions", sizes, sizes[0]), racks),
        lambda size, number: plot_chances(generated(brokers, topics, size, number)),
    )


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
