"""Incidents in recordings of real clusters, whose cause is known; and the table of rules."""

from __future__ import annotations

import csv
import gzip
import json
import re
import shutil
import tarfile
from pathlib import Path

import msgspec
import pytest

import incident_world
from isrlab.events import schema
from isrlab.events.exact import Key
from isrlab_book.workbook.your_cluster import figures
from isrlab_ops.logs import recordings
from isrlab_ops.logs.history.record import Record
from isrlab_ops.logs.incidents import command, rules
from isrlab_ops.logs.incidents.look import CALM, NOT_KNOWN, WRONG, look

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
RECORDED = Path(__file__).parents[2] / "data" / "recordings" / "incidents"


def truth(name: str) -> dict:
    return json.loads((RECORDED / name / "truth.json").read_text(encoding="utf-8"))


# The incidents of each recording: its kind, and the brokers to blame, as in its truth.json.
EXPECTED = {
    "a-412-follower-paused": [("follower_stalled", (2,))],
    "b-412-follower-killed": [("died", (2,))],
    "d-392-rolling-restart": [("restart", ())],
    "e-282-follower-paused": [("follower_stalled", (3,))],
    "g-01022-follower-flapping": [("broker_stalled", (3,))],
    "i-392-throttle-left-behind": [("restart", ()), ("throttle_left_behind", ())],
    "j-282-clocks-apart": [("follower_stalled", (3,))],
    "k-412-quiet-control": [],
    "s-0822-follower-paused": [("follower_stalled", (3,))],
}


# The same for recordings whose truth has every ISR change; with the exit status.
TIMED = {
    "01103-controller-paused": ([("session_lost", (1,))], 0),
    "111-link-one-way": ([("link_cut", ())], 0),
    "302-zookeeper-cut": ([("session_lost", (2,))], 0),  # its fetchers gave up in the meantime
    "372-topic-deleted": ([("follower_stalled", (2,))], 0),
    "201-restart-loop": ([("died_and_back", (3,))], 0),
    "332-controller-paused": ([("controller_stalled", (100,))], 0),
    "352-disk-full": ([("disk_full", (2,))], 1),
    "392-active-controller-paused": ([("follower_stalled", (2,))], 0),
    "392-controller-paused-shortly": ([("leader_stalled", (1,))], 2),
}

BOTH = [("died_and_back", (3,)), ("died_and_back", (2,))]
# The same for recordings whose truth has only the ISRs at the end.
MORE = {
    "0822-leader-paused": ([("broker_stalled", (2,))], 0),
    "0822-leader-woke": ([("leader_woke", (1,))], 0),
    "412-cut-off": ([("cut_off", (2,))], 0),
    "412-controller-out-of-reach": ([("controller_out_of_reach", ())], 0),
    "01022-session-lost": ([("session_lost", (2,))], 0),
    "241-leader-paused": ([("leader_stalled", (1,))], 0),
    "241-starved": ([("broker_stalled", (3,))], 0),
    "241-power-failure": ([("power_failure", ())], 2),  # no line shows the ISRs during the outage
    "282-disk-full": ([("disk_full", (2,))], 1),
    "282-link-cut": ([("link_cut", ())], 0),
    "282-zookeeper-away": ([("zookeeper_away", ())], 0),
    "412-controller-paused": ([("controller_stalled", (100,))], 0),
    # broker 2 removed broker 3 before it stopped itself: this is no power failure
    "402-unclean": ([*BOTH, ("unclean_election", ())], 1),  # over but not calm: records are lost
    "412-two-faults": ([("died", (2,)), ("frozen", (3,))], 1),
    "440-unclean": ([*BOTH, ("unclean_election", ())], 1),
    # the losses are real, but no log shows that the producers used acks=1
    "431-acks-one": ([("died_and_back", (2,)), ("uncommitted_records_cut", ())], NOT_KNOWN),
    "282-unclean": ([*BOTH, ("unclean_election", ())], 1),
    "362-leaderless": ([("died_and_back", (3,)), ("no_leader", ()), ("died_and_back", (2,))], 0),
    "412-emptied-last": ([*BOTH, ("emptied_leader", (2,))], 1),
    "332-emptied-follower": ([("restarted", ()), ("emptied_log", (3,))], 0),
    # its brokers log nothing once the controller answers again
    "420-frozen-controller": ([("controller_away", (100,))], 1),
    "420-quorum-lost": ([("quorum_lost", ()), ("died_and_back", (3,))], 0),
    "440-old-controller": ([("old_controller", (100,))], 0),
    # by mistake it was started for another cluster, which its log names
    "440-start-fails": ([("start_failed", (3,))], 0),
    "392-dir-locked": ([("start_failed", (3,))], 0),
    "412-made-again": ([("topic_made_again", ()), ("follower_stalled", (3,))], 0),
    "372-cancelled": ([("reassignment_cancelled", ()), ("fenced_alive", (2,))], 0),
    # appends take 6 s longer; broker 1 only leads in 3.9.2, and also follows in 4.1.2
    "392-slow-disk": ([("broker_slow", (1,))], 0),
    "412-slow-disk-of-all": ([("broker_slow", (1,))], 0),
    # it ran for a small part of the time, until the logs end, and no ISR changed
    "392-slow-leader-only": ([("broker_strained", (1,))], 1),
    "282-idle-killed": ([("died", (3,))], 1),
    "381-idle-host-gone": ([("silent", (3,))], 1),
    "392-rolled-then-killed": ([("restart", ()), ("silent", (3,))], 1),
    "412-idle-killed": ([("died", (3,))], 1),
    "372-wrong-address": ([("restart", ()), ("not_reached", (3,))], 1),
    "422-damaged": ([("damaged_segment", ()), ("restart", ())], 1),
    "0901-too-large": ([("message_too_large", ())], 1),
    "241-lower-limit": ([("message_refused", (3,))], 1),
    "392-no-files": ([("out_of_resources", (3,))], 1),
    "422-loaded": ([], 0),
    **TIMED,
}


