"""The notebook on moving partitions: its least throttle and its formula hold in the simulation."""

from __future__ import annotations

import numpy as np
import pytest

from isrlab.fleet.layout import assignment, target
from isrlab_book.workbook import moving_partitions as moving

CLUSTER = moving.joined_by_a_broker(moving.SMALL.with_(minutes=3))


def test_each_leader_gives_three_followers_to_the_new_broker():
    before, after = assignment(CLUSTER), target(CLUSTER)
    assert moving.moving(CLUSTER) == 9 == (after == 4).sum()
    assert np.bincount(before[:9, 0]).tolist() == [0, 3, 3, 3]
    assert (before[:, :2] == after[:, :2]).all()


def test_the_formula_and_the_least_throttle_hold():
    """Leader and new broker have one rate each; the new broker's binds."""
    table = moving.grid(CLUSTER, [24_000_000, 8_000_000], [3, 0])
    wide, narrow = table[:2], table[2:]
    assert wide["done_s"].to_numpy() == pytest.approx(wide["formula_s"].to_numpy(), rel=0.07)
    assert np.isinf(narrow["done_s"]).all() and np.isinf(narrow["formula_s"].iloc[1])
    assert table["short_minutes"].max() == 0 == table["failed"].max()
    assert moving.least_throttle(950_000, 1, 3) == 3_000_000
    assert moving.least_throttle(950_000, 3, 9) == 9_000_000
    assert moving.least_throttle(950_000, 1, 5) == 5_000_000
    text = moving.finding(CLUSTER, table)
    assert text.startswith("2 of 4 ways") and "3.16 MB/s for batches of 3, 9.47 MB/s for" in text


def test_the_list_of_throttled_replicas_is_that_of_the_batch():
    """With all nine in the list while three move, no move would end at 6.5 MB/s."""
    narrow = moving.throttled(CLUSTER.with_(minutes=12, backlog_records=3_000), 6_500_000, 3)
    assert len(moving.moved(narrow).done_s) == 9


def test_a_broker_that_was_down_falls_further_behind_below_the_least_throttle():
    """It lacks 720 MB. The other two lead six partitions each, so it needs 12 MB/s to keep up."""
    free, above, below = moving.back_after(CLUSTER, (0, 24_000_000, 10_000_000), (20, 80)).values()
    assert free < 30 and above == pytest.approx(720 / (0.95 * 24 - 12), rel=0.1)
    assert below == np.inf


def test_one_partition_has_more_in_sync_than_replicas_for_a_while():
    title = " ".join(moving.plot_one().get_title(loc="left").split())
    assert title.startswith("[1, 2, 3] become [4, 5, 2] in 23.2 s; for 1.6 s")
