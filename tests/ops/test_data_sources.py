"""Spark reads logs by format: once as `read_local` does, and as they grow, each line once."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from isrlab.events import spark_schema
from isrlab.java import JavaMissingError, require_java
from isrlab_ops.logs import recordings
from isrlab_ops.logs.reader import LogDirError, data_sources, read_local
from isrlab_ops.logs.reader.data_sources import BrokerLogSource, MetadataLogSource, register


def line(second: int, broker: int = 1) -> str:
    return (
        f"[2024-07-01 10:{second // 60:02}:{second % 60:02},000] INFO [Partition t-0 "
        f"broker={broker}] Shrinking ISR from 1,2,3 to 1,2. Leader: (highWatermark: 90, endOffset: "
        f"{second}). Out of sync replicas: (brokerId: 3, endOffset: 90). (kafka.cluster.Partition)"
    )


INCIDENTS = recordings.folder("3.9").parent / "incidents"


class Follower:
    """A stream without Spark: it keeps positions as JSON and reads the rows between two of them."""

    def __init__(self, folder, source=BrokerLogSource):
        self.reader = source({"path": str(folder), "run": "r"}).streamReader(spark_schema())
        self.at, self.rows = self.reader.initialOffset(), []

    def ends_at(self):
        return json.loads(json.dumps(self.reader.latestOffset()))

    def between(self, start, end):
        for partition in self.reader.partitions(start, end):
            for batch in self.reader.read(partition):
                yield from batch.to_pylist()

    def turn(self):
        end = self.ends_at()
        self.rows += self.between(self.at, end)
        self.at = end


def seconds(rows):
    return sorted(row["log_end_offset"] for row in rows)


def append(path, *lines, end="\n"):
    with path.open("a") as file:
        file.write("\n".join(lines) + end)


def test_a_line_counts_when_its_end_is_there(tmp_path):
    follower, log = Follower(tmp_path), tmp_path / "server.log"
    follower.turn()
    append(log, line(1), line(2), end="")
    follower.turn()
    assert seconds(follower.rows) == [1]
    append(log, "", line(3))
    follower.turn()
    follower.turn()
    assert seconds(follower.rows) == [1, 2, 3]
    assert [dict(row["detail"])["line"] for row in follower.rows] == ["1", "2", "3"]


def renamed(log, old):
    log.rename(old)


def zipped(log, old):
    with gzip.open(f"{old}.gz", "wb") as file:
        file.write(log.read_bytes())
    log.unlink()


def truncated(log, old):
    shutil.copy(log, old)
    log.write_text("")


@pytest.mark.parametrize("rotate", [renamed, zipped, truncated])
def test_rotation_loses_nothing_and_repeats_nothing(tmp_path, rotate):
    log, follower = tmp_path / "server.log", Follower(tmp_path)
    append(log, line(1))
    follower.turn()
    append(log, line(2))  # not read yet when the file is rotated
    rotate(log, tmp_path / "server.log.1")
    append(log, line(3))
    follower.turn()
    append(log, line(4))
    rotate(log, tmp_path / "server.log.2")
    follower.turn()
    append(log, line(5))
    follower.turn()
    assert seconds(follower.rows) == [1, 2, 3, 4, 5]


def test_a_copy_under_way_is_not_read(tmp_path):
    log, follower = tmp_path / "server.log", Follower(tmp_path)
    append(log, line(1), line(2))
    follower.turn()
    (tmp_path / "server.log.1").write_text(line(1) + "\n")  # half of it
    append(log, line(3))
    follower.turn()
    assert seconds(follower.rows) == [1, 2, 3]


def test_two_files_that_begin_alike_are_two(tmp_path):
    follower, banner = Follower(tmp_path), "===> Launching\n" * 3
    for broker in (1, 2):
        (tmp_path / f"pod-{broker}.log").write_text(banner)
    follower.turn()
    for broker in (1, 2):
        append(tmp_path / f"pod-{broker}.log", line(broker, broker))
        follower.turn()
    assert [(row["broker"], row["log_end_offset"]) for row in follower.rows] == [(1, 1), (2, 2)]


def test_the_same_positions_give_the_same_rows_later(tmp_path):
    log, follower = tmp_path / "server.log", Follower(tmp_path)
    append(log, line(1))
    start = follower.ends_at()
    append(log, line(2), line(3))
    end = follower.ends_at()
    rows = [*follower.between(start, end)]
    append(log, line(4))
    zipped(log, tmp_path / "server.log.1")
    append(log, line(5))
    assert [*follower.between(start, end)] == rows and seconds(rows) == [2, 3]
    (tmp_path / "server.log.1.gz").unlink()
    with pytest.raises(LogDirError, match=r"'server\.log' is gone or was changed, and \d+ bytes"):
        [*follower.between(start, end)]


@pytest.mark.parametrize("rotate", [renamed, zipped, truncated])
def test_a_file_that_is_rotated_before_a_task_reads_it(tmp_path, rotate):
    log, follower = tmp_path / "server.log", Follower(tmp_path)
    append(log, line(1))
    follower.turn()
    append(log, line(2))
    tasks = follower.reader.partitions(follower.at, follower.ends_at())
    rotate(log, tmp_path / "server.log.1")
    append(log, line(3))
    rows = [
        row for task in tasks for batch in follower.reader.read(task) for row in batch.to_pylist()
    ]
    assert seconds(rows) == [2]
    for path in tmp_path.iterdir():
        path.unlink()
    append(log, line(3))
    with pytest.raises(LogDirError, match="was changed or removed while it was read"):
        [*follower.reader.read(tasks[0])]


@pytest.mark.parametrize("seed", range(8))
def test_a_recording_that_grows_gives_the_rows_of_the_whole(tmp_path, monkeypatch, seed):
    monkeypatch.setattr(data_sources, "TASK_BYTES", 50_000)  # several tasks
    draw, follower = random.Random(seed), Follower(tmp_path)
    whole = {p: p.read_bytes() for p in recordings.folder("3.9").rglob("*.log")}
    done = dict.fromkeys(whole, 0)
    while any(done[path] < len(data) for path, data in whole.items()):
        for path, data in whole.items():
            target = tmp_path / path.parent.name / path.name
            target.parent.mkdir(exist_ok=True)
            is_whole = data[: done[path]].endswith(b"\n")
            if target.exists() and is_whole and draw.random() < 0.3:
                rotate = draw.choice([renamed, zipped, truncated])
                rotate(target, target.with_name(f"{path.name}.{done[path]}"))
            with target.open("ab") as file:
                end = min(len(data), done[path] + draw.randrange(60_000))
                if draw.random() < 0.5:
                    end = data.index(b"\n", end - 1) + 1
                file.write(data[done[path] : end])
                done[path] = end
        follower.turn()
    folder = tmp_path / "whole"
    for path, data in whole.items():
        (folder / path.parent.name).mkdir(parents=True, exist_ok=True)
        (folder / path.parent.name / path.name).write_bytes(data)
    expected = read_local(folder, "r", "UTC").events.to_pylist()
    names = ("ts_ms", "kind", "topic", "partition", "isr", "log_end_offset")
    # Equal messages of the same ms are one event in two files (read.py), and two in one file.
    assert {str([r[n] for n in names]) for r in follower.rows} == {
        str([r[n] for n in names]) for r in expected
    }
    assert len(expected) - 1 <= len(follower.rows) <= len(expected)


@pytest.mark.parametrize("seed", range(4))
def test_a_metadata_log_that_grows_gives_the_rows_of_the_whole(tmp_path, seed):
    draw, name = random.Random(seed), "metadata/00000000000000000000.log"
    data = gzip.decompress((INCIDENTS / "a-412-follower-paused" / f"{name}.gz").read_bytes())
    log = tmp_path / "one" / name
    log.parent.mkdir(parents=True)
    follower = Follower(tmp_path / "one", MetadataLogSource)
    for end in [*sorted(draw.sample(range(1, len(data)), 5)), len(data)]:
        log.write_bytes(data[:end])  # at any byte, even inside a batch
        follower.turn()
    expected = read_local(tmp_path / "one", "r").events.to_pylist()
    assert sorted(map(str, follower.rows)) == sorted(map(str, expected)) and len(expected) > 10


# On Spark

STREAM = """
import sys
from isrlab import spark
from isrlab_ops.logs.reader import data_sources
folder, out = sys.argv[1:]
session = spark.session("local[2]")
data_sources.register(session)
logs = session.readStream.format("kafka-broker-logs").option("run", "r").load(folder)
rows = logs.writeStream.format("parquet").option("checkpointLocation", out + "/checkpoint")
query = rows.start(out + "/rows")
for _ in sys.stdin:
    query.processAllAvailable()
    for row in session.read.parquet(out + "/rows").collect():
        print(row.log_end_offset, row.detail["file"], row.detail["line"])
    print("end", flush=True)