# Recordings that look like a loss, though every acknowledged record was read back afterwards
NO_LOSS = {
    # the controller elects the last known leader, which has every record
    "../losses/412-power-failure": ([("no_leader", ()), ("power_failure", ())], 0),
    # the same lines as in 431-acks-one
    "../losses/422-writes-in-flight": (
        [("died_and_back", (1,)), ("uncommitted_records_cut", ())],
        NOT_KNOWN,
    ),
    "../losses/440-emptied-follower": ([("restarted", ()), ("emptied_log", (3,))], 0),
}


@pytest.fixture(scope="module")
def findings():
    return {name: look(RECORDED / name / "logs", min_isr=2) for name in EXPECTED}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_cause_and_the_broker_of_a_recorded_incident(name, findings):
    found, true = findings[name], truth(name)
    assert [(each.what, each.blamed) for each in found.incidents] == EXPECTED[name]
    blamed = {broker for each in found.incidents for broker in each.blamed}
    assert blamed == ({true["broker_to_blame"]} - {None})
    assert found.status == (CALM if true["over_at_end"] else WRONG)
    for incident in found.incidents:
        assert incident.evidence and incident.checks and incident.learn


@pytest.mark.parametrize("name", [*MORE, *NO_LOSS])
def test_the_cause_of_other_recorded_incidents(name):
    incidents, status = {**MORE, **NO_LOSS}[name]
    found = look(RECORDED / name / "logs", min_isr=2)
    assert [(each.what, each.blamed) for each in found.incidents] == incidents
    assert found.status == status
    ends = {f"{k.topic}-{k.partition}": set(v[-1].isr) for k, v in found.record.spans.items()}
    told = {partition: set(isr) for partition, isr in truth(name)["isr_at_end"].items()}
    assert {partition: told[partition] for partition in ends} == ends


def test_an_unclean_election_names_the_records_that_are_lost():
    """Broker 2 was killed with some 72 records of each partition; broker 3, which had died 14 s
    earlier with 27 or 28, led next. The first refused connection is logged a second later."""
    found = look(RECORDED / "402-unclean" / "logs")
    (loss,) = found.losses
    assert [(each.partition, each.first, each.last) for each in loss.lost] == [
        (0, 28, 71), (1, 27, 71), (2, 27, 71), (3, 27, 71), (4, 27, 71), (5, 27, 70),
    ]  # fmt: skip
    killed_ms = next(a["t_ms"] for a in truth("402-unclean")["actions"] if a["what"] == "kill 2")
    for each in loss.lost:
        assert each.appended_from_ms < killed_ms <= each.appended_to_ms < killed_ms + 1_500
    assert loss.leaderless_ms == 16_299, "from the fencing of broker 2 to the election"
    assert loss.is_over and loss.is_grave and found.status == WRONG


