"""Real broker logs of any Kafka version, read into the events table."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from isrlab_ops.logs.reader.lines import Unread, read_line

if TYPE_CHECKING:
    from isrlab_ops.logs.reader.files import LogDirError
    from isrlab_ops.logs.reader.read import BrokerLogs, read_local

__all__ = ["BrokerLogs", "LogDirError", "Unread", "read_line", "read_local"]
_PLACES = {"BrokerLogs": "read", "LogDirError": "files", "read_local": "read"}


def __getattr__(name: str) -> Any:
    """Import a name that needs numpy or Arrow on its first use: lines are read without them."""
    if name in _PLACES:
        return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    raise AttributeError(f"{__name__} has no {name!r}; it has {', '.join(__all__)}")
