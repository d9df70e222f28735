"""A line of progress for what takes more than two seconds: shown while it runs, gone afterwards.

In a terminal it goes to the error stream; in a notebook it is a cell output that is cleared at the
end, so that stored notebooks do not keep it; elsewhere nothing is shown.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET_S = 2.0
EVERY_S = 0.5


@contextmanager
def shown(spark: SparkSession, what: str, tasks: int) -> Iterator[None]:
    """Show how many of `tasks` Spark tasks are done while the body runs."""
    stop = threading.Event()
    line = _line()
    watcher = threading.Thread(
        target=_watch, args=(spark.sparkContext, f"{what}: {{}} of {tasks} cells", line, stop)
    )
    watcher.daemon = True
    if line is not None:
        watcher.start()
    try:
        yield
    finally:
        stop.set()
        if line is not None:
            watcher.join(timeout=5)


def _watch(context, text, line, stop) -> None:  # type: ignore[no-untyped-def]
    """Poll Spark until told to stop; begin to speak after two seconds."""
    began = time.monotonic()
    spoke = False
    while not stop.wait(EVERY_S):
        if time.monotonic() - began < QUIET_S:
            continue
        tracker = context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        done = max((stage.numCompletedTasks for stage in stages if stage), default=0)
        line(text.format(done))
        spoke = True
    if spoke:
        line("")


def _line():  # type: ignore[no-untyped-def]
    """A function that shows one line in place of the last; None where nobody would see it."""
    if "ipykernel" in sys.modules:
        from IPython.display import clear_output

        def in_notebook(text: str) -> None:
            clear_output(wait=bool(text))
            if text:
                print(text)

        return in_notebook
    if sys.stderr.isatty():
        return lambda text: print(f"\r{text:<70}\r{text}", end="", file=sys.stderr, flush=True)
    return None
