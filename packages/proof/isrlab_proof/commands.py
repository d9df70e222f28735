"""The command for who changes the protocol: `isrlab search`."""

from __future__ import annotations

import sys
from typing import Any

import click

from isrlab.commands import stop
from isrlab_proof.search.options import SEARCH, of_all

POWERS = click.Choice(["power", "unclean", "controller", "reassign"])


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
@of_all
def search(
    budgets: tuple[str, ...], *, all_: bool, name: str | None, seeds: int, unless: str | None,
    faults: tuple[str, ...], words: tuple[str, ...], version: str, partition: str, **how: Any,
) -> None:
    try:
        if (unless or faults or words) if all_ else (budgets or how["resume"]):
            raise ValueError("BUDGET and --resume need --all; --unless, --power, --word exclude it")
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
