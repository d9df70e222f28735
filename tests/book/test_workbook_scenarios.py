"""What notebooks 07 to 10 show of scenarios, as numbers and titles, and their controls."""

from __future__ import annotations

import re
from math import inf

import pytest
from matplotlib.axes import Axes

from isrlab.engine.choices import HighWatermarkSet
from isrlab.engine.versions import PRESETS, KafkaVersion
from isrlab.show import membership, replicas
from isrlab.show.svg import Drawing
from isrlab.world import scenario
from isrlab.world.exploring import Exploration
from isrlab_book.closeups import batching
from isrlab_book.explorer import link
from isrlab_book.workbook import all_losses as losses
from isrlab_book.workbook import data_loss as loss
from isrlab_book.workbook import data_loss_today as today
from isrlab_book.workbook import last_replica_standing as standing
from isrlab_book.workbook import leaving_the_isr as leaving
from isrlab_book.workbook import log_divergence as divergence
from isrlab_book.workbook import telling_the_cluster as telling
from isrlab_book.workbook import under_min_isr as under

CHANGE = "isr_change_told"
VERSIONS = [version.name for version in PRESETS.values()]
LOSING_SEED = 25  # of the random scenarios of notebook 10
LOSSES = {
    "acks=1": {"one": "2 records lost", "two": "writes go on", "three": "writes go on"},
    "acks=all": {"one": "writes go on", "two": "1 record lost", "three": "writes stop"},
}


def play(name, version=None):
    return scenario.play(scenario.read(name), version=version)


def change(version=None):
    return play(CHANGE, version)


def title_of(drawn):
    if isinstance(drawn, Drawing):
        return drawn.alt
    title = drawn.get_title(loc="left") if isinstance(drawn, Axes) else drawn.get_suptitle()
    return " ".join(title.split())


TITLES = {
    "The follower leaves the ISR in 0.9.0":
        lambda: leaving.plot_clocks({"0.9.0": play("steady_producer")}),
    "The follower flaps (3.7) or leaves (3.6)":
        lambda: membership.plot_membership({v: play("flapping", v) for v in ("3.7", "3.6")}),
    "The follower is out of the ISR for 26.0 s (2.1) to 616.0 s (2.0)":
        lambda: membership.plot_membership({v: play("idle_topic", v) for v in ("2.0", "2.1")}),
    "The same stall: out after 12.6 s on average in 2.4, after 37.5 s in 2.5":
        lambda: leaving.plot_evictions({"2.4": [10_100, 15_000], "2.5": [30_100, 45_000]}),
    "Every broker knows of an ISR change after 10 ms to 5.5 s":
        lambda: telling.draw_sequence(change()),
    "2 of 2 ISR changes are not known to all by the end":
        lambda: telling.draw_sequence(change("0.8.2")),
    "In 2.5 the leader asks for 2 ISR changes: 2 stored, 0 refused":
        lambda: telling.plot_flow(change()),
    "Until every broker knows: up to 7 s in 2.6":
        lambda: telling.plot_delays({"2.6": {"": [5_000, 7_000]}, "0.8.2": {"": [inf]}}),
    "The leader sends 1 change in 1 request, one at a time: a waits longest, 100 ms":
        lambda: telling.plot_batches({"a": 10}, batching.play("3.7", {"a": 10})),
    "acks=all loses least: 1 record in 3 failures; writes stop in 1 more":
        lambda: standing.plot_table(LOSSES),
}  # fmt: skip


@pytest.mark.parametrize("title", TITLES)
def test_a_picture_says_what_it_shows(title):
    assert title_of(TITLES[title]()) == title


# 02, 03: leaving and joining


@pytest.mark.parametrize(
    ("name", "version", "changes"),
    [
        ("steady_producer", "0.8.2", 0),
        ("steady_producer", "0.9.0", 2),  # a follower that is one fetch behind is out of sync
        ("steady_producer", "0.10.2", 0),
        ("saw_tooth", None, 0),
    ],
)
def test_how_often_the_isr_changes(name, version, changes):
    assert membership.changes(play(name, version)) == changes


@pytest.mark.parametrize("version", VERSIONS)
def test_an_election_brings_a_hidden_follower_to_light_since_2_1(version):
    left_s = membership.spans(play("hidden_follower", version))[0].end_s
    known = KafkaVersion.of(version)
    limit_s = known.replica_lag_time_max_ms / 1000
    begin_s = 601 if known.first >= (2, 1) else 0
    assert begin_s + limit_s < left_s <= begin_s + 2 * limit_s


