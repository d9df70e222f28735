"""How the whole package writes a duration, a count and a text that is not trusted."""

from __future__ import annotations

_UNITS = ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))


def duration(ms: float) -> str:
    """A time as one reads it: 340 ms, 2.8 s, 4 min 12 s, 3 h 5 min, 3 d 4 h."""
    if ms < 59_500:
        return f"{ms:.0f} ms" if ms < 1_000 else f"{ms / 1000:.3g} s"
    seconds = round(ms / 1000)
    size, unit, smaller, small = next(u for u in _UNITS if seconds >= u[0])
    whole, rest = divmod(round(seconds / smaller), size // smaller)
    return f"{whole} {unit} {rest} {small}" if rest else f"{whole} {unit}"


def counted(number: int, noun: str) -> str:
    """1 replica, 2 replicas."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def printable(text: str) -> str:
    r"""Text that a terminal shows and does not obey: \x1b, \u202e and the like are spelt out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
