"""Costs for producers and operators of fleets: sums of runs, quantiles of waits."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from isrlab.events.names import PRODUCE_FAILURES
from isrlab.fleet.config import FleetConfig


def by_run(
    configs: Sequence[FleetConfig], refused: pd.DataFrame, under: pd.DataFrame
) -> pd.DataFrame:
    """The partition-minutes under min ISR and the failed produces of each run, in the given order.

    `refused` from `churn.refused_produce`, `under` from `churn.under_min_isr`.
    """
    sums = pd.DataFrame(index=pd.Index([config.run for config in configs], name="run"))
    sums["under_min_isr_minutes"] = under.groupby("run")["under_min_isr_ms"].sum() / 60_000
    for name, errors in PRODUCE_FAILURES.items():
        sums[name] = refused[refused["error"].isin(errors)].groupby("run")["produces"].sum()
    return sums.fillna(0).astype(dict.fromkeys(PRODUCE_FAILURES, int))


def quantile(histogram: pd.DataFrame, share: float) -> int:
    """The least `latency_ms` that covers this share of `count`; 0 if the histogram is empty."""
    ordered = histogram.sort_values("latency_ms")
    so_far = ordered["count"].cumsum()
    if so_far.empty:
        return 0
    place = int(np.searchsorted(so_far, np.ceil(share * so_far.iloc[-1] - 1e-6)))
    return int(ordered["latency_ms"].iloc[place])
