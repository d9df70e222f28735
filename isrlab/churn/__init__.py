"""Churn of in-sync replicas: DataFrame of events in, DataFrame out."""

from isrlab.churn.history import isr_history
from isrlab.churn.questions import (
    changes_by_partition,
    changes_over_time,
    commit_delay,
    flaps,
    isr_intervals,
    slowest_expansions,
    under_replicated,
)

__all__ = [
    "changes_by_partition",
    "changes_over_time",
    "commit_delay",
    "flaps",
    "isr_history",
    "isr_intervals",
    "slowest_expansions",
    "under_replicated",
]
