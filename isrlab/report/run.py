"""Run notebooks with papermill and keep what each makes as soon as it is done.

Theory of operation. Every run gets a fresh kernel of this interpreter and leaves a page, whether it
succeeded, failed, or could not start because Java is missing. An interrupt therefore loses the
current run only, and `resume` skips the runs whose notebook, parameters and package are unchanged.
"""

from __future__ import annotations

import hashlib
import json
import logging
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import nbformat
import papermill
from ipykernel.kernelspec import get_kernel_dict
from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_client.channels import AsyncZMQSocketChannel
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbformat import NotebookNode
from papermill.exceptions import PapermillExecutionError
from papermill.execute import remove_error_markers
from traitlets import Type

from isrlab import spark
from isrlab.report import gallery
from isrlab.report.gallery import FAILED, NOT_RUN, OK, Record
from isrlab.report.notebooks import Run

PACKAGE = Path(__file__).resolve().parent.parent
CHECKOUT = PACKAGE.parent
LIBRARIES = ("pyspark", "numba", "numpy", "pandas", "matplotlib", "papermill")
KAFKA_PARAMETERS = ("version", "versions", "kafka_version", "version_was", "version_now")
QUIET_SECONDS = 10.0  # a log that is no terminal hears of a running notebook this often


class Progress:
    """Says what is running: a line that rewrites itself on a terminal, plain lines elsewhere."""

    def __init__(self, stream: TextIO | None = None, resume: str = "") -> None:
        self.stream = stream or sys.stderr
        self.resume = resume
        self.records: list[Record] = []

    def start(self, run: Run) -> None:
        self.slug, self.cells = run.slug, len(run.notebook.node.cells)
        self.started = self.spoken = time.monotonic()
        self.say(f"{self.slug}: {self.cells} cells")

    def on_cell(self, cell: NotebookNode, cell_index: int) -> None:
        now = time.monotonic()
        if self.stream.isatty() or now - self.spoken > QUIET_SECONDS:
            self.spoken = now
            # papermill puts one more cell in front when it is given parameters
            reached = min(cell_index + 1, self.cells)
            self.say(f"{self.slug}: cell {reached}/{self.cells}, {now - self.started:.0f} s")

    def end(self, record: Record, note: str = "") -> None:
        self.records.append(record)
        result = f"{record.status}, {record.seconds:.1f} s" if record.seconds else record.status
        why = f": {record.reason}" if record.error else ""
        self.say(f"{record.slug}: {result}{note}{why}")
        if self.stream.isatty():
            print(file=self.stream)

    def say(self, line: str) -> None:
        start, end = ("\r\x1b[K", "") if self.stream.isatty() else ("", "\n")
        print(f"{start}{line}", end=end, file=self.stream, flush=True)


def run_all(runs: list[Run], out: Path, *, resume: bool, progress: Progress) -> list[Record]:
    """Execute the runs (with `resume`: those that are not done yet), writing each to `out`."""
    done = {r.key: r for r in gallery.read_records(out) if resume and r.status == OK}
    java = java_problem()
    logging.getLogger("papermill").addHandler(logging.NullHandler())  # errors are told below
    for run in runs:
        record = blank_record(run)
        if record.key in done:
            progress.end(done[record.key], " (kept: nothing it depends on has changed)")
            continue
        node = run.notebook.node
        if java and run.notebook.needs_spark:
            record = replace(record, error=f"needs Java: {java}", ended=_now())
        else:
            progress.start(run)
            node, record = execute(run, record, progress)
        gallery.write_run(record, node, out)
        progress.end(record)
    return progress.records


