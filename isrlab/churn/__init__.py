"""Churn of in-sync replicas: DataFrame of events in, DataFrame out."""

from isrlab.churn.costs import (
    at_min_isr,
    controller_load,
    refused_produce,
    rejoin_times,
    time_until_known,
    under_min_isr,
)
from isrlab.churn.history import isr_history
from isrlab.churn.metrics import METRICS, bands, compare, metrics, rates
from isrlab.churn.questions import (
    changes_by_partition,
    changes_over_time,
    commit_delay,
    flaps,
    isr_intervals,
    slowest_expansions,
    under_replicated,
)
from isrlab.churn.risk import (
    judged_evictions,
    lag_limit_costs,
    lag_limit_fleets,
    stalls,
    time_at_risk,
)

__all__ = [
    "METRICS",
    "at_min_isr",
    "bands",
    "changes_by_partition",
    "changes_over_time",
    "commit_delay",
    "compare",
    "controller_load",
    "flaps",
    "isr_history",
    "isr_intervals",
    "judged_evictions",
    "lag_limit_costs",
    "lag_limit_fleets",
    "metrics",
    "rates",
    "refused_produce",
    "rejoin_times",
    "slowest_expansions",
    "stalls",
    "time_at_risk",
    "time_until_known",
    "under_min_isr",
    "under_replicated",
]
