"""Growing logs: each line is read once, whatever happens to its file; incidents are reported."""

from __future__ import annotations

import gzip
import shutil
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from isrlab.__main__ import main
from isrlab_ops.logs import recordings
from isrlab_ops.logs.incidents import command
from isrlab_ops.logs.incidents.watch import rehearse, watch
from isrlab_ops.logs.reader import LogDirError, growing, read_local
from isrlab_ops.logs.reader.growing import follow
from isrlab_ops.logs.reader.one_file import LogFile

RECORDED = Path(__file__).parents[2] / "data" / "recordings" / "incidents"
PAUSED = RECORDED / "e-282-follower-paused" / "logs"
KILLED = RECORDED / "b-412-follower-killed" / "logs"


def told(logs) -> list[tuple]:
    """The content of events, without the place of their line."""
    rows = logs.events.drop_columns(["run", "detail"]).to_pylist()
    return sorted(repr(row) for row in rows)


@pytest.fixture
def log(tmp_path):
    """A log to write, and all lines that it will get."""
    (tmp_path / "logs").mkdir()
    text = gzip.decompress((PAUSED / "broker-1" / "server.log.gz").read_bytes())
    return tmp_path / "logs" / "server.log", text


def whole(text: bytes, folder: Path) -> list[tuple]:
    folder.mkdir()
    (folder / "server.log").write_bytes(text)
    return told(read_local(folder))


def test_lines_count_once_and_when_they_are_whole(log, tmp_path):
    path, text = log
    path.touch()
    logs, last = follow(path.parent), None
    for start in range(0, len(text), 7_001):
        with path.open("ab") as file:
            file.write(text[start : start + 7_001])
        last = next(logs)
        assert next(logs) is None
    assert told(last) == whole(text, tmp_path / "whole")
    assert last.files["lines"].to_pylist() == [text.count(b"\n")]


@pytest.mark.parametrize("rotation", ["renamed", "emptied", "packed", "deleted"])
def test_files_that_are_rotated(log, tmp_path, rotation):
    path, text = log
    middle = text.index(b"\n", len(text) // 2) + 1
    path.write_bytes(text[:middle])
    logs = follow(path.parent)
    assert next(logs).events.num_rows
    if rotation == "packed":
        path.with_name("server.log.1.gz").write_bytes(gzip.compress(text[:middle]))
    elif rotation == "renamed":
        path.rename(path.with_name("server.log.1"))
    elif rotation == "emptied":
        path.with_name("server.log.1").write_bytes(text[:middle])
    if rotation in ("packed", "deleted"):
        path.unlink()
    path.write_bytes(text[middle:])
    assert told(next(logs)) == whole(text, tmp_path / "whole")
    assert next(logs) is None


def test_a_file_that_is_rotated_while_another_is_read(log, tmp_path, monkeypatch):
    path, text = log
    other = path.with_name("aaa.log")
    other.write_text(
        "[2026-11-20 10:00:00,000] INFO Registered kafka:type=kafka.Log4jController MBean (kafka)\n"
    )
    middle = text.index(b"\n", len(text) // 2) + 1
    path.write_bytes(text[:middle])

    def read(log):
        if path.stat().st_size == middle:
            path.rename(path.with_name("server.log.1"))
            path.write_bytes(text[middle:])
        LogFile.read(log)

    monkeypatch.setattr(growing, "LogFile", type("Reading", (LogFile,), {"read": read}))
    logs = follow(path.parent)
    next(logs)
    last = next(logs)
    other.unlink()
    assert told(last) == whole(text, tmp_path / "whole")
    assert last.unread.num_rows == 0


def test_a_folder_that_is_empty_yet_and_one_that_is_not(tmp_path):
    logs = follow(tmp_path)
    assert next(logs) is None or not logs
    with pytest.raises(LogDirError, match="does not exist"):
        next(follow(tmp_path / "nowhere"))
    with pytest.raises(LogDirError, match="Mars"):
        next(follow(tmp_path, time_zone="Mars/Base"))


def test_the_metadata_log_is_followed_too(tmp_path):
    packed = KILLED.parent / "metadata" / "00000000000000000000.log.gz"
    data, path = gzip.decompress(packed.read_bytes()), tmp_path / "00000000000000000000.log"
    path.write_bytes(data[: len(data) // 2])
    logs = follow(tmp_path)
    before = next(logs).events.num_rows
    path.write_bytes(data)
    assert before < next(logs).events.num_rows == read_local(tmp_path).events.num_rows


def test_an_incident_is_told_when_it_opens_and_when_it_is_over():
    (opened_ms, opened), (over_ms, over) = rehearse(PAUSED, 2_000)
    assert (opened.is_over, over.is_over) == (False, True)
    assert over.blamed == (3,)
    assert opened_ms - opened.start_ms <= 2_000
    assert over.end_ms <= over_ms < over.end_ms + 6_000  # it is over when it stays so


def test_an_incident_keeps_its_number_as_earlier_ones_become_known(tmp_path):
    watched, brokers = watch(tmp_path), defaultdict(set)
    for _ in recordings.replayed(recordings.folder("3.9"), tmp_path, 4_000):
        for number, each in next(watched)[1].items():
            brokers[number].add(each.out)
    assert brokers == {1: {(1,)}, 2: {(1,)}, 3: {(), (3,)}, 4: {(2,)}}


def test_the_command(tmp_path, monkeypatch):
    steps = recordings.replayed(KILLED, tmp_path, 5_000)

    def sleep(_: float) -> None:
        if next(steps, None) is None:
            raise KeyboardInterrupt

    monkeypatch.setattr(command, "time", SimpleNamespace(sleep=sleep))  # not for other threads
    result = CliRunner().invoke(main, ["logs", str(tmp_path), "--follow"])
    assert result.exit_code == 1
    assert result.output.count("\nOPEN\n") == 1
    assert "broker 2" in result.output.partition("OPEN")[2]
    assert CliRunner().invoke(main, ["logs", "-", "--follow", "1"]).exit_code == 2


def test_a_watch_says_when_files_vanish_and_when_nothing_grows(tmp_path, monkeypatch):
    for number in (1, 2):
        path = PAUSED / f"broker-{number}" / "server.log.gz"
        (tmp_path / f"broker-{number}.log").write_bytes(gzip.decompress(path.read_bytes()))
    looks = iter(range(7))

    def sleep(_: float) -> None:
        match next(looks, None):
            case 1:
                (tmp_path / "broker-2.log").unlink()
            case 5:
                with (tmp_path / "broker-1.log").open("a") as file:
                    file.write("[2026-11-21 12:25:00,000] INFO [Broker id=1] Stopped (kafka)\n")
            case None:
                raise KeyboardInterrupt

    monkeypatch.setattr(command, "time", SimpleNamespace(sleep=sleep))
    output = CliRunner().invoke(main, ["logs", str(tmp_path), "--follow", "30"]).output
    assert output.count("GONE: broker-2.log is no longer there") == 1
    assert output.count("QUIET: no file has grown for 1 min") == 1
    assert output.index("QUIET") < output.index("GROWING: lines arrive again")


def test_a_folder_that_vanishes_ends_the_watch(tmp_path, monkeypatch):
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "server.log").write_bytes(
        gzip.decompress((PAUSED / "broker-1" / "server.log.gz").read_bytes())
    )
    monkeypatch.setattr(command, "time", SimpleNamespace(sleep=lambda _: shutil.rmtree(folder)))
    result = CliRunner().invoke(main, ["logs", str(folder), "--follow", "1"])
    assert result.exit_code == 2
    assert "does not exist" in result.output
