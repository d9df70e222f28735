"""How far seeds scatter: means of several runs with a bootstrap band."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd


def bands(
    measured: pd.DataFrame,
    by: str,
    values: Sequence[str],
    *,
    level: float = 0.9,
    draws: int = 2_000,
    seed: int = 1,
) -> pd.DataFrame:
    """The mean of each of `values` for each `by`, with a bootstrap band over its rows (the seeds).

    One row for each `by` and value: by, `metric`, `mean`, `low`, `high`, `seeds`. Rows are drawn
    again with replacement, `draws` times; the band holds `level` of the means. The same rows and
    `seed` give the same band. Raises ValueError unless `level` is between 0 and 1.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, not {level}")
    rows = []
    for key, group in measured.groupby(by, sort=True):
        picks = np.random.default_rng(seed).integers(len(group), size=(draws, len(group)))
        for name in values:
            sample = group[name].to_numpy(float)
            low, high = np.quantile(sample[picks].mean(axis=1), [0.5 - level / 2, 0.5 + level / 2])
            rows.append((key, name, sample.mean(), low, high, len(group)))
    return pd.DataFrame(rows, columns=[by, "metric", "mean", "low", "high", "seeds"])
