"""Churn of in-sync replicas: DataFrame of events in, DataFrame out.

The queries on Spark take events (`events.SCHEMA`), whether they come from a simulation or from the
history of real logs. Queries about ISRs start from `history`, so that they all see one sequence of
ISRs: `moves` of replicas, `times` by size, `counts`. `bands` averages the results of several seeds,
in pandas.
"""

# ruff: noqa: I001
from isrlab.churn.bands import bands
from isrlab.churn.counts import changes_by_partition, commit_latency, latency_histogram
from isrlab.churn.counts import refused_produce
from isrlab.churn.history import isr_history
from isrlab.churn.moves import OUTAGES_SCHEMA, moves, rejoins, removals
from isrlab.churn.times import isr_intervals, isr_times, under_min_isr, under_replicated

__all__ = [
    "OUTAGES_SCHEMA", "bands", "changes_by_partition", "commit_latency", "isr_history",
    "isr_intervals", "isr_times", "latency_histogram", "moves", "refused_produce", "rejoins",
    "removals", "under_min_isr", "under_replicated",
]  # fmt: skip
