"""A trace file: how many records were sent to which partition, and when.

CSV (also .csv.gz) or Parquet, one row for each batch. Columns are found by their names, upper or
lower case (`ROLES`), or named in `columns`, such as "time=TIMESTAMP records=ContextTokens"; all
others are ignored. The time is an ISO timestamp (UTC unless it names its zone), or a number: of
milliseconds if the column's name ends in "_ms" (or the mapping says time_ms=...), else of seconds.
The earliest row is time 0, and rows need not be sorted. The partition is a number, or derived from
the key (which is ignored if both columns are there); a row without either has -1. Without a column
of records each row is one record.

Nothing is dropped: one bad row makes the reader refuse the whole file; the error has the first bad
row and the number of others. Only blank lines are skipped. The whole file is in memory. Arrow reads
each column; only if it cannot read a value does pandas, which is slower, find out which one.
"""

import contextlib
import shlex
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from isrlab.fleet import load
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.kernel.state import Bools, Ints
from isrlab.fleet.recorded.partitioner import partition_of_keys

ENDINGS = (".csv", ".csv.gz", ".parquet")
BLOCK_BYTES = 16_000_000
MOST_DAYS = 366  # from the earliest row to the latest
MOST_SECONDS = 10**11  # since 1970; larger times are ms in a column of seconds
LIKE_SECONDS = (10**9, 4 * 10**9)  # as s: from 2001 to 2096; as ms: a few weeks in 1970
MS_HINT = " (a column of ms has a name that ends in _ms)"


class TraceError(ValueError):
    """A trace that cannot be used: the place, the value, and what is valid."""


class ColumnUse(NamedTuple):
    """A use of a column."""

    names: tuple[str, ...]  # the names that identify it
    kinds: str  # of column that can have this use, see `_kind`
    limits: tuple[int, int] = (0, 0)  # of a whole number


TIMES = ("time", "timestamp", "ts", "datetime", "time_ms", "timestamp_ms", "ts_ms")
ROLES = {
    "time": ColumnUse(TIMES, "timestamps, numbers or text"),
    "partition": ColumnUse(("partition",), "numbers or text"),  # its limit is the fleet's
    "key": ColumnUse(("key",), "text, or the bytes that the producer sends"),
    "records": ColumnUse(("records", "count"), "numbers or text", (1, 10**9)),
    "bytes": ColumnUse(("bytes", "size"), "numbers or text", (0, 10**11)),
}
MAPPED = ("time", "time_ms", *list(ROLES)[1:])  # the names allowed in `columns`


class TraceRows(NamedTuple):
    """The contents of a trace file, in file order."""

    ts_ms: Ints  # int64[n], since the earliest row
    partition: NDArray[np.int32]  # int32[n], -1 where the file says nothing
    records: NDArray[np.int32]  # int32[n], at least 1
    bytes: Ints | None  # int64[n], of the row's records together; None if the file says nothing


class Column(NamedTuple):
    """A column with a role."""

    place: int  # in the table
    values: Ints  # int64[n], undefined where bad; times in microseconds, keys as partitions
    bad: Bools  # bool[n]
    valid: str  # what the values should be, in words


class TraceFile(NamedTuple):
    """A file as read."""

    path: str
    table: pa.Table
    is_csv: bool
    ragged: list[tuple[int, str]]  # lines with a wrong number of values; the first with its text


def read(path: str, columns: str = "", partitions: int = 2**31 - 1) -> TraceRows:
    """All rows of a trace file. Raises TraceError."""
    try:
        source = _opened(path)
        roles, is_ms = _roles(source, columns)
        columns_of = {r: _column(source, r, at, partitions, is_ms) for r, at in roles.items()}
        return _rows(source, columns_of, is_ms)
    except UnicodeDecodeError as error:
        raise TraceError(f"{path} is not text in UTF-8: {error}") from None
    except (pa.ArrowException, OSError) as error:
        raise TraceError(f"{path} cannot be read: {error}") from error


