"""A log gives the same events in every layout."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache, partial

import pytest

from isrlab_ops.logs.reader import files, read_local
from isrlab_ops.logs.recordings import folder

STOCK = re.compile(r"\[(\S+ \S+)\] ([A-Z]+) (.*?)(?: \(([\w.$]+)\))?", re.DOTALL)
REFUSED = [
    "[2026-07-01 10:00:00,123] ERROR [ReplicaManager broker=1] Error processing append operation "
    "on partition t-0 (kafka.server.ReplicaManager)",
    "org.apache.kafka.common.errors.NotEnoughReplicasException: The size of the current ISR Set(1) "
    "is insufficient to satisfy the min.isr requirement of 2 for partition t-0",
    "\tat kafka.cluster.Partition.appendRecordsToLeader(Partition.scala:1000)",
    "[2026-07-01 10:00:00,124] INFO [Log partition=t-0, dir=/d] Truncating to offset 7 "
    "(kafka.log.UnifiedLog)",
    "[2026-07-01 10:00:00,124] WARN [Partition t-0 broker=1] A \"quoted\" <b> \\ word "
    "(kafka.cluster.Partition)",
]  # fmt: skip


class LogMessage:
    """A log message with its stack trace, in parts from which a layout makes its lines."""

    def __init__(self, line: str) -> None:
        parts = STOCK.fullmatch(line)
        assert parts is not None, line
        stamp, self.level, self.message, logger = parts.groups()
        self.logger = logger or "kafka.Kafka"
        self.trace: list[str] = []
        self.stock = f"[{stamp}] {self.level} {self.message} ({self.logger})"

        self.at = datetime.strptime(f"{stamp}+0000", "%Y-%m-%d %H:%M:%S,%f%z")
        self.stamp, self.ms, self.time = stamp, stamp[-3:], stamp[11:]
        self.epoch_ms = round(self.at.timestamp() * 1000)
        self.iso = f"{self.at:%Y-%m-%dT%H:%M:%S}.{self.ms}Z"
        self.berlin = self.at + timedelta(hours=2)
        # When the container received it, a little later.
        self.seen = f"{self.at + timedelta(milliseconds=2):%Y-%m-%dT%H:%M:%S.%f}789Z"
        self.class_name = self.logger.rpartition(".")[2]

    @property
    def text(self) -> str:
        return "\n".join([self.stock, *self.trace])


@cache
def recording() -> list[LogMessage]:
    messages: list[LogMessage] = []
    lines = list(REFUSED)
    for name in ("server.log", "state-change.log", "controller.log"):
        for path in sorted((folder("4.1") / "broker-1").glob(f"{name}*")):
            data = path.read_bytes()
            data = gzip.decompress(data) if path.suffix == ".gz" else data
            lines += data.decode().splitlines()
    for line in lines:
        if STOCK.fullmatch(line):
            messages.append(LogMessage(line))
        elif messages and line:
            messages[-1].trace.append(line)
    return messages


# Lines of text: a message is one line, followed by its stack trace; {s} is the LogMessage.
LINES = """
Strimzi             | {s.stamp} {s.level} {s.message} ({s.logger}) [kafka-scheduler-3]
log4j2              | {s.stamp} {s.level:<5} [main] {s.logger}:42 - {s.message}
level first         | {s.level} {s.stamp} [main] {s.logger}: {s.message}
short logger        | {s.stamp} [{s.level}] {s.class_name} - {s.message}
thread behind       | {s.stamp} {s.level} {s.logger} - {s.message} [some-thread-1]
bars                | {s.stamp} ! {s.level} ! main ! {s.logger} ! {s.message}
slashes             | {s.at:%d/%b/%Y:%H:%M:%S}.{s.ms} +0000 {s.level} {s.message}
DATE                | {s.at:%d %b %Y %H:%M:%S},{s.ms} {s.level} {s.message} ({s.logger})
offset              | [{s.berlin:%Y-%m-%dT%H:%M:%S},{s.ms}+0200] {s.level} {s.message}
Z                   | {s.iso} {s.level} {s.message} ({s.logger})
compact             | {s.at:%Y%m%dT%H%M%S},{s.ms} {s.level} {s.message}
epoch ms            | {s.epoch_ms} {s.level} {s.message} ({s.logger})
no level            | {s.stamp} {s.message}
logfmt              | time={s.stamp} level={s.level} logger={s.logger} msg="{s.message}"
colours             | \x1b[32m[{s.stamp}]\x1b[0m \x1b[1m{s.level}\x1b[m {s.message} ({s.logger})
"""
# Containers put a prefix before every line of the stock layout, or of another one.
BEFORE = """
compose                | kafka-1  ! {s.stock}
compose -t             | kafka-1  ! {s.seen} {s.stock}
compose, no date       | kafka-1  ! {s.iso} {s.level} {s.message} ({s.logger})
compose, time only     | kafka-1  ! {s.iso} [{s.time}] {s.level} {s.message} ({s.logger})
CRI                    | {s.seen} stdout F {s.stock}
kubectl --prefix       | [pod/my-cluster-kafka-0/kafka] {s.stock}
kubectl --timestamps   | {s.seen} {s.stock}
kubectl, both          | [pod/my-cluster-kafka-0/kafka] {s.seen} {s.stock}
journald               | {s.at:%b %d %H:%M:%S} kafka1 kafka-server-start.sh[1234]: {s.stock}
journald, short-iso    | {s.at:%Y-%m-%dT%H:%M:%S}+0000 kafka1 kafka.sh[1234]: {s.stock}
syslog RFC 5424        | <14>1 {s.seen} kafka1 kafka 1234 - - {s.stock}
rsyslog                | {s.at:%Y-%m-%dT%H:%M:%S}.{s.ms}+00:00 kafka1 kafka[1234]: {s.stock}
Strimzi in CRI         | {s.seen} stdout F {s.stamp} {s.level} {s.message} ({s.logger}) [t-1]
"""


def table(text: str, make: Callable) -> dict[str, Callable[[LogMessage], str]]:
    rows = (line.replace("!", "|").split("|", 1) for line in text.strip().split("\n"))
    return {name.strip(): partial(make, form.removeprefix(" ")) for name, form in rows}


def plain(form: str, each: LogMessage) -> str:
    return "\n".join([form.format(s=each), *each.trace])


def wrapped(form: str, each: LogMessage) -> str:
    line = form.format(s=each)
    own = re.search(r"\[?\S+ [\d:,]+\]? [A-Z]+ \[|(?:\[[\d:,]+\] )?[A-Z]{4,5} ", line)
    assert own is not None
    start = line.find(each.stock) if each.stock in line else own.start()
    return "\n".join([line, *(line[:start] + below for below in each.trace)])


def objects(each: LogMessage) -> dict[str, object]:
    """Layouts of JSON: the object for a message."""
    trace = {"trace": "\n".join(each.trace)} if each.trace else {}
    ecs = {"@timestamp": each.iso, "log.level": each.level, "message": each.message,
           "log.logger": each.logger, "error.stack_trace": "\n".join(each.trace)}  # fmt: skip
    instant = {"epochSecond": each.epoch_ms // 1000, "nanoOfSecond": int(each.ms) * 1_000_000}
    return {
        "ECS": ecs,
        "ECS, nested": {"@timestamp": each.iso, "log": {"level": each.level, "logger": each.logger},
                        "message": each.message, "error": trace},
        "logstash": {"@timestamp": each.iso, "@version": "1", "message": each.message,
                     "logger_name": each.logger, "thread_name": "main", "level": each.level,
                     "level_value": 20000, **trace},
        "GELF": {"version": "1.1", "host": "kafka1", "short_message": each.message, "level": 6,
                 "timestamp": each.epoch_ms / 1000, "_level": each.level, "_logger": each.logger,
                 "full_message": "\n".join([each.message, *each.trace])},
        "log4j2 JSON": {"instant": instant, "thread": "main", "level": each.level,
                        "loggerName": each.logger, "message": each.message, "thrown": trace},
        "unknown keys": {"what": each.message, "when": each.epoch_ms, "how": each.level, **trace},
        "two of each": {"body": each.message, "at": each.iso, "severity": each.level,
                        "original": each.text, "ingested": each.seen},
        "docker of ECS": {"log": json.dumps(ecs) + "\n", "stream": "stdout", "time": each.seen},
    }  # fmt: skip


def json_object(name: str, before: str, each: LogMessage) -> str:
    return before + json.dumps(objects(each)[name])


LAYOUTS = {
    **table(LINES, plain),
    **table(BEFORE, wrapped),
    **{name: partial(json_object, name, "") for name in objects(LogMessage(REFUSED[0]))},
    "CRLF": lambda each: each.text.replace("\n", "\r\n") + "\r",
    "docker json-file": lambda each: "\n".join(
        json.dumps({"log": f"{line}\n", "stream": "stdout", "time": each.seen})
        for line in each.text.split("\n")
    ),
    "journald -o json": lambda each: "\n".join(
        json.dumps({"MESSAGE": line, "__REALTIME_TIMESTAMP": f"{each.epoch_ms}000"})
        for line in each.text.split("\n")
    ),
    "ECS in CRI": lambda each: f"{each.seen} stdout F " + json.dumps(objects(each)["ECS"]),
    "ECS in compose": partial(json_object, "ECS", "kafka-1  | "),
}


def events_of(path, lines, time_zone=None):
    """The events, with `detail` without line numbers, and the row of the file."""
    path.write_text("\n".join(lines) + "\n", newline="")
    logs = read_local(path, run="r", time_zone=time_zone)
    rows = logs.events.to_pylist()
    for row in rows:
        row["detail"] = {key: value for key, value in row["detail"] if key != "line"}
    return sorted(rows, key=str), logs.files.to_pylist()[0], logs.unread.to_pylist()


@cache
def of_stock(path):
    return events_of(path / "server.log", [each.text for each in recording()])


@pytest.fixture(scope="module")
def stock(tmp_path_factory):
    return of_stock(tmp_path_factory.mktemp("stock"))


def test_the_recording_has_events_of_all_kinds(stock):
    rows, file, unread = stock
    kinds = {row["kind"] for row in rows}
    assert {"isr_shrink", "isr_commit", "leader", "produce_error", "hosted", "truncate"} <= kinds
    assert len(rows) > 100 and unread == [] and file["layout"] == "stock"


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_gives_the_same_events(tmp_path, stock, name):
    rows, file, unread = events_of(
        tmp_path / "server.log", [LAYOUTS[name](each) for each in recording()]
    )
    assert file["status"] == "read" and unread == []
    assert rows == stock[0]
    assert (file["first_ms"], file["last_ms"]) == (stock[1]["first_ms"], stock[1]["last_ms"])


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_lines_that_end_with_a_bare_carriage_return(tmp_path, stock, pack):
    text = "\n".join(each.text for each in recording()) + "\n"
    (tmp_path / "server.log").write_bytes(pack(text.replace("\n", "\r").encode()))
    logs = read_local(tmp_path, run="r")
    assert logs.files["lines"].to_pylist() == [text.count("\n")] and logs.unread.num_rows == 0
    assert logs.events.num_rows == len(stock[0])


def test_lines_that_a_container_runtime_has_cut_into_pieces(tmp_path):
    message = (
        "[2024-07-01 08:00:00,123] INFO [Partition t-0 broker=1] Shrinking ISR from 1,2,3 to 1,2. "
        "Leader: (highWatermark: 90, endOffset: 120). Out of sync replicas: (brokerId: 3, "
        "endOffset: 90, lastCaughtUpTimeMs: 1719820770000). (kafka.cluster.Partition)"
    )
    lines = []
    for number in range(50):
        whole = message.replace("t-0", f"t-{number}")
        cut = (number * 5) % 150 + 60
        pieces = [whole[:cut], whole[cut : cut + 9], whole[cut + 9 :]] if number % 3 else [whole]
        marks = ["P"] * (len(pieces) - 1) + ["F"]
        lines += [
            f"2024-07-01T08:00:00.123456789Z stdout {m} {p}"
            for m, p in zip(marks, pieces, strict=True)
        ]
    (tmp_path / "0.log").write_text("\n".join(lines) + "\n")
    logs = read_local(tmp_path)
    assert logs.events["partition"].to_pylist() == list(range(50))
    assert logs.events["isr"].to_pylist() == [[1, 2]] * 50
    assert logs.unread.num_rows == 0


def test_a_line_that_is_cut_in_the_middle_of_what_is_looked_for(tmp_path):
    message = (
        "[2024-07-01 08:00:00,123] INFO [Partition t-{} broker=1] Shrinking ISR from 1,2 to 1 "
        "(kafka.cluster.Partition)"
    )
    lines = []
    for number in range(100, 160):
        line = message.format(number)
        for mark, piece in (("P", line[: number - 60]), ("F", line[number - 60 :])):
            lines.append(f"2024-07-01T08:00:00.123456789Z stdout {mark} {piece}\n")
    (tmp_path / "0.log").write_text("".join(lines))
    assert read_local(tmp_path).events["partition"].to_pylist() == list(range(100, 160))


def test_pieces_of_a_line_that_lie_in_two_blocks_of_the_file(tmp_path, monkeypatch):
    def line(number: int) -> str:
        return (
            f"[2024-07-01 08:00:00,123] INFO [Partition t-{number} broker=1] Shrinking ISR from "
            "1,2,3 to 1,2. Leader: (highWatermark: 90, endOffset: 120). Out of sync replicas: "
            "(brokerId: 3, endOffset: 90). (kafka.cluster.Partition)"
        )

    pieces = []
    for number in range(60):
        for mark, piece in (("P", line(number)[:80]), ("P", line(number)[80:150]),
                            ("F", line(number)[150:])):  # fmt: skip
            pieces.append(f"2024-07-01T08:00:00.123456789Z stdout {mark} {piece}\n")
    (tmp_path / "0.log").write_text("".join(pieces))
    for size in (1_000, 1_111, 4_321):
        monkeypatch.setattr(files, "READ_BYTES", size)
        logs = read_local(tmp_path)
        assert logs.events["partition"].to_pylist() == list(range(60))
        assert logs.files["lines"].to_pylist() == [180]
        assert logs.unread.num_rows == 0
