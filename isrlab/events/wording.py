"""Durations, counts and untrusted text, as the whole package prints them."""

from collections.abc import Sequence

_UNITS = ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))


def duration(ms: float) -> str:
    """A duration in readable units: 340 ms, 2.8 s, 4 min 12 s, 3 h 5 min, 3 d 4 h."""
    if ms < 59_500:
        return f"{ms:.0f} ms" if ms < 1_000 else f"{ms / 1000:.3g} s"
    seconds = round(ms / 1000)
    size, unit, smaller, small = next(u for u in _UNITS if seconds >= u[0])
    whole, rest = divmod(round(seconds / smaller), size // smaller)
    return f"{whole} {unit} {rest} {small}" if rest else f"{whole} {unit}"


def counted(number: int, noun: str) -> str:
    """A number with its noun in the singular or plural: 1 replica, 2 replicas."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(names: Sequence[object], most: int = 5) -> str:
    """Names with commas; if there are many, the first ones and the number of others."""
    shown = ", ".join(str(name) for name in names[:most])
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown


def replicas_do(numbers: Sequence[object], does: str, do: str) -> str:
    """What one or more replicas do: replica 1 leaves, replicas 1, 2 leave."""
    is_one = len(numbers) == 1
    return f"replica{'' if is_one else 's'} {listed(numbers)} {does if is_one else do}"


def printable(text: str) -> str:
    r"""`text` with control characters such as \x1b and \u202e escaped, safe for a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
