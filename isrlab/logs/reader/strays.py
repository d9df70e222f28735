"""Lines whose time cannot be: more than 30 days after everything else, or before what they follow.

A damaged digit in a stamp, or a clock that jumps for a moment, would stretch an hour of logs to
decades. Such lines are left out and kept as unread. A file that begins with a few lines of long ago
is quiet, not wrong; so is one that goes on with more than a few lines.
"""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

FAR_MS = 30 * 86_400_000
MOST = 3  # lines together that are strays
LEAST = 20  # lines of the others for each of them
STRAY = "its time is more than 30 days away from the lines around it, so it is left out"


def without_strays(
    events: pa.Table, unread: pa.Table, files: pa.Table
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """The tables of `BrokerLogs`, the strays moved from the events to what is unread."""
    ts_ms = events["ts_ms"].to_numpy()  # in order
    steps = np.flatnonzero(np.diff(ts_ms) > FAR_MS) + 1
    rows = files.to_pylist()
    if not len(ts_ms) or not (len(steps) or any(_is_wrong(row, ts_ms[-1]) for row in rows)):
        return events, unread, files
    is_stray, places = _strays(events, ts_ms, [0, *steps.tolist(), len(ts_ms)])
    times = ts_ms[~is_stray]
    for row in rows:
        if _is_wrong(row, times[-1]) and len(times) >= LEAST:
            row["last_ms"] = int(times[-1])
            places.setdefault((row["file"], row["lines"]), "")
    new = [{"file": file, "line": line, "reason": STRAY, "text": text, "lines": 1}
           for (file, line), text in sorted(places.items())]  # fmt: skip
    runs = dict(zip(files["file"].to_pylist(), files["run"].to_pylist(), strict=True))
    more = pa.Table.from_pylist(
        [row | {"run": runs.get(row["file"])} for row in new], unread.schema
    )
    kept = events.filter(pa.array(~is_stray))
    return kept, pa.concat_tables([unread, more]), pa.Table.from_pylist(rows, files.schema)


def _is_wrong(row: dict, latest_ms: int) -> bool:
    """The last line of a file is later than all events, or long before its first."""
    first_ms, last_ms = row["first_ms"], row["last_ms"]
    if first_ms is None or last_ms is None:
        return False
    return bool(last_ms > latest_ms + FAR_MS or last_ms < first_ms - FAR_MS)


def _strays(
    events: pa.Table, ts_ms: np.ndarray, bounds: list[int]
) -> tuple[np.ndarray, dict[tuple[str, int], str]]:
    """Which events are strays, bool[event], and their lines with the times that they have.

    `bounds` part the events into groups that are far from each other.
    """
    sizes = np.diff(bounds)
    main = int(sizes.argmax())
    file, line = _said(events, "file").to_numpy(False), _said(events, "line")
    line = line.cast(pa.int64()).to_numpy()
    kept = slice(bounds[main], bounds[main + 1])
    is_stray = np.zeros(len(ts_ms), bool)
    places: dict[tuple[str, int], str] = {}
    for n, start in enumerate(bounds[:-1]):
        rows = slice(start, bounds[n + 1])
        if n == main or sizes[n] > MOST * 100:
            continue
        lines = dict(
            zip(zip(file[rows], line[rows].tolist(), strict=True), ts_ms[rows], strict=True)
        )
        is_few = len(lines) <= MOST and sizes[main] >= LEAST * len(lines)
        if is_few and (
            n > main
            or all(np.any((file[kept] == name) & (line[kept] < number)) for name, number in lines)
        ):
            is_stray[rows] = True
            places |= {
                at: f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
                for at, ms in lines.items()
            }
    return is_stray, places


def _said(events: pa.Table, name: str) -> pa.ChunkedArray:
    return pc.map_lookup(events["detail"], pa.scalar(name), "first")
