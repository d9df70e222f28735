"""Lines with an impossible time: over 30 days after most others, or before the lines above them.

A damaged digit in a stamp, or a clock that jumps briefly, would stretch an hour of logs to decades.
Such lines become unread. A file that begins with a few very old lines is quiet, not wrong; so is
one that continues with more than a few lines.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise

from isrlab.events.statements import Statement

FAR_MS = 30 * 86_400_000
MOST = 3  # consecutive lines that can be strays
LEAST = 20  # other lines needed for each of them
STRAY = "its time is more than 30 days away from the lines around it, so it is left out"


def without_strays(rows: list[Statement], files: list[dict]) -> tuple[list[Statement], list[dict]]:
    """The rows without strays, which become unread; corrects the ends of `files`."""
    steps = [n for n, (a, b) in enumerate(pairwise(rows), 1) if b.ts_ms - a.ts_ms > FAR_MS]
    if not rows or not (steps or any(_is_wrong(file, rows[-1].ts_ms) for file in files)):
        return rows, []
    places = _strays(rows, [0, *steps, len(rows)])
    kept = [row for row in rows if (row.file, row.line) not in places]
    for file in files:
        if _is_wrong(file, kept[-1].ts_ms) and len(kept) >= LEAST:
            file["last_ms"] = kept[-1].ts_ms
            places.setdefault((file["file"], file["lines"]), "")
    unread = [{"file": file, "line": line, "reason": STRAY, "text": text, "lines": 1}
              for (file, line), text in sorted(places.items())]  # fmt: skip
    return kept, unread


def _is_wrong(row: dict, latest_ms: int) -> bool:
    """Whether a file's last line is long after all events, or long before its first line."""
    first_ms, last_ms = row["first_ms"], row["last_ms"]
    if first_ms is None or last_ms is None:
        return False
    return bool(last_ms > latest_ms + FAR_MS or last_ms < first_ms - FAR_MS)


def _strays(rows: Sequence[Statement], bounds: list[int]) -> dict[tuple[str, int], str]:
    """The lines whose rows are strays, with their times.

    `bounds` split the rows, which are in order of time, into groups that are far apart.
    """
    groups = [rows[start:end] for start, end in pairwise(bounds)]
    main = max(range(len(groups)), key=lambda n: len(groups[n]))
    first: dict[str, int] = {}  # the first line of each file in the largest group
    for row in groups[main]:
        first[row.file] = min(row.line, first.get(row.file, row.line))
    places: dict[tuple[str, int], str] = {}
    for n, group in enumerate(groups):
        if n == main or len(group) > MOST * 100:
            continue
        lines = {(row.file, row.line): row.ts_ms for row in group}
        is_few = len(lines) <= MOST and len(groups[main]) >= LEAST * len(lines)
        if is_few and (n > main or all(first.get(f, line) < line for f, line in lines)):
            places |= {
                place: f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
                for place, ms in lines.items()
            }
    return places
