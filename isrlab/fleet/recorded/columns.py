"""The columns of a trace file: their values as numbers, and which of them are bad.

A reader takes a column of a block (text, or what Parquet has) and gives one `Column` of as many
values. It asks Arrow to read them all; only if Arrow finds one that it cannot read, pandas, which
is slower, tells which.
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


class Column(NamedTuple):
    """What a block says of one column."""

    values: Ints  # int64[n], undefined where bad
    bad: Bools  # bool[n]
    valid: str


Reader = Callable[[pa.Array], Column]


def _numbers(array: pa.Array) -> NDArray[np.float64]:
    """Numbers, or text that holds numbers, as float64[n]; NaN for what is none."""
    try:
        return np.asarray(pc.fill_null(array.cast(pa.float64(), safe=False), np.nan))
    except pa.ArrowInvalid:
        return np.asarray(pd.to_numeric(array.to_pandas(), errors="coerce"), dtype=np.float64)


def _is_number_or_text(kind: pa.DataType) -> bool:
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return is_number or pa.types.is_string(kind)


class Whole:
    """Reads whole numbers within limits."""

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high

    def __call__(self, array: pa.Array) -> Column:
        """Raises TypeError, which says what is valid."""
        valid = f"whole numbers from {self._low:,} to {self._high:,}"
        if not _is_number_or_text(array.type):
            raise TypeError(valid)
        numbers = _numbers(array)
        good = (numbers >= self._low) & (numbers <= self._high) & (numbers == np.floor(numbers))
        return Column(np.where(good, numbers, 0).astype(np.int64), ~good, valid)


class Keys:
    """Reads keys as the partitions that they go to, -1 for no key."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    def __call__(self, array: pa.Array) -> Column:
        """Raises TypeError, which says what is valid."""
        bad = np.zeros(len(array), dtype=np.bool_)
        if pa.types.is_string(array.type):
            bad = np.asarray(pc.fill_null(pc.match_substring(array, "\ufffd"), False))
        elif array.type not in (pa.binary(), pa.large_binary()):
            raise TypeError("text, or the bytes that the producer sends")
        return Column(partition_of_keys(array, self._partitions), bad, "text in UTF-8")


class Times:
    """Reads times as microseconds: timestamps, or numbers, or text that is one or the other."""

    def __init__(self, unit_us: int) -> None:
        """`unit_us`: what a number counts."""
        self._unit_us = unit_us
        self._is_number: bool | None = None  # most of the first values decide

    def __call__(self, array: pa.Array) -> Column:
        """Raises TypeError, which says what is valid."""
        if pa.types.is_timestamp(array.type):
            return self._microseconds(array)
        if not _is_number_or_text(array.type):
            raise TypeError("timestamps, numbers or text")
        if not pa.types.is_string(array.type):
            return self._counted(array)
        given = array.filter(pc.not_equal(array, ""))[:100] if self._is_number is None else ()
        if given:
            self._is_number = 2 * int(np.isfinite(_numbers(given)).sum()) >= len(given)
        return self._counted(array) if self._is_number else self._written(array)

    def _counted(self, array: pa.Array) -> Column:
        highest = MOST_SECONDS * 1_000_000 // self._unit_us
        valid = f"ms from 0 to {highest:,}"
        if self._unit_us == 1_000_000:
            valid = f"s from 0 to {highest:,} (a column of ms has a name that ends in _ms)"
        numbers = _numbers(array)
        good = (numbers >= 0) & (numbers <= highest)
        times = np.round(np.where(good, numbers, 0) * self._unit_us).astype(np.int64)
        return Column(times, ~good, valid)

    def _written(self, array: pa.Array) -> Column:
        for zone in (None, "UTC"):
            try:
                return self._microseconds(array.cast(pa.timestamp("ns", zone)))
            except pa.ArrowInvalid:
                continue
        texts = array.to_pandas()
        texts = texts.where(texts.str.match(r"\s*\d{4}-\d\d-\d\d", na=False))
        times = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
        return self._microseconds(pa.Array.from_pandas(times))

    @staticmethod
    def _microseconds(array: pa.Array) -> Column:
        times = array.cast(pa.timestamp("us", array.type.tz), safe=False).cast(pa.int64())
        valid = "timestamps such as 2023-11-16T18:17:03.980"
        bad = np.asarray(array.is_null())
        return Column(np.asarray(pc.fill_null(times, 0)), bad, valid)
