"""Execute one notebook with papermill, in a fresh kernel of this interpreter."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import papermill
from ipykernel.kernelspec import get_kernel_dict
from jupyter_client import AsyncKernelClient, AsyncKernelManager
from jupyter_client.channels import AsyncZMQSocketChannel
from jupyter_client.kernelspec import KernelSpec
from traitlets import Type

from isrlab.report.notebooks import KeepPlayers, Run


def execute(run: Run, on_cell: Callable[[int], None]) -> tuple[nbformat.NotebookNode, str]:
    """The notebook as far as it came, and its error; `on_cell` hears the index of each cell."""
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
    return KeepPlayers().preprocess(node, {})[0], error


class PatientChannel(AsyncZMQSocketChannel):
    """Waits for a kernel's reply in steps of a second, looking anew each time.

    nbclient answers an Output widget on the socket it waits on, behind asyncio's back; that can eat
    the wake-up for the reply, and the notebook would hang for ever.
    """

    async def get_msg(self, timeout: float | None = None) -> Any:  # type: ignore[override]
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
        await super().start_kernel(**options, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
