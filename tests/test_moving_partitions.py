"""The notebook on moving partitions: its least throttle and its formula hold in the simulation."""

from __future__ import annotations

import numpy as np
import pytest

from isrlab.fleet.layout import assignment, target
from isrlab.workbook import moving_partitions as moving

CLUSTER = moving.joined_by_a_broker(moving.SMALL.with_(minutes=3))


def test_each_leader_gives_three_followers_to_the_new_broker():
    before, after = assignment(CLUSTER), target(CLUSTER)
    assert moving.moving(CLUSTER) == 9 == (after == 4).sum()
    assert np.bincount(before[:9, 0]).tolist() == [0, 3, 3, 3]
    assert (before[:, :2] == after[:, :2]).all()


def test_the_formula_and_the_least_throttle_hold():
    table = moving.grid(CLUSTER, [16_000_000, 6_400_000], [3, 0])
    wide, narrow = table[:2], table[2:]
    assert wide["done_s"].to_numpy() == pytest.approx(wide["formula_s"].to_numpy(), rel=0.1)
    assert np.isinf(narrow[["done_s", "formula_s"]]).all(axis=None)
    assert table["short_minutes"].max() == 0 == table["failed"].max()
    assert moving.least_throttle(1_000_000, 3, 1) == 7_000_000
    text = moving.finding(CLUSTER, table)
    assert text.startswith("2 of 4 ways") and "7 MB/s for one newcomer" in text


def test_who_was_down_falls_further_behind_below_the_least_throttle():
    """Of four partitions, 1 MB/s each, one member takes 4 MB/s, and one newcomer needs as much."""
    above, below = (
        moving.lags(CLUSTER.with_(throttle_bytes_per_s=rate), (20, 80))
        for rate in (12_000_000, 6_000_000)
    )
    assert [above.loc[80], below.loc[80]] == pytest.approx([240, 240], rel=0.1)
    assert above.iloc[-1] < 5 < 400 < below.iloc[-1]


def test_one_partition_has_more_in_sync_than_replicas_for_a_while():
    title = " ".join(moving.plot_one().get_title(loc="left").split())
    assert title.startswith("[1, 2, 3] become [4, 5, 2] in 23.2 s; for 1.6 s")