def execute(run: Run, record: Record, progress: Progress) -> tuple[NotebookNode, Record]:
    """Run a notebook in a fresh kernel: the notebook as far as it came, and its record."""
    started = time.monotonic()
    error = ""
    with tempfile.TemporaryDirectory(prefix="isrlab-") as scratch:
        executed = Path(scratch) / "executed.ipynb"
        try:
            papermill.execute_notebook(
                re.sub(r"([{}])", r"\1\1", str(run.notebook.path)),  # papermill formats its paths
                executed,
                run.given,
                kernel_name="python3",
                language="python",
                progress_bar=False,
                cwd=run.notebook.path.parent,
                kernel_manager_class=ThisInterpreter,
                on_cell_start=progress.on_cell,
            )
        except PapermillExecutionError as failure:
            error = f"{failure.ename}: {failure.evalue}"
        except Exception as failure:  # whatever it is, the other notebooks still run
            error = f"{type(failure).__name__}: {failure}"
        node = nbformat.read(executed, as_version=4) if executed.exists() else run.notebook.node
    node = remove_error_markers(node)
    for volatile in ("papermill", "widgets"):  # paths of this machine; the state of controls
        node.metadata.pop(volatile, None)
    return node, replace(
        record,
        status=FAILED if error else OK,
        error=error,
        finding=gallery.finding(node),
        seconds=round(time.monotonic() - started, 2),
        ended=_now(),
        thumbnail=gallery.thumbnail(node),
    )


class PatientChannel(AsyncZMQSocketChannel):
    """Waits for a kernel's reply in steps of a second, looking anew each time.

    nbclient answers an Output widget on the socket it waits on, behind asyncio's back; that can eat
    the wake-up for the reply, and the notebook would hang for ever.
    """

    async def get_msg(  # type: ignore[override]
        self, timeout: float | None = None
    ) -> dict[str, Any]:
        while timeout is None and not await self.socket.poll(1000):
            pass
        return await super().get_msg(timeout)


class PatientClient(AsyncKernelClient):
    """A kernel client that does not miss replies."""

    shell_channel_class = Type(PatientChannel)


class ThisInterpreter(AsyncKernelManager):
    """Starts kernels of the Python that runs this, whatever kernels the machine has installed.

    What cells print reaches the notebook; what else a kernel and its JVM say would garble progress.
    """

    client_factory = Type(PatientClient)

    @property
    def kernel_spec(self) -> KernelSpec:
        return KernelSpec(**get_kernel_dict())

    async def start_kernel(self, **options: Any) -> None:  # type: ignore[override]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        await super().start_kernel(**options, **quiet)


def blank_record(run: Run) -> Record:
    """What is known of a run before it starts."""
    parameters = run.parameters
    digest = hashlib.sha256(package_digest().encode())
    digest.update(json.dumps([run.notebook.node, parameters], sort_keys=True).encode())
    return Record(
        slug=run.slug,
        notebook=run.notebook.name,
        title=run.notebook.title,
        questions=list(run.notebook.questions),
        parameters=parameters,
        given=sorted(run.given),
        versions=versions(),
        kafka=_kafka(parameters),
        seed=parameters.get("seed"),
        key=digest.hexdigest(),
        status=NOT_RUN,
    )


def _kafka(parameters: dict[str, Any]) -> str | None:
    """The Kafka versions among a run's parameters; None if there is none."""
    found = [parameters[name] for name in KAFKA_PARAMETERS if name in parameters]
    each = [one for value in found for one in (value if isinstance(value, list) else [value])]
    return ", ".join(str(one) for one in each if one) or None


@contextmanager
def interrupts() -> Iterator[None]:
    """The first Ctrl-C or termination ends the run; the next are ignored while it cleans up."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # it tells of the cell cut off
        raise KeyboardInterrupt

    before = {each: signal.signal(each, interrupt) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def java_problem() -> str:
    """Why Spark cannot run, with what to install; empty if it can."""
    try:
        spark.require_java()
    except spark.JavaMissingError as error:
        return str(error)
    return ""


@cache
def versions() -> dict[str, str]:
    """Of isrlab (and its commit, if this is a checkout), Python and the libraries that count."""
    found = {"isrlab": version("isrlab"), "commit": commit(), "Python": platform.python_version()}
    return {k: v for k, v in found.items() if v} | {name: version(name) for name in LIBRARIES}


def commit() -> str:
    """The commit of this checkout, "-dirty" if files differ from it; empty if there is none."""
    git = ["git", f"--git-dir={CHECKOUT / '.git'}", f"--work-tree={CHECKOUT}"]
    describe = ["--no-optional-locks", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        answer = subprocess.run([*git, *describe], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return answer.stdout.strip()


@cache
def package_digest() -> str:
    """Digest of the package's sources and of the scenarios that notebooks play."""
    digest = hashlib.sha256(spark.source_digest().encode())
    for file in sorted(CHECKOUT.glob("data/scenarios/*")):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