def _opened(path: str) -> TraceFile:
    """The file at `path`, read in the format that its ending names."""
    if not Path(path).is_file():
        what = "is a folder" if Path(path).is_dir() else "does not exist"
        raise TraceError(f"trace_file={path!r} {what}; valid: a file ({', '.join(ENDINGS)})")
    if not path.lower().endswith(ENDINGS):
        raise TraceError(f"trace_file={path!r} has no known ending; valid: {', '.join(ENDINGS)}")
    if path.lower().endswith(".parquet"):
        return TraceFile(path, pq.ParquetFile(pa.OSFile(path)).read(), False, [])
    if Path(path).stat().st_size == 0:
        raise TraceError(f"{path} is empty; valid: a header line and one line for each batch")
    return _csv(path)


def _csv(path: str) -> TraceFile:
    """A CSV file, all columns as bytes."""
    ragged: list[tuple[int, str]] = []

    def pass_over(row: pacsv.InvalidRow) -> str:
        text = f"{row.actual_columns} values instead of {row.expected_columns}: {row.text[:80]!r}"
        ragged.append((row.number, "" if ragged else text))
        return "skip"

    def opened(names: list[str]) -> pacsv.CSVStreamingReader:
        ragged.clear()
        return pacsv.open_csv(
            pa.input_stream(path, compression="gzip" if path.lower().endswith(".gz") else None),
            pacsv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),  # threads lose lines
            pacsv.ParseOptions(invalid_row_handler=pass_over, ignore_empty_lines=False),
            pacsv.ConvertOptions(column_types=dict.fromkeys(names, pa.large_binary())),
        )

    return TraceFile(path, opened(opened([]).schema.names).read_all(), True, ragged)


def _roles(source: TraceFile, columns: str) -> tuple[dict[str, int], bool]:
    """Role -> place of its column, and whether the time is in ms. Raises TraceError if unclear.

    `columns` takes precedence over known names.
    """
    mapped = _mapped(columns)
    has = f"{source.path} has the columns {', '.join(source.table.column_names)}"
    lower = [name.strip().lower() for name in source.table.column_names]
    for name in mapped.values():
        if name.lower() not in lower:
            raise TraceError(f"trace_columns asks for {name!r}; {has}")
    roles = {}
    for role, form in ROLES.items():
        asked = [name for key, name in mapped.items() if key.removesuffix("_ms") == role]
        names = asked or form.names
        places = [at for name in names for at, own in enumerate(lower) if own == name.lower()]
        if len(places) > 1 or (role == "time" and not places):
            raise TraceError(
                f"{has}, {len(places)} of them with a name for the {role}; valid: one of "
                f"{', '.join(names)}, or trace_columns='{role}=NAME'"
            )
        if places:
            roles[role] = places[0]
    return roles, "time_ms" in mapped or lower[roles["time"]].endswith("_ms")


def _mapped(columns: str) -> dict[str, str]:
    """Name of `MAPPED` -> name of its column, out of "time=TIMESTAMP records=ContextTokens"."""
    try:
        parts = [part.partition("=") for part in shlex.split(columns)]
    except ValueError as error:
        raise TraceError(f"trace_columns={columns!r} is not known: {error}") from None
    if wrong := ["".join(part) for part in parts if part[0] not in MAPPED or not part[2]]:
        raise TraceError(
            f"trace_columns={columns!r}: {wrong[0]!r} is not known; "
            f"valid: NAME=COLUMN, where NAME is one of {', '.join(MAPPED)}"
        )
    return {role: name for role, _, name in parts}


