"""Truncations that had no effect: a line of the log reports that, soon after the fetcher's line."""

import re
from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from isrlab.events.statements import Statement

NEAR_LINES = 100  # a log's answer to its fetcher comes within this many lines
_NO_EFFECT = re.compile(
    r"\[\w+ partition=([^\s,]+)-(\d{1,9}), .*\] Truncating to (\d{1,18}) has no effect"
    r"|Truncating ([^\s,]+)-(\d{1,9}) to (\d{1,18}) has no effect"
)
CutPlace: TypeAlias = tuple[str | None, int | None, int | None]  # topic, partition, offset


class ReadRow(NamedTuple):
    """A row and its identity: `same` is equal for the same text in one millisecond, `source` is the
    pod or host that the line names."""

    row: Statement
    same: int
    source: str
    is_local: bool


def void_in(line: str) -> CutPlace | None:
    """The truncation that this line reports as having no effect; None if it reports none."""
    match = _NO_EFFECT.search(line) if "has no effect" in line else None
    if match is None:
        return None
    topic, partition, end = (match[i] or match[i + 3] for i in (1, 2, 3))
    return topic, int(partition), int(end)


def effective(rows: list[ReadRow], void: Sequence[tuple[int, CutPlace]]) -> list[ReadRow]:
    """The rows of a file without its truncations that had no effect; `void`: lines that say so.

    The fetcher and the log each print a line about one truncation.
    """
    held: dict[CutPlace, list[Statement]] = defaultdict(list)
    gone = set[int]()
    cut = [(each.row.line, each.row) for each in rows if each.row.kind == "truncate"]
    items: list[tuple[int, Statement | CutPlace]] = [*cut, *void]
    for line, item in sorted(items, key=itemgetter(0)) if void else ():
        if not isinstance(item, Statement):
            gone |= {id(row) for row in held[item] if row.line >= line - NEAR_LINES}
            held[item] = [row for row in held[item] if id(row) not in gone]
            continue
        near = held[item.topic, item.partition, item.log_end_offset]
        if item.detail.get("step") in [row.detail.get("step") for row in near]:
            near.clear()
        near.append(item)
    return [each for each in rows if id(each.row) not in gone]
