"""Which brokers may go down: by hand, by brute force; missing or cut rows never allow more."""

from __future__ import annotations

import io
import json
import random
import re
import socketserver
import struct
import threading
from dataclasses import replace
from functools import cache
from itertools import combinations

import pytest
from click.testing import CliRunner
from hypothesis import assume, given
from hypothesis import strategies as st
from test_metadata_log import INCIDENTS, cordoned, partition, registered, topic
from test_metadata_log import log as written_log

from isrlab.__main__ import main
from isrlab_ops.check import cluster, command, live, outcome, risks, stored, what_if
from isrlab_ops.check.answer import CheckQuestion, ClusterCheck, answer_of, as_dict
from isrlab_ops.check.cluster import CheckError
from isrlab_ops.check.outcome import Shapes
from isrlab_ops.logs.incidents.exposed import exposures
from isrlab_ops.logs.reader import read_local

LOW = outcome.UNDER_MIN
HEALTHY = ("1 1,2,3 1,2,3", "2 2,3,1 1,2,3", "3 3,1,2 1,2,3")


def text_of(*rows: str, topic: str = "t", configs: str = "min.insync.replicas=2") -> str:
    """The output of kafka-topics 4.x for rows "leader replicas isr elr adding>removing"."""
    lines = [f"Topic: {topic}\tTopicId: uLw\tPartitionCount: {len(rows)}\tReplicationFactor: 3"
             f"\tConfigs: {configs}"]  # fmt: skip
    for number, row in enumerate(rows):
        leader, replicas, isr, elr, moves = [*row.split(), "-", "-"][:5]
        adding, is_moved, removing = moves.strip("-").partition(">")
        moved = f"\tAdding Replicas: {adding}\tRemoving Replicas: {removing}" * bool(is_moved)
        lines.append(f"\tTopic: {topic}\tPartition: {number}\tLeader: {leader}"
                     f"\tReplicas: {replicas}\tIsr: {isr}{moved}"
                     f"\tElr: {elr.strip('-')}\tLastKnownElr: ")  # fmt: skip
    return "\n".join(lines) + "\n"


def checked(text: str, version="4.1", zones="", mode=None, voters="none", unclean=None, **question):
    state = cluster.of_text(text, version)
    state = cluster.with_options(state, None, zones, unclean, mode, voters=voters)
    return ClusterCheck(state, CheckQuestion(**question))


def reasons(text: str, version: str | None = "4.1") -> dict[int, list[str]]:
    return {b: [x.why for x in blocks] for b, blocks in checked(text, version).brokers.items()}


# Restarts


def test_a_healthy_cluster_is_safe():
    check = checked(text_of(*HEALTHY))
    assert (check.status, check.title) == (0, "SAFE")
    assert check.says == "Each of 3 brokers may go down now, one at a time."


@pytest.mark.parametrize(
    ("row", "configs", "blocks"),
    [
        ("1 1,2,3 1,2", "min.insync.replicas=2", {1: outcome.AT_MIN, 2: outcome.AT_MIN}),
        ("1 1,2,3 1,2", "min.insync.replicas=1", {}),
        ("1 1,2,3 1", "min.insync.replicas=2", {1: outcome.ONLY, 2: LOW, 3: LOW}),
        ("1 1,2,3 1 2", "min.insync.replicas=2", {1: LOW, 2: LOW, 3: LOW}),
        ("1 1,2,3 1,2", "min.insync.replicas=3", {1: LOW, 2: LOW, 3: LOW}),
        ("1 1 1", "min.insync.replicas=1", {1: outcome.RF_1}),
        ("1 1,2 1,2", "min.insync.replicas=2", {1: outcome.NO_SPARE, 2: outcome.NO_SPARE}),
        ("1 1,2,3 1", "unclean.leader.election.enable=true", {1: outcome.LOSES}),
        ("none 1,2,3 1", "min.insync.replicas=2", dict.fromkeys((1, 2, 3), outcome.LEADERLESS)),
    ],
)
def test_what_blocks_and_why(row, configs, blocks):
    found = reasons(text_of(*HEALTHY, topic="h") + text_of(row, configs=configs), "4.3")
    assert {b: whys for b, whys in found.items() if whys} == {b: [why] for b, why in blocks.items()}


def test_a_reassignment_that_completes_during_a_restart_blocks():
    """3.7 completes the move once broker 4 is in sync; without broker 1 the ISR is 4 only."""
    text = text_of("1 1,4,2,3 1,2,3 - 4>2,3") + text_of("4 4,1,2 4,1,2", topic="alive")
    text = text.replace("\tElr: \tLastKnownElr: ", "")
    found = {version: reasons(text, version) for version in ("3.7", "3.8")}
    assert found["3.7"] == {1: [outcome.MOVING], 2: [], 3: [], 4: []}
    assert not any(found["3.8"].values())