@pytest.mark.parametrize("name", [name for name in MORE if truth(name).get("lost")])
def test_the_lost_records_are_those_that_producers_miss(name):
    """Compares the offsets of acknowledged records that the leader's log lacks. The last one was
    sent within the time that the lines give; the first may have waited for a leader."""
    (loss,) = look(RECORDED / name / "logs").losses
    missed = truth(name)["lost"]
    assert [f"{each.topic}-{each.partition}" for each in loss.lost] == sorted(missed)
    for each in loss.lost:
        true = missed[f"{each.topic}-{each.partition}"]
        assert (each.first, each.last) == (true["first"], true["last"])
        assert each.appended_from_ms <= true["sent_to_ms"] <= each.appended_to_ms


@pytest.mark.parametrize("name", [n for n in [*MORE, *NO_LOSS] if "lost" in truth(n)])
def test_records_are_called_lost_only_where_they_are_missing(name):
    """The truth has every acknowledged record that the leader's log lacks."""
    found, lost = look(RECORDED / name / "logs"), truth(name)["lost"]
    assert lost or not any(each.is_proved for each in found.incidents)
    assert found.status != CALM or not lost


@pytest.mark.parametrize("name", ["111-link-one-way", "201-restart-loop"])
def test_without_the_log_of_its_leader_a_partition_is_not_known(name, tmp_path):
    shutil.copytree(RECORDED / name / "logs", tmp_path / "logs")
    leader = {"111-link-one-way": 3, "201-restart-loop": 2}[name]
    shutil.rmtree(tmp_path / "logs" / f"broker-{leader}")
    found = look(tmp_path / "logs", min_isr=2)
    assert found.status == NOT_KNOWN
    dark = [gap.why for gap in found.history.gaps if gap.key is not None]
    assert any(why == f"no log of its leader, broker {leader}" for why in dark)
    assert not found.under_replicated


@pytest.mark.parametrize("is_copy", [True, False])
def test_logs_of_two_clusters_in_one_folder_are_told_from_a_copy(is_copy, tmp_path):
    for path in recordings.folder("3.9").rglob("*.log"):
        for cluster, topic in (("a", "orders"), ("b", "orders" if is_copy else "sales")):
            copy = tmp_path / cluster / path.parent.name / path.name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(path.read_text().replace("orders", topic))
    found = look(tmp_path)
    assert (found.status, len(found.doubts)) == ((CALM, 0) if is_copy else (NOT_KNOWN, 1))
    assert is_copy or "two clusters" in found.doubts[0]


@pytest.mark.parametrize(
    ("name", "what", "out_ms"),
    [("moved-282", "died_and_back", 17_808), ("moved-392", "follower_stalled", 29_027)],
)
def test_replicas_that_were_moved_away_are_not_missing(name, what, out_ms):
    """New replicas are not missing before they are added, and no fetcher that gave up is reported.
    Only broker 4 was killed (2.8.2) or paused (3.9.2); the README lists the final replicas."""
    found = look(RECORDED.parent / name)
    incident, *cancelled = found.incidents
    assert [(i.what, *i.partitions[0][1:]) for i in cancelled] == [
        ("reassignment_cancelled", "payments", 0)
    ] * (name == "moved-392")
    assert (incident.what, incident.blamed, found.status) == (what, (4,), CALM)
    assert incident.under_replicated_ms == out_ms
    orders = [found.record.replicas[Key(found.partitions[0].run, "orders", n)] for n in range(4)]
    assert orders == [{2, 3, 4}, {2, 3, 4}, {1, 3}, {1, 4}]


def test_replicas_that_were_moved_away_are_not_missing_where_no_controller_tells(tmp_path):
    """Their brokers log that they delete their replicas."""
    shutil.copytree(RECORDED.parent / "moved-282" / "logs", tmp_path / "logs")
    for path in tmp_path.rglob("controller.log*"):
        path.unlink()
    found = look(tmp_path)
    assert found.status == CALM
    assert [each.blamed for each in found.incidents if each.blamed] == [(4,)]


def test_replicas_that_a_resumed_broker_removes_are_not_in_the_next_incident():
    """Broker 1 was paused three times; later broker 3 was killed, then broker 2 shut down."""
    found = look(recordings.folder("3.9")).incidents
    told = [(each.what, each.who, each.blamed) for each in found]
    assert told == [
        ("broker_stalled", (1,), (1,)),
        ("died_and_back", (3,), (3,)),
        ("restart", (2,), ()),
    ]
    killed, stopped = recordings.outages("3.9", "SIGKILL", "SIGTERM")
    for incident, outage in zip(found[1:], (killed, stopped), strict=True):
        assert outage.start_ms < incident.start_ms < outage.end_ms


