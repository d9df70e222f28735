"""Remedies for a partition that is exposed (`reassigned`), tried on it and on one with a good ELR.

python -m record.remedies good 4.3.1            in the folder packages/proof

    exposed-A, exposed-C   A, or C and G, of `reassigned`; a remedy just before the last failure
    good       All brokers are alive. Brokers 2 and 3 are paused until the ISR is broker 1 and the
               ELR brokers 2 and 3, which have all that acks=all acknowledged. The remedy follows;
               broker 1 loses power, or is killed (killed); brokers 2 and 3 resume. Topics -undone
               and -finished are being moved to brokers 1, 2 and 4.
    restart    The same; another record is acknowledged with acks=1, and broker 1 is shut down.
    release-version, metadata
               A cluster of 3.9.2 gets the brokers of the release, and kafka-features.sh upgrades
               it with this option. Then as good, without a remedy.

Topics -topic, -changed, -cluster, -feature, -undone and -finished are treated as in `reassigned`;
-started: brokers 2 and 3 are in sync again; min-one: min.insync.replicas is 1, and nothing is done.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from isrlab_ops.recordings.reassigned import ADVICE, FOLDER
from judge import jars
from record import config
from record.cluster import Cluster
from record.many import FREE, SLOW, Group, Many, report
from record.reassigned import ELR, MIN_ISR, RECORDS, drained, grown, help_with

SETTINGS = {MIN_ISR: "2", "replica.fetch.response.max.bytes": "1000000"}
PAUSED = {"replica.lag.time.max.ms": "6000", "broker.session.timeout.ms": "50000"}
FEATURES = "org.apache.kafka.tools.FeatureCommand"
OLD = "3.9.2"


def exposed(many: Many, tries: int, only: str) -> None:
    if 4 not in many.cluster.brokers:
        grown(many, "A-finished", "A-undone", tries=tries)
        return
    for hows in ("changed", "undone", "finished"), ("started",), ("cluster",), ("feature",):
        if not only or only in hows:
            drained(many, *(f"{letter}-{how}" for letter in "CG" for how in hows), tries=tries)


def good(many: Many, groups: Sequence[Group], how: str = "power") -> None:
    """Leave the leader alone in the ISR, apply the remedies, and let it fail."""
    cluster, moving = many.cluster, [group for group in groups if is_moving(group.name)]
    many.create(*groups)
    many.until(groups, lambda s: len(s.isr) == 3, "all are in sync")
    time.sleep(5)  # until every broker knows of it
    many.produce([group for group in groups if group not in moving], 3)
    many.produce(moving, RECORDS)
    if moving:
        many.throttle(SLOW, 4)
        many.reassign({"0": "1,2,4"}, moving)
        many.until(moving, lambda s: s.adding == (4,), "broker 4 is added", 10)
    cluster.pause(2)
    cluster.pause(3)
    for group in groups:
        many.send([group], RECORDS, acks="" if group.acks == "1" else "1")[0].flush(10)
    many.until(groups, lambda s: s.isr == (1,), "the ISR is 1", 30)
    many.look("before the remedy", groups)
    help_with(many, groups)
    many.look("before the failure", groups)
    if how == "power":
        cluster.lose_power(1, *(topic for group in groups for topic in group.topics))
    elif how == "killed":
        cluster.kill(1)
    else:
        cluster.shut_down(1)
    for number in set(cluster.paused):
        cluster.resume(number)
    many.until(groups, lambda s: s.leader not in (1, -1), "another broker leads", 80)
    many.look("broker 1 is gone", groups)
    cluster.start(1)
    many.throttle(FREE)
    many.until(groups, lambda s: s.leader > 0 and set(s.isr) == set(s.replicas), "in sync", 60)
    many.look("all are back", groups)
    many.finish(groups)


def is_moving(name: str) -> bool:
    return name.endswith(("-undone", "-finished"))


def rounds(many: Many, elr: int, tries: int, only: str) -> None:
    one = Group("min-one", (1, 2, 3), tries, min_isr=1, size=1_000)
    first = ("good", "good-topic", "good-changed", "good-undone", "good-finished")
    others = ("good-cluster",), ("good-started",), ("killed", "killed-changed"), ("good-feature",)
    for names in (first, *others) if elr else (("good",),):
        if only in ("", *names):
            groups = [Group(name, (1, 2, 3), tries, size=64_000 if is_moving(name) else 1_000)
                      for name in names]  # fmt: skip
            groups += [one] if "good" in names else []
            good(many, groups, "killed" if "killed" in names else "power")


def upgraded(cluster: Cluster, release: str, option: str) -> int:
    """Shut all down, start the new release, upgrade the features as operators do; returns the
    level of eligible leader replicas afterwards."""
    cluster.start(1, 2, 3)
    describe(cluster)
    cluster.shut_down(1)
    cluster.shut_down(2)
    cluster.shut_down(3)
    cluster.shut_down(config.CONTROLLER)
    cluster.version, cluster.release = release, jars.numbers(release)
    cluster.note(f"all nodes start with {release}")
    cluster._run(config.CONTROLLER)
    cluster.start(1, 2, 3)
    describe(cluster)
    line = ".".join(release.split(".")[:2])
    said = cluster.run_tool(FEATURES, "upgrade", option, line)
    cluster.note(f"kafka-features.sh upgrade {option} {line}: {' '.join(said.split())}")
    return describe(cluster)


def describe(cluster: Cluster) -> int:
    lines = cluster.run_tool(FEATURES, "describe").splitlines()
    for line in lines:
        cluster.note("kafka-features.sh describe: " + " ".join(line.split()))
        print(line)
    return sum(ELR in line and "FinalizedVersionLevel: 1" in line for line in lines)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("what", type=click.Choice(["exposed-A", "exposed-C", "good", "restart",
                                           "release-version", "metadata"]))  # fmt: skip
@click.argument("release")
@click.option("--elr", default=1, show_default=True, help="0: without eligible leader replicas.")
@click.option(
    "--only",
    default="",
    help="Of exposed-C: the round with this remedy; of good: with these topics.",
)
@click.option("--tries", default=10, show_default=True)
@click.option("--store", is_flag=True, help="Store the recording in data/recordings/eligible.")
def main(what: str, release: str, elr: int, tries: int, only: str, store: bool) -> None:
    """Try remedies on real brokers of a release, such as 4.3.1."""
    is_upgrade = what in ("release-version", "metadata")
    brokers = (1, 2, 3, 4) if what in ("exposed-C", "good") else (1, 2, 3)
    settings = SETTINGS | ({} if what.startswith("exposed") else PAUSED)
    version = OLD if is_upgrade else release
    features = {} if elr or jars.numbers(version) < (4,) else {ELR: 0}
    with Cluster(version, brokers, settings, features=features) as cluster:
        if is_upgrade:
            elr = upgraded(cluster, release, f"--{what}")
        else:
            cluster.start(*brokers)
        many = Many(cluster)
        if what.startswith("exposed"):
            exposed(many, tries, only)
        elif what == "good":
            rounds(many, elr, tries, only)
        elif what == "restart":
            good(many, [Group(what, (1, 2, 3), tries, acks="1", size=1000)], what)
        else:
            good(many, [Group(what, (1, 2, 3), tries, size=1000)])
        made = many.run(settings, elr)
    folder = ADVICE if what == "restart" else FOLDER
    report(made, f"{release}-elr{elr}-{what}{only and '-'}{only}", is_stored=store, folder=folder)


if __name__ == "__main__":
    main()
