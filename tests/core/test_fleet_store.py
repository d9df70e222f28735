"""Fleets stored as files: they are read back, continued after an interruption, and never mixed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import nbformat
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from cases.tables import rows_of
from isrlab import fleet, progress
from isrlab.fleet import store
from isrlab.fleet.cell import leaders
from isrlab.fleet.config import FleetConfig

SMALL = FleetConfig(partitions=12, minutes=10, burst_every_s=60, stall_every_s=300, seed=7)
BOTH = fleet.versions(SMALL, ["0.8.2", "0.9.0"])
CELLS = sum(len(leaders(config)) for config in BOTH)


def expected(spark, configs):
    local = spark.createDataFrame(fleet.simulate_local(configs))
    return rows_of(local.to(fleet.simulate(spark, configs).schema))


@pytest.fixture(scope="module")
def kept(spark, tmp_path_factory):
    """A folder with two finished runs, which tests must not change."""
    folder = tmp_path_factory.mktemp("kept") / "runs"
    fleet.stored(spark, BOTH, folder)
    return folder


def test_stored_runs_come_back_with_a_manifest(spark, kept):
    assert rows_of(fleet.read(spark, kept)) == expected(spark, BOTH)
    assert {p.name for p in kept.glob("run=*")} == {"run=0.8.2", "run=0.9.0"}
    said = json.loads((kept / store.MANIFEST).read_text())
    assert [FleetConfig(**said["runs"][c.run]) for c in BOTH] == BOTH
    assert said["cells"] == CELLS
    assert len(said["code"]) == 64


def test_other_tools_read_the_folder(kept):
    table = pq.read_table(kept, partitioning="hive")
    assert table.num_rows == fleet.simulate_local(BOTH).num_rows
    assert {str(run) for run in table["run"].unique().to_pylist()} == {"0.8.2", "0.9.0"}


def test_a_finished_folder_is_only_read(spark, kept, monkeypatch):
    monkeypatch.setattr(store, "spread", None)  # fails if anything is simulated
    assert rows_of(fleet.stored(spark, BOTH, kept)) == rows_of(fleet.read(spark, kept))


def test_a_folder_of_other_fleets_is_refused_with_what_differs(spark, kept, monkeypatch):
    others = [BOTH[0], BOTH[1].with_(seed=8)]
    with pytest.raises(FileExistsError, match=r"runs / 0\.9\.0 / seed is 7 there and 8 here"):
        fleet.stored(spark, others, kept)
    with pytest.raises(FileExistsError, match=r"runs / 0\.9\.0 is .* there and null here"):
        fleet.stored(spark, BOTH[:1], kept)
    monkeypatch.setattr(store, "source_digest", lambda *parts: "0" * 64)
    with pytest.raises(FileExistsError, match=r"code is \"[0-9a-f]{64}\" there and \"000"):
        fleet.stored(spark, BOTH, kept)


def test_a_folder_of_other_things_is_refused(spark, tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(FileExistsError, match="is not empty"):
        fleet.stored(spark, BOTH, tmp_path)


def test_what_was_cut_off_is_computed_again_and_nothing_else(spark, tmp_path):
    rows = rows_of(fleet.stored(spark, BOTH, tmp_path))
    first, second, *others = sorted(tmp_path.glob("run=*/*.parquet"))
    before = {path: path.stat().st_mtime_ns for path in others}
    half = second.with_name(f".{second.name}.of-a-dead-task")
    half.write_bytes(second.read_bytes()[:100])
    first.unlink()
    second.unlink()
    with pytest.raises(FileNotFoundError, match=f"{CELLS - 2} of {CELLS} cells; call `stored`"):
        fleet.read(spark, tmp_path)
    assert rows_of(fleet.stored(spark, BOTH, tmp_path, tasks=3)) == rows
    assert not half.exists()
    assert {path: path.stat().st_mtime_ns for path in others} == before


def test_a_cell_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def cut_off(config, leader, recorded):
        yield from list(whole(config, leader, recorded))[:1]
        raise OSError("no space left on device")

    whole = store.tables_of
    monkeypatch.setattr(store, "tables_of", cut_off)
    cell = {"run": "0.8.2", "leader": 1, "config": BOTH[0].to_json(), "recorded": None}
    batch = pa.RecordBatch.from_pylist([cell])
    with pytest.raises(OSError, match="no space"):
        list(store._write_cells(str(tmp_path), iter([batch])))
    assert list(tmp_path.glob("run=*/*")) == list(tmp_path.glob("run=*/.*")) == []


def test_runs_may_have_any_name(spark, tmp_path):
    names = ["a/b=c %d", "..", 'brokers: "3" {é}', "7", "07.0"]
    configs = [SMALL.with_(name=name, seed=seed) for seed, name in enumerate(names)]
    assert rows_of(fleet.stored(spark, configs, tmp_path / "x")) == expected(spark, configs)


SLOW = fleet.sweep(FleetConfig(partitions=150, minutes=45, burst_every_s=30), "seed", range(8))
STORE = """
import json, sys
from isrlab import fleet, spark
from isrlab.fleet.config import FleetConfig
configs = [FleetConfig.from_json(text) for text in json.loads(sys.argv[1])]
fleet.stored(spark.session("local[2]"), configs, sys.argv[2])
"""


class InTerminal:
    """`stored` in a process of its own, whose error stream is a terminal."""

    def __init__(self, folder) -> None:
        pty = pytest.importorskip("pty")  # Windows has none
        here, there = pty.openpty()
        texts = json.dumps([config.to_json() for config in SLOW])
        command = [sys.executable, "-c", STORE, texts, str(folder)]
        self.process = subprocess.Popen(command, stderr=there, start_new_session=True)
        os.close(there)
        self.seen = ""
        self.reader = threading.Thread(target=self._read, args=(here,))
        self.reader.start()

    def _read(self, terminal: int) -> None:
        try:
            while text := os.read(terminal, 4096):
                self.seen += text.decode()
        except OSError:  # the other side is closed
            os.close(terminal)

    def end(self) -> int:
        status = self.process.wait(timeout=120)
        self.reader.join(timeout=10)
        return status


def test_an_interrupted_run_goes_on_where_it_stopped(spark, tmp_path):
    terminal = InTerminal(tmp_path)
    total = sum(len(leaders(config)) for config in SLOW)
    try:
        while not re.search(
            rf"simulating {len(SLOW)} runs: [1-9]\d* of {total} cells", terminal.seen
        ):
            assert terminal.process.poll() is None, terminal.seen
            time.sleep(0.05)
    finally:
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() != 0
    assert "KeyboardInterrupt" in terminal.seen
    assert "of 40 cells" not in terminal.seen.rsplit("\r", 1)[1]  # the progress line was erased
    done = {path: path.stat().st_mtime_ns for path in tmp_path.glob("run=*/[!.]*.parquet")}
    assert 0 < len(done) < total
    events = fleet.stored(spark, SLOW, tmp_path)
    assert {path: path.stat().st_mtime_ns for path in done} == done
    assert rows_of(events) == expected(spark, SLOW)
    assert not list(tmp_path.glob("run=*/.*"))


def test_progress_goes_to_the_error_stream_where_a_kernel_is_only_imported(monkeypatch, capsys):
    pytest.importorskip("ipykernel.kernelapp")
    monkeypatch.setattr(progress, "QUIET_S", 0)
    with progress.shown(lambda: "at work", in_logs=True):
        time.sleep(0.2)
    assert capsys.readouterr() == ("", "at work\n")


def test_progress_is_shown_in_a_notebook_and_cleared():
    code = """
import itertools, time
from isrlab import progress
count = itertools.count(1)
with progress.shown(lambda: f"simulating 2 runs: {next(count)} of 9 cells"):
    time.sleep(3.3)
print("done")
"""
    spoken = []
    notebook = new_notebook(cells=[new_code_cell(code)])

    class Listener(NotebookClient):
        def process_message(self, message, cell, cell_index):
            spoken.append((message["msg_type"], message["content"].get("text", "")))
            return super().process_message(message, cell, cell_index)

    Listener(notebook, kernel_name="python3", timeout=60).execute()
    assert ("stream", "simulating 2 runs: 1 of 9 cells\n") in spoken
    assert "clear_output" in [kind for kind, _ in spoken]
    assert [output["text"] for output in notebook.cells[0].outputs] == ["done\n"]
    nbformat.validate(notebook)