def test_without_the_wait_for_fresh_clocks_a_returning_replica_stays_outside():
    rule_off = KafkaVersion.of("0.10.2").with_(high_watermark_set=HighWatermarkSet.ISR)
    assert membership.time_out_s(play("catching_up")) < 11
    assert membership.time_out_s(play("catching_up", rule_off)) > 35


# 04: telling the cluster


def test_zookeeper_without_an_announcement_and_kraft_without_zookeeper():
    assert len(telling.nodes(change("0.8.2")).splitlines()) == 3
    assert "metadata log" in telling.nodes(change("3.7"))


@pytest.mark.parametrize("version", ["0.9.0", "2.6"])
def test_a_change_after_a_quiet_minute_is_known_before_one_that_follows_it(version):
    first, again = telling.single_delays(version).values()
    assert max(first) <= 2_510
    assert [ms for ms in again if not 5_000 < ms <= 7_510] == []


def test_the_controllers_competing_write_is_drawn_before_the_leaders():
    texts = re.findall(
        "<text[^>]*>(.*?)</text>", str(telling.draw_sequence(play("lost_race"), 14_000))
    )
    writes = [text for text in texts if text.startswith("write of the state")]
    assert writes[:2] == [
        "write of the state epoch=1 version=0 isr=1,2",
        "write of the state epoch=0 version=0 isr=1,3",
    ]


@pytest.mark.parametrize(
    ("name", "version", "taken"),
    [
        ("lost_race", None, {"asked": 2, "isr_commit": 1, "isr_rejected": 1}),
        ("cached_zkversion", None, {"error BADVERSION": 10}),  # asks in vain
        ("shrink_stall", "2.6", {"moves": 1}),
        ("shrink_stall", "2.7", {"moves": 0}),  # to 3.0: the high watermark is not checked
        ("shrink_stall", "3.1", {"moves": 1}),
    ],
)
def test_which_way_a_change_went(name, version, taken):
    flow = telling.flow(play(name, version))
    assert {key: flow[key] for key in taken} == taken


@pytest.mark.parametrize("version", ["0.8.2", "2.6", "2.7", "4.3"])
def test_the_chart_says_what_each_version_does(version):
    words = " ".join(text.get_text() for text in telling.plot_flow(change(version)).texts)
    assert ("write ZooKeeper" in words) == (version < "2.7") == ("in flight" not in words)
    assert ("no broker is notified" in words) == (version == "0.8.2")
    assert ("KAFKA-13091" in words) == (version == "2.7")


# 10: last replica standing

FIRST, LAST = (list(standing.FAILURES)[part] for part in (slice(5), slice(5, None)))


@pytest.mark.parametrize(
    ("version", "failures", "acks", "least", "words"),
    [
        ("3.7", LAST, "all", 2, "1 record lost|1 record lost|1 record lost"),
        ("4.1", LAST, "all", 2, "writes stop|writes stop|1 record lost"),
        *(
            (version, FIRST, *rest)
            for version in ("0.8.2", "2.5", "4.1")
            for rest in (
                ("1", 2, "go on|go on|go on|1 record lost|go on"),
                ("all", 1, "go on|go on|go on|stop|go on"),
                ("all", 2, "go on|go on|stop|stop|go on"),
                ("all", 3, "stop|stop|stop|stop|stop"),
            )
        ),
    ],
)
def test_what_each_failure_brings(version, failures, acks, least, words):
    runs = [standing.trial(version, acks, least, failure) for failure in failures]
    outcomes = [standing.word(run).removeprefix("writes ") for run in runs]
    assert outcomes == words.replace("writes ", "").split("|")


@pytest.mark.parametrize(("version", "eligible"), [("3.7", 0), ("4.1", 2)])
def test_a_story_marks_eligible_leader_replicas(version, eligible):
    story = str(replicas.draw_story(play("last_replica_standing", version)))
    assert story.count(">in the ELR<") == eligible


def test_what_clears_the_elr_loses_the_record_with_the_lone_leader():
    rows = under.changes("4.4")
    assert {row["elr afterwards"] for row in rows} == {"2, 3", "none"}
    for row in rows:
        cleared = row["elr afterwards"] == "none"
        assert row["then the leader loses power"] == ("lost" if cleared else "safe"), row


