"""Run notebooks, a few at a time, and store each result as soon as it is complete.

Theory of operation. Every run has its own process with a fresh kernel, and leaves a page whether it
succeeded, failed, or could not start because Spark or Java is missing. Only the parent process
writes: the others send it the number of their current cell and, at the end, the notebook. An
interrupt therefore loses only the runs in progress, and `resume` skips those that succeeded and
whose notebook, parameters, data and package are unchanged.
"""

import hashlib
import json
import logging
import multiprocessing
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, distributions, version
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TextIO

import nbformat
import papermill
from ipykernel.kernelspec import get_kernel_dict
from jupyter_client import AsyncKernelClient, AsyncKernelManager
from jupyter_client.channels import AsyncZMQSocketChannel
from jupyter_client.kernelspec import KernelSpec
from nbformat import NotebookNode
from traitlets import Type

import isrlab
from isrlab import java, spark
from isrlab.installed import DATA, PACKAGE, ExtraMissingError, packages, require
from isrlab.report import gallery, notebooks

LIBRARIES = ("pyspark", "numba", "numpy", "pandas", "matplotlib", "papermill")
KAFKA_PARAMETERS = ("release", "version", "versions", "kafka_version", "version_was", "version_now")
QUIET_SECONDS = 10.0  # between two lines about one notebook, if the output is no terminal
PROCESSES: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")


@dataclass
class Running:
    """A run in progress: the cell it has reached, and when it started."""

    run: notebooks.NotebookRun
    record: gallery.RunRecord
    process: Any = None
    cell: int = 0
    started: float = 0.0
    spoken: float = 0.0

    def __str__(self) -> str:
        cells = len(self.run.notebook.node.cells)
        seconds = time.monotonic() - self.started
        # papermill puts one more cell in front when it is given parameters
        return f"{self.run.slug}: cell {min(self.cell + 1, cells)}/{cells}, {seconds:.0f} s"


