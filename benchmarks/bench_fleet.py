"""How fast the fleet is: against SimPy and plain Python, as partitions double, and on Spark.

Run it by `make bench`; a day of a large fleet is `a_day.py`. A *partition-fetch* is one partition
in one fetch request; SimPy and plain Python look at it each time, the kernel only where there is
something new. One core means processor time. Memory, and Spark with one and two cores, are measured
in a process of their own. Nothing passes or fails here; the figures are printed.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import numpy as np
import pyarrow as pa
from alone import alone, peak_mb
from models.cells import Timed, arrivals_of, by_c, by_kernel, by_python, c_library

from isrlab.fleet import FleetConfig, simulate
from isrlab.fleet.cell import leaders, run_cell, run_cell_in_windows
from isrlab.fleet.kernel.state import Arrivals
from isrlab.fleet.tables import tables
from isrlab.java import JavaMissingError, require_java
from isrlab.spark import session
from naive_fleet import NaiveCell

try:
    from models.simpy_cell import RestingSimpyCell, SimpyCell
except ImportError:
    SIMPY: tuple[type, ...] = ()
else:
    SIMPY = (SimpyCell, RestingSimpyCell)

Figures = dict[str, float]
SMALL = FleetConfig(
    partitions=900, minutes=0.5, burst_every_s=200, stall_every_s=60, replica_lag_time_max_ms=4_000
)
DENSE = SMALL.with_(partitions=300, batch_every_ms=20, records_per_s=100, burst_records=3_000)
MIDDLE = SMALL.with_(burst_every_s=2_000, burst_records=5_000, minutes=0.1)
SPARSE = SMALL.with_(partitions=2_000)
A_DAYS = FleetConfig(partitions=10_000, brokers=30, minutes=10)
MANY_BROKERS = FleetConfig(partitions=100_000, brokers=300, minutes=5)
LOADS = (  # name, settings, share of the partitions that are busy, opponents in Python
    ("dense", DENSE, 1.0, SIMPY),
    ("a batch each second", MIDDLE, 1.0, SIMPY),
    ("95 % idle", SPARSE, 0.05, SIMPY),
    ("a day's, 30 brokers", A_DAYS, 1.0, ()),
    ("a day's, 300 brokers", MANY_BROKERS, 1.0, ()),
)
ROUNDS = 3
PARTITIONS_OF_A_BROKER, MOST_BROKERS = 333, 60  # 60 as in a day of 100,000 partitions
GROWING_MINUTES = 10
GROWING_S = 10.0  # of processor time for each size, and two rounds, at least
GROWING = (1_000, 3_200, 10_000, 32_000, 100_000)
SPARK_JOB = FleetConfig(partitions=4_000, brokers=24, minutes=540)


def main() -> None:
    """Print the figures."""
    began = time.perf_counter()
    run_cell(SMALL, 1)
    print(f"ready (compiled, or read from the cache) after {time.perf_counter() - began:.1f} s")
    compare()
    grow()
    on_spark()
    print(f"\nall of this took {time.perf_counter() - began:.0f} s")


# Against SimPy and plain Python


def compare() -> None:
    """One cell by each implementation, under several loads."""
    print(
        "\nOne cell (a leader, its partitions, their followers), one core; the same events and the"
    )
    print(f"same latencies by all (else !). Least of {ROUNDS} rounds in turn; Python runs once.")
    print(
        f"  {'load':<22}{'partitions':>10}{'fetches':>13}{'kernel':>12}{'C':>12}{'kernel/C':>10}"
        f"{'SimPy':>9}{'resting':>9}{'Python':>10}"
    )
    for name, config, busy_share, models in LOADS:
        arrivals = arrivals_of(config, busy_share)
        partitions, batches = config.partitions // config.brokers, len(arrivals.ts_ms)
        rounds = [_each(config, arrivals, models) for _ in range(ROUNDS)]
        kernel, c, *others = map(min, zip(*rounds, strict=True))
        row = f"  {name:<22}{partitions:>10,}{kernel.partition_fetches:>13,}"
        row += _ns(kernel, batches)
        if c_library():
            row += f"{_ns(c, batches)}{kernel.seconds / c.seconds:>9.2f}{_sign(kernel, c)}"
        else:
            row += f"{'-':>12}{'-':>9} "
        others += [by_python(NaiveCell, config, arrivals)] if models else []
        row += "".join(f"{_times(kernel, other):>8}{_sign(kernel, other)}" for other in others)
        print(row, flush=True)
    if not SIMPY:
        print("  simpy is not installed: no comparison with it (pip install simpy)")
    print(
        "  kernel and C: time for each batch, with all that follows from it. SimPy, resting (SimPy"
    )
    print(
        "  that passes over followers at rest, as the kernel does), Python: times the kernel's time"
    )


def _each(config: FleetConfig, arrivals: Arrivals, models: tuple[type, ...]) -> list[Timed]:
    """One round: the kernel, C (the kernel again without a C compiler), the models."""
    runs = [by_kernel(config, arrivals), (by_c if c_library() else by_kernel)(config, arrivals)]
    return runs + [by_python(kind, config, arrivals) for kind in models]


def _ns(run: Timed, batches: int) -> str:
    return f"{run.seconds / batches * 1e9:>9,.0f} ns"


def _times(kernel: Timed, other: Timed) -> str:
    return f"{other.seconds / kernel.seconds:,.0f}"


def _sign(kernel: Timed, other: Timed) -> str:
    return " " if kernel[1:] == other[1:] else "!"


# As partitions double


def grow() -> None:
    """Time and memory from 1,000 to 100,000 partitions."""
    print(f"\n{GROWING_MINUTES} minutes of load, {PARTITIONS_OF_A_BROKER} partitions led by each")
    print(f"broker, on at most {MOST_BROKERS} brokers, RF 3, all cells one after another in one")
    print("process, drawing and Arrow included, the least of the rounds:")
    print(f"  {'partitions':>10}{'one core':>12}{'for each 1,000':>16}{'memory':>10}{'events':>11}")
    each = []
    for partitions in GROWING:
        seen = alone(part_grow, partitions)
        each.append(seen["seconds"] * 1_000 / partitions)
        print(
            f"  {partitions:>10,}{seen['seconds']:>10.2f} s{each[-1]:>14.3f} s"
            f"{seen['peak_mb']:>7.0f} MB{seen['events']:>11,.0f}",
            flush=True,
        )
    middle = float(np.median(each))
    print(f"  furthest from linear: {max(abs(e / middle - 1) for e in each):.0%} off the median")


def part_grow(partitions: int) -> Figures:
    """All cells of one fleet in this process: the least of enough rounds for some seconds."""
    run_cell(SMALL, 1)
    gc.freeze()  # as in Spark's workers
    brokers = min(MOST_BROKERS, max(3, round(partitions / PARTITIONS_OF_A_BROKER)))
    config = FleetConfig(partitions=partitions, brokers=brokers, minutes=GROWING_MINUTES)
    seconds, events = list[float](), 0
    while len(seconds) < 2 or sum(seconds) < GROWING_S:
        began = time.process_time()
        each = (run_cell_in_windows(config, leader) for leader in leaders(config))
        events = sum(table.num_rows for windows in each for table in tables(config, windows))
        seconds.append(time.process_time() - began)
    return {"seconds": min(seconds), "peak_mb": peak_mb(), "events": events}


# Spark


def on_spark() -> None:
    """A job on one core and on two, and the cost of starting it."""
    try:
        require_java()
    except JavaMissingError as error:
        print(f"\nno figures for Spark: {error}")
        return
    job, hours = SPARK_JOB, SPARK_JOB.minutes / 60
    print(f"\nSpark, {job.partitions:,} partitions on {job.brokers} brokers, {hours:.0f} hours:")
    one, two = alone(part_spark, 1), alone(part_spark, 2)
    for seen in (one, two):
        print_spark(seen)
    print(f"  scaling: {one['job_s'] / two['job_s']:.2f} times as fast on two cores")


def print_spark(seen: Figures) -> None:
    start_s = seen["session_s"] + seen["worker_s"]
    print(
        f"  {seen['cores']:.0f} core{'s' if seen['cores'] > 1 else ' '}: job {seen['job_s']:.1f} s"
        f" for {seen['events']:,.0f} events; before it, Spark {seen['session_s']:.1f} s and Python "
        f"workers {seen['worker_s']:.1f} s, {start_s / (start_s + seen['job_s']):.0%} of the whole"
        f"; largest worker {seen['worker_mb']:.0f} MB",
        flush=True,
    )


def part_spark(cores: int) -> Figures:
    """Start Spark, start workers with an almost empty job, then run; all in s of wall time.

    A short job comes first: one core alone would leave the other to the JVM's compiler.
    """
    began = time.perf_counter()
    spark = session(master=f"local[{cores}]")
    spark.range(1).count()
    session_s = time.perf_counter() - began
    began = time.perf_counter()
    simulate(spark, SMALL.with_(minutes=0.01), tasks=cores).count()
    worker_s = time.perf_counter() - began
    simulate(spark, SPARK_JOB.with_(minutes=30)).count()
    began = time.perf_counter()
    events = simulate(spark, SPARK_JOB).count()
    job_s = time.perf_counter() - began
    memory = spark.range(cores * 4).repartition(cores * 4).mapInArrow(_memory, "mb double")
    worker_mb = max(row.mb for row in memory.collect())
    spark.stop()
    return {
        "cores": cores,
        "session_s": session_s,
        "worker_s": worker_s,
        "job_s": job_s,
        "events": events,
        "worker_mb": worker_mb,
    }


def _memory(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The peak memory of this worker, once for each of its batches."""
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"mb": [peak_mb()]})


if __name__ == "__main__":
    main()
