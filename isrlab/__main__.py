"""The command line: `python -m isrlab report | page | lab | check | logs | play | search | ...`.

Libraries are imported by the command that needs them, so that help is quick and works without Java.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from collections import Counter
from pathlib import Path
from typing import IO, Any, NoReturn

import click

import isrlab
from isrlab.installed import NOTEBOOKS, ExtraMissingError, give, require
from isrlab.report.site import make_page
from isrlab.search.options import SEARCH, of_all
from isrlab.spark import MASTER_VARIABLE, MasterError, require_master

INTERRUPTED, MOST_NAMES = 130, 8
POWERS = ("power", "unclean", "controller", "reassign")
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
JOBS = min(2, os.cpu_count() or 1)
EACH = "Repeat it, or give a list, for one run with each value."


class Commands(click.Group):
    """A group that reports a missing extra in one line."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except ExtraMissingError as error:
            _stop(str(error), 2)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(isrlab.__version__, message="isrlab %(version)s")
def main() -> None:
    """How Apache Kafka keeps replicas in sync, version by version."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # Windows cannot encode all characters
        sys.stdout.reconfigure(errors="backslashreplace")


main.add_command(make_page)


def _use_master(context: click.Context, option: click.Parameter, master: str | None) -> None:
    """Pass a valid master to the kernels of the notebooks."""
    if master:
        try:
            require_master(master)
        except MasterError as error:
            _stop(str(error), 2)
        os.environ[MASTER_VARIABLE] = master


# fmt: off
@main.command("report")
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
      python -m isrlab report 07 -p version 2.5
      python -m isrlab report data_loss -p version 0.10.2 -p version 3.7
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
        _stop(str(error), 2)
    except OSError as error:
        _stop(f"cannot write the report to {out}: {error}", 1)
    except KeyboardInterrupt:
        done = ", ".join(record.slug for record in progress.records) or "none"
        resumed = "Continue with the same command and --resume."
        _stop(f"interrupted. Done: {done}; their pages are in {out}. {resumed}", INTERRUPTED)
    counts = Counter(record.status for record in records)
    summary = ", ".join(f"{count} {status}" for status, count in counts.items())
    click.echo(f"{out / (grid.page if grid else 'index.html')}: {summary}")
    sys.exit(any(record.status != gallery.OK for record in records))


# fmt: on


@main.command(context_settings={"ignore_unknown_options": True})
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
    require("notebooks")
    has_folder = bool(arguments) and not arguments[0].startswith("-")
    folder = Path(arguments[0] if has_folder else "isrlab-workbook")
    try:
        for kind, names in give(folder).items():
            more = f", and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
            if names:
                click.echo(f"{kind}: {', '.join(names[:MOST_NAMES])}{more}")
    except OSError as error:
        _stop(f"cannot copy the notebooks to {folder}: {error}", 1)
    click.echo(f"{folder} has the notebooks of isrlab {isrlab.__version__}")
    if not copy_only:
        from jupyterlab.labapp import main as open_lab

        root = f"--ServerApp.root_dir={folder.resolve()}"
        extension = "--ServerApp.jpserver_extensions=isrlab.report.notebooks=True"
        start = folder.resolve() / "notebooks" / "00_start_here.ipynb"
        open_lab([root, extension, *arguments[has_folder:], str(start)])


# fmt: off
@main.command("check")
@click.argument("path", required=False, metavar="[FILE|DIR|-]")
@click.option("--bootstrap-server", "servers", metavar="HOST:PORT,...",
    help="Query a live cluster (pip install isrlab[live]); nothing is changed there.")
@click.option("--command-config", "config", type=FILE, help="Client properties, as for Kafka.")
@click.option("--timeout", "limit_s", type=click.FloatRange(0.1), default=15, help="In s (15).")
@click.option("--version", metavar="V", help="The release of the brokers. Default: as reported.")
@click.option("--min-isr", type=click.IntRange(1), metavar="N", help="Of topics that report none.")
@click.option("--unclean/--no-unclean", default=None, help="Unclean election. Default: as shown.")
@click.option("--zookeeper/--kraft", default=None,
    help="The mode of brokers 3.3 to 3.9. Default: as reported, else the worse of the two.")
@click.option("--voters", default="", metavar="1,2,3|none|FILE",
    help="The controllers' voters; none: no broker is one. Default: as reported.")
@click.option("--zone", "zones", default="", metavar="1=a,...|FILE", help="Zones of brokers.")
@click.option("--restart", multiple=True, metavar="3|3,4|zone=a",
    help="Check whether these may go down together; the exit status is for them alone.")
@click.option("--ignore", "ignored", multiple=True, help="Topics that may be unavailable (*, ?).")
@click.option("--down", multiple=True, metavar="3|zone=a", help="Show the state if these fail.")
@click.option("--move", type=FILE, help="A plan of kafka-reassign-partitions: show what it does.")
@click.option("--change", default="", help="[TOPIC:]min.insync.replicas=N: show what it clears.")
@click.option("--together", type=click.IntRange(1), default=1, help="Brokers in a roll's step (1).")
@click.option("--least-copies", type=click.IntRange(1), default=2, help="Copies it leaves (2).")
@click.option("--most-leaders", default=0, help="Leaders it moves. Default: a quarter of all.")
@click.option("--throttle", metavar="BYTES/S", help="The throttle of that plan, such as 20MB.")
@click.option("--size", metavar="BYTES", help="Size of each partition in the plan.")
@click.option("--produced", metavar="BYTES/S", help="Produce rate of each partition in the plan.")
@click.option("--down-s", type=click.FloatRange(0.001), help="Seconds that a restart takes.")
@click.option("--load", type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Produce rate as a share of what followers can fetch, such as 0.6.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--watch", type=click.FloatRange(0), is_flag=False, flag_value=5,
    metavar="[SECONDS]", help="Repeat every SECONDS (5) until the exit status is 0.")
def check_cluster(*, as_json: bool, watch: float | None, **how: Any) -> None:
    """Check whether a cluster can take a restart, a failure or a reassignment.

    FILE is the output of kafka-topics --describe (- is standard input), or a snapshot of the
    metadata log; DIR is a folder __cluster_metadata-0. The exit status is 0 if every broker (or
    those of --restart) may go down now, 1 if not or if records are at risk, 2 if that is not known.

    \b
    Examples:
      (kafka-topics.sh --bootstrap-server HOST:9092 --describe; kafka-metadata-quorum.sh \\
        --bootstrap-server HOST:9092 describe --replication) | python -m isrlab check -
      python -m isrlab check described.txt --voters none --zone 1=a,2=b,3=c --down zone=a
      python -m isrlab check --bootstrap-server HOST:9092 --command-config client.properties
      python -m isrlab check --bootstrap-server HOST:9092 --restart 3 --watch && restart-broker 3
      python -m isrlab check /var/lib/kafka/__cluster_metadata-0 --json | jq .roll
      python -m isrlab check described.txt --move plan.json --throttle 20MB --size 5GB
    """
    from isrlab.check import command
    from isrlab.check.cluster import CheckError

    gc.set_threshold(100_000)  # as in read_logs
    try:
        if watch is None:
            sys.exit(command.tell(how, as_json, False))
        if how["path"] == "-":
            raise CheckError("--watch cannot reread standard input (-); name a file or a cluster")
        sys.exit(command.watch(lambda: command.tell(how, as_json, True), watch))
    except CheckError as error:
        _stop(str(error), 2)
# fmt: on


# fmt: off
@main.command("logs")
@click.argument("log_dir", metavar="DIR|-")
@click.option("--since", metavar="TIME", help="Only incidents that end after TIME (UTC).")
@click.option("--until", metavar="TIME", help="Read as if the logs ended at TIME (UTC).")
@click.option("--topic", metavar="NAME", help="Only partitions of this topic; * and ? match.")
@click.option("--broker", type=int, metavar="ID", help="Only incidents of this broker.")
@click.option("--time-zone", metavar="ZONE", help="Zone of the logs. Default: as logged, else UTC.")
@click.option("--min-isr", type=click.IntRange(1), metavar="N",
    help="min.insync.replicas. Default: as logged.")
@click.option("--evidence", "full", is_flag=True, help="Print all quoted lines in full.")
@click.option("--anonymous", is_flag=True,
    help="Replace names of hosts, topics, clients, addresses and paths with pseudonyms.")
@click.option("--csv", "form", flag_value="csv", help="Print a row for each incident.")
@click.option("--json", "form", flag_value="json", help="Print everything as JSON.")
@click.option("--html", "page", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Also write one page that you can send to a colleague.")
@click.option("--decided", "name", metavar="TOPIC-N",
    help="Print instead this partition's history as a scenario, and when its loss was decided.")
@click.option("--follow", type=click.FloatRange(0), is_flag=False, flag_value=5,
    metavar="[SECONDS]",
    help="Read again every SECONDS (5); report when an incident begins and when it is over.")
@click.pass_context
def read_logs(context: click.Context, log_dir: str, *, form: str | None, since: str | None,
    until: str | None, topic: str | None, broker: int | None, follow: float | None, full: bool,
    anonymous: bool, page: Path | None, name: str | None, **how: Any,
) -> None:
    """Report from broker logs what happened to the ISRs, which broker caused it, and whether it
    is over.

    DIR holds the logs of one or many brokers (or is one file); - is standard input. The exit status
    is 0 if all is well when they end, 1 if something is wrong there (WRONG NOW) or committed
    records are gone (RECORDS LOST), 2 if that is not known (LOSS POSSIBLE: with acks=1) or empty.

    \b
    Examples:
      python -m isrlab logs /var/log/kafka
      python -m isrlab logs /var/log/kafka --since 2026-11-21T08:00 --topic 'orders*' --min-isr 2
      kubectl logs my-cluster-kafka-0 | python -m isrlab logs -
      python -m isrlab logs /var/log/kafka --html incident.html --anonymous
      python -m isrlab logs /var/log/kafka --json | jq '.incidents[].says'
      python -m isrlab logs /var/log/kafka --follow
      python -m isrlab logs /var/log/kafka --decided orders-0
    """
    from isrlab.events.wording import printable
    from isrlab.logs.incidents import command
    from isrlab.logs.incidents.window import window as chosen
    from isrlab.logs.reader import LogDirError
    from isrlab.logs.reader.files import stored

    gc.set_threshold(100_000)  # there are many rows without references: nothing to collect
    try:
        how["window"] = chosen(since, until, topic, broker)
        if follow is not None:
            if form or page or not Path(log_dir).is_dir():
                raise ValueError("--follow needs a folder, and takes no --csv, --json or --html")
            command.follow(log_dir, follow, anonymous, **how)
        path = context.with_resource(stored(log_dir))
        if name is not None:
            sys.exit(command.tell_when_decided(path, name, **how))
        sys.exit(command.tell(path, command.OutputOptions(form, page, full, anonymous), **how))
    except BrokenPipeError:  # the reader of a pipe has closed it
        raise
    except (LogDirError, OSError, ValueError) as error:
        _stop(printable(str(error)), 2)
# fmt: on


# fmt: off
@main.command()
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
        _stop(f"{file.name}: {error}", 2)
    click.echo(run.printed, nl=False)


@main.command(help=SEARCH)
@click.argument("budgets", nargs=-1, metavar="[BUDGET=N]...")
@click.option("--property", "name", metavar="NAME", help="The promise. Default with --all: any.")
@click.option("--version", default="0.10.2", show_default=True, metavar="V", help="The release.")
@click.option("--unless", metavar="V", help="A release in which the schedule must be harmless.")
@click.option("--partition", default="partition replicas=1,2", show_default=True, metavar="LINE",
    help="The scenario line of the partition, or several separated by newlines.")
@click.option("--power", "faults", multiple=True, type=click.Choice(POWERS), help="Extra faults.")
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
            from isrlab.search import everything
            sys.exit(everything.search_all(version, partition, budgets, name=name, **how))
        from isrlab.search import at_random
        name = name or "committed_records_survive"
        goal = at_random.Goal(name, version, unless, partition, faults, words)
        with click.progressbar(range(seeds), label="seeds", file=sys.stderr) as tried:
            seed, text = next(at_random.find(goal, tried), (None, ""))
    except (OSError, ValueError) as error:
        _stop(str(error), 2)
    if seed is None:
        _stop(f"none of {seeds} seeds breaks {name} in {goal.version}", 1)
    click.echo(f"# seed {seed} breaks {name}\nversion {goal.version}\n{text}")
# fmt: on


@main.command()
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
        _stop(str(error), 2)
    click.echo(f"{version.column}  {version.name}  rules of {version.releases}")
    for rule in RULES:
        click.echo(f"  {rule.replace('_', ' '):<38}{version.form(rule)}")


def _stop(message: str, status: int) -> NoReturn:
    click.echo(f"isrlab: {message}", err=True)
    sys.exit(status)


if __name__ == "__main__":
    main(prog_name="python -m isrlab")
