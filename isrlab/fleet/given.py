"""Given rather than random: the assignment, and which broker stalls, in which role, and when.

Both are given as text, which is stored with the other settings. The times in "fetchers 2 15-30,
latency 3 40-60.5 250" are seconds since the start, and the latency is in ms; such pauses are added
to random ones, and overlapping pauses merge.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from isrlab.events.spans import merged
from isrlab.fleet.kernel.state import Ints

LATENCY = "latency"
ROLES = {
    "fetchers": "its fetchers fetch nothing; its session lives",
    "leader": "it answers no fetch",
    "down": "it is down after a clean shutdown",
    LATENCY: "each message between it and another broker takes at least this many ms",
}
_FORM = re.compile(r"(\w+) (\d{1,5}) (\d{1,7}(?:\.\d{1,3})?)-(\d{1,7}(?:\.\d{1,3})?)( \d{1,5})?")
_REPLICAS = re.compile(r"\d{1,5}(,\d{1,5})*")


class Pause(NamedTuple):
    """A broker that stalls in one role, or has a high latency; times in ms since the start."""

    role: str
    broker: int
    from_ms: int
    to_ms: int
    latency_ms: int = 0  # one way, for the role latency

    def __str__(self) -> str:
        text = f"{self.role} {self.broker} {self.from_ms / 1000:.3f}-{self.to_ms / 1000:.3f}"
        return f"{text} {self.latency_ms}" if self.latency_ms else text


def replicas_of(assigned: str) -> list[list[int]]:
    """The replicas of each partition, from "1,2,3 3,1,2". Raises ValueError for other text."""
    if wrong := [part for part in assigned.split() if not _REPLICAS.fullmatch(part)]:
        raise ValueError(f"assigned: {wrong[0]!r} is not a list of replicas; valid: '1,2,3 3,1,2'")
    return [[int(number) for number in part.split(",")] for part in assigned.split()]


@lru_cache(maxsize=64)
def pauses_of(text: str) -> tuple[Pause, ...]:
    """The pauses of a setting. Raises ValueError for other text, or an end before its start."""
    return tuple(_pause(part.strip()) for part in text.split(",") if part.strip())


def written(pauses: Iterable[Pause]) -> str:
    """The inverse of `pauses_of`."""
    return ", ".join(map(str, pauses))


def _pause(text: str) -> Pause:
    valid = f"{text!r} is not a pause; valid: ROLE BROKER FROM-TO in seconds, such as "
    valid += f"'fetchers 2 15-30' or 'latency 2 15-30 250'; roles: {', '.join(ROLES)}"
    match = _FORM.fullmatch(text)
    latency_ms = int(match[5] or 0) if match else 0
    if match is None or match[1] not in ROLES or (match[1] == LATENCY) != (latency_ms > 0):
        raise ValueError(valid)
    from_ms, to_ms = (round(float(second) * 1000) for second in match.groups()[2:4])
    if to_ms <= from_ms:
        raise ValueError(f"{text!r} ends before it begins")
    return Pause(match[1], int(match[2]), from_ms, to_ms, latency_ms)


def joined(drawn: tuple[Ints, Ints], text: str, role: str, broker: int) -> tuple[Ints, Ints]:
    """Random and given pauses of one broker's role: starts and ends, int64[n] ms, disjoint."""
    given = [p[2:4] for p in pauses_of(text) if (p.role, p.broker) == (role, broker)]
    if not given:
        return drawn
    times = merged([*zip(*map(np.ndarray.tolist, drawn), strict=True), *given])
    starts, ends = np.array(times, dtype=np.int64).T
    return starts, ends


def latencies(text: str, brokers: tuple[int, int]) -> Ints:
    """When messages to or from a broker take longer, int64[n, 3]: start, end (exclusive), ms."""
    slow = [p for p in pauses_of(text) if p.role == LATENCY and p.broker in brokers]
    return np.array([p[2:] for p in slow], dtype=np.int64).reshape(-1, 3)
