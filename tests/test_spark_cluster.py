"""A real cluster on this machine: a master and two workers, one of which dies in the middle; and a
Spark Connect server.

The workers' Python has every library of this one but no isrlab: they get it from the driver.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest

from cases import on_spark
from isrlab import fleet
from isrlab import spark as sparks
from isrlab.events.schema import SCHEMA
from isrlab.fleet.cell import leaders
from isrlab.fleet.config import FleetConfig
from isrlab.java import JavaMissingError, require_java
from isrlab.spark import WorkersError, _ship_to, session
from isrlab_ops.logs import recordings

SPARK_HOME = os.environ.get("SPARK_HOME", pyspark.__path__[0])
BASE = FleetConfig(partitions=200, brokers=8, minutes=20, burst_every_s=60, stall_every_s=300)
CONFIGS = fleet.versions(BASE.with_(seed=5), ["0.8.2", "0.10.2", "2.5", "3.7"])
CELLS = sum(len(leaders(config)) for config in CONFIGS)
WITHIN_S = 600
BARE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

JOB = """
import json, os, sys, threading, time
import pyarrow as pa
import isrlab
from isrlab import fleet, spark
from isrlab.fleet.config import FleetConfig

def say(**said):
    print(json.dumps(said), flush=True)

def where(batches):
    import isrlab
    for batch in batches:
        place = [isrlab.__file__] * batch.num_rows
        yield pa.record_batch({"package": place, "folder": [os.getcwd()] * batch.num_rows})

def counted():
    "Tasks that are done and tasks that failed in the stage that runs the kernel."
    stages = [tracker.getStageInfo(i) for job in tracker.getJobIdsForGroup("fleet")
              for i in tracker.getJobInfo(job).stageIds]
    done = [s.numCompletedTasks for s in stages if s and s.numTasks == cells]
    return max(done, default=0), sum(s.numFailedTasks for s in stages if s)

def simulate():
    session.sparkContext.setJobGroup("fleet", "all cells")
    with pa.OSFile(out + "/events.arrow", "wb") as file:
        events = fleet.simulate(session, configs, tasks=cells).toArrow()
        with pa.ipc.new_file(file, events.schema) as writer:
            writer.write_table(events)

out, cells = sys.argv[1], int(sys.argv[2])
configs = [FleetConfig.from_json(text) for text in json.loads(sys.stdin.readline())]
session = spark.session()
session = spark.session()  # a cell that runs again ships nothing twice
members = session.sparkContext._jsc.sc().getExecutorMemoryStatus
while members().size() < 3:  # the driver and two executors
    time.sleep(0.1)
tracker = session.sparkContext.statusTracker()
from pyspark import InheritableThread
job = InheritableThread(target=simulate)
job.start()
while counted()[0] < 2:
    time.sleep(0.05)
say(done=counted()[0])
sys.stdin.readline()  # a worker has been killed
say(done=counted()[0])
failed = 0
while job.is_alive():
    failed = max(failed, counted()[1])
    time.sleep(0.1)
say(done=counted()[0], failed=failed)
places = session.range(4).mapInArrow(where, "package string, folder string").distinct().collect()
small = [configs[0].with_(partitions=8, minutes=1.0)]
rows = fleet.stored(session, small, out + "/stored").count()
say(driver=isrlab.__file__, places=[list(place) for place in places], stored=rows)
session.stop()
"""


def sorted_bytes(table: pa.Table) -> bytes:
    """The sorted rows as Arrow bytes, equal if and only if the rows are the same."""
    rows = sorted(table.to_pylist(), key=str)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
    return sink.getvalue()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def wait_for(port: int) -> None:
    for _ in range(1_200):
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", port), 1).close()
        time.sleep(0.1)
    raise TimeoutError(f"nobody on port {port}")


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """A function that starts one of Spark's daemons; they are killed at the end."""
    folder = tmp_path_factory.mktemp("daemons")
    with contextlib.ExitStack() as stack:

        def start(name: str, role: str, *arguments: str, **more: str) -> subprocess.Popen:
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            own = {"SPARK_HOME": SPARK_HOME, "SPARK_LOCAL_IP": "127.0.0.1"}
            process = subprocess.Popen(
                [f"{SPARK_HOME}/bin/spark-class", f"org.apache.spark.deploy.{role}", *arguments],
                env=BARE | own | more, stdout=log, stderr=log, start_new_session=True, cwd=folder,
            )  # fmt: skip
            stack.callback(kill, process)
            return process

        yield start


