"""A Spark session for isrlab: the active one, or a new one on this machine or on a cluster.

isrlab uses only what Spark Connect offers, so a session may be a classic one or a Connect one. The
package ships itself to a cluster's workers, so isrlab need not be installed there (but the
libraries that it imports must be). A new session has UTC times. A Spark process that is started
here shows no console progress, because that would end up in the stored output of notebooks, and its
messages go to a file in the temporary folder (`isrlab-spark-*.log`). Notebooks of one report share
a Spark process (`shared`).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from isrlab.installed import packages, require
from isrlab.java import require_java

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

MASTER_VARIABLE = "ISRLAB_SPARK_MASTER"
MASTER_FORMS = (
    "local, local[N], local[*], spark://host:port, sc://host:port, yarn, k8s://https://host:port"
)
_MASTER = re.compile(
    r"local(\[(\*|[1-9]\d*)(,[1-9]\d*)?\])?"  # the second number: failures until a task is given up
    r"|spark://(?P<addresses>[^/\s,]+:\d{1,5}(,[^/\s,]+:\d{1,5})*)"
    r"|sc://(?P<server>[^/\s,;:]+|\[[^/\s,;]+\])(:(?P<port>\d{1,5}))?(/\S*)?"  # Spark Connect
    r"|yarn|k8s://\S+"
)
CONNECT_PORT = "15002"
TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
IS_SHARED = "ISRLAB_SPARK_IS_SHARED"  # set: the workers are this machine's, and have isrlab
_SERVE = """import sys; from isrlab import spark
spark.session("local[*]"); print(flush=True); sys.stdin.read()"""
ANSWER_WITHIN_S = 5.0
OPTIONS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
OPTIONS_OF_THE_JVM = {
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
    "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "isrlab-spark-warehouse"),
    "spark.driver.memory": "2g",
    "spark.log.level": "ERROR",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
}
_STAYS = shutil.ignore_patterns("data", "notebooks", "__pycache__")  # workers need none of it


class MasterError(ValueError):
    """The address of a Spark master has no known form, or no master answers there."""


class WorkersError(RuntimeError):
    """Spark's workers cannot run isrlab; the message says what to install there."""


def session(master: str | None = None) -> SparkSession:
    """The active session, such as a platform's own; without one a new session on the first of
    `master`, `$ISRLAB_SPARK_MASTER`, `$SPARK_REMOTE` and `local[*]` that is given.

    Raises ExtraMissingError without PySpark, JavaMissingError when Java is needed and there is
    none, MasterError as `require_master` does, WorkersError when the workers cannot import isrlab.
    """
    require("spark")
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    if spark is None:
        spark = _started(SparkSession.builder.appName("isrlab"), master)
    is_remote = ".connect." in type(spark).__module__
    is_elsewhere = is_remote or not spark.conf.get("spark.master", "").startswith("local")
    if is_elsewhere and (master or IS_SHARED not in os.environ):
        _ship_to(spark)
    return spark


def _started(builder: SparkSession.Builder, master: str | None) -> SparkSession:
    options = OPTIONS
    master = master or os.environ.get(MASTER_VARIABLE) or os.environ.get("SPARK_REMOTE", "local[*]")
    if IS_SHARED in os.environ and master == os.environ[MASTER_VARIABLE] and _problem(master[5:]):
        master = "local[*]"  # the shared process has died
    if master == os.environ.get("SPARK_REMOTE"):
        pass  # the builder takes it from there
    elif master.startswith("sc://"):
        require_master(master)
        builder = builder.remote(master)
    else:
        require_java()
        require_master(master)
        options = OPTIONS | OPTIONS_OF_THE_JVM
        builder = builder.master(master)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for key, value in options.items():
        builder = builder.config(key, value)
    with _java_talks_to_a_file():
        return builder.getOrCreate()


def _ship_to(spark: SparkSession) -> None:
    """Give the package to the workers, and let one of them import it."""
    try:
        spark.addArtifacts(package_archive(), pyfile=True)
        spark.range(1).mapInArrow(_unchanged, "id long").collect()
    except Exception as error:
        reasons = re.findall(r"\b\w+(?:Error|Exception): [^\n]*", str(error)) or [str(error)]
        major, minor = sys.version_info[:2]
        raise WorkersError(
            f"Spark's workers cannot import isrlab ({reasons[-1]}): install it there for the "
            f"Python of this machine, {major}.{minor}, with: pip install 'isrlab[fleet,spark]'"
        ) from error


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    require("fleet")  # what a worker needs beyond PySpark and Arrow
    return batches


@contextlib.contextmanager
def shared() -> Iterator[None]:
    """Let the processes that start in this block share one Spark process, which ends with it.

    Their sessions are Connect sessions, on loopback, for those who know the token in the
    environment. Workers keep what they have imported. If Spark does not start, each process starts
    its own. Raises JavaMissingError.
    """
    require_java()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port, token = free.getsockname()[1], secrets.token_urlsafe()
    options = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
    }
    given = " ".join(f"--conf {name}={value}" for name, value in options.items())
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=os.environ | {TOKEN: token, "PYSPARK_SUBMIT_ARGS": f"{given} pyspark-shell"},
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert server.stdin and server.stdout
    names = {MASTER_VARIABLE: f"sc://localhost:{port}", TOKEN: token, IS_SHARED: "1"}
    try:
        os.environ |= names if server.stdout.readline() else {}
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        server.communicate()


@contextlib.contextmanager
def _java_talks_to_a_file() -> Iterator[None]:
    """Let a Java process started inside the block inherit a file as its standard error."""
    kept = os.dup(2)
    with tempfile.NamedTemporaryFile(prefix="isrlab-spark-", suffix=".log", delete=False) as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def require_master(master: str) -> None:
    """Raise MasterError unless the address has a known form and, for spark:// and sc://, a host
    answers. Spark itself would try for a minute, and then report a context that was stopped.
    """
    match = _MASTER.fullmatch(master)
    if not match:
        raise MasterError(f"{master!r} is not a Spark master; valid: {MASTER_FORMS}")
    addresses = (match["addresses"] or "").split(",")
    if match["server"]:
        addresses = [f"{match['server']}:{match['port'] or CONNECT_PORT}"]
    problems = [_problem(each) for each in addresses if each]
    if problems and all(problems):
        raise MasterError(
            f"no Spark master answers at {master} ({problems[0]}); start one there, or leave out "
            f"the master (--master, {MASTER_VARIABLE}) to run on this machine"
        )


def _problem(address: str) -> str:
    """Why host:port accepts no connection; empty if it accepts one."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_WITHIN_S).close()
    except (OSError, OverflowError) as error:
        return str(error)
    return ""


@functools.cache
def package_archive() -> str:
    """The path of isrlab and its siblings as a zip for Spark's workers, deleted by this process
    when it ends."""
    folder = tempfile.mkdtemp(prefix="isrlab-ship-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for package in packages():
        shutil.copytree(package, Path(folder) / "all" / package.name, ignore=_STAYS)
    return shutil.make_archive(f"{folder}/isrlab", "zip", root_dir=f"{folder}/all")
