"""Load that was recorded: trace files, read and checked, cut into cells, and written."""

from isrlab.fleet.recorded.cells import (
    Recorded,
    Recording,
    describe,
    of_cell,
    packed,
    recording,
    summary,
    unpacked,
)
from isrlab.fleet.recorded.file import TraceError
from isrlab.fleet.recorded.writer import write_trace

__all__ = [
    "Recorded",
    "Recording",
    "TraceError",
    "describe",
    "of_cell",
    "packed",
    "recording",
    "summary",
    "unpacked",
    "write_trace",
]
