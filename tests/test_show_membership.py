"""Eviction times, joining and flapping: what notebook 08 shows, as numbers."""

from __future__ import annotations

import pytest

from isrlab.engine.choices import HighWatermarkSet
from isrlab.engine.versions import KafkaVersion
from isrlab.show import offsets
from isrlab.workbook import in_or_out_of_sync
from isrlab.world import scenario


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


@pytest.mark.parametrize(
    ("name", "version", "changes"),
    [
        ("steady_producer", "0.8.2", 0),
        ("steady_producer", "0.9.0", 2),  # a follower that is one fetch behind is out of sync
        ("steady_producer", "0.10.2", 0),
        ("saw_tooth", None, 0),
        ("flapping", "3.6", 1),
        ("flapping", "3.7", 19),
        ("flapping", KafkaVersion.of("3.7").with_(expand_waits_under_min_isr=True), 1),
    ],
)
def test_how_often_the_isr_changes(name, version, changes):
    assert in_or_out_of_sync.changes(play(name, version)) == changes


def test_an_idle_follower_at_the_log_end_stays_from_2_1_on():
    firsts = {v: offsets.isr_of(play("idle_topic", v))[1].start_ms for v in ("2.0", "2.1")}
    assert firsts["2.0"] == 15_000
    assert firsts["2.1"] > 601_000


def test_without_the_wait_for_fresh_clocks_a_returning_replica_stays_outside():
    rule_off = KafkaVersion.of("0.10.2").with_(high_watermark_set=HighWatermarkSet.ISR)
    on, off = play("catching_up"), play("catching_up", rule_off)
    assert in_or_out_of_sync.time_out_ms(on) < 11_000
    assert in_or_out_of_sync.time_out_ms(off) > 35_000


def test_every_picture_says_what_it_shows():
    clocks = in_or_out_of_sync.plot_clocks({"0.9.0": play("steady_producer")})
    assert clocks.get_suptitle() == "Leaves the ISR: 0.9.0"
    bands = in_or_out_of_sync.plot_bands({"3.7": play("flapping"), "3.6": play("flapping", "3.6")})
    assert bands.get_title(loc="left") == "19 ISR changes in 3.7, 1 in 3.6"
    idle = {v: play("idle_topic", v) for v in ("2.0", "2.1")}
    title = in_or_out_of_sync.bands_finding(idle)
    assert title == "Out of the ISR for 616.0 s in 2.0, for 26.0 s in 2.1"
    ticks = in_or_out_of_sync.plot_evictions({"2.4": [10_100, 15_000], "2.5": [30_100, 45_000]})
    title = "The same stall: gone after 12.6 s on average in 2.4, after 37.5 s in 2.5"
    assert ticks.get_title(loc="left") == title


def test_the_slider_draws_anew():
    slider, picture = in_or_out_of_sync.hang_slider("2.4", 3).children
    before = bytes(picture.value)
    slider.value = 4
    assert bytes(picture.value).startswith(b"\x89PNG")
    assert bytes(picture.value) != before
