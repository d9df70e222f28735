"""The code that a page runs in a browser needs only Python and msgspec: no numpy, no Arrow.

Each test runs in a process in which no other package can be imported.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from isrlab.events.wording import printable
from isrlab_book.page import dropped
from isrlab_book.page.dropped import DropError, DroppedFiles
from isrlab_ops.check.cluster import of_text
from isrlab_ops.logs.incidents import look, tell, terminal
from isrlab_ops.logs.incidents.answer import answer_about
from isrlab_ops.logs.reader import hits
from isrlab_ops.logs.reader.files import blocks
from isrlab_ops.logs.reader.metadata import checksum

ROOT = Path(__file__).parents[2]
# The exhaustive search holds its states in arrays; no page runs it.
WITH_ARRAYS = {"breadth_first", "everything", "expanding", "options"}

NO_ZONES = {"PYTHONTZPATH": ""}

REFUSE = """
import sys
from importlib import import_module
from pathlib import Path

ALLOWED = {"isrlab", "isrlab_ops", "isrlab_book", "msgspec", *sys.stdlib_module_names}
import zoneinfo  # which imports a module with a name of this machine

class OnlyPython:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in ALLOWED:
            raise ImportError(f"a page in a browser has no {name}")

sys.meta_path.insert(0, OnlyPython())
"""
IMPORT = "for name in sys.argv[1:]: import_module(name)"
PLAY = """
from isrlab_book import exercise
from isrlab_book.page.playing import challenges
from isrlab.world import actions, exploring, scenario
for path in sorted(scenario.LIBRARY.glob("*.txt")):
    run = scenario.play(path.read_text())
    for block in run.blocks:
        assert block.printed.rstrip() == block.expected.rstrip(), path
explored = exploring.Exploration(path.read_text())
assert explored.frames(explored.versions[0], explored.current)
assert actions.enabled(explored.run(explored.versions[0]))
for each in challenges():
    marks, _ = exercise.mark(each, each.sections["solution"])
    assert all(mark.is_met for mark in marks), each.name
"""

ANSWER = """
import json
from itertools import pairwise
from isrlab_book.page.dropped import DroppedFiles
for folder in sys.argv[1:]:
    shares, doing = [], []
    with DroppedFiles() as dropped:
        for path in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
            dropped.feed(path.relative_to(folder).as_posix(), path.read_bytes())
        answer = dropped.finish(lambda share, now: (shares.append(share), doing.append(now)))
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] == 1
    stages = ["reading lines", "putting each partition", "finding what happened", "done"]
    assert all(map(str.startswith, dict.fromkeys(doing), stages)) and len({*doing}) == 4
    assert max(after - share for share, after in pairwise(shares)) < 0.6
    print(json.dumps(answer._asdict()))
