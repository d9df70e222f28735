"""Lines of broker logs: every form, every release, and lines that no broker can have printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isrlab.spark import package_archive
from isrlab.world import scenario
from isrlab_ops.logs.reader.fields import COLUMNS
from isrlab_ops.logs.reader.files import MAX_LINE_BYTES
from isrlab_ops.logs.reader.formats import FORMATS, IMPOSSIBLE, NO_NEWS, entries, format_of, likely
from isrlab_ops.logs.reader.layout import Layout
from isrlab_ops.logs.reader.lines import LineReader, Unread, read_line
from log_writer import KINDS, forms, is_printed_by, write, write_line

SCENARIOS = Path(__file__).parents[2] / "data" / "scenarios"
LINES = Path(__file__).parents[1] / "cases" / "log_lines.txt"
HEAD = "[2024-07-01 10:00:00,001] INFO "
PARTITION = " (kafka.cluster.Partition)"
# Every release that is the first or last to print a form, and the newest release.
RELEASES = sorted({r for form in FORMATS for r in (form.since, form.until) if r} | {"4.3"})


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: f"{form.kind} {form.since}-{form.until}")
def test_every_form_reads_its_example(form):
    assert len(form.landmark) >= 8
    if form.kind == "produce_error":
        return
    event = read_line(f"[2024-07-01 10:00:00,001] {form.level} {form.example} ({form.logger})")
    assert isinstance(event, dict), event
    assert (event["kind"], event["ts_ms"]) == (form.kind, 1719828000001)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: f"{form.kind} {form.since}-{form.until}")
def test_no_format_is_passed_over_for_the_first_letters_of_a_message(form):
    matching = [each for each in FORMATS if each.regex.fullmatch(form.example)]
    assert [each for each in likely(form.example) if each in matching] == matching


WRONG_ENTRIES = {
    "isr_shrink 2.2 INFO x\n  a\n  a": "t:1: 'isr_shrink 2.2 INFO x' is not 'kind since-until",
    "isr_shrunk 2.2- INFO x\n  a\n  a": "t:1: unknown 'isr_shrunk'; known: isr_shrink",
    "# comment\n\nleader 2.2- NOTE x\n  a\n  a": "t:3: unknown 'NOTE'; known: FATAL",
    "leader 2.2-2.1 INFO x\n  a\n  a": "t:1: 2.2 is newer than 2.1",
    "leader 2.2-2.9 INFO x\n  a\n  a": "t:1: unknown Kafka version '2.9'",
    "leader 2.2- INFO x\n  {ledaer} a\n  1 a": "t:1: unknown field 'ledaer'; known: leader_epoch",
    "leader 2.2- INFO x\n  {leader} a": "t:1: 'leader 2.2- INFO x' has 1 indented lines, not 2",
    "  a": "t:1: '  a' has 0 indented lines, not 2",
}


@pytest.mark.parametrize("text, problem", WRONG_ENTRIES.items())
def test_a_wrong_entry_of_the_table_says_what_and_where(text, problem):
    with pytest.raises(ValueError) as error:
        format_of(*entries("t", text, below=2))
    assert str(error.value).startswith(problem)


def test_the_table_is_read_from_a_package_that_is_shipped_as_a_zip():
    """Spark's workers get such a zip, in which files have no paths."""
    code = (
        "import isrlab; from isrlab_ops.logs.reader.formats import FORMATS, IMPOSSIBLE, NO_NEWS; "
    )
    code += "print(isrlab.__file__, len(FORMATS), len(IMPOSSIBLE), NO_NEWS.groups)"
    shipped = os.environ | {"PYTHONPATH": package_archive()}
    printed = subprocess.run(
        [sys.executable, "-P", "-c", code], env=shipped, capture_output=True, text=True, check=True
    ).stdout.split()
    assert ".zip" in printed[0]
    assert printed[1:] == [str(n) for n in (len(FORMATS), len(IMPOSSIBLE), NO_NEWS.groups)]


