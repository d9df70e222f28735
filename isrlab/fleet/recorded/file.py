"""A file of recorded load, read and checked: who sent how much to which partition, and when.

CSV (also .csv.gz) or Parquet, one row for each batch. Columns are found by their names, upper or
lower case (`NAMES`), or named in `columns`, such as "time=TIMESTAMP records=ContextTokens"; all
others are ignored. The time is an ISO timestamp (UTC unless it names its zone), or a number: of
milliseconds if the column's name ends in "_ms" (or the mapping says time_ms=...), else of seconds.
The earliest row is time 0, and rows need not be sorted. A partition is a number, or that of the
key (which is ignored if both are there); a row without either has -1. Without records a row is one
record.

Nothing is dropped: one bad row and the whole file is refused, with the first bad row and how many
more there are. Only blank lines are passed over. A file is read a block at a time.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from isrlab.fleet.kernel.state import Ints
from isrlab.fleet.recorded.columns import Bools, Column, Keys, Reader, Times, Whole

NAMES = {
    "time": ("time", "timestamp", "ts", "datetime"),
    "time_ms": ("time_ms", "timestamp_ms", "ts_ms"),
    "partition": ("partition",),
    "key": ("key",),
    "records": ("records", "count"),
    "bytes": ("bytes", "size"),
}
ENDINGS = (".csv", ".csv.gz", ".parquet")
BLOCK_BYTES = 16_000_000
BLOCK_ROWS = 500_000
MOST_RECORDS = 10**9  # of a row
MOST_BYTES = 10**11  # of a row
MOST_DAYS = 366  # from the earliest row to the latest
DAY_US = 86_400 * 10**6
LIKE_SECONDS = (10**9, 4 * 10**9)  # as s: from 2001 to 2096; as ms: a few weeks in 1970


class TraceError(ValueError):
    """A trace that cannot be used; says where, which value, and what is valid."""


class Rows(NamedTuple):
    """What a trace file holds, in its own order."""

    ts_ms: Ints  # int64[n], since the earliest row
    partition: NDArray[np.int32]  # int32[n], -1 where the file says nothing
    records: NDArray[np.int32]  # int32[n], at least 1
    bytes: Ints | None  # int64[n], of the row's records together; None if the file says nothing


class Source(NamedTuple):
    """An open file."""

    path: str
    unit: str  # "line" or "row", by which its places are counted
    names: list[str]
    blocks: Iterator[pa.RecordBatch]
    ragged: list[tuple[int, str]]  # lines with too few or too many values, so far


def read(path: str, columns: str = "", partitions: int = 2**31 - 1) -> Rows:
    """All rows of a trace file. Raises TraceError."""
    try:
        source = _opened(path)
        return _Reading(source, _roles(source, columns), partitions).rows()
    except UnicodeDecodeError as error:
        raise TraceError(f"{path} is not text in UTF-8: {error}") from None
    except (pa.ArrowException, OSError) as error:
        raise TraceError(f"{path} cannot be read: {error}") from error


def _opened(path: str) -> Source:
    """The file at `path`, by its ending."""
    if not Path(path).is_file():
        what = "is a folder" if Path(path).is_dir() else "does not exist"
        raise TraceError(f"trace_file={path!r} {what}; valid: a file ({', '.join(ENDINGS)})")
    if not path.lower().endswith(ENDINGS):
        raise TraceError(f"trace_file={path!r} has no known ending; valid: {', '.join(ENDINGS)}")
    if path.lower().endswith(".parquet"):
        file = pq.ParquetFile(pa.OSFile(path))
        return Source(path, "row", file.schema_arrow.names, file.iter_batches(BLOCK_ROWS), [])
    if Path(path).stat().st_size == 0:
        raise TraceError(f"{path} is empty; valid: a header line and one line for each batch")
    names = _csv(path, [], {}).schema.names
    ragged: list[tuple[int, str]] = []
    types = {name: pa.binary() for name in names}
    return Source(path, "line", names, iter(_csv(path, ragged, types)), ragged)


def _csv(
    path: str, ragged: list[tuple[int, str]], types: dict[str, pa.DataType]
) -> pacsv.CSVStreamingReader:
    """The blocks of a CSV file; a line with a wrong number of values is put into `ragged`."""

    def pass_over(row: pacsv.InvalidRow) -> str:
        said = f"{row.actual_columns} values instead of {row.expected_columns}: {row.text[:80]!r}"
        ragged.append((row.number, "" if ragged else said))
        return "skip"

    packed = "gzip" if path.lower().endswith(".gz") else None
    return pacsv.open_csv(
        pa.input_stream(path, compression=packed),
        pacsv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),  # threads lose line numbers
        pacsv.ParseOptions(invalid_row_handler=pass_over, ignore_empty_lines=False),
        pacsv.ConvertOptions(column_types=types),
    )


def _roles(source: Source, columns: str) -> dict[str, int]:
    """Role -> place of its column; one of them is the time. Raises TraceError if that is unclear.

    What `columns` asks for goes before what has a known name.
    """
    asked = _asked(columns)
    is_time_asked = "time" in asked or "time_ms" in asked
    has = f"{source.path} has the columns {', '.join(source.names)}"
    lower = [name.strip().lower() for name in source.names]
    roles = {}
    for role, known in NAMES.items():
        wanted = (asked[role].lower(),) if role in asked else known
        places = [place for place, name in enumerate(lower) if name in wanted]
        if role in asked and not places:
            raise TraceError(f"trace_columns asks for {asked[role]!r}; {has}")
        if role in ("time", "time_ms") and is_time_asked and role not in asked:
            continue
        if len(places) > 1:
            raise TraceError(f"{has}: more than one for {role!r}; choose one in trace_columns")
        if places:
            roles[role] = places[0]
    times = [role for role in ("time", "time_ms") if role in roles]
    if len(times) != 1:
        raise TraceError(
            f"{has}, {len(times)} of them with a name for the time; valid: one of "
            f"{', '.join(NAMES['time'] + NAMES['time_ms'])}, or trace_columns='time=NAME'"
        )
    place = roles.pop(times[0])
    is_ms = times[0] == "time_ms" or lower[place].endswith("_ms")
    return {"time_ms" if is_ms else "time": place, **roles}


def _asked(columns: str) -> dict[str, str]:
    """Role -> name of its column, out of "time=TIMESTAMP records=ContextTokens"."""
    asked = {}
    try:
        parts = shlex.split(columns)
    except ValueError as error:
        raise TraceError(f"trace_columns={columns!r} is not known: {error}") from None
    for part in parts:
        role, equals, name = part.partition("=")
        if role not in NAMES or not equals or not name:
            raise TraceError(
                f"trace_columns={columns!r}: {part!r} is not known; "
                f"valid: NAME=COLUMN, where NAME is one of {', '.join(NAMES)}"
            )
        asked[role] = name
    return asked


class _Reading:
    """Goes through a file once, keeps what is good and counts what is bad."""

    def __init__(self, source: Source, roles: dict[str, int], partitions: int) -> None:
        self._source, self._roles = source, roles
        self._readers: dict[str, Reader] = {
            "time": Times(1_000_000),
            "time_ms": Times(1_000),
            "partition": Whole(0, partitions - 1),
            "key": Keys(partitions),
            "records": Whole(1, MOST_RECORDS),
            "bytes": Whole(0, MOST_BYTES),
        }
        self._kept: dict[str, list[Ints]] = {role: [] for role in roles}
        self._passed = 0  # rows of earlier blocks, blank lines among them
        self._blank: list[int] = []  # which of them are blank
        self._bad = 0
        self._first: tuple[int, str] | None = None  # place of the first bad row, and what it has

    def rows(self) -> Rows:
        """All rows. Raises TraceError if one is bad or there is none."""
        for block in self._source.blocks:
            self._take(block)
        self._refuse_bad()
        kept = {role: np.concatenate(blocks) for role, blocks in self._kept.items() if blocks}
        times = kept.get("time_ms", kept.get("time", np.zeros(0, dtype=np.int64)))
        if len(times) == 0:
            raise TraceError(f"{self._source.path} has no rows; valid: at least one batch")
        self._refuse_far(times)
        nowhere = np.full(len(times), -1)
        return Rows(
            (times - times.min()) // 1_000,
            kept.get("partition", kept.get("key", nowhere)).astype(np.int32),
            kept.get("records", -nowhere).astype(np.int32),
            kept.get("bytes"),
        )

    def _take(self, block: pa.RecordBatch) -> None:
        """Check one block and keep its values."""
        keep = ~_is_blank(block) if self._source.unit == "line" else np.ones(len(block), np.bool_)
        columns = {role: self._column(role, block.column(at)) for role, at in self._roles.items()}
        for role, column in columns.items():
            self._kept[role].append(column.values[keep])
        bad = keep & np.any([column.bad for column in columns.values()], axis=0)
        if self._first is None and bad.any():
            self._first = self._fault(block, columns, int(np.argmax(bad)))
        self._bad += int(bad.sum())
        self._blank += (self._passed + np.flatnonzero(~keep)).tolist()
        self._passed += len(block)

    def _column(self, role: str, array: pa.Array) -> Column:
        is_csv = self._source.unit == "line"
        try:
            return self._readers[role](_decoded(array) if is_csv else _plain(array))
        except TypeError as error:
            name = self._source.names[self._roles[role]]
            raise TraceError(
                f"{self._source.path}, column {name!r} has the type {array.type}; valid: {error}"
            ) from None

    def _fault(
        self, block: pa.RecordBatch, columns: dict[str, Column], row: int
    ) -> tuple[int, str]:
        """Where a bad row is, and what is wrong with it."""
        role = next(role for role, column in columns.items() if column.bad[row])
        value = block.column(self._roles[role])[row].as_py()
        said = "is missing" if value is None or value in ("", b"") else f"has {_shown(value)}"
        name = self._source.names[self._roles[role]]
        where = self._passed + row + (2 if self._source.unit == "line" else 1)
        where = _counting(where, [line for line, _ in self._source.ragged])
        return where, f"column {name!r} {said}; valid: {columns[role].valid}"

    def _refuse_bad(self) -> None:
        """Raise TraceError if anything was wrong so far."""
        ragged = self._source.ragged
        faults = [*ragged[:1], *([self._first] if self._first else [])]
        if faults:
            where, said = min(faults)
            more = self._bad + len(ragged) - 1
            raise TraceError(
                f"{self._source.path}, {self._source.unit} {where}: {said}"
                + (f" (more bad {self._source.unit}s: {more:,})" if more else "")
            )

    def _refuse_far(self, times_us: Ints) -> None:
        """Raise TraceError if the rows are further apart than any load that is one."""
        moments, unit = times_us.view("datetime64[us]"), self._source.unit
        first, last = int(times_us.argmin()), int(times_us.argmax())
        starts = f"{self._source.path} begins at {moments[first]} ({unit} {self._place(first)})"
        if times_us[last] - times_us[first] > MOST_DAYS * DAY_US:
            raise TraceError(
                f"{starts} and ends at {moments[last]} ({unit} {self._place(last)}); valid: up to "
                f"{MOST_DAYS} days (are there s and ms, or times of 0, in one column?)"
            )
        low_ms, high_ms = LIKE_SECONDS
        if "time_ms" in self._roles and low_ms <= times_us[first] // 1_000 < high_ms:
            raise TraceError(f"{starts}: these are s, not ms; valid: a name without '_ms'")

    def _place(self, row: int) -> int:
        """The line or row in the file of one that is kept."""
        return _counting(row, self._blank) + (2 if self._source.unit == "line" else 1)


def _counting(place: int, passed: list[int]) -> int:
    """A place, counted with those (ascending) that were passed over."""
    for each in passed:
        if each > place:
            break
        place += 1
    return place


def _shown(value: object) -> str:
    """A value as the file has it; bytes that are not UTF-8 as bytes."""
    with contextlib.suppress(UnicodeDecodeError):
        value = value.decode() if isinstance(value, bytes) else str(value)
    return f"{value[:80]!r}" if isinstance(value, str | bytes) else repr(value)


def _is_blank(block: pa.RecordBatch) -> Bools:
    """Which rows of a CSV file are blank lines: no value in any column, bool[n]."""
    blank = np.ones(len(block), dtype=np.bool_)
    for column in block.columns:
        if not blank.any():
            break
        blank &= np.asarray(pc.equal(pc.binary_length(column), 0))
    return blank


def _plain(array: pa.Array) -> pa.Array:
    """Without dictionaries, views and long offsets."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    is_text = array.type in (pa.large_string(), pa.string_view())
    return array.cast(pa.string()) if is_text else array


def _decoded(array: pa.Array) -> pa.Array:
    """Bytes as text; what is not UTF-8 shows as U+FFFD."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([value.decode("utf-8", "replace") for value in array.to_pylist()])
