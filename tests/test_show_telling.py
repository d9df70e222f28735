"""Who knows of an ISR change when, and the way that a change went."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pytest

from isrlab.workbook import isr_flow, telling_the_cluster
from isrlab.world import scenario


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def play(name, version=None):
    return scenario.play(scenario.read(name), version=version)


def test_a_quiet_change_is_known_after_5_to_7_5_seconds_from_0_9_to_2_6():
    delays = telling_the_cluster.quiet_delays("2.6", 6)
    assert all(5_000 < d <= 7_510 for d in delays)
    assert max(delays) - min(delays) > 1_500


def test_before_nobody_is_told_and_since_2_7_at_once():
    assert telling_the_cluster.quiet_delays("0.8.2", 1) == [None]
    assert (
        telling_the_cluster.quiet_delays("2.7", 1)
        == telling_the_cluster.quiet_delays("3.7", 1)
        == [5]
    )


def test_constant_churn_is_announced_once_a_minute():
    run = scenario.play(telling_the_cluster.churn_script(3), version="2.5")
    told = [e.ts_ms for e in run.cluster.events if e.kind == "notify"]
    assert len(told) == 2
    assert 60_000 < told[1] - told[0] <= 62_500
    assert max(telling_the_cluster.churn_delays("2.5", 3)) > 50_000


def test_a_lost_race_is_refused_once():
    taken = isr_flow.flow(play("lost_race"))
    assert (taken.counts["asked"], taken.counts["stored"], taken.counts["refused"]) == (2, 1, 1)


def test_the_stuck_loop_asks_in_vain_until_a_controller_repeats_its_orders():
    run = play("cached_zkversion")
    assert isr_flow.flow(run).errors == {"BADVERSION": 10}
    assert run.cluster.controller.isr == (1,)


def test_2_7_to_3_0_do_not_look_at_the_high_watermark_after_a_shrink():
    errors = {v: play("shrink_stall", v).cluster.requests[0].error for v in ("2.6", "2.7", "3.1")}
    assert errors == {"2.6": None, "2.7": "REQUEST_TIMED_OUT", "3.1": None}


def test_every_error_has_a_reaction():
    found = isr_flow.reactions("3.7")
    assert found["INELIGIBLE_REPLICA"] == "takes its request back"
    assert found["FENCED_LEADER_EPOCH"].startswith("keeps the larger set")
    assert found["UNKNOWN_SERVER_ERROR"] == "asks again at once"
    with pytest.raises(ValueError, match="writes ZooKeeper itself"):
        isr_flow.reactions("2.6")


def test_kraft_refuses_in_its_order():
    assert [answer for _, answer in isr_flow.validation_order()] == [
        "NOT_CONTROLLER",
        "FENCED_LEADER_EPOCH",
        "INVALID_REQUEST",
        "INVALID_UPDATE_VERSION",
        "INVALID_REQUEST",
        "INVALID_REQUEST",
        "INELIGIBLE_REPLICA",
        "stored",
    ]


@pytest.mark.parametrize(
    ("release", "failures", "sent"),
    [("2.7", 0, [50, 150]), ("3.7", 0, [10, 110]), ("3.7", 1, [10, 160])],
)
def test_one_request_at_a_time_takes_all_that_waits(release, failures, sent):
    submitted = {"a": 10, "b": 20, "c": 60}
    requests = isr_flow.batches(release, submitted, 100, failures)
    assert [r.sent_ms for r in requests] == sent
    assert {p for r in requests for p in r.partitions} == set(submitted)


def test_every_picture_says_what_it_shows():
    run = play("isr_change_told")
    known = "1 ISR change: every broker knows after 7.5 s"
    assert telling_the_cluster.plot_sequence(run).get_title(loc="left") == known
    assert telling_the_cluster.plot_knowledge(run).get_title(loc="left").startswith(known)
    title = isr_flow.plot_flow(run).get_title(loc="left")
    assert title == "2.5: 6 looks at the ISR, 1 change asked for: 1 stored, 0 refused"
    delays = {"2.6": {"one": [5_000, 7_000]}, "0.8.2": {"one": [None]}}
    ax = telling_the_cluster.plot_delays(delays)
    assert ax.get_title(loc="left") == "Until every broker knows: up to 7.0 s in 2.6"
    submitted = {"a": 10}
    drawn = isr_flow.plot_batches(submitted, isr_flow.batches("3.7", submitted))
    assert "a waits longest, 100 ms" in drawn.get_title(loc="left")


def test_the_choice_of_a_version_draws_anew():
    choice, picture = telling_the_cluster.version_choice(
        ("2.5", "3.7"), scenario.read("isr_change_told"), "2.5"
    ).children
    before = bytes(picture.value)
    choice.value = "3.7"
    assert bytes(picture.value) != before
