"""A folder of logs becomes events, whatever is in it; what cannot be read is counted and shown."""

from __future__ import annotations

import gzip
import os
import random

import pytest

from isrlab.events.schema import SCHEMA
from isrlab_ops.logs import reader, recordings
from isrlab_ops.logs.reader import files
from isrlab_ops.logs.reader.data_sources import Logs
from isrlab_ops.logs.reader.one_file import UNREAD_KEPT

STARTED = "[2024-07-01 10:00:00,000] INFO [KafkaServer id=1] started (kafka.server.KafkaServer)"
SHRINK = (
    "[2024-07-01 10:00:01,000] INFO [Partition t-0 broker=1] Shrinking ISR from 1,2 to 1. Leader: "
    "(highWatermark: 90, endOffset: 120). Out of sync replicas: (brokerId: 2, endOffset: 90). "
    "(kafka.cluster.Partition)"
)
COMMIT = "[2024-07-01 10:00:02,000] INFO [Partition t-0 broker=1] ISR updated to 1 and version "
COMMIT += "updated to [5] (kafka.cluster.Partition)"
CUT = "[2024-07-01 10:00:03,000] INFO [Log partition=t-0, dir=/d] Truncating to offset 7 "
CUT += "(kafka.log.Log)"
GOOD = "\n".join([STARTED, SHRINK, COMMIT, CUT]) + "\n"
LATER = GOOD.replace("10:00:0", "11:00:0")


@pytest.fixture
def log_dir(tmp_path):
    (tmp_path / "server.log").write_text(GOOD)
    return tmp_path


def kinds(logs):
    return logs.events["kind"].to_pylist()


def reasons(logs):
    return {(row["file"], row["line"]): row["reason"] for row in logs.unread.to_pylist()}


def statuses(logs):
    return {row["file"]: row["status"] for row in logs.files.to_pylist()}


def test_events_have_the_schema_and_the_order_of_time(log_dir):
    logs = reader.read_local(log_dir / "server.log", run="r")  # one file may be given
    rows = logs.events.to_pylist()
    assert logs.events.schema == SCHEMA
    assert [row["kind"] for row in rows] == ["restart", "isr_shrink", "isr_commit", "truncate"]
    assert {row["run"] for row in rows} == {"r"}
    assert {"line": "2", "out_of_sync": "2"}.items() <= dict(rows[1]["detail"]).items()
    assert rows[3]["broker"] == 1  # the line names none: the other lines of the file do
    assert logs.unread.num_rows == 0


@pytest.mark.parametrize(("release", "shrinks", "outages"), [("3.9", 24, 5), ("4.1", 15, 2)])
def test_recordings_are_read_as_their_readme_says(release, shrinks, outages):
    kinds = recordings.events(release)["kind"].to_pylist()
    assert kinds.count("isr_shrink") == shrinks
    assert len(recordings.outages(release)) == outages
    assert len(recordings.outages(release, "SIGKILL")) == 1
    assert all(away.start_ms < away.end_ms for away in recordings.outages(release))


def test_an_unknown_recording():
    with pytest.raises(ValueError, match=r"no recording of Kafka '3\.8'; there are: 3\.9, 4\.1"):
        recordings.events("3.8")


def test_a_broker_that_cannot_be_known_is_null(tmp_path):
    lines = [STARTED, STARTED.replace("id=1", "id=2"), CUT]
    (tmp_path / "server.log").write_text("\n".join(lines))
    assert reader.read_local(tmp_path).events["broker"].to_pylist() == [1, 2, None]


def test_rotated_zipped_and_nested_logs_of_several_brokers(log_dir):
    for broker in (1, 2):
        folder = log_dir / f"broker-{broker}"
        folder.mkdir()
        own = GOOD.replace("=1", f"=1{broker}")
        with gzip.open(folder / "server.log.2024-07-01-09.gz", "wb") as file:
            file.write(own.encode())
        (folder / "controller.log.1").write_text(
            own.replace("2024", "2023").split("\n")[0] + "\r\n"
        )
    logs = reader.read_local(log_dir)
    assert logs.events.num_rows == 4 + 2 * (4 + 1)
    assert set(statuses(logs).values()) == {"read"}


def test_files_that_overlap_count_once(log_dir):
    (log_dir / "server.log").write_text(GOOD.replace(COMMIT, f"{COMMIT}\n{COMMIT}"))  # twice
    whole = reader.read_local(log_dir).events.to_pylist()
    (log_dir / "server.log.1").write_text("\n".join([STARTED, SHRINK, COMMIT, COMMIT]))
    assert reader.read_local(log_dir).events.to_pylist() == whole
    logs = reader.read_local(log_dir)
    assert len(kinds(logs)) == len(whole) == 5
    (log_dir / "server.log.1").write_text(GOOD.replace("=1", "=2"))  # another broker's
    assert reader.read_local(log_dir).events.num_rows == 9


