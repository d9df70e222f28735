"""Churn of in-sync replicas: DataFrame of events in, DataFrame out.

Every query takes events (`events.SCHEMA`) and ends in a `select` of its columns. It does not matter
whether they come from a simulation or a real broker. Queries about ISRs start from `isr_history`,
so that a change in several logs counts once: `moves` of replicas, `times` by size, `counts`,
`bands` of seeds.
"""

# ruff: noqa: F401, I001
from isrlab.churn.bands import bands
from isrlab.churn.counts import changes_by_partition, commit_latency, latency_histogram
from isrlab.churn.counts import refused_produce
from isrlab.churn.history import isr_history
from isrlab.churn.moves import OUTAGES_SCHEMA, moves, rejoins, removals
from isrlab.churn.times import isr_intervals, isr_times, under_min_isr, under_replicated
