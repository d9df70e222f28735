"""The help and options of `python -m isrlab search --all`, which `everything.py` runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

SEARCH = """Look for a schedule that breaks a promise, and print it.

It draws schedules at random. From the first that breaks the promise it removes lines while that one
still breaks it; a shorter one may exist. With --all, it tries all schedules that the BUDGETs allow,
shortest first: which message arrives next, which request is repeated, which session ends. Unclean
election is off unless LINE turns it on. With several partitions (a LINE for each) it searches the
last, and the others do not change.

The search has no clock: a follower's clock may expire at any time (lags=1). "No schedule" covers
all delays with two exceptions: no request is repeated while it or its answer is in flight, and the
sessions of dead brokers end together. A break is replayed with real times, if any fit.

\b
BUDGETs: how often each may happen (default: produces=1 crashes=1):
  produces, acks_all   records with acks=1, with acks=all
  crashes, powers      a process dies; a machine loses power
  flushes, checkpoints the log is flushed, the high watermark is checkpointed
  shutdowns            a broker is shut down cleanly
  losses               a message between machines is lost
  lags                 a follower exceeds the lag limit
  fences               the session of a live broker ends
  elections, uncleans  an operator elects: preferred, unclean
  reassigns            an operator reassigns the replicas
  failovers            another controller takes over

On Ctrl-C or at the memory limit the search is saved in a folder; --resume continues it. The exit
status is 0 if a promise was broken, 1 if none was, 3 if not everything was tried.

\b
Examples:
  python -m isrlab search --version 0.10.2 --unless 0.11
  python -m isrlab search --property logs_agree --power power --unless 0.11
  python -m isrlab search --all --version 0.10.2 produces=1 crashes=2
  python -m isrlab search --all --version 2.4 produces=2 crashes=2 losses=1 --workers 2
"""
_NUMBER: dict[str, Any] = {"metavar": "N", "show_default": True}
OPTIONS = (
    click.option("--all", "all_", is_flag=True, help="Try every schedule. Options below need it."),
    click.option("--workers", default=1, type=click.IntRange(1, 64), help="Threads.", **_NUMBER),
    click.option(
        "--memory",
        type=click.IntRange(300),  # numba and the libraries take about 200
        metavar="MB",
        help="Stop when this much memory is used.  [default: half of the machine's, at most 4,000]",
    ),
    click.option(
        "--brokers",
        default=0,
        type=click.IntRange(0, 5),
        metavar="N",
        help="Number of brokers; a reassignment may add those without a replica.",
    ),
    click.option(
        "--prompt", is_flag=True, help="Messages to and from the controller arrive immediately."
    ),
    click.option(
        "--saves",
        default="search-saved",
        show_default=True,
        type=click.Path(file_okay=False, path_type=Path),
        help="Where an interrupted search is saved.",
    ),
    click.option("--resume", is_flag=True, help="Continue the saved search."),
    click.option("--spark", metavar="FOLDER", help="Run on Spark, with levels kept in FOLDER."),
)


def of_all(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add these options to a command."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command