def test_a_release_decides():
    """From 3.7 on a leader demands at most the replicas that there are, so one suffices here."""
    one = text_of("1 1 1", "2 2 2").replace("\tElr: \tLastKnownElr: ", "")
    before, after = (checked(one, version) for version in ("3.6", "3.7"))
    assert (set(before.refusing), set(after.refusing)) == ({"t-0", "t-1"}, set())
    assert set(checked(one, None).refusing) == {"t-0", "t-1"}  # the worst of 2.8 to 4.3


def test_the_worse_of_kraft_and_zookeeper_counts_where_a_release_has_both():
    """Up to 3.8 a KRaft controller elects no leader uncleanly, whatever the topic's setting."""
    text = text_of("1 1,2,3 1", configs="unclean.leader.election.enable=true")
    text = text.replace("\tElr: \tLastKnownElr: ", "") + OLD.replace("t\t", "alive\t")
    found = {mode: checked(text, "3.5", mode=mode) for mode in (None, False, True)}
    whys = {mode: check.brokers[1][0].why for mode, check in found.items()}
    assert whys == {None: outcome.LOSES, False: outcome.ONLY, True: outcome.LOSES}
    read = {mode: [*answer_of(check).rows][-1].text for mode, check in found.items()}
    assert read[None].endswith("Kafka 3.5 by the rules of KRaft and of ZooKeeper (--zookeeper or "
                               "--kraft decides)")  # fmt: skip
    assert read[False].endswith("Kafka 3.5") and read[True].endswith("Kafka 3.5 with ZooKeeper")
    with pytest.raises(CheckError, match="Kafka 4 has no ZooKeeper"):
        checked(text, "4.1", mode=True)
    with pytest.raises(CheckError, match="runs KRaft, not ZooKeeper"):
        checked(text_of("1 1,2,3 1 2"), None, mode=True)


def test_an_eligible_replica_without_its_log_blocks_what_would_elect_it():
    text = text_of(*HEALTHY, topic="h") + text_of("1 1,2,3 1 2")
    state = cluster.of_text(text, "4.1")
    exposed = [e for e in risks.exposures(state) if e.why == "being added"]
    assert exposed == []
    moving = cluster.of_text(text.replace("Isr: 1\t", "Isr: 1\tAdding Replicas: 2\t"
                                          "Removing Replicas: \t"), "4.1")  # fmt: skip
    check = ClusterCheck(moving, CheckQuestion(restart=frozenset({1})))
    assert [b.why for b in check.asked] == [outcome.LOSES] and check.title == "BLOCKED"
    assert any(row.label == "Lost by" for row in answer_of(check).rows)


def test_zones_and_brokers_that_go_together():
    text = text_of("1 1,2,3 1,2,3", "4 4,5,6 4,5,6", "1 1,4 1,4", configs="")
    zones = "1=a,4=a,2=b,5=b,3=c,6=c"
    check = checked(text, zones=zones)
    assert [zone for zone, blocks in check.zones.items() if not blocks] == ["b", "c"]
    assert checked(text, zones=zones, restart=frozenset({2, 5})).status == 0
    assert checked(text, zones=zones, restart=frozenset({1, 4})).status == 1
    assert checked(text, restart=frozenset({1, 4}), ignored=("*",)).status == 0


def test_a_live_replica_out_of_sync_blocks_where_reassignments_are_not_shown():
    old = "Topic:t\tPartitionCount:1\tReplicationFactor:3\tConfigs:min.insync.replicas=1\n"
    old += "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2\n"
    other = old.replace(":t\t", ":u\t").replace(": t\t", ": u\t").replace("Isr: 1,2", "Isr: 1,2,3")
    assert set(reasons(old + other, "2.3")[1]) == {outcome.PERHAPS_MOVING}
    assert reasons(old + other, "2.4") == {1: [], 2: [], 3: []}


def test_an_outcome_does_not_depend_on_the_numbers_of_brokers():
    rows = ("1 1,2,3 1,2", "2 2,3,1 2 3", "none 3,1,2 3")
    state = cluster.of_text(text_of(*rows), "4.1")
    other = cluster.of_text(
        text_of(*(r.replace("1", "71").replace("3", "53") for r in rows)), "4.1"
    )
    names = {1: 71, 2: 2, 3: 53, -1: -1}
    for down in (d for size in range(4) for d in combinations((1, 2, 3), size)):
        here, there = Shapes(state), Shapes(other)
        for p, q in zip(state.partitions, other.partitions, strict=True):
            a, b = here.outcome(p, down), there.outcome(q, [names[x] for x in down])
            assert a == b and names[here.leader(p, a)] == there.leader(q, b)


# What if


def test_a_failure_elects_and_refuses():
    after = Shapes(cluster.of_text(text_of(*HEALTHY), "4.1")).effect({1, 2}, is_stop=False)
    assert after.elected == {3: 2} and len(after.refuse) == 3 and after.leaderless == []


