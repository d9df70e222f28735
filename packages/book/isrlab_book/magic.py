"""The cell magics: `%%scenario` plays and draws a script, `%%exercise` marks an answer.

%load_ext isrlab_book.magic
%%scenario --version 2.5 --name run
partition replicas=1,2
produce 1 m1
status

`%%exercise NAME` plays the cell as the answer to an exercise of `data/exercises` and says which
goals are met. `%exercise NAME` prints the task; `--hint 1` a hint, `--solution` an answer instead.
Tab completes commands, their options, releases and exercises; `%%scenario?` lists the commands.
"""

from __future__ import annotations

import argparse
import re
import shlex
import textwrap
from typing import TYPE_CHECKING, Any

from IPython.core.completer import SimpleCompletion, context_matcher

from isrlab.engine.versions import PRESETS
from isrlab.show.replicas import plot_replicas
from isrlab.world import scenario
from isrlab.world.cluster import NotSettledError
from isrlab.world.commands import COMMANDS, SYNONYMS
from isrlab_book import exercise

if TYPE_CHECKING:
    from IPython.core.completer import CompletionContext, SimpleMatcherResult
    from IPython.core.interactiveshell import InteractiveShell

_RELEASES = [version.name for version in PRESETS.values()]
_OPTIONS = {"%%scenario": ("--version", "--name"), "%exercise": ("--hint", "--solution")}
_SCENARIO = """Play the cell, a scenario, print what happens, and draw its end.

Options: --version V overrides the script's, --name NAME (run) keeps the run under that name.
Words in capitals are yours to choose, [those] may be missing. The commands:
"""


def _read(magic: str, line: str, **known: dict[str, Any]) -> argparse.Namespace:
    """The options of a magic. For others, raises ValueError, which lists those known."""
    parser = argparse.ArgumentParser(prog=magic, add_help=False, exit_on_error=False)
    for name, how in known.items():
        parser.add_argument(f"--{name}" if how else name, **(how or {"nargs": "?", "default": ""}))
    words = ", ".join(f"--{name}" if how else name.upper() for name, how in known.items())
    try:
        options, rest = parser.parse_known_args(shlex.split(line))
    except argparse.ArgumentError as error:
        raise ValueError(f"{error}; known: {words}") from None
    if rest:
        raise ValueError(f"{magic} does not know {rest[0]!r}; known: {words}")
    return options


def answer(line: str, cell: str | None = None) -> str:
    """The text for an exercise: how an answer is marked, or its task, a hint, or the solution.

    Raises ValueError for an answer that cannot be played, an unknown exercise, hint or option.
    """
    is_flag = {"action": "store_true"}
    options = _read("%%exercise", line, name={}, hint={"type": int}, solution=is_flag)
    asked = exercise.read(options.name)
    if options.solution:
        return asked.sections["solution"]
    if options.hint is not None:
        if not 1 <= options.hint <= len(asked.hints):
            raise ValueError(f"no hint {options.hint}; there are {len(asked.hints)}")
        return asked.hints[options.hint - 1]
    more = f"%exercise {asked.name} --hint 1 (to {len(asked.hints)}), or --solution"
    if not (cell or "").strip():
        return f"{asked.task}\nHelp: {more}"
    marks, played = exercise.mark(asked, cell or "")
    lines = [asked.task, *(f"{'✓' if m.is_met else '✗'} {m.text}" for m in marks)]
    failed = [m for m in marks if not m.is_met]
    if not failed:
        return "\n".join([*lines, *filter(None, [exercise.score(asked, cell or "")]), "Solved."])
    lines.append(f"Not yet. Help: {more}")
    if version := next((m.version for m in failed if m.version), ""):
        lines += ["", f"What happened in {version}:", played[version].printed]
    return "\n".join(lines)


def words_at(above: str, line: str) -> list[str] | None:
    """The words that may end `line`, which is below the lines `above` of a cell.

    None outside the cells and lines of this file's magics.
    """
    before = line.split()[: None if line.endswith(" ") else -1]
    if not above:
        magic = (before or [""])[0].replace("%%exercise", "%exercise")
        if magic not in _OPTIONS:
            return None
        first = _RELEASES if before[-1] == "--version" else [*_OPTIONS[magic]]
        return first + exercise.names() * (magic == "%exercise" and len(before) == 1)
    if not above.startswith(("%%scenario", "%%exercise")):
        return None
    if not before:
        return [*COMMANDS]
    form = COMMANDS.get(SYNONYMS.get(before[0], before[0]))
    if form is None or form.words == "VERSION":
        return _RELEASES if form else []
    if "=" in line.split(" ")[-1]:
        return []
    return re.findall(r"\b[a-z][a-z_]+", form.words) + re.findall(r"\S+=", form.options)


@context_matcher()
def complete(context: CompletionContext) -> SimpleMatcherResult:
    """A matcher for IPython: cells of these magics complete to their words, not to Python's."""
    lines = context.full_text.split("\n")[: context.cursor_line + 1]
    line = lines.pop()[: context.cursor_position]
    words = words_at("\n".join(lines), line)
    typed = re.split(r"[\s=]", line)[-1]
    fitting = [SimpleCompletion(word) for word in words or () if word.startswith(typed)]
    return {"completions": fitting, "matched_fragment": typed, "suppress": words is not None}


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register `%%scenario` and `%%exercise`, and their completion, with an IPython shell."""

    def fail(error: Exception) -> None:
        """Print the error to a reader; raise it where papermill or nbval runs the cell, which
        allow no input."""
        parent = shell.get_parent() if hasattr(shell, "get_parent") else {}
        if not parent.get("content", {}).get("allow_stdin", True):
            raise error
        print(error)

    def play_cell(line: str, cell: str) -> None:
        try:
            options = _read("%%scenario", line, version={"type": str}, name={"default": "run"})
            if not options.name.isidentifier():
                raise ValueError(f"{options.name!r} is not the name of a variable")
            run = scenario.play(cell, version=options.version)
        except (ValueError, NotSettledError) as error:
            fail(error)
            return
        shell.user_ns[options.name] = run
        print(run.printed, end="")
        plot_replicas(run.frames[-1])

    def mark_cell(line: str, cell: str | None = None) -> None:
        """Mark the cell as an answer to the exercise in the line; if empty, print the task."""
        try:
            print(answer(line, cell))
        except (ValueError, NotSettledError) as error:
            fail(error)

    usages = (f"{name} {form.words} {form.options}" for name, form in COMMANDS.items())
    lines = (textwrap.fill(usage, 90, subsequent_indent=" " * 4) for usage in usages)
    play_cell.__doc__ = "\n".join([_SCENARIO, *lines])
    if complete not in shell.Completer.custom_matchers:  # the extension may be loaded again
        shell.Completer.custom_matchers.append(complete)
    shell.register_magic_function(play_cell, magic_kind="cell", magic_name="scenario")
    shell.register_magic_function(mark_cell, magic_kind="line_cell", magic_name="exercise")
