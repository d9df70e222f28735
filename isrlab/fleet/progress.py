"""A line of progress for what takes more than two seconds: shown while it runs, gone afterwards.

In a terminal it goes to the error stream; in a notebook it is a cell output that is cleared at the
end, so that stored notebooks do not keep it; elsewhere nothing is shown.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

QUIET_S = 2.0
EVERY_S = 0.5


@contextmanager
def shown(text: Callable[[], str]) -> Iterator[None]:
    """Show what `text` says while the body runs."""
    line = _line()
    if line is None:
        yield
        return
    stop = threading.Event()
    watcher = threading.Thread(target=_watch, args=(text, line, stop), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join(timeout=5)


def _watch(text: Callable[[], str], line: Callable[[str], None], stop: threading.Event) -> None:
    """Ask again and again until told to stop; begin to speak after two seconds."""
    began = time.monotonic()
    spoke = False
    while not stop.wait(EVERY_S):
        if time.monotonic() - began >= QUIET_S:
            line(text())
            spoke = True
    if spoke:
        line("")


def _line() -> Callable[[str], None] | None:
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
