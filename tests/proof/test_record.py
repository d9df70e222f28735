"""Schedules that were played on real brokers end in the same states in the engine."""

from __future__ import annotations

import re
import struct

import pytest

from isrlab.show.replicas import draw_beside
from isrlab.world import scenario
from isrlab_book.workbook.whose_fault_is_it import links
from isrlab_ops.logs.reader.lines import Unread, read_line
from isrlab_ops.recordings import recorded
from isrlab_ops.recordings.reassigned import ADVICE, TopicTry, counts, sessions
from record import inside, play

RECORDINGS = recorded.recordings()
IDS = [f"{r.schedule}-{r.release}" for r in RECORDINGS]
LOST_AND_KEPT = {  # a release that lost a record, and one that did not
    "loss_three_replicas": ("0.10.2.2", "0.11.0.3"),
    "loss_then_write": ("0.10.2.2", "0.11.0.3"),
    "fast_leader_change": ("0.11.0.3", "2.0.1"),
}
# Where the engine differs from real brokers, and why: (schedule, release): {block: what}
LATE = ("records of 1", "epochs of 1")
HEARD_LATE = dict.fromkeys((1, 2, 3), LATE) | {4: (*LATE, "records of 2", "epochs of 2")}
KNOWN = {
    # No time passes in the engine's run: broker 1 dies before it writes its high watermark (every
    # 5 s; on these brokers every 0.3 s), and returns with the one from its start.
    ("loss_as_told", "0.11.0.3"): {4: ("high watermark of 1",)},
    # The real broker 2 is paused before it learns that it leads; the engine's learns it and, since
    # 2.0.1, notes where its epoch begins.
    ("loss_three_replicas", "2.8.2"): {2: ("epochs of 2",)},
    # In one try the leader wrote m3 (in 2.0.1 also m4) before it learned of epoch 1: after the ISR
    # without broker 2 was stored, and before the controller's order arrived.
    ("fast_leader_change", "2.0.1"): HEARD_LATE,
    ("fast_leader_change", "2.8.2"): HEARD_LATE,
}


@pytest.mark.parametrize("recording", RECORDINGS, ids=IDS)
def test_the_engine_had_what_real_brokers_had_after_every_block(recording: recorded.Recording):
    assert recording.finished
    known = KNOWN.get((recording.schedule, recording.release), {})
    found: dict[int, set[str]] = {}
    for difference in recording.differences():
        found.setdefault(difference.block, set()).add(difference.what)
    assert found == {block: set(names) for block, names in known.items()}


@pytest.mark.parametrize("recording", RECORDINGS, ids=IDS)
def test_every_try_ended_as_in_the_engine(recording: recorded.Recording):
    word = recording.engine_word
    assert [t.word for t in recording.finished] == [word] * len(recording.finished)


@pytest.mark.parametrize("schedule", LOST_AND_KEPT)
def test_the_repair_is_seen_on_real_brokers(schedule: str):
    bad, good = (recorded.read(schedule, release) for release in LOST_AND_KEPT[schedule])
    assert {t.word for t in bad.finished} <= {"lost", "diverged"}
    assert {t.word for t in good.finished} == {schedule_end(schedule)}


def schedule_end(schedule: str) -> str:
    """How the schedule ends since the repair; unclean elections lose records in every release."""
    return "lost" if "unclean.leader.election.enable=true" in scenario.read(schedule) else "safe"


@pytest.mark.parametrize("recording", RECORDINGS, ids=IDS)
def test_every_line_that_the_brokers_wrote_of_it_is_known(recording: recorded.Recording):
    lines = {line[26:]: line for _, _, line in recording.finished[-1].said}
    read = {line: read_line(line) for line in lines.values()}
    assert [line for line, event in read.items() if isinstance(event, Unread)] == []
    assert any(event for event in read.values())


def test_a_shrink_stalls_real_producers_from_2_7_to_3_0_only():
    words = {r.release: {t.word for t in r.finished} for r in recorded.recordings("shrink_stall")}
    assert words.pop("2.8.2") == {"refused"}
    assert words and set.union(*words.values()) == {"safe"}