def test_a_plan_takes_as_long_as_its_busiest_broker():
    state = cluster.of_text(text_of("1 1,2,3 1,2,3", "1 1,3,2 1,2,3", "4 4 4"), "4.1")
    plan = json.dumps({"version": 1, "partitions": [
        {"topic": "t", "partition": n, "replicas": [1, 2, 4]} for n in (0, 1)]})  # fmt: skip
    move = what_if.PlannedMove(what_if.plan_of(plan, state), 20e6, 1e9, 1e6)
    moved = what_if.moved(state, move)
    # broker 1 sends two new replicas and four copies for followers in sync, at 1 MB/s each
    assert (moved.copies, moved.busiest, moved.least_throttle) == (2, 1, 6e6 / 0.9)
    assert moved.took_s == pytest.approx(2e9 / (0.9 * 20e6 - 6e6))
    assert what_if.moved(state, move._replace(throttle=6.3e6)).took_s == float("inf")
    assert [p.replicas for p in moved.after.partitions] == [(1, 2, 4), (1, 2, 4), (4,)]


def test_a_plan_may_replace_a_move_that_is_on_its_way():
    state = cluster.of_text(text_of("1 1,2,3,4 1,2 3 4>3", "2 2,3,1 1,2,3"), "4.1")
    plan = {"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2, 3]}]}
    move = what_if.PlannedMove(what_if.plan_of(json.dumps(plan), state))
    check = ClusterCheck(cluster.with_options(state), CheckQuestion(move=move))
    [moved] = [row.text for row in answer_of(check).rows if row.label == "If moved"]
    assert moved.startswith("0 new replicas; --throttle")  # the added replica is dropped again


def moved_to(state, ids) -> str:
    plan = {"partitions": [{"topic": "t", "partition": 0, "replicas": ids}]}
    move = what_if.PlannedMove(what_if.plan_of(json.dumps(plan), state))
    return rows_of(ClusterCheck(cluster.with_options(state), CheckQuestion(move=move)))["If moved"]


def test_a_plan_to_a_broker_with_only_cordoned_log_directories_is_named(tmp_path):
    """Broker 3 has one such directory of two, broker 4 had both, broker 5 has both."""
    brokers = [registered(b, b"xy") for b in (1, 2, 3, 4, 5)]
    changes = [cordoned(3, b"y"), cordoned(4, b"xy"), cordoned(4, b""), cordoned(5, b"xy")]
    whole = written_log([topic()], [partition((1, 2, 3))], brokers, changes)
    (tmp_path / "00000000000000000000.log").write_bytes(whole)
    state = stored.of_files(str(tmp_path), "4.4")
    assert state.cordoned == {5}
    assert "broker 5 has only cordoned log directories: 4.4 refuses t-0" in moved_to(state, [1, 5])
    assert "cordoned" not in moved_to(state, [1, 3, 4])
    shown = text_of("1 1,2,3 1,2,3", "4 4 4")
    assert "all cordoned is not shown" in moved_to(cluster.of_text(shown, "4.4"), [1, 4])
    assert "cordoned" not in moved_to(cluster.of_text(shown, "4.1"), [1, 4])


@pytest.mark.parametrize(
    ("values", "all_of_them"),
    [({"cordoned.log.dirs": "*", "log.dirs": "/a,/b"}, True),
     ({"cordoned.log.dirs": "/b,/a", "log.dirs": "/a, /b"}, True),
     ({"cordoned.log.dirs": "/a", "log.dirs": "", "log.dir": "/a"}, True),
     ({"cordoned.log.dirs": "/a", "log.dirs": "/a,/b", "log.dir": "/a"}, False),
     ({"cordoned.log.dirs": "", "log.dirs": "/a"}, False), ({"log.dirs": "/a"}, False)],
)  # fmt: skip
def test_a_broker_s_settings_show_whether_all_its_log_directories_are_cordoned(values, all_of_them):
    assert live._is_cordoned({n: (v, False) for n, v in values.items()}) == all_of_them


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ("{", "not JSON"), ('{"partitions": [1]}', "not JSON"),
        ('{"partitions": [{"topic": "x", "partition": 0, "replicas": [1]}]}', "x-0, which is not"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [9]}]}', "no broker 9"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "the replicas"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "the replicas"),
    ],
)  # fmt: skip
def test_a_plan_that_cannot_be(plan, says):
    with pytest.raises(CheckError, match=says):
        what_if.plan_of(plan, cluster.of_text(text_of(*HEALTHY)))


# What is not known, what comes next, what is left over


def rows_of(check) -> dict[str, str]:
    return {row.label: row.text for row in answer_of(check).rows}


def test_an_unclean_election_that_is_not_shown_is_no_fact_and_not_safe():
    text = OLD.replace("\tTopicId: uLw", "")
    check = checked(text, "2.4")
    assert check.title == "NOT KNOWN" and "--no-unclean" in rows_of(check)["Unsure"]
    assert "is on" not in rows_of(check).get("Risks", "")
    assert checked(text, "2.4", unclean=False).title == "SAFE"
    assert checked(text, "2.4", unclean=True).title == "EXPOSED"


