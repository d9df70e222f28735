"""The commands of this package, as entry points; the siblings bring theirs in the same way.

Libraries are imported by the command that needs them, so that help is quick and works without Java.
"""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import IO, Any, NoReturn

import click

import isrlab
from isrlab.installed import NOTEBOOKS, give, require
from isrlab.spark import MASTER_VARIABLE, MasterError, require_master

INTERRUPTED, MOST_NAMES = 130, 8
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
JOBS = min(2, os.cpu_count() or 1)
EACH = "Repeat it, or give a list, for one run with each value."


def stop(message: str, status: int) -> NoReturn:
    """Print the message to standard error, and end with the status."""
    click.echo(f"isrlab: {message}", err=True)
    sys.exit(status)


def _use_master(context: click.Context, option: click.Parameter, master: str | None) -> None:
    """Pass a valid master to the kernels of the notebooks."""
    if master:
        try:
            require_master(master)
        except MasterError as error:
            stop(str(error), 2)
        os.environ[MASTER_VARIABLE] = master


# fmt: off
@click.command("report")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("-p", "parameters", nargs=2, multiple=True, metavar="NAME VALUE",
    help=f"Set a parameter in every chosen notebook that has it. {EACH}")
@click.option("-f", "file", type=FILE,
    help=f"Parameters from a YAML file, for all or under a notebook's name. {EACH}")
@click.option("--grid", "grid_file", type=FILE,
    help="A sweep from YAML: a page for each combination of values, and one overview page.")
@click.option("--out", type=FOLDER, default=Path("reports"), show_default=True,
    help="Where index.html and the pages go.")
@click.option("--jobs", type=click.IntRange(1), default=JOBS, show_default=True, metavar="N",
    help="How many notebooks run at the same time. One on Spark takes about 3 GB.")
@click.option("--resume", is_flag=True, help="Keep the runs that are done and still valid.")
@click.option("--notebooks", "folder", type=FOLDER, default=NOTEBOOKS,
    show_default="those of isrlab", help="The folder of the notebooks.")
@click.option("--master", metavar="URL", envvar=MASTER_VARIABLE, show_envvar=True,
    expose_value=False, callback=_use_master,
    help="Where Spark runs: local[N], spark://host:port, sc://host:port (Connect), yarn, k8s://... "
    "Default: all cores here.")
def make_report(
    names: tuple[str, ...], *, parameters: tuple[tuple[str, str], ...], file: Path | None,
    grid_file: Path | None, out: Path, folder: Path, **how: Any,
) -> None:
    """Run notebooks (all, or those named) and write web pages that need no network.

    \b
    Examples:
      python -m isrlab report
      python -m isrlab report 07 -p release 2.5
      python -m isrlab report data_loss -p release 0.10.2 -p release 3.7
      python -m isrlab report -f data/reports/test.yaml --out /tmp/quick --resume
      python -m isrlab report --grid data/reports/lag_limit.yaml
      python -m isrlab report 12 --master spark://host:7077
    """
    require("notebooks")
    from isrlab.report import gallery, notebooks, run

    progress, grid = run.Progress(), None
    try:
        if grid_file:
            if names or parameters or file:
                raise notebooks.NotebookError("--grid takes no NAME, -p or -f")
            grid, runs = notebooks.read_grid(grid_file, folder.resolve())
        else:
            runs = notebooks.plan(notebooks.find(folder.resolve(), names), parameters, file)
        gallery.write_index(out, grid)
        with run.interrupts():
            records = run.run_all(runs, out, progress=progress, **how)
    except notebooks.NotebookError as error:
        stop(str(error), 2)
    except OSError as error:
        stop(f"cannot write the report to {out}: {error}", 1)
    except KeyboardInterrupt:
        done = ", ".join(record.slug for record in progress.records) or "none"
        resumed = "Continue with the same command and --resume."
        stop(f"interrupted. Done: {done}; their pages are in {out}. {resumed}", INTERRUPTED)
    counts = Counter(record.status for record in records)
    summary = ", ".join(f"{count} {status}" for status, count in counts.items())
    click.echo(f"{out / (grid.page if grid else 'index.html')}: {summary}")
    sys.exit(any(record.status != gallery.OK for record in records))


