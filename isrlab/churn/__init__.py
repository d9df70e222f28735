"""Churn of in-sync replicas: DataFrame of events in, DataFrame out."""

from isrlab.churn.blame import (
    blame,
    evicted,
    evictions_by_pair,
    judged_blame,
    spared,
    troubles,
    under_replicated_by_leader,
)
from isrlab.churn.costs import (
    at_min_isr,
    controller_load,
    refused_produce,
    rejoin_times,
    time_until_known,
    under_min_isr,
)
from isrlab.churn.diff import FATES, diff, diff_counts
from isrlab.churn.history import isr_history
from isrlab.churn.latency import commit_latency, latency_histogram
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
from isrlab.churn.recovery import (
    OUTAGES_SCHEMA,
    catch_up_s,
    expected_rejoin_s,
    load_share,
    loaded,
    rejoins,
    restarts,
    safe_restart_every_s,
)
from isrlab.churn.risk import (
    judged_evictions,
    lag_limit_costs,
    lag_limit_fleets,
    stalls,
    time_at_risk,
)

__all__ = [
    "FATES",
    "METRICS",
    "OUTAGES_SCHEMA",
    "at_min_isr",
    "bands",
    "blame",
    "catch_up_s",
    "changes_by_partition",
    "changes_over_time",
    "commit_delay",
    "commit_latency",
    "compare",
    "controller_load",
    "diff",
    "diff_counts",
    "evicted",
    "evictions_by_pair",
    "expected_rejoin_s",
    "flaps",
    "isr_history",
    "isr_intervals",
    "judged_blame",
    "judged_evictions",
    "lag_limit_costs",
    "lag_limit_fleets",
    "latency_histogram",
    "load_share",
    "loaded",
    "metrics",
    "rates",
    "refused_produce",
    "rejoin_times",
    "rejoins",
    "restarts",
    "safe_restart_every_s",
    "slowest_expansions",
    "spared",
    "stalls",
    "time_at_risk",
    "time_until_known",
    "troubles",
    "under_min_isr",
    "under_replicated",
    "under_replicated_by_leader",
]
