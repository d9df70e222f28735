"""What all tests share: Spark, `--rewrite`, figures, and the order of the tests."""

from __future__ import annotations

import sys

import matplotlib
import pytest
from hypothesis.internal.conjecture import providers

from isrlab import spark as isrlab_spark

collect_ignore_glob = ["notebooks/*"]  # small notebooks for the report's tests; some are broken
matplotlib.use("Agg")


# Hypothesis mixes the constants of all local modules that happen to be imported into its draws, so
# a property met other examples alone than together with other tests. Here there are none.
providers._get_local_constants = lambda: providers._local_constants


def pytest_addoption(parser):
    parser.addoption(
        "--rewrite", action="store_true", help="store what the scenarios print as what they expect"
    )


def pytest_collection_modifyitems(config, items):
    """What is slow goes last; with several processes (-n) first, as they then end together.

    What shares something stays in one process: the Spark session, the executed notebooks, a file.
    """
    for item in items:
        if "spark" in item.fixturenames:
            item.add_marker(pytest.mark.slow)
    in_processes = config.getoption("numprocesses", None) or hasattr(config, "workerinput")
    items.sort(key=lambda item: (item.get_closest_marker("slow") is None) is bool(in_processes))
    for item in items:
        shared = {"spark", "executed"} & set(item.fixturenames)
        item.add_marker(pytest.mark.xdist_group(min(shared, default=item.path.stem)))


@pytest.fixture(scope="session")
def spark():
    """The one Spark session of the tests; without Java they are skipped, saying why."""
    try:
        session = isrlab_spark.session(master="local[2]")
    except isrlab_spark.JavaMissingError as error:
        pytest.skip(str(error))
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _no_figure_stays_open():
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
