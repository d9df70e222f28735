"""How fast the fleet is: kernel, kernel against the naive fleet, and 1,000 partitions for an hour.

Run from the root of the repository: `python -m benchmarks.bench_fleet`. Times are processor times
of one core; a *partition-fetch* is one partition in one fetch request, which the naive fleet looks
at every time and the kernel only if there is something new.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import numpy as np

from isrlab.fleet import FleetConfig, load
from isrlab.fleet.cell import cell, leaders, run_cell, setup, to_arrow
from isrlab.fleet.cellstate import COVERED, EVENT_COLUMNS, Out, new_state
from isrlab.fleet.kernel import run

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from naive_fleet import NaiveCell

HOUR = FleetConfig(partitions=1_000, minutes=60)
SMALL = FleetConfig(
    partitions=90, minutes=1, burst_every_s=200, stall_every_s=60, replica_lag_time_max_ms=4_000
)


def kernel_speed(config: FleetConfig) -> tuple[float, float, int]:
    """Seconds, partition-fetches and events of the first cell."""
    out = Out(np.zeros((100_000, EVENT_COLUMNS), np.int64), np.zeros((0, 6), np.int64), -1, 0)
    one = cell(config, 1)
    state = new_state(setup(config, one), out)
    arrivals = load.arrivals(config, one.partitions)
    began = time.process_time()
    events = run(state, arrivals, config.duration_ms)
    return time.process_time() - began, int(state.scalars[COVERED]), events


def naive_speed(config: FleetConfig) -> tuple[float, float, int]:
    """The same cell by the naive fleet."""
    one = cell(config, 1)
    rule, links = config.rules(), config.links()
    settings = {
        "lag_ms": rule.replica_lag_time_max_ms,
        "lag_messages": rule.replica_lag_max_messages,
        "min_isr": rule.effective_min_isr,
        "latency_ms": links.latency_ms,
        "bytes_per_s": [load.follower_bytes_per_s(config, b) for b in one.thread_brokers],
        "fetch_bytes": links.fetch_max_bytes,
        "response_bytes": links.response_max_bytes,
        "wait_ms": links.fetch_wait_max_ms,
        "commit_ms": rule.isr_commit_ms,
    }
    stalls = [np.column_stack(load.stalls(config, b)).tolist() for b in one.thread_brokers]
    arrivals = load.arrivals(config, one.partitions)
    rows = list(zip(*(column.tolist() for column in arrivals), strict=True))
    naive = NaiveCell(
        config.kafka.column, settings, one.thread_of.tolist(), stalls, rows, config.record_bytes
    )
    began = time.process_time()
    events = naive.run(config.duration_ms, load.first_tick_ms(config, 1))
    return time.process_time() - began, naive.partition_fetches, len(events)


def main() -> None:
    """Print the figures."""
    began = time.perf_counter()
    run_cell(SMALL, 1)
    print(f"ready (compiled, or read from the cache) after {time.perf_counter() - began:.1f} s")

    fast_s, fetches, events = kernel_speed(SMALL)
    slow_s, same_fetches, same_events = naive_speed(SMALL)
    assert (fetches, events) == (same_fetches, same_events)
    print(f"small cell, {fetches:,} partition-fetches, {events} events, both the same:")
    print(f"  naive  {slow_s:8.3f} s  {fetches / slow_s:14,.0f} partition-fetches/s")
    print(f"  kernel {fast_s:8.4f} s  {fetches / fast_s:14,.0f} partition-fetches/s")
    print(f"  ratio  {slow_s / fast_s:8.0f}")

    total_s, total_fetches, rows, evaluated = 0.0, 0, 0, 0
    for leader in leaders(HOUR):
        began = time.process_time()
        result = run_cell(HOUR, leader)
        rows += to_arrow(HOUR, result).num_rows
        total_s += time.process_time() - began
        total_fetches += result.counts["partition_fetches"]
        evaluated += result.counts["positions_evaluated"]
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print("1,000 partitions, RF 3, one hour, load and Arrow included, one core:")
    print(f"  {total_s:.2f} s, peak memory {peak_mb:.0f} MB, {rows:,} events")
    print(f"  {total_fetches / total_s:,.0f} partition-fetches/s, of which ", end="")
    print(f"{evaluated / total_s:,.0f}/s had something new")


if __name__ == "__main__":
    main()
