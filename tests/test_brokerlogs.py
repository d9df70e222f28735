"""The lines of broker logs: every form, every release, lines that no broker can have printed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isrlab.brokerlogs.fields import COLUMNS
from isrlab.brokerlogs.formats import FORMATS, IMPOSSIBLE, NO_NEWS, entries, format_of
from isrlab.brokerlogs.lines import LineReader, Unread, read_line
from isrlab.brokerlogs.write import KINDS, forms, write, write_line
from isrlab.spark import package_archive
from isrlab.world import scenario

SCENARIOS = Path(__file__).parents[1] / "data" / "scenarios"
HEAD = "[2024-07-01 10:00:00,001] INFO "
PARTITION = " (kafka.cluster.Partition)"
RELEASES = [
    "0.8.2", "0.9.0", "0.10.1", "0.10.2", "0.11", "1.0", "1.1", "2.0", "2.1", "2.2", "2.3", "2.4",
    "2.5", "2.6", "2.7", "2.8", "3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8",
    "3.9", "4.0", "4.1", "4.2",
]  # fmt: skip


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_every_form_reads_its_example(form):
    assert len(form.landmark) >= 8
    if form.kind == "produce_error":
        return
    event = read_line(f"[2024-07-01 10:00:00,001] {form.level} {form.example} ({form.logger})")
    assert isinstance(event, dict), event
    assert (event["kind"], event["ts_ms"]) == (form.kind, 1719828000001)


WRONG_ENTRIES = {
    "isr_shrink 2.2 INFO x\n  a\n  a": "t:1: 'isr_shrink 2.2 INFO x' is not 'kind since-until",
    "isr_shrunk 2.2- INFO x\n  a\n  a": "t:1: unknown 'isr_shrunk'; known: isr_shrink",
    "# comment\n\nleader 2.2- NOTE x\n  a\n  a": "t:3: unknown 'NOTE'; known: FATAL",
    "leader 2.2-2.1 INFO x\n  a\n  a": "t:1: 2.2 is newer than 2.1",
    "leader 2.2-2.9 INFO x\n  a\n  a": "t:1: unknown Kafka version '2.9'",
    "leader 2.2- INFO x\n  {ledaer} a\n  1 a": "t:1: unknown field 'ledaer'; known: leader_epoch",
    "leader 2.2- INFO x\n  {leader} a\n  one a": "t:1: the template does not read its example",
    "leader 2.2- INFO x\n  {leader} a": "t:1: 'leader 2.2- INFO x' has 1 indented lines, not 2",
    "  a": "t:1: an indented line before the first entry",
}


@pytest.mark.parametrize("text, problem", WRONG_ENTRIES.items())
def test_a_wrong_entry_of_the_table_says_what_and_where(text, problem):
    with pytest.raises(ValueError) as error:
        format_of(*entries("t", text, below=2))
    assert str(error.value).startswith(problem)


def test_the_table_is_read_from_a_package_that_is_shipped_as_a_zip():
    """As Spark's workers have it; `files` are not paths there."""
    code = "import isrlab; from isrlab.brokerlogs.formats import FORMATS, IMPOSSIBLE, NO_NEWS; "
    code += "print(isrlab.__file__, len(FORMATS), len(IMPOSSIBLE), NO_NEWS.groups)"
    shipped = os.environ | {"PYTHONPATH": package_archive()}
    printed = subprocess.run(
        [sys.executable, "-P", "-c", code], env=shipped, capture_output=True, text=True, check=True
    ).stdout.split()
    assert ".zip" in printed[0]
    assert printed[1:] == [str(n) for n in (len(FORMATS), len(IMPOSSIBLE), NO_NEWS.groups)]


