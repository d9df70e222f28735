"""The processor seconds of a command are those of all processes, and its exit status is kept."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "processor_seconds.py"
BURNS = "import time\nwhile time.process_time() < 1: pass"
LEAVES = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {BURNS!r}]); sys.exit(3)"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives a process such children")
def test_a_process_counts_that_outlives_its_parent():
    command = [sys.executable, TOOL, sys.executable, "-c", LEAVES]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 3
    assert int(done.stderr.split()[0]) >= 1