def test_what_leaders_announced_is_theirs_though_a_new_controller_stored_it():
    """Broker 3 removes broker 1 from three partitions, 1.5 s before there is a controller. Then it
    asks too early to add it again, and only that is refused. One of the 21 stored shrinks that
    the README counts removes two replicas."""
    record = look(recordings.folder("3.9")).record
    by_leaders = [out for out in record.outs if out.leader]
    assert len(by_leaders) == 22
    late = [out for out in by_leaders if (out.replica, out.leader) == (1, 3)]
    assert {(out.key.topic, out.key.partition) for out in late[-3:]} == {
        ("payments", 0), ("orders", 0), ("orders", 3),
    }  # fmt: skip


def test_a_broker_that_falls_silent_is_dead_only_if_others_say_so(tmp_path):
    """Broker 1 is paused a third time, and broker 3 killed 25 s later; each is read while down."""
    killed = recordings.outages("3.9", "SIGKILL")[0]
    paused = recordings.outages("3.9", "SIGSTOP")[-1]
    moments = {paused.end_ms - 1_000: "silent", killed.end_ms - 8_000: "died"}
    for now_ms in recordings.replayed(recordings.folder("3.9"), tmp_path, 500):
        due = [moment for moment in moments if moment <= now_ms]
        for what in [moments.pop(moment) for moment in due]:
            found = look(tmp_path)
            incident, said = found.incidents[-1], command.shown_answer(found).answer
            assert (incident.what, incident.is_over, found.status) == (what, False, WRONG)
            (text,) = [row.text for row in said.rows if row.label == "What"]
            assert incident.says in text and "silent since 2026-11-20 " in text
            assert ("these lines do not show which" in text) == (what == "silent")
        if not moments:
            return
    raise AssertionError(f"the recording ends before {moments}")