"""


@pytest.fixture
def load(spark):
    register(spark)

    def load(folder, name="kafka-broker-logs", **options):
        return spark.read.format(name).options(**options).load(str(folder))

    return load


def as_dicts(table):
    return [row | {"detail": dict(row["detail"])} for row in table.to_pylist()]


@pytest.mark.parametrize("release", recordings.RUNS)
def test_a_folder_on_spark_is_what_it_is_without(load, release):
    events = load(recordings.folder(release))
    assert events.schema == spark_schema()
    expected = as_dicts(read_local(recordings.folder(release)).events)
    assert [row.asDict() for row in events.collect()] == expected


def test_options_choose_rows(load):
    folder = recordings.folder("3.9")
    whole = as_dicts(read_local(folder, "r", "UTC").events)
    times = {"since": "2026-11-20T10:38:00", "until": "2026-11-20T11:39:00+01:00"}
    since_ms, until_ms = 1_795_171_080_000, 1_795_171_140_000
    options = {"run": "r", "time_zone": "UTC", **times}
    found = load(folder, topic="pay*", **options)
    expected = [row for row in whole if since_ms <= row["ts_ms"] < until_ms]
    expected = [row for row in expected if row["topic"] == "payments"]
    assert [row.asDict() for row in found.collect()] == expected and len(expected) > 10


def test_a_layout_too_rare_to_be_found_can_be_given(load, tmp_path):
    rare = "I " + line(2).replace(
        "[2024-07-01 10:00:02,000] INFO", "2024-07-01 10:00:02,000 | main |"
    )
    usual = [line(1).replace("t-0", f"t-{n}") for n in range(150)]
    append(tmp_path / "server.log", *usual, rare)
    # The message before it seems to contain another line, so this line is not trusted.
    assert load(tmp_path).count() == 149
    assert load(tmp_path, layout=rare).count() == 151


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tpoic": "t"}, f"unknown option 'tpoic'; valid: {', '.join(data_sources.OPTIONS)}"),
        ({"table": "rows"}, "table 'rows'; valid: events, unread, files"),
        ({"since": "monday"}, "'monday' is not a time; write 2026-11-20T10:38:00"),
        ({"time_zone": "Mars"}, "time_zone 'Mars' is unknown"),
        ({"layout": "zzz"}, "layout 'zzz': give a line of Kafka"),
    ],
)
def test_a_wrong_option_is_named_with_the_valid_ones(load, tmp_path, options, message):
    with pytest.raises(Exception) as error:
        load(tmp_path, **options)
    assert message in str(error.value)


class Streaming:
    """A query in its own process, with its own JVM."""

    def __init__(self, folder, out):
        self.process = subprocess.Popen(
            [sys.executable, "-c", STREAM, str(folder), str(out)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def rows(self):
        """All rows that the query wrote, once it has read everything."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return [text.split() for text in iter(self.process.stdout.readline, "end\n") if text]

    def kill(self):
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def in_the_middle(out):
    """Whether a micro-batch has ended, and another one is running."""
    batches = [{p.name for p in (out / "checkpoint" / name).glob("[0-9]*")} for name in
               ("offsets", "commits")]  # fmt: skip
    return batches[0] - batches[1] and batches[1]


def test_a_stream_that_is_killed_goes_on_with_each_line_once(tmp_path):
    try:
        require_java()
    except JavaMissingError as error:
        pytest.skip(str(error))
    folder, out, count = tmp_path / "logs", tmp_path / "out", 0
    log = folder / "server.log"
    folder.mkdir()
    stream, late = Streaming(folder, out), time.monotonic() + 300
    while not in_the_middle(out) and time.monotonic() < late:
        count += 1
        append(log, line(count))
        if count % 20 == 0:
            renamed(log, folder / f"server.log.{count}")
        time.sleep(0.1)
    stream.kill()
    assert in_the_middle(out)
    count += 1
    append(log, line(count))
    zipped(log, folder / f"server.log.{count}")  # while no query runs
    stream = Streaming(folder, out)
    try:
        rows = stream.rows()
    finally:
        stream.kill()
    assert sorted(int(end) for end, *_ in rows) == [*range(1, count + 1)]
