"""Who knows of an ISR change when, and the way that a change went: what notebook 09 shows."""

from __future__ import annotations

from math import inf

import pytest

from isrlab.closeups import batching
from isrlab.engine.versions import PRESETS
from isrlab.show import bands
from isrlab.workbook import telling_the_cluster
from isrlab.world import scenario


def play(name, version=None):
    return scenario.play(scenario.read(name), version=version)


def test_a_quiet_change_is_known_after_5_to_7_5_seconds_from_0_9_to_2_6():
    delays = telling_the_cluster.quiet_delays("2.6", 6)
    assert all(5_000 < ms <= 7_510 for ms in delays)
    assert max(delays) - min(delays) > 1_500


@pytest.mark.parametrize(("version", "ms"), [("0.8.2", inf), ("2.7", 5), ("3.7", 5)])
def test_before_nobody_is_told_and_since_2_7_at_once(version, ms):
    assert telling_the_cluster.quiet_delays(version, 1) == [ms]


def test_constant_churn_is_announced_once_a_minute():
    run = telling_the_cluster.churn("2.5", 3)
    told = [row["ts_ms"] for row in run.events().to_pylist() if row["kind"] == "notify"]
    assert len(told) == 2
    assert 60_000 < told[1] - told[0] <= 62_500
    assert max(telling_the_cluster.churn_delays("2.5", 3)) > 50_000


def test_a_lost_race_is_refused_once():
    taken = telling_the_cluster.flow(play("lost_race"))
    assert [taken[key] for key in ("asked", "isr_commit", "isr_rejected")] == [2, 1, 1]


def test_the_stuck_loop_asks_in_vain_until_a_controller_repeats_its_orders():
    run = play("cached_zkversion")
    assert telling_the_cluster.flow(run)["error BADVERSION"] == 10
    assert run.cluster.controller.isr == (1,)


def test_2_7_to_3_0_do_not_look_at_the_high_watermark_after_a_shrink():
    errors = {v: play("shrink_stall", v).cluster.requests[0].error for v in ("2.6", "2.7", "3.1")}
    assert errors == {"2.6": None, "2.7": "REQUEST_TIMED_OUT", "3.1": None}
    moves = {v: telling_the_cluster.flow(play("shrink_stall", v))["moves"] for v in errors}
    assert moves == {"2.6": 1, "2.7": 0, "3.1": 1}


@pytest.mark.parametrize("version", ["2.7", "3.0", "3.7", "4.1"])
def test_every_error_has_a_reaction(version):
    reactions = telling_the_cluster.reactions(version)
    assert reactions["INELIGIBLE_REPLICA"] == "takes its request back"
    assert reactions["FENCED_LEADER_EPOCH"].startswith("keeps the larger set")
    assert reactions["UNKNOWN_SERVER_ERROR"] == "asks again at once"


def test_a_leader_that_writes_itself_has_nothing_in_flight():
    with pytest.raises(ValueError, match="writes ZooKeeper itself"):
        telling_the_cluster.reactions("2.6")


def test_kraft_refuses_in_its_order():
    assert [answer for _, answer in telling_the_cluster.validation_order()] == [
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
    requests = batching.play(release, submitted, 100, failures)
    assert [r.sent_ms for r in requests] == sent
    assert {p for r in requests for p in r.partitions} == set(submitted)


def test_every_picture_says_what_it_shows():
    run = play("isr_change_told")
    known = "1 ISR change: every broker knows after 7.51 s"
    assert telling_the_cluster.plot_sequence(run).get_title(loc="left") == known
    ax = telling_the_cluster.plot_knowledge(run)
    assert ax.get_title(loc="left").startswith(f"{known} (metadata out of date 24% of")
    title = telling_the_cluster.plot_flow(run).get_title(loc="left")
    assert title == "2.5: 6 looks at the ISR, 1 change asked for: 1 stored, 0 refused"
    delays = {"2.6": {"once": [5_000, 7_000]}, "0.8.2": {"once": [inf]}}
    ax = telling_the_cluster.plot_delays(delays)
    assert ax.get_title(loc="left") == "Until every broker knows: up to 7 s in 2.6"
    submitted = {"a": 10}
    ax = telling_the_cluster.plot_batches(submitted, batching.play("3.7", submitted))
    assert "a waits longest, 100 ms" in ax.get_title(loc="left")


@pytest.mark.parametrize("version", [v.name for v in PRESETS.values()])
def test_the_chart_says_what_each_version_does(version):
    ax = telling_the_cluster.plot_flow(play("isr_change_told", version))
    words = " ".join(text.get_text() for text in ax.texts)
    writes_itself = version in ("0.8.2", "0.9.0", "0.10.2", "0.11", "2.2", "2.4", "2.5", "2.6")
    assert ("write ZooKeeper" in words) == writes_itself
    assert ("nobody is told" in words) == (version == "0.8.2")
    assert ("KAFKA-13091" in words) == (version in ("2.7", "2.8"))


def test_metadata_is_out_of_date_from_the_stored_change_to_the_news(monkeypatch):
    drawn = {}
    monkeypatch.setattr(bands, "plot_bands", lambda rows, *_, **__: drawn.update(rows))
    telling_the_cluster.plot_knowledge(play("isr_change_told", "2.5"))
    spans = [(s.start_s, s.end_s, s.state) for s in drawn["broker 2 knows"] if s.end_s > 15]
    assert spans[:2] == [(15.0, 22.51, "stale"), (22.51, 31.01, "in sync")]


def test_the_choice_of_a_version_draws_anew():
    choice, picture = telling_the_cluster.version_choice(
        ("2.5", "3.7"), scenario.read("isr_change_told"), "2.5"
    ).children
    before = bytes(picture.value)
    choice.value = "3.7"
    assert bytes(picture.value) != before
