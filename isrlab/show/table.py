"""Tables for notebooks: every cell escaped, moments as UTC time, a limited number of rows."""

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from IPython.display import HTML

_MOMENTS = ("ts_ms", "from_ms", "to_ms", "left_ms", "back_ms", "asked_ms", "committed_ms")
_NUMBERS = ("partition", "replica", "broker")  # ids, not counts


def table(rows: pd.DataFrame | Sequence[Mapping[str, Any]], most: int = 50) -> HTML:
    """The first `most` rows without the column `run`; integers with commas."""
    data = pd.DataFrame(rows)
    if data.empty:
        return HTML("<p>None.</p>")
    rest = len(data) - most
    note = f"<p>and {rest:,} more rows</p>" if rest > 0 else ""
    shown = data.head(most).drop(columns=[name for name in ("run",) if name in data])
    return HTML(html_table(shown.apply(_readable)) + note)


def html_table(data: pd.DataFrame) -> str:
    """A DataFrame as an HTML table, with escaped contents."""
    head = "".join(f"<th>{html.escape(_heading(str(name)))}</th>" for name in data.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(value))}</td>" for value in row) + "</tr>"
        for row in data.itertuples(index=False)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _heading(name: str) -> str:
    """A column's name in words, with its unit in brackets; a setting as Kafka writes it."""
    if name.startswith("replica_"):
        return name.replace("_", ".")
    unit = " (UTC)" if name in _MOMENTS else r" (\1)"
    name = re.sub(r"_(ms|s|bytes|records)$", unit, name.replace("_per_s", "/s"))
    return name.replace("_x_", " × ").replace("_", " ")


def _readable(column: pd.Series) -> pd.Series:
    name = str(column.name)
    if name in _MOMENTS:
        times = pd.to_datetime(column, unit="ms")
        return times.dt.strftime("%Y-%m-%d %H:%M:%S.").str.cat(times.dt.strftime("%f").str[:3])
    if name in ("isr", "isr_before"):
        return column.map(lambda isr: "" if isr is None else ", ".join(map(str, isr)))
    if pd.api.types.is_integer_dtype(column) and name not in _NUMBERS:
        return column.map("{:,}".format)
    return column