"""


def only_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command, env = [sys.executable, "-c", REFUSE + code, *arguments], os.environ | NO_ZONES
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env)


def modules(folder: str) -> list[str]:
    names = sorted(path.stem for path in (ROOT / "isrlab" / folder).glob("*.py"))
    return [f"isrlab.{folder}.{name}" for name in names if name not in WITH_ARRAYS]


@pytest.mark.parametrize("name", ["numpy", "pyarrow", "matplotlib", "pyspark", "numba", "click"])
def test_other_packages_are_refused(name):
    assert f"has no {name}" in only_python(IMPORT, name).stderr


def test_engine_world_and_the_grammar_of_lines_need_only_python():
    names = [*modules("engine"), *modules("world"), "isrlab_ops.logs.reader.lines"]
    assert len(names) > 30
    assert only_python(IMPORT, *names).stderr == ""


def test_every_scenario_and_exercise_plays_with_only_python():
    assert only_python(PLAY).stderr == ""


# Dropped logs

RECORDINGS = sorted(p.parent for p in (ROOT / "data/recordings/incidents").glob("*/logs"))
PLAIN = ROOT / "data" / "recordings" / "kafka-4.1"
DESCRIBED = (
    "Topic: orders\tTopicId: 0x\tPartitionCount: 1\tReplicationFactor: 3\tConfigs: "
    "min.insync.replicas=2\n\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2\n"
)


def answers(*folders: Path) -> list[dict]:
    made = only_python(ANSWER, *map(str, folders))
    assert made.stderr == ""
    return [json.loads(line) for line in made.stdout.splitlines()]


def test_dropped_recordings_are_answered_as_the_command_does():
    folders = [path / "logs" for path in RECORDINGS]
    assert len(folders) > 40
    for folder, dropped_answer in zip(folders, answers(*folders), strict=True):
        findings = look.look(folder)
        answer = answer_about(findings)
        lines = [*terminal.first_lines(answer, 100)]
        lines += terminal.below(answer, findings.faults, 100, full=False)
        assert dropped_answer["text"] == re.sub(r"\x1b\[\d+m", "", "\n".join(lines))
        told = json.loads(json.dumps(tell.as_dict(findings, answer)))
        for incident in (*told["incidents"], *dropped_answer["data"]["logs"]["incidents"]):
            incident["partitions"] = [key[1:] for key in incident["partitions"]]  # not the folder
        assert dropped_answer["data"]["logs"] == told
        assert dropped_answer["status"] == findings.status
        assert dropped_answer["title"] == answer.title


def test_a_dropped_metadata_log_is_answered_by_both_commands():
    (answer,) = answers(RECORDINGS[-1].parent / "a-412-follower-paused" / "metadata")
    assert answer["data"].keys() == {"logs", "check"}
    assert "metadata log of 2026-" in answer["data"]["check"]["rows"]["Read"]
    assert answer["data"]["logs"]["partitions"] > 3
    (doubt,) = answer["data"]["logs"]["doubts"]  # it left and came back, and its log is not here
    assert doubt.startswith("no log of 2 is here")


@pytest.mark.parametrize("code", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_dropped_description_is_checked(code):
    assert of_text(DESCRIBED).partitions
    with DroppedFiles() as files:
        for byte in DESCRIBED.encode(code):
            files.feed("describe.txt", bytes([byte]))
        answer = files.finish()
    assert answer.status == 1 and answer.title == "BLOCKED"
    assert "orders-0, at min ISR (ISR 1,2 of 1,2,3, min 2)" in answer.text


def test_the_same_lines_are_found_with_and_without_re2():
    paths = [path for path in PLAIN.rglob("*.log") if path.is_file()]
    recorded = [path for folder in RECORDINGS[::5] for path in folder.rglob("*.log.gz")]
    assert hits.HAS_RE2 and len(paths) > 5 and len(recorded) > 50
    for path in (*paths, *recorded):
        for block in blocks(str(path)):
            assert sorted(hits._by_words(block)) == hits._by_re2(block), path


def test_checksums_by_table_are_those_of_the_library():
    for size in (0, 1, 2, 3, 1_000, 1_001):
        data = os.urandom(size)
        assert checksum.by_table(data) == checksum.crc32c(data)


# Long logs


def repeated(log: bytes, times: int) -> bytes:
    """A recorded log, repeated with dates a day later each time."""
    days = [f"[2026-12-{1 + day:02}".encode() for day in range(times)]
    return b"".join(re.sub(rb"(?m)^\[[\d-]{10}", day, log) for day in days)


def test_what_is_known_of_a_repeated_log_is_no_less_than_nothing():
    folder = ROOT / "data/recordings/incidents/412-cut-off/logs/broker-1"
    log = gzip.decompress((folder / "server.log.gz").read_bytes())
    text = finished(**{"server.log": repeated(log, 4)}).text
    assert "in 8 partitions" in text and "; 4 are known" in " ".join(text.split())


# Hostile files


def finished(**contents: bytes) -> dropped.DroppedAnswer:
    with DroppedFiles() as files:
        for name, data in contents.items():
            files.feed(name, data)
        return files.finish()


def zipped(path: Path, **contents: bytes) -> bytes:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return path.read_bytes()


def test_archives_are_read_within_limits(tmp_path, monkeypatch):
    log = next(PLAIN.rglob("server.log")).read_bytes()
    plain, packed = (finished(**{"server.log": data}).title for data in (log, gzip.compress(log)))
    assert plain == packed == finished(**{"a.zip": zipped(tmp_path / "a", a=log)}).title
    monkeypatch.setattr(dropped, "MOST_BYTES", len(log))
    for bomb in (gzip.compress(log * 2), zipped(tmp_path / "b", **{"server.log": log * 2})):
        with pytest.raises(DropError, match="unpacked files are larger than"):
            finished(bomb=bomb)
    with pytest.raises(DropError, match="files are larger than"):
        finished(**{"server.log": log, "other.log": b"x"})
    monkeypatch.setattr(dropped, "MOST_FILES", 2)
    with pytest.raises(DropError, match="more than 2 files"):
        finished(many=zipped(tmp_path / "c", a=b"", b=b"", c=b""))
    with pytest.raises(DropError, match="more than 2 files"):
        finished(a=b"", b=b"", c=b"")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "files are empty"),
        (b"\x89PNG\r\n\x1a\n" + bytes(200), "no readable log file"),
        (
            b"Topic: orders Partition: 0 Leader: 1 Replicas: 1,2 Isr: 1,2\nTopic: or",
            "cannot be read",
        ),
    ],
)
def test_what_is_no_log_is_refused_in_words(data, why):
    with pytest.raises(DropError, match=why) as refused:
        finished(file=data)
    assert "/tmp" not in str(refused.value)


@pytest.mark.parametrize(
    "name", ["../../x.log", "/etc/passwd", "a/..", "", "\x1b[2J<b>.log", "a" * 9_999]
)
def test_names_cannot_leave_the_folder(name):
    log = next(PLAIN.rglob("server.log")).read_bytes()
    with DroppedFiles() as files:
        for each in (name, f"{name}/x", "a", "a/b"):
            files.feed(each, log)
        paths = {path.resolve() for path in files._files.values()}
        assert len(paths) == 4 and all(path.is_relative_to(files._root) for path in paths)
        text = files.finish().text
    assert printable(text.replace("\n", "")) == text.replace("\n", "")
