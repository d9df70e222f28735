"""The cell magic `%%scenario`: a script typed into a notebook is played and drawn.

%load_ext isrlab
%%scenario --version 2.5 --name run
partition replicas=1,2
produce 1 m1
status
"""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from isrlab.show.replicas import plot_replicas
from isrlab.world import scenario

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

KNOWN = "--version V, --name NAME"


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="%%scenario", add_help=False, exit_on_error=False)
    parser.add_argument("--version", default=None)
    parser.add_argument("--name", default="run")
    return parser


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register `%%scenario` with an IPython shell."""

    def play_cell(line: str, cell: str) -> None:
        """Play the cell. Options: --version V overrides the script's, --name NAME keeps the run."""
        try:
            options, rest = _options().parse_known_args(shlex.split(line))
            if rest or not options.name.isidentifier():
                wrong = rest[0] if rest else options.name
                raise ValueError(f"%%scenario does not know {wrong!r}; known: {KNOWN}")
            run = scenario.play(cell, version=options.version)
        except (ValueError, argparse.ArgumentError) as error:
            print(error)
            return
        shell.user_ns[options.name] = run
        print(run.printed, end="")
        plot_replicas(run.frames[-1])

    shell.register_magic_function(play_cell, magic_kind="cell", magic_name="scenario")