def test_a_line_that_names_several_brokers_is_an_event_for_each(tmp_path):
    line = "[2024-07-01 10:00:00,000] INFO [Controller id=3] Broker failure callback for 1,2 "
    line += "(kafka.controller.KafkaController)\n"
    (tmp_path / "controller.log").write_text(line)
    rows = reader.read_local(tmp_path).events.select(["kind", "broker", "replica"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [("crash", 3, 1), ("crash", 3, 2)]


def test_a_cut_archive_gives_the_lines_before_the_cut(tmp_path):
    noise = random.Random(0).randbytes(200_000).hex()
    whole = gzip.compress((GOOD + noise).encode())
    (tmp_path / "server.log.gz").write_bytes(whole[: len(whole) // 2])
    logs = reader.read_local(tmp_path)
    assert len(kinds(logs)) == 4
    assert [r for r in reasons(logs).values() if "truncated gzip" in r]
    assert "truncated gzip" in statuses(logs)["server.log.gz"]


def test_a_damaged_archive_is_counted(log_dir):
    (log_dir / "server.log.gz").write_bytes(b"\x1f\x8b" + b"garbage" * 100)
    (log_dir / "server.log.1.gz").write_bytes(gzip.compress(LATER.encode()) + b"tail")
    logs = reader.read_local(log_dir)
    assert len(kinds(logs)) == 8
    assert {r.split(":")[0] for r in reasons(logs).values()} == {"broken off"}


@pytest.mark.parametrize("line", [b"\n", b"a\n"])
def test_an_archive_that_is_a_bomb_is_broken_off(tmp_path, line):
    path = tmp_path / "server.log.gz"
    path.write_bytes(gzip.compress(line * 10_000_000))
    logs = reader.read_local(path)
    (file,), (reason,) = logs.files.to_pylist(), reasons(logs).values()
    assert file["lines"] < 6_000_000
    assert "more than 500 times the size of the archive" in file["status"] == reason


def test_empty_lines_are_counted(tmp_path):
    (tmp_path / "server.log").write_bytes(b"\n" * 600_000 + GOOD.encode() + b"\n" * 600_000)
    logs = reader.read_local(tmp_path)
    details = map(dict, logs.events["detail"].to_pylist())
    assert [d["line"] for d in details] == ["600001", "600002", "600003", "600004"]
    assert logs.files["lines"].to_pylist() == [1_200_004]


def test_binary_garbage_is_counted_and_shown_not_fatal(log_dir):
    rest = b"\xff\xfe ISR \xff\n\x01\x02\n"
    (log_dir / "server.log.2").write_bytes(b"\0" * 5000 + LATER.encode() + rest)
    (log_dir / "00000000000000000000.log").write_bytes(b"\0\1\2" * 5000)
    logs = reader.read_local(log_dir)
    assert len(kinds(logs)) == 8
    what = {reason for (file, _), reason in reasons(logs).items() if file == "server.log.2"}
    assert what == {"a hole of zero bytes", "bytes that are not UTF-8", "bytes that are not text"}
    assert statuses(logs)["00000000000000000000.log"] == "skipped: binary, not text"


def test_much_garbage_of_one_reason_is_counted_beyond_the_first(log_dir):
    (log_dir / "server.log.3").write_bytes(b"\x01 bad\n" * 1000)
    unread = reader.read_local(log_dir).unread
    assert unread.num_rows == UNREAD_KEPT + 1
    assert sum(unread["lines"].to_pylist()) == 1000


def test_a_line_without_end_is_cut(log_dir):
    (log_dir / "server.log.4").write_bytes((SHRINK + " ").encode() + b"x" * 3_000_000)
    logs = reader.read_local(log_dir)
    assert any("longer than" in reason for reason in reasons(logs).values())
    assert len(kinds(logs)) == 4


def test_a_line_whose_isr_text_lies_behind_the_cut_is_counted(tmp_path):
    (tmp_path / "server.log").write_text(f"{GOOD}{STARTED[:26]}INFO {'x' * 70_000}{SHRINK}\n")
    unread = reasons(reader.read_local(tmp_path))
    why = "longer than 65,536 bytes; only its beginning was read"
    assert unread == {("server.log", 5): why}


DECIDED = "[2024-07-01 10:00:04,000] INFO [ReplicaFetcher replicaId=1, leaderId=2, fetcherId=0] "
DECIDED += "Truncating partition t-0 to local high watermark 7 (kafka.server.ReplicaFetcherThread)"
NO_EFFECT = (
    "[2024-07-01 10:00:04,001] INFO [Log partition=t-0, dir=K:\\k 2] Truncating to 7 has no "
)
NO_EFFECT += "effect as the largest offset in the log is 6 (kafka.log.Log)"
OLD = "[2017-07-01 10:00:04,001] INFO Truncating log t-0 to offset 7. (kafka.log.Log)"
OLD_NO_EFFECT = "[2017-07-01 10:00:04,001] INFO Truncating t-0 to 7 has no effect as the largest "
OLD_NO_EFFECT += "offset in the log is 6. (kafka.log.Log)"


@pytest.mark.parametrize(
    "happened, lines",
    [
        ([], [DECIDED, NO_EFFECT]),
        ([1, 2], [DECIDED, CUT, DECIDED, NO_EFFECT]),
        ([1, 3], [DECIDED, NO_EFFECT.replace("t-0", "t-1"), DECIDED]),
        ([1], [DECIDED, NO_EFFECT.replace("to 7", "to 8")]),
        ([1], [DECIDED, *["x"] * 500, NO_EFFECT]),
        ([], [OLD, OLD_NO_EFFECT]),
    ],
)
def test_a_truncation_that_had_no_effect_is_no_event(tmp_path, happened, lines):
    (tmp_path / "server.log").write_text("\n".join(lines))
    told = reader.read_local(tmp_path).events["detail"].to_pylist()
    assert sorted(int(dict(detail)["line"]) for detail in told) == happened


def test_links_that_lead_out_are_not_followed(log_dir, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (other / "server.log").write_text(GOOD)
    os.symlink(other, log_dir / "linked")
    os.symlink(other / "server.log", log_dir / "server.log.9")
    logs = reader.read_local(log_dir)
    assert len(kinds(logs)) == 4
    links = {"not read: a link to a folder", "not read: a link that leads out of log_dir"}
    assert set(statuses(logs).values()) == {"read", *links}


NUMBERS = [STARTED.replace("=1", "=@"), SHRINK.replace("t-0", "t-@"), SHRINK.replace("1,2", "1,@")]
NUMBERS += [SHRINK.replace("broker=1", "broker=@"), SHRINK.replace("t: 120", "t: @")]
NUMBERS += [COMMIT.replace("[5]", "[@]"), CUT.replace("offset 7", "offset @")]
NUMBERS += [
    "[2024-07-01 10:00:04,000] INFO [Controller id=1] Broker failure callback for 2,@ "
    "(kafka.controller.KafkaController)",
    "[2024-07-01 10:00:04,000] TRACE [Controller id=1 epoch=5] Changed partition t-0 from "
    "OfflinePartition to OnlinePartition with state LeaderAndIsr(leader=@, leaderEpoch=3, "
    "isr=List(2), zkVersion=4) (state.change.logger)",
]


@pytest.mark.parametrize("digits", [str(2**63), "9" * 5000])
def test_a_number_that_kafka_does_not_have_is_counted(tmp_path, digits):
    text = "\n".join(line.replace("@", digits) for line in NUMBERS)
    (tmp_path / "server.log").write_text(f"{text}\n{SHRINK}\n")
    logs = reader.read_local(tmp_path)
    why = reasons(logs).values()
    assert len(why) == len(NUMBERS)
    assert all(reason.startswith("no broker prints this: a number too") for reason in why)
    assert kinds(logs) == ["isr_shrink"]


@pytest.mark.parametrize("names", [["server.log.1"], ["server.log.1", "server.log.2"]])
def test_a_link_that_leads_to_itself_is_shown(log_dir, names):
    for name, target in zip(names, [*names[1:], names[0]], strict=True):
        os.symlink(log_dir / target, log_dir / name)
    skipped = {source.name: source.skipped for source in files.find(log_dir)}
    assert skipped == {"server.log": None} | dict.fromkeys(
        names, "not read: a link that leads to itself"
    )
    with pytest.raises(reader.LogDirError, match="cannot be read"):
        files.find(log_dir / names[0])


def test_topic_names_stay_as_they_are(tmp_path):
    topic = "$x^2$<b>&_a.b-c"
    (tmp_path / "server.log").write_text(SHRINK.replace("t-0", f"{topic}-0"))
    assert reader.read_local(tmp_path).events["topic"].to_pylist() == [topic]


@pytest.mark.parametrize("given", ["", "/nonexistent/logs", "bad\0path"])
def test_a_log_dir_that_is_not_there(given):
    for read in (reader.read_local, lambda path: Logs({"path": path}, of_metadata=False)):
        with pytest.raises(reader.LogDirError, match=r"(?s)log_dir.*Give a folder"):
            read(given)


def test_a_log_dir_without_logs_says_what_is_in_it(tmp_path):
    for what in ("it is empty", r"photo\.jpg: not named like a log, and begins"):
        with pytest.raises(reader.LogDirError, match=what):
            files.find(tmp_path)
        (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_log_dir(log_dir):
    log_dir.chmod(0)
    try:
        with pytest.raises(reader.LogDirError, match="cannot be read"):
            files.find(log_dir)
    finally:
        log_dir.chmod(0o755)


def test_an_unknown_zone_is_shown_in_a_notebook_without_a_traceback(log_dir):
    with pytest.raises(reader.LogDirError) as error:
        reader.read_local(log_dir, time_zone="Mars/Olympus")
    (shown,) = error.value._render_traceback_()
    assert shown.startswith("LogDirError: time_zone 'Mars/Olympus' is unknown")


def test_lines_of_a_file_are_numbered_and_bounded(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"one\r\n\ntwo" + b"x" * 200_000)
    lines = {
        block.first + n: (block.line(n), n in block.cut)
        for block in files.blocks(str(path))
        for n in range(block.size)
    }
    assert lines[1] == (b"one", False) and lines[2] == (b"", False)
    assert len(lines[3][0]) == files.MAX_LINE_BYTES and lines[3][1]
