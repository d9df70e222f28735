"""Real broker logs of any Kafka version, read into the events table."""

from isrlab.brokerlogs.files import LogDirError
from isrlab.brokerlogs.lines import Unread, read_line
from isrlab.brokerlogs.read import BrokerLogs, read_local

__all__ = ["BrokerLogs", "LogDirError", "Unread", "read_line", "read_local"]
