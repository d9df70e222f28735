"""Churn of in-sync replicas: DataFrame of events in, DataFrame out.

Every question takes events (`events.SCHEMA`); its last step is a `select` that says which columns.
It does not know whether a simulation or a real broker spoke. Whatever is about ISRs asks
`isr_history`, so that a change which several logs tell counts once: `moves` of replicas, `times` by
size, `counts`, `metrics` of runs, `diff` of two runs, `blame`.
"""

from isrlab.churn.blame import blame, evictions_by_pair
from isrlab.churn.counts import (
    changes_by_partition,
    changes_over_time,
    commit_delay,
    commit_latency,
    controller_load,
    latency_histogram,
    refused_produce,
    time_until_known,
)
from isrlab.churn.diff import FATES, diff, diff_counts
from isrlab.churn.history import isr_history
from isrlab.churn.metrics import METRICS, bands, compare, metrics, rates
from isrlab.churn.moves import (
    OUTAGES_SCHEMA,
    absences,
    evictions,
    flaps,
    moves,
    rejoin_times,
    rejoins,
    removals,
    slowest_expansions,
)
from isrlab.churn.times import (
    at_min_isr,
    isr_intervals,
    isr_times,
    under_min_isr,
    under_replicated,
    under_replicated_by_leader,
)

__all__ = [
    "FATES", "METRICS", "OUTAGES_SCHEMA", "absences", "at_min_isr", "bands", "blame",
    "changes_by_partition", "changes_over_time", "commit_delay", "commit_latency", "compare",
    "controller_load", "diff", "diff_counts", "evictions", "evictions_by_pair", "flaps",
    "isr_history", "isr_intervals", "isr_times", "latency_histogram", "metrics", "moves", "rates",
    "refused_produce", "rejoin_times", "rejoins", "removals", "slowest_expansions",
    "time_until_known", "under_min_isr", "under_replicated", "under_replicated_by_leader",
]  # fmt: skip
