"""Recorded load: trace files, read and checked, divided into cells, and written."""

# ruff: noqa: F401, I001
from isrlab.fleet.recorded.cells import CellRecording, describe, of_cell, packed
from isrlab.fleet.recorded.cells import recording, summary, unpacked
from isrlab.fleet.recorded.file import TraceError, write_trace
