"""The events table: simulations and log readers write it, and queries and figures read it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from isrlab.events.names import COLUMNS, DETAIL, KINDS

if TYPE_CHECKING:
    from isrlab.events.schema import SCHEMA, spark_schema, table

__all__ = ["COLUMNS", "DETAIL", "KINDS", "SCHEMA", "spark_schema", "table"]


def __getattr__(name: str) -> Any:
    """Import a name that needs Arrow on its first use."""
    if name in __all__:
        return getattr(import_module("isrlab.events.schema"), name)
    raise AttributeError(f"isrlab.events has no {name!r}; it has {', '.join(__all__)}")
