"""The scatter of seeds: means of several runs, with intervals for the true mean."""

from collections.abc import Sequence

import numpy as np
import pandas as pd


def bands(
    measured: pd.DataFrame, by: str, values: Sequence[str], *, level: float = 0.9
) -> pd.DataFrame:
    """The mean of each of `values` for each `by`, with Student's t interval over its rows (seeds).

    One row for each `by` and value: by, `metric`, `mean`, `low`, `high`, `seeds`. A share `level`
    of all samples of so many seeds has an interval that contains the true mean, if the values are
    about normally distributed; for a single seed it is NaN. For paired settings pass the
    differences. Raises ValueError unless `level` is between 0 and 1.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, not {level}")
    rows = []
    for key, group in measured.groupby(by, sort=True):
        for name in values:
            sample = group[name].to_numpy(float)
            half = np.nan
            if len(sample) > 1:
                half = t_quantile(level, len(sample) - 1) * sample.std(ddof=1) / len(sample) ** 0.5
            mean = sample.mean()
            rows.append((key, name, mean, mean - half, mean + half, len(sample)))
    return pd.DataFrame(rows, columns=[by, "metric", "mean", "low", "high", "seeds"])


def t_quantile(level: float, degrees: int) -> float:
    """The t with the share `level` of Student's distribution between -t and t. The angle a, where
    t = sqrt(degrees) tan(a), has density ~ cos(a) ** (degrees - 1) (Abramowitz, Stegun, 26.7)."""
    angles = np.linspace(0, np.pi / 2, 20_001)
    within = np.cumsum(np.cos(angles - angles[1] / 2)[1:] ** (degrees - 1))
    angle = np.interp(level, within / within[-1], angles[1:])
    return float(np.sqrt(degrees) * np.tan(angle))