REAL = {  # single lines from public threads and repositories
    "0.9": (
        "[2016-03-24 14:15:44,847] INFO Partition [bier-bar,1] on broker 1: Expanding ISR for "
        "partition [bier-bar,1] from 1 to 1,2 (kafka.cluster.Partition)",
        {"kind": "isr_expand", "topic": "bier-bar", "partition": 1, "isr": [1, 2], "broker": 1},
    ),
    "0.10 rejected": (
        "[2016-12-18 15:15:55,046] INFO Partition [topicold,0] on broker 1: Cached zkVersion [0] "
        "not "
        "equal to that in zookeeper, skip updating ISR (kafka.cluster.Partition)",
        {"kind": "isr_rejected", "topic": "topicold", "partition_epoch": 0},
    ),
    "0.10 shrink": (
        "[2016-12-18 15:15:55,046] INFO Partition [topicold,24] on broker 1: Shrinking ISR for "
        "partition [topicold,24] from 1,0,2 to 1 (kafka.cluster.Partition)",
        {"kind": "isr_shrink", "isr_before": [1, 0, 2], "isr": [1], "ts_ms": 1482074155046},
    ),
    "0.11": (
        "[2017-07-15 16:17:57,662] INFO Partition [zhh-replicated-partitions-topic,2] on broker 1: "
        "Shrinking ISR from 1,2,0 to 1,2 (kafka.cluster.Partition)",
        {"kind": "isr_shrink", "topic": "zhh-replicated-partitions-topic", "partition": 2},
    ),
    "1.x": (
        "[2019-10-22 19:55:24,960] INFO [Partition byfn-sys-channel-0 broker=0] Expanding ISR "
        "from 0 "
        "to 0,1 (kafka.cluster.Partition)",
        {"kind": "isr_expand", "topic": "byfn-sys-channel", "partition": 0, "broker": 0},
    ),
    "2.2": (
        "[2022-03-12 18:10:07,139] INFO [Partition __consumer_offsets-43 broker=3] Shrinking ISR "
        "from "
        "3,1,4 to 3. Leader: (highWatermark: 115, endOffset: 120). Out of sync replicas: "
        "(brokerId: "
        "1, endOffset: 115) (brokerId: 4, endOffset: 116). (kafka.cluster.Partition)",
        {"kind": "isr_shrink", "high_watermark": 115, "log_end_offset": 120, "partition": 43},
    ),
    "2.8": (
        "[2021-04-26 16:13:18,939] INFO [Partition second-0 broker=0] ISR updated to 0,1 and "
        "version "
        "updated to [2] (kafka.cluster.Partition)",
        {"kind": "isr_commit", "isr": [0, 1], "partition_epoch": 2},
    ),
    "2.8 truncation": (
        "[2021-04-26 16:13:18,801] INFO [ReplicaFetcher replicaId=1, leaderId=0, fetcherId=0] "
        "Truncating partition second-0 to local high watermark 0 "
        "(kafka.server.ReplicaFetcherThread)",
        {"kind": "truncate", "broker": 1, "log_end_offset": 0},
    ),
    "4.1, two spaces": (
        "[2025-10-15 20:36:54,506] INFO [Partition __consumer_offsets-1 broker=1] ISR updated to "
        "2,1,3  and version updated to 18 (kafka.cluster.Partition)",
        {"kind": "isr_commit", "isr": [2, 1, 3], "partition_epoch": 18},
    ),
    "4.1 truncation": (
        "[2025-10-15 20:38:45,018] INFO [ReplicaFetcher replicaId=1, leaderId=3, fetcherId=0] "
        "Truncating partition performance-test-1 with TruncationState(offset=768982, "
        "completed=true) "
        "due to leader epoch and offset EpochEndOffset(errorCode=0, partition=1, leaderEpoch=5, "
        "endOffset=768982) (kafka.server.ReplicaFetcherThread)",
        {"kind": "truncate", "topic": "performance-test", "log_end_offset": 768982},
    ),
    "4.x, no logger": (
        "[2026-07-20 09:45:42,535] INFO [Partition probe-rf3-0 broker=2] ISR updated to 2,1  and "
        "version updated to 1",
        {"kind": "isr_commit", "topic": "probe-rf3", "isr": [2, 1]},
    ),
}


@pytest.mark.parametrize("line, expected", REAL.values(), ids=REAL)
def test_real_lines(line, expected):
    event = read_line(line)
    assert isinstance(event, dict), event
    assert {name: event.get(name) for name in expected} == expected


UNREAD = {
    "[2018-07-14 04:38:45,938] INFO [Partition TOPIC_NAME-PARTITION-# broker=1|#* broker=1] "
    "Shrinking ISR from 1,3,4,2 to 1 (kafka.cluster.Partition)": "masked",
    "[2018-07-14 04:38:26,559] ERROR Uncaught exception in scheduled task 'isr-expiration' "
    "(kafka.utils.KafkaScheduler)": "names no partition",
    "Shrinking ISR from 1,2,0 to 0. Leader: (highWatermark: 0, endOffset: 20).": "no time",
    "[2024-13-41 10:00:00,001] INFO [Partition t-0 broker=1] ISR updated to 1 and version updated "
    "to 5 (kafka.cluster.Partition)": "no such date",
    HEAD + "[Partition t-0 broker=1] Shrinking ISR to nowhere" + PARTITION: "no known form",
    HEAD + "[Partition t-0 broker=1] Something new about the ISR" + PARTITION: "no known form",
}