UNCLEAN = "unclean.leader.election.enable=true"


@pytest.mark.parametrize(("row", "configs", "version", "then"), [
    ("1 1,2,3 1,2,3", "min.insync.replicas=2", "4.1", ()),
    ("1 1,2,3 1,2,3", "", "3.9", ()), ("1 1,2,3 1,2,3", "", "0.8.2", ()),
    ("1 1,2,3 1,2,3", UNCLEAN, "3.9", (2, 3, 1)),
    ("1 1,2,3 1,2,3", UNCLEAN, "3.8", ()),  # KRaft never does
    ("1 1,2 1,2", UNCLEAN, "4.1", (2, 1)), ("1 1,2,3,4 1,2,3", UNCLEAN, "4.1", (2, 3, -1)),
    ("2 1,2,3 1,2,3", f"{UNCLEAN},min.insync.replicas=3", "4.1", ()),
])  # fmt: skip
def test_two_more_failures_after_a_stop_are_tried_in_every_order(row, configs, version, then):
    text = text_of(row, configs=configs) + text_of("4 4,3,2 4,3,2", topic="u")
    text = text.replace("\tElr: \tLastKnownElr: ", "") if version < "4" else text
    text = text.replace("\tTopicId: uLw", "") if version < "2.8" else text
    unclean, mode = None if "unclean" in configs else False, False if version > "2.8" else None
    state = cluster.of_text(text, version)
    state = cluster.with_options(state, 1, "", unclean, mode, voters="none")
    losses = Shapes(state).later([frozenset({1})])
    assert [loss[2] for loss in losses] == [then] * bool(then)


def test_without_unclean_elections_no_two_failures_lose_a_record():
    lost = 0
    for seed in range(60):
        draw, rows = random.Random(seed), []
        for _ in range(4):
            ids = draw.sample(range(1, 7), draw.choice((2, 3, 4)))
            isr = ids[: draw.randint(1, len(ids))]
            elr = [b for b in ids if b not in isr and len(isr) < 2 and draw.random() < 0.5]
            shown = [",".join(map(str, each)) or "-" for each in (ids, isr, elr)]
            rows.append(" ".join((str(draw.choice(isr)), *shown)))
        state = checked(text_of(*rows), draw.choice(("4.1", "4.4"))).state
        stops = [frozenset({b}) for b in state.racks]
        assert Shapes(state).later(stops) == []
        allows = [p._replace(unclean=True) for p in state.partitions]
        lost += Shapes(replace(state, partitions=allows)).later(stops) != []
    assert lost > 50


def test_several_copies_do_not_go_down_together():
    text = text_of(*HEALTHY, configs="min.insync.replicas=1")
    check = checked(text, restart=frozenset({1, 2}))
    assert check.title == "BLOCKED" and {b.why for b in check.asked} == {outcome.FEW}


def test_a_broker_without_a_replica_in_an_isr_blocks_its_partition_only():
    """KAFKA-9672, with ZooKeeper; no KRaft controller stores such an ISR."""
    text = OLD.replace("Isr: 1,2,3", "Isr: 1,2,7", 1)
    found = reasons(text, "3.5")
    assert {b for b, whys in found.items() if outcome.ODD in whys} == {1, 2, 3, 7}
    other = text_of("4 4,5,6 4,5,6", "5 5,6,4 5,6,4", topic="u")
    other = text + other.replace("\tElr: \tLastKnownElr: ", "")
    assert [b for b, whys in reasons(other, "3.5").items() if not whys] == [4, 5, 6]


def test_a_newcomer_is_not_called_down_and_a_move_left_over_is_named():
    limit = "min.insync.replicas=1,follower.replication.throttled.replicas=0:4,0:5"
    text = text_of("1 1,4,2,3 1,2,3 - 4>2", "1 1,2,3 1,2,3", topic="a$b", configs=limit)
    rows = rows_of(checked(text))
    assert "Not up" not in rows and rows["Copying"].startswith("Broker 4")
    assert "--cancel --reassignment-json-file" in rows["Undo"]
    assert "'a$b' --delete-config follower.replication.throttled.replicas" in rows["Undo"]
    (move,) = as_dict(checked(text))["cancel"]["partitions"]
    assert move == {"topic": "a$b", "partition": 0, "replicas": (1, 4, 2, 3)}
    assert "Undo" not in rows_of(checked(text_of(*HEALTHY)))


def test_the_broker_to_start_or_to_wait_for_is_named():
    dead = text_of("1 1,2,7 1,2", "2 2,1,3 1,2,3")
    assert rows_of(checked(dead))["Do"] == "start broker 7"
    behind = text_of("1 1,2,3 1,2", "2 2,1,3 1,2,3")
    assert rows_of(checked(behind))["Do"] == "wait until every ISR has broker 3"