def _column(source: TraceFile, role: str, place: int, partitions: int, is_ms: bool) -> Column:
    """The values of a column as numbers. Raises TraceError if it cannot hold any."""
    array, name = _plain(source, place), source.table.column_names[place]
    if _kind(array.type) not in ROLES[role].kinds:
        raise TraceError(
            f"{source.path}, column {name!r} has the type {array.type}; valid: {ROLES[role].kinds}"
        )
    if role == "time":
        return Column(place, *_times(array, is_ms))
    if role == "key":
        bad = np.zeros(len(array), np.bool_)
        if _kind(array.type) == "text":
            bad = np.asarray(pc.fill_null(pc.match_substring(array, "\ufffd"), False))
        return Column(place, partition_of_keys(array, partitions), bad, "text in UTF-8")
    low, high = (0, partitions - 1) if role == "partition" else ROLES[role].limits
    numbers = _numbers(array)
    good = (numbers >= low) & (numbers <= high) & (numbers == np.floor(numbers))
    valid = f"whole numbers from {low:,} to {high:,}"
    return Column(place, np.where(good, numbers, 0).astype(np.int64), ~good, valid)


def _plain(source: TraceFile, place: int) -> pa.Array:
    """A column without dictionaries and views; a CSV's as text, with U+FFFD for invalid UTF-8."""
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


def _kind(of: pa.DataType) -> str:
    """What a column of this type holds: "timestamps", "numbers", "text", "bytes" or "else"."""
    if pa.types.is_integer(of) or pa.types.is_floating(of):
        return "numbers"
    kinds = {pa.large_string(): "text", pa.binary(): "bytes", pa.large_binary(): "bytes"}
    return "timestamps" if pa.types.is_timestamp(of) else kinds.get(of, "else")


def _numbers(array: pa.Array) -> NDArray[np.float64]:
    """Numbers, or text with numbers, as float64[n]; NaN for anything else."""
    try:
        return np.asarray(pc.fill_null(array.cast(pa.float64(), safe=False), np.nan))
    except pa.ArrowInvalid:
        return np.asarray(pd.to_numeric(array.to_pandas(), errors="coerce"), dtype=np.float64)


def _times(array: pa.Array, is_ms: bool) -> tuple[Ints, Bools, str]:
    """Microseconds of timestamps, of numbers, or of text that holds one of these.

    For text, the majority of the first values decides which.
    """
    if _kind(array.type) == "text":
        first = array.filter(pc.not_equal(array, ""))[:100]
        if 2 * int(np.isfinite(_numbers(first)).sum()) < len(first):
            array = _timestamps(array)
    if _kind(array.type) == "timestamps":
        times = array.cast(pa.timestamp("us", array.type.tz), safe=False).cast(pa.int64())
        valid = "timestamps such as 2023-11-16T18:17:03.980"
        return np.asarray(pc.fill_null(times, 0)), np.asarray(array.is_null()), valid
    unit, unit_us, hint = ("ms", 1_000, "") if is_ms else ("s", 1_000_000, MS_HINT)
    highest = MOST_SECONDS * 1_000_000 // unit_us
    numbers = _numbers(array)
    good = (numbers >= 0) & (numbers <= highest)
    times = np.round(np.where(good, numbers, 0) * unit_us).astype(np.int64)
    return times, ~good, f"{unit} from 0 to {highest:,}{hint}"


