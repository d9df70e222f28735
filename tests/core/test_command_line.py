"""The command line answers quickly, and bad input ends in one clear message."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from isrlab.__main__ import main
from isrlab.engine.versions import PRESETS
from isrlab.spark import MASTER_VARIABLE, require_master

NOTEBOOKS = str(Path(__file__).parents[1] / "notebooks")
HEAVY = ("pyspark", "numba", "matplotlib", "papermill", "nbconvert", "pandas", "pyarrow")


def run(*arguments: str, input: str | None = None):
    return CliRunner().invoke(main, arguments, input=input)


@pytest.mark.parametrize("command", ["report", "play", "versions"])
def test_help_has_examples(command):
    shown = run(command, "--help")
    assert shown.exit_code == 0
    assert f"python -m isrlab {command}" in shown.output


def test_help_loads_no_heavy_library():
    code = (
        "import sys; from isrlab.__main__ import main; main(['--help'], standalone_mode=False); "
        f"print([m for m in {HEAVY} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_versions_lists_every_generation_and_the_change_of_each_rule():
    shown = run("versions").output
    for version in PRESETS.values():
        assert version.releases in shown
    assert "- 0.10.2 (column C): clock: a fetch at the log end of the previous fetch" in shown
    assert re.search("\n  shrink rule +time unless at log end\n", run("versions", "2.5.1").output)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["versions", "9.9"], "unknown Kafka version '9.9'; known: 0.8.2"),
        (["report", "nothing", "--notebooks", NOTEBOOKS], "unknown notebook 'nothing'; known: 01"),
        (["report", "-p", "lag", "1", "--notebooks", NOTEBOOKS], "unknown parameter 'lag'; known:"),
        (["report", "-p", "lag_ms", "x", "--notebooks", NOTEBOOKS], "'x' is not a whole number"),
        (["report", "-f", "/nonexistent.yaml"], "'/nonexistent.yaml' does not exist"),
        (["report", "01", "--grid", __file__], "--grid takes no NAME"),
        (["report", "--out", __file__], "is a file"),
        (["report", "--master", "spark:/host"], "'spark:/host' is not a Spark master; valid: lo"),
        (["report", "--master", "local[0]"], "valid: local, local[N], local[*], spark://host:port"),
        (["report", "--master", "spark://127.0.0.1:1"], "no Spark master answers at spark://127"),
        (["report", "--master", "sc://127.0.0.1:1/;x=y"], "no Spark master answers at sc://127"),
        (["report", "--master", "sc://"], "'sc://' is not a Spark master; valid: local, "),
        (["play", "/nonexistent.txt"], "'/nonexistent.txt': No such file"),
    ],
)
def test_bad_input_is_one_message_and_status_2(arguments, message):
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.output


def test_a_wrong_master_in_the_environment_is_named_too(monkeypatch):
    monkeypatch.setenv(MASTER_VARIABLE, "here")
    done = run("report", "--notebooks", NOTEBOOKS)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "'here' is not a Spark master" in done.stderr


def test_the_master_reaches_the_kernels(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setenv(MASTER_VARIABLE, "local[2]")  # also so that it is restored
    monkeypatch.setattr(
        "isrlab.report.run.run_all", lambda *_, **__: seen.append(os.environ[MASTER_VARIABLE]) or []
    )
    arguments = ("report", "--notebooks", NOTEBOOKS, "--out", str(tmp_path))
    assert run(*arguments, "--master", "local[3]").exit_code == 0
    assert seen == ["local[3]"]


def test_forms_of_masters():
    for master in ("local", "local[4]", "local[*]", "local[2,9]", "yarn", "k8s://https://h:6443"):
        require_master(master)
    with socket.create_server(("127.0.0.1", 0)) as server:
        require_master(f"spark://127.0.0.1:1,127.0.0.1:{server.getsockname()[1]}")  # one is enough


def test_a_folder_that_cannot_be_written_is_one_message(tmp_path):
    (tmp_path / "file").write_text("")
    out = str(tmp_path / "file" / "out")
    done = run("report", "05", "--out", out, "--notebooks", NOTEBOOKS)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"isrlab: cannot write the report to {out}: ")


SCRIPT = """# The follower is one fetch behind.
version 0.10.2
partition leader=1 replicas=1,2
produce 1 m1 acks=1
stabilize
status
"""


@pytest.mark.parametrize("trace", [[], ["--trace"]])
def test_play_prints_what_happens_and_messages_with_trace(trace):
    shown = run("play", "-", *trace, input=SCRIPT)
    assert shown.exit_code == 0, shown.output
    assert "Leader" in shown.output
    assert ("FetchResponse" in shown.output) is bool(trace)


@pytest.mark.parametrize("trace", [[], ["--trace"]])
def test_play_names_the_line_and_the_known_words(trace):
    done = run("play", "-", *trace, input=SCRIPT.replace("status", "frobnicate"))
    assert done.exit_code == 2
    assert [w for w in ("line 6", "frobnicate", "stabilize") if w not in done.stderr] == []


@pytest.mark.parametrize("text", ["", "# only prose\n"])
def test_a_script_without_commands_is_refused(text):
    assert run("play", "-", input=text).exit_code == 2


def test_play_refuses_a_release_that_does_not_exist():
    done = run("play", "-", "--version", "9.9", input=SCRIPT)
    assert done.exit_code == 2
    assert "'9.9'; known: 0.8.2" in done.stderr
