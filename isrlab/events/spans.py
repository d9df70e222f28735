"""Intervals of time in ms, which include their start but not their end.

Three operations: the union, its length, and the parts within another interval.
"""

from collections.abc import Iterable
from typing import TypeAlias

Interval: TypeAlias = tuple[int, int]


def merged(spans: Iterable[Interval]) -> list[Interval]:
    """The union, in order."""
    union: list[Interval] = []
    for start, end in sorted(spans):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((start, end))
    return union


def length_ms(spans: Iterable[Interval]) -> int:
    """The time that the intervals cover together, in ms."""
    return sum(end - start for start, end in merged(spans))


def within(spans: Iterable[Interval], whole: Interval) -> list[Interval]:
    """The parts of the intervals that lie within `whole`."""
    parts = ((max(start, whole[0]), min(end, whole[1])) for start, end in spans)
    return [(start, end) for start, end in parts if end > start]
