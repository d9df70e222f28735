"""The advice of notebooks, tried on real brokers; the recordings are in data/recordings/advice.

    python -m record.advice acks-one 3.9.2 --store        in the folder packages/proof

A try is a topic; ten of them share a cluster, its faults and their times. Its `stored` moments are
all states that the controller stored of it. Where two settings are compared, brokers 1 and 4 differ
in them, lead half of the topics each, and have the same followers.

    acks-one     Broker 2 is paused for 33 s while records come with acks=1. Then the leaders are
                 killed and broker 2 resumes. Broker 1 has a lag limit of 10 s, broker 4 of 60 s.
    handed       Brokers 2 and 3 are paused. Broker 1 has a lag limit of 60 s, broker 4 of 4 s: when
                 they are shut down (or killed) only the ISR of broker 4 has shrunk to itself. Then
                 brokers 2 and 3 resume.
    throttled    kafka-reassign-partitions moves nine partitions to a fourth broker, --batch at a
                 time, under a throttle of --rate MB/s, while records come.
    unclean      Broker 2 dies, then broker 1, and broker 2 is elected, which is not in the ISR.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import click

from isrlab_ops.recordings.reassigned import ADVICE
from judge import jars
from record import config
from record.cluster import Cluster
from record.many import Group, Many, report

Script = Callable[[Many, int, float, int], None]
LAG = "replica.lag.time.max.ms"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
BACKLOG, RECORD_BYTES, EVERY_S = 2_000, 20_000, 0.4  # of each partition that moves
CALM_S = 20  # of load before the move


def led_by_one_and_four(first: str, second: str, tries: int, **more: object) -> list[Group]:
    """Two groups with the same followers."""
    return [
        Group(first, (1, 2, 3), tries, size=100, **more),  # type: ignore[arg-type]
        Group(second, (4, 2, 3), tries, size=100, **more),  # type: ignore[arg-type]
    ]


def begin(many: Many, groups: list[Group]) -> None:
    many.create(*groups)
    many.until(groups, lambda s: len(s.isr) > 1, "all are in sync")
    time.sleep(4)  # until every broker knows of it


def back(many: Many, groups: list[Group], *numbers: int) -> None:
    """Start or resume brokers, and wait until all replicas are in sync."""
    many.cluster.start(*numbers)
    many.until(groups, lambda s: s.leader > 0 and len(s.isr) == len(s.replicas), "in sync", 60)
    many.look("all are back", groups)


def acks_one(many: Many, tries: int, *_: float) -> None:
    groups = led_by_one_and_four("limit-10s", "limit-60s", tries, min_isr=1, acks="1")
    begin(many, groups)
    many.produce(groups, 1)
    many.cluster.pause(2)
    many.note("pause 2")
    paused, number = time.monotonic(), 1
    while time.monotonic() - paused < 31:
        for producer in many.send(groups, number):
            producer.flush(5)
        number += 1
        time.sleep(0.5)
    time.sleep(1)  # until broker 3 has copied the last record
    many.look("before the failure", groups)
    many.cluster.kill(1, 4)
    many.cluster.resume(2)
    many.note("kill 1 and 4, resume 2")
    many.until(groups, lambda s: s.leader in (2, 3), "another broker leads")
    back(many, groups, 1, 4)


def handed(many: Many, tries: int, *_: float, killed: bool = False) -> None:
    names = (f"{when}-{'killed' if killed else 'handed'}" for when in ("before", "after"))
    groups = before, after = led_by_one_and_four(*names, tries)
    begin(many, groups)
    many.produce(groups, 5)
    many.cluster.pause(2)
    many.cluster.pause(3)
    many.send(groups, 5, acks="1")  # a broker answers one request of a connection at a time
    many.note("pause 2 and 3")
    many.until([after], lambda s: s.isr == (4,), "the ISR of broker 4 is itself", 15)
    many.until([before], lambda s: len(s.isr) == 3, "that of broker 1 is whole", 1)
    many.look("before", groups)
    if killed:
        many.cluster.kill(1, 4)
        many.note("kill 1 and 4")
    else:
        for number in (1, 4):
            many.cluster.processes[number].terminate()
        many.note("SIGTERM to 1 and 4")
        time.sleep(2)
    many.look("handed over", groups)
    many.cluster.resume(2)
    many.cluster.resume(3)
    many.note("resume 2 and 3")
    many.until([before], lambda s: s.leader in (2, 3), "another broker leads", 30)
    time.sleep(10)
    many.look("ten seconds later", groups)
    for number in (1, 4):
        many.cluster.processes[number].wait(60)
    back(many, groups, 1, 4)


def throttled(many: Many, tries: int, rate: float, batch: int) -> None:
    """Move nine partitions with a tool that sets both throttles of all brokers, and both lists."""
    orders = (1, 2, 3), (2, 3, 1), (3, 1, 2)
    groups = [Group(f"led-by-{ids[0]}-{number}-", ids, 1, size=RECORD_BYTES, settings={})
              for number in range(3) for ids in orders]  # fmt: skip
    begin(many, groups)
    for number in range(BACKLOG):
        (producer,) = many.send(groups, number)
        if number % 20 == 19:
            producer.flush(60)
    many.until(groups, lambda s: len(s.isr) == 3, "in sync")
    with many.load(groups, BACKLOG, EVERY_S):
        time.sleep(5)
        many.longest_s = 0
        time.sleep(CALM_S)
        many.note(f"longest wait of a produce {many.longest_s:.2f} s")
        many.longest_s = 0
        for first in range(0, len(groups), batch):
            move(many, groups[first : first + batch], rate)
        many.note(f"longest wait of a produce {many.longest_s:.2f} s")
    many.look("moved", groups, disks=False)


def move(many: Many, groups: list[Group], rate: float) -> None:
    """Move these partitions, wait until all have moved, and remove the throttle."""
    parts = [{"topic": topic, "partition": 0, "replicas": [*group.replicas[:2], 4]}
             for group in groups for topic in group.topics]  # fmt: skip
    plan = many.cluster.folder / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": parts}))
    for words in (["--execute", "--throttle", round(rate * 1e6)], ["--verify"]):
        many.note(" ".join(map(str, ["kafka-reassign-partitions", *words])))
        said = many.cluster.run_tool(REASSIGN, "--reassignment-json-file", plan, *words)
        many.note(" ".join(said.split())[-200:])
        many.until(groups, lambda s: 4 in s.isr and not s.adding, "moved", 400)


def unclean(many: Many, tries: int, *_: float) -> None:
    every = {"unclean.leader.election.enable": "true"}
    groups = [Group("unclean", (1, 2), tries, min_isr=1, size=100, settings=every)]
    begin(many, groups)
    many.produce(groups, 10)
    many.cluster.kill(2)
    many.note("kill 2")
    with many.load(groups, 10, 0.1):
        many.until(groups, lambda s: s.isr == (1,), "the ISR is broker 1", 30)
        time.sleep(5)
    for producer in many._producers.values():
        producer.flush(20)
    many.look("before the failure", groups)
    many.cluster.kill(1)
    many.note("kill 1")
    time.sleep(1)
    many.cluster.start(2)
    many.until(groups, lambda s: s.leader == 2, "broker 2 leads", 40)
    many.look("broker 2 leads", groups)
    back(many, groups, 1)


SCRIPTS: dict[str, tuple[Script, config.Settings, dict[int, config.Settings]]] = {
    "acks-one": (acks_one, {"broker.session.timeout.ms": 40_000},
                 {1: {LAG: 10_000}, 4: {LAG: 60_000}}),
    "handed": (handed, {"broker.session.timeout.ms": 18_000}, {1: {LAG: 60_000}, 4: {LAG: 4_000}}),
    "killed": (lambda m, t, *_: handed(m, t, killed=True),
               {"broker.session.timeout.ms": 18_000}, {1: {LAG: 60_000}, 4: {LAG: 4_000}}),
    "throttled": (throttled, {}, {}),
    "unclean": (unclean, {LAG: 3_000, "broker.session.timeout.ms": 6_000}, {}),
}  # fmt: skip


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name", type=click.Choice(list(SCRIPTS)))
@click.argument("release")
@click.option("--tries", default=10, show_default=True, help="Topics of each kind.")
@click.option("--rate", default=8.0, show_default=True, help="The throttle in MB/s.")
@click.option("--batch", default=9, show_default=True, help="Partitions that move together.")
@click.option("--round", "number", default=1, show_default=True, help="A number in the file name.")
@click.option("--store", is_flag=True, help="Store the recording in data/recordings/advice.")
def main(
    name: str, release: str, tries: int, rate: float, batch: int, number: int, store: bool
) -> None:
    """Try advice on real brokers of a release, such as 4.3.1."""
    script, settings, own = SCRIPTS[name]
    brokers = (1, 2, 3, 4) if name != "unclean" else (1, 2)
    with Cluster(release, brokers, settings, own=own) as cluster:
        cluster.start(*brokers)
        many = Many(cluster)
        script(many, tries, rate, batch)
        many.changes(many.groups)
        many.finish(many.groups)
        texts = {key: str(value) for key, value in settings.items()}
        texts |= {f"{key} of {n}": str(value) for n, of in own.items() for key, value in of.items()}
        if name == "throttled":
            texts |= {"throttle": f"{rate:g} MB/s", "batch": str(batch)}
        made = many.run(texts, int(jars.numbers(release) >= (4, 1)))
    kind = f"{name}-{rate:g}-by-{batch}" if name == "throttled" else name
    report(made, f"{release}-{kind}-{number}", is_stored=store, folder=ADVICE)


if __name__ == "__main__":
    main()