def _timestamps(array: pa.Array) -> pa.Array:
    """Timestamps out of text in ISO 8601, UTC unless they name their zones; null for others."""
    for zone in (None, "UTC"):
        with contextlib.suppress(pa.ArrowInvalid):
            return array.cast(pa.timestamp("ns", zone))
    texts = array.to_pandas()
    texts = texts.where(texts.str.match(r"\s*\d{4}-\d\d-\d\d", na=False))
    return pa.Array.from_pandas(pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce"))


def _rows(source: TraceFile, columns: dict[str, Column], is_ms: bool) -> TraceRows:
    """All rows but blank lines. Raises TraceError."""
    keep = np.ones(len(source.table), np.bool_)
    if source.is_csv:  # without blank lines, which have no value in any column
        empty = [pc.equal(pc.binary_length(column), 0) for column in source.table.columns]
        keep = ~np.all(empty, axis=0)
    _refuse(source, columns, keep, is_ms)
    values = {role: column.values[keep] for role, column in columns.items()}
    nowhere = np.full(len(values["time"]), -1)
    return TraceRows(
        (values["time"] - values["time"].min()) // 1_000,
        values.get("partition", values.get("key", nowhere)).astype(np.int32),
        values.get("records", -nowhere).astype(np.int32),
        values.get("bytes"),
    )


def _refuse(source: TraceFile, columns: dict[str, Column], keep: Bools, is_ms: bool) -> None:
    """Raise TraceError if a kept row is bad, a line ragged, or the times implausible."""
    unit, first = ("line", 2) if source.is_csv else ("row", 1)
    ragged = [line - first for line, _ in source.ragged]
    places = np.delete(np.arange(len(keep) + len(ragged)) + first, ragged)  # in the file
    bad = np.flatnonzero(keep & np.any([column.bad for column in columns.values()], axis=0))
    faults = source.ragged[:1]
    if len(bad):
        row = int(bad[0])
        column = next(column for column in columns.values() if column.bad[row])
        value = source.table.column(column.place)[row].as_py()
        has = "is missing" if value in (None, "", b"") else f"has {_shown(value)}"
        name = source.table.column_names[column.place]
        faults.append((int(places[row]), f"column {name!r} {has}; valid: {column.valid}"))
    if faults:
        where, text = min(faults)
        more = len(bad) + len(ragged) - 1
        rest = f" (more bad {unit}s: {more:,})" if more else ""
        raise TraceError(f"{source.path}, {unit} {where}: {text}{rest}")
    if not keep.any():
        raise TraceError(f"{source.path} has no rows; valid: at least one batch")
    times_us, places = columns["time"].values[keep], places[keep]
    begins, ends = (
        f"{times_us[at].view('datetime64[us]')} ({unit} {places[at]})"
        for at in (times_us.argmin(), times_us.argmax())
    )
    if np.ptp(times_us) > MOST_DAYS * 86_400 * 10**6:
        raise TraceError(
            f"{source.path} begins at {begins} and ends at {ends}; valid: up to "
            f"{MOST_DAYS} days (does a column mix s and ms, or contain times of 0?)"
        )
    if is_ms and LIKE_SECONDS[0] <= times_us.min() // 1_000 < LIKE_SECONDS[1]:
        why = "these are s, not ms; valid: a name without '_ms'"
        raise TraceError(f"{source.path} begins at {begins}: {why}")


def _shown(value: object) -> str:
    """A value as it is in the file; invalid UTF-8 is shown as bytes."""
    content = value if isinstance(value, bytes) else str(value).encode()
    with contextlib.suppress(UnicodeDecodeError):
        return repr(content.decode()[:80])
    return repr(content[:80])


def write_trace(config: FleetConfig, path: str | Path | None = None) -> Path:
    """Write the drawn load of a fleet as a trace file, by time, and return its path.

    Columns `time_ms`, `partition`, `records`, `bytes`; CSV, or Parquet if the name ends so; by
    default a new temporary CSV. A reader (`load="trace"`) takes the earliest batch as time 0.
    Raises ValueError for another ending, a load that is a trace itself, or no load.
    """
    target = Path(path) if path is not None else Path(tempfile.mkdtemp()) / f"{config.load}.csv"
    if target.suffix not in (".csv", ".parquet"):
        raise ValueError(f"{str(path)!r} must end in .csv or .parquet")
    drawn = load.arrivals(config, np.arange(config.partitions))
    if len(drawn.ts_ms) == 0:
        raise ValueError("the fleet has no load, so there is nothing to write")
    sizes = drawn.records * np.int64(config.record_bytes)
    rows = pa.table([*drawn, sizes], ["time_ms", "partition", "records", "bytes"])
    (pq.write_table if target.suffix == ".parquet" else pacsv.write_csv)(rows, target)
    return target