CASES = [(want, line) for want, (line,), _ in entries("log_lines.txt", LINES.read_text(), below=1)]


@pytest.mark.parametrize("want, line", CASES)
def test_lines(want, line):
    result, (what, _, rest) = read_line(line), want.partition(" ")
    if what == "nothing":
        assert result is None
    elif what == "unread":
        assert isinstance(result, Unread) and rest in result.reason
    else:
        assert isinstance(result, dict), result
        expected = dict(pair.split("=") for pair in f"kind={what} {rest}".split())
        assert expected == {n: str(result[n]).strip("[]").replace(" ", "") for n in expected}


def test_lines_of_other_things_are_let_go():
    for line in ("", "\tat kafka.cluster.Partition.maybeShrinkIsr(Partition.scala)"):
        assert read_line(line) is None


@pytest.mark.parametrize("size", ["Set(2)", ": 1", "[2]"])
def test_a_refused_produce_has_the_time_of_the_line_before(size):
    before = (
        "[2019-07-17 10:00:00,001] ERROR [ReplicaManager broker=1] Error processing append "
        "operation on partition __consumer_offsets-49 (kafka.server.ReplicaManager)"
    )
    line = (
        "org.apache.kafka.common.errors.NotEnoughReplicasException: The size of the current ISR "
        f"{size} is insufficient to satisfy the min.isr requirement of 2 for partition "
        "__consumer_offsets-49"
    )
    (event,) = LineReader("UTC", Layout.of([before, line])).read(line, [before])
    assert isinstance(event, dict)
    assert (event["kind"], event["broker"], event["partition"]) == ("produce_error", 1, 49)
    assert event["ts_ms"] == 1563357600001


def test_brokers_print_local_time():
    line = "[2024-07-01 12:00:00,001] INFO [KafkaServer id=1] started (kafka.server.KafkaServer)"
    assert read_line(line, "Europe/Berlin")["ts_ms"] == 1719828000001


@given(st.text(max_size=200))
def test_no_text_makes_the_reader_fail(text):
    read_line(text)
    read_line(HEAD + text + PARTITION)


PIECES = [text for regex, _ in IMPOSSIBLE for text in re.findall(r"[\w ]{9,}", regex.pattern)]
PIECES += re.findall(r"[\w ]{9,}", NO_NEWS.pattern)
PIECES += ["isrWithBrokerEpoch=List(", "brokerId: 1, ", "(brokerId: 2)", "from ", "1,", "1", " "]
PIECES += [form.example for form in FORMATS]


def test_no_line_takes_the_reader_longer_than_its_length():
    """64 KiB of any repeated words of the tables; "Expanding ISR " once took 6 s."""
    for piece in set(PIECES):
        started = time.process_time()
        read_line(f"{HEAD}{(piece * MAX_LINE_BYTES)[:MAX_LINE_BYTES]}{PARTITION}")
        assert time.process_time() - started < 3, piece


replicas = st.lists(st.integers(0, 9999), min_size=2, max_size=6, unique=True)
topics = st.from_regex(r"\A[A-Za-z0-9._-]{1,40}\Z").filter(lambda topic: topic not in (".", ".."))
offsets = st.integers(0, 2**62)


@st.composite
def events(draw):
    """Events with all details that any release prints."""
    large = draw(replicas)
    small = large[: draw(st.integers(1, len(large) - 1))]
    gone, kind = large[len(small) :], draw(st.sampled_from(KINDS))
    before, after = (small, large) if kind == "isr_expand" else (large, small)
    detail = {"topic_id": "Some(xyz)", "previous_leader": "None", "dir": "/var/lib/kafka, and more"}
    detail |= {"previous_leader_epoch": str(draw(st.integers(-1, 99)))}
    detail |= {"out_of_sync": ",".join(map(str, gone))}
    for name in ("out_of_sync_end_offset", "last_caught_up_time_ms"):
        detail[name] = ",".join(str(draw(offsets)) for _ in gone)
    most = {"ts_ms": 4_000_000_000_000, "partition": 9999, "leader_epoch": 99}
    most |= {"partition_epoch": 999, "high_watermark": 2**62, "log_end_offset": 2**62}
    event = {name: draw(st.integers(0, value)) for name, value in most.items()}
    event |= {"kind": kind, "broker": large[0], "topic": draw(topics), "detail": detail}
    event |= {"replica": large[-1 if kind == "follower" else 0]}
    return event | {"isr_before": before, "isr": after}


