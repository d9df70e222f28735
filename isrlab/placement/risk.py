"""The effect on partitions when k brokers (or racks) fail together, every set of k equally likely.

Theory of operation. A partition is under min ISR if fewer than `min.insync.replicas` members of its
ISR are left, offline if no ISR member or eligible leader replica is, and lost if no replica is and
the disks do not come back. With a full ISR, offline and lost depend on the same failures and differ
only in the disks. A partition comes to a fate when more than a given number of its brokers fail.
The smallest sets that suffice are kept; a failure is bad if it contains one of them. If few
failures are possible all are tried, else a sample that is large enough for a narrow band.

If brokers fail (not racks), the expected number of affected partitions is the same for every
placement; the probability that any is affected differs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import chain, combinations
from typing import NamedTuple

import numpy as np

from isrlab.placement.describe import DescribedPartition

FATES = ("under min ISR", "offline", "lost")
MOST_TRIED = 300_000  # possible failures that are all tried; of more, DRAWN are sampled
DRAWN = 20_000
_Z = 1.96  # standard errors of a 95 % band

Set = tuple[int, ...]  # of units, ascending


class Chance(NamedTuple):
    """A probability: exact, or estimated with its 95 % band (Wilson's)."""

    value: float
    low: float
    high: float

    @property
    def is_exact(self) -> bool:
        return self.low == self.high


def units_of(racks: Mapping[int, str], by_rack: bool = False) -> dict[int, int]:
    """The unit, numbered from 0, that fails with each broker: the broker itself, or its rack."""
    names = sorted({*racks.values()}) if by_rack else sorted(racks)
    number = {name: place for place, name in enumerate(names)}
    return {broker: number[rack if by_rack else broker] for broker, rack in racks.items()}


def bad_sets(
    partitions: Iterable[DescribedPartition], units: Mapping[int, int], fate: str
) -> set[Set]:
    """The smallest sets of units whose failure brings some partition to `fate`, one of FATES."""
    kinds = _kinds(partitions, units, fate)
    return {bad for members, floor in kinds for bad in _smallest(members, floor)}


def _kinds(
    partitions: Iterable[DescribedPartition], units: Mapping[int, int], fate: str
) -> Counter[tuple[Set, int]]:
    """The number of partitions by (the units that keep a partition from `fate`, how many of these
    at most are left when it comes to that)."""
    if fate not in FATES:
        raise ValueError(f"no fate {fate!r}; known: {', '.join(FATES)}")
    kinds: Counter[tuple[Set, int]] = Counter()
    for p in partitions:
        keepers = {"lost": p.replicas, "offline": {*p.isr, *p.elr}}.get(fate, p.isr)
        floor = (p.min_isr or 1) - 1 if fate == FATES[0] else 0
        kinds[tuple(sorted(units[b] for b in keepers)), floor] += 1
    return kinds


@cache
def _smallest(members: Set, floor: int) -> list[Set]:
    counts, smallest = Counter(members), list[Set]()
    for size in range(len(counts) + 1):
        for chosen in combinations(sorted(counts), size):
            is_bad = len(members) - sum(counts[unit] for unit in chosen) <= floor
            if is_bad and not any({*smaller} <= {*chosen} for smaller in smallest):
                smallest.append(chosen)
    return smallest


def chance(bad: set[Set], units: int, failures: int, seed: int = 1) -> Chance:
    """The probability that `failures` random ones of `units` units contain one of the bad sets."""
    if not 0 <= failures <= units:
        raise ValueError(f"{failures} failures of {units}; valid: 0 to {units}")
    number = math.comb(units, failures)
    least = min(map(len, bad), default=units + 1)
    if least == 0 or least > failures:
        return Chance(*[float(least == 0)] * 3)
    if least == failures:
        return Chance(*[sum(len(each) == least for each in bad) / number] * 3)
    if number <= MOST_TRIED:
        every = chain.from_iterable(combinations(range(units), failures))
        failed = np.fromiter(every, np.int64, number * failures).reshape(number, failures)
        return Chance(*[float(hits(failed, bad, units).mean())] * 3)
    parts = np.random.default_rng(seed).spawn(20)  # smaller tables of random numbers
    drawn = (part.random((DRAWN // 20, units)).argpartition(failures - 1)[:, :failures]
             for part in parts)  # fmt: skip
    return _wilson(int(hits(np.concatenate([*drawn]), bad, units).sum()), DRAWN)


def hits(failed: np.ndarray, bad: set[Set], units: int) -> np.ndarray:
    """Which failures contain a bad set: bool[n]. `failed` is int[n, k], with numbers of units."""
    failed = np.sort(failed, axis=1)
    is_bad = np.zeros(len(failed), bool)
    for size in range(failed.shape[1] + 1):
        places = float(units) ** np.arange(size)
        if not (sets := [each for each in bad if len(each) == size]):
            continue
        known = np.unique(np.array(sets) @ places)
        for columns in combinations(range(failed.shape[1]), size):
            is_bad |= np.isin(failed[:, columns] @ places, known)
    return is_bad


def _wilson(hit: int, tried: int) -> Chance:
    share, z = hit / tried, _Z**2 / tried
    middle = (share + z / 2) / (1 + z)
    half = math.sqrt(share * (1 - share) * z + z**2 / 4) / (1 + z)
    return Chance(share, max(0.0, middle - half), min(1.0, middle + half))


def expected(
    partitions: Iterable[DescribedPartition], units: Mapping[int, int], fate: str, failures: int
) -> float:
    """The exact mean number of partitions that come to `fate`."""
    many = len({*units.values()})
    return sum(
        number * _alone(members, floor, many, failures)
        for (members, floor), number in _kinds(partitions, units, fate).items()
    )


@cache
def _alone(members: Set, floor: int, units: int, failures: int) -> float:
    """The probability that `failures` of `units` units leave at most `floor` of `members`."""
    counts = Counter(members)
    ways = sum(
        math.comb(units - len(counts), failures - size)
        for size in range(min(failures, len(counts)) + 1)
        for chosen in combinations(counts, size)
        if len(members) - sum(counts[unit] for unit in chosen) <= floor
    )
    return ways / math.comb(units, failures)


def partners(partitions: Iterable[DescribedPartition], units: Mapping[int, int]) -> float:
    """The mean number of other units with which a unit shares partitions: they refill its disk."""
    held = {tuple(sorted({units[b] for b in p.replicas})) for p in partitions}
    return 2 * len({pair for each in held for pair in combinations(each, 2)}) / len(units)
