"""A file of recorded load, read and checked: who sent how much to which partition, and when.

CSV (also .csv.gz) or Parquet, one row for each batch. Columns are found by their names, upper or
lower case (`columns.ROLES`), or named in `columns`, such as "time=TIMESTAMP records=ContextTokens";
all others are ignored. The time is an ISO timestamp (UTC unless it names its zone), or a number: of
milliseconds if the column's name ends in "_ms" (or the mapping says time_ms=...), else of seconds.
The earliest row is time 0, and rows need not be sorted. A partition is a number, or that of the
key (which is ignored if both are there); a row without either has -1. Without records a row is one
record.

Nothing is dropped: one bad row and the whole file is refused, with the first bad row and how many
more there are. Only blank lines are passed over. The whole file is in memory at once.
"""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from isrlab.fleet.kernel.state import Ints
from isrlab.fleet.recorded.columns import ROLES, Bools, Column, kind

ENDINGS = (".csv", ".csv.gz", ".parquet")
TIMES = ("time", "time_ms")
BLOCK_BYTES = 16_000_000
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
    """A file as it was read."""

    path: str
    table: pa.Table
    is_csv: bool
    ragged: list[tuple[int, str]]  # lines with a wrong number of values; the first with its text

    @property
    def unit(self) -> str:
        """What its places are counted by."""
        return "line" if self.is_csv else "row"

    def place(self, row: int) -> int:
        """The line (or row) in the file of a row of the table, from 1."""
        line = row + (2 if self.is_csv else 1)
        for ragged, _ in self.ragged:
            line += ragged <= line
        return line


def read(path: str, columns: str = "", partitions: int = 2**31 - 1) -> Rows:
    """All rows of a trace file. Raises TraceError."""
    try:
        source = _opened(path)
        return _rows(source, _roles(source, columns), partitions)
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
        return Source(path, pq.ParquetFile(pa.OSFile(path)).read(), False, [])
    if Path(path).stat().st_size == 0:
        raise TraceError(f"{path} is empty; valid: a header line and one line for each batch")
    ragged: list[tuple[int, str]] = []
    types = dict.fromkeys(_csv(path, [], {}).schema.names, pa.large_binary())
    return Source(path, _csv(path, ragged, types).read_all(), True, ragged)


def _csv(
    path: str, ragged: list[tuple[int, str]], types: dict[str, pa.DataType]
) -> pacsv.CSVStreamingReader:
    """A CSV file; a line with a wrong number of values is put into `ragged`."""

    def pass_over(row: pacsv.InvalidRow) -> str:
        text = f"{row.actual_columns} values instead of {row.expected_columns}: {row.text[:80]!r}"
        ragged.append((row.number, "" if ragged else text))
        return "skip"

    return pacsv.open_csv(
        pa.input_stream(path, compression="gzip" if path.lower().endswith(".gz") else None),
        pacsv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),  # threads lose line numbers
        pacsv.ParseOptions(invalid_row_handler=pass_over, ignore_empty_lines=False),
        pacsv.ConvertOptions(column_types=types),
    )


def _roles(source: Source, columns: str) -> dict[str, int]:
    """Role -> place of its column; one of them is the time. Raises TraceError if that is unclear.

    What `columns` asks for goes before what has a known name.
    """
    asked = _asked(columns)
    has = f"{source.path} has the columns {', '.join(source.table.column_names)}"
    lower = [name.strip().lower() for name in source.table.column_names]
    roles = {}
    for role, form in ROLES.items():
        if role in TIMES and role not in asked and not asked.keys().isdisjoint(TIMES):
            continue
        names = (asked[role].lower(),) if role in asked else form.names
        places = [place for place, name in enumerate(lower) if name in names]
        if role in asked and not places:
            raise TraceError(f"trace_columns asks for {asked[role]!r}; {has}")
        if len(places) > 1:
            raise TraceError(f"{has}: more than one for {role!r}; choose one in trace_columns")
        if places:
            roles[role] = places[0]
    times = [role for role in TIMES if role in roles]
    if len(times) != 1:
        raise TraceError(
            f"{has}, {len(times)} of them with a name for the time; valid: one of "
            f"{', '.join(ROLES['time'].names + ROLES['time_ms'].names)}, "
            "or trace_columns='time=NAME'"
        )
    place = roles.pop(times[0])
    is_ms = times[0] == "time_ms" or lower[place].endswith("_ms")
    return {"time_ms" if is_ms else "time": place, **roles}


