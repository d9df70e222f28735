"""Fleets: thousands of partitions under load for hours, by the same rules as the engine.

`FleetConfig` says what runs; `simulate_local`, `simulate` and `stored` turn it into events; `trace`
looks at one partition closely. Load is random (load.py) or recorded (`load="trace"`, recorded/).
Questions that only a simulation can answer are in `truth` and `evictions` (on Spark), the cost of a
restart in `recovery`, and where partitions and fetchers are in `layout`.
"""

from isrlab.fleet.config import LOADS, FleetConfig, settings, sweep, versions
from isrlab.fleet.lens import Trace, most_evicting, trace
from isrlab.fleet.recorded import write_trace
from isrlab.fleet.simulate import runs, simulate, simulate_local
from isrlab.fleet.store import read, stored

__all__ = [
    "LOADS", "FleetConfig", "Trace", "evictions", "layout", "most_evicting", "read", "recovery",
    "runs", "settings", "simulate", "simulate_local", "stored", "sweep", "trace", "truth",
    "versions", "write_trace",
]  # fmt: skip