# Schedules of the advice: 31 s without broker 2, then the leader dies; or a leader hands over
ACKS_ONE = """partition replicas=1,2,3 replica.lag.time.max.ms={limit}
produce 1 m1 acks=1
stabilize
pause 2 fetcher
produce 1 m2 acks=1
advance 31s
produce 1 m3 acks=1
advance 1s
kill 1
resume 2
elect
advance 10s
stabilize"""
HANDED = """partition replicas=1,2,3 min.insync.replicas=2 replica.lag.time.max.ms={limit}
produce 1 m1 acks=all
stabilize
pause 2 fetcher
pause 3 fetcher
produce 1 m2 acks=1
advance 8s
{what} 1
elect
resume 2
resume 3
advance 10s
stabilize"""
TRIED = {
    "limit-10s": ACKS_ONE.format(limit="10s"),
    "limit-60s": ACKS_ONE.format(limit="60s"),
    "before-handed": HANDED.format(limit="60s", what="clean_shutdown"),
    "after-handed": HANDED.format(limit="4s", what="clean_shutdown"),
    "before-killed": HANDED.format(limit="60s", what="kill"),
    "after-killed": HANDED.format(limit="4s", what="kill"),
}
ADVISED = [tally for tally in counts(folder=ADVICE) if tally.variant in TRIED]


@pytest.mark.parametrize("tally", ADVISED, ids=lambda tally: f"{tally.release}-{tally.variant}")
def test_advice_did_on_ten_topics_of_real_brokers_what_it_does_in_the_engine(tally):
    end = scenario.play(TRIED[tally.variant], version=tally.release).outcome
    is_acks_one = "acks=all" not in TRIED[tally.variant]
    assert TopicTry(tally.variant, "t", 0).word == "not counted"
    assert tally.tries >= 10
    assert tally.lost == tally.tries * bool(is_acks_one and end.lost_acknowledged)
    assert tally.leaderless == tally.tries * (end.word == "offline")


def test_a_longer_limit_loses_with_acks_one_and_after_the_shrink_none_takes_over_before_4_1():
    ends = {(t.variant, t.release[0]): (bool(t.lost), bool(t.leaderless)) for t in ADVISED}
    assert ends["limit-10s", "3"] == (False, False) and ends["limit-60s", "3"] == (True, False)
    for how in ("handed", "killed"):
        assert ends[f"before-{how}", "3"] == ends[f"before-{how}", "4"] == (False, False)
        assert [ends[f"after-{how}", line] for line in "34"] == [(False, True), (False, False)]


def test_a_throttled_move_takes_a_sixth_longer_than_backlog_and_throttle_say():
    """Nine partitions have 40 MB each at the start, and their producers write 50 kB/s to each."""
    runs = [run for run in sessions(ADVICE) if "throttle" in run.settings]
    runs = [run for run in runs if run.settings.get("batch", "9") == "9"]
    assert {run.settings["throttle"] for run in runs} == {"4 MB/s", "8 MB/s", "16 MB/s"}
    for run in runs:
        took_s = max(each.moved_s for each in run.tries)
        backlog_mb = 9 * 0.02 * (run.tries[0].acknowledged - 2.5 * took_s)
        rate = float(run.settings["throttle"].removesuffix(" MB/s"))
        assert 1.1 < took_s / (backlog_mb / (rate - 9 * 0.05)) < 1.25


def test_fetchers_of_real_brokers_share_a_link_as_the_notebook_says():
    evicted, names = {}, ("threads", "4 MB/s", "fetch.max", "backlogs (MB)")
    for row in links.rows(2):
        real, model = row["real: copied (s)"], row["model: copied (s)"]
        medians = [float(text.split(" (")[0]) for text in real.split("), ")]
        assert medians == pytest.approx([*map(float, model.split(", "))], abs=0.35)
        key = " ".join(str(row[name]) for name in names)
        evicted[key] = row["evicted in 10 tries"], row["evicted with 2 seeds"]
    assert len(evicted) == 6
    assert evicted["2 for all 64 MiB 40"] == ("0: 10, 2: 10", "0: 2, 2: 2")
    assert evicted["2 of each connection 1 MiB 22, 11"] == ("none", "none")


