"""The notebook on moving partitions: its formula, its least throttle, and what real brokers did."""

from __future__ import annotations

import math

import pytest

from isrlab_book.workbook import moving_partitions as moving

MOVE = moving.BatchedMove(size=200e6, produced=1e6)


def test_the_formula_is_backlog_over_what_the_slower_side_has_left():
    """A leader sends each of its batch's partitions to two followers and to the newcomer."""
    assert moving.done_s(MOVE, 20e6, 9) == [max(9 * 200 / (18 - 9), 3 * 200 / (18 - 3 * 3))]
    first, second, third = moving.done_s(MOVE, 20e6, 3)
    assert first == pytest.approx(600 / (18 - 3))
    assert second - first == pytest.approx(3 * (200 + first) / (18 - 3))
    assert third - second > second - first, "logs grow until their batch begins"
    assert moving.done_s(MOVE, 20e6, 0) == moving.done_s(MOVE, 20e6, 9)
    assert moving.done_s(MOVE, 20e6, 4)[0] == pytest.approx(4 * 200 / (18 - 4))


@pytest.mark.parametrize(("batch", "at_leader"), [(1, 1), (3, 1), (6, 2), (9, 3)])
def test_a_move_ends_only_above_the_least_throttle(batch, at_leader):
    least = moving.least_throttle(1e6, at_leader, batch)
    assert math.isinf(moving.done_s(MOVE, least, batch)[-1])
    assert math.isfinite(moving.done_s(MOVE, 1.001 * least, batch)[0])


def test_what_ends_and_how_fast():
    table = moving.grid(MOVE, [24_000_000, 8_000_000], [3, 0])
    assert table["batch"].tolist() == [3, 9, 3, 9] and math.isinf(table["done_s"].iloc[3])
    text = moving.finding(MOVE, table, moving.beside_real_brokers())
    assert text.startswith("3 of 4 ways") and "3.33 MB/s for batches of 3, 10 MB/s for" in text
    assert moving.plot_grid(table).get_title(loc="left").startswith("never done: 1 of 4 moves")


def test_real_brokers_took_as_long_as_the_formula_says_and_a_second_for_each_batch():
    found = moving.beside_real_brokers()
    assert found["real / formula"].between(0.85, 1.32).all()
    batches = 9 / found["partitions in a batch"]
    assert (found["real_s"] / (found["formula_s"] + batches)).between(0.8, 1.15).all()
    assert {*found["partitions in a batch"]} == {1, 3, 9} and len(found) >= 8


def test_a_broker_that_was_down_falls_further_behind_below_the_least_throttle():
    """It lacks 720 MB and needs 12 MB/s to keep up."""
    above, below = moving.back_after(12e6, (24_000_000, 13_000_000), (20, 80)).values()
    assert above == pytest.approx(720 / (0.9 * 24 - 12)) and below == math.inf


@pytest.mark.parametrize("version", ["0.10.2", "2.8", "3.7", "4.4"])
def test_one_partition_has_more_in_sync_than_replicas_for_a_while(version):
    title = " ".join(moving.plot_one(version).get_title(loc="left").split())
    assert title.startswith("[1, 2, 3] become [4, 5, 2] in 15.0 s; for 5.0 s")