@given(events(), st.sampled_from(RELEASES))
def test_what_is_written_is_read_as_the_same(event, release):
    line = write_line(event, release)
    if line is None:
        assert event["kind"] in ("isr_expand", "isr_rejected", "leader", "follower")
        return
    read = read_line(line)
    assert isinstance(read, dict), (line, read)
    columns = {name: value for name, value in read.items() if name in COLUMNS}
    assert columns == {name: event[name] for name in columns}
    known = {name: value for name, value in read["detail"].items() if name in event["detail"]}
    assert known == {name: event["detail"][name] for name in known}
    assert read["kind"] == event["kind"]


def test_an_error_has_one_name_in_a_simulation_and_in_a_log():
    """So that one table of both can be grouped by error: the engine's own ISR change that fails."""
    run = scenario.play((SCENARIOS / "cached_zkversion.txt").read_text(), version="2.5")
    own = [event.row | {"topic": "t", "partition": 0} for event in run.cluster.events]
    refused = [event for event in own if event["kind"] == "isr_rejected"]
    read = [read_line(line) for line in write(refused, "2.5")]
    errors = Counter(event["detail"]["error"] for event in [*refused, *read])
    assert errors == {"BADVERSION": 2 * len(refused)}


def test_since_2_8_no_leader_announces_an_expansion():
    assert forms("isr_expand", "2.7") and not forms("isr_expand", "2.8")


def test_every_release_prints_shrinks_commits_and_leaders():
    kinds = "isr_shrink", "isr_commit", "leader", "truncate"
    assert [(kind, r) for r in RELEASES for kind in kinds if not forms(kind, r)] == []


def test_a_simulated_shrink_is_printed_without_log_details():
    shrink = {"kind": "isr_shrink", "ts_ms": 0, "broker": 1, "topic": "t", "partition": 0}
    shrink |= {"isr_before": [1, 2], "isr": [1], "high_watermark": 5, "log_end_offset": 9}
    assert list(write([shrink], "3.9")) == [
        "[1970-01-01 00:00:00,000] INFO [Partition t-0 broker=1] Shrinking ISR from 1,2 to 1. "
        "Leader: (highWatermark: 5, endOffset: 9). Out of sync replicas: (brokerId: 2, endOffset: "
        "unknown, lastCaughtUpTimeMs: unknown). (kafka.cluster.Partition)"
    ]


def test_formats_have_no_two_of_one_template_for_one_release():
    for release in RELEASES:
        templates = [form.template for form in FORMATS if is_printed_by(form, release)]
        assert len(set(templates)) == len(templates)


def test_the_grammar_of_lines_needs_no_arrays():
    """Pages in a browser read lines with it."""
    script = """
import sys
sys.modules |= {"numpy": None, "pyarrow": None, "pandas": None}
from isrlab_ops.logs.reader import fields, formats, layout, lines, objects, read_line, stamps, zones
print(read_line(sys.stdin.read())["isr"])
"""
    line = "[2024-07-01 10:00:00,001] INFO [Partition t-0 broker=1] ISR updated to 1,2 and version "
    line += "updated to [5] (kafka.cluster.Partition)"
    done = subprocess.run(
        [sys.executable, "-c", script], input=line, capture_output=True, text=True, check=False
    )
    assert done.stdout == "[1, 2]\n", done.stderr
