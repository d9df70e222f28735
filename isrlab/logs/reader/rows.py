"""Rows of events on their way into a table: there may be millions."""

from __future__ import annotations

from itertools import accumulate

import pyarrow as pa

from isrlab.events import schema as events_table
from isrlab.logs.reader.lines import Event

MOST_ROWS = 5_000  # that are no table yet
_OWN = [(name, events_table.SCHEMA.field(name).type) for name in events_table.COLUMNS]
OF_ONE_FILE = pa.schema(
    [(name, type_) for name, type_ in _OWN if name != "run"]
    + [("line", pa.int64()), ("same", pa.int64())]
    + [("source", pa.string()), ("is_local", pa.bool_())]
)
# What `table` gives: `same` is equal for the same words, `order` and `folder` are the file's.
OF_LINES = pa.schema(
    _OWN + [(name, pa.int64()) for name in ("line", "same", "order")] + [("folder", pa.string())]
)


class Rows:
    """Rows of events on their way into a table, where they need little memory."""

    def __init__(self, schema: pa.Schema) -> None:
        self.table = schema.empty_table()
        self._new: list[Event] = []

    def add(self, row: Event) -> None:
        """Add a row; what it does not name is null."""
        self._new.append(row)
        if len(self._new) == MOST_ROWS:
            self.pack()

    def pack(self) -> None:
        """Put those that were added into the table."""
        if self._new:
            columns = [self._column(field) for field in self.table.schema]
            new = pa.table(columns, self.table.schema)
            self.table, self._new = pa.concat_tables([self.table, new]), []

    def _column(self, field: pa.Field) -> pa.Array:
        name = field.name
        if name != "detail":
            return pa.array([row.get(name) for row in self._new], field.type)
        details = [row["detail"] for row in self._new]
        keys = [key for detail in details for key in detail]
        values = [value for detail in details for value in detail.values()]
        ends = [0, *accumulate(map(len, details))]
        return pa.MapArray.from_arrays(ends, pa.array(keys, pa.string()), pa.array(values))