@pytest.mark.parametrize("release", ["3.9.2", "4.1.2"])
def test_two_that_were_killed_one_after_the_other_are_no_power_failure(release, tmp_path):
    """Broker 3 is paused and killed, 2 restarted, 1 killed; only at the end are 3 and 1 down."""
    with tarfile.open(RECORDED.parent / "eras" / f"{release}.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    told = [(each.what, each.who) for each in look(tmp_path).incidents]
    assert told == [("died_and_back", (3,)), ("restart", (2,)), ("died_and_back", (1,))]


@pytest.mark.parametrize("name", ["a-412-follower-paused", "d-392-rolling-restart",
                                  "k-412-quiet-control"])  # fmt: skip
def test_a_metadata_log_that_runs_on_into_the_clean_stop_ends_before_it(name):
    found = look(RECORDED / name, min_isr=2)
    assert [(each.what, each.blamed) for each in found.incidents] == EXPECTED[name]
    assert found.status == CALM and "all brokers were shut down cleanly" in found.caveats[0]
    assert found.record.end_ms < found.history.events["ts_ms"][-1].as_py()


def test_who_stops_while_others_go_on_is_not_left_out():
    def said(ts_ms, sign, broker):
        return {
            "run": "r",
            "ts_ms": ts_ms,
            "kind": "sign",
            "broker": broker,
            "detail": {"sign": sign},
        }

    full = {"run": "r", "ts_ms": 0, "kind": "isr_commit", "broker": 1, "topic": "t", "partition": 0,
            "isr": [1, 2, 3]}  # fmt: skip
    stops = [said(100_000 + broker, "stop_asked", broker) for broker in (1, 2, 3)]
    cases = {
        100_001: stops,
        100_002: [*stops, said(100_004, "starting", 1), said(100_005, "stop_asked", 1)],
        None: stops[:2],
    }
    for stopped_ms, rows in cases.items():
        assert Record(schema.table([full, *rows])).stopped_ms == stopped_ms
    late = [*stops, said(200_000, "stop_asked", 3)]
    assert Record(schema.table([full, *late])).stopped_ms is None, (
        "the state after the late stop is not known"
    )


@pytest.mark.parametrize("name", [*EXPECTED, *TIMED])
def test_the_time_under_replicated_is_that_of_the_truth(name, findings):
    """To a second, until the last line."""
    found, true = findings.get(name) or look(RECORDED / name / "logs"), truth(name)
    spans, since = [], {}
    changes = [c for c in true["isr_changes"] if c["t_ms"] <= found.record.end_ms]
    for change in sorted(changes, key=lambda change: change["t_ms"]):
        full = len(change["isr_to"]) >= 3 or change.get("deleted")
        if not full:
            since.setdefault(change["partition"], change["t_ms"])
        elif change["partition"] in since:
            spans.append((since.pop(change["partition"]), change["t_ms"]))
    spans += [(start, found.record.end_ms) for start in since.values()]
    assert abs(union_ms(spans) - union_ms(told(found))) <= 1_000


def test_a_deleted_topic_is_not_known_to_be_short_nor_unknown():
    found = look(RECORDED / "372-topic-deleted" / "logs", min_isr=3)
    assert {key.topic for key in found.partitions} == {"orders"}
    assert not found.not_known and found.status == CALM


def test_a_topic_made_again_is_another_and_doubts_end_with_the_former():
    """Deleted at 15:35:31.3 and created again at 15:35:35.4. The pause of broker 3 affects the new
    topic, and its six seconds count."""
    found = look(RECORDED / "412-made-again" / "logs", min_isr=2)
    made, paused = found.incidents
    says = {
        action["what"].split()[0]: action["t_ms"] for action in truth("412-made-again")["actions"]
    }
    assert says["delete"] - 500 < made.start_ms < made.end_ms < says["create"] + 500
    assert {key.topic for key in made.partitions} == {"orders"} and not made.is_grave
    assert paused.under_replicated_ms == 6_133
    assert not found.history.gaps and not found.faults


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_topic_made_again_is_known_by_its_id_where_no_line_deletes_it(is_seen, tmp_path):
    """Without server.log no line shows that the brokers deleted their replicas."""
    shutil.copytree(RECORDED / "412-made-again" / "logs", tmp_path / "logs")
    for path in tmp_path.rglob("server.log.gz"):
        path.unlink()
    for path in () if is_seen else tmp_path.rglob("state-change.log.gz"):
        path.write_bytes(gzip.compress(re.sub(  # the same id before and after, as before 2.8
            rb"0udK9mIjRU2ez5JGHZLNLg", b"im-NCzSYQ_KNxcy8zVyE7w",
            gzip.decompress(path.read_bytes()))))  # fmt: skip
    for path in () if is_seen else tmp_path.rglob("controller.log.gz"):
        path.unlink()
    named = [each.what for each in look(tmp_path / "logs", min_isr=2).incidents]
    assert ("topic_made_again" in named) == is_seen


def test_a_slow_leader_is_told_from_a_paused_one_by_its_late_lines():
    """It logs stored changes up to 12 s after its followers do, and its requests are answered."""
    found = look(RECORDED / "392-slow-disk" / "logs", min_isr=2)
    facts = {line.fact: line.count for line in found.incidents[0].evidence}
    assert facts["late_news"] >= 3 and not found.faults
    assert found.record.late.keys() == {1}
    for name in ("a-412-follower-paused", "392-slow-leader-only"):
        assert not look(RECORDED / name / "logs").record.late, "it resumed, and waited for answers"


def test_a_broker_that_runs_now_and_then_is_noticed_although_no_isr_changes():
    found = look(RECORDED / "392-slow-leader-only" / "logs", min_isr=2)
    (incident,) = found.incidents
    says = {action["what"]: action["t_ms"] for action in truth("392-slow-leader-only")["actions"]}
    slow_ms, free_ms = says["slow 1 45 0.03 2.5"], says["1 runs freely again"]
    assert slow_ms < incident.start_ms < found.record.end_ms < free_ms
    assert "timed out 8 times" in incident.says and not found.record.outs
    assert {(key.topic, key.partition) for key in incident.partitions} == {
        ("orders", 0), ("orders", 1),
    }  # fmt: skip


def told(found):
    return [(out.start_ms, out.end_ms or found.record.end_ms) for out in found.record.outs]


def union_ms(spans):
    total, reached = 0, 0
    for start, end in sorted(spans):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def test_a_broker_that_was_fenced_is_not_merely_strained(tmp_path):
    """Without the state-change logs the controller's log still shows that broker 2 was fenced."""
    logs = RECORDED / "412-controller-out-of-reach" / "logs"
    ignored = shutil.ignore_patterns("state-change*")
    findings = look(shutil.copytree(logs, tmp_path / "logs", ignore=ignored))
    assert findings.record.said("crash", (0, findings.record.end_ms), 2, cause="fenced")
    assert "broker_strained" not in {incident.what for incident in findings.incidents}


def test_rules_ask_for_known_facts_and_have_known_words():
    for rule in (*rules.RULES, *rules.NOTES):
        assert {*rule.seen, *rule.unseen} <= {*rules.TABLE.fact}, rule.name
    with pytest.raises(msgspec.ValidationError, match="blames"):
        msgspec.toml.decode("says = 'Dark.'\nblames = 'moon'", type=rules.Rule)


def test_every_rule_says_what_to_check_and_where_it_is_taught():
    notebooks = Path(__file__).parents[2] / "notebooks"
    for rule in rules.RULES:
        assert rule.says and rule.check, rule.name
        assert (notebooks / f"{rule.learn.split(':')[0]}.ipynb").exists(), rule.name
    assert rules.RULES[-1].seen == ()


def stored_figures():
    with figures.JUDGED.open(encoding="utf-8", newline="") as file:
        for kind, logs, *numbers in [*csv.reader(file)][1:]:
            yield kind, logs, list(map(int, numbers))


def test_the_stored_figures_cover_every_kind_and_way():
    stored = [*stored_figures()]
    assert {(kind, logs) for kind, logs, _ in stored} == {
        (figures.REAL, "whole"),
        *(
            (kind.__name__, how or "whole")
            for kind in incident_world.KINDS
            for how in incident_world.SPOILT
        ),
    }
    for _, logs, (cases, right, wrong, not_known, _) in stored:
        assert cases == right + wrong + not_known
        assert right == cases or logs != "whole"
    (real,) = [numbers for kind, _, numbers in stored if kind == figures.REAL]
    assert real[0] == len([*RECORDED.glob("*/truth.json")]) == len({**EXPECTED, **MORE})


def test_figures_by_kind_end_with_all_of_them_and_the_real_ones():
    rows, given = figures.by_kind(), [*stored_figures()]
    kinds = list(dict.fromkeys(kind.replace("_", " ") for kind, *_ in given))
    assert [row["kind"] for row in rows] == [*kinds[:-1], "all simulated", figures.REAL]
    missing = [numbers for _, logs, numbers in given if logs == "missing"]
    cases, right, *_, elsewhere = map(sum, zip(*missing, strict=True))
    assert rows[-2]["cases"] == f"{cases}"
    assert rows[-2]["a log missing"] == f"{right / cases:.0%} / {right / (right + elsewhere):.0%}"
    assert rows[-1]["all lines"] == "100% / 100%" and rows[-1]["a log missing"] == ""


def test_the_notebook_says_what_the_figures_do():
    *_, total, real = figures.by_kind()
    assert total["all lines"] == total["a clock off"] == "100% / 100%"
    wrong = sum(numbers[-1] for _, logs, numbers in stored_figures() if logs == "missing")
    path = NOTEBOOKS / "32_how_logs_are_read.ipynb"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "".join(line for cell in cells for line in cell["source"])
    assert f"All {total['cases']} simulated incidents" in text
    assert f"all {real['cases']} recorded ones" in text
    assert text.count(f"{wrong} of {total['cases']} get a wrong") == 2


LARGE = "Replication is failing due to a message that is greater than replica.fetch.max.bytes"


@pytest.mark.parametrize(
    "line",
    [
        f"[ReplicaFetcherThread-0-1], {LARGE} for partition [t,0]. This",  # 0.10.0
        f"[ReplicaFetcherThread-0-1]: {LARGE} for partition t-0. This",  # 0.10.2, 0.11
        f"[ReplicaFetcher replicaId=3, leaderId=1, fetcherId=0] {LARGE} for partition t-0. This",
    ],
)
def test_a_record_that_is_too_large_is_named_where_a_replica_is_out_and_is_no_alarm(tmp_path, line):
    head = "[2026-11-24 09:59:50,000] "
    start = f"{head}INFO [Kafka Server 3], starting (kafka.server.KafkaServer)\n"
    failed = f"{head}ERROR {line} (kafka.server.ReplicaFetcherThread)\n"
    (tmp_path / "3.log").write_text(start + failed, encoding="utf-8")
    assert look(tmp_path).incidents == []
    shrink = "Partition [t,0] on broker 1: Shrinking ISR for partition [t,0] from 1,2,3 to 1,2"
    (tmp_path / "1.log").write_text(f"{head}INFO {shrink} (kafka.cluster.Partition)\n", "utf-8")
    assert [each.what for each in look(tmp_path).incidents] == ["message_too_large"]
