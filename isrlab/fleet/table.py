"""Rows of one run as a table of events, given as columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from isrlab.events.schema import SCHEMA
from isrlab.fleet.kernel.state import Ints


def rows_table(run: str, ts_ms: Ints, **columns: Ints | pa.Array | str | int) -> pa.Table:
    """A table of the events schema; a column is an array, or one value for all rows.

    Columns that are not given are null.
    """
    given = {"run": run, "ts_ms": ts_ms, **columns}

    def column(field: pa.Field) -> pa.Array:
        value = given.get(field.name)
        if value is None or isinstance(value, (str, int)):
            return pa.repeat(pa.scalar(value, field.type), len(ts_ms))
        return (pa.array(value) if isinstance(value, np.ndarray) else value).cast(field.type)

    return pa.table([column(field) for field in SCHEMA], schema=SCHEMA)
