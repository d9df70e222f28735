"""One cell of a fleet by each of three implementations, timed on the processor's clock."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from isrlab.fleet import FleetConfig, load
from isrlab.fleet.cell import cell, setup
from isrlab.fleet.kernel.clock import run
from isrlab.fleet.kernel.state import COVERED, EVENT_COLUMNS, Arrivals, Out, new_state

LEADER = 1
LEAST_S = 0.3  # the kernel is repeated until it has run for this long


class Timed(NamedTuple):
    """What a run took and did."""

    seconds: float
    partition_fetches: int
    events: list[tuple[int, ...]]

    @property
    def rate(self) -> float:
        """Partition-fetches per second."""
        return self.partition_fetches / self.seconds


def arrivals_of(config: FleetConfig, busy_share: float) -> Arrivals:
    """The load of the first cell, with all batches of the idle partitions left out."""
    one = cell(config, LEADER)
    arrivals = load.arrivals(config, one.partitions)
    keep = arrivals.partition < busy_share * len(one.partitions)
    return Arrivals(*(column[keep] for column in arrivals))


def by_kernel(config: FleetConfig, arrivals: Arrivals) -> Timed:
    """The compiled kernel; the mean of several runs."""
    one = cell(config, LEADER)
    seconds, runs = 0.0, 0
    while seconds < LEAST_S:
        out = Out(np.zeros((100_000, EVENT_COLUMNS), np.int64), np.zeros((0, 6), np.int64), -1, 0)
        state = new_state(setup(config, one), out)
        began = time.process_time()
        count = run(state, arrivals, config.duration_ms)
        seconds += time.process_time() - began
        runs += 1
    rows = [tuple(row) for row in out.events[:count].tolist()]
    return Timed(seconds / runs, int(state.scalars[COVERED]), rows)


def by_python(kind: type, config: FleetConfig, arrivals: Arrivals) -> Timed:
    """A class with the naive fleet's interface, run once."""
    one = cell(config, LEADER)
    rule, links = config.rules(), config.links()
    settings = {
        "lag_ms": rule.replica_lag_time_max_ms,
        "lag_messages": rule.replica_lag_max_messages,
        "min_isr": rule.min_isr,
        "latency_ms": links.latency_ms,
        "bytes_per_s": [load.follower_bytes_per_s(config, b) for b in one.thread_brokers],
        "fetch_bytes": links.fetch_max_bytes,
        "response_bytes": links.response_max_bytes,
        "wait_ms": links.fetch_wait_max_ms,
        "commit_ms": rule.isr_commit_ms,
        "acks_all": config.acks_all_share == 1,
        "timeout_ms": rule.request_timeout_ms,
        "delivery_ms": rule.delivery_timeout_ms,
    }
    stalls = [np.column_stack(load.stalls(config, b)).tolist() for b in one.thread_brokers]
    rows = list(zip(*(column.tolist() for column in arrivals), strict=True))
    model = kind(
        config.kafka.column, settings, one.thread_of.tolist(), stalls, rows, config.record_bytes
    )
    began = time.process_time()
    events = model.run(config.duration_ms, load.first_tick_ms(config, LEADER))
    return Timed(time.process_time() - began, model.partition_fetches, events)
