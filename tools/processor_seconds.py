"""Run a command, then print the processor seconds of all its processes.

    python tools/processor_seconds.py COMMAND ...

Processes whose parent has ended become children of this one (Linux: PR_SET_CHILD_SUBREAPER), and
it waits for them too: Spark's JVM outlives the notebook that started it. Elsewhere only those are
counted that their parents waited for. The exit status is the command's.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import time

SUBREAPER = 36  # linux/prctl.h
WAIT_S = 20.0  # for processes that the command left behind


def main(command: list[str]) -> int:
    """Run the command, wait for all that it started, print the sum, and return its status."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    began = time.monotonic()
    process = subprocess.Popen(command)
    signal.signal(signal.SIGINT, lambda *_: None)  # a terminal sends it to the command too
    signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number))
    status = process.wait()
    until = time.monotonic() + WAIT_S
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < until:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.1)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime
    wall_s = time.monotonic() - began
    print(f"{seconds:,.0f} processor seconds of all processes in {wall_s:,.0f} s", file=sys.stderr)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
