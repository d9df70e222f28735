"""Slow leader beside slow follower: the numbers under the pictures, on small fleets and tables."""

from __future__ import annotations

import pandas as pd
import pytest

from isrlab import fleet
from isrlab.fleet import load
from isrlab.workbook import slow_leader


def table(columns, *rows):
    return pd.DataFrame(rows, columns=columns.split())


@pytest.mark.parametrize("role", slow_leader.ROLES)
def test_the_small_fleet_has_one_trouble_of_broker_3(role):
    one = slow_leader.in_trouble(slow_leader.SMALL, role, 45, slow_leader.SMALL.stall_every_s)
    stalls = load.leader_stalls if role == "leader" else load.stalls
    counts = [len(stalls(one, broker)[0]) for broker in range(1, 7)]
    assert counts == [0, 0, 1, 0, 0, 0]
    assert slow_leader.troubles_of(one) == 1
    pairs = slow_leader.pairs_of(fleet.simulate_local(one))
    assert set(pairs["leader" if role == "leader" else "replica"]) == {3}
    assert pairs["evictions"].sum() == 10


def test_a_slow_leader_is_alone_and_a_slow_follower_is_one_of_three():
    for role, smallest in (("leader", 1), ("follower", 2)):
        one = slow_leader.in_trouble(slow_leader.SMALL, role, 45, slow_leader.SMALL.stall_every_s)
        times, sizes = slow_leader.isr_sizes(fleet.simulate_local(one), one)
        assert len(times) == len(sizes)
        assert (sizes.sum(axis=1) == one.partitions).all()
        assert sizes[0].tolist() == sizes[-1].tolist() == [0, 0, 30]
        assert (sizes.max(axis=0) > 0).tolist().index(True) + 1 == smallest


def test_in_trouble_knows_two_roles():
    with pytest.raises(ValueError, match="unknown role 'both'; known: leader, follower"):
        slow_leader.in_trouble(slow_leader.SMALL, "both", 1, 60)


def test_costs_are_for_each_trouble():
    one = slow_leader.in_trouble(slow_leader.SMALL.with_(minutes=240), "leader", 45, 1_200)
    count = slow_leader.troubles_of(one)
    assert count > 1
    costs = slow_leader.costs(
        [one],
        table("run error produces", (one.run, "NOT_ENOUGH_REPLICAS", 5 * count),
              (one.run, "REQUEST_TIMED_OUT", 3 * count), ("other", "REQUEST_TIMED_OUT", 9)),
        table("run under_min_isr_ms", (one.run, 120_000 * count), ("other", 1)),
        table("run evictions", (one.run, 2 * count), ("other", 7)),
    )  # fmt: skip
    expected = ["slow leader", 30.0, count, 2.0, 2.0, 5.0, 3.0]
    assert costs.iloc[0].tolist() == expected


def test_verdicts_are_counted_by_run():
    judged = table(
        "run verdict is_right",
        ("a", "leader 1", True), ("a", "unclear", False), ("b", "leader 1", False),
    )  # fmt: skip
    counts = slow_leader.verdict_counts(judged)
    assert list(counts) == ["right", "unclear", "wrong"]
    assert counts.to_numpy().tolist() == [[1, 1, 0], [0, 0, 1]]


def test_spared_counts():
    rows = table("run is_spared is_after", ("a", True, False), ("a", False, True), ("b", False, 0))
    assert slow_leader.spared_counts(rows).to_numpy().tolist() == [[2, 1, 1], [1, 0, 0]]


def test_titles_say_what_is_seen():
    one = slow_leader.in_trouble(slow_leader.SMALL, "leader", 45, slow_leader.SMALL.stall_every_s)
    left, right = slow_leader.plot_trouble(one).axes
    assert left.get_title(loc="left") == "10 evictions: by 1 leader, of 5 replicas"
    assert right.get_title(loc="left").startswith("5 of 30 partitions under-replicated; 0.")
    calm = slow_leader.plot_pairs(table("run leader replica evictions").astype(int), 3)
    assert calm.get_title(loc="left") == "Nobody is evicted"


def test_the_controls_draw():
    box = slow_leader.trouble_controls()
    role, length, _, picture = box.children
    before = picture.value
    role.value = "follower"
    assert picture.value not in (before, b"")
    before = picture.value
    length.value = 90
    assert picture.value != before


def test_finding():
    names = "run lag_limit_s troubles evictions under_min_isr_minutes refused timed_out"
    rows = table(names, ("slow leader limit=30s", 30.0, 4, 20.0, 1.5, 66.0, 140.0))
    counts = table("right unclear wrong", (7, 2, 1))
    assert slow_leader.finding({"slow leader": rows}, 30.0, counts) == (
        "For each trouble, limit 30 s, slow leader: 20.0 evictions, 1.5 partition-minutes under "
        "min ISR, 66 produces refused, 140 timed out; 7 of 10 incidents blamed on the right "
        "broker in the right role, 1 on a wrong one."
    )