def test_the_failure_of_a_site_stops_writes_until_the_minimum_is_lowered():
    run = scenario.play(under.STRETCHED.format(least=3), version="4.4")
    assert [request.error for request in run.cluster.requests] == [
        None,
        "NOT_ENOUGH_REPLICAS",
        None,
    ]
    assert (run.outcome.word, run.cluster.controller.leader) == ("safe", 1)


def test_the_finding_counts_the_failures_of_min_isr_2():
    assert standing.finding(("3.7", "4.1"), "all") == (
        "With acks=all, min ISR 2, acknowledged records are lost in 3 of 8 failures under Kafka "
        "3.7, in 1 of 8 failures under Kafka 4.1."
    )


@pytest.mark.parametrize("version", ["2.7", "3.1", "3.7"])
@pytest.mark.parametrize(
    ("session_s", "lag_s", "outage_s", "word"),
    [
        (60, 30, 50, "offline"),  # longer than the lag limit, shorter than the session
        (60, 30, 25, "safe"),
        (60, 30, 65, "safe"),
        (9, 30, 50, "safe"),
        (18, 30, 50, "safe"),
        (18, 10, 15, "offline"),
    ],
)
def test_a_session_longer_than_the_lag_limit_leaves_nobody(
    version, session_s, lag_s, outage_s, word
):
    assert standing.outage(version, session_s, lag_s, outage_s).outcome.word == word


# 11: all losses. Each scenario does its harm exactly in the releases that its issue names


def test_words_of_every_cell():
    for flaw in losses.FLAWS:
        row = losses.ranges(losses.every_cell()[flaw.scenario])
        words = " ".join(f"{len(versions)}{what[:2]}" for versions, what in row)
        assert words == flaw.words, flaw.scenario


def test_a_cell_opens_at_the_step_after_which_another_release_ends_otherwise():
    shown = [link.read(each) for each in re.findall(r'data-play="([^"]*)"', losses.show_all().data)]
    assert len(shown) == sum(len(flaw.words.split()) for flaw in losses.FLAWS)
    (race,) = [each for each in shown if each.versions == ("3.6", "3.5")]
    story = Exploration(*race)
    assert story.tree[story.current].line == "deliver controller>1 any" and story.differs()


# 08 and 09: what is lost, and what differs


@pytest.mark.parametrize(("version", "word"), [("0.10.2", "lost"), ("0.11", "safe")])
def test_settings_do_not_help_against_a_follower_that_truncates(version, word):
    assert {w for row in loss.by_settings(version).values() for w in row.values()} == {word}


def test_real_offsets():
    old, new = (play("real_offsets", v) for v in ("0.9.0", "0.11"))
    assert old.outcome.diverged == ((2, 1_239_740_602),)
    assert len(old.outcome.lost) == len(new.outcome.lost) == 1_239_742_830 - 1_239_740_602
    assert new.outcome.diverged == ()
    ax = divergence.plot_extents(old)
    assert [[bar.get_width() for bar in bars] for bars in ax.containers] == [
        [2902, 602], [0, 2228], [0, 72],
    ]  # fmt: skip
    assert "other records from 1,239,740,602" in [text.get_text() for text in ax.texts]
    with pytest.raises(scenario.ScriptError, match="-5"):
        scenario.play("partition replicas=1,2 start=-5")


# 11: data loss today


def test_engine_kafkas_controller_and_real_brokers_lose_alike():
    cells = today.by_judge()
    assert len(cells) == 12
    assert "agree in every field" in title_of(today.plot_by_judge(cells))
    assert {"lost", "not lost"} == {word for row in cells.values() for word in row.values()}
    next(iter(cells.values()))["4.3.1"] = "not lost"
    assert "part in 1 field" in title_of(today.plot_by_judge(cells))


def test_a_schedule_that_loses_keeps_its_records_with_the_repairs():
    released, *_, repaired = today.by_repair("4.3").values()
    assert today._losing(released, LOSING_SEED)
    assert not today._losing(repaired, LOSING_SEED)


def test_a_release_without_a_recorded_loss_is_named_with_those_that_have_one():
    with pytest.raises(ValueError, match=r"no recorded loss of variant C in '4\.1'; known: 4\.3"):
        today.a_try("4.1", "C")
