"""What all tests share: Spark, `--rewrite`, nbval, figures, and the order of the tests."""

from __future__ import annotations

import os
import sys

import matplotlib
import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from nbval.kernel import RunningKernel

from isrlab import spark as isrlab_spark
from isrlab.java import JavaMissingError

collect_ignore_glob = ["notebooks/*"]  # small notebooks for the report's tests; some are broken
matplotlib.use("Agg")


# Hypothesis mixes the constants of all local modules that happen to be imported into its draws, so
# a property met other examples alone than together with other tests. Here there are none.
providers._get_local_constants = lambda: providers._local_constants
settings.register_profile("isrlab", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("isrlab")


def pytest_addoption(parser):
    parser.addoption(
        "--rewrite", action="store_true", help="store what the scenarios print as what they expect"
    )
    parser.addoption("--fuzz", action="store_true", help="all prefixes, 10,000 flips: minutes")


def pytest_configure():
    """Let nbval run cells as JupyterLab does.

    It asks for cells to be left out of the history; IPython then takes no notice of the semicolon
    that hides a cell's value, and what is stored never equals what is computed.
    """

    def execute_cell_input(kernel, source, allow_stdin=None):
        return kernel.kc.execute(source, allow_stdin=allow_stdin, stop_on_error=False)

    RunningKernel.execute_cell_input = execute_cell_input


def pytest_collection_modifyitems(config, items):
    """What takes long goes last; with several processes (-n) first, as they then end together."""
    in_processes = config.getoption("numprocesses", None) or hasattr(config, "workerinput")
    items.sort(key=_length, reverse=bool(in_processes))


def _length(item) -> int:
    """0 quick, 1 slow, 2 on Spark; marks as slow what is."""
    on_spark = "spark" in getattr(item, "fixturenames", ())  # a cell of a notebook has none
    if on_spark or item.path.suffix == ".ipynb":
        item.add_marker(pytest.mark.slow)
    return on_spark + (item.get_closest_marker("slow") is not None)


@pytest.fixture(scope="session")
def spark():
    """The one Spark session of the tests, here or where `$ISRLAB_SPARK_MASTER` says (also Connect:
    test_spark_connect.py); without Java they are skipped, saying why."""
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
