"""The help and options of `python -m isrlab search --all`; `everything.py` does what they say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

SEARCH = """Look for a schedule that breaks a promise, and print its shortest form.

With --all, every schedule is tried that BUDGETs allow, shortest first: which message arrives next,
which request is repeated, which session ends. Unclean election is off unless LINE turns it on. Of
several partitions, a LINE for each, the last is searched, and the others stay as they are.

The search has no clock: a follower's clock may turn too old any time (lags=1). "No schedule" covers
all delays but two: no request is repeated while it or its answer is in flight, and sessions of dead
brokers end together. What is found is played under the real clock; if no times fit, it says so.

\b
BUDGETs, each at most so often (produces=1 crashes=1 if none is named):
  produces, acks_all   records with acks=1, with acks=all
  crashes, powers      a process dies; its machine loses power
  flushes, checkpoints the log, the high watermark are written to disk
  shutdowns            a broker is shut down cleanly
  losses               a message between machines is lost
  lags                 a follower is too late
  fences               the session of a live broker ends
  elections, uncleans  preferred, unclean, by an operator
  reassigns            other replicas, by an operator
  failovers            another controller takes over

Ctrl-C and the memory limit leave what is done in a folder: --resume goes on from there. The exit
status is 0 if something was broken, 1 if nothing was, 3 if not all was tried.

\b
Examples:
  python -m isrlab search --version 0.10.2 --unless 0.11
  python -m isrlab search --property logs_agree --power power --unless 0.11
  python -m isrlab search --all --version 0.10.2 produces=1 crashes=2
  python -m isrlab search --all --version 2.4 produces=2 crashes=2 losses=1 --workers 2
"""
_NUMBER: dict[str, Any] = {"metavar": "N", "show_default": True}
OPTIONS = (
    click.option(
        "--all", "all_", is_flag=True, help="Try everything. The options below are of it."
    ),
    click.option("--workers", default=1, type=click.IntRange(1, 64), help="Threads.", **_NUMBER),
    click.option(
        "--memory",
        type=click.IntRange(300),  # numba and the libraries take about 200
        metavar="MB",
        help="Stop there.  [default: half of the machine's, at most 4,000]",
    ),
    click.option(
        "--brokers",
        default=0,
        type=click.IntRange(0, 5),
        metavar="N",
        help="So many in all: a reassignment may name others than the replicas.",
    ),
    click.option(
        "--prompt", is_flag=True, help="Messages of and to the controller arrive at once."
    ),
    click.option(
        "--saves",
        default="search-saved",
        show_default=True,
        type=click.Path(file_okay=False, path_type=Path),
        help="Where a search that was stopped is kept.",
    ),
    click.option("--resume", is_flag=True, help="Go on with that."),
)


def of_all(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command with all of them."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command
