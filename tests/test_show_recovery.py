"""A rolling restart: fleets that are built for it, and the numbers under the pictures."""

from __future__ import annotations

import pandas as pd
import pytest

from isrlab import fleet
from isrlab.fleet import load, recovery
from isrlab.workbook import restart, rolling_restart

BASE = restart.SMALL.with_(restart_s=60.0)
REJOINS = "run broker down_ms up_ms partitions still_out first_ms median_ms last_ms"


def counted(config):
    kinds = fleet.simulate_local(config)
    return [dict(d or [])["error"] for k, d in zip(
        kinds["kind"].to_pylist(), kinds["detail"].to_pylist(), strict=True
    ) if k == "produce_error"]  # fmt: skip


def test_one_restart_is_one_with_time_to_come_back():
    one = rolling_restart.one_restart(BASE, 0.8, 60)
    assert [len(load.restarts(one, broker)[0]) for broker in range(1, 5)] == [1, 0, 0, 0]
    left_s = one.minutes * 60 - one.restart_every_s - 60
    assert left_s > recovery.expected_rejoin_s(one, 1) == pytest.approx(240)


def test_producers_are_refused_below_the_safe_wait_only():
    early, safe = (rolling_restart.rolling(BASE, 0.6, 60, wait) for wait in (0.6, 1.2))
    assert early.restart_every_s == pytest.approx(0.6 * 150)
    assert counted(early).count("NOT_ENOUGH_REPLICAS") > 100
    assert counted(safe).count("NOT_ENOUGH_REPLICAS") == 0


def test_a_wait_is_never_shorter_than_the_downtime():
    assert rolling_restart.rolling(BASE, 0.1, 60, 0.25).restart_every_s == 60


def test_a_new_replica_has_the_backlog_that_was_asked_for():
    one = rolling_restart.new_replica(BASE, 0.5, 100)
    assert recovery.expected_rejoin_s(one, 1) == pytest.approx(200, rel=0.001)
    assert recovery.expected_rejoin_s(one, 2) == 0


def test_fewer_machines_carry_more_each():
    many = rolling_restart.on_machines(
        recovery.loaded(BASE.with_(partitions=60), 0.1), 6, 5e7, "many"
    )
    few = rolling_restart.on_machines(many, 3, 4e7, "few")
    assert recovery.load_share(few, 1) == pytest.approx(recovery.load_share(many, 1) * 2 * 5 / 4)
    hopeless = rolling_restart.on_machines(many, 3, 1e6, "hopeless")
    assert recovery.expected_rejoin_s(hopeless, 1) == float("inf")


@pytest.mark.parametrize("share", [0, 1, 1.5])
def test_a_share_without_spare_is_refused(share):
    with pytest.raises(ValueError, match=f"^share={share} is out of range"):
        rolling_restart.rolling(BASE, share, 60, 1)


def test_compared_and_waits():
    one = rolling_restart.one_restart(BASE, 0.5, 60)
    rows = [(one.run, 1, 0, 60_000, 6, 0, 1_000, 50_000.0, 61_000)]
    names = REJOINS.split()
    found = rolling_restart.compared(pd.DataFrame(rows, columns=names), [one]).iloc[0]
    assert (found["share"], found["down_s"], found["last_s"]) == (pytest.approx(0.5), 60, 61)
    assert found["formula_s"] == pytest.approx(60)
    roll = rolling_restart.rolling(BASE, 0.5, 60, 0.75)
    refused = pd.DataFrame(
        [(roll.run, "NOT_ENOUGH_REPLICAS", 7), (roll.run, "REQUEST_TIMED_OUT", 2)],
        columns=["run", "error", "produces"],
    )
    under = pd.DataFrame([(roll.run, 120_000)], columns=["run", "under_min_isr_ms"])
    waited = rolling_restart.waits([roll], refused, under).iloc[0]
    assert waited["wait"] == pytest.approx(0.75)
    assert waited[["under_min_isr_minutes", "refused", "timed_out"]].tolist() == [2, 7, 2]


def test_real_brokers_are_timed_from_their_start():
    names = REJOINS.split()
    measured = pd.DataFrame([("k", 3, 0, 20_000, 9, 0, 2_100, 2_200.0, 2_300)], columns=names)
    back = pd.DataFrame([("k", 3, 500), ("k", 3, 21_800), ("k", 3, 21_900), ("k", 1, 20_001)],
                        columns=["run", "broker", "ts_ms"])  # fmt: skip
    found = rolling_restart.recorded_rejoins(measured, back).iloc[0]
    times = found[["down_s", "unfenced_s", "first_s", "last_s"]].tolist()
    assert times == pytest.approx([20, 1.8, 2.1, 2.3])
    assert found["most_records"] == 5_200


def test_the_controls_draw():
    box = restart.restart_controls()
    _, share, wait, picture = box.children
    seen = {picture.value}
    for slider, value in ((share, 0.3), (wait, 1.25)):
        slider.value = value
        seen.add(picture.value)
    assert len(seen) == 3
    figure = restart.plot_restart(rolling_restart.rolling(restart.SMALL, 0.6, 60, 1.25))
    assert figure.axes[1].get_title(loc="left") == "0 returns come after the next restart"


@pytest.mark.parametrize(
    ("version", "longest_s", "timed_out"),
    [("0.9.0", (0, 2), 0), ("0.10.2", (5, 10), 0), ("3.3", (20, 30), 1), ("3.6", (0, 2), 0)],
)
def test_from_0_10_2_to_3_5_produces_wait_for_a_broker_that_has_gone(version, longest_s, timed_out):
    base = fleet.FleetConfig(
        version=version, partitions=24, brokers=4, load="steady", stall_s=0, follower_spread=0,
        batch_every_ms=200, min_insync_replicas=2, seed=1,
    )  # fmt: skip
    (row,) = restart.waits_for_the_gone([rolling_restart.rolling(base, 0.6, 60, 1.3)]).itertuples()
    assert longest_s[0] <= row.longest_wait_s < longest_s[1]
    assert bool(row.timed_out) == bool(timed_out)
