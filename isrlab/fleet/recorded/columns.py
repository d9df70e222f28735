"""The columns of a trace file: what each may be named and hold, its values as numbers, who is bad.

A reader takes a whole column (text, or what Parquet has). It asks Arrow to read all of it; only if
Arrow finds a value that it cannot read, pandas, which is slower, tells which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from isrlab.fleet.kernel.state import Ints
from isrlab.fleet.recorded.partitioner import partition_of_keys

Bools = NDArray[np.bool_]

MOST_SECONDS = 10**11  # since 1970; above are ms that are called seconds
MOST_RECORDS = 10**9  # of a row
MOST_BYTES = 10**11  # of a row


class Column(NamedTuple):
    """The values of a column."""

    values: Ints  # int64[n], undefined where bad
    bad: Bools  # bool[n]
    valid: str  # what they should be, in words


class Role(NamedTuple):
    """What a column can be for."""

    names: tuple[str, ...]  # by which it is found
    kinds: str  # that it may hold, see `kind`
    read: Callable[[pa.Array, int], Column]  # given how many partitions there are


def kind(of: pa.DataType) -> str:
    """What a column of this type holds: "timestamps", "numbers", "text", "bytes" or "else"."""
    if pa.types.is_integer(of) or pa.types.is_floating(of):
        return "numbers"
    kinds = {pa.large_string(): "text", pa.binary(): "bytes", pa.large_binary(): "bytes"}
    return "timestamps" if pa.types.is_timestamp(of) else kinds.get(of, "else")


def _whole(array: pa.Array, low: int, high: int) -> Column:
    """Whole numbers within limits."""
    numbers = _numbers(array)
    good = (numbers >= low) & (numbers <= high) & (numbers == np.floor(numbers))
    valid = f"whole numbers from {low:,} to {high:,}"
    return Column(np.where(good, numbers, 0).astype(np.int64), ~good, valid)


def _numbers(array: pa.Array) -> NDArray[np.float64]:
    """Numbers, or text that holds numbers, as float64[n]; NaN for what is none."""
    try:
        return np.asarray(pc.fill_null(array.cast(pa.float64(), safe=False), np.nan))
    except pa.ArrowInvalid:
        return np.asarray(pd.to_numeric(array.to_pandas(), errors="coerce"), dtype=np.float64)


def _keys(array: pa.Array, partitions: int) -> Column:
    """Keys as the partitions that they go to, -1 for no key."""
    bad = np.zeros(len(array), dtype=np.bool_)
    if kind(array.type) == "text":
        bad = np.asarray(pc.fill_null(pc.match_substring(array, "\ufffd"), False))
    return Column(partition_of_keys(array, partitions), bad, "text in UTF-8")


def _times(array: pa.Array, unit_us: int, hint: str = "") -> Column:
    """Times as microseconds: timestamps, or numbers of `unit_us`, or text that is one of these.

    Of text, most of the first values decide.
    """
    if kind(array.type) == "timestamps":
        return _microseconds(array)
    if kind(array.type) == "text":
        given = array.filter(pc.not_equal(array, ""))[:100]
        if 2 * int(np.isfinite(_numbers(given)).sum()) < len(given):
            return _written(array)
    highest = MOST_SECONDS * 1_000_000 // unit_us
    numbers = _numbers(array)
    good = (numbers >= 0) & (numbers <= highest)
    times = np.round(np.where(good, numbers, 0) * unit_us).astype(np.int64)
    return Column(times, ~good, f"{'s' if hint else 'ms'} from 0 to {highest:,}{hint}")


def _written(array: pa.Array) -> Column:
    """Times in ISO 8601, UTC unless they name their zones."""
    for zone in (None, "UTC"):
        try:
            return _microseconds(array.cast(pa.timestamp("ns", zone)))
        except pa.ArrowInvalid:
            continue
    texts = array.to_pandas()
    texts = texts.where(texts.str.match(r"\s*\d{4}-\d\d-\d\d", na=False))
    times = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
    return _microseconds(pa.Array.from_pandas(times))


def _microseconds(array: pa.Array) -> Column:
    times = array.cast(pa.timestamp("us", array.type.tz), safe=False).cast(pa.int64())
    valid = "timestamps such as 2023-11-16T18:17:03.980"
    return Column(np.asarray(pc.fill_null(times, 0)), np.asarray(array.is_null()), valid)


_MS_HINT = " (a column of ms has a name that ends in _ms)"
_TIMES, _NUMBERS = "timestamps, numbers or text", "numbers or text"
ROLES = {
    "time": Role(
        ("time", "timestamp", "ts", "datetime"), _TIMES, lambda a, _: _times(a, 10**6, _MS_HINT)
    ),
    "time_ms": Role(("time_ms", "timestamp_ms", "ts_ms"), _TIMES, lambda a, _: _times(a, 1_000)),
    "partition": Role(("partition",), _NUMBERS, lambda a, count: _whole(a, 0, count - 1)),
    "key": Role(("key",), "text, or the bytes that the producer sends", _keys),
    "records": Role(("records", "count"), _NUMBERS, lambda a, _: _whole(a, 1, MOST_RECORDS)),
    "bytes": Role(("bytes", "size"), _NUMBERS, lambda a, _: _whole(a, 0, MOST_BYTES)),
}
