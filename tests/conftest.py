"""Shared by all tests: Spark, `--rewrite`, figures, and the order of the tests."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections import Counter
from functools import cache
from itertools import accumulate
from pathlib import Path

import matplotlib
import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from xdist.scheduler import LoadFileScheduling

from isrlab import spark as isrlab_spark
from isrlab.java import JavaMissingError

collect_ignore_glob = ["notebooks/*"]  # small notebooks for the report's tests; some are broken
matplotlib.use("Agg")
# `make check` runs the fastest test functions, CHECK_S in total, and leaves out the others.
SLOW = Path(__file__).with_name("slow.txt")
CHECK_S = 11  # seconds of processor time; two processes take half as long
# Fixtures for which the first test waits; tests of one are not parted, or it is made twice.
SHARED = {"spark", "chromium", "executed", "made", "page_folder", "wheels", "started"}
CORE = "prints_what_it_says", "its_notebook_says_it", "keeps_its_budget"  # never left out


# Hypothesis mixes constants of all imported local modules into its draws, so a property would get
# other examples alone than together with other tests. This line leaves out such constants.
providers._get_local_constants = lambda: providers._local_constants
settings.register_profile("isrlab", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("isrlab")


def pytest_addoption(parser):
    parser.addoption(
        "--rewrite", action="store_true", help="store what the scenarios print as what they expect"
    )
    parser.addoption("--store-slow", action="store_true", help="after a run of all: renew slow.txt")
    parser.addoption("--fuzz", action="store_true", help="all prefixes, 10,000 flips: minutes")


class OneSpark(LoadFileScheduling):
    """A file's tests run in one process, and all that need Spark in the same one, with one JVM."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "on Spark" if _is_on_spark(self.config.rootpath / file) else file


@cache
def _is_on_spark(file: Path) -> bool:
    return re.search(r"def \w+\([^)]*\bspark\b", file.read_text("utf-8")) is not None


def pytest_xdist_make_scheduler(config, log):
    return OneSpark(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(config, items):
    """Run slow tests last, but first with several processes (-n), so that these end together."""
    in_processes = config.getoption("numprocesses", None) or hasattr(config, "workerinput")
    slow = set(SLOW.read_text(encoding="utf-8").splitlines())
    items.sort(key=lambda item: _length(item, slow), reverse=bool(in_processes))
    gc.freeze()  # to look at all tests again and again for garbage takes a tenth of their time
    gc.set_threshold(100_000, 20, 100)


def _length(item, slow: set[str]) -> int:
    """The place of a test in the order: 0 fast, 1 slow, 2 slow on Spark; marks slow tests."""
    fixtures = {*getattr(item, "fixturenames", ())}  # notebook cells have none
    if SHARED & fixtures or item.path.suffix == ".ipynb":
        item.user_properties.append(("slow", "always"))
    if item.user_properties or _function(item.nodeid) in slow:
        item.add_marker(pytest.mark.slow)
    return bool({"spark", "started"} & fixtures) + (item.get_closest_marker("slow") is not None)


def _function(node: str) -> str:
    """The name of a test function, `test_fleet.py::test_name`, without arguments."""
    return Path(node.partition("[")[0]).name


def pytest_terminal_summary(terminalreporter, config):
    """With --store-slow, store the names of the functions that were slow in this run."""
    if not config.getoption("--store-slow"):
        return
    seconds = Counter()
    for report in (r for reports in terminalreporter.stats.values() for r in reports):
        if getattr(report, "user_properties", None) == []:
            seconds[_function(report.nodeid)] += report.duration
    quickest = sorted(seconds, key=seconds.get)
    so_far = accumulate(map(seconds.get, quickest))
    slow = {name for name, passed in zip(quickest, so_far, strict=True) if passed > CHECK_S}
    slow = {name for name in slow if not name.endswith(CORE)}
    SLOW.write_text("".join(f"{name}\n" for name in sorted(slow)), encoding="utf-8")


@pytest.fixture(scope="session")
def spark():
    """The one Spark session of the tests, local or at `$ISRLAB_SPARK_MASTER` (also Spark Connect);
    without Java its tests are skipped with the reason."""
    try:
        session = isrlab_spark.session(os.environ.get(isrlab_spark.MASTER_VARIABLE) or "local[2]")
    except JavaMissingError as error:
        pytest.skip(str(error))
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _no_figure_stays_open():
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
