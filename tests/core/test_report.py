"""The report runs what can run, shows what fails, loses nothing, and opens without a network."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from isrlab import installed
from isrlab.report import notebooks, run
from isrlab.report.notebooks import NotebookError, NotebookRun, Parameter
from isrlab.report.pages import SEARCH
from isrlab.show.player import SCRIPT

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
REPORT = (sys.executable, "-m", "isrlab", "report")
NO_JAVA = {**os.environ, "JAVA_HOME": "/nonexistent"}
HOSTILE = """<script>alert("1")</script>\n'); import os; os._exit(3) #{x} \\ é"""


def make_report(out: Path, *arguments: str, folder=NOTEBOOKS) -> subprocess.CompletedProcess:
    command = [*REPORT, "--notebooks", str(folder), "--out", str(out), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=NO_JAVA, timeout=120)


def text_of(out: Path, name: str) -> str:
    return (out / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A report of all small notebooks, made without Java: (the finished command, its folder)."""
    out = tmp_path_factory.mktemp("report")
    return make_report(out), out


SHOWN = {  # by file; "not" precedes a text that must be missing
    "index.html": (
        *("A small run that works", "Version 0.10.2 took 500 ms.", "lag_ms = 500", "seed 7"),
        *(" s · Kafka 0.10.2", "isrlab 0.", 'href="runs/01_works.html"', "data:image/png;base64,"),
    ),
    "runs/01_works.html": (
        *("data:image/png;base64,", "data-player=", "<summary>2 more", "not VBox(children"),
        *('href="../index.html"', "pyspark", "numba", "numpy", "papermill", "Python 3."),
    ),
    "runs/02_fails.html": ("Traceback (most recent call last)", "before", "not \x1b"),
    "runs/03_kernel_dies.html": ("Kernel died", "<pre>before "),  # its output is kept
}


class TestWholeReport:
    def test_failures_make_the_status_and_the_others_still_run(self, made):
        done, out = made
        assert done.returncode == 1
        assert "2 ok, 2 failed, 1 not run" in done.stdout
        for line in ("01_works: ok", "02_fails: failed", "ZeroDivisionError: division by zero"):
            assert line in done.stderr
        assert "Traceback" not in done.stderr
        child = re.search(r"<pre>before (\d+)", text_of(out, "runs/03_kernel_dies.html"))
        assert not is_running(int(child[1])), "the kernel is gone, and what it had started is not"

    @pytest.mark.parametrize("name", SHOWN)
    def test_pages_show_what_they_should(self, made, name):
        page = text_of(made[1], name)
        for text in SHOWN[name]:
            assert (text.removeprefix("not ") in page) is not text.startswith("not "), text

    @pytest.mark.parametrize("name", ["index.html", "runs/04_needs_spark.html"])
    def test_without_java_it_says_what_to_install(self, made, name):
        assert [t for t in ("not run", "openjdk") if t not in text_of(made[1], name)] == []

    def test_pages_run_no_script_but_the_player_and_load_nothing(self, made):
        pages = [made[1] / "index.html", *(made[1] / "runs").glob("*.html")]
        assert len(pages) == 6
        for page in pages:
            loads = Loads()
            loads.feed(without_player(page))
            assert loads.found == []
            assert "default-src 'none'" in page.read_text().replace("&#39;", "'")
        (player,) = re.findall("<script>.*</script>", text_of(made[1], "runs/01_works.html"), re.S)
        assert player == f"<script>{SCRIPT}</script>"

    def test_no_paths_of_this_machine_are_kept(self, made):
        for path in made[1].rglob("*.*"):
            assert str(NOTEBOOKS) not in path.read_text(encoding="utf-8")

    def test_another_run_is_added_and_a_hostile_value_stays_a_value(self, made):
        out = made[1]
        assert make_report(out, "01", "-p", "version", HOSTILE).returncode == 0
        (page,) = (out / "runs").glob("01_works-*.html")
        assert "<script" not in without_player(page)
        executed = json.loads(page.with_suffix(".ipynb").read_text(encoding="utf-8"))
        printed = executed["cells"][4]["outputs"][0]["text"]
        assert eval("".join(printed))[0] == HOSTILE
        assert "<script" not in without_player(out / "index.html")
        assert text_of(out, "index.html").count("A small run that works") == 2


def without_player(page: Path) -> str:
    """A page without the only scripts that may run; the page's policy names their hashes."""
    text = page.read_text(encoding="utf-8").replace(f"<script>{SCRIPT}</script>", "")
    return text.replace(f"<script>{SEARCH}</script>", "")


class Loads(HTMLParser):
    """Collects everything that a page would run or fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag, attributes):
        source = dict(attributes).get("src") or ""
        if tag in ("script", "link", "iframe", "object", "embed"):
            self.found.append(tag)
        elif source and not source.startswith("data:"):
            self.found.append(source)


def test_a_reply_lost_behind_an_output_widget_does_not_hang_the_report(tmp_path):
    cells = [new_code_cell("import ipywidgets\nshown = ipywidgets.Output()")]
    cells += [new_code_cell(f"with shown:\n    print({i})") for i in range(60)]
    nbformat.write(new_notebook(cells=cells), tmp_path / "01_outputs.ipynb")
    assert make_report(tmp_path / "out", folder=tmp_path).returncode == 0


def test_resume_keeps_what_succeeded_and_is_still_valid(tmp_path, monkeypatch):
    def output_of(*options: tuple[str, str]) -> str:
        progress = run.Progress(io.StringIO())
        run.run_all(runs(*options, names=("02", "05")), tmp_path, resume=True, progress=progress)
        return progress.stream.getvalue()

    assert "kept" not in output_of()
    again = output_of()
    assert "05_waits: ok" in again
    assert "(kept: nothing it depends on has changed)" in again
    assert "02_fails: 5 cells" in again, "what failed runs again"
    assert "kept" not in output_of(("seconds", "0")), "another parameter is another run"
    monkeypatch.setattr(run, "package_digest", lambda: "another package")
    assert "kept" not in output_of()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are read from /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_keeps_what_is_done_and_ends_the_children(number, tmp_path):
    command = [*REPORT, "01", "05", "--jobs", "2", "--notebooks", str(NOTEBOOKS)]
    command += ["--out", str(tmp_path), "-p", "seconds", "600", "-p", "seconds", "601"]  # 05 twice
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in running.stderr:
        if line.startswith("01_works: ok"):
            break
    children = wait_for(lambda: len(found := descendants(running.pid, "sleep")) == 2 and found)
    running.send_signal(number)
    _, printed = running.communicate(timeout=60)
    assert running.returncode == 130
    assert printed.count("interrupted. Done: 01_works; their pages") == 1
    assert "--resume" in printed
    assert "Traceback" not in printed
    assert "A small run that works" in text_of(tmp_path, "index.html")
    wait_for(lambda: not any(map(is_running, children)))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_one_line_for_all_that_run():
    progress = run.Progress(Terminal())
    jobs = [run.Running(each, run.blank_record(each)) for each in runs(names=("01", "02"))]
    for job in jobs:
        progress.start(job)
    progress.on_cell(jobs[1], 2)
    both = "\r\x1b[K01_works: cell 1/10, 0 s · 02_fails: cell 3/5, 0 s"
    assert progress.stream.getvalue().endswith(both)
    progress.end(run.replace(jobs[0].record, status="ok", seconds=1.5))
    rest = "\r\x1b[K01_works: ok, 1.5 s\n\r\x1b[K02_fails: cell 3/5, 0 s"
    assert progress.stream.getvalue().endswith(rest)


def is_running(pid: int) -> bool:
    """Whether a process (on Linux) has not ended; who ended and was not waited for has state Z."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def descendants(pid: int, name: str) -> list[int]:
    """The descendants of a process (on Linux) that are called `name`."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            found += descendants(child, name)
            if Path(f"/proc/{child}/comm").read_text().strip() == name:
                found.append(child)
    return found


def wait_for(condition, seconds: float = 20):
    """Wait until a condition returns a true value, and return it; fail after a time limit."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := condition():
            return answer
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")


def runs(*options: tuple[str, str], names: tuple[str, ...] = ("01",), file: Path | None = None):
    return notebooks.plan(notebooks.find(NOTEBOOKS, names), options, file)


VALUES = (  # the default, the given text, the value
    (500, "250", 250), (500, "1_000", 1000), (0.5, "2", 2.0), (0.5, "1e-3", 0.001),
    ("0.10.2", "2.10", "2.10"), ("a", "__import__('os')", "__import__('os')"),
    (True, "False", False), (None, "null", None), (None, "12", 12),
    (None, "2026-01-01", "2026-01-01"), ([1, 2], "[3, 4]", [3, 4]),
    (["a"], "[2.10, x]", ["2.10", "x"]), ([], "[]", []),
)  # fmt: skip
WRONG_VALUES = (  # the default, the given text, the expected type in words
    (500, "2.5", "a whole number"), (500, "soon", "a whole number"), (0.5, "half", "a number"),
    (True, "1", "true or false"), ([1], "3", "a list"), ([1], "[a]", "a whole number"),
    ([1], "[1, [2]]", "a whole number"), ([1], "[", "a list"), (None, "[", "text"),
)  # fmt: skip


@pytest.mark.parametrize(("default", "text", "value"), VALUES)
def test_a_value_is_read_as_the_type_of_the_default(default, text, value):
    parsed = notebooks.parse(text, Parameter("p", default, ""))
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(("default", "text", "expected"), WRONG_VALUES)
def test_a_value_of_another_type_is_refused_with_what_is_valid(default, text, expected):
    with pytest.raises(NotebookError, match=f"is not {expected} .*; ms, 1 to 9"):
        notebooks.parse(text, Parameter("p", default, "ms, 1 to 9"))


@pytest.mark.parametrize(
    ("default", "comment", "text", "is_right"),
    [
        (30, "replica.lag.time.max.ms, in s; 1 to 600", "600", True),
        (30, "replica.lag.time.max.ms, in s; 1 to 600", "0", False),
        ([1], "values to try; 1 to 1,000 each", "[2, 1001]", False),
        (12.0, "seconds; 0 (one batch) to 3,600", "3600.5", False),
        ("3.7", "Kafka release: any from 0.8.2 to 4.4", "2.4.1", True),
        ("newest", 'your Kafka: "newest", or any from 0.8.2 to 4.4', "99", False),
        ("4.0", "release to compare with: any from 3.7 to 4.0", "4.1", False),
        ("", "Kafka release to try it on, 0.8.2 to 4.4; empty: the newest", "", True),
        (None, "limit, in s; 0.001 to 86,400; None: not known", "0", False),
    ],
)
def test_a_value_out_of_the_range_in_the_comment_is_refused(default, comment, text, is_right):
    parameter = Parameter("release", default, comment)
    refused = pytest.raises(NotebookError, match="its range")
    with contextlib.nullcontext() if is_right else refused:
        notebooks.parse(text, parameter)


def test_the_defaults_are_in_their_ranges():
    for notebook in notebooks.find(installed.NOTEBOOKS, []):
        for parameter in notebook.parameters.values():
            default = parameter.default
            text = default if isinstance(default, str) else json.dumps(default)
            assert notebooks.parse(text, parameter) == default


def test_parameters_are_read_with_their_comments():
    (notebook,) = notebooks.find(NOTEBOOKS, ["works"])
    comment = "Kafka release; version=... picks the rules"
    assert notebook.parameters["version"] == Parameter("version", "0.10.2", comment)
    assert notebook.parameters["limit"].default is None


@pytest.mark.parametrize("name", ["02", "fails", "02_fails"])
def test_a_notebook_answers_to_number_name_and_both(name):
    assert [run.slug for run in runs(names=(name,))] == ["02_fails"]


@pytest.mark.parametrize("name", ["7", "../01_works", "/etc/passwd", "", "01_works.ipynb", "*"])
def test_an_unknown_notebook_is_refused_with_the_known(name):
    with pytest.raises(NotebookError, match=r"unknown notebook .*; known: 01_works, 02_fails"):
        runs(names=(name,))


def test_a_file_that_is_no_notebook_is_refused(tmp_path):
    (tmp_path / "01_broken.ipynb").write_text("{")
    with pytest.raises(NotebookError, match=r"cannot read notebook .*01_broken"):
        notebooks.find(tmp_path)


def test_a_parameter_goes_to_every_notebook_that_has_it():
    given = {run.notebook.name: run.given for run in runs(("lag_ms", "9"), names=())}
    assert given["01_works"] == given["02_fails"] == {"lag_ms": 9}
    assert given["05_waits"] == {}
    assert runs(("release", "3.7"), names=("works",))[0].given == {"version": "3.7"}, "same word"


def test_an_unknown_parameter_is_refused_with_the_known():
    known = r"unknown parameter 'lag'; known:\n  01_works(?s:.*)lag_ms = 500  # ms, 1 to 60000"
    with pytest.raises(NotebookError, match=known):
        runs(("lag", "9"))


def test_several_values_make_one_run_each(tmp_path):
    file = tmp_path / "sweep.yaml"
    file.write_text("version: [2.10, 3.7]\n02_fails:\n  lag_ms: 5\nworks:\n  lag_ms: [1, 2]\n")
    planned = runs(("seed", "1"), names=("01", "02"), file=file)
    assert [(r.given.get("version"), r.given["lag_ms"]) for r in planned] == [
        ("2.10", 1), ("2.10", 2), ("3.7", 1), ("3.7", 2), (None, 5),
    ]  # fmt: skip
    assert len({run.slug for run in planned}) == 5
    assert {run.given["seed"] for run in planned[:4]} == {1}


BAD_FILES = {
    "lag: 3": "unknown parameter 'lag'",
    "01:\n  lag: 3": "unknown parameter 'lag'",
    "09_other:\n  lag_ms: 3": "unknown notebook '09_other'",
    "- 1": "must hold `name: value` lines",
    "a: [": "cannot read .*params.yaml",
    "lag_ms: x": "is not a whole number",
}


@pytest.mark.parametrize(("text", "message"), BAD_FILES.items())
def test_a_bad_parameter_file_is_refused(text, message, tmp_path):
    file = tmp_path / "params.yaml"
    file.write_text(text)
    with pytest.raises(NotebookError, match=message):
        runs(file=file)


def test_file_names_of_runs_stay_in_their_folder():
    (notebook,) = notebooks.find(NOTEBOOKS, ["01"])
    slug = NotebookRun(notebook, {"version": "../../etc/" + "x" * 300, "seed": 1}).slug
    assert "/" not in slug
    assert len(slug) < 80


def test_a_checkout_whose_path_has_braces_works(tmp_path):
    folder = tmp_path / "{a} b"
    folder.mkdir()
    shutil.copy(NOTEBOOKS / "05_waits.ipynb", folder)
    assert make_report(tmp_path / "out", folder=folder).returncode == 0


NAMED = (  # the parameters, what the page calls their Kafka
    ({"version": "3.7", "seed": 1}, "3.7"), ({"versions": ["2.4", "3.7"]}, "2.4, 3.7"),
    ({"version_was": "2.4", "version_now": "2.5"}, "2.4, 2.5"),
    ({"version": None}, None), ({"log_dir": "logs"}, None),
)  # fmt: skip


@pytest.mark.parametrize(("parameters", "named"), NAMED)
def test_a_page_names_the_kafka_versions_among_its_parameters(parameters, named):
    assert run._kafka(parameters) == named