@pytest.mark.parametrize("line, reason", UNREAD.items(), ids=UNREAD.values())
def test_lines_that_cannot_be_read_say_why(line, reason):
    result = read_line(line)
    assert isinstance(result, Unread)
    assert reason in result.reason


IMPOSSIBLE_LINES = [
    HEAD + "[Partition t-0 broker=1] Expanding ISR from 1 to 1,2. Leader: (highWatermark: 9, "
    "endOffset"
    ": 9). Out of sync replicas: (brokerId: 2, endOffset: 9, lastCaughtUpTimeMs: 5)." + PARTITION,
    HEAD
    + "[Partition t-0 broker=1] ISR updated to 1,2 (under-replicated) and version updated to 5"
    + PARTITION,
    HEAD + "[ReplicaManager broker=1] Replica 3 for t-0 is lagging behind by 273229 messages "
    "(kafka.server.ReplicaManager)",
    HEAD + "[Partition t-0 broker=1] Shrinking ISR from 1,2,3 to 1 due to follower 2,3 being out "
    "of "
    "sync" + PARTITION,
    HEAD
    + "[Partition t-0 broker=101] Shrinking ISR from Set(101, 102, 103) to Set(101)"
    + PARTITION,
    HEAD + "[Kafka-server-topic-handler] Shrinking ISR from 1,2 to 1" + PARTITION,
    HEAD.replace("INFO", "WARN")
    + "[Partition t-0 broker=1] Shrinking ISR from 1,2 to 1"
    + PARTITION,
    HEAD + "[Partition t-0 broker=1] Expanding ISR from 1,2 to 1" + PARTITION,
    HEAD + "[Partition t-0 broker=1] Shrinking ISR from 1,2 to 1,2" + PARTITION,
]


@pytest.mark.parametrize("line", IMPOSSIBLE_LINES)
def test_lines_that_no_broker_can_have_printed(line):
    result = read_line(line)
    assert isinstance(result, Unread)
    assert result.reason.startswith("no broker prints this")


@pytest.mark.parametrize(
    "line",
    [
        "[2025-10-16 15:57:12,612] TRACE [Partition performance-test-2 broker=1] Progress "
        "awaiting ISR "
        "acks for offset 89: acked: Set(broker 1: 89), awaiting Set(broker 3: 88, broker 2: 88) "
        "(kafka.cluster.Partition)",
        HEAD + "[Log partition=t-0, dir=/d] Truncating to 0 has no effect as the largest offset "
        "in the "
        "log is -1 (kafka.log.Log)",
        "\tat kafka.cluster.Partition.maybeShrinkIsr(Partition.scala:955)",
        "",
        "ISR",
    ],
)
def test_lines_that_tell_nothing_are_let_go(line):
    assert read_line(line) is None


@pytest.mark.parametrize("size", ["Set(2)", ": 1", "[2]"])
def test_a_refused_produce_has_the_time_of_the_line_before(size):
    reader = LineReader()
    reader.pass_by(
        b"[2019-07-17 10:00:00,001] ERROR [ReplicaManager broker=1] Error processing "
        b"append "
        b"operation on partition __consumer_offsets-49 (kafka.server.ReplicaManager)"
    )
    event = reader.read(
        "org.apache.kafka.common.errors.NotEnoughReplicasException: The size of the current ISR "
        f"{size} is insufficient to satisfy the min.isr requirement of 2 for partition "
        "__consumer_offsets-49"
    )
    assert isinstance(event, dict)
    assert (event["kind"], event["broker"], event["partition"]) == ("produce_error", 1, 49)
    assert event["ts_ms"] == 1563357600001


def test_brokers_print_local_time():
    line = "[2024-07-01 12:00:00,001] INFO [KafkaServer id=1] started (kafka.server.KafkaServer)"
    assert read_line(line, "Europe/Berlin")["ts_ms"] == 1719828000001


def test_what_docker_puts_before_a_line_is_no_part_of_it():
    event = read_line(
        "kafka-1  | [2024-06-09 07:41:17,993] INFO [BrokerServer id=0] Transition from STARTING to "
        "STARTED (kafka.server.BrokerServer)"
    )
    assert event["kind"] == "restart"


@given(st.text(max_size=200))
def test_no_text_makes_the_reader_fail(text):
    read_line(text)
    read_line(HEAD + text + PARTITION)