# fmt: on


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, metavar="[DIR] [OPTION OF JUPYTERLAB]...")
@click.option("--copy-only", is_flag=True, help="Do not open JupyterLab.")
def lab(arguments: tuple[str, ...], copy_only: bool) -> None:
    """Copy the notebooks and data to DIR (default: isrlab-workbook), and open JupyterLab there.

    If you run it again with a newer release of isrlab, it adds new files and updates those that you
    have not changed. To get the new release of a file that you changed, rename or delete yours.

    \b
    Examples:
      python -m isrlab lab
      python -m isrlab lab my-folder --no-browser
    """
    require("book")
    has_folder = bool(arguments) and not arguments[0].startswith("-")
    folder = Path(arguments[0] if has_folder else "isrlab-workbook")
    try:
        for kind, names in give(folder).items():
            more = f", and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
            if names:
                click.echo(f"{kind}: {', '.join(names[:MOST_NAMES])}{more}")
    except OSError as error:
        stop(f"cannot copy the notebooks to {folder}: {error}", 1)
    click.echo(f"{folder} has the notebooks of isrlab {isrlab.__version__}")
    if not copy_only:
        from jupyterlab.labapp import main as open_lab

        root = f"--ServerApp.root_dir={folder.resolve()}"
        extension = "--ServerApp.jpserver_extensions=isrlab.report.notebooks=True"
        start = folder.resolve() / "notebooks" / "00_start_here.ipynb"
        open_lab([root, extension, *arguments[has_folder:], str(start)])


# fmt: off
@click.command()
@click.argument("file", type=click.File("r", encoding="utf-8"))
@click.option("--version", "version", metavar="V", help="Play it under the rules of this release.")
@click.option("--trace", is_flag=True, help="Also show every message.")
@click.option("--decided", "mix", is_flag=False, flag_value="", metavar="['kill=2 power=1']",
    help="Print instead how likely a promise is to break after each step, for this fault mix.")
@click.option("--property", "promise", default="committed_records_survive", show_default=True,
    help="The promise for --decided.")
def play(file: IO[str], version: str | None, trace: bool, mix: str | None, promise: str) -> None:
    """Play a scenario (a file, or - for standard input) and print what happens.

    \b
    Examples:
      python -m isrlab play data/scenarios/loss_bounce.txt
      python -m isrlab play data/scenarios/loss_bounce.txt --version 3.7 --trace
      python -m isrlab play data/scenarios/loss_bounce.txt --decided 'power=1 lose=0'
      cat mine.txt | python -m isrlab play -
    """
    from isrlab.world import decided, scenario

    try:
        text = file.read()
        if mix is not None:
            shares = decided.mix_of(mix)
            click.echo(decided.decided(text, version, promise, shares, jobs=JOBS).table)
            return
        run = scenario.play(text, version=version)
        if trace:  # replay with the trace, so that an error above names the line of the file
            run = scenario.play("trace on\n" + text, version=version)
    except (scenario.ScriptError, ValueError) as error:
        stop(f"{file.name}: {error}", 2)
    click.echo(run.printed, nl=False)
# fmt: on


@click.command()
@click.argument("release", required=False)
@click.option("--markdown", is_flag=True, help="All releases in one table (data/versions.md).")
def versions(release: str | None, markdown: bool) -> None:
    """List what each release of Kafka changed, or all rules of one release.

    \b
    Examples:
      python -m isrlab versions
      python -m isrlab versions 2.5
      python -m isrlab versions --markdown > data/versions.md
    """
    from isrlab.engine.versions import RULES, KafkaVersion
    from isrlab.show import version_table

    if release is None:
        plain = version_table.changes().replace("**", "")
        click.echo(version_table.markdown() if markdown else plain, nl=False)
        return
    try:
        version = KafkaVersion.of(release)
    except ValueError as error:
        stop(str(error), 2)
    click.echo(f"{version.column}  {version.name}  rules of {version.releases}")
    for rule in RULES:
        click.echo(f"  {rule.replace('_', ' '):<38}{version.form(rule)}")
