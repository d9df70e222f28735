"""Distinct states per second of the search of everything, by wall clock and by CPU.

    make bench, or: python benchmarks/bench_search.py [--long] [WORKERS]

Each search has a process of its own, with the machine code loaded. A state's bytes are those by
which the process grows; each component's table is among them, so only searches of millions of
states tell. TLC's figures are stored: two workers, on two cores.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from alone import alone

from cases.reference_systems import KIP320, Reference
from isrlab_proof.search.breadth_first import BreadthFirst, resident_bytes
from isrlab_proof.search.everything import system_of

TLC = "TLC: 25,000 to 27,000 states/s, 4.3 GB (Kip320 with 3 replicas, 2, 2, 2: 737,794 states)"
LINE = "partition replicas=1,2"
SYSTEMS = ("0.10.2", 3, 1), ("2.4", 3, 2), ("3.7", 2, 1)  # version, crashes, lags
LONG = ("3.7", 3, 2)  # 62 million states


def measure(name: str, make: Any, workers: int) -> None:
    BreadthFirst(make, most_depth=2).run()  # loads the machine code
    cpu, before = sum(os.times()[:4]), resident_bytes()
    searching = BreadthFirst(make, workers, stops=False)
    end = searching.run()
    searching.close()
    cpu = max(sum(os.times()[:4]) - cpu, 0.01)  # the clock counts hundredths
    at, counts = end.progress, end.counts
    hits = f", {1 - counts['computed'] / counts['steps']:.1%} remembered" if counts else ""
    print(f"  {name:<22} {workers} {at.distinct:>10,} {at.transitions:>11,} {end.rate:>9,.0f} "
          f"{at.distinct / cpu:>9,.0f} {at.memory / 1e6:>6,.0f} "
          f"{(at.memory - before) / at.distinct:>6,.0f}{hits}", flush=True)  # fmt: skip


def main(systems: Iterable[tuple[str, int, int]], workers: int) -> None:
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    print(f"search of everything, {time.strftime('%H:%M')}, load {load:.1f}; {TLC}")
    print("  system          workers     states transitions   per s  per CPU s     MB  bytes/state")
    alone(measure, "Kip320 3,2,2,2", partial(Reference, KIP320, 3, 2, 2, 2), workers)
    for version, crashes, lags in systems:
        budgets = {"produces": 2, "crashes": crashes, "losses": 1, "lags": lags}
        alone(measure, f"engine {version}", partial(system_of, version, LINE, budgets), workers)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word.isdecimal()]
    for workers in numbers or [1, 2]:
        main((*SYSTEMS, LONG) if "--long" in sys.argv else SYSTEMS, workers)
