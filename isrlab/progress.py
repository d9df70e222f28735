"""A progress line for work that takes more than two seconds, removed when it is done.

In a terminal it goes to the error stream; in a notebook it is a cell output that is cleared at the
end, so that stored notebooks do not keep it. (They would keep the bar of tqdm, even with
`leave=False`.) Elsewhere nothing is shown, unless the work asks for lines in a log.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

QUIET_S = 2.0
EVERY_S = 1.0


@contextmanager
def shown(text: Callable[[], str], in_logs: bool = False) -> Iterator[None]:
    """Show `text()` while the body runs, after its first two seconds."""
    kernel = sys.modules.get("ipykernel.kernelapp")  # in a process that may be no kernel itself
    is_notebook, stop = kernel and kernel.IPKernelApp.initialized(), threading.Event()
    show = _in_notebook if is_notebook else _in_terminal if sys.stderr.isatty() else _in_a_log

    def watch() -> None:
        if not stop.wait(QUIET_S):
            show(text())
            while not stop.wait(EVERY_S):
                show(text())
            show("")

    watcher = threading.Thread(target=watch, daemon=True)
    if in_logs or show is not _in_a_log:
        watcher.start()
    try:
        yield
    finally:
        stop.set()
        if watcher.ident:  # it has started
            watcher.join(timeout=5)


def _in_notebook(text: str) -> None:
    from IPython.display import clear_output

    clear_output(wait=bool(text))
    if text:
        print(text)


def _in_terminal(text: str) -> None:
    print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _in_a_log(text: str) -> None:
    if text:
        print(text, file=sys.stderr, flush=True)