def kill(process: subprocess.Popen) -> None:
    """Kill a daemon and the executors that it started; Python workers end with them."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory) -> Path:
    """An interpreter with the libraries of this one, but without editable installs; needs Java."""
    try:
        require_java()
    except JavaMissingError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "libraries.pth").write_text(str(Path(pyspark.__file__).parents[1]))
    python = folder / "bin/python"
    code = "import numba, pyspark, isrlab"
    tried = subprocess.run([python, "-c", code], env=BARE, capture_output=True, cwd=folder)
    assert b"No module named 'isrlab'" in tried.stderr
    return python


def test_rows_are_those_of_one_machine_though_a_worker_dies_in_the_middle(
    started, bare_python, tmp_path
):
    port = free_port()
    at = ("--host", "127.0.0.1", "--webui-port", "0", "--port")
    started("master", "master.Master", *at, str(port))
    wait_for(port)
    master = f"spark://127.0.0.1:{port}"
    workers = []
    for name in ("one", "two"):
        size = ("--cores", "1", "--memory", "2g", "--work-dir", str(tmp_path / name))
        workers.append(started(name, "worker.Worker", *at, "0", *size, master))
    job = subprocess.Popen(
        [sys.executable, "-c", JOB, tmp_path, str(CELLS)],
        env={
            **os.environ,
            "ISRLAB_SPARK_MASTER": master,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(bare_python),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    late = threading.Timer(WITHIN_S, job.kill)
    late.start()
    try:

        def tell(line: str) -> None:
            job.stdin.write(line + "\n")
            job.stdin.flush()

        def heard() -> dict:
            line = job.stdout.readline()
            return json.loads(line) if line else pytest.fail(job.stderr.read()[-3000:])

        tell(json.dumps([config.to_json() for config in CONFIGS]))
        assert 0 < heard()["done"] < CELLS
        kill(workers[1])
        tell("killed")
        assert heard()["done"] < CELLS  # it really was in the middle
        end = heard()
        assert end["failed"] > 0  # the executor had work when it died, and that ran again
        last = heard()
        assert job.wait(timeout=60) == 0
    finally:
        late.cancel()
        kill(job)

    with pa.OSFile(str(tmp_path / "events.arrow")) as file:
        events = pa.ipc.open_file(file).read_all().cast(SCHEMA)
    assert events.num_rows > 1_000
    assert sorted_bytes(events) == sorted_bytes(fleet.simulate_local(CONFIGS))
    for package, folder in last["places"]:
        assert package.endswith("isrlab.zip/isrlab/__init__.py")
        assert Path(folder).is_relative_to(tmp_path / "one")
    small = CONFIGS[0].with_(partitions=8, minutes=1.0)
    assert last["stored"] == fleet.simulate_local(small).num_rows


@pytest.fixture(scope="module")
def server(started, bare_python):
    """The address of a Spark Connect server whose Python has no isrlab."""
    port, name = free_port(), "org.apache.spark.sql.connect.service.SparkConnectServer"
    conf = {"spark.connect.grpc.binding.port": port, "spark.ui.enabled": "false",
            "spark.connect.grpc.binding.address": "127.0.0.1", "spark.log.level": "ERROR",
            "spark.sql.shuffle.partitions": 8}  # fmt: skip
    options = chain.from_iterable(("--conf", f"{key}={value}") for key, value in conf.items())
    given = ("--master", "local[2]", "--class", name, *options)
    started("server", "SparkSubmit", *given, PYSPARK_PYTHON=str(bare_python))
    wait_for(port)
    return f"sc://127.0.0.1:{port}"


def test_a_connect_server_answers_as_a_session_here(spark, server):
    logs = recordings.folder("3.9").parent / "incidents" / "a-412-follower-paused"
    job = [sys.executable, on_spark.__file__, server, str(logs)]
    done = subprocess.run(job, capture_output=True, text=True, timeout=WITHIN_S)
    assert done.returncode == 0, done.stderr[-3000:]
    remote = json.loads(done.stdout)
    here = on_spark.answers(spark, logs)
    print(f"{remote.pop('seconds'):.1f} s over Connect, {here.pop('seconds'):.1f} s here")
    assert [name for name, rows in here.items() if rows != remote.get(name)] == []
    assert all(here[name] for name in ("kafka-broker-logs", "kafka-metadata-log", "fleet"))


def test_a_notebook_runs_on_a_connect_server(server, tmp_path):
    report = ["-m", "isrlab", "report", "12", "--master", server, "--out", str(tmp_path / "out")]
    small = ["-p", "partitions", "24", "-p", "minutes", "10", "-p", "seeds", "2"]
    done = subprocess.run(
        [sys.executable, *report, *small], capture_output=True, text=True, timeout=WITHIN_S
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_processes_share_a_spark_that_only_they_may_use():
    ask = "import isrlab; s = isrlab.spark.session(); print(type(s).__module__, s.range(3).count())"
    command, given = [sys.executable, "-c", ask], {"capture_output": True, "timeout": WITHIN_S}
    with sparks.shared():
        ours = subprocess.run(command, text=True, **given)
        other = subprocess.run(
            command, text=True, env=os.environ | {sparks.TOKEN: "guessed"}, **given
        )
    died = os.environ | {sparks.IS_SHARED: "1", sparks.MASTER_VARIABLE: "sc://localhost:1"}
    alone = subprocess.run(command, text=True, env=died, **given)
    assert alone.stdout == "pyspark.sql.session 3\n", alone.stderr[-3000:]
    assert ours.stdout == "pyspark.sql.connect.session 3\n", ours.stderr[-3000:]
    assert "Invalid authentication token" in other.stderr
    assert sparks.TOKEN not in os.environ


def test_a_session_that_is_active_is_used_whatever_master_is_named(spark):
    assert session("sc://127.0.0.1:1") is spark


def test_workers_that_lack_a_library_are_told_of(spark, monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("Traceback\n  File x\nModuleNotFoundError: No module named 'numba'\n")

    monkeypatch.setattr(spark, "addArtifacts", fails, raising=False)
    message = (
        "cannot import isrlab (ModuleNotFoundError: No module named 'numba'): install it there"
    )
    with pytest.raises(WorkersError, match=re.escape(message)):
        _ship_to(spark)