def test_the_words_of_strimzi_and_kubectl_are_understood():
    said = 'Defaulted container "kafka" out of: kafka, kafka-init (init)\n'
    said += "2026-11-24 10:00:00 INFO  KafkaAvailability:135 - Reconciliation #7: orders/3 will be "
    said += "under-replicated (ISR={1,2}, replicas=[1,2,3], min=2) if broker 1 is restarted.\n"
    check = checked(said + text_of(*HEALTHY))
    assert check.title == "SAFE"
    assert rows_of(check)["Strimzi"] == "it keeps broker 1 up because of orders-3 (acks=all)"
    with pytest.raises(CheckError, match="is not a line of kafka-topics"):
        checked("command terminated with exit code 1\n" + text_of(*HEALTHY))


def test_what_an_alteration_of_min_isr_clears():
    text = text_of("1 1,2,3 1 2", "2 2,3,1 1,2,3") + text_of("3 3,1,2 3 2", topic="u")
    assert "clears the ELR of 2 partitions, even if the value stays" in rows_of(
        checked(text, change="min.insync.replicas=2"))["If changed"]  # fmt: skip
    row = rows_of(checked(text, change="u:min.insync.replicas=1"))["If changed"]
    assert "clears the ELR of 1 partition" in row and "one replica may be elected in u-0" in row
    assert row.endswith("afterwards 1 partition (t-0) refuses acks=all")
    gone = text_of("none 1,2,3 - 1,2", "2 2,3,1 3,2").replace("Isr: -", "Isr: ")
    row = rows_of(checked(gone, change="min.insync.replicas=2"))["If changed"]
    assert "then no replica may be elected in t-0" in row
    old = rows_of(checked(OLD, "3.5", change="min.insync.replicas=2"))
    assert "this release has none" in old["If changed"]
    for change in ("x:min.insync.replicas=1", "min.insync.replicas=0", "retention.ms=1"):
        with pytest.raises(CheckError, match=r"is not like \[TOPIC:\]min.insync.replicas=2"):
            answer_of(checked(text, change=change))


def test_the_release_and_the_cap_are_named_as_they_are():
    check = checked(text_of(*HEALTHY, configs="min.insync.replicas=4"), "4.2")
    assert rows_of(check)["Read"].endswith("Kafka 4.2")
    assert "(ISR 1,2,3 of 1,2,3, min 4 capped)" in rows_of(check)["Blocks"]
    with pytest.raises(CheckError, match="1 partition listed twice: t-0"):
        checked(text_of(*HEALTHY) + text_of(*HEALTHY).splitlines(keepends=True)[1])


# Text that is not whole


LINES = text_of(*HEALTHY).splitlines(keepends=True)
OLD = "".join(LINES).replace("\tElr: \tLastKnownElr: ", "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"), ("\n \n", "is empty"), ("hello\n", "no line of a partition"),
        ("".join(LINES[:-1]), "topic 't' has 3 partitions, and 2 of them"),
        ("".join([*LINES[:2], *LINES[3:]]), "has a partition 2, but only 2 partitions"),
        ("".join(LINES) + "Topic: u\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: "
         "\tLastKnownElr: \n", "topic 'u' has partitions, but no line of its own"),
        ("".join(LINES) + OLD.replace("t\t", "u\t"), "two layouts"),
        ("".join(LINES)[:-1], "ends within a line"), ("".join(LINES)[:-9], "not like|within"),
        ("".join(LINES) + "Error while executing topic command\n", "is not a line of kafka-topics"),
        ("".join(LINES).replace("Isr: 1,2,3", "Isr: 1,2,7"), "impossible for its replicas"),
        ("".join(LINES).replace("Leader: 1", "Leader: 9"), "impossible for its replicas"),
        (text_of("1 1,2 1,2 - 2>1,2"), "impossible for its replicas"),  # removes all replicas
        ("".join(LINES) + "".join(LINES), "described twice"),
        ("".join(LINES).replace("replicas=2", "replicas=two"), "cut off, or has no value"),
    ],
)  # fmt: skip
def test_a_text_that_is_not_whole_is_refused_in_one_sentence(text, says, tmp_path):
    file = tmp_path / "described"
    file.write_text(text)
    result = CliRunner().invoke(main, ["check", str(file)])
    assert result.exit_code == 2 and result.output.startswith("isrlab: ")
    assert result.output.count("\n") == 1
    with pytest.raises(AssertionError if says is None else CheckError, match=says):
        command.read(str(file), None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("".join(LINES[1:]), "no line of a topic"),
        (
            "".join(LINES).replace("\tTopicId: uLw", "").replace("min.insync.replicas=2", ""),
            "min-isr",
        ),
        # kafka-topics 2.8 with --zookeeper shows a TopicId, but no settings of brokers
        (re.sub(r"\tElr:.*|min.insync.replicas=2", "", "".join(LINES)), "min-isr"),
    ],
)
def test_what_a_text_leaves_open_keeps_it_from_being_safe(text, says):
    check = checked(text, None)
    assert (check.status, check.title) == (2, "NOT KNOWN") and says in "; ".join(check.state.unsure)


