"""The commands for who runs Kafka: `isrlab check` and `isrlab logs`."""

import gc
import sys
from pathlib import Path
from typing import Any

import click

from isrlab.commands import FILE, stop


# fmt: off
@click.command("check")
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
    from isrlab_ops.check import command
    from isrlab_ops.check.cluster import CheckError

    gc.set_threshold(100_000)  # as in read_logs
    try:
        if watch is None:
            sys.exit(command.tell(how, as_json, False))
        if how["path"] == "-":
            raise CheckError("--watch cannot reread standard input (-); name a file or a cluster")
        sys.exit(command.watch(lambda: command.tell(how, as_json, True), watch))
    except CheckError as error:
        stop(str(error), 2)


@click.command("logs")
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
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--html", "page", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Also write one page that you can send to a colleague.")
@click.option("--decided", "name", metavar="TOPIC-N",
    help="Print instead this partition's history as a scenario, and when its loss was decided.")
@click.option("--follow", type=click.FloatRange(0), is_flag=False, flag_value=5,
    metavar="[SECONDS]",
    help="Read again every SECONDS (5); report when an incident begins and when it is over.")
@click.pass_context
def read_logs(context: click.Context, log_dir: str, *, as_json: bool, since: str | None,
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
    from isrlab_ops.logs.incidents import command
    from isrlab_ops.logs.incidents.window import window as chosen
    from isrlab_ops.logs.reader import LogDirError
    from isrlab_ops.logs.reader.files import stored

    gc.set_threshold(100_000)  # there are many rows without references: nothing to collect
    try:
        how["window"] = chosen(since, until, topic, broker)
        if follow is not None:
            if as_json or page or not Path(log_dir).is_dir():
                raise ValueError("--follow needs a folder, and takes no --json or --html")
            command.follow(log_dir, follow, anonymous, **how)
        path = context.with_resource(stored(log_dir))
        if name is not None:
            sys.exit(command.tell_when_decided(path, name, **how))
        sys.exit(command.tell(path, command.OutputOptions(as_json, page, full, anonymous), **how))
    except BrokenPipeError:  # the reader of a pipe has closed it
        raise
    except (LogDirError, OSError, ValueError) as error:
        stop(printable(str(error)), 2)
# fmt: on