def _asked(columns: str) -> dict[str, str]:
    """Role -> name of its column, out of "time=TIMESTAMP records=ContextTokens"."""
    try:
        parts = [part.partition("=") for part in shlex.split(columns)]
    except ValueError as error:
        raise TraceError(f"trace_columns={columns!r} is not known: {error}") from None
    for role, equals, name in parts:
        if role not in ROLES or not name:
            raise TraceError(
                f"trace_columns={columns!r}: {role + equals + name!r} is not known; "
                f"valid: NAME=COLUMN, where NAME is one of {', '.join(ROLES)}"
            )
    return {role: name for role, _, name in parts}


def _rows(source: Source, roles: dict[str, int], partitions: int) -> Rows:
    """All rows but blank lines. Raises TraceError if one is bad or there is none."""
    columns = {}
    for role, at in roles.items():
        array, kinds = _plain(source, at), ROLES[role].kinds
        if kind(array.type) not in kinds:
            has = f"column {source.table.column_names[at]!r} has the type {array.type}"
            raise TraceError(f"{source.path}, {has}; valid: {kinds}")
        columns[role] = ROLES[role].read(array, partitions)
    keep = np.ones(len(source.table), np.bool_)
    if source.is_csv:  # without blank lines, which have no value in any column
        empty = [pc.equal(pc.binary_length(column), 0) for column in source.table.columns]
        keep = ~np.all(empty, axis=0)
    _refuse_bad(source, roles, columns, keep)
    values = {role: column.values[keep] for role, column in columns.items()}
    times = values["time_ms" if "time_ms" in roles else "time"]
    if len(times) == 0:
        raise TraceError(f"{source.path} has no rows; valid: at least one batch")
    _refuse_far(source, times, np.flatnonzero(keep), is_ms="time_ms" in roles)
    nowhere = np.full(len(times), -1)
    return Rows(
        (times - times.min()) // 1_000,
        values.get("partition", values.get("key", nowhere)).astype(np.int32),
        values.get("records", -nowhere).astype(np.int32),
        values.get("bytes"),
    )


def _refuse_bad(
    source: Source, roles: dict[str, int], columns: dict[str, Column], keep: Bools
) -> None:
    """Raise TraceError if a row that is kept is bad, or a line ragged: the first of them."""
    bad = np.flatnonzero(keep & np.any([column.bad for column in columns.values()], axis=0))
    faults = source.ragged[:1]
    if len(bad):
        row = int(bad[0])
        role = next(role for role, column in columns.items() if column.bad[row])
        value = source.table.column(roles[role])[row].as_py()
        has = "is missing" if value in (None, "", b"") else f"has {_shown(value)}"
        name = source.table.column_names[roles[role]]
        text = f"column {name!r} {has}; valid: {columns[role].valid}"
        faults = [*faults, (source.place(row), text)]
    if faults:
        where, text = min(faults)
        more = len(bad) + len(source.ragged) - 1
        rest = f" (more bad {source.unit}s: {more:,})" if more else ""
        raise TraceError(f"{source.path}, {source.unit} {where}: {text}{rest}")


def _refuse_far(source: Source, times_us: Ints, rows: Ints, is_ms: bool) -> None:
    """Raise TraceError if the rows are further apart than any load that is one.

    `rows` int64[n]: where the times are in the table.
    """
    first, last = int(times_us.argmin()), int(times_us.argmax())
    begins, ends = (
        f"{times_us[at].view('datetime64[us]')} ({source.unit} {source.place(int(rows[at]))})"
        for at in (first, last)
    )
    if times_us[last] - times_us[first] > MOST_DAYS * DAY_US:
        raise TraceError(
            f"{source.path} begins at {begins} and ends at {ends}; valid: up to "
            f"{MOST_DAYS} days (are there s and ms, or times of 0, in one column?)"
        )
    if is_ms and LIKE_SECONDS[0] <= times_us[first] // 1_000 < LIKE_SECONDS[1]:
        why = "these are s, not ms; valid: a name without '_ms'"
        raise TraceError(f"{source.path} begins at {begins}: {why}")


def _shown(value: object) -> str:
    """A value as the file has it; bytes that are not UTF-8 as bytes."""
    with contextlib.suppress(UnicodeDecodeError):
        value = value.decode() if isinstance(value, bytes) else str(value)
    return f"{value[:80]!r}" if isinstance(value, str | bytes) else repr(value)


def _plain(source: Source, place: int) -> pa.Array:
    """A column without dictionaries and views; of a CSV as text, where U+FFFD is not UTF-8."""
    array = source.table.column(place).combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not source.is_csv and array.type not in (pa.string(), pa.string_view()):
        return array
    try:
        return array.cast(pa.large_string())
    except pa.ArrowInvalid:
        texts = [value.decode("utf-8", "replace") for value in array.to_pylist()]
        return pa.array(texts, pa.large_string())