replicas = st.lists(st.integers(0, 9999), min_size=2, max_size=6, unique=True)
topics = st.from_regex(r"\A[A-Za-z0-9._-]{1,40}\Z").filter(lambda topic: topic not in (".", ".."))
offsets = st.integers(0, 2**62)


@st.composite
def events(draw):
    """Events with everything that any release prints of them."""
    before = draw(replicas)
    after = before[: draw(st.integers(1, len(before) - 1))]
    gone = before[len(after) :]
    kind = draw(st.sampled_from(KINDS))
    shrinks = kind != "isr_expand"
    detail = {
        "out_of_sync": ",".join(map(str, gone)),
        "out_of_sync_end_offset": ",".join(str(draw(offsets)) for _ in gone),
        "last_caught_up_time_ms": ",".join(str(draw(offsets)) for _ in gone),
        "previous_leader_epoch": str(draw(st.integers(-1, 99))),
        "topic_id": "Some(xyz)",
        "previous_leader": "None",
        "dir": "/var/lib/kafka, and more",
    }
    return {
        "kind": kind,
        "ts_ms": draw(st.integers(0, 4_000_000_000_000)),
        "broker": before[0],
        "topic": draw(topics),
        "partition": draw(st.integers(0, 9999)),
        "leader_epoch": draw(st.integers(0, 99)),
        "partition_epoch": draw(st.integers(0, 999)),
        "replica": before[-1] if kind == "follower" else before[0],
        "isr_before": before if shrinks else after,
        "isr": after if shrinks else before,
        "high_watermark": draw(offsets),
        "log_end_offset": draw(offsets),
        "detail": detail,
    }


@given(events(), st.sampled_from(RELEASES))
def test_what_is_written_is_read_as_the_same(event, release):
    line = write_line(event, release)
    if line is None:
        assert event["kind"] in ("isr_expand", "isr_rejected", "leader", "follower")
        return
    read = read_line(line)
    assert isinstance(read, dict), (line, read)
    told = {name: value for name, value in read.items() if name in COLUMNS}
    assert told == {name: event[name] for name in told}
    known = {name: value for name, value in read["detail"].items() if name in event["detail"]}
    assert known == {name: event["detail"][name] for name in known}
    assert read["kind"] == event["kind"]


def test_an_error_has_one_name_in_a_simulation_and_in_a_log():
    """So that one table of both can be grouped by error: the engine's own ISR change that fails."""
    run = scenario.play((SCENARIOS / "cached_zkversion.txt").read_text(), version="2.5")
    own = [{"topic": "t", "partition": 0} | row for row in run.cluster.events]
    refused = [event for event in own if event["kind"] == "isr_rejected"]
    read = [read_line(line) for line in write(refused, "2.5")]
    errors = Counter(event["detail"]["error"] for event in [*refused, *read])
    assert errors == {"BADVERSION": 2 * len(refused)}


def test_since_2_8_no_leader_announces_an_expansion():
    assert forms("isr_expand", "2.7") and not forms("isr_expand", "2.8")


def test_every_release_prints_shrinks_commits_and_leaders():
    missing = [
        (kind, release)
        for release in RELEASES
        for kind in ("isr_shrink", "isr_commit", "leader", "truncate")
        if not forms(kind, release)
    ]
    assert not missing


def test_a_simulated_shrink_is_printed_without_log_details():
    shrink = {
        "kind": "isr_shrink",
        "ts_ms": 0,
        "broker": 1,
        "topic": "t",
        "partition": 0,
        "isr_before": [1, 2],
        "isr": [1],
        "high_watermark": 5,
        "log_end_offset": 9,
    }
    assert list(write([shrink], "3.9")) == [
        "[1970-01-01 00:00:00,000] INFO [Partition t-0 broker=1] Shrinking ISR from 1,2 to 1. "
        "Leader: "
        "(highWatermark: 5, endOffset: 9). Out of sync replicas: (brokerId: 2, endOffset: unknown, "
        "lastCaughtUpTimeMs: unknown). (kafka.cluster.Partition)"
    ]


@pytest.mark.parametrize("release", ["latest", "3", "2.9", "5.0"])
def test_an_unknown_release_is_refused(release):
    with pytest.raises(ValueError, match="unknown Kafka version"):
        forms("leader", release)


def test_formats_have_no_two_of_one_template_for_one_release():
    seen = {}
    for form in FORMATS:
        for release in RELEASES:
            if form.is_printed_by(release):
                assert (release, form.template) not in seen, form.name
                seen[release, form.template] = form
