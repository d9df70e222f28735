"""Distinct states per second of the search of everything, by wall clock and by CPU.

    make bench, or: python benchmarks/bench_search.py [--long] [WORKERS]

TLC's figures are stored: two workers, on a machine with two cores.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from cases.reference_systems import KIP320, Reference
from isrlab_proof.search.breadth_first import BreadthFirst
from isrlab_proof.search.everything import system_of

TLC = "TLC: 25,000 to 27,000 states/s, 4.3 GB (Kip320 with 3 replicas, 2, 2, 2: 737,794 states)"
BUDGETS = {"produces": 2, "crashes": 2, "losses": 1, "lags": 1}


def measure(name: str, make: Any, workers: int) -> None:
    cpu = sum(os.times()[:4])
    searching = BreadthFirst(make, workers, stops=False)
    end = searching.run()
    searching.close()
    cpu = max(sum(os.times()[:4]) - cpu, 0.01)  # the clock counts hundredths
    at, counts = end.progress, end.counts
    hits = f", {1 - counts['computed'] / counts['steps']:.1%} remembered" if counts else ""
    print(f"  {name:<22} {workers} {at.distinct:>9,} {at.transitions:>10,} {end.rate:>9,.0f} "
          f"{at.distinct / cpu:>9,.0f} {at.memory / 1e6:>6,.0f} "
          f"{at.memory / at.distinct:>6,.0f}{hits}", flush=True)  # fmt: skip


def main(is_long: bool, workers: list[int]) -> None:
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    print(f"search of everything, {time.strftime('%H:%M')}, load {load:.1f}; {TLC}")
    print("  system          workers    states transitions   per s  per CPU s     MB  bytes/state")
    sizes = (3, 2, 2, 2) if is_long else (3, 1, 1, 2)
    line = "partition replicas=1,2"
    for count in workers:
        reference: Any = partial(Reference, KIP320, *sizes)
        measure(f"Kip320 {','.join(map(str, sizes))}", reference, count)
        budgets = BUDGETS if is_long else BUDGETS | {"losses": 0}
        for version in ("0.10.2", "2.4", "3.7") if is_long else ("2.4",):
            measure(f"engine {version}", partial(system_of, version, line, budgets), count)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word.isdecimal()]
    main("--long" in sys.argv, numbers or [1, 2])