class Progress:
    """Reports what is running: one line that is rewritten on a terminal, plain lines elsewhere."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.records: list[gallery.RunRecord] = []
        self.running: list[Running] = []

    def start(self, job: Running) -> None:
        job.started = job.spoken = time.monotonic()
        self.running.append(job)
        self.say(f"{job.run.slug}: {len(job.run.notebook.node.cells)} cells")

    def on_cell(self, job: Running, cell: int) -> None:
        job.cell = cell
        if self.stream.isatty():
            self.say("")
        elif time.monotonic() - job.spoken > QUIET_SECONDS:
            job.spoken = time.monotonic()
            self.say(str(job))

    def end(self, record: gallery.RunRecord, note: str = "") -> None:
        self.records.append(record)
        self.running = [job for job in self.running if job.record.slug != record.slug]
        result = f"{record.status}, {record.seconds:.1f} s" if record.seconds else record.status
        why = f": {record.reason}" if record.error else ""
        self.say(f"{record.slug}: {result}{note}{why}")

    def say(self, line: str) -> None:
        if self.stream.isatty():
            under_way = " · ".join(map(str, self.running))[: shutil.get_terminal_size().columns - 1]
            line = f"\r\x1b[K{line}\n" * bool(line) + f"\r\x1b[K{under_way}"
        print(line, end="" if self.stream.isatty() else "\n", file=self.stream, flush=True)


def run_all(
    runs: list[notebooks.NotebookRun], out: Path, *, resume: bool, progress: Progress, jobs: int = 1
) -> list[gallery.RunRecord]:
    """Execute the runs (with `resume`: those that are not done yet), writing each to `out`.

    The records have the order of `runs`, those of `progress` the order in which runs ended.
    """
    done = {r.key: r for r in gallery.read_records(out) if resume and r.status == gallery.OK}
    waiting, missing = [], ""
    try:
        require("fleet", "spark")
        if not os.environ.get(spark.MASTER_VARIABLE, "").startswith("sc://"):
            java.require_java()
    except (ExtraMissingError, java.JavaMissingError) as error:
        missing = str(error)
    for run in runs:
        record = blank_record(run)
        if record.key in done:
            progress.end(done[record.key], " (kept: nothing it depends on has changed)")
        elif missing and run.notebook.needs_spark:
            progress.end(gallery.write_run(replace(record, error=missing), run.notebook.node, out))
        else:
            waiting.append(Running(run, record))
    several = sum(job.run.notebook.needs_spark for job in waiting) > 1
    own = os.environ.keys() & {spark.MASTER_VARIABLE, "SPARK_REMOTE", spark.TOKEN}
    with spark.shared() if several and not own else nullcontext():
        _execute(waiting, jobs, out, progress)
    order = [run.slug for run in runs]
    return sorted(progress.records, key=lambda record: order.index(record.slug))


def _execute(waiting: list[Running], jobs: int, out: Path, progress: Progress) -> None:
    """Execute the waiting runs, at most `jobs` at a time, and write each as soon as it is done.

    Any exception also ends the processes that were started here, and these end their kernels.
    """
    running: dict[Connection, Running] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                job, (here, there) = waiting.pop(0), PROCESSES.Pipe(duplex=False)
                job.process = PROCESSES.Process(target=_work, args=(job.run, there))
                running[here] = job
                job.process.start()
                there.close()
                progress.start(job)
            for pipe in wait(list(running)):
                assert isinstance(pipe, Connection)
                try:
                    message = pipe.recv()
                except EOFError:
                    message = running[pipe].run.notebook.node, "ProcessDied: the run has no result"
                if isinstance(message, int):
                    progress.on_cell(running[pipe], message)
                else:
                    job = running.pop(pipe)
                    job.process.join()
                    node, error = message
                    status = gallery.FAILED if error else gallery.OK
                    seconds = round(time.monotonic() - job.started, 2)
                    record = replace(job.record, status=status, error=error, seconds=seconds)
                    progress.end(gallery.write_run(record, node, out))
    finally:
        for job in running.values():
            job.process.terminate()
        for job in running.values():
            job.process.join()


def _work(run: notebooks.NotebookRun, parent: Connection) -> None:
    """In a process of its own: execute the run, and report progress to the parent."""
    logging.getLogger("papermill").addHandler(logging.NullHandler())  # the parent reports errors
    with suppress(KeyboardInterrupt), interrupts():
        parent.send(_executed(run, parent.send))


def _executed(
    run: notebooks.NotebookRun, on_cell: Callable[[int], None]
) -> tuple[NotebookNode, str]:
    """The notebook up to its end or error, and the error; `on_cell` gets the index of each cell."""
    error = ""
    with tempfile.TemporaryDirectory(prefix="isrlab-") as scratch:
        executed = Path(scratch) / "executed.ipynb"
        try:
            papermill.execute_notebook(
                str(run.notebook.path).replace("{", "{{").replace("}", "}}"),  # it formats paths
                executed, run.given, kernel_name="python3", language="python",
                cwd=run.notebook.path.parent, kernel_manager_class=ThisInterpreter,
                progress_bar=False, on_cell_start=lambda cell, cell_index: on_cell(cell_index),
            )  # fmt: skip
        except Exception as failure:  # a cell's or any other: the other notebooks still run
            name = getattr(failure, "ename", type(failure).__name__)
            error = f"{name}: {getattr(failure, 'evalue', failure)}"
        node = nbformat.read(executed, as_version=4) if executed.exists() else run.notebook.node
    node = papermill.execute.remove_error_markers(node)
    for volatile in ("papermill", "widgets"):  # paths of this machine; the state of controls
        node.metadata.pop(volatile, None)
    return notebooks.KeepPlayers().preprocess(node, {})[0], error


class PatientChannel(AsyncZMQSocketChannel):
    """Polls the socket for a kernel's reply once a second.

    nbclient also handles Output widgets on that socket, without asyncio. That can consume the
    wake-up for the reply, and the notebook would hang forever.
    """

    async def get_msg(self, timeout: float | None = None) -> Any:  # type: ignore[override]
        while timeout is None and not await self.socket.poll(1000):
            pass
        return await super().get_msg(timeout)


class PatientClient(AsyncKernelClient):
    """A kernel client that does not miss replies."""

    shell_channel_class = Type(PatientChannel)


class ThisInterpreter(AsyncKernelManager):
    """Starts kernels of the running Python, whatever kernels are installed on the machine.

    Only cell output is kept: other output of a kernel and its JVM would garble the progress line.
    """

    client_factory = Type(PatientClient)

    @property
    def kernel_spec(self) -> KernelSpec:
        return KernelSpec(**get_kernel_dict())

    async def start_kernel(self, **options: Any) -> None:  # type: ignore[override]
        await super().start_kernel(**options, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    async def cleanup_resources(self, restart: bool = False) -> None:  # type: ignore[override]
        """Also end what the cells started: nbclient comes here last, however the kernel ended."""
        group = getattr(self.provisioner, "pgid", None)
        if group:  # of this kernel alone: it has a session of its own; none on Windows
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        await super().cleanup_resources(restart)


def blank_record(run: notebooks.NotebookRun) -> gallery.RunRecord:
    """The record of a run before it starts."""
    notebook, parameters = run.notebook, run.parameters
    depends = json.dumps([package_digest(), notebook.node, parameters], sort_keys=True)
    key = hashlib.sha256(depends.encode()).hexdigest()
    return gallery.RunRecord(
        slug=run.slug, notebook=notebook.name, title=notebook.title, parameters=parameters,
        given=sorted(run.given), versions=versions(), kafka=_kafka(parameters),
        seed=parameters.get("seed"), key=key,
    )  # fmt: skip


def _kafka(parameters: dict[str, Any]) -> str | None:
    """The Kafka versions among a run's parameters; None if there is none."""
    values = [parameters[name] for name in KAFKA_PARAMETERS if name in parameters]
    releases = [r for value in values for r in (value if isinstance(value, list) else [value])]
    return ", ".join(str(release) for release in releases if release) or None


