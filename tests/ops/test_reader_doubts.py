"""What a reader of logs cannot vouch for: lines that are missing, forged, or of another cluster."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from isrlab_ops.logs.incidents.look import CALM, NOT_KNOWN, look
from isrlab_ops.logs.reader import read_local

RECORDED = Path(__file__).parents[2] / "data" / "recordings" / "incidents"
OTHER = RECORDED / "e-282-follower-paused" / "logs"
HEAD = "[2026-11-20 12:34:50,000] INFO "
END = " (kafka.cluster.Partition)"


@pytest.fixture
def folder(tmp_path):
    """Logs of an incident that is over, unpacked."""
    for path in OTHER.rglob("*.log.gz"):
        target = tmp_path / "logs" / path.parent.name / path.stem
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(gzip.decompress(path.read_bytes()))
    return tmp_path / "logs"


def test_logs_that_are_whole_raise_no_doubt(folder):
    assert look(folder).doubts == () and look(folder).status == CALM


@pytest.mark.parametrize("kept", ["controller.log", "state-change.log"])
def test_leaders_without_their_server_log(folder, kept):
    for path in folder.rglob("*.log"):
        if path.name != kept:
            path.unlink()
    assert look(folder).status != CALM


def test_leaders_whose_server_log_has_only_warnings(folder):
    for path in folder.rglob("server.log"):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if "] INFO " not in line))
    findings = look(folder)
    assert findings.status != CALM
    assert any("no server.log with lines of INFO" in doubt for doubt in findings.doubts)


def test_two_clusters_one_after_the_other(folder):
    other = folder / "later"
    shutil.copytree(folder, other)
    for path in other.rglob("*.log"):
        text = path.read_text().replace("[2026-11-2", "[2026-12-2")
        path.write_text(text.replace("Cluster ID = ", "Cluster ID = another-"))
    findings = look(folder)
    assert findings.status != CALM
    assert any(doubt.startswith("two clusters, ") for doubt in findings.doubts)


FORGED = [
    "[Partition orders-0 broker=1] ISR updated to 1 (under-min-isr) and version updated to 99",
    "Partition [orders,0] on broker 1: Shrinking ISR from 1,2,3 to 1",
]


@pytest.mark.parametrize("forged", FORGED)
@pytest.mark.parametrize("around", ["", "{}[GroupCoordinator 1]: Member x\n{}\ny has left (k.G)\n"])
def test_a_line_that_a_client_has_forged(folder, forged, around):
    path = folder / "broker-1" / "server.log"
    line = f"{HEAD}{forged}{END}"
    with path.open("a") as log:
        log.write(around.format(HEAD, line) if around else f"{line}\n")
    findings = look(folder)
    assert findings.status == NOT_KNOWN
    assert any("no broker prints this" in doubt for doubt in findings.doubts)
    assert any(row["text"] == line for row in findings.logs.unread.to_pylist())


def test_a_dump_within_a_log_is_a_line_of_it(folder):
    path = folder / "broker-1" / "server.log"
    first, rest = path.read_text().split("\n", 1)
    dump = "Dumping x\nLog starting offset: 0\nbaseOffset: 0 lastOffset: 0 count: 1 isvalid: true"
    path.write_text(f"{first}\n{dump}\n{rest}")
    layouts = {row["file"]: row["layout"] for row in read_local(folder).files.to_pylist()}
    assert layouts["broker-1/server.log"] == "stock"
