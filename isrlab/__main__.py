"""The command line: `python -m isrlab report | page | lab | check | logs | play | search | ...`.

Each distribution brings its commands as entry points of the group `isrlab.commands`.
"""

import io
import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import click

import isrlab
from isrlab.commands import stop
from isrlab.installed import ExtraMissingError

COMMANDS = {  # in the order of the help; the extra that brings each
    "report": "", "page": "book", "lab": "", "check": "ops", "logs": "ops", "play": "",
    "search": "proof", "versions": "",
}  # fmt: skip


@cache
def _installed() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group="isrlab.commands")}


class Commands(click.Group):
    """The commands that are installed; it reports a missing extra or sibling in one line."""

    def list_commands(self, context: click.Context) -> list[str]:
        return [name for name in COMMANDS if name in _installed()]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name in _installed():
            command: click.Command = _installed()[name].load()
            return command
        if extra := COMMANDS.get(name):
            stop(f'the command {name} is not installed: pip install "isrlab[{extra}]"', 2)
        return None

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except ExtraMissingError as error:
            stop(str(error), 2)


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(isrlab.__version__, message="isrlab %(version)s")
def main() -> None:
    """How Apache Kafka keeps replicas in sync, version by version."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # Windows cannot encode all characters
        sys.stdout.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main(prog_name="python -m isrlab")
