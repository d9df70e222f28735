"""Real broker logs of any Kafka version, read into the events table."""

from typing import TYPE_CHECKING

from isrlab import exports
from isrlab_ops.logs.reader.lines import Unread, read_line

if TYPE_CHECKING:
    from isrlab_ops.logs.reader.files import LogDirError
    from isrlab_ops.logs.reader.read import BrokerLogs, read_local

__all__ = ["BrokerLogs", "LogDirError", "Unread", "read_line", "read_local"]
_PLACES = {"BrokerLogs": "read:", "LogDirError": "files:", "read_local": "read:"}  # need numpy
__getattr__ = exports(__name__, {name: f"{at}{name}" for name, at in _PLACES.items()})