@contextmanager
def interrupts() -> Iterator[None]:
    """Let the first Ctrl-C or termination end the run; the next are ignored as it cleans up."""

    def interrupt(*_: Any) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # no warning about the broken cell
        raise KeyboardInterrupt

    before = {each: signal.signal(each, interrupt) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@cache
def versions() -> dict[str, str]:
    """Versions of isrlab (with its commit in a checkout), Python, platform, Java and libraries."""
    known = {"isrlab": isrlab.__version__, "commit": commit(), "Python": platform.python_version()}
    known |= {"on": platform.platform(terse=True), "Java": java.java_version()}
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            known[name] = version(name)
    known["pylock.toml"] = _beside_the_lock()
    return {name: each for name, each in known.items() if each}


def _beside_the_lock() -> str:
    """How many libraries differ from pylock.toml, or "as locked"; empty without that file."""
    locked: dict[str, set[str]] = {}
    with suppress(OSError):
        text = (PACKAGE.parent / "pylock.toml").read_text(encoding="utf-8")
        for name, each in re.findall(r'(?m)^name = "(.+)"\nversion = "(.+)"', text):
            locked.setdefault(name, set()).add(each)
    installed = {re.sub(r"[-_.]+", "-", d.name).lower(): d.version for d in distributions()}
    others = [name for name in locked.keys() & installed if installed[name] not in locked[name]]
    return (f"{len(others)} libraries differ" if others else "as locked") if locked else ""


def commit() -> str:
    """The commit of this checkout, "-dirty" if files differ from it; empty if there is none."""
    git = ["git", f"--git-dir={PACKAGE.parent / '.git'}", f"--work-tree={PACKAGE.parent}"]
    describe = ["--no-optional-locks", "describe", "--always", "--dirty", "--exclude=*"]
    with suppress(OSError):
        return subprocess.run([*git, *describe], capture_output=True, text=True).stdout.strip()
    return ""


@cache
def package_digest() -> str:
    """Digest of the packages' files and of the data that notebooks read."""
    digest = hashlib.sha256()
    files = [file for folder in (*packages(), DATA) for file in sorted(folder.glob("**/*"))]
    for file in files:
        if file.is_file() and "__pycache__" not in file.parts:
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()
