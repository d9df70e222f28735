"""Real followers that are paused leave the ISR after times that the engine also gives."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from isrlab_book.workbook import leaving_the_isr as leaving

REAL = leaving.recorded_evictions()
played_evictions = cache(leaving.played_evictions)


def kolmogorov_smirnov(first: Sequence[int], second: Sequence[int]) -> float:
    """The chance that two samples of one distribution lie so far apart (asymptotic)."""
    both = np.sort([*first, *second])
    shares = (np.searchsorted(np.sort(x), both, "right") / len(x) for x in (first, second))
    size = len(first) * len(second) / (len(first) + len(second))
    scaled = (np.sqrt(size) + 0.12 + 0.11 / np.sqrt(size)) * np.abs(np.subtract(*shares)).max()
    k = np.arange(1, 101)
    return float(np.clip(2 * ((-1.0) ** (k - 1) * np.exp(-2 * (k * scaled) ** 2)).sum(), 0, 1))


def test_the_test_tells_samples_apart() -> None:
    dice = np.random.default_rng(1)
    first, second = dice.integers(0, 1000, (2, 60)).tolist()
    assert kolmogorov_smirnov(first, second) > 0.05
    assert kolmogorov_smirnov(first, [value + 400 for value in second]) < 0.001


@pytest.mark.parametrize("release", REAL)
def test_real_followers_leave_when_the_engines_do(release) -> None:
    assert len(REAL[release]) >= 25  # of 30; see packages/proof/eras/pauses.py
    assert kolmogorov_smirnov(REAL[release], played_evictions(release, 60)) > 0.05


@pytest.mark.parametrize("release", REAL)
def test_one_check_in_a_lag_limit_would_be_noticed(release) -> None:
    """The rule up to 0.10.1."""
    assert kolmogorov_smirnov(REAL[release], played_evictions("0.9", 60)) < 0.001
