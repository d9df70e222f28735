"""What all tests share: one Spark session, the `--rewrite` option, and the order of the tests."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pytest
from hypothesis.internal.conjecture import providers
from nbval.kernel import RunningKernel

from isrlab import spark as isrlab_spark

collect_ignore_glob = ["notebooks/*"]  # small notebooks for the report's tests; some are broken


# Hypothesis mixes the constants of all local modules that happen to be imported into its draws, so
# a property met other examples alone than together with other tests. Here there are none.
providers._get_local_constants = lambda: providers._local_constants


def pytest_addoption(parser):
    parser.addoption(
        "--rewrite", action="store_true", help="store what the scenarios print as what they expect"
    )


def pytest_configure():
    """Let nbval run cells as JupyterLab does.

    It asks for cells to be left out of the history; IPython then takes no notice of the semicolon
    that hides a cell's value, and what is stored never equals what is computed.
    """

    def execute_cell_input(kernel, source, allow_stdin=None):
        return kernel.kc.execute(source, allow_stdin=allow_stdin, stop_on_error=False)

    RunningKernel.execute_cell_input = execute_cell_input


def pytest_collection_modifyitems(items):
    """What is quick goes first, then the notebooks (nbval), then what is marked slow."""
    items.sort(key=lambda item: (item.get_closest_marker("slow") is not None, _is_notebook(item)))


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
def _close_figures():
    """No test leaves figures behind: they would pile up."""
    yield
    plt.close("all")


def _is_notebook(item) -> bool:
    return item.path.suffix == ".ipynb"