def test_a_broker_of_0_10_2_that_halts_hangs_and_zookeeper_believes_it_alive():
    """In the engine it is dead. (0.8.2 halts immediately; 0.10.2 exits in a thread for whose end
    its shutdown waits.)"""
    for attempt in recorded.read("loss_then_halt", "0.10.2.2").finished:
        last = attempt.moments[-1]
        assert last.lives == {1: "hangs", 2: "alive"} and last.registered == (1, 2)


def test_a_comparison_notices_the_rules_of_another_release():
    lost = recorded.read("loss_three_replicas", "0.10.2.2")
    kept = recorded.read("loss_three_replicas", "0.11.0.3")
    changed = recorded.Recording(lost.schedule, lost.release, kept.version, lost.tries)
    assert {d.what for d in changed.differences()} >= {"records of 2", "records of 3"}


def test_engine_and_real_brokers_stand_side_by_side():
    lost = recorded.read("loss_three_replicas", "0.10.2.2")
    figure = draw_beside(lost.engine(), lost.frames(), lost.title, blocks=(2, 4))
    assert str(figure).count('<svg class="panel"') == 4
    assert re.findall(r"\d\. On real brokers", figure.alt) == [
        "1. On real brokers", "2. On real brokers",
    ]  # fmt: skip
    number = len(lost.finished)
    assert f"real brokers of Kafka 0.10.2.2: lost {number} of {number}" in figure.alt


def test_a_recording_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(ValueError, match=r"'9\.9'; releases: .*0\.10\.2\.2"):
        recorded.read("loss_three_replicas", "9.9")


def test_a_schedule_says_how_its_cluster_is_made():
    setup = play.setup_of(scenario.read("loss_three_replicas"))
    assert setup.start == (3, 1, 2) and setup.sessions_ms == {1: 2_000, 2: 8_000, 3: 45_000}
    assert setup.topic["min.insync.replicas"] == "2"
    assert setup.brokers["replica.fetch.wait.max.ms"] == "5000"
    with pytest.raises(ValueError, match="no partition line"):
        play.setup_of("status")
    with pytest.raises(ValueError, match=r"(?s)line 8: cut 1 2.*after #>"):
        play.setup_of(scenario.read("last_replica_standing"))


def test_records_of_the_old_message_formats_are_read():
    old = b"".join(_old_record(offset, magic, b"m%d" % offset)
                   for offset, magic in ((0, 0), (1, 1)))  # fmt: skip
    assert list(inside.read_records(old + b"\0\0\0")) == [(0, "m0", -1), (1, "m1", -1)]


def _old_record(offset: int, magic: int, value: bytes) -> bytes:
    body = struct.pack(">Ibb", 0, magic, 0) + bytes(8 * magic)
    body += struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qi", offset, len(body)) + body


def test_a_batch_of_several_records_is_read_and_half_a_batch_is_not():
    records = b"".join(_record(delta, b"m%d" % delta) for delta in range(3))
    body = struct.pack(">ibIhiqqqhii", 7, 2, 0, 0, 2, 0, 0, -1, -1, -1, 3) + records
    batch = struct.pack(">qi", 10, len(body)) + body
    expected = [(10 + delta, f"m{delta}", 7) for delta in range(3)]
    assert list(inside.read_records(batch + batch[:40])) == expected


def _record(delta: int, value: bytes) -> bytes:
    """Lengths and deltas below 64 are one byte, doubled; a key of length -1 is 1."""
    body = bytes([0, 0, 2 * delta, 1, 2 * len(value)]) + value + b"\0"
    return bytes([2 * len(body)]) + body
