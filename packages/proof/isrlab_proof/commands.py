"""The command for who changes the protocol: `isrlab search`."""

import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from isrlab.commands import stop

AT_RANDOM = "unless", "faults", "words", "seeds"
OF_ALL = "workers", "memory", "brokers", "prompt", "saves", "resume"
POWERS = click.Choice(["power", "unclean", "controller", "reassign"])

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

The search is saved in a folder every three minutes, on Ctrl-C or SIGTERM, and at the memory limit;
--resume continues it. The exit status is 0 if a promise was broken, 1 if none was, 3 if not
everything was tried.

\b
Examples:
  python -m isrlab search --version 0.10.2 --unless 0.11
  python -m isrlab search --property logs_agree --power power --unless 0.11
  python -m isrlab search --all --version 0.10.2 produces=1 crashes=2
  python -m isrlab search --all --version 2.4 produces=2 crashes=2 losses=1 --workers 2
"""


# fmt: off
@click.command(help=SEARCH)
@click.argument("budgets", nargs=-1, metavar="[BUDGET=N]...")
@click.option("--property", "name", metavar="NAME", help="The promise. Default with --all: any.")
@click.option("--version", default="0.10.2", show_default=True, metavar="V", help="The release.")
@click.option("--unless", metavar="V", help="A release in which the schedule must be harmless.")
@click.option("--partition", default="partition replicas=1,2", show_default=True, metavar="LINE",
    help="The scenario line of the partition, or several separated by newlines.")
@click.option("--power", "faults", multiple=True, type=POWERS, help="Extra faults.")
@click.option("--word", "words", multiple=True, metavar="COMMAND", help="Draw only these commands.")
@click.option("--seeds", default=2_000, show_default=True, type=click.IntRange(1), metavar="N",
    help="Random schedules to try without --all.")
@click.option("--all", "all_", is_flag=True, help="Try every schedule. Options below need it.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1, 64), metavar="N",
    help="Threads.")
@click.option("--memory", type=click.IntRange(300), metavar="MB",  # numba and libraries take 200
    help="Stop when this much memory is used.  [default: half of the machine's, at most 4,000]")
@click.option("--brokers", default=0, show_default=True, type=click.IntRange(0, 5), metavar="N",
    help="Number of brokers; a reassignment may add those without a replica.")
@click.option("--prompt", is_flag=True,
    help="Messages to and from the controller arrive immediately.")
@click.option("--saves", default="search-saved", show_default=True,
    type=click.Path(file_okay=False, path_type=Path), help="Where a search is saved.")
@click.option("--resume", is_flag=True, help="Continue the saved search.")
def search(
    budgets: tuple[str, ...], *, all_: bool, name: str | None, seeds: int, unless: str | None,
    faults: tuple[str, ...], words: tuple[str, ...], version: str, partition: str, **how: Any,
) -> None:
    try:
        _refuse_what_has_no_effect(all_, budgets)
        if all_:
            from isrlab_proof.search import everything
            sys.exit(everything.search_all(version, partition, budgets, name=name, **how))
        from isrlab_proof.search import at_random
        name = name or "committed_records_survive"
        goal = at_random.Goal(name, version, unless, partition, faults, words)
        with click.progressbar(range(seeds), label="seeds", file=sys.stderr) as tried:
            seed, text = next(at_random.find(goal, tried), (None, ""))
    except (OSError, ValueError) as error:
        stop(str(error), 2)
    if seed is None:
        stop(f"none of {seeds} seeds breaks {name} in {goal.version}", 1)
    click.echo(f"# seed {seed} breaks {name}\nversion {goal.version}\n{text}")
# fmt: on


def _refuse_what_has_no_effect(all_: bool, budgets: tuple[str, ...]) -> None:
    """Raise ValueError for an option that this kind of search does not have."""
    if budgets and not all_:
        raise ValueError(f"{budgets[0]!r}: a BUDGET needs --all, and a release --version")
    context = click.get_current_context()
    for option in context.command.params:
        is_given = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if is_given and option.name in (AT_RANDOM if all_ else OF_ALL):
            raise ValueError(f"{option.opts[0]} {'excludes' if all_ else 'needs'} --all")