@st.composite
def clusters(draw) -> str:
    texts = []
    for number in range(draw(st.integers(1, 3))):
        rows = []
        copies = draw(st.integers(1, 4))
        for _ in range(draw(st.integers(1, 4))):
            ids = draw(st.permutations(range(1, 7)))[:copies]
            isr = ids[: draw(st.integers(1, copies))]
            shown = [",".join(map(str, each)) for each in (ids, isr)]
            leader = isr[0] if draw(st.integers(0, 9)) else "none"
            rows.append(f"{leader} {shown[0]} {shown[1]}")
        least = draw(st.integers(1, 3))
        configs = draw(st.sampled_from((f"min.insync.replicas={least}", "")))
        texts.append(text_of(*rows, topic=f"t{number}", configs=configs))
    return "".join(texts)


@cache
def may_go(text: str) -> set[int]:
    """The brokers that may go down now; none if the text is refused or leaves something open."""
    try:
        check = checked(text, None)
    except CheckError:
        return set()
    return {b for b, blocks in check.brokers.items() if not (blocks or check.state.unsure)}


def is_no_safer(altered: str, text: str) -> bool:
    return not may_go(altered) or may_go(altered) <= may_go(text)


@given(clusters(), st.data())
def test_a_row_that_is_removed_or_moved_makes_no_answer_safer(text, data):
    lines = text.splitlines(keepends=True)
    at, to = (data.draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    row, left = lines[at], lines[:at] + lines[at + 1 :]
    assert is_no_safer("".join(left), text)
    assert is_no_safer("".join([*left[:to], row, *left[to:]]), text)


@given(clusters(), st.data())
def test_a_text_that_is_cut_makes_no_answer_safer(text, data):
    """A cut between two topics is left out, because no reader can see it."""
    at = data.draw(st.integers(1, len(text) - 1))
    assume(not text[at:].startswith("Topic: "))
    assert may_go(text[:at]) == set()
    assert is_no_safer(text[:at] + "\n", text)


@given(clusters(), st.data())
def test_a_line_that_is_cut_or_without_a_field_makes_no_answer_safer(text, data):
    lines = text.splitlines(keepends=True)
    rows = [n for n, line in enumerate(lines) if line.startswith("\t")]
    at = data.draw(st.sampled_from(rows))
    fields = lines[at].rstrip("\n").split("\t")
    gone = data.draw(st.integers(1, len(fields) - 1))
    without = "\t".join(fields[:gone] + fields[gone + 1 :]) + "\n"
    short = lines[at][: data.draw(st.integers(1, len(lines[at]) - 1))] + "\n"
    for line in (without, short, lines[at] * 2, lines[at].replace("\t", " ") + "?\n"):
        assert is_no_safer("".join([*lines[:at], line, *lines[at + 1 :]]), text)


@given(clusters(), st.data())
def test_a_replica_less_in_sync_makes_no_answer_safer(text, data):
    """A broker that is in sync nowhere else then counts as dead, and is not in the answer."""
    lines = text.splitlines(keepends=True)
    rows = [n for n, line in enumerate(lines) if "\tIsr: " in line and "none" not in line]
    assume(rows)
    at = data.draw(st.sampled_from(rows))
    head, _, rest = lines[at].partition("\tIsr: ")
    isr, tab, tail = rest.partition("\t")
    assume("," in isr)
    fewer = head + "\tIsr: " + isr.rpartition(",")[0] + tab + tail
    assert is_no_safer("".join([*lines[:at], fewer, *lines[at + 1 :]]), text)


@given(st.integers(0, 18), st.sampled_from(["", "x", "."]))
def test_a_setting_with_an_altered_letter_is_refused(at, other):
    for setting in ("min.insync.replicas=2", "unclean.leader.election.enable=true"):
        altered = setting[:at] + other + setting[at + 1 :]
        assume(altered != setting)
        with pytest.raises(CheckError, match="cut off, or has no value"):
            cluster.of_text(text_of(*HEALTHY, configs=f"segment.bytes=1,{altered}"))


def test_a_new_tool_may_describe_old_brokers():
    text = text_of(*HEALTHY).replace("Elr: \t", "Elr: N/A\t").replace("Elr: \n", "Elr: N/A\n")
    assert checked(text, None).state.versions[0].name == "2.8"
    assert checked(text, "3.5").status == 0
    with pytest.raises(CheckError, match=r"do not fill these fields; 3\.7"):
        checked(text_of(*HEALTHY), "3.5")


def test_noise_before_the_text_and_windows_are_read():
    noise = "Picked up JAVA_TOOL_OPTIONS: -Xmx1g\n[2026-01-01 00:00:00,000] WARN x (y)\n"
    assert checked(noise + text_of(*HEALTHY)).status == 0


# Other sources


def test_a_metadata_log_and_its_settings_are_read():
    path = str(INCIDENTS / "i-392-throttle-left-behind" / "metadata")
    state = stored.of_files(path)
    assert [v.name for v in state.versions] == ["3.9"] and state.past == {}  # no eligible replicas
    assert {p.min_isr for p in state.partitions if p.topic == "orders"} == {2}
    assert "a throttle is set and nothing moves" in risks.risks(state)


def test_eligible_replicas_are_exposed_as_by_the_whole_log():
    for path in INCIDENTS.glob("*/metadata"):
        state = stored.of_files(str(path))
        assert risks.exposures(state) == exposures(read_local(path, run="").events)


def test_a_damaged_metadata_log_is_never_safe(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    whole = written_log([topic()], [partition((1, 2, 3))])
    path.write_bytes(whole)
    state = stored.of_files(str(tmp_path), "3.9")
    options = {"min_isr": 1, "unclean": False, "voters": "none"}
    for name in options:  # each is needed
        rest = {key: value for key, value in options.items() if key != name}
        (unsure,) = cluster.with_options(state, **rest).unsure
        assert f"--{name.replace('_', '-')}" in unsure
    assert cluster.with_options(state, **options).unsure == ()
    path.write_bytes(whole[:-7])
    with pytest.raises(CheckError, match="could not be read in full"):
        stored.of_files(str(tmp_path), "3.9")


def test_options_of_kafka_s_tools_become_those_of_the_client(tmp_path):
    text = """# a comment
security.protocol=SASL_SSL
sasl.mechanism = SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
username="me" password="a=b";
ssl.truststore.type=PEM
ssl.truststore.location=/etc/ca.pem
ssl.endpoint.identification.algorithm=
client.dns.lookup=use_all_dns_ips
"""
    assert live.options_of(text) == {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "me",
        "sasl.password": "a=b", "ssl.ca.location": "/etc/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }  # fmt: skip
    with pytest.raises(CheckError, match="must be PEM"):
        live.options_of("ssl.truststore.location=x.jks")
    with pytest.raises(CheckError, match="no username"):
        live.options_of("sasl.jaas.config=x")


def test_a_cluster_that_does_not_answer_is_one_sentence():
    arguments = ["check", "--bootstrap-server", "127.0.0.1:1", "--timeout", "0.5"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert result.output.startswith("isrlab: 127.0.0.1:1 gave no complete answer within 0.5 s")
    assert result.output.count("\n") == 1


@pytest.mark.parametrize(
    ("config", "says"),
    [("security.protocol=SSL\n", "SSL"),
     ("security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=/no/such.pem\n",
      "ssl.ca.location failed")],
)  # fmt: skip
def test_tls_that_fails_is_one_sentence(config, says, tmp_path):
    """First, TLS against a port without TLS; second, a truststore that does not exist."""
    file = tmp_path / "client.properties"
    file.write_text(config)

    class NoTls(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(64)
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), NoTls) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        where = f"127.0.0.1:{server.server_address[1]}"
        arguments = ["check", "--bootstrap-server", where, "--timeout", "1"]
        result = CliRunner().invoke(main, [*arguments, "--command-config", str(file)])
        server.shutdown()
    assert result.exit_code == 2 and result.output.count("\n") == 1
    assert result.output.startswith(f"isrlab: {where} gave no complete answer within 1 s") and (
        says in result.output
    )


class Broker(socketserver.StreamRequestHandler):
    """A broker that answers metadata and configs, as far as `allowed` permits. It first refuses the
    client's version of ApiVersions, so that the client asks again."""

    allowed: frozenset[str] = frozenset()

    def handle(self) -> None:
        while head := self.rfile.read(4):
            request = self.rfile.read(*struct.unpack(">i", head))
            key, version, correlation = struct.unpack_from(">hhi", request)
            body = {3: self.metadata, 18: self.versions, 32: self.configs}[key](request, version)
            answer = struct.pack(">i", correlation) + body
            self.wfile.write(struct.pack(">i", len(answer)) + answer)

    def versions(self, _: bytes, version: int) -> bytes:
        known = ((3, 2, 2), (18, 0, 0), (32, 0, 0))
        return struct.pack(">hi9h", 35 if version else 0, 3, *(n for api in known for n in api))

    def metadata(self, *_: object) -> bytes:
        host, port = self.server.server_address
        us = [struct.pack(">i", me) + text(host) + struct.pack(">ih", port, -1) for me in (1, 2)]
        shown = {name: 0 if name in self.allowed else 29 for name in ("open", "closed")}
        partition = struct.pack(">ihiiiiiiii", 1, 0, 0, 1, 2, 1, 2, 2, 1, 2)
        topics = [
            struct.pack(">h", error) + text(name) + b"\0" + (bytes(4) if error else partition)
            for name, error in shown.items()
            if "none" not in self.allowed
        ]
        return (
            struct.pack(">i", 2)
            + b"".join([*us, text("id"), struct.pack(">ii", 1, len(topics))])
            + b"".join(topics)
        )

    def configs(self, request: bytes, _: int) -> bytes:
        """min.insync.replicas; "configs" shows that of the broker."""
        is_broker, known = b"\x04\x00\x01" in request, b""
        asked = (b"\0\1%d" % n for n in (1, 2)) if is_broker else (b"open", b"closed")
        names = [name.decode().lstrip("\0\1") for name in asked if name in request]
        least = text("min.insync.replicas") + text("1") + b"\0\1\0"
        unclean = text("unclean.leader.election.enable") + text("false") + b"\0\1\0"
        settings = [least] if is_broker else [least, unclean]
        for name in names:
            may = ("configs" if is_broker else name) in self.allowed
            error = 0 if may else 31 if is_broker else 29
            known += struct.pack(">hhb", error, -1, 4 if is_broker else 2) + text(name)
            shown = [] if error else settings
            known += struct.pack(">i", len(shown)) + b"".join(shown)
        return struct.pack(">ii", 0, len(names)) + known


def text(name: str) -> bytes:
    return struct.pack(">h", len(name)) + name.encode()


@pytest.mark.parametrize(
    ("allowed", "status", "says"),
    [
        ({"none"}, 2, "no permission for any"),
        ({"open"}, 2, "topic closed is not shown: KafkaError{code=TOPIC_AUTHORIZATION_FAILED"),
        ({"open", "closed"}, 2, "this client may not see the settings of 2 brokers"),
        ({"open", "closed", "configs"}, 2, "which nodes are the controllers' voters is not shown"),
    ],
)
def test_what_a_client_may_not_see_is_never_safe(allowed, status, says):
    kind = type("Allowed", (Broker,), {"allowed": frozenset(allowed)})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), kind) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        where = f"127.0.0.1:{server.server_address[1]}"
        arguments = ["check", "--bootstrap-server", where, "--timeout", "5"]
        result = CliRunner().invoke(main, arguments)
        server.shutdown()
    assert result.exit_code == status and says in " ".join(result.output.split())


# The command


def test_the_command_answers_in_some_ten_lines(tmp_path):
    file = tmp_path / "described"
    file.write_text(text_of(*HEALTHY, "1 1,2,3 1,2"))
    options = ["--zone", "1=a,2=b,3=c", "--down", "zone=a", "--version", "4.2"]
    options += ["--voters", "none"]
    result = CliRunner().invoke(main, ["check", str(file), *options])
    labels = [line[:8].strip() for line in result.output.splitlines() if line[0] != " "]
    assert result.exit_code == 1
    assert labels == ["BLOCKED", "Do", "Blocks", "Zones", "If down", "Unseen", "Read"]
    whole = json.loads(CliRunner().invoke(main, ["check", str(file), *options, "--json"]).output)
    assert [b["partition"] for b in whole["brokers"]["1"]] == ["t-3"] and whole["brokers"][
        "3"
    ] == []
    assert whole["down"]["elected"] == {"2": 1, "3": 0} or whole["down"]["elected"]["2"] >= 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--restart", "9"], "no broker 9 here"), (["--down", "zone=q"], "nor a zone"),
        (["--zone", "1=a,2=b"], "no rack is given for broker 3"),
        (["--zone", "1=a,2=b,3=c,9=d"], "no broker 9"), (["--version", "1.0"], "do not fill"),
        (["--version", "x"], "x"), (["--throttle", "much"], "is not a size"),
    ],
)  # fmt: skip
def test_a_bad_option_is_one_sentence(options, says, tmp_path):
    file = tmp_path / "described"
    file.write_text(text_of(*HEALTHY))
    result = CliRunner().invoke(main, ["check", str(file), *options])
    assert result.exit_code == 2 and says in result.output and result.output.count("\n") == 1


def test_the_gate_waits_until_a_restart_is_safe(tmp_path, capsys):
    file = tmp_path / "described"
    texts = [text_of("1 1,2,3 1,2"), "cut", text_of("1 1,2,3 1,2,3")]
    sources = {"path": str(file), "servers": None, "version": "4.1", "min_isr": None,
               "unclean": None, "zones": "", "zookeeper": None, "voters": "none"}  # fmt: skip
    how = dict.fromkeys(
        ("move", "throttle", "size", "produced", "down_s", "load", "config", "limit_s")
    )
    how |= sources | {"restart": ("1",), "down": (), "ignored": (), "change": ""}

    def ask() -> int:
        file.write_text(texts.pop(0))
        return command.tell(how, False, True)

    assert command.watch(ask, 0) == 0 and texts == []
    out, err = capsys.readouterr()
    assert out.startswith("BLOCKED") and "SAFE" in out and "no line of a partition" in err


def test_names_that_are_not_to_be_trusted_are_printable():
    text = text_of(*HEALTHY, "1 1,2,3 1,2", topic="a\x1b[31mb")
    shown = io.StringIO()
    for row in answer_of(checked(text)).rows:
        shown.write(row.text)
    assert "\x1b" not in shown.getvalue()
