"""Lines that are JSON objects: which keys hold the message, the time, the level and the logger.

Collectors choose the names, so keys are recognised by their values.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from isrlab_ops.logs.reader.formats import ANCHOR, LEVELS, MOST_BEFORE, is_logger
from isrlab_ops.logs.reader.stamps import StampedTime, moment

MOST = 0.8  # the share of objects in which a key must hold a time, or a level
LOOKED_AT = 200  # objects


class Keys(NamedTuple):
    """The JSON keys of a line's parts; "" for a missing one."""

    message: str
    time: str = ""
    level: str = ""
    logger: str = ""


def read_object(text: str) -> dict[str, object] | None:
    """An object with nested keys joined by dots; None if the text is not an object."""
    try:
        parsed = json.loads(text.rstrip().rstrip(","))
        return dict(_flat(parsed)) if isinstance(parsed, dict) else None
    except (ValueError, RecursionError):
        return None


def _flat(parsed: dict[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    seconds, nanos = parsed.get("epochSecond"), parsed.get("nanoOfSecond")
    if isinstance(seconds, int) and isinstance(nanos, int):  # log4j2's instant
        yield above[:-1], f"{seconds}.{nanos:09d}"
    for key, value in parsed.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        elif isinstance(value, str | int | float):
            yield above + key, value


def json_moment(value: object) -> StampedTime | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = f"{value:.6f}" if isinstance(value, float) else str(value)
    if re.fullmatch(r"[1-3]\d{9}", text):
        text += ".0"
    return moment(text)


def keys_of(objects: list[dict[str, object]]) -> Keys:
    """The key of each part, by its values in most of the objects."""
    objects = objects[:LOOKED_AT]
    texts = {name: [str(o[name]) for o in objects if name in o] for o in objects for name in o}

    def share(name: str, is_one: Callable[[str], object]) -> float:
        return sum(1 for text in texts[name] if is_one(text)) / len(objects)

    def has_anchor(text: str) -> object:
        return ANCHOR.search(text, 0, MOST_BEFORE)

    def is_level(text: str) -> bool:
        return text.upper() in (*LEVELS, "WARNING")

    # Of two keys with the message, one may hold the whole line: take the longer, unless
    # it begins with the message.
    lengths = {name: float(sum(map(len, texts[name]))) for name in texts}
    message = _best({n: (share(n, has_anchor), share(n, ANCHOR.match), lengths[n]) for n in texts})
    others = [name for name in texts if name != message]
    times = {name: _fitness([o.get(name) for o in objects]) for name in others}
    levels = {name: (share(name, is_level),) for name in others}
    loggers = {name: (share(name, is_logger),) for name in others}
    return Keys(
        message,
        _best({name: fit for name, fit in times.items() if fit}),
        _best({name: fit for name, fit in levels.items() if fit[0] >= MOST}),
        _best({name: fit for name, fit in loggers.items() if fit[0] > 0}),
    )


def _best(fitness: Mapping[str, tuple[float, ...]]) -> str:
    return max(fitness, key=lambda name: fitness[name]) if fitness else ""


def _fitness(values: list[object]) -> tuple[float, ...]:
    """How well a key fits the time, () if it holds none. The best has a date, is exact, and is the
    earliest, because all later stamps come from processing the line."""
    moments = [m for value in values if (m := _quiet_moment(value))]
    if len(moments) < MOST * len(values):
        return ()
    is_exact = any(m.ms % 1000 for m in moments)
    return not moments[0].lacks, is_exact, -float(sum(m.ms for m in moments))


def _quiet_moment(value: object) -> StampedTime | None:
    try:
        return json_moment(value)
    except ValueError:
        return None
