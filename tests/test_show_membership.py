"""Eviction times, lag clocks, joining and flapping: what the notebook shows, as numbers."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pytest

from isrlab.engine.choices import HighWatermarkSet
from isrlab.engine.versions import KafkaVersion
from isrlab.workbook import in_or_out_of_sync
from isrlab.world import scenario


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def play(name, version=None):
    return scenario.play(scenario.read(name), version=version)


@pytest.mark.parametrize(
    ("version", "least", "most"),
    [("0.8.2", 10, 20), ("0.9.0", 10, 20), ("0.10.2", 10, 15), ("2.4", 10, 15), ("2.5", 30, 45)],
)
def test_a_stalled_follower_leaves_within_the_range_and_reaches_its_upper_end(version, least, most):
    times = in_or_out_of_sync.eviction_times(version, 20)
    assert least * 1000 < min(times) <= max(times) == most * 1000
    assert max(times) - min(times) > 0.9 * (most - least) * 1000


def test_only_0_9_throws_out_a_follower_that_is_one_fetch_behind():
    steady = {
        v: in_or_out_of_sync.changes(play("steady_producer", v))
        for v in ("0.8.2", "0.9.0", "0.10.2")
    }
    assert steady == {"0.8.2": 0, "0.9.0": 2, "0.10.2": 0}


def test_the_clock_of_a_follower_that_hangs_is_a_saw_tooth():
    ages = [age for _, age in in_or_out_of_sync.clock_ages(play("saw_tooth"), 2)]
    assert max(ages) == 8_000
    assert in_or_out_of_sync.changes(play("saw_tooth")) == 0


def test_an_idle_follower_at_the_log_end_stays_from_2_1_on():
    first = {v: in_or_out_of_sync.isr_history(play("idle_topic", v))[1][0] for v in ("2.0", "2.1")}
    assert first["2.0"] == 15_000
    assert first["2.1"] > 601_000


def test_without_the_wait_for_fresh_clocks_a_returning_replica_stays_outside():
    rule_off = KafkaVersion.of("0.10.2").with_(high_watermark_set=HighWatermarkSet.ISR)
    on, off = play("catching_up"), play("catching_up", rule_off)
    assert in_or_out_of_sync.time_out_ms(on, 2) < 11_000
    assert in_or_out_of_sync.time_out_ms(off, 2) > 35_000


def test_the_fix_ends_the_flapping_that_3_7_began():
    fix = KafkaVersion.of("3.7").with_(expand_waits_under_min_isr=True)
    counts = [in_or_out_of_sync.changes(play("flapping", v)) for v in ("3.6", "3.7", fix)]
    assert counts == [1, 19, 1]


def test_spans_are_joined_where_only_others_come_and_go():
    assert in_or_out_of_sync.spans_in_sync(play("flapping"), 1) == [(0, 60_000)]


def test_every_picture_says_what_it_shows():
    run = play("leave_and_return")
    title = in_or_out_of_sync.plot_membership(run).get_title(loc="left")
    assert title == "Replica 3 leaves at 45 s, replica 3 joins at 61 s"
    figure = in_or_out_of_sync.plot_clocks({"0.9.0": play("steady_producer")})
    assert figure.get_suptitle() == "Leaves the ISR: 0.9.0"
    bands = in_or_out_of_sync.plot_bands({"3.7": play("flapping"), "3.6": play("flapping", "3.6")})
    assert bands.get_title(loc="left") == "19 ISR changes in 3.7, 1 in 3.6"
    ticks = in_or_out_of_sync.plot_evictions({"2.4": [10_100, 15_000], "2.5": [30_100, 45_000]})
    assert "12.6 s on average in 2.4" in ticks.get_title(loc="left")


def test_the_slider_draws_anew():
    box = in_or_out_of_sync.hang_slider("2.4", 3)
    slider, picture = box.children
    before = bytes(picture.value)
    slider.value = 4
    assert bytes(picture.value).startswith(b"\x89PNG")
    assert bytes(picture.value) != before
